//! What ends the use of a ring.

/// The ring cannot be used, or no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// A size that its format does not have.
    #[error("a ring of {size} descriptors: {rule}")]
    Size {
        /// What was asked for.
        size: u32,
        /// What there may be.
        rule: &'static str,
    },
    /// An area that is not in the guest's memory.
    #[error("the ring's {area} area, {bytes} bytes at {address:#x}, is not in the guest's memory")]
    Outside {
        /// Which of the three.
        area: &'static str,
        /// Where.
        address: u64,
        /// How many.
        bytes: u64,
    },
    /// An area that is not aligned as the specification says.
    #[error("the ring's {area} area at {address:#x} is not aligned to {alignment}")]
    Unaligned {
        /// Which of the three.
        area: &'static str,
        /// Where.
        address: u64,
        /// Bytes.
        alignment: u64,
    },
    /// A position that the ring does not have.
    #[error("the ring has {size} descriptors, and is to go on at {index}")]
    Position {
        /// Where.
        index: u32,
        /// Descriptors.
        size: u16,
    },
    /// More chains are available than there are descriptors.
    #[error("{available} chains are available in a ring of {size} descriptors")]
    Available {
        /// How many.
        available: u16,
        /// Descriptors.
        size: u16,
    },
    /// A chain begins outside of the ring.
    #[error("a chain begins at descriptor {head} of {size}")]
    Head {
        /// Where.
        head: u16,
        /// Descriptors.
        size: u16,
    },
    /// A chain that is in flight.
    #[error("chain {id} was made available while it is in flight")]
    Twice {
        /// Which.
        id: u16,
    },
    /// A chain of a packed ring that has no end: where the next one begins cannot be known.
    #[error("a chain of the packed ring is longer than the ring")]
    Endless,
    /// A chain is given back that was not taken.
    #[error("chain {id} is not in flight")]
    NotTaken {
        /// Which.
        id: u16,
    },
    /// The record of what is in flight is not one of this ring's.
    #[error("the record of requests in flight cannot be used: {why}")]
    Inflight {
        /// Why.
        why: &'static str,
    },
}
