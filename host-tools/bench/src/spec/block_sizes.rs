//! Block sizes in fio's three forms: one, a range, or several with their shares.

use crate::limits;
use crate::number;
use crate::random::Random;

/// Sizes of blocks of one direction: each with its share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockSizes {
    /// Bytes, and a weight; the bytes ascend, and each is a multiple of the first.
    pub choices: Vec<(u32, u32)>,
    weight_sum: u64,
}

/// fio's default.
impl Default for BlockSizes {
    fn default() -> BlockSizes {
        BlockSizes {
            choices: vec![(4096, 1)],
            weight_sum: 1,
        }
    }
}

impl BlockSizes {
    pub(super) fn new(mut choices: Vec<(u32, u32)>) -> Result<BlockSizes, String> {
        choices.retain(|(_, weight)| *weight > 0);
        choices.sort_unstable();
        let Some(&(unit, _)) = choices.first() else {
            return Err("no size is left".to_owned());
        };
        for (bytes, _) in &choices {
            let bytes = *bytes;
            if !(limits::BLOCK_BYTES_MIN..=limits::BLOCK_BYTES_MAX).contains(&bytes)
                || !bytes.is_multiple_of(limits::BLOCK_BYTES_MIN)
            {
                return Err(format!(
                    "{bytes} bytes is no multiple of {} up to {}",
                    limits::BLOCK_BYTES_MIN,
                    limits::BLOCK_BYTES_MAX
                ));
            }
            if !bytes.is_multiple_of(unit) {
                return Err(format!(
                    "{bytes} bytes is no multiple of the smallest size, {unit} bytes"
                ));
            }
        }
        let weights = choices.iter().map(|(_, weight)| u64::from(*weight));
        Ok(BlockSizes {
            weight_sum: weights.sum(),
            choices,
        })
    }

    pub(super) fn one(text: &str) -> Result<BlockSizes, String> {
        BlockSizes::new(vec![(block_bytes(text)?, 1)])
    }

    /// `4k-64k`: every multiple of the first up to the second is as likely.
    pub(super) fn range(text: &str) -> Result<BlockSizes, String> {
        let (min, max) = text
            .split_once('-')
            .ok_or_else(|| format!("'{text}' is no range; write 4k-64k"))?;
        let (min, max) = (block_bytes(min)?, block_bytes(max)?);
        if min == 0 || max < min {
            return Err(format!("'{text}' is no range; write 4k-64k"));
        }
        let multiples = (1..=max / min).map(|factor| (factor * min, 1)).collect();
        BlockSizes::new(multiples)
    }

    /// `4k/60:64k/40`; sizes without a share divide what is left.
    pub(super) fn split(text: &str) -> Result<BlockSizes, String> {
        let mut given = Vec::new();
        for part in text.split(':') {
            let (size, share) = part.split_once('/').unwrap_or((part, ""));
            let share = match share {
                "" => None,
                digits => Some(number::count(digits, 0, 100)?),
            };
            given.push((block_bytes(size)?, share));
        }
        let said: u64 = given.iter().filter_map(|(_, share)| *share).sum();
        let open = given.iter().filter(|(_, share)| share.is_none()).count() as u64;
        if said > 100 || (open == 0 && said != 100) {
            return Err(format!("the shares of '{text}' make {said}, not 100"));
        }
        // In parts of a hundredth divided among the open ones, so that thirds are exact.
        let parts = open.max(1);
        let weight = |share: Option<u64>| share.map_or(100 - said, |share| share * parts);
        let choices = given
            .into_iter()
            .map(|(bytes, share)| (bytes, u32::try_from(weight(share)).unwrap_or(0)));
        BlockSizes::new(choices.collect())
    }

    /// One of them, each as often as its share says.
    pub fn draw(&self, random: &mut Random) -> u32 {
        if self.is_single() {
            return self.unit();
        }
        let mut left = random.below(self.weight_sum);
        for (bytes, weight) in &self.choices {
            match left.checked_sub(u64::from(*weight)) {
                Some(rest) => left = rest,
                None => return *bytes,
            }
        }
        self.max()
    }

    /// The smallest; places and sizes are multiples of it.
    pub fn unit(&self) -> u32 {
        self.choices.first().map_or(0, |(bytes, _)| *bytes)
    }

    /// The largest.
    pub fn max(&self) -> u32 {
        self.choices.last().map_or(0, |(bytes, _)| *bytes)
    }

    /// Whether there is one size only.
    pub fn is_single(&self) -> bool {
        self.choices.len() == 1
    }
}

fn block_bytes(text: &str) -> Result<u32, String> {
    let bytes = number::bytes(text)?;
    u32::try_from(bytes)
        .ok()
        .filter(|bytes| *bytes <= limits::BLOCK_BYTES_MAX)
        .ok_or_else(|| {
            format!(
                "'{text}' is above the limit of {} bytes",
                limits::BLOCK_BYTES_MAX
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_size_a_range_or_sizes_with_shares() {
        assert_eq!(BlockSizes::one("64k").unwrap().choices, [(65536, 1)]);
        assert_eq!(
            BlockSizes::range("4k-12k").unwrap().choices,
            [(4096, 1), (8192, 1), (12288, 1)]
        );
        assert_eq!(
            BlockSizes::split("4k/60:64k/40").unwrap().choices,
            [(4096, 60), (65536, 40)]
        );
        assert_eq!(
            BlockSizes::split("4k/50:8k/:16k/").unwrap().choices,
            [(4096, 100), (8192, 50), (16384, 50)]
        );
        for text in ["0", "1000", "1g", "x"] {
            assert!(BlockSizes::one(text).is_err(), "{text}");
        }
        for text in ["8k-4k", "8k", "0-4k"] {
            assert!(BlockSizes::range(text).is_err(), "{text}");
        }
        for text in ["4k/50:8k/40", "4k/50:6k/50", "4k/90:8k/90", "4k/0:8k/0"] {
            assert!(BlockSizes::split(text).is_err(), "{text}");
        }
    }
}
