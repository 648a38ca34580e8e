//! The table of the step `rank`: which id has which rank, and how many bytes ranks take.
//!
//! Ranks are written by an (s, c)-dense code (Brisaboa, Fariña, Navarro, Paramá, *Lightweight natural language text compression*,
//! Information Retrieval 10, 2007): `s` values of a byte end a code, the other `c = 256 - s` say that it goes on. Here the low digit comes
//! first, so that the bytes `b0, b1, b2` of a code are the rank `b0 + c b1 + c^2 b2`, of whatever length it is.

use std::fmt;
use std::sync::OnceLock;

mod gaps;

use crate::element::{ElementType, Packing, ValueRange};
use crate::encoder;
use crate::kernels::reference;
use crate::{Chain, TransformError};

/// Ids are smaller than this: a writer counts them, and finds their ranks, in arrays.
pub const IDS_END: u32 = 1 << 22;
/// The most entries of a table: what codes of three bytes tell apart, whatever the table's `s`.
pub const RANKS_MAX: usize = 1 << 21;
/// The most bytes of a code.
pub const CODE_BYTES_MAX: usize = 3;
/// The byte values that can end a code: with fewer, three bytes would not do for [`RANKS_MAX`]; with 256 no code would go on.
pub const STOPPERS: std::ops::RangeInclusive<u8> = 129..=255;

/// Count, stoppers, bytes of an id, two reserved.
const HEADER_BYTES: usize = 8;
/// Ids are stored in so many bytes at most.
const ID_BYTES_MAX: u8 = 3;
/// What stands for the bytes of an id where ids are packed.
const PACKED: u8 = 0;
/// So much more may the codes alone take, where that gives more codes of one byte: compressors do better on these. A part of 256.
const CODE_SLACK: u64 = 1;

/// Ids by rank: the commoner, the lower, in classes. Immutable, shared by the chains that use it.
pub struct RankTable {
    /// The id of each rank.
    ids: Vec<u32>,
    stoppers: u8,
    largest: u32,
    /// As a volume has it.
    stored: Vec<u8>,
    /// The code of each id, made when first asked for: readers need none.
    codes: OnceLock<Vec<Code>>,
}

/// The bytes that stand for an id: none, where the table has not this id.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Code {
    pub(crate) bytes: [u8; CODE_BYTES_MAX],
    pub(crate) len: u8,
}

const _: () = assert!(capacity(*STOPPERS.start()) >= RANKS_MAX as u64);
// What is no id lies behind the words of all that are.
const _: () = assert!(IDS_END.is_multiple_of(64));
const _: () = assert!(IDS_END as usize <= 1 << (8 * ID_BYTES_MAX as usize));

/// Ranks that have a code where so many byte values end one.
pub(crate) const fn capacity(stoppers: u8) -> u64 {
    let (s, c) = (stoppers as u64, 256 - stoppers as u64);
    s + s * c + s * c * c
}

impl RankTable {
    /// The bytes of a table of one id.
    pub const STORED_BYTES_MIN: u64 = HEADER_BYTES as u64 + 1;
    /// The bytes of a table of [`RANKS_MAX`] ids of three bytes.
    pub const STORED_BYTES_MAX: u64 = HEADER_BYTES as u64 + RANKS_MAX as u64 * ID_BYTES_MAX as u64;

    /// Reads the bytes of a table.
    ///
    /// # Errors
    /// [`TransformError::Table`], with the rule that they break.
    pub fn parse(bytes: &[u8]) -> Result<RankTable, TransformError> {
        let Some((header, body)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            return Err(broken(format!(
                "{} bytes, which is less than its header of {HEADER_BYTES}",
                bytes.len()
            )));
        };
        let [n0, n1, n2, n3, stoppers, id_bytes, 0, 0] = *header else {
            return Err(broken("its reserved bytes are not zero".into()));
        };
        let count = u32::from_le_bytes([n0, n1, n2, n3]) as usize;
        if !(1..=RANKS_MAX).contains(&count) {
            return Err(broken(format!(
                "{count} ids; 1 to {RANKS_MAX} are possible"
            )));
        }
        if !STOPPERS.contains(&stoppers) {
            return Err(broken(format!(
                "{stoppers} stoppers; {} to {} are possible",
                STOPPERS.start(),
                STOPPERS.end()
            )));
        }
        if capacity(stoppers) < count as u64 {
            return Err(broken(format!(
                "{stoppers} stoppers give {} codes, fewer than its {count} ids",
                capacity(stoppers)
            )));
        }
        let ids = match id_bytes {
            PACKED => gaps::unpack(body, count)?,
            1..=ID_BYTES_MAX => plain_ids(body, count, usize::from(id_bytes))?,
            _ => {
                return Err(broken(format!(
                    "ids of {id_bytes} bytes; 1 to {ID_BYTES_MAX} are possible, and {PACKED} says that they are packed"
                )));
            }
        };
        let table = RankTable {
            largest: largest_of(&ids)?,
            ids,
            stoppers,
            stored: bytes.to_vec(),
            codes: OnceLock::new(),
        };
        if id_bytes == PACKED && table.stored_bytes() >= table.plain_bytes() {
            return Err(broken(format!(
                "{} bytes with packed ids, which take {} as they are",
                table.stored_bytes(),
                table.plain_bytes()
            )));
        }
        Ok(table)
    }

