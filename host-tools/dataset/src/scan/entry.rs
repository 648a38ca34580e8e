//! What has a name in the inputs.

use erofs::Attributes;

use crate::items;

/// A file of the scan, in the order in which they were found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u32);

/// A name in the scan.
#[derive(Debug, Clone)]
pub struct Entry {
    /// From the root on; the root itself has none. Any bytes but NUL.
    pub path: Vec<u8>,
    /// Mode, owner, time.
    pub attributes: Attributes,
    /// What it is.
    pub kind: Kind,
}

impl Entry {
    /// The last name of the path.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        items::split(&self.path).1
    }

    /// The path of the directory that it is in; empty for the root.
    #[must_use]
    pub fn parent(&self) -> &[u8] {
        items::split(&self.path).0
    }

    /// The path for people: what is not UTF-8 and what a terminal takes for commands is escaped.
    #[must_use]
    pub fn shown(&self) -> String {
        erofs::shown(&self.path)
    }

    /// The file behind the name, also behind a link.
    #[must_use]
    pub fn file(&self) -> Option<FileId> {
        match self.kind {
            Kind::File(file) => Some(file),
            Kind::Symlink { file, .. } => file,
            Kind::Directory => None,
        }
    }
}

/// What there can be.
#[derive(Debug, Clone)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A regular file.
    File(FileId),
    /// A symbolic link that stays one.
    Symlink {
        /// Where it points to.
        target: Vec<u8>,
        /// The file of the scan that it leads to, if it leads to one.
        file: Option<FileId>,
    },
}
