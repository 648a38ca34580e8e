//! A submission queue in guest memory and its commands: what the links of admin and I/O queues have in common.

mod data;
mod moves;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::time::Instant;

use frontend_nvme::Ledger;
use frontend_nvme::link::{LinkEvent, Wire};
use nvme::pcie::{DESCRIPTORS_MAX, Doorbell, Piece, SubmissionRing, pieces_max};
use nvme::queue::{Completion, QueueId, Slot, Transfer};
use nvme_spec::command::SQE_BYTES;
use nvme_spec::{AdminOpcode, Cid, Direction, Sqe, Status};
use reactor::buf::IoBuf;

use self::moves::Moves;
use crate::aggregate::Delay;
use crate::apart::Answers;
use crate::bell::Bell;
use crate::common::{Common, Sight, View};
use crate::completion::{Completions, Of};
use crate::doorbells::DoorbellPage;
use crate::limits::{FETCH_MAX, FETCHES_A_TURN, HELD_BYTES_MAX, LOOK_TIME};

/// The guest's side of a submission queue: its doorbell, which comes in at the function.
#[derive(Debug)]
pub(crate) struct Submissions {
    pub(crate) id: QueueId,
    pub(crate) base: u64,
    pub(crate) entries: u32,
    tail: AtomicU32,
    /// The guest has rung its doorbell since it keeps its doorbells in memory: there is its word from now on.
    is_shadowed: AtomicBool,
    /// Rings where the queue's reactor is to look.
    pub(crate) bell: Bell,
    /// What the client has said to the queue's messages.
    pub(crate) answers: Answers,
    /// Where its doorbell is polled.
    page: Option<Arc<DoorbellPage>>,
}

impl Submissions {
    /// A doorbell that is polled begins here: what the client has left there is of no queue.
    pub(crate) fn new(
        id: QueueId,
        (base, entries): (u64, u32),
        page: Option<&Arc<DoorbellPage>>,
    ) -> std::io::Result<Self> {
        if let Some(page) = page {
            page.store(Doorbell::Submission(id), 0);
        }
        Ok(Self {
            page: page.cloned(),
            id,
            base,
            entries,
            tail: AtomicU32::new(0),
            is_shadowed: AtomicBool::new(false),
            bell: Bell::new()?,
            answers: Answers::default(),
        })
    }

    fn doorbell(&self) -> Doorbell {
        Doorbell::Submission(self.id)
    }

    /// The guest's doorbell; false where there is no such entry.
    pub(crate) fn set_tail(&self, view: &View, tail: u32) -> bool {
        let is_there = tail < self.entries;
        if let Some(page) = self.page.as_ref().filter(|_| is_there) {
            page.store(self.doorbell(), tail);
            return true;
        }
        // Its message may be older than what is in memory.
        if is_there && !self.is_shadowed() {
            self.tail.store(tail, Ordering::Release);
            let is_shadowed = view.doorbells.is_some() && !self.id.is_admin();
            self.is_shadowed.store(is_shadowed, Ordering::Release);
        }
        is_there
    }

    /// The guest keeps its doorbells in memory from now on, and will ring this one once more.
    pub(crate) fn share(&self, view: &View) {
        self.is_shadowed.store(false, Ordering::Release);
        view.begin_shadow(self.doorbell(), self.tail.load(Ordering::Acquire));
    }

    fn is_shadowed(&self) -> bool {
        self.is_shadowed.load(Ordering::Acquire)
    }

    /// What the client has a doorbell say that is polled: none where that is not, or where it names no entry.
    fn polled_tail(&self) -> Option<u32> {
        let tail = self.page.as_ref()?.load(self.doorbell())?;
        Some(tail).filter(|tail| *tail < self.entries)
    }

    /// The guest's word, wherever it is. What names no entry is none.
    fn tail(&self, view: &View) -> u32 {
        if let Some(tail) = self.polled_tail() {
            self.tail.store(tail, Ordering::Release);
        } else if self.is_shadowed()
            && let Some(tail) = view.shadow(self.doorbell())
            && tail < self.entries
        {
            self.tail.store(tail, Ordering::Release);
        }
        self.tail.load(Ordering::Acquire)
    }
}

/// Words of a submission queue entry.
const SQE_WORDS: usize = SQE_BYTES / 8;

