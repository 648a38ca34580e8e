//! Blocks that Write Uncorrectable marked: reads of them fail until they are written (NVM, "Write Uncorrectable command").

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::limits::{MARKS_CUT_MAX, MARKS_MAX};
use crate::{KeepError, Keeper, RecordKind, Saved};

/// The marks of one namespace, shared by all reactors. Where nothing is marked, a read or write pays one atomic load.
#[derive(Clone, Debug, Default)]
pub struct Marks {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    any: AtomicBool,
    /// Sorted, apart from each other.
    ranges: Mutex<Vec<Range>>,
}

/// Marked blocks, `start..end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    start: u64,
    end: u64,
}

/// More ranges than are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooMany;

/// What a record begins with.
const MAGIC: [u8; 8] = *b"XIOMARK1";
const RANGE_BYTES: usize = 16;

impl Marks {
    /// The first marked block of these.
    pub(crate) fn first_of(&self, lba: u64, blocks: u64) -> Option<u64> {
        if !self.shared.any.load(Ordering::Acquire) {
            return None;
        }
        let end = lba.saturating_add(blocks);
        let ranges = self.lock();
        let next = ranges.partition_point(|range| range.end <= lba);
        let range = ranges.get(next).filter(|range| range.start < end)?;
        Some(range.start.max(lba))
    }

    /// Marks blocks and begins to save that; `saved` is told how it ended. Where that fails they stay marked until a restart: a command that
    /// failed may have taken effect.
    pub(crate) fn add(
        &self,
        lba: u64,
        blocks: u64,
        keeper: &dyn Keeper,
        saved: Saved,
    ) -> Result<(), TooMany> {
        let mut ranges = self.lock();
        let mut marked = Range {
            start: lba,
            end: lba.saturating_add(blocks),
        };
        let mut next = ranges.clone();
        // Those it touches become one with it.
        next.retain(|range| {
            let apart = range.end < marked.start || marked.end < range.start;
            if !apart {
                marked.start = marked.start.min(range.start);
                marked.end = marked.end.max(range.end);
            }
            apart
        });
        let at = next.partition_point(|range| range.start < marked.start);
        next.insert(at, marked);
        self.replace(&mut ranges, next, MARKS_MAX, keeper, saved)
    }

    /// Clears the marks of blocks that were written and begins to save that; `saved` is told how it ended.
    pub(crate) fn remove(
        &self,
        lba: u64,
        blocks: u64,
        keeper: &dyn Keeper,
        saved: Saved,
    ) -> Result<(), TooMany> {
        let mut ranges = self.lock();
        let end = lba.saturating_add(blocks);
        let cut = |range: &Range| {
            let before = Range {
                start: range.start,
                end: range.end.min(lba),
            };
            let after = Range {
                start: range.start.max(end),
                end: range.end,
            };
            [before, after]
        };
        let next = ranges
            .iter()
            .flat_map(cut)
            .filter(|range| range.start < range.end)
            .collect();
        self.replace(&mut ranges, next, MARKS_CUT_MAX, keeper, saved)
    }

    /// Under the lock, so that saves begin in the order of the changes.
    fn replace(
        &self,
        ranges: &mut Vec<Range>,
        next: Vec<Range>,
        ranges_max: usize,
        keeper: &dyn Keeper,
        saved: Saved,
    ) -> Result<(), TooMany> {
        if next.len() > ranges_max {
            return Err(TooMany);
        }
        *ranges = next;
        self.shared.any.store(!ranges.is_empty(), Ordering::Release);
        keeper.save(RecordKind::Uncorrectable, encode(ranges), saved);
        Ok(())
    }

