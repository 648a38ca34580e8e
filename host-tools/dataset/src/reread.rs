//! Files that are read again: every byte is the one that was read first, or the reading fails.
//!
//! A file is read for its digest, then to be stored, then to be measured. Its length and modification time do not tell that a process writes to it through
//! a shared mapping: then the digest would be of other bytes than the volume holds. So the first reading keeps a fingerprint of each part.

use std::cell::RefCell;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::LazyLock;

use formats::ByteSource;
use twox_hash::XxHash3_128;

use crate::DatasetError;
use crate::scan::{FileId, OpenFile, Scan, SourceFile};
use crate::storage::{Run, Runs};
use crate::survey::Surveyed;

/// Bytes of a part of a run; the last one may have fewer. A multiple of every element's width.
pub(crate) const PART_BYTES: u64 = 1 << 20;

/// Another one in each process, so that nobody can make two parts that look the same.
static SEED: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one("xio"));

/// What a part is known by, in this process.
pub(crate) fn fingerprint(part: &[u8]) -> u128 {
    XxHash3_128::oneshot_with_seed(*SEED, part)
}

/// A file of the scan that was surveyed.
pub(crate) struct Reread<'a> {
    open: OpenFile<'a>,
    file: &'a SourceFile,
    runs: &'a [Run],
    /// By run, of each of its parts.
    fingerprints: &'a [Vec<u128>],
    /// The part that was read last, and where it begins in the file.
    last: RefCell<(u64, Vec<u8>)>,
}

impl<'a> Reread<'a> {
    /// Opens it.
    ///
    /// # Errors
    /// As [`SourceFile::open`].
    pub(crate) fn open(
        file: &'a SourceFile,
        runs: &'a [Run],
        fingerprints: &'a [Vec<u128>],
    ) -> Result<Reread<'a>, DatasetError> {
        Ok(Reread {
            open: file.open()?,
            file,
            runs,
            fingerprints,
            last: RefCell::default(),
        })
    }

    /// Opens a file that was surveyed.
    ///
    /// # Errors
    /// As [`open`](Self::open); a file that was not.
    pub(crate) fn surveyed(
        scan: &'a Scan,
        runs: &'a Runs,
        surveyed: &'a [Option<Surveyed>],
        id: FileId,
    ) -> Result<Reread<'a>, DatasetError> {
        let lost = || DatasetError::refused("a file", "was not surveyed");
        let file = scan.file(id).ok_or_else(lost)?;
        let surveyed = surveyed.get(id.0 as usize).and_then(Option::as_ref);
        let fingerprints = &surveyed.ok_or_else(lost)?.fingerprints;
        Reread::open(file, runs.of(id), fingerprints)
    }

    /// As [`OpenFile::check`].
    pub(crate) fn check(&self) -> Result<(), DatasetError> {
        self.open.check()
    }

    /// The part that holds byte `at` of the file: its first byte, its length, and what it is known by.
    fn part(&self, at: u64) -> Option<(u64, u64, u128)> {
        let index = self.runs.partition_point(|run| run.end() <= at);
        let run = self.runs.get(index).filter(|run| run.offset <= at)?;
        let part = (at - run.offset) / PART_BYTES;
        let known = self.fingerprints.get(index)?;
        let known = known.get(usize::try_from(part).ok()?)?;
        let start = run.offset + part * PART_BYTES;
        Some((start, PART_BYTES.min(run.end() - start), *known))
    }

    /// Has the part in `last` that holds byte `at`.
    fn load(&self, at: u64, (first, part): &mut (u64, Vec<u8>)) -> io::Result<()> {
        if (*first..*first + part.len() as u64).contains(&at) {
            return Ok(());
        }
        let (start, bytes, known) = self.part(at).ok_or(io::ErrorKind::UnexpectedEof)?;
        *first = start;
        // At most PART_BYTES.
        part.resize(usize::try_from(bytes).unwrap_or(0), 0);
        let read = self.open.read_at(start, part);
        let is_known = match read {
            Ok(()) => fingerprint(part) == known,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => false,
            Err(error) => {
                part.clear();
                return Err(error);
            }
        };
        if is_known {
            return Ok(());
        }
        part.clear();
        let path = self.file.path.clone();
        Err(io::Error::other(DatasetError::Changed { path, cut: None }))
    }
}

impl ByteSource for Reread<'_> {
    fn bytes(&self) -> u64 {
        self.file.bytes
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let mut last = self.last.borrow_mut();
        let (mut at, mut left) = (offset, into);
        while !left.is_empty() {
            self.load(at, &mut last)?;
            let inside = usize::try_from(at - last.0).unwrap_or(usize::MAX);
            let there = last.1.get(inside..).unwrap_or_default();
            let (now, later) = left.split_at_mut(there.len().min(left.len()));
            now.copy_from_slice(there.get(..now.len()).unwrap_or_default());
            at += now.len() as u64;
            left = later;
        }
        Ok(())
    }
}
