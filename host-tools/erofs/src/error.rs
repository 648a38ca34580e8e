//! What can go wrong, told so that a person knows what, where, and what to do.

use std::io;

use thiserror::Error;

use crate::limits;

/// Why a tree cannot be laid out, or a disk not be read.
#[derive(Debug, Error)]
pub enum ErofsError {
    /// A name that no filesystem of Linux has.
    #[error("the name \"{name}\" {why}")]
    Name {
        /// As text; bytes that are not printable ASCII escaped.
        name: String,
        /// The rule.
        why: &'static str,
    },
    /// Two entries of one name.
    #[error("{path} is in the tree twice")]
    Duplicate {
        /// From the root.
        path: String,
    },
    /// A symbolic link that Linux would not follow.
    #[error("the symbolic link \"{name}\" {why}")]
    Target {
        /// Name of the link.
        name: String,
        /// The rule.
        why: &'static str,
    },
    /// An attribute that its field does not hold.
    #[error("{what} {found}; {rule}")]
    Attribute {
        /// Which.
        what: &'static str,
        /// What was given.
        found: String,
        /// What is possible.
        rule: &'static str,
    },
    /// More inodes than a tree holds.
    #[error(
        "more than {max} files, directories and links; put them on several disks",
        max = limits::INODES_MAX
    )]
    TooManyInodes,
    /// More blocks than can be numbered.
    #[error(
        "the disk would have {blocks} blocks of 4 KiB; EROFS numbers {max}, which is 16 TiB: put the files on several disks",
        max = limits::BLOCKS_MAX
    )]
    DiskTooLarge {
        /// Metadata and payload together.
        blocks: u64,
    },
    /// A file cannot lie where the caller wants it.
    #[error("{path} cannot lie at block {block}: {why}")]
    Place {
        /// From the root.
        path: String,
        /// The first block asked for.
        block: u32,
        /// The rule.
        why: &'static str,
    },
    /// An identifier of another tree.
    #[error("{0} is none of this tree")]
    NotInTree(&'static str),
    /// The caller's blocks could not be read.
    #[error("block {block} cannot be read: {error}")]
    Read {
        /// Which.
        block: u32,
        /// What the reader said.
        error: io::Error,
    },
    /// Nothing that calls itself EROFS.
    #[error("there is no EROFS here: {why}")]
    NotErofs {
        /// What is missing.
        why: &'static str,
    },
    /// EROFS, and this reader is too small for it.
    #[error("{what}: {found}; this is not read here")]
    Unsupported {
        /// Which part of the format.
        what: &'static str,
        /// What is there.
        found: String,
    },
    /// Bytes that cannot be right.
    #[error("{place}: {why}")]
    Corrupt {
        /// Where.
        place: Place,
        /// What is wrong.
        why: String,
    },
}

/// Where something wrong lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The superblock.
    Superblock,
    /// An inode, by its number.
    Inode(u64),
    /// A block of a directory.
    Directory {
        /// Its inode.
        nid: u64,
        /// Which of its blocks.
        block: u64,
    },
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Superblock => f.write_str("superblock"),
            Place::Inode(nid) => write!(f, "inode {nid}"),
            Place::Directory { nid, block } => write!(f, "directory {nid}, its block {block}"),
        }
    }
}

/// Bytes of a name or a path as text: characters as they are, but control characters, and what is not UTF-8, as `\\x1b`.
#[must_use]
pub fn shown(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for character in chunk.valid().chars() {
            if character.is_control() {
                let mut bytes = [0; 4];
                escape(character.encode_utf8(&mut bytes).as_bytes(), &mut text);
            } else {
                text.push(character);
            }
        }
        escape(chunk.invalid(), &mut text);
    }
    text
}

fn escape(bytes: &[u8], into: &mut String) {
    for byte in bytes {
        into.push_str(&format!("\\x{byte:02x}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_shown_as_they_are_read() {
        for (name, text) in [
            (&b"plain name's.bin"[..], "plain name's.bin"),
            ("données/日本語.txt".as_bytes(), "données/日本語.txt"),
            (b"a\x1b[31m\n\x7f", "a\\x1b[31m\\x0a\\x7f"),
            ("\u{85}".as_bytes(), "\\xc2\\x85"),
            (b"caf\xe9 \xf0\x9f\x98", "caf\\xe9 \\xf0\\x9f\\x98"),
            (b"", ""),
        ] {
            assert_eq!(shown(name), text);
        }
    }
}
