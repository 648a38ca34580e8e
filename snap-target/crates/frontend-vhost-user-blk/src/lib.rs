//! The vhost-user-blk frontend: a virtual machine's stock virtio-blk driver sees a namespace as a disk (virtio 1.3, 5.2 "Block Device").
//!
//! **What it is.** A [`Device`] listens at a Unix socket, to which the machine's monitor connects; a thread of its own speaks vhost-user with it. Its
//! queues are served by reactors: a [`Share`] is one reactor's part of all devices, and a queue belongs to one of them for life. A [`Disk`] is what a
//! device presents of a namespace.
//!
//! **Its contract.**
//! * The guest and its monitor are not trusted: what they send, and what lies in shared memory, is checked before use and read once. What breaks a
//!   queue's rules ends that queue, what breaks the protocol ends the connection; neither touches other devices.
//! * A queue is stopped, and memory is gone, only when no request can touch them any more: GET_VRING_BASE, SET_MEM_TABLE and REM_MEM_REG are answered
//!   then.
//! * What a guest was told is done. A process that is killed leaves a record, in memory that the monitor keeps, of what was in flight; the next one does
//!   that again, in the order in which it came. A connection that is lost is treated alike.
//! * Idle queues sleep.
//!
//! **Copies.** Reads and writes of a raw store that takes guest memory and lets go of it within two seconds go straight there; all others are copied
//! once, between the engine's buffers and guest memory.
//!
//! **What it does not do.** No live migration (dirty log, postcopy), no IOMMU, no in-band notifications, no legacy (pre-1.0) configuration layout, no
//! zoned devices, secure erase or lifetime reports: none of them is offered.

#![forbid(unsafe_code)]

mod config_space;
mod counters;
mod device;
mod disk;
mod error;
mod features;
mod guest;
mod inflight;
mod limits;
mod memory;
mod order;
mod queue;
mod request;
mod session;
mod share;

pub use counters::DeviceIo;
pub use device::{Device, DeviceReport};
pub use disk::Disk;
pub use error::DeviceError;
pub use features::feature_names;
pub use limits::{
    CLIENT_MAPPINGS_MAX, QUEUE_OPS_MAX, QUEUES_MAX, REQUEST_BYTES_MAX, SHARE_QUEUES_MAX,
};
pub use order::Door;
pub use share::Share;
