//! A chain, tried on a sample.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use transforms::{
    Chain, Decoder, Dictionary, ElementType, IdCounts, OutSegments, PackedWindow, RankTable,
    Scratch, Step, TableKind, TransformError, ValueRange, ViewChain, codecs,
};

use super::candidates::SHORT_FRAME_BYTES_MAX;
use super::rule::{self, Wish};
use super::sample::Sample;
use crate::{dictionary, storage};

/// What a chain makes of a sample.
#[derive(Debug, Clone)]
pub struct Trial {
    /// The chain.
    pub chain: Chain,
    /// Source bytes of a frame; 0 where the chain has none.
    pub frame_bytes: u64,
    /// Frames that the sample was cut into; 0 where the chain has none.
    pub frames: u64,
    /// Bytes of the sample.
    pub source_bytes: u64,
    /// What they are stored in.
    pub stored_bytes: u64,
    /// Their share of the rank table and of the dictionary, where the chain has them.
    pub table_bytes: u64,
    /// What they are by rank; 0 where the chain has none.
    pub codes_bytes: u64,
    /// How long this machine took to make them: for people.
    pub encode_seconds: f64,
    /// And to undo them.
    pub decode_seconds: f64,
}

/// The stored frames of a sample.
#[derive(Default)]
struct Stored {
    bytes: Vec<u8>,
    frames: Vec<StoredFrame>,
    seconds: f64,
}

struct StoredFrame {
    stored_bytes: usize,
    elements: u64,
    range: Option<ValueRange>,
    /// Which of the chains.
    chain: usize,
}

/// Dictionaries that were trained on a sample, whatever the level that frames are compressed by: chains that differ in that alone have the same.
#[derive(Default)]
pub(super) struct Dictionaries(Mutex<HashMap<Trained, Arc<Training>>>);

/// The steps before the compressor, and the bytes of a frame.
type Trained = (Vec<Step>, u64);
type Training = OnceLock<Result<Vec<Arc<Dictionary>>, TransformError>>;

impl Dictionaries {
    /// Those of a chain, which has all its other tables, and of frames of `frame_bytes`; trained where nobody has asked for them.
    fn of(
        &self,
        chain: &Chain,
        frame_bytes: u64,
        train: impl FnOnce() -> Result<Vec<Arc<Dictionary>>, TransformError>,
    ) -> Result<Vec<Arc<Dictionary>>, TransformError> {
        let steps = chain.steps().iter();
        let before = steps.take_while(|step| step.id != codecs::zstd_dict::ID);
        let key = (before.copied().collect(), frame_bytes);
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let training = Arc::clone(all.entry(key).or_default());
        drop(all);
        training.get_or_init(train).clone()
    }
}

/// All that a sample is of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Whole {
    pub(super) bytes: u64,
    /// What its rank table takes, where chains are tried that have one.
    pub(super) ranks_bytes: u64,
}

/// What the rank table of all of it takes, whatever comes behind, as far as a sample tells: exact where that is all of it, otherwise as [`grown`] has it; never more than
/// every id of the range takes, or every element.
///
/// # Errors
/// Values that are no ids.
pub(super) fn ranks_bytes(
    element: ElementType,
    (bytes, range): (u64, Option<ValueRange>),
    sample: &Sample,
) -> Result<u64, TransformError> {
    let Some(range) = range else {
        return Ok(0);
    };
    let all = [&sample.tried, &sample.others];
    // Whole pairs of pieces, which are of one length in each list.
    let pairs = || all.into_iter().flat_map(|list| list.chunks_exact(2));
    let halves = || pairs().filter_map(|pair| pair.first());
    let table = ranks(element, all.into_iter().flatten())?;
    let known = Seen {
        bytes: sample.bytes() + sample.other_bytes(),
        ids: ids_of(&table),
    };
    let elements = bytes / element.bytes() as u64;
    let most = u64::try_from(range.max - range.min + 1).unwrap_or(u64::MAX);
    let doubling = [
        ids_of(&ranks(element, halves())?),
        ids_of(&ranks(element, pairs().flatten())?),
    ];
    let ids = grown(known, doubling, bytes).min(most).min(elements);
    // Each takes what one of those does that were seen. Of text it is less: the more ids, the closer they are.
    let table_bytes = u128::from(ids) * u128::from(table.stored_bytes());
    let table_bytes = table_bytes.div_ceil(u128::from(known.ids.max(1)));
    Ok(u64::try_from(table_bytes).unwrap_or(u64::MAX))
}

