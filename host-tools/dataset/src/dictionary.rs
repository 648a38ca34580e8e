//! Dictionaries of chains with `zstd-dict`: trained on frames from all over what is stored by them, as they are cut and encoded there.

use std::sync::Arc;

use transforms::{Chain, Dictionary, DictionaryTrainer, Step, TransformError, codecs};
use volume::write::{StreamSpec, WriteError};

use crate::runs_reader::{RunsReader, spread};
use crate::scan::{FileId, Scan, SourceFile};
use crate::storage::{Run, Stored};
use crate::{DatasetError, tables};

/// A dictionary, or why there is none ([`TransformError::Untrained`]): few frames are no fault of their files.
pub type Trained = Result<Dictionary, TransformError>;

/// Of files that are elements from end to end, each a stream, in frames of `stored`; its chain has all its other tables.
///
/// # Errors
/// Files that cannot be read or change meanwhile; elements that the chain does not take, with the file.
pub fn of_files(files: Vec<SourceFile>, stored: &Stored) -> Result<Trained, DatasetError> {
    let scan = Scan::of_files(files);
    let element = stored.chain.source();
    let whole = |(id, file): (FileId, &SourceFile)| {
        let run = Run {
            offset: 0,
            bytes: file.bytes,
            element,
            is_in_blocks: false,
        };
        [(id, run)]
    };
    let streams: Vec<[(FileId, Run); 1]> = scan.files().map(whole).collect();
    let streams: Vec<&[(FileId, Run)]> = streams.iter().map(<[_; 1]>::as_slice).collect();
    train(&scan, &streams, stored, |stream, at, error| {
        let file = streams.get(stream).and_then(|runs| runs.first());
        let about = file.and_then(|(id, _)| scan.file(*id));
        let about = about.map(|file| file.path.clone());
        match (error, about) {
            // The tables of the other steps were made of the same file.
            (
                TransformError::NotInTable { .. } | TransformError::BeyondScale { .. },
                Some(path),
            ) => DatasetError::Changed { path, cut: None },
            (error, about) => DatasetError::Write {
                about,
                error: in_frame(&stored.chain, at, error),
            },
        }
    })
}

/// Of a stream. `refused` says what an element is that the chain does not take, in a frame that begins at a byte of the stream.
pub(crate) fn of_runs(
    scan: &Scan,
    runs: &[(FileId, Run)],
    stored: &Stored,
    refused: impl Fn(u64, TransformError) -> DatasetError,
) -> Result<Trained, DatasetError> {
    train(scan, &[runs], stored, |_, at, error| refused(at, error))
}

/// Of these elements alone, for `data_bytes` of which they are a part.
pub(crate) fn of_pieces<'a>(
    pieces: impl Iterator<Item = &'a [u8]>,
    stored: &Stored,
    data_bytes: u64,
) -> Trained {
    let mut trainer = DictionaryTrainer::new(&stored.chain)?;
    let frame_bytes = usize::try_from(frame_bytes(stored)).unwrap_or(usize::MAX);
    for frame in pieces.flat_map(|piece| piece.chunks(frame_bytes)) {
        if !trainer.add_frame(frame)? {
            break;
        }
    }
    trainer.train(data_bytes)
}

/// The chain with its dictionary. Where there is too little to train one on, the same without that step, and a few words about it.
///
/// # Errors
/// As [`Chain::with_table`]; what is no want of frames.
pub fn with(chain: &Chain, trained: Trained) -> Result<(Chain, Option<String>), TransformError> {
    match trained {
        Ok(dictionary) => Ok((chain.with_table(Arc::new(dictionary))?, None)),
        Err(TransformError::Untrained { why, instead }) => {
            let note = format!("stored by {instead}, without a dictionary: {why}");
            Ok((without(chain)?, Some(note)))
        }
        Err(error) => Err(error),
    }
}

/// The same chain with `zstd` in the place of `zstd-dict`, and the tables of its other steps.
///
/// # Errors
/// As [`Chain::from_steps`]; there are none for a chain that is one.
pub fn without(chain: &Chain) -> Result<Chain, TransformError> {
    let plain = |step: &Step| match step.id {
        codecs::zstd_dict::ID => Step {
            id: codecs::zstd::ID,
            ..*step
        },
        _ => *step,
    };
    let steps: Vec<Step> = chain.steps().iter().map(plain).collect();
    let plain = Chain::from_steps(&steps, chain.source())?;
    let kinds: Vec<_> = plain.table_kinds().collect();
    let tables = kinds.into_iter().filter_map(|kind| chain.table(kind));
    tables
        .cloned()
        .try_fold(plain, |plain, table| plain.with_table(table))
}

