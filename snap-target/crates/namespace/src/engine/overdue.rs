//! Requests whose time is over. What a store has ends by the store's own clock; what waits here ends by this one.

use std::time::{Duration, Instant};

use reactor::{Owner, ReactorError, Ring};

use super::Engine;
use super::request::Work;
use crate::NamespaceError;

/// While requests are in flight the clock is looked at so often.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// Wakes the ring for a look at the clock.
pub(super) struct Look {
    owner: Owner,
    has_timer: bool,
}

impl Look {
    pub(super) fn new(ring: &Ring) -> Result<Self, ReactorError> {
        Ok(Self {
            owner: ring.register()?,
            has_timer: false,
        })
    }
}

impl Engine {
    /// Ends what waits here for memory, for room in a store's queue or for others, and whose time is over by `now`; [`Engine::poll`] does so with the time
    /// of day.
    pub fn end_overdue(&mut self, now: Instant) {
        for slot in 0..self.requests.len() {
            let request = &self.requests[slot];
            if request.is_taken() && request.deadline.is_some_and(|at| at <= now) {
                self.end_waiting(slot);
            }
        }
        self.frames.end_overdue(&self.attached, now);
        self.parts.fills.end_overdue(now);
    }

    fn end_waiting(&mut self, slot: usize) {
        let request = &mut self.requests[slot];
        let attached = &mut self.attached[request.attached];
        let nsid = attached.shared.nsid;
        let waited = attached.parked.remove(slot);
        let error = NamespaceError::NotInTime { nsid };
        match &mut request.work {
            Work::Raw(_) => self.finish(slot, Err(error)),
            Work::View(read) if waited => {
                read.fail(error);
                self.advance(slot);
            }
            Work::Compound(compound) => {
                compound.is_overdue = true;
                let excluding = self.excluding.len();
                self.excluding.retain(|waiting| *waiting != slot);
                if waited || self.excluding.len() < excluding {
                    self.ready.push(slot);
                }
            }
            Work::View(_) | Work::Submitted | Work::Free => {}
        }
    }

    /// Looks at the clock, where it is time to.
    pub(super) fn look_at_the_clock(&mut self) {
        while self.look.owner.next_event().is_some() {
            self.look.has_timer = false;
            self.end_overdue(Instant::now());
        }
    }

    /// The next look, while there is anything to look at: requests of this engine, or frames that those of others wait for.
    pub(super) fn look_again(&mut self) {
        let is_to_look = self.is_busy() || self.frames.are_coming();
        if is_to_look && !self.look.has_timer {
            let at = Instant::now() + LOOK_INTERVAL;
            // Without one they are looked at when there is a timer again.
            self.look.has_timer = self.look.owner.timer(at, 0).is_ok();
        }
    }
}
