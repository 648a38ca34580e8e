//! Sample data and streams: what tests put into volumes, and know without reading it back.

use std::fs::File;
use std::io::{self, Cursor, Write};
use std::sync::{Arc, LazyLock};

use transforms::{Chain, DictionaryTrainer, ElementType, IdCounts, Scratch, TableKind};

use crate::StreamIndex;
use crate::assemble::{Options, StreamSpec, VolumeBuilder};
use crate::write::{Output, WriteError};

/// A small, fast, seeded generator (xorshift64*): tests are the same each time.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(crate) fn between(&mut self, min: u64, max: u64) -> u64 {
        min + self.below(max - min + 1)
    }
}

/// Little-endian elements below `2^bits`, some of them repeated so that compressors find something.
pub(crate) fn elements(
    random: &mut Random,
    element: ElementType,
    bits: u32,
    count: u64,
) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut last = 0u64;
    for _ in 0..count {
        if random.below(3) > 0 {
            last = random.next() & (u64::MAX >> (64 - bits));
        }
        bytes.extend_from_slice(&last.to_le_bytes()[..element.bytes()]);
    }
    bytes
}

/// A chain, and data that fit it.
pub(crate) struct Sample {
    pub(crate) chain: Chain,
    pub(crate) data: Vec<u8>,
}

impl Sample {
    pub(crate) fn new(
        random: &mut Random,
        chain: &str,
        element: ElementType,
        bits: u32,
        count: u64,
    ) -> Sample {
        let data = elements(random, element, bits, count);
        Sample {
            chain: with_table(Chain::parse(chain, element).unwrap(), &data),
            data,
        }
    }

    pub(crate) fn element_bytes(&self) -> u64 {
        self.chain.source().bytes() as u64
    }

    pub(crate) fn count(&self) -> u64 {
        self.data.len() as u64 / self.element_bytes()
    }
}

/// The chain, with a table of ranks of these elements and a dictionary trained on them, where it takes them.
pub(crate) fn with_table(mut chain: Chain, data: &[u8]) -> Chain {
    if chain.missing_table() == Some(TableKind::Ranks) {
        let mut counts = IdCounts::new();
        counts.add(chain.source(), data).unwrap();
        chain = chain.with_table(Arc::new(counts.table().unwrap())).unwrap();
    }
    if chain.missing_table() == Some(TableKind::Dictionary) {
        let mut trainer = DictionaryTrainer::new(&chain).unwrap();
        for frame in data.chunks(4096) {
            trainer.add_frame(frame).unwrap();
        }
        let dictionary = trainer.train(data.len() as u64).unwrap();
        chain = chain.with_table(Arc::new(dictionary)).unwrap();
    }
    chain
}

/// One of each chain that matters, with the elements' bits.
pub(crate) fn samples(random: &mut Random, count: u64) -> Vec<Sample> {
    use ElementType::*;
    [
        ("none", U8, 8),
        ("lz4", U8, 4),
        ("zstd:1", U8, 6),
        ("none", U32, 32),
        ("u16", U32, 16),
        ("u16+lz4", U32, 12),
        ("bitpack:17", U32, 17),
        ("bitpack:18+zstd:3", U32, 18),
        ("shuffle+lz4", U32, 20),
        ("none", U16, 16),
        ("bitpack:11", U16, 11),
        ("shuffle+zstd:1", U16, 16),
        ("i16", I32, 15),
        ("bitpack:32", U64, 32),
        ("lz4hc:4", I64, 40),
        ("shuffle+lz4", F32, 32),
        ("none", F64, 64),
        ("none", Bf16, 16),
        ("bitpack:1", U8, 1),
        ("rank", U16, 12),
        ("rank+lz4", U32, 16),
        ("u32+rank+zstd:1", I64, 20),
    ]
    .into_iter()
    .map(|(chain, element, bits)| Sample::new(random, chain, element, bits, count))
    .collect()
}

pub(crate) type Builder = VolumeBuilder<Vec<u8>>;

pub(crate) fn options(lba_bytes: u32) -> Options {
    Options {
        volume_uuid: *b"\x11\x22volume test\x0d\x0e\x0f",
        lba_bytes,
        writer: "test".into(),
    }
}

pub(crate) fn builder(lba_bytes: u32) -> Builder {
    VolumeBuilder::new(
        Vec::new(),
        Box::new(Cursor::new(Vec::new())),
        options(lba_bytes),
    )
    .unwrap()
}

