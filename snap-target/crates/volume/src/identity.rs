//! Identifiers that a host sees, derived so that content and identity change together (docs/format.md, "Namespace UUID").

use sha2::{Digest, Sha256};

/// A UUID: 16 bytes in the order of RFC 9562, which is the order in which they are printed.
pub type Uuid = [u8; 16];

/// The SHA-256 of `bytes`.
#[must_use]
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// The UUID (and NGUID) of the namespace that a revision of a view of a volume is.
#[must_use]
pub fn namespace_uuid(volume: &Uuid, view: &Uuid, revision: &Uuid) -> Uuid {
    let mut hash = Sha256::new();
    hash.update(b"xio namespace uuid 1");
    hash.update(volume);
    hash.update(view);
    hash.update(revision);
    version_8(hash.finalize().into())
}

/// A UUID from a hash: its first 16 bytes, marked as version 8 (RFC 9562, section 5.8).
#[must_use]
pub fn version_8(hash: [u8; 32]) -> Uuid {
    let mut uuid = [0; 16];
    uuid.copy_from_slice(&hash[..16]);
    uuid[6] = uuid[6] & 0x0F | 0x80;
    uuid[8] = uuid[8] & 0x3F | 0x80;
    uuid
}

/// `8-4-4-4-12` hexadecimal digits.
#[must_use]
pub fn uuid_text(uuid: &Uuid) -> String {
    let mut text = String::with_capacity(36);
    for (at, byte) in uuid.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}
