//! The bytes that chains are tried on: some of a group's, spread over all of them.

use super::rule::{self, Access, Wish};
use crate::DatasetError;
use crate::runs_reader::RunsReader;
use crate::scan::{FileId, Scan};
use crate::storage::Run;

/// Bytes of a sample where the data is read from end to end.
const SEQUENTIAL_BYTES: u64 = 2 << 20;
/// Where samples are read at random: more frames are tried, and smaller ones.
const RANDOM_BYTES: u64 = 1 << 20;
/// A piece has at least so many bytes, and there are at least so many pieces.
const PIECE_BYTES_MIN: u64 = 64 << 10;
const PIECES_MIN: u64 = 2;
/// Pieces begin at a multiple of so many bytes from the first run on: at whole elements, whatever their type.
const PIECE_ALIGNMENT: u64 = 64;

/// How a sample is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    /// A multiple of the alignment.
    piece_bytes: u64,
    /// At least [`PIECES_MIN`].
    pieces: u64,
}

impl Shape {
    pub(super) fn new(piece_bytes: u64, pieces: u64) -> Shape {
        Shape {
            piece_bytes: piece_bytes.next_multiple_of(PIECE_ALIGNMENT),
            pieces: pieces.max(PIECES_MIN),
        }
    }

    fn bytes(self) -> u64 {
        self.piece_bytes * self.pieces
    }
}

/// That of a group.
pub(super) fn shape(wish: &Wish) -> Shape {
    let largest = rule::ladder(wish).last().copied().unwrap_or_default();
    let piece_bytes = largest.max(PIECE_BYTES_MIN);
    let sample_bytes = match wish.access {
        Access::Sequential => SEQUENTIAL_BYTES,
        Access::Random { .. } => RANDOM_BYTES,
    };
    Shape::new(piece_bytes, sample_bytes / piece_bytes)
}

/// Bytes of the sample of a group of `bytes`.
pub(super) fn bytes_of(bytes: u64, wish: &Wish) -> u64 {
    bytes.min(shape(wish).bytes())
}

/// Where the pieces are in the runs, laid end to end: all of them where they are few.
fn places(bytes: u64, shape: Shape) -> Vec<(u64, u64)> {
    let Shape {
        piece_bytes,
        pieces,
    } = shape;
    if bytes <= shape.bytes() {
        let starts = (0..bytes.div_ceil(piece_bytes)).map(|piece| piece * piece_bytes);
        return starts
            .map(|start| (start, piece_bytes.min(bytes - start)))
            .collect();
    }
    let last = u128::from(bytes - piece_bytes);
    let starts = (0..pieces).map(|piece| {
        let start = last * u128::from(piece) / u128::from(pieces - 1);
        // Not beyond `last`, which is below 2^64.
        u64::try_from(start).unwrap_or(0) / PIECE_ALIGNMENT * PIECE_ALIGNMENT
    });
    starts.map(|start| (start, piece_bytes)).collect()
}

/// Reads the pieces of `runs`, which have `bytes`.
pub(super) fn read(
    scan: &Scan,
    runs: &[(FileId, Run)],
    bytes: u64,
    shape: Shape,
) -> Result<Vec<Vec<u8>>, DatasetError> {
    let mut reader = RunsReader::new(scan, runs);
    places(bytes, shape)
        .into_iter()
        .map(|(start, bytes)| reader.read(start, bytes))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_spread_over_all_bytes_or_are_all_bytes() {
        let few = |bytes| places(bytes, Shape::new(128, 4));
        assert_eq!(few(0), []);
        assert_eq!(few(300), [(0, 128), (128, 128), (256, 44)]);
        let spread = places(1_000_000, Shape::new(640, 3));
        assert_eq!(spread, [(0, 640), (499_648, 640), (999_360, 640)]);
    }
}