    /// The table of these ids, in as few bytes as it takes.
    ///
    /// # Errors
    /// Ids that are not below the end, or there twice; [`TransformError::Memory`].
    fn new(ids: Vec<u32>, stoppers: u8) -> Result<RankTable, TransformError> {
        let mut table = RankTable {
            largest: largest_of(&ids)?,
            ids,
            stoppers,
            stored: Vec::new(),
            codes: OnceLock::new(),
        };
        let packed = [&table.header(PACKED)[..], &gaps::pack(&table.ids)?].concat();
        table.stored = match (packed.len() as u64) < table.plain_bytes() {
            true => packed,
            false => table.plain(),
        };
        Ok(table)
    }

    /// The bytes of the table, which [`parse`](Self::parse) reads: those that it has read.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.stored.clone()
    }

    /// How long [`to_bytes`](Self::to_bytes) is.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        self.stored.len() as u64
    }

    /// How long it is with ids as they are, each in the fewest bytes that hold every one.
    #[must_use]
    pub fn plain_bytes(&self) -> u64 {
        (HEADER_BYTES + self.ids.len() * usize::from(self.id_bytes())) as u64
    }

    fn plain(&self) -> Vec<u8> {
        let id_bytes = self.id_bytes();
        let mut bytes = self.header(id_bytes).to_vec();
        for id in &self.ids {
            bytes.extend(&id.to_le_bytes()[..usize::from(id_bytes)]);
        }
        bytes
    }

    fn header(&self, id_bytes: u8) -> [u8; HEADER_BYTES] {
        #[allow(clippy::cast_possible_truncation)] // at most RANKS_MAX
        let [n0, n1, n2, n3] = (self.ids.len() as u32).to_le_bytes();
        [n0, n1, n2, n3, self.stoppers, id_bytes, 0, 0]
    }

    /// The fewest bytes that hold every id.
    #[allow(clippy::cast_possible_truncation)] // at most ID_BYTES_MAX
    fn id_bytes(&self) -> u8 {
        let bits = u32::BITS - self.largest().leading_zeros();
        bits.div_ceil(8).max(1) as u8
    }

    /// The largest id.
    #[must_use]
    pub fn largest(&self) -> u32 {
        self.largest
    }

    /// The id of each rank.
    #[must_use]
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Byte values that end a code: the smallest ones.
    #[must_use]
    pub fn stoppers(&self) -> u8 {
        self.stoppers
    }

    /// Byte values that say that a code goes on.
    pub(crate) fn continuers(&self) -> u32 {
        256 - u32::from(self.stoppers)
    }

    /// The code of each id from 0 on; behind the last are ids that the table has not.
    pub(crate) fn codes(&self) -> &[Code] {
        self.codes.get_or_init(|| {
            let mut codes = vec![Code::default(); self.largest() as usize + 1];
            for (rank, id) in (0u32..).zip(&self.ids) {
                codes[*id as usize] = self.code(rank);
            }
            codes
        })
    }

    #[allow(clippy::cast_possible_truncation)] // digits are below 256: the capacity was asked for
    fn code(&self, rank: u32) -> Code {
        let (s, c) = (u32::from(self.stoppers), self.continuers());
        if rank < s {
            return Code {
                bytes: [rank as u8, 0, 0],
                len: 1,
            };
        }
        let rest = rank - s;
        if rest < s * c {
            return Code {
                bytes: [(s + rest % c) as u8, (rest / c) as u8, 0],
                len: 2,
            };
        }
        let rest = rest - s * c;
        Code {
            bytes: [
                (s + rest % c) as u8,
                (s + rest / c % c) as u8,
                (rest / c / c) as u8,
            ],
            len: 3,
        }
    }
}

