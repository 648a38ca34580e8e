//! How an engine carries requests of several parts out.

use std::time::Instant;

use reactor::buf::IoBuf;
use store::Op;

use super::pieces::{Pieced, Pieces};
use super::saves::{Begun, not_answered};
use super::{Got, Next, Part, Steps};
use crate::attached::WaitsFor;
use crate::engine::{Engine, Entry, Step, Work};
use crate::marks::Since;
use crate::raw::{Raw, inside};
use crate::view::ViewRead;
use crate::{Backing, Namespace, NamespaceError};

/// A request of several parts, as it stands between them.
pub(crate) struct Compound {
    steps: Box<dyn Steps>,
    /// What the machine has been given and not seen yet.
    got: Got,
    /// What it asked for and could not have yet.
    asked: Option<Next>,
    /// Why it ends, as soon as nothing of it is under way.
    failed: Option<NamespaceError>,
    /// Its time is over: it begins nothing more.
    pub(crate) is_overdue: bool,
    /// A part, or a save, is under way.
    is_waiting: bool,
    /// What it ends with is read for whoever asked, and counted as that.
    delivers: bool,
    /// What was marked since it began; none where nothing was marked then.
    since: Option<Since>,
    clearing: Clearing,
}

/// How far clearing marks is. Power loss must not bring back what stood in the blocks before, without its mark: the data go first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clearing {
    Not,
    /// The data are being made durable.
    Flushing,
    /// That these blocks are not marked is being saved.
    Saving {
        lba: u64,
        blocks: u64,
    },
}

impl Compound {
    pub(crate) fn new(steps: Box<dyn Steps>, delivers: bool, since: Option<Since>) -> Self {
        Self {
            steps,
            got: Got::Nothing,
            asked: None,
            failed: None,
            is_overdue: false,
            is_waiting: false,
            delivers,
            since,
            clearing: Clearing::Not,
        }
    }

    /// Ends it as soon as nothing is under way; true where nothing is.
    pub(crate) fn cancel(&mut self, nsid: u32) -> bool {
        self.failed
            .get_or_insert(NamespaceError::Cancelled { nsid });
        !self.is_waiting
    }
}

impl Engine {
    /// Lets requests of several parts go on whose last part has ended, or that wait for others to go.
    pub(crate) fn drive_compounds(&mut self) {
        self.take_saves();
        let mut ready = std::mem::take(&mut self.ready);
        for slot in ready.drain(..) {
            // What it begins may have ended by now, without an event.
            self.again = true;
            self.advance(slot);
        }
        // Those that became ready meanwhile have their turn with the next poll.
        ready.append(&mut self.ready);
        self.ready = ready;
        let excluding = std::mem::take(&mut self.excluding);
        for slot in excluding {
            self.advance(slot);
            // As above: the read that it begins may have ended by now.
            self.again |= !self.excluding.contains(&slot);
        }
    }

    fn take_saves(&mut self) {
        let mut any = false;
        while let Some((slot, result)) = self.saves.next_end() {
            any = true;
            let namespace = &self.attached[self.requests[slot].attached].shared;
            let nsid = namespace.nsid;
            if let Work::Compound(compound) = &self.requests[slot].work
                && let Clearing::Saving { lba, blocks } = compound.clearing
                && let Some(since) = &compound.since
                && result.is_ok()
            {
                namespace.marks.removed(lba, blocks, since);
            }
            let result = result.map_err(|cause| NamespaceError::Unsaved { nsid, cause });
            self.part_ended(slot, result.map(|()| None));
        }
        if any {
            self.ready.append(&mut self.unsaved);
        }
    }

    /// A part of the request in `parent`, or its save, has ended.
    pub(crate) fn part_ended(
        &mut self,
        parent: usize,
        result: Result<Option<IoBuf>, NamespaceError>,
    ) {
        let Some(request) = self.requests.get_mut(parent) else {
            return;
        };
        let Work::Compound(compound) = &mut request.work else {
            return;
        };
        compound.is_waiting = false;
        match result {
            Ok(buf) => compound.got = buf.map_or(Got::Nothing, Got::Buffer),
            Err(error) => {
                let error = compound.steps.failed(error);
                compound.failed.get_or_insert(error);
            }
        }
        self.ready.push(parent);
    }