fn ids_of(table: &RankTable) -> u64 {
    table.ids().len() as u64
}

/// What some bytes are by rank.
#[derive(Debug, Clone, Copy)]
struct Seen {
    bytes: u64,
    /// Different ones.
    ids: u64,
}

/// How many different ids `bytes` have, of which some were seen, if each doubling adds as many new ids, for those that there are, as one of what was seen did: from so
/// many to so many. Of words, of which ever fewer are new, that is more than it is.
fn grown(seen: Seen, doubling: [u64; 2], bytes: u64) -> u64 {
    let [from, to] = doubling.map(|it| u128::from(it.max(1)));
    let (mut ids, mut at) = (u128::from(seen.ids), u128::from(seen.bytes.max(1)));
    let bytes = u128::from(bytes);
    while at < bytes && to > from {
        let more = ids * (to - from) / from;
        // The last one is not a whole one.
        let part = (bytes - at).min(at);
        ids = (ids + more.saturating_mul(part) / at).min(u128::from(u64::MAX));
        at *= 2;
    }
    u64::try_from(ids).unwrap_or(u64::MAX)
}

/// Tries a chain with every frame of the ladder, and keeps the frame that the rule wants. `None` where there is too little for its dictionary.
///
/// # Errors
/// Values that it does not hold.
pub(super) fn run(
    chain: &Chain,
    sample: &Sample,
    wish: &Wish,
    whole: Whole,
    dictionaries: &Dictionaries,
) -> Result<Option<Trial>, TransformError> {
    let ranks_bytes = match chain.takes(TableKind::Ranks) {
        true => whole.ranks_bytes,
        false => 0,
    };
    let has_dictionary = chain.takes(TableKind::Dictionary);
    let others = sample.others.iter().filter(|_| has_dictionary);
    let chain = &ranked(chain, sample.tried.iter().chain(others))?;
    let mut scratch = Scratch::new();
    let (mut trials, mut made) = (Vec::new(), Vec::new());
    for frame_bytes in ladder(chain, has_dictionary, wish) {
        let chains = match has_dictionary {
            true => by_dictionary(chain, sample, frame_bytes, whole.bytes, dictionaries)?,
            false => vec![chain.clone()],
        };
        let Some(chain) = chains.first() else {
            return Ok(None);
        };
        let stored = encode(&chains, &sample.tried, frame_bytes, &mut scratch)?;
        let source_bytes = sample.bytes();
        let dictionary_bytes = chain.dictionary().map_or(0, |it| it.stored_bytes());
        let share = u128::from(ranks_bytes + dictionary_bytes) * u128::from(source_bytes);
        let share = share.div_ceil(u128::from(whole.bytes.max(1)));
        let frames = stored.frames.len() as u64;
        trials.push(Trial {
            table_bytes: u64::try_from(share).unwrap_or(u64::MAX),
            codes_bytes: codes_bytes(chain, &sample.tried, frame_bytes, &mut scratch)?,
            decode_seconds: 0.0,
            chain: chain.clone(),
            frame_bytes: if chain.is_framed() { frame_bytes } else { 0 },
            frames: if chain.is_framed() { frames } else { 0 },
            source_bytes,
            stored_bytes: stored.bytes.len() as u64,
            encode_seconds: stored.seconds,
        });
        made.push((stored, chains));
    }
    let best = rule::frame(&trials, wish);
    let chosen = best.and_then(|index| Some((trials.get(index)?, made.get(index)?)));
    let Some((trial, (stored, chains))) = chosen else {
        return Ok(None);
    };
    Ok(Some(Trial {
        decode_seconds: decode(chains, stored, &mut scratch)?,
        ..trial.clone()
    }))
}

/// The frames that a chain is tried in.
fn ladder(chain: &Chain, has_dictionary: bool, wish: &Wish) -> Vec<u64> {
    let mut ladder = rule::ladder(wish);
    if !chain.is_framed() {
        // Nothing is cut; what is measured needs some length.
        ladder = ladder.last().copied().into_iter().collect();
    }
    if has_dictionary && ladder.len() > 1 {
        ladder.retain(|it| *it <= SHORT_FRAME_BYTES_MAX);
    }
    ladder
}

