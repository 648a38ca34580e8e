//! One connection: its socket, its machine, and the buffers of its commands.

use std::net::SocketAddr;

use nvme::Time;
use nvme::initiator::{Command, Transfer};
use nvme::queue::Slot;
use nvme::tcp::batch::TxBatch;
use nvme::tcp::host::{Connection, Event as MachineEvent, HostError, Want};
use reactor::buf::IoBuf;
use reactor::{Errno, Event, Fd, OpId, Owner, ReactorError, Ring};
use store::WireBytes;
use store_nvme::Clock;
use store_nvme::commands::Commands;
use store_nvme::queue::{Outcome, Parted, Queue, QueueError, QueueEvent, QueueOptions};

use crate::limits::RETRY;
use crate::receive::Inflow;
use crate::send::Outflow;
use crate::socket::{self, Farewell};
use crate::transport::{NAME, TcpParted};

/// What an event of the queue's owner belongs to.
const TAG_CONNECT: u64 = 0;
const TAG_RECV: u64 = 1;
const TAG_SEND: u64 = 2;

/// How far the connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The socket connects, or ICResp is to come, by then.
    Coming {
        by: Time,
    },
    Ready,
    Over,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct TcpQueue {
    owner: Owner,
    /// None once the connection is over and no operation has it.
    socket: Option<Fd>,
    to: SocketAddr,
    clock: Clock,
    options: QueueOptions,
    phase: Phase,
    /// Waits until the socket is connected.
    connecting: Option<OpId>,
    machine: Connection,
    commands: Commands,
    inflow: Inflow,
    outflow: Outflow,
    /// For the next poll.
    events: Vec<QueueEvent>,
    /// A command was taken back, which the machine tells at the next poll.
    has_withdrawn: bool,
    /// No command is overdue before then; none while none is timed.
    look_at: Option<Time>,
    /// The ring had no room for an operation: when to try again.
    retry_at: Option<Time>,
    /// Nothing is received any more, so that the queue can leave its ring.
    is_parting: bool,
    farewell: Farewell,
    wire: WireBytes,
}

impl TcpQueue {
    /// One whose socket is on its way.
    pub(crate) fn connecting(
        ring: &Ring,
        socket: Fd,
        to: SocketAddr,
        machine: Connection,
        (options, clock): (&QueueOptions, Clock),
    ) -> Result<Self, QueueError> {
        let by = clock.now() + options.connect_timeout;
        let phase = Phase::Coming { by };
        let mut queue = Self::on(ring, socket, to, machine, (options, clock), phase)?;
        let poll = queue
            .owner
            .poll(queue.fd()?, nix::libc::POLLOUT, TAG_CONNECT);
        queue.connecting = Some(poll.map_err(|refused| QueueError::resources(to, &refused))?);
        Ok(queue)
    }

    /// One that stands.
    pub(crate) fn joined(
        ring: &Ring,
        socket: Fd,
        to: SocketAddr,
        machine: Connection,
        (options, clock): (&QueueOptions, Clock),
        wire: WireBytes,
    ) -> Result<Self, QueueError> {
        let queue = Self::on(ring, socket, to, machine, (options, clock), Phase::Ready)?;
        Ok(Self { wire, ..queue })
    }

    fn on(
        ring: &Ring,
        socket: Fd,
        to: SocketAddr,
        machine: Connection,
        (options, clock): (&QueueOptions, Clock),
        phase: Phase,
    ) -> Result<Self, QueueError> {
        let lacks = |error: ReactorError| QueueError::resources(to, &error);
        Ok(Self {
            // With those who can wait: what is left to connections of hosts is counted for each of them.
            owner: ring.register_yielding().map_err(lacks)?,
            socket: Some(socket),
            to,
            clock,
            options: options.clone(),
            phase,
            connecting: None,
            machine,
            commands: Commands::new(options.depth),
            inflow: Inflow::new().map_err(lacks)?,
            outflow: Outflow::new(),
            events: Vec::new(),
            has_withdrawn: false,
            look_at: None,
            retry_at: None,
            is_parting: false,
            farewell: Farewell::Orderly,
            wire: WireBytes::default(),
        })
    }

    fn fd(&self) -> Result<&Fd, QueueError> {
        self.socket
            .as_ref()
            .ok_or(QueueError::Closed { to: self.to })
    }

    fn take_in(&mut self, event: Event) {
        match event.tag {
            TAG_CONNECT => self.connected(&event),
            TAG_RECV => self.received(event),
            _ => self.sent(event),
        }
        if self.phase == Phase::Over {
            self.wind_up();
        } else {
            self.tell();
        }
    }

    fn connected(&mut self, event: &Event) {
        self.connecting = None;
        let Some(socket) = self.socket.as_ref().filter(|_| self.phase != Phase::Over) else {
            return;
        };
        let connected = event.result.and_then(|_| socket::connected(socket));
        if let Err(source) = connected {
            self.end(QueueError::Connect {
                to: self.to,
                source,
            });
        }
    }

