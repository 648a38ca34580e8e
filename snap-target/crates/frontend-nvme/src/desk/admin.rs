//! Connect and the admin queues: what the controllers are asked and answer.

use std::net::SocketAddr;
use std::ops::RangeBounds;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use nvme::controller::{
    AdminCommand, CommandError, ConnectContext, ConnectRequest, ControllerCounters, ControllerId,
    Effect, NotAdmitted, Outcome, PeerIdentity, buffer_bytes,
};
use nvme::nqn::Nqn;
use nvme::queue::{Completion, QueueId, Slot, Transfer};
use nvme_spec::{AdminOpcode, Direction, Sqe, Status};
use reactor::buf::IoBuf;
use telemetry::{EventKind, HostName};

use super::visitor::State;
use super::{Desk, life};
use crate::event::{ConnectRefused, TargetEvent};
use crate::limits::ADMIN_OWED_BYTES_MAX;
use crate::link::{LinkEvent, LinkFailure};
use crate::table::Key;

/// Bytes of Connect's data.
const CONNECT_DATA_BYTES: usize = 1024;

impl Desk {
    /// Answers every event of a connection.
    pub(super) fn serve(&mut self, key: Key) {
        self.touched.push(key);
        while let Some(event) = self
            .visitors
            .get_mut(key)
            .and_then(|visitor| visitor.link.next_event())
        {
            self.event(key, event);
            self.show_registers(key);
        }
    }

    fn event(&mut self, key: Key, event: LinkEvent) {
        let Some(visitor) = self.visitors.get_mut(key) else {
            return;
        };
        match (event, visitor.state) {
            (LinkEvent::Command { slot }, _) => self.command(key, slot),
            (LinkEvent::DataReady { slot }, State::Admin(id)) => self.execute(key, id, slot),
            (LinkEvent::DataReady { slot }, _) => self.connect(key, slot),
            (LinkEvent::DataCorrupt { slot }, _) => {
                self.answer(key, slot, Completion::of(Status::TRANSIENT_TRANSPORT_ERROR))
            }
            (LinkEvent::DataFailed { slot, status }, _) => {
                self.answer(key, slot, Completion::of(status));
            }
            (LinkEvent::Configured(cc), State::Admin(id)) => self.configure(id, cc),
            (LinkEvent::SubsystemReset, State::Admin(id)) => self.reset_subsystem(id),
            // A function has a controller before it is asked for events.
            (LinkEvent::Configured(_) | LinkEvent::SubsystemReset, _) => {}
            (LinkEvent::Failed(why), state) => {
                visitor.broke_protocol |= !matches!(why, LinkFailure::Host(_));
                let (cntlid, sqid) = state.name().unzip();
                let peer = visitor.link.peer();
                // A host that says nothing is no fault of anybody's.
                match why {
                    LinkFailure::TimedOut => {
                        tracing::info!(cntlid, sqid, %peer, %why, "a connection ends");
                    }
                    _ => tracing::warn!(cntlid, sqid, %peer, %why, "a connection ends"),
                }
                self.connection_failed(state);
            }
        }
    }

    /// A command came: gives its data a place, or carries it out.
    fn command(&mut self, key: Key, slot: Slot) {
        let Some(visitor) = self.visitors.get_mut(key) else {
            return;
        };
        let (sqe, transfer) = (*visitor.link.command(slot), visitor.link.transfer(slot));
        let transfer_bytes_max = match visitor.state {
            State::Admin(id) => {
                let controller = self.registry.controller(id);
                controller.map_or(0, |controller| controller.limits().transfer_bytes_max)
            }
            // Whatever is not as long as Connect data is refused below, and gets no memory.
            State::Handshake | State::Moving { .. } => u32::MAX,
        };
        let bytes = match buffer_bytes(&sqe, transfer, transfer_bytes_max) {
            Ok(bytes) => bytes as usize,
            Err(status) => return self.answer(key, slot, Completion::of(status)),
        };
        let brings_data = bytes > 0 && sqe.direction() == Direction::HostToController;
        match visitor.state {
            State::Admin(_) if bytes > 0 && !brings_data => {
                visitor.waiting_reads.push_back(slot);
                self.begin_reads(key);
            }
            State::Admin(id) if !brings_data => self.execute(key, id, slot),
            State::Admin(_) => self.receive(key, slot, transfer, bytes),
            _ if bytes == CONNECT_DATA_BYTES => self.receive(key, slot, transfer, bytes),
            _ => self.answer(
                key,
                slot,
                Completion::of(Status::DATA_SGL_LENGTH_INVALID.dnr()),
            ),
        }
    }

