//! One connection: its queue pair, its machine, and the buffers of its commands.

mod ending;

use std::net::SocketAddr;

use nvme::Time;
use nvme::initiator::{Command, Transfer};
use nvme::queue::Slot;
use nvme::rdma::host::{Connection, Event as MachineEvent, RESPONSE_BYTES};
use nvme_spec::{Cqe, Sqe};
use reactor::buf::IoBuf;
use reactor::{Event, Owner, Ring};
use store::WireBytes;
use store_nvme::commands::{Commands, Outstanding};
use store_nvme::queue::{Outcome, Parted, Queue, QueueError, QueueEvent};
use verbs::limits::COMPLETIONS_PER_POLL_MAX;
use verbs::{CmId, Completion, Done, EventChannel, EventKind, Opcode, Status};

use crate::connecting::{Brought, Connecting, device_gone};
use crate::lane::{Batch, Lane, Room, Work};
use crate::limits::{CAPSULES_PER_POST_MAX, COMPLETIONS_PER_TURN_MAX};
use crate::transport::{NAME, RdmaParted, With};
use crate::watched::Watched;
use crate::words;

/// What an event of the queue's owner belongs to.
const TAG_MANAGER: u64 = 0;
const TAG_COMPLETIONS: u64 = 1;

/// How soon an operation is tried again that the ring had no room for, or a command that the device had no memory for.
const RETRY: std::time::Duration = std::time::Duration::from_millis(1);

/// How far the connection is.
#[derive(Debug)]
enum Phase {
    /// It is to stand by then.
    Coming {
        connecting: Connecting,
        by: Time,
    },
    Ready {
        // In the order in which they go.
        lane: Lane,
        id: CmId,
    },
    Over,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct RdmaQueue {
    owner: Owner,
    // First of what is the device's: see `Phase`.
    phase: Phase,
    /// None once the connection is over.
    channel: Option<EventChannel>,
    manager: Watched,
    /// The completion channel, once there is one.
    completions: Option<Watched>,
    /// The completion queue tells of the next completion.
    is_armed: bool,
    /// Completions that were found while it was armed wait for poll.
    completed: Vec<Completion>,
    to: SocketAddr,
    with: With,
    machine: Connection,
    commands: Commands,
    /// For the next poll.
    events: Vec<QueueEvent>,
    /// A command was taken back, which the machine tells at the next poll.
    has_withdrawn: bool,
    /// No command is overdue before then; none while none is timed.
    look_at: Option<Time>,
    /// The ring had no room for an operation, or the device none for a command: when to try again.
    retry_at: Option<Time>,
    /// Nothing is watched any more, so that the queue can leave its ring.
    is_parting: bool,
    /// Messages, and payload of commands that succeeded: what else is on the wire is the device's.
    wire: WireBytes,
}

impl RdmaQueue {
    /// One whose connection is on its way.
    pub(crate) fn connecting(
        ring: &Ring,
        to: SocketAddr,
        channel: EventChannel,
        connecting: Connecting,
        machine: Connection,
        with: With,
    ) -> Result<Self, QueueError> {
        let by = with.clock.now() + with.options.connect_timeout;
        let phase = Phase::Coming { connecting, by };
        Self::on(ring, to, channel, phase, machine, with)
    }

    /// One that stands.
    pub(crate) fn joined(ring: &Ring, parted: RdmaParted) -> Result<Self, QueueError> {
        let RdmaParted {
            lane,
            id,
            channel,
            to,
            with,
            machine,
            wire,
        } = parted;
        let completions = Watched::new(&lane.cq, TAG_COMPLETIONS);
        let completions = completions.map_err(|error| QueueError::resources(to, &error))?;
        let phase = Phase::Ready { lane, id };
        let mut queue = Self::on(ring, to, channel, phase, machine, with)?;
        queue.completions = Some(completions);
        queue.wire = wire;
        Ok(queue)
    }

    fn on(
        ring: &Ring,
        to: SocketAddr,
        channel: EventChannel,
        phase: Phase,
        machine: Connection,
        with: With,
    ) -> Result<Self, QueueError> {
        let manager = Watched::new(&channel, TAG_MANAGER)
            .map_err(|error| QueueError::resources(to, &error))?;
        Ok(Self {
            // With those who can wait: what is left to connections of hosts is counted for each of them.
            owner: ring
                .register_yielding()
                .map_err(|error| QueueError::resources(to, &error))?,
            phase,
            channel: Some(channel),
            manager,
            completions: None,
            is_armed: false,
            completed: Vec::with_capacity(COMPLETIONS_PER_POLL_MAX),
            to,
            commands: Commands::new(with.options.depth),
            with,
            machine,
            events: Vec::new(),
            has_withdrawn: false,
            look_at: None,
            retry_at: None,
            is_parting: false,
            wire: WireBytes::default(),
        })
    }

