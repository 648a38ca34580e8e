//! One I/O queue: commands in, requests to the engine, answers out.

mod access;
mod arrival;
mod commands;
mod ending;
mod halves;
mod lent;

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use namespace::{Answer, Asked, Done, Engine, Found, Io, NamespaceError, NamespaceKey, ReaderId};
use nvme::controller::reservation::HostId;
use nvme::controller::{
    BlockAt, BlockRange, CommandError, ControllerId, ControllerLimits, CopyFormats, IoCommand,
    NamespaceInfo, NamespaceSet as NamespaceInfos,
};
use nvme::queue::{Completion, QueueId, Slot, Transfer};
use nvme_spec::{IoOpcode, Lba, Nsid, Sqe, Status};
use reactor::buf::IoBuf;
use telemetry::EventKind;

use crate::host_share::HostShare;
use crate::limits::{AWAITED_BYTES_MAX, RETRY_DELAY};
use crate::link::{Health, Link, LinkEvent, LinkFailure};
use crate::message::{Message, QueueCounters, count};
use crate::meter::Meter;
use crate::table::Key;
use ending::{Ending, Place, token};
use halves::Halves;

/// An I/O queue and its connection.
pub(crate) struct IoQueue {
    pub(crate) link: Box<dyn Link>,
    pub(crate) controller: ControllerId,
    pub(crate) queue: QueueId,
    counters: Arc<QueueCounters>,
    pub(crate) meter: Meter,
    /// What its controller sees.
    pub(crate) namespaces: Arc<NamespaceInfos>,
    /// What its host has enabled.
    copy_formats: CopyFormats,
    transfer_bytes_max: u32,
    share: Rc<HostShare>,
    /// What the share was told that this queue holds.
    held_bytes: u64,
    /// Bytes of writes that the engine has.
    writing_bytes: u64,
    /// Bytes that Copy commands move, which the engine has.
    copying: Vec<(Slot, u64)>,
    /// Commands that are not answered, and those answered since the last settling.
    outstanding: u64,
    answered: u64,
    host: HostId,
    limits: ControllerLimits,
    /// What was found at the gates of namespaces, by their handle.
    found: Vec<(u64, Found)>,
    /// By slot: who has its command.
    places: Vec<Place>,
    /// Commands that are to end early.
    endings: Vec<Ending>,
    /// By slot: the last command, as it was when it came. What a namespace has become meanwhile changes nothing for it.
    commands: Vec<Option<IoCommand>>,
    /// By slot: the UUID of the namespace that its command named when it came.
    named: Vec<Option<[u8; 16]>>,
    /// Halves of fused operations.
    halves: Halves,
    /// Requests that the engine has.
    in_flight: usize,
    /// Reads that were not begun: the command behind them is not known yet, or the host has not taken enough of the answers before them.
    waiting_reads: VecDeque<(Slot, BlockRange)>,
    /// Writes of this turn whose store reads their data where the host has them.
    lent_writes: VecDeque<(Slot, BlockRange)>,
    /// Room for where the data of the next of them are.
    lent: IoBuf,
    /// Writes whose data have not been asked for.
    waiting: VecDeque<Slot>,
    /// The first of them found no buffer.
    starved: bool,
    /// The reactor has it among those that wait for memory, and among those that wait for a receive buffer.
    pub(crate) listed_starved: bool,
    pub(crate) listed_dry: bool,
    /// The same of those that would not wait.
    pub(crate) listed_postponed: bool,
    /// Failures that the desk has not been told.
    pub(crate) failures: Vec<CommandError>,
    /// What else it is to be told.
    pub(crate) messages: Vec<Message>,
}

/// What a queue is made of besides its connection.
pub(crate) struct QueueSetup {
    pub(crate) controller: ControllerId,
    pub(crate) queue: QueueId,
    pub(crate) counters: Arc<QueueCounters>,
    pub(crate) meter: Meter,
    pub(crate) namespaces: Arc<NamespaceInfos>,
    pub(crate) copy_formats: CopyFormats,
    pub(crate) share: Rc<HostShare>,
    pub(crate) host: HostId,
    pub(crate) limits: ControllerLimits,
}

