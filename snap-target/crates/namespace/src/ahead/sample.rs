//! How long the stores take: one operation of several is timed.

use std::time::Instant;

use store::{Op, Token};

/// Reads of which one is timed.
const READS: u32 = 8;

/// The operation that is being timed.
#[derive(Debug, Default)]
pub(crate) struct Sample {
    timed: Option<(Token, Instant)>,
    /// Reads until the next one.
    left: u32,
}

impl Sample {
    /// A store took an operation.
    pub(crate) fn begins(&mut self, op: &Op, token: Token) {
        if self.timed.is_some() || !matches!(op, Op::Read { .. }) {
            return;
        }
        if self.left > 0 {
            self.left -= 1;
            return;
        }
        self.timed = Some((token, Instant::now()));
    }

    /// A store ended one: how many nanoseconds it took, if it was timed.
    pub(crate) fn ended(&mut self, token: Token) -> Option<u64> {
        let (_, begun) = self.timed.take_if(|(timed, _)| *timed == token)?;
        self.left = READS - 1;
        Some(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}
