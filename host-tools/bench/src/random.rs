//! Numbers that look random and are the same each time: drawn, and as an order in which every number comes once.

/// xorshift64*, which is enough to choose places and sizes.
#[derive(Clone, Debug)]
pub struct Random(u64);

/// From a seed to a state: any two seeds are far apart, none is zero (splitmix64's last step).
pub fn mix(seed: u64) -> u64 {
    let mut value = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

impl Random {
    /// From a seed.
    pub fn new(seed: u64) -> Random {
        Random(mix(seed) | 1)
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// The next number below `end`; 0 where that is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        let scaled = (u128::from(self.draw()) * u128::from(end)) >> 64;
        u64::try_from(scaled).unwrap_or(0)
    }
}

/// All numbers below `end`, each once, in an order that the seed decides. It needs no memory: a counter goes through steps that
/// are bijections of `bits` bits (odd factors, and shifts onto itself); what falls beyond `end` is left out, less than every second one.
#[derive(Clone, Debug)]
pub struct Permutation {
    end: u64,
    mask: u64,
    shift: u32,
    factors: [u64; 3],
    offset: u64,
    counter: u64,
}

impl Permutation {
    /// Of the numbers below `end`, which is at most 2^63.
    pub fn new(end: u64, seed: u64) -> Permutation {
        let bits = u64::BITS - end.saturating_sub(1).leading_zeros();
        let mut random = Random::new(seed);
        Permutation {
            end,
            mask: 1u64.checked_shl(bits).map_or(u64::MAX, |one| one - 1),
            shift: bits.div_ceil(2).max(1),
            factors: [random.draw() | 1, random.draw() | 1, random.draw() | 1],
            offset: random.draw(),
            counter: 0,
        }
    }

    fn image(&self, counter: u64) -> u64 {
        let mut value = counter.wrapping_add(self.offset) & self.mask;
        for factor in self.factors {
            value = value.wrapping_mul(factor) & self.mask;
            value ^= value >> self.shift;
        }
        value
    }
}

impl Iterator for Permutation {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        while self.end > 0 && self.counter <= self.mask {
            let value = self.image(self.counter);
            self.counter += 1;
            if value < self.end {
                return Some(value);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_number_comes_once(end in 0u64..3000, seed: u64) {
            let mut found: Vec<u64> = Permutation::new(end, seed).collect();
            found.sort_unstable();
            prop_assert!(found.iter().copied().eq(0..end));
        }

        #[test]
        fn what_is_drawn_is_in_range_and_the_same_again(end in 1u64.., seed: u64) {
            let (mut one, mut other) = (Random::new(seed), Random::new(seed));
            for _ in 0..50 {
                let drawn = one.below(end);
                prop_assert!(drawn < end);
                prop_assert_eq!(drawn, other.below(end));
            }
        }
    }

    /// Neighbours in time are not neighbours in place: what a disk would read ahead must not help.
    #[test]
    fn the_order_is_not_sequential() {
        for seed in 0..20 {
            let order: Vec<u64> = Permutation::new(10_000, seed).collect();
            let near = order
                .windows(2)
                .filter(|pair| pair[0].abs_diff(pair[1]) < 16)
                .count();
            assert!(
                near < 150,
                "seed {seed}: {near} steps of fewer than 16 blocks"
            );
        }
        assert_ne!(
            Permutation::new(10_000, 1).take(5).collect::<Vec<_>>(),
            Permutation::new(10_000, 2).take(5).collect::<Vec<_>>()
        );
    }
}
