//! The commands of a connection, by slot.

use crate::Time;
use crate::queue::table::{Occupant, Table};
use crate::queue::{Completion, Transfer, WireBytes, answer};
use crate::tcp::batch::Slot;
use nvme_spec::{Cid, Sqe};

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
    /// Of its capsule, its data and its R2Ts; the answer is not in it.
    pub wire: WireBytes,
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
        wire: WireBytes {
            sent: 0,
            received: 0,
        },
    };

    /// An R2T is out, and not all of its data have come; of commands that are answered, too.
    pub fn owes_data(&self) -> bool {
        self.received < self.requested
    }

    /// Stores the answer.
    pub fn answer(&mut self, completion: Completion, data_len: u32) {
        self.data_sent = 0;
        (self.completion, self.data_len) =
            answer(self.transfer, self.host_to_controller, completion, data_len);
    }
}

/// All slots. Made once; no command allocates.
///
/// Commands take as many as the queue has entries. Once more as many stand in for those whose command is answered and whose data the host owes: it may
/// send its next command ahead of them.
#[derive(Debug)]
pub(super) struct Slots {
    table: Table<Entry>,
    /// Entries of the queue.
    places: usize,
    /// Slots in [`Phase::Owed`].
    owed: usize,
}

impl Occupant for Entry {
    const EMPTY: Entry = Entry::EMPTY;

    fn cid(&self) -> Cid {
        self.sqe.cid()
    }

    fn is_outstanding(&self) -> bool {
        matches!(self.phase, Phase::Capsule | Phase::Held | Phase::Receiving)
    }
}

impl Slots {
    pub fn with_entries(count: u16) -> Slots {
        Slots {
            table: Table::with_places(count),
            places: usize::from(count),
            owed: 0,
        }
    }

    /// To the slots of a queue of so many entries; those there stay.
    pub fn grow(&mut self, places: u16) {
        self.places = self.places.max(usize::from(places));
        self.table.grow(places);
    }

    pub fn is_full(&self) -> bool {
        self.table.taken() - self.owed >= self.places || !self.table.has_free()
    }

    /// Takes a free slot for a command.
    pub fn take(&mut self, sqe: &Sqe) -> Option<(Slot, &mut Entry)> {
        self.table.take(Entry {
            sqe: *sqe,
            phase: Phase::Held,
            ..Entry::EMPTY
        })
    }

    /// A command is answered: the host may use its identifier again as soon as it has the answer.
    pub fn answered(&mut self, slot: Slot) {
        self.get_mut(slot).phase = Phase::Answered;
        self.table.answered(slot);
    }

    /// Whether another command that is not answered has this one's identifier.
    pub fn is_taken_twice(&self, slot: Slot) -> bool {
        self.table.is_taken_twice(slot)
    }

    pub fn release(&mut self, slot: Slot) {
        let entry = self.table.get_mut(slot);
        if entry.phase != Phase::Free {
            self.owed -= usize::from(entry.phase == Phase::Owed);
            entry.phase = Phase::Free;
            self.table.release(slot);
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
        self.table
            .iter()
            .all(|(_, entry)| !matches!(entry.phase, Phase::Answered | Phase::Sent))
    }

    /// Since when the host owes us data, where it does.
    pub fn oldest_request(&self) -> Option<Time> {
        self.table
            .iter()
            .map(|(_, entry)| entry)
            .filter(|entry| entry.phase == Phase::Receiving || entry.owes_data())
            .map(|entry| entry.asked_at)
            .min()
    }

    pub fn get(&self, slot: Slot) -> &Entry {
        self.table.get(slot)
    }

    pub fn get_mut(&mut self, slot: Slot) -> &mut Entry {
        self.table.get_mut(slot)
    }

    pub fn sqe(&self, slot: Slot) -> &Sqe {
        &self.get(slot).sqe
    }

    /// The slot that a TTAG names, where it exists.
    pub fn of_ttag(&mut self, ttag: u16) -> Option<(Slot, &mut Entry)> {
        let slot = Slot(ttag);
        self.table
            .has(slot)
            .then(|| (slot, self.table.get_mut(slot)))
    }

    pub fn occupied(&self) -> impl Iterator<Item = Slot> + '_ {
        self.table
            .iter()
            .filter(|(_, entry)| !matches!(entry.phase, Phase::Free | Phase::Owed))
            .map(|(slot, _)| slot)
    }
}