fn broken(why: String) -> TransformError {
    TransformError::Table { why }
}

/// Ids as they are.
fn plain_ids(body: &[u8], count: usize, id_bytes: usize) -> Result<Vec<u32>, TransformError> {
    if body.len() != count * id_bytes {
        return Err(broken(format!(
            "{} bytes behind its header where {count} ids of {id_bytes} bytes belong",
            body.len()
        )));
    }
    let id = |bytes: &[u8]| {
        let mut word = [0; 4];
        word[..id_bytes].copy_from_slice(bytes);
        u32::from_le_bytes(word)
    };
    Ok(body.chunks_exact(id_bytes).map(id).collect())
}

/// The largest of ids that are below the end, and each there once.
fn largest_of(ids: &[u32]) -> Result<u32, TransformError> {
    // As long as the largest id asks for: a volume may have thousands of small tables.
    let largest = ids.iter().copied().max().unwrap_or(0).min(IDS_END - 1);
    let mut seen = vec![0u64; largest as usize / 64 + 1];
    for (rank, id) in ids.iter().enumerate() {
        let Some(word) = seen.get_mut(*id as usize / 64) else {
            return Err(broken(format!(
                "rank {rank} is id {id}; ids are less than {IDS_END}"
            )));
        };
        let bit = 1 << (id % 64);
        if *word & bit != 0 {
            return Err(broken(format!(
                "rank {rank} is id {id}, which has a rank already"
            )));
        }
        *word |= bit;
    }
    Ok(largest)
}

impl fmt::Debug for RankTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "RankTable({} ids, s = {})",
            self.ids.len(),
            self.stoppers
        )
    }
}

/// As a volume has them: one blob is of one form.
impl PartialEq for RankTable {
    fn eq(&self, other: &RankTable) -> bool {
        self.stored == other.stored
    }
}

impl Eq for RankTable {}

/// How often each id is there: what a table is made of. At most 32 MiB.
#[derive(Debug, Clone, Default)]
pub struct IdCounts {
    counts: Vec<u64>,
}

impl IdCounts {
    /// Nothing counted.
    #[must_use]
    pub fn new() -> IdCounts {
        IdCounts::default()
    }

    /// Counts the whole elements of `bytes`.
    ///
    /// # Errors
    /// Types other than integers, bytes that end inside an element; [`TransformError::LargeId`] for values that are no ids, with the first
    /// of `bytes`: nothing of them is counted then.
    pub fn add(&mut self, element: ElementType, bytes: &[u8]) -> Result<(), TransformError> {
        if !bytes.len().is_multiple_of(element.bytes()) {
            return Err(TransformError::PartialElement {
                bytes: bytes.len(),
                element,
            });
        }
        let Some(range) = encoder::range_of(element, bytes) else {
            return Ok(());
        };
        if range.min < 0 || range.max >= i128::from(IDS_END) {
            return Err(large_id(element, bytes));
        }
        let end = usize::try_from(range.max).unwrap_or(0) + 1;
        if self.counts.len() < end {
            self.counts.resize(end, 0);
        }
        // Little-endian, and seen to be small: the bytes behind the first four are zero.
        for value in bytes.chunks_exact(element.bytes()) {
            let mut word = [0; 4];
            let len = value.len().min(4);
            word[..len].copy_from_slice(&value[..len]);
            self.counts[u32::from_le_bytes(word) as usize] += 1;
        }
        Ok(())
    }

    /// Counts the whole elements of `bytes`, as the chain ranks them: behind its narrower type, where it has one.
    ///
    /// # Errors
    /// As [`add`](IdCounts::add); [`TransformError::OutOfRange`] for values that the narrower type does not hold, with the first of `bytes`.
    pub fn add_ranked(&mut self, chain: &Chain, bytes: &[u8]) -> Result<(), TransformError> {
        let (element, target) = (chain.source(), chain.packing());
        if let (Some(range), Some(held)) = (encoder::range_of(element, bytes), target.range())
            && !held.encloses(&range)
        {
            let (index, value) = first_outside(held, element, bytes);
            return Err(TransformError::OutOfRange {
                index,
                value,
                target,
            });
        }
        self.add(element, bytes)
    }

