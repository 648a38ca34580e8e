//! The commands of a target's queue by slot, and which slots are free.

use super::Slot;
use super::cids::Cids;
use nvme_spec::Cid;

/// What a slot holds.
pub(crate) trait Occupant: Copy {
    /// A slot without a command.
    const EMPTY: Self;

    /// The command's identifier.
    fn cid(&self) -> Cid;

    /// The host waits for its completion, and the driver has not given one.
    fn is_outstanding(&self) -> bool;
}

/// Slots of a queue of so many entries: as many again stand in for commands that are answered and keep their slots a while.
pub(crate) fn slots_of(places: u16) -> u16 {
    places.saturating_mul(2)
}

/// All slots of a queue. Made once; no command allocates.
#[derive(Debug)]
pub(crate) struct Table<E> {
    entries: Vec<E>,
    /// The slot freed last is taken first: its memory is warm.
    free: Vec<Slot>,
    cids: Cids,
    /// Read where a slot of the driver's making does not exist.
    none: E,
}

impl<E: Occupant> Table<E> {
    pub fn with_places(places: u16) -> Table<E> {
        let mut table = Table {
            entries: Vec::new(),
            free: Vec::new(),
            cids: Cids::default(),
            none: E::EMPTY,
        };
        table.grow(places);
        table
    }

    /// To the slots of a queue of so many entries; those there stay.
    pub fn grow(&mut self, places: u16) {
        let before = self.entries.len();
        let count = usize::from(slots_of(places)).max(before);
        self.entries.resize(count, E::EMPTY);
        self.free.reserve_exact(count);
        let more = (before..count)
            .rev()
            .filter_map(|index| u16::try_from(index).ok())
            .map(Slot);
        // Below those that are there: the lowest are taken first.
        self.free.splice(..0, more);
        let outstanding = self.entries.iter().filter(|entry| entry.is_outstanding());
        self.cids = Cids::of(usize::from(places), outstanding.map(Occupant::cid));
    }

    /// Slots that are not free.
    pub fn taken(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    pub fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// Puts a command into a free slot.
    pub fn take(&mut self, command: E) -> Option<(Slot, &mut E)> {
        let slot = self.free.pop()?;
        let entry = self.entries.get_mut(slot.index())?;
        *entry = command;
        self.cids.add(entry.cid());
        Some((slot, entry))
    }

    /// A command is answered: the host may use its identifier again as soon as it has the answer.
    pub fn answered(&mut self, slot: Slot) {
        let cid = self.get(slot).cid();
        self.cids.remove(cid);
    }

    /// A slot is free, and the caller has marked it as such.
    pub fn release(&mut self, slot: Slot) {
        if slot.index() < self.entries.len() {
            self.free.push(slot);
        }
    }

    /// Whether another command that is not answered has this one's identifier. One look as a rule; where the low bits of identifiers meet, one at each command.
    pub fn is_taken_twice(&self, slot: Slot) -> bool {
        let cid = self.get(slot).cid();
        let has_it = |entry: &&E| entry.is_outstanding() && entry.cid() == cid;
        self.cids.may_repeat(cid) && self.entries.iter().filter(has_it).nth(1).is_some()
    }

    pub fn get(&self, slot: Slot) -> &E {
        self.entries.get(slot.index()).unwrap_or(&self.none)
    }

    pub fn get_mut(&mut self, slot: Slot) -> &mut E {
        if slot.index() >= self.entries.len() {
            self.none = E::EMPTY;
        }
        self.entries.get_mut(slot.index()).unwrap_or(&mut self.none)
    }

    /// Whether there is such a slot.
    pub fn has(&self, slot: Slot) -> bool {
        slot.index() < self.entries.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = (Slot, &E)> + '_ {
        (0..=u16::MAX).map(Slot).zip(&self.entries)
    }
}
