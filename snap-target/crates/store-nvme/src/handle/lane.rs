//! One queue of a handle: the way through one association.

use std::collections::VecDeque;

use nvme::Time;
use nvme::initiator::AnaState;
use nvme::queue::Slot;

use crate::options::Policy;
use crate::queue::Queue;
use crate::shared::{AssociationId, Unanswered};

#[derive(Debug)]
pub(super) struct Lane {
    pub association: AssociationId,
    pub queue: Box<dyn Queue>,
    pub ana: AnaState,
    /// It takes no more commands; its last ones end.
    pub ending: bool,
    /// Its queue is not closed.
    pub is_open: bool,
    /// A read that it has is overdue, and it has answered nothing since.
    pub is_suspect: bool,
    /// When it answered last; none so far.
    pub answered_at: Option<Time>,
    /// It has waited too long for an answer.
    pub unanswered: Option<Unanswered>,
    /// When the reads were sent that were given up and that still take room, the oldest first.
    given_up: VecDeque<Time>,
    /// By slot: the part that is there.
    parts: Vec<Option<u32>>,
    outstanding: usize,
    /// Commands that it takes: the room of its queue while that is idle.
    depth: usize,
}

impl Lane {
    /// Of an idle queue.
    pub fn new(association: AssociationId, queue: Box<dyn Queue>, ana: AnaState) -> Self {
        Self {
            depth: queue.room(),
            association,
            queue,
            ana,
            ending: false,
            is_open: true,
            is_suspect: false,
            answered_at: None,
            unanswered: None,
            given_up: VecDeque::new(),
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

    /// Whether it takes a command now. A quarter of it is left to those that somebody waits for.
    pub fn has_room(&self, is_ahead: bool) -> bool {
        let reserved = if is_ahead { self.depth / 4 } else { 0 };
        self.queue.room() > reserved
    }

    /// A read that was sent then was given up: its slot is the queue's until the controller answers.
    pub fn gave_up(&mut self, sent_at: Time) {
        self.given_up.push_back(sent_at);
    }

    /// Since when a read that was given up is not answered, as far as its room tells: of several, the oldest counts as answered first.
    pub fn unanswered_since(&mut self) -> Option<Time> {
        let free = self.queue.room() + self.outstanding;
        while self.given_up.len() + free > self.depth {
            self.given_up.pop_front()?;
        }
        self.given_up.front().copied()
    }

    /// Whether it owes anything that time will tell.
    pub fn is_watched(&self) -> bool {
        self.ending || self.is_suspect || self.unanswered.is_some() || !self.given_up.is_empty()
    }

    /// How good the way is: less is better.
    fn rank(&self, avoid: Option<AssociationId>) -> (bool, bool, AnaState) {
        (avoid == Some(self.association), self.is_suspect, self.ana)
    }
}

/// The best way for a command, none where the best have no room. `turn` counts the choices.
pub(super) fn choose(
    lanes: &[Lane],
    avoid: Option<AssociationId>,
    is_ahead: bool,
    policy: Policy,
    turn: &mut usize,
) -> Option<usize> {
    let usable = || lanes.iter().enumerate().filter(|(_, it)| it.is_usable());
    let best = usable().map(|(_, lane)| lane.rank(avoid)).min()?;
    let open = |(index, lane): (usize, &Lane)| {
        (lane.rank(avoid) == best && lane.has_room(is_ahead)).then_some(index)
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
