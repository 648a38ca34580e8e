//! Which reactor has which I/O queue: for life, the one that had the fewest when it came. A host's queues, and those of many hosts with one each, spread over
//! all of them.

use std::collections::HashMap;

use nvme::controller::ControllerId;
use nvme::queue::QueueId;

/// See the module.
#[derive(Debug)]
pub(super) struct Placing {
    /// Queues that each reactor has, or is to have.
    held: Vec<usize>,
    of: HashMap<(ControllerId, QueueId), usize>,
}

impl Placing {
    pub(super) fn over(reactors: usize) -> Self {
        Self {
            held: vec![0; reactors.max(1)],
            of: HashMap::new(),
        }
    }

    /// How many reactors there are.
    pub(super) fn reactors(&self) -> usize {
        self.held.len()
    }

    /// Whether the reactor of a queue takes one more beside it, where it takes so many: what the registry lets in may all come to one.
    pub(super) fn has_room_beside(
        &self,
        controller: ControllerId,
        other: QueueId,
        most: usize,
    ) -> bool {
        let reactor = self.of(controller, other);
        let held = reactor.and_then(|reactor| self.held.get(reactor));
        held.is_none_or(|held| *held < most)
    }

    /// Finds a queue its reactor: that of the queue which it is to be beside; or of several that have the fewest, the first. Where the registry lets in no
    /// more queues than all reactors take together, none gets more than it takes.
    pub(super) fn place(
        &mut self,
        controller: ControllerId,
        queue: QueueId,
        beside: Option<QueueId>,
    ) -> usize {
        let of_other = beside.and_then(|other| self.of(controller, other));
        let all = self.held.iter_mut().enumerate();
        let is_meant = |reactor: usize| of_other.is_none_or(|it| it == reactor);
        let fewest = all
            .filter(|(reactor, _)| is_meant(*reactor))
            .min_by_key(|(_, held)| **held);
        let Some((reactor, held)) = fewest else {
            return 0;
        };
        *held += 1;
        self.of.insert((controller, queue), reactor);
        reactor
    }

    /// The reactor of a queue that has one, until its last request has ended.
    pub(super) fn of(&self, controller: ControllerId, queue: QueueId) -> Option<usize> {
        self.of.get(&(controller, queue)).copied()
    }

    /// The queue has closed.
    pub(super) fn free(&mut self, controller: ControllerId, queue: QueueId) {
        if let Some(reactor) = self.of.remove(&(controller, queue))
            && let Some(held) = self.held.get_mut(reactor)
        {
            *held -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ControllerId, Placing, QueueId};

    #[test]
    fn a_queue_is_placed_beside_another() {
        let mut placing = Placing::over(2);
        let mut place = |queue, beside| placing.place(ControllerId(1), QueueId(queue), beside);
        assert_eq!(place(1, None), 0);
        let beside_the_first = [2, 3].map(|queue| place(queue, Some(QueueId(1))));
        assert_eq!(beside_the_first, [0, 0]);
        assert_eq!(place(4, None), 1);
        // One that is gone is beside nothing.
        assert_eq!(place(5, Some(QueueId(9))), 1);
        let has_room = |other, most| placing.has_room_beside(ControllerId(1), QueueId(other), most);
        assert_eq!((has_room(1, 3), has_room(1, 4)), (false, true));
        assert_eq!((has_room(4, 3), has_room(9, 0)), (true, true));
    }

    #[test]
    fn the_reactor_with_the_fewest_queues_gets_the_next() {
        let mut placing = Placing::over(3);
        let mut place =
            |controller, queue| placing.place(ControllerId(controller), QueueId(queue), None);
        // A host of four queues, then three of one.
        let of_one = [1, 2, 3, 4].map(|queue| place(1, queue));
        assert_eq!(of_one, [0, 1, 2, 0]);
        assert_eq!([2, 3, 4].map(|host| place(host, 1)), [1, 2, 0]);
        // Two of the second reactor's two close; both places are the next ones.
        for (controller, queue) in [(1, 2), (2, 1)] {
            assert_eq!(
                placing.of(ControllerId(controller), QueueId(queue)),
                Some(1)
            );
            placing.free(ControllerId(controller), QueueId(queue));
            // Closed once.
            placing.free(ControllerId(controller), QueueId(queue));
            assert_eq!(placing.of(ControllerId(controller), QueueId(queue)), None);
        }
        let mut place =
            |controller, queue| placing.place(ControllerId(controller), QueueId(queue), None);
        assert_eq!([5, 6, 7].map(|host| place(host, 1)), [1, 1, 1]);
        assert_eq!(placing.held, [3, 3, 2]);
    }
}
