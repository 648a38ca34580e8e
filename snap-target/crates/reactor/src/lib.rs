//! One io_uring loop per core: operations, buffers, timers, messages between cores; and threads for work that is too long for a turn.
//!
//! **What it is.** A [`Ring`] is one io_uring, owned by the thread that made it; the handle is cheap to clone and not `Send`. Whoever
//! does I/O registers as an [`Owner`]; operations are started for an owner with a `tag` of its choice, and their [`Event`]s land in that
//! owner's inbox. One loop per core calls [`Ring::turn`] and serves the owners that it names ready.
//!
//! **Its contract.**
//! * An operation owns its buffers, descriptor, headers and segment lists until its last completion, cancelled or not. Nothing
//!   that the kernel may touch lives on a caller's stack. Dropping an [`Owner`] cancels its operations and waits for them.
//! * Each operation ends with exactly one event whose `more` is false. Short sends and short receives into a buffer are continued inside.
//! * After start-up no operation allocates: tables, inboxes, receive buffers and timers have the sizes of [`RingConfig`]. A full table
//!   refuses ([`Refused`] gives the resources back): park, and retry after a turn.
//! * Linux 5.15 suffices; what newer kernels offer ([`Features`]) is probed, and each feature can be masked.
//!
//! ```
//! use reactor::{Fd, Payload, Ring, RingConfig, Wait};
//! use std::io::Write;
//!
//! let ring = Ring::new(&RingConfig::default())?;
//! let owner = ring.register()?;
//! let (ours, mut theirs) = std::os::unix::net::UnixStream::pair()?;
//! let ours = Fd::from(ours);
//! owner.recv(&ours, 7)?;
//! theirs.write_all(b"hello")?;
//! let event = loop {
//!     match owner.next_event() {
//!         Some(event) => break event,
//!         None => drop(ring.turn(Wait::Block { until: None })?),
//!     }
//! };
//! assert_eq!(event.tag, 7);
//! assert!(matches!(event.payload, Payload::Chunk(chunk) if &*chunk == b"hello"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`peer_event`] tells another process something without waiting for it; [`UnixPort`] is a socket's path, of which one process is the owner.
//!
//! **What it does not do.** No tasks, no futures, no name resolution, no TLS, no retry policy.

#![deny(unsafe_code)]
#![allow(
    clippy::result_large_err,
    reason = "a refusal gives the resources back by value: boxing them would allocate"
)]

#[allow(
    unsafe_code,
    reason = "segments over raw memory shared with the kernel; each block says why"
)]
pub mod buf;
mod channel;
mod config;
mod door;
mod error;
mod features;
#[allow(
    unsafe_code,
    reason = "system calls of asynchronous I/O and eventfds; each block says why"
)]
pub mod peer_event;
#[allow(unsafe_code, reason = "the io_uring boundary; each block says why")]
mod ring;
mod small;
mod stats;
mod timer;
mod unix_port;
#[allow(unsafe_code, reason = "eventfd system calls; each block says why")]
mod wake;
mod workers;

pub use channel::{Full, Receiver, Sender, channel};
pub use config::RingConfig;
pub use door::{Asked, Door, Silent};
pub use error::ReactorError;
pub use features::Features;
pub use nix::errno::Errno;
pub use ring::{
    COMMAND_BYTES, Event, Fd, Fsync, OpId, Owner, OwnerId, Payload, RecvChunk, Refused, Ring,
    SendBatch, Turn, Wait, WriteMode,
};
pub use small::SmallRing;
pub use stats::RingStats;
pub use timer::TimerId;
pub use unix_port::{UnixPlace, UnixPort, UnixPortError};
pub use wake::Waker;
pub use workers::{WorkerQueue, Workers};
