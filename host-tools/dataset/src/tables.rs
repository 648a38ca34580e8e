//! The tables of chains, made of what is stored by them before any of it is: of ranks, of all of it; a dictionary, of frames from all over it.

use std::io::Read;
use std::sync::Arc;

use transforms::{Chain, IdCounts, TableKind, TransformError};
use volume::write::WriteError;

use crate::reread::{PART_BYTES, Reread};
use crate::scan::Scan;
use crate::storage::{self, Pieces, Storage, StreamPlan};
use crate::survey::Surveyed;
use crate::{DatasetError, dictionary, parallel};

impl Storage {
    /// Gives every stream whose chain takes tables those of its elements, which are read for that. Which runs a stream has is not known before all
    /// were surveyed, so that this is a pass of its own over these files.
    ///
    /// A stream that is too short for a dictionary, as headers are, is compressed without: of each such a line says so.
    ///
    /// # Errors
    /// Files that cannot be read or change meanwhile; values that are no ids, with the file.
    pub fn make_tables(
        &mut self,
        scan: &Scan,
        surveyed: &[Option<Surveyed>],
        threads: usize,
    ) -> Result<Vec<String>, DatasetError> {
        self.make_ranks(scan, surveyed, threads)?;
        self.make_dictionaries(scan)
    }

    fn make_ranks(
        &mut self,
        scan: &Scan,
        surveyed: &[Option<Surveyed>],
        threads: usize,
    ) -> Result<(), DatasetError> {
        let (runs, streams) = (&self.runs, &self.streams);
        let chains = parallel::each(streams.len(), threads, |index| {
            let plan = streams.get(index);
            let Some(plan) = plan.filter(|it| it.stored.chain.takes(TableKind::Ranks)) else {
                return Ok(None);
            };
            let pieces = Pieces::new(plan, |id| Reread::surveyed(scan, runs, surveyed, id));
            with_ranks(scan, plan, pieces).map(Some)
        })?;
        for (plan, chain) in self.streams.iter_mut().zip(chains) {
            if let Some(chain) = chain {
                plan.stored.chain = chain;
            }
        }
        Ok(())
    }

    /// One after the other: what one is trained on takes some megabytes.
    fn make_dictionaries(&mut self, scan: &Scan) -> Result<Vec<String>, DatasetError> {
        let mut notes = Vec::new();
        for plan in &mut self.streams {
            if plan.stored.chain.takes(TableKind::Dictionary) {
                let (chain, note) = with_dictionary(scan, plan)?;
                plan.stored.chain = chain;
                notes.extend(note);
            }
        }
        Ok(notes)
    }
}

/// The chain of a stream with a dictionary of its frames; without that step, and a line of it, where there are too few.
fn with_dictionary(
    scan: &Scan,
    plan: &StreamPlan,
) -> Result<(Chain, Option<String>), DatasetError> {
    let chain = &plan.stored.chain;
    let trained = dictionary::of_runs(scan, &plan.pieces, &plan.stored, |at, error| {
        changed_or(scan, plan, at, error)
    })?;
    let refused = |error: TransformError| {
        let why = format!("cannot be stored as {chain}: {error}");
        DatasetError::data(stream_name(scan, plan), why)
    };
    let (chain, note) = dictionary::with(chain, trained).map_err(refused)?;
    let note = note.map(|note| format!("{}: {note}", stream_name(scan, plan)));
    Ok((chain, note))
}

/// An element of a sampled frame that the chain does not take. Its file was surveyed, and its ids were counted: what is not among them is new.
fn changed_or(scan: &Scan, plan: &StreamPlan, at: u64, error: TransformError) -> DatasetError {
    match (error, storage::origin(scan, plan, at)) {
        (TransformError::NotInTable { .. }, Some((path, _))) => {
            DatasetError::Changed { path, cut: None }
        }
        (error, _) => at_its_file(scan, plan, at, error),
    }
}

/// The chain of a stream with the table of its elements.
fn with_ranks(
    scan: &Scan,
    plan: &StreamPlan,
    mut pieces: impl Read,
) -> Result<Chain, DatasetError> {
    let chain = &plan.stored.chain;
    let mut counts = IdCounts::new();
    let mut buffer = Vec::new();
    let mut at = 0;
    loop {
        buffer.clear();
        let read = pieces.by_ref().take(PART_BYTES).read_to_end(&mut buffer);
        let read = read.map_err(|error| WriteError::Input { offset: at, error })?;
        if read == 0 {
            break;
        }
        let counted = counts.add_ranked(chain, &buffer);
        counted.map_err(|error| at_its_file(scan, plan, at, error))?;
        at += buffer.len() as u64;
    }
    // What is wrong with the table is so of all that it is made of.
    let refused = |error: TransformError| {
        let why = format!("cannot be stored as {chain}: {error}");
        DatasetError::data(stream_name(scan, plan), why)
    };
    let table = counts.table().map_err(refused)?;
    chain.with_table(Arc::new(table)).map_err(refused)
}

/// A value that is no id, in its file: the counts began at byte `at` of the stream.
fn at_its_file(scan: &Scan, plan: &StreamPlan, at: u64, error: TransformError) -> DatasetError {
    let element_bytes = plan.stored.chain.source().bytes() as u64;
    let index = element_of(&error);
    let byte = at + index * element_bytes;
    let origin = storage::origin(scan, plan, byte);
    let (about, byte) = origin.map_or((None, byte), |(path, byte)| (Some(path), byte));
    let element = byte / element_bytes;
    let error = WriteError::Encode {
        element,
        byte,
        error,
    };
    DatasetError::Write { about, error }
}

/// Which element of a frame is refused.
pub(crate) fn element_of(error: &TransformError) -> u64 {
    match error {
        TransformError::LargeId { index, .. }
        | TransformError::OutOfRange { index, .. }
        | TransformError::NotInTable { index, .. }
        | TransformError::BeyondScale { index, .. }
        | TransformError::NotFinite { index, .. }
        | TransformError::Unscalable { index, .. } => *index,
        _ => 0,
    }
}

/// What a stream is of: its files, by the first.
fn stream_name(scan: &Scan, plan: &StreamPlan) -> String {
    let mut files: Vec<_> = plan.pieces.iter().map(|(id, _)| *id).collect();
    files.dedup();
    let first = files.first().and_then(|id| scan.file(*id));
    let first = first.map_or_else(String::new, |file| file.path.display().to_string());
    let element = plan.stored.chain.source();
    match files.len() {
        0 | 1 => format!("the {element} of {first}"),
        count => format!("the {element} of {count} files from {first} on"),
    }
}
