//! Orders of what will be read, given to the real daemon, and what became of them.

mod example;

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use initiator::{Initiator, Options};
use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

use super::{Daemon, NQN};

const FRAME: usize = 64 << 10;
const FRAMES: usize = 64;

/// A daemon, and a disk of so many frames that nobody changes at the end of a line, as NSID 1 of a subsystem.
fn disk(folder: &TempDir) -> Daemon {
    let disk = folder.path().join("disk.raw");
    let bytes: Vec<u8> = (0..FRAMES)
        .flat_map(|n| [u8::try_from(n).unwrap(); FRAME])
        .collect();
    std::fs::write(&disk, bytes).unwrap();
    let daemon = Daemon::start(folder.path());
    daemon.done(&["subsystem", "create", NQN, "--any-host"]);
    let source = format!("file:{}", disk.display());
    let limit = "1GB/s,latency=1000us";
    daemon.done(&[
        "namespace",
        "attach",
        NQN,
        &source,
        "--immutable",
        "--limit",
        limit,
    ]);
    daemon
}

fn order(folder: &TempDir, name: &str, frames: &[usize]) -> PathBuf {
    let path = folder.path().join(name);
    let lines = frames.iter().map(|n| format!("{} {FRAME}\n", n * FRAME));
    std::fs::write(&path, lines.collect::<String>()).unwrap();
    path
}

fn prefetch(daemon: &Daemon, ranges: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_snapctl"));
    command
        .args(["namespace", "prefetch", NQN, "1", "--ranges"])
        .arg(ranges)
        .args(more)
        .env("XIO_ADMIN_SOCKET", daemon.socket())
        .env("TERM", "xterm")
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .stdout(Stdio::piped());
    command
}

/// An order that goes on, and its lines.
struct Going {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Going {
    fn start(mut command: Command) -> Going {
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Going { child, lines }
    }

    /// The first message of which this is so.
    fn message(&mut self, is_so: impl Fn(&Value) -> bool) -> Value {
        let mut messages = self.lines.by_ref().map(|line| {
            let message: Value = serde_json::from_str(&line.unwrap()).unwrap();
            message
        });
        messages.find(is_so).unwrap()
    }

    fn interrupt(&self) {
        let pid = Pid::from_raw(self.child.id().cast_signed());
        kill(pid, Signal::SIGINT).unwrap();
    }

    /// Its exit status, the rest of what it printed, and what it said of a failure.
    fn end(mut self) -> (i32, String, String) {
        let rest: Vec<String> = self.lines.by_ref().map(Result::unwrap).collect();
        let mut said = String::new();
        let mut stderr = self.child.stderr.take().unwrap();
        stderr.read_to_string(&mut said).unwrap();
        let status = self.child.wait().unwrap().code().unwrap();
        (status, rest.join("\n"), said)
    }
}

fn read(daemon: &Daemon, frames: &[usize]) {
    let mut host = Initiator::connect(&daemon.address(), NQN, &Options::default()).unwrap();
    let mut found = vec![0; FRAME];
    for n in frames {
        host.read(1, (n * FRAME) as u64, &mut found).unwrap();
        assert!(found.iter().all(|byte| usize::from(*byte) == *n), "{n}");
    }
}

#[test]
#[ignore = "needs the daemon's program beside this one: ci/test builds both"]
fn what_is_wrong_with_an_order_is_named_with_its_line_and_nothing_is_ever_complete_before() {
    let folder = TempDir::new().unwrap();
    let daemon = disk(&folder);
    let last = FRAMES - 1;
    for (text, why) in [
        (String::new(), " has no range: nothing was ordered"),
        (
            format!("0 4096\n{} {}\n", last * FRAME, FRAME + 1),
            ":2: 65537 bytes at 4128768 do not lie within the disk, which has 4194304 bytes",
        ),
        (
            "0 4096\n4096\n".to_owned(),
            ":2: `4096` is not a first byte and a number of bytes: write 4096 65536",
        ),
        // In another message than the first.
        (
            format!("{}x\n", "0 4096\n".repeat(5000)),
            ":5001: `x` is not a first byte and a number of bytes: write 4096 65536",
        ),
    ] {
        let path = folder.path().join("wrong.txt");
        std::fs::write(&path, text).unwrap();
        let ran = prefetch(&daemon, &path, &[]).output().unwrap();
        let (said, printed) = (ran.stderr, String::from_utf8(ran.stdout).unwrap());
        let said = String::from_utf8(said).unwrap();
        assert_eq!(said, format!("error: {}{why}\n", path.display()));
        assert_eq!(ran.status.code(), Some(3));
        assert!(!printed.contains("all of"), "{printed}");
    }
    daemon.drain();
}

#[test]
#[ignore = "needs the daemon's program beside this one: ci/test builds both"]
fn an_order_is_shown_until_it_is_through_replaced_or_interrupted() {
    let folder = TempDir::new().unwrap();
    let daemon = disk(&folder);
    let few = [9, 3, 30, 31, 32, 4];
    let few_path = order(&folder, "few.txt", &few);
    let ran = prefetch(&daemon, &few_path, &["--epoch", "1"])
        .output()
        .unwrap();
    let printed = String::from_utf8(ran.stdout).unwrap();
    assert_eq!(
        printed.lines().last(),
        Some(
            "all of 6 ranges, 384 KiB of the disk, fetched; 384 KiB in the cache wait for their reader; frames read: 0 in time, 0 late; 0 wasted"
        )
    );
    read(&daemon, &few);
    let totals = daemon.json(&["stat", "--totals", "--prefetch"]);
    let ahead = &totals["namespaces"][0]["prefetch"];
    let count = |name: &str| ahead[name].as_u64().unwrap();
    let counts = ["fetched", "hits", "late", "wasted", "kept_bytes"].map(count);
    assert_eq!(counts, [6, 6, 0, 0, 0]);
    let table = daemon.done(&["stat", "--totals", "--prefetch"]);
    let row: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row[3..], ["393,216", "393,216", "0", "0", "0"], "{table}");

