//! Linux's ublk: block devices that a process serves (linux/ublk_cmd.h; Documentation/block/ublk.rst).
//!
//! **What it is.** [`Control`] gives the driver's commands about devices, each waited for with patience. [`open_queues`] opens the device that a server talks
//! to; [`Descriptors`] are a queue's requests, which the driver shares; [`IoCommand`] and [`copy_offset`] are what a server tells it in commands, reads and
//! writes on a ring of its own.
//!
//! **Its contract.** No call waits longer than it is told. What a command that is given up may still write stays allocated. A request's descriptor is read
//! once, when its turn has come.
//!
//! **What it does not do.** It serves nothing: the ring of a queue is whoever's that serves it. No unprivileged devices, zones, zero copy, batches.

#![deny(unsafe_code)]

#[allow(
    unsafe_code,
    reason = "a ring whose entries point at a command's payload; each block says why"
)]
mod control;
#[allow(
    unsafe_code,
    reason = "maps what the driver shares; each block says why"
)]
mod descriptors;
mod device;
mod error;
mod wire;

pub use control::{Control, PATIENCE};
pub use descriptors::Descriptors;
pub use device::open_queues;
pub use error::UblkError;
pub use wire::{
    ABORTED, Attributes, Basic, DEPTH_MAX, Descriptor, DeviceInfo, DeviceState, Discard, Features,
    IoCommand, Operation, Params, QUEUES_MAX, SECTOR_BYTES, copy_offset,
};
