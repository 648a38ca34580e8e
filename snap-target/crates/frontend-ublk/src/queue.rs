//! One queue: requests from the driver, to the engine, and their ends back.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Instant;

use namespace::{Asked, Done, Engine, Found, Io, NamespaceError, ReaderId};
use reactor::buf::IoBuf;
use reactor::{Errno, Fd, Owner, OwnerId, Ring, WriteMode};
use ublk::{ABORTED, Descriptors, IoCommand, copy_offset};

use crate::disk::Disk;
use crate::limits::{DETACHED_PATIENCE, REQUEST_PATIENCE};
use crate::order::{QueueId, Start};
use crate::request::Request;

/// Readers of queues are told from those of controllers, and of other frontends.
const READERS: u64 = 2 << 32;

/// What events of a queue's owner are: the upper part of their tag; the lower one is the request's.
const FETCHED: u64 = 0;
const COPIED: u64 = 1;
const TIMER: u64 = 2;
const KIND_SHIFT: u32 = 16;

/// How requests of a share are named at the engine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tokens {
    pub(crate) make: fn(u32, u16) -> u64,
}

/// A tag of the queue, and its request.
#[derive(Debug)]
struct Tag {
    request: Request,
    /// What is moved.
    data: IoBuf,
    /// Bytes of it that have been copied from the request, or to it.
    copied: u32,
    deadline: Option<Instant>,
}

/// What found the ring full.
#[derive(Clone, Copy, Debug)]
enum Step {
    Fetch,
    Copy,
    Commit(i32),
}

#[derive(Debug)]
pub(crate) struct Queue {
    id: QueueId,
    name: String,
    tokens: Tokens,
    number: u16,
    owner: Owner,
    file: Fd,
    descriptors: Descriptors,
    disk: Arc<Disk>,
    /// What was found at the namespace's gate.
    found: Found,
    tags: Vec<Tag>,
    /// Tags whose requests we have begun.
    begun: usize,
    /// Tags whose requests are left to the next server.
    left: usize,
    /// Tags that the driver has ended.
    ended: usize,
    /// What found the ring full.
    refused: VecDeque<(u16, Step)>,
    /// Writes that found no memory, the longest waiting first.
    starved: VecDeque<u16>,
    /// When the timer comes by which the first of them fails.
    starved_until: Option<Instant>,
    /// Memory was given back since [`Queue::settle`] began.
    has_freed: bool,
    /// Requests whose next step is the engine's.
    ready: VecDeque<u16>,
    /// Requests that found the namespace gone: another one may be about to take its place.
    detached: Vec<u16>,
    /// When they fail.
    detached_until: Option<Instant>,
    has_complained: bool,
    drains: bool,
    drained: Option<SyncSender<()>>,
    at_end: Vec<SyncSender<()>>,
}

impl Queue {
    pub(crate) fn new(ring: &Ring, tokens: Tokens, start: Start) -> Result<Self, String> {
        let owner = ring.register().map_err(|error| error.to_string())?;
        let free = || Tag {
            request: Request::Flush,
            data: IoBuf::empty(),
            copied: 0,
            deadline: None,
        };
        let mut queue = Self {
            id: start.id,
            name: start.name,
            tokens,
            number: start.number,
            owner,
            // The driver takes memory of the process, and no registered buffers.
            file: Fd::from(start.file).plain(),
            descriptors: start.descriptors,
            disk: start.disk,
            found: Found::default(),
            tags: (0..start.depth).map(|_| free()).collect(),
            begun: 0,
            left: 0,
            ended: 0,
            refused: VecDeque::new(),
            starved: VecDeque::new(),
            starved_until: None,
            has_freed: false,
            ready: VecDeque::new(),
            detached: Vec::new(),
            detached_until: None,
            has_complained: false,
            drains: false,
            drained: None,
            at_end: Vec::new(),
        };
        for tag in 0..start.depth {
            queue.step(tag, Step::Fetch);
        }
        Ok(queue)
    }

    pub(crate) fn owner_id(&self) -> OwnerId {
        self.owner.id()
    }

