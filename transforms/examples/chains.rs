//! What chains make of a file of elements, one line of JSON for each: for `ci/bench/codecs`.
//!
//! `cargo run --release -p transforms --example chains -- values.bin u32 65536 u16 u16+zstd:3 rank+lz4`
//!
//! The file is cut into frames of so many source bytes, and each is encoded and decoded by itself; chains without frames are cut in the same way.
//! Members: `frames`, the stored bytes of each, and `stored_bytes` of all of them, `table_bytes` of a rank table and `dictionary_bytes` of a dictionary beside
//! them, and the best of some rounds in GB (10^9) of source bytes a second: `encode`, `decode`, and `memcpy` of the same frames, by turns with decoding.
//!
//! Of `zstd-dict` there are two dictionaries, for pieces of 64 KiB in turns, each trained on the other pieces: no frame is stored by what it helped to make. They are as
//! long as one for the whole file would be, or, with `--of BYTES` before the file, for a part of so many.

use std::sync::Arc;
use std::time::Instant;

use transforms::{
    Chain, Decoder, Dictionary, DictionaryTrainer, ElementType, Encoded, IdCounts, OutSegments,
    PackedWindow, Scratch, TableKind, ViewChain,
};

const USAGE: &str = "usage: chains [--of BYTES] FILE TYPE FRAME_BYTES CHAIN...";

/// Source bytes that are stored by one of two dictionaries, before those that are by the other.
const PIECE_BYTES: usize = 64 << 10;

/// The best of so many rounds; of encoding less, which is slow by some chains.
const DECODE_ROUNDS: usize = 7;
const ENCODE_ROUNDS: usize = 2;

type Failed = Box<dyn std::error::Error>;

fn main() -> Result<(), Failed> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (data_bytes, arguments) = match &arguments[..] {
        [option, bytes, rest @ ..] if option == "--of" => (bytes.parse()?, rest),
        rest => (0, rest),
    };
    let [file, element, frame_bytes, chains @ ..] = arguments else {
        return Err(USAGE.into());
    };
    let source = std::fs::read(file)?;
    let element: ElementType = element.parse()?;
    let frame_bytes: usize = frame_bytes.parse()?;
    for text in chains {
        let mut chain = Chain::parse(text, element)?;
        let kinds: Vec<TableKind> = chain.table_kinds().collect();
        let (mut table_bytes, mut dictionary_bytes) = (0, 0);
        if kinds.contains(&TableKind::Ranks) {
            let mut counts = IdCounts::new();
            counts.add(element, &source)?;
            let table = counts.table()?;
            table_bytes = table.stored_bytes();
            chain = chain.with_table(Arc::new(table))?;
        }
        let mut chains = [chain.clone(), chain.clone()];
        if kinds.contains(&TableKind::Dictionary) {
            for (half, by_it) in chains.iter_mut().enumerate() {
                let dictionary = trained(&chain, half, &source, frame_bytes, data_bytes)?;
                dictionary_bytes = dictionary_bytes.max(dictionary.stored_bytes());
                *by_it = chain.with_table(Arc::new(dictionary))?;
            }
        }
        let measured = measure(&chains, &source, frame_bytes)?;
        println!(
            r#"{{"chain": "{chain}", "source_bytes": {}, "stored_bytes": {}, "frames": {:?}, "table_bytes": {table_bytes}, "dictionary_bytes": {dictionary_bytes}, "framed": {}, "lossy": {}, "encode": {:.3}, "decode": {:.3}, "memcpy": {:.3}}}"#,
            source.len(),
            measured.frames.iter().sum::<usize>(),
            measured.frames,
            chain.is_framed(),
            chain.contract().is_lossy(),
            measured.encode,
            measured.decode,
            measured.memcpy,
        );
    }
    Ok(())
}

/// The dictionary for a half of the pieces, trained on the other one.
fn trained(
    chain: &Chain,
    half: usize,
    source: &[u8],
    frame_bytes: usize,
    data_bytes: u64,
) -> Result<Dictionary, Failed> {
    let mut trainer = DictionaryTrainer::new(chain)?;
    for piece in source.chunks(PIECE_BYTES).skip(1 - half).step_by(2) {
        for frame in piece.chunks(frame_bytes) {
            trainer.add_frame(frame)?;
        }
    }
    Ok(trainer.train(data_bytes.max(source.len() as u64))?)
}

