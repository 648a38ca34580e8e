//! Of subsystems, who may connect, and where.

use admin_proto::v1::*;

use super::{Case, case};
use crate::fake::samples::{DATA, TRAINER1, TRAINER2, any, only};

pub(super) fn subsystem_cases() -> Vec<Case> {
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

pub(super) fn host_cases() -> Vec<Case> {
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

pub(super) fn port_cases() -> Vec<Case> {
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
