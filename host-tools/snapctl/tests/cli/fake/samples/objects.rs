//! What is served, and who is connected.

use admin_proto::v1::resize_namespace_request::Size;
use admin_proto::v1::source::Kind;
use admin_proto::v1::*;

use super::target::problem;
use super::{DATA, SCRATCH, Start, TRAINER1, TRAINER2, all, any, at, only, page, seen_only_by};

fn data() -> Subsystem {
    Subsystem {
        nqn: DATA.to_owned(),
        serial: "XIO0123456789abcdef".to_owned(),
        model: "XIO snap-target".to_owned(),
        hosts: Some(only(&[TRAINER1, TRAINER2])),
        limits: Some(SubsystemLimits {
            io_queues_max: 8,
            ..SubsystemLimits::default()
        }),
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

pub fn create_subsystem(start: &Start, request: CreateSubsystemRequest) -> CreateSubsystemResponse {
    CreateSubsystemResponse {
        subsystem: Some(Subsystem {
            nqn: request.nqn,
            hosts: Some(request.hosts.unwrap_or_else(|| only(&[]))),
            ..scratch()
        }),
        as_of: start.as_of(105),
    }
}

pub fn delete_subsystem(start: &Start, request: DeleteSubsystemRequest) -> DeleteSubsystemResponse {
    DeleteSubsystemResponse {
        namespaces_detached: if request.force { 2 } else { 0 },
        controllers_ended: u32::from(request.force),
        closing: request.force,
        closing_reason: if request.force {
            "2 operations of file:/srv/disk.raw".to_owned()
        } else {
            String::new()
        },
        as_of: start.as_of(105),
    }
}

pub fn list_subsystems(start: &Start, request: ListSubsystemsRequest) -> ListSubsystemsResponse {
    let subsystems = vec![data(), scratch()];
    let (subsystems, next_page_token) = page(subsystems, request.page_size, &request.page_token);
    ListSubsystemsResponse {
        subsystems,
        next_page_token,
        as_of: start.as_of(104),
    }
}

pub fn get_subsystem(start: &Start, request: GetSubsystemRequest) -> GetSubsystemResponse {
    GetSubsystemResponse {
        subsystem: Some(if request.nqn == SCRATCH {
            scratch()
        } else {
            data()
        }),
        as_of: start.as_of(104),
    }
}

pub fn tokens() -> Namespace {
    Namespace {
        subsystem_nqn: DATA.to_owned(),
        nsid: 1,
        uuid: "0f0e0d0c-0b0a-8908-8706-050403020100".to_owned(),
        nguid: "0f0e0d0c0b0a89088706050403020100".to_owned(),
        source_text: "/srv/tokens.xio".to_owned(),
        path: "/srv/tokens.xio".to_owned(),
        kind: NamespaceKind::View.into(),
        lba_bytes: 4096,
        block_count: 262_144,
        bytes: 1 << 30,
        write_protection: WriteProtection::ReadOnly.into(),
        visible_to: Some(all()),
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
        damage: None,
        parts: Vec::new(),
        immutable: false,
        limit: String::new(),
    }
}

/// The tokens with room behind them.
fn mixed() -> Namespace {
    let tokens = tokens();
    let (view_blocks, room_blocks) = (tokens.block_count, 1 << 20);
    let view = NamespacePart {
        first_lba: 0,
        block_count: view_blocks,
        source_text: tokens.source_text.clone(),
        path: tokens.path.clone(),
        kind: NamespaceKind::View.into(),
        read_only: true,
        view: tokens.view.clone(),
    };
    let room = NamespacePart {
        first_lba: view_blocks,
        block_count: room_blocks,
        source_text: "file:/srv/room.raw".to_owned(),
        path: "/srv/room.raw".to_owned(),
        kind: NamespaceKind::Raw.into(),
        read_only: false,
        view: None,
    };
    Namespace {
        nsid: 4,
        uuid: "c2f4a6e8-0b1d-8f35-a579-bcdef0123456".to_owned(),
        nguid: "c2f4a6e80b1d8f35a579bcdef0123456".to_owned(),
        source_text: "mixed:/srv/tokens.xio+file:/srv/room.raw".to_owned(),
        path: String::new(),
        kind: NamespaceKind::Mixed.into(),
        block_count: view_blocks + room_blocks,
        bytes: (view_blocks + room_blocks) * 4096,
        write_protection: WriteProtection::None.into(),
        origin: Origin::Admin.into(),
        view: None,
        parts: vec![view, room],
        ..tokens
    }
}

pub fn disk() -> Namespace {
    Namespace {
        nsid: 2,
        uuid: "5f1a0d8e-93c4-8a51-9d2b-66c1b7a2e3f4".to_owned(),
        nguid: "5f1a0d8e93c48a519d2b66c1b7a2e3f4".to_owned(),
        source_text: "file:/srv/disk.raw".to_owned(),
        path: "/srv/disk.raw".to_owned(),
        kind: NamespaceKind::Raw.into(),
        lba_bytes: 512,
        block_count: 41_943_040,
        bytes: 20 << 30,
        write_protection: WriteProtection::None.into(),
        visible_to: Some(seen_only_by(&[TRAINER1])),
        origin: Origin::Admin.into(),
        view: None,
        ..tokens()
    }
}

fn broken() -> Namespace {
    Namespace {
        subsystem_nqn: SCRATCH.to_owned(),
        nsid: 2,
        source_text: "file:/srv/scratch.raw".to_owned(),
        path: "/srv/scratch.raw".to_owned(),
        state: NamespaceState::Failed.into(),
        state_detail: problem().text,
        controllers: 0,
        ..disk()
    }
}

pub fn attach_namespace(start: &Start, request: AttachNamespaceRequest) -> AttachNamespaceResponse {
    let namespace = Namespace {
        subsystem_nqn: request.subsystem_nqn,
        nsid: if request.nsid == 0 { 3 } else { request.nsid },
        source_text: match request.source.unwrap().kind.unwrap() {
            Kind::Text(text) => text,
        },
        visible_to: request.visible_to,
        ..tokens()
    };
    AttachNamespaceResponse {
        namespace: Some(namespace),
        as_of: start.as_of(105),
    }
}

/// Namespace 2 has something under way, and is closing from then on.
pub fn detach_namespace(start: &Start, request: DetachNamespaceRequest) -> DetachNamespaceResponse {
    let closing = request.nsid == 2;
    DetachNamespaceResponse {
        closing,
        closing_reason: if closing { CLOSING } else { "" }.to_owned(),
        as_of: start.as_of(105),
    }
}

const CLOSING: &str = "3 operations of file:/srv/disk.raw";

/// What was detached before.
fn leaving() -> Namespace {
    Namespace {
        subsystem_nqn: SCRATCH.to_owned(),
        nsid: 3,
        uuid: "9a2d4c6e-0b1f-8e3d-a574-c6b8da9cfe10".to_owned(),
        source_text: "file:/srv/old.raw".to_owned(),
        path: "/srv/old.raw".to_owned(),
        visible_to: Some(seen_only_by(&[])),
        state: NamespaceState::Closing.into(),
        state_detail: "1 operation of file:/srv/old.raw".to_owned(),
        controllers: 0,
        ..disk()
    }
}

pub fn resize_namespace(start: &Start, request: ResizeNamespaceRequest) -> ResizeNamespaceResponse {
    let bytes = match request.size {
        Some(Size::Bytes(bytes)) => bytes,
        Some(Size::Rescan(_)) | None => 20 << 30,
    };
    ResizeNamespaceResponse {
        namespace: Some(Namespace { bytes, ..disk() }),
        bytes_before: 20 << 30,
        closing: false,
        closing_reason: String::new(),
        as_of: start.as_of(105),
    }
}

pub fn set_visibility(start: &Start, request: SetVisibilityRequest) -> SetVisibilityResponse {
    SetVisibilityResponse {
        namespace: Some(Namespace {
            visible_to: request.visible_to,
            ..disk()
        }),
        closing: false,
        closing_reason: String::new(),
        as_of: start.as_of(105),
    }
}

pub fn show_to(start: &Start, request: ShowToRequest) -> ShowToResponse {
    let mut hosts = vec![TRAINER1];
    hosts.extend(request.host_nqns.iter().map(String::as_str));
    ShowToResponse {
        namespace: Some(Namespace {
            visible_to: Some(seen_only_by(&hosts)),
            ..disk()
        }),
        as_of: start.as_of(105),
    }
}

pub fn hide_from(start: &Start, request: HideFromRequest) -> HideFromResponse {
    let mut not_listed = request.host_nqns;
    let named = not_listed.len();
    not_listed.retain(|nqn| nqn != TRAINER1);
    // The one that saw it has something under way.
    let closing = not_listed.len() < named;
    HideFromResponse {
        namespace: Some(Namespace {
            visible_to: Some(seen_only_by(&[])),
            ..disk()
        }),
        not_listed,
        closing,
        closing_reason: if closing { CLOSING } else { "" }.to_owned(),
        as_of: start.as_of(105),
    }
}

pub fn list_namespaces(start: &Start, request: ListNamespacesRequest) -> ListNamespacesResponse {
    let wanted = |namespace: &Namespace| {
        request.subsystem_nqn.is_empty() || request.subsystem_nqn == namespace.subsystem_nqn
    };
    let mut namespaces = vec![tokens(), disk(), mixed(), broken(), leaving()];
    namespaces.retain(wanted);
    let (namespaces, next_page_token) = page(namespaces, request.page_size, &request.page_token);
    ListNamespacesResponse {
        namespaces,
        next_page_token,
        as_of: start.as_of(104),
    }
}

/// All that was given is there.
pub fn prefetch(given: Vec<PrefetchRequest>) -> Vec<PrefetchResponse> {
    let mut told = PrefetchResponse {
        complete: true,
        ..PrefetchResponse::default()
    };
    for part in given {
        match part.what {
            Some(prefetch_request::What::Begin(begin)) => told.epoch_id = begin.epoch_id,
            Some(prefetch_request::What::Ranges(more)) => {
                told.given_ranges += more.ranges.len() as u64;
                told.given_bytes += more.ranges.iter().map(|range| range.bytes).sum::<u64>();
            }
            None => {}
        }
    }
    told.fetched_bytes = told.given_bytes;
    vec![told]
}

pub fn get_namespace(start: &Start, request: GetNamespaceRequest) -> GetNamespaceResponse {
    let found = match (request.subsystem_nqn.as_str(), request.nsid) {
        (SCRATCH, _) => broken(),
        (_, 2) => disk(),
        (_, 4) => mixed(),
        _ => tokens(),
    };
    let user = NamespaceHost {
        host_nqn: TRAINER1.to_owned(),
        host_id: "d0e5c1d88a2c4b6c9a0e0242ac120002".to_owned(),
        controllers: 1,
        last_io_at: at(100),
        registrant: true,
        reservation_holder: true,
    };
    let registered = NamespaceHost {
        host_nqn: String::new(),
        host_id: "d0e5c1d88a2c4b6c9a0e0242ac120003".to_owned(),
        controllers: 0,
        last_io_at: None,
        registrant: true,
        reservation_holder: false,
    };
    GetNamespaceResponse {
        hosts: if found.controllers > 0 {
            vec![registered, user]
        } else {
            Vec::new()
        },
        namespace: Some(found),
        as_of: start.as_of(104),
    }
}

pub fn allow_hosts(start: &Start, request: AllowHostsRequest) -> AllowHostsResponse {
    let hosts = if request.any {
        any()
    } else {
        only(&[TRAINER1, TRAINER2])
    };
    AllowHostsResponse {
        hosts: Some(hosts),
        as_of: start.as_of(105),
    }
}

pub fn deny_hosts(start: &Start, request: DenyHostsRequest) -> DenyHostsResponse {
    let hosts = if request.any {
        only(&[])
    } else {
        only(&[TRAINER1])
    };
    DenyHostsResponse {
        hosts: Some(hosts),
        controllers_ended: u32::from(!request.any),
        closing: !request.any,
        closing_reason: if request.any {
            String::new()
        } else {
            "1 operation of /srv/tokens.xio".to_owned()
        },
        as_of: start.as_of(105),
        not_listed: request
            .host_nqns
            .into_iter()
            .filter(|nqn| nqn != TRAINER2)
            .collect(),
    }
}

pub fn set_hosts(start: &Start, request: SetHostsRequest) -> SetHostsResponse {
    SetHostsResponse {
        hosts: request.hosts,
        controllers_ended: 2,
        closing: false,
        closing_reason: String::new(),
        as_of: start.as_of(105),
    }
}

pub fn list_hosts(start: &Start, request: ListHostsRequest) -> ListHostsResponse {
    let connected = |nqn: &str| ConnectedHost {
        host_nqn: nqn.to_owned(),
        host_id: "d0e5c1d88a2c4b6c9a0e0242ac120002".to_owned(),
        controllers: 1,
    };
    let subsystems = vec![
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
    ];
    let (subsystems, next_page_token) = page(subsystems, request.page_size, &request.page_token);
    ListHostsResponse {
        subsystems,
        next_page_token,
        as_of: start.as_of(104),
    }
}

pub fn add_listener(start: &Start, request: AddListenerRequest) -> AddListenerResponse {
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
        as_of: start.as_of(105),
    }
}

pub fn remove_listener(start: &Start, _: RemoveListenerRequest) -> RemoveListenerResponse {
    RemoveListenerResponse {
        as_of: start.as_of(105),
    }
}

pub fn list_listeners(start: &Start, request: ListListenersRequest) -> ListListenersResponse {
    let listener = |port_id, address: &str, connections, origin: Origin| Listener {
        port_id,
        transport: Transport::Tcp.into(),
        address: address.to_owned(),
        connections,
        origin: origin.into(),
    };
    let listeners = vec![
        listener(1, "192.0.2.7:4420", 9, Origin::Config),
        listener(2, "[2001:db8::7]:4420", 0, Origin::Admin),
    ];
    let (listeners, next_page_token) = page(listeners, request.page_size, &request.page_token);
    ListListenersResponse {
        listeners,
        next_page_token,
        as_of: start.as_of(104),
    }
}

fn functions() -> Vec<Function> {
    let waiting = Function {
        name: "pf0".to_owned(),
        protocol: FunctionProtocol::VfioUser.into(),
        subsystem_nqn: DATA.to_owned(),
        socket: "/run/xio/pf0".to_owned(),
        state: FunctionState::Waiting.into(),
        origin: Origin::Config.into(),
        ..Function::default()
    };
    let connected = Function {
        name: "pf0vf1".to_owned(),
        socket: "/run/xio/pf0vf1".to_owned(),
        poll: true,
        state: FunctionState::Connected.into(),
        cntlid: Some(3),
        io_queues: 2,
        origin: Origin::Admin.into(),
        ..waiting.clone()
    };
    vec![waiting, connected]
}

pub fn create_function(start: &Start, request: CreateFunctionRequest) -> CreateFunctionResponse {
    CreateFunctionResponse {
        function: Some(Function {
            name: request.name,
            protocol: request.protocol,
            subsystem_nqn: request.subsystem_nqn,
            socket: request.socket,
            poll: request.poll,
            nsid: request.nsid,
            state: FunctionState::Waiting.into(),
            origin: Origin::Admin.into(),
            ..Function::default()
        }),
        as_of: start.as_of(105),
    }
}

pub fn delete_function(start: &Start, _: DeleteFunctionRequest) -> DeleteFunctionResponse {
    DeleteFunctionResponse {
        closing: false,
        closing_reason: String::new(),
        as_of: start.as_of(105),
    }
}

pub fn list_functions(start: &Start, request: ListFunctionsRequest) -> ListFunctionsResponse {
    let (functions, next_page_token) = page(functions(), request.page_size, &request.page_token);
    ListFunctionsResponse {
        functions,
        next_page_token,
        as_of: start.as_of(104),
    }
}

pub fn get_function(start: &Start, request: GetFunctionRequest) -> GetFunctionResponse {
    GetFunctionResponse {
        function: functions().into_iter().find(|it| it.name == request.name),
        as_of: start.as_of(104),
    }
}

pub fn add_referral(start: &Start, request: AddReferralRequest) -> AddReferralResponse {
    AddReferralResponse {
        referral: Some(Referral {
            port_id: request.port_id,
            transport: request.transport,
            address: request.address,
            origin: Origin::Admin.into(),
        }),
        as_of: start.as_of(105),
    }
}

pub fn remove_referral(start: &Start, _: RemoveReferralRequest) -> RemoveReferralResponse {
    RemoveReferralResponse {
        as_of: start.as_of(105),
    }
}

pub fn list_referrals(start: &Start, request: ListReferralsRequest) -> ListReferralsResponse {
    let referrals = vec![Referral {
        port_id: 0,
        transport: Transport::Tcp.into(),
        address: "192.0.2.8:8009".to_owned(),
        origin: Origin::Admin.into(),
    }];
    let (referrals, next_page_token) = page(referrals, request.page_size, &request.page_token);
    ListReferralsResponse {
        referrals,
        next_page_token,
        as_of: start.as_of(104),
    }
}

pub fn list_controllers(start: &Start, request: ListControllersRequest) -> ListControllersResponse {
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
        function: String::new(),
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
    let (controllers, next_page_token) =
        page(vec![io, discovery], request.page_size, &request.page_token);
    ListControllersResponse {
        controllers,
        next_page_token,
        as_of: start.as_of(104),
    }
}

pub fn end_controller(start: &Start, _: EndControllerRequest) -> EndControllerResponse {
    EndControllerResponse {
        closing: false,
        closing_reason: String::new(),
        as_of: start.as_of(105),
    }
}
