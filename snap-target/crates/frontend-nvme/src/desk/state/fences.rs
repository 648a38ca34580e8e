//! Fences that a Preempt and Abort puts up. The host that preempted may find out that the reservation is its before it is answered, and write; a write of a
//! preempted host that another reactor has begun must not land behind that. So writes wait until every reactor has carried the order out: each has given
//! up what its stores do not have by then, and fenced what they have. A reactor that takes long for it keeps them waiting, whoever is answered meanwhile.

use std::collections::HashMap;

use namespace::{Engine, HeldFence};

use crate::message::PreemptId;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Fences {
    /// Reactors that have not carried the order out, and what is up until then.
    up: HashMap<PreemptId, (usize, HeldFence)>,
    to_be_lowered: Vec<HeldFence>,
}

impl Fences {
    /// An order goes to so many reactors.
    pub(super) fn begin(&mut self, id: PreemptId, reactors: usize, fence: HeldFence) {
        self.up.insert(id, (reactors, fence));
    }

    /// One more has carried it out.
    pub(super) fn carried(&mut self, id: PreemptId) {
        let Some((left, fence)) = self.up.remove(&id) else {
            return;
        };
        match left {
            0 | 1 => self.to_be_lowered.push(fence),
            left => self.begin(id, left - 1, fence),
        }
    }

    pub(super) fn are_to_be_lowered(&self) -> bool {
        !self.to_be_lowered.is_empty()
    }

    pub(super) fn lower(&mut self, engine: &mut Engine) {
        for fence in self.to_be_lowered.drain(..) {
            engine.let_write(fence);
        }
    }
}
