//! What it costs to undo a chain, as a table: figures of docs/transforms.md and docs/codecs.md, rounded, so that the choice is the same on every machine.

use transforms::{Chain, ElementType, Packing, Step, codecs};

/// Costs of a block step. The unit is what copying one byte costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StepCost {
    /// Undoing it, for each byte that goes into it; of `rank`, that comes out of it.
    pub decode: u32,
    /// Doing it, for each of these bytes.
    pub encode: u32,
    /// Undoing it, for each frame, before its first byte: making the tables of its codes.
    pub frame: u32,
}

/// Reads of a volume for each time it is packed: encoding counts so many times less.
pub const READS_PER_PACK: u32 = 64;

/// The tables of a Zstandard frame, 1.4 to 1.7 us, where a step's unit is 0.05 ns a byte: what is left of the time of a frame of 4 KiB when a 16th of one of 64 KiB
/// is taken away, by `cargo bench -p transforms --bench throughput -- --quick --frame 4 zstd:3` and the same with `--frame 64` (the column "a frame").
const ZSTD_TABLES: u32 = 30_000;
/// The table of a plane of `floatsplit`: all planes may be coded.
const PLANE_TABLE: u32 = 30_000;

/// The costs of a step behind element steps that pack elements so. Element steps cost nothing beside the copy that they are: widening and unpacking are
/// as fast as `memcpy`.
#[must_use]
pub fn of_step(step: &Step, packed: Packing) -> StepCost {
    let cost = |decode, encode, frame| StepCost {
        decode,
        encode,
        frame,
    };
    match step.id {
        codecs::shuffle::ID => cost(1, 1, 0),
        codecs::rank::ID => cost(4, 10, 0),
        codecs::floatsplit::ID => {
            let planes = packed.bits() / 8;
            // The symbols of f16 have twice the bits.
            let is_f16 = packed == Packing::Whole(ElementType::F16);
            cost(if is_f16 { 4 } else { 2 }, 8, PLANE_TABLE * planes)
        }
        codecs::lz4::ID => cost(3, 20, 0),
        codecs::lz4::HC_ID => cost(3, 160, 0),
        codecs::zstd::ID | codecs::zstd_dict::ID => {
            let encode = match step.parameter {
                0..=1 => 24,
                2..=4 => 40,
                5..=12 => 160,
                _ => 1_600,
            };
            // By a dictionary a frame may take its tables from there, and looks for its matches in memory that is not near: measured, level 3 then
            // spends two thirds of it, level 9 all of it.
            cost(10, encode, ZSTD_TABLES)
        }
        _ => StepCost::default(),
    }
}

/// What the steps of a chain cost together, by what goes into them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainCost {
    /// Of those that packed bytes go into.
    pub packed: StepCost,
    /// Of `rank`, and of what its codes go into.
    pub codes: StepCost,
    /// Of all of them, for each frame.
    pub frame: u32,
}

/// The sums over the chain's steps.
#[must_use]
pub fn of_chain(chain: &Chain) -> ChainCost {
    let steps = chain.steps();
    let rank = steps.iter().position(|step| step.id == codecs::rank::ID);
    let (packed, codes) = steps.split_at(rank.unwrap_or(steps.len()));
    let sum = |steps: &[Step]| {
        let costs = steps.iter().map(|step| of_step(step, chain.packing()));
        costs.fold(StepCost::default(), |sum, cost| StepCost {
            decode: sum.decode + cost.decode,
            encode: sum.encode + cost.encode,
            frame: sum.frame + cost.frame,
        })
    };
    let (packed, codes) = (sum(packed), sum(codes));
    ChainCost {
        packed,
        codes,
        frame: packed.frame + codes.frame,
    }
}

/// What reading a source byte costs, in hundredths of copying it: the copy or expansion that every read is, and the block steps. `codes_bytes`: what
/// `source_bytes` are by rank, where the chain has that. `frame_bytes`: source bytes of a frame; 0 where there are none.
#[must_use]
pub fn read_hundredths(
    chain: &Chain,
    codes_bytes: u64,
    source_bytes: u64,
    frame_bytes: u64,
) -> u64 {
    let cost = of_chain(chain);
    let packed = u64::from(cost.packed.decode * 100 * chain.packed_bits());
    let codes = u64::from(cost.codes.decode) * 100 * codes_bytes;
    let frame = u64::from(cost.frame) * 100;
    100 + packed / u64::from(chain.source().bits())
        + codes / source_bytes.max(1)
        + frame.checked_div(frame_bytes).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use transforms::ElementType;

    use super::*;

    /// The bench's figures in docs/transforms.md: GB/s of `memcpy` (7.5 in that run) over those of decoding.
    #[test]
    fn costs_are_those_of_the_bench() {
        for (text, gigabytes) in [
            ("lz4", 1.9),
            ("u16+lz4", 2.9),
            ("u16+zstd:1", 1.2),
            ("u16+zstd:3", 1.2),
            ("u16+zstd:9", 1.2),
        ] {
            let chain = Chain::parse(text, ElementType::U32).unwrap();
            let measured = 7.5 / gigabytes;
            #[expect(clippy::cast_precision_loss, reason = "some hundreds")]
            let ratio = read_hundredths(&chain, 0, 1, 64 << 10) as f64 / 100.0 / measured;
            assert!((0.8..1.3).contains(&ratio), "{text}: {ratio}");
        }
    }

    /// The same of ids of r50k, which take 35 bytes of codes for 100 of u32: there `memcpy` in the cache is 2.5 times as fast, as is all else.
    #[test]
    fn costs_of_rank_are_those_of_its_table_in_the_document() {
        for (text, gigabytes) in [
            ("u16+rank", 12.2),
            ("u16+rank+lz4", 7.5),
            ("u16+rank+zstd:3", 3.0),
        ] {
            let chain = Chain::parse(text, ElementType::U32).unwrap();
            let measured = 2.5 * 7.5 / gigabytes;
            #[expect(clippy::cast_precision_loss, reason = "some hundreds")]
            let ratio = read_hundredths(&chain, 35, 100, 64 << 10) as f64 / 100.0 / measured;
            assert!((0.8..1.6).contains(&ratio), "{text}: {ratio}");
        }
    }

    /// In frames of 4 KiB the tables of zstd cost more than its bytes, and those of floatsplit more than all else.
    #[test]
    fn small_frames_pay_for_their_tables() {
        let of = |text, element, frame_bytes| {
            let chain = Chain::parse(text, element).unwrap();
            read_hundredths(&chain, 0, 1, frame_bytes)
        };
        let (large, small) = (64 << 10, 4 << 10);
        for (text, element, grows) in [
            ("u16+zstd:3", ElementType::U32, 687),
            ("u16+lz4", ElementType::U32, 0),
            ("u16", ElementType::U32, 0),
            ("floatsplit", ElementType::Bf16, 1373),
        ] {
            let grown = of(text, element, small) - of(text, element, large);
            assert_eq!(grown, grows, "{text}");
        }
    }

    /// Searching longer than lz4 costs eight times as much: `balanced` wants 9 % of what goes in for it, and more where it is less.
    #[test]
    fn a_longer_search_has_to_save_what_it_costs() {
        let of = |text| of_chain(&Chain::parse(text, ElementType::U8).unwrap()).packed;
        let (fast, long) = (of("lz4"), of("lz4hc:9"));
        assert_eq!(fast.decode, long.decode);
        let weight = super::super::Prefer::Balanced.weight();
        assert!((long.encode - fast.encode) * 100 >= 9 * weight * READS_PER_PACK);
    }
}