impl IoQueue {
    pub(crate) fn new(link: Box<dyn Link>, setup: QueueSetup) -> Self {
        let QueueSetup {
            controller,
            queue,
            counters,
            meter,
            namespaces,
            copy_formats,
            share,
            host,
            limits: controller_limits,
        } = setup;
        let slots = link.slots_max();
        // The connection was made before its subsystem was known, and can hold the target's.
        let transfer_bytes_max = link
            .transfer_bytes_max()
            .min(controller_limits.transfer_bytes_max);
        Self {
            link,
            controller,
            queue,
            counters,
            meter,
            namespaces,
            copy_formats,
            transfer_bytes_max,
            share,
            held_bytes: 0,
            writing_bytes: 0,
            copying: Vec::new(),
            outstanding: 0,
            answered: 0,
            host,
            limits: controller_limits,
            found: Vec::new(),
            places: vec![Place::Here; usize::from(slots)],
            endings: Vec::new(),
            commands: vec![None; usize::from(slots)],
            named: vec![None; usize::from(slots)],
            halves: Halves::new(slots),
            in_flight: 0,
            waiting_reads: VecDeque::new(),
            lent_writes: VecDeque::new(),
            lent: IoBuf::empty(),
            waiting: VecDeque::new(),
            starved: false,
            listed_starved: false,
            listed_dry: false,
            listed_postponed: false,
            failures: Vec::new(),
            messages: Vec::new(),
        }
    }

    /// Requests that the engine has and that must end before the queue counts as closed.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Whether a write waits for a buffer.
    pub(crate) fn is_starved(&self) -> bool {
        self.starved
    }

    /// Answers every event that is there.
    pub(crate) fn serve(&mut self, key: Key, engine: &mut Engine) {
        while let Some(event) = self.link.next_event() {
            self.event(event, key, engine);
        }
        self.begin_reads(key, engine);
        self.begin_lent_writes(key, engine);
        self.link.let_answers_go();
        // Others may be waiting for buffers longer: those that found none get one in their turn.
        if !self.starved {
            while self.ask_for_data(engine) {}
        }
    }

    /// Asks for the data of the next waiting write, if one waits, the host has not been asked for too much, and there is a buffer.
    pub(crate) fn ask_for_data(&mut self, engine: &Engine) -> bool {
        self.starved = false;
        if self.link.awaited_bytes() >= AWAITED_BYTES_MAX {
            return false;
        }
        let Some(&slot) = self.waiting.front() else {
            return false;
        };
        let bytes = self.data_bytes(slot);
        // Both halves of a fused operation, or none: one that waited for memory while the other has some would keep it from others.
        let other = self.other_remote_half(slot);
        let wanted = if other.is_some() { 2 * bytes } else { bytes };
        if !self.may_hold(wanted) {
            return false;
        }
        let Some(buf) = engine.alloc(wanted as usize) else {
            self.starved = true;
            return false;
        };
        self.waiting.pop_front();
        if let Some(other) = other {
            let half = bytes as usize;
            self.request(other, buf.slice(half..2 * half));
            self.request(slot, buf.slice(0..half));
        } else {
            self.request(slot, buf);
        }
        true
    }

    /// Bytes of a command's data: as its descriptor says, or where that does not, the command.
    fn data_bytes(&self, slot: Slot) -> u32 {
        match self.link.transfer(slot) {
            Transfer::InMemory => self.parsed(slot).map_or(0, |command| command.data_bytes()),
            described => described.bytes(),
        }
    }

    fn request(&mut self, slot: Slot, buf: IoBuf) {
        self.link.set_buffer(slot, buf);
        if let Err(status) = self.link.request_data(slot) {
            self.fail_with_half(slot, status);
        }
    }

    fn event(&mut self, event: LinkEvent, key: Key, engine: &mut Engine) {
        match event {
            LinkEvent::Command { slot } => self.command(slot, key, engine),
            LinkEvent::DataReady { slot } => self.data_ready(slot, key, engine),
            LinkEvent::DataCorrupt { slot } => {
                self.fail_with_half(slot, Status::TRANSIENT_TRANSPORT_ERROR);
            }
            LinkEvent::DataFailed { slot, status } => self.fail_with_half(slot, status),
            LinkEvent::Failed(why) => self.connection_failed(&why),
            // An admin queue's.
            LinkEvent::Configured(_) | LinkEvent::SubsystemReset => {}
        }
    }

    fn connection_failed(&self, why: &LinkFailure) {
        tracing::warn!(cntlid = self.controller.0, sqid = self.queue.0, %why, "the connection ends");
        self.meter.note(EventKind::ConnectionFailed, 0);
    }

