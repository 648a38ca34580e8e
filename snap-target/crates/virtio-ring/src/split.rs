//! The split ring (virtio 1.3, 2.7).

use std::collections::VecDeque;
use std::sync::atomic::{Ordering, fence};

use crate::chain::{Builder, ChainError, Descriptor, F_INDIRECT, F_NEXT, Split};
use crate::error::RingError;
use crate::inflight::SplitRecord;
use crate::layout::Areas;
use crate::memory::{Area, Memory};
use crate::ring::{Head, Options, Position, Taken, passed};

/// Of the available ring, and of the used ring.
const AT_FLAGS: usize = 0;
const AT_IDX: usize = 2;
const AT_RING: usize = 4;
const USED_ENTRY_BYTES: usize = 8;

/// VIRTQ_AVAIL_F_NO_INTERRUPT, VIRTQ_USED_F_NO_NOTIFY.
const F_NO_EVENTS: u16 = 1;

/// Whose a chain is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chain {
    /// The driver's, who may make it available.
    Drivers,
    /// Taken, and not given back.
    InFlight,
    /// Given back, and not published: were it taken again now, the record would lose it.
    Held,
}

#[derive(Debug)]
pub(crate) struct SplitRing<A> {
    pub(crate) areas: Areas<A>,
    size: u16,
    options: Options,
    next_available: u16,
    /// The driver's index as it was last read: entries up to there are available. Its line goes from processor to processor, so it is asked for again when these are
    /// taken.
    seen: u16,
    /// The entry that comes next, where it was read already.
    foreseen: Option<u16>,
    next_used: u16,
    /// Chains whose entries stand behind the used index.
    held: Vec<u16>,
    /// The used index of which the driver was last told; none: it was never told.
    told: Option<u16>,
    record: Option<SplitRecord<A>>,
    /// Chains that were in flight when the ring was left, the longest first.
    left: VecDeque<u16>,
    /// By head: whose it is.
    chains: Vec<Chain>,
    in_flight: u16,
}

impl<A: Area> SplitRing<A> {
    pub(crate) fn new(
        areas: Areas<A>,
        size: u16,
        options: Options,
        position: Position,
        record: Option<A>,
    ) -> Result<Self, RingError> {
        let next_used = areas.device.load16(AT_IDX);
        let index = position.0;
        let mut next_available =
            u16::try_from(index).map_err(|_| RingError::Position { index, size })?;
        let mut left = VecDeque::new();
        let mut kept = None;
        if let Some(area) = record {
            let (record, in_flight) = SplitRecord::take_up(area, size, next_used)?;
            // Where the ring was left is not known to a driver's monitor whose device was killed; the used index and the record say it.
            let count = u16::try_from(in_flight.len()).unwrap_or(u16::MAX);
            next_available = next_used.wrapping_add(count);
            left = in_flight.into();
            kept = Some(record);
        }
        Ok(Self {
            areas,
            size,
            options,
            next_available,
            seen: next_available,
            foreseen: None,
            next_used,
            held: Vec::new(),
            told: None,
            record: kept,
            left,
            chains: vec![Chain::Drivers; usize::from(size)],
            in_flight: 0,
        })
    }

    pub(crate) fn take<M: Memory<Area = A>>(
        &mut self,
        memory: &M,
        chain: &mut Vec<Descriptor>,
    ) -> Result<Option<Taken>, RingError> {
        if let Some(head) = self.left.pop_front() {
            return self.begin(head, memory, chain).map(Some);
        }
        let size = self.size;
        if self.seen == self.next_available {
            self.look()?;
        }
        let Some(head) = self.next_head() else {
            return Ok(None);
        };
        if head >= size {
            return Err(RingError::Head { head, size });
        }
        if self.chains.get(usize::from(head)) != Some(&Chain::Drivers) {
            return Err(RingError::Twice { id: head });
        }
        self.next_available = self.next_available.wrapping_add(1);
        if let Some(record) = &mut self.record {
            record.take(head);
        }
        let taken = self.begin(head, memory, chain);
        self.foresee();
        taken.map(Some)
    }

    /// Reads the driver's index.
    fn look(&mut self) -> Result<(), RingError> {
        let (available, size) = (self.available(), self.size);
        if available > size {
            return Err(RingError::Available { available, size });
        }
        self.seen = self.next_available.wrapping_add(available);
        // What the driver wrote before it raised the index is there.
        fence(Ordering::Acquire);
        Ok(())
    }

    /// The head of the next chain that was seen; each entry is read once.
    fn next_head(&mut self) -> Option<u16> {
        if self.seen == self.next_available {
            return None;
        }
        let at = AT_RING + 2 * self.place(self.next_available);
        Some(
            self.foreseen
                .take()
                .unwrap_or_else(|| self.areas.driver.load16(at)),
        )
    }

