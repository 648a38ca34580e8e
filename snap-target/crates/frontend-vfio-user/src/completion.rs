//! A completion queue in guest memory: filled on one reactor, drained by the guest, whose doorbell comes in at the function, or is in its memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};

use guest_memory::Fault;
use nvme::pcie::{CompletionQueue, CompletionRing, Doorbell, phase_of};
use nvme::queue::{Completion, QueueId};
use nvme_spec::{Cid, Cqe};

use crate::common::{Sight, View};
use crate::doorbells::DoorbellPage;

/// See the module. All submission queues that it serves are on one reactor, so that `turn` has one writer.
#[derive(Debug)]
pub(crate) struct Completions {
    id: QueueId,
    base: u64,
    entries: u32,
    /// The guest's doorbell.
    head: AtomicU32,
    /// The guest has rung it since it keeps its doorbells in memory: there is its word from now on.
    is_shadowed: AtomicBool,
    /// See [`CompletionRing::turn`].
    turn: AtomicU32,
    /// Answers wait for room.
    is_awaited: AtomicBool,
    vector: Option<u16>,
    /// Where its doorbell is polled.
    page: Option<Arc<DoorbellPage>>,
}

/// Entries of a completion queue in 64 bytes.
const ENTRIES_A_LINE: usize = 64 / size_of::<Cqe>();

/// A word of an entry (Base, "Common Completion Queue Entry Format").
fn halves(low: u16, high: u16) -> u32 {
    u32::from(high) << 16 | u32::from(low)
}

/// Which command an entry is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Of {
    pub(crate) queue: QueueId,
    pub(crate) head: u16,
    pub(crate) cid: Cid,
}

impl Completions {
    /// A doorbell that is polled begins here: what the client has left there is of no queue.
    pub(crate) fn new(queue: &CompletionQueue, page: Option<&Arc<DoorbellPage>>) -> Self {
        if let Some(page) = page {
            page.store(Doorbell::Completion(queue.id), 0);
        }
        Self {
            page: page.cloned(),
            id: queue.id,
            base: queue.base,
            entries: queue.entries,
            head: AtomicU32::new(0),
            is_shadowed: AtomicBool::new(false),
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

    fn doorbell(&self) -> Doorbell {
        Doorbell::Completion(self.id)
    }

    /// The guest's doorbell: whether answers wait for the room that there is now. None where it names an entry that it was not given: nothing changes.
    pub(crate) fn set_head(&self, view: &View, head: u32) -> Option<bool> {
        if let Some(page) = &self.page {
            let is_there = self.ring().set_head(head);
            // There is its word, and there the filler looks by itself.
            if is_there {
                page.store(self.doorbell(), head);
            }
            return is_there.then_some(false);
        }
        // Its message may be older than what is in memory, where the filler looks by itself.
        if !self.is_shadowed.load(Ordering::Acquire) {
            if !self.ring().set_head(head) {
                return None;
            }
            self.head.store(head, Ordering::SeqCst);
            let is_shadowed = view.doorbells.is_some() && !self.id.is_admin();
            self.is_shadowed.store(is_shadowed, Ordering::Release);
        }
        // The filler says that it waits, then looks for room once more; here room is made, then it is asked whether somebody waits. One of both sees the other.
        Some(self.is_awaited.swap(false, Ordering::SeqCst))
    }

    /// The guest keeps its doorbells in memory from now on, and will ring this one once more.
    pub(crate) fn share(&self, view: &View) {
        self.is_shadowed.store(false, Ordering::Release);
        view.begin_shadow(self.doorbell(), self.head.load(Ordering::SeqCst));
    }

    /// For the filler: takes up what the guest has its doorbell say in memory. It need not ring it: who waits for room says so.
    fn look(&self, view: &View) {
        if self.is_shadowed.load(Ordering::Acquire)
            && let Some(head) = view.shadow(self.doorbell())
            && self.ring().set_head(head)
            && self.head.swap(head, Ordering::SeqCst) != head
        {
            view.trap_no_more(self.doorbell(), head, self.entries);
        }
    }

    /// For the filler, where the doorbell is polled: takes up what the client has it say. Not before there is no room, since the client has just written it.
    fn look_at_page(&self) {
        if let Some(page) = &self.page
            && let Some(head) = page.load(self.doorbell())
            && self.ring().set_head(head)
        {
            self.head.store(head, Ordering::SeqCst);
        }
    }

    /// Answers wait for room: the guest is to say when there is some.
    fn wait(&self, view: &View) {
        if self.page.is_some() {
            return self.look_at_page();
        }
        self.is_awaited.store(true, Ordering::SeqCst);
        if self.is_shadowed.load(Ordering::Acquire) {
            view.trap_after(self.doorbell(), self.head.load(Ordering::SeqCst));
            // The guest writes its word, then looks where it is to trap; here the other way round. One of both sees the other.
            fence(Ordering::SeqCst);
            self.look(view);
        }
    }

    /// Whether the guest has entries to look at.
    pub(crate) fn has_entries(&self, view: &View) -> bool {
        let mut ring = self.ring();
        if let Some(head) = self.page.as_ref().and_then(|it| it.load(self.doorbell())) {
            ring.set_head(head);
        }
        if self.is_shadowed.load(Ordering::Acquire)
            && let Some(head) = view.shadow(self.doorbell())
        {
            ring.set_head(head);
        }
        ring.given() > 0
    }

    /// The vector that an entry interrupts by.
    pub(crate) fn vector(&self) -> Option<u16> {
        self.vector
    }

    /// Entries up to the end of a line of the client's processor.
    pub(crate) fn left_of_line(&self) -> usize {
        let ring = self.ring();
        ENTRIES_A_LINE - ring.tail() as usize % ENTRIES_A_LINE
    }

    /// Puts an entry in; false where the guest has left no room. An entry that the guest has no memory for is gone: it has taken the queue away.
    pub(crate) fn push(
        &self,
        sight: &Sight,
        of: Of,
        completion: &Completion,
    ) -> Result<bool, Fault> {
        self.look(sight.view());
        let mut ring = self.ring();
        let Some((place, phase)) = ring.push().or_else(|| {
            self.wait(sight.view());
            ring = self.ring();
            ring.push()
        }) else {
            return Ok(false);
        };
        // Words from the beginning: one that is put together in memory waits there for every store before it.
        let words = [
            completion.dw0,
            completion.dw1,
            halves(of.head, of.queue.0),
            halves(of.cid.0, phase_of(completion.status, phase)),
        ];
        let goes_on = ring.tail() != 0;
        let written = sight
            .windows()
            .publish(place, words.map(u32::to_le), goes_on);
        self.turn.store(ring.turn(), Ordering::Release);
        written.map(|()| true)
    }
}
