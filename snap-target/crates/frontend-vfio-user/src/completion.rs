//! A completion queue in guest memory: filled on one reactor, drained by the guest, whose doorbell comes in at the function.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use guest_memory::Fault;
use nvme::pcie::{CompletionQueue, CompletionRing, phase_of};
use nvme::queue::{Completion, QueueId};
use nvme_spec::{Cid, Cqe, U16, U32};
use zerocopy::IntoBytes;

use crate::common::Sight;

/// See the module. All submission queues that it serves are on one reactor, so that `turn` has one writer.
#[derive(Debug)]
pub(crate) struct Completions {
    base: u64,
    entries: u32,
    /// The guest's doorbell.
    head: AtomicU32,
    /// See [`CompletionRing::turn`].
    turn: AtomicU32,
    /// Answers wait for room.
    is_awaited: AtomicBool,
    vector: Option<u16>,
}

/// Which command an entry is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Of {
    pub(crate) queue: QueueId,
    pub(crate) head: u16,
    pub(crate) cid: Cid,
}

impl Completions {
    pub(crate) fn new(queue: &CompletionQueue) -> Self {
        Self {
            base: queue.base,
            entries: queue.entries,
            head: AtomicU32::new(0),
            turn: AtomicU32::new(0),
            is_awaited: AtomicBool::new(false),
            vector: queue.vector,
        }
    }

    fn ring(&self) -> CompletionRing {
        let head = self.head.load(Ordering::SeqCst);
        let turn = self.turn.load(Ordering::Acquire);
        CompletionRing::resume(self.base, self.entries, head, turn)
    }

    /// The guest's doorbell: whether answers wait for the room that there is now. None where it names an entry that it was not given: nothing changes.
    pub(crate) fn set_head(&self, head: u32) -> Option<bool> {
        if !self.ring().set_head(head) {
            return None;
        }
        // The filler says that it waits, then looks for room once more; here room is made, then it is asked whether somebody waits. One of both sees the other.
        self.head.store(head, Ordering::SeqCst);
        Some(self.is_awaited.swap(false, Ordering::SeqCst))
    }

    /// Whether the guest has entries to look at.
    pub(crate) fn has_entries(&self) -> bool {
        self.ring().given() > 0
    }

    /// The vector that an entry interrupts by.
    pub(crate) fn vector(&self) -> Option<u16> {
        self.vector
    }

    /// Puts an entry in; false where the guest has left no room. An entry that the guest has no memory for is gone: it has taken the queue away.
    pub(crate) fn push(
        &self,
        sight: &Sight,
        of: Of,
        completion: &Completion,
    ) -> Result<bool, Fault> {
        let mut ring = self.ring();
        let Some((place, phase)) = ring.push().or_else(|| {
            self.is_awaited.store(true, Ordering::SeqCst);
            ring = self.ring();
            ring.push()
        }) else {
            return Ok(false);
        };
        let mut entry = [0; 16];
        let cqe = Cqe {
            dw0: U32::new(completion.dw0),
            dw1: U32::new(completion.dw1),
            sqhd: U16::new(of.head),
            sqid: U16::new(of.queue.0),
            cid: U16::new(of.cid.0),
            status_and_phase: U16::new(phase_of(completion.status, phase)),
        };
        entry.copy_from_slice(cqe.as_bytes());
        let written = sight.windows().publish(place, entry);
        self.turn.store(ring.turn(), Ordering::Release);
        written.map(|()| true)
    }
}
