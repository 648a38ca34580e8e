//! TargetService.

use std::time::{Duration, SystemTime};

use admin_proto::limits::{DRAIN_MS_MAX, RECORDER_EVENTS_PER_MESSAGE_MAX};
use admin_proto::v1;
use admin_proto::v1::target_service_server::TargetService;
use telemetry::{Recorded, Telemetry};
use tonic::{Request, Response, Status};

use super::super::{Context, answers, convert};
use super::{Answer, changer, of};
use crate::limits;

#[tonic::async_trait]
impl TargetService for Context {
    type DumpRecorderStream =
        tokio_stream::Iter<std::vec::IntoIter<Result<v1::DumpRecorderResponse, Status>>>;

    async fn get_info(&self, _request: Request<v1::GetInfoRequest>) -> Answer<v1::GetInfoResponse> {
        let info = &self.info;
        let machine = nix::unistd::gethostname().unwrap_or_default();
        Ok(Response::new(v1::GetInfoResponse {
            as_of: Some(self.events.as_of()),
            revision: admin_proto::REVISION,
            features: FEATURES.map(str::to_owned).to_vec(),
            limits: Some(daemon_limits()),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            instance: self.events.instance().to_owned(),
            pid: std::process::id(),
            started_at: Some(info.started_at.into()),
            reactors: info.reactors.into(),
            workers: answers::number(info.workers),
            cache_bytes: info.cache_bytes as u64,
            prefetch_bytes: info.prefetch_bytes as u64,
            config_file: info.config_file.clone(),
            state_folder: info.state_folder.clone(),
            ring_features: info.ring_features.clone(),
            machine: machine.to_string_lossy().into_owned(),
        }))
    }

    async fn get_health(
        &self,
        _request: Request<v1::GetHealthRequest>,
    ) -> Answer<v1::GetHealthResponse> {
        Ok(Response::new(self.health.report()))
    }

    async fn drain(&self, request: Request<v1::DrainRequest>) -> Answer<v1::DrainResponse> {
        let _may = changer(&request)?;
        let patience = match of(request).deadline_ms {
            0 => self.info.drain,
            ms if ms <= DRAIN_MS_MAX => Duration::from_millis(ms.into()),
            ms => {
                let why = format!("{ms}; it is at most {DRAIN_MS_MAX}");
                return Err(convert::invalid("deadline_ms", why).into());
            }
        };
        let left = self.ending.drain(patience);
        Ok(Response::new(v1::DrainResponse {
            as_of: Some(self.events.as_of()),
            ends_by: Some((SystemTime::now() + left).into()),
        }))
    }

    async fn dump_recorder(
        &self,
        request: Request<v1::DumpRecorderRequest>,
    ) -> Answer<Self::DumpRecorderStream> {
        let last = usize::try_from(of(request).last).unwrap_or(usize::MAX);
        let messages: Vec<_> = events(&self.telemetry, last)
            .chunks(RECORDER_EVENTS_PER_MESSAGE_MAX)
            .map(|chunk| {
                Ok(v1::DumpRecorderResponse {
                    events: chunk.to_vec(),
                })
            })
            .collect();
        Ok(Response::new(tokio_stream::iter(messages)))
    }
}

/// What this daemon can serve and how.
const FEATURES: [&str; 9] = [
    "transport-tcp",
    "transport-rdma",
    "function-vfio-user",
    "function-ublk",
    "function-vhost-user-blk",
    "source-volume",
    "source-file",
    "source-mem",
    "source-null",
];

fn daemon_limits() -> v1::DaemonLimits {
    use admin_proto::limits as contract;
    let number = answers::number;
    v1::DaemonLimits {
        request_bytes_max: contract::REQUEST_BYTES_MAX as u64,
        answer_bytes_max: contract::ANSWER_BYTES_MAX as u64,
        page_size_max: number(contract::PAGE_SIZE_MAX),
        subsystems_max: number(limits::SUBSYSTEMS_MAX),
        namespaces_per_subsystem_max: number(limits::NAMESPACES_MAX),
        listeners_max: number(limits::LISTENERS_MAX),
        referrals_max: number(limits::REFERRALS_MAX),
        hosts_max: number(limits::HOSTS_MAX),
        hosts_per_call_max: number(contract::HOSTS_PER_CALL_MAX),
        source_bytes_max: number(contract::SOURCE_BYTES_MAX),
        events_kept: number(limits::EVENTS_KEPT),
        announcements_kept: number(contract::ANNOUNCEMENTS_KEPT),
        readers_max: number(contract::READERS_MAX),
        announcements_per_second_max: contract::ANNOUNCEMENTS_PER_SECOND_MAX,
        payload_bytes_max: number(contract::PAYLOAD_BYTES_MAX),
        streams_max: number(limits::ADMIN_STREAMS_MAX),
        functions_max: number(limits::FUNCTIONS_MAX),
        open_ms_max: u32::try_from(limits::OPEN_TIME_MAX.as_millis()).unwrap_or(u32::MAX),
    }
}

/// The newest `last` of each reactor, all of them where it is 0, by time.
fn events(telemetry: &Telemetry, last: usize) -> Vec<v1::RecorderEvent> {
    let all = telemetry.events();
    let mut of_reactor = std::collections::HashMap::new();
    for recorded in &all {
        *of_reactor.entry(recorded.reactor).or_insert(0_usize) += 1;
    }
    let mut seen = std::collections::HashMap::new();
    all.iter()
        .filter_map(|recorded| {
            let number = seen.entry(recorded.reactor).or_insert(0_usize);
            let at = *number;
            *number += 1;
            let count = of_reactor.get(&recorded.reactor).copied().unwrap_or(0);
            let kept = last == 0 || at + last >= count;
            kept.then(|| event(telemetry, recorded))
        })
        .collect()
}

/// What its kind does not fill in is 0 in the recorder, and not set here.
fn event(telemetry: &Telemetry, recorded: &Recorded) -> v1::RecorderEvent {
    let at = telemetry.utc(recorded);
    let event = &recorded.event;
    let set = |value: u32| (value != 0).then_some(value);
    let of_command = event.opcode != 0 || event.cid != 0;
    v1::RecorderEvent {
        at: Some(at.into()),
        reactor: recorded.reactor.map(Into::into),
        kind: event.kind.name().to_owned(),
        cntlid: set(event.cntlid.into()),
        sqid: (event.cntlid != 0).then(|| event.sqid.into()),
        cid: of_command.then(|| event.cid.into()),
        opcode: of_command.then(|| event.opcode.into()),
        nsid: set(event.nsid),
        slba: (event.blocks != 0).then_some(event.lba),
        blocks: (event.blocks != 0).then(|| event.blocks.into()),
        status: set(event.status.into()),
        took_ns: (of_command && event.value != 0).then_some(event.value),
        text: recorded.what_happened(),
        host_nqn: Some(event.host.as_str().to_owned()).filter(|nqn| !nqn.is_empty()),
    }
}
