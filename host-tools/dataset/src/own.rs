//! What a disk says of itself: where that lies, and how a copy of it is told from a user's file.

use std::io::Read;

use serde::Deserialize;

/// The directory that is not from the inputs.
pub const OWN_FOLDER: &[u8] = b".xio";
/// What is in it.
pub const MANIFEST_NAME: &str = "manifest.json";
/// Both, from the root on.
pub const MANIFEST: &[u8] = b".xio/manifest.json";

/// Whether `text` is what a disk says of itself, of whatever version. What cannot be read is not.
pub fn is_manifest(text: impl Read) -> bool {
    #[derive(Deserialize)]
    struct Marked {
        #[serde(rename = "xio_manifest")]
        _version: u64,
    }
    serde_json::from_reader::<_, Marked>(text).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_is_known_by_its_version() {
        let made = br#"{"lossy": false, "sources": [{"path": "a"}], "xio_manifest": 1}"#;
        assert!(is_manifest(&made[..]));
        for other in [
            "",
            "5",
            "{}",
            r#"{"name": "xio_manifest"}"#,
            r#"{"xio_manifest": "1"}"#,
        ] {
            assert!(!is_manifest(other.as_bytes()), "{other}");
        }
        let cut = &made[..made.len() - 1];
        assert!(!is_manifest(cut));
    }
}
