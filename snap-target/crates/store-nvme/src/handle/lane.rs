//! One queue of a handle: the way through one association.

use std::time::Duration;

use nvme::Time;
use nvme::initiator::AnaState;
use nvme::queue::Slot;

use crate::options::Policy;
use crate::queue::Queue;
use crate::shared::AssociationId;

#[derive(Debug)]
pub(super) struct Lane {
    pub association: AssociationId,
    pub queue: Box<dyn Queue>,
    pub ana: AnaState,
    /// It takes no more commands; its last ones end.
    pub ending: bool,
    /// Since when a read that it has is overdue, unless it answered something since.
    pub suspect_since: Option<Time>,
    /// By slot: the part that is there.
    parts: Vec<Option<u32>>,
    outstanding: usize,
}

impl Lane {
    pub fn new(association: AssociationId, queue: Box<dyn Queue>, ana: AnaState) -> Self {
        Self {
            association,
            queue,
            ana,
            ending: false,
            suspect_since: None,
            parts: Vec::new(),
            outstanding: 0,
        }
    }

    pub fn put(&mut self, slot: Slot, part: u32) {
        if self.parts.len() <= slot.index() {
            self.parts.resize(slot.index() + 1, None);
        }
        self.parts[slot.index()] = Some(part);
        self.outstanding += 1;
    }

    pub fn take(&mut self, slot: Slot) -> Option<u32> {
        let part = self.parts.get_mut(slot.index())?.take()?;
        self.outstanding -= 1;
        Some(part)
    }

    /// Whether commands may be sent this way at all.
    pub fn is_usable(&self) -> bool {
        !self.ending && self.ana.is_usable()
    }

    /// Whether it has kept silent for so long.
    pub fn is_silent(&self, now: Time, for_: Duration) -> bool {
        self.suspect_since
            .is_some_and(|since| now.since(since) >= for_)
    }

    /// How good the way is: less is better.
    fn rank(&self, avoid: Option<AssociationId>) -> (bool, bool, AnaState) {
        (
            avoid == Some(self.association),
            self.suspect_since.is_some(),
            self.ana,
        )
    }
}

/// The best way for a command, none where the best have no room. `turn` counts the choices.
pub(super) fn choose(
    lanes: &[Lane],
    avoid: Option<AssociationId>,
    policy: Policy,
    turn: &mut usize,
) -> Option<usize> {
    let usable = || lanes.iter().enumerate().filter(|(_, it)| it.is_usable());
    let best = usable().map(|(_, lane)| lane.rank(avoid)).min()?;
    let open = |(index, lane): (usize, &Lane)| {
        (lane.rank(avoid) == best && lane.queue.room() > 0).then_some(index)
    };
    let mut candidates = usable().filter_map(open);
    match policy {
        Policy::RoundRobin => {
            let count = candidates.clone().count();
            *turn = turn.wrapping_add(1);
            candidates.nth(turn.checked_rem(count)?)
        }
        Policy::QueueDepth => candidates.min_by_key(|index| lanes[*index].outstanding),
    }
}
