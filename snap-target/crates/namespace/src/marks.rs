//! Blocks that Write Uncorrectable marked: reads of them fail until they are written (NVM, "Write Uncorrectable command").

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::limits::{MARKS_CUT_MAX, MARKS_MAX};
use crate::{KeepError, Keeper, RecordKind, Saved};

/// The marks of one namespace, shared by all reactors. Where nothing is marked, a read or write pays one atomic load.
#[derive(Clone, Debug)]
pub struct Marks {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Bytes of a block.
    lba_bytes: u32,
    any: AtomicBool,
    lists: Mutex<Lists>,
}

/// Each sorted, its ranges apart from each other.
#[derive(Debug, Default)]
struct Lists {
    /// Reads of these fail, and writes clear them. A mark stays until it is known that no restart brings it back.
    in_force: Vec<Range>,
    /// What the last save that was begun is of.
    kept: Vec<Range>,
    /// Of the writes under way that may clear marks.
    since: Vec<Weak<Mutex<Vec<Range>>>>,
}

/// What was marked since a write began, which that write does not clear: its data may have been there before the mark, and another write between
/// them.
#[derive(Debug)]
pub(crate) struct Since {
    marked: Arc<Mutex<Vec<Range>>>,
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

/// What a record begins with: this, and the bytes of a block, since the same disk may be served in other blocks one day.
const MAGIC: [u8; 8] = *b"XIOMARK2";
/// The same of an earlier record, which does not say them.
const MAGIC_OF_ANY_BLOCK: [u8; 8] = *b"XIOMARK1";
const RANGE_BYTES: usize = 16;

impl Marks {
    /// No marks, of a namespace with such blocks.
    pub(crate) fn new(lba_bytes: u32) -> Self {
        Self {
            shared: Arc::new(Shared {
                lba_bytes,
                any: AtomicBool::new(false),
                lists: Mutex::default(),
            }),
        }
    }

    /// The first marked block of these.
    pub(crate) fn first_of(&self, lba: u64, blocks: u64) -> Option<u64> {
        if !self.shared.any.load(Ordering::Acquire) {
            return None;
        }
        let lists = self.lock();
        let wanted = Range::of(lba, blocks);
        let next = lists
            .in_force
            .partition_point(|range| range.end <= wanted.start);
        let range = lists.in_force.get(next);
        let range = range.filter(|range| range.start < wanted.end)?;
        Some(range.start.max(lba))
    }

    /// For a write that begins: what will be marked from now on. None where there is nothing that it could clear.
    pub(crate) fn since_now(&self) -> Option<Since> {
        if !self.shared.any.load(Ordering::Acquire) {
            return None;
        }
        let marked = Arc::new(Mutex::default());
        self.lock().since.push(Arc::downgrade(&marked));
        Some(Since { marked })
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
        let mut lists = self.lock();
        let marked = Range::of(lba, blocks);
        let in_force = with(&lists.in_force, marked);
        let kept = with(&lists.kept, marked);
        if in_force.len().max(kept.len()) > MARKS_MAX {
            return Err(TooMany);
        }
        lists.since.retain(|since| {
            let since = since.upgrade().map(|marked| Since { marked });
            since.inspect(|since| since.note(marked)).is_some()
        });
        self.force(&mut lists, in_force);
        self.keep(&mut lists, kept, keeper, saved);
        Ok(())
    }

    /// Forgets what lies from `end` on: the blocks that will be there were never marked. A restart finds no marks beyond a namespace's end, so
    /// nobody waits until that is saved.
    pub(crate) fn cut(&self, end: u64, keeper: &dyn Keeper) {
        let mut lists = self.lock();
        let beyond = Range::of(end, u64::MAX);
        let (in_force, kept) = (
            without(&lists.in_force, beyond),
            without(&lists.kept, beyond),
        );
        let changes = kept != lists.kept;
        self.force(&mut lists, in_force);
        if changes {
            let saved: Saved = Box::new(|result| {
                if let Err(error) = result {
                    tracing::warn!(%error, "marks beyond the end that a namespace had are not forgotten");
                }
            });
            self.keep(&mut lists, kept, keeper, saved);
        }
    }

    /// Begins to save that blocks which were written are not marked any more, but for what was marked since the write began; `saved` is told how it
    /// ended, and [`Marks::removed`] is to be told then. Until then they are.
    pub(crate) fn remove(
        &self,
        lba: u64,
        blocks: u64,
        since: &Since,
        keeper: &dyn Keeper,
        saved: Saved,
    ) -> Result<(), TooMany> {
        let mut lists = self.lock();
        let kept = since.clear(&lists.kept, Range::of(lba, blocks));
        if kept.len() > MARKS_CUT_MAX {
            return Err(TooMany);
        }
        self.keep(&mut lists, kept, keeper, saved);
        Ok(())
    }

