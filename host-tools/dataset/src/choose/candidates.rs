//! The chains that keep every bit of some values.

use transforms::{Chain, ElementType, IDS_END, RANKS_MAX, ValueRange};

use super::rule::{self, Prefer, Wish};

/// What a frame can be compressed by. Levels between these differ by less than what they are tried on does.
/// `floatsplit` is for floating point alone.
const COMPRESSORS: [&str; 6] = ["lz4", "lz4hc:9", "zstd:1", "zstd:3", "zstd:9", "floatsplit"];
/// It packs a few megabytes a second: only where size is all that counts.
const SLOW: &str = "zstd:19";
/// The same with a dictionary, which is worth trying in short frames: in longer ones there is little that they have not themselves.
const BY_DICTIONARY: [&str; 2] = ["zstd-dict:3", "zstd-dict:9"];
const SLOW_BY_DICTIONARY: &str = "zstd-dict:19";
/// Such frames.
pub(super) const SHORT_FRAME_BYTES_MAX: u64 = 16 << 10;
/// The widest field of `bitpack`.
const FIELD_BITS_MAX: u32 = transforms::codecs::bitpack::BITS_MAX;

/// All chains for elements of this type: each width that holds `range`, alone and before each compressor, with and without `shuffle`; ids also by
/// rank, alone and before each compressor. Where frames may be short, whole bytes and ranks also before zstd with a dictionary.
///
/// Floats, and integers whose range is not known (`None`), are not narrowed: a type that holds fewer values would not keep every bit.
#[must_use]
pub fn candidates(element: ElementType, range: Option<ValueRange>, wish: &Wish) -> Vec<Chain> {
    let mut compressors = COMPRESSORS.to_vec();
    let mut by_dictionary = BY_DICTIONARY.to_vec();
    if wish.prefer == Prefer::Ratio {
        compressors.push(SLOW);
        by_dictionary.push(SLOW_BY_DICTIONARY);
    }
    if rule::ladder(wish)
        .iter()
        .all(|it| *it > SHORT_FRAME_BYTES_MAX)
    {
        by_dictionary.clear();
    }
    let mut texts = Vec::new();
    for width in widths(element, range) {
        texts.push(width.clone());
        for compressor in &compressors {
            texts.push(format!("{width}+{compressor}"));
            texts.push(format!("{width}+shuffle+{compressor}"));
        }
        if !width.starts_with("bitpack") {
            texts.extend(by_dictionary.iter().map(|it| format!("{width}+{it}")));
        }
    }
    if let Some(ranked) = ranked(element, range) {
        texts.push(ranked.clone());
        let compressors = compressors.iter().chain(&by_dictionary);
        texts.extend(compressors.map(|it| format!("{ranked}+{it}")));
    }
    // A shuffle of fields that are no whole bytes, or of single ones, is no chain; nor is floatsplit of integers, or behind another block step.
    let chains = texts.iter().filter_map(|text| {
        let text = text.strip_prefix("none+").unwrap_or(text);
        Chain::parse(text, element).ok()
    });
    chains.collect()
}

/// How ids are stored by rank, out of the narrowest type that `rank` takes and that holds them; `None` where one has no rank, or there may be more
/// of them than a table holds.
fn ranked(element: ElementType, range: Option<ValueRange>) -> Option<String> {
    let range = range.filter(|_| element.is_integer())?;
    let ids = range.max - range.min + 1;
    let have_ranks = range.min >= 0 && range.max < i128::from(IDS_END) && ids <= RANKS_MAX as i128;
    let narrow = if range.max < 1 << 16 { 16 } else { 32 };
    match element.bits() {
        _ if !have_ranks => None,
        8 => None,
        bits if bits <= narrow => Some("rank".to_owned()),
        _ => Some(format!("u{narrow}+rank")),
    }
}

/// How elements can be held: as they are, in the narrowest type, in the fewest bits, and in the fewest whole bytes where no type has so few.
fn widths(element: ElementType, range: Option<ValueRange>) -> Vec<String> {
    let mut widths = vec!["none".to_owned()];
    let Some(range) = range.filter(|_| element.is_integer()) else {
        return widths;
    };
    let narrowest = ElementType::INTEGERS.into_iter().find(|narrow| {
        let holds = narrow.range().is_some_and(|held| held.encloses(&range));
        holds && narrow.bits() < element.bits() && narrow.is_signed_integer() == (range.min < 0)
    });
    widths.extend(narrowest.map(|narrow| narrow.name().to_owned()));
    let Some(bits) = field_bits(&range) else {
        return widths;
    };
    let mut fields = vec![bits];
    if bits > 16 {
        fields.push(bits.next_multiple_of(8));
    }
    fields.dedup();
    for bits in fields {
        let is_a_type = [8, 16, 32].contains(&bits);
        if bits < element.bits() && bits <= FIELD_BITS_MAX && !is_a_type {
            widths.push(format!("bitpack:{bits}"));
        }
    }
    widths
}

/// The fewest bits that hold every value; `None` where some are negative.
#[must_use]
pub fn field_bits(range: &ValueRange) -> Option<u32> {
    let max = u128::try_from(range.max).ok().filter(|_| range.min >= 0)?;
    Some((u128::BITS - max.leading_zeros()).max(1))
}

#[cfg(test)]
mod tests {
    use super::super::Access;
    use super::*;

