//! Asks a discovery service where a subsystem is reached.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use nvme::Time;
use nvme::initiator::path::ADMIN_ENTRIES_Z;
use nvme::initiator::{
    Association, AttachAdmin, DiscoveryRecord, ReadDiscoveryLog, Sequence, Step,
};
use nvme::nqn::Nqn;
use nvme::queue::QueueId;
use nvme_spec::DISCOVERY_NQN;
use nvme_spec::discovery::TransportType;
use nvme_spec::tcp::ADMIN_CAPSULE_DATA_BYTES;
use reactor::{Ring, Wait};

use crate::clock::Clock;
use crate::custodian::{AdminEvent, AdminQueue, Purpose, ring_config};
use crate::options::{PATHS_MAX, RemoteOptions};
use crate::queue::{QueueOptions, Transport};

/// Why a discovery service says nothing of use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DiscoverError {
    /// It could not be asked.
    #[error("asking the discovery service at {service} failed: {why}")]
    Service {
        /// Which.
        service: SocketAddr,
        /// What happened.
        why: String,
    },
    /// It does not list the subsystem, for this host and this transport.
    #[error(
        "the discovery service at {service} lists no way to {subnqn} over {transport} for this host; it lists {listed} records"
    )]
    NotListed {
        /// Which service.
        service: SocketAddr,
        /// The subsystem.
        subnqn: String,
        /// `tcp`, `rdma`.
        transport: &'static str,
        /// What it has.
        listed: usize,
    },
}

/// The addresses at which `subnqn` is reached, as the discovery service at `service` lists them for this host: at most [`PATHS_MAX`], those that want
/// TLS left out. Blocks.
///
/// # Errors
/// [`DiscoverError`].
pub fn discover(
    transport: &Arc<dyn Transport>,
    service: SocketAddr,
    subnqn: &Nqn,
    options: &RemoteOptions,
) -> Result<Vec<SocketAddr>, DiscoverError> {
    let failed = |why: String| DiscoverError::Service { service, why };
    let mut asking = Asking::begin(transport, service, options).map_err(failed)?;
    let records = asking.records(options).map_err(failed)?;
    let of = match transport.name() {
        "rdma" => TransportType::RDMA,
        _ => TransportType::TCP,
    };
    let mut found = Vec::new();
    for record in &records {
        let is_meant = record.subnqn == subnqn.as_str() && record.transport == of;
        if is_meant
            && !record.requires_tls
            && let Some(address) = address_of(record)
            && !found.contains(&address)
        {
            found.push(address);
        }
    }
    found.truncate(PATHS_MAX);
    if found.is_empty() {
        return Err(DiscoverError::NotListed {
            service,
            subnqn: subnqn.as_str().to_owned(),
            transport: transport.name(),
            listed: records.len(),
        });
    }
    Ok(found)
}

fn address_of(record: &DiscoveryRecord) -> Option<SocketAddr> {
    let address: IpAddr = record.address.parse().ok()?;
    let port: u16 = record.service.parse().ok().filter(|port| *port != 0)?;
    Some(SocketAddr::new(address, port))
}

/// A connection to a discovery service.
struct Asking {
    ring: Ring,
    clock: Clock,
    admin: AdminQueue,
    by: Time,
}

impl Asking {
    fn begin(
        transport: &Arc<dyn Transport>,
        service: SocketAddr,
        options: &RemoteOptions,
    ) -> Result<Self, String> {
        let ring = Ring::new(&ring_config()).map_err(|error| error.to_string())?;
        let clock = Clock::since(Instant::now());
        let queue = QueueOptions {
            qid: QueueId::ADMIN,
            cntlid: 0,
            depth: ADMIN_ENTRIES_Z,
            in_capsule_bytes_max: ADMIN_CAPSULE_DATA_BYTES,
            header_digest: options.header_digest,
            data_digest: options.data_digest,
            connect_timeout: options.connect_timeout,
            command_timeout: options.command_timeout,
        };
        let connecting = transport.connect(&ring, service, &queue, clock.clone());
        let by = clock.now() + options.connect_timeout + options.command_timeout;
        Ok(Self {
            admin: AdminQueue::new(connecting.map_err(|error| error.to_string())?),
            ring,
            clock,
            by,
        })
    }

    fn records(&mut self, options: &RemoteOptions) -> Result<Vec<DiscoveryRecord>, String> {
        match self.next_event()? {
            AdminEvent::Ready => {}
            other => return Err(format!("{other:?} before the connection stood")),
        }
        let association = Association {
            host_id: options.host_id,
            hostnqn: options.hostnqn.as_str().to_owned(),
            subnqn: DISCOVERY_NQN.to_owned(),
        };
        // The service is asked once: it need not watch over this host.
        let keep_alive = std::time::Duration::ZERO;
        let now = self.clock.now();
        let mut attach = AttachAdmin::new(association, ADMIN_ENTRIES_Z, keep_alive, 0, now)
            .map_err(|error| error.to_string())?;
        self.run(&mut attach)?;
        let attached = attach.finish();
        let transfer_bytes_max = attached.map_or(0, |it| it.controller.transfer_bytes_max);
        let mut log = ReadDiscoveryLog::new(transfer_bytes_max);
        self.run(&mut log)?;
        Ok(log.finish().unwrap_or_default())
    }

    fn run(&mut self, sequence: &mut impl Sequence) -> Result<(), String> {
        loop {
            let now = self.clock.now();
            match sequence.step(now).map_err(|error| error.to_string())? {
                Step::Done => return Ok(()),
                Step::WaitUntil(at) => self.wait(Some(at))?,
                Step::Issue { command, data_out } => {
                    self.admin
                        .issue(Purpose::Single, &command, &data_out, now)?;
                    let AdminEvent::Answered { cqe, data, .. } = self.next_event()? else {
                        return Err("it says that it is ready twice".to_owned());
                    };
                    let now = self.clock.now();
                    let answered = sequence.answered(now, &cqe, &data);
                    answered.map_err(|error| error.to_string())?;
                }
            }
        }
    }

    fn next_event(&mut self) -> Result<AdminEvent, String> {
        let mut events = Vec::new();
        loop {
            self.admin.poll(self.clock.now(), &mut events);
            match events.pop() {
                Some(AdminEvent::Over(why)) => return Err(why),
                Some(event) => return Ok(event),
                None => {}
            }
            self.admin.settle();
            self.wait(None)?;
        }
    }

    /// One turn of the ring, which waits no longer than there is time.
    fn wait(&mut self, until: Option<Time>) -> Result<(), String> {
        let now = self.clock.now();
        if now >= self.by {
            return Err("it did not answer in time".to_owned());
        }
        let deadlines = [until, self.admin.deadline(), Some(self.by)];
        let until = deadlines.into_iter().flatten().min().unwrap_or(self.by);
        let until = Some(self.clock.instant(until));
        let turned = self.ring.turn(Wait::Block { until });
        turned.map(drop).map_err(|error| error.to_string())
    }
}
