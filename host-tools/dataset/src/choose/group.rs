//! Which runs are chosen for together.

use std::collections::{HashMap, HashSet};

use formats::{Contents, Dtype, Format};
use transforms::{Chain, ElementType, ValueRange};

use super::rule::Wish;
use super::{Dataset, Said, candidates};
use crate::Names;
use crate::scan::FileId;
use crate::storage::{Run, Stored};
use crate::survey::union;

/// A run of so many bytes is a group of its own.
const ALONE_BYTES: u64 = 64 << 20;
/// Groups of bytes with fewer than these are put together: a stream takes some blocks of tables, whatever is in it.
const SMALL_GROUP_BYTES: u64 = 64 << 10;
/// Files of unknown format are told apart by so many endings; the others are one kind.
const ENDINGS_MAX: usize = 32;
/// An ending has at most so many bytes.
const ENDING_BYTES_MAX: usize = 8;

/// A group that is to be tried.
pub(super) struct Draft {
    pub(super) kind: String,
    pub(super) element: ElementType,
    pub(super) range: Option<ValueRange>,
    /// Whether they are values, which can be narrowed, and not just bytes.
    pub(super) has_values: bool,
    pub(super) said: Option<Stored>,
    pub(super) runs: Vec<(FileId, Run)>,
    pub(super) bytes: u64,
}

/// What runs of one group have in common.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    kind: String,
    element: ElementType,
    has_values: bool,
    /// Of the narrowest type that holds them: signed, and its bits.
    width: Option<(bool, u32)>,
    said: Option<(String, u64)>,
    alone: Option<(FileId, u64)>,
}

impl Draft {
    /// The chains to try, and how.
    pub(super) fn chains(&self, wish: &Wish) -> (Vec<Chain>, Wish) {
        let Some(said) = &self.said else {
            let range = self.range.filter(|_| self.has_values);
            return (candidates::candidates(self.element, range, wish), *wish);
        };
        let frame_bytes = Some(said.frame_bytes);
        (
            vec![said.chain.clone()],
            Wish {
                frame_bytes,
                ..*wish
            },
        )
    }

    fn add(&mut self, other: Draft) {
        self.range = union(self.range, other.range);
        self.bytes += other.bytes;
        self.runs.extend(other.runs);
    }
}

/// All runs, in groups, in the order of their first runs.
pub(super) fn groups<E>(
    dataset: Dataset<'_>,
    names: &Names<'_>,
    mut said: impl FnMut(FileId, &Run) -> Result<Said, E>,
) -> Result<Vec<Draft>, E> {
    let endings = endings(dataset, names);
    let mut drafts: Vec<Draft> = Vec::new();
    let mut known: HashMap<Key, usize> = HashMap::new();
    for (id, _) in dataset.scan.files() {
        let surveyed = dataset.surveyed.get(id.0 as usize).and_then(Option::as_ref);
        let ranges = surveyed.map(|it| it.ranges.as_slice()).unwrap_or_default();
        let ranges = ranges.iter().copied().chain(std::iter::repeat(None));
        for (run, range) in dataset.runs.of(id).iter().zip(ranges) {
            let said = match said(id, run)? {
                Said::Nothing => None,
                Said::Stored(stored) => Some(stored),
                Said::Skip => continue,
            };
            let has_values = has_values(dataset, id, run);
            let key = Key {
                kind: kind(dataset, names, id, &endings),
                element: run.element,
                has_values,
                width: range.filter(|_| has_values).map(width),
                said: said
                    .as_ref()
                    .map(|it| (it.chain.to_string(), it.frame_bytes)),
                alone: (run.bytes >= ALONE_BYTES).then_some((id, run.offset)),
            };
            let draft = Draft {
                kind: key.kind.clone(),
                element: run.element,
                range,
                has_values,
                said,
                runs: vec![(id, *run)],
                bytes: run.bytes,
            };
            match known.get(&key).and_then(|place| drafts.get_mut(*place)) {
                Some(before) => before.add(draft),
                None => {
                    known.insert(key, drafts.len());
                    drafts.push(draft);
                }
            }
        }
    }
    Ok(small_together(drafts))
}

