//! Keeps a read-modify-write of a block from undoing a write to another part of it.
//!
//! Aligned writes pass together; an unaligned write passes alone. Nobody blocks: who may not pass is parked by its handle and woken when
//! the way is free. A waiting unaligned write stops newcomers, so that it gets its turn.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use reactor::Waker;

use super::FileState;

/// Low half: shared holders. Then: exclusive ones waiting. Top bit: held exclusively.
const SHARED_ONE: u64 = 1;
const SHARED_MASK: u64 = (1 << 32) - 1;
const WAITING_ONE: u64 = 1 << 32;
const WAITING_MASK: u64 = ((1 << 31) - 1) << 32;
const EXCLUSIVE: u64 = 1 << 63;

/// How a write passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pass {
    /// With other aligned writes.
    Shared,
    /// Alone.
    Exclusive,
}

#[derive(Debug)]
pub(super) struct Gate {
    state: AtomicU64,
    /// Rings to wake when the way may be free, each once. Locked only by who had to wait, or leaves while somebody waits.
    parked: Mutex<Vec<Waker>>,
    parked_count: AtomicU64,
}

impl Gate {
    pub(super) fn new() -> Self {
        Self {
            state: AtomicU64::new(0),
            parked: Mutex::new(Vec::new()),
            parked_count: AtomicU64::new(0),
        }
    }

    /// Passes if the way is free. `announced`: this exclusive one has announced itself with [`Gate::announce`].
    pub(super) fn try_enter(&self, pass: Pass, announced: bool) -> bool {
        self.state
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| match pass {
                Pass::Shared if state & (EXCLUSIVE | WAITING_MASK) == 0 => Some(state + SHARED_ONE),
                Pass::Exclusive if state & (EXCLUSIVE | SHARED_MASK) == 0 => Some(
                    (if announced {
                        state - WAITING_ONE
                    } else {
                        state
                    }) | EXCLUSIVE,
                ),
                _ => None,
            })
            .is_ok()
    }

    /// An exclusive one that could not pass: newcomers wait until it did.
    pub(super) fn announce(&self) {
        self.state.fetch_add(WAITING_ONE, Ordering::AcqRel);
    }

    /// Takes an announcement back.
    pub(super) fn withdraw(&self) {
        self.state.fetch_sub(WAITING_ONE, Ordering::AcqRel);
        self.wake_parked();
    }

    pub(super) fn leave(&self, pass: Pass) {
        match pass {
            Pass::Shared => self.state.fetch_sub(SHARED_ONE, Ordering::AcqRel),
            Pass::Exclusive => self.state.fetch_and(!EXCLUSIVE, Ordering::AcqRel),
        };
        self.wake_parked();
    }

    /// Asks to be woken at the next leave. The caller tries once more afterwards: the way may have become free in between.
    pub(super) fn park(&self, waker: Waker) {
        if let Ok(mut parked) = self.parked.lock() {
            if !parked.iter().any(|other| other.wakes_same_ring(&waker)) {
                parked.push(waker);
            }
            self.parked_count
                .store(parked.len() as u64, Ordering::SeqCst);
        }
    }

    fn wake_parked(&self) {
        // Pairs with park: either this sees the parked one, or the parked one's second try sees the way free.
        std::sync::atomic::fence(Ordering::SeqCst);
        if self.parked_count.load(Ordering::SeqCst) == 0 {
            return;
        }
        if let Ok(mut parked) = self.parked.lock() {
            for waker in parked.drain(..) {
                waker.wake();
            }
            self.parked_count.store(0, Ordering::SeqCst);
        }
    }
}

/// A flight's claim on the gate: none, waiting, or held. Gives up what it has when dropped.
#[derive(Debug)]
pub(super) struct Permit {
    claim: Option<Claim>,
}

#[derive(Debug)]
struct Claim {
    state: Arc<FileState>,
    pass: Pass,
    held: bool,
    announced: bool,
}

impl Permit {
    /// For operations that change nothing, and files without blocks to share.
    pub(super) fn not_needed() -> Self {
        Self { claim: None }
    }

    pub(super) fn new(state: Arc<FileState>, pass: Pass) -> Self {
        Self {
            claim: Some(Claim {
                state,
                pass,
                held: false,
                announced: false,
            }),
        }
    }

    /// Whether the operation may go on; if not, `waker` is called when it is worth trying again.
    pub(super) fn try_enter(&mut self, waker: impl FnOnce() -> Waker) -> bool {
        let Some(claim) = &mut self.claim else {
            return true;
        };
        if claim.held || claim.enter() {
            return true;
        }
        if claim.pass == Pass::Exclusive && !claim.announced {
            claim.state.gate.announce();
            claim.announced = true;
        }
        claim.state.gate.park(waker());
        claim.enter()
    }
}

impl Claim {
    fn enter(&mut self) -> bool {
        self.held = self.state.gate.try_enter(self.pass, self.announced);
        self.announced &= !self.held;
        self.held
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.held {
            self.state.gate.leave(self.pass);
        }
        if self.announced {
            self.state.gate.withdraw();
        }
    }
}
