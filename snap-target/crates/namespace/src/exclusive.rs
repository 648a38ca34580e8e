//! Read-compare-write as one: an exclusive operation keeps all writes of a namespace out, on every reactor, while it is under way.
//!
//! The handshake is Dekker's: a writer announces itself in its reactor's counter, then looks at the gate; the exclusive operation closes the gate,
//! then looks at the counters. Both in sequentially consistent order, so at least one sees the other. Nobody spins: a write that finds the gate
//! closed, and an exclusive operation that finds a write under way, are parked, and whoever leaves wakes them. A plain write pays two additions to
//! a counter that no other reactor touches; all writes of a turn that a store carries out at once pay them together (`engine::now`).
//!
//! Nobody is passed by for ever: exclusive operations have their turns in the order in which they came, and before the next one all writes pass that
//! the last one has kept out.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::limits::GATE_COUNTERS;

/// The gate of one namespace; every reactor goes through it.
#[derive(Clone, Debug, Default)]
pub struct WriteGate {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    is_closed: AtomicBool,
    /// Writes under way, by reactor. Reactors beyond their number share some, which costs them time alone.
    writes: [Counter; GATE_COUNTERS],
    /// Writes that were kept out and have not come in since.
    kept_out: AtomicU32,
    /// Of exclusive operations alone, which are rare.
    line: Mutex<Line>,
}

/// Exclusive operations that wait for their turn.
#[derive(Debug, Default)]
struct Line {
    waiting: VecDeque<Ticket>,
    last: u64,
    /// It is the turn of the writes that were kept out.
    is_for_writes: bool,
}

/// A place in the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(u64);

/// A counter in cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Counter(AtomicU32);

impl WriteGate {
    fn counter(&self, reactor: u16) -> &AtomicU32 {
        &self.shared.writes[usize::from(reactor) % GATE_COUNTERS].0
    }

    /// A write begins; false where an exclusive operation keeps it out. Then the others have to be woken: one of them may have seen it.
    pub(crate) fn enter(&self, reactor: u16) -> bool {
        self.counter(reactor).fetch_add(1, Ordering::SeqCst);
        if !self.shared.is_closed.load(Ordering::SeqCst) {
            return true;
        }
        self.counter(reactor).fetch_sub(1, Ordering::SeqCst);
        false
    }

    /// A write has ended; true where an exclusive operation waits for that, and its reactor has to be woken.
    pub(crate) fn leave(&self, reactor: u16) -> bool {
        self.counter(reactor).fetch_sub(1, Ordering::SeqCst);
        self.shared.is_closed.load(Ordering::SeqCst)
    }

    /// A write that was turned away waits for the gate: it is let in before the next exclusive operation.
    pub(crate) fn keep_out(&self) {
        self.shared.kept_out.fetch_add(1, Ordering::SeqCst);
    }

    /// It came in, or gave up; true where exclusive operations may have waited for it.
    pub(crate) fn end_wait(&self) -> bool {
        self.shared.kept_out.fetch_sub(1, Ordering::SeqCst) == 1
    }

    /// A place at the end of the line of exclusive operations.
    pub(crate) fn queue(&self) -> Ticket {
        let mut line = self.line();
        line.last += 1;
        let ticket = Ticket(line.last);
        line.waiting.push_back(ticket);
        ticket
    }

    /// Leaves the line. Whoever is next has to be woken.
    pub(crate) fn withdraw(&self, ticket: Ticket) {
        self.line().waiting.retain(|other| *other != ticket);
    }

    /// Closes the gate, where it is this one's turn.
    pub(crate) fn close(&self, ticket: Ticket) -> bool {
        let mut line = self.line();
        line.is_for_writes &= self.shared.kept_out.load(Ordering::SeqCst) > 0;
        if self.is_closed() || line.is_for_writes || line.waiting.front() != Some(&ticket) {
            return false;
        }
        line.waiting.pop_front();
        self.shared.is_closed.store(true, Ordering::SeqCst);
        true
    }

    /// Whether no write is under way. Of use to whoever has closed the gate.
    pub(crate) fn is_quiet(&self) -> bool {
        let quiet = |counter: &Counter| counter.0.load(Ordering::SeqCst) == 0;
        self.shared.writes.iter().all(quiet)
    }

    /// Opens the gate again; everybody who waits for that has to be woken.
    pub(crate) fn open(&self) {
        let mut line = self.line();
        line.is_for_writes = self.shared.kept_out.load(Ordering::SeqCst) > 0;
        self.shared.is_closed.store(false, Ordering::SeqCst);
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        let line = self.shared.line.lock();
        line.unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether an exclusive operation keeps writes out.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.shared.is_closed.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    /// Writers on four threads and two that exclude them: no write is ever under way beside an exclusive operation.
    #[test]
    fn a_writer_and_an_exclusive_operation_are_never_inside_together() {
        let gate = WriteGate::default();
        let (inside, seen) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for reactor in 0..4 {
                let (gate, inside) = (&gate, &inside);
                scope.spawn(move || {
                    for _ in 0..20_000 {
                        if gate.enter(reactor) {
                            inside.fetch_add(1, Ordering::SeqCst);
                            inside.fetch_sub(1, Ordering::SeqCst);
                            gate.leave(reactor);
                        }
                    }
                });
            }
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let ticket = gate.queue();
                        while !gate.close(ticket) {
                            std::thread::yield_now();
                        }
                        while !gate.is_quiet() {
                            std::thread::yield_now();
                        }
                        seen.fetch_max(inside.load(Ordering::SeqCst), Ordering::SeqCst);
                        gate.open();
                    }
                });
            }
        });
        assert_eq!(seen.into_inner(), 0);
        assert!(gate.is_quiet() && !gate.is_closed());
    }

    #[test]
    fn turns_come_in_their_order_with_what_was_kept_out_between() {
        let gate = WriteGate::default();
        let [first, gone, second] = [gate.queue(), gate.queue(), gate.queue()];
        assert!(!gate.close(second) && gate.close(first));
        assert!(!gate.enter(0));
        gate.keep_out();
        gate.withdraw(gone);
        gate.open();
        assert!(!gate.close(second), "the write comes first");
        assert!(gate.enter(0) && gate.end_wait());
        assert!(gate.close(second) && !gate.is_quiet());
        assert!(gate.leave(0) && gate.is_quiet());
        gate.open();
        let third = gate.queue();
        assert!(gate.close(third), "nobody was kept out");
    }
}
