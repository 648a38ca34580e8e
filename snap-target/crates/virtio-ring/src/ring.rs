//! A ring of either format.

use crate::chain::{ChainError, Descriptor};
use crate::error::RingError;
use crate::layout::{Format, Layout};
use crate::memory::{Area, Memory};
use crate::packed::PackedRing;
use crate::split::SplitRing;

/// Names a chain that was taken, until it is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The driver's name for it: the first descriptor, or the buffer id.
    pub(crate) id: u16,
    /// Descriptors of the ring that it has; of a packed one.
    pub(crate) slots: u16,
    /// Its entry in the record; of a packed ring.
    pub(crate) entry: u16,
}

impl Head {
    /// The driver's name for it.
    #[must_use]
    pub fn id(self) -> u16 {
        self.id
    }
}

/// A chain that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Its name.
    pub head: Head,
    /// Whether it keeps the rules; where not, it can only be given back, and what could be read of it is no more than a hint at where it says how it ended.
    pub chain: Result<(), ChainError>,
}

/// What was negotiated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// VIRTIO_F_INDIRECT_DESC.
    pub indirect: bool,
    /// VIRTIO_F_EVENT_IDX.
    pub event_index: bool,
}

/// Where a ring goes on: the state that vhost-user calls the vring's base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position(
    /// As in VHOST_USER_SET_VRING_BASE: of a split ring the next available index; of a packed one the next available and the next used descriptor, each
    /// with its wrap counter above 15 bits.
    pub u32,
);

/// See the crate.
#[derive(Debug)]
pub struct Ring<A> {
    kind: Kind<A>,
}

#[derive(Debug)]
enum Kind<A> {
    Split(SplitRing<A>),
    Packed(PackedRing<A>),
}

impl<A: Area> Ring<A> {
    /// A ring that goes on at a position; with a record of what is in flight, where that says, and with the chains it names.
    ///
    /// # Errors
    /// The layout, the position or the record.
    pub fn new<M: Memory<Area = A>>(
        memory: &M,
        layout: &Layout,
        options: Options,
        position: Position,
        record: Option<A>,
    ) -> Result<Self, RingError> {
        let areas = layout.areas(memory)?;
        let kind = match layout.format {
            Format::Split => Kind::Split(SplitRing::new(
                areas,
                layout.size,
                options,
                position,
                record,
            )?),
            Format::Packed => Kind::Packed(PackedRing::new(
                areas,
                layout.size,
                options,
                position,
                record,
            )?),
        };
        Ok(Self { kind })
    }

    /// The same ring in another map of the same memory.
    ///
    /// # Errors
    /// It is not there; the ring is as it was.
    pub fn move_to<M: Memory<Area = A>>(
        &mut self,
        memory: &M,
        layout: &Layout,
    ) -> Result<(), RingError> {
        let areas = layout.areas(memory)?;
        // What was given back has its entry where the ring was.
        self.publish();
        match &mut self.kind {
            Kind::Split(ring) => ring.areas = areas,
            Kind::Packed(ring) => ring.areas = areas,
        }
        Ok(())
    }

    /// Takes the next chain into `chain`: one that was in flight when the ring was left, the longest first, else the next that is available.
    ///
    /// # Errors
    /// What ends the use of the ring.
    pub fn take<M: Memory<Area = A>>(
        &mut self,
        memory: &M,
        chain: &mut Vec<Descriptor>,
    ) -> Result<Option<Taken>, RingError> {
        match &mut self.kind {
            Kind::Split(ring) => ring.take(memory, chain),
            Kind::Packed(ring) => ring.take(memory, chain),
        }
    }

    /// Gives a chain back: the driver finds it once it is [published](Ring::publish). `written` bytes from the start of its writable memory, at least, were written by the device (2.7.8.2), which may have written
    /// elsewhere, too; none: it wrote nothing.
    ///
    /// # Errors
    /// It was not taken.
    pub fn give_back(&mut self, head: Head, written: Option<u32>) -> Result<(), RingError> {
        match &mut self.kind {
            Kind::Split(ring) => ring.give_back(head, written),
            Kind::Packed(ring) => ring.give_back(head, written),
        }
    }

    /// Chains that were given back and are not published: of a packed ring none, since each is as soon as it is given back.
    #[must_use]
    pub fn held(&self) -> usize {
        match &self.kind {
            Kind::Split(ring) => ring.held(),
            Kind::Packed(_) => 0,
        }
    }

    /// What was given back is the driver's.
    pub fn publish(&mut self) {
        match &mut self.kind {
            Kind::Split(ring) => ring.publish(),
            Kind::Packed(_) => {}
        }
    }

    /// Publishes; and whether the driver is to be told of what was given back since this was last asked.
    pub fn wants_call(&mut self) -> bool {
        match &mut self.kind {
            Kind::Split(ring) => ring.wants_call(),
            Kind::Packed(ring) => ring.wants_call(),
        }
    }

    /// The driver need not tell of what it makes available.
    pub fn without_kicks(&mut self) {
        match &mut self.kind {
            Kind::Split(ring) => ring.without_kicks(),
            Kind::Packed(ring) => ring.without_kicks(),
        }
    }

    /// The driver tells of what it makes available from now on; true where something is available already.
    pub fn with_kicks(&mut self) -> bool {
        match &mut self.kind {
            Kind::Split(ring) => ring.with_kicks(),
            Kind::Packed(ring) => ring.with_kicks(),
        }
    }

    /// Where the ring would go on.
    #[must_use]
    pub fn position(&self) -> Position {
        match &self.kind {
            Kind::Split(ring) => ring.position(),
            Kind::Packed(ring) => ring.position(),
        }
    }

    /// Whether chains that were in flight when the ring was left have not been taken again: its position counts them as taken.
    #[must_use]
    pub fn has_left(&self) -> bool {
        match &self.kind {
            Kind::Split(ring) => ring.has_left(),
            Kind::Packed(ring) => ring.has_left(),
        }
    }

    /// Chains that were taken and not given back.
    #[must_use]
    pub fn in_flight(&self) -> u16 {
        match &self.kind {
            Kind::Split(ring) => ring.in_flight(),
            Kind::Packed(ring) => ring.in_flight(),
        }
    }
}

/// Whether the index at which the other side wants to be told lies among those passed since it was last told (virtio 1.3, 2.7.10).
pub(crate) fn passed(event: u16, new: u16, old: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}
