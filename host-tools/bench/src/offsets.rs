//! Where the next block is, and how large: sequential, at random, or at random with each place once.

use crate::random::{Permutation, Random, mix};
use crate::spec::{BlockSizes, Direction, JobSpec};

/// The part of a target that a job works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Where it begins.
    pub offset: u64,
    /// How long it is.
    pub bytes: u64,
}

/// One block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// From the target's start.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
    /// The pass over the region that it belongs to, from 1: with a map or in sequence, no two blocks of a pass overlap.
    pub pass: u32,
}

/// The blocks of one job, without end: pass after pass. Decided by region, sizes and seed alone.
#[derive(Clone, Debug)]
pub struct Offsets {
    region: Region,
    sizes: BlockSizes,
    weight_sum: u64,
    /// Sizes and places are multiples of it.
    unit: u64,
    units: u64,
    random: Random,
    seed: u64,
    pass: u32,
    order: Order,
}

#[derive(Clone, Debug)]
enum Order {
    /// The next unit; each direction goes its own way.
    Sequential([Cursor; 3]),
    Uniform,
    Once(Permutation),
    /// With several sizes: starts come in the permutation's order, and the map shows what an earlier block covers.
    Covered(Permutation, Vec<u64>),
}

#[derive(Clone, Copy, Debug)]
struct Cursor {
    unit: u64,
    pass: u32,
}

impl Offsets {
    /// For a job of `spec` on `region`; `seed` is the job's own. `None` where the region holds no block.
    pub fn new(spec: &JobSpec, region: Region, seed: u64) -> Option<Offsets> {
        let unit = u64::from(spec.bs.unit());
        let units = region.bytes.checked_div(unit)?;
        let fits = region.bytes >= u64::from(spec.bs.max());
        if units == 0 || !fits {
            return None;
        }
        let order = match (spec.rw.random, spec.norandommap, spec.bs.is_single()) {
            (false, _, _) => Order::Sequential([Cursor { unit: 0, pass: 1 }; 3]),
            (true, true, _) => Order::Uniform,
            (true, false, true) => Order::Once(Permutation::new(units, mix(seed))),
            (true, false, false) => Order::Covered(
                Permutation::new(units, mix(seed)),
                vec![0; usize::try_from(units.div_ceil(64)).ok()?],
            ),
        };
        Some(Offsets {
            region,
            weight_sum: spec
                .bs
                .choices
                .iter()
                .map(|(_, weight)| u64::from(*weight))
                .sum(),
            sizes: spec.bs.clone(),
            unit,
            units,
            random: Random::new(seed),
            seed,
            pass: 1,
            order,
        })
    }

    /// Units of the smallest block size in the region.
    pub fn units(&self) -> u64 {
        self.units
    }

    /// The next block.
    pub fn next(&mut self, direction: Direction) -> Block {
        let wanted = self.size_units();
        let (unit, len, pass) = match &mut self.order {
            Order::Sequential(cursors) => {
                let [read, write, trim] = cursors;
                let cursor = match direction {
                    Direction::Read => read,
                    Direction::Write => write,
                    Direction::Trim => trim,
                };
                if cursor.unit >= self.units {
                    cursor.unit = 0;
                    cursor.pass += 1;
                }
                let len = wanted.min(self.units - cursor.unit);
                let unit = cursor.unit;
                cursor.unit += len;
                (unit, len, cursor.pass)
            }
            Order::Uniform => {
                let unit = self.random.below(self.units - wanted + 1);
                (unit, wanted, self.pass)
            }
            Order::Once(_) | Order::Covered(..) => {
                let (unit, len) = self.uncovered(wanted);
                (unit, len, self.pass)
            }
        };
        Block {
            offset: self.region.offset + unit * self.unit,
            len: u32::try_from(len * self.unit).unwrap_or(self.sizes.max()),
            pass,
        }
    }

    fn size_units(&mut self) -> u64 {
        let mut bytes = self.sizes.unit();
        if !self.sizes.is_single() {
            let mut left = self.random.below(self.weight_sum);
            for (size, weight) in &self.sizes.choices {
                bytes = *size;
                match left.checked_sub(u64::from(*weight)) {
                    Some(rest) => left = rest,
                    None => break,
                }
            }
        }
        u64::from(bytes) / self.unit
    }

    /// The next start that no block of this pass covers, and how much from there on is free too.
    fn uncovered(&mut self, wanted: u64) -> (u64, u64) {
        loop {
            match &mut self.order {
                Order::Once(places) => {
                    if let Some(unit) = places.next() {
                        return (unit, wanted);
                    }
                }
                Order::Covered(places, map) => {
                    for unit in places.by_ref() {
                        let free = (unit..self.units.min(unit + wanted))
                            .take_while(|unit| !is_set(map, *unit))
                            .count() as u64;
                        if free > 0 {
                            (unit..unit + free).for_each(|unit| set(map, unit));
                            return (unit, free);
                        }
                    }
                }
                Order::Sequential(_) | Order::Uniform => return (0, wanted),
            }
            self.next_pass();
        }
    }

