//! The answers.

use admin_proto::Timestamp;
use admin_proto::v1::host_policy::Hosts;
use admin_proto::v1::resize_namespace_request::Size;
use admin_proto::v1::subscribe_response::Message;
use admin_proto::v1::*;

pub const DATA: &str = "nqn.2026-11.org.example:data";
pub const SCRATCH: &str = "nqn.2026-11.org.example:scratch";
pub const TRAINER1: &str = "nqn.2026-11.org.example:trainer1";
pub const TRAINER2: &str = "nqn.2026-11.org.example:trainer2";

/// 2026-11-21T10:00:00Z and so many seconds.
fn at(seconds: i64) -> Option<Timestamp> {
    Some(Timestamp {
        seconds: 1_795_255_200 + seconds,
        nanos: 0,
    })
}

pub fn any() -> HostPolicy {
    HostPolicy {
        hosts: Some(Hosts::Any(AnyHost {})),
    }
}

pub fn only(nqns: &[&str]) -> HostPolicy {
    HostPolicy {
        hosts: Some(Hosts::Only(HostList {
            nqns: nqns.iter().map(|nqn| (*nqn).to_owned()).collect(),
        })),
    }
}

pub fn get_info(_: GetInfoRequest) -> GetInfoResponse {
    GetInfoResponse {
        version: "0.1.0".to_owned(),
        instance: "6f9619ff8b86d011b42d00cf4fc964ff".to_owned(),
        pid: 4711,
        started_at: at(0),
        reactors: 2,
        workers: 6,
        config_file: "/etc/xio/snap-target.toml".to_owned(),
        state_folder: "/var/lib/xio".to_owned(),
        ring_features: vec!["single_issuer".to_owned(), "defer_taskrun".to_owned()],
        machine: "storage1".to_owned(),
    }
}

fn problem() -> HealthProblem {
    HealthProblem {
        subject: format!("{SCRATCH} nsid 2"),
        what: "/srv/scratch.raw cannot be opened: Permission denied; let the daemon's user read and write it"
            .to_owned(),
        since: at(60),
    }
}

pub fn get_health(_: GetHealthRequest) -> GetHealthResponse {
    GetHealthResponse {
        state: HealthState::Degraded.into(),
        problems: vec![problem()],
    }
}

pub fn drain(request: DrainRequest) -> DrainResponse {
    let seconds = match request.deadline_ms {
        0 => 20,
        ms => i64::from(ms / 1000),
    };
    DrainResponse {
        ends_by: at(3600 + seconds),
    }
}

pub fn dump_recorder(_: DumpRecorderRequest) -> Vec<DumpRecorderResponse> {
    let connect = RecorderEvent {
        time: at(5),
        reactor: 0,
        number: 16,
        kind: "connect".to_owned(),
        cntlid: Some(1),
        sqid: Some(0),
        text: format!("connect cntlid 1 host {TRAINER1}"),
        ..RecorderEvent::default()
    };
    let failed = RecorderEvent {
        time: at(9),
        reactor: 1,
        number: 3,
        kind: "command-failed".to_owned(),
        cntlid: Some(1),
        sqid: Some(2),
        cid: Some(77),
        opcode: Some(1),
        nsid: Some(1),
        slba: Some(4096),
        blocks: Some(8),
        status: Some(0x20),
        took_ns: Some(41_000),
        text: "command-failed cntlid 1 sqid 2 cid 77 write nsid 1 lba 4096 +8: namespace is write protected"
            .to_owned(),
    };
    vec![
        DumpRecorderResponse {
            events: vec![connect],
        },
        DumpRecorderResponse {
            events: vec![failed],
        },
    ]
}

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
    }
}

pub fn delete_subsystem(request: DeleteSubsystemRequest) -> DeleteSubsystemResponse {
    DeleteSubsystemResponse {
        namespaces_detached: if request.force { 2 } else { 0 },
        controllers_ended: u32::from(request.force),
    }
}

