//! Bytes by slot, and their sum: what a link owes its host, or awaits from it.

use nvme::queue::Slot;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    by_slot: Vec<u32>,
    bytes: u64,
    slots: usize,
}

impl Ledger {
    /// Room for so many slots, so that none of them allocates later.
    pub fn reserve(&mut self, slots: usize) {
        if self.by_slot.len() < slots {
            self.by_slot.resize(slots, 0);
        }
    }

    /// Enters a slot's bytes; what it had is settled.
    pub fn enter(&mut self, slot: Slot, bytes: u32) {
        self.settle(slot);
        if self.by_slot.len() <= slot.index() {
            self.by_slot.resize(slot.index() + 1, 0);
        }
        self.by_slot[slot.index()] = bytes;
        self.bytes += u64::from(bytes);
        self.slots += usize::from(bytes > 0);
    }

    /// Takes a slot's bytes out, if it has any.
    pub fn settle(&mut self, slot: Slot) {
        let bytes = self.by_slot.get_mut(slot.index()).map_or(0, std::mem::take);
        self.bytes -= u64::from(bytes);
        self.slots -= usize::from(bytes > 0);
    }

    /// Of all slots.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Slots that have some.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.slots
    }
}

#[cfg(test)]
mod tests {
    use super::{Ledger, Slot};

    #[test]
    fn each_slot_counts_once_until_it_is_settled() {
        let mut ledger = Ledger::default();
        ledger.enter(Slot(7), 100);
        ledger.enter(Slot(2), 30);
        ledger.enter(Slot(2), 20);
        ledger.enter(Slot(1), 0);
        assert_eq!((ledger.bytes(), ledger.slots()), (120, 2));
        ledger.settle(Slot(9));
        ledger.settle(Slot(7));
        ledger.settle(Slot(7));
        assert_eq!((ledger.bytes(), ledger.slots()), (20, 1));
        ledger.settle(Slot(2));
        assert_eq!((ledger.bytes(), ledger.slots()), (0, 0));
    }
}
