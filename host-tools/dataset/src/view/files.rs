//! The files that a view is of, and those of a directory, which are looked at together.

use std::collections::HashMap;
use std::path::PathBuf;

use formats::rules::Rules;
use formats::{Companion, Format, Payload};

use crate::DatasetError;
use crate::catalogue::Catalogue;
use crate::paths::Paths;
use crate::scan::{Entry, FileId, OpenFile, Scan, SourceFile};

/// What a view is made of.
#[derive(Clone, Copy)]
pub(super) struct Files<'a> {
    pub(super) scan: &'a Scan,
    pub(super) catalogue: &'a Catalogue,
    pub(super) rules: &'a Rules,
    pub(super) paths: &'a Paths<'a>,
}

impl<'a> Files<'a> {
    pub(super) fn format(&self, id: FileId) -> Format {
        let recognised = self.catalogue.get(id);
        recognised.map_or(Format::Unknown, |it| it.description.format)
    }

    /// As `format`, also where the file is kept.
    pub(super) fn content(&self, id: FileId) -> Format {
        let kept = self.catalogue.kept(id);
        kept.map_or_else(|| self.format(id), |kept| kept.format)
    }

    /// The names that an index has, also where it is kept.
    pub(super) fn listed(&self, index: FileId) -> impl Iterator<Item = &'a str> + use<'a> {
        let known = self.catalogue.get(index);
        let known = known.map_or(&[][..], |it| &it.description.companions);
        let kept = self.catalogue.kept(index);
        let companions = kept.map_or(known, |kept| &kept.companions);
        companions.iter().filter_map(|it| match it {
            Companion::Listed(name) => Some(name.as_str()),
            _ => None,
        })
    }

    /// The first array of a file.
    pub(super) fn payload(&self, id: FileId) -> Option<&'a Payload> {
        self.catalogue.get(id)?.description.payloads.first()
    }

    pub(super) fn file_at(&self, place: usize) -> Option<(FileId, &'a SourceFile)> {
        let id = self.scan.entries.get(place).and_then(Entry::file)?;
        Some((id, self.scan.file(id)?))
    }

    pub(super) fn open(&self, id: FileId) -> Result<OpenFile<'a>, DatasetError> {
        match self.scan.file(id) {
            Some(file) => file.open(),
            None => Err(DatasetError::refused("a file", "is not of this scan")),
        }
    }

    /// For messages: where the file of a name is. What was unzipped for a while is called as on the disk.
    pub(super) fn path_of(&self, place: usize) -> PathBuf {
        match self.file_at(place) {
            Some((_, file)) if file.origin.is_none() => file.path.clone(),
            _ => {
                let entry = self.scan.entries.get(place);
                entry.map(Entry::shown).unwrap_or_default().into()
            }
        }
    }

    /// For messages: the last name.
    pub(super) fn name_of(&self, place: usize) -> String {
        let entry = self.scan.entries.get(place);
        let name = entry.map(Entry::name).unwrap_or_default();
        String::from_utf8_lossy(name).into_owned()
    }
}

/// Names by the directory that they are in, in the order of the scan.
pub(super) struct Folders<'a> {
    pub(super) list: Vec<(&'a [u8], Vec<usize>)>,
}

impl<'a> Folders<'a> {
    pub(super) fn new(scan: &'a Scan) -> Folders<'a> {
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
pub(super) struct Folder<'a> {
    pub(super) all: Files<'a>,
    pub(super) path: &'a [u8],
    pub(super) entries: &'a [usize],
}

impl<'a> Folder<'a> {
    pub(super) fn files(&self) -> impl Iterator<Item = (usize, &'a Entry, FileId)> {
        let scan = self.all.scan;
        self.entries.iter().filter_map(move |&index| {
            let entry = scan.entries.get(index)?;
            Some((index, entry, entry.file()?))
        })
    }

    /// For messages: the folder of its first file.
    pub(super) fn shown(&self) -> PathBuf {
        let first = self.files().next();
        let path = first.map(|(place, ..)| self.all.path_of(place));
        match path.unwrap_or_default().parent() {
            Some(parent) => parent.to_owned(),
            None => String::from_utf8_lossy(self.path).into_owned().into(),
        }
    }
}
