//! `--ensure`: what is there already as it was asked for is done; another one is exit status 5, with the difference.

use admin_proto::v1::{ErrorDetail, Reason};
use tonic::{Code, Status};

use super::fake::Fake;
use super::fake::samples::{DATA, SCRATCH, TRAINER1, TRAINER2};
use super::support::{Ran, snapctl};

fn run(fake: &Fake, arguments: &[&str]) -> Ran {
    snapctl(Some(&fake.socket()), arguments)
}

fn refuse(fake: &Fake, request: &str, reason: Reason) {
    let detail = ErrorDetail {
        reason: reason.into(),
        ..ErrorDetail::default()
    };
    let details = admin_proto::details("taken", &detail).into();
    fake.refuse_only(
        request,
        Status::with_details(Code::AlreadyExists, "taken", details),
    );
}

fn done(fake: &Fake, arguments: &[&str], line: &str) {
    let ran = run(fake, arguments);
    assert_eq!((ran.status, ran.stderr.as_str()), (0, ""), "{arguments:?}");
    assert_eq!(ran.stdout, line);
}

fn differs(fake: &Fake, arguments: &[&str], error: &str) {
    let ran = run(fake, arguments);
    assert_eq!((ran.status, ran.stdout.as_str()), (5, ""), "{arguments:?}");
    assert_eq!(ran.stderr, format!("error: {error}\n"));
}

#[test]
fn a_subsystem() {
    let fake = Fake::start();
    refuse(&fake, "CreateSubsystemRequest", Reason::SubsystemExists);
    let create = ["subsystem", "create", DATA];
    let with = |more: &[&'static str]| [&create[..], more, &["--ensure"]].concat();
    differs(&fake, &create, "taken");
    let there = format!("{DATA} is there already\n");
    done(&fake, &with(&[]), &there);
    // A list has no order.
    let same = [
        "--serial",
        "XIO0123456789abcdef",
        "--host",
        TRAINER2,
        "--host",
        TRAINER1,
        "--io-queues",
        "8",
    ];
    done(&fake, &with(&same), &there);
    differs(
        &fake,
        &with(&["--serial", "S1", "--host", TRAINER1, "--io-queues", "9"]),
        &format!(
            "{DATA} is there already, and is another one: its serial number is XIO0123456789abcdef, not S1; who may connect is {TRAINER1}, {TRAINER2}, not {TRAINER1}; --io-queues is 8, not 9"
        ),
    );
    // Another refusal is none of --ensure's.
    fake.refuse(Status::unavailable("snap-target is draining"));
    assert_eq!(run(&fake, &with(&[])).status, 7);
}

#[test]
fn a_namespace() {
    let fake = Fake::start();
    let attach = |source: &'static str, more: &[&'static str]| {
        [&["namespace", "attach", DATA, source, "--ensure"], more].concat()
    };
    let tokens = format!(
        "/srv/tokens.xio is attached already as nsid 1 of {DATA}: 1GiB, uuid 0f0e0d0c-0b0a-8908-8706-050403020100\n"
    );
    done(&fake, &attach("/srv/tokens.xio", &[]), &tokens);
    let said = ["--nsid", "1", "--lba", "4096", "--read-only", "--all-hosts"];
    done(&fake, &attach("/srv/tokens.xio", &said), &tokens);
    // Nothing was changed: it was found among the namespaces.
    assert!(
        fake.asked()
            .iter()
            .all(|asked| asked.starts_with("ListNamespacesRequest"))
    );
    differs(
        &fake,
        &attach(
            "file:/srv/disk.raw",
            &["--lba", "4096", "--read-only", "--host", TRAINER2],
        ),
        &format!(
            "nsid 2 of {DATA} is there already, and is another one: its block size is 512, not 4096; whether hosts may write is yes, not no; who sees it is {TRAINER1}, not {TRAINER2}"
        ),
    );
    differs(
        &fake,
        &attach(
            "/srv/tokens.xio",
            &["--immutable", "--limit", "200MB/s,latency=2000us"],
        ),
        &format!(
            "nsid 1 of {DATA} is there already, and is another one: whether it is immutable is no, not yes; its limit is none, not 200MB/s,latency=2ms"
        ),
    );
    differs(
        &fake,
        &attach("mem:1GiB", &["--nsid", "1"]),
        &format!(
            "nsid 1 of {DATA} is there already, and is another one: its source is /srv/tokens.xio, not mem:1GiB"
        ),
    );
    differs(
        &fake,
        &[
            "namespace",
            "attach",
            SCRATCH,
            "file:/srv/scratch.raw",
            "--ensure",
        ],
        &format!(
            "nsid 2 of {SCRATCH} is there as asked for, and is not served: /srv/scratch.raw cannot be opened: Permission denied"
        ),
    );
    assert!(
        fake.asked()
            .iter()
            .all(|asked| asked.starts_with("ListNamespacesRequest"))
    );
    // What closes is on its way out.
    done(
        &fake,
        &[
            "namespace",
            "attach",
            SCRATCH,
            "file:/srv/old.raw",
            "--ensure",
        ],
        &format!(
            "attached file:/srv/old.raw as nsid 3 of {SCRATCH}: 1GiB, uuid 0f0e0d0c-0b0a-8908-8706-050403020100\n"
        ),
    );
    assert_eq!(fake.asked().len(), 2);
    // Somebody else was quicker, and not with this source: the daemon's word stands.
    refuse(&fake, "AttachNamespaceRequest", Reason::NsidTaken);
    differs(&fake, &attach("mem:1GiB", &[]), "taken");
    assert_eq!(fake.asked().len(), 3);
}

