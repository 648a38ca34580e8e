//! How runs are stored where nobody says: the chain that keeps every bit and is worth most, and its frame.
//!
//! ```text
//!  runs --group--> runs of one kind --sample--> some of their bytes --candidates--> chains --trial--> stored bytes --rule--> one of them
//! ```
//!
//! * A [`Group`] is runs of one format, element type and width: a choice for each, not for each of 100,000 small files. A long run is a
//!   group of its own.
//! * The candidates are all chains that keep the bytes: what the exact range allows, times what compresses ([`candidates`]).
//! * Each is tried on the same sample, whole frames spread over the data. A dictionary is trained on other bytes than those that it is tried on, and counts as
//!   stored: by those that it is made of it would be better than it is.
//! * The [`rule`] weighs stored bytes against the known cost of undoing the chain ([`cost`]), in whole numbers.
//!
//! Contract: a function of the bytes and the wish. The stopwatch of a [`Trial`] is for people; it decides nothing, so that the same input
//! gives the same volume on every machine.
//!
//! What it does not do: it reads no more than the sample (ranges come from the [survey](crate::survey)), and packs nothing.

pub mod candidates;
pub mod cost;
mod elements;
mod group;
mod outlier;
pub mod rule;
mod sample;
mod share;
mod trial;

use std::collections::HashMap;

use transforms::{Chain, ElementType, TableKind, TransformError, ValueRange};

use crate::catalogue::Catalogue;
use crate::scan::{FileId, Scan};
use crate::storage::{Run, Runs, Stored, StreamPlan};
use crate::survey::Surveyed;
use crate::{DatasetError, Names, dictionary, parallel};

pub use elements::choose_elements;
pub use outlier::Outlier;
pub use rule::{Access, Prefer, Wish};
pub use share::Shares;
pub use trial::Trial;

/// Runs of one kind, and how they are stored.
#[derive(Debug)]
pub struct Group {
    /// What their files are, as `Megatron bin`; `several` where small groups were put together.
    pub kind: String,
    /// The type of their elements.
    pub element: ElementType,
    /// The smallest and the largest of them; `None` for floats.
    pub range: Option<ValueRange>,
    /// Whether they are values, and not just bytes: only values are narrowed.
    pub has_values: bool,
    /// A value but for which they could be narrower.
    pub outlier: Option<Outlier>,
    /// Whether a chain was named for them, so that nothing was chosen.
    pub is_said: bool,
    /// The runs, in the order of files.
    pub runs: Vec<(FileId, Run)>,
    /// Bytes of all runs.
    pub bytes: u64,
    /// Of these, the bytes that were tried.
    pub sampled_bytes: u64,
    /// Every candidate, the best first.
    pub trials: Vec<Trial>,
}

impl Group {
    /// The chain that the runs are stored in.
    #[must_use]
    pub fn chosen(&self) -> Option<&Trial> {
        self.trials.first()
    }

    /// Stored bytes of `bytes` of the group: exact for chains that only narrow, as the sample was for others.
    #[must_use]
    pub fn stored_bytes(&self, bytes: u64) -> u64 {
        let Some(chosen) = self.chosen() else {
            return bytes;
        };
        if !chosen.chain.is_framed() {
            let elements = bytes / self.element.bytes() as u64;
            return chosen.chain.packed_bytes(elements);
        }
        let scaled = u128::from(chosen.stored_bytes) * u128::from(bytes);
        let scaled = scaled.div_ceil(u128::from(chosen.source_bytes.max(1)));
        u64::try_from(scaled).unwrap_or(u64::MAX)
    }

    /// Whether [`stored_bytes`](Self::stored_bytes) is exact.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.chosen().is_none_or(|it| !it.chain.is_framed())
    }

    /// The error for a chain that does not hold the values of a file, or a file that changed since its range was known.
    fn unfit(
        &self,
        scan: &Scan,
        (id, chain): (FileId, &Chain),
        error: &TransformError,
    ) -> DatasetError {
        let path = scan.file(id).map(|file| file.path.display().to_string());
        let values = self.range.map_or_else(String::new, |range| {
            format!(", values {}..{},", range.min, range.max)
        });
        DatasetError::data(
            path.unwrap_or_default(),
            format!(
                "{}{values} cannot be stored as {chain}: {error}",
                self.element
            ),
        )
    }
}

/// How every run is stored.
#[derive(Debug, Default)]
pub struct Choices {
    /// In the order of their first runs.
    pub groups: Vec<Group>,
    /// By file and first byte of the run.
    places: HashMap<(FileId, u64), usize>,
}

impl Choices {
    /// Which of the groups a run is in.
    #[must_use]
    pub fn place(&self, id: FileId, run: &Run) -> Option<usize> {
        self.places.get(&(id, run.offset)).copied()
    }

    /// The group of a run.
    #[must_use]
    pub fn group(&self, id: FileId, run: &Run) -> Option<&Group> {
        self.groups.get(self.place(id, run)?)
    }