/// The chain with ranks of these elements alone, where it takes some: to see what it makes of them.
fn ranked<'a>(
    chain: &Chain,
    pieces: impl Iterator<Item = &'a Vec<u8>>,
) -> Result<Chain, TransformError> {
    if !chain.takes(TableKind::Ranks) {
        return Ok(chain.clone());
    }
    chain.with_table(Arc::new(ranks(chain.source(), pieces)?))
}

fn ranks<'a>(
    element: ElementType,
    pieces: impl Iterator<Item = &'a Vec<u8>>,
) -> Result<RankTable, TransformError> {
    let mut counts = IdCounts::new();
    for piece in pieces {
        counts.add(element, piece)?;
    }
    counts.table()
}

/// The chain with a dictionary for each half of the pieces, trained on others; one for both where there are enough others; none where there are too few.
/// It is as long as one for all of `data_bytes`.
fn by_dictionary(
    chain: &Chain,
    sample: &Sample,
    frame_bytes: u64,
    data_bytes: u64,
    dictionaries: &Dictionaries,
) -> Result<Vec<Chain>, TransformError> {
    let stored = storage::Stored {
        chain: chain.clone(),
        frame_bytes,
    };
    let train = || {
        let halves = sample.training().into_iter();
        let trained = halves.map(|pieces| {
            dictionary::of_pieces(pieces.into_iter(), &stored, data_bytes).map(Arc::new)
        });
        trained.collect()
    };
    let trained = match dictionaries.of(chain, frame_bytes, train) {
        Err(TransformError::Untrained { .. }) => Ok(Vec::new()),
        trained => trained,
    };
    let trained = trained?.into_iter();
    trained.map(|it| chain.with_table(it)).collect()
}

/// What `rank` makes of the sample.
fn codes_bytes(
    chain: &Chain,
    sample: &[Vec<u8>],
    frame_bytes: u64,
    scratch: &mut Scratch,
) -> Result<u64, TransformError> {
    let steps = chain.steps();
    let rank = steps.iter().position(|step| step.id == codecs::rank::ID);
    let alone = rank.and_then(|rank| steps.get(..=rank));
    let (Some(alone), Some(table)) = (alone, chain.rank_table()) else {
        return Ok(0);
    };
    let alone = Chain::from_steps(alone, chain.source())?.with_table(Arc::clone(table))?;
    let codes = encode(&[alone], sample, frame_bytes, scratch)?;
    Ok(codes.bytes.len() as u64)
}

/// What a chain stores a sample in, with frames of `frame_bytes`; without its dictionary, which is of the ranks of all that it is trained on.
///
/// # Errors
/// Values that it does not hold.
pub(super) fn stored_bytes(
    chain: &Chain,
    sample: &[Vec<u8>],
    frame_bytes: u64,
) -> Result<u64, TransformError> {
    let chain = ranked(&dictionary::without(chain)?, sample.iter())?;
    let stored = encode(&[chain], sample, frame_bytes, &mut Scratch::new())?;
    Ok(stored.bytes.len() as u64)
}

/// Each piece is cut by itself: frames do not go from one into the next. The chains, which differ by their tables, take turns.
fn encode(
    chains: &[Chain],
    sample: &[Vec<u8>],
    frame_bytes: u64,
    scratch: &mut Scratch,
) -> Result<Stored, TransformError> {
    let mut stored = Stored::default();
    let started = Instant::now();
    for (index, (piece, chain)) in sample.iter().zip(chains.iter().cycle()).enumerate() {
        let element_bytes = chain.source().bytes();
        // As the writer cuts: whole groups of eight elements.
        let group_bytes = 8 * element_bytes;
        let frame_bytes = usize::try_from(frame_bytes).unwrap_or(group_bytes);
        let frame_bytes = (frame_bytes / group_bytes).max(1) * group_bytes;
        for frame in piece.chunks(frame_bytes) {
            let elements = (frame.len() / element_bytes) as u64;
            let start = stored.bytes.len();
            let room = usize::try_from(chain.stored_bytes_max(elements)).unwrap_or(0);
            stored.bytes.resize(start + room, 0);
            let into = stored.bytes.get_mut(start..).unwrap_or_default();
            let encoded = chain.encode_frame(frame, scratch, into)?;
            stored.bytes.truncate(start + encoded.stored_bytes);
            stored.frames.push(StoredFrame {
                stored_bytes: encoded.stored_bytes,
                elements,
                range: encoded.range,
                chain: index % chains.len(),
            });
        }
    }
    stored.seconds = started.elapsed().as_secs_f64();
    Ok(stored)
}

