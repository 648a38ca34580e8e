//! What stays as it is although another type is asked for, and why.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;

use formats::{Contents, Dtype, Format, Payload, gguf, mds, megatron};

use super::View;
use super::files::{Files, Folder};
use super::mds as mds_view;
use crate::DatasetError;
use crate::catalogue::Catalogue;
use crate::scan::{Entry, FileId};

/// Why a file stays as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unconverted {
    /// No element of this type becomes that one.
    Type(Dtype, Dtype),
    /// GGUF has few conversions.
    Gguf(Dtype),
    /// A shard that has to be decompressed first.
    MdsZip,
    /// A shard without an index, which says its size and hashes.
    MdsShard,
    /// A shard whose index is kept.
    MdsKept,
    /// A Megatron index without the `.bin` that it points into.
    MegatronIndex,
    /// A `.bin` of which an index, or the like under another name, is kept.
    MegatronKept,
    /// Content of no known format.
    Unknown,
    /// A format that is passed through: [`formats::Description::pass_through`] says why.
    Format,
    /// The user says so.
    Kept,
    /// An index of files that stay as they are.
    Index,
    /// A model's configuration.
    Configuration,
    /// Nothing is asked of its elements that they are not already.
    Same,
    /// No bytes.
    Empty,
}

impl Unconverted {
    /// What the files are, as in "2 files of ...".
    #[must_use]
    pub fn what(self) -> String {
        match self {
            Unconverted::Type(from, _) => from.to_string(),
            Unconverted::Gguf(from) => format!("GGUF {from}"),
            Unconverted::MdsZip => "compressed MDS".to_owned(),
            Unconverted::MdsShard | Unconverted::MdsKept => "MDS".to_owned(),
            Unconverted::MegatronIndex => "Megatron index".to_owned(),
            Unconverted::MegatronKept => "Megatron bin".to_owned(),
            Unconverted::Unknown => "unknown format".to_owned(),
            Unconverted::Format => "a format without types".to_owned(),
            Unconverted::Kept => "--keep".to_owned(),
            Unconverted::Index => "an index".to_owned(),
            Unconverted::Configuration => "a configuration".to_owned(),
            Unconverted::Same => "such elements".to_owned(),
            Unconverted::Empty => "no bytes".to_owned(),
        }
    }

    /// Whether a person has to be told: not what the command line says, nor what stays since there is nothing to do. Formats that are passed through are told
    /// also where no type is asked for.
    #[must_use]
    pub fn is_told(self) -> bool {
        match self {
            Unconverted::Type(..)
            | Unconverted::Gguf(_)
            | Unconverted::MdsZip
            | Unconverted::MdsShard
            | Unconverted::MdsKept
            | Unconverted::MegatronIndex
            | Unconverted::MegatronKept
            | Unconverted::Unknown => true,
            Unconverted::Format
            | Unconverted::Kept
            | Unconverted::Index
            | Unconverted::Configuration
            | Unconverted::Same
            | Unconverted::Empty => false,
        }
    }
}

/// The reason.
impl fmt::Display for Unconverted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unconverted::Type(from, to) => write!(f, "{from} does not become {to}"),
            Unconverted::Gguf(_) => f.write_str(gguf::WHAT_CHANGES),
            Unconverted::MdsZip => {
                f.write_str("their arrays are compressed; 'xio pack --unzip' stores them raw")
            }
            Unconverted::MdsShard => f.write_str("no index.json names them"),
            Unconverted::MegatronIndex => f.write_str("a .bin of the same name is not beside them"),
            Unconverted::MdsKept => f.write_str("the index that names them is kept"),
            Unconverted::MegatronKept => f.write_str("the other half of a pair is kept"),
            Unconverted::Unknown => f.write_str(
                "no format is known here; '--as PATTERN=TYPE' says what bare elements are",
            ),
            Unconverted::Format => f.write_str("their format is passed through"),
            Unconverted::Kept => f.write_str("--keep names them"),
            Unconverted::Index => f.write_str("what it names stays as it is"),
            Unconverted::Configuration => f.write_str("it names no type that changed"),
            Unconverted::Same => f.write_str("no element of it is to have another type"),
            Unconverted::Empty => f.write_str("it is empty"),
        }
    }
}

impl View {
    /// A file of which something is converted under one of its names is none of them. Every other file has a reason.
    pub(super) fn find_unconverted(&mut self, all: Files<'_>) -> Result<(), DatasetError> {
        let file_of = |entry: &usize| all.scan.entries.get(*entry).and_then(Entry::file);
        let changed: HashSet<FileId> = self.changed.keys().filter_map(file_of).collect();
        for files in self.unconverted.values_mut() {
            files.retain(|id| !changed.contains(id));
        }
        let before = self.unconverted.values().flatten();
        let named: HashSet<FileId> = before.copied().chain(changed).collect();
        let reasons = Reasons::new(all);
        for (id, _) in all.scan.files().filter(|(id, _)| !named.contains(id)) {
            for reason in reasons.of(id)? {
                self.unconverted.entry(reason).or_default().push(id);
            }
        }
        for files in self.unconverted.values_mut() {
            files.sort_unstable();
            files.dedup();
        }
        self.unconverted.retain(|_, files| !files.is_empty());
        Ok(())
    }

