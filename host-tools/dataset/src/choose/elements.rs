//! The choice for files that are elements of one type from end to end, whatever they look like: one for all of them.

use std::sync::atomic::{AtomicU64, Ordering};

use formats::{ByteSource, Format};
use transforms::{ElementType, ValueRange, range_of};

use super::{Group, Wish, candidates, group, try_out};
use crate::reread::PART_BYTES;
use crate::scan::{FileId, Scan, SourceFile};
use crate::storage::Run;
use crate::survey::union;
use crate::{DatasetError, parallel};

/// Tries the candidates on all of the files together. Integers are read through before that, for their range; `on_progress` is told how many bytes were
/// read, from several threads.
///
/// # Errors
/// Files that cannot be read, or change meanwhile.
pub fn choose_elements(
    files: Vec<SourceFile>,
    element: ElementType,
    wish: &Wish,
    threads: usize,
    on_progress: &(dyn Fn(u64) + Sync),
) -> Result<Group, DatasetError> {
    let scan = Scan::of_files(files);
    let runs: Vec<(FileId, Run)> = scan
        .files()
        .map(|(id, file)| {
            let run = Run {
                offset: 0,
                bytes: file.bytes,
                element,
                is_in_blocks: false,
            };
            (id, run)
        })
        .collect();
    let range = match element.is_integer() {
        true => range(&scan.files, element, threads, on_progress)?,
        false => None,
    };
    let draft = group::Draft {
        kind: Format::Raw.name().to_owned(),
        element,
        range,
        has_values: true,
        said: None,
        bytes: runs.iter().map(|(_, run)| run.bytes).sum(),
        runs,
    };
    let chains = candidates::candidates(element, range, wish);
    try_out(&scan, draft, &chains, wish, threads)
}

/// The smallest and the largest element of all files.
fn range(
    files: &[SourceFile],
    element: ElementType,
    threads: usize,
    on_progress: &(dyn Fn(u64) + Sync),
) -> Result<Option<ValueRange>, DatasetError> {
    let done = AtomicU64::new(0);
    let ranges = parallel::each::<_, DatasetError>(files.len(), threads, |index| {
        let Some(file) = files.get(index) else {
            return Ok(None);
        };
        let open = file.open()?;
        let mut buffer = Vec::new();
        let (mut range, mut at) = (None, 0);
        while at < file.bytes {
            let bytes = PART_BYTES.min(file.bytes - at);
            buffer.resize(usize::try_from(bytes).unwrap_or(0), 0);
            let read = open.read_at(at, &mut buffer);
            read.map_err(|error| DatasetError::io("reading", &file.path, error))?;
            range = union(range, range_of(element, &buffer));
            at += bytes;
            on_progress(done.fetch_add(bytes, Ordering::Relaxed) + bytes);
        }
        open.check()?;
        Ok(range)
    })?;
    Ok(ranges.into_iter().fold(None, union))
}
