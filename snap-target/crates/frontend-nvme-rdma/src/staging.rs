//! Registered memory through which data go that lie in memory which is not. A connection has its own from before it is accepted, so that no command waits for the
//! machine's memory.

use std::sync::Arc;

use nvme::queue::Slot;
use nvme::rdma::target::WorkId;
use reactor::buf::IoBuf;
use verbs::{ScatterEntry, VerbsError};

use crate::capsules::copy_steps;
use crate::device::{OnDevice, OwnMemory};
use crate::limits::CHUNK_BYTES;

/// What a chunk is used for, until its request has ended.
#[derive(Clone, Copy, Debug)]
struct Use {
    id: WorkId,
    /// Of an RDMA READ: whose data, where they go, and how many.
    into: Option<(Slot, u32, u32)>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Staging {
    memory: OwnMemory,
    /// By chunk.
    uses: Vec<Option<Use>>,
}

impl Staging {
    /// Of so many chunks of [`CHUNK_BYTES`].
    pub(crate) fn new(on: &Arc<OnDevice>, chunks: usize) -> Result<Self, VerbsError> {
        Ok(Self {
            memory: on.own_memory(chunks * CHUNK_BYTES as usize)?,
            uses: vec![None; chunks],
        })
    }

    /// Room for at most so many bytes of a request; none while all of it is in use.
    pub(crate) fn take(&mut self, id: WorkId, bytes_max: u32) -> Option<Chunk<'_>> {
        let at = self.uses.iter().position(Option::is_none)?;
        let base = at * CHUNK_BYTES as usize;
        Some(Chunk {
            entry: self.memory.entry(base, bytes_max.min(CHUNK_BYTES))?,
            id,
            memory: &self.memory,
            base,
            place: &mut self.uses[at],
        })
    }

    /// A request has ended, and all before it: their chunks are free. What RDMA READs brought goes to its place first: so many bytes were copied, or none
    /// where a place does not take them.
    pub(crate) fn completed(
        &mut self,
        id: WorkId,
        mut buffer: impl FnMut(Slot) -> Option<IoBuf>,
    ) -> Option<u64> {
        let (mut copied, mut is_whole) = (0, true);
        for (at, place) in self.uses.iter_mut().enumerate() {
            let Some(done) = place.take_if(|used| used.id <= id) else {
                continue;
            };
            let Some((slot, offset, bytes)) = done.into else {
                continue;
            };
            copied += u64::from(bytes);
            let (from, offset) = (at * CHUNK_BYTES as usize, offset as usize);
            is_whole &= buffer(slot).is_some_and(|mut to| {
                copy_steps(bytes, |at, step| {
                    self.memory.copy_out(from + at, step)
                        && to.copy_from(offset + at, step) == step.len()
                })
            });
        }
        is_whole.then_some(copied)
    }
}

/// A piece of the staging that is about to be used; not used where it is dropped.
pub(crate) struct Chunk<'a> {
    pub(crate) entry: ScatterEntry,
    id: WorkId,
    memory: &'a OwnMemory,
    base: usize,
    place: &'a mut Option<Use>,
}

impl Chunk<'_> {
    /// For an RDMA READ of data that go there.
    pub(crate) fn for_read(self, slot: Slot, offset: u32) {
        *self.place = Some(Use {
            id: self.id,
            into: Some((slot, offset, self.entry.len())),
        });
    }

    /// For an RDMA WRITE of these bytes of a buffer. False where it has not as many.
    pub(crate) fn for_write(self, from: &IoBuf, offset: u32) -> bool {
        *self.place = Some(Use {
            id: self.id,
            into: None,
        });
        copy_steps(self.entry.len(), |at, step| {
            from.copy_to(offset as usize + at, step) == step.len()
                && self.memory.copy_in(self.base + at, step)
        })
    }
}
