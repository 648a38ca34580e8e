//! Turns of a reactor that polls: what is polled is looked at in each, and all else where something tells of it, or every so many turns.

use reactor::{Ring, Wait};

use super::Frontend;
use crate::desk::Desk;
use crate::limits::{QUIET_NS_MAX, QUIET_TURNS_MAX};

/// How many turns may still pass before all is looked at.
#[derive(Debug, Default)]
pub(super) struct Quiet {
    left: u32,
    /// When all was last looked at.
    looked_ns: u64,
    /// The last turn was a quiet one.
    is_on: bool,
}

impl Quiet {
    /// Whether the turn that begins is a quiet one: it does not wait, nothing has come for anybody, and all was looked at not long ago. `now_ns` is the time that the last
    /// turn with something to do has read.
    pub(super) fn begin(&mut self, wait: Wait, ring: &Ring, now_ns: u64) -> bool {
        let is_recent = now_ns.saturating_sub(self.looked_ns) < QUIET_NS_MAX;
        let is_quiet = wait == Wait::Poll && self.left > 0 && is_recent && !ring.has_news();
        if is_quiet {
            self.left -= 1;
        } else {
            self.left = QUIET_TURNS_MAX;
            self.looked_ns = now_ns;
        }
        self.is_on = is_quiet;
        is_quiet
    }

    /// Whether all is to be looked at before the ring may sleep.
    pub(super) fn owes_turn(&self) -> bool {
        self.is_on
    }

    /// Somebody was told something: the next turn looks at all.
    pub(super) fn end(&mut self) {
        self.left = 0;
    }
}

impl Frontend {
    /// The queues that are polled, those of lodgers among them, and what they have led to. The desk, timers and messages have their turn later.
    pub(super) fn quiet_turn(&mut self) {
        if let Some(lodger) = &mut self.lodger {
            // What it does has a time, too.
            self.time.read();
            lodger.turn(&mut self.engine);
        }
        self.serve_postponed();
        loop {
            if self.desk.as_ref().is_some_and(Desk::has_work) {
                return self.act();
            }
            if self.engine.is_busy() || self.engine.has_work() {
                self.take_answers();
            }
            self.feed_starved();
            self.settle();
            if let Some(lodger) = &mut self.lodger {
                self.lodger_is_behind = lodger.settle(&mut self.engine);
            }
            if self.touched.is_empty() {
                return;
            }
        }
    }
}
