//! Ids to the dense code of their ranks, and back: the kernels of the step `rank` (`crate::rank_table` has the code).
//!
//! A decoder of vectors takes 64 bytes at a time, wherever codes begin in them. It makes the rank that a code has which begins at a byte, for all bytes at once, and keeps
//! those of the bytes behind a byte that ends a code. Three bytes that all go on have a rank that no table has, since each of their digits is too large, so that
//! looking for the largest rank finds all that is wrong. It does whole groups, and stops before the first that is short of input or room, or in which
//! something is wrong; the scalar one goes on from there, and finds what and where.

use std::fmt;

use crate::kernels::Isa;
#[cfg(target_arch = "aarch64")]
use crate::kernels::neon_dense;
#[cfg(target_arch = "x86_64")]
use crate::kernels::{avx2_dense, avx512_dense};
use crate::rank_table::{CODE_BYTES_MAX, RankTable};

/// What is wrong with stored codes. Indexes are of elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bad {
    /// A rank that the table has not.
    Rank { index: usize, rank: u32, end: usize },
    /// A code longer than codes are.
    Endless { index: usize },
    /// The bytes end before the elements do.
    Short { index: usize, elements: usize },
    /// The elements end before the bytes do.
    Long { behind: usize },
}

impl fmt::Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bad::Rank { index, rank, end } => {
                write!(f, "element {index} has rank {rank}, the table has {end}")
            }
            Bad::Endless { index } => {
                write!(f, "element {index} has more than {CODE_BYTES_MAX} bytes")
            }
            Bad::Short { index, elements } => {
                write!(f, "it ends in element {index} of {elements}")
            }
            Bad::Long { behind } => write!(f, "{behind} bytes behind the last element"),
        }
    }
}

/// Writes the codes of the ids of `width` bytes, 2 or 4, that `src` is; the bytes written, `None` when they do not fit `dst`, or the index of the first
/// value that the table has not.
pub(crate) fn encode(
    table: &RankTable,
    width: usize,
    src: &[u8],
    dst: &mut [u8],
) -> Result<Option<usize>, usize> {
    match width {
        2 => encode_width::<2>(table, src, dst),
        4 => encode_width::<4>(table, src, dst),
        _ => unreachable!("ids have 2 or 4 bytes"),
    }
}

fn encode_width<const W: usize>(
    table: &RankTable,
    src: &[u8],
    dst: &mut [u8],
) -> Result<Option<usize>, usize> {
    let codes = table.codes();
    let mut at = 0;
    let mut fits = true;
    for (index, value) in src.chunks_exact(W).enumerate() {
        let code = codes.get(id::<W>(value)).filter(|code| code.len > 0);
        let code = code.ok_or(index)?;
        let len = usize::from(code.len);
        // Of a frame that does not fit the rest is looked at all the same: it has only ids of the table.
        if let Some(to) = dst.get_mut(at..at + CODE_BYTES_MAX) {
            to.copy_from_slice(&code.bytes);
        } else if let Some(to) = dst.get_mut(at..at + len) {
            to.copy_from_slice(&code.bytes[..len]);
        } else {
            fits = false;
            continue;
        }
        at += len;
    }
    Ok(fits.then_some(at))
}

fn id<const W: usize>(bytes: &[u8]) -> usize {
    let mut word = [0; 4];
    word[..W].copy_from_slice(bytes);
    u32::from_le_bytes(word) as usize
}

/// Decodes `src`, hostile input, into ids of `width` bytes, 2 or 4, which must fill `dst` exactly.
pub(crate) fn decode(
    isa: Isa,
    table: &RankTable,
    width: usize,
    src: &[u8],
    dst: &mut [u8],
) -> Result<(), Bad> {
    assert!(isa.is_available(), "kernels for another machine");
    match width {
        2 => decode_width::<2>(isa, table, src, dst),
        4 => decode_width::<4>(isa, table, src, dst),
        _ => unreachable!("ids have 2 or 4 bytes"),
    }
}