    /// The first descriptor of the chain behind is on its way while this one is looked at.
    fn foresee(&mut self) {
        self.foreseen = self.next_head();
        if let Some(head) = self.foreseen.filter(|head| *head < self.size) {
            Split::expect(&self.areas.descriptors, head);
        }
    }

    fn begin<M: Memory<Area = A>>(
        &mut self,
        head: u16,
        memory: &M,
        chain: &mut Vec<Descriptor>,
    ) -> Result<Taken, RingError> {
        match self.chains.get_mut(usize::from(head)) {
            Some(chain) if *chain == Chain::Drivers => *chain = Chain::InFlight,
            _ => return Err(RingError::Twice { id: head }),
        }
        self.in_flight += 1;
        Ok(Taken {
            head: Head {
                id: head,
                slots: 1,
                entry: head,
            },
            chain: self.walk(head, memory, chain),
        })
    }

    fn walk<M: Memory<Area = A>>(
        &self,
        head: u16,
        memory: &M,
        chain: &mut Vec<Descriptor>,
    ) -> Result<(), ChainError> {
        let mut builder = Builder::new(chain);
        let mut index = head;
        for _ in 0..self.size {
            let descriptor = Split::load(&self.areas.descriptors, index);
            let flags = descriptor.flags;
            if flags & F_INDIRECT != 0 {
                if !self.options.indirect {
                    return Err(ChainError::NotNegotiated);
                }
                let len = Builder::indirect_len(flags, descriptor.bytes)?;
                return builder.split_table(memory, descriptor.address, len);
            }
            builder.push(descriptor.address, descriptor.bytes, flags)?;
            if flags & F_NEXT == 0 {
                return Ok(());
            }
            index = descriptor.next;
            if index >= self.size {
                let (next, size) = (index, self.size);
                return Err(ChainError::Next { next, size });
            }
        }
        Err(ChainError::TooLong)
    }

    pub(crate) fn give_back(&mut self, head: Head, written: Option<u32>) -> Result<(), RingError> {
        let id = head.id;
        match self.chains.get_mut(usize::from(id)) {
            Some(chain) if *chain == Chain::InFlight => *chain = Chain::Held,
            _ => return Err(RingError::NotTaken { id }),
        }
        self.in_flight -= 1;
        if let Some(record) = &self.record {
            record.give_back(id);
        }
        let at = AT_RING + USED_ENTRY_BYTES * self.place(self.next_used);
        self.areas.device.store32(at, id.into());
        self.areas.device.store32(at + 4, written.unwrap_or(0));
        self.next_used = self.next_used.wrapping_add(1);
        self.held.push(id);
        Ok(())
    }

    pub(crate) fn held(&self) -> usize {
        self.held.len()
    }

    pub(crate) fn publish(&mut self) {
        if self.held.is_empty() {
            return;
        }
        // What the device wrote is there before the driver sees the index.
        fence(Ordering::Release);
        self.areas.device.store16(AT_IDX, self.next_used);
        if let Some(record) = &self.record {
            record.given_back(&self.held, self.next_used);
        }
        for head in self.held.drain(..) {
            if let Some(chain) = self.chains.get_mut(usize::from(head)) {
                *chain = Chain::Drivers;
            }
        }
    }

    pub(crate) fn wants_call(&mut self) -> bool {
        self.publish();
        // The index is there before it is looked whether the driver wants to know.
        fence(Ordering::SeqCst);
        let new = self.next_used;
        let old = self.told.replace(new);
        if old == Some(new) {
            return false;
        }
        if !self.options.event_index {
            return self.areas.driver.load16(AT_FLAGS) & F_NO_EVENTS == 0;
        }
        let used_event = self
            .areas
            .driver
            .load16(AT_RING + 2 * usize::from(self.size));
        old.is_none_or(|old| passed(used_event, new, old))
    }

    pub(crate) fn without_kicks(&self) {
        // With event indexes the driver is silent until the index passes the one that was named last.
        if !self.options.event_index {
            self.areas.device.store16(AT_FLAGS, F_NO_EVENTS);
        }
    }

    pub(crate) fn with_kicks(&self) -> bool {
        if self.options.event_index {
            let at = AT_RING + USED_ENTRY_BYTES * usize::from(self.size);
            self.areas.device.store16(at, self.next_available);
        } else {
            self.areas.device.store16(AT_FLAGS, 0);
        }
        // The driver sees that before it is looked whether it has raised its index meanwhile.
        fence(Ordering::SeqCst);
        self.available() != 0
    }

    pub(crate) fn position(&self) -> Position {
        Position(self.next_available.into())
    }

    pub(crate) fn has_left(&self) -> bool {
        !self.left.is_empty()
    }

    pub(crate) fn in_flight(&self) -> u16 {
        self.in_flight
    }

    fn available(&self) -> u16 {
        self.areas
            .driver
            .load16(AT_IDX)
            .wrapping_sub(self.next_available)
    }

    fn place(&self, index: u16) -> usize {
        usize::from(index & (self.size - 1))
    }
}
