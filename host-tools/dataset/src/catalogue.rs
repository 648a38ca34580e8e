//! What each file is, and which belong together.

use std::collections::{HashMap, HashSet};

use formats::{Companion, Contents, Description, Dtype, Format, FormatError, megatron, named};
use transforms::ElementType;

use crate::names::{Names, listed};
use crate::paths::Paths;
use crate::pattern::keep_options;
use crate::scan::{Entry, FileId, Scan, SourceFile};
use crate::{DatasetError, Pattern};

/// What the user says of files whose content does not say it.
#[derive(Debug, Clone, Default)]
pub struct Hints {
    /// Files that are elements of a type without a header (`--as '*.bin=u16'`). The first that fits decides; a header that says the types, or the index of a
    /// pair, is believed before it.
    pub types: Vec<(Pattern, ElementType)>,
    /// Files that are taken for bytes, whatever they look like (`--keep PATTERN`).
    pub keep: Vec<Pattern>,
}

/// What is said of a file.
enum Said {
    /// It is not looked into.
    Keep,
    /// Which of [`Hints::types`].
    Type(usize),
}

impl Hints {
    /// By the first of its names that something is said of.
    fn said(&self, names: &Names<'_>, id: FileId) -> Option<Said> {
        names.first_that(id, |path| {
            if self.keep.iter().any(|pattern| pattern.fits(path)) {
                return Some(Said::Keep);
            }
            let mut types = self.types.iter();
            let hint = types.position(|(pattern, _)| pattern.fits(path));
            hint.map(Said::Type)
        })
    }
}

/// Whether a file of this format has a header, or an index, that says what its elements are. An archive or a picture has none: what looks like one by its
/// first bytes may be numbers all the same, when the user says so.
fn says_its_types(format: Format) -> bool {
    match format {
        Format::Safetensors
        | Format::SafetensorsIndex
        | Format::Npy
        | Format::MegatronIndex
        | Format::MegatronBin
        | Format::LlmC
        | Format::MdsShard
        | Format::MdsIndex
        | Format::Gguf => true,
        Format::Npz
        | Format::Zip
        | Format::Tar
        | Format::Parquet
        | Format::Jpeg
        | Format::Raw
        | Format::Unknown => false,
    }
}

/// What a file is.
#[derive(Debug)]
pub struct Recognised {
    /// What it is.
    pub description: Description,
}

/// A Megatron index and the `.bin` beside it, by their places in [`Scan::entries`]: a `.bin` may have several names, with an index each.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pair {
    pub(crate) index: usize,
    pub(crate) bin: usize,
    /// What this index says that the ids are; `None` where it was not read, since one of the two is kept.
    pub(crate) dtype: Option<Dtype>,
}

/// What each file is.
#[derive(Debug, Default)]
pub struct Catalogue {
    /// By [`FileId`].
    pub files: Vec<Recognised>,
    /// Files that begin like a format and break its rules; they are in `files` as unknown.
    pub malformed: Vec<(FileId, FormatError)>,
    /// Files whose content says their types, and which of [`Hints::types`] says another one of them: it is not believed.
    pub overruled: Vec<(FileId, usize)>,
    /// Files whose names say that they are of a format which they are not, and why: damaged ones, or of another format. They are in `files` as what they are.
    pub misnamed: Vec<Misnamed>,
    /// In the order of the scan.
    pub(crate) pairs: Vec<Pair>,
    /// Files that [`Hints::keep`] names.
    kept: HashMap<FileId, Kept>,
}

/// A file whose content is not what its name says.
#[derive(Debug)]
pub struct Misnamed {
    /// Which.
    pub file: FileId,
    /// What its name says.
    pub format: Format,
    /// What its content says.
    pub content: Format,
    /// Why it is not what its name says.
    pub error: FormatError,
}

impl Misnamed {
    /// Whether elements of it would change if it were what its name says, and it is nothing: without them a view of other types is not what was asked for.
    #[must_use]
    pub fn would_change(&self) -> bool {
        self.content == Format::Unknown && says_its_types(self.format)
    }
}

/// What a file is that is taken for bytes: an index may name others, which change.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) format: Format,
    pub(crate) companions: Vec<Companion>,
}

