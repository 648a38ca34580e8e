//! What goes wrong is said in one line that helps, with its exit status.

use std::os::unix::net::UnixListener;
use std::time::Duration;

use admin_proto::v1::{ErrorDetail, ObjectKind, Reason};
use serde_json::{Value, json};
use tonic::{Code, Status};

use super::fake::Fake;
use super::fake::samples::{DATA, FIRST, Start};
use super::support::{Ran, snapctl};

fn fails(ran: &Ran, status: i32, error: &str) {
    assert_eq!(ran.stderr, format!("error: {error}\n"));
    assert_eq!((ran.status, ran.stdout.as_str()), (status, ""));
}

#[test]
fn no_socket_says_what_to_look_at() {
    fails(
        &snapctl(None, &["subsystem", "list"]),
        7,
        "there is no socket /nowhere/snap-target.sock: is snap-target running with [admin] in its configuration, and is --socket (XIO_ADMIN_SOCKET) the one named there?",
    );
}

#[test]
fn a_socket_that_was_left_behind_says_that_the_daemon_has_ended() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("admin.sock");
    drop(UnixListener::bind(&path).unwrap());
    fails(
        &snapctl(Some(&path), &["subsystem", "list"]),
        7,
        &format!(
            "nothing listens at {}: snap-target has ended; start it, and look into its log for why it did",
            path.display()
        ),
    );
}

#[test]
fn a_daemon_that_does_not_answer_is_not_waited_for_longer_than_asked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("admin.sock");
    // It listens, and never says a word.
    let listener = UnixListener::bind(&path).unwrap();
    let ran = snapctl(Some(&path), &["subsystem", "list", "--timeout", "1"]);
    drop(listener);
    fails(
        &ran,
        7,
        &format!(
            "no answer from {} within 1 s: a change, where one was asked for, may have been made nevertheless; --timeout SECONDS waits longer",
            path.display()
        ),
    );
}

#[test]
fn something_else_at_the_socket_is_recognized() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("admin.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let server = std::thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut stream, _) = listener.accept().unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        let mut first = [0; 1];
        stream.read_exact(&mut first).unwrap();
        // Its reader may be gone already; what it makes of the words is what is looked at.
        let _ =
            stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\nand more than the nine bytes of a frame\r\n");
    });
    let ran = snapctl(Some(&path), &["subsystem", "list"]);
    server.join().unwrap();
    let start = format!(
        "error: what listens at {} broke off or does not speak the admin protocol: ",
        path.display()
    );
    assert!(ran.stderr.starts_with(&start), "{}", ran.stderr);
    assert_eq!((ran.status, ran.stderr.lines().count()), (7, 1));
}

#[test]
fn refusals_are_passed_on_with_what_to_do() {
    let fake = Fake::start();
    let socket = fake.socket();
    let place = socket.display();
    let version = env!("CARGO_PKG_VERSION");
    let fault = |said: &str| {
        format!(
            "a fault of snap-target: {said} (its log says more; `snapctl recorder dump` shows what led to it)"
        )
    };
    let old = format!(
        "snap-target at {place} does not know this call: it is older than this snapctl ({version}); use the snapctl of its version, `snapctl target show` says it"
    );
    for (code, said, status, printed) in [
        (
            Code::InvalidArgument,
            "nqn: it is empty",
            2,
            "nqn: it is empty",
        ),
        (Code::Unimplemented, "", 3, &old),
        (
            Code::NotFound,
            "there is no subsystem x",
            4,
            "there is no subsystem x",
        ),
        (Code::AlreadyExists, "x is there", 5, "x is there"),
        (
            Code::FailedPrecondition,
            "two\nlines\x1b[2J",
            5,
            "two lines [2J",
        ),
        (Code::ResourceExhausted, "at most 64", 5, "at most 64"),
        (
            Code::PermissionDenied,
            "role change is needed",
            6,
            "role change is needed",
        ),
        (Code::Unauthenticated, "who are you", 6, "who are you"),
        (
            Code::Unavailable,
            "snap-target is draining",
            7,
            "snap-target is draining",
        ),
        (Code::DeadlineExceeded, "too late", 7, "too late"),
        (
            Code::Internal,
            "the front desk is gone",
            1,
            &fault("the front desk is gone"),
        ),
        (Code::Unknown, "what", 1, &fault("what")),
    ] {
        fake.refuse(Status::new(code, said));
        fails(
            &snapctl(Some(&socket), &["subsystem", "delete", DATA]),
            status,
            printed,
        );
    }
}

