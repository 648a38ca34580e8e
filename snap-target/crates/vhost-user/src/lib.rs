//! The vhost-user protocol (QEMU's docs/interop/vhost-user.rst), a back-end's side.
//!
//! **What it is.** [`Request`]s of a front-end (a virtual machine's monitor), decoded from bytes and file descriptors without I/O ([`Header`],
//! [`Request::decode`]); a [`Connection`] that receives them from a Unix socket and answers; and a [`BackendChannel`], over which a device tells of a
//! changed configuration.
//!
//! **Its contract.** What comes is not trusted: lengths, versions and the number of file descriptors are checked before a message exists, and a
//! message has exactly the descriptors that its kind has. Those of a message that is refused are closed.
//!
//! **Why it is here.** The `vhost` crate has these messages, too, behind a server that owns the socket, acts while it decodes, and answers a handler's
//! results by rules of its own. Here decoding is apart from I/O, so that any bytes with any number of descriptors can be tried on it, and the device says
//! when each message is answered: GET_VRING_BASE and REM_MEM_REG wait for requests in flight. The front-end of `vhost` is a foreign monitor in the tests of
//! `frontend-vhost-user-blk`.
//!
//! **What it does not do.** It keeps no state of a device and checks no order of messages: that is the device's. No postcopy, no dirty log, no IOTLB,
//! no in-band notifications: their messages are refused by name.

#![forbid(unsafe_code)]

mod connection;
mod error;
pub mod features;
mod message;
mod wire;

pub use connection::{BackendChannel, Connection};
pub use error::{ConnectionError, MessageError};
pub use message::{ConfigArea, Message, Reply, Request, VringFile};
pub use wire::{
    BODY_BYTES_MAX, CONFIG_BYTES_MAX, FILES_MAX, HEADER_BYTES, Header, Inflight, MemoryRegion,
    TABLE_REGIONS_MAX, VringAddress, VringState,
};