    // A megabyte of quota is a quarter of the disk: the order waits for its reader.
    let all: Vec<usize> = (0..FRAMES).rev().collect();
    let all_path = order(&folder, "all.txt", &all);
    let more = ["--epoch", "two", "--quota-mib", "1", "--json"];
    let mut first = Going::start(prefetch(&daemon, &all_path, &more));
    let full = first.message(|told| told["ahead_bytes"] == 1 << 20);
    assert_eq!(full["epoch_id"], "two");
    assert_eq!(full["given_ranges"], FRAMES);
    assert_eq!(full["fetched_bytes"], 1 << 20);
    let mut second = Going::start(prefetch(&daemon, &all_path, &more));
    second.message(|told| told["fetched_bytes"] == 1 << 20);
    let (status, _, said) = first.end();
    let object: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((status, &object["code"]), (5, &Value::from("ABORTED")));
    second.interrupt();
    let (status, _, said) = second.end();
    assert_eq!((status, said.as_str()), (130, ""));

    let mut third = Going::start(prefetch(&daemon, &all_path, &["--quota-mib", "1"]));
    let line = third.lines.next().unwrap().unwrap();
    assert!(line.contains(" of 4.00 MiB fetched"), "{line}");
    third.interrupt();
    let (status, rest, said) = third.end();
    assert_eq!((status, said.as_str()), (130, ""));
    let last = rest.lines().last().unwrap();
    assert!(last.starts_with("interrupted: "), "{rest}");
    daemon.drain();
}

#[test]
#[ignore = "needs the daemon's program beside this one: ci/test builds both"]
fn at_a_terminal_an_order_has_a_bar() {
    let folder = TempDir::new().unwrap();
    let daemon = disk(&folder);
    let all: Vec<usize> = (0..FRAMES).rev().collect();
    let all_path = order(&folder, "all.txt", &all);
    let size = Winsize {
        ws_row: 24,
        ws_col: 120,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let pty = openpty(Some(&size), None).unwrap();
    let mut command = prefetch(&daemon, &all_path, &["--quota-mib", "1"]);
    command.stdout(pty.slave.try_clone().unwrap());
    let mut child = command.spawn().unwrap();
    drop((command, pty.slave));
    let mut terminal = File::from(pty.master);
    let (mut shown, mut piece) = (String::new(), [0; 4096]);
    let mut until = |mark: &str, shown: &mut String| {
        while !shown.contains(mark) {
            let Ok(count @ 1..) = terminal.read(&mut piece) else {
                return;
            };
            shown.push_str(std::str::from_utf8(&piece[..count]).unwrap());
        }
    };
    // A quarter of it, as the quota is.
    until(
        "\r\x1b[K[#####---------------]  25 %  1.00 MiB of 4.00 MiB fetched",
        &mut shown,
    );
    read(&daemon, &all);
    until("of the disk, fetched", &mut shown);
    let last = shown.rsplit("\r\x1b[K").next().unwrap();
    assert!(
        last.starts_with("all of 64 ranges, 4.00 MiB of the disk, fetched"),
        "{shown:?}"
    );
    assert_eq!(child.wait().unwrap().code(), Some(0));
    daemon.drain();
}

#[test]
#[ignore = "needs the daemon's program beside this one: ci/test builds both"]
fn an_immutable_and_limited_disk_is_shown_and_kept_over_a_restart() {
    let folder = TempDir::new().unwrap();
    let daemon = disk(&folder);
    let check = |daemon: &Daemon| {
        let shown = daemon.done(&["namespace", "show", NQN, "1"]);
        let has = |line: &str| shown.lines().any(|it| it == line);
        assert!(has("writes       no (immutable)"), "{shown}");
        assert!(has("limit        1GB/s,latency=1ms"), "{shown}");
        let list = daemon.done(&["namespace", "list", NQN]);
        assert!(
            list.contains("no (immutable)") && list.contains("1GB/s,latency=1ms"),
            "{list}"
        );
        let mut host = Initiator::connect(&daemon.address(), NQN, &Options::default()).unwrap();
        assert!(host.write(1, 0, &[1; 4096]).is_err());
    };
    check(&daemon);
    let again = format!("file:{}", folder.path().join("disk.raw").display());
    let ensure = [
        "namespace",
        "attach",
        NQN,
        &again,
        "--ensure",
        "--immutable",
        "--limit",
    ];
    daemon.done(&[&ensure[..], &["1000MB/s,latency=1ms"]].concat());
    let other = daemon.ctl(&[&ensure[..], &["2GB/s"]].concat());
    assert!(
        other
            .stderr
            .contains("its limit is 1GB/s,latency=1ms, not 2GB/s"),
        "{}",
        other.stderr
    );
    daemon.drain();
    let restarted = Daemon::start(folder.path());
    check(&restarted);
    let shown = restarted.done(&["target", "show"]);
    assert!(
        shown.contains("32MiB of each reactor for each namespace"),
        "{shown}"
    );
    restarted.drain();
}
