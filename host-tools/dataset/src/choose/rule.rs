//! The rule: which of the tried chains, and which frame. Whole numbers, no stopwatch.
//!
//! **Chain.** The smallest sum of
//! * stored bytes, and of `rank` its table's, each counting as much as copying [`weight`](Prefer::weight) bytes: 8 for `speed`, 24 for `balanced`, 2,048 for `ratio`;
//! * the cost of undoing the block steps, that of the tables of each frame included, and a 64th of the cost of doing them ([`cost`]).
//!
//! So lz4 has to save 14 % of the bytes that go into it to be chosen by `balanced`, zstd 45 %; by `speed` 41 %, and zstd never. Where
//! samples are read at random, what counts is what a sample makes a reader fetch and decode: whole frames.
//!
//! **Frame.** Where samples are read at random, the one with the smallest sum; from end to end, where a larger one costs memory alone, the smallest whose ratio is within
//! 5 % of the best, 1 % for `ratio`.

use super::cost;
use super::trial::Trial;

/// Frames that are tried where the data is read from end to end. Larger ones only cost memory.
const SEQUENTIAL_FRAMES: &[u64] = &[64 << 10, 128 << 10, 256 << 10];
/// Frames that are tried where samples are read at random.
const RANDOM_FRAMES: &[u64] = &[4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10];
/// The same of samples of so many bytes and more.
const LARGE_SAMPLE_BYTES: u64 = 512 << 10;
const LARGE_SAMPLE_FRAMES: &[u64] = &[16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10];
/// The ratio of the chosen frame, in percent of the best, is at least this.
const SEQUENTIAL_KEEP: u64 = 95;
/// As that, where stored bytes are what counts.
const RATIO_KEEP: u64 = 99;
/// Stores are read in blocks of so many bytes.
const BLOCK_BYTES: u64 = 4096;

/// What matters more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Prefer {
    /// Few stored bytes.
    Ratio,
    /// Both.
    #[default]
    Balanced,
    /// Little work to read them.
    Speed,
}

impl Prefer {
    /// As many bytes copied are as bad as one byte stored: how much slower the store is than a core that copies. `memcpy` from memory makes 7.5 GB/s
    /// where the costs were measured, so that 24 is a store that gives 310 MB/s to each core that decodes, as a link of 10 Gbit/s does to four; 8 is
    /// three times that, and 2,048 one that bills by the byte: a
    /// percent of what goes into a compressor is worth its packing ten times as slowly.
    #[must_use]
    pub fn weight(self) -> u32 {
        match self {
            Prefer::Ratio => 2048,
            Prefer::Balanced => 24,
            Prefer::Speed => 8,
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Prefer::Ratio => "ratio",
            Prefer::Balanced => "balanced",
            Prefer::Speed => "speed",
        }
    }
}

/// How the data will be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Access {
    /// From end to end.
    #[default]
    Sequential,
    /// Samples anywhere.
    Random {
        /// Source bytes of a sample; not 0.
        sample_bytes: u64,
    },
}

/// What is wished for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wish {
    /// What matters more.
    pub prefer: Prefer,
    /// How the data will be read.
    pub access: Access,
    /// Source bytes of a frame; `None`: as the access wants it.
    pub frame_bytes: Option<u64>,
}

/// The frames that are tried, the smallest first.
#[must_use]
pub fn ladder(wish: &Wish) -> Vec<u64> {
    match (wish.frame_bytes, wish.access) {
        (Some(frame_bytes), _) => vec![frame_bytes],
        (None, Access::Sequential) => SEQUENTIAL_FRAMES.to_vec(),
        (None, Access::Random { sample_bytes }) => match sample_bytes >= LARGE_SAMPLE_BYTES {
            true => LARGE_SAMPLE_FRAMES.to_vec(),
            false => RANDOM_FRAMES.to_vec(),
        },
    }
}

/// Which of a chain's trials, by frames, the smallest first; none of none.
#[must_use]
pub fn frame(trials: &[Trial], wish: &Wish) -> Option<usize> {
    let keep = match (wish.access, wish.prefer) {
        (Access::Sequential, Prefer::Ratio) => RATIO_KEEP,
        (Access::Sequential, _) => SEQUENTIAL_KEEP,
        (Access::Random { .. }, _) => {
            return (0..trials.len())
                .min_by_key(|index| trials.get(*index).map(|it| score(it, wish)));
        }
    };
    let best = trials.iter().map(|it| it.stored_bytes).min()?;
    let is_near = |bytes: u64| u128::from(bytes) * u128::from(keep) <= u128::from(best) * 100;
    trials.iter().position(|it| is_near(it.stored_bytes))
}

