//! What is served, and who is connected.

use admin_proto::v1::resize_namespace_request::Size;
use admin_proto::v1::*;

use super::target::problem;
use super::{DATA, SCRATCH, TRAINER1, TRAINER2, any, as_of, at, only, seen_by, seen_by_all};

fn data() -> Subsystem {
    Subsystem {
        nqn: DATA.to_owned(),
        serial: "XIO0123456789abcdef".to_owned(),
        model: "XIO snap-target".to_owned(),
        hosts: Some(only(&[TRAINER1, TRAINER2])),
        limits: None,
        namespaces: 2,
        controllers: 1,
        origin: Origin::Config.into(),
    }
}

fn scratch() -> Subsystem {
    Subsystem {
        nqn: SCRATCH.to_owned(),
        serial: "XIOfedcba9876543210".to_owned(),
        hosts: Some(any()),
        namespaces: 1,
        controllers: 0,
        origin: Origin::Admin.into(),
        ..data()
    }
}

pub fn create_subsystem(request: CreateSubsystemRequest) -> CreateSubsystemResponse {
    CreateSubsystemResponse {
        subsystem: Some(Subsystem {
            nqn: request.nqn,
            hosts: Some(request.hosts.unwrap_or_else(|| only(&[]))),
            ..scratch()
        }),
        as_of: as_of(100),
    }
}

pub fn delete_subsystem(request: DeleteSubsystemRequest) -> DeleteSubsystemResponse {
    DeleteSubsystemResponse {
        namespaces_detached: if request.force { 2 } else { 0 },
        controllers_ended: u32::from(request.force),
        as_of: as_of(100),
        ..DeleteSubsystemResponse::default()
    }
}

pub fn list_subsystems(_: ListSubsystemsRequest) -> ListSubsystemsResponse {
    ListSubsystemsResponse {
        subsystems: vec![data(), scratch()],
        as_of: as_of(100),
        ..ListSubsystemsResponse::default()
    }
}

pub fn get_subsystem(_: GetSubsystemRequest) -> GetSubsystemResponse {
    GetSubsystemResponse {
        subsystem: Some(data()),
        as_of: as_of(100),
    }
}

pub fn tokens() -> Namespace {
    Namespace {
        subsystem_nqn: DATA.to_owned(),
        nsid: 1,
        uuid: "0f0e0d0c-0b0a-8908-8706-050403020100".to_owned(),
        nguid: "0f0e0d0c0b0a89088706050403020100".to_owned(),
        path: "/srv/tokens.xio".to_owned(),
        source_text: "/srv/tokens.xio".to_owned(),
        kind: NamespaceKind::View.into(),
        lba_bytes: 4096,
        block_count: 262_144,
        bytes: 1 << 30,
        write_protection: WriteProtection::ReadOnly.into(),
        visible_to: Some(seen_by_all()),
        state: NamespaceState::Ready.into(),
        state_detail: String::new(),
        controllers: 1,
        origin: Origin::Config.into(),
        view: Some(VolumeView {
            volume_uuid: "7d444840-9dc0-41d1-b245-5ffdce74fad2".to_owned(),
            generation: 1,
            name: "tokens".to_owned(),
            presented_bytes: (1 << 30) - 192,
            stored_bytes: 402_653_184,
        }),
    }
}

pub fn disk() -> Namespace {
    Namespace {
        nsid: 2,
        uuid: "5f1a0d8e-93c4-8a51-9d2b-66c1b7a2e3f4".to_owned(),
        nguid: "5f1a0d8e93c48a519d2b66c1b7a2e3f4".to_owned(),
        path: "/srv/disk.raw".to_owned(),
        source_text: "file:/srv/disk.raw".to_owned(),
        kind: NamespaceKind::Raw.into(),
        lba_bytes: 512,
        block_count: 41_943_040,
        bytes: 20 << 30,
        write_protection: WriteProtection::None.into(),
        visible_to: Some(seen_by(&[TRAINER1])),
        origin: Origin::Admin.into(),
        view: None,
        ..tokens()
    }
}

fn broken() -> Namespace {
    Namespace {
        subsystem_nqn: SCRATCH.to_owned(),
        nsid: 2,
        path: "/srv/scratch.raw".to_owned(),
        source_text: "file:/srv/scratch.raw".to_owned(),
        state: NamespaceState::Failed.into(),
        state_detail: problem().text,
        controllers: 0,
        ..disk()
    }
}

