//! What TCP knows of the commands outstanding on a connection.

use nvme_spec::{Cqe, Status, U16};

use super::{Occupied, Slot, Transfer};
use crate::outstanding;

/// One command.
pub(super) type Entry = outstanding::Entry<Way>;
pub(super) type Slots = outstanding::Table<Way>;

/// How its data travel, and how far they are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    /// The data travel in the capsule.
    pub in_capsule: bool,
    /// A C2HData with LAST_PDU came.
    pub last_data: bool,
    /// A data digest did not match.
    pub corrupt: bool,
    /// Items of a batch that still read the buffer.
    pub lent_items: u32,
    /// In: bytes that arrived. Out: bytes that the controller asked for, or that the capsule carries.
    pub moved: u32,
    pub grant: Grant,
}

/// What the last R2T asked for: `next..end` is still to be handed out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grant {
    pub ttag: U16,
    pub next: u32,
    pub end: u32,
}

const NO_GRANT: Grant = Grant {
    ttag: U16::ZERO,
    next: 0,
    end: 0,
};

impl Way {
    /// Of a slot without a command.
    pub const NONE: Way = Way {
        in_capsule: false,
        last_data: false,
        corrupt: false,
        lent_items: 0,
        moved: 0,
        grant: NO_GRANT,
    };

    pub fn of(transfer: Transfer, in_capsule: bool) -> Way {
        Way {
            in_capsule,
            moved: if in_capsule { transfer.bytes() } else { 0 },
            ..Way::NONE
        }
    }

    /// Nothing reads the buffer, or will.
    fn is_through(&self) -> bool {
        self.lent_items == 0 && self.grant.next == self.grant.end
    }
}

impl Entry {
    pub fn moved_all(&self) -> bool {
        self.way.moved == self.transfer.bytes()
    }
}

/// The slots whose buffer is not the driver's.
pub(super) fn occupied(slots: &Slots) -> impl Iterator<Item = Occupied> + '_ {
    slots.occupied().map(|(slot, entry)| Occupied {
        slot,
        is_lent: entry.way.lent_items > 0,
    })
}

/// The completion, once, as soon as the response is there and the buffer is not read any more; and how many bytes arrived.
pub(super) fn take_completion(slots: &mut Slots, slot: Slot) -> Option<(Cqe, u32)> {
    let (entry, mut cqe) = slots.complete(slot, Way::is_through)?;
    let way = &entry.way;
    if way.corrupt && cqe.status().is_success() {
        cqe.status_and_phase = U16::new(Status::TRANSIENT_TRANSPORT_ERROR.to_wire());
    }
    let received = match entry.transfer {
        Transfer::In(_) if !entry.abandoned && !way.corrupt => way.moved,
        _ => 0,
    };
    Some((cqe, received))
}
