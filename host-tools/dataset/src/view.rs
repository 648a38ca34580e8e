//! What each precision presents: types, headers and indexes that match.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::str::FromStr;

use formats::model::ModelFile;
use formats::rules::Rules;
use formats::{ByteSource, Dtype, Format, FormatError, Presentation, mds, megatron, model};

use crate::catalogue::Catalogue;
use crate::scan::{Entry, FileId, Kind, OpenFile, Scan};
use crate::{DatasetError, measure};

/// The name of the precision that presents the sources' exact bytes.
pub const SOURCE: &str = "source";

/// Where the data of a rewritten file begin, where its format can have it: what is mapped is aligned.
const ALIGNMENT: u64 = 4096;

/// A precision that a disk presents: a name, and the types.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Precision {
    /// What its directory is called.
    pub name: String,
    /// Which type each payload has; `None` for the sources' exact bytes.
    pub rules: Option<Rules>,
}

/// The precisions of a disk: one is its root, several have a directory each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Precisions(pub Vec<Precision>);

impl Default for Precisions {
    fn default() -> Precisions {
        Precisions(vec![Precision {
            name: SOURCE.to_owned(),
            rules: None,
        }])
    }
}

/// `source`, types, or one set of rules, with a name before it: `source,bf16`; `small:*norm*=keep,*@2+=bf16`.
impl FromStr for Precisions {
    type Err = String;

    fn from_str(text: &str) -> Result<Precisions, String> {
        if text.contains('=') {
            return Ok(Precisions(vec![rules(text)?]));
        }
        let mut list: Vec<Precision> = Vec::new();
        for name in text.split(',') {
            if list.iter().any(|before| before.name == name) {
                return Err(format!("{name} is there twice"));
            }
            let rules = match name {
                SOURCE => None,
                name => {
                    let rules: Rules = name.parse().map_err(|e: FormatError| e.to_string())?;
                    Some(rules)
                }
            };
            let name = name.to_owned();
            list.push(Precision { name, rules });
        }
        Ok(Precisions(list))
    }
}

fn rules(text: &str) -> Result<Precision, String> {
    let (name, text) = match text.split_once(':') {
        Some((name, rules)) if is_name(name) => (name, rules),
        _ => ("view", text),
    };
    if name == SOURCE {
        return Err(format!("{SOURCE} is the name of the sources' exact bytes"));
    }
    let rules: Rules = text.parse().map_err(|e: FormatError| e.to_string())?;
    Ok(Precision {
        name: name.to_owned(),
        rules: Some(rules),
    })
}

fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    !name.is_empty() && !name.starts_with('.') && name.chars().all(plain)
}

impl Precisions {
    /// These and those, each name once.
    ///
    /// # Errors
    /// A name that comes twice.
    pub fn joined(all: &[Precisions]) -> Result<Precisions, String> {
        let mut list: Vec<Precision> = Vec::new();
        for precision in all.iter().flat_map(|some| &some.0) {
            if list.iter().any(|before| before.name == precision.name) {
                return Err(format!("{} is there twice", precision.name));
            }
            list.push(precision.clone());
        }
        if list.is_empty() {
            return Ok(Precisions::default());
        }
        Ok(Precisions(list))
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name)
    }
}

/// What one precision presents.
#[derive(Debug)]
pub struct View {
    /// Its name.
    pub name: String,
    /// Names whose files are not their source's exact bytes, by their place in [`Scan::entries`].
    pub changed: HashMap<usize, Presentation>,
    /// Payloads that change, as `f32` to `bf16`: their bytes in the source.
    pub changes: BTreeMap<(Dtype, Dtype), u64>,
    /// Files that stay as they are since no element of theirs can become what is asked for, by its type and the type asked for.
    pub unconverted: BTreeMap<(Dtype, Dtype), Vec<FileId>>,
    /// What a person should know.
    pub notes: Vec<String>,
}