/// Bytes from a page's beginning on. Where an allocator puts them is another matter from run to run, and copies between places whose last twelve bits are nearly the same
/// are slower by ten times on some processors: stores there seem to overlap the loads behind them.
struct OfPages {
    room: Vec<u8>,
    len: usize,
}

impl OfPages {
    const PAGE_BYTES: usize = 4096;

    fn new(len: usize) -> OfPages {
        OfPages {
            room: vec![0; len + Self::PAGE_BYTES],
            len,
        }
    }

    fn bytes(&mut self) -> &mut [u8] {
        let start = self.room.as_ptr().align_offset(Self::PAGE_BYTES);
        &mut self.room[start..start + self.len]
    }
}

struct Measured {
    /// Stored bytes of each.
    frames: Vec<usize>,
    encode: f64,
    decode: f64,
    memcpy: f64,
}

fn measure(chains: &[Chain; 2], source: &[u8], frame_bytes: usize) -> Result<Measured, Failed> {
    let chain = &chains[0];
    let chain_of = |frame: usize| &chains[frame * frame_bytes / PIECE_BYTES % 2];
    let mut scratch = Scratch::new();
    let elements = |bytes: usize| (bytes / chain.source().bytes()) as u64;
    let room = usize::try_from(chain.stored_bytes_max(elements(frame_bytes)))?;
    let mut stored = vec![0; source.len().div_ceil(frame_bytes) * room];
    let mut frames: Vec<(usize, Encoded)> = Vec::new();
    let mut encode = f64::INFINITY;
    for _ in 0..ENCODE_ROUNDS {
        frames.clear();
        let begun = Instant::now();
        let mut at = 0;
        for (index, frame) in source.chunks(frame_bytes).enumerate() {
            let chain = chain_of(index);
            let encoded = chain.encode_frame(frame, &mut scratch, &mut stored[at..at + room])?;
            frames.push((at, encoded));
            at += encoded.stored_bytes;
        }
        encode = encode.min(begun.elapsed().as_secs_f64());
    }

    let (mut packed, mut out, mut copy) = (
        OfPages::new(room),
        OfPages::new(source.len()),
        OfPages::new(source.len()),
    );
    let (packed, out, copy) = (packed.bytes(), out.bytes(), copy.bytes());
    let (mut decode, mut memcpy) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..DECODE_ROUNDS {
        let begun = Instant::now();
        for (to, from) in copy.chunks_mut(frame_bytes).zip(source.chunks(frame_bytes)) {
            to.copy_from_slice(from);
        }
        memcpy = memcpy.min(begun.elapsed().as_secs_f64());
        let begun = Instant::now();
        let encoded = out.chunks_mut(frame_bytes).zip(&frames).enumerate();
        for (index, (out, (at, encoded))) in encoded {
            let chain = chain_of(index);
            let stored = &stored[*at..*at + encoded.stored_bytes];
            let packed_bytes = usize::try_from(chain.packed_bytes(elements(out.len())))?;
            let packed = if chain.is_framed() {
                chain.unblock(stored, &mut scratch, &mut packed[..packed_bytes])?;
                &packed[..packed_bytes]
            } else {
                stored
            };
            let decoder = Decoder::new(chain, &ViewChain::identity(), encoded.range)?;
            let window = PackedWindow {
                first_byte: 0,
                bytes: packed,
            };
            let presented = 0..out.len() as u64;
            decoder.expand(window, presented, &mut OutSegments::from_slice(out))?;
        }
        decode = decode.min(begun.elapsed().as_secs_f64());
    }
    if !chain.contract().is_lossy() && out != source {
        return Err(format!("{chain}: other elements than before").into());
    }
    #[allow(clippy::cast_precision_loss)] // megabytes
    let rate = |seconds: f64| source.len() as f64 / seconds / 1e9;
    Ok(Measured {
        frames: frames.iter().map(|(_, it)| it.stored_bytes).collect(),
        encode: rate(encode),
        decode: rate(decode),
        memcpy: rate(memcpy),
    })
}
