//! QueueRegionPacked and DescStatePacked.

use super::{VERSION, then};
use crate::chain::{DESCRIPTOR_BYTES, F_NEXT, Packed};
use crate::error::RingError;
use crate::memory::Area;
use crate::packed::Cursor;

/// QueueRegionPacked without its entries.
pub(super) const HEADER_BYTES: usize = 32;
const AT_VERSION: usize = 8;
const AT_DESC_NUM: usize = 10;
/// free_head and old_free_head: one word, so that both change at once where they are to.
const AT_FREE_HEADS: usize = 12;
/// used_idx, old_used_idx, used_wrap_counter and old_used_wrap_counter, and padding: one word for the same reason.
const AT_USED: usize = 16;

/// DescStatePacked.
pub(super) const ENTRY_BYTES: usize = 32;
const AT_INFLIGHT: usize = 0;
const AT_NEXT: usize = 2;
const AT_LAST: usize = 4;
const AT_NUM: usize = 6;
const AT_COUNTER: usize = 8;
const AT_ID: usize = 16;
const AT_FLAGS: usize = 18;
const AT_LEN: usize = 20;
const AT_ADDR: usize = 24;

const FLAGS_USED: u16 = 1 << 7 | 1 << 15;

/// The record of one packed queue: copies of the descriptors in flight, since the ring's are written over; the free entries are a list.
#[derive(Debug)]
pub(crate) struct PackedRecord<A> {
    area: A,
    size: u16,
    counter: u64,
}

/// The heads of the list of free entries: with what is under way, and without.
#[derive(Clone, Copy, Debug)]
struct Free {
    head: u16,
    old: u16,
}

/// Where the ring goes on giving back: with what is under way, and without.
#[derive(Clone, Copy, Debug)]
struct Used {
    now: Cursor,
    old: Cursor,
}

/// A chain that was in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Left {
    pub(crate) id: u16,
    pub(crate) slots: u16,
    /// Its first entry.
    pub(crate) entry: u16,
}

impl<A: Area> PackedRecord<A> {
    /// Takes a record up: where the ring goes on giving back, and what was in flight, the longest first. `used` is where it would without a record.
    pub(crate) fn take_up(
        area: A,
        size: u16,
        used: Cursor,
        ring: &A,
    ) -> Result<(Self, Cursor, Vec<Left>), RingError> {
        if area.bytes() < HEADER_BYTES + usize::from(size) * ENTRY_BYTES {
            return Err(wrong("it is shorter than the ring needs"));
        }
        let mut record = Self {
            area,
            size,
            counter: 0,
        };
        // Whoever shares the record may change it at any time: the ring goes on where this says, and never reads it there again.
        let used = match record.area.load16(AT_VERSION) {
            0 => record.begin(used),
            VERSION if record.area.load16(AT_DESC_NUM) == size => record.settle(ring)?,
            VERSION => return Err(wrong("it is of a ring of another size")),
            _ => return Err(wrong("its version is not known")),
        };
        let mut taken = Vec::new();
        for entry in 0..size {
            if record.area.load8(at(entry) + AT_INFLIGHT) != 0 {
                taken.push((
                    record.area.load64(at(entry) + AT_COUNTER),
                    record.left(entry)?,
                ));
            }
        }
        taken.sort_unstable_by_key(|(counter, _)| *counter);
        record.counter = taken
            .last()
            .map_or(0, |(counter, _)| counter.wrapping_add(1));
        Ok((
            record,
            used,
            taken.into_iter().map(|(_, left)| left).collect(),
        ))
    }

    /// A record that nobody has used: all entries are free. Returns where the ring goes on.
    fn begin(&self, used: Cursor) -> Cursor {
        for entry in 0..self.size {
            self.area.store8(at(entry) + AT_INFLIGHT, 0);
            self.area
                .store16(at(entry) + AT_NEXT, entry.wrapping_add(1));
        }
        self.area.store16(AT_DESC_NUM, self.size);
        self.set_free(Free { head: 0, old: 0 });
        self.set_used(Used {
            now: used,
            old: used,
        });
        then();
        self.area.store16(AT_VERSION, VERSION);
        used
    }

    /// Commits what was being given back when the process ended, or rolls it back, as the ring says; the same with what was being taken. Returns where the
    /// ring goes on.
    fn settle(&self, ring: &A) -> Result<Cursor, RingError> {
        let Used { now, mut old } = self.used();
        let mut free = self.free();
        if now.index >= self.size || old.index >= self.size {
            return Err(wrong("its used index is not in the ring"));
        }
        if now != old {
            let flags = ring.load16(usize::from(old.index) * DESCRIPTOR_BYTES + 14);
            // The driver has it, and may have made the place available again since: it is no longer what it was before.
            let was_given_back =
                flags & FLAGS_USED == old.used_flags() || self.is_taken_again(flags, old);
            if was_given_back {
                free.old = free.head;
                old = now;
            }
        }
        self.set_free(Free {
            head: free.old,
            ..free
        });
        // What is free is in flight no longer before the used index says that it was given back: a process that ends in between does this again.
        self.clear_free();
        then();
        self.set_used(Used { now: old, old });
        Ok(old)
    }

    /// Whether the place has flags that the driver gives it a round later.
    fn is_taken_again(&self, flags: u16, old: Cursor) -> bool {
        let later = Cursor {
            wrap: !old.wrap,
            ..old
        };
        // Available in the next round: AVAIL is that round's counter, and USED the opposite.
        let available_later = if later.wrap { 1 << 7 } else { 1 << 15 };
        flags & FLAGS_USED == available_later
    }

