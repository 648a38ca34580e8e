//! Packing elements into a volume, for tests of several crates.

use std::path::Path;

use transforms::{Chain, ElementType, ViewChain};
use volume::write::{ExtentSpec, FRAME_BYTES_DEFAULT, FileOutput, Options, StreamSpec, Writer};

/// Packs u32 elements into a volume of blocks of 4,096 bytes, as one view.
pub fn pack(path: &Path, chain: &str, elements: &[u8]) {
    pack_with(path, chain, FRAME_BYTES_DEFAULT, 4096, elements);
}

/// With frames and blocks of other sizes.
pub fn pack_with(path: &Path, chain: &str, frame_bytes: u64, lba_bytes: u32, elements: &[u8]) {
    let options = Options {
        lba_bytes,
        threads: 1,
        volume_uuid: None,
        writer: "test".into(),
    };
    let mut writer = Writer::new(FileOutput::create(path, true).unwrap(), options).unwrap();
    let mut spec = StreamSpec::new(Chain::parse(chain, ElementType::U32).unwrap());
    spec.frame_bytes = frame_bytes;
    let stream = writer
        .add_stream(&spec, &mut { elements }, &mut |_| {})
        .unwrap();
    let whole = ExtentSpec::Linear {
        stream: stream.stream,
        first_element: 0,
        elements: stream.elements,
        view: ViewChain::identity(),
    };
    writer.add_view("test", [whole]).unwrap();
    writer.finish().unwrap();
}
