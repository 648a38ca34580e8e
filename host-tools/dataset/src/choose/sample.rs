//! The bytes that chains are tried on: some of a group's, spread over all of them. And others, from between them, that dictionaries are trained on.

use super::candidates::SHORT_FRAME_BYTES_MAX;
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
/// Bytes that dictionaries are trained on, if there are so many between the pieces, in pieces of so many.
const OTHER_BYTES: u64 = 4 << 20;
const OTHER_PIECE_BYTES: u64 = SHORT_FRAME_BYTES_MAX;
/// Pieces begin at a multiple of so many bytes from the first run on: at whole elements, whatever their type.
const PIECE_ALIGNMENT: u64 = 64;

/// What chains are tried on.
pub(super) struct Sample {
    /// The pieces.
    pub(super) tried: Vec<Vec<u8>>,
    /// Pieces from between them, where a chain asks for that.
    pub(super) others: Vec<Vec<u8>>,
}

impl Sample {
    /// Of the group's bytes that are tried.
    pub(super) fn bytes(&self) -> u64 {
        bytes(&self.tried)
    }

    /// Of those between them.
    pub(super) fn other_bytes(&self) -> u64 {
        bytes(&self.others)
    }

    /// For each half of the pieces that are tried, what a dictionary for them is trained on: nothing of that half. One for both, if there is so much else.
    pub(super) fn training(&self) -> Vec<Vec<&[u8]>> {
        let others = self.others.iter().map(Vec::as_slice);
        if self.other_bytes() >= self.bytes() {
            return vec![others.collect()];
        }
        let halves = [1, 0].map(|first| {
            let half = self.tried.iter().skip(first).step_by(2);
            half.map(Vec::as_slice).chain(others.clone()).collect()
        });
        halves.to_vec()
    }
}

fn bytes(pieces: &[Vec<u8>]) -> u64 {
    pieces.iter().map(|piece| piece.len() as u64).sum()
}

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

/// Places between these, which are in order.
fn between(places: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let gaps = places.iter().zip(places.iter().skip(1));
    let gaps = gaps.map(|((start, bytes), (next, _))| (start + bytes, *next));
    let gaps: Vec<(u64, u64)> = gaps.filter(|(start, end)| start < end).collect();
    let pieces = (OTHER_BYTES / OTHER_PIECE_BYTES).div_ceil(gaps.len().max(1) as u64);
    let in_gap = |(start, end): (u64, u64)| {
        let each =
            ((end - start) / pieces / PIECE_ALIGNMENT * PIECE_ALIGNMENT).max(PIECE_ALIGNMENT);
        let starts = (0..pieces).map(move |piece| start + piece * each);
        let starts = starts.take_while(move |start| *start < end);
        starts.map(move |start| (start, OTHER_PIECE_BYTES.min(each).min(end - start)))
    };
    gaps.into_iter().flat_map(in_gap).collect()
}

/// Reads a sample of `runs`, which have `bytes`; `with_others`: also what dictionaries are trained on.
pub(super) fn of_group(
    scan: &Scan,
    runs: &[(FileId, Run)],
    bytes: u64,
    wish: &Wish,
    with_others: bool,
) -> Result<Sample, DatasetError> {
    let shape = shape(wish);
    let mut reader = RunsReader::new(scan, runs);
    let mut others = Vec::new();
    for (start, bytes) in between(&places(bytes, shape)) {
        if with_others {
            others.push(reader.read(start, bytes)?);
        }
    }
    Ok(Sample {
        tried: read(scan, runs, bytes, shape)?,
        others,
    })
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

    #[test]
    fn what_dictionaries_are_trained_on_is_not_what_they_are_tried_on() {
        let shape = Shape::new(64 << 10, 16);
        for bytes in [0, 1, 1 << 20, (1 << 20) + 64, 3 << 20, 1 << 30, 1 << 40] {
            let tried = places(bytes, shape);
            let others = between(&tried);
            let mut all: Vec<(u64, u64)> = tried.iter().chain(&others).copied().collect();
            all.sort_unstable();
            let ends = all.iter().map(|(start, bytes)| start + bytes);
            let starts = all.iter().skip(1).map(|(start, _)| *start);
            assert!(ends.zip(starts).all(|(end, next)| end <= next), "{bytes}");
            let read: u64 = others.iter().map(|(_, bytes)| bytes).sum();
            let wanted = OTHER_BYTES.min(bytes.saturating_sub(1 << 20));
            assert!(
                (wanted * 9 / 10..=OTHER_BYTES * 11 / 10).contains(&read),
                "{bytes}: {read}"
            );
        }
    }

    #[test]
    fn without_others_each_half_is_trained_on_the_other() {
        let pieces = |first, count| (first..first + count).map(|n: u8| vec![n; 10]).collect();
        let of = |others| {
            let sample = Sample {
                tried: pieces(0, 5),
                others: pieces(100, others),
            };
            let training = sample.training();
            let named = |half: &Vec<&[u8]>| half.iter().map(|it| it[0]).collect::<Vec<u8>>();
            training.iter().map(named).collect::<Vec<_>>()
        };
        assert_eq!(of(0), [vec![1, 3], vec![0, 2, 4]]);
        assert_eq!(of(2), [vec![1, 3, 100, 101], vec![0, 2, 4, 100, 101]]);
        assert_eq!(of(5), [vec![100, 101, 102, 103, 104]]);
    }
}
