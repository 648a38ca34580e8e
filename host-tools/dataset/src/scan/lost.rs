//! What files have that no disk keeps: names that share one file, and extended attributes.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{llistxattr, llistxattr_query};

use super::FileId;

/// Most bytes of the names of a file's attributes (xattr(7), XATTR_LIST_MAX).
const LIST_BYTES_MAX: usize = 64 << 10;
/// Beside `user.`: what programs may do by it, and who may do what.
const OTHERS: [&[u8]; 3] = [
    b"security.capability",
    b"system.posix_acl_access",
    b"system.posix_acl_default",
];

/// How much of it there is, with an example each.
#[derive(Debug, Default)]
pub(super) struct Lost {
    /// Further names of files that have one already: how many, and the first with its file.
    names: u64,
    shared: Option<(String, FileId)>,
    /// Files and folders with extended attributes: how many, the first, and its first attribute.
    attributed: u64,
    attribute: Option<(String, String)>,
}

impl Lost {
    /// `path` is a name of `file`, which another name was of already.
    pub(super) fn shares(&mut self, path: &[u8], file: FileId, about: &Metadata) {
        if about.nlink() < 2 {
            return;
        }
        self.names += 1;
        self.shared
            .get_or_insert_with(|| (erofs::shown(path), file));
    }

    /// Looks at the attributes of what is at `at`. A file system without any, or that does not tell, has none that are lost by us.
    pub(super) fn look(&mut self, at: &Path, path: &[u8], buffer: &mut Vec<u8>) {
        // Most have none, and are asked no more.
        if !llistxattr_query(at).is_ok_and(|bytes| bytes > 0) {
            return;
        }
        buffer.resize(LIST_BYTES_MAX, 0);
        let bytes = llistxattr(at, &mut buffer[..]);
        let names = bytes.ok().and_then(|bytes| buffer.get(..bytes));
        let mut names = names.unwrap_or_default().split(|byte| *byte == 0);
        let kept = |name: &&[u8]| name.starts_with(b"user.") || OTHERS.contains(name);
        if let Some(name) = names.find(kept) {
            self.attributed += 1;
            self.attribute
                .get_or_insert_with(|| (erofs::shown(path), erofs::shown(name)));
        }
    }

    /// A line for each, for whoever looks for them; `name` is that of a file.
    pub(super) fn notes(&self, name: impl Fn(FileId) -> String) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some((path, file)) = &self.shared {
            let (count, first) = (self.names, name(*file));
            let are = match count {
                1 => "1 name is a hard link".to_owned(),
                count => format!("{count} names are hard links"),
            };
            notes.push(format!(
                "{are} to files that have another name too ({path} is {first}): on the disk each name is a file of its own, over bytes that are stored once"
            ));
        }
        if let Some((path, attribute)) = &self.attribute {
            let have = match self.attributed {
                1 => "1 file or folder has".to_owned(),
                count => format!("{count} files and folders have"),
            };
            notes.push(format!(
                "{have} extended attributes ({path}: {attribute}), which a disk does not hold: they are left out"
            ));
        }
        notes
    }
}
