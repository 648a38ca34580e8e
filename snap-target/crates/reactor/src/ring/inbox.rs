//! Owners and their inboxes: one bounded table of events, linked into a list for each owner.

use std::collections::VecDeque;

use super::{Event, OwnerId};
use crate::config::RingConfig;

const NIL: u32 = u32::MAX;

#[derive(Debug)]
struct Node {
    event: Option<Event>,
    next: u32,
}

#[derive(Debug)]
struct OwnerSlot {
    generation: u32,
    state: State,
    head: u32,
    tail: u32,
    in_flight: u32,
    /// It leaves the reserved operations to the others.
    yields: bool,
    /// Whether it stands in the ready list.
    queued: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Open,
    /// Being dropped: its events are discarded.
    Closing,
}

#[derive(Debug)]
pub(super) struct Inboxes {
    owners: Vec<OwnerSlot>,
    free_owners: Vec<u32>,
    nodes: Vec<Node>,
    free_nodes: Vec<u32>,
    ready: VecDeque<OwnerId>,
    unlimited: bool,
    /// Operations of owners that yield, and how many these may have.
    yielding: u32,
    yielding_max: u32,
}

impl Inboxes {
    pub(super) fn new(config: &RingConfig) -> Self {
        let events_max = config.events_max;
        // Owner 0 is the ring itself.
        let slots = config.owners_max + 1;
        let mut owners: Vec<OwnerSlot> = (0..slots)
            .map(|_| OwnerSlot {
                generation: 0,
                state: State::Free,
                head: NIL,
                tail: NIL,
                in_flight: 0,
                yields: false,
                queued: false,
            })
            .collect();
        if let Some(ring) = owners.first_mut() {
            ring.state = State::Open;
        }
        Self {
            owners,
            free_owners: (1..slots).rev().collect(),
            nodes: (0..events_max)
                .map(|_| Node {
                    event: None,
                    next: NIL,
                })
                .collect(),
            free_nodes: (0..events_max).rev().collect(),
            ready: VecDeque::with_capacity(slots as usize),
            unlimited: false,
            yielding: 0,
            yielding_max: config.ops_max.saturating_sub(config.ops_reserved),
        }
    }

    pub(super) fn open(&mut self, yields: bool) -> Option<OwnerId> {
        let index = self.free_owners.pop()?;
        let slot = self.owners.get_mut(index as usize)?;
        slot.state = State::Open;
        slot.yields = yields;
        Some(OwnerId {
            index,
            generation: slot.generation,
        })
    }

    pub(super) fn owners_max(&self) -> u32 {
        u32::try_from(self.owners.len()).unwrap_or(u32::MAX) - 1
    }

    fn slot(&mut self, owner: OwnerId) -> Option<&mut OwnerSlot> {
        self.owners
            .get_mut(owner.index as usize)
            .filter(|slot| slot.generation == owner.generation && slot.state != State::Free)
    }

    pub(super) fn op_started(&mut self, owner: OwnerId) {
        if let Some(slot) = self.slot(owner) {
            slot.in_flight += 1;
            self.yielding += u32::from(slot.yields);
        }
    }

    pub(super) fn op_ended(&mut self, owner: OwnerId) {
        if let Some(slot) = self.slot(owner) {
            slot.in_flight -= 1;
            self.yielding -= u32::from(slot.yields);
        }
    }

    /// Whether an owner is to leave what is left to others.
    pub(super) fn has_to_yield(&mut self, owner: OwnerId) -> bool {
        let is_spent = self.yielding >= self.yielding_max;
        is_spent && self.slot(owner).is_some_and(|slot| slot.yields)
    }

    pub(super) fn in_flight(&self, owner: OwnerId) -> u32 {
        self.owners
            .get(owner.index as usize)
            .filter(|slot| slot.generation == owner.generation)
            .map_or(0, |slot| slot.in_flight)
    }

    /// Events that still fit.
    pub(super) fn room(&self) -> usize {
        if self.unlimited {
            usize::MAX
        } else {
            self.free_nodes.len()
        }
    }

    pub(super) fn has_room(&self) -> bool {
        self.room() > 0
    }

    /// Events in all inboxes.
    pub(super) fn waiting(&self) -> usize {
        self.nodes.len() - self.free_nodes.len()
    }

    pub(super) fn lift_limit(&mut self, lifted: bool) {
        self.unlimited = lifted;
    }

    /// Appends an event to its owner's inbox; false (and the event dropped) if the owner is gone or going.
    pub(super) fn deliver(&mut self, owner: OwnerId, event: Event) -> bool {
        if self
            .slot(owner)
            .is_none_or(|slot| slot.state != State::Open)
        {
            return false;
        }
        let node = match self.free_nodes.pop() {
            Some(node) => node,
            None => {
                self.nodes.push(Node {
                    event: None,
                    next: NIL,
                });
                u32::try_from(self.nodes.len() - 1).unwrap_or(NIL)
            }
        };
        if let Some(entry) = self.nodes.get_mut(node as usize) {
            *entry = Node {
                event: Some(event),
                next: NIL,
            };
        }
        let Some(slot) = self.slot(owner) else {
            return false;
        };
        let (tail, queued) = (slot.tail, slot.queued);
        slot.tail = node;
        slot.queued = true;
        if tail == NIL {
            slot.head = node;
        } else if let Some(last) = self.nodes.get_mut(tail as usize) {
            last.next = node;
        }
        if !queued {
            self.ready.push_back(owner);
        }
        true
    }

    /// Takes the oldest event of an inbox.
    pub(super) fn take(&mut self, owner: OwnerId) -> Option<Event> {
        let head = self.slot(owner)?.head;
        let node = self.nodes.get_mut(head as usize)?;
        let (event, next) = (node.event.take(), node.next);
        node.next = NIL;
        self.free_nodes.push(head);
        let slot = self.slot(owner)?;
        slot.head = next;
        if next == NIL {
            slot.tail = NIL;
        }
        event
    }

    /// The next owner whose inbox got events since it was last named here.
    pub(super) fn next_ready(&mut self) -> Option<OwnerId> {
        while let Some(owner) = self.ready.pop_front() {
            if let Some(slot) = self.slot(owner) {
                slot.queued = false;
                if slot.head != NIL {
                    return Some(owner);
                }
            }
        }
        None
    }

    /// Starts the end of an owner: its events, present and coming, are dropped.
    pub(super) fn close(&mut self, owner: OwnerId) {
        if let Some(slot) = self.slot(owner) {
            slot.state = State::Closing;
        }
        while self.take(owner).is_some() {}
    }

    /// Frees an owner that has nothing in flight.
    pub(super) fn release(&mut self, owner: OwnerId) {
        if let Some(slot) = self.slot(owner) {
            slot.state = State::Free;
            slot.queued = false;
            slot.generation = slot.generation.wrapping_add(1);
            self.free_owners.push(owner.index);
        }
    }
}
