//! What stays as it is although another type is asked for, and why.

use std::collections::{BTreeSet, HashSet};
use std::fmt;

use formats::{Contents, Dtype, Format, Payload, gguf, mds, megatron};

use super::View;
use super::files::{Files, Folder};
use crate::DatasetError;
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
    /// A Megatron index without the `.bin` that it points into.
    MegatronIndex,
}

impl Unconverted {
    /// What the files are, as in "2 files of ...".
    #[must_use]
    pub fn what(self) -> String {
        match self {
            Unconverted::Type(from, _) => from.to_string(),
            Unconverted::Gguf(from) => format!("GGUF {from}"),
            Unconverted::MdsZip => "compressed MDS".to_owned(),
            Unconverted::MdsShard => "MDS".to_owned(),
            Unconverted::MegatronIndex => "Megatron index".to_owned(),
        }
    }
}

/// The reason.
impl fmt::Display for Unconverted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unconverted::Type(from, to) => write!(f, "{from} does not become {to}"),
            Unconverted::Gguf(_) => f.write_str(
                "in GGUF only f32 becomes another type, f16 or bf16, in tensors of two and more dimensions",
            ),
            Unconverted::MdsZip => {
                f.write_str("their arrays are compressed; 'xio pack --unzip' stores them raw")
            }
            Unconverted::MdsShard => f.write_str("no index.json names them"),
            Unconverted::MegatronIndex => {
                f.write_str("a .bin of the same name is not beside them")
            }
        }
    }
}

impl View {
    /// A file of which something is converted, or has the type already, needs no word.
    pub(super) fn find_unconverted(&mut self, all: Files<'_>) -> Result<(), DatasetError> {
        let file_of = |entry: &usize| all.scan.entries.get(*entry).and_then(Entry::file);
        let changed: HashSet<FileId> = self.changed.keys().filter_map(file_of).collect();
        for files in self.unconverted.values_mut() {
            files.retain(|id| !changed.contains(id));
        }
        let zipped = self.unconverted.values().flatten();
        let named: HashSet<FileId> = zipped.copied().chain(changed).collect();
        for (id, _) in all.scan.files().filter(|(id, _)| !named.contains(id)) {
            let reasons = match all.format(id) {
                Format::MegatronIndex => lone_index(all, id)?,
                _ => unconverted(all, id),
            };
            for reason in reasons {
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

/// An index that is no half of a pair under any of its names.
fn lone_index(all: Files<'_>, id: FileId) -> Result<BTreeSet<Unconverted>, DatasetError> {
    let index_of = |place: usize| all.file_at(place).map(|it| it.0);
    let mut pairs = all.catalogue.pairs.iter();
    let mut malformed = all.catalogue.malformed.iter();
    if pairs.any(|pair| index_of(pair.index) == Some(id)) || malformed.any(|it| it.0 == id) {
        return Ok(BTreeSet::new());
    }
    let source = all.open(id)?;
    // What it is was known before, so it was changed.
    let changed = |_| source.check().err();
    let dtype = match megatron::dtype(&source).map_err(changed) {
        Ok(dtype) => dtype,
        Err(Some(error)) => return Err(error),
        Err(None) => return Ok(BTreeSet::new()),
    };
    let ids = Payload {
        name: String::new(),
        offset: 0,
        bytes: 0,
        contents: Contents::Elements(dtype),
        shape: vec![0],
    };
    let is_asked = all.rules.target(&ids).is_some();
    Ok(is_asked
        .then_some(Unconverted::MegatronIndex)
        .into_iter()
        .collect())
}

/// By the types of its arrays.
fn unconverted(all: Files<'_>, id: FileId) -> BTreeSet<Unconverted> {
    let format = all.format(id);
    let payloads = all
        .catalogue
        .get(id)
        .map(|it| it.description.payloads.iter());
    let reason = |payload: &Payload| {
        let (from, to) = all.rules.asked(payload)?;
        let is_possible = from.conversion(to).is_ok();
        Some(match format {
            _ if !is_possible => Some(Unconverted::Type(from, to)),
            // Norms in f32 say nothing of the other tensors.
            Format::Gguf if from == to => return None,
            _ if from == to => None,
            Format::MdsShard => Some(Unconverted::MdsShard),
            Format::Gguf if !gguf::becomes(payload, to) => Some(Unconverted::Gguf(from)),
            _ => None,
        })
    };
    let reasons: BTreeSet<Option<Unconverted>> =
        payloads.into_iter().flatten().filter_map(reason).collect();
    // All of them, or none.
    reasons
        .into_iter()
        .collect::<Option<_>>()
        .unwrap_or_default()
}
