//! One reactor's loop.

mod adopting;
mod awaited;
mod closing;
#[cfg(feature = "inspection")]
mod inspection;
mod messages;
mod orders;
mod quiet;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use namespace::{Done, Engine, Peer};
use nvme::controller::ControllerId;
use nvme::queue::Slot;
use reactor::{OwnerId, Receiver, Ring, Wait, channel};
use telemetry::ReactorTelemetry;

use crate::clock::Clock;
use crate::config::{FrontendConfig, FrontendError};
use crate::desk::Desk;
use crate::farewells::Farewells;
use crate::host_share::HostShares;
use crate::io_queue::IoQueue;
use crate::limits::{CONNECTIONS_MAX, FAREWELLS_MAX, MESSAGES_MAX};
use crate::link::{Bound, Health};
use crate::lodger::{Lodger, parts_of_lodger};
use crate::message::{Abort, Control, Message, Reserved};
use crate::meter::TurnTime;
use crate::table::{Key, Table};
use awaited::Awaited;
use closing::Draining;
#[cfg(feature = "inspection")]
pub use inspection::Inside;
use orders::Pending;
use quiet::Quiet;

/// One reactor's share of the target; see the crate.
pub struct Frontend {
    ring: Ring,
    engine: Engine,
    reactor: u16,
    inbox: Receiver<Message>,
    control: Control,
    peers: Vec<Control>,
    clock: Clock,
    time: TurnTime,
    telemetry: Arc<ReactorTelemetry>,
    /// When it was made, as [`TurnTime::ns`].
    began_ns: u64,
    desk: Option<Desk>,
    queues: Table<IoQueue>,
    by_controller: HashMap<ControllerId, Vec<Key>>,
    owners: HashMap<OwnerId, Key>,
    hosts: HostShares,
    /// Queues with events or answers since the last settling.
    touched: Vec<Key>,
    /// Queues with writes that wait for memory, the longest waiting first.
    starved: VecDeque<Key>,
    /// Queues that are to be looked at after the next turn, which does not wait.
    postponed: Vec<Key>,
    /// Queues whose receive found all of the ring's buffers in use.
    dry: Vec<Key>,
    /// The ring's count of returned buffers when these were last looked at.
    buffers_returned: u64,
    /// Queues that ended while the engine had requests of theirs.
    draining: HashMap<Key, Draining>,
    /// Connections that have ended here, and whose hosts may not know it.
    farewells: Farewells,
    done: Vec<Done>,
    /// Messages for reactors whose channel was full: queues open and close at a host's pace, so this is as good as always empty.
    outbox: VecDeque<(usize, Message)>,
    /// Orders of the desk that take time.
    pending: Vec<Pending>,
    /// Requests whose end the desk waits for.
    awaited: Vec<Awaited>,
    stopping: bool,
    quiet: Quiet,
    /// Another frontend's share of this reactor.
    lodger: Option<Box<dyn Lodger>>,
    /// It has something to do that no event will bring about.
    lodger_is_behind: bool,
}

impl Frontend {
    /// A frontend on this thread's ring. The first reactor's is the front desk, and may bring the first listener; an [`Admin`](crate::Admin) adds
    /// others.
    ///
    /// # Errors
    /// No room in the ring.
    pub fn new(
        ring: Ring,
        engine: Engine,
        config: FrontendConfig,
        listener: Option<Box<dyn Bound>>,
    ) -> Result<Self, FrontendError> {
        let (sender, inbox) = channel(&ring, MESSAGES_MAX);
        let telemetry = engine.telemetry().clone();
        let clock = Clock::since(telemetry.started());
        let desk = match config.reactor {
            0 => Some(Desk::new(
                &ring,
                listener,
                &config.service,
                clock,
                &telemetry,
            )?),
            _ => None,
        };
        let features = &telemetry.counters.features;
        features.get_or_init(|| ring.features().to_string());
        Ok(Self {
            farewells: Farewells::new(&ring, FAREWELLS_MAX),
            ring,
            engine,
            reactor: config.reactor,
            inbox,
            control: Control::new(sender),
            peers: Vec::new(),
            clock,
            time: TurnTime::new(clock),
            telemetry,
            began_ns: clock.now().as_nanos(),
            desk,
            queues: Table::new(CONNECTIONS_MAX),
            by_controller: HashMap::new(),
            owners: HashMap::new(),
            hosts: HostShares::default(),
            touched: Vec::new(),
            starved: VecDeque::new(),
            postponed: Vec::new(),
            dry: Vec::new(),
            buffers_returned: 0,
            draining: HashMap::new(),
            done: Vec::new(),
            outbox: VecDeque::new(),
            pending: Vec::new(),
            awaited: Vec::new(),
            stopping: false,
            quiet: Quiet::default(),
            lodger: None,
            lodger_is_behind: false,
        })
    }

