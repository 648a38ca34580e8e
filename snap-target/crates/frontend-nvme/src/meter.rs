//! What an I/O queue's commands are counted as: kinds, bytes, errors, times.
//!
//! A command costs its share of one look at the clock a turn with answers: the turn's beginning, which the ring knows, is when its commands came, the
//! moment before the turn's sends is when its answers went. See docs/metrics.md for what that leaves out.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use nvme::Time;
use nvme::controller::{Admitted, BlockAt, Controller, NamespaceSet};
use nvme::queue::{Completion, Slot};
use nvme_spec::{IoOpcode, Nsid, Sqe, Status};
use telemetry::{
    CommandKind, Ended, Event, EventKind, HostName, HostRow, ReactorTelemetry, StatusClass,
};

use crate::clock::Clock;
use crate::link::Link;

use crate::limits::COMMAND_PATIENCE;

/// The time of a reactor's turn: its beginning, then the moment before its sends.
#[derive(Clone, Debug)]
pub(crate) struct TurnTime {
    clock: Clock,
    ns: Rc<Cell<u64>>,
}

impl TurnTime {
    pub(crate) fn new(clock: Clock) -> Self {
        Self {
            clock,
            ns: Rc::default(),
        }
    }

    /// A turn begins with what came at this moment.
    pub(crate) fn begin(&self, moment: Instant) {
        // A turn that brought nothing has the moment of an earlier one.
        self.ns.set(self.ns().max(self.clock.at(moment).as_nanos()));
    }

    /// Looks at the clock.
    pub(crate) fn read(&self) {
        self.ns.set(self.clock.now().as_nanos());
    }

    /// The same as a moment.
    pub(crate) fn now(&self) -> Instant {
        self.instant(self.ns())
    }

    fn instant(&self, ns: u64) -> Instant {
        self.clock.instant(Time::from_nanos(ns))
    }

    /// What the clock said when it was last looked at, in nanoseconds.
    pub(crate) fn ns(&self) -> u64 {
        self.ns.get()
    }
}

/// Whose queue it is.
#[derive(Debug)]
pub(crate) struct QueueNames {
    /// The subsystem's NQN.
    pub(crate) subsystem: String,
    /// The host's NQN.
    pub(crate) host: String,
    pub(crate) cntlid: u16,
    pub(crate) sqid: u16,
}

