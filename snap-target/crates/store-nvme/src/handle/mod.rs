//! One reactor's handle: operations cut into commands, sent on the best path, tried again where that is safe, and ended by their deadline.
//!
//! * A **read** or flush that was lost is sent again at once, on another path if there is one; one that is merely slow is given up there first.
//! * A **change** whose command may have left and was not answered is sent again only when the controller that may have it is surely dead
//!   ([`nvme::initiator::path`]). If that takes longer than the operation has time, it fails, and its range is fenced ([`crate::shared::Fences`]).
//! * What finds no path waits for one until its deadline, and is then [`StoreError::Unreachable`].

mod ending;
mod flight;
mod issue;
mod lane;
mod lending;
mod part;
mod slab;

use std::collections::VecDeque;
use std::ops::Add;
use std::sync::Arc;
use std::time::Duration;

use nvme::Time;
use reactor::buf::IoBuf;
use reactor::{Owner, ReactorError, Receiver, Ring, Sender};
use store::gate::{Pass, Permit};
use store::{Completion, Limits, Op, Rejected, Store, StoreError, Terms, Token, WireBytes, check};

use crate::backend::Life;
use crate::lending::Lending;
use crate::message::{HandleId, ToCustodian, ToHandle};
use crate::queue::QueueEvent;
use crate::shared::{AssociationId, QUEUE_DEPTH_MAX, Shared};
use flight::{Cuts, Flight, What, whole_blocks};
use lane::Lane;
pub(crate) use lending::Inboxes;
use lending::Lendings;
use part::{Part, State};
use slab::Slab;

/// Commands of one handle, outstanding or waiting to be.
const PARTS_MAX: u32 = 2048;
/// Reads ahead of one handle: the other half of its operations is for those that are waited for.
const AHEAD_MAX: u32 = QUEUE_DEPTH_MAX / 2;
/// While anything is in flight the clock is looked at so often.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// Zeros that are written at a time to a controller without Write Zeroes.
const ZEROS_BYTES: usize = 128 << 10;
/// Blocks of one Write Zeroes: NLB is 16 bits and zero-based.
const ZEROES_BLOCKS_MAX: u64 = 1 << 16;

/// See the module.
pub(crate) struct Handle {
    id: HandleId,
    shared: Arc<Shared>,
    ring: Ring,
    /// Of the timer.
    owner: Owner,
    life: Arc<Life>,
    inbox: Receiver<ToHandle>,
    handles: Receiver<Lending>,
    /// For those who answer there.
    own: Sender<Lending>,
    lendings: Lendings,
    lanes: Vec<Lane>,
    /// Traffic of queues that are closed.
    wire_ended: WireBytes,
    /// Counts the choices among them.
    turn: usize,
    flights: Slab<Flight>,
    parts: Slab<Part>,
    /// Flights with parts that were not begun.
    hungry: VecDeque<u32>,
    /// Parts to be issued: those that somebody waits for.
    waiting: VecDeque<u32>,
    /// Parts of reads ahead, which come after them.
    waiting_ahead: VecDeque<u32>,
    /// Reads ahead among the flights.
    ahead: u32,
    /// Parts of which nobody knows what became.
    unknown: Vec<u32>,
    /// Associations that ended here, and of which the custodian is to be told.
    untold: Vec<(AssociationId, String)>,
    events: Vec<QueueEvent>,
    done: VecDeque<Completion>,
    zeros: IoBuf,
    /// Blocks for pieces that are not whole.
    bounces: Vec<IoBuf>,
    looked_at: Time,
    is_ticking: bool,
    closed: bool,
    has_left: bool,
}