/// Encodes `data` into a stream: frames of `frame_elements`, or pieces of that many elements where there are no frames.
pub(crate) fn store<W: Write>(
    builder: &mut VolumeBuilder<W>,
    spec: StreamSpec,
    piece_elements: u64,
    data: &[u8],
) -> StreamIndex {
    let chain = spec.chain.clone();
    let element_bytes = chain.source().bytes();
    let mut stream = builder.begin_stream(spec).unwrap();
    let mut scratch = Scratch::new();
    for piece in data.chunks(piece_elements as usize * element_bytes) {
        let elements = (piece.len() / element_bytes) as u64;
        let mut stored = vec![0; chain.stored_bytes_max(elements) as usize];
        let encoded = chain
            .encode_frame(piece, &mut scratch, &mut stored)
            .unwrap();
        stream
            .append(&stored[..encoded.stored_bytes], elements, encoded.range)
            .unwrap();
    }
    stream.finish(None).unwrap()
}

/// A stream of a sample in the volume.
pub(crate) fn store_sample(
    builder: &mut Builder,
    sample: &Sample,
    piece_elements: u64,
) -> StreamIndex {
    let frame_elements = match sample.chain.is_framed() {
        true => piece_elements,
        false => 0,
    };
    let spec = StreamSpec::own(sample.chain.clone(), frame_elements);
    store(builder, spec, piece_elements, &sample.data)
}

/// A small volume with everything in it: each layout, several frames and granules, two views, a manifest, zero and inline extents. And what
/// its first view presents.
pub(crate) fn small_volume() -> (Vec<u8>, Vec<u8>) {
    static MADE: LazyLock<(Vec<u8>, Vec<u8>)> = LazyLock::new(make_small_volume);
    MADE.clone()
}

fn make_small_volume() -> (Vec<u8>, Vec<u8>) {
    use transforms::ViewChain;

    use crate::assemble::{Run, ViewSpec};

    let mut random = Random::new(5);
    let mut builder = builder(512);
    let samples = [
        Sample::new(&mut random, "none", ElementType::U8, 8, 9000),
        Sample::new(&mut random, "u16", ElementType::U32, 16, 5000),
        Sample::new(&mut random, "bitpack:17", ElementType::U32, 17, 5000),
        Sample::new(&mut random, "bitpack:12+lz4", ElementType::U32, 12, 5000),
        Sample::new(&mut random, "shuffle+zstd:3", ElementType::F32, 24, 2000),
    ];
    let mut runs = Vec::new();
    let mut presented = Vec::new();
    for sample in &samples {
        let stream = store_sample(&mut builder, sample, 1024);
        runs.push(Run::Linear {
            stream,
            first_element: 0,
            elements: sample.count(),
            view: ViewChain::identity(),
        });
        presented.extend_from_slice(&sample.data);
        runs.push(Run::Inline(vec![1, 2, 3]));
        presented.extend_from_slice(&[1, 2, 3]);
        runs.push(Run::Zero(100));
        presented.extend_from_slice(&[0; 100]);
    }
    let spec = ViewSpec {
        name: "exact".into(),
        manifest: Some(b"{\"made\":\"by a test\"}".to_vec()),
        ..ViewSpec::default()
    };
    builder.add_view(spec, runs).unwrap();
    let narrow = Run::Linear {
        stream: StreamIndex(1),
        first_element: 7,
        elements: 1000,
        view: ViewChain::parse("u16", ElementType::U32).unwrap(),
    };
    let spec = ViewSpec {
        name: "narrow".into(),
        ..ViewSpec::default()
    };
    builder.add_view(spec, [narrow]).unwrap();
    (builder.finish().unwrap().into_bytes(), presented)
}

/// An output of the writer in memory.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    pub(crate) bytes: Vec<u8>,
}

impl Output for &mut Memory {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), WriteError> {
        let (from, to) = (offset as usize, offset as usize + bytes.len());
        if self.bytes.len() < to {
            self.bytes.resize(to, 0);
        }
        self.bytes[from..to].copy_from_slice(bytes);
        Ok(())
    }

    fn sync(&mut self) -> Result<(), WriteError> {
        Ok(())
    }

    fn publish(&mut self) -> Result<(), WriteError> {
        Ok(())
    }

    fn scratch_file(&self) -> Result<File, WriteError> {
        Err(self.failed(
            "creating a scratch file for",
            io::ErrorKind::Unsupported.into(),
        ))
    }

    fn failed(&self, action: &'static str, error: io::Error) -> WriteError {
        WriteError::Output {
            action,
            path: "memory".into(),
            error,
        }
    }
}