    fn take_in(&mut self, event: &Event) {
        if event.tag == TAG_MANAGER {
            self.manager.op = None;
            self.hear_manager();
            return;
        }
        if let Some(completions) = &mut self.completions {
            completions.op = None;
        }
        if let (Phase::Ready { lane, .. }, Ok(_)) = (&self.phase, &event.result) {
            self.is_armed = false;
            if let Err(error) = lane.cq.take_events() {
                self.give_up(error.to_string());
            }
        }
    }

    /// Takes in what the connection manager has.
    fn hear_manager(&mut self) {
        while let Some(channel) = &self.channel {
            match channel.next_event() {
                Ok(Some(event)) => self.managed(event.kind),
                Ok(None) => return,
                Err(error) => return self.end(QueueError::resources(self.to, &error)),
            }
        }
    }

    fn managed(&mut self, kind: EventKind) {
        let to = self.to;
        match &mut self.phase {
            Phase::Coming { connecting, .. } => {
                let with = (to, &self.with.options);
                match connecting.take_in(kind, &mut self.machine, with) {
                    Ok(Brought::NotYet) => {}
                    Ok(Brought::Stands(agreed)) => self.stands(agreed.private_data.as_bytes()),
                    Err(error) => self.end(error),
                }
            }
            Phase::Ready { .. } => match kind {
                EventKind::Disconnected => {
                    // What it answered before it went.
                    self.reap();
                    self.ended_by_peer("it disconnected".to_owned());
                }
                EventKind::DeviceRemoval => self.end(device_gone(to)),
                // The connection goes on as long as packets find their way.
                _ => {}
            },
            Phase::Over => {}
        }
    }

    /// The connection manager says that the connection stands.
    fn stands(&mut self, private_data: &[u8]) {
        if let Err(error) = self.machine.accepted(private_data) {
            return self.give_up(error.to_string());
        }
        let Phase::Coming { connecting, .. } = std::mem::replace(&mut self.phase, Phase::Over)
        else {
            return;
        };
        let Connecting {
            lane: Some(lane),
            id,
            ..
        } = connecting
        else {
            return self.give_up("it stands before it was asked for".to_owned());
        };
        let completions = Watched::new(&lane.cq, TAG_COMPLETIONS);
        self.phase = Phase::Ready { lane, id };
        match completions {
            Ok(completions) => {
                self.completions = Some(completions);
                self.events.push(QueueEvent::Ready);
            }
            Err(error) => self.end(QueueError::resources(self.to, &error)),
        }
    }

    /// Takes completions, as many as a turn may.
    fn reap(&mut self) {
        for _ in 0..COMPLETIONS_PER_TURN_MAX / COMPLETIONS_PER_POLL_MAX {
            let Phase::Ready { lane, .. } = &self.phase else {
                return;
            };
            let more = match lane.poll(&mut self.completed) {
                Ok(count) => count == COMPLETIONS_PER_POLL_MAX,
                Err(error) => return self.give_up(error.to_string()),
            };
            let mut completed = std::mem::take(&mut self.completed);
            for completion in completed.drain(..) {
                self.complete(&completion);
            }
            self.completed = completed;
            self.tell();
            if !more {
                return;
            }
        }
    }

    fn complete(&mut self, completion: &Completion) {
        match (&completion.result, Work::of(completion.id)) {
            (Ok(done), Work::Receive(place)) => self.received(place, done),
            (Ok(done), Work::Send(slot)) if done.opcode == Opcode::Send => {
                self.machine.sent(slot);
            }
            (Ok(done), Work::Invalidate(slot)) if done.opcode == Opcode::LocalInvalidate => {
                self.machine.invalidated(slot);
            }
            // Binds are not signaled; some devices tell nevertheless.
            (Ok(_), Work::Bind(_)) => {}
            (Ok(done), _) => self.give_up(words::of_opcode(done.opcode)),
            (Err(failed), work) => self.failed(failed.status, work),
        }
    }

    /// A work request failed: so has the connection.
    fn failed(&mut self, status: Status, work: Work) {
        if status == Status::Flushed {
            // The connection manager may know why.
            self.hear_manager();
        }
        let why = words::of_status(status);
        match (status, work) {
            (Status::LocalLength, Work::Receive(_)) | (Status::WindowBind, _) => self.give_up(why),
            _ => self.ended_by_peer(why),
        }
    }

