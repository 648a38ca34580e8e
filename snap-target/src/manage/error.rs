//! Why a request of the admin plane was refused.

use admin_proto::v1::{ErrorDetail, ObjectKind, Reason};
use frontend_nvme::AdminError;
use nvme::nqn::Nqn;

use crate::state::StateError;

/// A request that was refused: nothing was changed. It says what happened and what to do, in one line; the reason, which the contract has a code for, and
/// the object are for programs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct ManageError {
    /// Why, for programs.
    pub reason: Reason,
    text: String,
    field: String,
    object: Option<(ObjectKind, String)>,
}

impl ManageError {
    /// Of no field and no object.
    pub fn new(reason: Reason, text: impl Into<String>) -> Self {
        Self {
            reason,
            text: text.into(),
            field: String::new(),
            object: None,
        }
    }

    /// A malformed field, or one out of its limits; the text begins with its name.
    pub fn field(field: &str, why: impl std::fmt::Display) -> Self {
        Self {
            field: field.to_owned(),
            ..Self::new(Reason::Field, format!("{field}: {why}"))
        }
    }

    /// About this object.
    pub fn about(self, kind: ObjectKind, key: impl std::fmt::Display) -> Self {
        Self {
            object: Some((kind, key.to_string())),
            ..self
        }
    }

    /// About this subsystem.
    pub fn of_subsystem(self, nqn: &Nqn) -> Self {
        self.about(ObjectKind::Subsystem, nqn)
    }

    /// About this namespace.
    pub fn of_namespace(self, nqn: &Nqn, nsid: u32) -> Self {
        self.about(ObjectKind::Namespace, format_args!("{nqn} {nsid}"))
    }

    /// For the contract.
    pub fn detail(&self) -> ErrorDetail {
        let (kind, key) = self.object.clone().unwrap_or_default();
        ErrorDetail {
            reason: self.reason.into(),
            field: self.field.clone(),
            object_kind: kind.into(),
            object_key: key,
        }
    }
}

impl From<StateError> for ManageError {
    fn from(error: StateError) -> Self {
        let text = format!("{error}; nothing was changed");
        let reason = match error {
            StateError::Full { .. } => Reason::StateFull,
            StateError::ReadOnly { .. } => Reason::StateReadOnly,
            StateError::TooLong { .. } => Reason::Limit,
            _ => Reason::StateFault,
        };
        Self::new(reason, text)
    }
}

impl From<AdminError> for ManageError {
    fn from(error: AdminError) -> Self {
        let refused = |reason| Self::new(reason, error.to_string());
        match &error {
            AdminError::NoSubsystem { nqn } => refused(Reason::NoSubsystem).of_subsystem(nqn),
            AdminError::NoNamespace { nqn, nsid } => {
                refused(Reason::NoNamespace).of_namespace(nqn, nsid.0)
            }
            AdminError::NoListener { port_id } => {
                refused(Reason::NoListener).about(ObjectKind::Listener, port_id)
            }
            AdminError::NoController { id } => {
                refused(Reason::NoController).about(ObjectKind::Controller, id.0)
            }
            AdminError::NsidTaken { nqn, nsid } => {
                refused(Reason::NsidTaken).of_namespace(nqn, nsid.0)
            }
            AdminError::ListenerTaken { port_id } => {
                refused(Reason::PortIdTaken).about(ObjectKind::Listener, port_id)
            }
            AdminError::SameContent { nqn, nsid } => {
                refused(Reason::SourceInUse).of_namespace(nqn, nsid.0)
            }
            AdminError::TooMany { .. } => refused(Reason::Limit),
            AdminError::Listener { .. } => refused(Reason::AddressRefused),
            AdminError::Stopped => refused(Reason::Ending),
            _ => refused(Reason::Target),
        }
    }
}