fn train(
    scan: &Scan,
    streams: &[&[(FileId, Run)]],
    stored: &Stored,
    refused: impl Fn(usize, u64, TransformError) -> DatasetError,
) -> Result<Trained, DatasetError> {
    let mut trainer = match DictionaryTrainer::new(&stored.chain) {
        Ok(trainer) => trainer,
        Err(error) => return Ok(Err(error)),
    };
    let frame_bytes = frame_bytes(stored);
    let element_bytes = stored.chain.source().bytes() as u64;
    let mut readers: Vec<RunsReader<'_>> = streams
        .iter()
        .map(|runs| RunsReader::new(scan, runs))
        .collect();
    // The frame behind the last one of each stream, of all of them in a row.
    let ends = readers.iter().scan(0u64, |end, reader| {
        *end += reader.bytes().div_ceil(frame_bytes);
        Some(*end)
    });
    let ends: Vec<u64> = ends.collect();
    for frame in spread(ends.last().copied().unwrap_or(0)) {
        let stream = ends.partition_point(|end| *end <= frame);
        let before = stream.checked_sub(1).and_then(|before| ends.get(before));
        let Some(reader) = readers.get_mut(stream) else {
            break;
        };
        let at = (frame - before.copied().unwrap_or(0)) * frame_bytes;
        let elements = reader.read(at, frame_bytes)?;
        let has_room = trainer.add_frame_at(at / element_bytes, &elements);
        if !has_room.map_err(|error| refused(stream, at, error))? {
            break;
        }
    }
    let data_bytes = readers.iter().map(RunsReader::bytes).sum();
    Ok(trainer.train(data_bytes))
}

/// Source bytes of a frame, as the writer cuts them.
fn frame_bytes(stored: &Stored) -> u64 {
    let spec = StreamSpec {
        frame_bytes: stored.frame_bytes,
        ..StreamSpec::new(stored.chain.clone())
    };
    let element_bytes = stored.chain.source().bytes() as u64;
    spec.frame_elements().unwrap_or(1) * element_bytes
}

/// The error of a frame that begins at byte `at`, with the place of its element.
fn in_frame(chain: &Chain, at: u64, error: TransformError) -> WriteError {
    let index = tables::element_of(&error);
    let element_bytes = chain.source().bytes() as u64;
    let element = at / element_bytes + index;
    WriteError::Encode {
        element,
        byte: element * element_bytes,
        error,
    }
}

#[cfg(test)]
mod tests {
    use transforms::{ElementType, IdCounts};

    use super::*;

    /// Ids below `end`, and a chain with a table of those below 1,000.
    fn ids(end: u32) -> (Vec<u8>, Chain) {
        let bytes = |end: u32| (0..60_000u32).flat_map(move |n| (n * n / 7 % end).to_le_bytes());
        let mut counts = IdCounts::new();
        let counted: Vec<u8> = bytes(1000).collect();
        counts.add(ElementType::U32, &counted).unwrap();
        let chain = Chain::parse("rank+zstd-dict:3", ElementType::U32).unwrap();
        let chain = chain.with_table(Arc::new(counts.table().unwrap())).unwrap();
        (bytes(end).collect(), chain)
    }

    fn of_file(end: u32) -> Result<Trained, DatasetError> {
        let (bytes, chain) = ids(end);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ids");
        std::fs::write(&path, bytes).unwrap();
        let file = SourceFile::new(&path, &std::fs::metadata(&path).unwrap());
        let frame_bytes = 4096;
        of_files(vec![file], &Stored { chain, frame_bytes })
    }

    #[test]
    fn a_file_with_ids_that_were_not_counted_has_changed() {
        let trained = of_file(1000).unwrap().unwrap();
        assert!(trained.stored_bytes() >= 1024);
        assert!(of_file(1000).unwrap().unwrap() == trained);
        let changed = of_file(1001).unwrap_err().to_string();
        assert!(
            changed
                .ends_with("/ids: it was changed meanwhile; try again when nothing writes to it"),
            "{changed}"
        );
    }

    #[test]
    fn without_its_dictionary_a_chain_is_by_zstd_and_has_its_ranks() {
        let (_, chain) = ids(1000);
        let plain = without(&chain).unwrap();
        assert_eq!(plain.to_string(), "rank+zstd:3");
        assert_eq!(plain.rank_table(), chain.rank_table());
        let none = Chain::parse("u16+lz4", ElementType::U32).unwrap();
        assert_eq!(without(&none).unwrap(), none);
    }
}
