//! Token ids, and the Megatron indexes that stand beside them.

use formats::{Description, Dtype, Format, Payload, Presentation, megatron};

use super::files::Files;
use super::refusals::Refusals;
use super::{ALIGNMENT, View};
use crate::DatasetError;
use crate::scan::{Entry, FileId};

impl View {
    /// Every name of a `.bin` presents the same. Each index is rewritten from its own bytes: a `.bin` with several names has one beside each.
    pub(super) fn pairs(
        &mut self,
        all: Files<'_>,
        refusals: &mut Refusals,
    ) -> Result<(), DatasetError> {
        for (place, entry) in all.scan.entries.iter().enumerate() {
            let ids = Entry::file(entry).and_then(|id| Some((id, ids(all, id)?)));
            let Some((id, (description, target))) = ids else {
                continue;
            };
            let source = all.open(id)?;
            let wanted = |_: &Payload| Some(target);
            let presented = description.present(&source, &wanted, ALIGNMENT);
            let failed = |error| DatasetError::format(&all.path_of(place), error);
            self.insert(all, place, presented.map_err(failed)?);
        }
        for pair in &all.catalogue.pairs {
            let files = all.file_at(pair.index).zip(all.file_at(pair.bin));
            let Some(((index_id, index), (bin, bin_file))) = files else {
                continue;
            };
            let (Some((_, target)), Some(dtype)) = (ids(all, bin), pair.dtype) else {
                self.insert(all, pair.index, Presentation::exact(index.bytes));
                continue;
            };
            let path = all.path_of(pair.index);
            let stored = all.payload(bin).and_then(|it| it.contents.dtype());
            if let Some(stored) = stored.filter(|stored| *stored != dtype) {
                let name = all.name_of(pair.bin);
                let why = format!(
                    "says that {name} is of {dtype}, another index of this file that it is of {stored}: leave them as they are with --keep '{name}'"
                );
                return Err(DatasetError::refused(path.display(), why));
            }
            let source = index.open()?;
            let presented = megatron::Index::read(&source, bin_file.bytes)
                .and_then(|read| read.present(&source, target));
            let presented = refusals.take(index_id, presented);
            let presented = presented.map_err(|error| DatasetError::format(&path, error))?;
            if let Some(presented) = presented {
                self.insert(all, pair.index, presented);
            }
        }
        Ok(())
    }
}

/// A `.bin` that changes, and the type that it becomes.
fn ids(all: Files<'_>, id: FileId) -> Option<(&Description, Dtype)> {
    let description = &all.catalogue.get(id)?.description;
    if description.format != Format::MegatronBin {
        return None;
    }
    let target = all.rules.target(description.payloads.first()?)?;
    Some((description, target))
}
