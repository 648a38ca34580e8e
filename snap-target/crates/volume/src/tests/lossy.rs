//! What the tests of quantized streams share: numbers in groups of every size, streams of them, and golden volumes.

use std::fs;

use transforms::{Chain, ElementType, Scratch, ViewChain};

use super::golden::{digests, folder, hex};
use super::sample::Memory;
use crate::blocking::Reader;
use crate::identity::sha256;
use crate::verify::verify;
use crate::write::{ExtentSpec, Options, StreamSpec, ViewSpec, Writer, Written};
use crate::{StreamIndex, ViewIndex};

use ElementType::{F16, F32};

/// Numbers `from` to `from + count` of fixtures/golden-vectors/grouped.py, of groups of so many, in f32.
pub(super) fn numbers(group: u32, from: u32, count: u32) -> Vec<u8> {
    let number = |index: u32| {
        let noise = index.wrapping_mul(2_654_435_761);
        let exponent = 15 + index / group % 134 - (noise >> 4) % 8;
        noise & 0x807F_FFFF | exponent << 23
    };
    let all = (from..from + count).map(number);
    all.flat_map(u32::to_le_bytes).collect()
}

/// These numbers, none larger than `limit`.
pub(super) fn clamped(numbers: &[u8], limit: f32) -> Vec<u8> {
    let numbers = numbers.as_chunks().0.iter();
    let clamped = numbers.map(|it| f32::from_le_bytes(*it).clamp(-limit, limit));
    clamped.flat_map(f32::to_le_bytes).collect()
}

/// f32 as a chain packs them.
pub(super) fn narrowed(chain: &str, source: &[u8]) -> Vec<u8> {
    let chain = Chain::parse(chain, F32).unwrap();
    let bytes = chain.packed_bytes(source.len() as u64 / 4);
    let mut narrowed = vec![0; bytes as usize];
    chain
        .encode_frame(source, &mut Scratch::new(), &mut narrowed)
        .unwrap();
    narrowed
}

/// Numbers in a type; those of f16 are clamped to what it holds.
pub(super) fn in_type(numbers: &[u8], of: ElementType) -> Vec<u8> {
    let limit = if of == F16 { 65_504.0 } else { f32::MAX };
    narrowed(of.name(), &clamped(numbers, limit))
}

pub(super) fn options(volume_uuid: &[u8; 16], threads: usize) -> Options {
    Options {
        lba_bytes: 4096,
        threads,
        volume_uuid: Some(*volume_uuid),
        writer: "golden volumes, version 1".into(),
    }
}

/// All of a stream, presented in a type.
pub(super) fn view(
    name: impl Into<String>,
    stream: &Written,
    of: ElementType,
    view: &str,
) -> (ViewSpec, [ExtentSpec; 1]) {
    let spec = ViewSpec {
        name: name.into(),
        manifest: Some(b"{}".to_vec()),
        lossy: true,
    };
    let extent = ExtentSpec::Linear {
        stream: stream.stream,
        first_element: 0,
        elements: stream.elements,
        view: ViewChain::parse(view, of).unwrap(),
    };
    (spec, [extent])
}

/// A volume of one stream of f32, with the views that `add_views` adds.
pub(super) fn written(
    options: Options,
    spec: &StreamSpec,
    source: &[u8],
    add_views: impl FnOnce(&mut Writer<&mut Memory>, &Written),
) -> (Vec<u8>, Written) {
    let mut memory = Memory::default();
    let mut writer = Writer::new(&mut memory, options).unwrap();
    let stream = writer
        .add_stream(spec, &mut &source[..], &mut |_| {})
        .unwrap();
    add_views(&mut writer, &stream);
    writer.finish().unwrap();
    (memory.bytes, stream)
}

/// Views of all of a stream of f32, each named by the type that it presents.
pub(super) fn present(writer: &mut Writer<&mut Memory>, stream: &Written, types: &[&str]) {
    for presented in types {
        let (view, extents) = view(*presented, stream, F32, presented);
        writer.add_view(view, extents).unwrap();
    }
}