/// What a slot's command is waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// There is none.
    Free,
    /// Its answer.
    Outstanding,
    /// It is answered, when its data have left for guest memory.
    Moving,
    /// Its answer, which nobody takes: the queue was reset.
    Forgotten,
}

#[derive(Debug)]
struct Entry {
    stage: Stage,
    sqe: Sqe,
    buffer: Option<IoBuf>,
}

/// An answer that waits. In words that are written and read as they are: of what is written in parts and read as a whole the processor waits for every store before it.
#[derive(Clone, Copy, Debug)]
struct Held(u64, u64);

impl Held {
    fn of(cid: Cid, completion: Completion) -> Self {
        let Completion { dw0, dw1, status } = completion;
        Self(
            u64::from(dw1) << 32 | u64::from(dw0),
            u64::from(status.to_wire()) << 16 | u64::from(cid.0),
        )
    }

    #[allow(clippy::cast_possible_truncation)] // the lower half
    fn cid(self) -> Cid {
        Cid(self.1 as u16)
    }

    #[allow(clippy::cast_possible_truncation)] // the lower halves
    fn completion(self) -> Completion {
        Completion {
            dw0: self.0 as u32,
            dw1: (self.0 >> 32) as u32,
            status: Status::from_wire((self.1 >> 16) as u16),
        }
    }
}

/// How a queue learns of commands whose doorbells are written to the guest's memory: for a while after the last command it looks there, which spares the
/// guest its traps; then the guest is told to ring.
#[derive(Debug, Default)]
struct Looking {
    /// It looks there.
    is_on: bool,
    /// Until when.
    until: Option<Instant>,
    /// The tail that was left in the guest's memory, and whether the guest traps when it goes on from it.
    told: Option<(u32, bool)>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Queue {
    sight: Sight,
    submissions: Arc<Submissions>,
    completions: Arc<Completions>,
    ring: SubmissionRing,
    entries: Vec<Entry>,
    free: Vec<Slot>,
    events: VecDeque<LinkEvent>,
    /// Answers that the guest has left no room for, or that wait for others of this turn.
    held: VecDeque<Held>,
    /// Bytes that were moved since answers were put into the completion queue.
    moved_bytes: u64,
    /// Of the command whose data are being moved.
    pieces: Vec<Piece>,
    /// A read that began in this turn, and where its data go.
    placed: Option<Slot>,
    place: IoBuf,
    /// Of commands whose data go by messages.
    moves: Moves,
    owed: Ledger,
    wire: Wire,
    /// Answers since it was last told of some.
    posted: u32,
    /// When the host is told of them.
    delay: Delay,
    /// With doorbells in the guest's memory.
    looking: Looking,
    /// Entries of this turn that may still be fetched: a guest that goes on and on keeps others waiting no longer.
    fetches_left: usize,
    transfer_bytes_max: u32,
    /// The log has heard of memory that this queue's client does not have.
    has_complained: bool,
}

impl Queue {
    pub(crate) fn new(
        common: &Arc<Common>,
        submissions: Arc<Submissions>,
        completions: Arc<Completions>,
        slots: u16,
        transfer_bytes_max: u32,
    ) -> Self {
        let entries = (0..slots).map(|_| Entry {
            stage: Stage::Free,
            sqe: Sqe::ZERO,
            buffer: None,
        });
        Self {
            sight: Sight::of(common),
            ring: SubmissionRing::new(submissions.base, submissions.entries),
            submissions,
            completions,
            entries: entries.collect(),
            free: (0..slots).rev().map(Slot).collect(),
            events: VecDeque::new(),
            held: VecDeque::new(),
            moved_bytes: 0,
            pieces: Vec::with_capacity(pieces_max(transfer_bytes_max).max(DESCRIPTORS_MAX.into())),
            placed: None,
            place: IoBuf::empty(),
            moves: Moves::default(),
            owed: Ledger::default(),
            wire: Wire::default(),
            posted: 0,
            delay: Delay::default(),
            looking: Looking::default(),
            fetches_left: FETCHES_A_TURN,
            transfer_bytes_max,
            has_complained: false,
        }
    }

    /// Once: a guest whose queues are in no memory fills no log.
    fn complain(&mut self, fault: guest_memory::Fault, what: &str) {
        if !std::mem::replace(&mut self.has_complained, true) {
            tracing::warn!(sqid = self.submissions.id.0, %fault, "{what}; more of this queue is not told");
        }
    }