    /// Has another frontend on this reactor; it ends with this one.
    pub fn lodge(&mut self, lodger: Box<dyn Lodger>) {
        self.lodger = Some(lodger);
    }

    /// Reaches this frontend from other threads.
    #[must_use]
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// Shares decoded frames with the engines of the other reactors; see [`Engine::meet`].
    pub fn share_frames(&mut self, peers: &[Peer]) {
        self.engine.meet(self.reactor, peers);
    }

    /// Serves until told to stop. `peers` are the frontends of all reactors, by their number.
    ///
    /// # Errors
    /// The ring broke.
    pub fn run(&mut self, peers: &[Control]) -> Result<(), FrontendError> {
        self.peers = peers.to_vec();
        if let Some(desk) = &mut self.desk {
            desk.meet(peers.len(), &self.control);
        }
        while !self.stopping {
            let is_behind = !self.outbox.is_empty()
                || !self.postponed.is_empty()
                || self.engine.has_work()
                || self.desk.as_ref().is_some_and(Desk::is_polling)
                || self.lodger_is_behind;
            if !is_behind {
                self.quiet.end();
            }
            let wait = if is_behind || self.quiet.owes_turn() {
                Wait::Poll
            } else {
                let until = self.desk.as_ref().and_then(Desk::deadline);
                let until = until.map(|time| self.clock.instant(time));
                Wait::Block { until }
            };
            self.turn(wait)?;
        }
        // Where a queue is left, or a store has requests of one, the end of the ring is what ends them, and is not kept waiting.
        let is_left = !self.draining.is_empty() || !self.queues.is_empty();
        self.desk = None;
        if !is_left {
            self.farewells.finish()?;
        }
        Ok(())
    }

    /// Waits for events, and does all that they lead to.
    fn turn(&mut self, wait: Wait) -> Result<(), FrontendError> {
        if self.quiet.begin(wait, &self.ring, self.time.ns()) {
            self.quiet_turn();
            return Ok(());
        }
        self.ring.turn(wait)?;
        self.time.begin(self.ring.last_work());
        self.send_outbox();
        self.take_messages();
        if let Some(lodger) = &mut self.lodger {
            lodger.turn(&mut self.engine, self.time.now());
        }
        while let Some(owner) = self.ring.next_ready() {
            self.ready(owner);
        }
        self.serve_postponed();
        self.act();
        self.publish();
        Ok(())
    }

    /// Says what the turn has made of the reactor's own numbers.
    fn publish(&self) {
        let stats = self.ring.stats();
        let counters = &self.telemetry.counters;
        let since_began = self.time.ns().saturating_sub(self.began_ns);
        counters.turns.set(stats.turns);
        counters.idle_ns.set(stats.slept_ns);
        counters
            .busy_ns
            .set(since_began.saturating_sub(stats.slept_ns));
        counters.sleeps.set(stats.blocks);
        counters.enters.set(stats.enters);
        counters.submitted.set(stats.submitted);
        counters.completions.set(stats.completions);
        self.engine.publish();
    }

    /// Does what the turn's events have led to.
    fn act(&mut self) {
        loop {
            self.serve_desk();
            self.take_answers();
            self.feed_starved();
            self.refill_dry();
            self.settle();
            if let Some(lodger) = &mut self.lodger {
                self.lodger_is_behind = lodger.settle(&mut self.engine);
            }
            self.look_at_pending();
            self.look_at_awaited();
            if self.touched.is_empty() && !self.desk.as_ref().is_some_and(Desk::has_work) {
                return;
            }
        }
    }

    fn ready(&mut self, owner: OwnerId) {
        if let Some(&key) = self.owners.get(&owner) {
            self.touched.push(key);
            if let Some(queue) = self.queues.get_mut(key) {
                queue.serve(key, &mut self.engine);
            }
            return;
        }
        let engine = &mut self.engine;
        let lodger = self.lodger.as_mut();
        let is_taken =
            self.farewells.ready(owner) || lodger.is_some_and(|it| it.ready(owner, engine));
        if let Some(desk) = self.desk.as_mut().filter(|_| !is_taken) {
            desk.ready(owner);
        }
    }

    /// Queues that would not wait for the turn to bring them something. Those that there is nothing for are looked at again after the next.
    fn serve_postponed(&mut self) {
        let mut postponed = std::mem::take(&mut self.postponed);
        let mut is_read = false;
        postponed.retain(|&key| {
            let Some(queue) = self.queues.get_mut(key) else {
                return false;
            };
            if !queue.link.is_due() {
                return true;
            }
            // The ring brought nothing of it, so that the turn's time is not that of what came.
            if !std::mem::replace(&mut is_read, true) {
                self.time.read();
            }
            queue.listed_postponed = false;
            self.touched.push(key);
            queue.serve(key, &mut self.engine);
            false
        });
        self.postponed = postponed;
        if let Some(desk) = &mut self.desk {
            desk.serve_polled();
        }
    }

