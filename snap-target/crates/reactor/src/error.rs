//! What can go wrong with a ring, said so that a person knows what to do.

use nix::errno::Errno;

/// Errors of this crate.
#[derive(Debug, thiserror::Error)]
pub enum ReactorError {
    /// The kernel or the container forbids io_uring.
    #[error("io_uring is refused ({source}): {advice}")]
    Refused {
        /// What to do about it.
        advice: &'static str,
        /// The kernel's answer.
        source: Errno,
    },
    /// The kernel has io_uring, but not what Linux 5.15 has.
    #[error("io_uring of this kernel lacks {what}: Linux 5.15 or later is needed")]
    TooOld {
        /// What is missing.
        what: &'static str,
    },
    /// A ring, eventfd or receive ring could not be set up.
    #[error("setting up {what} failed: {source}")]
    Setup {
        /// Which part.
        what: &'static str,
        /// The kernel's answer.
        source: Errno,
    },
    /// io_uring_enter failed in a way that is not a matter of retrying.
    #[error("io_uring_enter failed: {source}; operations in flight on this ring are lost")]
    Enter {
        /// The kernel's answer.
        source: Errno,
    },
    /// Memory could not be had.
    #[error("no memory for {bytes} bytes ({source}); lower the buffer limits or free memory")]
    Memory {
        /// Bytes asked for.
        bytes: usize,
        /// The kernel's answer.
        source: Errno,
    },
    /// A limit of the ring's configuration is not usable.
    #[error("ring configuration: {what}")]
    Config {
        /// Which limit, and what it must be.
        what: &'static str,
    },
    /// A bounded table of the ring is full.
    #[error("the ring's table of {what} is full ({limit}); raise the limit in RingConfig")]
    Full {
        /// Which table.
        what: &'static str,
        /// Its size.
        limit: u32,
    },
}

impl ReactorError {
    /// The kernel had no memory for what rings are made of, or may not lock so much.
    pub(crate) fn is_no_memory(&self) -> bool {
        matches!(
            self,
            Self::Refused { source, .. } | Self::Setup { source, .. } if *source == Errno::ENOMEM
        )
    }
}
