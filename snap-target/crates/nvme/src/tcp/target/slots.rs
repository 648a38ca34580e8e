//! The commands of a connection, by slot.

use crate::Time;
use crate::queue::cids::Cids;
use crate::queue::{Completion, Transfer};
use crate::tcp::batch::Slot;
use nvme_spec::{Sqe, Status};

/// Where a command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Free,
    /// Its capsule's data are still to come.
    Capsule,
    /// With the driver.
    Held,
    /// R2Ts are out, or about to be; its data come as H2CData.
    Receiving,
    /// Answered; the answer waits in the outgoing queue.
    Answered,
    /// The answer is in a batch.
    Sent,
    /// Its answer has left. The host owes data that an R2T asked for: they are dropped when they come, and until then the TTAG is no other command's.
    Owed,
}

/// One command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub sqe: Sqe,
    pub phase: Phase,
    pub host_to_controller: bool,
    /// A data digest did not match.
    pub corrupt: bool,
    pub transfer: Transfer,
    /// When its data were asked for; of a receiving command.
    pub asked_at: Time,
    /// Data bytes received so far.
    pub received: u32,
    /// Data bytes asked for so far: the end of the outstanding R2T.
    pub requested: u32,
    pub completion: Completion,
    /// Data bytes of the answer.
    pub data_len: u32,
    /// Of these, handed out.
    pub data_sent: u32,
}

impl Entry {
    const EMPTY: Entry = Entry {
        sqe: Sqe::ZERO,
        phase: Phase::Free,
        host_to_controller: false,
        corrupt: false,
        transfer: Transfer::None,
        asked_at: Time::ZERO,
        received: 0,
        requested: 0,
        completion: Completion::SUCCESS,
        data_len: 0,
        data_sent: 0,
    };

    /// The host waits for its completion, and the driver has not given one.
    pub fn is_outstanding(&self) -> bool {
        matches!(self.phase, Phase::Capsule | Phase::Held | Phase::Receiving)
    }

    /// An R2T is out, and not all of its data have come; of commands that are answered, too.
    pub fn owes_data(&self) -> bool {
        self.received < self.requested
    }

    /// Stores the answer. Data go with a success alone, and never more than the host's descriptor has room for.
    pub fn answer(&mut self, completion: Completion, data_len: u32) {
        self.completion = completion;
        self.data_sent = 0;
        self.data_len = 0;
        if data_len == 0 || completion.status != Status::SUCCESS {
            return;
        }
        match self.transfer {
            Transfer::Remote { bytes } if bytes >= data_len && !self.host_to_controller => {
                self.data_len = data_len
            }
            _ => self.completion = Completion::of(Status::DATA_SGL_LENGTH_INVALID.dnr()),
        }
    }
}

/// Slots of a queue of so many entries.
pub(super) fn slots_of(places: u16) -> u16 {
    places.saturating_mul(2)
}

/// All slots, and which are free. Made once; no command allocates.
///
/// Commands take as many as the queue has entries. Once more as many stand in for those whose command is answered and whose data the host owes: it may
/// send its next command ahead of them.
#[derive(Debug)]
pub(super) struct Slots {
    entries: Vec<Entry>,
    /// Entries of the queue.
    places: usize,
    /// Slots in [`Phase::Owed`].
    owed: usize,
    /// The slot freed last is taken first: its memory is warm.
    free: Vec<Slot>,
    cids: Cids,
    /// Read where a slot of the driver's making does not exist.
    none: Entry,
}

impl Slots {
    pub fn with_entries(count: u16) -> Slots {
        let mut slots = Slots {
            entries: Vec::new(),
            places: 0,
            owed: 0,
            free: Vec::new(),
            cids: Cids::default(),
            none: Entry::EMPTY,
        };
        slots.grow(count);
        slots
    }

    /// To the slots of a queue of so many entries; those there stay.
    pub fn grow(&mut self, places: u16) {
        self.places = self.places.max(usize::from(places));
        let before = self.entries.len();
        let count = usize::from(slots_of(places)).max(before);
        self.entries.resize(count, Entry::EMPTY);
        self.free.reserve_exact(count);
        let more = (before..count)
            .rev()
            .filter_map(|index| u16::try_from(index).ok())
            .map(Slot);
        // Below those that are there: the lowest are taken first.
        self.free.splice(..0, more);
        let outstanding = self.entries.iter().filter(|entry| entry.is_outstanding());
        self.cids = Cids::of(self.places, outstanding.map(|entry| entry.sqe.cid()));
    }

