//! The store of a [`MemoryTarget`]: the part that an engine plays behind the machines. A request lies with it for a while, then all of it happens at
//! once; what happens to requests whose connection ends, that are aborted, or whose host is preempted, is chance.

use std::collections::{BTreeMap, BTreeSet};

use crate::Time;
use crate::controller::reservation::{Change, HostId, Request as ReservationRequest, Table};
use crate::controller::{BlockRange, Blocks, ControllerId};
use crate::queue::{QueueId, Slot};
use nvme_spec::{IoOpcode, Nsid, Sqe, Status};

use super::target::MemoryTarget;

/// A connection, as long as the target lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionId(pub u64);

/// Who waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asker {
    pub connection: ConnectionId,
    pub slot: Slot,
}

/// What the store is asked for.
#[derive(Debug)]
pub enum Io {
    /// Flush, and hints: there is nothing to do.
    Nothing,
    Read(BlockRange),
    Write(BlockRange, Vec<u8>),
    Compare(BlockRange, Vec<u8>),
    Verify(Blocks),
    Zero(Vec<Blocks>),
    /// Write Uncorrectable.
    Mark(Blocks),
    Copy {
        to: Blocks,
        sources: Vec<Blocks>,
    },
    CompareAndWrite {
        compare: Slot,
        range: BlockRange,
        expected: Vec<u8>,
        data: Vec<u8>,
    },
    Reserve {
        sqe: Sqe,
        keys: Vec<u8>,
    },
    Report {
        nsid: Nsid,
        bytes: u32,
    },
}

impl Io {
    fn changes_blocks(&self) -> bool {
        match self {
            Io::Write(..) | Io::Zero(_) | Io::Mark(_) => true,
            Io::Copy { .. } | Io::CompareAndWrite { .. } => true,
            Io::Nothing | Io::Read(_) | Io::Compare(..) | Io::Verify(_) => false,
            Io::Reserve { .. } | Io::Report { .. } => false,
        }
    }

    /// A reservation command is short, and nothing of it may be half done.
    fn can_end_early(&self) -> bool {
        !matches!(self, Io::Reserve { .. } | Io::Report { .. })
    }
}

/// A request that the store has.
#[derive(Debug)]
pub struct Request {
    pub asker: Asker,
    pub owner: (ControllerId, QueueId),
    pub host: HostId,
    pub io: Io,
    pub due: Time,
    /// What it is answered with, whatever came of it.
    pub fails: Option<Status>,
}

#[derive(Debug)]
struct Held {
    serial: u64,
    request: Request,
    /// Its connection has ended, and its queue waits for it.
    is_late: bool,
    /// The Abort that waits for it.
    abort: Option<Asker>,
}

/// What became of a request, or of an Abort.
#[derive(Debug)]
pub enum Answer {
    /// With the data that go to the host.
    Io(Result<Vec<u8>, Status>),
    /// Of both halves; the asker's slot is the Write's.
    Pair {
        compare: Slot,
        result: Result<(), Status>,
    },
    /// Whether the command was aborted.
    Abort(bool),
}

/// Preempt and Abort waits for these requests.
#[derive(Debug)]
struct Preempting {
    asker: Asker,
    awaited: Vec<u64>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Store {
    held: Vec<Held>,
    done: Vec<(Asker, Answer)>,
    preempting: Vec<Preempting>,
    last: u64,
    tables: BTreeMap<Nsid, Table>,
    /// Blocks that cannot be read.
    pub marks: BTreeSet<(u32, u64)>,
}

impl Store {
    pub fn take(&mut self, connection: ConnectionId) -> Vec<(Asker, Answer)> {
        let theirs = |(asker, _): &mut (Asker, Answer)| asker.connection == connection;
        self.done.extract_if(.., theirs).collect()
    }

    pub fn next_due(&self) -> Option<Time> {
        self.held.iter().map(|held| held.request.due).min()
    }

    pub fn late(&self) -> usize {
        self.held.iter().filter(|held| held.is_late).count()
    }