#[test]
fn a_listener() {
    let fake = Fake::start();
    refuse(&fake, "AddListenerRequest", Reason::AddressTaken);
    let add = |address: &'static str, more: &[&'static str]| {
        [&["listener", "add", address, "--ensure"], more].concat()
    };
    done(
        &fake,
        &add("[2001:db8:0::7]:4420", &["--port-id", "2"]),
        "listening at [2001:db8::7]:4420 already (port id 2)\n",
    );
    differs(
        &fake,
        &add("192.0.2.7:4420", &["--port-id", "2"]),
        "the listener at 192.0.2.7:4420 is there already, and is another one: its port id is 1, not 2",
    );
    // Over RDMA its ports are others: what is there over TCP is no answer.
    differs(
        &fake,
        &add("192.0.2.7:4420", &["--transport", "rdma"]),
        "taken",
    );
    // Another program listens there.
    differs(&fake, &add("192.0.2.9:4420", &[]), "taken");
    refuse(&fake, "AddListenerRequest", Reason::PortIdTaken);
    differs(
        &fake,
        &add("192.0.2.9:4420", &["--port-id", "2"]),
        "the listener at [2001:db8::7]:4420 is there already, and is another one: its address is [2001:db8::7]:4420, not 192.0.2.9:4420",
    );
    differs(
        &fake,
        &add(
            "[2001:db8::7]:4420",
            &["--port-id", "2", "--transport", "rdma"],
        ),
        "the listener at [2001:db8::7]:4420 is there already, and is another one: its transport is tcp, not rdma",
    );
}

#[test]
fn a_function() {
    let fake = Fake::start();
    refuse(&fake, "CreateFunctionRequest", Reason::FunctionExists);
    let create = |nqn: &'static str, socket: &'static str| {
        let asked = ["--name", "pf0", "--nqn", nqn, "--path", socket];
        [&["function", "create"], &asked[..], &["--ensure"]].concat()
    };
    done(
        &fake,
        &create(DATA, "/run/xio/pf0"),
        &format!("function pf0 of {DATA} is already at /run/xio/pf0\n"),
    );
    differs(
        &fake,
        &create(SCRATCH, "/run/xio/b"),
        &format!(
            "function pf0 is there already, and is another one: its subsystem is {DATA}, not {SCRATCH}; its socket is /run/xio/pf0, not /run/xio/b"
        ),
    );
    let polled = [&create(DATA, "/run/xio/pf0")[..], &["--poll"]].concat();
    differs(
        &fake,
        &polled,
        "function pf0 is there already, and is another one: its polling is off, not on",
    );
    let disk = ["--protocol", "vhost-user-blk", "--nsid", "7"];
    differs(
        &fake,
        &[&create(DATA, "/run/xio/pf0")[..], &disk].concat(),
        "function pf0 is there already, and is another one: its protocol is vfio-user, not vhost-user-blk; its namespace is 0, not 7",
    );
    // The socket is another function's.
    refuse(&fake, "CreateFunctionRequest", Reason::AddressTaken);
    differs(&fake, &create(DATA, "/run/xio/pf0"), "taken");
}

#[test]
fn a_referral() {
    let fake = Fake::start();
    refuse(&fake, "AddReferralRequest", Reason::ReferralExists);
    let add = ["referral", "add", "192.0.2.8:8009", "--ensure"];
    done(
        &fake,
        &add,
        "hosts are referred to 192.0.2.8:8009 already\n",
    );
    differs(
        &fake,
        &[&add[..], &["--port-id", "4"]].concat(),
        "the referral to 192.0.2.8:8009 is there already, and is another one: its port id is 0, not 4",
    );
}
