//! virtio's rings as a device sees them (virtio 1.3, 2.7 "Split Virtqueues" and 2.8 "Packed Virtqueues").
//!
//! **What it is.** A [`Ring`] takes descriptor chains that a driver made available and gives them back used, in either format. It does no I/O: guest
//! memory is reached through [`Memory`] and [`Area`], which the caller implements. What is in flight may be written down in an area that outlives the
//! process (vhost-user's "Inflight I/O tracking"), so that a device that was killed finds it again.
//!
//! **Its contract.**
//! * The driver is not trusted and may change its memory at any time. Every field is read once, into a copy that is checked; loops and lengths are
//!   bounded; addresses are 64-bit and looked up by whoever uses them.
//! * A chain that breaks the rules of chains ([`ChainError`]) is taken all the same, and can be given back. What breaks the ring's own ([`RingError`])
//!   leaves nothing that could be gone on with: the ring must not be used any more.
//! * Each chain that was taken is given back once, by its [`Head`], in any order.
//!
//! **What it does not do.** No eventfds, no threads, no translation of addresses, no request formats. No in-order feature, no notification data.

#![forbid(unsafe_code)]

mod chain;
mod error;
pub mod inflight;
mod layout;
mod memory;
mod packed;
mod ring;
mod split;

pub use chain::{CHAIN_MAX, ChainError, Descriptor};
pub use error::RingError;
pub use layout::{Format, Layout, QUEUE_SIZE_MAX};
pub use memory::{Area, Memory};
pub use ring::{Head, Options, Position, Ring, Taken};
