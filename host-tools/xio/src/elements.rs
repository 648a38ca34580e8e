//! Files that are elements and nothing else.

use std::path::Path;

use anyhow::anyhow;
use dataset::document::{self, Change, ChangedFile, Source};
use dataset::view::SOURCE;
use dataset::{DatasetError, OpenFile};
use formats::{Format, FormatError};
use transforms::{Chain, Loss, Packing};
use volume::write::Written;

use crate::failure::Failure;
use crate::pack::WRITER;

/// Refuses a file that is of a format: what it says of itself would be rounded with its elements.
///
/// # Errors
/// Reads that fail; the format's name.
pub fn refuse_headers(path: &Path, file: &OpenFile<'_>) -> Result<(), Failure> {
    let format = match formats::describe(file) {
        Ok(description) => description.format,
        Err(FormatError::Read { error, .. }) => {
            return Err(DatasetError::io("reading", path, error).into());
        }
        // It begins like a format: enough to know that it is no run of elements.
        Err(error) => return Err(Failure::usage(anyhow!("{}: {error}", path.display()))),
    };
    if matches!(format, Format::Unknown | Format::Raw) {
        return Ok(());
    }
    Err(Failure::usage(anyhow!(
        "{} is {}: with --dtype, a chain that rounds takes files of elements alone; without it, --present-as rounds what the file holds",
        path.display(),
        format.name(),
    )))
}

/// A file of elements that a volume presents.
pub struct Presented<'a> {
    /// How it is stored.
    pub chain: &'a Chain,
    /// Its name, wherever it lies: the same input gives the same volume.
    pub name: &'a [u8],
    /// Its length.
    pub bytes: u64,
    /// Of its content.
    pub sha256: &'a [u8; 32],
    /// What holds it.
    pub stream: &'a Written,
    /// What was lost, where the chain rounds.
    pub loss: Option<&'a Loss>,
}

/// What the volume says of its view: where the elements come from, and what was lost of them.
pub fn manifest(chain: &Chain, files: &[Presented<'_>]) -> Vec<u8> {
    let rounded_to = chain.contract().is_lossy().then(|| chain.packing());
    let sources = files.iter().map(|file| Source {
        path: file.name,
        bytes: file.bytes,
        sha256: file.sha256,
        format: Format::Raw.name(),
        streams: vec![file.stream.stream.0 as usize],
        unzipped_from: None,
    });
    let streams = files
        .iter()
        .map(|file| document::stream(file.chain, file.stream, file.loss));
    let view = match rounded_to {
        Some(to) => rounded_view(chain, to, files),
        None => document::view(SOURCE, Vec::new(), Vec::new()),
    };
    let document = document::Manifest {
        writer: WRITER,
        is_lossy: rounded_to.is_some(),
        sources: sources.collect(),
        streams: streams.collect(),
        views: vec![view],
        volumes: Vec::new(),
    };
    document.into_json()
}

fn rounded_view(chain: &Chain, to: Packing, files: &[Presented<'_>]) -> serde_json::Value {
    let from = chain.source();
    let whole = loss_of_all(files.iter().filter_map(|file| file.loss));
    let change = Change {
        from,
        to,
        presented_as: Packing::Whole(from),
        // What rounds is the only element step of its chain.
        step: chain.steps().first(),
        source_bytes: files.iter().map(|file| file.bytes).sum(),
        loss: Some(&whole),
    };
    let changed_files = files.iter().enumerate().map(|(source, file)| {
        let changed = ChangedFile {
            path: file.name,
            source,
            // What is presented is what the stream holds, whose digest it has.
            bytes: file.stream.source_bytes,
            sha256: &file.stream.elements_sha256,
            losses: file
                .loss
                .map(|loss| ((from, to), loss))
                .into_iter()
                .collect(),
        };
        changed.to_json()
    });
    document::view(
        &to.to_string(),
        vec![change.to_json()],
        changed_files.collect(),
    )
}

/// Of files in their order.
pub fn loss_of_all<'a>(losses: impl Iterator<Item = &'a Loss>) -> Loss {
    losses.fold(Loss::default(), |mut all, loss| {
        all.append(loss);
        all
    })
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use dataset::SourceFile;

    use super::*;

    #[test]
    fn a_file_that_is_cut_off_while_its_header_is_read_says_where() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("values");
        fs::write(&path, [0; 4096]).unwrap();
        let source = SourceFile::new(&path, &fs::metadata(&path).unwrap());
        let open = source.open().unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        file.set_len(3).unwrap();
        let refused = refuse_headers(&path, &open).unwrap_err();
        let wanted = format!(
            "{}: it was changed meanwhile: it ends at byte 3, and had 4096 bytes; try again when nothing writes to it",
            path.display()
        );
        assert_eq!(refused.to_string(), wanted);
    }
}
