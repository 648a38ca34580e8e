//! Commands that go on until the daemon or a person ends them. The fake ends its streams when all is said.

use std::collections::BTreeSet;
use std::io::Read;
use std::process::{Command, Stdio};

use admin_proto::v1::*;
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use serde_json::Value;
use tonic::Status;

use super::fake::Fake;
use super::fake::samples::{DATA, FIRST, Start, TRAINER1};
use super::support::{Following, snapctl};

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
    assert_eq!(top.status, 7);
    assert_eq!(
        top.stderr,
        "error: snap-target ended the stream of counters: it drains, or has no time for it; try again\n"
    );
}

#[test]
fn rates_are_of_those_who_are_there() {
    let fake = Fake::start();
    let rows = |more: &[&str]| {
        let stat = [&["stat", "--json"], more].concat();
        let ran = snapctl(Some(&fake.socket()), &stat);
        assert_eq!((ran.status, ran.stderr.as_str()), (0, ""));
        let rates: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
        let names = |table: &str, column: &str| {
            let rows = rates[table].as_array().unwrap().iter();
            let names = rows.map(|row| row[column].as_str().unwrap().to_owned());
            names.collect::<Vec<_>>()
        };
        (
            names("hosts", "host_nqn"),
            names("namespaces", "subsystem_nqn"),
        )
    };
    let gone = "nqn.2026-11.org.example:gone";
    assert_eq!(
        rows(&[]),
        (
            vec![TRAINER1.to_owned(), TRAINER1.to_owned()],
            vec![DATA.to_owned(), DATA.to_owned()]
        )
    );
    let (hosts, namespaces) = rows(&["--all"]);
    assert_eq!(hosts, [gone, TRAINER1, TRAINER1]);
    assert_eq!(namespaces, ["", DATA, DATA]);
}

/// The names of all fields, at any depth.
fn fields(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Array(all) => all.iter().for_each(|value| fields(value, found)),
        Value::Object(all) => {
            for (name, value) in all {
                found.insert(name.clone());
                fields(value, found);
            }
        }
        _ => {}
    }
}

#[test]
fn the_document_has_the_fields_of_rates() {
    let fake = Fake::start();
    let ran = snapctl(Some(&fake.socket()), &["stat", "--json"]);
    let mut found = BTreeSet::new();
    fields(&serde_json::from_str(&ran.stdout).unwrap(), &mut found);
    let document = include_str!("../../../../docs/snapctl.md");
    let table: BTreeSet<String> = document
        .lines()
        .filter(|line| line.starts_with("| an interval ") || line.starts_with("| of `"))
        .filter_map(|line| line.split('|').nth(2))
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .map(str::to_owned)
        .collect();
    assert_eq!(table, found);
}

const SECOND: Start = Start {
    instance: "0b1f8e3da574c6b8da9cfe109a2d4c6e",
    revision: admin_proto::REVISION,
};

#[test]
fn following_goes_on_where_it_was_when_the_daemon_is_started_again() {
    let mut fake = Fake::start();
    fake.stay_open();
    let topics = ["--topic", "namespace", "--topic", "announcement"];
    let mut following = Following::start(&fake.socket(), &topics);
    assert_eq!(following.line()["started"]["instance"], FIRST.instance);
    let first = SubscribeRequest {
        topics: vec![Topic::Namespace.into(), Topic::Announcement.into()],
        ..SubscribeRequest::default()
    };
    assert_eq!(fake.asked(), [format!("{first:?}")]);

    fake.restart(SECOND);
    assert_eq!(following.line()["started"]["instance"], SECOND.instance);
    let again = SubscribeRequest {
        from_sequence: 105,
        instance: FIRST.instance.to_owned(),
        from_announcement: 4,
        ..first
    };
    assert_eq!(fake.asked(), [format!("{again:?}")]);
    // All that the second start keeps is new to us.
    let restarted = following.line();
    assert_eq!(restarted["gap"]["reason"], "GAP_REASON_RESTARTED");
    let not_kept = [following.line(), following.line()];
    assert!(
        not_kept
            .iter()
            .all(|line| line["gap"]["reason"] == "GAP_REASON_NOT_KEPT")
    );
    assert_eq!(following.line()["event"]["sequence"], 101);
    assert_eq!(following.line()["announcement"]["sequence"], 2);
    assert_eq!(following.line()["announcement"]["sequence"], 3);
}

