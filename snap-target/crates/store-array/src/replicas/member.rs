//! A replica as one reactor's handle has it, and the names of what is asked of it.

use std::time::Instant;

use reactor::buf::{IoBuf, Pool};
use store::{Store, Token};

use super::read::At;
use crate::limits::LOAN_BYTES_KEPT;

/// The first bytes, or all: a replica that is down shows with them that it answers.
pub(super) const PROBE_BYTES: u64 = 4096;

/// In the place of a read's, in its name.
pub(super) const PROBE: usize = 0xFF;

/// How a replica knows a read: a request's number, and the place of the read that it was made for.
pub(super) fn name_of(index: usize, asked: u64) -> Token {
    Token(asked << 8 | index as u64)
}

pub(super) fn index_and_number(token: Token) -> (usize, u64) {
    // A byte.
    (usize::try_from(token.0 & 0xFF).unwrap_or(0), token.0 >> 8)
}

pub(super) struct Member {
    pub store: Box<dyn Store>,
    /// What it is lent; none where it has reads' own buffers.
    pub loans: Option<Pool>,
    pub outstanding: usize,
    /// Of them, reads that it was asked to give back, and has not.
    pub recalled: usize,
    /// When it answered last.
    pub answered_at: Instant,
    pub probe: Option<Probe>,
}

/// A read of nobody's, by which a replica that failed shows that it answers again: those of hosts do not wait for that.
pub(super) struct Probe {
    pub asked: u64,
    pub since: Instant,
    pub is_recalled: bool,
}

impl Member {
    /// Memory for a read of `len` bytes, where it is lent some: `Err`: there is none now. Reads ahead leave half of it to those that are waited for.
    pub fn lend(&self, len: usize, is_ahead: bool) -> Result<Option<IoBuf>, NoLoan> {
        // What is longer than any loan goes with its own.
        let Some(loans) = self
            .loans
            .as_ref()
            .filter(|_| len <= Pool::alloc_bytes_max())
        else {
            return Ok(None);
        };
        if is_ahead && loans.free_bytes_for(len) < LOAN_BYTES_KEPT + len {
            return Err(NoLoan);
        }
        loans.alloc(len).map(Some).ok_or(NoLoan)
    }

    /// Has it end what it was asked; that counts among what it was asked to give back, from now on.
    pub fn end_early(&mut self, index: usize, at: &At) {
        self.store.cancel(name_of(index, at.asked));
        self.recalled += usize::from(at.recalled.is_none());
    }
}

/// All that it may be lent is with it.
pub(super) struct NoLoan;