    /// Takes the engine's answers until there are no more: a memory store completes as soon as it is asked.
    fn take_answers(&mut self) {
        loop {
            let mut done = std::mem::take(&mut self.done);
            self.engine.poll(&mut done);
            let answered = !done.is_empty();
            for answer in done.drain(..) {
                self.answered(answer);
            }
            self.done = done;
            if !answered {
                return;
            }
        }
    }

    fn answered(&mut self, done: Done) {
        self.awaited_ends(done.token);
        if let Some((high, low)) = parts_of_lodger(done.token) {
            if let Some(lodger) = &mut self.lodger {
                lodger.answered(high, low, done);
            }
            // It goes on with what the answer was for.
            self.lodger_is_behind = true;
            return;
        }
        let (key, slot) = parts_of(done.token);
        if let Some(queue) = self.queues.get_mut(key) {
            queue.done(slot, done);
            self.touched.push(key);
        } else if self.draining.contains_key(&key) {
            self.drained(done.token);
        } else if let Some(desk) = &mut self.desk {
            desk.flushed(&done);
        }
    }

    /// The desk has answered a reservation command.
    fn reserved(&mut self, reserved: &Reserved) {
        let (key, slot) = parts_of(reserved.token);
        match self.queues.get_mut(key) {
            Some(queue) => {
                queue.reserved(slot, reserved.status, &reserved.data);
                self.touched.push(key);
            }
            None => self.drained(reserved.token),
        }
    }

    /// Ends a command, if its queue is still there.
    fn abort(&mut self, abort: Abort) {
        let of_controller = self.queues_of(abort.controller);
        for key in of_controller {
            if let Some(queue) = self.queues.get_mut(key)
                && queue.queue == abort.queue
            {
                queue.abort(abort.cid, abort.id, key, &mut self.engine);
                self.touched.push(key);
                return;
            }
        }
        self.tell_desk(Message::Aborted(abort.id, false));
    }

    /// Gives memory that came back to the queues that wait for it, one write each in turn.
    fn feed_starved(&mut self) {
        while let Some(key) = self.starved.pop_front() {
            let Some(queue) = self.queues.get_mut(key) else {
                continue;
            };
            if queue.ask_for_data(&self.engine) {
                self.touched.push(key);
                self.starved.push_back(key);
            } else if queue.is_starved() {
                self.starved.push_front(key);
                break;
            } else {
                queue.listed_starved = false;
            }
        }
    }

    /// Lets queues receive again once one of the ring's buffers became free.
    fn refill_dry(&mut self) {
        let returned = self.ring.recv_buffers_returned();
        if returned != self.buffers_returned {
            self.buffers_returned = returned;
            for key in self.dry.drain(..) {
                if let Some(queue) = self.queues.get_mut(key) {
                    queue.listed_dry = false;
                    self.touched.push(key);
                }
            }
        }
    }

    /// Receives and sends for every queue that something happened to; closes those that ended.
    fn settle(&mut self) {
        let mut touched = std::mem::take(&mut self.touched);
        let mut is_read = false;
        touched.sort_unstable_by_key(|key| key.to_bits());
        touched.dedup();
        for key in touched.drain(..) {
            let Some(queue) = self.queues.get_mut(key) else {
                continue;
            };
            if queue.meter.has_answers() && !std::mem::replace(&mut is_read, true) {
                self.time.read();
            }
            let health = queue.settle();
            let wire = queue.link.take_wire();
            self.telemetry.counters.wire_sent_bytes.add(wire.sent);
            self.telemetry
                .counters
                .wire_received_bytes
                .add(wire.received);
            self.telemetry.counters.wire_copied_bytes.add(wire.copied);
            if queue.is_starved() && !std::mem::replace(&mut queue.listed_starved, true) {
                self.starved.push_back(key);
            }
            if queue.link.wants_turn() && !std::mem::replace(&mut queue.listed_postponed, true) {
                self.postponed.push(key);
            }
            if queue.link.is_dry() && !std::mem::replace(&mut queue.listed_dry, true) {
                self.dry.push(key);
            }
            let (controller, failures) = (queue.controller, std::mem::take(&mut queue.failures));
            let messages = std::mem::take(&mut queue.messages);
            for failure in failures {
                self.tell_desk(Message::Failed(controller, failure));
            }
            for message in messages {
                self.tell_desk(message);
            }
            if health == Health::Over {
                self.close(key);
            }
        }
        self.touched = touched;
    }
}

/// The queue and the slot in a request's token.
fn parts_of(token: u64) -> (Key, Slot) {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the low half of the token is the slot"
    )]
    let slot = Slot(token as u16);
    (key_of(token), slot)
}

/// The queue in a request's token.
fn key_of(token: u64) -> Key {
    Key::from_bits(token >> 16)
}

impl Drop for Frontend {
    fn drop(&mut self) {
        self.control.end();
    }
}