impl Handle {
    /// A handle that asks the custodian for its queues.
    pub fn new(
        id: HandleId,
        shared: Arc<Shared>,
        ring: &Ring,
        life: Arc<Life>,
        inboxes: Inboxes,
    ) -> Result<Self, StoreError> {
        let resources = |error: ReactorError| StoreError::Resources {
            store: shared.name.clone(),
            why: error.to_string(),
        };
        let zeros = ZEROS_BYTES.max(shared.namespace.lba_bytes as usize);
        Ok(Self {
            id,
            ring: ring.clone(),
            owner: ring.register().map_err(resources)?,
            life,
            inbox: inboxes.custodian,
            handles: inboxes.handles,
            own: inboxes.own,
            lendings: Lendings::default(),
            lanes: Vec::new(),
            wire_ended: WireBytes::default(),
            turn: 0,
            flights: Slab::new(QUEUE_DEPTH_MAX),
            parts: Slab::new(PARTS_MAX),
            hungry: VecDeque::with_capacity(QUEUE_DEPTH_MAX as usize),
            waiting: VecDeque::with_capacity(PARTS_MAX as usize),
            waiting_ahead: VecDeque::with_capacity(PARTS_MAX as usize),
            ahead: 0,
            unknown: Vec::new(),
            untold: Vec::new(),
            events: Vec::new(),
            done: VecDeque::with_capacity(QUEUE_DEPTH_MAX as usize),
            zeros: IoBuf::heap(zeros).map_err(resources)?,
            bounces: Vec::new(),
            looked_at: shared.clock.now(),
            shared,
            is_ticking: false,
            closed: false,
            has_left: false,
        })
    }

    fn take_messages(&mut self, now: Time) {
        while let Some(message) = self.inbox.try_recv() {
            match message {
                // It came up while the handle left: nobody would close it.
                ToHandle::QueueUp { queue, .. } if self.has_left => drop(queue),
                ToHandle::QueueUp {
                    association,
                    queue,
                    ana,
                } => match queue.join(&self.ring) {
                    Ok(queue) => {
                        self.shared.fences.opened(association);
                        self.lanes.push(Lane::new(association, queue, ana));
                    }
                    Err(error) => self.tell_lost(association, error.to_string()),
                },
                ToHandle::Ana { association, ana } => {
                    if let Some(lane) = self.lane_mut(association) {
                        lane.ana = ana;
                    }
                }
                ToHandle::Lost { association } => {
                    self.close_lane(association, now);
                    // Time has stood still for what waits for its controller's death.
                    self.looked_at = Time::ZERO;
                }
                ToHandle::Lender(lender) => self.lendings.lender = lender,
            }
        }
    }

    /// Closes a queue, if it is not: from now on its controller hears nothing of it. Says whether it was in use until now.
    fn close_lane(&mut self, association: AssociationId, now: Time) -> bool {
        let Some(lane) = self.lane_mut(association) else {
            return false;
        };
        lane.queue.close();
        let was_open = std::mem::replace(&mut lane.is_open, false);
        let was_in_use = !std::mem::replace(&mut lane.ending, true);
        if was_open {
            self.shared.fences.closed(association, now);
        }
        was_in_use
    }

    fn lane_mut(&mut self, association: AssociationId) -> Option<&mut Lane> {
        self.lanes
            .iter_mut()
            .find(|lane| lane.association == association)
    }

    /// The custodian is to close all connections of an association.
    fn tell_lost(&mut self, association: AssociationId, why: String) {
        self.untold.push((association, why));
        self.tell_untold();
    }

    /// Says what found no room in the custodian's inbox: it is not to be lost.
    fn tell_untold(&mut self) {
        while let Some((association, why)) = self.untold.pop() {
            let lost = ToCustodian::QueueLost {
                association,
                why: why.clone(),
            };
            if self.life.custodian.send(lost).is_err() {
                self.untold.push((association, why));
                return;
            }
        }
    }

