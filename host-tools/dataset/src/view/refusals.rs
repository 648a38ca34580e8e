//! Files that have no such type as is asked for: all of them are told at once, with the way out.

use std::collections::{BTreeMap, BTreeSet};

use formats::FormatError;

use super::View;
use super::files::Files;
use crate::DatasetError;
use crate::names::listed;
use crate::pattern::keep_options;
use crate::scan::{Entry, FileId};

/// By what is said of them.
#[derive(Default)]
pub(super) struct Refusals(BTreeMap<String, BTreeSet<FileId>>);

impl Refusals {
    /// What was made of a file; `None` where its format refuses, which [`View::check_refusals`] tells.
    pub(super) fn take<T>(
        &mut self,
        id: FileId,
        made: Result<T, FormatError>,
    ) -> Result<Option<T>, FormatError> {
        match made {
            Err(error @ FormatError::Refused { .. }) => {
                self.0.entry(error.to_string()).or_default().insert(id);
                Ok(None)
            }
            made => made.map(Some),
        }
    }
}

impl View {
    /// A file that is kept to get past a refusal is kept in every view, so that the options spare what this one changes.
    pub(super) fn check_refusals(
        &self,
        all: Files<'_>,
        refusals: &Refusals,
    ) -> Result<(), DatasetError> {
        let changed = self.changed.keys();
        let changed = changed.filter_map(|place| all.scan.entries.get(*place));
        let changed: Vec<&[u8]> = changed.map(|entry| entry.path.as_slice()).collect();
        let first_name = |id: &FileId| all.scan.entries.iter().find(|it| it.file() == Some(*id));
        let said = refusals.0.iter().map(|(why, ids)| {
            let entries: Vec<&Entry> = ids.iter().filter_map(first_name).collect();
            let (count, leave) = match ids.len() {
                1 => ("1 file".to_owned(), "leave it as it is"),
                more => (format!("{more} files"), "leave them as they are"),
            };
            let names = listed(entries.iter().map(|it| it.shown()).collect(), ", ");
            let keep = keep_options(entries.iter().map(|it| it.path.as_slice()), &changed);
            format!("{count} ({names}) cannot be presented so: {why}; or {leave}, in every view, with {keep}")
        });
        let said: Vec<String> = said.collect();
        match said.is_empty() {
            true => Ok(()),
            false => Err(DatasetError::NoSuchType { said }),
        }
    }
}