    /// The driver has ended it, and nothing of it is under way.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended + self.left == self.tags.len()
    }

    /// Whether its last [`Queue::settle`] gave memory back.
    pub(crate) fn has_freed(&self) -> bool {
        self.has_freed
    }

    /// Whether writes wait for memory.
    pub(crate) fn is_starved(&self) -> bool {
        !self.starved.is_empty()
    }

    /// Begins no request any more.
    pub(crate) fn drain(&mut self, answer: SyncSender<()>) {
        self.drains = true;
        self.drained = Some(answer);
    }

    pub(crate) fn tell_end(&mut self, answer: SyncSender<()>) {
        self.at_end.push(answer);
    }

    /// The disk has become another one of the same content; what found the last one gone goes there.
    pub(crate) fn set_disk(&mut self, disk: Arc<Disk>) {
        self.disk = disk;
        self.detached_until = None;
    }

    /// Takes in what the ring has for it.
    pub(crate) fn ready(&mut self, engine: &mut Engine) {
        while let Some(event) = self.owner.next_event() {
            // The lower part is a tag.
            let tag = u16::try_from(event.tag & 0xFFFF).unwrap_or(0);
            match event.tag >> KIND_SHIFT {
                FETCHED => self.fetched(tag, event.result, engine),
                COPIED => self.copied(tag, event.result),
                _ => {}
            }
        }
    }

    /// Goes on with what waits. True: the next turn may not wait.
    pub(crate) fn settle(&mut self, engine: &mut Engine) -> bool {
        self.has_freed = false;
        for _ in 0..self.refused.len() {
            if let Some((tag, step)) = self.refused.pop_front() {
                self.step(tag, step);
            }
        }
        while let Some(tag) = self.ready.pop_front() {
            self.submit(tag, engine);
        }
        // Those that go on wait for memory behind the others, which are looked at next.
        self.look_at_detached(engine);
        self.look_at_starved(engine);
        if self.begun == 0
            && let Some(answer) = self.drained.take()
        {
            // Whoever asked may have given up.
            let _told = answer.send(());
        }
        if self.has_ended() {
            // All queues of a device end together: one tells.
            if !self.drains && self.at_end.is_empty() && self.number == 0 {
                tracing::warn!(
                    queue = self.name,
                    "the kernel has ended this device's queues, which the daemon did not ask for: somebody has deleted or quiesced it"
                );
            }
            for answer in self.at_end.drain(..) {
                let _told = answer.send(());
            }
        }
        !self.refused.is_empty() || !self.ready.is_empty()
    }

    /// A fetch has ended: with a request, or because the driver has ended the queue.
    fn fetched(&mut self, tag: u16, result: Result<u32, Errno>, engine: &mut Engine) {
        match result {
            Ok(0) if self.drains => self.left += 1,
            Ok(0) => self.begin(tag, engine),
            other => {
                if other != Err(ABORTED) {
                    self.complain(&format!("the driver answers a fetch with {other:?}"));
                }
                self.ended += 1;
            }
        }
    }

    fn begin(&mut self, tag: u16, engine: &mut Engine) {
        self.begun += 1;
        let Some(descriptor) = self.descriptors.get(tag) else {
            return self.finish(tag, Err(Errno::EIO));
        };
        let request = match Request::of(&descriptor, &self.disk) {
            Ok(request) => request,
            Err(why) => {
                self.complain(&format!("a request is refused ({why}): {descriptor:?}"));
                return self.finish(tag, Err(why));
            }
        };
        let Some(slot) = self.tags.get_mut(usize::from(tag)) else {
            return;
        };
        slot.request = request;
        slot.copied = 0;
        slot.deadline = Some(Instant::now() + REQUEST_PATIENCE);
        match request {
            Request::Write { .. } => self.stage(tag, engine),
            _ => self.submit(tag, engine),
        }
    }

    /// Whether reservations and write protection of the namespace let a request through: the machine is a host without an identity.
    fn permit(&mut self, request: &Request, engine: &Engine) -> Result<(), Errno> {
        let Some(gate) = engine.access(self.disk.key) else {
            return Ok(());
        };
        let permitted = gate.permit_stranger(request.opcode(), &mut self.found);
        // What the kernel makes a reservation conflict of.
        permitted.map_err(|_| Errno::EBADE)
    }

    /// Gets the data of a write; where there is no memory for them, it waits, behind those that do.
    fn stage(&mut self, tag: u16, engine: &Engine) {
        if self.is_starved() || !self.take_memory(tag, engine) {
            self.starved.push_back(tag);
        }
    }

    fn take_memory(&mut self, tag: u16, engine: &Engine) -> bool {
        let Some(slot) = self.tags.get_mut(usize::from(tag)) else {
            return true;
        };
        let Some(staging) = engine.alloc(slot.request.bytes() as usize) else {
            return false;
        };
        slot.data = staging;
        slot.copied = 0;
        self.step(tag, Step::Copy);
        true
    }

    /// Writes that wait for memory get it, or fail when it has not come by their deadline.
    fn look_at_starved(&mut self, engine: &Engine) {
        while let Some(tag) = self.starved.front().copied()
            && self.take_memory(tag, engine)
        {
            self.starved.pop_front();
        }
        if !self.is_starved() {
            return;
        }
        let now = Instant::now();
        let deadline = |tags: &[Tag], tag: u16| {
            let slot = tags.get(usize::from(tag));
            slot.and_then(|slot| slot.deadline).unwrap_or(now)
        };
        let (late, waiting): (VecDeque<u16>, VecDeque<u16>) = std::mem::take(&mut self.starved)
            .into_iter()
            .partition(|tag| deadline(&self.tags, *tag) <= now);
        let first = waiting.iter().map(|tag| deadline(&self.tags, *tag)).min();
        self.starved = waiting;
        for tag in late {
            self.complain("a write found no memory in time");
            self.finish(tag, Err(Errno::EIO));
        }
        self.starved_until = self.starved_until.filter(|armed| *armed > now);
        if let Some(first) = first
            && self.starved_until.is_none_or(|armed| armed > first)
            && self.owner.timer(first, TIMER << KIND_SHIFT).is_ok()
        {
            self.starved_until = Some(first);
        }
    }

    /// Hands a request to the engine, where it is permitted now: it may have waited for memory, or for its namespace.
    fn submit(&mut self, tag: u16, engine: &mut Engine) {
        let Some(request) = self.tags.get(usize::from(tag)).map(|slot| slot.request) else {
            return;
        };
        if let Err(why) = self.permit(&request, engine) {
            self.complain(&format!("a request is refused ({why}): {request:?}"));
            return self.finish(tag, Err(why));
        }
        if request == (Request::Discard { range: None }) {
            return self.finish(tag, Ok(0));
        }
        let Some(slot) = self.tags.get_mut(usize::from(tag)) else {
            return;
        };
        let io = match slot.request {
            Request::Read { lba, bytes } => Io::Read {
                lba,
                blocks: bytes / self.disk.block_bytes,
                into: None,
            },
            Request::Write { lba, durable, .. } => Io::Write {
                lba,
                data: std::mem::take(&mut slot.data),
                durable,
            },
            Request::Flush => Io::Flush,
            Request::Discard { range } => Io::Deallocate {
                ranges: range.into_iter().collect(),
            },
            Request::WriteZeroes {
                lba,
                blocks,
                unmap,
                durable,
            } => Io::WriteZeroes {
                lba,
                blocks,
                deallocate: unmap,
                durable,
            },
        };
        let asked = Asked {
            token: (self.tokens.make)(self.id.0, tag),
            reader: ReaderId(READERS + u64::from(self.id.0)),
            deadline: slot.deadline,
            snapshot: false,
        };
        if let Some(done) = engine.submit(self.disk.key, io, asked) {
            self.answered(tag, done);
        }
    }

    /// An answer of the engine.
    pub(crate) fn answered(&mut self, tag: u16, done: Done) {
        let Some(slot) = self.tags.get_mut(usize::from(tag)) else {
            return;
        };
        match (done.result, done.buf) {
            (Err(NamespaceError::Detached { .. }), buf) => {
                // A write gets its data again when it goes on: others need the memory meanwhile.
                drop(buf);
                self.has_freed |= slot.request.bytes() > 0;
                match self.may_wait() {
                    true => self.detached.push(tag),
                    false => self.finish(tag, Err(Errno::EIO)),
                }
            }
            (Err(error), _) => {
                tracing::warn!(queue = self.name, %error, "a request failed");
                self.finish(tag, Err(Errno::EIO));
            }
            (Ok(()), Some(buf)) if matches!(slot.request, Request::Read { .. }) => {
                if buf.len() != slot.request.bytes() as usize {
                    return self.finish(tag, Err(Errno::EIO));
                }
                slot.data = buf;
                self.step(tag, Step::Copy);
            }
            (Ok(()), _) => {
                let bytes = slot.request.bytes();
                self.finish(tag, Ok(bytes));
            }
        }
    }

    /// Whether what found the namespace gone may wait for the next one: a while from the first on, by which a timer comes.
    fn may_wait(&mut self) -> bool {
        let now = Instant::now();
        if self.detached_until.is_none() {
            let until = now + DETACHED_PATIENCE;
            if self.owner.timer(until, TIMER << KIND_SHIFT).is_ok() {
                self.detached_until = Some(until);
            }
        }
        self.detached_until.is_some_and(|until| now < until)
    }

    /// What found the namespace gone goes to the one that has taken its place, or fails when it has waited long enough.
    fn look_at_detached(&mut self, engine: &mut Engine) {
        if self.detached.is_empty() {
            return;
        }
        match self.detached_until {
            None => {
                for tag in std::mem::take(&mut self.detached) {
                    let slot = self.tags.get(usize::from(tag));
                    let is_write =
                        slot.is_some_and(|slot| matches!(slot.request, Request::Write { .. }));
                    match is_write {
                        true => self.stage(tag, engine),
                        false => self.submit(tag, engine),
                    }
                }
            }
            Some(until) if Instant::now() < until => {}
            Some(_) => {
                tracing::warn!(
                    queue = self.name,
                    "the namespace is gone: its disk's requests fail"
                );
                for tag in std::mem::take(&mut self.detached) {
                    self.finish(tag, Err(Errno::EIO));
                }
            }
        }
    }

    /// Some of a request's data have been copied.
    fn copied(&mut self, tag: u16, result: Result<u32, Errno>) {
        let Some(slot) = self.tags.get_mut(usize::from(tag)) else {
            return;
        };
        let bytes = slot.request.bytes();
        match result {
            Ok(count) if count > 0 => slot.copied = (slot.copied + count).min(bytes),
            other => {
                self.complain(&format!("the driver copies no data: {other:?}"));
                return self.finish(tag, Err(Errno::EIO));
            }
        }
        match slot.request {
            _ if slot.copied < bytes => self.step(tag, Step::Copy),
            Request::Write { .. } => self.ready.push_back(tag),
            _ => self.finish(tag, Ok(bytes)),
        }
    }

    /// Ends a request: with what was moved, or an error.
    fn finish(&mut self, tag: u16, result: Result<u32, Errno>) {
        if let Some(slot) = self.tags.get_mut(usize::from(tag)) {
            slot.data = IoBuf::empty();
            self.has_freed |= slot.request.bytes() > 0;
        }
        let result = match result {
            // At most REQUEST_BYTES_MAX.
            Ok(bytes) => i32::try_from(bytes).unwrap_or(i32::MAX),
            Err(errno) => -(errno as i32),
        };
        self.begun -= 1;
        self.step(tag, Step::Commit(result));
    }

    /// Has the ring do something for a tag; where the ring is full, with the next turn.
    fn step(&mut self, tag: u16, step: Step) {
        let fetched = FETCHED << KIND_SHIFT | u64::from(tag);
        let taken = match step {
            Step::Fetch => self.command(IoCommand::FETCH, tag, 0, fetched),
            Step::Commit(result) => self.command(IoCommand::COMMIT_AND_FETCH, tag, result, fetched),
            Step::Copy => self.copy(tag),
        };
        if !taken {
            self.refused.push_back((tag, step));
        }
    }

    fn command(&self, code: u32, tag: u16, result: i32, event: u64) -> bool {
        let bytes = IoCommand::bytes(self.number, tag, result);
        self.owner.command(&self.file, code, bytes, event).is_ok()
    }

    /// Copies what is left of a request's data.
    fn copy(&mut self, tag: u16) -> bool {
        let Some(slot) = self.tags.get_mut(usize::from(tag)) else {
            return true;
        };
        let left = slot.data.slice(slot.copied as usize..slot.data.len());
        let offset = copy_offset(self.number, tag, slot.copied);
        let event = COPIED << KIND_SHIFT | u64::from(tag);
        let begun = match slot.request {
            Request::Write { .. } => self.owner.read_at(&self.file, offset, left, event),
            _ => {
                let mode = WriteMode::Cached;
                self.owner.write_at(&self.file, offset, left, mode, event)
            }
        };
        begun.is_ok()
    }

    /// Once: a driver that does what is not expected fills no log.
    fn complain(&mut self, why: &str) {
        if !std::mem::replace(&mut self.has_complained, true) {
            tracing::warn!(queue = self.name, why, "more of this queue is not told");
        }
    }
}

#[cfg(test)]
mod tests;
