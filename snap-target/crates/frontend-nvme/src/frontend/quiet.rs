//! Turns of a reactor that polls: what is polled is looked at in each, and all else where something tells of it, or every so many turns.

use reactor::{Ring, Wait};

use super::Frontend;
use crate::desk::Desk;
use crate::limits::QUIET_TURNS_MAX;

/// How many turns may still pass before all is looked at.
#[derive(Debug, Default)]
pub(super) struct Quiet {
    left: u32,
    /// The last turn was a quiet one.
    is_on: bool,
}

impl Quiet {
    /// Whether the next turn is a quiet one: it does not wait, and nothing has come for anybody.
    pub(super) fn begin(&mut self, wait: Wait, ring: &Ring) -> bool {
        let is_quiet = wait == Wait::Poll && self.left > 0 && !ring.has_news();
        self.left = match is_quiet {
            true => self.left - 1,
            false => QUIET_TURNS_MAX,
        };
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