/// Sorts them, the best first. What is equally good is in the order of stored bytes, then of steps, then as it came.
pub fn sort(trials: &mut [Trial], wish: &Wish) {
    trials.sort_by_key(|it| (score(it, wish), it.stored_bytes, it.chain.steps().len()));
}

/// What reading one of its bytes costs by the rule, in hundredths of copying it, without that copy: the smaller, the better.
#[must_use]
pub fn hundredths(trial: &Trial, wish: &Wish) -> u64 {
    let asked = match wish.access {
        Access::Random { sample_bytes } => sample_bytes.max(1),
        Access::Sequential => 1,
    };
    let unit = u128::from(trial.source_bytes)
        * u128::from(asked)
        * u128::from(trial.chain.source().bits())
        * u128::from(cost::READS_PER_PACK);
    let hundredths = score(trial, wish) * 100 / unit.max(1);
    u64::try_from(hundredths).unwrap_or(u64::MAX)
}

/// Source bytes of all frames that a sample touches, on average over every element that it can begin at.
fn touched_by_frames(sample_bytes: u64, frame_bytes: u64, element_bytes: u64) -> u64 {
    sample_bytes.saturating_add(frame_bytes.saturating_sub(element_bytes))
}

/// What a trial is worth: the smaller, the better. Comparable among trials of one sample.
fn score(trial: &Trial, wish: &Wish) -> u128 {
    let chain = &trial.chain;
    let (source_bits, packed_bits) = (chain.source().bits(), chain.packed_bits());
    let cost = cost::of_chain(chain);
    let (touched, asked) = match wish.access {
        Access::Random { sample_bytes } => (trial.touched_bytes(sample_bytes), sample_bytes.max(1)),
        Access::Sequential => (1, 1),
    };
    let reads = u128::from(cost::READS_PER_PACK);
    let source_bytes = u128::from(trial.source_bytes);
    // Each term is times `asked`, `source_bits` and READS_PER_PACK.
    let fetch = u128::from(wish.prefer.weight())
        * u128::from(trial.stored_bytes + trial.table_bytes)
        * u128::from(source_bits)
        * u128::from(touched)
        * reads;
    let (packed, codes) = (
        source_bytes * u128::from(packed_bits),
        u128::from(trial.codes_bytes) * u128::from(source_bits),
    );
    let steps = [(cost.packed, packed), (cost.codes, codes)];
    let steps = steps.map(|(cost, into)| {
        let decode = u128::from(cost.decode) * into * u128::from(touched) * reads;
        decode + u128::from(cost.encode) * into * u128::from(asked)
    });
    // Of the frames that the sample is cut into.
    let frames = u128::from(cost.frame) * u128::from(trial.frames);
    let frames = frames * u128::from(source_bits) * u128::from(touched);
    fetch + frames * reads + steps.into_iter().sum::<u128>()
}

impl Trial {
    /// What reading one of its bytes costs, in hundredths of copying it.
    #[must_use]
    pub fn read_hundredths(&self) -> u64 {
        let (codes, source) = (self.codes_bytes, self.source_bytes);
        cost::read_hundredths(&self.chain, codes, source, self.frame_bytes)
    }

    /// Source bytes of all frames that a sample touches, on average over every element that it can begin at.
    #[must_use]
    pub fn touched_bytes(&self, sample_bytes: u64) -> u64 {
        let element_bytes = self.chain.source().bytes() as u64;
        if self.chain.is_framed() {
            touched_by_frames(sample_bytes, self.frame_bytes, element_bytes)
        } else {
            sample_bytes
        }
    }

    /// Bytes that a sample makes a reader fetch, on average: what is stored of the frames it touches, in whole blocks of 4 KiB.
    #[must_use]
    pub fn fetched_bytes(&self, sample_bytes: u64) -> u64 {
        let touched = u128::from(self.touched_bytes(sample_bytes));
        let stored = touched * u128::from(self.stored_bytes);
        let stored = stored.div_ceil(u128::from(self.source_bytes.max(1)));
        u64::try_from(stored).unwrap_or(u64::MAX) + (BLOCK_BYTES - 1)
    }
}

#[cfg(test)]
mod tests {
    use transforms::{Chain, ElementType};

    use super::*;

    fn trial(text: &str, stored_bytes: u64) -> Trial {
        let chain = Chain::parse(text, ElementType::U32).unwrap();
        Trial {
            frame_bytes: if chain.is_framed() { 64 << 10 } else { 0 },
            frames: if chain.is_framed() { 15 } else { 0 },
            chain,
            source_bytes: 1_000_000,
            stored_bytes,
            table_bytes: 0,
            codes_bytes: 0,
            encode_seconds: 0.0,
            decode_seconds: 0.0,
        }
    }