fn told(ran: &Ran) -> Value {
    assert_eq!(
        (ran.stdout.as_str(), ran.stderr.lines().count()),
        ("", 1),
        "{}",
        ran.stderr
    );
    serde_json::from_str(&ran.stderr).unwrap()
}

#[test]
fn a_program_gets_failures_as_objects() {
    let fake = Fake::start();
    let detail = ErrorDetail {
        reason: Reason::NoSubsystem.into(),
        field: "nqn".to_owned(),
        object_kind: ObjectKind::Subsystem.into(),
        object_key: DATA.to_owned(),
    };
    let bytes = admin_proto::details("there is none", &detail);
    fake.refuse(Status::with_details(
        Code::NotFound,
        "there is none",
        bytes.into(),
    ));
    let ran = snapctl(
        Some(&fake.socket()),
        &["subsystem", "delete", DATA, "--json"],
    );
    assert_eq!(ran.status, 4);
    assert_eq!(
        told(&ran),
        json!({
            "code": "NOT_FOUND",
            "reason": "REASON_NO_SUBSYSTEM",
            "field": "nqn",
            "object_kind": "OBJECT_KIND_SUBSYSTEM",
            "object_key": DATA,
            "message": "there is none",
            "exit_status": 4,
        })
    );
    // Not from a daemon: its detail says nothing.
    let ran = snapctl(None, &["subsystem", "list", "--json"]);
    let object = told(&ran);
    assert_eq!(
        (ran.status, &object["code"], &object["exit_status"]),
        (7, &json!("UNAVAILABLE"), &json!(7))
    );
    assert_eq!(
        (&object["reason"], &object["field"]),
        (&json!("REASON_UNSPECIFIED"), &json!(""))
    );
    // Nor is the command line: a word that is not known, one that is missing, and one that only we know to be wrong.
    for arguments in [
        &["subsystem", "list", "--jsno", "--json"][..],
        &["namespace", "show", "--json", DATA],
        &["target", "show", "--tcp", "127.0.0.1:1", "--json"],
    ] {
        let ran = snapctl(None, arguments);
        let object = told(&ran);
        assert_eq!(
            (ran.status, &object["code"]),
            (2, &json!("INVALID_ARGUMENT")),
            "{arguments:?}"
        );
        assert!(
            !object["message"].as_str().unwrap().contains("Usage"),
            "{object}"
        );
    }
}

#[test]
fn what_comes_from_elsewhere_does_not_drive_the_terminal() {
    let fake = Fake::start();
    let attach = ["namespace", "attach", DATA, "mem:1MiB\x1b[2J"];
    let ran = snapctl(Some(&fake.socket()), &attach);
    let (source, line) = ("attached mem:1MiB [2J as nsid 3", ran.stdout.as_str());
    assert!(line.starts_with(source), "{line:?}");
}

#[test]
fn help_is_help_for_a_program_too() {
    let ran = snapctl(None, &["subsystem", "--help", "--json"]);
    assert_eq!((ran.status, ran.stderr.as_str()), (0, ""));
    assert!(
        ran.stdout.contains("Usage: snapctl subsystem"),
        "{}",
        ran.stdout
    );
}

