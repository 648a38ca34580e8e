//! One reactor's way to its namespaces: requests in, answers out.

mod ahead;
mod changes;
mod config;
mod ending;
mod framed;
mod mixed;
mod now;
mod overdue;
mod request;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use reactor::Ring;
use reactor::buf::IoBuf;
use store::{Completion, Terms};
use telemetry::{NamespaceCounters, ReactorTelemetry};
use volume::ReadOp;

use crate::ahead::Fetches;
use crate::attached::{Parked, WaitsFor, whole};
use crate::attachments::Attachments;
use crate::compound::{self, Compound, Saves};
use crate::frames::{Frames, Peer};
use crate::limits::REQUESTS_MAX;
use crate::parts::Parts;
use crate::raw::{buffer_of, check, raw_work, submit_raw};
use crate::shared::Backing;
use crate::view::ViewRead;
use crate::{
    AccessGate, Answer, Asked, Done, Io, Namespace, NamespaceError, NamespaceKey, NamespaceSet,
};
pub use config::{EngineConfig, EngineError};
use now::Carried;
use overdue::Look;
use request::parts_of;
pub(crate) use request::{Entry, Request, Step, Work, token_of};

/// See the crate's documentation.
pub struct Engine {
    ring: Ring,
    frames: Frames,
    fetches: Fetches,
    ahead_bytes: usize,
    pub(crate) attached: Attachments,
    pub(crate) parts: Parts,
    pub(crate) requests: Vec<Request>,
    free: Vec<usize>,
    /// Namespaces with parked requests, in the order in which they are looked at.
    waiting: VecDeque<usize>,
    done: Vec<Done>,
    completions: Vec<Completion>,
    /// Requests of several parts that go on with the next poll.
    pub(crate) ready: Vec<usize>,
    /// Requests that wait until they can keep other writes out.
    pub(crate) excluding: Vec<usize>,
    pub(crate) saves: Saves,
    /// Requests that wait until keepers have less to save.
    pub(crate) unsaved: Vec<usize>,
    look: Look,
    /// What was begun since the last look may have ended without an event.
    pub(crate) again: bool,
}

impl Engine {
    /// An engine on this thread's ring, with handles to every namespace of the set.
    ///
    /// # Errors
    /// A store that gives no handle, or memory that cannot be had.
    pub fn new(
        ring: &Ring,
        set: &NamespaceSet,
        config: &EngineConfig,
    ) -> Result<Self, EngineError> {
        let mut engine = Self {
            ring: ring.clone(),
            frames: Frames::new(ring, &config.frames),
            fetches: Fetches::default(),
            ahead_bytes: config.ahead_bytes(),
            attached: Attachments::default(),
            parts: Parts::new(ring, config)?,
            requests: Vec::new(),
            free: Vec::new(),
            waiting: VecDeque::new(),
            done: Vec::new(),
            completions: Vec::new(),
            ready: Vec::new(),
            excluding: Vec::new(),
            saves: Saves::new(ring, config.keep_patience)?,
            unsaved: Vec::new(),
            look: Look::new(ring)?,
            again: false,
        };
        for namespace in set.all() {
            engine.attach(namespace)?;
        }
        Ok(engine)
    }

    /// Reaches this engine's frames from others' threads.
    #[must_use]
    pub fn peer(&self) -> Peer {
        self.frames.peer()
    }

    /// Shares frames with other engines from now on: each frame has one of them as its home, by its hash. `peers` are those of all engines over the
    /// same namespaces, by their number; `reactor` is this one's. To be called before the first request.
    pub fn meet(&mut self, reactor: u16, peers: &[Peer]) {
        self.parts.reactor = reactor;
        self.frames.meet(reactor, peers);
    }

    /// Whether something is to be done that no event will bring about: decoding for which a turn had no time, or a message that found
    /// its channel full. Then the ring must not sleep before the next [`Engine::poll`].
    #[must_use]
    pub fn has_work(&self) -> bool {
        self.frames.has_work() || self.again || !self.ready.is_empty()
    }

