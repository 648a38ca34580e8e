//! The volume format: what docs/format.md specifies. `raw` holds the bytes as they lie; `superblock`, `table`, and a module for each
//! kind of entry turn them, once, into values that the rest of the crate can trust.

mod blob;
mod chain;
mod directory;
pub mod extent;
pub(crate) mod field;
pub mod raw;
mod source;
mod stream;
pub mod superblock;
pub mod table;
mod view;

use std::fmt;

pub(crate) use blob::check_blob_kind;
pub use blob::{Blob, BlobKind};
pub use chain::ChainUse;
pub(crate) use directory::Bounds;
pub use directory::Digest;
pub use extent::{Extent, Frame, Mapping};
pub use source::{Source, SourceKind};
pub use stream::{Layout, Stream};
pub use superblock::{Candidate, Feature, Superblock};
pub use table::{Table, TableKind};
pub use view::View;
pub(crate) use view::is_view_name;

/// Which source: 0 is the volume's own store, the others are in the table of sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SourceId(pub u32);

impl SourceId {
    /// The volume's own store.
    pub const OWN: SourceId = SourceId(0);
}

/// Which stream of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamIndex(pub u32);

/// Which chain of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChainIndex(pub u32);

/// Which blob of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlobIndex(pub u32);

/// Which view of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ViewIndex(pub u32);

impl fmt::Display for SourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            SourceId::OWN => f.write_str("the volume"),
            SourceId(index) => write!(f, "source {index}"),
        }
    }
}
