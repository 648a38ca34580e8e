//! What the elements of a file without a header may be, by what its bytes look like: a suggestion, never more.

use std::fmt;

use formats::{ByteSource, Format};
use transforms::ElementType;

use crate::catalogue::Catalogue;
use crate::scan::{FileId, Scan, SourceFile};

/// Bytes that are looked at, in the middle of the file.
const LOOK_BYTES: u64 = 64 << 10;
/// Files with fewer bytes say nothing.
const FILE_BYTES_MIN: u64 = 4096;
/// Upper bytes of ids below 2^20.
const ID_UPPER_MAX: u8 = 0x0f;
/// The largest of these.
const ID_MAX: i64 = (1 << 20) - 1;

/// A suggestion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guess {
    /// The type.
    pub element: ElementType,
    /// What of the bytes says so.
    why: &'static str,
}

impl fmt::Display for Guess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.element, self.why)
    }
}

/// What a file of unknown format may be, if anything.
#[must_use]
pub fn guess(scan: &Scan, catalogue: &Catalogue, id: FileId) -> Option<Guess> {
    let recognised = catalogue.get(id)?;
    let is_malformed = catalogue.malformed.iter().any(|(other, _)| *other == id);
    if recognised.description.format != Format::Unknown || is_malformed {
        return None;
    }
    let file = scan.file(id)?;
    let bytes = middle(file)?;
    of_bytes(&bytes, file.bytes)
}

/// Some of the file. A file that cannot be read says nothing here: those who need its bytes say why.
fn middle(file: &SourceFile) -> Option<Vec<u8>> {
    if file.bytes < FILE_BYTES_MIN {
        return None;
    }
    let bytes = LOOK_BYTES.min(file.bytes) / 8 * 8;
    let start = (file.bytes - bytes) / 2 / 8 * 8;
    let mut middle = vec![0; usize::try_from(bytes).ok()?];
    file.open().ok()?.read_at(start, &mut middle).ok()?;
    Some(middle)
}

fn of_bytes(bytes: &[u8], file_bytes: u64) -> Option<Guess> {
    let is_text = !bytes.contains(&0)
        && std::str::from_utf8(bytes).map_or_else(|e| e.valid_up_to() > bytes.len() / 2, |_| true);
    let is_one_value = bytes
        .first()
        .is_none_or(|first| bytes.iter().all(|byte| byte == first));
    if is_text || is_one_value {
        return None;
    }
    let found = |element, why| Some(Guess { element, why });
    let whole = |width: u64| file_bytes.is_multiple_of(width);
    let planes = |width| {
        (0..width)
            .map(|place| Plane::new(bytes, width, place))
            .collect::<Vec<_>>()
    };
    if let Some(guess) = marked(bytes, file_bytes) {
        return Some(guess);
    }
    if whole(8)
        && let [low, _, _, _, e, f, g, h] = planes(8).as_slice()
        && [e, f, g, h].iter().all(|upper| upper.is_zero())
        && !low.is_zero()
    {
        return found(
            ElementType::I64,
            "the upper four of every eight bytes are zero, as in ids",
        );
    }
    if whole(4)
        && let [low, second, third, top] = planes(4).as_slice()
    {
        let narrow = second.is_zero() && !third.is_zero();
        if top.is_zero()
            && third.share(|byte| byte <= ID_UPPER_MAX) >= 99
            && !low.is_zero()
            && !narrow
        {
            return found(
                ElementType::U32,
                "the highest of every four bytes is zero, as in token ids",
            );
        }
        let is_near_one = |byte: u8| (0x38..=0x41).contains(&(byte & 0x7f));
        if top.share(is_near_one) >= 95 && low.distinct() > 200 && second.distinct() > 200 {
            return found(
                ElementType::F32,
                "the highest of every four bytes is the exponent of a float near 1",
            );
        }
    }
    if whole(2)
        && let [low, high] = planes(2).as_slice()
    {
        let is_wide_text = high.is_zero() && low.share(|byte| (b' '..0x7f).contains(&byte)) >= 95;
        let has_small = high.share(|byte| byte == 0) >= 5 && high.most_frequent() <= 3;
        let has_negative = high.share(|byte| byte == 0xff) >= 2;
        let is_skewed = high.distinct_of_most(90) * 4 <= low.distinct_of_most(90) * 3;
        if has_small && is_skewed && !has_negative && !is_wide_text {
            return found(
                ElementType::U16,
                "the higher of every two bytes is mostly small, as in token ids",
            );
        }
    }
    None
}