fn decode_width<const W: usize>(
    isa: Isa,
    table: &RankTable,
    src: &[u8],
    dst: &mut [u8],
) -> Result<(), Bad> {
    let done = match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => {
            // SAFETY: the machine has the features (asserted by `decode`).
            let code = unsafe { avx512_dense::Code::of(table) };
            // SAFETY: as above.
            groups::<W>(table, src, dst, |at, ranks, room| unsafe {
                code.collect(src, at, ranks, room)
            })
        }
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => {
            // SAFETY: as above.
            let code = unsafe { avx2_dense::Code::of(table) };
            // SAFETY: as above.
            groups::<W>(table, src, dst, |at, ranks, room| unsafe {
                code.collect(src, at, ranks, room)
            })
        }
        #[cfg(target_arch = "aarch64")]
        Isa::Neon => {
            // SAFETY: as above.
            let code = unsafe { neon_dense::Code::of(table) };
            // SAFETY: as above.
            groups::<W>(table, src, dst, |at, ranks, room| unsafe {
                code.collect(src, at, ranks, room)
            })
        }
        _ => Done::default(),
    };
    scalar::<W>(table, src, dst, done)
}

/// How far a decoder of vectors came: whole codes, whole elements.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Done {
    bytes: usize,
    elements: usize,
}

/// Source bytes that are looked at at once: so many codes at most begin in them, and the last one ends at most two bytes behind them.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(super) const GROUP_BYTES: usize = 64;
/// What is loaded for a group.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(super) const LOADED_BYTES: usize = GROUP_BYTES + CODE_BYTES_MAX - 1;

/// Ranks that are collected before their ids are looked up.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(super) type Ranks = [u32; 512];

/// Where the next group is, and whether a code begins there; otherwise one of the group before goes on.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[derive(Clone, Copy)]
pub(super) struct At {
    pub(super) byte: usize,
    pub(super) is_start: bool,
}

/// Ranks of the codes that begin in some groups: how many, the largest of them, and where the next group is.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(super) struct Collected {
    pub(super) count: usize,
    pub(super) largest: u32,
    pub(super) next: At,
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
impl At {
    /// Where the next code begins.
    fn first_code(self, table: &RankTable, src: &[u8]) -> usize {
        if self.is_start {
            return self.byte;
        }
        let goes_on = src[self.byte..]
            .iter()
            .take_while(|byte| **byte >= table.stoppers());
        self.byte + goes_on.count() + 1
    }
}

/// Decodes groups, whose ranks `collect` finds: from a place on, and no more than so many.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn groups<const W: usize>(
    table: &RankTable,
    src: &[u8],
    dst: &mut [u8],
    collect: impl Fn(At, &mut Ranks, usize) -> Collected,
) -> Done {
    let ids = table.ids();
    let mut ranks = [0; size_of::<Ranks>() / 4];
    let (mut to, mut elements) = (dst, 0);
    let mut at = At {
        byte: 0,
        is_start: true,
    };
    loop {
        let found = collect(at, &mut ranks, to.len() / W);
        if found.count == 0 || found.largest as usize >= ids.len() {
            return Done {
                bytes: at.first_code(table, src),
                elements,
            };
        }
        let (now, later) = to.split_at_mut(found.count * W);
        // SAFETY: no rank is larger than the largest, which was compared with the length.
        unsafe { look_up::<W>(ids, &ranks[..found.count], now) };
        (to, at) = (later, found.next);
        elements += found.count;
    }
}

