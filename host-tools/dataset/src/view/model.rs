//! Weights, with the index and the configuration beside them.

use formats::Format;
use formats::model::{self, ModelFile};

use super::files::Folder;
use super::{ALIGNMENT, Unconverted, View};
use crate::DatasetError;
use crate::scan::FileId;

/// A file of a model: the place of its name, what the folder's index calls it, and its content.
type Member = (usize, String, FileId);

impl View {
    /// The weights of a folder and those in other folders that its index names, which become there what they become here.
    pub(super) fn model(&mut self, folder: &Folder<'_>) -> Result<(), DatasetError> {
        let all = folder.all;
        let members = members(folder);
        let mut ids = members.iter().map(|member| member.2);
        if !ids.any(|id| is_weights(all.format(id))) {
            return Ok(());
        }
        let open = members.iter().map(|(.., id)| all.open(*id));
        let open = open.collect::<Result<Vec<_>, _>>()?;
        let named = members.iter().zip(&open);
        let files: Vec<ModelFile<'_>> = named
            .map(|((_, name, id), source)| ModelFile {
                name,
                source,
                is_kept: all.catalogue.kept(*id).is_some(),
            })
            .collect();
        let plan = model::plan(&files, all.rules, ALIGNMENT);
        let plan = plan.map_err(|error| DatasetError::format(&folder.shown(), error))?;
        for (planned, (place, name, id)) in plan.files.into_iter().zip(&members) {
            if name == model::CONFIG && all.catalogue.kept(*id).is_none() {
                let files = self.unconverted.entry(Unconverted::Configuration);
                files.or_default().push(*id);
            }
            self.insert(all, *place, planned.presentation);
        }
        let shown = folder.shown();
        let at = |note: String| format!("{}: {note}", shown.display());
        self.notes.extend(plan.notes.into_iter().map(at));
        Ok(())
    }
}

fn is_weights(format: Format) -> bool {
    matches!(format, Format::Safetensors | Format::Gguf)
}

/// A hub's blobs have other names than their index says, so that an index there names nothing, and is none of a model.
fn members(folder: &Folder<'_>) -> Vec<Member> {
    let all = folder.all;
    let mut members: Vec<Member> = Vec::new();
    let mut elsewhere: Vec<Member> = Vec::new();
    for (place, entry, id) in folder.files() {
        let belongs = match all.content(id) {
            Format::SafetensorsIndex => {
                let weights = named(folder, id);
                let here = |it: &Member| folder.entries.contains(&it.0);
                let is_any = !weights.is_empty();
                elsewhere.extend(weights.into_iter().filter(|it| !here(it)));
                is_any
            }
            Format::Zip => true,
            Format::Unknown => entry.name() == model::CONFIG.as_bytes(),
            format => is_weights(format),
        };
        if let (true, Ok(name)) = (belongs, std::str::from_utf8(entry.name())) {
            members.push((place, name.to_owned(), id));
        }
    }
    elsewhere.sort_unstable();
    elsewhere.dedup();
    members.extend(elsewhere);
    members
}

/// The weights that an index names.
fn named(folder: &Folder<'_>, index: FileId) -> Vec<Member> {
    let all = folder.all;
    let named = all.listed(index).filter_map(|name| {
        let (place, id) = all.paths.file_from(folder.path, name.as_bytes())?;
        is_weights(all.content(id)).then(|| (place, name.to_owned(), id))
    });
    named.collect()
}
