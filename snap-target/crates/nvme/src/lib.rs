//! NVMe as state machines: the target side and the host side of NVMe/TCP and NVMe/RDMA, the queues of PCIe functions, and the controllers
//! behind the target side.
//!
//! Contract: nothing here does I/O, reads a clock or owns payload. A driver feeds header bytes in ([`tcp::target::Connection::headers`]),
//! places payload where the machine says, passes the time, and sends what the machine hands out; headers never share a
//! buffer with payload. So the same machines run over io_uring, in a simulation with a stepped clock, and under a fuzzer.
//! Whatever arrives, memory stays bounded by the limits given at the start, nothing panics, and after a fatal error no
//! further byte is interpreted. Once a connection is made no command allocates.
//!
//! What it does not do: sockets, buffers, namespaces' data, memory of hosts, queue pairs, authentication, TLS.

#![forbid(unsafe_code)]

pub mod controller;
pub mod digest;
pub mod initiator;
pub mod nqn;
mod outstanding;
pub mod pcie;
pub mod queue;
pub mod rdma;
#[cfg(feature = "simulation")]
pub mod simulation;
pub mod tcp;
pub mod time;

pub use time::Time;
