//! The handles whose queue did not come up on an association: when each is tried again, and when it is the association that is at fault.

use std::collections::{BTreeMap, BTreeSet};

use nvme::Time;

use super::bringing::Failure;
use crate::message::HandleId;
use crate::options::RemoteOptions;

/// Times that a controller may answer that a queue of ours is connected, which it is not here: it has missed the end of one, and does not learn of it as long as the
/// association stands. Then the association is given up, once: a controller that answers so in the next one too is left as it is.
const TAKEN_MAX: u32 = 4;

#[derive(Debug, Default)]
pub(super) struct Refusals {
    refused: BTreeMap<HandleId, Refused>,
    /// Those for whose queue the association before was given up.
    given_up_for: BTreeSet<HandleId>,
}

/// A queue that did not come up.
#[derive(Debug)]
struct Refused {
    why: String,
    again_at: Time,
    tries: u32,
    /// Times that the controller said it is connected.
    taken: u32,
}

impl Refusals {
    /// A handle goes without a queue for a while, each time for longer. True, once, where the association is to be given up for it.
    pub fn add(
        &mut self,
        handle: HandleId,
        failure: Failure,
        now: Time,
        options: &RemoteOptions,
    ) -> bool {
        let before = self.refused.get(&handle);
        let (tries, taken) = before.map_or((0, 0), |before| (before.tries, before.taken));
        let wait = options
            .reconnect_delay_min
            .saturating_mul(1 << tries.min(16));
        let taken = taken + u32::from(failure.is_taken);
        let refused = Refused {
            why: failure.why,
            again_at: now + wait.min(options.reconnect_delay_max),
            tries: tries + 1,
            taken,
        };
        self.refused.insert(handle, refused);
        taken >= TAKEN_MAX && self.given_up_for.insert(handle)
    }

    /// A handle has its queue, or is gone.
    pub fn forget(&mut self, handle: HandleId) {
        self.refused.remove(&handle);
        self.given_up_for.remove(&handle);
    }

    /// The next association is asked anew.
    pub fn association_lost(&mut self) {
        self.refused.clear();
    }

    pub fn has(&self, handle: HandleId) -> bool {
        self.refused.contains_key(&handle)
    }

    /// Whether it is too early to try again for a handle.
    pub fn is_early(&self, handle: HandleId, now: Time) -> bool {
        let refused = self.refused.get(&handle);
        refused.is_some_and(|refused| now < refused.again_at)
    }

    /// When the next one is tried again.
    pub fn again_at(&self) -> Option<Time> {
        self.refused.values().map(|refused| refused.again_at).min()
    }

    /// Why one of them has none.
    pub fn why(&self) -> Option<&str> {
        Some(&self.refused.values().next()?.why)
    }
}