impl View {
    /// What `precision` presents of the files.
    ///
    /// # Errors
    /// A type that a format does not have, or a conversion that there is not, with the file's name and the way out; files that cannot be
    /// read.
    pub fn new(
        scan: &Scan,
        catalogue: &Catalogue,
        precision: &Precision,
    ) -> Result<View, DatasetError> {
        let mut view = View {
            name: precision.name.clone(),
            changed: HashMap::new(),
            changes: BTreeMap::new(),
            unconverted: BTreeMap::new(),
            notes: Vec::new(),
        };
        let Some(rules) = &precision.rules else {
            return Ok(view);
        };
        let folders = Folders::new(scan);
        for folder in &folders.list {
            let there = Folder {
                scan,
                catalogue,
                rules,
                path: folder.0,
                entries: &folder.1,
            };
            view.model(&there)?;
            view.pairs(&there)?;
            view.shards(&there)?;
            view.others(&there)?;
        }
        view.keep_links(scan);
        view.count_changes(scan);
        view.find_unconverted(scan, catalogue, rules);
        Ok(view)
    }

    /// A link whose file presents the same under its own name stays a link. Others become files: those of a model hub lead to blobs whose names say nothing.
    fn keep_links(&mut self, scan: &Scan) {
        let mut own_names: HashMap<FileId, usize> = HashMap::new();
        for (place, entry) in scan.entries.iter().enumerate() {
            if let Kind::File(id) = entry.kind {
                own_names.entry(id).or_insert(place);
            }
        }
        let is_kept = |place: usize, presented: &Presentation| {
            let Some(Kind::Symlink { target, file }) = scan.entries.get(place).map(|it| &it.kind)
            else {
                return false;
            };
            let own = file.and_then(|id| self.changed.get(own_names.get(&id)?));
            !target.starts_with(b"/") && own == Some(presented)
        };
        let kept: Vec<usize> = self
            .changed
            .iter()
            .filter(|(place, presented)| is_kept(**place, presented))
            .map(|(place, _)| *place)
            .collect();
        for place in kept {
            self.changed.remove(&place);
        }
    }

    /// A file that presents the same under several names is counted once.
    fn count_changes(&mut self, scan: &Scan) {
        let mut counted: HashMap<FileId, Vec<&Presentation>> = HashMap::new();
        for (entry, presentation) in &self.changed {
            let Some(file) = scan.entries.get(*entry).and_then(Entry::file) else {
                continue;
            };
            let before = counted.entry(file).or_default();
            if before.contains(&presentation) {
                continue;
            }
            before.push(presentation);
            for part in presentation.parts() {
                if let formats::Part::Converted {
                    elements,
                    stored,
                    presented,
                    ..
                } = part
                {
                    let change = (Dtype::from(*stored), Dtype::from(*presented));
                    *self.changes.entry(change).or_default() += elements * stored.bytes() as u64;
                }
            }
        }
    }

    /// A file of which something is converted, or has the type already, needs no word.
    fn find_unconverted(&mut self, scan: &Scan, catalogue: &Catalogue, rules: &Rules) {
        let file_of = |entry: &usize| scan.entries.get(*entry).and_then(Entry::file);
        let changed: HashSet<FileId> = self.changed.keys().filter_map(file_of).collect();
        for (id, _) in scan.files().filter(|(id, _)| !changed.contains(id)) {
            let payloads = catalogue.get(id).map(|it| it.description.payloads.iter());
            let asked = payloads
                .into_iter()
                .flatten()
                .filter_map(|it| rules.asked(it));
            let asked: BTreeSet<(Dtype, Dtype)> = asked.collect();
            if asked.iter().all(|(from, to)| from.conversion(*to).is_err()) {
                for types in asked {
                    self.unconverted.entry(types).or_default().push(id);
                }
            }
        }
    }

    /// The parts of the file that the entry names; its source's bytes where nothing changed.
    #[must_use]
    pub fn presentation(&self, entry: usize, file_bytes: u64) -> Presentation {
        let changed = self.changed.get(&entry).cloned();
        changed.unwrap_or_else(|| Presentation::exact(file_bytes))
    }

    fn insert(&mut self, entry: usize, file_bytes: u64, presentation: Presentation) {
        if presentation.is_exact(file_bytes) {
            return;
        }
        self.changed.insert(entry, presentation);
    }