/// Bytes of few files of many kinds are one group.
fn small_together(drafts: Vec<Draft>) -> Vec<Draft> {
    let is_small = |draft: &Draft| {
        !draft.has_values
            && draft.said.is_none()
            && draft.element == ElementType::U8
            && draft.bytes < SMALL_GROUP_BYTES
    };
    let several = drafts.iter().filter(|draft| is_small(draft)).count() > 1;
    let mut together: Option<usize> = None;
    let mut groups: Vec<Draft> = Vec::with_capacity(drafts.len());
    for mut draft in drafts {
        if !several || !is_small(&draft) {
            groups.push(draft);
            continue;
        }
        match together.and_then(|place| groups.get_mut(place)) {
            Some(before) => before.add(draft),
            None => {
                "several".clone_into(&mut draft.kind);
                together = Some(groups.len());
                groups.push(draft);
            }
        }
    }
    groups
}

/// Whether the run is elements and nothing else. Headers are bytes, and arrays of bytes beside them go with them.
fn has_values(dataset: Dataset<'_>, id: FileId, run: &Run) -> bool {
    if run.element != ElementType::U8 {
        return true;
    }
    let description = dataset.catalogue.get(id).map(|it| &it.description);
    let payload = description.and_then(|it| it.payload_at(run.offset));
    payload.is_some_and(|payload| {
        payload.contents == Contents::Elements(Dtype::U8)
            && payload.offset <= run.offset
            && run.end() <= payload.range().end
    })
}

fn width(range: ValueRange) -> (bool, u32) {
    let types = ElementType::INTEGERS.into_iter();
    let bits = types
        .filter(|element| element.range().is_some_and(|held| held.encloses(&range)))
        .map(ElementType::bits);
    (range.min < 0, bits.min().unwrap_or(64))
}

/// The format; of unknown files, also what their names end in, which says more than nothing.
fn kind(dataset: Dataset<'_>, names: &Names<'_>, id: FileId, endings: &HashSet<Vec<u8>>) -> String {
    let format = dataset
        .catalogue
        .get(id)
        .map_or(Format::Unknown, |it| it.description.format);
    if format != Format::Unknown {
        return format.name().to_owned();
    }
    let ending = names
        .first_that(id, ending)
        .filter(|it| endings.contains(it));
    ending.map_or_else(
        || format.name().to_owned(),
        |ending| format!("{format} .{}", String::from_utf8_lossy(&ending)),
    )
}

/// The endings of unknown files that are told apart: the first ones.
fn endings(dataset: Dataset<'_>, names: &Names<'_>) -> HashSet<Vec<u8>> {
    let mut known = HashSet::new();
    for (id, _) in dataset.scan.files() {
        if known.len() >= ENDINGS_MAX {
            break;
        }
        known.extend(names.first_that(id, ending));
    }
    known
}

/// What a name ends in: a few letters and digits behind its last dot, small.
fn ending(path: &[u8]) -> Option<Vec<u8>> {
    let name = path.rsplit(|byte| *byte == b'/').next()?;
    let dot = name.iter().rposition(|byte| *byte == b'.')?;
    let ending = name.get(dot + 1..)?;
    let plain = ending.iter().all(u8::is_ascii_alphanumeric);
    let fits = dot > 0 && plain && (1..=ENDING_BYTES_MAX).contains(&ending.len());
    fits.then(|| ending.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings_are_a_few_letters_behind_a_dot() {
        let of = |path: &[u8]| ending(path).map(|it| String::from_utf8(it).unwrap());
        assert_eq!(of(b"a/b.JSON").as_deref(), Some("json"));
        assert_eq!(of(b"a.tar.gz").as_deref(), Some("gz"));
        for none in [
            &b"README"[..],
            b".bashrc",
            b"a.b/c",
            b"a.",
            b"a.b-c",
            b"a.123456789",
        ] {
            assert_eq!(of(none), None);
        }
    }

    #[test]
    fn widths_tell_signed_from_unsigned() {
        let of = |min, max| width(ValueRange { min, max });
        assert_eq!(of(0, 255), (false, 8));
        assert_eq!(of(0, 256), (false, 16));
        assert_eq!(of(-1, 127), (true, 8));
        assert_eq!(of(-1, 128), (true, 16));
        assert_eq!(of(0, 1 << 40), (false, 64));
    }
}