impl Kept {
    fn new(file: &SourceFile) -> Result<Kept, DatasetError> {
        let (format, companions) = match formats::describe(&file.open()?) {
            Ok(description) => (description.format, description.companions),
            Err(FormatError::Read { error, .. }) => {
                return Err(DatasetError::io("reading", &file.path, error));
            }
            // What is wrong with it may be why it is kept.
            Err(_) => (Format::Unknown, Vec::new()),
        };
        Ok(Kept { format, companions })
    }
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
            let described = match hints.said(&names, id) {
                Some(Said::Keep) => {
                    catalogue.kept.insert(id, Kept::new(file)?);
                    Ok(Description::unexamined(file.bytes, "--keep"))
                }
                Some(Said::Type(_)) | None => formats::describe(&file.open()?),
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
            catalogue.files.push(Recognised { description });
        }
        catalogue.pair_up(scan, hints, &names)?;
        catalogue.take_types(scan, hints, &names)?;
        catalogue.find_misnamed(scan, hints, &names)?;
        Ok(catalogue)
    }

    /// Files of which nothing is said, and whose names say more than their content.
    fn find_misnamed(
        &mut self,
        scan: &Scan,
        hints: &Hints,
        names: &Names<'_>,
    ) -> Result<(), DatasetError> {
        let mut told: HashSet<FileId> = self.malformed.iter().map(|it| it.0).collect();
        let unsaid = |id: FileId| hints.said(names, id).is_none();
        let pairs = beside_each_other(scan).into_iter();
        let pairs = pairs.filter(|it| unsaid(it.index.1) && unsaid(it.bin.1));
        let indexes: HashSet<FileId> = pairs.map(|it| it.index.1).collect();
        for (id, file) in scan.files() {
            let content = self.get(id).map(|it| it.description.format);
            let content = content.unwrap_or(Format::Unknown);
            if !unsaid(id) || !told.insert(id) {
                continue;
            }
            let format = names.first_that(id, |path| named::format_of_name(file_name(path)));
            let is_lone = format == Some(Format::MegatronIndex) && !indexes.contains(&id);
            let Some(format) = format.filter(|format| !is_lone && *format != content) else {
                continue;
            };
            let error = named::why_not(&file.open()?, format);
            let error = error.map_err(|error| DatasetError::format(&file.path, error))?;
            self.misnamed.push(Misnamed {
                file: id,
                format,
                content,
                error,
            });
        }
        Ok(())
    }

    /// Believes what is said of files whose content does not say it.
    fn take_types(
        &mut self,
        scan: &Scan,
        hints: &Hints,
        names: &Names<'_>,
    ) -> Result<(), DatasetError> {
        for (id, file) in scan.files() {
            let Some(Said::Type(hint)) = hints.said(names, id) else {
                continue;
            };
            let recognised = self.files.get_mut(id.0 as usize);
            let (Some(recognised), Some((_, element))) = (recognised, hints.types.get(hint)) else {
                continue;
            };
            let dtype = Dtype::from(*element);
            let description = &mut recognised.description;
            if says_its_types(description.format) {
                let mut payloads = description.payloads.iter();
                let is_same = payloads.all(|it| it.contents == Contents::Elements(dtype));
                if !is_same || description.payloads.is_empty() {
                    self.overruled.push((id, hint));
                }
                continue;
            }
            let described = formats::describe_as(&file.open()?, dtype);
            *description = described.map_err(|error| DatasetError::format(&file.path, error))?;
            self.malformed.retain(|(other, _)| *other != id);
        }
        Ok(())
    }

    /// What the file is.
    #[must_use]
    pub fn get(&self, id: FileId) -> Option<&Recognised> {
        self.files.get(id.0 as usize)
    }

    /// What the file is, where the user says that it is taken for bytes.
    pub(crate) fn kept(&self, id: FileId) -> Option<&Kept> {
        self.kept.get(&id)
    }

    /// The malformed files, as an error.
    ///
    /// # Errors
    /// That, with the way out.
    pub fn check(&self, scan: &Scan) -> Result<(), DatasetError> {
        let found = self.malformed.iter().map(|(id, error)| (*id, error));
        way_out(scan, &found.collect::<Vec<_>>())
    }

    /// The files that are not what their names say, where other types are asked for, as an error.
    ///
    /// # Errors
    /// That, with the way out.
    pub(crate) fn check_names(&self, scan: &Scan) -> Result<(), DatasetError> {
        let found = self.misnamed.iter().filter(|it| it.would_change());
        let found = found.map(|it| (it.file, &it.error));
        way_out(scan, &found.collect::<Vec<_>>())
    }

    /// The `.bin` beside each Megatron index is described by it. A pair of which one is kept is kept, under all names.
    fn pair_up(
        &mut self,
        scan: &Scan,
        hints: &Hints,
        names: &Names<'_>,
    ) -> Result<(), DatasetError> {
        let is_kept = |id| {
            let fits = |path: &[u8]| hints.keep.iter().any(|pattern| pattern.fits(path));
            names.of(id).iter().copied().any(fits)
        };
        let pairs = beside_each_other(scan);
        let is_kept_pair = |it: &&Beside| is_kept(it.index.1) || is_kept(it.bin.1);
        let kept = pairs.iter().filter(is_kept_pair).map(|it| it.bin.1);
        let kept: HashSet<FileId> = kept.collect();
        for Beside { index, bin } in pairs {
            let pair = |dtype| Pair {
                index: index.0,
                bin: bin.0,
                dtype,
            };
            if kept.contains(&bin.1) {
                self.pairs.push(pair(None));
                continue;
            }
            let recognised = self.get(index.1).map(|it| it.description.format);
            if recognised != Some(Format::MegatronIndex) {
                continue;
            }
            let (Some(index_file), Some(bin_file)) = (scan.file(index.1), scan.file(bin.1)) else {
                continue;
            };
            let read = match megatron::Index::read(&index_file.open()?, bin_file.bytes) {
                Ok(read) => read,
                Err(FormatError::Read { error, .. }) => {
                    return Err(DatasetError::io("reading", &index_file.path, error));
                }
                Err(error) => {
                    self.malformed.push((index.1, error));
                    continue;
                }
            };
            let Some(recognised) = self.files.get_mut(bin.1.0 as usize) else {
                continue;
            };
            // Where two indexes of a file disagree, the first describes it; a view that changes it is refused.
            if recognised.description.format != Format::MegatronBin {
                recognised.description = read.describe_bin();
            }
            self.pairs.push(pair(Some(read.dtype)));
        }
        Ok(())
    }
}