/// What is read back of the numbers, which is not what they were, and is what the volume records.
pub(super) fn read_back(spec: &StreamSpec, source: &[u8], stream: &Written) -> Vec<u8> {
    let mut expected = vec![0; source.len()];
    spec.chain.read_back(source, &mut expected).unwrap();
    assert_ne!(expected, source);
    assert_eq!(stream.elements_sha256, sha256(&expected));
    expected
}

/// A reader of a volume that is whole.
pub(super) fn reader_of<'a>(image: &'a [u8], what: &str) -> Reader<&'a [u8]> {
    let store_bytes = image.len() as u64;
    let report = verify(&image, store_bytes, &mut |_| {}).unwrap();
    assert!(report.is_clean(), "{what}: {:?}", report.damage);
    Reader::open(image, store_bytes, 1 << 20).unwrap()
}

/// Reads every length from every start, as far as `expected` goes.
pub(super) fn check_ranges(
    reader: &mut Reader<&[u8]>,
    expected: &[u8],
    starts: &[usize],
    lens: &[usize],
    what: &str,
) {
    for &start in starts {
        for &len in lens {
            let len = len.min(expected.len() - start);
            let mut part = vec![0; len];
            reader.read(start as u64, &mut part).unwrap();
            let is_expected = part == expected[start..start + len];
            assert!(is_expected, "{what}: {len} from {start}");
        }
    }
}

/// The first so many bytes that a view presents.
pub(super) fn all_of(reader: &mut Reader<&[u8]>, view: u32, bytes: usize) -> Vec<u8> {
    let volume = reader.volume().with_view(ViewIndex(view)).unwrap();
    reader.set_volume(volume);
    let mut all = vec![0; bytes];
    reader.read(0, &mut all).unwrap();
    all
}

/// A golden volume of several streams, and of what each is presented in.
pub(super) struct Golden<'a> {
    pub(super) file: &'a str,
    pub(super) volume_uuid: &'a [u8; 16],
    /// Chain, source, and the types that it is presented in.
    pub(super) streams: &'a [(&'a str, ElementType, &'a [&'a str])],
    /// The numbers in f32.
    pub(super) numbers: Vec<u8>,
    pub(super) spec: fn(chain: &str, of: ElementType, source: &[u8]) -> StreamSpec,
}

impl Golden<'_> {
    pub(super) fn make(&self) {
        let mut memory = Memory::default();
        let mut writer = Writer::new(&mut memory, options(self.volume_uuid, 1)).unwrap();
        for &(chain, of, views) in self.streams {
            let source = in_type(&self.numbers, of);
            let spec = (self.spec)(chain, of, &source);
            let stream = writer
                .add_stream(&spec, &mut &source[..], &mut |_| {})
                .unwrap();
            for presented in views {
                let name = format!("{chain} of {of} as {presented}");
                let (view, extents) = view(name, &stream, of, presented);
                writer.add_view(view, extents).unwrap();
            }
        }
        writer.finish().unwrap();
        fs::write(folder().join(self.file), memory.bytes).unwrap();
    }

    /// Somebody else made the digests of its views that are recorded; here each stream is what this writer makes of the numbers.
    pub(super) fn check(&self) {
        let file = self.file;
        let reader = Reader::open_file(&folder().join(file), 1 << 20).unwrap();
        let expected = self.streams.iter().flat_map(|(chain, of, views)| {
            let name = move |view| format!("{file}:{chain} of {of} as {view}");
            views.iter().map(name)
        });
        let mut expected: Vec<String> = expected.collect();
        expected.sort();
        let of_file = format!("{file}:");
        let recorded: Vec<String> = digests("VIEWS.sha256")
            .into_keys()
            .filter(|key| key.starts_with(&of_file))
            .collect();
        assert_eq!(recorded, expected);
        for (n, &(chain, of, _)) in (0..).zip(self.streams) {
            let stream = reader.volume().stream(StreamIndex(n)).unwrap();
            let source = in_type(&self.numbers, of);
            let spec = (self.spec)(chain, of, &source);
            assert_eq!(stream.chain, spec.chain, "{chain} of {of}");
            let mut read_back = vec![0; source.len()];
            spec.chain.read_back(&source, &mut read_back).unwrap();
            let digest = stream.digest.map(|digest| hex(&digest));
            assert_eq!(digest, Some(hex(&sha256(&read_back))), "{chain} of {of}");
        }
    }
}
