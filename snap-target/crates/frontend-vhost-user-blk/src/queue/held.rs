//! What copies of a device's data hold of an engine's memory, all its queues on one reactor together: a guest that asks for more than it takes must not
//! have the memory of all.

use std::cell::Cell;
use std::rc::Rc;

use guest_memory::Way;
use namespace::Engine;

use crate::limits::DEVICE_HELD_BYTES_MAX;

/// What one queue holds, and its device. Dropped, it holds nothing any more.
#[derive(Debug, Default)]
pub(crate) struct Held {
    own: Bytes,
    device: Rc<Bytes>,
}

/// Bytes that are on their way, or will be when the store has them.
#[derive(Debug, Default)]
struct Bytes {
    to_guest: Cell<u64>,
    from_guest: Cell<u64>,
}

impl Bytes {
    fn of(&self, way: Way) -> &Cell<u64> {
        match way {
            Way::ToGuest => &self.to_guest,
            Way::FromGuest => &self.from_guest,
        }
    }
}

impl Held {
    /// Of another queue of the same device.
    pub(crate) fn beside(&self) -> Self {
        Self {
            own: Bytes::default(),
            device: self.device.clone(),
        }
    }

    /// Holds so much more, if it may. A queue that holds nothing may: what it holds ends, and brings it here again, so that it waits for no other queue.
    pub(crate) fn take(&self, way: Way, bytes: u64, engine: &Engine) -> bool {
        let (own, device) = (self.own.of(way), self.device.of(way));
        let may = own.get() == 0 || has_room(way, device.get(), bytes, engine);
        if may {
            own.set(own.get() + bytes);
            device.set(device.get() + bytes);
        }
        may
    }

    /// Lets go of what it took.
    pub(crate) fn give_back(&self, way: Way, bytes: u64) {
        for held in [self.own.of(way), self.device.of(way)] {
            held.set(held.get().saturating_sub(bytes));
        }
    }
}

/// The memory of answers has other users, who are to have a part of it whatever this device holds.
fn has_room(way: Way, held: u64, bytes: u64, engine: &Engine) -> bool {
    let keeps_to_limit = held.saturating_add(bytes) <= DEVICE_HELD_BYTES_MAX;
    // A piece at most.
    let piece = u32::try_from(bytes).unwrap_or(u32::MAX);
    keeps_to_limit && (way == Way::FromGuest || engine.has_room(held, piece))
}

impl Drop for Held {
    fn drop(&mut self) {
        for way in [Way::ToGuest, Way::FromGuest] {
            self.give_back(way, self.own.of(way).get());
        }
    }
}
