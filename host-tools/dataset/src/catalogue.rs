//! What each file is, and which belong together.

use std::collections::HashMap;

use formats::{Contents, Description, Dtype, Format, FormatError, megatron};
use transforms::ElementType;

use crate::names::Names;
use crate::scan::{FileId, Scan};
use crate::{DatasetError, Pattern};

/// What the user says of files whose content does not say it.
#[derive(Debug, Clone, Default)]
pub struct Hints {
    /// Files that are elements of a type without a header (`--as '*.bin=u16'`). The first that fits decides.
    pub types: Vec<(Pattern, ElementType)>,
    /// Files that are taken for bytes, whatever they look like (`--keep PATTERN`).
    pub keep: Vec<Pattern>,
}

/// What a file is, and with whom.
#[derive(Debug)]
pub struct Recognised {
    /// What it is.
    pub description: Description,
    /// The index that described it: that of a Megatron pair.
    pub index: Option<FileId>,
}

/// What each file is.
#[derive(Debug, Default)]
pub struct Catalogue {
    /// By [`FileId`].
    pub files: Vec<Recognised>,
    /// Files that begin like a format and break its rules; they are in `files` as unknown.
    pub malformed: Vec<(FileId, FormatError)>,
}

impl Catalogue {
    /// Recognises every file of the scan, by its content; names decide only which files belong together, and where the user says so.
    ///
    /// # Errors
    /// Files that cannot be read, or do not fit what the user says of them.
    pub fn new(scan: &Scan, hints: &Hints) -> Result<Catalogue, DatasetError> {
        let names = Names::new(scan);
        let mut catalogue = Catalogue::default();
        for (id, file) in scan.files() {
            let open = file.open()?;
            let said = names.first_that(id, |path| {
                let keep = hints.keep.iter().any(|pattern| pattern.fits(path));
                let typed = hints.types.iter().find(|(pattern, _)| pattern.fits(path));
                if keep {
                    return Some(None);
                }
                typed.map(|(_, element)| Some(*element))
            });
            let described = match said {
                Some(None) => Ok(Description::unexamined(file.bytes, "--keep")),
                Some(Some(element)) => formats::describe_as(&open, Dtype::from(element))
                    .map_err(|error| DatasetError::format(&file.path, error))
                    .map(Ok)?,
                None => formats::describe(&open),
            };
            let description = match described {
                Ok(description) => description,
                Err(FormatError::Read { error, .. }) => {
                    return Err(DatasetError::io("reading", &file.path, error));
                }
                Err(error) => {
                    catalogue.malformed.push((id, error));
                    Description::unexamined(file.bytes, "it is malformed")
                }
            };
            catalogue.files.push(Recognised {
                description,
                index: None,
            });
        }
        catalogue.pair_up(scan, hints)?;
        Ok(catalogue)
    }

    /// What the file is.
    #[must_use]
    pub fn get(&self, id: FileId) -> Option<&Recognised> {
        self.files.get(id.0 as usize)
    }

    /// The first malformed file, as an error.
    ///
    /// # Errors
    /// That, with the way out.
    pub fn check(&self, scan: &Scan) -> Result<(), DatasetError> {
        let Some((id, error)) = self.malformed.first() else {
            return Ok(());
        };
        let path = scan.file(*id).map(|file| file.path.display().to_string());
        let name = scan.file(*id).and_then(|file| file.path.file_name());
        let name = name.map(|name| name.to_string_lossy().into_owned());
        Err(DatasetError::data(
            format!("{}: {error};", path.unwrap_or_default()),
            format!(
                "mend it, or pass it through as bytes with --keep '{}'",
                name.unwrap_or_default()
            ),
        ))
    }

    /// The `.bin` beside each Megatron index is described by it.
    fn pair_up(&mut self, scan: &Scan, hints: &Hints) -> Result<(), DatasetError> {
        let by_path: HashMap<&[u8], FileId> = scan
            .entries
            .iter()
            .filter_map(|entry| Some((entry.path.as_slice(), entry.file()?)))
            .collect();
        for entry in &scan.entries {
            let Some(index) = entry.file() else { continue };
            let is_index = self
                .get(index)
                .is_some_and(|it| it.description.format == Format::MegatronIndex);
            let stem = entry.path.strip_suffix(b".idx");
            let (true, Some(stem)) = (is_index, stem) else {
                continue;
            };
            let bin_path = [stem, b".bin"].concat();
            if hints.keep.iter().any(|pattern| pattern.fits(&bin_path)) {
                continue;
            }
            let Some(bin) = by_path.get(bin_path.as_slice()).copied() else {
                continue;
            };
            let (Some(index_file), Some(bin_file)) = (scan.file(index), scan.file(bin)) else {
                continue;
            };
            match megatron::Index::read(&index_file.open()?, bin_file.bytes) {
                Ok(read) => {
                    if let Some(recognised) = self.files.get_mut(bin.0 as usize) {
                        recognised.description = read.describe_bin();
                        recognised.index = Some(index);
                    }
                }
                Err(FormatError::Read { error, .. }) => {
                    return Err(DatasetError::io("reading", &index_file.path, error));
                }
                Err(error) => self.malformed.push((index, error)),
            }
        }
        Ok(())
    }
}

/// The element type that a payload's bytes are stored in.
pub(crate) fn element_of(contents: Contents) -> ElementType {
    contents
        .dtype()
        .and_then(Dtype::element)
        .unwrap_or(ElementType::U8)
}
