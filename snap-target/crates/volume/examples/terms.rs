//! The terms of the prediction for a transform in the data path (docs/benchmarks.md): how fast one core decodes a chain and checks its
//! CRCs, apart from everything else. `ci/bench/compare --only transforms` calls it in the run that it predicts.
//!
//! `terms SOURCE CHAIN...` prints a line for each chain: decoded GB/s, CRC-checked GB/s, both of presented u32.

use std::hint::black_box;
use std::time::{Duration, Instant};

use transforms::{
    Chain, Decoder, ElementType, OutSegments, PackedWindow, Scratch, TransformError, ViewChain,
};
use volume::checksum::crc32c;

/// Presented bytes of a piece: a frame of `xio pack`.
const PIECE_BYTES: usize = 64 << 10;
const RUN: Duration = Duration::from_millis(200);
const RUNS: usize = 5;

/// A piece of the source as it is stored, and its packed form where a codec has to make it.
struct Piece {
    stored: Vec<u8>,
    packed_bytes: usize,
    presented_bytes: usize,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let source = std::fs::read(arguments.next().ok_or("terms SOURCE CHAIN...")?)?;
    for text in arguments {
        let chain = Chain::parse(&text, ElementType::U32)?;
        let pieces = pieces_of(&chain, &source)?;
        let decoder = Decoder::new(&chain, &ViewChain::identity(), None)?;
        let mut scratch = Scratch::new();
        let mut packed = vec![0; PIECE_BYTES];
        let mut out = vec![0; PIECE_BYTES];
        let decoded = median_gb_s(&pieces, |piece| {
            let bytes = match chain.is_framed() {
                true => {
                    let packed = &mut packed[..piece.packed_bytes];
                    chain.unblock(&piece.stored, &mut scratch, packed)?;
                    &*packed
                }
                false => &piece.stored,
            };
            let window = PackedWindow {
                first_byte: 0,
                bytes,
            };
            let mut segments = OutSegments::from_slice(&mut out[..piece.presented_bytes]);
            decoder.expand(window, 0..piece.presented_bytes as u64, &mut segments)?;
            black_box(&out);
            Ok(())
        })?;
        let checked = median_gb_s(&pieces, |piece| {
            black_box(crc32c(black_box(&piece.stored)));
            Ok(())
        })?;
        println!("{text} {decoded:.2} {checked:.2}");
    }
    Ok(())
}

fn pieces_of(chain: &Chain, source: &[u8]) -> Result<Vec<Piece>, TransformError> {
    let mut scratch = Scratch::new();
    let mut pieces = Vec::new();
    for presented in source.chunks(PIECE_BYTES) {
        let elements = presented.len() as u64 / 4;
        let stored_bytes_max = usize::try_from(chain.stored_bytes_max(elements)).unwrap_or(0);
        let mut stored = vec![0; stored_bytes_max];
        let encoded = chain.encode_frame(presented, &mut scratch, &mut stored)?;
        stored.truncate(encoded.stored_bytes);
        pieces.push(Piece {
            stored,
            packed_bytes: usize::try_from(chain.packed_bytes(elements)).unwrap_or(0),
            presented_bytes: presented.len(),
        });
    }
    Ok(pieces)
}

/// Presented GB/s of doing something to every piece, again and again: the median of some runs.
fn median_gb_s(
    pieces: &[Piece],
    mut work: impl FnMut(&Piece) -> Result<(), TransformError>,
) -> Result<f64, TransformError> {
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        let started = Instant::now();
        let mut bytes = 0;
        while started.elapsed() < RUN {
            for piece in pieces {
                work(piece)?;
                bytes += piece.presented_bytes;
            }
        }
        runs.push(bytes as f64 / started.elapsed().as_secs_f64() / 1e9);
    }
    runs.sort_by(f64::total_cmp);
    Ok(runs[RUNS / 2])
}
