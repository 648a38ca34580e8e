//! A target that is not there when a disk is opened, or goes meanwhile: it is tried again for a while, and a person is told.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;
use std::thread;

use super::relay::Relay;
use super::served::{NQN, Target};
use super::support::{Folder, xio};

/// So many connections are cut, each wherever it is.
const CUTS: usize = 3;

#[test]
fn a_target_that_comes_later_or_goes_is_tried_again() {
    let folder = Folder::new();
    fs::create_dir(folder.path("d")).unwrap();
    folder.write("d/letter", b"dear reader");
    folder.done(["pack", "d", "-o", "v.xio"]);
    let target = Target::start(NQN, &[&folder.path("v.xio")]);
    let relay = Relay::start();
    let url = format!("nvme+tcp://{}/{NQN}?nsid=1", relay.address);
    for command in [["cp", &url, "copy"], ["diff", "d", &url]] {
        relay.lead(None);
        let mut child = xio()
            .current_dir(folder.path(""))
            .args(command)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut note = String::new();
        stderr.read_line(&mut note).unwrap();
        assert!(note.starts_with("note: trying again for 30s: "), "{note}");
        let mut cut = 0;
        while cut < CUTS && child.try_wait().unwrap().is_none() {
            cut += relay.lead(Some(target.address));
            thread::yield_now();
        }
        let mut more = String::new();
        stderr.read_to_string(&mut more).unwrap();
        assert_eq!((child.wait().unwrap().code(), more.as_str()), (Some(0), ""));
        assert!(cut >= CUTS, "{cut}");
    }
    assert_eq!(folder.read("copy/letter"), b"dear reader");
}

#[test]
fn a_target_that_does_not_come_is_given_up_and_what_one_says_is_not_waited_for() {
    let folder = Folder::new();
    folder.write("a", b"dear reader");
    folder.done(["pack", "a", "-o", "v.xio"]);
    fs::create_dir(folder.path("m")).unwrap();
    let relay = Relay::start();
    let url = format!("nvme+tcp://{}/{NQN}?nsid=1", relay.address);
    for (seconds, lines) in [("1", 2), ("0", 1)] {
        let ran = folder.xio(["mount", &url, "m", "--reconnect", seconds]);
        assert_eq!((ran.status, ran.stdout.as_str()), (3, ""));
        let said: Vec<&str> = ran.stderr.lines().collect();
        assert_eq!(said.len(), lines, "{}", ran.stderr);
        let error = said[lines - 1];
        assert!(error.starts_with("error: "), "{error}");
        assert_eq!(error.ends_with("; given up after 1s"), lines == 2);
    }
    let target = Target::start(NQN, &[&folder.path("v.xio")]);
    let absent = target.url("?nsid=9");
    let says = "namespace 9 is not there; the subsystem has [1]";
    folder.fails(3, says, &["cp", &absent, "copy"]);
}
