//! Where command capsules arrive: a row of places of one length, each a receive.

use std::sync::Arc;

use nvme::rdma::target::ReceiveId;
use nvme_spec::command::SQE_BYTES;
use reactor::buf::IoBuf;
use smallvec::SmallVec;
use verbs::{QueuePair, ReceiveRequest, ScatterEntry, VerbsError, WrId};

use crate::device::{OnDevice, OwnMemory};
use crate::limits::{BATCH_MAX, COPY_STEP_BYTES};

/// What tells a receive from what was sent.
const RECEIVE: u64 = 1 << 63;

/// The receive that a completion is about, if it is about one.
pub(crate) fn receive_of(id: WrId) -> Option<ReceiveId> {
    let index = id.0 & !RECEIVE;
    (id.0 & RECEIVE != 0)
        .then(|| u16::try_from(index).ok().map(ReceiveId))
        .flatten()
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Capsules {
    memory: OwnMemory,
    place_bytes: u32,
}

impl Capsules {
    /// So many places for capsules with so much data.
    pub(crate) fn new(
        on: &Arc<OnDevice>,
        places: u16,
        data_bytes: u32,
    ) -> Result<Self, VerbsError> {
        let place_bytes = data_bytes.saturating_add(64).next_multiple_of(64);
        let memory = on.own_memory(usize::from(places) * place_bytes as usize)?;
        Ok(Self {
            memory,
            place_bytes,
        })
    }

    fn at(&self, receive: ReceiveId) -> usize {
        usize::from(receive.0) * self.place_bytes as usize
    }

    /// Posts receives again.
    pub(crate) fn post(&self, to: &QueuePair, receives: &[ReceiveId]) -> Result<(), VerbsError> {
        let entries: SmallVec<[(WrId, ScatterEntry); BATCH_MAX]> = receives
            .iter()
            .filter_map(|&receive| {
                let entry = self.memory.entry(self.at(receive), self.place_bytes)?;
                Some((WrId(RECEIVE | u64::from(receive.0)), entry))
            })
            .collect();
        let requests: SmallVec<[ReceiveRequest<'_>; BATCH_MAX]> = entries
            .iter()
            .map(|(id, entry)| ReceiveRequest {
                id: *id,
                entries: std::slice::from_ref(entry),
            })
            .collect();
        to.post_receive(&requests).map_err(|refused| refused.error)
    }

    /// The submission queue entry of a capsule of so many bytes: what there is of it.
    pub(crate) fn head<'a>(
        &self,
        receive: ReceiveId,
        bytes: u32,
        into: &'a mut [u8; SQE_BYTES],
    ) -> &'a [u8] {
        let len = (bytes as usize).min(SQE_BYTES);
        let head = &mut into[..len];
        let len = if self.memory.copy_out(self.at(receive), head) {
            len
        } else {
            0
        };
        &into[..len]
    }

    /// Copies data of a capsule, from `offset` behind the entry on, to the beginning of a buffer. False where one of them is shorter.
    pub(crate) fn copy_data(
        &self,
        receive: ReceiveId,
        offset: u32,
        bytes: u32,
        into: &mut IoBuf,
    ) -> bool {
        if bytes > self.place_bytes || into.len() < bytes as usize {
            return false;
        }
        let from = self.at(receive) + SQE_BYTES + offset as usize;
        copy_steps(bytes, |at, step| {
            self.memory.copy_out(from + at, step) && into.copy_from(at, step) == step.len()
        })
    }
}

/// Goes over so many bytes in steps that lie on the stack; false as soon as one of them fails.
pub(crate) fn copy_steps(bytes: u32, mut step: impl FnMut(usize, &mut [u8]) -> bool) -> bool {
    let mut through = [0; COPY_STEP_BYTES];
    let bytes = bytes as usize;
    (0..bytes)
        .step_by(COPY_STEP_BYTES)
        .all(|at| step(at, &mut through[..(bytes - at).min(COPY_STEP_BYTES)]))
}
