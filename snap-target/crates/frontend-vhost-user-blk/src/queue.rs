//! One queue: chains in, requests to the engine, chains back.

mod held;
mod slots;
mod turn;

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Instant;

use guest_memory::{Way, Windows};
use namespace::{Done, Engine, Found};
use reactor::buf::IoBuf;
use reactor::{Fd, Owner, OwnerId, Ring as Reactor, peer_event};
use virtio_ring::{Descriptor, Head, Layout, Position, Ring, RingError, Taken};

use crate::counters::{Counters, QueueCounters};
use crate::disk::Disk;
use crate::guest::{Guest, RingArea};
use crate::limits::{HELD_ANSWERS_MAX, HELD_BYTES_MAX, SPIN};
use crate::order::{Ending, QueueId, Start};
use crate::request::{Parts, Request, Status};
pub(crate) use held::Held;
use slots::{PieceId, Slot};
pub(crate) use turn::Turn;

/// Why a queue ends that may have read zeros where its guest had something else.
const LOST: &str = "memory of its guest is lost: a page of it could not be had";
/// POLLIN of poll(2).
const POLLIN: i16 = 1;
/// What events of a queue's owner are.
const KICK: u64 = 0;
const TIMER: u64 = 1;
/// The part of a token that names a slot and a piece.
const TOKEN_LOW: u64 = 0xFFFF;

/// How requests of a share are named at the engine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tokens {
    pub(crate) make: fn(u32, u16) -> u64,
}

/// How long a queue looks for chains by itself after the last one. The clock is read once a turn, so that the time begins with the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spins {
    No,
    FromNextTurn,
    Until(Instant),
}

#[derive(Debug)]
pub(crate) struct Queue {
    id: QueueId,
    name: String,
    tokens: Tokens,
    layout: Layout,
    ring: Ring<RingArea>,
    guest: Guest,
    disk: Arc<Disk>,
    is_foreign: bool,
    counters: QueueCounters,
    writeback: bool,
    owner: Owner,
    kick: Fd,
    call: Option<OwnedFd>,
    error: Option<OwnedFd>,
    /// What was found at the namespace's gate.
    found: Found,
    /// The chain that was taken last, and what stands in it, while [`Queue::serve`] looks for the one behind it: its request is on its way into the cache.
    pending: Option<Taken>,
    chain: Vec<Descriptor>,
    /// What stands in the one behind it.
    chain_behind: Vec<Descriptor>,
    parts: Parts,
    slots: Vec<Slot>,
    free: Vec<u16>,
    /// The request before that, while its bytes are.
    taken: Option<u16>,
    /// Requests with pieces that have not been begun, the longest waiting first: they found no memory, or as many as may be are under way.
    waiting: VecDeque<u16>,
    /// When the timer comes by which the first of them fails.
    starved_until: Option<Instant>,
    /// What its copies hold of the engine's memory.
    held: Held,
    /// Memory was given back since [`Queue::settle`] began.
    has_freed: bool,
    /// Pieces of reads whose bytes are there, to be copied to the guest.
    arrived: VecDeque<(PieceId, Done)>,
    /// Pieces that found the namespace gone: another one may be about to take its place.
    detached: Vec<PieceId>,
    /// When they fail.
    detached_until: Option<Instant>,
    /// What may still be done in this turn.
    turn: Turn,
    /// When it began.
    now: Instant,
    /// Whether chains are looked for without being told.
    spins: Spins,
    /// Chains may be there that a turn had no time for.
    is_behind: bool,
    /// Bytes that were moved since answers were last published.
    moved_bytes: usize,
    /// Chains were given back since the driver was last told.
    has_given_back: bool,
    has_complained: bool,
    has_starved: bool,
    /// The ring broke: nothing more is taken.
    is_broken: bool,
    /// Its driver cannot be heard: the ring had no room to wait for it.
    is_deaf: bool,
    /// Nothing is taken before.
    holds_until: Option<Instant>,
    stopping: Option<(Ending, SyncSender<Option<Position>>)>,
    has_ended: bool,
}