    fn best(trials: &[(&str, u64)], prefer: Prefer, access: Access) -> String {
        let mut trials: Vec<Trial> = trials.iter().map(|(text, n)| trial(text, *n)).collect();
        let wish = Wish {
            prefer,
            access,
            frame_bytes: None,
        };
        sort(&mut trials, &wish);
        trials[0].chain.to_string()
    }

    /// Of the bytes that go into it, lz4 has to save 3/24 and its encoding, 20/64/24: 13.8 %. zstd:1 10/24, 24/64/24, and the tables of 15 frames:
    /// 45.1 %.
    #[test]
    fn a_codec_is_chosen_from_the_saving_on_that_the_rule_says() {
        use Access::Sequential;
        let pick = |codec, stored, prefer| {
            best(&[("none", 1_000_000), (codec, stored)], prefer, Sequential)
        };
        for (codec, prefer, saved) in [
            ("lz4", Prefer::Balanced, 138_020),
            ("zstd:1", Prefer::Balanced, 451_041),
            ("lz4", Prefer::Speed, 414_062),
            ("lz4", Prefer::Ratio, 1_617),
            ("zstd:19", Prefer::Ratio, 17_309),
        ] {
            assert_eq!(pick(codec, 1_000_000 - saved, prefer), "none", "{codec}");
            assert_eq!(pick(codec, 1_000_000 - saved - 1, prefer), codec);
        }
        // Nothing that it saves pays for zstd.
        assert_eq!(pick("zstd:1", 1, Prefer::Speed), "none");
        // Behind u16 half as many bytes go through it.
        let narrow = |stored| {
            best(
                &[("u16", 500_000), ("u16+lz4", stored)],
                Prefer::Balanced,
                Sequential,
            )
        };
        assert_eq!(narrow(500_000 - 69_010), "u16");
        assert_eq!(narrow(500_000 - 69_011), "u16+lz4");
    }

    /// What `rank` stores is its frames and its table; what comes behind it costs by the codes that go in.
    #[test]
    fn a_table_counts_as_stored_and_a_compressor_by_the_codes() {
        let plain = trial("u16+zstd:3", 300_000);
        let ranked = |table_bytes| Trial {
            table_bytes,
            codes_bytes: 400_000,
            ..trial("u16+rank+zstd:3", 250_000)
        };
        let wish = Wish::default();
        // 24 for each byte, decoding: u16+zstd:3 10 of 500,000 bytes; rank 4 of its 400,000, and zstd 10 of these; packing a 64th of 40, and of 10 and
        // 40; and tables for each of 15 frames.
        let weighed = |trial: &Trial| score(trial, &wish) / u128::from(32 * cost::READS_PER_PACK);
        let by = |stored: u64, decode: u64, encode: u64| {
            u128::from(24 * stored + decode + 15 * 30_000) + u128::from(encode / 64)
        };
        let of_plain = by(300_000, 10 * 500_000, 40 * 500_000);
        assert_eq!(weighed(&plain), of_plain);
        let of_ranked = by(250_000, 14 * 400_000, 50 * 400_000);
        assert_eq!(weighed(&ranked(0)), of_ranked);
        assert_eq!(weighed(&ranked(1000)), of_ranked + 24_000);
        let mut trials = [plain.clone(), ranked(24_000)];
        sort(&mut trials, &wish);
        assert_eq!(trials[0].chain.to_string(), "u16+rank+zstd:3");
        let mut trials = [plain, ranked(26_000)];
        sort(&mut trials, &wish);
        assert_eq!(trials[0].chain.to_string(), "u16+zstd:3");
        // Copied, ranked and zstd, and tables: 1 + 14 * 2 / 5 + 30,000 / 65,536.
        assert_eq!(ranked(0).read_hundredths(), 705);
    }

    #[test]
    fn what_is_equal_is_the_simpler_one() {
        let equal = [("u16", 1_000_000), ("none", 1_000_000)];
        assert_eq!(best(&equal, Prefer::Ratio, Access::Sequential), "none");
    }

