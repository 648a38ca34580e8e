//! What a namespace must remember through restarts and power loss besides its data: reservations, blocks marked uncorrectable, write protection.

use std::fmt;
use std::sync::Arc;

/// What a record is about. A namespace has at most one record of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RecordKind {
    /// Registrants and the reservation (PTPL).
    Reservations,
    /// Blocks that Write Uncorrectable marked.
    Uncorrectable,
    /// The state that Set Features 84h left.
    WriteProtection,
}

impl RecordKind {
    /// Its name in file names and messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reservations => "reservations",
            Self::Uncorrectable => "uncorrectable",
            Self::WriteProtection => "write-protection",
        }
    }
}

/// A record that could not be put on stable storage, or read from it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the record of {kind} cannot be kept: {why}", kind = kind.name())]
pub struct KeepError {
    /// Which record.
    pub kind: RecordKind,
    /// File, and what the system said.
    pub why: String,
}

/// Told, once and on any thread, when a record is on stable storage or could not be put there.
pub type Saved = Box<dyn FnOnce(Result<(), KeepError>) + Send>;

/// Keeps the records of one namespace.
///
/// Contract: [`Keeper::save`] never blocks. Saves of one kind take effect in their order; after a crash at any moment the record is the last one whose
/// `Saved` was told of success, or a later one, whole. [`Keeper::load`] may block: it is for whoever attaches the namespace, not for a reactor.
pub trait Keeper: Send + Sync + fmt::Debug {
    /// Whether records survive the process and power loss.
    fn is_durable(&self) -> bool;

    /// Replaces a record; an empty one is as good as none.
    fn save(&self, kind: RecordKind, bytes: Vec<u8>, saved: Saved);

    /// The record as last saved; none where there never was one.
    ///
    /// # Errors
    /// A record that is there and cannot be read, or is damaged: the namespace must not be attached as if there were none.
    fn load(&self, kind: RecordKind) -> Result<Option<Vec<u8>>, KeepError>;
}

/// Keeps nothing: for namespaces whose data do not survive either.
#[derive(Clone, Copy, Debug, Default)]
pub struct Forgetful;

impl Forgetful {
    /// As a namespace holds it.
    #[must_use]
    pub fn keeper() -> Arc<dyn Keeper> {
        Arc::new(Self)
    }
}

impl Keeper for Forgetful {
    fn is_durable(&self) -> bool {
        false
    }

    fn save(&self, _kind: RecordKind, _bytes: Vec<u8>, saved: Saved) {
        saved(Ok(()));
    }

    fn load(&self, _kind: RecordKind) -> Result<Option<Vec<u8>>, KeepError> {
        Ok(None)
    }
}