    /// Takes over what was kept of an earlier life. For whoever attaches the namespace: it may block.
    pub(crate) fn restore(&self, keeper: &dyn Keeper) -> Result<(), KeepError> {
        let Some(record) = keeper.load(RecordKind::Uncorrectable)? else {
            return Ok(());
        };
        let ranges = decode(&record).ok_or_else(|| KeepError {
            kind: RecordKind::Uncorrectable,
            why: "it is not a list of marked blocks".to_owned(),
        })?;
        let mut own = self.lock();
        self.shared.any.store(!ranges.is_empty(), Ordering::Release);
        *own = ranges;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Range>> {
        // A list is replaced as a whole: one that a panic left behind is the old one.
        self.shared
            .ranges
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// An empty list is an empty record.
fn encode(ranges: &[Range]) -> Vec<u8> {
    if ranges.is_empty() {
        return Vec::new();
    }
    let mut record = MAGIC.to_vec();
    for range in ranges {
        record.extend(range.start.to_le_bytes());
        record.extend(range.end.to_le_bytes());
    }
    record
}

fn decode(record: &[u8]) -> Option<Vec<Range>> {
    if record.is_empty() {
        return Some(Vec::new());
    }
    let list = record.strip_prefix(&MAGIC)?;
    if list.len() % RANGE_BYTES != 0 || list.len() / RANGE_BYTES > MARKS_CUT_MAX {
        return None;
    }
    let number = |bytes: &[u8]| bytes.try_into().ok().map(u64::from_le_bytes);
    let ranges: Vec<Range> = list
        .chunks_exact(RANGE_BYTES)
        .map(|entry| {
            let (start, end) = entry.split_at(RANGE_BYTES / 2);
            Some(Range {
                start: number(start)?,
                end: number(end)?,
            })
        })
        .collect::<Option<_>>()?;
    let is_list = ranges.iter().all(|range| range.start < range.end)
        && ranges
            .windows(2)
            .all(|pair| matches!(pair, [a, b] if a.end < b.start));
    is_list.then_some(ranges)
}

#[cfg(test)]
#[allow(
    clippy::cast_possible_truncation,
    reason = "numbers of a test, known to be small"
)]
mod tests {
    use super::*;
    use crate::Forgetful;
    use proptest::prelude::*;

    fn ignore() -> Saved {
        Box::new(|_| {})
    }

    proptest! {
        /// Against one flag a block.
        #[test]
        fn marks_are_what_a_flag_for_each_block_would_be(steps in prop::collection::vec((any::<bool>(), 0..64u64, 1..20u64), 0..40)) {
            let marks = Marks::default();
            let mut model = [false; 84];
            for (add, lba, blocks) in steps {
                let changed = if add {
                    marks.add(lba, blocks, &Forgetful, ignore())
                } else {
                    marks.remove(lba, blocks, &Forgetful, ignore())
                };
                prop_assert_eq!(changed, Ok(()));
                for flag in &mut model[lba as usize..(lba + blocks) as usize] {
                    *flag = add;
                }
                for at in 0..84 {
                    for len in [1, 3, 84 - at] {
                        let end = (at + len).min(84);
                        let wanted = (at..end).find(|&block| model[block as usize]);
                        prop_assert_eq!(marks.first_of(at, end - at), wanted);
                    }
                }
                let ranges = marks.lock().clone();
                prop_assert_eq!(decode(&encode(&ranges)), Some(ranges));
            }
        }

        /// Any record: no panic.
        #[test]
        fn any_record_is_survived(tail in prop::collection::vec(any::<u8>(), 0..100), magic in any::<bool>()) {
            let record = if magic { [&MAGIC[..], &tail].concat() } else { tail };
            let _list = decode(&record);
        }
    }

    #[test]
    fn one_range_too_many_changes_nothing() {
        let marks = Marks::default();
        for at in 0..MARKS_MAX as u64 {
            assert_eq!(marks.add(at * 3, 2, &Forgetful, ignore()), Ok(()));
        }
        let over = 3 * MARKS_MAX as u64;
        assert_eq!(marks.add(over, 1, &Forgetful, ignore()), Err(TooMany));
        assert_eq!(marks.first_of(over, 1), None);
        assert_eq!(
            marks.add(2, 1, &Forgetful, ignore()),
            Ok(()),
            "one that joins two"
        );
        assert_eq!(marks.add(over, 1, &Forgetful, ignore()), Ok(()));
        // A write is not refused over it: it may cut one in two.
        assert_eq!(marks.remove(2, 1, &Forgetful, ignore()), Ok(()));
        assert_eq!(marks.add(over + 9, 1, &Forgetful, ignore()), Err(TooMany));
    }
}
