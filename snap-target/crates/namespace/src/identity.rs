//! What a namespace is called for ever: UUID and NGUID.

use sha2::{Digest, Sha256};

/// The identity of a namespace. The same content keeps it across restarts; new content has a new one, so that a mount is never swapped
/// under its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// RFC 9562, version 8. The NGUID is the same 16 bytes. For a view of a volume it is what docs/format.md says, "Namespace UUID".
    pub uuid: [u8; 16],
}

impl Identity {
    /// Of a raw store, from what stays the same as long as its content does: the canonical path of a file, fresh random bytes for memory.
    #[must_use]
    pub fn of_raw(kind: &str, what: &[u8]) -> Self {
        let mut hash = Sha256::new();
        hash.update(b"xio raw namespace uuid 1");
        hash.update([0]);
        hash.update(kind.as_bytes());
        hash.update([0]);
        hash.update(what);
        let digest = hash.finalize();
        let mut uuid = [0; 16];
        uuid.copy_from_slice(&digest[..16]);
        uuid[6] = uuid[6] & 0x0F | 0x80;
        uuid[8] = uuid[8] & 0x3F | 0x80;
        Self { uuid }
    }

    /// Of a mixed namespace, from what its parts are and the blocks at which they begin: what lies elsewhere is another disk. The last part may grow.
    #[must_use]
    pub fn of_parts(parts: impl Iterator<Item = (Identity, u64)>) -> Self {
        let mut what = Vec::new();
        for (part, first_lba) in parts {
            what.extend_from_slice(&part.uuid);
            what.extend_from_slice(&first_lba.to_le_bytes());
        }
        Self::of_raw("mixed", &what)
    }
}

#[cfg(test)]
mod tests {
    use super::Identity;

    #[test]
    fn a_raw_identity_is_a_version_8_uuid_and_depends_on_kind_and_content() {
        let file = Identity::of_raw("file", b"/data/disk.raw");
        assert_eq!(file, Identity::of_raw("file", b"/data/disk.raw"));
        assert_ne!(file, Identity::of_raw("file", b"/data/other.raw"));
        assert_ne!(file, Identity::of_raw("mem", b"/data/disk.raw"));
        assert_eq!((file.uuid[6] >> 4, file.uuid[8] >> 6), (8, 2));
    }
}