impl Queue {
    pub(crate) fn new(
        reactor: &Reactor,
        tokens: Tokens,
        start: Start,
        held: Held,
    ) -> Result<Self, String> {
        let guest = Guest::new(start.windows);
        let record = start.record.map(RingArea);
        let ring = Ring::new(&guest, &start.layout, start.options, start.position, record);
        let ring = ring.map_err(|error| error.to_string())?;
        let owner = reactor.register().map_err(|error| error.to_string())?;
        let size = start.layout.size;
        let queue = Self {
            id: start.id,
            name: start.name,
            tokens,
            layout: start.layout,
            ring,
            guest,
            disk: start.disk,
            is_foreign: start.is_foreign,
            counters: QueueCounters::of(start.counters),
            writeback: start.writeback,
            owner,
            kick: Fd::from(start.kick),
            call: start.call,
            error: start.error,
            found: Found::default(),
            pending: None,
            chain: Vec::with_capacity(virtio_ring::CHAIN_MAX),
            chain_behind: Vec::with_capacity(virtio_ring::CHAIN_MAX),
            parts: Parts::default(),
            slots: (0..size).map(|_| Slot::free()).collect(),
            free: (0..size).rev().collect(),
            taken: None,
            waiting: VecDeque::new(),
            starved_until: None,
            held,
            has_freed: false,
            arrived: VecDeque::new(),
            detached: Vec::new(),
            detached_until: None,
            turn: Turn::new(0),
            now: Instant::now(),
            spins: Spins::No,
            // What is there already was told to nobody, or to whoever served it before.
            is_behind: true,
            moved_bytes: 0,
            has_given_back: false,
            has_complained: false,
            has_starved: false,
            is_broken: false,
            is_deaf: false,
            holds_until: start.holds_until,
            stopping: None,
            has_ended: false,
        };
        queue.listen()?;
        if let Some(until) = queue.holds_until {
            let armed = queue.owner.timer(until, TIMER);
            armed.map_err(|error| error.to_string())?;
        }
        if let Some(call) = &queue.call {
            // Whoever served it before may have ended before it told.
            peer_event::signal(call);
        }
        Ok(queue)
    }