    fn received(&mut self, event: Event) {
        let armed = self.inflow.ended();
        self.wire.received += u64::from(event.result.unwrap_or(0));
        // The buffer that comes back is a view of the command's and of the landing.
        drop(event.payload);
        let is_over = self.phase == Phase::Over;
        if let (Some(armed), Ok(count @ 1..), false) = (armed, event.result, is_over) {
            let given_up = armed.slot().filter(|slot| {
                let command = self.commands.get_mut(*slot);
                command.is_some_and(|command| command.abandoned)
            });
            self.inflow
                .take(armed, count as usize, &mut self.machine, &mut self.commands);
            self.give_back(given_up);
            return;
        }
        self.give_back(armed.and_then(|armed| armed.slot()));
        match event.result {
            // To let a buffer go, or to leave the ring.
            _ if is_over => {}
            Err(Errno::ECANCELED | Errno::EINTR) => {}
            Ok(_) => self.ended_by_peer("it closed the connection".to_owned()),
            Err(error) => self.ended_by_peer(error.desc().to_owned()),
        }
    }

    /// Nothing fills the buffer of a command any more: if it was given up, it ends.
    fn give_back(&mut self, slot: Option<Slot>) {
        let Some(slot) = slot else { return };
        if self.commands.get_mut(slot).is_some_and(|it| it.abandoned)
            && let Some(command) = self.commands.take(slot)
        {
            self.events.push(QueueEvent::Ended {
                slot,
                outcome: Outcome::Lost { was_sent: true },
                buf: command.buf,
            });
        }
    }

    fn sent(&mut self, event: Event) {
        let result = event.result;
        self.wire.sent += u64::from(result.unwrap_or(0));
        if self.outflow.sent(event, &mut self.machine) || self.phase == Phase::Over {
            return;
        }
        match result {
            // The peer may have said why: what it sent is received, and then the end.
            Err(Errno::EPIPE | Errno::ECONNRESET) if !self.is_parting => {}
            Err(error) => self.ended_by_peer(error.desc().to_owned()),
            Ok(_) => self.ended_by_peer("it took a part of a send only".to_owned()),
        }
    }

    /// Passes on what the machine has.
    fn tell(&mut self) {
        while let Some(event) = self.machine.next_event() {
            match event {
                MachineEvent::Ready(_) => {
                    self.phase = Phase::Ready;
                    self.events.push(QueueEvent::Ready);
                }
                MachineEvent::Completed { slot, cqe, .. } => {
                    // None of one that was given up: it has ended.
                    if let Some(command) = self.commands.take(slot) {
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
                }
                MachineEvent::Fatal(HostError::Terminated {
                    status,
                    information,
                }) => self.ended_by_peer(format!("TermReq, {status:?}, FEI {information:#x}")),
                MachineEvent::Fatal(error) => self.give_up(error.to_string()),
            }
        }
    }

    fn ended_by_peer(&mut self, why: String) {
        self.end(QueueError::Ended { to: self.to, why });
    }

    fn give_up(&mut self, why: String) {
        self.end(QueueError::GivenUp { to: self.to, why });
    }

    /// The connection is over. What is under way is cancelled, and what it has of commands is given back as it ends.
    fn end(&mut self, why: QueueError) {
        if self.phase == Phase::Over {
            return;
        }
        self.phase = Phase::Over;
        if self.commands.has_changes() {
            self.farewell = Farewell::Abrupt;
        }
        self.events.push(QueueEvent::Over(why));
        let receive = self.inflow.armed().map(|armed| armed.op);
        let under_way = [self.connecting, receive, self.outflow.op()];
        for op in under_way.into_iter().flatten() {
            self.owner.ring().cancel(op);
        }
        self.wind_up();
    }

    /// After the end: gives back the buffers that nothing touches any more, and closes the socket once no operation has it.
    fn wind_up(&mut self) {
        let is_sending = self.outflow.op().is_some();
        if !is_sending {
            self.say_why();
        }
        let filled = self.inflow.armed().and_then(|armed| armed.slot());
        let slots: Vec<Slot> = self.commands.slots().collect();
        for slot in slots {
            let is_sent_from = is_sending && self.is_lent(slot);
            if is_sent_from || filled == Some(slot) {
                continue;
            }
            if let Some(command) = self.commands.take(slot) {
                let was_sent = self.machine.was_sent(slot);
                self.events.push(QueueEvent::Ended {
                    slot,
                    outcome: Outcome::Lost { was_sent },
                    buf: command.buf,
                });
            }
        }
        if self.is_at_rest()
            && let Some(socket) = self.socket.take()
        {
            socket::prepare_close(&socket, self.farewell);
        }
    }

    fn is_lent(&self, slot: Slot) -> bool {
        let mut occupied = self.machine.occupied();
        occupied.any(|there| there.slot == slot && there.is_lent)
    }

    /// Sends the machine's TermReq, where it has one, the stream is at the end of a PDU, and nothing but reads is outstanding.
    fn say_why(&mut self) {
        let Some(socket) = &self.socket else { return };
        if self.farewell == Farewell::Abrupt {
            return;
        }
        if self.machine.outstanding() > 0 && self.farewell == Farewell::Orderly {
            self.farewell = Farewell::Abrupt;
        }
        if self.machine.want() != Want::Closed || !self.outflow.is_between_pdus() {
            return;
        }
        let mut last = TxBatch::with_capacity(1);
        self.machine.transmit(&mut last);
        if let Some(item) = last.items().first()
            && socket::send_last(socket, last.header(item))
        {
            self.farewell = Farewell::Told;
        }
    }

    /// Whether the ring has nothing of the queue.
    fn is_at_rest(&self) -> bool {
        self.connecting.is_none() && self.inflow.armed().is_none() && self.outflow.op().is_none()
    }

    fn look_at_clock(&mut self, now: Time) {
        match self.phase {
            Phase::Coming { by } if now >= by => self.end(QueueError::NotInTime {
                to: self.to,
                transport: NAME,
                after: self.options.connect_timeout,
            }),
            Phase::Ready if self.look_at.is_some_and(|at| now >= at) => {
                self.machine.tick(now);
                self.tell();
                self.look_at = self.machine.deadline();
            }
            _ => {}
        }
    }

    fn is_idle(&self) -> bool {
        self.phase == Phase::Ready
            && self.machine.outstanding() == 0
            && self.events.is_empty()
            && self.outflow.is_empty()
    }
}

impl Queue for TcpQueue {
    fn poll(&mut self, now: Time, events: &mut Vec<QueueEvent>) {
        if std::mem::take(&mut self.has_withdrawn) {
            self.tell();
        }
        while let Some(event) = self.owner.next_event() {
            self.take_in(event);
        }
        self.look_at_clock(now);
        events.append(&mut self.events);
    }

