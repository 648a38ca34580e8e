//! Where the next block is, and how large: sequential, at random, at random with each place once, or as somebody says.

mod given;

use crate::limits;
use crate::random::{Permutation, Random, mix};
use crate::spec::{BlockSizes, Direction, JobSpec, Mix};
use given::Given;

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
    /// Whether a further pass begins with it; in sequence, one of its direction.
    pub starts_over: bool,
}

/// The blocks of one job, without end: pass after pass. Decided by region, sizes and seed alone.
#[derive(Clone, Debug)]
pub struct Offsets {
    region: Region,
    /// By direction.
    sizes: [BlockSizes; 3],
    bytes_max: u32,
    /// One that the job goes.
    direction: Direction,
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
    /// Anywhere; so many units are left of a pass, which ends when as much was drawn as the region has.
    Uniform(u64),
    Once(Permutation),
    /// With several sizes the whole pass is cut into blocks before it begins, so that the sizes come in their shares: blocks that looked for room
    /// between those of the same pass would end in fragments. The map has a bit for each unit that a block begins with.
    Cut(Permutation, Vec<u64>),
    Given(Given),
}

#[derive(Clone, Copy, Debug)]
struct Cursor {
    unit: u64,
    pass: u32,
}

impl Offsets {
    /// For a job of `spec` on `region`; `seed` is the job's own.
    ///
    /// # Errors
    /// The region holds no block, or more than can be kept track of.
    pub fn new(spec: &JobSpec, region: Region, seed: u64) -> Result<Offsets, String> {
        let unit = u64::from(spec.bs_unit());
        let units = region.bytes.checked_div(unit).unwrap_or(0);
        if units == 0 || region.bytes < u64::from(spec.bs_max()) {
            return Err(format!(
                "a region of {} bytes does not hold a block of {}",
                region.bytes,
                spec.bs_max()
            ));
        }
        let kind = (spec.rw.random, spec.norandommap, spec.bs_is_single());
        let order = match (&spec.order, kind) {
            (Some(ranges), _) => Order::Given(Given::new(spec, ranges, region)?),
            (None, (false, _, _)) => Order::Sequential([Cursor { unit: 0, pass: 1 }; 3]),
            // As fio has it: where only time ends the job, there are no passes.
            (None, (true, true, _)) if spec.time_based => Order::Uniform(u64::MAX),
            (None, (true, true, _)) => Order::Uniform(units),
            (None, (true, false, true)) => Order::Once(Permutation::new(units, mix(seed))),
            (None, (true, false, false)) => {
                Order::Cut(Permutation::new(units, mix(seed)), map(units)?)
            }
        };
        let mut offsets = Offsets {
            region,
            bytes_max: spec.bs_max(),
            sizes: spec.bs.clone(),
            direction: match spec.rw.mix {
                Mix::Only(direction) => direction,
                Mix::ReadWrite => Direction::Read,
            },
            unit,
            units,
            random: Random::new(seed),
            seed,
            pass: 1,
            order,
        };
        offsets.cut();
        Ok(offsets)
    }

    /// Bytes of a pass.
    pub fn pass_bytes(&self) -> u64 {
        match &self.order {
            Order::Given(given) => given.pass_bytes(),
            _ => self.units * self.unit,
        }
    }

    /// The next block.
    pub fn next(&mut self, direction: Direction) -> Block {
        let before = self.pass;
        if let Order::Given(given) = &mut self.order {
            return given.next();
        }
        let (unit, len, pass, starts_over) = match &self.order {
            Order::Sequential(_) => self.next_in_sequence(direction),
            Order::Uniform(_) => {
                let (unit, len) = self.next_anywhere(direction);
                (unit, len, self.pass, self.pass > before)
            }
            Order::Once(_) | Order::Cut(..) | Order::Given(_) => {
                let (unit, len) = self.next_of_pass();
                (unit, len, self.pass, self.pass > before)
            }
        };
        Block {
            offset: self.region.offset + unit * self.unit,
            len: u32::try_from(len * self.unit).unwrap_or(self.bytes_max),
            pass,
            starts_over,
        }
    }

