//! What it costs to undo a chain, as a table: figures of docs/transforms.md, rounded, so that the choice is the same on every machine.

use transforms::{Chain, Step, TransformId, codecs};

/// Costs of a block step for each packed byte that goes through it. The unit is what copying one byte costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepCost {
    /// Undoing it.
    pub decode: u32,
    /// Doing it.
    pub encode: u32,
}

/// Reads of a volume for each time it is packed: encoding counts so many times less.
pub const READS_PER_PACK: u32 = 64;

/// The costs of a step. Element steps cost nothing beside the copy that they are: widening and unpacking are as fast as `memcpy`.
#[must_use]
pub fn of_step(id: TransformId, parameter: u32) -> StepCost {
    let (decode, encode) = match id {
        codecs::shuffle::ID => (1, 1),
        codecs::rank::ID => (1, 3),
        // Of bf16 and f32; f16, whose symbols have twice the bits, takes twice as long.
        codecs::floatsplit::ID => (1, 8),
        codecs::lz4::ID => (3, 20),
        codecs::lz4::HC_ID => (3, 160),
        codecs::zstd::ID => (
            10,
            match parameter {
                0..=1 => 24,
                2..=4 => 40,
                5..=12 => 160,
                _ => 3_000,
            },
        ),
        _ => (0, 0),
    };
    StepCost { decode, encode }
}

/// What the steps of a chain cost together, by what goes into them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainCost {
    /// Of those that packed bytes go into.
    pub packed: StepCost,
    /// Of what comes behind `rank`: its codes go into that.
    pub codes: StepCost,
}

/// The sums over the chain's steps.
#[must_use]
pub fn of_chain(chain: &Chain) -> ChainCost {
    let steps = chain.steps();
    let rank = steps.iter().position(|step| step.id == codecs::rank::ID);
    let (packed, codes) = steps.split_at(rank.map_or(steps.len(), |rank| rank + 1));
    let sum = |steps: &[Step]| {
        let costs = steps.iter().map(|step| of_step(step.id, step.parameter));
        let none = StepCost {
            decode: 0,
            encode: 0,
        };
        costs.fold(none, |sum, cost| StepCost {
            decode: sum.decode + cost.decode,
            encode: sum.encode + cost.encode,
        })
    };
    ChainCost {
        packed: sum(packed),
        codes: sum(codes),
    }
}

/// What reading a source byte costs, in hundredths of copying it: the copy or expansion that every read is, and the block steps. `codes_bytes`: what
/// `source_bytes` are by rank, where the chain has that.
#[must_use]
pub fn read_hundredths(chain: &Chain, codes_bytes: u64, source_bytes: u64) -> u64 {
    let cost = of_chain(chain);
    let packed = u64::from(cost.packed.decode * 100 * chain.packed_bits());
    let codes = u64::from(cost.codes.decode) * 100 * codes_bytes;
    100 + packed / u64::from(chain.source().bits()) + codes / source_bytes.max(1)
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
            let ratio = read_hundredths(&chain, 0, 1) as f64 / 100.0 / measured;
            assert!((0.8..1.25).contains(&ratio), "{text}: {ratio}");
        }
    }

    /// Searching longer than lz4 costs eight times as much: `balanced` wants 3 % of what goes in for it, and more where it is less.
    #[test]
    fn a_longer_search_has_to_save_what_it_costs() {
        let (fast, long) = (of_step(codecs::lz4::ID, 0), of_step(codecs::lz4::HC_ID, 9));
        assert_eq!(fast.decode, long.decode);
        let weight = super::super::Prefer::Balanced.weight();
        assert!((long.encode - fast.encode) * 100 >= 3 * weight * READS_PER_PACK);
    }
}
