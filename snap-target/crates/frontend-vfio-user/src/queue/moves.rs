//! Commands whose data, or the lists that say where those are, lie in memory that was not shared by descriptor. What of it was shared is copied as ever, and
//! the rest goes by messages, one after the other of a command. This is the slow way, and the one on which a command costs allocations.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use guest_memory::{Fault, Run, Way, Windows, from_guest, to_guest};
use nvme::pcie::Piece;
use nvme::queue::{Completion, Slot};
use nvme_spec::{Sqe, Status};
use reactor::buf::IoBuf;

use super::Queue;
use super::data::unreachable_data;
use crate::apart::{Answer, Ask, Load};
use crate::common::Sight;
use crate::limits::{ASKS_OF_QUEUE_MAX, MOVE_PATIENCE};
use crate::walk::Walk;
use frontend_nvme::link::LinkEvent;

/// The moves of a queue, by slot.
#[derive(Debug, Default)]
pub(super) struct Moves {
    of: BTreeMap<u16, Move>,
    /// They have something to ask, and it is not their turn.
    waiting: VecDeque<Slot>,
    /// Messages that were asked for and are not answered, those of moves that are gone among them.
    asked: usize,
    next_number: u64,
}

impl Moves {
    pub(super) fn insert(&mut self, slot: Slot, moving: Move) {
        self.of.insert(slot.0, moving);
    }

    /// The command is answered by others, or nobody waits for it any more.
    pub(super) fn remove(&mut self, slot: Slot) -> Option<Move> {
        if self.of.is_empty() {
            return None;
        }
        self.waiting.retain(|waiting| *waiting != slot);
        self.of.remove(&slot.0)
    }

    /// Nobody waits for any of them. Answers may still come. The slots whose commands nobody else answers.
    fn clear(&mut self) -> Vec<Slot> {
        self.waiting.clear();
        let all = std::mem::take(&mut self.of);
        all.into_keys().map(Slot).collect()
    }

    /// Bytes of buffers that wait for the guest's data.
    pub(super) fn awaited_bytes(&self) -> u64 {
        let from_guest = self.of.values().filter(|it| it.way == Way::FromGuest);
        from_guest.map(|it| it.buffer.len() as u64).sum()
    }
}

/// One command's data on their way.
#[derive(Debug)]
pub(super) struct Move {
    way: Way,
    walk: Walk,
    /// What has come of the part of a list that the walk asks for.
    part: Vec<u8>,
    pieces: Vec<Piece>,
    /// Every piece is there, and may be reached.
    is_checked: bool,
    /// Pieces whose bytes are moved, and bytes of the next one.
    pieces_moved: usize,
    piece_bytes_moved: u32,
    buffer: IoBuf,
    bytes_moved: usize,
    /// The message that it waits for.
    awaited: Option<u64>,
    /// What its command is answered with when the data are in guest memory.
    completion: Option<Completion>,
    /// It has failed then, however far it is.
    until: Instant,
}

/// What a move needs next.
enum Step {
    /// Nothing: it is complete.
    Done,
    /// A message for the bytes from there on.
    Ask { address: u64, bytes: u32 },
}

impl Move {
    pub(super) fn new(
        sqe: &Sqe,
        way: Way,
        buffer: IoBuf,
        completion: Option<Completion>,
    ) -> Result<Self, Status> {
        let bytes = u32::try_from(buffer.len()).map_err(|_| Status::INTERNAL_ERROR)?;
        let mut pieces = Vec::new();
        Ok(Self {
            way,
            walk: Walk::new(sqe, bytes, &mut pieces)?,
            part: Vec::new(),
            pieces,
            is_checked: false,
            pieces_moved: 0,
            piece_bytes_moved: 0,
            buffer,
            bytes_moved: 0,
            awaited: None,
            completion,
            until: Instant::now() + MOVE_PATIENCE,
        })
    }

    /// Goes on as far as memory that is mapped lets it.
    fn step(&mut self, sight: &mut Sight) -> Result<Step, Status> {
        while let Some((address, bytes)) = self.walk.wants() {
            let at = self.part.len();
            if at == bytes {
                self.walk.take(&self.part, &mut self.pieces)?;
                self.part.clear();
                continue;
            }
            let place = address.checked_add(at as u64);
            let place = place.ok_or(Status::DATA_TRANSFER_ERROR)?;
            let left = (bytes - at) as u64;
            let (bytes, is_mapped) = first_run(sight.windows(), place, left, Way::FromGuest)?;
            if !is_mapped {
                return Ok(Step::Ask {
                    address: place,
                    bytes,
                });
            }
            self.part.resize(at + bytes as usize, 0);
            let to = self.part.get_mut(at..).unwrap_or_default();
            let copied = sight.windows().read(place, to);
            copied.map_err(unreachable_data)?;
        }
        self.check(sight.windows())?;
        while let Some(piece) = self.pieces.get(self.pieces_moved).copied() {
            let left = piece.bytes - self.piece_bytes_moved;
            if left == 0 {
                self.pieces_moved += 1;
                self.piece_bytes_moved = 0;
                continue;
            }
            let place = piece.address + u64::from(self.piece_bytes_moved);
            let (bytes, is_mapped) = first_run(sight.windows(), place, left.into(), self.way)?;
            if !is_mapped {
                return Ok(Step::Ask {
                    address: place,
                    bytes,
                });
            }
            self.copy(sight, place, bytes)?;
            self.moved(bytes);
        }
        Ok(Step::Done)
    }

