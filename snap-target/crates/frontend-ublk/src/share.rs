//! One reactor's part of all devices.

use std::collections::HashMap;

use namespace::{Done, Engine};
use reactor::{OwnerId, Receiver, Ring};

use crate::limits::{DRAIN_PATIENCE, ORDERS_MAX};
use crate::order::{Door, Order, QueueId};
use crate::queue::{Queue, Tokens};

/// The queues of one reactor. It does I/O on the reactor's ring and has requests at its engine; whoever drives both calls it, in each turn:
/// [`Share::turn`] first, [`Share::ready`] for owners that the ring names, [`Share::answered`] for answers of the engine, and [`Share::settle`] at last.
#[derive(Debug)]
pub struct Share {
    ring: Ring,
    orders: Receiver<Order>,
    tokens: Tokens,
    queues: HashMap<QueueId, Queue>,
    owners: HashMap<OwnerId, QueueId>,
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
        };
        (share, Door(door))
    }

    /// After each turn of the ring: what devices ask.
    pub fn turn(&mut self) {
        while let Some(order) = self.orders.try_recv() {
            self.order(order);
        }
    }

    /// Whether this owner was one of its own; then it has taken in what the ring has for it.
    pub fn ready(&mut self, owner: OwnerId, engine: &mut Engine) -> bool {
        let Some(id) = self.owners.get(&owner) else {
            return false;
        };
        if let Some(queue) = self.queues.get_mut(id) {
            queue.ready(engine);
        }
        true
    }

    /// An answer of the engine to a request of queue `queue`, with the token's lower part.
    pub fn answered(&mut self, queue: u32, request: u16, done: Done) {
        if let Some(queue) = self.queues.get_mut(&QueueId(queue)) {
            queue.answered(request, done);
        }
    }

    /// After all answers: begins what can be begun. True: the ring's next turn may not wait.
    pub fn settle(&mut self, engine: &mut Engine) -> bool {
        let mut has_work = false;
        let mut has_ended = false;
        let mut has_freed = false;
        for queue in self.queues.values_mut() {
            has_work |= queue.settle(engine);
            has_ended |= queue.has_ended();
            has_freed |= queue.has_freed();
        }
        // Memory that a queue has given back meanwhile may be what one before it waits for, and no event tells that one.
        has_work |= has_freed && self.queues.values().any(Queue::is_starved);
        if has_ended {
            let owners = &mut self.owners;
            self.queues.retain(|_, queue| {
                if queue.has_ended() {
                    owners.remove(&queue.owner_id());
                }
                !queue.has_ended()
            });
        }
        has_work
    }

    fn order(&mut self, order: Order) {
        match order {
            Order::Start(start, answer) => {
                let id = start.id;
                let told = match Queue::new(&self.ring, self.tokens, *start) {
                    Ok(queue) => {
                        self.owners.insert(queue.owner_id(), id);
                        self.queues.insert(id, queue);
                        answer.send(Ok(()))
                    }
                    Err(why) => answer.send(Err(why)),
                };
                // Where whoever asked has given up waiting, the device is deleted, and the queue ends with it.
                let _told = told;
            }
            Order::Drain(id, answer) => match self.queues.get_mut(&id) {
                Some(queue) => queue.drain(answer),
                None => drop(answer.send(())),
            },
            Order::Await(id, answer) => match self.queues.get_mut(&id) {
                Some(queue) => queue.tell_end(answer),
                None => drop(answer.send(())),
            },
            Order::Disk(id, disk) => {
                if let Some(queue) = self.queues.get_mut(&id) {
                    queue.set_disk(disk);
                }
            }
        }
    }
}
