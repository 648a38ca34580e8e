//! What all queues of a function share, on whatever reactor: the guest's memory, the interrupts, and word of changes.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use guest_memory::{Fault, Leases, Way, Windows};
use nvme::pcie::{Aggregation, Coalescing, Doorbell, DoorbellBuffers, Piece};
use reactor::buf::IoBuf;
use reactor::peer_event;

use crate::aggregate::{Delay, Untold};
use crate::apart::{Ask, Asks};
use crate::bell::Bell;
use crate::doorbells::DoorbellPage;

/// What a queue works with: immutable, replaced as a whole by the function.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    pub(crate) windows: Windows,
    /// MSI-X, by vector; empty where that is off.
    pub(crate) vectors: Vec<Option<Arc<OwnedFd>>>,
    /// The line interrupt.
    pub(crate) line: Option<Arc<OwnedFd>>,
    /// Where the guest keeps its doorbells, if it does.
    pub(crate) doorbells: Option<DoorbellBuffers>,
    /// When completions are told of.
    pub(crate) coalescing: Coalescing,
    /// Most bytes of guest memory that one message reads or writes.
    pub(crate) message_bytes_max: u32,
}

impl View {
    /// Whether completions are told of by the line. With MSI-X, a vector that the client has not set up is silent.
    pub(crate) fn uses_line(&self) -> bool {
        self.line.is_some() && self.vectors.is_empty()
    }

    /// Whether completions of a vector are told of by the same descriptor in both.
    fn tells_as(&self, other: &View, vector: u16) -> bool {
        let by = |view: &View| match view.uses_line() {
            true => view.line.as_ref().map(Arc::as_ptr),
            false => {
                let fd = view.vectors.get(usize::from(vector));
                fd.and_then(Option::as_ref).map(Arc::as_ptr)
            }
        };
        by(self) == by(other)
    }

    /// What the guest has a doorbell say in its own memory. None where it keeps none there, or has taken the memory away.
    pub(crate) fn shadow(&self, doorbell: Doorbell) -> Option<u32> {
        let place = self.doorbells?.shadow_of(doorbell)?;
        self.windows.load(place).ok()
    }

    /// Has both the guest's word and ours begin at a value.
    pub(crate) fn begin_shadow(&self, doorbell: Doorbell, value: u32) {
        let place = self.doorbells.and_then(|it| it.shadow_of(doorbell));
        self.put(place, value);
        self.trap_after(doorbell, value);
    }

    /// The guest is to ring the doorbell itself when it goes on from this value.
    pub(crate) fn trap_after(&self, doorbell: Doorbell, value: u32) {
        let place = self.doorbells.and_then(|it| it.event_of(doorbell));
        self.put(place, value);
    }

    /// The guest need not ring a doorbell of a ring of so many entries, which it has at this value: the entry before it, which it does not pass
    /// before it has gone round.
    pub(crate) fn trap_no_more(&self, doorbell: Doorbell, value: u32, entries: u32) {
        self.trap_after(doorbell, (value + entries - 1) % entries);
    }

