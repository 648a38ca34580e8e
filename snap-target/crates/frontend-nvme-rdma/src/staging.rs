//! Registered memory through which data go that lie in memory which is not. Made when first needed.

use std::sync::Arc;

use nvme::queue::Slot;
use nvme::rdma::target::WorkId;
use reactor::buf::IoBuf;
use verbs::{ScatterEntry, VerbsError};

use crate::capsules::copy_steps;
use crate::device::{OnDevice, OwnMemory};
use crate::limits::{CHUNK_BYTES, CHUNKS_MAX};

/// What a chunk is used for, until its request has ended.
#[derive(Clone, Copy, Debug)]
struct Use {
    id: WorkId,
    /// Of an RDMA READ: whose data, where they go, and how many.
    into: Option<(Slot, u32, u32)>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Staging {
    memory: Option<OwnMemory>,
    uses: [Option<Use>; CHUNKS_MAX],
}

impl Staging {
    /// Room for at most so many bytes of a request; none while all of it is in use.
    pub(crate) fn take(
        &mut self,
        on: &Arc<OnDevice>,
        id: WorkId,
        bytes_max: u32,
    ) -> Result<Option<Chunk<'_>>, VerbsError> {
        if self.memory.is_none() {
            self.memory = Some(on.own_memory(CHUNKS_MAX * CHUNK_BYTES as usize)?);
        }
        let free = self.uses.iter().position(Option::is_none);
        let (Some(at), Some(memory)) = (free, &self.memory) else {
            return Ok(None);
        };
        let (base, bytes) = (at * CHUNK_BYTES as usize, bytes_max.min(CHUNK_BYTES));
        let Some(entry) = memory.entry(base, bytes) else {
            return Ok(None);
        };
        let place = &mut self.uses[at];
        Ok(Some(Chunk {
            entry,
            id,
            memory,
            base,
            place,
        }))
    }

    /// A request has ended, and all before it: their chunks are free. What RDMA READs brought goes to its place first.
    pub(crate) fn completed(&mut self, id: WorkId, mut buffer: impl FnMut(Slot) -> Option<IoBuf>) {
        let Some(memory) = &self.memory else { return };
        for (at, place) in self.uses.iter_mut().enumerate() {
            let Some(done) = place.take_if(|used| used.id <= id) else {
                continue;
            };
            if let Some((slot, offset, bytes)) = done.into
                && let Some(mut to) = buffer(slot)
            {
                let (from, offset) = (at * CHUNK_BYTES as usize, offset as usize);
                copy_steps(bytes, |at, step| {
                    memory.copy_out(from + at, step) && to.copy_from(offset + at, step) > 0
                });
            }
        }
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