#[test]
fn what_an_older_daemon_would_ignore_is_not_asked_of_it() {
    let fake = Fake::start();
    fake.be(Start {
        revision: 0,
        ..FIRST
    });
    let socket = fake.socket();
    let detach = [
        "namespace",
        "detach",
        DATA,
        "1",
        "--expect-uuid",
        "5f1a0d8e-93c4-8a51-9d2b-66c1b7a2e3f4",
    ];
    fails(
        &snapctl(Some(&socket), &detach),
        3,
        &format!(
            "--expect-uuid needs revision 1 of the admin contract; snap-target 0.1.0 at {} has revision 0 and would ignore it: nothing was asked of it",
            socket.display()
        ),
    );
    assert_eq!(fake.asked(), ["GetInfoRequest"]);
    let attach = ["namespace", "attach", DATA, "mem:1MiB"];
    for (flag, arguments) in [
        ("--immutable", &["--immutable"][..]),
        ("--limit", &["--limit", "2MB/s"]),
    ] {
        let ran = snapctl(Some(&socket), &[&attach[..], arguments].concat());
        let why = format!("{flag} needs revision 5 of the admin contract");
        assert!(
            ran.status == 3 && ran.stderr.contains(&why),
            "{}",
            ran.stderr
        );
        assert_eq!(fake.asked(), ["GetInfoRequest"]);
    }
    // Without it, nothing is in the way.
    assert_eq!(snapctl(Some(&socket), &detach[..4]).status, 0);
}

#[test]
fn half_of_the_tls_options_is_told_before_anything_is_connected() {
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, "").unwrap();
    let ca = ca.to_str().unwrap();
    let tcp = ["target", "show", "--tcp", "127.0.0.1:1"];
    fails(
        &snapctl(None, &tcp),
        2,
        "--tcp 127.0.0.1:1 needs --tls-ca FILE: the certificate that vouches for the daemon",
    );
    for half in [&["--tls-ca", ca][..], &["--tls-ca", ca, "--tls-cert", ca]] {
        fails(
            &snapctl(None, &[&tcp[..], half].concat()),
            2,
            "--tcp 127.0.0.1:1 needs --tls-cert FILE and --tls-key FILE: the daemon asks who we are",
        );
    }
    let missing = [
        &tcp[..],
        &[
            "--tls-ca",
            "/nowhere/ca.pem",
            "--tls-cert",
            ca,
            "--tls-key",
            ca,
        ],
    ]
    .concat();
    fails(
        &snapctl(None, &missing),
        3,
        "reading /nowhere/ca.pem: No such file or directory (os error 2)",
    );
}

#[test]
fn wrong_command_lines_exit_with_2() {
    for arguments in [
        &["namespace", "resize", DATA, "1"][..],
        &[
            "namespace",
            "resize",
            DATA,
            "1",
            "--size",
            "1GiB",
            "--rescan",
        ],
        &["namespace", "attach", DATA, "mem:1MiB", "--lba", "520"],
        &["namespace", "attach", DATA, "mem:1MiB", "--limit", "200MB"],
        &["namespace", "show", DATA, "0"],
        &["subsystem", "create", DATA, "--controllers", "0"],
        &["namespace", "show", DATA, "4294967295"],
        &["namespace", "visibility", DATA, "1"],
        &["subsystem", "create", DATA, "--any-host", "--host", "nqn.x"],
        &["subsystem", "create", DATA, "--transfer", "64K"],
        &["host", "allow", DATA],
        &["host", "allow", DATA, "--any-host", "--only"],
        &["host", "deny", DATA, "nqn.x", "--any-host"],
        &["listener", "add", "127.0.0.1:1", "--port-id", "0"],
        &["target", "drain", "--within", "601"],
        &["namespace", "show-to", DATA, "1"],
        &[
            "namespace",
            "attach",
            DATA,
            "mem:1MiB",
            "--all-hosts",
            "--host",
            "nqn.x",
        ],
        &["listener", "add", "127.0.0.1:0", "--ensure"],
        &["events", "--since", "104"],
        &["announce", "nqn.x", "--nsid", "0"],
        &["subsystem"],
        &[],
    ] {
        let ran = snapctl(None, arguments);
        assert_eq!(
            (ran.status, ran.stdout.as_str()),
            (2, ""),
            "{arguments:?}: {}",
            ran.stderr
        );
    }
}
