//! The packed ring (virtio 1.3, 2.8).

use std::collections::VecDeque;
use std::sync::atomic::{Ordering, fence};

use crate::chain::{
    Builder, ChainError, DESCRIPTOR_BYTES, Descriptor, F_INDIRECT, F_NEXT, F_WRITE, Packed,
};
use crate::error::RingError;
use crate::inflight::{Left, PackedRecord};
use crate::layout::Areas;
use crate::memory::{Area, Memory};
use crate::ring::{Head, Options, Position, Taken, passed};

const F_AVAIL: u16 = 1 << 7;
const F_USED: u16 = 1 << 15;
/// Where the flags of a descriptor are.
const AT_FLAGS: usize = 14;

/// Event suppression: `desc` and `flags`.
const AT_EVENT: usize = 0;
const AT_EVENT_FLAGS: usize = 2;
const EVENTS_ENABLED: u16 = 0;
const EVENTS_DISABLED: u16 = 1;
const EVENTS_AT_DESCRIPTOR: u16 = 2;
const WRAP: u16 = 1 << 15;

/// A place in the ring, and how often it was gone round, as one bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cursor {
    pub(crate) index: u16,
    pub(crate) wrap: bool,
}

impl Cursor {
    pub(crate) fn advanced(self, slots: u16, size: u16) -> Self {
        let index = self.index + slots;
        match index < size {
            true => Self { index, ..self },
            false => Self {
                index: index - size,
                wrap: !self.wrap,
            },
        }
    }

    /// As in the event suppression structure, and in the vring's base.
    fn to_bits(self) -> u16 {
        self.index | if self.wrap { WRAP } else { 0 }
    }

    fn of_bits(bits: u16) -> Self {
        Self {
            index: bits & !WRAP,
            wrap: bits & WRAP != 0,
        }
    }

    /// AVAIL and USED of a descriptor that the driver has made available here.
    fn available_flags(self) -> u16 {
        if self.wrap { F_AVAIL } else { F_USED }
    }

    /// The same of one that the device has given back here.
    pub(crate) fn used_flags(self) -> u16 {
        if self.wrap { F_AVAIL | F_USED } else { 0 }
    }
}

#[derive(Debug)]
pub(crate) struct PackedRing<A> {
    pub(crate) areas: Areas<A>,
    size: u16,
    options: Options,
    next_available: Cursor,
    next_used: Cursor,
    /// Where the driver was last told; none: it was never told.
    told: Option<Cursor>,
    /// Descriptors given back since.
    untold: u32,
    record: Option<PackedRecord<A>>,
    /// Chains that were in flight when the ring was left, the longest first.
    left: VecDeque<Left>,
    /// A bit for each buffer id that is in flight.
    taken: Vec<u64>,
    /// Descriptors of the ring that chains in flight have.
    slots: u16,
    in_flight: u16,
    /// The descriptors of the chain that is being taken.
    raw: Vec<Packed>,
}

impl<A: Area> PackedRing<A> {
    pub(crate) fn new(
        areas: Areas<A>,
        size: u16,
        options: Options,
        position: Position,
        record: Option<A>,
    ) -> Result<Self, RingError> {
        let (mut next_available, mut next_used) = cursors(position, size)?;
        let mut left = VecDeque::new();
        let mut kept = None;
        if let Some(area) = record {
            let (record, used, in_flight) =
                PackedRecord::take_up(area, size, next_used, &areas.descriptors)?;
            // Chains in flight are all that lies between the two places.
            let slots: u32 = in_flight.iter().map(|left| u32::from(left.slots)).sum();
            let slots = u16::try_from(slots).ok().filter(|slots| *slots <= size);
            let slots = slots.ok_or(RingError::Inflight {
                why: "it has more descriptors in flight than the ring",
            })?;
            next_used = used;
            next_available = used.advanced(slots, size);
            left = in_flight.into();
            kept = Some(record);
        }
        Ok(Self {
            areas,
            size,
            options,
            next_available,
            next_used,
            told: None,
            untold: 0,
            record: kept,
            left,
            taken: vec![0; 1 << 10],
            slots: 0,
            in_flight: 0,
            raw: Vec::with_capacity(usize::from(size)),
        })
    }