    /// No entry of the free list is in flight.
    fn clear_free(&self) {
        let mut entry = self.free().head;
        for _ in 0..self.size {
            if entry >= self.size {
                break;
            }
            self.area.store8(at(entry) + AT_INFLIGHT, 0);
            entry = self.area.load16(at(entry) + AT_NEXT);
        }
    }

    fn left(&self, entry: u16) -> Result<Left, RingError> {
        let slots = self.area.load16(at(entry) + AT_NUM);
        let last = self.area.load16(at(entry) + AT_LAST);
        if slots == 0 || slots > self.size || last >= self.size {
            return Err(wrong("a chain in flight has no descriptors"));
        }
        let mut at_entry = entry;
        for _ in 1..slots {
            at_entry = self.area.load16(at(at_entry) + AT_NEXT);
            if at_entry >= self.size {
                return Err(wrong("a chain in flight leads out of it"));
            }
        }
        Ok(Left {
            id: self.area.load16(at(last) + AT_ID),
            slots,
            entry,
        })
    }

    /// The descriptors of a chain that was in flight.
    pub(crate) fn descriptors(&self, left: &Left, out: &mut Vec<Packed>) {
        let mut entry = left.entry;
        for number in 1..=left.slots {
            let flags = self.area.load16(at(entry) + AT_FLAGS);
            let goes_on = if number < left.slots { F_NEXT } else { 0 };
            out.push(Packed {
                address: self.area.load64(at(entry) + AT_ADDR),
                bytes: self.area.load32(at(entry) + AT_LEN),
                id: self.area.load16(at(entry) + AT_ID),
                flags: flags & !F_NEXT | goes_on,
            });
            entry = self.area.load16(at(entry) + AT_NEXT);
            if entry >= self.size {
                return;
            }
        }
    }

    /// A chain was taken; its first entry.
    pub(crate) fn take(&mut self, chain: &[Packed], id: u16) -> Result<u16, RingError> {
        let head = self.free().old;
        let mut entry = head;
        if head >= self.size {
            return Err(wrong("its list of free entries is broken"));
        }
        self.area.store16(at(head) + AT_NUM, 0);
        self.area.store64(at(head) + AT_COUNTER, self.counter);
        self.counter = self.counter.wrapping_add(1);
        for (number, descriptor) in (1..).zip(chain) {
            if entry >= self.size {
                return Err(wrong("its list of free entries is broken"));
            }
            self.area.store64(at(entry) + AT_ADDR, descriptor.address);
            self.area.store32(at(entry) + AT_LEN, descriptor.bytes);
            self.area.store16(at(entry) + AT_FLAGS, descriptor.flags);
            self.area.store16(at(entry) + AT_ID, id);
            self.area.store16(at(head) + AT_NUM, number);
            self.area.store16(at(head) + AT_LAST, entry);
            entry = self.area.load16(at(entry) + AT_NEXT);
        }
        then();
        // It is in flight and not free from here on: a process that ends before it was taken finds it in the free list, and takes it anew.
        self.area.store8(at(head) + AT_INFLIGHT, 1);
        then();
        self.set_free(Free {
            head: entry,
            old: entry,
        });
        Ok(head)
    }

    /// A chain is about to be given back, and `used` is where the ring goes on then: to be called before the ring's flags say it.
    pub(crate) fn give_back(&self, entry: u16, used: Cursor) {
        let last = self.area.load16(at(entry) + AT_LAST);
        let free = self.free();
        if last < self.size {
            self.area.store16(at(last) + AT_NEXT, free.head);
        }
        then();
        self.set_free(Free {
            head: entry,
            ..free
        });
        then();
        self.set_used(Used {
            now: used,
            ..self.used()
        });
        then();
    }

    /// The ring's flags say it.
    pub(crate) fn given_back(&self, entry: u16) {
        then();
        self.area.store8(at(entry) + AT_INFLIGHT, 0);
        then();
        let head = self.free().head;
        self.set_free(Free { head, old: head });
        then();
        let now = self.used().now;
        self.set_used(Used { now, old: now });
    }

    #[expect(clippy::cast_possible_truncation, reason = "takes a word apart")]
    fn free(&self) -> Free {
        let word = self.area.load32(AT_FREE_HEADS);
        Free {
            head: word as u16,
            old: (word >> 16) as u16,
        }
    }

    fn set_free(&self, Free { head, old }: Free) {
        let word = u32::from(head) | u32::from(old) << 16;
        self.area.store32(AT_FREE_HEADS, word);
    }

    #[expect(clippy::cast_possible_truncation, reason = "takes a word apart")]
    fn used(&self) -> Used {
        let word = self.area.load64(AT_USED);
        let cursor = |index: u64, wrap: u64| Cursor {
            index: index as u16,
            wrap: wrap & 0xFF != 0,
        };
        Used {
            now: cursor(word, word >> 32),
            old: cursor(word >> 16, word >> 40),
        }
    }

    fn set_used(&self, Used { now, old }: Used) {
        let indices = u64::from(now.index) | u64::from(old.index) << 16;
        let wraps = u64::from(now.wrap) << 32 | u64::from(old.wrap) << 40;
        self.area.store64(AT_USED, indices | wraps);
    }
}

fn at(entry: u16) -> usize {
    HEADER_BYTES + usize::from(entry) * ENTRY_BYTES
}

fn wrong(why: &'static str) -> RingError {
    RingError::Inflight { why }
}