    pub fn has_any_of(&self, owner: (ControllerId, QueueId)) -> bool {
        self.held.iter().any(|held| held.request.owner == owner)
    }

    /// Whether the store has a command.
    pub fn has(&self, asker: Asker) -> bool {
        let mut waiting = self.preempting.iter();
        waiting.any(|preempting| preempting.asker == asker)
            || self.held.iter().any(|held| {
                let of = held.request.asker;
                let other = match held.request.io {
                    Io::CompareAndWrite { compare, .. } => compare,
                    _ => of.slot,
                };
                of.connection == asker.connection && [of.slot, other].contains(&asker.slot)
            })
    }

    pub fn submit(&mut self, request: Request) {
        self.last += 1;
        self.held.push(Held {
            serial: self.last,
            request,
            is_late: false,
            abort: None,
        });
    }

    pub fn answer(&mut self, asker: Asker, answer: Answer) {
        self.done.push((asker, answer));
    }

    /// Whether a namespace's reservation lets a host's command through.
    pub fn permit(&self, nsid: Nsid, host: HostId, opcode: IoOpcode) -> Result<(), Status> {
        let is_allowed = |table: &Table| table.rights(host).allow(opcode);
        let is_permitted = match nsid {
            Nsid::BROADCAST => self.tables.values().all(is_allowed),
            nsid => self.tables.get(&nsid).is_none_or(is_allowed),
        };
        is_permitted
            .then_some(())
            .ok_or(Status::RESERVATION_CONFLICT.dnr())
    }

    fn place(&self, asker: Asker) -> Option<usize> {
        let is_it = |held: &Held| held.request.asker == asker && held.request.io.can_end_early();
        self.held.iter().position(is_it)
    }
}

impl MemoryTarget {
    /// Does what is due, in the order in which it is, and reports each queue that is gone with its last request.
    pub fn run(&mut self, now: Time) {
        let mut drained: Vec<(ControllerId, QueueId)> = Vec::new();
        while let Some(held) = self.store_due(now) {
            if held.is_late {
                drained.push(held.request.owner);
            }
            self.finish(held);
        }
        self.end_preempts();
        drained.dedup();
        for queue in drained {
            self.close_if_drained(queue);
        }
    }

    fn store_due(&mut self, now: Time) -> Option<Held> {
        let due = self.store.held.iter().enumerate();
        let due = due.filter(|(_, held)| held.request.due <= now);
        let (place, _) = due.min_by_key(|(_, held)| (held.request.due, held.serial))?;
        Some(self.store.held.remove(place))
    }

    fn finish(&mut self, mut held: Held) {
        let io = std::mem::replace(&mut held.request.io, Io::Nothing);
        if let Io::Reserve { sqe, keys } = io {
            match self.reserve(&held.request, &sqe, &keys) {
                Ok(change) if !change.aborted.is_empty() => {
                    return self.preempt(&change.aborted, held.request.asker);
                }
                Ok(_) => self.end(held, &Io::Nothing, Ok(Vec::new())),
                Err(status) => self.end(held, &Io::Nothing, Err(status)),
            }
            return;
        }
        let result = self.carry_out(&io);
        let result = held.request.fails.map_or(result, Err);
        self.end(held, &io, result);
    }

    fn end(&mut self, held: Held, io: &Io, result: Result<Vec<u8>, Status>) {
        if let Some(abort) = held.abort {
            let aborted = matches!(result, Err(Status::ABORT_REQUESTED));
            self.store.answer(abort, Answer::Abort(aborted));
        }
        if held.is_late {
            return;
        }
        let answer = match *io {
            Io::CompareAndWrite { compare, .. } => Answer::Pair {
                compare,
                result: result.map(|_| ()),
            },
            _ => Answer::Io(result),
        };
        self.store.answer(held.request.asker, answer);
    }