    /// The queue begins again elsewhere: its commands are forgotten, and a slot is free when its command was answered.
    pub(crate) fn restart(&mut self, submissions: Arc<Submissions>, completions: Arc<Completions>) {
        self.ring = SubmissionRing::new(submissions.base, submissions.entries);
        self.submissions = submissions;
        self.completions = completions;
        self.forget();
        // What was asked before is answered to those that were there before.
        self.moves = Moves::default();
    }

    /// Answers of the commands that are there go nowhere.
    pub(crate) fn forget(&mut self) {
        for entry in &mut self.entries {
            if entry.stage == Stage::Outstanding {
                entry.stage = Stage::Forgotten;
            }
        }
        self.forget_moves();
        self.forget_place();
        // Those that nobody has heard of are not answered either.
        for event in std::mem::take(&mut self.events) {
            if let LinkEvent::Command { slot }
            | LinkEvent::DataReady { slot }
            | LinkEvent::DataFailed { slot, .. } = event
            {
                self.release(slot);
            }
        }
        self.held.clear();
        self.looking = Looking::default();
        self.posted = 0;
        self.delay.clear();
    }

    /// Bytes of memory that wait for data of the guest's.
    pub(crate) fn awaited_bytes(&self) -> u64 {
        self.moves.awaited_bytes()
    }

    pub(crate) fn submissions(&self) -> &Arc<Submissions> {
        &self.submissions
    }

    pub(crate) fn completions(&self) -> &Arc<Completions> {
        &self.completions
    }

    /// Takes up what the function has made of windows and interrupts.
    pub(crate) fn refresh(&mut self) {
        let vector = self.completions.vector();
        let Some(is_told_elsewhere) = self.sight.refresh(vector) else {
            return;
        };
        // Doorbells may be elsewhere in memory, or may have been nowhere meanwhile.
        self.looking.told = None;
        self.forget_place();
        // What was posted since the function looked was told of by a descriptor that may be nobody's any more.
        if let Some(vector) = vector.filter(|_| is_told_elsewhere)
            && self.completions.has_entries(self.sight.view())
        {
            self.sight.interrupt(vector);
        }
    }

    /// The next of what was found already.
    pub(crate) fn pending_event(&mut self) -> Option<LinkEvent> {
        self.events.pop_front()
    }

    /// The next thing for the driver.
    pub(crate) fn next_event(&mut self) -> Option<LinkEvent> {
        self.take_answers();
        if self.events.is_empty() {
            self.fetch();
        }
        self.events.pop_front()
    }

    /// Whether [`Queue::next_event`] has something without a word of the guest's.
    pub(crate) fn has_events(&self) -> bool {
        let has_commands = self.ring.filled() > 0 && !self.free.is_empty();
        !self.events.is_empty() || has_commands || self.looking.is_on
    }

    /// Whether it is to be looked at though nothing tells of commands: the client maps its doorbells, and its controller takes commands.
    pub(crate) fn is_polled(&self) -> bool {
        self.sight.common().is_polling()
    }

    /// Whether there is something for a queue that was to be looked at; that it is not any more is something as well.
    pub(crate) fn is_due(&self) -> bool {
        let tail = self.submissions.polled_tail();
        let is_rung =
            tail.is_some_and(|tail| tail != self.submissions.tail.load(Ordering::Relaxed));
        is_rung || !self.held.is_empty() || self.has_events() || !self.is_polled()
    }

    /// Copies entries out of the queue, and never looks at them again there.
    fn fetch(&mut self) {
        self.refresh();
        let tail = self.submissions.tail(self.sight.view());
        // The doorbell let in what the ring has.
        self.ring.set_tail(tail);
        let limit = FETCH_MAX.min(self.free.len()).min(self.fetches_left);
        let Some((address, count)) = self.ring.next(u32::try_from(limit).unwrap_or(0)) else {
            return;
        };
        self.ring.take(count);
        let known = self.events.len();
        let (entries, free, events) = (&mut self.entries, &mut self.free, &mut self.events);
        let windows = self.sight.windows();
        let read = windows.entries(address, count as usize, |words: [u64; SQE_WORDS]| {
            if let Some(slot) = free.pop()
                && let Some(entry) = entries.get_mut(slot.index())
            {
                entry.stage = Stage::Outstanding;
                entry.sqe = zerocopy::transmute!(words);
                entry.buffer = None;
                events.push_back(LinkEvent::Command { slot });
            }
        });
        // Some of them may be zeros that the guest never wrote, also where the loss was met behind them.
        if self.sight.windows().loss().has_happened() {
            for event in self.events.split_off(known) {
                if let LinkEvent::Command { slot } = event {
                    self.release(slot);
                }
            }
        }
        match read {
            Ok(()) => {
                self.fetches_left -= count as usize;
                self.wire.received += u64::from(count) * SQE_BYTES as u64;
            }
            Err(fault) => self.complain(
                fault,
                "entries of a submission queue cannot be read: they are passed over",
            ),
        }
    }