    fn poll_lanes(&mut self, now: Time) {
        let mut events = std::mem::take(&mut self.events);
        for index in 0..self.lanes.len() {
            let Some(lane) = self.lanes.get_mut(index) else {
                break;
            };
            let association = lane.association;
            lane.queue.poll(now, &mut events);
            for event in events.drain(..) {
                match event {
                    QueueEvent::Ready => {}
                    QueueEvent::Over(error) => {
                        if self.close_lane(association, now) {
                            self.tell_lost(association, error.to_string());
                        }
                    }
                    QueueEvent::Ended { slot, outcome, buf } => {
                        self.ended(index, slot, outcome, buf, now);
                    }
                }
            }
        }
        self.events = events;
        let ended = self.lanes.extract_if(.., |lane| lane.queue.is_closed());
        for lane in ended {
            self.wire_ended = self.wire_ended + lane.queue.wire();
        }
    }

    /// Looks at the clock: what is overdue, and what has waited long enough.
    fn look(&mut self, now: Time) {
        if now.since(self.looked_at) < LOOK_INTERVAL {
            return;
        }
        self.looked_at = now;
        self.tell_untold();
        self.look_at_unknown(now);
        self.look_at_answers(now);
        self.look_at_reads(now);
        self.look_at_lanes(now);
        self.look_at_deadlines(now);
    }

    /// A timer wakes the ring while there is anything to look at.
    fn tick(&mut self, now: Time) {
        while self.owner.next_event().is_some() {
            self.is_ticking = false;
        }
        let is_needed = !(self.flights.is_empty() && self.untold.is_empty())
            || self.lanes.iter().any(Lane::is_watched);
        if is_needed && !self.is_ticking {
            let at = self.shared.clock.instant(now + LOOK_INTERVAL);
            self.is_ticking = self.owner.timer(at, 0).is_ok();
        }
    }

    fn flight_of(&self, op: Op, buf: Option<IoBuf>, token: Token, terms: Terms) -> Flight {
        let Shared {
            namespace,
            controller,
            options,
            limits,
            clock,
            ..
        } = &*self.shared;
        let lba_bytes = namespace.lba_bytes;
        let geometry = namespace.geometry(controller.transfer_bytes_max);
        let len = match op {
            Op::Read { .. } | Op::Write { .. } => buf.as_ref().map_or(0, IoBuf::len) as u64,
            Op::Discard { len, .. } | Op::Zero { len, .. } => len,
            Op::Flush => 0,
        };
        let bytes = op.offset()..op.offset() + len;
        let is_whole = bytes.start.is_multiple_of(lba_bytes.into())
            && bytes.end.is_multiple_of(lba_bytes.into());
        let cuts = match op {
            Op::Flush if !limits.writable || !controller.volatile_write_cache => Cuts::Done,
            Op::Flush => Cuts::Flush,
            Op::Discard { .. } if !controller.deallocates => Cuts::Done,
            Op::Discard { .. } => {
                let most = controller.deallocate_blocks_max.min(u32::MAX / lba_bytes);
                let most = u64::from(most.max(1));
                Cuts::blocks(What::Deallocate, whole_blocks(&bytes, lba_bytes), most)
            }
            Op::Zero { .. } if controller.writes_zeroes && is_whole => Cuts::blocks(
                What::Zero,
                whole_blocks(&bytes, lba_bytes),
                ZEROES_BLOCKS_MAX.min(u64::from(controller.transfer_bytes_max / lba_bytes)),
            ),
            Op::Zero { .. } => {
                let most = u32::try_from(self.zeros.len()).unwrap_or(u32::MAX);
                let most = most.min(controller.transfer_bytes_max);
                Cuts::bytes(&namespace.geometry(most), bytes.clone())
            }
            Op::Read { .. } | Op::Write { .. } => Cuts::bytes(&geometry, bytes.clone()),
        };
        let pass = if is_whole {
            Pass::Shared
        } else {
            Pass::Exclusive
        };
        let permit = match op {
            Op::Write { .. } | Op::Zero { .. } => Permit::new(self.shared.gate.clone(), pass),
            // Of a discard only whole blocks are taken.
            Op::Discard { .. } => Permit::new(self.shared.gate.clone(), Pass::Shared),
            Op::Read { .. } | Op::Flush => Permit::not_needed(),
        };
        let expires_at = clock.now() + options.deadline;
        Flight {
            token,
            op,
            buf,
            bytes,
            cuts,
            parts: 0,
            permit,
            expires_at: terms
                .deadline
                .map_or(expires_at, |at| clock.time(at).min(expires_at)),
            is_ahead: terms.is_ahead,
            debt: None,
            failure: None,
            may_have_begun: false,
            cancelled: false,
        }
    }