    /// How the cache did.
    #[must_use]
    pub fn cache_counters(&self) -> volume::CacheCounters {
        self.parts.cache.counters()
    }

    /// Bytes in the cache that were fetched ahead and that nobody has read, by looking at each.
    #[must_use]
    pub fn unread_bytes(&self) -> usize {
        self.parts.cache.unread_bytes()
    }

    /// Where it counts what it does.
    #[must_use]
    pub fn telemetry(&self) -> &Arc<ReactorTelemetry> {
        &self.parts.telemetry
    }

    /// The counters of all its namespaces together.
    #[must_use]
    pub fn counters(&self) -> NamespaceCounters {
        self.parts.telemetry.namespace_counters()
    }

    /// Brings what telemetry says of its pools and its cache up to date.
    pub fn publish(&self) {
        self.parts.publish();
    }

    /// A buffer for data that a host is about to send; `None`: retry when such buffers were given back.
    #[must_use]
    pub fn alloc(&self, len: usize) -> Option<IoBuf> {
        self.parts.incoming.alloc(len)
    }

    /// Whether one who holds `held_bytes` of answers that travel to a host, or are being made, should ask for `bytes` more: at most as much as is
    /// left for the others, and one answer always.
    #[must_use]
    pub fn has_room(&self, held_bytes: u64, bytes: u32) -> bool {
        let left = self.parts.free_answer_bytes(bytes as usize) as u64;
        held_bytes == 0 || held_bytes + u64::from(bytes) <= left
    }

    /// Most segments of a request's data that are a view of memory which others change: its store has read or written them when it has taken them, and keeps none of it.
    /// 0: it takes no such views.
    #[must_use]
    pub fn lent_segments_max(&self, key: NamespaceKey) -> usize {
        let found = self.attached.find(key);
        found.map_or(0, |index| self.attached[index].lent_segments_max)
    }

    /// Who may do what with a namespace; none where it is not attached.
    #[must_use]
    pub fn access(&self, key: NamespaceKey) -> Option<&AccessGate> {
        let index = self.attached.find(key)?;
        Some(&self.attached[index].shared.access)
    }

