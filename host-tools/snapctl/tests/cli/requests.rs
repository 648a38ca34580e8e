//! Every command asks the daemon exactly for what its arguments say.

use std::fmt::Debug;

use admin_proto::v1::resize_namespace_request::Size;
use admin_proto::v1::*;

use super::fake::Fake;
use super::fake::samples::{
    DATA, FIRST, SCRATCH, TRAINER1, TRAINER2, all, any, only, seen_only_by,
};
use super::support::{commands, snapctl};

/// A command line after its first words, and the requests that it makes.
struct Case {
    command: &'static str,
    arguments: &'static [&'static str],
    requests: Vec<String>,
}

fn case(command: &'static str, arguments: &'static [&'static str], request: &impl Debug) -> Case {
    Case {
        command,
        arguments,
        requests: vec![format!("{request:?}")],
    }
}

impl Case {
    /// Another request is made before.
    fn after(mut self, request: &impl Debug) -> Case {
        self.requests.insert(0, format!("{request:?}"));
        self
    }
}

const UUID: &str = "5f1a0d8e-93c4-8a51-9d2b-66c1b7a2e3f4";

/// An order: its beginning, and the two ranges of a file.
fn prefetch_case() -> Case {
    const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/ranges.txt");
    const ARGUMENTS: &[&str] = &[
        DATA,
        "2",
        "--ranges",
        FILE,
        "--epoch",
        "7",
        "--quota-mib",
        "64",
    ];
    let part = |what| PrefetchRequest { what: Some(what) };
    let begin = PrefetchBegin {
        subsystem_nqn: DATA.to_owned(),
        nsid: 2,
        expected_uuid: String::new(),
        epoch_id: "7".to_owned(),
        quota_bytes: 64 << 20,
    };
    let range = |offset, bytes| PrefetchRange { offset, bytes };
    let ranges = PrefetchRanges {
        ranges: vec![range(65_536, 4096), range(0, 8192)],
    };
    let asked = part(prefetch_request::What::Ranges(ranges));
    let get = GetNamespaceRequest {
        subsystem_nqn: DATA.to_owned(),
        nsid: 2,
    };
    case("namespace prefetch", ARGUMENTS, &asked)
        .after(&part(prefetch_request::What::Begin(begin)))
        .after(&get)
}

fn source(text: &str) -> Option<Source> {
    Some(Source {
        kind: Some(source::Kind::Text(text.to_owned())),
    })
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
            connections_per_host_max: 5,
            io_queues_per_host_max: 6,
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
                "--connections-per-host",
                "5",
                "--io-queues-per-host",
                "6",
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
        )
        .after(&GetInfoRequest {}),
        case("subsystem create", &[DATA, "--any-host"], &open),
        case("subsystem delete", &[DATA], &delete(false)),
        case("subsystem delete", &[DATA, "--force"], &delete(true)),
        case("subsystem list", &[], &ListSubsystemsRequest::default()),
    ]
}

