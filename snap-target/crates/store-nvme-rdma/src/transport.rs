//! How queues begin, and how they go from one ring to another.

use std::net::SocketAddr;

use nvme::rdma::host::{Connection, HostOptions};
use reactor::Ring;
use store::WireBytes;
use store_nvme::Clock;
use store_nvme::queue::{Parted, Queue, QueueError, QueueOptions, Transport};
use verbs::{CmId, ControlThread, EventChannel, Verbs, VerbsError};

use crate::connecting::Connecting;
use crate::lane::{Lane, Size};
use crate::limits::IN_CAPSULE_BYTES_MAX;
use crate::queue::RdmaQueue;

/// As URLs and tables name it.
pub(crate) const NAME: &str = "rdma";

/// NVMe/RDMA.
#[derive(Clone, Debug)]
pub struct RdmaTransport {
    verbs: Verbs,
    with_windows: bool,
    /// Takes queues apart.
    control: ControlThread,
}

impl RdmaTransport {
    /// Over an implementation of verbs, where a fabric in memory is one.
    #[must_use]
    pub fn new(verbs: Verbs) -> Self {
        Self {
            verbs,
            with_windows: true,
            control: ControlThread::default(),
        }
    }

    /// Over the system's RDMA devices.
    ///
    /// # Errors
    /// rdma-core is not installed, or there is no device: the error says what to do.
    pub fn of_system() -> Result<Self, VerbsError> {
        let verbs = verbs::rdma_core::open()?;
        if verbs.devices()?.is_empty() {
            return Err(VerbsError::Misuse {
                call: "rdma_get_devices",
                what: "this machine has no RDMA device (rdma link show); for soft-RoCE: modprobe rdma_rxe; rdma link add rxe0 type rxe netdev DEVICE",
            });
        }
        Ok(Self::new(verbs))
    }

    /// As on a device that has no memory windows of type 2B.
    #[must_use]
    pub fn without_windows(self) -> Self {
        Self {
            with_windows: false,
            ..self
        }
    }
}

impl Transport for RdmaTransport {
    fn name(&self) -> &'static str {
        NAME
    }

    fn connect(
        &self,
        ring: &Ring,
        to: SocketAddr,
        options: &QueueOptions,
        clock: Clock,
    ) -> Result<Box<dyn Queue>, QueueError> {
        let channel = self.verbs.event_channel();
        let channel = channel.map_err(|error| QueueError::resources(to, &error))?;
        let options = QueueOptions {
            in_capsule_bytes_max: options.in_capsule_bytes_max.min(IN_CAPSULE_BYTES_MAX),
            ..options.clone()
        };
        let size = Size {
            qid: options.qid,
            depth: options.depth,
            in_capsule_bytes_max: if options.qid.is_admin() {
                0
            } else {
                options.in_capsule_bytes_max
            },
            with_windows: self.with_windows,
        };
        let connecting = Connecting::begin(&channel, to, &options, size);
        let connecting = connecting.map_err(|error| QueueError::resources(to, &error))?;
        let machine = Connection::new(host_options(&options));
        let control = self.control.clone();
        let with = With {
            options,
            clock,
            control,
        };
        let queue = RdmaQueue::connecting(ring, to, channel, connecting, machine, with);
        Ok(Box::new(queue?))
    }
}

fn host_options(options: &QueueOptions) -> HostOptions {
    HostOptions {
        qid: options.qid,
        cntlid: options.cntlid,
        depth: options.depth,
        in_capsule_bytes_max: options.in_capsule_bytes_max,
        command_timeout: options.command_timeout,
    }
}

/// What a queue keeps to on every ring.
#[derive(Debug)]
pub(crate) struct With {
    pub(crate) options: QueueOptions,
    pub(crate) clock: Clock,
    /// Takes it apart.
    pub(crate) control: ControlThread,
}

/// A connection without a ring.
#[derive(Debug)]
pub(crate) struct RdmaParted {
    // In the order in which they go.
    pub(crate) lane: Lane,
    pub(crate) id: CmId,
    pub(crate) channel: EventChannel,
    pub(crate) to: SocketAddr,
    pub(crate) with: With,
    pub(crate) machine: Connection,
    pub(crate) wire: WireBytes,
}

impl Parted for RdmaParted {
    fn join(self: Box<Self>, ring: &Ring) -> Result<Box<dyn Queue>, QueueError> {
        Ok(Box::new(RdmaQueue::joined(ring, *self)?))
    }
}