    /// Inlined, as a write's beginning is.
    #[inline(always)]
    fn begin_read(
        &mut self,
        slot: Slot,
        range: BlockRange,
        transfer: Transfer,
        key: Key,
        engine: &mut Engine,
    ) {
        let is_first = self.waiting_reads.is_empty();
        self.waiting_reads.push_back((slot, range));
        // One that writes into the host's memory begins when the command behind it is known. Over a wire each is answered before the next is taken, so that a host is
        // held up by the answers that it leaves there.
        if !matches!(transfer, Transfer::InMemory) {
            self.begin_reads(key, engine);
        } else if is_first {
            self.expect(self.waiting_reads.front(), engine);
        }
    }

    /// Begins reads as far as the host takes their answers: one that does not must not hold the memory of all. A queue that owes nothing may
    /// always begin one; what it owes is sent at last, and brings it here again.
    fn begin_reads(&mut self, key: Key, engine: &mut Engine) {
        while let Some((slot, range)) = self.waiting_reads.front().copied() {
            if !engine.has_room(self.link.owed_bytes(), range.bytes) || !self.may_hold(range.bytes)
            {
                return;
            }
            self.waiting_reads.pop_front();
            self.expect(self.waiting_reads.front(), engine);
            if let Err(status) = self.link.place(slot, range.bytes) {
                self.fail(slot, status, None);
                continue;
            }
            self.link.owe(slot, range.bytes);
            if self.read_placed(slot, &range, engine) {
                continue;
            }
            let (lba, blocks) = (range.lba.0, range.blocks);
            let io = if range.force_unit_access {
                Io::ReadDurable { lba, blocks }
            } else {
                Io::Read {
                    lba,
                    blocks,
                    into: None,
                }
            };
            self.submit(slot, range.nsid.0, io, key, engine);
        }
    }

    /// Whether the host may have so much more memory here. A queue that holds nothing may: it comes here again when it has let go of that, and so
    /// never waits for another queue.
    fn may_hold(&mut self, bytes: u32) -> bool {
        self.tell_share();
        self.held_bytes == 0 || self.share.has_room(bytes.into())
    }

    fn tell_share(&mut self) {
        let now = self.link.owed_bytes() + self.link.awaited_bytes() + self.writing_bytes;
        self.share.changed(self.held_bytes, now);
        self.held_bytes = now;
    }

    /// Finds a write's data a place, or lets it wait for one. In-capsule data come at once, so they get memory even where the pool has none:
    /// a queue depth of capsules at most.
    fn take_data(&mut self, slot: Slot, bytes: u32, engine: &Engine) {
        // It is looked at again when the data are there; asking for them in vain would be a waste.
        if let Err(status) = self.permit(slot, engine) {
            return self.fail_with_half(slot, status);
        }
        if !matches!(self.link.transfer(slot), Transfer::InCapsule { .. }) {
            return match self.refused(slot, engine) {
                Some(error) => self.failed(slot, &error, self.parsed(slot)),
                None => self.waiting.push_back(slot),
            };
        }
        let bytes = bytes as usize;
        match engine.alloc(bytes).map_or_else(|| IoBuf::heap(bytes), Ok) {
            Ok(buf) => self.link.set_buffer(slot, buf),
            Err(_) => self.fail(slot, Status::INTERNAL_ERROR, None),
        }
    }

    fn write(&mut self, slot: Slot, range: BlockRange, key: Key, engine: &mut Engine) {
        let Some(data) = self.link.take_buffer(slot) else {
            return self.fail(slot, Status::INTERNAL_ERROR, None);
        };
        self.submit(slot, range.nsid.0, write_of(&range, data), key, engine);
    }

    fn submit(&mut self, slot: Slot, nsid: u32, mut io: Io, key: Key, engine: &mut Engine) {
        self.ask(slot, nsid, &mut io, key, engine);
    }

    /// Asks the engine for what a command wants; a request that takes time is moved out of `io`.
    fn ask(&mut self, slot: Slot, nsid: u32, io: &mut Io, key: Key, engine: &mut Engine) {
        let info = self.namespaces.get(Nsid(nsid));
        let Some(info) = info.filter(|info| self.means(slot, info)) else {
            return self.fail_with_half(slot, Status::INVALID_NAMESPACE.dnr());
        };
        let namespace = NamespaceKey::from_bits(info.handle);
        if let Err(status) = self.permit(slot, engine) {
            return self.fail_with_half(slot, status);
        }
        let changes = changes(io);
        if changes {
            self.counters.changed.note(Nsid(nsid));
        }
        self.in_flight += 1;
        self.put(slot, Place::Engine { changes });
        self.writing_bytes += match &*io {
            Io::Write { data, .. } | Io::Compare { data, .. } => data.len() as u64,
            Io::CompareAndWrite { expected, data, .. } => (expected.len() + data.len()) as u64,
            _ => 0,
        };
        let asked = Asked {
            token: token(key, slot),
            reader: ReaderId(self.controller.0.into()),
            deadline: self.meter.deadline(slot),
            snapshot: self.link.needs_snapshots(),
        };
        match engine.ask(namespace, io, asked) {
            Answer::Later => {}
            Answer::Out => self.ended(slot, None, Ok(())),
            Answer::Lent(buf) => self.ended(slot, Some(buf), Ok(())),
            Answer::Now(done) => self.ended(slot, done.buf, done.result),
        }
    }