    fn next_in_sequence(&mut self, direction: Direction) -> (u64, u64, u32, bool) {
        let wanted = self.size_units(direction);
        let Order::Sequential(cursors) = &mut self.order else {
            return (0, wanted, self.pass, false);
        };
        let [read, write, trim] = cursors;
        let cursor = match direction {
            Direction::Read => read,
            Direction::Write => write,
            Direction::Trim => trim,
        };
        let starts_over = cursor.unit >= self.units;
        if starts_over {
            cursor.unit = 0;
            cursor.pass += 1;
        }
        let len = wanted.min(self.units - cursor.unit);
        let unit = cursor.unit;
        cursor.unit += len;
        (unit, len, cursor.pass, starts_over)
    }

    /// As in fio, at a multiple of the direction's smallest block.
    fn next_anywhere(&mut self, direction: Direction) -> (u64, u64) {
        let len = self.size_units(direction);
        let step = u64::from(direction.of(&self.sizes).unit()) / self.unit;
        let unit = self.random.below((self.units - len) / step + 1) * step;
        if let Order::Uniform(left) = &mut self.order {
            if *left == 0 {
                *left = self.units;
                self.pass += 1;
            }
            *left = left.saturating_sub(len);
        }
        (unit, len)
    }

    fn size_units(&mut self, direction: Direction) -> u64 {
        u64::from(direction.of(&self.sizes).draw(&mut self.random)) / self.unit
    }

    /// Of a random pass: the next block's first unit, and its length.
    fn next_of_pass(&mut self) -> (u64, u64) {
        loop {
            match &mut self.order {
                Order::Once(places) => {
                    if let Some(unit) = places.next() {
                        return (unit, 1);
                    }
                }
                Order::Cut(places, starts) => {
                    if let Some(unit) = places.find(|unit| is_set(starts, *unit)) {
                        let inside = (unit + 1..self.units)
                            .take_while(|unit| !is_set(starts, *unit))
                            .count();
                        return (unit, 1 + inside as u64);
                    }
                }
                Order::Sequential(_) | Order::Uniform(_) | Order::Given(_) => return (0, 1),
            }
            self.next_pass();
        }
    }

    fn next_pass(&mut self) {
        self.pass += 1;
        let seed = mix(self.seed).wrapping_add(u64::from(self.pass));
        if let Order::Once(places) | Order::Cut(places, _) = &mut self.order {
            *places = Permutation::new(self.units, seed);
        }
        self.cut();
    }

    /// Cuts a pass into blocks of sizes as they are drawn; the last one has what is left. Each direction of the job has the same sizes here.
    fn cut(&mut self) {
        let Order::Cut(_, starts) = &mut self.order else {
            return;
        };
        let mut starts = std::mem::take(starts);
        starts.fill(0);
        let mut at = 0;
        while at < self.units {
            set(&mut starts, at);
            at += self.size_units(self.direction).max(1);
        }
        if let Order::Cut(_, place) = &mut self.order {
            *place = starts;
        }
    }
}

