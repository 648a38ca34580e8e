//! A guest's memory, as its device reaches it: windows by guest address, mapped from descriptors that another process shares.
//!
//! **What it is.** [`Windows`] is an immutable table of [`Window`]s. Who changes it makes another one and hands it round; who uses one keeps what it maps alive,
//! and a window that was taken out is unmapped when the last of them has let go ([`Shared`]): whatever was dropped into it then
//! says so. A thread makes [`reactor::buf::IoBuf`]s over it with its own [`Leases`].
//!
//! **Its contract.** Nothing outside of a window is touched, nothing is read that may not be read, or written that may not be written: a [`Fault`] says so before
//! a byte is moved. The guest may change the bytes at any time: they are copied, once, in or out, with volatile accesses or through raw pointers, and no
//! slice lies over them.
//!
//! **What it does not do.** It does not move bytes of windows without a descriptor: [`Fault::NotShared`]. A file that its owner makes shorter than what is
//! mapped of it kills the process that touches the missing bytes (SIGBUS): a descriptor is sealed against that and checked when it is mapped; where it
//! takes no seals, whoever shares it is trusted not to do that afterwards, and [`Shared::keeps_length`] says so.

#![deny(unsafe_code)]

#[allow(
    unsafe_code,
    reason = "atomic loads and stores of mapped windows; each block says why"
)]
mod area;
#[allow(
    unsafe_code,
    reason = "copies between guest memory and buffers; each block says why"
)]
mod copy;
mod quota;
#[allow(unsafe_code, reason = "maps descriptors; each block says why")]
mod shared;
#[allow(
    unsafe_code,
    reason = "makes buffers over mapped windows; each block says why"
)]
mod view;
mod windows;

pub use area::Area;
pub use copy::{from_guest, to_guest};
pub use quota::{CLIENT_BYTES_MAX, Charge, Quota};
pub use shared::{MapError, Shared, mapped_bytes};
pub use view::Leases;
pub use windows::{Access, Fault, PAGE_BYTES, Refused, Run, Way, Window, Windows};
