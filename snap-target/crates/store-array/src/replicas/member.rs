//! A replica as one reactor's handle has it, and the names of what is asked of it.

use std::time::Instant;

use reactor::buf::Pool;
use store::{Store, Token};

use super::read::Read;

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
    /// Has it give a read back. The read goes on at once where this one has not its buffer; whether it does.
    pub fn take_back(&mut self, index: usize, read: &mut Read) -> bool {
        let Some(at) = &mut read.at else {
            return true;
        };
        self.store.cancel(name_of(index, at.asked));
        let is_lent = read.buf.is_some();
        if is_lent {
            read.at = None;
        }
        is_lent
    }
}