    /// Weights, with the index and the configuration beside them.
    fn model(&mut self, folder: &Folder<'_>) -> Result<(), DatasetError> {
        let is_weights = |format| matches!(format, Format::Safetensors | Format::Gguf);
        if !folder
            .files()
            .any(|(_, _, id)| is_weights(folder.format(id)))
        {
            return Ok(());
        }
        let mut open = Vec::new();
        for (index, entry, id) in folder.files() {
            let belongs = match folder.format(id) {
                Format::SafetensorsIndex => folder.has_some_of(id),
                Format::Zip => true,
                Format::Unknown => entry.name() == model::CONFIG.as_bytes(),
                format => is_weights(format),
            };
            let (true, Ok(name)) = (belongs, std::str::from_utf8(entry.name())) else {
                continue;
            };
            open.push((index, name, folder.open(id)?));
        }
        let files: Vec<ModelFile<'_>> = open
            .iter()
            .map(|(_, name, source)| ModelFile { name, source })
            .collect();
        let plan = model::plan(&files, folder.rules, ALIGNMENT);
        let plan = plan.map_err(|error| DatasetError::format(&folder.shown(), error))?;
        for (planned, (index, _, source)) in plan.files.into_iter().zip(&open) {
            self.insert(*index, source.bytes(), planned.presentation);
        }
        let shown = folder.shown();
        let at = |note: String| format!("{}: {note}", shown.display());
        self.notes.extend(plan.notes.into_iter().map(at));
        Ok(())
    }

    /// Token ids, with their Megatron index.
    fn pairs(&mut self, folder: &Folder<'_>) -> Result<(), DatasetError> {
        for (index, entry, id) in folder.files() {
            let Some((bin, idx)) = folder.pair(id) else {
                continue;
            };
            let payload = bin.description.payloads.first();
            let Some(target) = payload.and_then(|payload| folder.rules.target(payload)) else {
                continue;
            };
            let failed = |error| DatasetError::format(&folder.path_of(id), error);
            let source = folder.open(id)?;
            let wanted = |_: &formats::Payload| Some(target);
            let presented = bin.description.present(&source, &wanted, ALIGNMENT);
            self.insert(index, source.bytes(), presented.map_err(failed)?);
            let idx_name = [
                entry.name().strip_suffix(b".bin").unwrap_or_default(),
                b".idx",
            ]
            .concat();
            let Some((idx_entry, ..)) = folder.files().find(|(_, it, _)| it.name() == idx_name)
            else {
                continue;
            };
            let idx_source = folder.open(idx)?;
            let presented = megatron::Index::read(&idx_source, source.bytes())
                .and_then(|read| read.present(&idx_source, target))
                .map_err(|error| DatasetError::format(&folder.path_of(idx), error))?;
            self.insert(idx_entry, idx_source.bytes(), presented);
        }
        Ok(())
    }

    /// Shards of samples, with their index.
    fn shards(&mut self, folder: &Folder<'_>) -> Result<(), DatasetError> {
        let indexes = folder.files();
        for (index, _, id) in indexes.filter(|it| folder.format(it.2) == Format::MdsIndex) {
            let source = folder.open(id)?;
            let failed = |error| DatasetError::format(&folder.path_of(id), error);
            let read = mds::Index::read(&source).map_err(failed)?;
            let mut changed = Vec::new();
            for shard in read.shards() {
                let found = folder
                    .files()
                    .find(|(_, entry, _)| entry.name() == shard.raw.basename.as_bytes());
                changed.push(match found {
                    Some((entry, _, id)) => self.shard(folder, entry, id, shard)?,
                    None => None,
                });
            }
            if changed.iter().any(Option::is_some) {
                let presented = read.present(&changed).map_err(failed)?;
                self.insert(index, source.bytes(), presented);
            }
        }
        Ok(())
    }

    fn shard(
        &mut self,
        folder: &Folder<'_>,
        entry: usize,
        id: FileId,
        shard: &mds::ShardEntry,
    ) -> Result<Option<mds::ChangedShard>, DatasetError> {
        let Some(recognised) = folder.catalogue.get(id) else {
            return Ok(None);
        };
        let description = &recognised.description;
        let failed = |error| DatasetError::format(&folder.path_of(id), error);
        let source = folder.open(id)?;
        let target = |payload: &formats::Payload| folder.rules.target(payload);
        let presented = description.present(&source, &target, 1).map_err(failed)?;
        if presented.is_exact(source.bytes()) {
            return Ok(None);
        }
        let names: Vec<&str> = shard.raw.hashes.keys().map(String::as_str).collect();
        let hashes = measure::hashes(&source, &folder.path_of(id), &presented, &names)?;
        let columns = mds::presented_columns(description, &target).map_err(failed)?;
        let changed = mds::ChangedShard {
            bytes: presented.bytes(),
            hashes,
            columns,
        };
        self.insert(entry, source.bytes(), presented);
        Ok(Some(changed))
    }