    fn release(&mut self, slot: Slot) {
        // Its next command's data go elsewhere.
        self.placed.take_if(|of| *of == slot);
        if let Some(entry) = self.entries.get_mut(slot.index()) {
            entry.stage = Stage::Free;
            entry.buffer = None;
            self.free.push(slot);
        }
    }

    pub(crate) fn slots(&self) -> u16 {
        u16::try_from(self.entries.len()).unwrap_or(u16::MAX)
    }

    pub(crate) fn transfer_bytes_max(&self) -> u32 {
        self.transfer_bytes_max
    }

    pub(crate) fn command(&self, slot: Slot) -> &Sqe {
        self.entries
            .get(slot.index())
            .map_or(&Sqe::ZERO, |entry| &entry.sqe)
    }

    /// Admin commands take PRPs alone (PCIe Transport, "Physical Region Page and Scatter Gather List usage"), and fabrics commands are none of PCIe's. There are no metadata,
    /// whose place PSDT says as well.
    pub(crate) fn transfer(&self, slot: Slot) -> Transfer {
        let sqe = self.command(slot);
        if sqe.opcode == AdminOpcode::FABRICS.0 {
            return Transfer::Refused(Status::INVALID_OPCODE.dnr());
        }
        let refused = Transfer::Refused(Status::INVALID_FIELD.dnr());
        match (sqe.psdt(), sqe.direction()) {
            (1..=3, _) if self.submissions.id.is_admin() => refused,
            (3, _) => refused,
            (_, Direction::None) => Transfer::None,
            _ => Transfer::InMemory,
        }
    }

    pub(crate) fn find(&self, cid: Cid) -> Option<Slot> {
        let is_it = |slot: &Slot| self.command(*slot).cid() == cid;
        self.outstanding().find(is_it)
    }

    pub(crate) fn outstanding(&self) -> impl Iterator<Item = Slot> + '_ {
        (0..self.slots()).map(Slot).filter(|slot| {
            let entry = self.entries.get(slot.index());
            entry.is_some_and(|entry| entry.stage == Stage::Outstanding)
        })
    }

    pub(crate) fn set_buffer(&mut self, slot: Slot, buf: IoBuf) {
        if let Some(entry) = self.entries.get_mut(slot.index()) {
            entry.buffer = Some(buf);
        }
    }

    pub(crate) fn take_buffer(&mut self, slot: Slot) -> Option<IoBuf> {
        self.entries.get_mut(slot.index())?.buffer.take()
    }

    pub(crate) fn owe(&mut self, slot: Slot, bytes: u32) {
        self.owed.enter(slot, bytes);
    }

    pub(crate) fn owed_bytes(&self) -> u64 {
        self.owed.bytes()
    }

    pub(crate) fn take_wire(&mut self) -> Wire {
        std::mem::take(&mut self.wire)
    }

    /// Answers a command: its data, then its entry.
    pub(crate) fn respond(&mut self, slot: Slot, completion: Completion, data_bytes: u32) {
        let Some(entry) = self.entries.get_mut(slot.index()) else {
            return;
        };
        let (stage, buffer) = (entry.stage, entry.buffer.take());
        if matches!(stage, Stage::Free | Stage::Moving) {
            return;
        }
        // Its data are not waited for any more.
        self.moves.remove(slot);
        self.forget_data_events(slot);
        if stage == Stage::Forgotten {
            self.owed.settle(slot);
            return self.release(slot);
        }
        self.refresh();
        let is_read = data_bytes > 0 && completion.status.is_success();
        if let Some(buffer) = buffer.filter(|_| is_read) {
            let data = buffer.slice(0..data_bytes as usize);
            self.set_stage(slot, Stage::Moving);
            if let Some(completion) = self.hand_over(slot, data, completion) {
                self.answer(slot, completion);
            }
        } else {
            self.answer(slot, completion);
        }
    }