/// Ids with a mark of -1 among them: what is not small is all ones, and there are few of these. Taken for narrower types they would look like ids, too.
fn marked(bytes: &[u8], file_bytes: u64) -> Option<Guess> {
    let types = [
        (
            ElementType::I64,
            "ids with a mark of -1, in eight bytes each",
        ),
        (
            ElementType::I32,
            "ids with a mark of -1, in four bytes each",
        ),
        (ElementType::I16, "ids with a mark of -1, in two bytes each"),
    ];
    types.into_iter().find_map(|(element, why)| {
        let width = element.bytes();
        let values = || bytes.chunks_exact(width).map(sign_extended);
        let is_mark = |value: &i64| *value == -1;
        let marks = values().filter(is_mark).count();
        let limit = match element {
            ElementType::I16 => i64::from(i16::MAX),
            _ => ID_MAX,
        };
        let is_id = |value: i64| (0..=limit).contains(&value) || is_mark(&value);
        let count = bytes.len() / width;
        let is_whole = file_bytes.is_multiple_of(width as u64);
        let rare = marks > 0 && marks * 2 < count;
        // Words of which half are zero are the halves of wider ones.
        let zeros = values().filter(|value| *value == 0).count();
        let found = is_whole && rare && zeros * 5 < count * 2 && values().all(is_id);
        found.then_some(Guess { element, why })
    })
}

fn sign_extended(bytes: &[u8]) -> i64 {
    let mut wide = [0; 8];
    let is_negative = bytes.last().is_some_and(|last| *last >= 0x80);
    wide.fill(if is_negative { 0xff } else { 0 });
    for (to, from) in wide.iter_mut().zip(bytes) {
        *to = *from;
    }
    i64::from_le_bytes(wide)
}

/// The bytes of one significance.
struct Plane {
    counts: [usize; 256],
    len: usize,
}

impl Plane {
    fn new(bytes: &[u8], width: usize, place: usize) -> Plane {
        let mut plane = Plane {
            counts: [0; 256],
            len: 0,
        };
        for byte in bytes.iter().skip(place).step_by(width) {
            if let Some(count) = plane.counts.get_mut(usize::from(*byte)) {
                *count += 1;
            }
            plane.len += 1;
        }
        plane
    }

    /// How many of a hundred are so.
    fn share(&self, is_so: impl Fn(u8) -> bool) -> usize {
        let there = (0..=u8::MAX)
            .zip(&self.counts)
            .filter(|(byte, _)| is_so(*byte));
        there.map(|(_, count)| count).sum::<usize>() * 100 / self.len.max(1)
    }

    fn is_zero(&self) -> bool {
        self.share(|byte| byte == 0) >= 99
    }

    fn distinct(&self) -> usize {
        self.counts.iter().filter(|count| **count > 0).count()
    }

    fn most_frequent(&self) -> u8 {
        let all = (0..=u8::MAX).zip(&self.counts);
        all.max_by_key(|(_, count)| **count)
            .map_or(0, |(byte, _)| byte)
    }

    /// How many different bytes make up so many of a hundred.
    fn distinct_of_most(&self, percent: usize) -> usize {
        let mut counts = self.counts;
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let mut sum = 0;
        counts
            .iter()
            .take_while(|count| {
                let below = sum * 100 < self.len * percent;
                sum += **count;
                below
            })
            .count()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn real(name: &str) -> Vec<u8> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
        std::fs::read(folder.join(name)).unwrap()
    }

