//! Bytes of runs that lie end to end, read from anywhere in them: what is looked at of data before they are stored.
//!
//! Nothing vouches for them but the length and the time of each file: what is stored is read again, and compared with what was surveyed.

use formats::ByteSource;

use crate::DatasetError;
use crate::scan::{FileId, OpenFile, Scan};
use crate::storage::Run;

/// Reads of the runs of a stream, or of a group.
pub(crate) struct RunsReader<'a> {
    scan: &'a Scan,
    runs: &'a [(FileId, Run)],
    /// Where each of them ends.
    ends: Vec<u64>,
    open: Option<(FileId, OpenFile<'a>)>,
}

impl<'a> RunsReader<'a> {
    pub(crate) fn new(scan: &'a Scan, runs: &'a [(FileId, Run)]) -> RunsReader<'a> {
        let ends = runs.iter().scan(0, |end, (_, run)| {
            *end += run.bytes;
            Some(*end)
        });
        RunsReader {
            scan,
            runs,
            ends: ends.collect(),
            open: None,
        }
    }

    /// Of all runs.
    pub(crate) fn bytes(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// The bytes from `start` on; fewer at the end of the runs.
    ///
    /// # Errors
    /// Files that cannot be read or change meanwhile.
    pub(crate) fn read(&mut self, start: u64, bytes: u64) -> Result<Vec<u8>, DatasetError> {
        let mut piece = Vec::with_capacity(usize::try_from(bytes).unwrap_or(0));
        let end = start.saturating_add(bytes).min(self.bytes());
        let mut at = start;
        let mut place = self.ends.partition_point(|end| *end <= start);
        while at < end
            && let (Some((id, run)), Some(run_end)) = (self.runs.get(place), self.ends.get(place))
        {
            let now = (*run_end).min(end) - at;
            let offset = run.end() - (run_end - at);
            self.append(*id, offset, now, &mut piece)?;
            at += now;
            place += 1;
        }
        Ok(piece)
    }

    fn append(
        &mut self,
        id: FileId,
        offset: u64,
        bytes: u64,
        piece: &mut Vec<u8>,
    ) -> Result<(), DatasetError> {
        let Some(file) = self.scan.file(id) else {
            return Err(DatasetError::refused("a file", "is not of this scan"));
        };
        if self.open.as_ref().is_none_or(|(open, _)| *open != id) {
            self.open = Some((id, file.open()?));
        }
        let filled = piece.len();
        piece.resize(filled + usize::try_from(bytes).unwrap_or(0), 0);
        let into = piece.get_mut(filled..).unwrap_or_default();
        let Some((_, open)) = &self.open else {
            return Ok(());
        };
        open.read_at(offset, into)
            .map_err(|error| DatasetError::io("reading", &file.path, error))
    }
}

/// `0..count`, so that those up to any of them are spread evenly over all: the bits of a counter, turned round.
pub(crate) fn spread(count: u64) -> impl Iterator<Item = u64> {
    let bits = u64::BITS - count.saturating_sub(1).leading_zeros();
    let rounds = 1u128 << bits;
    let turned = (0..rounds).map(move |counter| {
        let counter = u64::try_from(counter).unwrap_or(0);
        counter
            .reverse_bits()
            .checked_shr(u64::BITS - bits)
            .unwrap_or(0)
    });
    turned.filter(move |number| *number < count)
}

#[cfg(test)]
mod tests {
    use transforms::ElementType;

    use super::*;
    use crate::scan::SourceFile;

    #[test]
    fn bytes_are_read_across_runs_and_files_from_anywhere() {
        let folder = tempfile::tempdir().unwrap();
        let files = [("a", 0u8), ("b", 100)].map(|(name, first)| {
            let path = folder.path().join(name);
            let bytes: Vec<u8> = (first..first + 50).collect();
            std::fs::write(&path, bytes).unwrap();
            SourceFile::new(&path, &std::fs::metadata(&path).unwrap())
        });
        let scan = Scan::of_files(files.to_vec());
        let run = |file, offset, bytes| {
            let run = Run {
                offset,
                bytes,
                element: ElementType::U8,
                is_in_blocks: false,
            };
            (FileId(file), run)
        };
        let runs = [run(0, 10, 5), run(0, 20, 10), run(1, 0, 20), run(0, 0, 2)];
        let whole: Vec<u8> = (10..15).chain(20..30).chain(100..120).chain(0..2).collect();
        let mut reader = RunsReader::new(&scan, &runs);
        assert_eq!(reader.bytes(), 37);
        for start in (0..=37).rev() {
            for bytes in 0..=38 {
                let there = usize::min(start + bytes, 37);
                let read = reader.read(start as u64, bytes as u64).unwrap();
                assert_eq!(read, whole[start..there], "{start} {bytes}");
            }
        }
    }

    #[test]
    fn every_number_comes_once_and_the_first_ones_are_spread() {
        for count in 0..200 {
            let mut numbers: Vec<u64> = spread(count).collect();
            numbers.sort_unstable();
            assert!(numbers.into_iter().eq(0..count), "{count}");
        }
        let first: Vec<u64> = spread(1000).take(4).collect();
        assert_eq!(first, [0, 512, 256, 768]);
        assert_eq!(spread(u64::MAX).take(3).last(), Some(1 << 62));
    }
}