    /// A sample of 4 KiB out of frames of 64 KiB fetches 17 times what it needs.
    #[test]
    fn small_samples_are_not_fetched_in_large_frames() {
        let trials = [("u16", 500_000), ("u16+zstd:3", 250_000)];
        let small = Access::Random { sample_bytes: 4096 };
        assert_eq!(
            best(&trials, Prefer::Balanced, Access::Sequential),
            "u16+zstd:3"
        );
        assert_eq!(best(&trials, Prefer::Balanced, small), "u16");
        assert_eq!(best(&trials, Prefer::Ratio, small), "u16");
        let framed = trial("u16+zstd:3", 250_000);
        assert_eq!(framed.touched_bytes(4096), 4096 + 65_536 - 4);
        assert_eq!(framed.fetched_bytes(4096), (4096 + 65_536 - 4) / 4 + 4095);
        assert_eq!(trial("u16", 500_000).fetched_bytes(4096), 2048 + 4095);
    }

    /// Every start at a whole element, counted.
    #[test]
    fn touched_bytes_are_the_average_over_all_starts() {
        let it = trial("lz4", 250_000);
        for sample in [4, 4096, 65_532, 65_536, 65_540, 200_000] {
            let frame = it.frame_bytes;
            let frames: u64 = (0..frame)
                .step_by(4)
                .map(|start| (start + sample - 1) / frame + 1)
                .sum();
            // The average over frame / 4 starts, of frame bytes each.
            assert_eq!(it.touched_bytes(sample), frames * 4, "{sample}");
        }
    }

    /// Trials of `zstd:3` by frames: so many KiB each, and what is stored.
    fn by_frames(stored: &[(u64, u64)]) -> Vec<Trial> {
        let of = |(kib, stored_bytes): &(u64, u64)| Trial {
            frame_bytes: kib << 10,
            frames: 1_000_000_u64.div_ceil(kib << 10),
            ..trial("zstd:3", *stored_bytes)
        };
        stored.iter().map(of).collect()
    }

    fn frame_of(stored: &[(u64, u64)], prefer: Prefer, access: Access) -> Option<usize> {
        let wish = Wish {
            prefer,
            access,
            frame_bytes: None,
        };
        frame(&by_frames(stored), &wish)
    }

    #[test]
    fn from_end_to_end_the_frame_is_the_smallest_near_the_best() {
        let of = |stored: &[(u64, u64)], prefer| frame_of(stored, prefer, Access::Sequential);
        // 99 / 0.95 = 104.2
        for prefer in [Prefer::Balanced, Prefer::Speed] {
            assert_eq!(of(&[(4, 104), (8, 99)], prefer), Some(0));
            assert_eq!(of(&[(4, 105), (8, 99)], prefer), Some(1));
        }
        // 990 / 0.99 = 1000
        assert_eq!(of(&[(4, 1000), (8, 990)], Prefer::Ratio), Some(0));
        assert_eq!(of(&[(4, 1001), (8, 990)], Prefer::Ratio), Some(1));
        assert_eq!(of(&[], Prefer::Ratio), None);
        assert_eq!(of(&[(4, 0), (8, 0)], Prefer::Ratio), Some(0));
    }

    /// Of a small sample the next larger frame has to save what it makes longer; of a large one nearly nothing.
    #[test]
    fn at_random_the_frame_is_the_one_with_the_least_sum() {
        let stored = [(4, 300_000), (8, 250_000), (16, 240_000)];
        for prefer in [Prefer::Ratio, Prefer::Balanced] {
            let of = |sample_bytes| frame_of(&stored, prefer, Access::Random { sample_bytes });
            let weighed = |index: usize, sample_bytes| {
                let wish = Wish {
                    prefer,
                    access: Access::Random { sample_bytes },
                    frame_bytes: None,
                };
                score(&by_frames(&stored)[index], &wish)
            };
            for sample_bytes in [4, 4096, 16_384, 65_536, 262_144, 1 << 20, 1 << 24] {
                let best = of(sample_bytes).unwrap();
                let least = (0..3).map(|index| weighed(index, sample_bytes)).min();
                assert_eq!(Some(weighed(best, sample_bytes)), least);
            }
            assert_eq!((of(4), of(1 << 24)), (Some(0), Some(2)));
        }
        // In copies of the million bytes, by stored bytes, decoding and tables: 632 in frames of 4 KiB, 526 and 503. 632 (SIZE + 4,092) < 526 (SIZE + 8,188)
        // below 16,212, and 526 (SIZE + 8,188) < 503 (SIZE + 16,380) below 176,738.
        let by_ratio =
            |sample_bytes| frame_of(&stored, Prefer::Ratio, Access::Random { sample_bytes });
        assert_eq!(by_ratio(16_000), Some(0));
        assert_eq!(by_ratio(16_400), Some(1));
        assert_eq!(by_ratio(175_000), Some(1));
        assert_eq!(by_ratio(178_000), Some(2));
    }
}
