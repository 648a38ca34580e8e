//! Why a request of the admin plane was refused.

use frontend_nvme_tcp::AdminError;

use crate::state::StateError;

/// A request that was refused: nothing was changed. Each says what happened and what to do, in one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManageError {
    /// A field is malformed or out of its limits, whatever the daemon's state is.
    #[error("{0}")]
    Invalid(String),
    /// What was named is not there.
    #[error("{0}")]
    NotFound(String),
    /// What is to be made is there already.
    #[error("{0}")]
    Exists(String),
    /// It cannot be done as things are.
    #[error("{0}")]
    Precondition(String),
    /// A limit of the daemon.
    #[error("{0}")]
    Exhausted(String),
    /// The daemon is on its way out.
    #[error("{0}")]
    Unavailable(String),
    /// A fault of the daemon or its state folder.
    #[error("{0}")]
    Internal(String),
}

impl From<StateError> for ManageError {
    fn from(error: StateError) -> Self {
        let text = format!("{error}; nothing was changed");
        match error {
            StateError::Full { .. } => Self::Exhausted(text),
            StateError::ReadOnly { .. } => Self::Precondition(text),
            _ => Self::Internal(text),
        }
    }
}

impl From<AdminError> for ManageError {
    fn from(error: AdminError) -> Self {
        let text = error.to_string();
        match error {
            AdminError::NoSubsystem { .. }
            | AdminError::NoNamespace { .. }
            | AdminError::NoListener { .. }
            | AdminError::NoController { .. } => Self::NotFound(text),
            AdminError::NsidTaken { .. } | AdminError::ListenerTaken { .. } => Self::Exists(text),
            AdminError::Stopped => Self::Unavailable(text),
            _ => Self::Precondition(text),
        }
    }
}