/// How long it takes to undo them.
fn decode(chains: &[Chain], stored: &Stored, scratch: &mut Scratch) -> Result<f64, TransformError> {
    let view = ViewChain::identity();
    let (mut packed, mut out) = (Vec::new(), Vec::new());
    let started = Instant::now();
    let mut rest = stored.bytes.as_slice();
    for it in &stored.frames {
        let frame = rest.split_at_checked(it.stored_bytes);
        let (Some((frame, behind)), Some(chain)) = (frame, chains.get(it.chain)) else {
            break;
        };
        rest = behind;
        packed.resize(
            usize::try_from(chain.packed_bytes(it.elements)).unwrap_or(0),
            0,
        );
        chain.unblock(frame, scratch, &mut packed)?;
        let decoder = Decoder::new(chain, &view, it.range)?;
        let bytes = it.elements * chain.source().bytes() as u64;
        out.resize(usize::try_from(bytes).unwrap_or(0), 0);
        let window = PackedWindow {
            first_byte: 0,
            bytes: &packed,
        };
        decoder.expand(window, 0..bytes, &mut OutSegments::from_slice(&mut out))?;
    }
    Ok(started.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_grows_as_it_did() {
        let of = |ids, doubling, bytes| {
            let seen = Seen {
                bytes: 1 << 20,
                ids,
            };
            grown(seen, doubling, bytes)
        };
        // All of it was seen, or more than that.
        assert_eq!(of(1000, [500, 1000], 1 << 20), 1000);
        assert_eq!(of(1000, [500, 1000], 1 << 10), 1000);
        // Each element is another id.
        assert_eq!(of(1000, [500, 1000], 1 << 21), 2000);
        assert_eq!(of(1000, [500, 1000], 3 << 20), 3000);
        assert_eq!(of(1000, [500, 1000], (1 << 20) + (1 << 18)), 1250);
        // None is new.
        assert_eq!(of(1000, [1000, 1000], 1 << 40), 1000);
        // A half more with each doubling: of three times as many, of the second doubling a half.
        assert_eq!(of(1000, [600, 900], 1 << 21), 1500);
        assert_eq!(of(1000, [600, 900], 1 << 22), 2250);
        assert_eq!(of(1000, [600, 900], 3 << 20), 1875);
        // No sample at all, and no end.
        assert_eq!(grown(Seen { bytes: 0, ids: 0 }, [0, 0], 1 << 40), 0);
        assert_eq!(of(u64::MAX, [1, u64::MAX], u64::MAX), u64::MAX);
    }

    /// By all pieces of a sample, those for dictionaries among them.
    #[test]
    fn a_rank_table_is_known_by_all_pieces() {
        let piece = |first: u32, count: u32| -> Vec<u8> {
            (first..first + count).flat_map(u32::to_le_bytes).collect()
        };
        let sample = Sample {
            tried: (0..4).map(|at| piece(at * 100, 100)).collect(),
            others: (0..5).map(|at| piece(1000 + at * 10, 10)).collect(),
        };
        let range = Some(ValueRange {
            min: 0,
            max: 99_999,
        });
        let of = |bytes| ranks_bytes(ElementType::U32, (bytes, range), &sample).unwrap();
        let seen_bytes = 4 * (400 + 50);
        let exact = of(seen_bytes);
        let all = sample.tried.iter().chain(&sample.others);
        let table = ranks(ElementType::U32, all).unwrap();
        assert_eq!(exact, table.stored_bytes());
        // Each id is new: twice as many; and no more than all ids of the range, each as long as one of these.
        assert_eq!(of(2 * seen_bytes), 2 * exact);
        assert_eq!(of(1 << 30), (100_000 * exact).div_ceil(450));
        assert_eq!(
            ranks_bytes(ElementType::F32, (1 << 30, None), &sample),
            Ok(0)
        );
    }
}
