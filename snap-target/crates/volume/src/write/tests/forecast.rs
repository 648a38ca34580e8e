//! A forecast of a volume's length is its length, where what its streams take is known.

use super::*;
use crate::identity::sha256;
use crate::write::{FileOutput, Nowhere, Region, ViewSpec};

/// What is done with a stream of either writer: views of many extents, of which one has a manifest.
fn present<O: Output>(writer: &mut Writer<O>, streams: &[Written], manifest_bytes: usize) {
    for (number, stream) in streams.iter().enumerate() {
        let some = |first_element| ExtentSpec::Linear {
            stream: stream.stream,
            first_element,
            elements: (stream.elements - first_element).min(40),
            view: ViewChain::identity(),
        };
        let each = (0..stream.elements).step_by(64).map(some);
        let view = ViewSpec {
            name: format!("view {number}"),
            manifest: (number == 0).then(|| vec![b' '; manifest_bytes]),
            lossy: false,
        };
        writer.add_view(view, each).unwrap();
    }
}

#[test]
fn the_length_of_stored_and_mapped_streams_is_foretold() {
    let folder = tempfile::tempdir().unwrap();
    let data = values(300_000, 1 << 14);
    std::fs::write(folder.path().join("data.bin"), &data).unwrap();
    let unchecked = StreamSpec {
        integrity: Integrity::None,
        ..spec("u16", ElementType::U32, 4096)
    };
    let specs = [
        spec("u16", ElementType::U32, 4096),
        spec("lz4", ElementType::U32, 4096),
        spec("none", ElementType::U32, 4096),
        unchecked,
    ];
    let region = |offset, elements| Region {
        element: ElementType::U16,
        offset,
        elements,
    };
    let regions = [region(0, 5), region(4_000, 90), region(9_001, 200_000)];
    for (bytes, manifest_bytes) in [(0, 0), (4, 1), (40_000, 4096), (data.len(), 70_000)] {
        let path = folder.path().join(format!("{bytes}.xio"));
        let mut writer =
            Writer::new(FileOutput::create(&path, false).unwrap(), options(2)).unwrap();
        let mut guess = Writer::new(Nowhere, options(2)).unwrap();
        let (mut made, mut assumed) = (Vec::new(), Vec::new());
        for spec in &specs {
            let written = writer.add_stream(spec, &mut &data[..bytes], &mut |_| {});
            let written = written.unwrap();
            let (source, stored) = (written.source_bytes, written.stored_bytes);
            assumed.push(guess.assume_stream(spec, source, stored).unwrap());
            made.push(written);
        }
        let file = File::open(folder.path().join("data.bin")).unwrap();
        let mapped = writer.map_file(b"data.bin", &file, &regions, &mut |_| {});
        made.extend(mapped.unwrap().streams);
        let file_bytes = data.len() as u64;
        assumed.extend(
            guess
                .assume_file(b"data.bin", file_bytes, &regions)
                .unwrap(),
        );
        for (made, assumed) in made.iter().zip(&assumed) {
            let lengths = |it: &Written| (it.stream, it.source_bytes, it.elements, it.stored_bytes);
            assert_eq!(lengths(assumed), lengths(made));
        }
        present(&mut writer, &made, manifest_bytes);
        present(&mut guess, &assumed, manifest_bytes);
        let foretold = guess.volume_bytes();
        assert_eq!(foretold, writer.finish().unwrap().volume_bytes, "{bytes}");
        assert_eq!(std::fs::metadata(&path).unwrap().len(), foretold);
    }
    // Digests are no zeros, which would compress in a manifest.
    let mut guess = Writer::new(Nowhere, options(1)).unwrap();
    let written = guess.assume_stream(&specs[0], 8, 4).unwrap();
    assert_eq!(written.sha256, sha256(&0_u32.to_le_bytes()));
}
