//! Keeps a read-modify-write of a block from undoing a write to another part of it: for stores whose medium takes whole blocks.
//!
//! Aligned writes pass together; an unaligned write passes alone. Nobody blocks: who may not pass is parked by its handle and woken when
//! the way is free. A waiting unaligned write stops newcomers, so that it gets its turn; when it leaves, the aligned ones that waited have theirs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use reactor::Waker;

/// From below: shared holders, exclusive ones waiting, shared ones waiting. Then: those shared ones have their turn. Top bit: held exclusively.
const HOLDER: u64 = 1;
const COUNT: u64 = (1 << 20) - 1;
const EXCLUSIVE_WAITING: u64 = 1 << 20;
const SHARED_WAITING: u64 = 1 << 40;
const SHARED_TURN: u64 = 1 << 62;
const EXCLUSIVE: u64 = 1 << 63;

fn count(state: u64, of: u64) -> u64 {
    (state / of) & COUNT
}

/// How a write passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// With other aligned writes.
    Shared,
    /// Alone.
    Exclusive,
}

/// One for each medium, shared by all handles of it.
#[derive(Debug, Default)]
pub struct Gate {
    state: AtomicU64,
    /// Rings to wake when the way may be free, each once. Locked only by who had to wait, or leaves while somebody waits.
    parked: Mutex<Vec<Waker>>,
    parked_count: AtomicU64,
}

impl Gate {
    fn update(&self, to: impl Fn(u64) -> Option<u64>) -> bool {
        self.state
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, to)
            .is_ok()
    }

    /// Passes if the way is free. `announced`: this one has announced itself with [`Gate::announce`].
    fn try_enter(&self, pass: Pass, announced: bool) -> bool {
        self.update(|state| match pass {
            _ if state & EXCLUSIVE != 0 => None,
            Pass::Shared if announced && state & SHARED_TURN != 0 => {
                Some(without_waiting(state, pass) + HOLDER)
            }
            Pass::Shared if count(state, EXCLUSIVE_WAITING) > 0 => None,
            Pass::Exclusive if count(state, HOLDER) > 0 || state & SHARED_TURN != 0 => None,
            _ => {
                let state = if announced {
                    without_waiting(state, pass)
                } else {
                    state
                };
                Some(match pass {
                    Pass::Shared => state + HOLDER,
                    Pass::Exclusive => state | EXCLUSIVE,
                })
            }
        })
    }

    /// One that could not pass is to have its turn; false where it comes in the midst of a turn: those who wait before it come first.
    fn announce(&self, pass: Pass) -> bool {
        self.update(|state| match pass {
            Pass::Shared if state & SHARED_TURN != 0 => None,
            Pass::Shared => Some(state + SHARED_WAITING),
            Pass::Exclusive => Some(state + EXCLUSIVE_WAITING),
        })
    }

    /// Takes an announcement back.
    fn withdraw(&self, pass: Pass) {
        self.update(|state| Some(without_waiting(state, pass)));
        self.wake_parked();
    }

    fn leave(&self, pass: Pass) {
        self.update(|state| {
            Some(match pass {
                Pass::Shared => state - HOLDER,
                Pass::Exclusive if count(state, SHARED_WAITING) > 0 => {
                    state & !EXCLUSIVE | SHARED_TURN
                }
                Pass::Exclusive => state & !EXCLUSIVE,
            })
        });
        self.wake_parked();
    }

    /// Asks to be woken at the next leave. The caller tries once more afterwards: the way may have become free in between.
    fn park(&self, waker: Waker) {
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

/// One waits less. The turn of shared ones ends with the last that waited for it.
fn without_waiting(state: u64, pass: Pass) -> u64 {
    match pass {
        Pass::Exclusive => state - EXCLUSIVE_WAITING,
        Pass::Shared if count(state, SHARED_WAITING) == 1 => {
            (state - SHARED_WAITING) & !SHARED_TURN
        }
        Pass::Shared => state - SHARED_WAITING,
    }
}

/// A flight's claim on the gate: none, waiting, or held. Gives up what it has when dropped.
#[derive(Debug)]
pub struct Permit {
    claim: Option<Claim>,
}

#[derive(Debug)]
struct Claim {
    gate: Arc<Gate>,
    pass: Pass,
    held: bool,
    announced: bool,
}

impl Permit {
    /// For operations that change nothing.
    #[must_use]
    pub fn not_needed() -> Self {
        Self { claim: None }
    }

    /// One that waits to pass.
    #[must_use]
    pub fn new(gate: Arc<Gate>, pass: Pass) -> Self {
        Self {
            claim: Some(Claim {
                gate,
                pass,
                held: false,
                announced: false,
            }),
        }
    }

    /// Whether there is a gate to pass.
    #[must_use]
    pub fn is_needed(&self) -> bool {
        self.claim.is_some()
    }

    /// Whether the operation may go on; if not, `waker` is called when it is worth trying again.
    pub fn try_enter(&mut self, waker: impl FnOnce() -> Waker) -> bool {
        let Some(claim) = &mut self.claim else {
            return true;
        };
        if claim.held || claim.enter() {
            return true;
        }
        if !claim.announced {
            claim.announced = claim.gate.announce(claim.pass);
        }
        claim.gate.park(waker());
        claim.enter()
    }
}

impl Permit {
    /// Goes back out, to enter again later.
    pub fn give_back(&mut self) {
        if let Some(claim) = self.claim.take() {
            *self = Self::new(claim.gate.clone(), claim.pass);
        }
    }
}

impl Claim {
    fn enter(&mut self) -> bool {
        self.held = self.gate.try_enter(self.pass, self.announced);
        self.announced &= !self.held;
        self.held
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.held {
            self.gate.leave(self.pass);
        }
        if self.announced {
            self.gate.withdraw(self.pass);
        }
    }
}
