//! The vfio-user protocol, the server's side, as a state machine without I/O: bytes and descriptors in, bytes and descriptors out.
//!
//! **What it is.** A client (QEMU's `vfio-user-pci`, SPDK, cloud-hypervisor) drives a PCI device in another process over a Unix socket. A [`Server`]
//! reads its messages, answers what a [`Device`]'s description answers, and hands the rest out as [`Event`]s, each with a [`Ticket`] to reply with.
//! It can ask the client to read and write memory that the client did not share ([`Server::dma_read`], [`Server::dma_write`]).
//!
//! **Its contract.** The driver receives [`Server::want`] bytes at a time with the descriptors that came along, takes events until there are none, and sends
//! what [`Server::outgoing`] says. Events come in the order of their messages; a reply may come later than those of younger messages. Whatever a client
//! sends, memory stays bounded by [`limits`], nothing panics, an error is answered with an errno that is never 0, descriptors that a message has no use for
//! are dropped, and after a fatal error no byte is interpreted. Descriptors have a type of the driver's choice.
//!
//! **What it does not do.** No sockets, no memory, no interrupts, no PCI. No migration, no dirty page tracking, no REGION_WRITE_MULTI, no twin socket, no
//! I/O descriptors (GET_REGION_IO_FDS): they are not offered, and are refused where they are asked for.
//!
//! Source: QEMU's docs/interop/vfio-user.rst, version 0.0 of the protocol; structures of linux/vfio.h. All numbers are little-endian, as on the machines
//! that this is built for.

#![forbid(unsafe_code)]

mod device;
mod errno;
mod event;
pub mod limits;
mod request;
mod server;
mod version;
pub mod wire;

pub use device::{Area, Device, Interrupt, Region, irq_flags};
pub use errno::Errno;
pub use event::{DmaId, Event, IrqAction, IrqData, SetIrqs, Ticket, Unmap, WriteData};
pub use server::{Outgoing, ProtocolError, Server};
pub use version::Capabilities;
