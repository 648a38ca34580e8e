//! Volumes for tests.

#![allow(dead_code, reason = "each test program uses a part")]

use std::path::{Path, PathBuf};

use store::{OpenOptions, SharedStore, StoreSpec};
use transforms::{Chain, ElementType, ViewChain};
use volume::Volume;
use volume::blocking::Files;
use volume::write::{ExtentSpec, FRAME_BYTES_DEFAULT, FileOutput, Options, StreamSpec, Writer};

/// Elements of the volume: nearly 19 frames of 64 KiB.
pub const ELEMENTS: u32 = 300_000;

/// The presented bytes.
pub fn source() -> Vec<u8> {
    (0..ELEMENTS)
        .flat_map(|i| (i.wrapping_mul(2_654_435_761) % 50_000).to_le_bytes())
        .collect()
}

/// A packed volume of [`source`], removed when dropped.
pub struct Packed(PathBuf);

impl Packed {
    pub fn new(name: &str, chain: &str) -> Packed {
        Packed::with_frames(name, chain, FRAME_BYTES_DEFAULT)
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
        let path = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("{name}-{}.xio", std::process::id()));
        let options = Options {
            lba_bytes,
            threads: 1,
            volume_uuid: None,
            writer: "test".into(),
        };
        let mut writer = Writer::new(FileOutput::create(&path, true).unwrap(), options).unwrap();
        let mut spec = StreamSpec::new(Chain::parse(chain, ElementType::U32).unwrap());
        spec.frame_bytes = frame_bytes;
        let stream = writer
            .add_stream(&spec, &mut source().as_slice(), &mut |_| {})
            .unwrap();
        let whole = ExtentSpec::Linear {
            stream: stream.stream,
            first_element: 0,
            elements: stream.elements,
            view: ViewChain::identity(),
        };
        writer.add_view("test", [whole]).unwrap();
        writer.finish().unwrap();
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