    fn room(&self) -> usize {
        if self.phase == Phase::Ready {
            self.machine.room()
        } else {
            0
        }
    }

    fn submit(
        &mut self,
        command: &Command,
        buf: Option<IoBuf>,
        now: Time,
    ) -> Result<Slot, Option<IoBuf>> {
        if self.phase != Phase::Ready {
            return Err(buf);
        }
        let Ok(slot) = self.machine.submit(command, now) else {
            return Err(buf);
        };
        self.commands.put(slot, command, buf);
        self.look_at
            .get_or_insert(now + self.options.command_timeout);
        self.is_parting = false;
        Ok(slot)
    }

    fn abandon(&mut self, slot: Slot) {
        let Some(command) = self.commands.get_mut(slot) else {
            return;
        };
        if command.abandoned || self.phase != Phase::Ready {
            return;
        }
        if !matches!(command.transfer, Transfer::In(_)) {
            self.machine.abandon(slot);
            return;
        }
        command.abandoned = true;
        if self.machine.withdraw(slot) {
            self.has_withdrawn = true;
        } else {
            self.machine.abandon(slot);
            match self.inflow.armed() {
                Some(armed) if armed.slot() == Some(slot) => self.owner.ring().cancel(armed.op),
                _ => self.give_back(Some(slot)),
            }
        }
    }

    fn settle(&mut self) {
        self.retry_at = None;
        let Some(socket) = &self.socket else { return };
        if self.phase == Phase::Over || self.connecting.is_some() {
            return;
        }
        let mut has_room = true;
        if !self.is_parting {
            let with = (&self.owner, socket, TAG_RECV);
            has_room &= self.inflow.arm(&self.machine, &self.commands, with);
        }
        let with = (&self.owner, socket, TAG_SEND);
        match self.outflow.send(&mut self.machine, &self.commands, with) {
            Ok(started) => has_room &= started,
            Err(_) => self.give_up("a command's buffer is shorter than its data".to_owned()),
        }
        if !has_room {
            self.retry_at = Some(self.clock.now() + RETRY);
        }
    }

    fn deadline(&self) -> Option<Time> {
        if !self.events.is_empty() || self.has_withdrawn {
            return Some(Time::ZERO);
        }
        let phase = match self.phase {
            Phase::Coming { by } => Some(by),
            Phase::Ready => self.look_at,
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
        self.phase == Phase::Over
            && self.is_at_rest()
            && self.commands.is_empty()
            && self.events.is_empty()
    }

    fn part(mut self: Box<Self>) -> Result<Box<dyn Parted>, Box<dyn Queue>> {
        if !self.is_idle() {
            return Err(self);
        }
        self.is_parting = true;
        if let Some(armed) = self.inflow.armed() {
            self.owner.ring().cancel(armed.op);
            return Err(self);
        }
        let Some(socket) = self.socket.take() else {
            return Err(self);
        };
        match socket.into_owned() {
            Ok(socket) => Ok(Box::new(TcpParted {
                socket,
                to: self.to,
                clock: self.clock,
                options: self.options,
                machine: self.machine,
                wire: self.wire,
            })),
            Err(socket) => {
                self.socket = Some(socket);
                Err(self)
            }
        }
    }
}