    fn next_pass(&mut self) {
        self.pass += 1;
        let seed = mix(self.seed).wrapping_add(u64::from(self.pass));
        let fresh = Permutation::new(self.units, seed);
        match &mut self.order {
            Order::Once(places) => *places = fresh,
            Order::Covered(places, map) => {
                *places = fresh;
                map.fill(0);
            }
            Order::Sequential(_) | Order::Uniform => {}
        }
    }
}

fn place(unit: u64) -> (usize, u64) {
    (
        usize::try_from(unit / 64).unwrap_or(usize::MAX),
        1 << (unit % 64),
    )
}

fn is_set(map: &[u64], unit: u64) -> bool {
    let (word, bit) = place(unit);
    map.get(word).is_none_or(|word| word & bit != 0)
}

fn set(map: &mut [u64], unit: u64) {
    let (word, bit) = place(unit);
    if let Some(word) = map.get_mut(word) {
        *word |= bit;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn spec(rw: &str, sizes: (&str, &str), norandommap: bool) -> JobSpec {
        let mut spec = JobSpec::new("job");
        spec.set("rw", Some(rw)).unwrap();
        spec.set(sizes.0, Some(sizes.1)).unwrap();
        spec.norandommap = norandommap;
        spec
    }

    const SIZES: [(&str, &str); 3] = [
        ("bs", "4k"),
        ("bsrange", "4k-16k"),
        ("bssplit", "512/30:4k/30:16k/40"),
    ];

    proptest! {
        /// Sequential and mapped random order cover each byte of the region once in a pass, whatever the sizes.
        #[test]
        fn a_pass_covers_all_and_nothing_twice(
            random: bool,
            sizes in prop::sample::select(&SIZES[..]),
            offset in 0u64..1 << 40,
            bytes in 16384u64..1 << 20,
            seed: u64,
        ) {
            let spec = spec(if random { "randread" } else { "read" }, sizes, false);
            let region = Region { offset, bytes };
            let mut offsets = Offsets::new(&spec, region, seed).unwrap();
            let unit = u64::from(spec.bs.unit());
            let whole = bytes / unit * unit;
            let mut again = offsets.clone();
            for pass in 1..=3 {
                let mut blocks = Vec::new();
                let mut covered = 0;
                while covered < whole {
                    let block = offsets.next(Direction::Read);
                    prop_assert_eq!(block, again.next(Direction::Read));
                    prop_assert_eq!(block.pass, pass);
                    prop_assert!(u64::from(block.len).is_multiple_of(unit) && block.len <= spec.bs.max());
                    covered += u64::from(block.len);
                    blocks.push(block);
                }
                blocks.sort_by_key(|block| block.offset);
                let mut end = offset;
                for block in blocks {
                    prop_assert_eq!(block.offset, end);
                    end += u64::from(block.len);
                }
                prop_assert_eq!(end, offset + whole);
            }
        }

        #[test]
        fn without_a_map_each_block_lies_within(sizes in prop::sample::select(&SIZES[..]), bytes in 16384u64..1 << 20, seed: u64) {
            let spec = spec("randwrite", sizes, true);
            let region = Region { offset: 8192, bytes };
            let mut offsets = Offsets::new(&spec, region, seed).unwrap();
            for _ in 0..200 {
                let block = offsets.next(Direction::Write);
                prop_assert!(block.offset >= 8192 && block.offset + u64::from(block.len) <= 8192 + bytes);
                prop_assert!((block.offset - 8192).is_multiple_of(u64::from(spec.bs.unit())));
            }
        }
    }

    #[test]
    fn sizes_come_in_their_shares() {
        let spec = spec("randread", ("bssplit", "4k/25:16k/75"), true);
        let region = Region {
            offset: 0,
            bytes: 1 << 30,
        };
        let mut offsets = Offsets::new(&spec, region, 7).unwrap();
        let small = (0..10_000)
            .filter(|_| offsets.next(Direction::Read).len == 4096)
            .count();
        assert!((2300..2700).contains(&small), "{small}");
    }

    #[test]
    fn another_seed_is_another_order_and_a_small_region_is_none() {
        let spec = spec("randread", SIZES[0], false);
        let region = Region {
            offset: 0,
            bytes: 1 << 20,
        };
        let order = |seed| {
            let mut offsets = Offsets::new(&spec, region, seed).unwrap();
            (0..8)
                .map(|_| offsets.next(Direction::Read).offset)
                .collect::<Vec<_>>()
        };
        assert_ne!(order(1), order(2));
        assert!(
            Offsets::new(
                &spec,
                Region {
                    offset: 0,
                    bytes: 4095
                },
                1
            )
            .is_none()
        );
    }
}
