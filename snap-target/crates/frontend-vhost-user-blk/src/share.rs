//! One reactor's part of all devices.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use namespace::{Done, Engine};
use reactor::{OwnerId, Receiver, Ring};

use crate::limits::{DRAIN_PATIENCE, ORDERS_MAX, SHARE_QUEUES_MAX, SHARE_TURN_BYTES_MAX};
use crate::order::{Door, Order, QueueId, Start};
use crate::queue::{Queue, Tokens, Turn};

/// The queues of one reactor. It does I/O on the reactor's ring and has requests at its engine; whoever drives both calls it, in each turn:
/// [`Share::turn`] first, [`Share::ready`] for owners that the ring names, [`Share::answered`] for answers of the engine, and [`Share::settle`] at last.
#[derive(Debug)]
pub struct Share {
    ring: Ring,
    orders: Receiver<Order>,
    tokens: Tokens,
    queues: HashMap<QueueId, Queue>,
    owners: HashMap<OwnerId, QueueId>,
    /// In which they are served in this turn.
    order: VecDeque<QueueId>,
    /// Bytes that they may still move in it.
    bytes_left: usize,
}

impl Share {
    /// On this thread's ring. The tokens of its requests are `token(queue, request)`: so other users of the engine know theirs from them.
    #[must_use]
    pub fn new(ring: &Ring, token: fn(u32, u16) -> u64) -> (Self, Door) {
        let (door, orders) = reactor::Door::new(ring, ORDERS_MAX, DRAIN_PATIENCE);
        let share = Self {
            ring: ring.clone(),
            orders,
            tokens: Tokens { make: token },
            queues: HashMap::new(),
            owners: HashMap::new(),
            order: VecDeque::new(),
            bytes_left: 0,
        };
        (share, Door(door))
    }

    /// After each turn of the ring, which began at `now`, or before: what devices ask.
    pub fn turn(&mut self, engine: &mut Engine, now: Instant) {
        self.bytes_left = SHARE_TURN_BYTES_MAX;
        for queue in self.queues.values_mut() {
            queue.begin_turn(Turn::new(self.bytes_left), now);
        }
        while let Some(order) = self.orders.try_recv() {
            self.order(order, engine);
        }
    }

    /// Whether this owner was one of its own; then it has taken in what the ring has for it.
    pub fn ready(&mut self, owner: OwnerId) -> bool {
        let Some(id) = self.owners.get(&owner) else {
            return false;
        };
        if let Some(queue) = self.queues.get_mut(id) {
            queue.kicked();
        }
        true
    }

    /// An answer of the engine to a request of queue `queue`, with the token's lower part.
    pub fn answered(&mut self, queue: u32, request: u16, done: Done) {
        if let Some(queue) = self.queues.get_mut(&QueueId(queue)) {
            queue.answered(request, done);
        }
    }

    /// After all answers: begins what can be begun, and tells guests of what has ended. True: the ring's next turn may not wait.
    pub fn settle(&mut self, engine: &mut Engine) -> bool {
        let mut has_work = false;
        let mut has_freed = false;
        let mut ended = Vec::new();
        let mut first_without = None;
        // What a store has answered waits for no other queue's turn.
        for queue in self.queues.values_mut() {
            queue.publish();
        }
        for (place, id) in self.order.iter().enumerate() {
            let Some(queue) = self.queues.get_mut(id) else {
                continue;
            };
            if self.bytes_left == 0 {
                first_without.get_or_insert(place);
            }
            queue.turn_left().go_on(self.bytes_left);
            has_work |= queue.settle(engine);
            has_freed |= queue.has_freed();
            self.bytes_left = queue.turn_left().share_bytes();
            if queue.has_ended() {
                ended.push(*id);
            }
        }
        // Memory that a queue has given back meanwhile may be what one before it waits for, and no event tells that one.
        has_work |= has_freed && self.queues.values().any(Queue::is_starved);
        // Those for whom nothing was left are the first next time.
        if let Some(place) = first_without {
            self.order.rotate_left(place);
        }
        for id in ended {
            if let Some(queue) = self.queues.remove(&id) {
                self.owners.remove(&queue.owner_id());
            }
            self.order.retain(|it| *it != id);
        }
        has_work
    }

    fn order(&mut self, order: Order, engine: &mut Engine) {
        match order {
            Order::Start(start, answer) => {
                // Where whoever asked has given up waiting, their connection ends, and stops it.
                let _told = answer.send(self.start(*start));
            }
            Order::Stop(id, ending, answer) => match self.queues.get_mut(&id) {
                Some(queue) => queue.stop(ending, answer, engine),
                None => {
                    let _told = answer.send(None);
                }
            },
            Order::Windows(id, windows, answer) => {
                let queue = self.queues.get_mut(&id);
                let changed = queue.map_or(Ok(()), |queue| queue.change_windows(windows));
                let _told = answer.send(changed);
            }
            Order::Call(id, file) => {
                if let Some(queue) = self.queues.get_mut(&id) {
                    queue.set_call(file);
                }
            }
            Order::Writeback(id, writeback, answer) => {
                if let Some(queue) = self.queues.get_mut(&id) {
                    queue.set_writeback(writeback);
                }
                let _told = answer.send(());
            }
            Order::Disk(id, disk) => {
                if let Some(queue) = self.queues.get_mut(&id) {
                    queue.set_disk(disk);
                }
            }
        }
    }

    fn start(&mut self, start: Start) -> Result<(), String> {
        if self.queues.len() >= SHARE_QUEUES_MAX {
            return Err(format!(
                "its reactor serves {SHARE_QUEUES_MAX} queues of virtual machines, and no more; give devices fewer queues (num-queues), or the target more reactors (--reactors)"
            ));
        }
        let id = start.id;
        let mut queues = self.queues.values();
        let beside = queues.find_map(|queue| queue.held_beside(&start.counters));
        let held = beside.unwrap_or_default();
        let queue = Queue::new(&self.ring, self.tokens, start, held)?;
        self.owners.insert(queue.owner_id(), id);
        self.queues.insert(id, queue);
        self.order.push_back(id);
        Ok(())
    }
}
