//! What each precision presents: types, headers and indexes that match.

mod files;
mod mds;
mod megatron;
mod model;
mod precision;
mod refusals;
mod unconverted;

use std::collections::{BTreeMap, HashMap};

use formats::{ByteSource, Dtype, Format, Presentation};

use self::files::{Files, Folder, Folders};
use self::mds::Shards;
use self::refusals::Refusals;
use crate::DatasetError;
use crate::catalogue::Catalogue;
use crate::paths::Paths;
use crate::scan::{Entry, FileId, Kind, Scan};

pub use self::precision::{Precision, Precisions};
pub use self::unconverted::Unconverted;

/// The name of the precision that presents the sources' exact bytes.
pub const SOURCE: &str = "source";

/// Where the data of a rewritten file begin, where its format can have it: what is mapped is aligned.
const ALIGNMENT: u64 = 4096;

/// What one precision presents.
#[derive(Debug)]
pub struct View {
    /// Its name.
    pub name: String,
    /// Names whose files are not their source's exact bytes, by their place in [`Scan::entries`].
    pub changed: HashMap<usize, Presentation>,
    /// Payloads that change, as `f32` to `bf16`: their bytes in the source.
    pub changes: BTreeMap<(Dtype, Dtype), u64>,
    /// Files that stay as they are where other types are asked for: none where the view is the sources' exact bytes.
    pub unconverted: BTreeMap<Unconverted, Vec<FileId>>,
    /// What a person should know.
    pub notes: Vec<String>,
}

impl View {
    /// What `precision` presents of the files.
    ///
    /// # Errors
    /// A type that a format does not have, or a conversion that there is not, with the files' names and the way out; files that cannot be
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
        catalogue.check_names(scan)?;
        let paths = Paths::new(scan);
        let all = Files {
            scan,
            catalogue,
            rules,
            paths: &paths,
        };
        let mut shards = Shards::default();
        let mut refusals = Refusals::default();
        for (path, entries) in &Folders::new(scan).list {
            let folder = Folder { all, path, entries };
            view.model(&folder)?;
            view.shards(&folder, &mut shards, &mut refusals)?;
            view.others(&folder, &mut refusals)?;
        }
        view.pairs(all, &mut refusals)?;
        view.check_kept_indexes(all)?;
        view.keep_links(scan, &paths);
        view.check_refusals(all, &refusals)?;
        view.count_changes(scan);
        view.find_unconverted(all)?;
        Ok(view)
    }

    /// A link that leads to a name which presents the same stays a link. Others become files: those of a model hub lead to blobs whose names say nothing.
    fn keep_links(&mut self, scan: &Scan, paths: &Paths<'_>) {
        let hops = |place: usize| std::iter::successors(paths.next(place), |it| paths.next(*it));
        let is_link = |place: &usize| {
            let entry = scan.entries.get(*place);
            entry.is_some_and(|it| matches!(it.kind, Kind::Symlink { .. }))
        };
        let links = self.changed.keys().copied().filter(is_link);
        // A link to a link comes behind that. None leads round: each has a file.
        let mut links: Vec<(usize, usize)> = links.map(|it| (hops(it).count(), it)).collect();
        links.sort_unstable();
        for (_, place) in links {
            let bytes = scan.entries.get(place).and_then(Entry::file);
            let bytes = bytes.and_then(|id| scan.file(id)).map(|file| file.bytes);
            let (Some(bytes), Some(_)) = (bytes, paths.next(place)) else {
                continue;
            };
            let there = hops(place).find_map(|it| self.changed.get(&it));
            let is_same = match (self.changed.get(&place), there) {
                (Some(own), Some(there)) => own == there,
                (Some(own), None) => own.is_exact(bytes),
                (None, _) => true,
            };
            if is_same {
                self.changed.remove(&place);
            }
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
                    let Some(presented) = Dtype::of(*presented) else {
                        continue;
                    };
                    let change = (Dtype::from(*stored), presented);
                    *self.changes.entry(change).or_default() += elements * stored.bytes() as u64;
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

    /// What a link presents is kept also when it is its source's bytes: where it leads to, there may be others.
    fn insert(&mut self, all: Files<'_>, place: usize, presentation: Presentation) {
        let Some(entry) = all.scan.entries.get(place) else {
            return;
        };
        let file = entry.file().and_then(|id| all.scan.file(id));
        let is_exact = file.is_none_or(|file| presentation.is_exact(file.bytes));
        if !is_exact || matches!(entry.kind, Kind::Symlink { .. }) {
            self.changed.insert(place, presentation);
        }
    }

    /// Files that stand alone.
    fn others(&mut self, folder: &Folder<'_>, refusals: &mut Refusals) -> Result<(), DatasetError> {
        let all = folder.all;
        for (place, _, id) in folder.files() {
            let Some(recognised) = all.catalogue.get(id) else {
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
            let source = all.open(id)?;
            let target = |payload: &formats::Payload| all.rules.target(payload);
            let presented = description.present(&source, &target, ALIGNMENT);
            let presented = refusals.take(id, presented);
            let presented = presented.map_err(|e| DatasetError::format(&all.path_of(place), e))?;
            let Some(presented) = presented else {
                continue;
            };
            if !presented.is_exact(source.bytes()) && description.format == Format::Raw {
                let path = all.path_of(place);
                let why =
                    "nothing in the file says its type: its reader has to be told the changed one";
                self.notes.push(format!("{}: {why}", path.display()));
            }
            self.insert(all, place, presented);
        }
        Ok(())
    }
}