pub fn attach_namespace(request: AttachNamespaceRequest) -> AttachNamespaceResponse {
    let namespace = Namespace {
        subsystem_nqn: request.subsystem_nqn,
        nsid: if request.nsid == 0 { 3 } else { request.nsid },
        source_text: match request.source.and_then(|it| it.kind) {
            Some(source::Kind::Text(text)) => text,
            None => String::new(),
        },
        visible_to: request.visible_to,
        ..tokens()
    };
    AttachNamespaceResponse {
        namespace: Some(namespace),
        as_of: as_of(100),
    }
}

pub fn detach_namespace(_: DetachNamespaceRequest) -> DetachNamespaceResponse {
    DetachNamespaceResponse {
        as_of: as_of(100),
        ..DetachNamespaceResponse::default()
    }
}

pub fn resize_namespace(request: ResizeNamespaceRequest) -> ResizeNamespaceResponse {
    let bytes = match request.size {
        Some(Size::Bytes(bytes)) => bytes,
        Some(Size::Rescan(_)) | None => 20 << 30,
    };
    ResizeNamespaceResponse {
        namespace: Some(Namespace { bytes, ..disk() }),
        bytes_before: 20 << 30,
        as_of: as_of(100),
        ..ResizeNamespaceResponse::default()
    }
}

pub fn set_visibility(request: SetVisibilityRequest) -> SetVisibilityResponse {
    SetVisibilityResponse {
        namespace: Some(Namespace {
            visible_to: request.visible_to,
            ..disk()
        }),
        as_of: as_of(100),
    }
}

pub fn show_to(request: ShowToRequest) -> ShowToResponse {
    let hosts: Vec<&str> = request.host_nqns.iter().map(String::as_str).collect();
    ShowToResponse {
        namespace: Some(Namespace {
            visible_to: Some(seen_by(&[&[TRAINER1], &hosts[..]].concat())),
            ..disk()
        }),
        as_of: as_of(100),
    }
}

pub fn hide_from(request: HideFromRequest) -> HideFromResponse {
    let not_listed = |host: &String| host != TRAINER1;
    HideFromResponse {
        namespace: Some(Namespace {
            visible_to: Some(seen_by(&[])),
            ..disk()
        }),
        not_listed: request.host_nqns.into_iter().filter(not_listed).collect(),
        as_of: as_of(100),
    }
}

pub fn list_namespaces(request: ListNamespacesRequest) -> ListNamespacesResponse {
    let all = vec![tokens(), disk(), broken()];
    let wanted = |namespace: &Namespace| {
        request.subsystem_nqn.is_empty() || request.subsystem_nqn == namespace.subsystem_nqn
    };
    ListNamespacesResponse {
        namespaces: all.into_iter().filter(wanted).collect(),
        as_of: as_of(100),
        ..ListNamespacesResponse::default()
    }
}

pub fn get_namespace(request: GetNamespaceRequest) -> GetNamespaceResponse {
    let found = match (request.subsystem_nqn.as_str(), request.nsid) {
        (SCRATCH, _) => broken(),
        (_, 2) => disk(),
        _ => tokens(),
    };
    GetNamespaceResponse {
        namespace: Some(found),
        as_of: as_of(100),
        ..GetNamespaceResponse::default()
    }
}

pub fn allow_hosts(request: AllowHostsRequest) -> AllowHostsResponse {
    let hosts = if request.any {
        any()
    } else {
        only(&[TRAINER1, TRAINER2])
    };
    AllowHostsResponse {
        hosts: Some(hosts),
        as_of: as_of(100),
    }
}

pub fn deny_hosts(request: DenyHostsRequest) -> DenyHostsResponse {
    let hosts = if request.any {
        only(&[])
    } else {
        only(&[TRAINER1])
    };
    DenyHostsResponse {
        hosts: Some(hosts),
        controllers_ended: u32::from(!request.any),
        as_of: as_of(100),
        ..DenyHostsResponse::default()
    }
}

