//! NVMe/RDMA queues of a remote store: the host's machine of [`nvme::rdma::host`] between a queue pair and the buffers of its commands, on a reactor's ring. The contract is
//! [`store_nvme::queue`].
//!
//! * **Connecting** never blocks: the connection manager's events come through a descriptor on the ring ([`queue`]).
//! * **Memory.** A peer reaches the queue's staging and nothing else of this process: registered memory of the queue's own, in a protection domain of its own. Data are copied
//!   between it and the commands' buffers, once each way, so that a buffer is the caller's again whatever the peer does ([`staging`], [`memory`]).
//! * **Keys.** A command's part of the staging is given under a memory window of type 2B, bound in front of its capsule on the same queue pair. The controller is asked
//!   to invalidate it with its response; where it does not, this end does, and the command ends after that. On a device without such windows the part is registered by
//!   itself before the capsule is sent, and deregistered when the command has ended: two calls of the device a command.
//! * **Completions** are taken in batches at every turn; the completion channel wakes a ring that sleeps.
//! * **The end** moves the queue pair to error: from then on nothing that this machine holds leaves it, and the peer's keys are good for nothing. A thread of the transport
//!   ([`verbs::ControlThread`]) destroys it, with a window a slot and the staging: that takes long.
//!
//! What it does not do: reads and writes in place, more than one connection for a queue, keep-alive (the association's: it is what finds a peer that fell silent while
//! nothing was outstanding), authentication, encryption. The device's asynchronous events (`ibv_get_async_event(3)`) are not read: what they tell shows as work that fails, as an
//! event of the connection manager, or as a keep-alive that is not answered.

#![deny(unsafe_code)]

mod connecting;
mod lane;
mod limits;
#[allow(
    unsafe_code,
    reason = "copies between buffers and registered memory; each block says why"
)]
mod memory;
mod queue;
mod staging;
mod transport;
mod watched;
mod words;

pub use transport::RdmaTransport;
