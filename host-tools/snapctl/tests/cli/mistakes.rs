//! What goes wrong is said in one line that helps, with its exit status.

use std::os::unix::net::UnixListener;
use std::time::Duration;

use tonic::{Code, Status};

use super::fake::Fake;
use super::fake::samples::DATA;
use super::support::{Ran, snapctl};

fn fails(ran: &Ran, status: i32, error: &str) {
    assert_eq!(ran.stderr, format!("error: {error}\n"));
    assert_eq!((ran.status, ran.stdout.as_str()), (status, ""));
}

#[test]
fn no_socket_says_what_to_look_at() {
    fails(
        &snapctl(None, &["subsystem", "list"]),
        3,
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
        3,
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
        3,
        &format!(
            "no answer from {} within 1 s: a change may have been made nevertheless; --timeout SECONDS waits longer",
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
    assert_eq!((ran.status, ran.stderr.lines().count()), (3, 1));
}

#[test]
fn refusals_are_passed_on_with_what_to_do() {
    let fake = Fake::start();
    let socket = fake.socket();
    let place = socket.display();
    let version = env!("CARGO_PKG_VERSION");
    for (code, said, status, printed) in [
        (Code::NotFound, "there is no subsystem x", 1, "there is no subsystem x".to_owned()),
        (Code::FailedPrecondition, "two\nlines\x1b[2J", 1, "two lines [2J".to_owned()),
        (Code::Unavailable, "snap-target is draining", 3, "snap-target is draining".to_owned()),
        (
            Code::Unimplemented,
            "",
            3,
            format!("snap-target at {place} does not know this call: it is older than this snapctl ({version}); use the snapctl of its version, `snapctl target show` says it"),
        ),
        (
            Code::PermissionDenied,
            "user 1000 may not ask this daemon",
            3,
            "user 1000 may not ask this daemon".to_owned(),
        ),
        (
            Code::Internal,
            "the front desk is gone",
            1,
            "a fault of snap-target: the front desk is gone (its log says more; `snapctl recorder dump` shows what led to it)".to_owned(),
        ),
    ] {
        fake.refuse(Status::new(code, said));
        fails(&snapctl(Some(&socket), &["subsystem", "delete", DATA]), status, &printed);
    }
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
    let half = [&tcp[..], &["--tls-ca", ca, "--tls-cert", ca]].concat();
    fails(
        &snapctl(None, &half),
        2,
        "--tls-cert and --tls-key belong together: give both or none",
    );
    let missing = [&tcp[..], &["--tls-ca", "/nowhere/ca.pem"]].concat();
    fails(
        &snapctl(None, &missing),
        2,
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
        &["namespace", "show", DATA, "0"],
        &["namespace", "show", DATA, "4294967295"],
        &["namespace", "visibility", DATA, "1"],
        &["subsystem", "create", DATA, "--any-host", "--host", "nqn.x"],
        &["subsystem", "create", DATA, "--transfer", "64K"],
        &["host", "allow", DATA],
        &["host", "allow", DATA, "--any-host", "--only"],
        &["host", "deny", DATA, "nqn.x", "--any-host"],
        &["listener", "add", "127.0.0.1:1", "--port-id", "0"],
        &["target", "drain", "--within", "601"],
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