    fn guessed(bytes: &[u8]) -> Option<ElementType> {
        let look = &bytes[..bytes.len().min(65_536)];
        of_bytes(look, bytes.len() as u64).map(|guess| guess.element)
    }

    fn ids(name: &str) -> Vec<u32> {
        let bytes = real(name);
        let ids = bytes.chunks_exact(4);
        ids.map(|id| u32::from_le_bytes(id.try_into().unwrap()))
            .collect()
    }

    #[test]
    fn real_ids_and_weights_are_guessed_in_every_width() {
        for name in [
            "data/r50k-u32.bin",
            "data/o200k-u32.bin",
            "data/tiny-u32.bin",
        ] {
            assert_eq!(guessed(&real(name)), Some(ElementType::U32), "{name}");
            let wide: Vec<u8> = ids(name)
                .iter()
                .flat_map(|id| u64::from(*id).to_le_bytes())
                .collect();
            assert_eq!(guessed(&wide), Some(ElementType::I64), "{name}");
        }
        let narrow: Vec<u8> = ids("data/r50k-u32.bin")
            .iter()
            .flat_map(|id| u16::try_from(*id).unwrap().to_le_bytes())
            .collect();
        assert_eq!(guessed(&narrow), Some(ElementType::U16));
        let labels: Vec<u8> = (0..40_000u16)
            .flat_map(|n| (n % 251).to_le_bytes())
            .collect();
        assert_eq!(guessed(&labels), Some(ElementType::U16));
        let weights = real("data/weights-f32.bin");
        assert_eq!(guessed(&weights), Some(ElementType::F32));
    }

    #[test]
    fn ids_with_a_mark_of_minus_one_are_signed() {
        let ids = ids("data/r50k-u32.bin");
        for every in [3, 7, 300] {
            let marked = ids.iter().zip(0..);
            let marked = marked.map(|(id, at)| if at % every == 0 { -1 } else { i64::from(*id) });
            let marked: Vec<i64> = marked.collect();
            let wide: Vec<u8> = marked.iter().flat_map(|it| it.to_le_bytes()).collect();
            assert_eq!(guessed(&wide), Some(ElementType::I64), "{every}");
            let narrow = |it: &i64| i32::try_from(*it).unwrap().to_le_bytes();
            let narrow: Vec<u8> = marked.iter().flat_map(narrow).collect();
            assert_eq!(guessed(&narrow), Some(ElementType::I32), "{every}");
            let labels = marked.iter().map(|it| if *it < 0 { -1 } else { it % 1000 });
            let labels = labels.flat_map(|it| i16::try_from(it).unwrap().to_le_bytes());
            let labels: Vec<u8> = labels.collect();
            assert_eq!(guessed(&labels), Some(ElementType::I16), "{every}");
        }
    }

    #[test]
    fn what_says_nothing_is_not_guessed() {
        let weights = real("data/weights-f32.bin");
        let bf16: Vec<u8> = weights.chunks_exact(4).flat_map(|f| [f[2], f[3]]).collect();
        let mut state = 1u64;
        let noise: Vec<u8> = (0..65_536)
            .map(|_| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                (state >> 56) as u8
            })
            .collect();
        let sound: Vec<u8> = (0..30_000)
            .flat_map(|n| {
                ((f64::from(n) / 50.0).sin() * 900.0)
                    .round()
                    .to_string()
                    .parse::<i16>()
                    .unwrap()
                    .to_le_bytes()
            })
            .collect();
        let text = "Words, and more of them.\n".repeat(500);
        let wide: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let zeros = vec![0; 65_536];
        let nothing = [&bf16, &noise, &sound, &text.into_bytes(), &wide, &zeros];
        for (index, bytes) in nothing.into_iter().enumerate() {
            assert_eq!(guessed(bytes), None, "{index}");
        }
        // A length that is no whole number of elements.
        let ids = real("data/tiny-u32.bin");
        assert_eq!(of_bytes(&ids, 8001), None);
    }
}