    /// The table: ids by falling count; those of one octave of counts, if their codes are of one length, by rising value, which takes a quarter fewer
    /// bytes than by every count, and makes the codes a thousandth longer behind a compressor, if at all.
    ///
    /// # Errors
    /// [`TransformError::Table`] where more than [`RANKS_MAX`] ids are there.
    pub fn table(&self) -> Result<RankTable, TransformError> {
        let mut ids: Vec<u32> = (0..IDS_END)
            .zip(&self.counts)
            .filter(|(_, count)| **count > 0)
            .map(|(id, _)| id)
            .collect();
        if ids.len() > RANKS_MAX {
            return Err(broken(format!(
                "{} different ids; at most {RANKS_MAX} are possible: use bitpack",
                ids.len()
            )));
        }
        if ids.is_empty() {
            // Of nothing: a table has at least one.
            ids.push(0);
        }
        let count = |id: u32| self.counts.get(id as usize).copied().unwrap_or(0);
        ids.sort_unstable_by_key(|id| (std::cmp::Reverse(count(*id)), *id));
        let counts: Vec<u64> = ids.iter().map(|id| count(*id)).collect();
        let stoppers = best_stoppers(&counts);
        let octave = |id: u32| count(id).checked_ilog2();
        for of_one_length in by_code_length(&mut ids, stoppers) {
            of_one_length.sort_unstable_by_key(|id| (std::cmp::Reverse(octave(*id)), *id));
        }
        RankTable::new(ids, stoppers)
    }
}

/// The first value that is no id, of bytes that have one.
fn large_id(element: ElementType, bytes: &[u8]) -> TransformError {
    let ids = ValueRange {
        min: 0,
        max: i128::from(IDS_END) - 1,
    };
    let (index, value) = first_outside(ids, element, bytes);
    TransformError::LargeId {
        index,
        value,
        end: IDS_END,
    }
}

/// The first of some elements that `range` does not have: its place, and its value.
fn first_outside(range: ValueRange, element: ElementType, bytes: &[u8]) -> (u64, i128) {
    let packing = Packing::Whole(element);
    let values = bytes
        .chunks_exact(element.bytes())
        .map(|value| reference::element(packing, value, 0));
    let is_outside = |(_, value): &(u64, i128)| !range.contains(*value);
    (0..).zip(values).find(is_outside).unwrap_or_default()
}

/// The ids, by rank, whose codes are of one byte, of two and of three.
fn by_code_length(ids: &mut [u32], stoppers: u8) -> [&mut [u32]; CODE_BYTES_MAX] {
    let (s, c) = (usize::from(stoppers), 256 - usize::from(stoppers));
    let (one, longer) = ids.split_at_mut(s.min(ids.len()));
    let (two, three) = longer.split_at_mut((s * c).min(longer.len()));
    [one, two, three]
}

