//! What a client asks of the device.

use smallvec::SmallVec;

use crate::errno::Errno;
use crate::wire;

/// The data of a REGION_WRITE: a register's lie in the event itself.
pub type WriteData = SmallVec<[u8; 8]>;

/// A command that waits for its reply, which [`crate::Server::done`], [`crate::Server::read`] or [`crate::Server::refuse`] gives. A client that wanted none gets
/// none.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the client waits for a reply"]
pub struct Ticket {
    pub(crate) id: u16,
    pub(crate) command: u16,
    pub(crate) wants_reply: bool,
    /// What of the command the reply repeats.
    pub(crate) echo: Echo,
}

/// The fixed part of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Echo {
    None,
    Unmap(wire::DmaUnmap),
    Region(wire::RegionAccess),
}

/// A command for the device, or a reply to one of ours.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<F> {
    /// A window of the client's memory. Without a descriptor it is reached by [`crate::Server::dma_read`] and [`crate::Server::dma_write`]. To be refused with
    /// [`Errno::EEXIST`] where it overlaps another.
    DmaMap {
        /// To reply with.
        ticket: Ticket,
        /// Where in the client's address space.
        address: u64,
        /// Bytes; not 0, and the end does not wrap around.
        size: u64,
        /// Where in the descriptor's file.
        offset: u64,
        /// May be read, may be written.
        access: (bool, bool),
        /// The file.
        fd: Option<F>,
    },
    /// Windows go. Reply when nothing touches them any more.
    DmaUnmap {
        /// To reply with.
        ticket: Ticket,
        /// Which.
        unmap: Unmap,
    },
    /// Interrupts.
    SetIrqs {
        /// To reply with.
        ticket: Ticket,
        /// How.
        set: SetIrqs<F>,
    },
    /// A read inside of a readable region.
    RegionRead {
        /// To reply with: [`crate::Server::read`].
        ticket: Ticket,
        /// Which.
        region: u32,
        /// From its beginning.
        offset: u64,
        /// Bytes.
        count: u32,
    },
    /// A write inside of a writable region.
    RegionWrite {
        /// To reply with.
        ticket: Ticket,
        /// Which.
        region: u32,
        /// From its beginning.
        offset: u64,
        /// What.
        data: WriteData,
    },
    /// The device goes back to what it was at power-on. Reply when it has.
    Reset {
        /// To reply with.
        ticket: Ticket,
    },
    /// The client has answered a [`crate::Server::dma_read`].
    DmaRead {
        /// Which.
        id: DmaId,
        /// As many bytes as were asked for.
        result: Result<Vec<u8>, Errno>,
    },
    /// The client has answered a [`crate::Server::dma_write`].
    DmaWritten {
        /// Which.
        id: DmaId,
        /// Whether it did.
        result: Result<(), Errno>,
    },
}

/// Names a DMA_READ or DMA_WRITE until it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DmaId(pub u16);

/// Which windows go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmap {
    /// All.
    All,
    /// The one that was mapped exactly so.
    Window {
        /// Where.
        address: u64,
        /// Bytes.
        size: u64,
    },
}

/// DEVICE_SET_IRQS. The kind is there, and `[start, start + count)` lies in it.
#[derive(Debug, PartialEq, Eq)]
pub struct SetIrqs<F> {
    /// Which kind.
    pub index: u32,
    /// The first.
    pub start: u32,
    /// How many; 0 with [`IrqData::None`] and [`IrqAction::Trigger`]: the whole kind is turned off.
    pub count: u32,
    /// What.
    pub action: IrqAction,
    /// For which of them, or by what.
    pub data: IrqData<F>,
}

/// What becomes of interrupts, or what a descriptor is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IrqAction {
    /// They are masked; a descriptor that is told when they are.
    Mask,
    /// They are unmasked; a descriptor that unmasks them.
    Unmask,
    /// They are triggered; the descriptors that they are signalled by from now on.
    Trigger,
}

/// For which interrupts of a range.
#[derive(Debug, PartialEq, Eq)]
pub enum IrqData<F> {
    /// All.
    None,
    /// Those that are true; as many as the range has.
    Bool(Vec<bool>),
    /// By these descriptors: as many as the range has, or none, which takes away what is there.
    Eventfd(Vec<F>),
}
