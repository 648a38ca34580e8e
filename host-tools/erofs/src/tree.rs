//! What is to be on the disk: directories, files and symbolic links, without their payload.

use std::time::{Duration, SystemTime};

use crate::error::{ErofsError, shown};
use crate::limits::{INODES_MAX, NAME_BYTES_MAX, TARGET_BYTES_MAX};
use crate::raw::MODE_PERMISSIONS;

/// A moment, as inodes hold it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Time {
    /// Since 1970, UTC; negative before.
    pub seconds: i64,
    /// From 0 to 999,999,999, to be added.
    pub nanoseconds: u32,
}

impl Time {
    /// `None` beyond what the system can say.
    #[must_use]
    pub fn to_system(self) -> Option<SystemTime> {
        let seconds = Duration::from_secs(self.seconds.unsigned_abs());
        let whole = if self.seconds < 0 {
            SystemTime::UNIX_EPOCH.checked_sub(seconds)
        } else {
            SystemTime::UNIX_EPOCH.checked_add(seconds)
        };
        whole?.checked_add(Duration::from_nanos(self.nanoseconds.into()))
    }
}

/// What an inode holds besides its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// 0 to 0o7777.
    pub permissions: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last modification.
    pub modified: Time,
}

impl Attributes {
    /// Of root, modified in 1970.
    #[must_use]
    pub fn new(permissions: u16) -> Attributes {
        Attributes {
            permissions,
            uid: 0,
            gid: 0,
            modified: Time::default(),
        }
    }

    fn check(&self) -> Result<(), ErofsError> {
        if self.permissions & !MODE_PERMISSIONS != 0 {
            return Err(ErofsError::Attribute {
                what: "permissions",
                found: format!("{:#o}", self.permissions),
                rule: "0 to 0o7777 are possible",
            });
        }
        self.modified.check()
    }
}

impl Time {
    pub(crate) fn check(self) -> Result<(), ErofsError> {
        if self.nanoseconds < 1_000_000_000 {
            return Ok(());
        }
        Err(ErofsError::Attribute {
            what: "nanoseconds",
            found: self.nanoseconds.to_string(),
            rule: "0 to 999999999 are possible",
        })
    }
}

/// A directory of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirectoryId(pub(crate) u32);

/// A file of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub(crate) u32);

/// A run of [`Tree::text`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Text {
    start: usize,
    bytes: u16,
}

#[derive(Debug)]
pub(crate) enum Content {
    Directory { children: u32, subdirectories: u32 },
    File { bytes: u64 },
    Symlink { target: Text },
}

#[derive(Debug)]
pub(crate) struct Node {
    /// The root is its own.
    pub parent: u32,
    pub name: Text,
    pub attributes: Attributes,
    pub content: Content,
}

/// A tree that grows. Memory: about 80 bytes an inode, and the bytes of names and targets.
///
/// Names are any bytes but `/` and NUL, 1 to 255 of them. That no directory has a name twice is seen by [`lay_out`](Tree::lay_out).
#[derive(Debug)]
pub struct Tree {
    /// The root first, parents before their children.
    pub(crate) nodes: Vec<Node>,
    text: Vec<u8>,
}

impl Tree {
    /// A root without anything in it.
    ///
    /// # Errors
    /// Attributes that an inode does not hold.
    pub fn new(root: Attributes) -> Result<Tree, ErofsError> {
        root.check()?;
        let node = Node {
            parent: 0,
            name: Text { start: 0, bytes: 0 },
            attributes: root,
            content: Content::Directory {
                children: 0,
                subdirectories: 0,
            },
        };
        Ok(Tree {
            nodes: vec![node],
            text: Vec::new(),
        })
    }

    /// The root.
    #[must_use]
    pub fn root(&self) -> DirectoryId {
        DirectoryId(0)
    }

    /// Adds a directory.
    ///
    /// # Errors
    /// A name or attributes that cannot be, or too many inodes.
    pub fn add_directory(
        &mut self,
        parent: DirectoryId,
        name: &[u8],
        attributes: Attributes,
    ) -> Result<DirectoryId, ErofsError> {
        let content = Content::Directory {
            children: 0,
            subdirectories: 0,
        };
        self.add(parent, name, attributes, content).map(DirectoryId)
    }