    fn widths_of(element: ElementType, min: i128, max: i128) -> String {
        widths(element, Some(ValueRange { min, max })).join(" ")
    }

    #[test]
    fn widths_hold_the_range_and_are_narrower_than_the_type() {
        use ElementType::{F32, I8, I32, I64, U8, U16, U32, U64};
        assert_eq!(widths_of(U32, 0, 50_256), "none u16");
        assert_eq!(widths_of(U32, 8, 32_767), "none u16 bitpack:15");
        assert_eq!(widths_of(U32, 0, 199_999), "none bitpack:18 bitpack:24");
        assert_eq!(widths_of(U32, 0, 0xff_ffff), "none bitpack:24");
        assert_eq!(
            widths_of(U32, 0, 0x7fff_ffff),
            "none bitpack:31",
            "32 is the type itself"
        );
        assert_eq!(widths_of(U32, 0, 0xffff_ffff), "none");
        assert_eq!(widths_of(I32, -100, 50_000), "none");
        assert_eq!(widths_of(I32, -100, 30_000), "none i16");
        assert_eq!(widths_of(I64, 0, 199_999), "none u32 bitpack:18 bitpack:24");
        assert_eq!(widths_of(U64, 0, 1 << 40), "none");
        assert_eq!(widths_of(U16, 0, 0), "none u8 bitpack:1");
        assert_eq!(widths_of(U8, 0, 9), "none bitpack:4");
        assert_eq!(widths_of(I8, -1, 9), "none");
        assert_eq!(widths(F32, None), ["none"]);
        assert_eq!(widths(U32, None), ["none"]);
    }

    #[test]
    fn ids_are_ranked_out_of_the_narrowest_type() {
        use ElementType::{F32, I16, I32, I64, U8, U16, U32, U64};
        let of = |element, min, max| ranked(element, Some(ValueRange { min, max }));
        for (element, max, text) in [
            (U16, 50_256, "rank"),
            (I16, 30_000, "rank"),
            (U32, 50_256, "u16+rank"),
            (U32, 199_999, "rank"),
            (I32, 199_999, "rank"),
            (I64, 65_535, "u16+rank"),
            (U64, 65_536, "u32+rank"),
        ] {
            assert_eq!(
                of(element, 0, max).as_deref(),
                Some(text),
                "{element} {max}"
            );
        }
        assert_eq!(of(U8, 0, 9), None, "one byte is the shortest code");
        assert_eq!(of(I32, -1, 9), None, "no id");
        assert_eq!(of(U32, 0, 1 << 22), None, "no id");
        assert_eq!(of(U32, 0, 1 << 21), None, "perhaps more than a table holds");
        assert!(of(U32, 1, 1 << 21).is_some());
        assert_eq!(ranked(F32, None), None);
    }

    #[test]
    fn dictionaries_are_tried_where_frames_may_be_short() {
        let range = Some(ValueRange {
            min: 0,
            max: 50_256,
        });
        let by_dictionary = |prefer, access, frame_bytes| -> String {
            let wish = Wish {
                prefer,
                access,
                frame_bytes,
            };
            let chains = candidates(ElementType::U32, range, &wish);
            let texts: Vec<String> = chains.iter().map(Chain::to_string).collect();
            let texts = texts.iter().filter(|it| it.contains("zstd-dict"));
            texts.map(String::as_str).collect::<Vec<_>>().join(" ")
        };
        use Access::Sequential;
        let random = Access::Random { sample_bytes: 4096 };
        let both = "zstd-dict:3 zstd-dict:9 u16+zstd-dict:3 u16+zstd-dict:9 u16+rank+zstd-dict:3 u16+rank+zstd-dict:9";
        assert_eq!(by_dictionary(Prefer::Balanced, random, None), both);
        assert_eq!(
            by_dictionary(Prefer::Speed, Sequential, Some(16 << 10)),
            both
        );
        assert_eq!(by_dictionary(Prefer::Balanced, random, Some(32 << 10)), "");
        assert_eq!(by_dictionary(Prefer::Ratio, Sequential, None), "");
        assert!(by_dictionary(Prefer::Ratio, random, None).contains("u16+rank+zstd-dict:19"));
    }

    #[test]
    fn every_candidate_holds_the_range_and_they_are_all_different() {
        for element in ElementType::ALL {
            for max in [0, 1, 255, 256, 65_535, 70_000, 1 << 24, (1 << 31) - 1] {
                let range = ValueRange { min: 0, max };
                let possible = element.range();
                if possible.is_some_and(|possible| !possible.encloses(&range)) {
                    continue;
                }
                let range = possible.map(|_| range);
                let wish = Wish {
                    prefer: Prefer::Ratio,
                    ..Wish::default()
                };
                let chains = candidates(element, range, &wish);
                let mut texts: Vec<String> = chains.iter().map(Chain::to_string).collect();
                assert!(texts.contains(&"none".to_owned()));
                assert!(texts.contains(&"zstd:19".to_owned()));
                for chain in &chains {
                    let held = chain.range();
                    let holds = range.is_none_or(|r| held.is_some_and(|held| held.encloses(&r)));
                    assert!(holds, "{chain} of {element} up to {max}");
                }
                let count = texts.len();
                texts.sort();
                texts.dedup();
                assert_eq!(texts.len(), count);
                assert_eq!(
                    texts.iter().any(|text| text.contains("shuffle")),
                    element.bytes() > 1
                );
            }
        }
    }
}
