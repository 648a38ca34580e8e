//! The commands of a connection, by slot.

use super::ReceiveId;
use crate::Time;
use crate::queue::table::{Occupant, Table};
use crate::queue::{Completion, Slot, Transfer, answer};
use nvme_spec::{Cid, Sqe};

/// Where a command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Free,
    /// Its data lie in the receive that its capsule came with.
    Capsule,
    /// With the driver.
    Held,
    /// RDMA READs of its data are in progress, or about to be.
    Receiving,
    /// Answered; the answer waits for its RDMA READs to end, then in the queue of answers.
    Answered,
    /// The answer is posted, and its data have not left for certain.
    Sent,
}

/// Memory of the host, as a keyed data block names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remote {
    /// Its address of the first byte.
    pub address: u64,
    /// Its key.
    pub key: u32,
}

/// One command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub sqe: Sqe,
    pub phase: Phase,
    pub host_to_controller: bool,
    /// The host asks for its key to be invalidated with the response.
    pub invalidate: bool,
    pub transfer: Transfer,
    pub remote: Remote,
    /// Of data in the capsule: where, and their first byte behind the entry.
    pub receive: ReceiveId,
    pub capsule_offset: u32,
    /// When its data were asked for; of a receiving command.
    pub asked_at: Time,
    /// RDMA READs in progress.
    pub reads: u16,
    /// Data bytes that RDMA READs were posted for, and those that have come.
    pub requested: u32,
    pub received: u32,
    pub completion: Completion,
    /// Data bytes of the answer, and those that RDMA WRITEs were posted for.
    pub data_len: u32,
    pub data_sent: u32,
}

impl Entry {
    /// Stores the answer.
    pub fn answer(&mut self, completion: Completion, data_len: u32) {
        (self.completion, self.data_len) =
            answer(self.transfer, self.host_to_controller, completion, data_len);
    }

    /// The host's memory from this byte of the command's data on.
    pub fn remote_at(&self, offset: u32) -> Remote {
        Remote {
            // The descriptor's end was checked when it came.
            address: self.remote.address.wrapping_add(u64::from(offset)),
            key: self.remote.key,
        }
    }
}

impl Occupant for Entry {
    const EMPTY: Entry = Entry {
        sqe: Sqe::ZERO,
        phase: Phase::Free,
        host_to_controller: false,
        invalidate: false,
        transfer: Transfer::None,
        remote: Remote { address: 0, key: 0 },
        receive: ReceiveId(0),
        capsule_offset: 0,
        asked_at: Time::ZERO,
        reads: 0,
        requested: 0,
        received: 0,
        completion: Completion::SUCCESS,
        data_len: 0,
        data_sent: 0,
    };

    fn cid(&self) -> Cid {
        self.sqe.cid()
    }

    fn is_outstanding(&self) -> bool {
        matches!(self.phase, Phase::Capsule | Phase::Held | Phase::Receiving)
    }
}

/// All slots. Commands take as many as the queue has entries; as many again stand in for answers that the host may have and whose completion has not come.
#[derive(Debug)]
pub(super) struct Slots {
    table: Table<Entry>,
    /// Entries of the queue.
    places: usize,
    /// Slots in [`Phase::Sent`].
    sent: usize,
}

impl Slots {
    pub fn with_entries(places: u16) -> Slots {
        Slots {
            table: Table::with_places(places),
            places: usize::from(places),
            sent: 0,
        }
    }

    /// To the slots of a queue of so many entries; those there stay.
    pub fn grow(&mut self, places: u16) {
        self.places = self.places.max(usize::from(places));
        self.table.grow(places);
    }

    /// The host has as many commands as its queue has entries, and no response to any of them.
    pub fn is_at_limit(&self) -> bool {
        self.table.taken() - self.sent >= self.places
    }

    pub fn has_free(&self) -> bool {
        self.table.has_free()
    }

    /// Puts a command into a free slot.
    pub fn take(&mut self, command: Entry) -> Option<Slot> {
        self.table.take(command).map(|(slot, _)| slot)
    }

    pub fn answered(&mut self, slot: Slot) {
        self.get_mut(slot).phase = Phase::Answered;
        self.table.answered(slot);
    }

    /// The answer is posted: the host may have it from now on. A slot whose data are on their way is kept for its buffer.
    pub fn answer_posted(&mut self, slot: Slot) {
        let entry = self.table.get_mut(slot);
        if entry.data_len > 0 {
            entry.phase = Phase::Sent;
            self.sent += 1;
        } else {
            entry.phase = Phase::Free;
            self.table.release(slot);
        }
    }

    /// The data of an answer have left.
    pub fn answer_left(&mut self, slot: Slot) {
        let entry = self.table.get_mut(slot);
        if entry.phase == Phase::Sent {
            entry.phase = Phase::Free;
            self.sent -= 1;
            self.table.release(slot);
        }
    }

    pub fn is_taken_twice(&self, slot: Slot) -> bool {
        self.table.is_taken_twice(slot)
    }

    pub fn get(&self, slot: Slot) -> &Entry {
        self.table.get(slot)
    }

    pub fn get_mut(&mut self, slot: Slot) -> &mut Entry {
        self.table.get_mut(slot)
    }

    /// Since when data that were asked for have not come.
    pub fn oldest_request(&self) -> Option<Time> {
        self.table
            .iter()
            .filter(|(_, entry)| entry.phase == Phase::Receiving)
            .map(|(_, entry)| entry.asked_at)
            .min()
    }

    pub fn occupied(&self) -> impl Iterator<Item = (Slot, &Entry)> + '_ {
        self.table
            .iter()
            .filter(|(_, entry)| entry.phase != Phase::Free)
    }
}
