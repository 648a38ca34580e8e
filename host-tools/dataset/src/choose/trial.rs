//! A chain, tried on a sample.

use std::sync::Arc;
use std::time::Instant;

use transforms::{
    Chain, Decoder, OutSegments, PackedWindow, RankTable, Scratch, TransformError, ValueRange,
    ViewChain, codecs,
};

use super::rule::{self, Wish};
use crate::ranks;

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
    /// Their share of the rank table, where the chain has one.
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
    /// Of each frame: stored bytes, elements, range.
    frames: Vec<(usize, u64, Option<ValueRange>)>,
    seconds: f64,
}

/// All that a sample is of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Whole {
    pub(super) bytes: u64,
    /// Of its values, where they are integers.
    pub(super) range: Option<ValueRange>,
}

impl Whole {
    /// What the table of all of it takes: exact where all of it is in the sample; otherwise as much as it can take, with every id of the range.
    fn table_bytes(&self, chain: &Chain, sample_bytes: u64) -> u64 {
        let (Some(table), Some(range)) = (chain.rank_table(), self.range) else {
            return 0;
        };
        if sample_bytes == self.bytes {
            return table.stored_bytes();
        }
        let elements = self.bytes / chain.source().bytes() as u64;
        let ids = u64::try_from(range.max - range.min + 1).unwrap_or(u64::MAX);
        let bits = u128::BITS - range.max.unsigned_abs().leading_zeros();
        let id_bytes = u64::from(bits.div_ceil(8).max(1));
        RankTable::STORED_BYTES_MIN + ids.min(elements).saturating_mul(id_bytes)
    }
}

/// Tries a chain with every frame of the ladder, and keeps the frame that the rule wants.
///
/// # Errors
/// Values that it does not hold.
pub(super) fn run(
    chain: &Chain,
    sample: &[Vec<u8>],
    wish: &Wish,
    whole: Whole,
) -> Result<Trial, TransformError> {
    let chain = &ranks::tried(chain, sample)?;
    let mut scratch = Scratch::new();
    let mut ladder = rule::ladder(wish);
    if !chain.is_framed() {
        // Nothing is cut; what is measured needs some length.
        ladder = ladder.last().copied().into_iter().collect();
    }
    let mut made = Vec::with_capacity(ladder.len());
    for frame_bytes in ladder {
        made.push((
            frame_bytes,
            encode(chain, sample, frame_bytes, &mut scratch)?,
        ));
    }
    let lengths: Vec<(u64, u64)> = made
        .iter()
        .map(|(frame_bytes, stored)| (*frame_bytes, stored.bytes.len() as u64))
        .collect();
    let element_bytes = chain.source().bytes() as u64;
    let best = rule::frame(&lengths, element_bytes, wish);
    let best = best.and_then(|index| made.into_iter().nth(index));
    let (frame_bytes, stored) = best.unwrap_or_default();
    let source_bytes = sample.iter().map(|piece| piece.len() as u64).sum();
    let table_bytes = u128::from(whole.table_bytes(chain, source_bytes));
    let share = (table_bytes * u128::from(source_bytes)).div_ceil(u128::from(whole.bytes.max(1)));
    Ok(Trial {
        table_bytes: u64::try_from(share).unwrap_or(u64::MAX),
        codes_bytes: codes_bytes(chain, sample, frame_bytes, &mut scratch)?,
        decode_seconds: decode(chain, &stored, &mut scratch)?,
        chain: chain.clone(),
        frame_bytes: if chain.is_framed() { frame_bytes } else { 0 },
        frames: if chain.is_framed() {
            stored.frames.len() as u64
        } else {
            0
        },
        source_bytes,
        stored_bytes: stored.bytes.len() as u64,
        encode_seconds: stored.seconds,
    })
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
    let codes = encode(&alone, sample, frame_bytes, scratch)?;
    Ok(codes.bytes.len() as u64)
}

/// What a chain stores a sample in, with frames of `frame_bytes`.
///
/// # Errors
/// Values that it does not hold.
pub(super) fn stored_bytes(
    chain: &Chain,
    sample: &[Vec<u8>],
    frame_bytes: u64,
) -> Result<u64, TransformError> {
    let chain = &ranks::tried(chain, sample)?;
    let stored = encode(chain, sample, frame_bytes, &mut Scratch::new())?;
    Ok(stored.bytes.len() as u64)
}

/// Each piece is cut by itself: frames do not go from one into the next.
fn encode(
    chain: &Chain,
    sample: &[Vec<u8>],
    frame_bytes: u64,
    scratch: &mut Scratch,
) -> Result<Stored, TransformError> {
    let element_bytes = chain.source().bytes();
    // As the writer cuts: whole groups of eight elements.
    let group_bytes = 8 * element_bytes;
    let frame_bytes = usize::try_from(frame_bytes).unwrap_or(group_bytes);
    let frame_bytes = (frame_bytes / group_bytes).max(1) * group_bytes;
    let mut stored = Stored::default();
    let started = Instant::now();
    for frame in sample.iter().flat_map(|piece| piece.chunks(frame_bytes)) {
        let elements = (frame.len() / element_bytes) as u64;
        let start = stored.bytes.len();
        let room = usize::try_from(chain.stored_bytes_max(elements)).unwrap_or(0);
        stored.bytes.resize(start + room, 0);
        let into = stored.bytes.get_mut(start..).unwrap_or_default();
        let encoded = chain.encode_frame(frame, scratch, into)?;
        stored.bytes.truncate(start + encoded.stored_bytes);
        stored
            .frames
            .push((encoded.stored_bytes, elements, encoded.range));
    }
    stored.seconds = started.elapsed().as_secs_f64();
    Ok(stored)
}

/// How long it takes to undo them.
fn decode(chain: &Chain, stored: &Stored, scratch: &mut Scratch) -> Result<f64, TransformError> {
    let view = ViewChain::identity();
    let (mut packed, mut out) = (Vec::new(), Vec::new());
    let started = Instant::now();
    let mut rest = stored.bytes.as_slice();
    for (stored_bytes, elements, range) in &stored.frames {
        let Some((frame, behind)) = rest.split_at_checked(*stored_bytes) else {
            break;
        };
        rest = behind;
        packed.resize(
            usize::try_from(chain.packed_bytes(*elements)).unwrap_or(0),
            0,
        );
        chain.unblock(frame, scratch, &mut packed)?;
        let decoder = Decoder::new(chain, &view, *range)?;
        let bytes = elements * chain.source().bytes() as u64;
        out.resize(usize::try_from(bytes).unwrap_or(0), 0);
        let window = PackedWindow {
            first_byte: 0,
            bytes: &packed,
        };
        decoder.expand(window, 0..bytes, &mut OutSegments::from_slice(&mut out))?;
    }
    Ok(started.elapsed().as_secs_f64())
}
