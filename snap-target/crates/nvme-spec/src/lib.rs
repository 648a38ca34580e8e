//! NVMe on the wire: the structures, codes and registers of the specifications, and nothing else.
//!
//! Sources, cited at each item by clause:
//! * NVM Express Base Specification 2.0 and 2.1 ("Base"; figure names, since figure numbers move between revisions),
//! * NVM Command Set Specification 1.0 and 1.1 ("NVM"),
//! * NVMe over TCP Transport Specification 1.0 and 1.1 ("TCP").
//!
//! Contract: every structure is byte-exact, little-endian on any machine, of alignment 1, and reads from and writes to bytes
//! without copying or `unsafe` (zerocopy). Its size is asserted below it. Codes are open enums: a value the
//! specification adds later is carried, printed as a number, and never undefined behaviour. Fields that hold "count minus
//! one" end in `_z`. Reserved ranges keep the specification's byte numbers in their names (`reserved_52`).
//!
//! What it does not do: it checks nothing but sizes, it knows no state, and it leaves out the structures that this product
//! neither sends nor reads (PCIe doorbells and PRP lists, zoned and key-value command sets, management interface).

#![no_std]
#![forbid(unsafe_code)]

mod open_enum;

pub mod command;
pub mod completion;
pub mod discovery;
pub mod fabrics;
pub mod feature;
pub mod identify;
pub mod log;
pub mod nvm;
pub mod rdma;
pub mod register;
pub mod reservation;
pub mod status;
pub mod tcp;

pub use command::{AdminOpcode, Direction, IoOpcode, SglDescriptor, Sqe};
pub use completion::Cqe;
pub use status::Status;
pub use zerocopy::little_endian::{U16, U32, U64, U128};

/// The namespace identifier (Base, "Namespace Identifier"): 1 is the first valid value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nsid(pub u32);

impl Nsid {
    /// No namespace: commands that address none carry it.
    pub const NONE: Nsid = Nsid(0);
    /// All namespaces of the controller.
    pub const BROADCAST: Nsid = Nsid(0xFFFF_FFFF);
}

impl core::fmt::Display for Nsid {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        if *self == Nsid::BROADCAST {
            f.write_str("all namespaces")
        } else {
            write!(f, "nsid {}", self.0)
        }
    }
}

/// The command identifier of a submission queue entry, chosen by the host, unique among the queue's outstanding commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cid(pub u16);

/// A logical block address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lba(pub u64);

/// The specification version that our structures follow, as the VS property and Identify's VER carry it: 2.0.0.
pub const VERSION_2_0: u32 = 0x0002_0000;

/// Bytes of every Identify data structure (Base, "Identify command").
pub const IDENTIFY_BYTES: usize = 4096;

/// Most namespace identifiers in one list (Base, "Active Namespace ID list").
pub const NSID_LIST_ENTRIES: usize = 1024;

/// NQN of the discovery service (Base, "NVMe Qualified Names").
pub const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";

/// Bytes of an NQN field, the terminating zero included (Base, "NVMe Qualified Names": at most 223 bytes of name).
pub const NQN_FIELD_BYTES: usize = 256;

/// Longest NQN.
pub const NQN_BYTES_MAX: usize = 223;