fn namespace_cases() -> Vec<Case> {
    let bare = AttachNamespaceRequest {
        subsystem_nqn: DATA.to_owned(),
        source: source("/srv/tokens.xio"),
        ..AttachNamespaceRequest::default()
    };
    let full = AttachNamespaceRequest {
        source: source("file:/srv/disk.raw"),
        nsid: 7,
        lba_bytes: 512,
        read_only: true,
        visible_to: Some(seen_only_by(&[TRAINER1])),
        ..bare.clone()
    };
    let limited = AttachNamespaceRequest {
        source: source("file:/srv/disk.raw"),
        immutable: true,
        limit: "200MB/s,latency=2ms".to_owned(),
        ..bare.clone()
    };
    let open = AttachNamespaceRequest {
        source: source("mem:1MiB"),
        visible_to: Some(all()),
        ..bare.clone()
    };
    let detach = |expected_uuid: &str| DetachNamespaceRequest {
        subsystem_nqn: DATA.to_owned(),
        nsid: 3,
        expected_uuid: expected_uuid.to_owned(),
    };
    let resize = |size, force| ResizeNamespaceRequest {
        subsystem_nqn: DATA.to_owned(),
        nsid: 2,
        size: Some(size),
        force,
        expected_uuid: String::new(),
    };
    let resize_this = ResizeNamespaceRequest {
        expected_uuid: UUID.to_owned(),
        ..resize(Size::Bytes(1 << 30), true)
    };
    let visibility = |visible_to| SetVisibilityRequest {
        subsystem_nqn: DATA.to_owned(),
        nsid: 2,
        visible_to: Some(visible_to),
        expected_uuid: String::new(),
    };
    let this_visibility = SetVisibilityRequest {
        expected_uuid: UUID.to_owned(),
        ..visibility(all())
    };
    let show_to = ShowToRequest {
        subsystem_nqn: DATA.to_owned(),
        nsid: 2,
        host_nqns: vec![TRAINER1.to_owned(), TRAINER2.to_owned()],
        expected_uuid: String::new(),
    };
    let hide_from = HideFromRequest {
        subsystem_nqn: DATA.to_owned(),
        nsid: 2,
        host_nqns: vec![TRAINER1.to_owned()],
        expected_uuid: UUID.to_owned(),
    };
    let list = |subsystem: &str| ListNamespacesRequest {
        subsystem_nqn: subsystem.to_owned(),
        ..ListNamespacesRequest::default()
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
        case(
            "namespace attach",
            &[
                DATA,
                "file:/srv/disk.raw",
                "--immutable",
                "--limit",
                "200MB/s,latency=2000us",
            ],
            &limited,
        )
        .after(&GetInfoRequest {}),
        case(
            "namespace attach",
            &[DATA, "mem:1MiB", "--all-hosts"],
            &open,
        ),
        case(
            "namespace attach",
            &[SCRATCH, "mem:1MiB", "--ensure"],
            &AttachNamespaceRequest {
                subsystem_nqn: SCRATCH.to_owned(),
                source: source("mem:1MiB"),
                ..AttachNamespaceRequest::default()
            },
        )
        .after(&list(SCRATCH)),
        case("namespace detach", &[DATA, "3"], &detach("")),
        case(
            "namespace detach",
            &[DATA, "3", "--expect-uuid", UUID],
            &detach(UUID),
        )
        .after(&GetInfoRequest {}),
        case(
            "namespace resize",
            &[
                DATA,
                "2",
                "--size",
                "1GiB",
                "--force",
                "--expect-uuid",
                UUID,
            ],
            &resize_this,
        )
        .after(&GetInfoRequest {}),
        case(
            "namespace visibility",
            &[DATA, "2", "--all-hosts", "--expect-uuid", UUID],
            &this_visibility,
        )
        .after(&GetInfoRequest {}),
        prefetch_case(),
        case(
            "namespace show-to",
            &[DATA, "2", TRAINER1, TRAINER2],
            &show_to,
        ),
        case(
            "namespace hide-from",
            &[DATA, "2", TRAINER1, "--expect-uuid", UUID],
            &hide_from,
        )
        .after(&GetInfoRequest {}),
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
            &visibility(seen_only_by(&[TRAINER2])),
        ),
        case(
            "namespace visibility",
            &[DATA, "2", "--all-hosts"],
            &visibility(all()),
        ),
        case(
            "namespace visibility",
            &[DATA, "2", "--no-host"],
            &visibility(seen_only_by(&[])),
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
        ..ListHostsRequest::default()
    };
    vec![
        case(
            "host allow",
            &[DATA, TRAINER1, TRAINER2],
            &allow(&[TRAINER1, TRAINER2], false),
        ),
        case(
            "host allow",
            &[DATA, TRAINER1, "--ensure"],
            &allow(&[TRAINER1], false),
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
            "listener add",
            &["192.0.2.7:4420", "--transport", "rdma"],
            &AddListenerRequest {
                transport: Transport::Rdma.into(),
                ..listener("192.0.2.7:4420", 0)
            },
        ),
        case(
            "listener remove",
            &["2"],
            &RemoveListenerRequest {
                port_id: 2,
                force: false,
            },
        ),
        case(
            "listener remove",
            &["2", "--force"],
            &RemoveListenerRequest {
                port_id: 2,
                force: true,
            },
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

fn function_cases() -> Vec<Case> {
    const CREATE: &[&str] = &["--name", "pf0vf1", "--nqn", DATA, "--path", "/run/xio/f"];
    const POLLED: &[&str] = &[
        "--name",
        "pf0vf1",
        "--nqn",
        DATA,
        "--path",
        "/run/xio/f",
        "--poll",
    ];
    let create = CreateFunctionRequest {
        name: "pf0vf1".to_owned(),
        protocol: FunctionProtocol::VfioUser.into(),
        subsystem_nqn: DATA.to_owned(),
        socket: "/run/xio/f".to_owned(),
        poll: false,
        nsid: 0,
        number: None,
    };
    let polled = CreateFunctionRequest {
        poll: true,
        ..create.clone()
    };
    const DISK: &[&str] = &[
        "--name",
        "pf0vf1",
        "--nqn",
        DATA,
        "--path",
        "/run/xio/f",
        "--protocol",
        "vhost-user-blk",
        "--nsid",
        "7",
    ];
    let disk = CreateFunctionRequest {
        protocol: FunctionProtocol::VhostUserBlk.into(),
        nsid: 7,
        ..create.clone()
    };
    const LOCAL: &[&str] = &[
        "--name",
        "pf0vf1",
        "--nqn",
        DATA,
        "--protocol",
        "ublk",
        "--nsid",
        "7",
        "--number",
        "3",
    ];
    let local = CreateFunctionRequest {
        protocol: FunctionProtocol::Ublk.into(),
        socket: String::new(),
        number: Some(3),
        ..disk.clone()
    };
    let name = || "pf0vf1".to_owned();
    vec![
        case("function create", CREATE, &create),
        case("function create", POLLED, &polled),
        case("function create", DISK, &disk),
        case("function create", LOCAL, &local),
        case(
            "function delete",
            &["pf0vf1"],
            &DeleteFunctionRequest { name: name() },
        ),
        case("function list", &[], &ListFunctionsRequest::default()),
        case(
            "function show",
            &["pf0vf1"],
            &GetFunctionRequest { name: name() },
        ),
    ]
}

fn other_cases() -> Vec<Case> {
    let controllers = |subsystem: &str, host: &str| ListControllersRequest {
        subsystem_nqn: subsystem.to_owned(),
        host_nqn: host.to_owned(),
        ..ListControllersRequest::default()
    };
    let bare = PublishRequest {
        host_nqn: TRAINER1.to_owned(),
        ..PublishRequest::default()
    };
    let full = PublishRequest {
        reader: "rank3".to_owned(),
        subsystem_nqn: DATA.to_owned(),
        nsid: 1,
        epoch: Some(0),
        position: Some(81_920),
        length: Some(4096),
        payload: b"ready".to_vec(),
        ..bare.clone()
    };
    let announcements = |host: &str| ListAnnouncementsRequest {
        host_nqn: host.to_owned(),
        ..ListAnnouncementsRequest::default()
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
        case("announce", &[TRAINER1], &bare),
        case(
            "announce",
            &[
                TRAINER1,
                "--reader",
                "rank3",
                "--subsystem",
                DATA,
                "--nsid",
                "1",
                "--epoch",
                "0",
                "--position",
                "81920",
                "--length",
                "4096",
                "--payload",
                "ready",
            ],
            &full,
        ),
        case("announcement list", &[], &announcements("")),
        case(
            "announcement list",
            &["--host", TRAINER1],
            &announcements(TRAINER1),
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
    let events = |from_sequence, from_announcement| SubscribeRequest {
        topics: Vec::new(),
        from_sequence,
        instance: FIRST.instance.to_owned(),
        from_announcement,
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
        case("stat", &["--totals", "--transforms"], &totals),
        case("stat", &["--totals", "--hops"], &totals),
        case("stat", &["--totals", "--prefetch"], &totals),
        case("events", &[], &events(1, 1)).after(&GetInfoRequest {}),
        case(
            "events",
            &[
                "--topic",
                "host",
                "--topic",
                "health",
                "--since",
                "6f9619ff8b86d011b42d00cf4fc964ff:102:3",
            ],
            &events(103, 4),
        ),
        // As an answer's as_of has it.
        case(
            "events",
            &["--since", "6f9619ff8b86d011b42d00cf4fc964ff:102"],
            &events(103, 0),
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
        function_cases(),
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
            assert_eq!(fake.asked(), case.requests, "{arguments:?}");
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
