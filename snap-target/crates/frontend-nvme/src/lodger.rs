//! Another frontend's share of a reactor: it does I/O on the same ring, and has requests at the same engine.

use std::time::Instant;

use namespace::{Done, Engine};
use reactor::OwnerId;

/// The part of a request's token that names a queue's place in the reactor's table, when it is a lodger's: no queue has this place.
const LODGERS: u64 = 0xFFFF << 16;

/// What the reactor's loop calls. It has [`crate::LODGER_QUEUES_MAX`] owners at most, each with a timer and [`crate::LODGER_QUEUE_OPS_MAX`] operations. Requests of namespaces that are detached are waited for, whoever has them; so a lodger ends its own.
pub trait Lodger {
    /// After each turn of the ring, before all else. `now` is when it began, or later.
    fn turn(&mut self, engine: &mut Engine, now: Instant);

    /// Whether the owner is one of its own; it has then taken in what the ring has for it.
    fn ready(&mut self, owner: OwnerId, engine: &mut Engine) -> bool;

    /// An answer to its request [`lodger_token`]`(high, low)`.
    fn answered(&mut self, high: u32, low: u16, done: Done);

    /// After all answers of a turn, maybe several times. True: the ring's next turn may not wait.
    fn settle(&mut self, engine: &mut Engine) -> bool;
}

/// The token of a lodger's request, among those of the reactor's own.
#[must_use]
pub fn lodger_token(high: u32, low: u16) -> u64 {
    u64::from(high) << 32 | LODGERS | u64::from(low)
}

/// The parts of a lodger's token; none where it is not one.
pub(crate) fn parts_of_lodger(token: u64) -> Option<(u32, u16)> {
    #[expect(clippy::cast_possible_truncation, reason = "takes the parts out again")]
    let parts = ((token >> 32) as u32, token as u16);
    (token & LODGERS == LODGERS).then_some(parts)
}
