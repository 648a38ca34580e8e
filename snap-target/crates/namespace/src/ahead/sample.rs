//! How long the stores take: one operation of several is timed.

use std::time::Instant;

use store::{Op, Token};

/// Reads of which one is timed.
const READS: u32 = 8;

#[derive(Debug)]
struct Timed {
    token: Token,
    begun: Instant,
    was_alone: bool,
}

/// The operation that is being timed.
#[derive(Debug, Default)]
pub(crate) struct Sample {
    timed: Option<Timed>,
    /// Reads until the next one.
    left: u32,
}

impl Sample {
    /// A store took an operation; `is_alone`: it has no other of this namespace and engine.
    pub(crate) fn begins(&mut self, op: &Op, token: Token, is_alone: bool) {
        if self.timed.is_some() || !matches!(op, Op::Read { .. }) {
            return;
        }
        if self.left > 0 {
            self.left -= 1;
            return;
        }
        self.timed = Some(Timed {
            token,
            begun: Instant::now(),
            was_alone: is_alone,
        });
    }

    /// A store ended one: how many nanoseconds it took, and whether it was alone when it began; if it was timed.
    pub(crate) fn ended(&mut self, token: Token) -> Option<(u64, bool)> {
        let timed = self.timed.take_if(|timed| timed.token == token)?;
        self.left = READS - 1;
        let took_ns = u64::try_from(timed.begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Some((took_ns, timed.was_alone))
    }
}
