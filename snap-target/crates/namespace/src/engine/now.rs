//! Requests of raw stores that are answered before they have a slot: reads of bytes that lie in memory, and reads and writes that their store carries
//! out at once.

use reactor::buf::IoBuf;
use store::Op;

use super::Engine;
use crate::attached::moved;
use crate::raw::inside;
use crate::{Backing, Done, Io, NamespaceError, NamespaceKey};

/// What came of a request that was not begun yet. Small where it went well: what is large is moved by wide loads, and each waits until the bytes copied before it
/// have left the processor.
pub(super) enum Carried {
    /// It is to be begun as others are.
    No,
    /// A read's bytes, where they lie.
    Lent(IoBuf),
    /// All of it, with the buffer that it brought.
    Out,
    Failed(Box<NamespaceError>),
}

impl Engine {
    /// Carries a request out, where that takes no memory and waits for nobody.
    pub(super) fn carry_out(&mut self, index: usize, io: &Io, snapshot: bool) -> Carried {
        let namespace = &self.attached[index].shared;
        match (io, &namespace.backing) {
            // Nobody writes to what is write-protected.
            (
                Io::Read {
                    lba,
                    blocks,
                    into: None,
                },
                Backing::Raw(_),
            ) if !snapshot || namespace.write_protected => {
                let Some(buf) = self.lease(index, *lba, *blocks) else {
                    return Carried::No;
                };
                self.count_read(index, buf.len());
                Carried::Lent(buf)
            }
            (
                Io::Read {
                    lba,
                    into: Some(into),
                    ..
                },
                Backing::Raw(_),
            ) => {
                let offset = lba * u64::from(namespace.lba_bytes);
                self.read(index, offset, into)
            }
            (Io::Write { lba, data, durable }, Backing::Raw(_)) => {
                self.write(index, *lba, data, *durable)
            }
            // Nothing was ever written to a view.
            (Io::Flush, Backing::View { .. }) => Carried::Out,
            _ => Carried::No,
        }
    }

    /// Reads straight into memory that others change, where the store does that at once: no answer is on its way anywhere. None where nothing has happened, and the
    /// read is to be asked for ([`Engine::ask`], which also says what is wrong with it).
    pub fn read_into(
        &mut self,
        key: NamespaceKey,
        (lba, blocks): (u64, u32),
        into: &IoBuf,
    ) -> Option<Result<(), NamespaceError>> {
        let (index, offset) = self.lent(key, (lba, blocks), into)?;
        let marks = &self.attached[index].shared.marks;
        if marks.first_of(lba, blocks.into()).is_some() {
            return None;
        }
        let carried = self.read(index, offset, into);
        self.result_of(index, carried)
    }

    /// The same of a write, straight from memory that others change.
    pub fn write_from(
        &mut self,
        key: NamespaceKey,
        (lba, blocks): (u64, u32),
        data: &IoBuf,
        durable: bool,
    ) -> Option<Result<(), NamespaceError>> {
        let (index, _) = self.lent(key, (lba, blocks), data)?;
        if self.attached[index].shared.write_protected {
            return None;
        }
        let carried = self.write(index, lba, data, durable);
        self.result_of(index, carried)
    }

    /// What came of a request without an answer of ours.
    fn result_of(&self, index: usize, carried: Carried) -> Option<Result<(), NamespaceError>> {
        match carried {
            Carried::No | Carried::Lent(_) => None,
            Carried::Out => Some(Ok(())),
            Carried::Failed(error) => Some(self.failed(index, 0, *error).result),
        }
    }

    /// Which namespace, and from which byte on, if it has these blocks, and its store takes as many bytes at once where others may change them.
    fn lent(
        &self,
        key: NamespaceKey,
        (lba, blocks): (u64, u32),
        data: &IoBuf,
    ) -> Option<(usize, u64)> {
        let index = self.attached.find(key)?;
        let attached = &self.attached[index];
        let namespace = &attached.shared;
        let lba_bytes = u64::from(namespace.lba_bytes);
        let is_there = !attached.retired
            && data.segments().len() <= attached.lent_segments_max
            && data.len() as u64 == u64::from(blocks) * lba_bytes
            && inside(namespace, lba, blocks.into()).is_ok();
        is_there.then(|| (index, lba * lba_bytes))
    }