    pub(crate) fn take<M: Memory<Area = A>>(
        &mut self,
        memory: &M,
        chain: &mut Vec<Descriptor>,
    ) -> Result<Option<Taken>, RingError> {
        if let Some(left) = self.left.pop_front() {
            self.raw.clear();
            if let Some(record) = &self.record {
                record.descriptors(&left, &mut self.raw);
            }
            let head = Head {
                id: left.id,
                slots: left.slots,
                entry: left.entry,
            };
            return self.begin(head, memory, chain).map(Some);
        }
        if !self.is_available(self.next_available) {
            return Ok(None);
        }
        // What the driver wrote before it set the flags is there.
        fence(Ordering::Acquire);
        self.read_chain()?;
        // At most `size`.
        let slots = u16::try_from(self.raw.len()).unwrap_or(u16::MAX);
        let id = self.raw.last().map_or(0, |last| last.id);
        if slots > self.size - self.slots {
            return Err(RingError::Available {
                available: slots,
                size: self.size,
            });
        }
        if self.is_taken(id) {
            return Err(RingError::Twice { id });
        }
        self.next_available = self.next_available.advanced(slots, self.size);
        let entry = match &mut self.record {
            Some(record) => record.take(&self.raw, id)?,
            None => 0,
        };
        let head = Head { id, slots, entry };
        self.begin(head, memory, chain).map(Some)
    }

    /// Reads the descriptors of the next chain, each once.
    fn read_chain(&mut self) -> Result<(), RingError> {
        self.raw.clear();
        let mut at = self.next_available;
        loop {
            let place = usize::from(at.index) * DESCRIPTOR_BYTES;
            let descriptor = Packed::of_words(
                self.areas.descriptors.load64(place),
                self.areas.descriptors.load64(place + 8),
            );
            self.raw.push(descriptor);
            if descriptor.flags & F_NEXT == 0 {
                return Ok(());
            }
            if self.raw.len() >= usize::from(self.size) {
                return Err(RingError::Endless);
            }
            at = at.advanced(1, self.size);
        }
    }

    fn begin<M: Memory<Area = A>>(
        &mut self,
        head: Head,
        memory: &M,
        chain: &mut Vec<Descriptor>,
    ) -> Result<Taken, RingError> {
        if self.is_taken(head.id) {
            return Err(RingError::Twice { id: head.id });
        }
        self.set_taken(head.id, true);
        self.slots += head.slots;
        self.in_flight += 1;
        Ok(Taken {
            head,
            chain: self.walk(memory, chain),
        })
    }

    fn walk<M: Memory<Area = A>>(
        &self,
        memory: &M,
        chain: &mut Vec<Descriptor>,
    ) -> Result<(), ChainError> {
        let mut builder = Builder::new(chain);
        for descriptor in &self.raw {
            let Packed {
                address,
                bytes,
                flags,
                ..
            } = *descriptor;
            if flags & F_INDIRECT == 0 {
                builder.push(address, bytes, flags)?;
                continue;
            }
            if !self.options.indirect {
                return Err(ChainError::NotNegotiated);
            }
            let len = Builder::indirect_len(flags, bytes)?;
            builder.packed_table(memory, address, len)?;
        }
        Ok(())
    }

    pub(crate) fn give_back(&mut self, head: Head, written: Option<u32>) -> Result<(), RingError> {
        let id = head.id;
        if !self.is_taken(id) {
            return Err(RingError::NotTaken { id });
        }
        self.set_taken(id, false);
        self.slots -= head.slots;
        self.in_flight -= 1;
        let at = self.next_used;
        self.next_used = at.advanced(head.slots, self.size);
        self.untold = self.untold.saturating_add(head.slots.into());
        if let Some(record) = &self.record {
            record.give_back(head.entry, self.next_used);
        }
        let place = usize::from(at.index) * DESCRIPTOR_BYTES;
        let write = if written.is_some() { F_WRITE } else { 0 };
        self.areas
            .descriptors
            .store32(place + 8, written.unwrap_or(0));
        self.areas.descriptors.store16(place + 12, id);
        // What the device wrote is there before the driver sees the flags.
        fence(Ordering::Release);
        self.areas
            .descriptors
            .store16(place + AT_FLAGS, at.used_flags() | write);
        if let Some(record) = &self.record {
            record.given_back(head.entry);
        }
        Ok(())
    }