    pub fn is_full(&self) -> bool {
        let taken = self.entries.len() - self.free.len() - self.owed;
        taken >= self.places || self.free.is_empty()
    }

    /// Takes a free slot for a command.
    pub fn take(&mut self, sqe: &Sqe) -> Option<(Slot, &mut Entry)> {
        let slot = self.free.pop()?;
        let entry = self.entries.get_mut(slot.index())?;
        *entry = Entry {
            sqe: *sqe,
            phase: Phase::Held,
            ..Entry::EMPTY
        };
        self.cids.add(sqe.cid());
        Some((slot, entry))
    }

    /// A command is answered: the host may use its identifier again as soon as it has the answer.
    pub fn answered(&mut self, slot: Slot) {
        let entry = self.get_mut(slot);
        entry.phase = Phase::Answered;
        let cid = entry.sqe.cid();
        self.cids.remove(cid);
    }

    /// Whether another command that is not answered has this one's identifier. One look as a rule; where the low bits of identifiers meet, one at each command.
    pub fn is_taken_twice(&self, slot: Slot) -> bool {
        let cid = self.sqe(slot).cid();
        let has_it = |entry: &&Entry| entry.is_outstanding() && entry.sqe.cid() == cid;
        self.cids.may_repeat(cid) && self.entries.iter().filter(has_it).nth(1).is_some()
    }

    pub fn release(&mut self, slot: Slot) {
        if let Some(entry) = self.entries.get_mut(slot.index())
            && entry.phase != Phase::Free
        {
            self.owed -= usize::from(entry.phase == Phase::Owed);
            entry.phase = Phase::Free;
            self.free.push(slot);
        }
    }

    /// The answer of a slot has left: it is free, or kept for the data that the host owes.
    pub fn answer_left(&mut self, slot: Slot) {
        let entry = self.get_mut(slot);
        if entry.phase == Phase::Sent && entry.owes_data() {
            entry.phase = Phase::Owed;
            self.owed += 1;
        } else if entry.phase == Phase::Sent {
            self.release(slot);
        }
    }

    /// Where [`Slots::is_full`]: whether none of our sends would change that. The host then has more commands outstanding than its queue has entries, or
    /// owes the data of as many that are answered, and they cannot come behind the next command.
    pub fn is_overrun(&self) -> bool {
        self.entries
            .iter()
            .all(|entry| !matches!(entry.phase, Phase::Answered | Phase::Sent))
    }

    /// Since when the host owes us data, where it does.
    pub fn oldest_request(&self) -> Option<Time> {
        self.entries
            .iter()
            .filter(|entry| entry.phase == Phase::Receiving || entry.owes_data())
            .map(|entry| entry.asked_at)
            .min()
    }

    pub fn get(&self, slot: Slot) -> &Entry {
        self.entries.get(slot.index()).unwrap_or(&self.none)
    }

    pub fn get_mut(&mut self, slot: Slot) -> &mut Entry {
        if slot.index() >= self.entries.len() {
            self.none = Entry::EMPTY;
        }
        self.entries.get_mut(slot.index()).unwrap_or(&mut self.none)
    }

    pub fn sqe(&self, slot: Slot) -> &Sqe {
        &self.get(slot).sqe
    }

    /// The slot that a TTAG names, where it exists.
    pub fn of_ttag(&mut self, ttag: u16) -> Option<(Slot, &mut Entry)> {
        self.entries
            .get_mut(usize::from(ttag))
            .map(|entry| (Slot(ttag), entry))
    }

    pub fn occupied(&self) -> impl Iterator<Item = Slot> + '_ {
        (0..=u16::MAX)
            .map(Slot)
            .zip(&self.entries)
            .filter(|(_, entry)| !matches!(entry.phase, Phase::Free | Phase::Owed))
            .map(|(slot, _)| slot)
    }
}
