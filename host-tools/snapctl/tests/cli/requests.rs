//! Every command asks the daemon exactly for what its arguments say.

use std::fmt::Debug;

use admin_proto::v1::resize_namespace_request::Size;
use admin_proto::v1::*;

use super::fake::Fake;
use super::fake::samples::{DATA, TRAINER1, TRAINER2, any, only, seen_by, seen_by_all};
use super::support::{commands, snapctl};

/// A command line after its first words, and the request that it makes.
struct Case {
    command: &'static str,
    arguments: &'static [&'static str],
    request: String,
}

fn case(command: &'static str, arguments: &'static [&'static str], request: &impl Debug) -> Case {
    Case {
        command,
        arguments,
        request: format!("{request:?}"),
    }
}

fn subsystem_cases() -> Vec<Case> {
    let bare = CreateSubsystemRequest {
        nqn: DATA.to_owned(),
        ..CreateSubsystemRequest::default()
    };
    let full = CreateSubsystemRequest {
        serial: "S1".to_owned(),
        model: "M 1".to_owned(),
        hosts: Some(only(&[TRAINER1, TRAINER2])),
        limits: Some(SubsystemLimits {
            controllers_max: 1,
            controllers_per_host_max: 2,
            io_queues_max: 3,
            queue_entries_max: 4,
            transfer_bytes_max: 64 << 10,
            memory_per_host_bytes_max: 1 << 30,
        }),
        ..bare.clone()
    };
    let open = CreateSubsystemRequest {
        hosts: Some(any()),
        ..bare.clone()
    };
    let delete = |force| DeleteSubsystemRequest {
        nqn: DATA.to_owned(),
        force,
    };
    vec![
        case("subsystem create", &[DATA], &bare),
        case(
            "subsystem create",
            &[
                DATA,
                "--serial",
                "S1",
                "--model",
                "M 1",
                "--host",
                TRAINER1,
                "--host",
                TRAINER2,
                "--controllers",
                "1",
                "--controllers-per-host",
                "2",
                "--io-queues",
                "3",
                "--queue-entries",
                "4",
                "--transfer",
                "64KiB",
                "--memory-per-host",
                "1GiB",
            ],
            &full,
        ),
        case("subsystem create", &[DATA, "--any-host"], &open),
        case("subsystem delete", &[DATA], &delete(false)),
        case("subsystem delete", &[DATA, "--force"], &delete(true)),
        case("subsystem list", &[], &ListSubsystemsRequest::default()),
    ]
}

fn named(text: &str) -> Option<Source> {
    Some(Source {
        kind: Some(source::Kind::Text(text.to_owned())),
    })
}

fn namespace_cases() -> Vec<Case> {
    let bare = AttachNamespaceRequest {
        subsystem_nqn: DATA.to_owned(),
        source: named("/srv/tokens.xio"),
        ..AttachNamespaceRequest::default()
    };
    let full = AttachNamespaceRequest {
        source: named("file:/srv/disk.raw"),
        nsid: 7,
        lba_bytes: 512,
        read_only: true,
        visible_to: Some(seen_by(&[TRAINER1])),
        ..bare.clone()
    };
    let detach = DetachNamespaceRequest {
        subsystem_nqn: DATA.to_owned(),
        nsid: 3,
        expected_uuid: String::new(),
    };
    let resize = |size, force| ResizeNamespaceRequest {
        subsystem_nqn: DATA.to_owned(),
        nsid: 2,
        size: Some(size),
        force,
        expected_uuid: String::new(),
    };
    let visibility = |visible_to| SetVisibilityRequest {
        subsystem_nqn: DATA.to_owned(),
        nsid: 2,
        visible_to: Some(visible_to),
        expected_uuid: String::new(),
    };
    let list = |subsystem: &str| ListNamespacesRequest {
        subsystem_nqn: subsystem.to_owned(),
        ..Default::default()
    };
    let show = GetNamespaceRequest {
        subsystem_nqn: DATA.to_owned(),
        nsid: 4_294_967_294,
    };
    vec![
        case("namespace attach", &[DATA, "/srv/tokens.xio"], &bare),
        case(
            "namespace attach",
            &[
                DATA,
                "file:/srv/disk.raw",
                "--nsid",
                "7",
                "--lba",
                "512",
                "--read-only",
                "--host",
                TRAINER1,
            ],
            &full,
        ),
        case("namespace detach", &[DATA, "3"], &detach),
        case(
            "namespace resize",
            &[DATA, "2", "--size", "40GiB"],
            &resize(Size::Bytes(40 << 30), false),
        ),
        case(
            "namespace resize",
            &[DATA, "2", "--rescan", "--force"],
            &resize(Size::Rescan(Rescan {}), true),
        ),
        case(
            "namespace visibility",
            &[DATA, "2", "--host", TRAINER2],
            &visibility(seen_by(&[TRAINER2])),
        ),
        case(
            "namespace visibility",
            &[DATA, "2", "--any-host"],
            &visibility(seen_by_all()),
        ),
        case(
            "namespace visibility",
            &[DATA, "2", "--no-host"],
            &visibility(seen_by(&[])),
        ),
        case("namespace list", &[], &list("")),
        case("namespace list", &[DATA], &list(DATA)),
        case("namespace show", &[DATA, "4294967294"], &show),
    ]
}

fn host_cases() -> Vec<Case> {
    let allow = |hosts: &[&str], any| AllowHostsRequest {
        subsystem_nqn: DATA.to_owned(),
        host_nqns: hosts.iter().map(|nqn| (*nqn).to_owned()).collect(),
        any,
    };
    let deny = |hosts: &[&str], any| DenyHostsRequest {
        subsystem_nqn: DATA.to_owned(),
        host_nqns: hosts.iter().map(|nqn| (*nqn).to_owned()).collect(),
        any,
    };
    let set = SetHostsRequest {
        subsystem_nqn: DATA.to_owned(),
        hosts: Some(only(&[TRAINER1])),
    };
    let list = |subsystem: &str| ListHostsRequest {
        subsystem_nqn: subsystem.to_owned(),
        ..Default::default()
    };
    vec![
        case(
            "host allow",
            &[DATA, TRAINER1, TRAINER2],
            &allow(&[TRAINER1, TRAINER2], false),
        ),
        case("host allow", &[DATA, "--any-host"], &allow(&[], true)),
        case("host allow", &[DATA, TRAINER1, "--only"], &set),
        case("host deny", &[DATA, TRAINER2], &deny(&[TRAINER2], false)),
        case("host deny", &[DATA, "--any-host"], &deny(&[], true)),
        case("host list", &[], &list("")),
        case("host list", &[DATA], &list(DATA)),
    ]
}

fn port_cases() -> Vec<Case> {
    let listener = |address: &str, port_id| AddListenerRequest {
        transport: Transport::Tcp.into(),
        address: address.to_owned(),
        port_id,
    };
    let referral = |port_id| AddReferralRequest {
        transport: Transport::Tcp.into(),
        address: "192.0.2.8:8009".to_owned(),
        port_id,
    };
    let unrefer = RemoveReferralRequest {
        transport: Transport::Tcp.into(),
        address: "192.0.2.8:8009".to_owned(),
    };
    vec![
        case(
            "listener add",
            &["192.0.2.7:4420"],
            &listener("192.0.2.7:4420", 0),
        ),
        case(
            "listener add",
            &["[2001:db8::7]:0", "--port-id", "9"],
            &listener("[2001:db8::7]:0", 9),
        ),
        case(
            "listener remove",
            &["2"],
            &RemoveListenerRequest { port_id: 2 },
        ),
        case("listener list", &[], &ListListenersRequest::default()),
        case("referral add", &["192.0.2.8:8009"], &referral(0)),
        case(
            "referral add",
            &["192.0.2.8:8009", "--port-id", "4"],
            &referral(4),
        ),
        case("referral remove", &["192.0.2.8:8009"], &unrefer),
        case("referral list", &[], &ListReferralsRequest::default()),
    ]
}

fn other_cases() -> Vec<Case> {
    let controllers = |subsystem: &str, host: &str| ListControllersRequest {
        subsystem_nqn: subsystem.to_owned(),
        host_nqn: host.to_owned(),
        ..ListControllersRequest::default()
    };
    let publish = |payload: &[u8]| PublishRequest {
        host_nqn: TRAINER1.to_owned(),
        epoch: Some(2),
        position: Some(81_920),
        payload: payload.to_vec(),
        ..PublishRequest::default()
    };
    vec![
        case("controller list", &[], &controllers("", "")),
        case(
            "controller list",
            &["--subsystem", DATA, "--host", TRAINER1],
            &controllers(DATA, TRAINER1),
        ),
        case(
            "controller end",
            &["3"],
            &EndControllerRequest { cntlid: 3 },
        ),
        case("target show", &[], &GetInfoRequest {}),
        case("target health", &[], &GetHealthRequest {}),
        case("target drain", &[], &DrainRequest { deadline_ms: 0 }),
        case(
            "target drain",
            &["--within", "30"],
            &DrainRequest {
                deadline_ms: 30_000,
            },
        ),
        case(
            "announce",
            &[TRAINER1, "--epoch", "2", "--position", "81920"],
            &publish(b""),
        ),
        case(
            "announce",
            &[
                TRAINER1,
                "--epoch",
                "2",
                "--position",
                "81920",
                "--payload",
                "ready",
            ],
            &publish(b"ready"),
        ),
    ]
}

fn watching_cases() -> Vec<Case> {
    let narrow = StatsFilter {
        subsystem_nqn: DATA.to_owned(),
        host_nqn: TRAINER1.to_owned(),
        nsid: 2,
        without_latency: false,
    };
    let watch = |filter: &StatsFilter, interval_ms| WatchStatsRequest {
        filter: Some(filter.clone()),
        interval_ms,
    };
    let totals = GetStatsRequest {
        filter: Some(StatsFilter::default()),
    };
    // Topics are chosen here where nothing is followed: see the source.
    let events = |from_sequence| SubscribeRequest {
        topics: Vec::new(),
        from_sequence,
        instance: "6f9619ff8b86d011b42d00cf4fc964ff".to_owned(),
        from_announcement: 0,
    };
    vec![
        case("stat", &[], &watch(&StatsFilter::default(), 1000)),
        case(
            "stat",
            &[
                "--interval",
                "0.5",
                "--count",
                "2",
                "--subsystem",
                DATA,
                "--host",
                TRAINER1,
                "--nsid",
                "2",
            ],
            &watch(&narrow, 500),
        ),
        case("stat", &["--totals"], &totals),
        case("events", &[], &events(1)),
        case(
            "events",
            &["--topic", "host", "--topic", "health", "--from", "102"],
            &events(102),
        ),
        case("recorder dump", &[], &DumpRecorderRequest { last: 0 }),
        case(
            "recorder dump",
            &["--last", "5"],
            &DumpRecorderRequest { last: 5 },
        ),
    ]
}

fn cases() -> Vec<Case> {
    [
        subsystem_cases(),
        namespace_cases(),
        host_cases(),
        port_cases(),
        other_cases(),
        watching_cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Commands that ask no daemon, and `top`, which ends by a key alone (live.rs).
const ELSEWHERE: [&str; 3] = ["completions", "doctor", "top"];

#[test]
fn every_command_asks_for_exactly_what_it_was_told_to() {
    let fake = Fake::start();
    for case in cases() {
        let mut arguments: Vec<&str> = case.command.split(' ').collect();
        arguments.extend(case.arguments);
        for json in [false, true] {
            if json {
                arguments.push("--json");
            }
            let ran = snapctl(Some(&fake.socket()), &arguments);
            assert_eq!((ran.status, ran.stderr.as_str()), (0, ""), "{arguments:?}");
            let mut asked = fake.asked();
            if case.command == "events" {
                // Numbers are of an instance.
                assert_eq!(asked.remove(0), format!("{:?}", GetInfoRequest {}));
            }
            assert_eq!(asked, [case.request.as_str()], "{arguments:?}");
            assert!(!ran.stdout.is_empty(), "{arguments:?}");
            assert!(!ran.stdout.contains('\x1b'), "{arguments:?}");
        }
    }
}

#[test]
fn every_command_is_among_the_cases() {
    let cases = cases();
    let mut forgotten: Vec<String> = commands().iter().map(|words| words.join(" ")).collect();
    forgotten.retain(|command| {
        !ELSEWHERE.contains(&command.as_str()) && !cases.iter().any(|case| case.command == *command)
    });
    assert_eq!(forgotten, [""; 0]);
}