pub fn set_hosts(request: SetHostsRequest) -> SetHostsResponse {
    SetHostsResponse {
        hosts: request.hosts,
        controllers_ended: 2,
        as_of: as_of(100),
        ..SetHostsResponse::default()
    }
}

pub fn list_hosts(_: ListHostsRequest) -> ListHostsResponse {
    let connected = |nqn: &str| ConnectedHost {
        host_nqn: nqn.to_owned(),
        host_id: "d0e5c1d88a2c4b6c9a0e0242ac120002".to_owned(),
        controllers: 1,
    };
    ListHostsResponse {
        subsystems: vec![
            SubsystemHosts {
                subsystem_nqn: DATA.to_owned(),
                policy: Some(only(&[TRAINER1, TRAINER2])),
                connected: vec![connected(TRAINER1)],
            },
            SubsystemHosts {
                subsystem_nqn: SCRATCH.to_owned(),
                policy: Some(any()),
                connected: vec![connected(TRAINER2)],
            },
        ],
        as_of: as_of(100),
        ..ListHostsResponse::default()
    }
}

pub fn add_listener(request: AddListenerRequest) -> AddListenerResponse {
    AddListenerResponse {
        listener: Some(Listener {
            port_id: if request.port_id == 0 {
                2
            } else {
                request.port_id
            },
            transport: request.transport,
            address: request.address,
            connections: 0,
            origin: Origin::Admin.into(),
        }),
        as_of: as_of(100),
    }
}

pub fn remove_listener(_: RemoveListenerRequest) -> RemoveListenerResponse {
    RemoveListenerResponse { as_of: as_of(100) }
}

pub fn list_listeners(_: ListListenersRequest) -> ListListenersResponse {
    let listener = |port_id, address: &str, connections, origin: Origin| Listener {
        port_id,
        transport: Transport::Tcp.into(),
        address: address.to_owned(),
        connections,
        origin: origin.into(),
    };
    ListListenersResponse {
        listeners: vec![
            listener(1, "192.0.2.7:4420", 9, Origin::Config),
            listener(2, "[2001:db8::7]:4420", 0, Origin::Admin),
        ],
        as_of: as_of(100),
        ..ListListenersResponse::default()
    }
}

pub fn add_referral(request: AddReferralRequest) -> AddReferralResponse {
    AddReferralResponse {
        referral: Some(Referral {
            port_id: request.port_id,
            transport: request.transport,
            address: request.address,
            origin: Origin::Admin.into(),
        }),
        as_of: as_of(100),
    }
}

pub fn remove_referral(_: RemoveReferralRequest) -> RemoveReferralResponse {
    RemoveReferralResponse { as_of: as_of(100) }
}

pub fn list_referrals(_: ListReferralsRequest) -> ListReferralsResponse {
    ListReferralsResponse {
        referrals: vec![Referral {
            port_id: 0,
            transport: Transport::Tcp.into(),
            address: "192.0.2.8:8009".to_owned(),
            origin: Origin::Admin.into(),
        }],
        as_of: as_of(100),
        ..ListReferralsResponse::default()
    }
}

pub fn list_controllers(_: ListControllersRequest) -> ListControllersResponse {
    let io = Controller {
        cntlid: 1,
        subsystem_nqn: DATA.to_owned(),
        host_nqn: TRAINER1.to_owned(),
        host_id: "d0e5c1d88a2c4b6c9a0e0242ac120002".to_owned(),
        is_discovery: false,
        transport: Transport::Tcp.into(),
        peer_address: "192.0.2.21:51044".to_owned(),
        io_queues: 8,
        kato_ms: 5000,
        connected_since: at(5),
    };
    let discovery = Controller {
        cntlid: 2,
        subsystem_nqn: "nqn.2014-08.org.nvmexpress.discovery".to_owned(),
        is_discovery: true,
        peer_address: "192.0.2.21:51040".to_owned(),
        io_queues: 0,
        kato_ms: 0,
        connected_since: at(4),
        ..io.clone()
    };
    ListControllersResponse {
        controllers: vec![io, discovery],
        as_of: as_of(100),
        ..ListControllersResponse::default()
    }
}

pub fn end_controller(_: EndControllerRequest) -> EndControllerResponse {
    EndControllerResponse {
        as_of: as_of(100),
        ..EndControllerResponse::default()
    }
}
