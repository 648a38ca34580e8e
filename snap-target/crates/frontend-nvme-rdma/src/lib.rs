//! NVMe/RDMA for the frontend: queue pairs around the `nvme` state machine.
//!
//! **What it is.** [`Rdma::bind`] makes a listening end that a target takes ([`frontend_nvme::link::Bound`]); each of its connections is one queue of one host: one
//! reliable connection with a completion queue of its own.
//!
//! **Its contract** is [`frontend_nvme::link::Link`]'s. RDMA WRITEs go straight from the buffer that the store or the decoder left, RDMA READs straight into the command's own, where
//! it is memory of a reactor's pool: each pool is registered once a device. Other memory, and a pool that may not be locked (RLIMIT_MEMLOCK), goes through a bounded
//! staging of the connection, with a copy. What finds no room waits. A connection with work is polled; one without has its completion queue armed, and the reactor
//! sleeps. When a connection ends with data under way its queue pair is destroyed before any buffer goes back. What takes a device long, making a queue, registering a pool (until
//! then its data are staged) and taking a queue apart, is done on a [`verbs::ControlThread`]. A listener that fails listens again.
//!
//! **What it does not do.** It knows no controllers and no namespaces (`frontend-nvme` does), and it neither authenticates nor encrypts. Hosts never get a key to
//! memory here. A host that is gone without a word is noticed by its keep-alive timer, and when something is sent to it; one that asked for no keep alive (KATO 0)
//! and has nothing outstanding is not. The device's asynchronous events are not read: what they tell shows as work that fails, or as an event of the connection manager.

#![forbid(unsafe_code)]

mod capsules;
mod device;
mod limits;
mod link;
mod listening;
mod port;
mod post;
mod queue;
mod staging;

pub use port::{Rdma, RdmaPort};