    /// Files that stand alone.
    fn others(&mut self, folder: &Folder<'_>) -> Result<(), DatasetError> {
        for (index, _, id) in folder.files() {
            let Some(recognised) = folder.catalogue.get(id) else {
                continue;
            };
            let description = &recognised.description;
            let alone = !matches!(
                description.format,
                Format::Safetensors | Format::Gguf | Format::MdsShard | Format::MegatronBin
            );
            if !alone || description.payloads.is_empty() {
                continue;
            }
            let source = folder.open(id)?;
            let target = |payload: &formats::Payload| folder.rules.target(payload);
            let presented = description.present(&source, &target, ALIGNMENT);
            let presented = presented.map_err(|e| DatasetError::format(&folder.path_of(id), e))?;
            if !presented.is_exact(source.bytes()) && description.format == Format::Raw {
                let path = folder.path_of(id);
                let why =
                    "nothing in the file says its type: its reader has to be told the changed one";
                self.notes.push(format!("{}: {why}", path.display()));
            }
            self.insert(index, source.bytes(), presented);
        }
        Ok(())
    }
}

/// Names by the directory that they are in, in the order of the scan.
struct Folders<'a> {
    list: Vec<(&'a [u8], Vec<usize>)>,
}

impl<'a> Folders<'a> {
    fn new(scan: &'a Scan) -> Folders<'a> {
        let mut list: Vec<(&[u8], Vec<usize>)> = Vec::new();
        let mut places: HashMap<&[u8], usize> = HashMap::new();
        for (index, entry) in scan.entries.iter().enumerate() {
            if entry.file().is_none() {
                continue;
            }
            let place = *places.entry(entry.parent()).or_insert_with(|| {
                list.push((entry.parent(), Vec::new()));
                list.len() - 1
            });
            if let Some((_, entries)) = list.get_mut(place) {
                entries.push(index);
            }
        }
        Folders { list }
    }
}

/// A directory whose files are looked at together.
struct Folder<'a> {
    scan: &'a Scan,
    catalogue: &'a Catalogue,
    rules: &'a Rules,
    path: &'a [u8],
    entries: &'a [usize],
}

impl<'a> Folder<'a> {
    fn files(&self) -> impl Iterator<Item = (usize, &'a Entry, FileId)> {
        let scan = self.scan;
        self.entries.iter().filter_map(move |&index| {
            let entry = scan.entries.get(index)?;
            Some((index, entry, entry.file()?))
        })
    }

    fn format(&self, id: FileId) -> Format {
        let recognised = self.catalogue.get(id);
        recognised.map_or(Format::Unknown, |it| it.description.format)
    }

    /// A `.bin` of a Megatron pair, and its index.
    fn pair(&self, id: FileId) -> Option<(&'a crate::Recognised, FileId)> {
        let recognised = self.catalogue.get(id)?;
        Some((recognised, recognised.index?))
    }

    /// Whether any of the files that belong to this one are here. A hub's blobs have other names than their index says.
    fn has_some_of(&self, id: FileId) -> bool {
        let listed = self.catalogue.get(id).map(|it| &it.description.companions);
        let listed = listed.into_iter().flatten().filter_map(|it| match it {
            formats::Companion::Listed(name) => Some(name.as_bytes()),
            _ => None,
        });
        let names: HashSet<&[u8]> = self.files().map(|(_, entry, _)| entry.name()).collect();
        listed.into_iter().any(|name| names.contains(name))
    }

    fn open(&self, id: FileId) -> Result<OpenFile<'a>, DatasetError> {
        match self.scan.file(id) {
            Some(file) => file.open(),
            None => Err(DatasetError::refused("a file", "is not of this scan")),
        }
    }

    fn path_of(&self, id: FileId) -> std::path::PathBuf {
        let file = self.scan.file(id);
        file.map(|file| file.path.clone()).unwrap_or_default()
    }

    /// For messages: the folder of its first file.
    fn shown(&self) -> std::path::PathBuf {
        let first = self.files().next();
        let path = first.map(|(_, _, id)| self.path_of(id)).unwrap_or_default();
        match path.parent() {
            Some(parent) => parent.to_owned(),
            None => String::from_utf8_lossy(self.path).into_owned().into(),
        }
    }
}
