//! Shards of samples, and the indexes that name them.

use std::collections::HashMap;

use formats::{ByteSource, Format, Payload, Presentation, mds};

use super::View;
use super::files::{Files, Folder};
use super::refusals::Refusals;
use crate::scan::FileId;
use crate::{DatasetError, measure};

/// What became of shards: by the file and the hashes that an index wants of it. A merged index names the shards that others name too.
#[derive(Default)]
pub(super) struct Shards(HashMap<(FileId, Vec<String>), Option<Changed>>);

#[derive(Clone)]
struct Changed {
    presented: Presentation,
    entry: mds::ChangedShard,
}

impl View {
    /// Every index in the folder: that of a dataset, or one merged of several, which names shards in folders below it.
    pub(super) fn shards(
        &mut self,
        folder: &Folder<'_>,
        shards: &mut Shards,
        refusals: &mut Refusals,
    ) -> Result<(), DatasetError> {
        let all = folder.all;
        let indexes = folder.files();
        for (index, _, id) in indexes.filter(|it| all.format(it.2) == Format::MdsIndex) {
            let source = all.open(id)?;
            let failed = |error| DatasetError::format(&all.path_of(index), error);
            let read = mds::Index::read(&source).map_err(failed)?;
            let mut changed = Vec::new();
            for shard in read.shards() {
                let name = shard.raw.basename.as_bytes();
                let Some((place, id)) = all.paths.file_from(folder.path, name) else {
                    self.mds_zip(folder, shard);
                    changed.push(None);
                    continue;
                };
                let found = shards.change(all, (place, id), shard, refusals)?;
                let exact = Presentation::exact(all.scan.file(id).map_or(0, |file| file.bytes));
                let presented = found.as_ref().map(|it| it.presented.clone());
                self.insert(all, place, presented.unwrap_or(exact));
                changed.push(found.map(|it| it.entry));
            }
            let presented = match changed.iter().any(Option::is_some) {
                true => read.present(&changed).map_err(failed)?,
                false => Presentation::exact(source.bytes()),
            };
            self.insert(all, index, presented);
        }
        Ok(())
    }
}

impl View {
    /// An index that is kept says lengths and hashes of its shards, which another index may change.
    pub(super) fn check_kept_indexes(&self, all: Files<'_>) -> Result<(), DatasetError> {
        for (place, name, (shard, _)) in kept_shards(all) {
            if !self.is_changed(all, shard) {
                continue;
            }
            let shard = all.name_of(shard);
            let why = format!(
                "is kept, and says the length and hashes of {name}, which this view changes: keep that, too, with --keep '{shard}', or do not keep the index"
            );
            return Err(DatasetError::refused(all.path_of(place).display(), why));
        }
        Ok(())
    }

    /// Whether a reader that opens this name gets other bytes than the source's.
    fn is_changed(&self, all: Files<'_>, place: usize) -> bool {
        let mut hops = std::iter::successors(Some(place), |it| all.paths.next(*it));
        let presented = hops.find_map(|it| self.changed.get(&it));
        let file = all.file_at(place);
        presented
            .zip(file)
            .is_some_and(|(presented, (_, file))| !presented.is_exact(file.bytes))
    }
}

/// The shards that a kept index names: the place of the index, what it calls them, and what that leads to.
pub(super) fn kept_shards<'a>(
    all: Files<'a>,
) -> impl Iterator<Item = (usize, &'a str, (usize, FileId))> {
    let entries = all.scan.entries.iter().enumerate();
    let indexes = entries.filter_map(move |(place, entry)| {
        let id = entry.file()?;
        let is_index = all.catalogue.kept(id)?.format == Format::MdsIndex;
        is_index.then_some((place, entry, id))
    });
    indexes.flat_map(move |(place, entry, id)| {
        let names = all.listed(id);
        names.filter_map(move |name| {
            let shard = all.paths.file_from(entry.parent(), name.as_bytes())?;
            Some((place, name, shard))
        })
    })
}

impl Shards {
    fn change(
        &mut self,
        all: Files<'_>,
        (place, id): (usize, FileId),
        shard: &mds::ShardEntry,
        refusals: &mut Refusals,
    ) -> Result<Option<Changed>, DatasetError> {
        let key = (id, shard.raw.hashes.keys().cloned().collect::<Vec<_>>());
        if let Some(known) = self.0.get(&key) {
            return Ok(known.clone());
        }
        let changed = change(all, (place, id), &key.1, refusals)?;
        self.0.insert(key, changed.clone());
        Ok(changed)
    }
}

fn change(
    all: Files<'_>,
    (place, id): (usize, FileId),
    hashes: &[String],
    refusals: &mut Refusals,
) -> Result<Option<Changed>, DatasetError> {
    let Some(recognised) = all.catalogue.get(id) else {
        return Ok(None);
    };
    let description = &recognised.description;
    let path = all.path_of(place);
    let failed = |error| DatasetError::format(&path, error);
    let source = all.open(id)?;
    let target = |payload: &Payload| all.rules.target(payload);
    let presented = refusals.take(id, description.present(&source, &target, 1));
    let Some(presented) = presented.map_err(failed)? else {
        return Ok(None);
    };
    if presented.is_exact(source.bytes()) {
        return Ok(None);
    }
    let names: Vec<&str> = hashes.iter().map(String::as_str).collect();
    let hashes = measure::hashes(&source, &path, &presented, &names)?;
    let columns = mds::presented_columns(description, &target).map_err(failed)?;
    let entry = mds::ChangedShard {
        bytes: presented.bytes(),
        hashes,
        columns,
    };
    Ok(Some(Changed { presented, entry }))
}