#[test]
fn following_ends_where_the_daemon_refuses_it_later() {
    let mut fake = Fake::start();
    fake.stay_open();
    let mut following = Following::start(&fake.socket(), &[]);
    following.line();
    fake.refuse(Status::permission_denied("role read is needed"));
    fake.restart(SECOND);
    let (status, rest, said) = following.end();
    assert_eq!((status, rest), (Some(6), Vec::new()));
    assert!(said.contains("role read is needed"), "{said}");
}

#[test]
fn following_ends_when_it_is_interrupted_and_tells_its_cursor_where_that_is_wanted() {
    let fake = Fake::start();
    fake.stay_open();
    let cursor = format!(r#"{{"cursor":"{}:104:3"}}"#, FIRST.instance);
    // Without a word of its own it ends as any program does, by the signal.
    let ends: [(&[&str], _, _); 2] = [
        (&["--show-cursor"], Some(0), vec![cursor]),
        (&[], None, Vec::new()),
    ];
    for (arguments, status, lines) in ends {
        let mut following = Following::start(&fake.socket(), arguments);
        following.line();
        let pid = Pid::from_raw(following.child.id().try_into().unwrap());
        signal::kill(pid, Signal::SIGINT).unwrap();
        assert_eq!(following.end(), (status, lines, String::new()));
    }
}

#[test]
fn what_was_heard_already_is_not_told_again() {
    let fake = Fake::start();
    let since = format!("{}:104:3", FIRST.instance);
    let ran = snapctl(
        Some(&fake.socket()),
        &["events", "--since", &since, "--show-cursor"],
    );
    assert_eq!((ran.status, ran.stderr.as_str()), (0, ""));
    assert_eq!(ran.stdout, format!("-- cursor: {since}\n"));
}

#[test]
fn numbers_of_another_start_and_such_as_were_never_given_are_said_to_be() {
    let fake = Fake::start();
    let anew = "(snap-target was restarted: numbers of events begin anew)\n";
    for (since, events) in [
        (format!("{}:7:1", SECOND.instance), 4),
        (format!("{}:900:3", FIRST.instance), 0),
    ] {
        let ran = snapctl(Some(&fake.socket()), &["events", "--since", &since]);
        assert_eq!((ran.status, ran.stderr.as_str()), (0, ""));
        assert!(ran.stdout.starts_with(anew), "{}", ran.stdout);
        assert_eq!(
            ran.stdout.matches("2026-11-21T10:01:4").count(),
            events + events / 2,
            "{}",
            ran.stdout
        );
    }
}

#[test]
fn json_events_are_lines_that_parse_and_say_what_was_lost() {
    let fake = Fake::start();
    let ran = snapctl(
        Some(&fake.socket()),
        &["events", "--json", "--topic", "announcement"],
    );
    assert_eq!((ran.status, ran.stderr.as_str()), (0, ""));
    let lines: Vec<Value> = ran
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 5);
    assert_eq!(lines[0]["started"]["next_sequence"], 105);
    assert_eq!(lines[1]["gap"]["last_sequence"], 100);
    assert_eq!(lines[1]["gap"]["reason"], "GAP_REASON_NOT_KEPT");
    assert_eq!(lines[2]["gap"]["announcements"], true);
    assert_eq!(lines[3]["announcement"]["sequence"], 2);
    assert_eq!(lines[3]["announcement"]["position"], 81_920);
    // "ready"
    assert_eq!(lines[3]["announcement"]["payload"], "cmVhZHk=");
    // Epoch 0 is told; a position that nobody told is not.
    assert_eq!(lines[4]["announcement"]["epoch"], 2);
    assert!(lines[4]["announcement"]["position"].is_null());
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
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