    /// Before the first byte is moved: that each has a place.
    fn check(&mut self, windows: &Windows) -> Result<(), Status> {
        if !self.is_checked {
            for piece in &self.pieces {
                let mut runs = windows.runs(piece.address, piece.bytes.into(), self.way);
                runs.try_for_each(|run| run.map(drop).map_err(unreachable_data))?;
            }
            self.is_checked = true;
        }
        Ok(())
    }

    /// Copies bytes of memory that is mapped.
    fn copy(&self, sight: &mut Sight, place: u64, bytes: u32) -> Result<(), Status> {
        let (windows, leases) = sight.memory();
        let view = leases.view(windows, [(place, bytes)], self.way);
        let view = view.map_err(unreachable_data)?;
        let ours = self.next_bytes(bytes);
        let copied = match self.way {
            Way::FromGuest => from_guest(&ours, &view),
            Way::ToGuest => to_guest(&view, &ours),
        };
        match copied == bytes as usize {
            true => Ok(()),
            false => Err(Status::INTERNAL_ERROR),
        }
    }

    fn next_bytes(&self, bytes: u32) -> IoBuf {
        let end = self.bytes_moved + bytes as usize;
        self.buffer.slice(self.bytes_moved..end)
    }

    fn moved(&mut self, bytes: u32) {
        self.bytes_moved += bytes as usize;
        self.piece_bytes_moved += bytes;
    }

    /// What a message for these bytes is to bring, or take along.
    fn load(&self, bytes: u32) -> Load {
        match (self.walk.wants(), self.way) {
            (None, Way::ToGuest) => Load::Write(self.next_bytes(bytes).to_vec()),
            _ => Load::Read(bytes),
        }
    }

    /// The client has done what it was asked; of a read these are the bytes.
    fn answered(&mut self, data: &[u8], asked: u32) {
        if self.walk.wants().is_some() {
            self.part.extend_from_slice(data);
            return;
        }
        if self.way == Way::FromGuest {
            self.buffer.copy_from(self.bytes_moved, data);
        }
        self.moved(asked);
    }
}

/// How many bytes from an address on are in one window, and whether that is mapped.
fn first_run(windows: &Windows, address: u64, bytes: u64, way: Way) -> Result<(u32, bool), Status> {
    let run = windows.runs(address, bytes, way).next();
    let run: Result<Run<'_>, Fault> = run.unwrap_or(Err(Fault::Outside { address }));
    let run = run.map_err(unreachable_data)?;
    // No longer than what was asked for, which is a piece or a list.
    let bytes = u32::try_from(run.bytes).map_err(|_| Status::INTERNAL_ERROR)?;
    Ok((bytes, run.window.memory.is_some()))
}

impl Queue {
    /// Goes on with a move, to its end or to its next message.
    pub(super) fn advance(&mut self, slot: Slot) {
        let Some(moving) = self.moves.of.get_mut(&slot.0) else {
            return;
        };
        if Instant::now() >= moving.until {
            return self.end_move(slot, Err(Status::DATA_TRANSFER_ERROR));
        }
        match moving.step(&mut self.sight) {
            Ok(Step::Done) => self.end_move(slot, Ok(())),
            Err(status) => self.end_move(slot, Err(status)),
            Ok(Step::Ask { .. }) if self.moves.asked >= ASKS_OF_QUEUE_MAX => {
                self.moves.waiting.push_back(slot);
            }
            Ok(Step::Ask { address, bytes }) => {
                let bytes = bytes.min(self.sight.view().message_bytes_max);
                let number = self.moves.next_number;
                self.moves.next_number += 1;
                self.moves.asked += 1;
                moving.awaited = Some(number);
                let load = moving.load(bytes);
                self.sight.ask(Ask {
                    from: self.submissions.clone(),
                    slot,
                    number,
                    address,
                    load,
                });
            }
        }
    }

    /// Takes in what the client has answered.
    pub(crate) fn take_answers(&mut self) {
        for answer in self.submissions.answers.take() {
            self.moves.asked -= 1;
            // Who waits goes first.
            self.let_waiting_ask();
            self.answered(&answer);
            self.let_waiting_ask();
        }
    }

    fn let_waiting_ask(&mut self) {
        while self.moves.asked < ASKS_OF_QUEUE_MAX
            && let Some(slot) = self.moves.waiting.pop_front()
        {
            self.advance(slot);
        }
    }

    fn answered(&mut self, answer: &Answer) {
        let slot = answer.slot;
        let Some(moving) = self.moves.of.get_mut(&slot.0) else {
            return;
        };
        // Of a command that was here before it was asked, and nobody waits for it.
        if moving.awaited != Some(answer.number) {
            return;
        }
        moving.awaited = None;
        match &answer.data {
            Some((data, asked)) => moving.answered(data, *asked),
            None => return self.end_move(slot, Err(Status::DATA_TRANSFER_ERROR)),
        }
        self.refresh();
        self.advance(slot);
    }

    fn end_move(&mut self, slot: Slot, result: Result<(), Status>) {
        let Some(moving) = self.moves.remove(slot) else {
            return;
        };
        match (moving.completion, result) {
            (None, Ok(())) => self.received(slot, moving.buffer),
            (None, Err(status)) => self
                .events
                .push_back(LinkEvent::DataFailed { slot, status }),
            (Some(completion), result) => {
                if result.is_ok() {
                    self.count_sent(moving.bytes_moved);
                }
                let completion = result.err().map_or(completion, Completion::of);
                self.answer(slot, completion);
            }
        }
    }

    /// Commands whose answers wait for their data are answered nowhere, and whoever waits for a command's data hears of it no more.
    pub(super) fn forget_moves(&mut self) {
        for slot in self.moves.clear() {
            self.release(slot);
        }
    }
}