    /// Whether a command named this disk. What it waited for, its data or memory, may have taken long: the namespace may be gone, and its number
    /// another disk's by now. One that was given another size is the same disk.
    fn means(&self, slot: Slot, info: &NamespaceInfo) -> bool {
        let named = self.named.get(slot.index()).copied().flatten();
        named.is_none_or(|uuid| uuid == info.uuid)
    }

    /// The engine has answered, after a while.
    pub(crate) fn done(&mut self, slot: Slot, done: Done) {
        self.ended(slot, done.buf, done.result);
        self.link.let_answers_go();
    }

    fn ended(&mut self, slot: Slot, buf: Option<IoBuf>, result: Result<(), NamespaceError>) {
        self.in_flight -= 1;
        self.put(slot, Place::Here);
        let compare = self.halves.take_pair(slot);
        if let Some(IoCommand::Write(range) | IoCommand::Compare(range)) = self.parsed(slot) {
            let halves = if compare.is_some() { 2 } else { 1 };
            self.writing_bytes -= halves * u64::from(range.bytes);
        }
        let moved = self.copying.extract_if(.., |(of, _)| *of == slot).next();
        if let (Some((_, bytes)), Ok(())) = (moved, &result) {
            count(&self.counters.bytes_read, bytes);
            count(&self.counters.bytes_written, bytes);
        }
        if let Some(compare) = compare {
            return self.fused_done(compare, slot, result);
        }
        // By reference: what went well is not moved with the room for what did not.
        if let Err(error) = &result {
            return self.failed(slot, error, self.parsed(slot));
        }
        match self.parsed(slot) {
            Some(IoCommand::Read(range)) => match buf {
                Some(buf) => {
                    let left = match self.link.deliver(slot, &buf) {
                        true => 0,
                        false => {
                            self.link.set_buffer(slot, buf);
                            range.bytes
                        }
                    };
                    self.was_read(slot, &range, left);
                }
                None => self.fail(slot, Status::INTERNAL_ERROR, None),
            },
            Some(IoCommand::Write(range)) => self.written(slot, &range),
            Some(command) => {
                self.count_other(command);
                self.respond(slot, Completion::SUCCESS, 0);
            }
            // Nothing was asked of the engine for such a slot.
            None => self.fail(slot, Status::INTERNAL_ERROR, None),
        }
    }

    /// Answers a read, of whose data so many bytes are still to be sent.
    fn was_read(&mut self, slot: Slot, range: &BlockRange, left: u32) {
        self.respond_of(slot, Completion::SUCCESS, left, range.bytes);
        count(&self.counters.bytes_read, u64::from(range.bytes));
        count(&self.counters.read_commands, 1);
    }

    fn written(&mut self, slot: Slot, range: &BlockRange) {
        self.respond_of(slot, Completion::SUCCESS, 0, range.bytes);
        count(&self.counters.bytes_written, u64::from(range.bytes));
        count(&self.counters.write_commands, 1);
    }

    fn failed(&mut self, slot: Slot, error: &NamespaceError, command: Option<IoCommand>) {
        let is_write = !command.is_some_and(|command| command.is_read());
        let status = self.with_retry_delay(self.status_of(slot, error, is_write), error);
        let sqe = self.link.command(slot);
        let cid = sqe.cid();
        let info = self.namespaces.get(sqe.nsid());
        let at = info
            .and_then(|info| error.first_block(info.lba_bytes))
            .map(|(nsid, lba)| BlockAt {
                nsid: Nsid(nsid),
                lba: Lba(lba),
            })
            .or_else(|| self.first_block(sqe, status));
        if matches!(error, NamespaceError::Miscompare { .. }) {
            tracing::debug!(cntlid = self.controller.0, sqid = self.queue.0, cid = cid.0, %error, "a comparison failed");
        } else {
            tracing::error!(cntlid = self.controller.0, sqid = self.queue.0, cid = cid.0, %error, status = %status.of_io(), "a command failed");
        }
        if error.is_media() {
            count(&self.counters.media_errors, 1);
        }
        self.meter.store_failed(self.link.command(slot), at, status);
        self.fail(slot, status, at);
    }