/// What is wrong with the first of them, which others there are, and the options that get past all.
fn way_out(scan: &Scan, found: &[(FileId, &FormatError)]) -> Result<(), DatasetError> {
    let Some((first, error)) = found.first() else {
        return Ok(());
    };
    let wrong: HashSet<FileId> = found.iter().map(|it| it.0).collect();
    let files = scan.entries.iter().filter(|entry| entry.file().is_some());
    let (named, spared): (Vec<&Entry>, Vec<&Entry>) =
        files.partition(|entry| entry.file().is_some_and(|id| wrong.contains(&id)));
    // The first of each file's names.
    let mut seen = HashSet::new();
    let named: Vec<&Entry> = named
        .into_iter()
        .filter(|entry| seen.insert(entry.file()))
        .collect();
    let spared: Vec<&[u8]> = spared.iter().map(|entry| entry.path.as_slice()).collect();
    let keep = keep_options(named.iter().map(|entry| entry.path.as_slice()), &spared);
    let others = named.iter().filter(|entry| entry.file() != Some(*first));
    let others: Vec<String> = others.map(|entry| entry.shown()).collect();
    let path = scan
        .file(*first)
        .map(|file| file.path.display().to_string());
    let what = format!("{}: {error};", path.unwrap_or_default());
    let why = match others.len() {
        0 => format!("mend it, or pass it through as bytes with {keep}"),
        count => format!(
            "and {count} more such ({}): mend them, or pass them through as bytes with {keep}",
            listed(others, ", ")
        ),
    };
    Err(DatasetError::data(what, why))
}

/// The part behind the last `/`.
fn file_name(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
}

/// What may be a pair by its names: the place and the file of each.
struct Beside {
    index: (usize, FileId),
    bin: (usize, FileId),
}

fn beside_each_other(scan: &Scan) -> Vec<Beside> {
    let paths = Paths::new(scan);
    let entries = scan.entries.iter().enumerate();
    let pairs = entries.filter_map(|(place, entry)| {
        let stem = entry.path.strip_suffix(b".idx")?;
        let bin = paths.place(&[stem, b".bin"].concat())?;
        Some(Beside {
            index: (place, entry.file()?),
            bin: (bin, scan.entries.get(bin)?.file()?),
        })
    });
    pairs.collect()
}

/// The element type that a payload's bytes are stored in.
pub(crate) fn element_of(contents: Contents) -> ElementType {
    contents
        .dtype()
        .and_then(Dtype::element)
        .unwrap_or(ElementType::U8)
}
