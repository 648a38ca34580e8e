//! The ublk frontend: the machine that runs the daemon sees a namespace as a block device, /dev/ublkbN (Linux's ublk_drv).
//!
//! **What it is.** A [`Device`] has a number; a thread of its own speaks with the driver about it. Its queues are served by reactors: a [`Share`] is one
//! reactor's part of all devices, and a queue belongs to one of them for life. A [`Disk`] is what a device presents of a namespace.
//!
//! **Its contract.**
//! * A device outlives the process that serves it: the kernel holds its requests, and issues those that were under way again to the next process that
//!   makes a device of this number for the same disk. It keeps a stamp of the disk with the device, so that nothing else is put under who uses it.
//! * A device whose content ends with the process is deleted when the process is told to end.
//! * No end waits for whoever has the device open, and none for a store longer than a request may take.
//! * Idle queues sleep.
//!
//! **Copies.** Data are copied once, by the kernel, between the engine's buffers and the request's pages (UBLK_F_USER_COPY).
//!
//! **What it does not do.** No unprivileged devices, no zones, no zero copy.

#![forbid(unsafe_code)]

mod device;
mod disk;
mod driver;
mod error;
mod found;
mod life;
mod limits;
mod order;
mod queue;
mod request;
mod share;

pub use device::{Device, delete};
pub use disk::Disk;
pub use error::DeviceError;
pub use limits::{APPEAR_TIME_MAX, DEVICES_MAX, QUEUES_MAX, ring_operations};
pub use order::Door;
pub use share::Share;