    pub(crate) fn owner_id(&self) -> OwnerId {
        self.owner.id()
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// What another queue of this device is to hold memory with; none where it is not of it.
    pub(crate) fn held_beside(&self, device: &Arc<Counters>) -> Option<Held> {
        self.counters.are_of(device).then(|| self.held.beside())
    }

    /// Whether its last [`Queue::settle`] gave memory back.
    pub(crate) fn has_freed(&self) -> bool {
        self.has_freed
    }

    /// Whether requests wait for memory, or for their turn.
    pub(crate) fn is_starved(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// What has ended by now may have been told to nobody, or to the last one: the driver is told once more.
    pub(crate) fn set_call(&mut self, file: Option<OwnedFd>) {
        if let Some(call) = &file {
            peer_event::signal(call);
        }
        self.call = file;
    }

    /// What begins from now on is durable before it is answered, or no longer.
    pub(crate) fn set_writeback(&mut self, writeback: bool) {
        self.writeback = writeback;
    }

    /// The guest's memory has changed.
    pub(crate) fn change_windows(&mut self, windows: Arc<Windows>) -> Result<(), String> {
        self.guest.change(windows);
        let moved = self.ring.move_to(&self.guest, &self.layout);
        moved.map_err(|error| {
            self.break_rules(&error);
            error.to_string()
        })
    }

    pub(crate) fn stop(
        &mut self,
        ending: Ending,
        answer: SyncSender<Option<Position>>,
        engine: &mut Engine,
    ) {
        if ending == Ending::Cut {
            let own = (self.tokens.make)(self.id.0, 0);
            engine.abandon(|token| token & !TOKEN_LOW == own);
        }
        self.stopping = Some((ending, answer));
        if ending == Ending::Cut {
            self.begin_no_more();
        }
    }

    /// The driver told of chains.
    pub(crate) fn kicked(&mut self) {
        let mut was_kicked = false;
        while let Some(event) = self.owner.next_event() {
            was_kicked |= event.tag == KICK;
        }
        if !was_kicked {
            return;
        }
        if let Some(kick) = self.kick.owned() {
            peer_event::take(&kick);
        }
        if let Err(error) = self.listen() {
            // Its chains are looked for without, until it can be waited for again.
            self.is_deaf = true;
            tracing::error!(
                queue = self.name,
                error,
                "a queue cannot wait for its driver"
            );
        }
        self.counters.kicked();
        self.ring.without_kicks();
        self.is_behind = true;
    }

    /// Another turn of the reactor begins.
    pub(crate) fn begin_turn(&mut self, turn: Turn, now: Instant) {
        self.turn = turn;
        self.now = now;
        if self.spins == Spins::FromNextTurn {
            self.spins = Spins::Until(now + SPIN);
        }
    }

    /// What is left of it.
    pub(crate) fn turn_left(&mut self) -> &mut Turn {
        &mut self.turn
    }

    /// Goes on with what waits, tells the driver what has ended, and sees whether there is more to do. True: the next turn may not wait.
    pub(crate) fn settle(&mut self, engine: &mut Engine) -> bool {
        self.has_freed = false;
        self.carry_on(engine);
        self.look_at_detached(engine);
        self.look_at_starved();
        if self.is_deaf {
            self.is_deaf = self.listen().is_err();
            self.is_behind = true;
        }
        if self.guest.windows.loss().has_happened() {
            self.broken(LOST);
        }
        // What ended meanwhile waits for no chain of this turn.
        self.publish();
        let is_held = self.is_held();
        if !is_held && (self.is_behind || self.spins != Spins::No) {
            self.serve(engine);
        }
        if !self.arrived.is_empty() {
            // Answers that came at once: no event tells of them.
            self.carry_on(engine);
        }
        if std::mem::take(&mut self.has_given_back) {
            self.tell();
        }
        if self.end_if_stopped() {
            return false;
        }
        if is_held {
            // A timer comes.
            return false;
        }
        let is_late = self.is_late();
        if self.is_closed() {
            self.is_behind = self.takes_left();
            return self.is_behind || is_late;
        }
        if self.is_behind || is_late {
            return true;
        }
        match self.spins {
            Spins::No => return false,
            Spins::Until(until) if self.now >= until => {}
            _ => return true,
        }
        self.spins = Spins::No;
        self.is_behind = self.ring.with_kicks();
        self.is_behind
    }

    /// Copies what is there, and begins what waits, which may be answered at once, as long as the turn has room.
    fn carry_on(&mut self, engine: &mut Engine) {
        loop {
            self.copy_arrived();
            self.feed_waiting(engine);
            if self.arrived.is_empty() || !self.turn.has_bytes() {
                return;
            }
        }
    }

    /// Whether it is too early to begin anything.
    fn is_held(&mut self) -> bool {
        self.holds_until = self.holds_until.filter(|until| self.now < *until);
        self.holds_until.is_some()
    }

    /// Whether there is work that the turn has no room for: of what waits for memory or for the store the end tells.
    fn is_late(&self) -> bool {
        let is_resumed = !self.detached.is_empty() && self.detached_until.is_none();
        !self.turn.has_bytes()
            && (is_resumed || !self.arrived.is_empty() || !self.waiting.is_empty())
    }

    /// Takes chains, as many as the turn has room for. Each is read when the one behind it was found, and begins when that was read, so that what it is and its bytes
    /// are on their way into the cache meanwhile.
    fn serve(&mut self, engine: &mut Engine) {
        self.take_chains(engine);
        self.begin_pending(engine);
        if let Some(last) = self.taken.take() {
            self.begin_slot(last, engine);
        }
    }

    fn take_chains(&mut self, engine: &mut Engine) {
        let mut has_taken = false;
        self.is_behind = false;
        while self.turn.has_chains() {
            if self.is_closed() && !self.takes_left() {
                return;
            }
            match self.ring.take(&self.guest, &mut self.chain_behind) {
                Ok(Some(taken)) => {
                    has_taken = true;
                    self.turn.take_chain();
                    if let Some(first) = self.chain_behind.first() {
                        self.guest.windows.expect(first.address);
                    }
                    self.begin_pending(engine);
                    std::mem::swap(&mut self.chain, &mut self.chain_behind);
                    self.pending = Some(taken);
                }
                Ok(None) => {
                    if has_taken || self.spins == Spins::No {
                        self.spins = Spins::FromNextTurn;
                    }
                    return;
                }
                Err(error) => return self.break_rules(&error),
            }
        }
        self.is_behind = true;
    }

    fn begin_pending(&mut self, engine: &mut Engine) {
        let Some(taken) = self.pending.take() else {
            return;
        };
        match taken.chain {
            Ok(()) => self.begin(taken.head, engine),
            Err(error) => {
                self.complain(&error.to_string());
                self.refuse(taken.head);
            }
        }
    }

    fn begin(&mut self, head: Head, engine: &mut Engine) {
        let framed = match self.parts.take(&self.chain, &self.guest.windows) {
            Some(framed) => framed,
            None => {
                self.complain("there is no place for a status");
                self.counters.failed();
                return self.give_back(head, None);
            }
        };
        let framed = framed.and(self.is_its_disk());
        let parsed = framed.and_then(|()| self.parts.parse(&self.disk, &self.guest.windows));
        let begun = parsed.and_then(|request| {
            self.permit(&request, engine)?;
            self.start(head, request, engine)
        });
        if let Err(status) = begun {
            self.counters.failed();
            // Nothing was written into its data, which stand before the status.
            let written = u32::from(self.parts.writable_bytes == 0);
            self.finish(head, self.parts.status, status, written);
        }
    }

    /// A chain that leads nowhere: a driver that finds a status knows that it failed. What could be read of it is the chain's up to where it breaks, so the
    /// status byte is known only where it stands alone, as every driver has it.
    fn refuse(&mut self, head: Head) {
        self.counters.failed();
        let mut writable = self.chain.iter().filter(|part| part.writable);
        match writable.next_back() {
            Some(&Descriptor {
                address, bytes: 1, ..
            }) => {
                let written = u32::from(writable.next().is_none());
                self.finish(head, address, Status::IoError, written);
            }
            _ => self.give_back(head, None),
        }
    }

    /// Whether this is the disk that the driver knows: what it has in flight was meant for that one.
    fn is_its_disk(&self) -> Result<(), Status> {
        match self.is_foreign {
            true => Err(Status::IoError),
            false => Ok(()),
        }
    }

    /// Whether reservations and write protection of the namespace let a request through: the guest is a host without an identity.
    fn permit(&mut self, request: &Request, engine: &Engine) -> Result<(), Status> {
        let (Some(gate), Some(opcode)) = (engine.access(self.disk.key), request.opcode()) else {
            return Ok(());
        };
        let permitted = gate.permit_stranger(opcode, &mut self.found);
        permitted.map_err(|_| Status::IoError)
    }

    fn start(&mut self, head: Head, request: Request, engine: &mut Engine) -> Result<(), Status> {
        let (pieces, way) = match request {
            Request::Read { .. } => (self.parts.writable.as_slice(), Way::ToGuest),
            Request::Write { .. } => (self.parts.readable.as_slice(), Way::FromGuest),
            Request::GetId => return self.tell_serial(head),
            Request::Discard { ref ranges } if ranges.is_empty() => {
                self.counters.succeeded(&request);
                self.finish(head, self.parts.status, Status::Ok, 1);
                return Ok(());
            }
            _ => ([].as_slice(), Way::FromGuest),
        };
        let data = self.guest.view(pieces, way).map_err(|_| Status::IoError)?;
        let index = self.take_slot(head, request, data)?;
        self.expect(index, engine);
        if let Some(before) = self.taken.replace(index) {
            self.begin_slot(before, engine);
        }
        Ok(())
    }

    fn tell_serial(&mut self, head: Head) -> Result<(), Status> {
        let serial = self.disk.serial;
        let mut rest = serial.as_slice();
        for (address, bytes) in &self.parts.writable {
            let (part, behind) = rest.split_at(rest.len().min(*bytes as usize));
            let written = self.guest.windows.write(*address, part);
            written.map_err(|_| Status::IoError)?;
            rest = behind;
        }
        // 20 bytes.
        let written = u32::try_from(serial.len()).unwrap_or(0) + 1;
        self.finish(head, self.parts.status, Status::Ok, written);
        Ok(())
    }

    /// All pieces of a request have ended.
    fn end(&mut self, index: u16) {
        let slot = self.slots.get_mut(usize::from(index));
        let Some(slot) = slot.filter(|slot| slot.head.is_some()) else {
            return;
        };
        // The pieces that it waited for may have been begun as others ended.
        self.waiting.retain(|waiting| *waiting != index);
        slot.data = IoBuf::empty();
        let (status, written) = slot.outcome();
        let is_told = !matches!(self.stopping, Some((Ending::Cut, _)));
        self.counters
            .ended(&slot.request, is_told.then_some(status));
        let (head, at) = (slot.head.take(), slot.status);
        self.free.push(index);
        if let Some(head) = head.filter(|_| !self.is_cut()) {
            self.finish(head, at, status, written);
        }
    }

    fn finish(&mut self, head: Head, status_at: u64, status: Status, written: u32) {
        let told = self.guest.windows.write(status_at, &[status as u8]);
        // Without its status a driver takes a request for failed.
        self.give_back(head, told.is_ok().then_some(written));
    }

    fn give_back(&mut self, head: Head, written: Option<u32>) {
        // After all that was done for it: a packed ring publishes at once, and a split one when the driver is to be told, too. Who has lost memory hears of nothing
        // that was done with it.
        if self.guest.windows.loss().has_happened() {
            return self.broken(LOST);
        }
        match self.ring.give_back(head, written) {
            Ok(()) => self.has_given_back = true,
            Err(error) => self.break_rules(&error),
        }
        if self.ring.held() >= HELD_ANSWERS_MAX {
            self.publish();
        }
        if self.spins == Spins::No {
            self.spins = Spins::FromNextTurn;
        }
    }

    /// What was given back is the driver's.
    pub(crate) fn publish(&mut self) {
        self.ring.publish();
        self.moved_bytes = 0;
    }

    /// So many bytes are about to be moved: answers that are held do not wait for many.
    fn moves(&mut self, bytes: usize) {
        self.turn.take_bytes(bytes);
        if self.ring.held() > 0 && self.moved_bytes.saturating_add(bytes) > HELD_BYTES_MAX {
            self.publish();
        }
        self.moved_bytes = self.moved_bytes.saturating_add(bytes);
    }

    /// Tells the driver, if it wants to know.
    fn tell(&mut self) {
        if self.ring.wants_call()
            && let Some(call) = &self.call
        {
            self.counters.called();
            peer_event::signal(call);
        }
    }

    fn end_if_stopped(&mut self) -> bool {
        if self.free.len() < self.slots.len() || self.takes_left() {
            return false;
        }
        let Some((_, answer)) = self.stopping.take() else {
            return false;
        };
        self.has_ended = true;
        // Whoever asked may have given up.
        let _told = answer.send(Some(self.ring.position()));
        true
    }

    /// A guest that sends chains which are no requests fills no log.
    fn complain(&mut self, why: &str) {
        if !std::mem::replace(&mut self.has_complained, true) {
            tracing::warn!(
                queue = self.name,
                why,
                "a chain of the guest's is no request; more of them are not told"
            );
        }
    }

    /// Nor does one whose requests find no memory.
    fn complain_of_memory(&mut self) {
        if !std::mem::replace(&mut self.has_starved, true) {
            tracing::warn!(
                queue = self.name,
                "a request found no memory in time; more of them are not told"
            );
        }
    }

    fn break_rules(&mut self, error: &RingError) {
        self.broken(&format!("its driver breaks the rules of its ring: {error}"));
    }

    fn broken(&mut self, why: &str) {
        if std::mem::replace(&mut self.is_broken, true) {
            return;
        }
        tracing::error!(queue = self.name, why, "the queue ends");
        if let Some(file) = &self.error {
            peer_event::signal(file);
        }
    }

    /// Whether nothing more is taken.
    fn is_closed(&self) -> bool {
        self.is_broken || self.stopping.is_some() || self.has_ended
    }

    /// Whether chains are to be done again that were in flight before, although the queue stops: where it would go on lies behind them.
    fn takes_left(&self) -> bool {
        let drains = matches!(self.stopping, Some((Ending::Drained, _)));
        drains && !self.is_broken && self.ring.has_left()
    }

    fn is_cut(&self) -> bool {
        matches!(self.stopping, Some((Ending::Cut, _)))
    }

    fn listen(&self) -> Result<(), String> {
        let polled = self.owner.poll(&self.kick, POLLIN, KICK);
        polled.map(drop).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests;