    /// Begins commands with data for the host as far as it takes their answers. A queue that owes nothing may always begin one; what it owes is sent at
    /// last, and brings it here again.
    pub(super) fn begin_reads(&mut self, key: Key) {
        while let Some(visitor) = self.visitors.get_mut(key)
            && let State::Admin(id) = visitor.state
            && let Some(slot) = visitor.waiting_reads.front().copied()
        {
            let (sqe, transfer) = (visitor.link.command(slot), visitor.link.transfer(slot));
            // It was let in under this limit; its descriptor was looked at.
            let (bytes, owed) = (
                buffer_bytes(sqe, transfer, u32::MAX).unwrap_or(0),
                visitor.link.owed_bytes(),
            );
            if owed > 0 && owed + u64::from(bytes) > ADMIN_OWED_BYTES_MAX {
                return;
            }
            visitor.waiting_reads.pop_front();
            visitor.link.owe(slot, bytes);
            self.touched.push(key);
            self.execute(key, id, slot);
        }
    }

    fn receive(&mut self, key: Key, slot: Slot, transfer: Transfer, bytes: usize) {
        let Some(visitor) = self.visitors.get_mut(key) else {
            return;
        };
        let Ok(buf) = IoBuf::heap(bytes) else {
            return self.answer(key, slot, Completion::of(Status::INTERNAL_ERROR));
        };
        visitor.link.set_buffer(slot, buf);
        if transfer.is_asked_for()
            && let Err(status) = visitor.link.request_data(slot)
        {
            self.answer(key, slot, Completion::of(status));
        }
    }

    pub(super) fn answer(&mut self, key: Key, slot: Slot, completion: Completion) {
        if let Some(visitor) = self.visitors.get_mut(key) {
            visitor.link.respond(slot, completion, 0);
            self.touched.push(key);
        }
    }

    /// Connect, with its data: lets the queue in, or not, or not yet.
    pub(super) fn connect(&mut self, key: Key, slot: Slot) {
        let Some(visitor) = self.visitors.get_mut(key) else {
            return;
        };
        let Some(data) = visitor.link.take_buffer(slot) else {
            return self.answer(key, slot, Completion::of(Status::INTERNAL_ERROR));
        };
        let bytes = data.to_vec();
        let sqe = *visitor.link.command(slot);
        let context = ConnectContext {
            transport: visitor.link.transport(),
            local: visitor.link.local(),
            peer: PeerIdentity::Claimed,
        };
        let now = self.clock.now();
        match self.registry.connect(&sqe, &bytes, &context, now) {
            Ok(admitted) if admitted.queue.is_admin() => {
                visitor.link.established(&admitted);
                visitor.state = State::Admin(admitted.controller);
                visitor.connected_at = Some(SystemTime::now());
                self.admin_queues.insert(admitted.controller, key);
                self.passing.remove(&key);
                let peer = visitor.link.peer();
                self.log_connect(admitted.controller, peer);
                self.answer(key, slot, admitted.completion);
            }
            Ok(admitted) => {
                visitor.state = State::Moving {
                    admitted,
                    connect: slot,
                };
                visitor.link.pause();
                self.touched.push(key);
            }
            Err(NotAdmitted::Later) => {
                visitor.link.set_buffer(slot, data);
                self.waiting.push((key, slot));
            }
            Err(NotAdmitted::Refused(refusal)) => {
                let peer = visitor.link.peer();
                self.note_refusal(&sqe, &bytes, peer, refusal.status);
                self.answer(key, slot, refusal);
            }
        }
    }

