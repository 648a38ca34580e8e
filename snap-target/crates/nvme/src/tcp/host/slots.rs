//! The commands outstanding on a connection, in a table that never grows.

use std::time::Duration;

use nvme_spec::{Cid, Cqe, Sqe, Status, U16};

use super::{Command, Occupied, Slot, Transfer};
use crate::time::Time;

/// Low bits of a command identifier: the slot. The rest counts how often the slot was used, so that a late or repeated answer
/// to an earlier command never passes for one to the present.
const SLOT_BITS: u32 = 10;
const SLOT_MASK: u16 = (1 << SLOT_BITS) - 1;
const _: () = assert!(super::DEPTH_MAX == SLOT_MASK);

/// One command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub cid: u16,
    state: State,
    /// The capsule was handed out for sending.
    pub capsule_sent: bool,
    /// The data travel in the capsule.
    pub in_capsule: bool,
    /// A C2HData with LAST_PDU came.
    pub last_data: bool,
    /// The driver gave it up: what still comes for it goes nowhere.
    pub abandoned: bool,
    /// A data digest did not match.
    pub corrupt: bool,
    /// Items of a batch that still read the buffer.
    pub lent_items: u32,
    pub transfer: Transfer,
    /// In: bytes that arrived. Out: bytes that the controller asked for, or that the capsule carries.
    pub moved: u32,
    pub grant: Grant,
    response: Option<Cqe>,
    issued_at: Time,
    pub sqe: Sqe,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Outstanding,
    /// The completion event waits for the driver.
    Completed,
}

/// What the last R2T asked for: `next..end` is still to be handed out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grant {
    pub ttag: U16,
    pub next: u32,
    pub end: u32,
}

const NO_GRANT: Grant = Grant {
    ttag: U16::ZERO,
    next: 0,
    end: 0,
};

impl Entry {
    const FREE: Entry = Entry {
        cid: 0,
        state: State::Free,
        capsule_sent: false,
        in_capsule: false,
        last_data: false,
        abandoned: false,
        corrupt: false,
        lent_items: 0,
        transfer: Transfer::None,
        moved: 0,
        grant: NO_GRANT,
        response: None,
        issued_at: Time::ZERO,
        sqe: Sqe::ZERO,
    };

    pub fn moved_all(&self) -> bool {
        self.moved == self.transfer.bytes()
    }
}

#[derive(Debug)]
pub(super) struct Slots {
    entries: Box<[Entry]>,
    free: Vec<Slot>,
}

impl Slots {
    pub fn new(depth: u16) -> Slots {
        let entries = (0..depth).map(|cid| Entry { cid, ..Entry::FREE }).collect();
        Slots {
            entries,
            free: (0..depth).rev().map(Slot).collect(),
        }
    }

    pub fn free(&self) -> usize {
        self.free.len()
    }

    pub fn used(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    pub fn take(&mut self, command: &Command, in_capsule: bool, now: Time) -> Option<Slot> {
        let slot = self.free.pop()?;
        let entry = self.entries.get_mut(slot.index())?;
        *entry = Entry {
            cid: entry.cid.wrapping_add(1 << SLOT_BITS),
            state: State::Outstanding,
            in_capsule,
            transfer: command.transfer,
            moved: if in_capsule {
                command.transfer.bytes()
            } else {
                0
            },
            issued_at: now,
            sqe: command.sqe,
            ..Entry::FREE
        };
        Some(slot)
    }

    pub fn get(&self, slot: Slot) -> Option<&Entry> {
        self.entries.get(slot.index())
    }

    /// Gives a command up; false where the slot has none outstanding.
    pub fn abandon(&mut self, slot: Slot) -> bool {
        let outstanding = self
            .get_mut(slot)
            .filter(|entry| entry.state == State::Outstanding);
        if let Some(entry) = outstanding {
            entry.abandoned = true;
            return true;
        }
        false
    }

    pub fn occupied(&self) -> impl Iterator<Item = Occupied> + '_ {
        (0..)
            .map(Slot)
            .zip(&self.entries)
            .filter(|(_, entry)| entry.state != State::Free)
            .map(|(slot, entry)| Occupied {
                slot,
                is_lent: entry.lent_items > 0,
            })
    }

    pub fn get_mut(&mut self, slot: Slot) -> Option<&mut Entry> {
        self.entries.get_mut(slot.index())
    }

    /// The command that an identifier from the wire names: outstanding, sent, and not answered.
    pub fn find(&mut self, cid: u16) -> Option<(Slot, &mut Entry)> {
        let slot = Slot(cid & SLOT_MASK);
        self.entries
            .get_mut(slot.index())
            .filter(|entry| entry.state == State::Outstanding && entry.cid == cid)
            .filter(|entry| entry.capsule_sent && entry.response.is_none())
            .map(|entry| (slot, entry))
    }

    /// Notes the response of a command.
    pub fn respond(&mut self, slot: Slot, cqe: Cqe) {
        if let Some(entry) = self.get_mut(slot) {
            entry.response = Some(cqe);
        }
    }

    /// The completion, once, as soon as the response is there and the buffer is not read any more.
    pub fn take_completion(&mut self, slot: Slot) -> Option<(Cqe, u32)> {
        let entry = self
            .get_mut(slot)
            .filter(|entry| entry.state == State::Outstanding)?;
        let mut cqe = entry.response?;
        if entry.lent_items != 0 || entry.grant.next != entry.grant.end {
            return None;
        }
        entry.state = State::Completed;
        if entry.corrupt && cqe.status().is_success() {
            cqe.status_and_phase = U16::new(Status::TRANSIENT_TRANSPORT_ERROR.to_wire());
        }
        let received = match entry.transfer {
            Transfer::In(_) if !entry.abandoned && !entry.corrupt => entry.moved,
            _ => 0,
        };
        Some((cqe, received))
    }

    pub fn release(&mut self, slot: Slot) {
        if let Some(entry) = self
            .get_mut(slot)
            .filter(|entry| entry.state == State::Completed)
        {
            entry.state = State::Free;
            self.free.push(slot);
        }
    }

    /// The commands that have a timeout: outstanding, and not given up.
    fn timed(&self) -> impl Iterator<Item = &Entry> {
        self.entries
            .iter()
            .filter(|entry| entry.state == State::Outstanding && !entry.abandoned)
    }

    /// When the first of them was submitted.
    pub fn oldest(&self) -> Option<Time> {
        self.timed().map(|entry| entry.issued_at).min()
    }

    /// One that has waited for `timeout` or longer.
    pub fn overdue(&self, now: Time, timeout: Duration) -> Option<Cid> {
        self.timed()
            .find(|entry| now >= entry.issued_at + timeout)
            .map(|entry| Cid(entry.cid))
    }
}