    fn carry_out(&mut self, io: &Io) -> Result<Vec<u8>, Status> {
        match io {
            Io::Nothing | Io::Reserve { .. } => {}
            Io::Read(range) => return self.read(blocks_of(range)),
            Io::Write(range, data) => self.write(blocks_of(range), data),
            Io::Compare(range, expected) => self.compare(range, expected)?,
            Io::Verify(blocks) => {
                self.read(*blocks)?;
            }
            Io::Zero(ranges) => {
                for blocks in ranges {
                    let len = self.with_bytes(*blocks, |bytes| bytes.len());
                    self.write(*blocks, &vec![0; len]);
                }
            }
            Io::Mark(blocks) => {
                let all = blocks.lba.0..blocks.lba.0 + u64::from(blocks.blocks);
                self.store.marks.extend(all.map(|lba| (blocks.nsid.0, lba)));
            }
            Io::Copy { to, sources } => {
                let data = self.copied(sources)?;
                self.write(*to, &data);
            }
            Io::CompareAndWrite {
                range,
                expected,
                data,
                ..
            } => {
                self.compare(range, expected)?;
                self.write(blocks_of(range), data);
            }
            Io::Report { nsid, bytes } => {
                let table = self.store.tables.entry(*nsid).or_default();
                return Ok(table.report(*bytes as usize));
            }
        }
        Ok(Vec::new())
    }

    fn copied(&mut self, sources: &[Blocks]) -> Result<Vec<u8>, Status> {
        let mut data = Vec::new();
        for source in sources {
            data.extend(self.read(*source)?);
        }
        Ok(data)
    }

    fn compare(&mut self, range: &BlockRange, expected: &[u8]) -> Result<(), Status> {
        match self.read(blocks_of(range))? == expected {
            true => Ok(()),
            false => Err(Status::COMPARE_FAILURE.dnr()),
        }
    }

    fn read(&mut self, blocks: Blocks) -> Result<Vec<u8>, Status> {
        let first = (blocks.nsid.0, blocks.lba.0);
        let end = (blocks.nsid.0, blocks.lba.0 + u64::from(blocks.blocks));
        match self.store.marks.range(first..end).next() {
            Some(_) => Err(Status::UNRECOVERED_READ_ERROR),
            None => Ok(self.with_bytes(blocks, |bytes| bytes.to_vec())),
        }
    }

    fn write(&mut self, blocks: Blocks, data: &[u8]) {
        self.with_bytes(blocks, |bytes| bytes.copy_from_slice(data));
        if !self.store.marks.is_empty() {
            for lba in blocks.lba.0..blocks.lba.0 + u64::from(blocks.blocks) {
                self.store.marks.remove(&(blocks.nsid.0, lba));
            }
        }
    }

    fn with_bytes<T>(&self, blocks: Blocks, work: impl FnOnce(&mut [u8]) -> T) -> T {
        let mut disks = self.disks.lock().unwrap();
        let disk = disks.get_mut(&blocks.nsid.0).unwrap();
        let start = usize::try_from(blocks.lba.0).unwrap() * disk.lba_bytes as usize;
        let len = blocks.blocks as usize * disk.lba_bytes as usize;
        work(&mut disk.bytes[start..start + len])
    }

    fn reserve(&mut self, request: &Request, sqe: &Sqe, keys: &[u8]) -> Result<Change, Status> {
        let table = self.store.tables.entry(sqe.nsid()).or_default();
        let change =
            table.carry_out(request.host, &ReservationRequest::parse(sqe, keys, false)?)?;
        *table = change.table.clone();
        for notice in &change.notices {
            let theirs = self
                .registry
                .controllers()
                .filter(|it| it.reservation_host() == notice.host);
            for id in theirs.map(|it| it.id()).collect::<Vec<_>>() {
                let controller = self.registry.controller_mut(id).unwrap();
                controller.notify_reservation(sqe.nsid(), notice.what);
            }
        }
        Ok(change)
    }