    /// A Connect was refused: "my host cannot connect" begins here.
    fn note_refusal(&self, sqe: &Sqe, data: &[u8], peer: SocketAddr, status: Status) {
        let request = ConnectRequest::parse(sqe, data).ok();
        let (subsystem, host) = request.map(|it| (it.subsystem, it.host)).unzip();
        let is_known = subsystem.as_ref().is_some_and(|nqn| {
            let mut all = self.registry.target().subsystems().iter();
            nqn.is_discovery() || all.any(|it| it.nqn == *nqn)
        });
        tracing::info!(
            subsystem = subsystem.as_ref().map(Nqn::as_str),
            host = host.as_ref().map(Nqn::as_str),
            %peer, %status, "a Connect is refused"
        );
        let name = host.as_ref().map(Nqn::as_str);
        let refused = telemetry::Event {
            host: name.map_or(HostName::NONE, HostName::new),
            ..telemetry::Event::new(EventKind::ConnectRefused)
        };
        self.telemetry.record_now(&refused.with_status(status));
        let event = ConnectRefused {
            subsystem,
            host,
            peer,
            status,
            is_known,
        };
        self.service.events.send(TargetEvent::HostRefused(event));
    }

    pub(super) fn log_connect(&mut self, id: ControllerId, peer: SocketAddr) {
        self.note(EventKind::HostConnected, id);
        if let Some(controller) = self.registry.controller(id) {
            self.service.events.send(TargetEvent::HostConnected {
                controller: id,
                subsystem: controller.subsystem().map(|it| it.nqn.clone()),
                host: controller.host().clone(),
                host_id: *controller.host_id(),
                peer,
            });
            let discovery = controller.is_discovery();
            tracing::info!(
                cntlid = id.0,
                host = controller.host().as_str(),
                %peer,
                discovery,
                "host connected"
            );
        }
        self.log_given(id);
    }

    /// A controller's queues know whether its host honours retry delays.
    fn pass_on_host_behavior(&self, id: ControllerId) {
        let Some(controller) = self.registry.controller(id) else {
            return;
        };
        let acre = controller.host_honours_retry_delay();
        for ((owner, _), (queue, _)) in &self.counters {
            if *owner == id {
                queue.honours_retry_delay.store(acre, Ordering::Relaxed);
            }
        }
    }

    /// Carries out an admin command whose data, if it brings any, are there.
    fn execute(&mut self, key: Key, id: ControllerId, slot: Slot) {
        let now = self.clock.now();
        let Some(visitor) = self.visitors.get_mut(key) else {
            return;
        };
        let (sqe, transfer) = (*visitor.link.command(slot), visitor.link.transfer(slot));
        let tells_life = life::is_told_by(&sqe);
        let data = visitor
            .link
            .take_buffer(slot)
            .map(|buf| buf.to_vec())
            .unwrap_or_default();
        let room = if data.is_empty() {
            buffer_bytes(&sqe, transfer, u32::MAX).unwrap_or(0) as usize
        } else {
            0
        };
        // As long as the limit that the command was let in under.
        let mut out = vec![0; room];
        let command = AdminCommand {
            sqe: &sqe,
            slot,
            transfer,
            data: &data,
        };
        if tells_life {
            self.fold_all_counters();
        }
        let Some(outcome) = self.registry.execute(id, &command, &mut out, now) else {
            return self.visitors.get_mut(key).map_or((), |it| it.link.end());
        };
        match outcome {
            Outcome::Done {
                completion,
                data_bytes,
                effect,
            } => {
                if tells_life {
                    out.truncate(data_bytes as usize);
                    self.reply_when_saved(id, key, slot, completion, out, now);
                } else {
                    self.reply(key, slot, completion, &out, data_bytes);
                }
                self.carry_out(id, effect);
            }
            Outcome::Pending => {}
            Outcome::Queue(command) => self.manage_queue(key, id, slot, command),
            Outcome::OfNamespace(ask) => self.ask_namespace(key, id, slot, ask),
            Outcome::Abort { queue, cid } => self.abort(key, id, slot, queue, cid),
        }
        if AdminOpcode(sqe.opcode) == AdminOpcode::SET_FEATURES {
            self.pass_on_host_behavior(id);
        }
        self.answer_async_events(key, id);
    }

    /// Answers an admin command that was begun, and keeps an error for the Error Information log.
    pub(super) fn fail_admin(&mut self, key: Key, id: ControllerId, slot: Slot, status: Status) {
        if let (Some(visitor), Some(controller)) =
            (self.visitors.get_mut(key), self.registry.controller_mut(id))
            && !status.is_success()
        {
            let sqe = visitor.link.command(slot);
            controller.record_error(&CommandError::of(QueueId::ADMIN, sqe, status, None));
        }
        self.answer(key, slot, Completion::of(status));
    }