    /// It is saved that these blocks are not marked any more. Where that is not known, a restart may find them marked: they stay so, and the next
    /// write tries again.
    pub(crate) fn removed(&self, lba: u64, blocks: u64, since: &Since) {
        let mut lists = self.lock();
        let in_force = since.clear(&lists.in_force, Range::of(lba, blocks));
        self.force(&mut lists, in_force);
    }

    /// Under the lock, so that saves begin in the order of the changes.
    fn keep(&self, lists: &mut Lists, kept: Vec<Range>, keeper: &dyn Keeper, saved: Saved) {
        let record = encode(&kept, self.shared.lba_bytes);
        lists.kept = kept;
        keeper.save(RecordKind::Uncorrectable, record, saved);
    }

    fn force(&self, lists: &mut Lists, in_force: Vec<Range>) {
        self.shared
            .any
            .store(!in_force.is_empty(), Ordering::Release);
        lists.in_force = in_force;
    }

    /// Takes over what was kept of an earlier life. For whoever attaches the namespace: it may block.
    pub(crate) fn restore(&self, keeper: &dyn Keeper) -> Result<(), KeepError> {
        let Some(record) = keeper.load(RecordKind::Uncorrectable)? else {
            return Ok(());
        };
        let ranges = decode(&record, self.shared.lba_bytes).ok_or_else(|| KeepError {
            kind: RecordKind::Uncorrectable,
            why: "it is not a list of marked blocks".to_owned(),
        })?;
        let mut lists = self.lock();
        lists.kept.clone_from(&ranges);
        self.force(&mut lists, ranges);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Lists> {
        // A list is replaced as a whole: one that a panic left behind is the old one.
        self.shared
            .lists
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Since {
    /// Beyond as many ranges as are marked at most, everything: the marks stay until the next write.
    fn note(&self, range: Range) {
        let mut marked = self.lock();
        *marked = with(&marked, range);
        if marked.len() > MARKS_MAX {
            *marked = vec![Range::of(0, u64::MAX)];
        }
    }

    /// Marks less the blocks that were written, but for those that were marked since. Of these, too, another write may have cleared some by now: what is
    /// marked no more stays so. Under the lock of the marks.
    fn clear(&self, marks: &[Range], written: Range) -> Vec<Range> {
        let left = without(marks, written);
        let since = self.lock();
        let marked = marks.iter().filter_map(|range| range.within(written));
        let stay =
            marked.flat_map(|range| since.iter().filter_map(move |other| other.within(range)));
        stay.fold(left, |ranges, range| with(&ranges, range))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Range>> {
        self.marked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Range {
    fn of(lba: u64, blocks: u64) -> Self {
        Self {
            start: lba,
            end: lba.saturating_add(blocks),
        }
    }

    /// What of it lies in `other`.
    fn within(self, other: Self) -> Option<Self> {
        let common = Self {
            start: self.start.max(other.start),
            end: self.end.min(other.end),
        };
        (common.start < common.end).then_some(common)
    }
}

/// A list and one more range, which becomes one with those it touches.
fn with(ranges: &[Range], mut more: Range) -> Vec<Range> {
    let mut next = ranges.to_vec();
    next.retain(|range| {
        let apart = range.end < more.start || more.end < range.start;
        if !apart {
            more.start = more.start.min(range.start);
            more.end = more.end.max(range.end);
        }
        apart
    });
    let at = next.partition_point(|range| range.start < more.start);
    next.insert(at, more);
    next
}

/// A list less a range, which may cut one of it in two.
fn without(ranges: &[Range], less: Range) -> Vec<Range> {
    let before = Range {
        start: 0,
        end: less.start,
    };
    let after = Range {
        start: less.end,
        end: u64::MAX,
    };
    let parts = ranges
        .iter()
        .flat_map(|range| [range.within(before), range.within(after)]);
    parts.flatten().collect()
}

/// An empty list is an empty record.
fn encode(ranges: &[Range], lba_bytes: u32) -> Vec<u8> {
    if ranges.is_empty() {
        return Vec::new();
    }
    let mut record = MAGIC.to_vec();
    record.extend(u64::from(lba_bytes).to_le_bytes());
    for range in ranges {
        record.extend(range.start.to_le_bytes());
        record.extend(range.end.to_le_bytes());
    }
    record
}

/// The marks of a record, in blocks of so many bytes: one that has a marked byte is marked.
fn decode(record: &[u8], lba_bytes: u32) -> Option<Vec<Range>> {
    if record.is_empty() {
        return Some(Vec::new());
    }
    let lba_bytes = u64::from(lba_bytes);
    if let Some(list) = record.strip_prefix(&MAGIC_OF_ANY_BLOCK) {
        return decode_list(list);
    }
    let (kept_bytes, list) = record.strip_prefix(&MAGIC)?.split_first_chunk()?;
    let kept_bytes = u64::from_le_bytes(*kept_bytes);
    let ranges = decode_list(list)?;
    if kept_bytes == lba_bytes {
        return Some(ranges);
    }
    ranges.into_iter().try_fold(Vec::new(), |ranges, range| {
        let range = Range {
            start: range
                .start
                .checked_mul(kept_bytes)?
                .checked_div(lba_bytes)?,
            end: range.end.checked_mul(kept_bytes)?.div_ceil(lba_bytes),
        };
        (range.start < range.end).then(|| with(&ranges, range))
    })
}

fn decode_list(list: &[u8]) -> Option<Vec<Range>> {
    if !list.len().is_multiple_of(RANGE_BYTES) || list.len() / RANGE_BYTES > MARKS_CUT_MAX {
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

    const LBA_BYTES: u32 = 4096;

    fn ignore() -> Saved {
        Box::new(|_| {})
    }

    proptest! {
        /// Against one flag a block.
        #[test]
        fn marks_are_what_a_flag_for_each_block_would_be(steps in prop::collection::vec((any::<bool>(), 0..64u64, 1..20u64), 0..40)) {
            let marks = Marks::new(LBA_BYTES);
            let mut model = [false; 84];
            for (add, lba, blocks) in steps {
                let changed = if add {
                    marks.add(lba, blocks, &Forgetful, ignore())
                } else {
                    let since = marks.since_now();
                    let begun = since.as_ref().map_or(Ok(()), |since| {
                        marks.remove(lba, blocks, since, &Forgetful, ignore())
                    });
                    let there = (lba..lba + blocks).find(|&block| model[block as usize]);
                    prop_assert_eq!(marks.first_of(lba, blocks), there, "until it is saved");
                    if let Some(since) = since {
                        marks.removed(lba, blocks, &since);
                    }
                    begun
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
                let kept = marks.lock().kept.clone();
                prop_assert_eq!(&kept, &marks.lock().in_force);
                prop_assert_eq!(decode(&encode(&kept, LBA_BYTES), LBA_BYTES), Some(kept));
            }
        }

        /// Any record: no panic.
        #[test]
        fn any_record_is_survived(tail in prop::collection::vec(any::<u8>(), 0..100), magic in 0..3_usize) {
            let magic = [&MAGIC[..], &MAGIC_OF_ANY_BLOCK, &[]][magic];
            let record = [magic, &tail].concat();
            let _list = decode(&record, LBA_BYTES);
        }
    }

    #[test]
    fn a_mark_goes_when_no_restart_brings_it_back() {
        let marks = Marks::new(LBA_BYTES);
        assert!(marks.since_now().is_none(), "nothing to clear");
        marks.add(4, 4, &Forgetful, ignore()).unwrap();
        let since = marks.since_now().unwrap();
        let removal = || marks.remove(5, 4, &since, &Forgetful, ignore()).unwrap();
        removal();
        assert_eq!(marks.first_of(5, 4), Some(5), "not known to be saved");
        removal();
        // Marked again while that was saved.
        marks.add(7, 1, &Forgetful, ignore()).unwrap();
        marks.removed(5, 4, &since);
        assert_eq!(
            (marks.first_of(5, 2), marks.first_of(5, 4)),
            (None, Some(7))
        );
        assert_eq!(marks.first_of(0, 5), Some(4));
        drop(since);
        marks.add(8, 1, &Forgetful, ignore()).unwrap();
        assert!(marks.lock().since.is_empty(), "nobody is told any more");
    }

    #[test]
    fn one_range_too_many_changes_nothing() {
        let marks = Marks::new(LBA_BYTES);
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
        let since = marks.since_now().unwrap();
        assert_eq!(marks.remove(2, 1, &since, &Forgetful, ignore()), Ok(()));
        marks.removed(2, 1, &since);
        assert_eq!(marks.add(over + 9, 1, &Forgetful, ignore()), Err(TooMany));
    }

    #[test]
    fn marks_are_of_bytes_whatever_the_blocks_are_at_the_next_start() {
        let of = |pairs: &[(u64, u64)]| {
            let ranges = pairs.iter().map(|&(start, end)| Range { start, end });
            ranges.collect::<Vec<_>>()
        };
        let small = of(&[(7, 9), (20, 21), (30, 48)]);
        let record = encode(&small, 512);
        assert_eq!(decode(&record, 512), Some(small));
        assert_eq!(
            decode(&record, 4096),
            Some(of(&[(0, 6)])),
            "0..2, 2..3, 3..6"
        );
        let large = encode(&of(&[(1, 2)]), 4096);
        assert_eq!(decode(&large, 512), Some(of(&[(8, 16)])));
        for lba_bytes in [0, 1 << 60] {
            let mut record = large.clone();
            record[8..16].copy_from_slice(&u64::to_le_bytes(lba_bytes));
            record[24..32].copy_from_slice(&u64::MAX.to_le_bytes());
            assert_eq!(decode(&record, 512), None, "{lba_bytes}");
        }
        let earlier = [&MAGIC_OF_ANY_BLOCK[..], &large[16..]].concat();
        assert_eq!(decode(&earlier, 512), Some(of(&[(1, 2)])));
    }
}