    /// Preempt and Abort: of what these hosts have with the store, some is given up at once. The answer waits for the rest.
    fn preempt(&mut self, hosts: &[HostId], asker: Asker) {
        let mut awaited = Vec::new();
        let mut drained = Vec::new();
        let theirs: Vec<u64> = (self.store.held.iter())
            .filter(|held| hosts.contains(&held.request.host) && held.request.io.can_end_early())
            .map(|held| held.serial)
            .collect();
        for serial in theirs {
            if self.random.once_in(2) {
                awaited.push(serial);
            } else if let Some(owner) = self.give_up(serial, Status::PREEMPTED.dnr()) {
                drained.push(owner);
            }
        }
        self.store.preempting.push(Preempting { asker, awaited });
        for queue in drained {
            self.close_if_drained(queue);
        }
    }

    /// Ends a request of which nothing was done. Its queue, where that is gone.
    fn give_up(&mut self, serial: u64, status: Status) -> Option<(ControllerId, QueueId)> {
        let mut requests = self.store.held.iter();
        let place = requests.position(|held| held.serial == serial)?;
        let mut held = self.store.held.remove(place);
        let owner = held.is_late.then_some(held.request.owner);
        let io = std::mem::replace(&mut held.request.io, Io::Nothing);
        self.end(held, &io, Err(status));
        owner
    }

    fn end_preempts(&mut self) {
        let Store {
            held, preempting, ..
        } = &mut self.store;
        let over = |preempting: &mut Preempting| {
            let is_there = |serial: &u64| held.iter().any(|held| held.serial == *serial);
            preempting.awaited.retain(is_there);
            preempting.awaited.is_empty()
        };
        let over: Vec<Preempting> = preempting.extract_if(.., over).collect();
        for Preempting { asker, .. } in over {
            self.store.answer(asker, Answer::Io(Ok(Vec::new())));
        }
    }

    /// An Abort found its command here: it is given up at once, or it comes to its own end. False where the store has no such request, or one that
    /// cannot end early.
    pub fn abort(&mut self, asker: Asker, abort: Asker) -> bool {
        let Some(place) = self.store.place(asker) else {
            return false;
        };
        let held = &mut self.store.held[place];
        let is_pair = matches!(held.request.io, Io::CompareAndWrite { .. });
        if is_pair || held.abort.is_some() {
            return false;
        }
        held.abort = Some(abort);
        let serial = held.serial;
        if self.random.once_in(2) {
            self.give_up(serial, Status::ABORT_REQUESTED);
        }
        true
    }

    /// A connection is gone. Of the writes that the store had, some are never applied, and the others late, or at once where nothing is ever late.
    pub fn close_connection(&mut self, connection: ConnectionId, now: Time) {
        let theirs = |held: &mut Held| held.request.asker.connection == connection && !held.is_late;
        let held: Vec<Held> = self.store.held.extract_if(.., theirs).collect();
        for mut held in held {
            if let Some(abort) = held.abort.take() {
                self.store.answer(abort, Answer::Abort(false));
            }
            if !held.request.io.changes_blocks() {
                continue;
            }
            if self.late_max.is_zero() {
                if self.random.once_in(2) {
                    let _nobody_asks = self.carry_out(&held.request.io);
                }
            } else if !self.random.once_in(4) {
                self.be_late(held, now);
            }
        }
        self.store.take(connection);
        let asked = |preempting: &Preempting| preempting.asker.connection != connection;
        self.store.preempting.retain(asked);
    }

    fn be_late(&mut self, mut held: Held, now: Time) {
        // What it reads it has read by now: hosts that know it gone may write there.
        if let Io::Copy { to, sources } = &held.request.io {
            let to = *to;
            let Ok(data) = self.copied(&sources.clone()) else {
                return;
            };
            let range = BlockRange {
                nsid: to.nsid,
                lba: to.lba,
                blocks: to.blocks,
                offset_bytes: 0,
                bytes: u32::try_from(data.len()).unwrap(),
                force_unit_access: false,
            };
            held.request.io = Io::Write(range, data);
        }
        held.is_late = true;
        held.request.due = now + self.random.below(self.late_max);
        self.store.held.push(held);
    }
}

fn blocks_of(range: &BlockRange) -> Blocks {
    Blocks {
        nsid: range.nsid,
        lba: range.lba,
        blocks: range.blocks,
    }
}
