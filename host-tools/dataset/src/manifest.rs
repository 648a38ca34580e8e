//! What is known of a disk of files: where its bytes come from, how they are stored, and what was made of them.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::Value;
use transforms::{Chain, ElementType, Loss, Packing, ViewChain};
use volume::write::Written;

use crate::document::{self, Change, ChangedFile, Source};
use crate::make::{Changed, Plan};
use crate::scan::{FileId, Kind};
use crate::view::View;

pub(crate) struct Manifest<'a> {
    pub(crate) plan: &'a Plan<'a>,
    /// By file.
    pub(crate) digests: &'a [[u8; 32]],
    /// What was written: the storage's streams, then the runs of the mapped files.
    pub(crate) streams: &'a [Written],
    /// What changed.
    pub(crate) measured: &'a [Changed],
}

/// The sources, and by file which of them is its first name.
struct Sources<'a> {
    list: Vec<Source<'a>>,
    of_file: HashMap<FileId, usize>,
}

impl<'a> Manifest<'a> {
    /// The document, with an end of line.
    pub(crate) fn to_json(&self) -> Vec<u8> {
        let plan = self.plan;
        let sources = self.sources();
        let views = plan.views.iter().enumerate();
        let views = views.map(|(index, view)| self.view(index, view, &sources));
        let document = document::Manifest {
            writer: &plan.options.writer,
            is_lossy: plan.is_lossy(),
            views: views.collect(),
            streams: self.streams(),
            sources: sources.list,
            volumes: Vec::new(),
        };
        document.into_json()
    }

    fn sources(&self) -> Sources<'a> {
        let mut sources = Sources {
            list: Vec::new(),
            of_file: HashMap::new(),
        };
        for entry in &self.plan.scan.entries {
            let Kind::File(id) = entry.kind else {
                continue;
            };
            let file = self.plan.scan.file(id);
            let recognised = self.plan.catalogue.get(id);
            let digest = self.digests.get(id.0 as usize);
            let (Some(file), Some(recognised), Some(sha256)) = (file, recognised, digest) else {
                continue;
            };
            let pieces = self.plan.storage.pieces(id, 0, file.bytes);
            let mut streams: Vec<usize> = pieces.map(|piece| piece.stream).collect();
            streams.sort_unstable();
            streams.dedup();
            let source = Source {
                path: &entry.path,
                bytes: file.bytes,
                sha256,
                format: recognised.description.format.name(),
                streams,
                unzipped_from: file.origin.as_ref(),
            };
            sources.of_file.entry(id).or_insert(sources.list.len());
            sources.list.push(source);
        }
        sources
    }

    fn streams(&self) -> Vec<Value> {
        let storage = &self.plan.storage;
        let stored = storage.streams.iter().map(|plan| plan.stored.chain.clone());
        let mapped = storage.mapped_files().iter();
        let mapped = mapped.flat_map(|&id| storage.runs.of(id));
        // What is mapped is as it is.
        let mapped = mapped.filter_map(|run| Chain::from_steps(&[], run.element).ok());
        let chains = stored.chain(mapped).zip(self.streams);
        chains
            .map(|(chain, written)| document::stream(&chain, written, None))
            .collect()
    }

    fn view(&self, index: usize, view: &View, sources: &Sources<'_>) -> Value {
        let entries = &self.plan.scan.entries;
        let of_view = self.measured.iter().filter(|it| it.view == index);
        let of_view = of_view.filter_map(|it| Some((it, entries.get(it.entry)?)));
        let mut changed_files = Vec::new();
        let mut losses: BTreeMap<(ElementType, Packing), Loss> = BTreeMap::new();
        let mut counted = HashSet::new();
        for (changed, entry) in of_view {
            let Some(file) = entry.file() else { continue };
            let measured = &changed.measured;
            // Two names of a file that present the same are counted as one, as the bytes of the changes are.
            if counted.insert((file, measured.sha256)) {
                for (types, loss) in &measured.losses {
                    losses.entry(*types).or_default().append(loss);
                }
            }
            let file = ChangedFile {
                path: &entry.path,
                source: sources.of_file.get(&file).copied().unwrap_or_default(),
                bytes: changed.bytes,
                sha256: &measured.sha256,
                losses: measured
                    .losses
                    .iter()
                    .map(|(types, loss)| (*types, loss))
                    .collect(),
            };
            changed_files.push(file.to_json());
        }
        let changes = view.changes.iter().filter_map(|(types, &source_bytes)| {
            let (from, to) = (types.0.element()?, types.1.packing()?);
            let chain = ViewChain::parse(&to.to_string(), from).ok()?;
            let change = Change {
                from,
                to,
                presented_as: to,
                step: chain.steps().first(),
                source_bytes,
                loss: losses.get(&(from, to)),
            };
            Some(change.to_json())
        });
        document::view(&view.name, changes.collect(), changed_files)
    }
}
