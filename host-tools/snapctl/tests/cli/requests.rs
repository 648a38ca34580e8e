//! Every command asks the daemon exactly for what its arguments say.

mod namespaces;
mod subsystems;
mod watching;

use std::fmt::Debug;

use admin_proto::v1::*;

use super::fake::Fake;
use super::fake::samples::{DATA, TRAINER1};
use super::support::{commands, snapctl};
use namespaces::namespace_cases;
use subsystems::{host_cases, port_cases, subsystem_cases};
use watching::watching_cases;

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
