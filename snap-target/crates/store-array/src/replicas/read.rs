//! A read in flight: which replicas it was with, and for how long it is with one.

use std::ops::Range;
use std::time::{Duration, Instant};

use reactor::buf::IoBuf;
use store::{Op, StoreError, Terms, Token};

/// A read is late after so many times the patience, although its replica answers others.
const LATE: u32 = 8;
/// Rounds in which those that said nothing are asked again. Together they take longer than any deadline of ours: whoever has a read by then keeps it.
const ROUNDS_MAX: u32 = 6;

/// A read in flight.
pub(super) struct Read {
    pub token: Token,
    pub op: Op,
    pub terms: Terms,
    /// None while a replica has it: not where it was lent another.
    pub buf: Option<IoBuf>,
    /// The request that was made first for it: later ones that name its place are its own.
    pub first_asked: u64,
    /// By bit: replicas that have what they were lent for it, and said nothing. What they say in the end counts.
    pub late: u16,
    /// By bit: replicas that did not answer it, in this round.
    pub tried: u16,
    /// Of them, those that said nothing: in the next round they are asked again, for twice as long.
    pub silent: u16,
    pub round: u32,
    pub at: Option<At>,
    pub failure: Option<StoreError>,
    /// Of one that said nothing: it may have the bytes, and answer the next time that it is asked.
    pub silence: Option<StoreError>,
    pub is_cancelled: bool,
}

impl Read {
    /// What it reads; while no replica has its buffer.
    pub fn bytes(&self) -> Range<u64> {
        let offset = self.op.offset();
        offset..offset + self.buf.as_ref().map_or(0, IoBuf::len) as u64
    }

    /// Whoever asked has given up.
    pub fn is_overdue(&self, now: Instant) -> bool {
        self.terms.deadline.is_some_and(|deadline| now >= deadline)
    }

    /// By bit, those that are asked again in a further round: none that still has what it was asked.
    pub fn asked_again(&self) -> u16 {
        if self.round < ROUNDS_MAX {
            self.silent & !self.late
        } else {
            0
        }
    }

    /// A replica said nothing: another one has its turn.
    pub fn was_silent(&mut self, member: usize, why: StoreError) {
        self.tried |= 1 << member;
        self.silent |= 1 << member;
        self.silence = Some(why);
    }

    /// Those of these that said nothing are asked again.
    pub fn begin_again(&mut self, among: u16) {
        let again = self.asked_again() & among;
        self.round += 1;
        self.tried &= !again;
        self.silent &= !again;
    }
}

/// Where a read is.
#[derive(Clone, Copy)]
pub(super) struct At {
    pub member: usize,
    /// Which request that was.
    pub asked: u64,
    pub since: Instant,
    /// Why the replica was asked to give it back, if it was.
    pub recalled: Option<Recall>,
}

/// Why a read is taken away from a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recall {
    /// The replica has answered nothing for too long.
    Silent,
    /// It answers others, and not this one.
    Late,
}

impl Recall {
    /// Of a read that a replica has since then and that answered last at that time. In a full line a read waits for others: while these are answered it is
    /// the line that takes its time.
    pub fn due(
        since: Instant,
        answered_at: Instant,
        now: Instant,
        patience: Duration,
    ) -> Option<Self> {
        let silent_for = now.saturating_duration_since(since.max(answered_at));
        let waited = now.saturating_duration_since(since);
        if silent_for >= patience {
            Some(Self::Silent)
        } else if waited >= patience * LATE {
            Some(Self::Late)
        } else {
            None
        }
    }

    /// How long that takes.
    pub fn after(self, patience: Duration) -> Duration {
        match self {
            Self::Silent => patience,
            Self::Late => LATE * patience,
        }
    }
}

/// What is said of a replica, by its place, that did not answer a read.
pub(super) fn not_answered(
    name: &str,
    member: usize,
    offset: u64,
    patience: Duration,
) -> StoreError {
    StoreError::Unreachable {
        store: format!(
            "{name}: number {} of them, without an answer for {patience:?},",
            member + 1
        ),
        what: "reading",
        offset,
        retry_after_ms: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A read of a full line is not taken away while the line moves, and not for ever.
    #[test]
    fn a_replica_that_answers_others_is_not_silent() {
        let begun = Instant::now();
        let patience = Duration::from_millis(500);
        let at = |ms: u64| begun + Duration::from_millis(ms);
        let due = |answered_at, now| Recall::due(at(1000), at(answered_at), at(now), patience);
        // Nothing since long before it came, or since.
        assert_eq!(due(0, 1499), None);
        assert_eq!(due(0, 1500), Some(Recall::Silent));
        // Answers to others.
        assert_eq!(due(1400, 1899), None);
        assert_eq!(due(1400, 1900), Some(Recall::Silent));
        assert_eq!(due(4900, 4999), None);
        assert_eq!(due(4900, 5000), Some(Recall::Late));
        assert_eq!(due(4000, 5000), Some(Recall::Silent));
    }
}
