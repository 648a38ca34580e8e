//! What can be wrong with what a remote store is told.

use std::time::Duration;

/// Options that do not fit together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionsError {
    /// A deadline above the limit.
    #[error(
        "a deadline of {deadline:?} is over the limit of {max:?}: hosts give a command up after 30 s"
    )]
    Deadline {
        /// As given.
        deadline: Duration,
        /// The limit.
        max: Duration,
    },
    /// No keep-alive timeout, or one that no controller keeps.
    #[error(
        "a keep-alive timeout of {0:?} is too short, the least is 100ms: by it one knows when a lost controller is dead, and a write can be tried again"
    )]
    KeepAlive(std::time::Duration),
    /// A lost write would not be settled by its deadline.
    #[error(
        "a write of unknown outcome is settled {command_timeout:?} (command timeout) + {dead_after:?} (keep-alive, the controller's quiesce time, margin) after it was sent, and that must be below the deadline of {deadline:?}: shorten one of them"
    )]
    TooSlow {
        /// As given.
        command_timeout: Duration,
        /// KATO, CQT where the controller reports one, and the margin.
        dead_after: Duration,
        /// As given.
        deadline: Duration,
    },
    /// No path, or too many.
    #[error("a remote store has 1 to {max} paths, not {paths}")]
    Paths {
        /// As given.
        paths: usize,
        /// The limit.
        max: usize,
    },
}