    /// Adds a file of `bytes` bytes, which the caller presents at the blocks that the layout gives it.
    ///
    /// # Errors
    /// A name or attributes that cannot be, or too many inodes.
    pub fn add_file(
        &mut self,
        parent: DirectoryId,
        name: &[u8],
        bytes: u64,
        attributes: Attributes,
    ) -> Result<FileId, ErofsError> {
        self.add(parent, name, attributes, Content::File { bytes })
            .map(FileId)
    }

    /// Adds a symbolic link. Its target is any bytes but NUL, 1 to 4,095 of them, and need not be in the tree.
    ///
    /// # Errors
    /// A name, target or attributes that cannot be, or too many inodes.
    pub fn add_symlink(
        &mut self,
        parent: DirectoryId,
        name: &[u8],
        target: &[u8],
        attributes: Attributes,
    ) -> Result<(), ErofsError> {
        let refused = |why| ErofsError::Target {
            name: shown(name),
            why,
        };
        if target.is_empty() {
            return Err(refused("has an empty target"));
        }
        if target.contains(&0) {
            return Err(refused("has a NUL in its target"));
        }
        let bytes = u16::try_from(target.len())
            .ok()
            .filter(|&bytes| usize::from(bytes) <= TARGET_BYTES_MAX)
            .ok_or_else(|| refused("has a target of more than 4095 bytes"))?;
        let start = self.text.len();
        self.text.extend_from_slice(target);
        let target = Text { start, bytes };
        let added = self.add(parent, name, attributes, Content::Symlink { target });
        if added.is_err() {
            self.text.truncate(start);
        }
        added.map(|_| ())
    }

    fn add(
        &mut self,
        parent: DirectoryId,
        name: &[u8],
        attributes: Attributes,
        content: Content,
    ) -> Result<u32, ErofsError> {
        let name_bytes = check_name(name)?;
        attributes.check()?;
        if self.nodes.len() >= INODES_MAX {
            return Err(ErofsError::TooManyInodes);
        }
        let index = u32::try_from(self.nodes.len()).map_err(|_| ErofsError::TooManyInodes)?;
        let above = self.nodes.get_mut(parent.0 as usize);
        let Some(Content::Directory {
            children,
            subdirectories,
        }) = above.map(|node| &mut node.content)
        else {
            return Err(ErofsError::NotInTree("the directory"));
        };
        *children += 1;
        if matches!(content, Content::Directory { .. }) {
            *subdirectories += 1;
        }
        let start = self.text.len();
        self.text.extend_from_slice(name);
        self.nodes.push(Node {
            parent: parent.0,
            name: Text {
                start,
                bytes: name_bytes,
            },
            attributes,
            content,
        });
        Ok(index)
    }

    /// The bytes of a name or target.
    pub(crate) fn text(&self, text: Text) -> &[u8] {
        let end = text.start + usize::from(text.bytes);
        self.text.get(text.start..end).unwrap_or_default()
    }

    /// The name of a node.
    pub(crate) fn name(&self, node: u32) -> &[u8] {
        self.text(self.nodes[node as usize].name)
    }

    /// The path of a node from the root, for people.
    pub(crate) fn path(&self, node: u32) -> String {
        let mut names = Vec::new();
        let mut at = node;
        while at != 0 {
            names.push(shown(self.name(at)));
            at = self.nodes[at as usize].parent;
        }
        names.reverse();
        format!("/{}", names.join("/"))
    }
}

/// The length of a name that may be.
fn check_name(name: &[u8]) -> Result<u16, ErofsError> {
    let refused = |why| ErofsError::Name {
        name: shown(name),
        why,
    };
    if name.is_empty() {
        return Err(refused("is empty"));
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(refused("has more than 255 bytes"));
    }
    if matches!(name, b"." | b"..") {
        return Err(refused("means a directory itself, or the one above"));
    }
    if name.iter().any(|&byte| matches!(byte, b'/' | 0)) {
        return Err(refused("has a '/' or NUL in it"));
    }
    u16::try_from(name.len()).map_err(|_| refused("has more than 255 bytes"))
}
