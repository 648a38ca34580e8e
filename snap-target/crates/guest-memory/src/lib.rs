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
//! Memory that is not there when it is touched, since its file was made shorter or no page is left for it, is lost: the first mapping installs a handler of
//! SIGBUS for the process, by which the access goes on in memory of our own, and from then on nothing of that client's is touched ([`Fault::Lost`], [`Loss`]).
//!
//! **What it does not do.** It does not move bytes of windows without a descriptor: [`Fault::NotShared`]. It does not keep a file from being made shorter where
//! that takes no seals: [`Shared::keeps_length`].

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
#[allow(
    unsafe_code,
    reason = "handles SIGBUS, and maps memory in it; each block says why"
)]
mod loss;
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
pub use loss::{Loss, MAPPINGS_MAX};
pub use quota::{CLIENT_BYTES_MAX, Charge, Quota};
pub use shared::{MapError, Shared, mapped_bytes};
pub use view::Leases;
pub use windows::{Access, Fault, PAGE_BYTES, Refused, Run, Way, Window, Windows};