pub fn list_subsystems(_: ListSubsystemsRequest) -> ListSubsystemsResponse {
    ListSubsystemsResponse {
        subsystems: vec![data(), scratch()],
    }
}

pub fn get_subsystem(_: GetSubsystemRequest) -> GetSubsystemResponse {
    GetSubsystemResponse {
        subsystem: Some(data()),
    }
}

fn tokens() -> Namespace {
    Namespace {
        subsystem_nqn: DATA.to_owned(),
        nsid: 1,
        uuid: "0f0e0d0c-0b0a-8908-8706-050403020100".to_owned(),
        nguid: "0f0e0d0c0b0a89088706050403020100".to_owned(),
        source: "/srv/tokens.xio".to_owned(),
        kind: NamespaceKind::View.into(),
        lba_bytes: 4096,
        block_count: 262_144,
        bytes: 1 << 30,
        write_protection: WriteProtection::ReadOnly.into(),
        visible_to: Some(any()),
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

fn disk() -> Namespace {
    Namespace {
        nsid: 2,
        uuid: "5f1a0d8e-93c4-8a51-9d2b-66c1b7a2e3f4".to_owned(),
        nguid: "5f1a0d8e93c48a519d2b66c1b7a2e3f4".to_owned(),
        source: "file:/srv/disk.raw".to_owned(),
        kind: NamespaceKind::Raw.into(),
        lba_bytes: 512,
        block_count: 41_943_040,
        bytes: 20 << 30,
        write_protection: WriteProtection::None.into(),
        visible_to: Some(only(&[TRAINER1])),
        origin: Origin::Admin.into(),
        view: None,
        ..tokens()
    }
}

fn broken() -> Namespace {
    Namespace {
        subsystem_nqn: SCRATCH.to_owned(),
        nsid: 2,
        source: "file:/srv/scratch.raw".to_owned(),
        state: NamespaceState::Failed.into(),
        state_detail: problem().what,
        controllers: 0,
        ..disk()
    }
}

pub fn attach_namespace(request: AttachNamespaceRequest) -> AttachNamespaceResponse {
    let namespace = Namespace {
        subsystem_nqn: request.subsystem_nqn,
        nsid: if request.nsid == 0 { 3 } else { request.nsid },
        source: request.source,
        visible_to: request.visible_to,
        ..tokens()
    };
    AttachNamespaceResponse {
        namespace: Some(namespace),
    }
}

pub fn detach_namespace(_: DetachNamespaceRequest) -> DetachNamespaceResponse {
    DetachNamespaceResponse {}
}

pub fn resize_namespace(request: ResizeNamespaceRequest) -> ResizeNamespaceResponse {
    let bytes = match request.size {
        Some(Size::Bytes(bytes)) => bytes,
        Some(Size::Rescan(_)) | None => 20 << 30,
    };
    ResizeNamespaceResponse {
        namespace: Some(Namespace { bytes, ..disk() }),
        bytes_before: 20 << 30,
    }
}

pub fn set_visibility(request: SetVisibilityRequest) -> SetVisibilityResponse {
    SetVisibilityResponse {
        namespace: Some(Namespace {
            visible_to: request.visible_to,
            ..disk()
        }),
    }
}

pub fn list_namespaces(request: ListNamespacesRequest) -> ListNamespacesResponse {
    let all = vec![tokens(), disk(), broken()];
    let wanted = |namespace: &Namespace| {
        request.subsystem_nqn.is_empty() || request.subsystem_nqn == namespace.subsystem_nqn
    };
    ListNamespacesResponse {
        namespaces: all.into_iter().filter(wanted).collect(),
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
    }
}

pub fn allow_hosts(request: AllowHostsRequest) -> AllowHostsResponse {
    let hosts = if request.any {
        any()
    } else {
        only(&[TRAINER1, TRAINER2])
    };
    AllowHostsResponse { hosts: Some(hosts) }
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
    }
}

pub fn set_hosts(request: SetHostsRequest) -> SetHostsResponse {
    SetHostsResponse {
        hosts: request.hosts,
        controllers_ended: 2,
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
    }
}

pub fn remove_listener(_: RemoveListenerRequest) -> RemoveListenerResponse {
    RemoveListenerResponse {}
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
    }
}

