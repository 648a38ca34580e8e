//! `snapctl doctor` on the machine that runs the test: whatever that is, the report holds together.

use std::net::TcpListener;

use serde_json::Value;

use super::support::snapctl;

/// What is looked at everywhere.
const CHECKS: [&str; 10] = [
    "kernel",
    "io_uring",
    "memlock",
    "open files",
    "memory",
    "huge pages",
    "processor",
    "RDMA",
    "ublk",
    "nvme-tcp host",
];

fn names(report: &Value) -> Vec<&str> {
    let findings = report["findings"].as_array().unwrap();
    findings
        .iter()
        .map(|finding| finding["check"].as_str().unwrap())
        .collect()
}

#[test]
fn every_check_is_made_and_what_is_wrong_has_its_cost_and_its_cure() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    // No socket: it needs no daemon.
    let ran = snapctl(None, &["doctor", path, "--listen", "127.0.0.1:0", "--json"]);
    assert_eq!(ran.stderr, "");
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    let names = names(&report);
    assert_eq!(names[..CHECKS.len()], CHECKS);
    assert_eq!(names[CHECKS.len()], "listen 127.0.0.1:0");
    assert_eq!(names[CHECKS.len() + 1], format!("{path}: file system"));
    let (mut warnings, mut failures) = (0, 0);
    for finding in report["findings"].as_array().unwrap() {
        let wrong = match finding["verdict"].as_str().unwrap() {
            "ok" => 0,
            "warn" => {
                warnings += 1;
                1
            }
            "fail" => {
                failures += 1;
                1
            }
            other => panic!("{other}"),
        };
        assert_eq!(finding["costs"].is_string(), wrong == 1, "{finding}");
        assert_eq!(finding["mend"].is_string(), wrong == 1, "{finding}");
    }
    assert_eq!(report["warnings"], warnings);
    assert_eq!(report["failures"], failures);
    assert_eq!(ran.status, i32::from(failures > 0));
}

#[test]
fn a_path_that_is_not_there_fails_and_a_port_that_is_taken_warns() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ran = snapctl(None, &["doctor", "/nowhere/at/all", "--listen", &address]);
    assert_eq!((ran.status, ran.stderr.as_str()), (1, ""));
    let line = |start: &str, about: &str| {
        ran.stdout
            .lines()
            .any(|line| line.starts_with(start) && line.contains(about))
    };
    assert!(line("warn", &format!("listen {address}")), "{}", ran.stdout);
    assert!(line("FAIL", "/nowhere/at/all"), "{}", ran.stdout);
    assert!(!ran.stdout.contains('\x1b'));
}

#[test]
fn another_process_is_looked_at_by_its_number() {
    let own = std::process::id().to_string();
    let ran = snapctl(
        None,
        &["doctor", "--pid", &own, "--listen", "127.0.0.1:0", "--json"],
    );
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(names(&report)[..CHECKS.len()], CHECKS);
    // Process numbers end far below this.
    let gone = snapctl(None, &["doctor", "--pid", "4294967295"]);
    assert_eq!(
        (gone.status, gone.stderr.as_str()),
        (
            3,
            "error: reading /proc/4294967295/limits: No such file or directory (os error 2)\n"
        )
    );
}