/// How many byte values end a code, so that ids of these counts, by rank, take the fewest bytes, or nearly: the most such values of those with which
/// they do.
fn best_stoppers(counts: &[u64]) -> u8 {
    let mut before = Vec::with_capacity(counts.len() + 1);
    let mut sum = 0u64;
    before.push(0);
    for count in counts {
        sum = sum.saturating_add(*count);
        before.push(sum);
    }
    let from = |rank: u64| {
        let rank = usize::try_from(rank).unwrap_or(usize::MAX);
        sum - before[rank.min(counts.len())]
    };
    // A byte for each element, one more for each from the first rank of two bytes on, and so on.
    let bytes = |stoppers: u8| {
        let (s, c) = (u64::from(stoppers), 256 - u64::from(stoppers));
        sum.saturating_add(from(s)).saturating_add(from(s + s * c))
    };
    let possible = || STOPPERS.filter(|s| capacity(*s) >= counts.len() as u64);
    let fewest = possible().map(bytes).min().unwrap_or(sum);
    let enough = fewest.saturating_add(fewest / 256 * CODE_SLACK);
    let most = possible().filter(|s| bytes(*s) <= enough).max();
    most.unwrap_or(*STOPPERS.start())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(stoppers: u8, ids: &[u32]) -> Vec<u8> {
        let mut bytes = u32::try_from(ids.len()).unwrap().to_le_bytes().to_vec();
        bytes.extend([stoppers, 3, 0, 0]);
        bytes.extend(ids.iter().flat_map(|id| id.to_le_bytes()[..3].to_vec()));
        bytes
    }

    fn refused(bytes: &[u8]) -> String {
        RankTable::parse(bytes).unwrap_err().to_string()
    }

    #[test]
    fn every_rank_has_one_code_and_its_digits_are_the_rank() {
        for stoppers in [129, 200, 255] {
            let count = capacity(stoppers).min(RANKS_MAX as u64);
            let ids = RankTable::new(vec![0], stoppers).unwrap();
            let (c, mut lens) = (ids.continuers(), [0u64; 4]);
            for rank in 0..u32::try_from(count).unwrap() {
                let Code { bytes, len } = ids.code(rank);
                let [b0, b1, b2] = bytes.map(u32::from);
                assert_eq!(b0 + c * b1 + c * c * b2, rank);
                let goes_on: Vec<bool> = bytes.iter().map(|byte| *byte >= stoppers).collect();
                let len = usize::from(len);
                assert!(!goes_on[len - 1] && goes_on[..len - 1].iter().all(|on| *on));
                lens[len] += 1;
            }
            let (s, c) = (u64::from(stoppers), u64::from(c));
            assert_eq!(lens[1..3], [s, s * c]);
        }
    }

    #[test]
    fn a_table_that_breaks_a_rule_is_refused_with_it() {
        let good = table(129, &[7, 0, 300_000]);
        let parsed = RankTable::parse(&good).unwrap();
        assert_eq!(parsed.ids(), [7, 0, 300_000]);
        assert_eq!(parsed.to_bytes(), good);
        assert_eq!(parsed.stored_bytes(), good.len() as u64);

        let message = refused(&table(129, &[7, 0, 7]));
        assert_eq!(
            message,
            "not a rank table: rank 2 is id 7, which has a rank already"
        );
        let message = refused(&table(129, &[7, IDS_END]));
        assert!(message.contains("rank 1 is id 4194304"), "{message}");
        for len in 0..good.len() {
            refused(&good[..len]);
        }
        refused(&[&good[..], &[0]].concat());
        refused(&table(128, &[1]));
        refused(&table(129, &[]));
        let many: Vec<u32> = (0..800).collect();
        refused(&table(255, &many));
        RankTable::parse(&table(254, &many)).unwrap();
        for (at, value) in [(5, PACKED), (5, 4), (6, 1), (7, 1), (3, 1)] {
            let mut bytes = good.clone();
            bytes[at] = value;
            refused(&bytes);
        }
    }

    fn counted(counts: impl IntoIterator<Item = (u32, u64)>) -> RankTable {
        let mut ids = IdCounts::new();
        for (id, count) in counts {
            let end = ids.counts.len().max(id as usize + 1);
            ids.counts.resize(end, 0);
            ids.counts[id as usize] = count;
        }
        ids.table().unwrap()
    }

    /// By octaves among codes of one length, so that none is longer than by every count.
    #[test]
    fn an_octave_is_in_order_where_codes_are_of_one_length() {
        // The commoner an id, the larger it is.
        let count = |id: u32| u64::from(id) * 19 + 1;
        let table = counted((0..2_000).map(|id| (id, count(id))));
        let mut lens = [Vec::new(), Vec::new(), Vec::new()];
        for (rank, id) in (0..).zip(table.ids()) {
            lens[usize::from(table.code(rank).len) - 1].push(*id);
        }
        let mut end = 2_000;
        for ids in lens {
            let first = end - u32::try_from(ids.len()).unwrap();
            let mut expected: Vec<u32> = (first..end).collect();
            expected.sort_by_key(|id| (64 - count(*id).ilog2(), *id));
            assert!(ids == expected, "of {first} to {end}");
            end = first;
        }
    }

    #[test]
    fn a_table_is_packed_where_that_is_shorter() {
        let dense = counted((0..5_000).map(|id| (3 * id, 1)));
        assert_eq!(dense.plain_bytes(), 8 + 2 * 5_000);
        assert!(dense.stored_bytes() < 100, "{}", dense.stored_bytes());
        let bytes = dense.to_bytes();
        assert_eq!(
            bytes[..8],
            [0x88, 0x13, 0, 0, dense.stoppers(), PACKED, 0, 0]
        );
        let parsed = RankTable::parse(&bytes).unwrap();
        assert_eq!(parsed, dense);
        assert_eq!(parsed.to_bytes(), bytes);
        // As it is, which older volumes have: what was read is what is written.
        let plain = dense.plain();
        assert_eq!(plain.len() as u64, dense.plain_bytes());
        let parsed = RankTable::parse(&plain).unwrap();
        assert_eq!(
            (parsed.ids(), parsed.stoppers()),
            (dense.ids(), dense.stoppers())
        );
        assert_eq!(
            (parsed.to_bytes(), parsed.plain_bytes()),
            (plain, dense.plain_bytes())
        );
        assert!(parsed != dense);

        let few = counted([(7, 3), (300_000, 1)]);
        assert_eq!(few.to_bytes(), table(few.stoppers(), &[7, 300_000]));
    }

    /// The fewest ids of a byte that are shorter packed, and as many as take as much.
    #[test]
    fn a_packed_table_is_shorter_than_a_plain_one() {
        let mut lens = Vec::new();
        for count in 1..60 {
            let table = counted((0..count).map(|id| (id, 1)));
            let packed = gaps::pack(table.ids()).unwrap();
            let packed = [&table.header(PACKED)[..], &packed].concat();
            let plain = table.plain();
            match packed.len() < plain.len() {
                true => assert_eq!(table.to_bytes(), packed),
                false => {
                    assert_eq!(table.to_bytes(), plain);
                    let why = format!(
                        "not a rank table: {} bytes with packed ids, which take {} as they are",
                        packed.len(),
                        plain.len()
                    );
                    assert_eq!(refused(&packed), why);
                }
            }
            lens.push(packed.len().cmp(&plain.len()));
        }
        assert!(
            lens.contains(&std::cmp::Ordering::Equal) && lens.contains(&std::cmp::Ordering::Less)
        );
    }

    #[test]
    fn packed_ids_are_each_there_once() {
        let mut ids: Vec<u32> = (0..100).collect();
        ids.push(50);
        let frame = gaps::pack(&ids).unwrap();
        let error = refused(&[&[101, 0, 0, 0, 254, PACKED, 0, 0], &frame[..]].concat());
        assert!(
            error.contains("rank 100 is id 50, which has a rank already"),
            "{error}"
        );
    }

    /// Packed to next to nothing, and ids without order, of counts without order.
    #[test]
    fn the_largest_tables_are_read_again() {
        let most = u32::try_from(RANKS_MAX).unwrap();
        let dense = counted((0..most).map(|id| (id, 1)));
        assert!(dense.stored_bytes() < 1024, "{}", dense.stored_bytes());
        // Odd factors: each id once.
        let shuffled = |at: u32| at.wrapping_mul(40_503) % IDS_END;
        let noisy = counted((0..most).map(|at| {
            let count = at.wrapping_mul(2_654_435_761);
            (shuffled(at), u64::from(count) + 1)
        }));
        for table in [dense, noisy] {
            assert!(table.stored_bytes() <= RankTable::STORED_BYTES_MAX);
            assert_eq!(
                RankTable::parse(&table.to_bytes()).unwrap().ids(),
                table.ids()
            );
        }
    }

    #[test]
    fn ids_are_ranked_by_how_often_they_are_there() {
        let mut counts = IdCounts::new();
        for values in [[5u32, 9, 9, 2], [9, 2, 70_000, 5]] {
            let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
            counts.add(ElementType::U32, &bytes).unwrap();
        }
        let table = counts.table().unwrap();
        // Of three, of two, and of one: the first two are of one octave.
        assert_eq!(table.ids(), [2, 5, 9, 70_000]);
        assert_eq!(RankTable::parse(&table.to_bytes()).unwrap(), table);
        let large = [1u32, 1 << 22, 3].map(u32::to_le_bytes).concat();
        let error = counts.add(ElementType::U32, &large).unwrap_err();
        assert_eq!(
            error.to_string(),
            "element 1 is 4194304, which is no token id that rank takes: ids are 0 to 4194303; store them by bitpack:K, or a narrower type, before lz4 or zstd"
        );
        let negative = [7i16, -100, -200].map(i16::to_le_bytes).concat();
        let error = counts.add(ElementType::I16, &negative).unwrap_err();
        assert_eq!(
            error.to_string(),
            "element 1 is -100, which is no token id that rank takes: ids are 0 to 4194303; store them by i16+zstd:3, or i32+zstd:3"
        );
        let narrow = Chain::parse("u16+rank", ElementType::U32).unwrap();
        let wide = [7u32, 65_535, 65_536, 70_000]
            .map(u32::to_le_bytes)
            .concat();
        let error = counts.add_ranked(&narrow, &wide).unwrap_err();
        assert_eq!(
            error,
            TransformError::OutOfRange {
                index: 2,
                value: 65_536,
                target: Packing::Whole(ElementType::U16)
            }
        );
        counts.add_ranked(&narrow, &wide[..8]).unwrap();
        assert_eq!(IdCounts::new().table().unwrap().ids(), [0]);
    }
}