    /// Whoever waits for the data of a command that the host sends is told of them no more.
    fn forget_data_events(&mut self, slot: Slot) {
        if !self.events.is_empty() && self.command(slot).direction() == Direction::HostToController
        {
            self.events.retain(|event| !matches!(event, LinkEvent::DataReady { slot: of } | LinkEvent::DataFailed { slot: of, .. } if *of == slot));
        }
    }

    fn set_stage(&mut self, slot: Slot, stage: Stage) {
        if let Some(entry) = self.entries.get_mut(slot.index()) {
            entry.stage = stage;
        }
    }

    /// A command's data are where they belong: now its entry.
    fn answer(&mut self, slot: Slot, completion: Completion) {
        self.owed.settle(slot);
        let cid = self.command(slot).cid();
        self.release(slot);
        // It comes behind those that wait for room.
        self.held.push_back(Held::of(cid, completion));
        if self.posts_now() {
            self.post();
        }
    }

    /// Whether answers wait for no others: a line of the completion queue is full of them, which goes to the client's processor as a whole, each time anew where that
    /// looks there meanwhile; or no command is left that would bring another; or much was moved for them. The others of a turn follow at its end.
    fn posts_now(&self) -> bool {
        self.submissions.id.is_admin()
            || self.free.len() == self.entries.len()
            || self.moved_bytes >= HELD_BYTES_MAX
            || self.held.len() >= self.completions.left_of_line()
    }

    /// Puts answers that wait into the completion queue, as far as it has room.
    pub(crate) fn post(&mut self) {
        self.moved_bytes = 0;
        while let Some(held) = self.held.pop_front() {
            if !self.push(held.cid(), &held.completion()) {
                return self.held.push_front(held);
            }
        }
    }

    /// Puts an answer into the completion queue; false where that has no room.
    fn push(&mut self, cid: Cid, completion: &Completion) -> bool {
        let of = Of {
            queue: self.submissions.id,
            head: self.ring.head(),
            cid,
        };
        match self.completions.push(&self.sight, of, completion) {
            Ok(true) => self.posted += 1,
            Ok(false) => return false,
            Err(fault) => self.complain(fault, "an answer has no place in guest memory"),
        }
        true
    }

    /// Posts what there is room for now, and tells the guest of what was posted since it was last told.
    pub(crate) fn settle(&mut self) {
        self.refresh();
        // Beyond the turn.
        self.forget_place();
        self.fetches_left = FETCHES_A_TURN;
        self.post();
        self.tell(true);
        self.look_or_trap();
    }

    /// Tells the host of answers; of those of I/O queues, where it has them wait for others and nothing else asks for haste, when it is time.
    pub(crate) fn tell(&mut self, may_wait: bool) {
        let posted = std::mem::take(&mut self.posted);
        if let Some(vector) = self.completions.vector() {
            let waits = may_wait && !self.submissions.id.is_admin();
            self.sight.posted(&mut self.delay, vector, posted, waits);
        }
    }

    /// When [`Queue::settle`] has something to tell of.
    pub(crate) fn tells_at(&self) -> Option<Instant> {
        self.delay.until()
    }

    /// Goes on looking for the guest's doorbell in its memory, or has the guest ring it.
    fn look_or_trap(&mut self) {
        self.looking.is_on = false;
        // Who has entries left, or no slots, comes here again.
        if !self.submissions.is_shadowed() || self.ring.filled() > 0 || self.free.is_empty() {
            return;
        }
        let now = Instant::now();
        let tail = self.submissions.tail.load(Ordering::Acquire);
        if self.looking.told.is_none_or(|(told, _)| told != tail) {
            self.looking.until = Some(now + LOOK_TIME);
        }
        let is_to_trap = self.looking.until.is_none_or(|until| now >= until);
        let doorbell = self.submissions.doorbell();
        if self.looking.told != Some((tail, is_to_trap)) {
            let view = self.sight.view();
            match is_to_trap {
                true => view.trap_after(doorbell, tail),
                false => view.trap_no_more(doorbell, tail, self.submissions.entries),
            }
            self.looking.told = Some((tail, is_to_trap));
        }
        if is_to_trap {
            // The guest writes its word, then looks where it is to trap; here the other way round. One of both sees the other.
            fence(Ordering::SeqCst);
            self.ring.set_tail(self.submissions.tail(self.sight.view()));
        }
        self.looking.is_on = !is_to_trap;
    }
}
