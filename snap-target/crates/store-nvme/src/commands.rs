//! The commands outstanding on a queue, by slot, with their buffers: what every transport keeps beside its machine.

use nvme::initiator::{Command, Transfer};
use nvme::queue::Slot;
use reactor::buf::IoBuf;

/// One that has not ended.
#[derive(Debug)]
pub struct Outstanding {
    /// Which way its data go, and how many bytes.
    pub transfer: Transfer,
    /// Its buffer, as submitted.
    pub buf: Option<IoBuf>,
    /// The caller gave it up.
    pub abandoned: bool,
}

/// See the module. One that was given up leaves as its buffer does; the machine keeps its slot until the controller answers.
#[derive(Debug)]
pub struct Commands {
    by_slot: Vec<Option<Outstanding>>,
    count: usize,
}

impl Commands {
    /// Room for so many; more get theirs when they come.
    #[must_use]
    pub fn new(depth: u16) -> Self {
        Self {
            by_slot: (0..depth).map(|_| None).collect(),
            count: 0,
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Notes a command that was taken.
    pub fn put(&mut self, slot: Slot, command: &Command, buf: Option<IoBuf>) {
        let outstanding = Outstanding {
            transfer: command.transfer,
            buf,
            abandoned: false,
        };
        if self.by_slot.len() <= slot.index() {
            self.by_slot.resize_with(slot.index() + 1, || None);
        }
        if let Some(place) = self.by_slot.get_mut(slot.index()) {
            self.count += usize::from(place.is_none());
            *place = Some(outstanding);
        }
    }

    /// The slot's command.
    pub fn get_mut(&mut self, slot: Slot) -> Option<&mut Outstanding> {
        self.by_slot.get_mut(slot.index())?.as_mut()
    }

    /// The slot's buffer, where its command has one.
    #[must_use]
    pub fn buf(&self, slot: Slot) -> Option<&IoBuf> {
        self.by_slot.get(slot.index())?.as_ref()?.buf.as_ref()
    }

    /// The slot's command, which is no more.
    pub fn take(&mut self, slot: Slot) -> Option<Outstanding> {
        let taken = self.by_slot.get_mut(slot.index())?.take();
        self.count -= usize::from(taken.is_some());
        taken
    }

    /// Whether anything but reads is among them: what this machine still holds of such a command must not reach the controller late.
    pub fn has_changes(&self) -> bool {
        let mut there = self.by_slot.iter().flatten();
        there.any(|it| !matches!(it.transfer, Transfer::In(_)))
    }

    /// Where there are any.
    pub fn slots(&self) -> impl Iterator<Item = Slot> + '_ {
        let slots = (0..).map(Slot).zip(&self.by_slot);
        slots.filter_map(|(slot, there)| there.as_ref().map(|_| slot))
    }
}
