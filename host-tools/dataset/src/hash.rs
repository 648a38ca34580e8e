//! Hashes by the names that MosaicML streaming gives them (`streaming/base/hashing.py`): Python's hashlib, and xxhash.

use std::hash::Hasher;

use md5::Md5;
use sha1::Sha1;
use sha2::digest::DynDigest;
use sha2::{Sha224, Sha256, Sha384, Sha512};
use twox_hash::{XxHash3_64, XxHash3_128, XxHash32, XxHash64};

/// A hash under way.
pub(crate) enum NamedHash {
    Digest(Box<dyn DynDigest + Send>),
    Xxh32(XxHash32),
    Xxh64(XxHash64),
    Xxh3(Box<XxHash3_64>),
    Xxh128(Box<XxHash3_128>),
}

impl NamedHash {
    pub(crate) const KNOWN: [&str; 11] = [
        "md5", "sha1", "sha224", "sha256", "sha384", "sha512", "xxh32", "xxh64", "xxh3_64",
        "xxh3_128", "xxh128",
    ];

    /// `None` for a name that is not known.
    pub(crate) fn new(name: &str) -> Option<NamedHash> {
        fn digest<D: DynDigest + Default + Send + 'static>() -> NamedHash {
            NamedHash::Digest(Box::new(D::default()))
        }
        Some(match name {
            "md5" => digest::<Md5>(),
            "sha1" => digest::<Sha1>(),
            "sha224" => digest::<Sha224>(),
            "sha256" => digest::<Sha256>(),
            "sha384" => digest::<Sha384>(),
            "sha512" => digest::<Sha512>(),
            "xxh32" => NamedHash::Xxh32(XxHash32::with_seed(0)),
            "xxh64" => NamedHash::Xxh64(XxHash64::with_seed(0)),
            "xxh3_64" => NamedHash::Xxh3(Box::new(XxHash3_64::with_seed(0))),
            "xxh3_128" | "xxh128" => NamedHash::Xxh128(Box::new(XxHash3_128::with_seed(0))),
            _ => return None,
        })
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        match self {
            NamedHash::Digest(hash) => hash.update(bytes),
            NamedHash::Xxh32(hash) => hash.write(bytes),
            NamedHash::Xxh64(hash) => hash.write(bytes),
            NamedHash::Xxh3(hash) => hash.write(bytes),
            NamedHash::Xxh128(hash) => hash.write(bytes),
        }
    }

    /// Hexadecimal, as `hexdigest()` gives it.
    pub(crate) fn finish(self) -> String {
        match self {
            NamedHash::Digest(hash) => {
                let digest = hash.finalize();
                digest.iter().map(|byte| format!("{byte:02x}")).collect()
            }
            NamedHash::Xxh32(hash) => format!("{:08x}", hash.finish_32()),
            NamedHash::Xxh64(hash) => format!("{:016x}", hash.finish()),
            NamedHash::Xxh3(hash) => format!("{:016x}", hash.finish()),
            NamedHash::Xxh128(hash) => format!("{:032x}", hash.finish_128()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What Python says of `b"xio"`: hashlib, and the package xxhash.
    #[test]
    fn each_is_what_python_makes() {
        for (name, expected) in [
            ("md5", "5fb0bc4e7d110594272e4ea097d8c28d"),
            ("sha1", "04319247d7c14fd8f16ffdfcbccc4eeaeb464e0d"),
            ("xxh32", "95c5384e"),
            ("xxh64", "6831900e5a74acc0"),
            ("xxh3_64", "8aa09c09362230fb"),
            ("xxh128", "a393e7d0fd4464fd8aa09c09362230fb"),
        ] {
            let mut hash = NamedHash::new(name).unwrap();
            hash.update(b"x");
            hash.update(b"io");
            assert_eq!(hash.finish(), expected, "{name}");
        }
        assert!(
            NamedHash::KNOWN
                .iter()
                .all(|name| NamedHash::new(name).is_some())
        );
        assert!(NamedHash::new("blake2b").is_none());
    }
}