pub fn remove_referral(_: RemoveReferralRequest) -> RemoveReferralResponse {
    RemoveReferralResponse {}
}

pub fn list_referrals(_: ListReferralsRequest) -> ListReferralsResponse {
    ListReferralsResponse {
        referrals: vec![Referral {
            port_id: 0,
            transport: Transport::Tcp.into(),
            address: "192.0.2.8:8009".to_owned(),
            origin: Origin::Admin.into(),
        }],
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
    }
}

pub fn end_controller(_: EndControllerRequest) -> EndControllerResponse {
    EndControllerResponse {}
}

pub fn publish(_: PublishRequest) -> PublishResponse {
    PublishResponse { sequence: 105 }
}

fn histogram(buckets: &[(u64, u64)]) -> LatencyHistogram {
    let count = buckets.iter().map(|(_, count)| count).sum();
    LatencyHistogram {
        buckets: buckets
            .iter()
            .map(|&(upper_ns, count)| LatencyBucket { upper_ns, count })
            .collect(),
        count,
        sum_ns: buckets.iter().map(|(upper, count)| upper * count).sum(),
        min_ns: 40_000,
        max_ns: 9_000_000,
    }
}

/// The counters `round` seconds after the first snapshot.
fn counters(round: u64) -> StatsSnapshot {
    let commands = |reads: u64, writes: u64| {
        let of = |kind: &str, count| CommandCount {
            kind: kind.to_owned(),
            count,
        };
        vec![of("read", reads), of("write", writes)]
    };
    let reader = HostStats {
        subsystem_nqn: DATA.to_owned(),
        host_nqn: TRAINER1.to_owned(),
        nsid: 1,
        others: false,
        commands: commands(1_000_000 + round * 25_000, 0),
        read_bytes: (1_000_000 + round * 25_000) * 4096,
        written_bytes: 0,
        errors: Vec::new(),
        in_flight: 32,
        read_latency: Some(histogram(&[
            (90_000, 500_000 + round * 13_000),
            (180_000, 400_000 + round * 11_500),
            (1_500_000, 100_000 + round * 500),
        ])),
        write_latency: None,
    };
    let writer = HostStats {
        nsid: 2,
        commands: commands(0, 4000 + round * 200),
        read_bytes: 0,
        written_bytes: (4000 + round * 200) << 20,
        errors: vec![StatusCount {
            class: "media".to_owned(),
            count: round * 3,
        }],
        in_flight: 4,
        read_latency: None,
        write_latency: Some(histogram(&[(2_500_000, 4000 + round * 200)])),
        ..reader.clone()
    };
    let view = NamespaceStats {
        subsystem_nqn: DATA.to_owned(),
        nsid: 1,
        stored_bytes: 500_000_000 + round * 39_321_600,
        wire_bytes: 520_000_000 + round * 40_894_464,
        delivered_bytes: (1_000_000 + round * 25_000) * 4096,
        copied_bytes: (1_000_000 + round * 25_000) * 4096,
        cache_hits: 900_000 + round * 24_000,
        cache_misses: 100_000 + round * 1000,
        joined_misses: round * 10,
        transforms: vec![TransformStats {
            name: "zstd".to_owned(),
            frames: 100_000 + round * 1000,
            decode_ns: 7_000_000_000 + round * 70_000_000,
        }],
        store_queue_depth: 12,
        parked: 0,
    };
    let raw = NamespaceStats {
        nsid: 2,
        stored_bytes: (4000 + round * 200) << 20,
        wire_bytes: (4000 + round * 200) << 20,
        delivered_bytes: 0,
        copied_bytes: 0,
        cache_hits: 0,
        cache_misses: 0,
        joined_misses: 0,
        transforms: Vec::new(),
        store_queue_depth: 4,
        parked: 1,
        ..view.clone()
    };
    StatsSnapshot {
        instance: "6f9619ff8b86d011b42d00cf4fc964ff".to_owned(),
        taken_at: at(100 + i64::try_from(round).unwrap()),
        monotonic_ns: (100 + round) * 1_000_000_000,
        hosts: vec![reader, writer],
        namespaces: vec![view, raw],
        reactors: vec![ReactorStats {
            reactor: 0,
            turns: 5_000_000 + round * 40_000,
            busy_ns: 60_000_000_000 + round * 620_000_000,
            idle_ns: 40_000_000_000 + round * 380_000_000,
            connections: 9,
            pool_used_bytes: 4 << 20,
            pool_bytes: 64 << 20,
        }],
    }
}

