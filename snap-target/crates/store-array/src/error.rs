//! Why an array cannot be opened.

use store::StoreError;

use crate::limits::{MEMBERS_MAX, UNIT_BYTES_MAX, UNIT_BYTES_MIN};

/// Errors of opening arrays. Members are told by their names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArrayError {
    /// One, or too many.
    #[error("{count} members: an array has 2 to {MEMBERS_MAX}")]
    Members {
        /// How many were named.
        count: usize,
    },
    /// A unit that cannot be.
    #[error("a stripe unit of {bytes} bytes: it is a multiple of 4096 from {} KiB to {} MiB", UNIT_BYTES_MIN >> 10, UNIT_BYTES_MAX >> 20)]
    Unit {
        /// As asked for.
        bytes: u64,
    },
    /// A member cannot be read or written.
    #[error(transparent)]
    Member(#[from] StoreError),
    /// A member without room for a label and a unit.
    #[error("{member} has {bytes} bytes, too few for a unit of the stripe and its label")]
    TooSmall {
        /// Which.
        member: String,
        /// Its size.
        bytes: u64,
    },
    /// A member without a label.
    #[error(
        "{member} has no label of a stripe at its end{}",
        if *is_blank {
            "; it is blank: write stripe:new:UNIT:... to make one of blank members"
        } else {
            ", and is not blank: is it a member, and has it the size that it had?"
        }
    )]
    NoLabel {
        /// Which.
        member: String,
        /// Its first and last 4 KiB are zeros.
        is_blank: bool,
    },
    /// To make a stripe of something that has content.
    #[error(
        "{member} is not blank (its first and last 4096 bytes are to be zeros): no stripe is made of it; wipe it first (blkdiscard, truncate) if nothing on it is needed"
    )]
    NotBlank {
        /// Which.
        member: String,
    },
    /// To make a stripe of something that takes no writes.
    #[error("{member} takes no writes, so no stripe can be made of it")]
    ReadOnly {
        /// Which.
        member: String,
    },
    /// A label that this version does not read.
    #[error("{member} has a label of version {version}; this program reads versions 1 and 2")]
    Version {
        /// Which.
        member: String,
        /// What it says.
        version: u32,
    },
    /// A label that is damaged or not one that this program writes.
    #[error("the label of {member} is damaged: {why}")]
    Damaged {
        /// Which.
        member: String,
        /// What is wrong.
        why: &'static str,
    },
    /// Members of several stripes, or in another order, or another number or unit.
    #[error("{member} is not what is named here: {why}")]
    Mismatch {
        /// Which.
        member: String,
        /// What its label says, and what was expected.
        why: String,
    },
    /// Labels that were not all written.
    #[error(
        "{member} is of a stripe that was not finished: write stripe:new:UNIT:... with the members as they were named, which finishes it; nothing was on it yet"
    )]
    Unfinished {
        /// The first member.
        member: String,
    },
    /// A member as it was at another time.
    #[error(
        "{member} was put back from another time: its label is of generation {generation}, and the stripe was written to up to generation {last} without it; bring the member back as it was last, or start anew from copies of all members that are of one time"
    )]
    Stale {
        /// Which.
        member: String,
        /// Of its label.
        generation: u64,
        /// The last one that another member has.
        last: u64,
    },
    /// No replica can be opened.
    #[error("no replica is there: {why}")]
    NoneThere {
        /// Of each, why not.
        why: String,
    },
    /// A replica with other content.
    #[error("{member} is no replica of {first}: {why}")]
    NoReplica {
        /// Which.
        member: String,
        /// What it was compared with.
        first: String,
        /// What differs.
        why: String,
    },
}
