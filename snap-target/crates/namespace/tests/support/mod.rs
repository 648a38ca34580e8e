//! Volumes for tests.

#![allow(dead_code, reason = "each test program uses a part")]

mod packing;

use std::path::{Path, PathBuf};

use store::{OpenOptions, SharedStore, StoreSpec};
use volume::Volume;
use volume::blocking::Files;
use volume::write::FRAME_BYTES_DEFAULT;

use packing::{pack, pack_with};

/// Elements of the volume: nearly 19 frames of 64 KiB.
pub const ELEMENTS: u32 = 300_000;

/// The presented bytes.
pub fn source() -> Vec<u8> {
    (0..ELEMENTS)
        .flat_map(|i| (i.wrapping_mul(2_654_435_761) % 50_000).to_le_bytes())
        .collect()
}

/// A volume's file, which is this process' own.
fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}.xio", std::process::id()))
}

/// A packed volume, of [`source`] where nothing else is said, removed when dropped.
pub struct Packed(PathBuf);

impl Packed {
    pub fn new(name: &str, chain: &str) -> Packed {
        Packed::with_frames(name, chain, FRAME_BYTES_DEFAULT)
    }

    /// Of other elements.
    pub fn of(name: &str, chain: &str, elements: &[u8]) -> Packed {
        let path = path(name);
        pack(&path, chain, elements);
        Packed(path)
    }

    /// With frames of another length.
    pub fn with_frames(name: &str, chain: &str, frame_bytes: u64) -> Packed {
        Packed::with(name, chain, frame_bytes, 4096)
    }

    /// With blocks of another size.
    pub fn with_blocks(name: &str, chain: &str, lba_bytes: u32) -> Packed {
        Packed::with(name, chain, FRAME_BYTES_DEFAULT, lba_bytes)
    }

    fn with(name: &str, chain: &str, frame_bytes: u64, lba_bytes: u32) -> Packed {
        let path = path(name);
        pack_with(&path, chain, frame_bytes, lba_bytes, &source());
        Packed(path)
    }

    pub fn store(&self) -> SharedStore {
        SharedStore::open(
            &StoreSpec::File {
                path: self.0.clone(),
            },
            OpenOptions::read_only().page_cache(),
        )
        .unwrap()
    }

    pub fn volume(&self) -> Volume {
        let (file, bytes) = Files::open(&self.0).unwrap();
        volume::blocking::open(&file, bytes).unwrap()
    }
}

impl Drop for Packed {
    fn drop(&mut self) {
        let _removed = std::fs::remove_file(&self.0);
    }
}