    /// Takes a request of several parts as far as it goes now.
    pub(crate) fn drive(&mut self, slot: usize, mut compound: Box<Compound>) -> Step {
        let attached = &self.attached[self.requests[slot].attached];
        let namespace = attached.shared.clone();
        loop {
            if let Some(error) = compound.failed.take() {
                return Step::Done(Err(error));
            }
            let asked = compound.asked.take().unwrap_or_else(|| {
                let got = std::mem::take(&mut compound.got);
                compound.steps.next(&namespace, got)
            });
            let begins = matches!(asked, Next::Memory(_) | Next::Exclude | Next::Part(_));
            if compound.is_overdue && begins {
                let nsid = namespace.nsid;
                let error = NamespaceError::NotInTime { nsid };
                return Step::Done(Err(compound.steps.failed(error)));
            }
            let step = match asked {
                Next::Done(result) => {
                    if let (true, Ok(Some(read))) = (compound.delivers, &result) {
                        let row = &self.attached[self.requests[slot].attached].row;
                        row.delivered_bytes.add(read.len() as u64);
                    }
                    return Step::Done(result);
                }
                Next::Memory(len) => {
                    let attached = &self.attached[self.requests[slot].attached];
                    if let Some(memory) = self.parts.alloc_answer(attached, len) {
                        compound.got = Got::Buffer(memory);
                        continue;
                    }
                    compound.asked = Some(Next::Memory(len));
                    Step::Parked(WaitsFor::Memory)
                }
                Next::Exclude => {
                    if self.exclude(slot) {
                        continue;
                    }
                    compound.asked = Some(Next::Exclude);
                    self.excluding.push(slot);
                    Step::Waiting
                }
                Next::Clear { lba, blocks }
                    if compound.clearing == Clearing::Not
                        && compound.since.is_some()
                        && namespace.marks.first_of(lba, blocks).is_some() =>
                {
                    compound.clearing = Clearing::Flushing;
                    compound.asked = Some(asked);
                    compound.is_waiting = true;
                    self.requests[slot].work = Work::Compound(compound);
                    let key = namespace.key;
                    self.begin_part(slot, Part::Flush { key });
                    return Step::Waiting;
                }
                Next::Clear { .. } if compound.clearing == Clearing::Not => continue,
                Next::Mark { lba, blocks } | Next::Clear { lba, blocks } => {
                    let saved = match self.saves.begin(slot) {
                        Begun::Save(saved) => saved,
                        Begun::Later => {
                            compound.asked = Some(asked);
                            self.requests[slot].work = Work::Compound(compound);
                            self.unsaved.push(slot);
                            return Step::Waiting;
                        }
                        Begun::Never => {
                            let (nsid, cause) = (namespace.nsid, not_answered());
                            return Step::Done(Err(NamespaceError::Unsaved { nsid, cause }));
                        }
                    };
                    let keeper = &*namespace.keeper;
                    let begun = match (&asked, &compound.since) {
                        (Next::Clear { .. }, Some(since)) => {
                            compound.clearing = Clearing::Saving { lba, blocks };
                            namespace.marks.remove(lba, blocks, since, keeper, saved)
                        }
                        _ => namespace.marks.add(lba, blocks, keeper, saved),
                    };
                    if begun.is_err() {
                        self.saves.never_mind();
                        let nsid = namespace.nsid;
                        return Step::Done(Err(NamespaceError::MarksFull { nsid }));
                    }
                    compound.is_waiting = true;
                    Step::Waiting
                }
                Next::Part(part) => {
                    compound.is_waiting = true;
                    self.requests[slot].work = Work::Compound(compound);
                    self.begin_part(slot, part);
                    return Step::Waiting;
                }
            };
            self.requests[slot].work = Work::Compound(compound);
            return step;
        }
    }

    /// Keeps other writes out for the request in `slot`; false where some are still under way, or it is not its turn.
    fn exclude(&mut self, slot: usize) -> bool {
        let request = &mut self.requests[slot];
        let gate = &self.attached[request.attached].shared.gate;
        if request.entry == Entry::Outside {
            request.entry = Entry::InLine(gate.queue());
        }
        if let Entry::InLine(ticket) = request.entry {
            if !gate.close(ticket) {
                return false;
            }
            request.entry = Entry::Excludes;
        }
        gate.is_quiet()
    }

