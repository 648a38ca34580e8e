//! NVMe/TCP queues of a remote store: the host's machine of [`nvme::tcp::host`] between a socket and the buffers of its commands, on a
//! reactor's ring. The contract is [`store_nvme::queue`].
//!
//! * **One gathered send at a time** carries what is ready, payload from where it lies ([`send`]).
//! * **One receive at a time** takes what is there: the rest of the payload that comes next goes to its place, what follows it into the queue's landing.
//!   Small PDUs so come many in one receive, at a copy each; behind large payload the landing takes headers only, so that the next payload goes to its
//!   place as well ([`receive`]).
//! * **Memory** of a queue: its landing, one batch, and what the machine has for its depth. A peer has no say in it.
//!
//! What it does not do: TLS, more than one connection for a queue, keep-alive (the association's: it is what finds an idle peer dead).

#![deny(unsafe_code)]

#[allow(unsafe_code, reason = "digests look at payload; the block says why")]
mod digest;
mod limits;
mod queue;
mod receive;
mod send;
mod socket;
mod transport;

pub use transport::TcpTransport;