    fn flight_named(&self, token: Token) -> Option<u32> {
        let is_named = |flight: &Flight| flight.debt.is_none() && flight.token == token;
        let mut indices = self.flights.indices();
        indices.find(|index| self.flights.get(*index).is_some_and(is_named))
    }

    /// Says that the handle is gone, once.
    fn leave(&mut self) {
        if !std::mem::replace(&mut self.has_left, true) {
            let _ = self
                .life
                .custodian
                .send(ToCustodian::Leave { handle: self.id });
        }
    }
}

impl Store for Handle {
    fn limits(&self) -> &Limits {
        &self.shared.limits
    }

    fn submit(
        &mut self,
        op: Op,
        buf: Option<IoBuf>,
        token: Token,
        terms: Terms,
    ) -> Result<(), Rejected> {
        let reject = |buf, why| Err(Rejected { op, buf, why });
        if self.closed {
            let store = self.shared.name.clone();
            return reject(buf, StoreError::Closed { store });
        }
        if let Err(why) = check(&op, buf.as_ref(), &self.shared.limits, &self.shared.name) {
            return reject(buf, why);
        }
        // Completions that wait for a poll count as well, or they could pile up.
        let is_full = self.done.len() >= self.flights.room();
        if is_full || (terms.is_ahead && self.ahead >= AHEAD_MAX) {
            return reject(buf, StoreError::Busy);
        }
        let flight = self.flight_of(op, buf, token, terms);
        match self.flights.insert(flight) {
            Ok(index) => {
                self.ahead += u32::from(terms.is_ahead);
                self.hungry.push_back(index);
                Ok(())
            }
            Err(flight) => reject(flight.buf, StoreError::Busy),
        }
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        let now = self.shared.clock.now();
        self.take_messages(now);
        self.take_lendings(now);
        self.poll_lanes(now);
        self.look(now);
        self.feed(now);
        self.issue(now);
        // What an abandon or a close left for a queue's poll wakes nobody.
        let is_due = |lane: &Lane| lane.queue.deadline().is_some_and(|at| at <= now);
        if self.lanes.iter().any(is_due) {
            self.poll_lanes(now);
            self.feed(now);
            self.issue(now);
        }
        for lane in &mut self.lanes {
            lane.queue.settle();
        }
        self.tick(now);
        completions.extend(self.done.drain(..));
    }

    fn close(&mut self) {
        self.closed = true;
        let flights: Vec<u32> = self.flights.indices().collect();
        for flight in flights {
            self.cancel_flight(flight);
        }
        if self.flights.is_empty() {
            self.let_lanes_go();
        }
    }

    fn is_closed(&self) -> bool {
        self.closed && self.flights.is_empty() && self.done.is_empty() && self.lanes.is_empty()
    }

    fn cancel(&mut self, token: Token) {
        if let Some(flight) = self.flight_named(token) {
            self.cancel_flight(flight);
        }
    }

    fn hurry(&mut self, token: Token) {
        if let Some(flight) = self.flight_named(token) {
            self.hurry_flight(flight);
        }
    }

    fn lease(&mut self, _offset: u64, _len: u32) -> Option<IoBuf> {
        None
    }

    fn wire(&self) -> WireBytes {
        let open = self.lanes.iter().map(|lane| lane.queue.wire());
        open.fold(self.wire_ended, WireBytes::add)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.close_lanes();
        self.give_loans_up();
        self.leave();
    }
}

/// Where a part that was never issued stands.
fn fresh() -> State {
    State::Waiting {
        not_before: Time::ZERO,
    }
}
