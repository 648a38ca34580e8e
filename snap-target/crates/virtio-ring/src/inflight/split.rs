//! QueueRegionSplit and DescStateSplit.

use super::{VERSION, then};
use crate::error::RingError;
use crate::memory::Area;

/// QueueRegionSplit without its entries.
pub(super) const HEADER_BYTES: usize = 16;
const AT_VERSION: usize = 8;
const AT_DESC_NUM: usize = 10;
const AT_LAST_BATCH_HEAD: usize = 12;
const AT_USED_IDX: usize = 14;

/// DescStateSplit.
pub(super) const ENTRY_BYTES: usize = 16;
const AT_INFLIGHT: usize = 0;
const AT_NEXT: usize = 6;
const AT_COUNTER: usize = 8;

/// The record of one split queue.
#[derive(Debug)]
pub(crate) struct SplitRecord<A> {
    area: A,
    counter: u64,
}

impl<A: Area> SplitRecord<A> {
    /// Takes a record up: what was in flight, the longest first. `used_idx` is what the used ring says.
    pub(crate) fn take_up(
        area: A,
        size: u16,
        used_idx: u16,
    ) -> Result<(Self, Vec<u16>), RingError> {
        let wrong = |why| RingError::Inflight { why };
        if area.bytes() < HEADER_BYTES + usize::from(size) * ENTRY_BYTES {
            return Err(wrong("it is shorter than the ring needs"));
        }
        let mut record = Self { area, counter: 0 };
        match record.area.load16(AT_VERSION) {
            0 => record.begin(size, used_idx),
            VERSION if record.area.load16(AT_DESC_NUM) == size => record.settle(size, used_idx)?,
            VERSION => return Err(wrong("it is of a ring of another size")),
            _ => return Err(wrong("its version is not known")),
        }
        let mut taken: Vec<(u64, u16)> = (0..size)
            .filter(|head| record.area.load8(entry(*head) + AT_INFLIGHT) != 0)
            .map(|head| (record.area.load64(entry(head) + AT_COUNTER), head))
            .collect();
        taken.sort_unstable();
        record.counter = taken
            .last()
            .map_or(0, |(counter, _)| counter.wrapping_add(1));
        Ok((record, taken.into_iter().map(|(_, head)| head).collect()))
    }

    /// A record that nobody has used.
    fn begin(&self, size: u16, used_idx: u16) {
        for head in 0..size {
            self.area.store8(entry(head) + AT_INFLIGHT, 0);
        }
        self.area.store16(AT_DESC_NUM, size);
        self.area.store16(AT_LAST_BATCH_HEAD, 0);
        self.area.store16(AT_USED_IDX, used_idx);
        then();
        self.area.store16(AT_VERSION, VERSION);
    }

    /// Ends what was being given back when the process ended: the used ring has it.
    fn settle(&self, size: u16, used_idx: u16) -> Result<(), RingError> {
        let batch = used_idx.wrapping_sub(self.area.load16(AT_USED_IDX));
        if batch > size {
            return Err(RingError::Inflight {
                why: "the used ring is not where it was left",
            });
        }
        let mut head = self.area.load16(AT_LAST_BATCH_HEAD);
        for _ in 0..batch {
            if head >= size {
                return Err(RingError::Inflight {
                    why: "its list of the last batch leads out of it",
                });
            }
            self.area.store8(entry(head) + AT_INFLIGHT, 0);
            head = self.area.load16(entry(head) + AT_NEXT);
        }
        then();
        self.area.store16(AT_USED_IDX, used_idx);
        Ok(())
    }

    /// A chain was taken.
    pub(crate) fn take(&mut self, head: u16) {
        self.area.store64(entry(head) + AT_COUNTER, self.counter);
        self.counter = self.counter.wrapping_add(1);
        then();
        self.area.store8(entry(head) + AT_INFLIGHT, 1);
    }

    /// A chain is about to be given back: to be called before the used ring's idx has it. It is one of a batch, whose last the header names, and each of which names
    /// the one before.
    pub(crate) fn give_back(&self, head: u16) {
        let last = self.area.load16(AT_LAST_BATCH_HEAD);
        self.area.store16(entry(head) + AT_NEXT, last);
        then();
        self.area.store16(AT_LAST_BATCH_HEAD, head);
        then();
    }

    /// The used ring's idx has those of the batch.
    pub(crate) fn given_back(&self, heads: &[u16], used_idx: u16) {
        then();
        for head in heads {
            self.area.store8(entry(*head) + AT_INFLIGHT, 0);
        }
        then();
        self.area.store16(AT_USED_IDX, used_idx);
    }
}

fn entry(head: u16) -> usize {
    HEADER_BYTES + usize::from(head) * ENTRY_BYTES
}