    fn put(&self, place: Option<u64>, value: u32) {
        if let Some(place) = place
            && let Err(fault) = self.windows.store(place, value)
        {
            tracing::debug!(%fault, "a guest's doorbells are not in its memory any more");
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Common {
    /// Changes with the view: a queue takes the lock when it has changed, and not before.
    epoch: AtomicU64,
    view: Mutex<Arc<View>>,
    /// The line is asserted, and masked by that until the client unmasks it.
    line_masked: AtomicBool,
    /// INTMS and INTMC, for the line.
    masked_vectors: AtomicU32,
    /// Completions that were not told of.
    pub(crate) untold: Untold,
    /// What goes by messages.
    pub(crate) asks: Asks,
    /// Rings where the function is to look: a window was unmapped, or a message is to be sent.
    pub(crate) bell: Arc<Bell>,
    /// Doorbells that the client may map, where they are polled.
    pub(crate) page: Option<Arc<DoorbellPage>>,
    /// They are looked at now.
    is_polling: AtomicBool,
}

impl Common {
    pub(crate) fn new(page: Option<DoorbellPage>) -> std::io::Result<Self> {
        Ok(Self {
            page: page.map(Arc::new),
            is_polling: AtomicBool::new(false),
            epoch: AtomicU64::new(1),
            view: Mutex::default(),
            line_masked: AtomicBool::new(false),
            masked_vectors: AtomicU32::new(0),
            untold: Untold::default(),
            asks: Asks::default(),
            bell: Arc::new(Bell::new()?),
        })
    }

    /// Puts another view in force. Queues take it up when they next look.
    pub(crate) fn publish(&self, view: View) {
        let mut place = self.view.lock().unwrap_or_else(PoisonError::into_inner);
        *place = Arc::new(view);
        // Behind it: who sees the new epoch finds the new view.
        self.epoch.fetch_add(1, Ordering::Release);
    }

    /// The controller takes commands, so that mapped doorbells are looked at; or it does not any more. Whether that begins now.
    pub(crate) fn poll(&self, is_live: bool) -> bool {
        let is_polling = is_live && self.page.is_some();
        let was_polling = self.is_polling.swap(is_polling, Ordering::AcqRel);
        is_polling && !was_polling
    }

    pub(crate) fn is_polling(&self) -> bool {
        self.is_polling.load(Ordering::Acquire)
    }

    fn current(&self) -> Arc<View> {
        let place = self.view.lock().unwrap_or_else(PoisonError::into_inner);
        place.clone()
    }

    /// Completions of a queue with this vector can be looked at.
    pub(crate) fn interrupt(&self, view: &View, vector: u16) {
        match view.vectors.get(usize::from(vector)) {
            Some(Some(fd)) => peer_event::signal(fd),
            _ if view.uses_line() => self.assert_line(view, vector),
            _ => {}
        }
    }

    /// The line masks itself: it is signalled again when the client has unmasked it and there is still something.
    fn assert_line(&self, view: &View, vector: u16) {
        let bit = 1_u32.checked_shl(u32::from(vector)).unwrap_or(0);
        let is_masked = self.masked_vectors.load(Ordering::Acquire) & bit != 0;
        if let Some(fd) = &view.line
            && !is_masked
            && !self.line_masked.swap(true, Ordering::AcqRel)
        {
            peer_event::signal(fd);
        }
    }

    /// The client masks or unmasks the line. After that who has something to say says it again.
    pub(crate) fn mask_line(&self, masked: bool) {
        self.line_masked.store(masked, Ordering::Release);
    }

    /// INTMS.
    pub(crate) fn mask_vectors(&self, bits: u32) {
        self.masked_vectors.fetch_or(bits, Ordering::AcqRel);
    }

    /// INTMC.
    pub(crate) fn unmask_vectors(&self, bits: u32) {
        self.masked_vectors.fetch_and(!bits, Ordering::AcqRel);
    }

    /// What both registers read as.
    pub(crate) fn masked_vectors(&self) -> u32 {
        self.masked_vectors.load(Ordering::Acquire)
    }
}

/// A queue's sight of its function's view.
#[derive(Debug)]
pub(crate) struct Sight {
    common: Arc<Common>,
    epoch: u64,
    view: Arc<View>,
    leases: Leases,
}

impl Sight {
    pub(crate) fn of(common: &Arc<Common>) -> Self {
        Self {
            common: common.clone(),
            epoch: 0,
            view: Arc::default(),
            leases: Leases::default(),
        }
    }

    /// Takes up the view in force; what only the old one kept mapped is let go of. Where it is another one: whether a vector is told of by another descriptor.
    pub(crate) fn refresh(&mut self, vector: Option<u16>) -> Option<bool> {
        let epoch = self.common.epoch.load(Ordering::Acquire);
        if epoch == self.epoch {
            return None;
        }
        let old = std::mem::replace(&mut self.view, self.common.current());
        self.epoch = epoch;
        self.leases.clear();
        Some(vector.is_some_and(|vector| !old.tells_as(&self.view, vector)))
    }

    pub(crate) fn common(&self) -> &Common {
        &self.common
    }

    pub(crate) fn view(&self) -> &View {
        &self.view
    }

    pub(crate) fn windows(&self) -> &Windows {
        &self.view.windows
    }

    pub(crate) fn memory(&mut self) -> (&Windows, &mut Leases) {
        (&self.view.windows, &mut self.leases)
    }

    /// Appends pieces of guest memory to a buffer, for bytes that go `way`.
    #[inline(always)]
    pub(crate) fn append(
        &mut self,
        buf: &mut IoBuf,
        pieces: &[Piece],
        way: Way,
    ) -> Result<(), Fault> {
        let pieces = pieces.iter().map(|piece| (piece.address, piece.bytes));
        self.leases.append(buf, &self.view.windows, pieces, way)
    }

    /// A queue has posted so many entries since this was last asked: its host is told of them, now or later.
    pub(crate) fn posted(&self, delay: &mut Delay, vector: u16, entries: u32, waits: bool) {
        let aggregation: Option<Aggregation> = self.view.coalescing.of(vector).filter(|_| waits);
        let untold = &self.common.untold;
        if delay.is_to_signal(untold, vector, entries, aggregation, Instant::now) {
            self.common.interrupt(&self.view, vector);
        }
    }

    /// Completions of a queue with this vector can be looked at.
    pub(crate) fn interrupt(&self, vector: u16) {
        self.common.interrupt(&self.view, vector);
    }

    /// Has the function send a message.
    pub(crate) fn ask(&self, ask: Ask) {
        self.common.asks.push(ask);
        self.common.bell.ring();
    }
}

/// Rings when it is dropped: what a window is mapped with.
#[derive(Debug)]
pub(crate) struct RingsWhenUnmapped(pub(crate) Arc<Bell>);

impl Drop for RingsWhenUnmapped {
    fn drop(&mut self) {
        self.0.ring();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event() -> Arc<OwnedFd> {
        let flags = rustix::event::EventfdFlags::CLOEXEC;
        Arc::new(rustix::event::eventfd(0, flags).unwrap())
    }

    /// Whether what was posted is to be told of again, which a driver may otherwise never hear of.
    #[test]
    fn a_queue_finds_out_that_it_is_told_of_elsewhere() {
        let common = Arc::new(Common::new(None).unwrap());
        let mut sight = Sight::of(&common);
        let mut view = View::default();
        let mut publish = |view: &View, vector| {
            common.publish(view.clone());
            let seen = sight.refresh(vector);
            assert_eq!(sight.refresh(vector), None, "the same");
            seen
        };
        view.line = Some(event());
        assert_eq!(publish(&view, Some(1)), Some(true), "the line");
        view.vectors = vec![None, Some(event()), Some(event())];
        assert_eq!(publish(&view, Some(1)), Some(true), "its vector instead");
        view.vectors[2] = Some(event());
        view.line = None;
        assert_eq!(publish(&view, Some(1)), Some(false), "others");
        view.vectors[1] = Some(event());
        assert_eq!(publish(&view, None), Some(false), "nobody is told");
        view.vectors[1] = Some(event());
        assert_eq!(publish(&view, Some(1)), Some(true), "its own");
        view.vectors[1] = None;
        assert_eq!(publish(&view, Some(1)), Some(true), "none any more");
    }
}