    fn lease(&mut self, index: usize, lba: u64, blocks: u32) -> Option<IoBuf> {
        let attached = &mut self.attached[index];
        let bytes = blocks.checked_mul(attached.shared.lba_bytes)?;
        attached.lease(0, lba * u64::from(attached.shared.lba_bytes), bytes)
    }

    fn read(&mut self, index: usize, offset: u64, into: &IoBuf) -> Carried {
        let carried = self.carry(index, Op::Read { offset }, into);
        if matches!(carried, Carried::Out) {
            self.count_read(index, into.len());
        }
        carried
    }

    fn count_read(&self, index: usize, bytes: usize) {
        let row = &self.attached[index].row;
        row.stored_bytes.add(bytes as u64);
        row.delivered_bytes.add(bytes as u64);
    }

    /// Writes, if nobody's lost write is under way, nobody keeps writes out, and no marks are to be cleared.
    fn write(&mut self, index: usize, lba: u64, data: &IoBuf, durable: bool) -> Carried {
        let reactor = self.parts.reactor;
        let attached = &mut self.attached[index];
        let namespace = &attached.shared;
        let lba_bytes = u64::from(namespace.lba_bytes);
        let blocks = data.len() as u64 / lba_bytes;
        if !attached.ends_in_submit
            || namespace.fence.is_up()
            || namespace.marks.first_of(lba, blocks).is_some()
        {
            return Carried::No;
        }
        // Once for all of a turn: leaving at once would have to wait until the bytes have left the processor.
        if !attached.is_inside {
            if !namespace.gate.enter(reactor) {
                self.frames.wake_peers();
                return Carried::No;
            }
            attached.is_inside = true;
            self.again = true;
        }
        let offset = lba * lba_bytes;
        let carried = self.carry(index, Op::Write { offset, durable }, data);
        if matches!(carried, Carried::Out) {
            self.attached[index]
                .row
                .written_bytes
                .add(data.len() as u64);
        }
        carried
    }

    /// Has a store carry an operation out on the spot, if it can.
    fn carry(&mut self, index: usize, op: Op, buf: &IoBuf) -> Carried {
        let attached = &mut self.attached[index];
        let store = attached.stores.first_mut();
        let Some(store) = store.filter(|_| attached.ends_in_submit) else {
            return Carried::No;
        };
        match store.carry_out(op, buf) {
            None => Carried::No,
            Some(Ok(got)) if got as usize == buf.len() => Carried::Out,
            Some(result) => match moved(attached.shared.nsid, buf.len(), result) {
                Ok(()) => Carried::Out,
                Err(error) => Carried::Failed(Box::new(error)),
            },
        }
    }

    /// The answer to a request that failed at once.
    #[cold]
    pub(super) fn failed(&self, index: usize, token: u64, error: NamespaceError) -> Done {
        let attached = &self.attached[index];
        let error = error.behind(attached.first_lba, attached.shared.lba_bytes);
        attached.note_damage(&error);
        Done {
            token,
            buf: None,
            result: Err(error),
        }
    }

    /// Writes that were carried out at once are over for whoever waits for that.
    pub(super) fn leave_gates(&mut self) {
        let reactor = self.parts.reactor;
        let mut is_awaited = false;
        for index in 0..self.attached.places() {
            let attached = self.attached.get_mut(index);
            let Some(attached) = attached.filter(|attached| attached.is_inside) else {
                continue;
            };
            attached.is_inside = false;
            is_awaited |= attached.shared.gate.leave(reactor);
        }
        if is_awaited {
            self.frames.wake_peers();
        }
    }

    /// These bytes are about to be read, or written: a store that has them in memory has the processor fetch them meanwhile. It changes nothing else.
    pub fn expect(&self, key: NamespaceKey, offset: u64, bytes: u32, is_change: bool) {
        let Some(index) = self.attached.find(key) else {
            return;
        };
        let attached = &self.attached[index];
        if attached.ends_in_submit
            && let Some(store) = attached.stores.first()
        {
            store.expect(offset, bytes, is_change);
        }
    }
}
