//! A store opened once and shared by all reactors.

use std::fmt;
use std::sync::Arc;

use reactor::Ring;

use crate::contract::{Limits, Store};
use crate::error::StoreError;
use crate::file::FileBackend;
use crate::mem::MemBackend;
use crate::null::{NullBackend, Reads};
use crate::spec::StoreSpec;

/// Whether a store may be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads only.
    ReadOnly,
    /// Reads and changes.
    ReadWrite,
}

/// Whether file I/O goes around the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caching {
    /// O_DIRECT where the file system accepts it, through the page cache where not.
    DirectIfPossible,
    /// Always through the page cache.
    PageCache,
}

/// How to open a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenOptions {
    /// May it be changed.
    pub access: Access,
    /// Files: which way.
    pub caching: Caching,
}

impl OpenOptions {
    /// For reads, around the page cache where possible.
    #[must_use]
    pub fn read_only() -> Self {
        Self {
            access: Access::ReadOnly,
            caching: Caching::DirectIfPossible,
        }
    }

    /// For reads and changes, around the page cache where possible.
    #[must_use]
    pub fn read_write() -> Self {
        Self {
            access: Access::ReadWrite,
            caching: Caching::DirectIfPossible,
        }
    }

    /// The same through the page cache.
    #[must_use]
    pub fn page_cache(self) -> Self {
        Self {
            caching: Caching::PageCache,
            ..self
        }
    }
}

/// Something that is wrong with a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What, and where: a line for a person.
    pub text: String,
    /// What to do about it.
    pub mend: &'static str,
}

impl PartialEq<&str> for Problem {
    fn eq(&self, text: &&str) -> bool {
        self.text == *text
    }
}

/// What a kind of store implements: the part that is shared by the reactors.
pub trait Backend: fmt::Debug + Send + Sync {
    /// Its name in errors and tables, such as `file:disk.raw`.
    fn name(&self) -> &str;

    /// How it works at the moment, for a person: "direct I/O, aligned to 512 bytes".
    fn describe(&self) -> String;

    /// What its handles declare.
    fn limits(&self) -> Limits;

    /// Tells what is behind its name from what may take that name: of a file its inode. 0: the name says all there is to say.
    fn instance(&self) -> u64 {
        0
    }

    /// What is wrong at the moment though it works, or may again. Nothing, where nobody can tell.
    fn problems(&self) -> Vec<Problem> {
        Vec::new()
    }

    /// A handle for the thread of `ring`.
    ///
    /// # Errors
    /// [`StoreError::Resources`] if the ring's tables are full or memory is short.
    fn open_handle(&self, ring: &Ring) -> Result<Box<dyn Store>, StoreError>;
}

/// A store opened once, from which each reactor opens its handle. Cheap to clone.
#[derive(Clone, Debug)]
pub struct SharedStore(Arc<dyn Backend>);

impl SharedStore {
    /// Opens what `spec` names.
    ///
    /// # Errors
    /// [`StoreError::Open`] or [`StoreError::Unfit`], with the path and what to do.
    pub fn open(spec: &StoreSpec, options: OpenOptions) -> Result<Self, StoreError> {
        let writable = options.access == Access::ReadWrite;
        Ok(match spec {
            StoreSpec::Mem { bytes } => Self::new(MemBackend::new(*bytes, writable)?),
            StoreSpec::Null { bytes } => {
                Self::new(NullBackend::new(*bytes, writable, Reads::Zeros)?)
            }
            StoreSpec::Void { bytes } => {
                Self::new(NullBackend::new(*bytes, writable, Reads::Anything)?)
            }
            StoreSpec::File { path } => Self::new(FileBackend::open(path, options)?),
        })
    }

    /// Wraps a kind of store of one's own, or a decorator.
    #[must_use]
    pub fn new(backend: impl Backend + 'static) -> Self {
        Self(Arc::new(backend))
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// How it works, for a person.
    #[must_use]
    pub fn describe(&self) -> String {
        self.0.describe()
    }

    /// What tells it from another that takes its name.
    #[must_use]
    pub fn instance(&self) -> u64 {
        self.0.instance()
    }

    /// What is wrong at the moment though it works, or may again.
    #[must_use]
    pub fn problems(&self) -> Vec<Problem> {
        self.0.problems()
    }

    /// What its handles declare.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.0.limits()
    }

    /// Size.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.limits().bytes
    }

    /// A handle for the thread of `ring`.
    ///
    /// # Errors
    /// [`StoreError::Resources`]; [`StoreError::Unfit`] for a store that declares less than the contract asks of every store.
    pub fn open_handle(&self, ring: &Ring) -> Result<Box<dyn Store>, StoreError> {
        self.limits().check().map_err(|why| StoreError::Unfit {
            store: self.name().to_owned(),
            why,
        })?;
        self.0.open_handle(ring)
    }
}
