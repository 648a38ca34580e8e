//! Identities: functions of all that a disk presents.

use erofs::Attributes;
use sha2::{Digest, Sha256};
use volume::identity::{Uuid, version_8};

/// The UUID of a disk, in the making: a hash of fields, each behind its length.
pub(crate) struct Identity(Sha256);

impl Identity {
    /// `scheme` says what is hashed, and how; `label` is the filesystem's name.
    pub(crate) fn new(scheme: &[u8], label: &str) -> Identity {
        let mut identity = Identity(Sha256::new_with_prefix(scheme));
        identity.add(label.as_bytes());
        identity
    }

    pub(crate) fn add(&mut self, field: &[u8]) {
        self.0.update((field.len() as u64).to_le_bytes());
        self.0.update(field);
    }

    /// A name; what is behind it follows.
    pub(crate) fn add_name(&mut self, path: &[u8], attributes: &Attributes) {
        self.add(path);
        self.add(&attributes.permissions.to_le_bytes());
        self.add(&attributes.uid.to_le_bytes());
        self.add(&attributes.gid.to_le_bytes());
        self.add(&attributes.modified.seconds.to_le_bytes());
        self.add(&attributes.modified.nanoseconds.to_le_bytes());
    }

    pub(crate) fn add_directory(&mut self) {
        self.add(b"directory");
    }

    pub(crate) fn add_symlink(&mut self, target: &[u8]) {
        self.add(b"link");
        self.add(target);
    }

    /// `content` are what its bytes are known by.
    pub(crate) fn add_file(&mut self, content: &[&[u8]]) {
        self.add(b"file");
        for field in content {
            self.add(field);
        }
    }

    pub(crate) fn uuid(self) -> Uuid {
        version_8(self.0.finalize().into())
    }
}

/// A function of the disk's identity and the partition's number.
pub(crate) fn of_partition(disk: Uuid, number: u64) -> Uuid {
    let mut hash = Sha256::new_with_prefix(b"xio partition uuid 1");
    hash.update(disk);
    hash.update(number.to_le_bytes());
    version_8(hash.finalize().into())
}
