//! NVMe controllers as PCIe functions: what a virtual machine's stock `nvme` driver sees, over vfio-user.
//!
//! **What it is.** [`bind`] makes a listening end at the path of a Unix socket; a client that connects there (QEMU's `vfio-user-pci`) gets the function: its
//! configuration space, BAR0 with registers and doorbells, MSI-X or INTx by descriptors, and queues in the guest's own memory. The admin queue's link is the
//! function ([`frontend_nvme::link::Function`]); each I/O submission queue that the guest creates becomes a link on its reactor. Controllers,
//! admin commands and I/O commands are those of every frontend.
//!
//! **Its contract** is [`frontend_nvme::link::Link`]'s and [`frontend_nvme::link::Function`]'s. Registers are answered at once, whatever a store does. Doorbells are
//! trapped, or are in the guest's memory, where a queue looks for a while after its last command: a function that nobody uses sleeps. Where that is asked for
//! ([`Doorbells::Polled`]) the client maps them, and they are looked at in every turn while the controller is enabled. A window that the client
//! takes away is let go of before the answer; entries and lists are copied out of guest memory once, before they are looked at.
//!
//! **What it does not do.** Data are copied between guest memory and the buffers of the request, but where a store reads and writes guest memory itself, at once. Memory that the client did not share by descriptor is
//! reached by messages, which costs allocations, and no queue may be there. No controller memory buffer, no MSI.

#![forbid(unsafe_code)]

mod aggregate;
mod apart;
mod bar;
mod bell;
mod common;
mod completion;
mod doorbells;
mod function;
mod interrupts;
mod io_link;
mod limits;
mod pci;
mod port;
mod queue;
mod seat;
mod socket;
mod walk;

pub use limits::CLIENT_MAPPINGS_MAX;
pub use port::{Doorbells, Names, VfioUserPort, bind};