    /// Whether requests are in flight or parked.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.free.len() < self.requests.len()
    }

    /// Takes a request. The answer is returned where it is there at once (the store's bytes lie in memory, or the request cannot be), and
    /// comes from [`Engine::poll`] otherwise.
    ///
    /// A request that waits until its deadline, here or in a store that waits, is answered as [`NamespaceError::NotInTime`], or with what its store
    /// says of it.
    pub fn submit(&mut self, key: NamespaceKey, mut io: Io, asked: Asked) -> Option<Done> {
        let buf = match self.ask(key, &mut io, asked) {
            Answer::Later => return None,
            Answer::Now(done) => return Some(done),
            Answer::Lent(buf) => Some(buf),
            Answer::Out => buffer_of(io),
        };
        Some(Done {
            token: asked.token,
            buf,
            result: Ok(()),
        })
    }

    /// As [`Engine::submit`], of a request that is moved only where it takes time: what is carried out at once leaves it, its buffer among it, where it is.
    pub fn ask(&mut self, key: NamespaceKey, io: &mut Io, asked: Asked) -> Answer {
        let Asked {
            token, snapshot, ..
        } = asked;
        let found = self.attached.find(key);
        let Some(index) = found.filter(|index| !self.attached[*index].retired) else {
            return refused(token, io, NamespaceError::Detached { key });
        };
        let namespace = &self.attached[index].shared;
        if let Err(error) = check(namespace, io) {
            return refused(token, io, error);
        }
        if let Some(error) = marked(namespace, io) {
            return refused(token, io, error);
        }
        let index = self.routed(index, io);
        match self.carry_out(index, io, snapshot) {
            Carried::No => {
                let io = std::mem::replace(io, Io::Flush);
                self.begin(index, io, asked)
                    .map_or(Answer::Later, Answer::Now)
            }
            Carried::Lent(buf) => Answer::Lent(buf),
            Carried::Out => Answer::Out,
            Carried::Failed(error) => Answer::Now(self.failed(index, token, *error)),
        }
    }

    /// Begins a request that takes a slot.
    fn begin(&mut self, index: usize, io: Io, asked: Asked) -> Option<Done> {
        let Asked {
            token,
            reader,
            deadline,
            ..
        } = asked;
        let namespace = self.attached[index].shared.clone();
        let noted_bytes = self.note_read(index, reader, &io);
        let slot = self.take_slot(index, token, deadline);
        self.requests[slot].noted_bytes = noted_bytes;
        self.requests[slot].is_write = matches!(io, Io::Write { .. });
        let delivers = matches!(io, Io::Read { .. } | Io::ReadDurable { .. });
        // Before it is looked for marks: none that comes later is missed.
        let since = namespace.marks.since_now();
        let steps = compound::steps(&namespace, io);
        self.requests[slot].work = match (&namespace.backing, steps) {
            (_, Ok(steps)) => Work::Compound(Box::new(Compound::new(steps, delivers, since))),
            (Backing::Raw(_), Err(io)) => raw_work(&namespace, io),
            (Backing::View { volume, .. }, Err(Io::Read { lba, blocks, into })) => Work::View(
                ViewRead::new(&namespace, volume, lba, blocks, into, deadline),
            ),
            // `check` refused writes to views; `steps` took what several parts have.
            (Backing::View { .. } | Backing::Mixed(_), _) => Work::Free,
        };
        self.advance(slot);
        // What is asked for stands before what is not.
        self.fetch_ahead(index);
        if !self.parts.wanted.is_empty() {
            self.serve_frames();
        }
        self.look_again();
        self.take_done(token)
    }

    /// Takes what the stores completed, lets parked requests go on, and appends the answers.
    pub fn poll(&mut self, done: &mut Vec<Done>) {
        self.look_at_the_clock();
        self.leave_gates();
        let mut is_closing = false;
        for index in 0..self.attached.places() {
            let attached = self.attached.get_mut(index);
            let Some(attached) = attached.filter(|attached| attached.is_to_be_polled()) else {
                continue;
            };
            is_closing |= attached.closing;
            self.poll_stores(index);
        }
        self.again = false;
        self.drive_compounds();
        self.fetches.again = false;
        self.fetch_ordered();
        // Frames give memory back that requests wait for, and requests that go on want frames.
        loop {
            let served = self.serve_frames();
            let retried = self.retry_parked();
            self.again |= retried;
            if !served && !retried {
                break;
            }
        }
        // What was handed to a store since it was polled may have ended without an event.
        self.again |= self.attached.has_unpolled() || self.fetches.again;
        if is_closing {
            self.let_closed_go();
        }
        self.look_again();
        done.append(&mut self.done);
    }

    fn poll_stores(&mut self, index: usize) {
        let mut completions = std::mem::take(&mut self.completions);
        self.attached[index].is_unpolled = false;
        for source in 0..self.attached[index].stores.len() {
            self.attached[index].stores[source].poll(&mut completions);
            // Before anybody is told of what came.
            self.attached[index].count_wire();
            for completion in completions.drain(..) {
                let attached = &mut self.attached[index];
                attached.operation_ended(completion.token);
                let others = self.frames.completed(attached, completion);
                let others = others.and_then(|completion| {
                    self.fetches
                        .completed(attached, &mut self.parts, completion)
                });
                if let Some(completion) = others {
                    let completion = self.parts.fills.completed(index, completion);
                    self.completed(index, completion);
                }
            }
        }
        self.completions = completions;
    }

    pub(crate) fn take_slot(
        &mut self,
        attached: usize,
        token: u64,
        deadline: Option<Instant>,
    ) -> usize {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.requests.push(Request {
                attached,
                token,
                deadline,
                work: Work::Free,
                parent: None,
                entry: Entry::Outside,
                answer_bytes: 0,
                noted_bytes: 0,
                was_parked: false,
                is_write: false,
                is_abandoned: false,
                op: None,
            });
            self.requests.len() - 1
        });
        debug_assert!(slot < REQUESTS_MAX, "queue depths bound the requests");
        self.attached[attached].requests += 1;
        self.requests[slot].attached = attached;
        self.requests[slot].token = token;
        self.requests[slot].deadline = deadline;
        self.requests[slot].was_parked = false;
        slot
    }

    fn take_done(&mut self, token: u64) -> Option<Done> {
        (self.done.last()?.token == token).then(|| self.done.pop())?
    }

    /// Lets a request go on from where it stands.
    pub(crate) fn advance(&mut self, slot: usize) {
        if let Some(step) = self.go_on(slot) {
            self.settle(slot, step);
        }
    }

    /// How far a request comes now; none where it does not wait for the engine.
    fn go_on(&mut self, slot: usize) -> Option<Step> {
        let request = &mut self.requests[slot];
        let attached = &mut self.attached[request.attached];
        let step = match std::mem::replace(&mut request.work, Work::Submitted) {
            Work::Raw(raw) => submit_raw(
                attached,
                &mut self.parts,
                slot,
                raw,
                Terms::by(request.deadline),
                &mut request.work,
                &mut request.entry,
            ),
            Work::Compound(compound) => self.drive(slot, compound),
            Work::View(mut read) => {
                let op = request.op.get_or_insert_with(|| Box::new(ReadOp::new()));
                let step = read.advance(op, attached, &mut self.parts, slot);
                if !matches!(step, Step::Done(_)) {
                    request.work = Work::View(read);
                }
                step
            }
            other => {
                request.work = other;
                return None;
            }
        };
        Some(step)
    }

    /// Counts the memory that a request was given while it went on, and tells the others where they have to know; returns its namespace's place.
    fn account(&mut self, slot: usize) -> usize {
        if std::mem::take(&mut self.parts.wake_peers) {
            self.frames.wake_peers();
        }
        let granted = std::mem::take(&mut self.parts.granted);
        let index = self.requests[slot].attached;
        self.requests[slot].answer_bytes += granted;
        self.attached[index].answer_bytes += granted;
        index
    }

    fn settle(&mut self, slot: usize, step: Step) {
        let index = self.account(slot);
        match step {
            Step::Done(result) => self.finish(slot, result),
            Step::Waiting => {}
            Step::Parked(of) => {
                let attached = &mut self.attached[index];
                if !std::mem::replace(&mut attached.parked.is_looked_at, true) {
                    self.waiting.push_back(index);
                }
                if self.requests[slot].entry == Entry::Exempt {
                    // Those that it keeps out must not stand in its way.
                    attached.parked.queue(of).push_front(slot);
                } else {
                    attached.parked.queue(of).push_back(slot);
                }
                if !std::mem::replace(&mut self.requests[slot].was_parked, true) {
                    attached.row.parked.add(1);
                }
            }
        }
    }

    fn finish(&mut self, slot: usize, result: Result<Option<IoBuf>, NamespaceError>) {
        let request = &mut self.requests[slot];
        request.work = Work::Free;
        if std::mem::take(&mut request.is_abandoned)
            && self.attached[request.attached].shared.fence.lower()
        {
            // Writes that waited for it go on: here with this turn, elsewhere when they are woken.
            self.frames.wake_peers();
        }
        let gate = &self.attached[request.attached].shared.gate;
        let is_next_turn = match std::mem::replace(&mut request.entry, Entry::Outside) {
            Entry::Inside if gate.leave(self.parts.reactor) => {
                self.frames.wake_peers();
                false
            }
            Entry::Excludes => {
                gate.open();
                true
            }
            Entry::InLine(ticket) => {
                gate.withdraw(ticket);
                true
            }
            Entry::KeptOut => gate.end_wait(),
            Entry::Outside | Entry::Inside | Entry::Exempt => false,
        };
        if is_next_turn {
            // Those that waited here go on with the next poll.
            self.again = true;
            self.frames.wake_peers();
        }
        let answer_bytes = std::mem::take(&mut request.answer_bytes);
        let noted_bytes = std::mem::take(&mut request.noted_bytes);
        let attached = &mut self.attached[request.attached];
        attached.answer_bytes -= answer_bytes;
        if let Some(ahead) = attached.ahead.as_mut().filter(|_| noted_bytes > 0) {
            ahead.machine.read_ended(noted_bytes);
        }
        attached.requests -= 1;
        let (first_lba, lba_bytes) = (attached.first_lba, attached.shared.lba_bytes);
        let result = result.map_err(|error| error.behind(first_lba, lba_bytes));
        if let Some(parent) = request.parent.take() {
            self.free.push(slot);
            return self.part_ended(parent, result);
        }
        let (buf, result) = match result {
            Ok(buf) => (buf, Ok(())),
            Err(error) => {
                attached.note_damage(&error);
                (None, Err(error))
            }
        };
        self.done.push(Done {
            token: request.token,
            buf,
            result,
        });
        self.free.push(slot);
    }

    fn completed(&mut self, attached: usize, completion: Completion) {
        let (slot, fetch) = parts_of(completion.token);
        let Some(request) = self.requests.get_mut(slot) else {
            return;
        };
        match std::mem::replace(&mut request.work, Work::Submitted) {
            Work::View(mut read) => {
                let op = request.op.get_or_insert_with(|| Box::new(ReadOp::new()));
                let step = read.completed(
                    op,
                    &mut self.attached[attached],
                    &mut self.parts,
                    slot,
                    fetch,
                    completion,
                );
                if !matches!(step, Step::Done(_)) {
                    request.work = Work::View(read);
                }
                self.settle(slot, step);
            }
            _ => {
                let attached = &self.attached[attached];
                // A part's bytes are handed to nobody but its request.
                let is_delivered = !request.is_write && request.parent.is_none();
                let result = whole(attached.shared.nsid, completion).inspect(|buf| {
                    if let Some(buf) = buf.as_ref().filter(|_| is_delivered) {
                        attached.row.delivered_bytes.add(buf.len() as u64);
                    }
                });
                self.finish(slot, result);
            }
        }
    }

    /// Lets parked requests go on, those of each namespace in their order; true when one did.
    fn retry_parked(&mut self) -> bool {
        let mut retried = false;
        for _ in 0..self.waiting.len() {
            let Some(index) = self.waiting.pop_front() else {
                break;
            };
            for of in Parked::BOTH {
                retried |= self.retry_queue(index, of);
            }
            let parked = &mut self.attached[index].parked;
            parked.is_looked_at = !parked.is_empty();
            if parked.is_looked_at {
                self.waiting.push_back(index);
            }
        }
        retried
    }

    fn retry_queue(&mut self, index: usize, of: WaitsFor) -> bool {
        let mut retried = false;
        while let Some(slot) = self.attached[index].parked.queue(of).front().copied() {
            match self.go_on(slot) {
                // Those behind it wait for the same as a rule, and keep their order.
                Some(Step::Parked(still)) if still == of => {
                    self.account(slot);
                    break;
                }
                step => {
                    self.attached[index].parked.queue(of).pop_front();
                    if let Some(step) = step {
                        self.settle(slot, step);
                    }
                    retried = true;
                }
            }
        }
        retried
    }
}

#[cold]
fn refused(token: u64, io: &mut Io, error: NamespaceError) -> Answer {
    Answer::Now(Done {
        token,
        buf: buffer_of(std::mem::replace(io, Io::Flush)),
        result: Err(error),
    })
}

/// Why blocks cannot be read, where they are marked.
fn marked(namespace: &Namespace, io: &Io) -> Option<NamespaceError> {
    let (Io::Read { lba, blocks, .. } | Io::ReadDurable { lba, blocks }) = io else {
        return None;
    };
    let lba = namespace.marks.first_of(*lba, u64::from(*blocks))?;
    let nsid = namespace.nsid;
    Some(NamespaceError::Uncorrectable { nsid, lba })
}
