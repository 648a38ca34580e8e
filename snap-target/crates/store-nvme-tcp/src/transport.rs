//! How queues begin, and how they go from one ring to another.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use nvme::tcp::host::{Connection, HostOptions};
use reactor::{Errno, Fd, Ring};
use store::WireBytes;
use store_nvme::Clock;
use store_nvme::queue::{Parted, Queue, QueueError, QueueOptions, Transport};

use crate::queue::TcpQueue;
use crate::socket;

/// As URLs and tables name it.
pub(crate) const NAME: &str = "tcp";

/// NVMe/TCP.
#[derive(Clone, Copy, Debug, Default)]
pub struct TcpTransport;

impl Transport for TcpTransport {
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
        let socket = socket::open(to).map_err(|source| match source {
            Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM => {
                QueueError::resources(to, &source)
            }
            _ => QueueError::Connect { to, source },
        })?;
        let machine = Connection::new(host_options(options), clock.now());
        let with = (options, clock);
        let queue = TcpQueue::connecting(ring, Fd::from(socket), to, machine, with)?;
        Ok(Box::new(queue))
    }
}

fn host_options(options: &QueueOptions) -> HostOptions {
    HostOptions {
        depth: options.depth,
        header_digest: options.header_digest,
        data_digest: options.data_digest,
        in_capsule_bytes_max: options.in_capsule_bytes_max,
        command_timeout: options.command_timeout,
    }
}

/// A connection without a ring.
#[derive(Debug)]
pub(crate) struct TcpParted {
    pub(crate) socket: OwnedFd,
    pub(crate) to: SocketAddr,
    pub(crate) clock: Clock,
    pub(crate) options: QueueOptions,
    pub(crate) machine: Connection,
    pub(crate) wire: WireBytes,
}

impl Parted for TcpParted {
    fn join(self: Box<Self>, ring: &Ring) -> Result<Box<dyn Queue>, QueueError> {
        let with = (&self.options, self.clock);
        let socket = Fd::from(self.socket);
        let queue = TcpQueue::joined(ring, socket, self.to, self.machine, with, self.wire)?;
        Ok(Box::new(queue))
    }
}
