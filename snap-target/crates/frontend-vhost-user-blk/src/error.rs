//! What ends a connection, or keeps a device from being there.

use std::io;

use guest_memory::{MapError, Refused};
use reactor::{Silent, UnixPortError};
use virtio_ring::RingError;

/// Why a device is not there.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// Its socket.
    #[error(transparent)]
    Socket(#[from] UnixPortError),
    /// There is no reactor.
    #[error("there is no reactor to serve queues")]
    NoReactor,
    /// The system.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
}

/// Why a request of the monitor is refused; the connection ends with it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionError {
    #[error("queue {index} of {queues}")]
    NoQueue { index: u32, queues: u16 },
    #[error("queue {index}: {what} while it runs")]
    Running { index: u32, what: &'static str },
    #[error("queue {index}: {source}")]
    Ring { index: u32, source: RingError },
    #[error("queue {index}: its {area} area at {address:#x} is not in the guest's memory")]
    NoArea {
        index: u32,
        area: &'static str,
        address: u64,
    },
    #[error("queue {index}: dirty pages cannot be logged")]
    Log { index: u32 },
    #[error("queue {index}: polling without an event file descriptor is not there")]
    NoEvent { index: u32 },
    #[error("queue {index}: {why}")]
    Event { index: u32, why: String },
    #[error("features {0:#x} were not offered")]
    Features(u64),
    #[error("features change while queues run")]
    FeaturesRunning,
    #[error("protocol features {0:#x} were not offered")]
    ProtocolFeatures(u64),
    #[error("this needs protocol feature bits {0:#x}, which were not negotiated")]
    NotNegotiated(u64),
    #[error("memory: {0}")]
    Map(#[from] MapError),
    #[error("memory: {0}")]
    Memory(#[from] Refused),
    #[error("memory: a region at {address:#x} of {bytes:#x} bytes has no end")]
    Region { address: u64, bytes: u64 },
    #[error("memory that was taken away is still in use after {0} s")]
    MemoryInUse(u64),
    #[error("memory for what is in flight: {0}")]
    Inflight(&'static str),
    #[error("{what}: {source}")]
    System {
        what: &'static str,
        source: io::Error,
    },
    #[error(transparent)]
    Reactor(#[from] Silent),
}