    pub(crate) fn wants_call(&mut self) -> bool {
        // The flags are there before it is looked whether the driver wants to know.
        fence(Ordering::SeqCst);
        let new = self.next_used;
        let old = self.told.replace(new);
        let untold = std::mem::take(&mut self.untold);
        if untold == 0 {
            return false;
        }
        match self.areas.driver.load16(AT_EVENT_FLAGS) {
            EVENTS_ENABLED => return true,
            EVENTS_AT_DESCRIPTOR if self.options.event_index => {}
            EVENTS_DISABLED => return false,
            // Nothing that the driver may say: to tell it costs little.
            _ => return true,
        }
        // A whole round passes every place.
        let Some(old) = old.filter(|_| untold < self.size.into()) else {
            return true;
        };
        // All three on one line, on which this round begins at `size`.
        let event = Cursor::of_bits(self.areas.driver.load16(AT_EVENT));
        let on_line = |at: Cursor| match at.wrap == new.wrap {
            true => at.index.wrapping_add(self.size),
            false => at.index,
        };
        passed(on_line(event), on_line(new), on_line(old))
    }

    pub(crate) fn without_kicks(&self) {
        self.areas.device.store16(AT_EVENT_FLAGS, EVENTS_DISABLED);
    }

    pub(crate) fn with_kicks(&self) -> bool {
        if self.options.event_index {
            self.areas
                .device
                .store16(AT_EVENT, self.next_available.to_bits());
            fence(Ordering::Release);
            self.areas
                .device
                .store16(AT_EVENT_FLAGS, EVENTS_AT_DESCRIPTOR);
        } else {
            self.areas.device.store16(AT_EVENT_FLAGS, EVENTS_ENABLED);
        }
        // The driver sees that before it is looked whether it has made more available meanwhile.
        fence(Ordering::SeqCst);
        self.is_available(self.next_available)
    }

    pub(crate) fn position(&self) -> Position {
        let used = u32::from(self.next_used.to_bits());
        Position(used << 16 | u32::from(self.next_available.to_bits()))
    }

    pub(crate) fn has_left(&self) -> bool {
        !self.left.is_empty()
    }

    pub(crate) fn in_flight(&self) -> u16 {
        self.in_flight
    }

    /// Of the flags only what says so counts here; the rest of them is read again, with the descriptor, and counts there.
    fn is_available(&self, at: Cursor) -> bool {
        let place = usize::from(at.index) * DESCRIPTOR_BYTES + AT_FLAGS;
        self.areas.descriptors.load16(place) & (F_AVAIL | F_USED) == at.available_flags()
    }

    fn is_taken(&self, id: u16) -> bool {
        let word = self.taken.get(usize::from(id / 64));
        word.is_some_and(|word| word >> (id % 64) & 1 != 0)
    }

    fn set_taken(&mut self, id: u16, taken: bool) {
        if let Some(word) = self.taken.get_mut(usize::from(id / 64)) {
            *word = *word & !(1 << (id % 64)) | u64::from(taken) << (id % 64);
        }
    }
}

/// Where the ring goes on. The base says the wrap counters, also of a ring that nobody has used: they begin with 1 (2.8.1).
fn cursors(position: Position, size: u16) -> Result<(Cursor, Cursor), RingError> {
    #[expect(clippy::cast_possible_truncation, reason = "takes the halves apart")]
    let (available, used) = (position.0 as u16, (position.0 >> 16) as u16);
    let (available, used) = (Cursor::of_bits(available), Cursor::of_bits(used));
    for at in [available, used] {
        if at.index >= size {
            let index = at.index.into();
            return Err(RingError::Position { index, size });
        }
    }
    Ok((available, used))
}
