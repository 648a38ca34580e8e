//! What a queue may still do in a turn of its reactor: others are served there, too.

use crate::limits::{TURN_BYTES_MAX, TURN_CHAINS_MAX};

/// What is left of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    chains: usize,
    bytes: usize,
    /// Of all queues of the reactor.
    share_bytes: usize,
}

impl Turn {
    /// A queue's turn begins, of a reactor that has so much for all.
    pub(crate) fn new(share_bytes: usize) -> Self {
        Self {
            chains: TURN_CHAINS_MAX,
            bytes: TURN_BYTES_MAX,
            share_bytes,
        }
    }

    /// The same turn, in which others have had their part meanwhile.
    pub(crate) fn go_on(&mut self, share_bytes: usize) {
        self.share_bytes = share_bytes;
    }

    /// What is left for the others.
    pub(crate) fn share_bytes(self) -> usize {
        self.share_bytes
    }

    /// Whether bytes may be moved.
    pub(crate) fn has_bytes(self) -> bool {
        self.bytes > 0 && self.share_bytes > 0
    }

    /// Whether a chain may be taken.
    pub(crate) fn has_chains(self) -> bool {
        self.chains > 0 && self.has_bytes()
    }

    pub(crate) fn take_chain(&mut self) {
        self.chains = self.chains.saturating_sub(1);
    }

    pub(crate) fn take_bytes(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
        self.share_bytes = self.share_bytes.saturating_sub(bytes);
    }
}