pub fn get_stats(_: GetStatsRequest) -> StatsSnapshot {
    counters(0)
}

pub fn watch_stats(_: WatchStatsRequest) -> Vec<StatsSnapshot> {
    vec![counters(0), counters(1), counters(2)]
}

fn event(sequence: u64, topic: Topic, text: &str, kind: event::Kind) -> SubscribeResponse {
    SubscribeResponse {
        message: Some(Message::Event(Event {
            sequence,
            time: at(i64::try_from(sequence).unwrap()),
            topic: topic.into(),
            text: text.to_owned(),
            kind: Some(kind),
        })),
    }
}

/// Events 101 to 104 are kept; topics are left to who asks.
pub fn subscribe(request: SubscribeRequest) -> Vec<SubscribeResponse> {
    let started = SubscribeResponse {
        message: Some(Message::Started(Started {
            instance: "6f9619ff8b86d011b42d00cf4fc964ff".to_owned(),
            oldest_sequence: 101,
            next_sequence: 105,
        })),
    };
    let gap = SubscribeResponse {
        message: Some(Message::Gap(Gap {
            first_sequence: request.from_sequence,
            last_sequence: 100,
            reason: GapReason::NotKept.into(),
        })),
    };
    let attached = NamespaceEvent {
        change: NamespaceChange::Attached.into(),
        subsystem_nqn: DATA.to_owned(),
        nsid: 1,
        uuid: tokens().uuid,
        bytes: 1 << 30,
    };
    let connected = HostEvent {
        change: HostChange::Connected.into(),
        subsystem_nqn: DATA.to_owned(),
        host_nqn: TRAINER1.to_owned(),
    };
    let announcement = Announcement {
        host_nqn: TRAINER1.to_owned(),
        epoch: 2,
        position: 81_920,
        payload: b"ready".to_vec(),
    };
    let health = HealthEvent {
        state: HealthState::Degraded.into(),
        problem: Some(problem()),
        ended: false,
    };
    let kept = [
        event(
            101,
            Topic::Namespace,
            &format!("attached /srv/tokens.xio as nsid 1 of {DATA}"),
            event::Kind::Namespace(attached),
        ),
        event(
            102,
            Topic::Host,
            &format!("{TRAINER1} connected to {DATA}"),
            event::Kind::Host(connected),
        ),
        event(
            103,
            Topic::Health,
            &format!("degraded: {}: {}", problem().subject, problem().what),
            event::Kind::Health(health),
        ),
        event(
            104,
            Topic::Announcement,
            &format!("{TRAINER1} is at epoch 2 position 81920"),
            event::Kind::Announcement(announcement),
        ),
    ];
    let mut messages = vec![started];
    if request.from_sequence == 0 {
        return messages;
    }
    if request.from_sequence < 101 {
        messages.push(gap);
    }
    let told = |message: &SubscribeResponse| match &message.message {
        Some(Message::Event(event)) => event.sequence >= request.from_sequence,
        _ => true,
    };
    messages.extend(kept.into_iter().filter(told));
    messages
}