fn map(units: u64) -> Result<Vec<u64>, String> {
    let words = usize::try_from(units.div_ceil(64)).ok();
    words
        .filter(|_| units <= limits::MAPPED_BLOCKS_MAX)
        .map(|words| vec![0; words])
        .ok_or_else(|| {
            format!(
                "{units} blocks of the smallest size are too many for a random map of several sizes, {} is the limit; give a smaller size, or norandommap",
                limits::MAPPED_BLOCKS_MAX
            )
        })
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
            let unit = u64::from(spec.bs_unit());
            let whole = bytes / unit * unit;
            let mut again = offsets.clone();
            for pass in 1..=3 {
                let mut blocks = Vec::new();
                let mut covered = 0;
                while covered < whole {
                    let block = offsets.next(Direction::Read);
                    prop_assert_eq!(block, again.next(Direction::Read));
                    prop_assert_eq!(block.pass, pass);
                    prop_assert_eq!(block.starts_over, pass > 1 && covered == 0);
                    prop_assert!(u64::from(block.len).is_multiple_of(unit) && block.len <= spec.bs_max());
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
                prop_assert!((block.offset - 8192).is_multiple_of(u64::from(spec.bs_unit())));
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

    /// Each size in its share of the blocks of a whole pass, and no other size but what the region's end leaves.
    #[test]
    fn a_pass_of_several_sizes_has_them_in_their_shares() {
        for (split, large_percent) in [("4k/10:64k/90", 90), ("4k/60:64k/40", 40)] {
            let spec = spec("randread", ("bssplit", split), false);
            let region = Region {
                offset: 0,
                bytes: 512 << 20,
            };
            let mut offsets = Offsets::new(&spec, region, 7).unwrap();
            let pass: Vec<Block> = std::iter::repeat_with(|| offsets.next(Direction::Read))
                .take_while(|block| block.pass == 1)
                .collect();
            let of = |len| pass.iter().filter(|block| block.len == len).count();
            let (small, large) = (of(4096), of(65536));
            assert!(small + large + 1 >= pass.len(), "{split}");
            let share = large as f64 * 100.0 / pass.len() as f64;
            assert!(
                (share - f64::from(large_percent)).abs() < 1.5,
                "{split}: {share} %"
            );
        }
    }

    #[test]
    fn each_direction_has_its_own_sizes() {
        let region = Region {
            offset: 4096,
            bytes: 68 << 10,
        };
        let spec_of = |rw| spec(rw, ("bs", "4k,16k"), true);
        let mut offsets = Offsets::new(&spec_of("rw"), region, 1).unwrap();
        let mut next = |direction| {
            let block = offsets.next(direction);
            (block.offset - 4096, block.len)
        };
        assert_eq!(next(Direction::Read), (0, 4096));
        assert_eq!(next(Direction::Write), (0, 16384));
        assert_eq!(next(Direction::Read), (4096, 4096));
        assert_eq!(next(Direction::Write), (16384, 16384));
        let mut offsets = Offsets::new(&spec_of("randrw"), region, 1).unwrap();
        let mut written = [false; 4];
        for _ in 0..100 {
            assert_eq!(offsets.next(Direction::Read).len, 4096);
            let block = offsets.next(Direction::Write);
            let at = block.offset - 4096;
            assert!(block.len == 16384 && at.is_multiple_of(16384), "{block:?}");
            written[usize::try_from(at / 16384).unwrap()] = true;
        }
        assert_eq!(written, [true; 4]);
    }

    /// Without a map a pass ends with its bytes, and with time alone as its end there is none.
    #[test]
    fn a_pass_without_a_map_is_as_long_as_the_region() {
        let region = Region {
            offset: 0,
            bytes: 1 << 20,
        };
        for (time_based, expected) in [(false, vec![256, 512]), (true, vec![])] {
            let mut spec = spec("randread", SIZES[0], true);
            spec.time_based = time_based;
            let mut offsets = Offsets::new(&spec, region, 7).unwrap();
            let starts: Vec<usize> = (0..768)
                .filter(|_| offsets.next(Direction::Read).starts_over)
                .collect();
            assert_eq!(starts, expected);
        }
    }

    #[test]
    fn a_random_map_of_several_sizes_has_a_limit() {
        let spec = spec("randread", SIZES[1], false);
        let region = Region {
            offset: 0,
            bytes: (limits::MAPPED_BLOCKS_MAX + 1) * 4096,
        };
        let error = Offsets::new(&spec, region, 1).unwrap_err();
        assert!(error.contains("norandommap"), "{error}");
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
            .is_err()
        );
    }
}