    /// Answers with an error, and keeps it for the Error Information log: with the block that failed, or the command's first.
    fn fail(&mut self, slot: Slot, status: Status, at: Option<BlockAt>) {
        let sqe = self.link.command(slot);
        let at = at.or_else(|| self.first_block(sqe, status));
        let error = CommandError::of(self.queue, sqe, status, at);
        self.failures.push(error);
        self.respond(slot, Completion::of(status), 0);
    }

    /// The first block that a command names, whether it could be carried out or not; of one that reaches beyond the end, the first there.
    fn first_block(&self, sqe: &Sqe, status: Status) -> Option<BlockAt> {
        if !has_slba(IoOpcode(sqe.opcode)) {
            return None;
        }
        let (nsid, lba) = (sqe.nsid(), sqe.slba());
        match self.namespaces.get(nsid) {
            Some(info) if status.code() == Status::LBA_OUT_OF_RANGE => Some(info.first_beyond(lba)),
            _ => Some(BlockAt { nsid, lba }),
        }
    }

    /// A host that honours it is told when to try again (Base, "Command Retry Delay"); the others must not see the field.
    fn with_retry_delay(&self, status: Status, error: &NamespaceError) -> Status {
        if !error.is_unreachable() || !self.counters.honours_retry_delay.load(Ordering::Relaxed) {
            return status;
        }
        let wait = error.retry_after().unwrap_or(RETRY_DELAY);
        status.with_retry_delay(self.limits.retry_delay(wait))
    }

    /// Answers, with `data_bytes` of the slot's buffer.
    fn respond(&mut self, slot: Slot, completion: Completion, data_bytes: u32) {
        // What a read returns, or what a write brought.
        let bytes = data_bytes.max(self.data_bytes(slot));
        self.respond_of(slot, completion, data_bytes, bytes);
    }

    /// The same of a command of so many bytes.
    fn respond_of(&mut self, slot: Slot, completion: Completion, data_bytes: u32, bytes: u32) {
        self.meter.end(slot, &completion, bytes);
        self.link.respond(slot, completion, data_bytes);
        self.answered += 1;
        // Of a copy that was refused before the engine had it.
        if !self.copying.is_empty() {
            self.copying.retain(|(of, _)| *of != slot);
        }
        self.settle_endings(slot, completion.status);
    }

    /// Receives and sends what is due.
    pub(crate) fn settle(&mut self) -> Health {
        self.meter.settle(&*self.link);
        self.count_busy();
        let health = self.link.settle();
        self.tell_share();
        health
    }
}

impl IoQueue {
    /// Controller Busy Time: with a command of the host outstanding on this reactor, by the clock that this turn's answers have.
    fn count_busy(&mut self) {
        let answered = std::mem::take(&mut self.answered).min(self.outstanding);
        if answered > 0 {
            self.outstanding -= answered;
            let busy_ns = self.share.ended(answered, self.meter.now_ns());
            count(&self.counters.busy_nanos, busy_ns);
        }
    }
}

impl Drop for IoQueue {
    fn drop(&mut self) {
        let busy_ns = self.share.ended(self.outstanding, self.meter.now_ns());
        count(&self.counters.busy_nanos, busy_ns);
        self.share.changed(self.held_bytes, 0);
    }
}

/// A write of `data`.
fn write_of(range: &BlockRange, data: IoBuf) -> Io {
    Io::Write {
        lba: range.lba.0,
        data,
        durable: range.force_unit_access,
    }
}

/// Whether a request changes what is there, or may.
fn changes(io: &Io) -> bool {
    !matches!(
        io,
        Io::Read { .. }
            | Io::ReadDurable { .. }
            | Io::Verify { .. }
            | Io::Compare { .. }
            | Io::Flush
            | Io::FlushAll { .. }
    )
}

/// Whether a command's CDW10 and CDW11 are a block.
fn has_slba(opcode: IoOpcode) -> bool {
    matches!(
        opcode,
        IoOpcode::READ
            | IoOpcode::WRITE
            | IoOpcode::COMPARE
            | IoOpcode::VERIFY
            | IoOpcode::WRITE_ZEROES
            | IoOpcode::WRITE_UNCORRECTABLE
            | IoOpcode::COPY
    )
}