    /// The files that stay as they are, and why, in their order.
    #[must_use]
    pub fn as_they_are(&self, catalogue: &Catalogue) -> BTreeMap<FileId, String> {
        let mut all: BTreeMap<FileId, String> = BTreeMap::new();
        for (reason, files) in &self.unconverted {
            let general = reason.to_string();
            for id in files {
                let known = catalogue.get(*id);
                let known = known.and_then(|it| it.description.pass_through.as_deref());
                let why = match (reason, known) {
                    (Unconverted::Format, Some(known)) => known,
                    _ => &general,
                };
                let said = all.entry(*id).or_default();
                if !said.is_empty() {
                    said.push_str("; ");
                }
                said.push_str(why);
            }
        }
        all
    }

    /// A compressed shard with an array that a type is asked of.
    pub(super) fn mds_zip(&mut self, folder: &Folder<'_>, shard: &mds::ShardEntry) {
        let zip = shard.zip.as_ref().map(|zip| zip.basename.as_bytes());
        let found = zip.and_then(|name| folder.all.paths.file_from(folder.path, name));
        let is_asked = shard.arrays.iter().any(|name| folder.all.rules.name(name));
        if let (Some((_, id)), true) = (found, is_asked) {
            let files = self.unconverted.entry(Unconverted::MdsZip).or_default();
            files.push(id);
        }
    }
}

/// What the reasons of single files need of all files.
struct Reasons<'a> {
    all: Files<'a>,
    /// Megatron indexes that are half of a pair under one of their names.
    paired: HashSet<FileId>,
    /// The `.bin`s of pairs that are kept.
    kept_bins: HashSet<FileId>,
    /// What kept MDS indexes name.
    kept_shards: HashSet<FileId>,
}

impl<'a> Reasons<'a> {
    fn new(all: Files<'a>) -> Reasons<'a> {
        let file_at = |place: usize| all.file_at(place).map(|it| it.0);
        let pairs = &all.catalogue.pairs;
        let malformed = all.catalogue.malformed.iter().map(|it| it.0);
        let paired = pairs.iter().filter_map(|pair| file_at(pair.index));
        let kept = pairs.iter().filter(|pair| pair.dtype.is_none());
        Reasons {
            all,
            paired: paired.chain(malformed).collect(),
            kept_bins: kept.filter_map(|pair| file_at(pair.bin)).collect(),
            kept_shards: mds_view::kept_shards(all).map(|(.., it)| it.1).collect(),
        }
    }

    fn of(&self, id: FileId) -> Result<BTreeSet<Unconverted>, DatasetError> {
        let all = self.all;
        let is_empty = all.scan.file(id).is_some_and(|file| file.bytes == 0);
        let reason = match all.format(id) {
            _ if all.catalogue.kept(id).is_some() => Unconverted::Kept,
            Format::MegatronIndex if self.is_lone(id)? => Unconverted::MegatronIndex,
            Format::MegatronIndex | Format::SafetensorsIndex | Format::MdsIndex => {
                Unconverted::Index
            }
            Format::Unknown if is_empty => Unconverted::Empty,
            Format::Unknown if self.kept_bins.contains(&id) => Unconverted::MegatronKept,
            Format::Unknown => Unconverted::Unknown,
            _ => return Ok(self.by_types(id)),
        };
        Ok([reason].into())
    }

    /// Whether it is an index of ids that are to have another type, and no `.bin` is beside it under any of its names.
    fn is_lone(&self, id: FileId) -> Result<bool, DatasetError> {
        if self.paired.contains(&id) {
            return Ok(false);
        }
        let source = self.all.open(id)?;
        // What it is was known before, so it was changed.
        let changed = |_| source.check().err();
        let dtype = match megatron::dtype(&source).map_err(changed) {
            Ok(dtype) => dtype,
            Err(Some(error)) => return Err(error),
            Err(None) => return Ok(false),
        };
        let ids = Payload {
            name: String::new(),
            offset: 0,
            bytes: 0,
            contents: Contents::Elements(dtype),
            shape: vec![0],
        };
        Ok(self.all.rules.target(&ids).is_some())
    }

    /// By the types of its arrays.
    fn by_types(&self, id: FileId) -> BTreeSet<Unconverted> {
        let all = self.all;
        let Some(recognised) = all.catalogue.get(id) else {
            return BTreeSet::new();
        };
        let description = &recognised.description;
        if description.pass_through.is_some() {
            return [Unconverted::Format].into();
        }
        let format = description.format;
        let reason = |payload: &Payload| {
            let (from, to) = all.rules.asked(payload)?;
            let is_possible = from.conversion(to).is_ok();
            Some(match format {
                _ if !is_possible => Unconverted::Type(from, to),
                // Norms in f32 say nothing of the other tensors.
                Format::Gguf if from == to => return None,
                _ if from == to => Unconverted::Same,
                Format::MdsShard if self.kept_shards.contains(&id) => Unconverted::MdsKept,
                Format::MdsShard => Unconverted::MdsShard,
                Format::Gguf if !gguf::becomes(payload, to) => Unconverted::Gguf(from),
                _ => Unconverted::Same,
            })
        };
        let reasons: BTreeSet<Unconverted> =
            description.payloads.iter().filter_map(reason).collect();
        // All of them, or none.
        match reasons.is_empty() || reasons.contains(&Unconverted::Same) {
            true => [Unconverted::Same].into(),
            false => reasons,
        }
    }
}