    /// A message is there: it is taken, and its place free for the next.
    fn received(&mut self, place: u16, done: &Done) {
        let Phase::Ready { lane, .. } = &self.phase else {
            return;
        };
        let mut message = [0; RESPONSE_BYTES];
        let bytes = message.get_mut(..done.bytes as usize).unwrap_or_default();
        self.wire.received += u64::from(done.bytes);
        if !lane.message(place, bytes) {
            return self.give_up("a message is not where it was received".to_owned());
        }
        let posted = lane.receive(place);
        self.machine
            .response(bytes, done.invalidated.map(|key| key.0));
        if let Err(error) = posted {
            self.give_up(error.to_string());
        }
    }

    /// Passes on what the machine has.
    fn tell(&mut self) {
        while let Some(event) = self.machine.next_event() {
            match event {
                MachineEvent::Completed { slot, cqe } => self.completed(slot, cqe),
                MachineEvent::Fatal(error) => self.give_up(error.to_string()),
            }
        }
        while let Some((slot, key)) = self.machine.next_invalidation() {
            let Phase::Ready { lane, .. } = &self.phase else {
                return;
            };
            if let Err(error) = lane.invalidate(slot, key) {
                self.give_up(error.to_string());
            }
        }
    }

    fn completed(&mut self, slot: Slot, cqe: Cqe) {
        let Phase::Ready { lane, .. } = &mut self.phase else {
            return;
        };
        let mut is_whole = true;
        // None of one that was given up: it has ended.
        if let Some(command) = self.commands.take(slot) {
            match command.transfer {
                Transfer::In(bytes) if cqe.status().is_success() => {
                    self.wire.received += u64::from(bytes);
                }
                Transfer::Out(bytes) if cqe.status().is_success() => {
                    self.wire.sent += u64::from(bytes);
                }
                _ => {}
            }
            is_whole = fetch(lane, slot, &command, &cqe);
            let outcome = if command.abandoned {
                Outcome::Lost { was_sent: false }
            } else {
                Outcome::Answered(cqe)
            };
            self.events.push(QueueEvent::Ended {
                slot,
                outcome,
                buf: command.buf,
            });
        }
        lane.release(slot);
        if !is_whole {
            self.give_up("a command's buffer does not take its data".to_owned());
        }
    }

    /// Whether the ring has nothing of the queue.
    fn is_at_rest(&self) -> bool {
        let is_watched = |watched: &Watched| watched.op.is_some();
        !is_watched(&self.manager) && !self.completions.as_ref().is_some_and(is_watched)
    }

    fn look_at_clock(&mut self, now: Time) {
        match self.phase {
            Phase::Coming { by, .. } if now >= by => self.end(QueueError::NotInTime {
                to: self.to,
                transport: NAME,
                after: self.with.options.connect_timeout,
            }),
            Phase::Ready { .. } if self.look_at.is_some_and(|at| now >= at) => {
                self.machine.tick(now);
                self.tell();
                self.look_at = self.machine.deadline();
            }
            _ => {}
        }
    }

    /// Hands over what the machine has to send, as far as there is memory for it.
    fn send(&mut self) {
        loop {
            let mut batch = Batch::new();
            let Phase::Ready { lane, .. } = &mut self.phase else {
                return;
            };
            let mut why = None;
            while batch.len() < CAPSULES_PER_POST_MAX
                && let Some(next) = self.machine.next_capsule()
            {
                let slot = next.slot;
                let grant = match lane.place(slot, next.data, self.commands.buf(slot)) {
                    Room::There(grant) => grant,
                    Room::Full => break,
                    Room::Later => {
                        self.retry_at = Some(self.with.clock.now() + RETRY);
                        break;
                    }
                    Room::Refused(refusal) => {
                        why = Some(refusal);
                        break;
                    }
                };
                let Some(sqe) = self.machine.send(slot, grant) else {
                    break;
                };
                self.wire.sent += size_of::<Sqe>() as u64;
                match lane.prepare(slot, &sqe, next.data) {
                    Ok(prepared) => batch.push(prepared),
                    Err(error) => why = Some(error.to_string()),
                }
            }
            let is_full = batch.len() == CAPSULES_PER_POST_MAX;
            if !batch.is_empty()
                && let Err(error) = lane.post(&batch)
            {
                why = Some(error.to_string());
            }
            if let Some(why) = why {
                return self.give_up(why);
            }
            if !is_full {
                return;
            }
        }
    }

    /// Watches the descriptors, and has the completion queue tell of what comes from now on.
    fn watch(&mut self) {
        let mut has_room = self.manager.watch(&self.owner);
        if let (Phase::Ready { lane, .. }, Some(completions)) = (&self.phase, &mut self.completions)
        {
            has_room &= completions.watch(&self.owner);
            if !self.is_armed {
                let armed = lane.cq.arm(false);
                // What came before it was armed.
                let found = armed.and_then(|()| lane.poll(&mut self.completed));
                self.is_armed = true;
                if let Err(error) = found {
                    self.give_up(error.to_string());
                }
            }
        }
        if !has_room {
            self.retry_at = Some(self.with.clock.now() + RETRY);
        }
    }

    fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Ready { .. })
            && self.machine.outstanding() == 0
            && self.events.is_empty()
            && self.completed.is_empty()
    }
}

impl Queue for RdmaQueue {
    fn poll(&mut self, now: Time, events: &mut Vec<QueueEvent>) {
        if std::mem::take(&mut self.has_withdrawn) {
            self.tell();
        }
        while let Some(event) = self.owner.next_event() {
            self.take_in(&event);
        }
        self.reap();
        self.look_at_clock(now);
        events.append(&mut self.events);
    }

    fn room(&self) -> usize {
        match self.phase {
            Phase::Ready { .. } => self.machine.room(),
            Phase::Coming { .. } | Phase::Over => 0,
        }
    }

    fn submit(
        &mut self,
        command: &Command,
        buf: Option<IoBuf>,
        now: Time,
    ) -> Result<Slot, Option<IoBuf>> {
        if !matches!(self.phase, Phase::Ready { .. }) {
            return Err(buf);
        }
        let Ok(slot) = self.machine.submit(command, now) else {
            return Err(buf);
        };
        self.commands.put(slot, command, buf);
        self.look_at
            .get_or_insert(now + self.with.options.command_timeout);
        self.is_parting = false;
        Ok(slot)
    }

    fn abandon(&mut self, slot: Slot) {
        let Some(command) = self.commands.get_mut(slot) else {
            return;
        };
        if command.abandoned || !matches!(self.phase, Phase::Ready { .. }) {
            return;
        }
        if !matches!(command.transfer, Transfer::In(_)) {
            self.machine.abandon(slot);
            return;
        }
        command.abandoned = true;
        if self.machine.withdraw(slot) {
            self.has_withdrawn = true;
        } else if self.machine.abandon(slot)
            && let Some(command) = self.commands.take(slot)
        {
            // The controller has a key to the staging, not to the buffer: late data go nowhere.
            self.events.push(QueueEvent::Ended {
                slot,
                outcome: Outcome::Lost { was_sent: true },
                buf: command.buf,
            });
        }
    }

    fn settle(&mut self) {
        self.retry_at = None;
        if matches!(self.phase, Phase::Over) {
            return;
        }
        self.send();
        if !self.is_parting {
            self.watch();
        }
    }

    fn deadline(&self) -> Option<Time> {
        if !self.events.is_empty() || self.has_withdrawn || !self.completed.is_empty() {
            return Some(Time::ZERO);
        }
        let phase = match self.phase {
            Phase::Coming { by, .. } => Some(by),
            Phase::Ready { .. } => self.look_at,
            Phase::Over => None,
        };
        [phase, self.retry_at].into_iter().flatten().min()
    }

    fn cid(&self, slot: Slot) -> Option<nvme_spec::Cid> {
        self.machine.cid(slot)
    }

    fn wire(&self) -> WireBytes {
        self.wire
    }

    fn close(&mut self) {
        self.end(QueueError::Closed { to: self.to });
    }

    fn is_closed(&self) -> bool {
        matches!(self.phase, Phase::Over)
            && self.is_at_rest()
            && self.commands.is_empty()
            && self.events.is_empty()
    }

    fn part(mut self: Box<Self>) -> Result<Box<dyn Parted>, Box<dyn Queue>> {
        if !self.is_idle() {
            return Err(self);
        }
        self.is_parting = true;
        if !self.is_at_rest() {
            self.manager.cancel(&self.owner);
            if let Some(completions) = &self.completions {
                completions.cancel(&self.owner);
            }
            return Err(self);
        }
        let phase = std::mem::replace(&mut self.phase, Phase::Over);
        let (Phase::Ready { lane, id }, Some(channel)) = (phase, self.channel.take()) else {
            return Err(self);
        };
        let this = *self;
        Ok(Box::new(RdmaParted {
            lane,
            id,
            channel,
            to: this.to,
            with: this.with,
            machine: this.machine,
            wire: this.wire,
        }))
    }
}

/// Brings what a command read into its buffer; false where the buffer does not take it.
fn fetch(lane: &Lane, slot: Slot, command: &Outstanding, cqe: &Cqe) -> bool {
    match (command.transfer, &command.buf) {
        (Transfer::In(bytes), Some(buf)) if cqe.status().is_success() => {
            lane.fetch(slot, buf, bytes)
        }
        _ => true,
    }
}