    /// Begins a part of the request in `parent`, as a request of its own whose answer goes there.
    fn begin_part(&mut self, parent: usize, part: Part) {
        let own = self.requests[parent].attached;
        let key = part.key();
        let found = if key == self.attached[own].shared.key {
            Some(own)
        } else {
            let found = self.attached.find(key);
            found.filter(|index| !self.attached[*index].retired)
        };
        let Some(index) = found else {
            // A flush of all is of those that are there.
            let is_flush = matches!(part, Part::Flush { .. });
            let gone = if is_flush {
                Ok(None)
            } else {
                Err(NamespaceError::Detached { key })
            };
            return self.part_ended(parent, gone);
        };
        let namespace = self.attached[index].shared.clone();
        let deadline = self.requests[parent].deadline;
        if let Err(error) = part.check(&namespace) {
            return self.part_ended(parent, Err(error));
        }
        let (is_write, work) = match part.pieces(&namespace) {
            Pieced::Whole(piece) if piece.key() != key => return self.begin_part(parent, piece),
            Pieced::Whole(piece) => (piece.is_write(), piece.work(&namespace, deadline)),
            Pieced::Several(pieces) => {
                let steps = Box::new(Pieces::new(pieces, namespace.lba_bytes));
                let compound = Work::Compound(Box::new(Compound::new(steps, false, None)));
                (false, Some(compound))
            }
        };
        let Some(work) = work else {
            // Nothing to flush.
            return self.part_ended(parent, Ok(None));
        };
        let slot = self.take_slot(index, self.requests[parent].token, deadline);
        let entry = self.requests[parent].entry;
        let request = &mut self.requests[slot];
        request.parent = Some(parent);
        request.is_write = is_write;
        request.work = work;
        if matches!(entry, Entry::Excludes | Entry::Exempt) {
            request.entry = Entry::Exempt;
        }
        self.advance(slot);
    }
}

impl Part {
    /// Whether it can be: a read may be of blocks that are not there, or marked. What a request changes was checked when it was taken.
    fn check(&self, namespace: &Namespace) -> Result<(), NamespaceError> {
        let Self::Read { lba, blocks, .. } = self else {
            return Ok(());
        };
        let blocks = u64::from(*blocks);
        inside(namespace, *lba, blocks)?;
        match namespace.marks.first_of(*lba, blocks) {
            Some(lba) => Err(NamespaceError::Uncorrectable {
                nsid: namespace.nsid,
                lba,
            }),
            None => Ok(()),
        }
    }

    /// What it begins with, of one store or view; none where there is nothing to do.
    fn work(self, namespace: &Namespace, deadline: Option<Instant>) -> Option<Work> {
        let lba_bytes = u64::from(namespace.lba_bytes);
        let durable = false;
        let (op, buf) = match (self, &namespace.backing) {
            (
                Self::Read {
                    lba, blocks, into, ..
                },
                Backing::View { volume, .. },
            ) => {
                let read = ViewRead::new(namespace, volume, lba, blocks, Some(into), deadline);
                return Some(Work::View(read.for_part()));
            }
            // Nothing was ever written to a view.
            (_, Backing::View { .. }) => return None,
            (Self::Read { lba, into, .. }, _) => {
                let offset = lba * lba_bytes;
                (Op::Read { offset }, Some(into))
            }
            (
                Self::Write {
                    lba, data, durable, ..
                },
                _,
            ) => {
                let offset = lba * lba_bytes;
                (Op::Write { offset, durable }, Some(data))
            }
            (Self::Zero { lba, blocks, .. }, _) => {
                let (offset, len) = (lba * lba_bytes, blocks * lba_bytes);
                let zero = Op::Zero {
                    offset,
                    len,
                    durable,
                };
                (zero, None)
            }
            (Self::Discard { lba, blocks, .. }, _) => {
                let (offset, len) = (lba * lba_bytes, blocks * lba_bytes);
                (Op::Discard { offset, len }, None)
            }
            (Self::Flush { .. }, _) => (Op::Flush, None),
        };
        Some(Work::Raw(Raw::new(op, buf)))
    }
}
