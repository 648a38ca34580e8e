//! The tables of chains that take one, of elements without a header: made of the inputs, which are read once more for that.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dataset::{SourceFile, Stored, dictionary};
use transforms::{Chain, IdCounts, RowMaxima, TableKind, TransformError};
use volume::write::WriteError;

use crate::failure::Failure;
use crate::pack::{Plan, shown, shown_all};
use crate::progress::Progress;

/// Bytes that are looked at at a time: whole elements of every type.
const PART_BYTES: u64 = 1 << 20;

/// Gives the chains of a plan their tables: one of ranks for all inputs, scales for each; a dictionary for all that have the same tables.
pub fn make(plan: &mut Plan) -> Result<(), Failure> {
    let kinds: Vec<TableKind> = plan.spec.chain.table_kinds().collect();
    let Some(first) = kinds.first() else {
        return Ok(());
    };
    let what = match first {
        TableKind::Ranks => "to count the ids",
        TableKind::Scales => "to find the scales",
        TableKind::Dictionary => "to train a dictionary",
    };
    plan.files_read_twice(&format!(
        "{} reads its input twice, first {what}; write it to a file, and pack that",
        plan.spec.chain
    ))?;
    kinds.into_iter().try_for_each(|kind| match kind {
        TableKind::Ranks => make_ranks(plan),
        TableKind::Scales => make_scales(plan),
        TableKind::Dictionary => make_dictionaries(plan),
    })
}

fn make_dictionaries(plan: &mut Plan) -> Result<(), Failure> {
    let _progress = Progress::start("training", None);
    let files = plan.files_read_twice("it changed meanwhile")?;
    let trained = |chain: &Chain, inputs: &[PathBuf], files: Vec<SourceFile>| {
        let stored = Stored {
            chain: chain.clone(),
            frame_bytes: plan.spec.frame_bytes,
        };
        let of_all = |error| Failure::data(error).about(shown_all(inputs));
        let trained = dictionary::of_files(files, &stored)?;
        let (chain, note) = dictionary::with(chain, trained).map_err(of_all)?;
        if let Some(note) = note {
            printout::stderr::note(format_args!("{}: {note}", shown_all(inputs)));
        }
        Ok::<_, Failure>(chain)
    };
    if plan.scaled.is_empty() {
        plan.spec.chain = trained(&plan.spec.chain, &plan.inputs, files)?;
        return Ok(());
    }
    let inputs = plan.scaled.iter().zip(&plan.inputs).zip(files);
    let chains = inputs
        .map(|((chain, input), file)| trained(chain, std::slice::from_ref(input), vec![file]));
    plan.scaled = chains.collect::<Result<_, _>>()?;
    let is_without = |chain: &Chain| !chain.takes(TableKind::Dictionary);
    if plan.scaled.iter().all(is_without) {
        plan.spec.chain = dictionary::without(&plan.spec.chain).map_err(Failure::data)?;
    }
    Ok(())
}

fn make_ranks(plan: &mut Plan) -> Result<(), Failure> {
    let progress = Progress::start("counting", plan.total_bytes());
    let chain = &plan.spec.chain;
    let mut counts = IdCounts::new();
    let mut done_bytes = 0;
    for path in &plan.inputs {
        let mut count = |bytes: &[u8]| counts.add_ranked(chain, bytes);
        read(path, chain, &mut done_bytes, &progress, &mut count)?;
    }
    let of_all = |error| Failure::data(error).about(shown_all(&plan.inputs));
    let table = counts.table().map_err(of_all)?;
    plan.spec.chain = chain.with_table(Arc::new(table)).map_err(of_all)?;
    Ok(())
}

fn make_scales(plan: &mut Plan) -> Result<(), Failure> {
    let progress = Progress::start("finding scales", plan.total_bytes());
    let chain = &plan.spec.chain;
    let mut done_bytes = 0;
    for path in &plan.inputs {
        let of_it = |error| Failure::data(error).about(shown(path));
        let mut maxima = RowMaxima::new(chain).map_err(of_it)?;
        let mut add = |bytes: &[u8]| maxima.add(bytes);
        read(path, chain, &mut done_bytes, &progress, &mut add)?;
        let scales = maxima.scales().map_err(of_it)?;
        let scaled = chain.with_table(Arc::new(scales)).map_err(of_it)?;
        plan.scaled.push(scaled);
    }
    Ok(())
}

/// Reads an input for the table of a chain.
fn read(
    path: &Path,
    chain: &Chain,
    done_bytes: &mut u64,
    progress: &Progress,
    take: &mut dyn FnMut(&[u8]) -> Result<(), TransformError>,
) -> Result<(), Failure> {
    let failed = |error| Failure::io("reading", path, error);
    let mut file = File::open(path).map_err(failed)?;
    let (mut buffer, mut at) = (Vec::new(), 0);
    loop {
        buffer.clear();
        let mut part = file.by_ref().take(PART_BYTES);
        let read = part.read_to_end(&mut buffer).map_err(failed)?;
        if read == 0 {
            return Ok(());
        }
        take(&buffer).map_err(|error| refused(error, at, chain).about(shown(path)))?;
        at += read as u64;
        *done_bytes += read as u64;
        progress.set(*done_bytes);
    }
}

/// A value that has no place in the table, in a part that begins at byte `at` of its file.
fn refused(error: TransformError, at: u64, chain: &Chain) -> Failure {
    let (TransformError::LargeId { index, .. }
    | TransformError::OutOfRange { index, .. }
    | TransformError::NotFinite { index, .. }) = error
    else {
        return Failure::data(error);
    };
    let element_bytes = chain.source().bytes() as u64;
    let element = at / element_bytes + index;
    Failure::from(WriteError::Encode {
        element,
        byte: element * element_bytes,
        error,
    })
}
