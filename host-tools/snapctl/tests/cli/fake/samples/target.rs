//! The daemon as a whole.

use admin_proto::v1::*;

use super::{SCRATCH, Start, TRAINER1, at};

pub fn get_info(start: &Start, _: GetInfoRequest) -> GetInfoResponse {
    GetInfoResponse {
        cache_bytes: 64 << 20,
        prefetch_bytes: 32 << 20,
        version: "0.1.0".to_owned(),
        instance: start.instance.to_owned(),
        pid: 4711,
        started_at: at(0),
        reactors: 2,
        workers: 6,
        config_file: "/etc/xio/snap-target.toml".to_owned(),
        state_folder: "/var/lib/xio".to_owned(),
        ring_features: vec!["single_issuer".to_owned(), "defer_taskrun".to_owned()],
        machine: "storage1".to_owned(),
        revision: start.revision,
        features: vec!["transport-tcp".to_owned(), "source-volume".to_owned()],
        limits: Some(DaemonLimits {
            subsystems_max: 64,
            namespaces_per_subsystem_max: 256,
            listeners_max: 16,
            referrals_max: 16,
            hosts_max: 1024,
            page_size_max: 1000,
            ..DaemonLimits::default()
        }),
        as_of: start.as_of(104),
    }
}

pub fn problem() -> HealthProblem {
    HealthProblem {
        id: format!("{SCRATCH} nsid 2"),
        code: HealthCode::SourceUnusable.into(),
        since: at(60),
        text: "/srv/scratch.raw cannot be opened: Permission denied".to_owned(),
        mend: "let the daemon's user read and write /srv/scratch.raw".to_owned(),
        count: 0,
    }
}

pub fn get_health(start: &Start, _: GetHealthRequest) -> GetHealthResponse {
    GetHealthResponse {
        state: HealthState::Degraded.into(),
        problems: vec![problem()],
        as_of: start.as_of(104),
    }
}

pub fn drain(start: &Start, request: DrainRequest) -> DrainResponse {
    let seconds = match request.deadline_ms {
        0 => 20,
        ms => i64::from(ms / 1000),
    };
    DrainResponse {
        ends_by: at(3600 + seconds),
        as_of: start.as_of(105),
    }
}

pub fn dump_recorder(_: &Start, _: DumpRecorderRequest) -> Vec<DumpRecorderResponse> {
    let connect = RecorderEvent {
        at: at(5),
        kind: "host connected".to_owned(),
        cntlid: Some(1),
        sqid: Some(0),
        text: format!("host connected cntlid=1 host=\"{TRAINER1}\""),
        host_nqn: Some(TRAINER1.to_owned()),
        ..RecorderEvent::default()
    };
    let failed = RecorderEvent {
        at: at(9),
        reactor: Some(1),
        kind: "command failed".to_owned(),
        cntlid: Some(1),
        sqid: Some(2),
        cid: Some(77),
        opcode: Some(1),
        nsid: Some(1),
        slba: Some(4096),
        blocks: Some(8),
        status: Some(0x20),
        took_ns: Some(41_000),
        text: format!(
            "command failed cntlid=1 sqid=2 cid=77 opcode=01h nsid=1 lba=4096 blocks=8 status=\"Namespace is Write Protected\" latency_us=41 host=\"{TRAINER1}\""
        ),
        host_nqn: Some(TRAINER1.to_owned()),
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