    /// What a stream is stored in, and whether that is exact: of chains that compress only what was tried is known.
    #[must_use]
    pub fn stream_bytes(&self, stream: &StreamPlan) -> (u64, bool) {
        let chain = &stream.stored.chain;
        if !chain.is_framed() {
            let elements = stream.bytes / chain.source().bytes() as u64;
            return (chain.packed_bytes(elements), true);
        }
        let mut by_group = vec![0; self.groups.len()];
        for (id, run) in &stream.pieces {
            let place = self.place(*id, run);
            if let Some(bytes) = place.and_then(|place| by_group.get_mut(place)) {
                *bytes += run.bytes;
            }
        }
        let stored = self.groups.iter().zip(by_group);
        let stored = stored.filter(|(_, bytes)| *bytes > 0);
        let stored = stored.map(|(group, bytes)| group.stored_bytes(bytes));
        (stored.sum(), false)
    }

    /// How a run is stored.
    #[must_use]
    pub fn stored(&self, id: FileId, run: &Run) -> Option<Stored> {
        let chosen = self.group(id, run)?.chosen()?;
        Some(Stored {
            chain: chosen.chain.clone(),
            frame_bytes: chosen.frame_bytes,
        })
    }
}

/// What is chosen for.
#[derive(Debug, Clone, Copy)]
pub struct Dataset<'a> {
    /// The names and files.
    pub scan: &'a Scan,
    /// What they are.
    pub catalogue: &'a Catalogue,
    /// How they are cut.
    pub runs: &'a Runs,
    /// The ranges of their runs, by file.
    pub surveyed: &'a [Option<Surveyed>],
}

/// What was said of how a run is stored.
#[derive(Debug, Clone)]
pub enum Said {
    /// Nothing: it is chosen.
    Nothing,
    /// So; it is tried, to know what it makes.
    Stored(Stored),
    /// It is none of those.
    Skip,
}

/// Tries the candidates of every group. `on_progress` is told how many bytes of how many were tried, by all candidates together.
///
/// # Errors
/// Files that cannot be read, or change meanwhile; a chain that was said and that cannot hold the values.
pub fn choose<E: From<DatasetError>>(
    dataset: Dataset<'_>,
    wish: &Wish,
    said: impl FnMut(FileId, &Run) -> Result<Said, E>,
    threads: usize,
    on_progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<Choices, E> {
    let names = Names::new(dataset.scan);
    let drafts = group::groups(dataset, &names, said)?;
    let plans: Vec<(group::Draft, Vec<Chain>, Wish)> = drafts
        .into_iter()
        .map(|draft| {
            let (chains, wish) = draft.chains(wish);
            (draft, chains, wish)
        })
        .collect();
    let work = |(draft, chains, wish): &(group::Draft, Vec<Chain>, Wish)| {
        let bytes = sample::bytes_of(draft.bytes, wish);
        bytes * (chains.len() * rule::ladder(wish).len()) as u64
    };
    let total: u64 = plans.iter().map(work).sum();
    let mut done = 0;
    let mut choices = Choices::default();
    for plan in plans {
        let after = done + work(&plan);
        let (draft, chains, wish) = plan;
        let group = try_out(dataset.scan, draft, &chains, &wish, threads)?;
        for (id, run) in &group.runs {
            choices
                .places
                .insert((*id, run.offset), choices.groups.len());
        }
        choices.groups.push(group);
        done = after;
        on_progress(done, total);
    }
    Ok(choices)
}

fn try_out(
    scan: &Scan,
    draft: group::Draft,
    chains: &[Chain],
    wish: &Wish,
    threads: usize,
) -> Result<Group, DatasetError> {
    let with_others = chains.iter().any(|it| it.takes(TableKind::Dictionary));
    let sample = sample::of_group(scan, &draft.runs, draft.bytes, wish, with_others)?;
    let values = draft.range.filter(|_| draft.has_values);
    let mut group = Group {
        kind: draft.kind,
        element: draft.element,
        range: draft.range,
        has_values: draft.has_values,
        outlier: Outlier::find(draft.element, values, &sample.tried),
        is_said: draft.said.is_some(),
        runs: draft.runs,
        bytes: draft.bytes,
        sampled_bytes: sample.bytes(),
        trials: Vec::new(),
    };
    let first = group.runs.first().map_or(FileId(0), |(id, _)| *id);
    let mut whole = trial::Whole {
        bytes: group.bytes,
        ranks_bytes: 0,
    };
    if let Some(ranked) = chains.iter().find(|it| it.takes(TableKind::Ranks)) {
        let of = (group.bytes, group.range);
        let known = trial::ranks_bytes(ranked.source(), of, &sample);
        whole.ranks_bytes = known.map_err(|error| group.unfit(scan, (first, ranked), &error))?;
    }
    let dictionaries = trial::Dictionaries::default();
    let trials = parallel::each(chains.len(), threads, |index| {
        let chain = chains.get(index);
        let chain = chain.ok_or_else(|| DatasetError::refused("a chain", "is missing"))?;
        let mut trial = trial::run(chain, &sample, wish, whole, &dictionaries);
        if let (Ok(None), true) = (&trial, group.is_said) {
            // As it will be stored.
            let plain = dictionary::without(chain);
            trial = plain.and_then(|plain| trial::run(&plain, &sample, wish, whole, &dictionaries));
        }
        trial.map_err(|error| group.unfit(scan, (first, chain), &error))
    })?;
    let mut trials: Vec<Trial> = trials.into_iter().flatten().collect();
    rule::sort(&mut trials, wish);
    group.trials = trials;
    Ok(group)
}