/// The ids of some ranks, by single loads, of which a core does more than of lanes that are gathered: hence a function of its own, compiled without the
/// vectors that its callers have, in which loops like these become gathers.
///
/// # Safety
/// `ids` has all these ranks; `to` is as long as their ids.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[inline(never)]
unsafe fn look_up<const W: usize>(ids: &[u32], ranks: &[u32], to: &mut [u8]) {
    /// Between two looks at how many are left.
    const TOGETHER: usize = 8;
    let one = |(rank, to): (&u32, &mut [u8])| {
        // SAFETY: promised by the caller.
        let id = unsafe { *ids.get_unchecked(*rank as usize) };
        to.copy_from_slice(&id.to_le_bytes()[..W]);
    };
    let (groups, rest) = ranks.as_chunks::<TOGETHER>();
    let (front, back) = to.split_at_mut(groups.len() * TOGETHER * W);
    for (ranks, to) in groups.iter().zip(front.chunks_exact_mut(TOGETHER * W)) {
        ranks.iter().zip(to.chunks_exact_mut(W)).for_each(one);
    }
    rest.iter().zip(back.chunks_exact_mut(W)).for_each(one);
}

/// The definition, from where others stopped.
fn scalar<const W: usize>(
    table: &RankTable,
    src: &[u8],
    dst: &mut [u8],
    done: Done,
) -> Result<(), Bad> {
    let (ids, c) = (table.ids(), table.continuers());
    let stoppers = table.stoppers();
    let elements = dst.len() / W;
    let mut at = done.bytes;
    for (index, to) in dst.chunks_exact_mut(W).enumerate().skip(done.elements) {
        let short = Bad::Short { index, elements };
        let first = *src.get(at).ok_or(short)?;
        let mut rank = u32::from(first);
        at += 1;
        if first >= stoppers {
            let second = *src.get(at).ok_or(short)?;
            rank += c * u32::from(second);
            at += 1;
            if second >= stoppers {
                let third = *src.get(at).ok_or(short)?;
                rank += c * c * u32::from(third);
                at += 1;
                if third >= stoppers {
                    return Err(Bad::Endless { index });
                }
            }
        }
        let end = ids.len();
        let id = *ids
            .get(rank as usize)
            .ok_or(Bad::Rank { index, rank, end })?;
        to.copy_from_slice(&id.to_le_bytes()[..W]);
    }
    match src.len() - at {
        0 => Ok(()),
        behind => Err(Bad::Long { behind }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rank_table::{IDS_END, RANKS_MAX, capacity};

    /// `count` ids, and so many stoppers, as a table's bytes.
    fn table(count: usize, stoppers: u8) -> RankTable {
        let mut bytes = u32::try_from(count).unwrap().to_le_bytes().to_vec();
        bytes.extend([stoppers, 3, 0, 0]);
        for rank in 0..u32::try_from(count).unwrap() {
            // An odd factor: each id once.
            let id = rank.wrapping_mul(40_503) % IDS_END;
            bytes.extend(&id.to_le_bytes()[..3]);
        }
        RankTable::parse(&bytes).unwrap()
    }

    /// A fixed sequence of numbers without pattern.
    fn numbers(seed: u64) -> impl FnMut() -> u64 {
        let mut state = seed;
        move || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            state >> 33
        }
    }

    /// Ranks of all lengths, the short ones more often; `spread` bits at most.
    fn ids(table: &RankTable, elements: usize, spread: u32, seed: u64) -> Vec<u8> {
        let mut next = numbers(seed);
        let rank = |_| {
            let bits = u32::try_from(next()).unwrap() % (spread + 1);
            let rank = usize::try_from(next()).unwrap() & ((1 << bits) - 1);
            table.ids()[rank % table.ids().len()].to_le_bytes()
        };
        (0..elements).flat_map(rank).collect()
    }

    #[test]
    fn every_kernel_decodes_what_the_definition_does() {
        for (count, stoppers) in [
            (1, 255),
            (300, 254),
            (30_000, 208),
            (RANKS_MAX, 129),
            (70_000, 200),
        ] {
            let table = table(count, stoppers);
            for elements in [0usize, 1, 7, 8, 20, 63, 64, 65, 130, 1000, 16_384] {
                for spread in [3, 8, 12, 21] {
                    let source = ids(&table, elements, spread, elements as u64 + 1);
                    let mut stored = vec![0; 3 * elements];
                    let len = encode(&table, 4, &source, &mut stored).unwrap().unwrap();
                    for isa in Isa::available() {
                        let mut out = vec![0xEE; source.len()];
                        let read = decode(isa, &table, 4, &stored[..len], &mut out);
                        assert_eq!(read, Ok(()), "{isa:?} {count} {stoppers} x{elements}");
                        assert!(out == source, "{isa:?} {count} {stoppers} x{elements}");
                    }
                }
            }
        }
    }

    #[test]
    fn ids_of_two_bytes_are_decoded_by_every_kernel() {
        let mut counts = crate::IdCounts::new();
        let values: Vec<u8> = (0..9000u16)
            .flat_map(|i| (i.wrapping_mul(i) % 5003 * 13).to_le_bytes())
            .collect();
        counts.add(crate::ElementType::U16, &values).unwrap();
        let table = counts.table().unwrap();
        let mut stored = vec![0; 3 * 9000];
        let len = encode(&table, 2, &values, &mut stored).unwrap().unwrap();
        for isa in Isa::available() {
            let mut out = vec![0xEE; values.len()];
            assert_eq!(decode(isa, &table, 2, &stored[..len], &mut out), Ok(()));
            assert!(out == values, "{isa:?}");
        }
    }

    proptest::proptest! {
        /// Bytes that nobody encoded, in which most codes are short enough: each kernel makes the same ids of them, or refuses them with the same words.
        #[test]
        fn every_kernel_takes_any_bytes_as_the_definition_does(
            stoppers in 129u8..=255,
            seed: u64,
            len in 0usize..900,
            elements in 0usize..900,
            long in 0u64..6,
        ) {
            let count = 30_000.min(capacity(stoppers));
            let table = table(usize::try_from(count).unwrap(), stoppers);
            let mut next = numbers(seed);
            let mut run = 0;
            let byte = |_| {
                let value = next().to_le_bytes()[0];
                // Three in a row that go on are rare.
                run = if value >= stoppers { run + 1 } else { 0 };
                if run > 2 && next() % 1000 >= long { value - stoppers } else { value }
            };
            let stored: Vec<u8> = (0..len).map(byte).collect();
            let mut expected = vec![0; 4 * elements];
            let read = decode(Isa::Portable, &table, 4, &stored, &mut expected);
            for isa in Isa::available() {
                let mut out = vec![0; 4 * elements];
                proptest::prop_assert_eq!(decode(isa, &table, 4, &stored, &mut out), read);
                proptest::prop_assert!(read.is_err() || out == expected);
            }
        }
    }

    /// Each kernel refuses with the same words, wherever it is in the vectors.
    #[test]
    fn every_kernel_refuses_what_the_definition_does() {
        let table = table(30_000, 208);
        let source = ids(&table, 400, 15, 9);
        let mut stored = vec![0; 1200];
        let len = encode(&table, 4, &source, &mut stored).unwrap().unwrap();
        stored.truncate(len);
        let refusals = |stored: &[u8], elements: usize| {
            let mut seen = None;
            for isa in Isa::available() {
                let mut out = vec![0; 4 * elements];
                let read = decode(isa, &table, 4, stored, &mut out);
                assert_eq!(*seen.get_or_insert(read), read, "{isa:?}");
            }
            seen.unwrap()
        };
        assert_eq!(refusals(&stored, 400), Ok(()));
        let longer = [&stored[..], &[0]].concat();
        assert_eq!(refusals(&longer, 400), Err(Bad::Long { behind: 1 }));
        let short = Bad::Short {
            index: 399,
            elements: 400,
        };
        assert_eq!(refusals(&stored[..len - 1], 400), Err(short));
        let (mut ranks, mut endless) = (0, 0);
        for at in 0..len {
            for value in [207, 208, 255] {
                let mut damaged = stored.clone();
                damaged[at] = value;
                match refusals(&damaged, 400) {
                    Err(Bad::Rank { .. }) => ranks += 1,
                    Err(Bad::Endless { .. }) => endless += 1,
                    _ => {}
                }
            }
        }
        assert!(ranks > 50 && endless > 50, "{ranks} {endless}");
    }
}
