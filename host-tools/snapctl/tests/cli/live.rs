//! Commands that go on until the daemon or a person ends them. The fake ends its streams when all is said.

use admin_proto::v1::*;

use super::fake::Fake;
use super::fake::samples::DATA;
use super::support::snapctl;

#[test]
fn top_prints_what_stat_prints_where_there_is_no_terminal() {
    let fake = Fake::start();
    let top = snapctl(Some(&fake.socket()), &["top", "--subsystem", DATA]);
    let filter = StatsFilter {
        subsystem_nqn: DATA.to_owned(),
        ..StatsFilter::default()
    };
    let request = WatchStatsRequest {
        filter: Some(filter),
        interval_ms: 1000,
    };
    assert_eq!(fake.asked(), [format!("{request:?}")]);
    let stat = snapctl(Some(&fake.socket()), &["stat", "--count", "2"]);
    assert_eq!((stat.status, stat.stderr.as_str()), (0, ""));
    // Three snapshots are two intervals, and then the stream ends, which is not what anybody asked for.
    assert_eq!(top.stdout, stat.stdout);
    assert_eq!(top.stdout.matches("subsystem ").count(), 4);
    assert_eq!(top.status, 3);
    assert_eq!(
        top.stderr,
        "error: snap-target ended the stream of counters: it drains, or has no time for it; try again\n"
    );
}

#[test]
fn following_asks_for_the_topics_and_for_what_is_to_come() {
    let fake = Fake::start();
    let ran = snapctl(
        Some(&fake.socket()),
        &[
            "events",
            "--follow",
            "--topic",
            "namespace",
            "--topic",
            "announcement",
        ],
    );
    let request = SubscribeRequest {
        topics: vec![Topic::Namespace.into(), Topic::Announcement.into()],
        from_sequence: 0,
        instance: String::new(),
        from_announcement: 0,
    };
    assert_eq!(fake.asked(), [format!("{request:?}")]);
    assert_eq!((ran.status, ran.stdout.as_str()), (3, ""));
    assert_eq!(
        ran.stderr,
        "error: snap-target ended the stream of events: it drains; --from N goes on behind the last that was told\n"
    );
}

#[test]
fn events_from_a_number_that_is_still_to_come_end_at_once() {
    let fake = Fake::start();
    let ran = snapctl(Some(&fake.socket()), &["events", "--from", "104"]);
    assert_eq!(
        (ran.status, ran.stdout.as_str(), ran.stderr.as_str()),
        (0, "", "")
    );
}

#[test]
fn json_events_are_lines_that_parse_and_say_what_was_lost() {
    let fake = Fake::start();
    let ran = snapctl(
        Some(&fake.socket()),
        &["events", "--json", "--topic", "host"],
    );
    assert_eq!((ran.status, ran.stderr.as_str()), (0, ""));
    let lines: Vec<serde_json::Value> = ran
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[0]["started"]["next_sequence"], 104);
    assert_eq!(lines[1]["gap"]["last_sequence"], 100);
    assert_eq!(lines[1]["gap"]["reason"], "GAP_REASON_NOT_KEPT");
    assert_eq!(lines[2]["event"]["sequence"], 102);
    assert_eq!(lines[2]["event"]["host"]["change"], "HOST_CHANGE_CONNECTED");
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    use std::io::Read;
    use std::process::{Command, Stdio};

    let fake = Fake::start();
    let mut child = Command::new(env!("CARGO_BIN_EXE_snapctl"))
        .args(["stat", "--count", "0"])
        .env("XIO_ADMIN_SOCKET", fake.socket())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Its reader is gone before it prints anything.
    drop(child.stdout.take());
    let mut said = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    assert_eq!((child.wait().unwrap().code(), said.as_str()), (Some(0), ""));
}