impl QueueNames {
    /// Of a queue that was let in; a controller that is gone meanwhile has no names any more.
    pub(crate) fn of(controller: Option<&Controller>, admitted: &Admitted) -> Self {
        let subsystem = controller.and_then(Controller::subsystem);
        let host = controller.map_or("", |it| it.host().as_str());
        Self {
            subsystem: subsystem.map_or_else(String::new, |it| it.nqn.as_str().to_owned()),
            host: host.to_owned(),
            cntlid: admitted.controller.0,
            sqid: admitted.queue.0,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Meter {
    telemetry: Arc<ReactorTelemetry>,
    names: QueueNames,
    time: TurnTime,
    /// Of the namespaces that commands named, and one of all others; each once.
    rows: Vec<Arc<HostRow>>,
    /// By NSID, where its row is; the first is that of all others.
    places: Vec<Option<usize>>,
    /// The state of the subsystem that the places are of.
    epoch: u64,
    /// By slot: a command that is not answered.
    begun: Vec<Option<Begun>>,
    /// Commands answered in this turn.
    ended: Vec<Answered>,
}

#[derive(Clone, Copy, Debug)]
struct Begun {
    at_ns: u64,
    row: usize,
    kind: CommandKind,
}

#[derive(Clone, Copy, Debug)]
struct Answered {
    begun: Begun,
    slot: Slot,
    status: Status,
    bytes: u32,
}

impl Meter {
    /// For a queue of so many slots.
    pub(crate) fn new(
        telemetry: Arc<ReactorTelemetry>,
        names: QueueNames,
        time: TurnTime,
        slots: u16,
    ) -> Self {
        Self {
            telemetry,
            names,
            time,
            rows: Vec::new(),
            places: Vec::new(),
            epoch: 0,
            begun: vec![None; usize::from(slots)],
            ended: Vec::with_capacity(usize::from(slots)),
        }
    }

    /// When a command that came here is to have its answer: the time that it has counts from its arrival, wherever it waited since.
    pub(crate) fn deadline(&self, slot: Slot) -> Option<Instant> {
        let begun = (*self.begun.get(slot.index())?)?;
        Some(self.time.instant(begun.at_ns) + COMMAND_PATIENCE)
    }

    /// What the clock said when it was last looked at, in nanoseconds.
    pub(crate) fn now_ns(&self) -> u64 {
        self.time.ns()
    }

    /// A command came.
    pub(crate) fn begin(&mut self, slot: Slot, sqe: &Sqe, namespaces: &NamespaceSet) {
        let row = self.row(sqe.nsid(), namespaces);
        if let (Some(row_of), Some(begun)) = (self.rows.get(row), self.begun.get_mut(slot.index()))
        {
            row_of.begun();
            *begun = Some(Begun {
                at_ns: self.time.ns(),
                row,
                kind: CommandKind::of(IoOpcode(sqe.opcode)),
            });
        }
    }

    /// A command is answered. `bytes` are those that a read returns or a write brought.
    pub(crate) fn end(&mut self, slot: Slot, completion: &Completion, bytes: u32) {
        if let Some(begun) = self.begun.get_mut(slot.index()).and_then(Option::take) {
            self.ended.push(Answered {
                begun,
                slot,
                status: completion.status,
                bytes,
            });
        }
    }

    /// Whether there are answers that go with this turn.
    pub(crate) fn has_answers(&self) -> bool {
        !self.ended.is_empty()
    }

    /// The turn's answers go now. Their commands still lie in the link.
    pub(crate) fn settle(&mut self, link: &dyn Link) {
        let mut ended = std::mem::take(&mut self.ended);
        for answered in ended.drain(..) {
            let (ns, error) = self.count(&answered);
            let wire = link.wire_of(answered.slot);
            if let Some(row) = self.rows.get(answered.begun.row) {
                row.crossed(wire.sent, wire.received);
            }
            if error.is_some() {
                self.record(EventKind::CommandFailed, link, &answered, ns);
            } else if ns >= self.telemetry.slow_ns() {
                self.record(EventKind::SlowCommand, link, &answered, ns);
            }
        }
        self.ended = ended;
    }

    /// Something happened to the queue itself.
    pub(crate) fn note(&self, kind: EventKind, value: u64) {
        self.telemetry.record_now(&Event {
            value,
            ..self.event(kind)
        });
    }

    fn event(&self, kind: EventKind) -> Event {
        let names = &self.names;
        Event::of_queue(kind, names.cntlid, names.sqid, HostName::new(&names.host))
    }

    /// The engine could not do what a command asked; its answer is counted when it goes.
    #[cold]
    pub(crate) fn store_failed(&self, sqe: &Sqe, at: Option<BlockAt>, status: Status) {
        let event = Event {
            cid: sqe.cid().0,
            nsid: at.map_or(sqe.nsid(), |at| at.nsid).0,
            lba: at.map_or(0, |at| at.lba.0),
            ..self.event(EventKind::StoreFailed)
        };
        self.telemetry.record_now(&event.with_status(status));
    }

    fn count(&self, answered: &Answered) -> (u64, Option<StatusClass>) {
        let begun = answered.begun;
        let ns = self.time.ns().saturating_sub(begun.at_ns);
        let error = StatusClass::of(answered.status);
        if let Some(row) = self.rows.get(begun.row) {
            row.ended(&Ended {
                kind: begun.kind,
                error,
                bytes: answered.bytes,
                ns,
                at_ns: self.time.ns(),
            });
        }
        (ns, error)
    }

    #[cold]
    fn record(&self, kind: EventKind, link: &dyn Link, answered: &Answered, ns: u64) {
        let sqe = link.command(answered.slot);
        let has_blocks = matches!(
            answered.begun.kind,
            CommandKind::Read
                | CommandKind::Write
                | CommandKind::Compare
                | CommandKind::Verify
                | CommandKind::WriteZeroes
                | CommandKind::WriteUncorrectable
        );
        let (lba, blocks) = match has_blocks {
            true => (sqe.slba().0, u32::from(sqe.nlb_z()) + 1),
            false => (0, 0),
        };
        let event = Event {
            cid: sqe.cid().0,
            opcode: sqe.opcode,
            nsid: sqe.nsid().0,
            lba,
            blocks,
            value: ns,
            ..self.event(kind)
        };
        self.telemetry
            .record(self.time.ns(), &event.with_status(answered.status));
    }

    /// Where the row of a namespace is. What is not active is counted together: a host must not fill the table with numbers of its choice.
    fn row(&mut self, nsid: Nsid, namespaces: &NamespaceSet) -> usize {
        if self.epoch != namespaces.epoch() {
            // A number may be another disk's by now. Commands under way are counted where they began.
            self.let_go(namespaces);
            self.epoch = namespaces.epoch();
        }
        if nsid.0 > 0
            && let Some(Some(row)) = self.places.get(nsid.0 as usize)
        {
            return *row;
        }
        // A bounded number: the namespace is there.
        let (nsid, uuid) = namespaces
            .get(nsid)
            .map_or((0, [0; 16]), |info| (info.nsid.0, info.uuid));
        let place = nsid as usize;
        if self.places.len() <= place {
            self.places.resize(place + 1, None);
        }
        if let Some(Some(row)) = self.places.get(place) {
            return *row;
        }
        let row = self.row_of(nsid, uuid);
        if let Some(place) = self.places.get_mut(place) {
            *place = Some(row);
        }
        row
    }

    /// Lets go of the rows of disks that are gone, so that others may have their places.
    #[cold]
    fn let_go(&mut self, namespaces: &NamespaceSet) {
        self.places.fill(None);
        let begun = self.begun.iter_mut().flatten();
        let mut under_way: Vec<&mut Begun> = begun
            .chain(self.ended.iter_mut().map(|answered| &mut answered.begun))
            .collect();
        let mut kept = Vec::with_capacity(self.rows.len());
        for (place, row) in self.rows.drain(..).enumerate() {
            let is_there = row.nsid == 0
                || namespaces
                    .get(Nsid(row.nsid))
                    .is_some_and(|info| info.uuid == row.uuid);
            let (here, rest): (Vec<_>, Vec<_>) =
                under_way.into_iter().partition(|begun| begun.row == place);
            under_way = rest;
            if is_there || !here.is_empty() {
                for begun in here {
                    begun.row = kept.len();
                }
                kept.push(row);
            }
        }
        self.rows = kept;
    }

    /// Where the row of a disk is among ours.
    #[cold]
    fn row_of(&mut self, nsid: u32, uuid: [u8; 16]) -> usize {
        let QueueNames {
            subsystem, host, ..
        } = &self.names;
        let row = self.telemetry.host(subsystem, host, nsid, uuid);
        let known = self.rows.iter().position(|known| Arc::ptr_eq(known, &row));
        known.unwrap_or_else(|| {
            self.rows.push(row);
            self.rows.len() - 1
        })
    }
}

impl Drop for Meter {
    /// Nobody hears of the answers that are still to come.
    fn drop(&mut self) {
        for answered in &self.ended {
            self.count(answered);
        }
        for begun in self.begun.iter().flatten() {
            if let Some(row) = self.rows.get(begun.row) {
                row.abandon(1);
            }
        }
    }
}
