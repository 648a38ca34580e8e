//! What each file of a group is stored in: what the group is stored in, shared out by samples of the files' own.
//!
//! One choice is made for all files of a kind, on a sample of all of them. How much each of them shrinks differs: of every file some bytes are encoded
//! with the chain that was chosen, and the files share the group's stored bytes in the proportion that these say. Short samples compress less than
//! whole frames do; that is so for all files of a group, and cancels out.

use std::collections::HashMap;
use std::ops::Range;

use transforms::TransformError;

use super::sample::{self, Shape};
use super::{Choices, Group, trial};
use crate::scan::{FileId, Scan};
use crate::{DatasetError, parallel};

/// Bytes that are encoded of a group, if its files have so many; and of each of them at least and at most.
const GROUP_BYTES: u64 = 16 << 20;
const FILE_BYTES_MIN: u64 = 4 << 10;
const FILE_BYTES_MAX: u64 = 1 << 20;
/// A file's sample is of so many pieces, as long as these are not too short to compress.
const PIECES: u64 = 4;
const PIECE_BYTES_MIN: u64 = 2 << 10;

/// Stored bytes of each file in each group.
#[derive(Debug, Default)]
pub struct Shares(HashMap<(FileId, usize), u64>);

impl Shares {
    /// Stored bytes of what a file has in one of [`Choices::groups`]; those of all its files sum up to [`Group::stored_bytes`], where the chain compresses.
    #[must_use]
    pub fn stored_bytes(&self, id: FileId, group: usize) -> Option<u64> {
        self.0.get(&(id, group)).copied()
    }
}

impl Choices {
    /// Samples every file of every group.
    ///
    /// # Errors
    /// Files that cannot be read, or change meanwhile; a chain that was said and that cannot hold the values.
    pub fn shares(&self, scan: &Scan, threads: usize) -> Result<Shares, DatasetError> {
        let mut shares = Shares::default();
        for (place, group) in self.groups.iter().enumerate() {
            let files = files(group);
            let stored = stored(scan, group, &files, threads)?;
            for (file, stored) in files.iter().zip(stored) {
                *shares.0.entry((file.id, place)).or_default() += stored;
            }
        }
        Ok(shares)
    }
}

/// What a group has of a file.
struct File {
    id: FileId,
    /// Which of [`Group::runs`].
    runs: Range<usize>,
    bytes: u64,
}

fn files(group: &Group) -> Vec<File> {
    let mut files: Vec<File> = Vec::new();
    for (index, (id, run)) in group.runs.iter().enumerate() {
        match files.last_mut() {
            Some(last) if last.id == *id => {
                last.runs.end = index + 1;
                last.bytes += run.bytes;
            }
            _ => files.push(File {
                id: *id,
                runs: index..index + 1,
                bytes: run.bytes,
            }),
        }
    }
    files
}

/// What each of the files is stored in.
fn stored(
    scan: &Scan,
    group: &Group,
    files: &[File],
    threads: usize,
) -> Result<Vec<u64>, DatasetError> {
    let chosen = match group.chosen() {
        Some(chosen) if chosen.chain.is_framed() && files.len() > 1 => chosen,
        // It follows from the length.
        _ => {
            return Ok(files
                .iter()
                .map(|it| group.stored_bytes(it.bytes))
                .collect());
        }
    };
    let shape = shape(files.len() as u64);
    let weights = parallel::each(
        files.len(),
        threads,
        |index| -> Result<u128, DatasetError> {
            let Some(file) = files.get(index) else {
                return Ok(0);
            };
            let runs = group.runs.get(file.runs.clone()).unwrap_or_default();
            let pieces = sample::read(scan, runs, file.bytes, shape)?;
            let tried: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
            let stored = trial::stored_bytes(&chosen.chain, &pieces, chosen.frame_bytes);
            let unfit = |error: TransformError| group.unfit(scan, (file.id, &chosen.chain), &error);
            let stored = stored.map_err(unfit)?;
            Ok(u128::from(stored) * u128::from(file.bytes) / u128::from(tried.max(1)))
        },
    )?;
    Ok(shared(group.stored_bytes(group.bytes), &weights))
}

/// What is read of each of so many files.
fn shape(files: u64) -> Shape {
    let bytes = (GROUP_BYTES / files.max(1)).clamp(FILE_BYTES_MIN, FILE_BYTES_MAX);
    let piece_bytes = (bytes / PIECES).max(PIECE_BYTES_MIN);
    Shape::new(piece_bytes, bytes / piece_bytes)
}

/// `whole` in the proportion of the weights, to the last byte.
fn shared(whole: u64, weights: &[u128]) -> Vec<u64> {
    let sum = weights.iter().sum::<u128>().max(1);
    let (mut before, mut given) = (0, 0);
    let share = |weight: &u128| {
        before += weight;
        // Both are below 2^64: the stored bytes of files are.
        let until = u64::try_from(u128::from(whole) * before / sum).unwrap_or(whole);
        let share = until - given;
        given = until;
        share
    };
    weights.iter().map(share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_is_shared_to_the_last_byte() {
        assert_eq!(shared(100, &[1, 1, 1]), [33, 33, 34]);
        assert_eq!(shared(10, &[0, 30, 0, 10]), [0, 7, 0, 3]);
        assert_eq!(shared(7, &[0, 0]), [0, 0]);
        assert!(shared(5, &[]).is_empty());
        let large = u128::from(u64::MAX / 2);
        let halves = shared(u64::MAX, &[large, large]);
        assert_eq!(halves, [u64::MAX / 2, u64::MAX / 2 + 1]);
    }

    #[test]
    fn many_files_are_sampled_for_less_each() {
        for (files, shape) in [
            (2, (256 << 10, 4)),
            (16, (256 << 10, 4)),
            (1024, (4 << 10, 4)),
            (100_000, (2 << 10, 2)),
        ] {
            assert_eq!(super::shape(files), Shape::new(shape.0, shape.1));
        }
    }
}
