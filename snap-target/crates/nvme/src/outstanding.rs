//! The commands outstanding at a host's end of a queue, in a table that never grows: their identifiers, their time, their answers. What a transport has to
//! know of a command beside that is its own: `W`.

use std::time::Duration;

use nvme_spec::{Cid, Cqe, Sqe, Status, U16, U32};

use crate::queue::Slot;
use crate::time::Time;

/// The most commands outstanding on one connection. A command identifier holds the slot in its low ten bits, all of them set
/// is no slot: FFFFh stands for "no command" in logs.
pub const DEPTH_MAX: u16 = 1023;

/// Low bits of a command identifier: the slot. The rest counts how often the slot was used, so that a late or repeated answer
/// to an earlier command never passes for one to the present.
const SLOT_BITS: u32 = 10;
const SLOT_MASK: u16 = (1 << SLOT_BITS) - 1;
const _: () = assert!(DEPTH_MAX == SLOT_MASK);

/// A command and the data it moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// The entry; the connection fills in command identifier, PSDT and data pointer.
    pub sqe: Sqe,
    /// Which way the data go, and how many bytes.
    pub transfer: Transfer,
}

/// The data of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// None.
    None,
    /// Bytes from the controller; not zero.
    In(u32),
    /// Bytes to the controller; not zero.
    Out(u32),
}

impl Transfer {
    /// Bytes, whichever way they go.
    pub fn bytes(self) -> u32 {
        match self {
            Transfer::None => 0,
            Transfer::In(bytes) | Transfer::Out(bytes) => bytes,
        }
    }
}

/// One command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<W> {
    pub cid: u16,
    state: State,
    /// It was handed out for sending.
    pub sent: bool,
    /// The driver gave it up: what still comes for it goes nowhere.
    pub abandoned: bool,
    pub transfer: Transfer,
    pub response: Option<Cqe>,
    issued_at: Time,
    pub sqe: Sqe,
    /// What the transport knows of it.
    pub way: W,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Outstanding,
    /// The completion event waits for the driver.
    Completed,
}

#[derive(Debug)]
pub(crate) struct Table<W> {
    entries: Box<[Entry<W>]>,
    free: Vec<Slot>,
}

impl<W: Copy> Table<W> {
    /// For so many commands; `way` is what a free slot has.
    pub fn new(depth: u16, way: W) -> Table<W> {
        let entry = |cid| Entry {
            cid,
            state: State::Free,
            sent: false,
            abandoned: false,
            transfer: Transfer::None,
            response: None,
            issued_at: Time::ZERO,
            sqe: Sqe::ZERO,
            way,
        };
        Table {
            entries: (0..depth).map(entry).collect(),
            free: (0..depth).rev().map(Slot).collect(),
        }
    }

    pub fn free(&self) -> usize {
        self.free.len()
    }

    pub fn used(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    pub fn take(&mut self, command: &Command, way: W, now: Time) -> Option<Slot> {
        let slot = self.free.pop()?;
        let entry = self.entries.get_mut(slot.index())?;
        *entry = Entry {
            cid: entry.cid.wrapping_add(1 << SLOT_BITS),
            state: State::Outstanding,
            sent: false,
            abandoned: false,
            transfer: command.transfer,
            response: None,
            issued_at: now,
            sqe: command.sqe,
            way,
        };
        Some(slot)
    }

    pub fn get(&self, slot: Slot) -> Option<&Entry<W>> {
        self.entries.get(slot.index())
    }

    pub fn get_mut(&mut self, slot: Slot) -> Option<&mut Entry<W>> {
        self.entries.get_mut(slot.index())
    }

    /// The commands whose end the driver has not heard of, or not taken.
    pub fn occupied(&self) -> impl Iterator<Item = (Slot, &Entry<W>)> + '_ {
        (0..)
            .map(Slot)
            .zip(&self.entries)
            .filter(|(_, entry)| entry.state != State::Free)
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

    /// Gives a command up that was not handed out: it is answered at once, with [`Status::HOST_ABORTED`]. False where there is none.
    pub fn withdraw(&mut self, slot: Slot) -> bool {
        if self.get(slot).is_none_or(|entry| entry.sent) || !self.abandon(slot) {
            return false;
        }
        if let Some(entry) = self.get_mut(slot) {
            entry.response = Some(Cqe {
                dw0: U32::ZERO,
                dw1: U32::ZERO,
                sqhd: U16::ZERO,
                sqid: U16::ZERO,
                cid: U16::new(entry.cid),
                status_and_phase: U16::new(Status::HOST_ABORTED.to_wire()),
            });
        }
        true
    }

    /// The command that an identifier from the wire names: outstanding, sent, and not answered.
    pub fn find(&mut self, cid: u16) -> Option<(Slot, &mut Entry<W>)> {
        let slot = Slot(cid & SLOT_MASK);
        self.entries
            .get_mut(slot.index())
            .filter(|entry| entry.state == State::Outstanding && entry.cid == cid)
            .filter(|entry| entry.sent && entry.response.is_none())
            .map(|entry| (slot, entry))
    }

    /// Notes the response of a command.
    pub fn respond(&mut self, slot: Slot, cqe: Cqe) {
        if let Some(entry) = self.get_mut(slot) {
            entry.response = Some(cqe);
        }
    }

    /// The answered command, once, as soon as the transport is through with it too.
    pub fn complete(
        &mut self,
        slot: Slot,
        is_through: impl FnOnce(&W) -> bool,
    ) -> Option<(&Entry<W>, Cqe)> {
        let entry = self
            .get_mut(slot)
            .filter(|entry| entry.state == State::Outstanding && is_through(&entry.way))?;
        let cqe = entry.response?;
        entry.state = State::Completed;
        Some((entry, cqe))
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
    fn timed(&self) -> impl Iterator<Item = &Entry<W>> {
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
