//! The pass over all bytes before anything is stored: digests, and which integers there are.

use std::sync::atomic::{AtomicU64, Ordering};

use formats::ByteSource;
use sha2::{Digest, Sha256};
use transforms::{ValueRange, range_of};

use crate::reread::{PART_BYTES, fingerprint};
use crate::scan::{FileId, Scan, SourceFile};
use crate::storage::{Run, Runs};
use crate::{DatasetError, parallel};

/// What a file holds.
#[derive(Debug, Clone)]
pub struct Surveyed {
    /// Of its whole content.
    pub sha256: [u8; 32],
    /// For each run, the smallest and the largest integer; `None` for floats, and where there is none.
    pub ranges: Vec<Option<ValueRange>>,
    /// For each run, what its parts are known by when they are read again.
    pub(crate) fingerprints: Vec<Vec<u128>>,
}

/// Reads once every file that is `wanted`. `on_progress` is told how many bytes were read, now and then, from several threads.
///
/// # Errors
/// Files that cannot be read, or change meanwhile.
pub fn survey(
    scan: &Scan,
    runs: &Runs,
    wanted: &(dyn Fn(FileId) -> bool + Sync),
    threads: usize,
    on_progress: &(dyn Fn(u64) + Sync),
) -> Result<Vec<Option<Surveyed>>, DatasetError> {
    let done = AtomicU64::new(0);
    parallel::each(scan.files.len(), threads, |index| {
        // The scan numbers files by u32.
        let id = FileId(u32::try_from(index).unwrap_or(u32::MAX));
        let Some(file) = scan.file(id).filter(|_| wanted(id)) else {
            return Ok(None);
        };
        let surveyed = read_file(file, runs.of(id), &|bytes| {
            on_progress(done.fetch_add(bytes, Ordering::Relaxed) + bytes);
        });
        surveyed.map(Some)
    })
}

fn read_file(
    file: &SourceFile,
    runs: &[Run],
    on_bytes: &dyn Fn(u64),
) -> Result<Surveyed, DatasetError> {
    let open = file.open()?;
    let mut hash = Sha256::new();
    let mut ranges = Vec::with_capacity(runs.len());
    let mut fingerprints = Vec::with_capacity(runs.len());
    let mut buffer = Vec::new();
    for run in runs {
        let mut range: Option<ValueRange> = None;
        let mut of_parts = Vec::new();
        let mut at = run.offset;
        while at < run.end() {
            let bytes = PART_BYTES.min(run.end() - at);
            buffer.resize(usize::try_from(bytes).unwrap_or(0), 0);
            let read = open.read_at(at, &mut buffer);
            read.map_err(|error| DatasetError::io("reading", &file.path, error))?;
            hash.update(&buffer);
            of_parts.push(fingerprint(&buffer));
            range = union(range, range_of(run.element, &buffer));
            on_bytes(bytes);
            at += bytes;
        }
        ranges.push(range);
        fingerprints.push(of_parts);
    }
    open.check()?;
    Ok(Surveyed {
        sha256: hash.finalize().into(),
        ranges,
        fingerprints,
    })
}

/// The range that holds both.
#[must_use]
pub fn union(a: Option<ValueRange>, b: Option<ValueRange>) -> Option<ValueRange> {
    match (a, b) {
        (Some(a), Some(b)) => Some(ValueRange {
            min: a.min.min(b.min),
            max: a.max.max(b.max),
        }),
        (one, other) => one.or(other),
    }
}