    pub(super) fn reply(
        &mut self,
        key: Key,
        slot: Slot,
        completion: Completion,
        out: &[u8],
        data_bytes: u32,
    ) {
        let Some(visitor) = self.visitors.get_mut(key) else {
            return;
        };
        let data = out.get(..data_bytes as usize).unwrap_or(&[]);
        let completion = match IoBuf::from_bytes(data) {
            Ok(buf) => {
                visitor.link.set_buffer(slot, buf);
                completion
            }
            Err(_) => Completion::of(Status::INTERNAL_ERROR),
        };
        visitor.link.respond(slot, completion, data_bytes);
    }

    pub(super) fn carry_out(&mut self, id: ControllerId, effect: Effect) {
        match effect {
            Effect::None => {}
            Effect::Reset => {
                // A shutdown that it overtakes tells nobody any more.
                self.flushes.remove(&id);
                self.shutdowns.retain(|shutting_down| *shutting_down != id);
                self.note(EventKind::Reset, id);
                self.end_io_queues(id);
                self.finish_reset(id);
            }
            Effect::Shutdown => {
                self.note(EventKind::Shutdown, id);
                self.shutdowns.push(id);
            }
        }
    }

    /// Where a controller resets and its last I/O queue has ended, the reset is complete.
    pub(super) fn finish_reset(&mut self, id: ControllerId) {
        if let Some(controller) = self.registry.controller_mut(id) {
            let effect = controller.reset_complete();
            self.touch_admin_queue(id);
            self.carry_out(id, effect);
        }
    }

    /// Answers the requests of all controllers that something has happened for.
    pub(super) fn answer_all_async_events(&mut self) {
        let queues: Vec<_> = self
            .admin_queues
            .iter()
            .map(|(id, key)| (*id, *key))
            .collect();
        for (id, key) in queues {
            self.answer_async_events(key, id);
        }
    }

    fn answer_async_events(&mut self, key: Key, id: ControllerId) {
        while let Some((slot, completion)) = self
            .registry
            .controller_mut(id)
            .and_then(|controller| controller.next_async_event())
        {
            self.answer(key, slot, completion);
        }
    }

    /// Brings a controller's SMART counters up to what its queues have done.
    pub(super) fn fold_counters(&mut self, id: ControllerId) {
        self.fold((id, QueueId(0))..=(id, QueueId(u16::MAX)));
    }

    /// Those of all controllers.
    pub(super) fn fold_all_counters(&mut self) {
        self.fold(..);
    }

    fn fold(&mut self, meant: impl RangeBounds<(ControllerId, QueueId)>) {
        for ((owner, _), (queue, seen)) in self.counters.range_mut(meant) {
            let Some(controller) = self.registry.controller_mut(*owner) else {
                continue;
            };
            let now = [
                &queue.bytes_read,
                &queue.bytes_written,
                &queue.read_commands,
                &queue.write_commands,
                &queue.media_errors,
                &queue.busy_nanos,
            ]
            .map(|counter| counter.load(Ordering::Relaxed));
            let more: [u128; 6] =
                std::array::from_fn(|index| u128::from(now[index].wrapping_sub(seen[index])));
            *seen = now;
            let [
                bytes_read,
                bytes_written,
                read_commands,
                write_commands,
                media_errors,
                busy_nanos,
            ] = more;
            controller.counters_mut().add(&ControllerCounters {
                bytes_read,
                bytes_written,
                read_commands,
                write_commands,
                media_errors,
                busy_nanos,
                // The desk makes the entries itself.
                error_log_entries: 0,
            });
        }
    }

    /// A connection of the desk's broke the protocol or was silent; of no controller before Connect.
    fn connection_failed(&self, state: State) {
        match state {
            State::Admin(id) => self.note(EventKind::ConnectionFailed, id),
            State::Moving { admitted, .. } => {
                self.note(EventKind::ConnectionFailed, admitted.controller);
            }
            State::Handshake => {
                let failed = telemetry::Event::new(EventKind::ConnectionFailed);
                self.telemetry.record_now(&failed);
            }
        }
    }
}
