//! Sources to encode: values of every kind, in every number that may matter.

use super::floats::converted;
use super::{oracle, q8, rows};
use crate::{Chain, ElementType, Packing, ValueRange};

/// Numbers of elements: none, around every vector and byte boundary, more than a kernel's block.
pub(super) const COUNTS: [usize; 16] =
    [0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 63, 64, 65, 200, 1027, 9001];

/// What the values look like.
#[derive(Debug, Clone, Copy)]
pub(super) enum Pattern {
    /// All the smallest value that the chain holds.
    Lowest,
    /// All the largest.
    Highest,
    /// From the smallest on, in steps.
    Ramp,
    /// Without pattern, over the whole range.
    Noise,
    /// Few values, again and again, as text is: what compressors shrink.
    Text,
}

impl Pattern {
    pub(super) const ALL: [Pattern; 5] = [
        Pattern::Lowest,
        Pattern::Highest,
        Pattern::Ramp,
        Pattern::Noise,
        Pattern::Text,
    ];
}

/// Elements of a chain's source type, as bytes and, for integers, as values.
pub(super) struct Source {
    pub(super) element: ElementType,
    pub(super) bytes: Vec<u8>,
    /// Empty for floating point.
    pub(super) values: Vec<i128>,
}

impl Source {
    pub(super) fn new(chain: &Chain, pattern: Pattern, count: usize) -> Source {
        let element = chain.source();
        let mut numbers = Numbers::new(count as u64 + 1);
        let Some(range) = chain.range() else {
            let word = |i: usize| match pattern {
                Pattern::Lowest => 0,
                Pattern::Highest => u64::MAX,
                Pattern::Ramp => i as u64,
                // Any bits; and every other one near a number of 16 bits, where ties and limits are.
                Pattern::Noise if i.is_multiple_of(2) => numbers.next(),
                Pattern::Noise => near(element, numbers.next()),
                Pattern::Text => numbers.next() % 5 * 0x0101,
            };
            let mut words: Vec<u64> = (0..count).map(word).collect();
            if chain.packing() == Packing::Q8_0 {
                words = words
                    .into_iter()
                    .map(|it| q8::scalable(element, it, q8::UNSCALABLE_FROM))
                    .collect();
            }
            if matches!(chain.packing(), Packing::Int8 { .. }) {
                let words_of = words.into_iter().enumerate();
                words = words_of
                    .map(|(index, it)| rows::fitting(chain, index, it))
                    .collect();
            }
            return Source::of_words(element, &words);
        };
        // Of a chain with a table, its ids by rank; of others, all of the range.
        let ids = chain.rank_table().map(|table| table.ids());
        let range = match ids {
            Some(ids) => ValueRange {
                min: 0,
                max: ids.len() as i128 - 1,
            },
            None => range,
        };
        let last = u64::try_from(range.max - range.min).unwrap();
        // A number of the range's span; of all 64 bits every number is one.
        let below = |n: u64| i128::from(last.checked_add(1).map_or(n, |span| n % span));
        let value = |i: usize| match pattern {
            Pattern::Lowest => range.min,
            Pattern::Highest => range.max,
            Pattern::Ramp => range.min + below(i as u64 * 3),
            Pattern::Noise => range.min + below(numbers.next()),
            Pattern::Text => range.min + below(numbers.next() % 5 * 7),
        };
        let mut source = Source {
            element,
            bytes: vec![0; count * element.bytes()],
            values: vec![0; count],
        };
        let values: Vec<i128> = (0..count).map(value).collect();
        for (index, value) in values.into_iter().enumerate() {
            let id = |ids: &[u32]| i128::from(ids[usize::try_from(value).unwrap()]);
            source.set(index, ids.map_or(value, id));
        }
        source
    }

    fn of_words(element: ElementType, words: &[u64]) -> Source {
        let bytes = words.iter().map(|word| word.to_le_bytes());
        Source {
            element,
            bytes: bytes
                .flat_map(|it| it[..element.bytes()].to_vec())
                .collect(),
            values: Vec::new(),
        }
    }

    /// Floating point that has a scale, where it had none; also when it was rounded to f16 before.
    pub(super) fn scalable(&self) -> Source {
        let word = |bytes: &[u8]| {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            q8::scalable(self.element, u64::from_le_bytes(word), 65_520.0)
        };
        let words: Vec<u64> = self.bytes.chunks(self.element.bytes()).map(word).collect();
        Source::of_words(self.element, &words)
    }

    /// What a reader gets: the source, or what the chain's rounding leaves of it.
    pub(super) fn presented(&self, chain: &Chain) -> Vec<u8> {
        if !chain.contract().is_lossy() {
            return self.bytes.clone();
        }
        let packed = oracle::packed(chain, self);
        let count = self.bytes.len() / self.element.bytes();
        oracle::presented(chain, &packed, self.element, count)
    }

    /// Replaces one integer.
    pub(super) fn set(&mut self, index: usize, value: i128) {
        let size = self.element.bytes();
        self.values[index] = value;
        self.bytes[index * size..][..size].copy_from_slice(&value.to_le_bytes()[..size]);
    }

    /// The smallest and largest value.
    pub(super) fn range(&self) -> Option<ValueRange> {
        Some(ValueRange {
            min: *self.values.iter().min()?,
            max: *self.values.iter().max()?,
        })
    }
}

/// Some number of 16 bits in a floating-point type, half way to the next one, or a bit off either.
fn near(element: ElementType, number: u64) -> u64 {
    let narrow = if number >> 16 & 1 == 1 {
        ElementType::F16
    } else {
        ElementType::Bf16
    };
    let bits = converted(narrow, element, number & 0xFFFF);
    let half = match (element, narrow) {
        (ElementType::F32, ElementType::F16) => 1 << 12,
        (ElementType::F32, _) => 1 << 15,
        (ElementType::F64, ElementType::F16) => 1 << 41,
        (ElementType::F64, _) => 1 << 44,
        _ => 0,
    };
    (bits + (number >> 17 & 1) * half + (number >> 18) % 3).saturating_sub(1)
}

/// A fixed sequence of numbers without pattern (splitmix64), so that a failure is the same on every machine.
pub(super) struct Numbers(u64);

impl Numbers {
    pub(super) fn new(seed: u64) -> Numbers {
        Numbers(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap()
    }
}
