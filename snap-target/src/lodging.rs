//! Shares of other frontends on a reactor of the target's.

use std::time::Instant;

use frontend_nvme::{Lodger, lodger_token};
use namespace::{Done, Engine};
use reactor::{OwnerId, Ring};

/// The bit of a queue's name that says whose it is: queues are counted from 1, and never come as far.
const LOCAL: u32 = 1 << 31;

/// What other frontends have of one reactor.
pub struct Lodging {
    guests: frontend_vhost_user_blk::Share,
    locals: frontend_ublk::Share,
}

/// Where queues of devices go.
#[derive(Clone, Debug)]
pub struct Doors {
    /// Those of virtual machines.
    pub guests: frontend_vhost_user_blk::Door,
    /// Those of this machine.
    pub locals: frontend_ublk::Door,
}

impl Lodging {
    /// On this thread's ring.
    pub fn new(ring: &Ring) -> (Self, Doors) {
        let (guests, guests_door) = frontend_vhost_user_blk::Share::new(ring, lodger_token);
        let local_token = |queue, request| lodger_token(queue | LOCAL, request);
        let (locals, locals_door) = frontend_ublk::Share::new(ring, local_token);
        let doors = Doors {
            guests: guests_door,
            locals: locals_door,
        };
        (Self { guests, locals }, doors)
    }
}

impl Lodger for Lodging {
    fn turn(&mut self, engine: &mut Engine, now: Instant) {
        self.guests.turn(engine, now);
        self.locals.turn();
    }

    fn ready(&mut self, owner: OwnerId, engine: &mut Engine) -> bool {
        self.guests.ready(owner) || self.locals.ready(owner, engine)
    }

    fn answered(&mut self, high: u32, low: u16, done: Done) {
        match high & LOCAL {
            0 => self.guests.answered(high, low, done),
            _ => self.locals.answered(high & !LOCAL, low, done),
        }
    }

    fn settle(&mut self, engine: &mut Engine) -> bool {
        let of_guests = self.guests.settle(engine);
        self.locals.settle(engine) || of_guests
    }
}
