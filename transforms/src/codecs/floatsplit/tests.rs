//! Codes against their definition, every kernel against one that goes bit by bit, and frames that nobody wrote.

#![allow(
    clippy::cast_possible_truncation,
    reason = "numbers of tests are small, and drawn ones may lose bits"
)]

use proptest::prelude::*;

use super::code::Lengths;
use super::lengths::lengths;
use super::*;
use crate::Isa;
use crate::kernels::huffman::{CODE_BITS_MAX, STREAMS, Symbol, run};

/// A fixed sequence of numbers without pattern (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

/// Bytes of `symbols` kinds, each `ratio` times as likely as the next one.
fn bytes(numbers: &mut Numbers, len: usize, symbols: u64, ratio: u64) -> Vec<u8> {
    let mut byte = || {
        let mut symbol = 0;
        while symbol + 1 < symbols && numbers.next() % (ratio + 1) >= ratio {
            symbol += 1;
        }
        // Not in order, and over the whole of the bytes.
        (symbol * 97 % 256) as u8
    };
    (0..len).map(|_| byte()).collect()
}

fn read_code(src: &mut &[u8]) -> Result<Code, TransformError> {
    // What was there before is no part of it.
    let mut code = Code::new(&[8; 256]).expect("it is complete");
    code.read(src).map(|()| code)
}

/// The codes as characters, by the definition in docs/format.md.
fn codes(lengths: &Lengths) -> Vec<(String, u8)> {
    let mut symbols: Vec<(u8, u8)> = (0..=255)
        .zip(lengths)
        .map(|(symbol, bits)| (*bits, symbol))
        .collect();
    symbols.retain(|(bits, _)| *bits > 0);
    symbols.sort_unstable();
    let mut next = String::new();
    let mut codes = Vec::new();
    for (bits, symbol) in symbols {
        let code = format!("{next:0<width$}", width = usize::from(bits));
        // One more, as a number of so many bits; none is left behind the last one.
        let zero = code.rfind('0').map_or(0, |at| at);
        next = format!("{}1{}", &code[..zero], "0".repeat(code.len() - zero - 1));
        codes.push((code, symbol));
    }
    codes
}

/// Decodes `count` bytes of one stream, one bit at a time; `None` where it does not end with them.
fn by_bits(codes: &[(String, u8)], stream: &[u8], count: usize) -> Option<Vec<u8>> {
    let bits: String = stream.iter().map(|byte| format!("{byte:08b}")).collect();
    let (mut left, mut out) = (&bits[..], Vec::new());
    while out.len() < count {
        let (code, symbol) = codes.iter().find(|(code, _)| left.starts_with(code))?;
        left = &left[code.len()..];
        out.push(*symbol);
    }
    out.reverse();
    (left.len() < 8 && !left.contains('1')).then_some(out)
}

/// What each kernel makes of streams, which has to be what the definition makes.
fn decoded(
    code: &Code,
    lengths: &Lengths,
    streams: &[Vec<u8>; STREAMS],
    count: usize,
) -> Option<Vec<u8>> {
    let codes = codes(lengths);
    let parts: Option<Vec<Vec<u8>>> = (0..STREAMS)
        .map(|i| by_bits(&codes, &streams[i], run(i, count).len()))
        .collect();
    let expected = parts.map(|parts| parts.concat());
    let all = streams.concat();
    let mut end = 0;
    let ranges = std::array::from_fn(|i| {
        end += streams[i].len();
        end - streams[i].len()..end
    });
    for isa in Isa::available() {
        let mut table = Table::new();
        table.set(isa, code.symbols());
        let mut out = vec![0xC5; count];
        let decoded = huffman::decode(isa, &table, &all, &ranges, &mut out);
        assert_eq!(decoded.is_ok().then_some(out), expected, "{isa:?}, {count}");
    }
    expected
}

/// Encodes a group; its streams.
fn streams(code: &Code, group: &[u8]) -> [Vec<u8>; STREAMS] {
    let mut all = Vec::new();
    let lengths = Codes::new(code).encode(group, &mut all);
    let mut rest = &all[..];
    let streams = lengths.map(|length| {
        let (stream, behind) = rest.split_at(usize::from(length));
        rest = behind;
        stream.to_vec()
    });
    assert!(rest.is_empty());
    streams
}

#[test]
fn every_kernel_decodes_what_the_definition_does() {
    let mut numbers = Numbers(1);
    // From one bit a symbol, when a look-up is full before its bits are used up, to all bytes alike.
    for (symbols, ratio) in [
        (2, 1),
        (2, 20),
        (3, 1),
        (12, 1),
        (12, 4),
        (20, 1),
        (40, 2),
        (256, 1),
        (256, 0),
    ] {
        for count in (0..70).chain([100, 250, 1000, 4097, GROUP_ELEMENTS]) {
            let group = match ratio {
                0 => (0..count)
                    .map(|_| numbers.next().to_le_bytes()[0])
                    .collect(),
                _ => bytes(&mut numbers, count, symbols, ratio),
            };
            // Two more symbols, so that there is a code.
            let mut counts = counts(&group);
            counts[0] += 1;
            counts[97] += 1;
            let lengths = lengths(&counts);
            let code = Code::new(&lengths).unwrap();
            let decoded = decoded(&code, &lengths, &streams(&code, &group), count);
            assert_eq!(decoded.as_ref(), Some(&group), "{symbols} symbols, {count}");
        }
    }
}

#[test]
fn a_stream_that_ends_elsewhere_is_refused_by_every_kernel() {
    let mut numbers = Numbers(2);
    let mut refused = 0;
    for count in [3, 40, 300, 3000] {
        let group = bytes(&mut numbers, count, 12, 1);
        let lengths = lengths(&counts(&group));
        let code = Code::new(&lengths).unwrap();
        let good = streams(&code, &group);
        for i in 0..STREAMS {
            let mut longer = good.clone();
            longer[i].push(0);
            assert_eq!(decoded(&code, &lengths, &longer, count), None);
            let mut shorter = good.clone();
            if shorter[i].pop().is_some() {
                assert_eq!(decoded(&code, &lengths, &shorter, count), None);
            }
            for _ in 0..60 {
                let mut flipped = good.clone();
                let bits = flipped[i].len() * 8;
                if bits > 0 {
                    let bit = numbers.next() as usize % bits;
                    flipped[i][bit / 8] ^= 0x80 >> (bit % 8);
                    refused += usize::from(decoded(&code, &lengths, &flipped, count).is_none());
                }
            }
        }
    }
    assert!(refused > 100, "{refused}");
}

#[test]
fn a_table_has_every_symbol_that_fits_into_its_bits() {
    let mut numbers = Numbers(3);
    for (symbols, ratio) in [(2, 1), (3, 1), (12, 1), (200, 1)] {
        let mut counts = counts(&bytes(&mut numbers, 100_000, symbols, ratio));
        counts[0] += 1;
        counts[97] += 1;
        let lengths = lengths(&counts);
        let code = Code::new(&lengths).unwrap();
        let mut table = Table::new();
        for isa in Isa::available() {
            table.set(isa, code.symbols());
            for value in 0..1u32 << CODE_BITS_MAX {
                let bits = format!("{value:011b}");
                let (mut left, mut expected) = (&bits[..], Vec::new());
                while let Some((code, symbol)) = codes(&lengths)
                    .iter()
                    .find(|(code, _)| left.starts_with(code))
                {
                    if expected.len() == 6 {
                        break;
                    }
                    left = &left[code.len()..];
                    expected.push(*symbol);
                }
                let (symbols, used) = table.lookup(value);
                assert_eq!(
                    (symbols, used),
                    (expected, bits.len() - left.len()),
                    "{isa:?}, {bits}"
                );
            }
        }
    }
}

/// No code of at most 11 bits has fewer in all: each that is a bit shorter here and a bit longer there has as many or more.
#[test]
fn lengths_are_complete_bounded_and_the_best() {
    let mut fibonacci = [0; 256];
    let (mut one, mut two) = (1, 1);
    for count in &mut fibonacci[..30] {
        *count = one;
        (one, two) = (two, one + two);
    }
    // Unlimited, this code has 29 bits.
    let best = lengths(&fibonacci);
    assert_eq!(best.iter().max(), Some(&11));
    assert!(Code::new(&best).is_some());

    // Small ones against all there are.
    let mut numbers = Numbers(4);
    for symbols in 2..=6usize {
        for _ in 0..20 {
            let mut counts = [0; 256];
            for count in &mut counts[..symbols] {
                *count = 1 + (numbers.next() % 50) as u32;
            }
            let bits = |lengths: &[u8]| -> u32 {
                lengths
                    .iter()
                    .zip(&counts)
                    .map(|(l, c)| u32::from(*l) * c)
                    .sum()
            };
            let mut least = u32::MAX;
            for mut choice in 0..5usize.pow(symbols as u32) {
                let mut tried = Vec::new();
                for _ in 0..symbols {
                    tried.push((choice % 5 + 1) as u8);
                    choice /= 5;
                }
                if tried.iter().map(|l| 32u32 >> l).sum::<u32>() == 32 {
                    least = least.min(bits(&tried));
                }
            }
            assert_eq!(bits(&lengths(&counts)), least, "{:?}", &counts[..symbols]);
        }
    }
    assert_eq!(lengths(&[0; 256]), [0; 256]);
}

fn geometry(isa: Isa) -> Geometry<'static> {
    Geometry {
        parameter: 0,
        packed_bits: 16,
        isa,
        dictionary: None,
    }
}

/// What is said of a frame of 4 elements of two bytes.
fn refusal(frame: &[u8]) -> String {
    let mut said = Vec::new();
    for isa in Isa::available() {
        let mut out = [0; 8];
        let result = FloatSplit.decode(geometry(isa), frame, &mut out, &mut Contexts::default());
        said.push(result.map_err(|error| error.to_string()).unwrap_err());
    }
    said.dedup();
    assert_eq!(said.len(), 1);
    said.remove(0)
        .strip_prefix("floatsplit: corrupt frame: ")
        .unwrap()
        .to_owned()
}

#[test]
fn each_field_that_is_wrong_is_named() {
    // Two symbols, 5 and 6, of a bit each: 6 streams for 4 elements, of 0, 1, 1, 0, 1, 1.
    let good = [
        &[4, 0, 0, 0b10, 5, 6, 0x11][..],
        &[0, 0, 1, 0, 1, 0, 0, 0, 1, 0, 1, 0],
        &[10, 20, 30, 40],
        &[0x80, 0, 0x80, 0],
    ]
    .concat();
    let mut out = [0; 8];
    FloatSplit
        .decode(
            geometry(Isa::Portable),
            &good,
            &mut out,
            &mut Contexts::default(),
        )
        .unwrap();
    let expected = [(10, 6), (20, 5), (30, 6), (40, 5)]
        .map(|(low, high)| u16::from_le_bytes([low, high]).rotate_right(1));
    assert_eq!(out, *expected.map(u16::to_le_bytes).as_flattened());

    let with = |at: usize, bytes: &[u8]| {
        let mut frame = good.clone();
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        refusal(&frame)
    };
    assert_eq!(with(0, &[3]), "another number of elements than 4");
    assert_eq!(with(2, &[1]), "another number of elements than 4");
    assert_eq!(with(3, &[0]), "planes 0b00000000 of 2");
    assert_eq!(with(3, &[0b110]), "planes 0b00000110 of 2");
    assert_eq!(
        with(4, &[6, 5]),
        "a code of symbols from the last to the first"
    );
    assert_eq!(with(6, &[0x01]), "a code without its first or last symbol");
    assert_eq!(with(6, &[0x10]), "a code without its first or last symbol");
    // Codes with room, codes that overlap, codes that are too long, and what no length is.
    for lengths in [0x21, 0x22, 0xB1, 0xC1, 0xD1, 0xE1] {
        assert_eq!(with(6, &[lengths]), "a code that is not complete");
    }
    assert_eq!(
        with(4, &[5, 7, 0x11]),
        "a code without its first or last symbol"
    );
    assert_eq!(with(6, &[0xF1]), "a code without its first or last symbol");
    assert_eq!(with(9, &[2]), "streams of 5 bytes in 4");
    assert_eq!(with(9, &[0]), "streams of 3 bytes in 4");
    assert_eq!(
        with(9, &[0, 0, 2]),
        "stream 1 of group 0 does not end with its elements"
    );
    assert_eq!(
        with(23, &[0x81]),
        "stream 1 of group 0 does not end with its elements"
    );
    let cut: Vec<String> = [0, 3, 5, 6, 18, 22]
        .iter()
        .map(|len| refusal(&good[..*len]))
        .collect();
    assert_eq!(
        cut,
        [
            "it ends in its head",
            "it ends in its head",
            "it ends in a code",
            "it ends in a code",
            "it ends in the lengths of its streams",
            "it ends in a plane"
        ]
    );
    assert_eq!(
        refusal(&[&good[..], &[0]].concat()),
        "streams of 4 bytes in 5"
    );
}

/// A gap of 16 symbols is one nibble, and one that the code does not need is none.
#[test]
fn a_code_is_read_as_it_was_written() {
    for (used, described) in [
        (&[(7u8, 1u8)][..], &[7u8, 7][..]),
        (&[(7, 1), (8, 1)], &[7, 8, 0x11]),
        (&[(0, 1), (16, 1)], &[0, 16, 1, 0, 0, 0, 0, 0, 0, 0, 1]),
        (&[(0, 1), (17, 1)], &[0, 17, 0xF1, 1]),
        (&[(0, 1), (18, 1)], &[0, 18, 0xF1, 0x10]),
        (
            &[(0, 1), (254, 2), (255, 2)],
            &[
                0, 255, 0xF1, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0, 0, 0, 0x20, 2,
            ],
        ),
    ] {
        let mut lengths = [0; 256];
        for (symbol, bits) in used {
            lengths[usize::from(*symbol)] = *bits;
        }
        let code = Code::new(&lengths).unwrap();
        let mut written = Vec::new();
        code.write(&mut written);
        assert_eq!(written, described);
        let mut rest = &written[..];
        let read = read_code(&mut rest).unwrap();
        assert!(rest.is_empty());
        let expected: Vec<Symbol> = code.symbols().to_vec();
        assert_eq!(read.symbols(), expected);
        for len in 0..written.len() {
            assert!(read_code(&mut &written[..len]).is_err());
        }
    }
    // The left-over nibble is zero.
    assert!(read_code(&mut &[7, 9, 0x21, 0x12][..]).is_err());
    assert!(read_code(&mut &[7, 9, 0x21, 0x02][..]).is_ok());
}

/// Elements of `bits` bits: exponents of every kind.
fn elements(bits: u32) -> impl Strategy<Value = Vec<u64>> {
    let exponent_bits = match bits {
        16 => 8,
        32 => 8,
        _ => 11,
    };
    let top = bits - 1 - exponent_bits;
    let element = prop_oneof![
        4 => (0u64..12, any::<u64>()).prop_map(move |(e, rest)| (115 + e) << top | rest & !(((1 << exponent_bits) - 1) << top)),
        1 => any::<u64>(),
        1 => Just(0),
        1 => Just(((1u64 << exponent_bits) - 1) << top),
        1 => Just(1),
    ];
    prop_oneof![
        prop::collection::vec(element.clone(), 0..71),
        prop::collection::vec(element, 1000..1100),
        (any::<u64>(), 0..3000usize).prop_map(|(value, count)| vec![value; count]),
        (0..3u64, 0..20_000usize)
            .prop_map(move |(step, count)| (0..count as u64).map(|i| (i * step) << top).collect()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_is_encoded_comes_back((bits, elements) in prop::sample::select(vec![16, 32, 64]).prop_flat_map(|bits| (Just(bits), elements(bits)))) {
        let source: Vec<u8> = elements.iter().flat_map(|e| e.to_le_bytes()[..bits as usize / 8].to_vec()).collect();
        let mut contexts = Contexts::default();
        let mut frames = Vec::new();
        for isa in Isa::available() {
            let geometry = Geometry { packed_bits: bits, ..geometry(isa) };
            let mut frame = vec![0; source.len() + 100];
            let Some(len) = FloatSplit.encode(geometry, &source, &mut frame, &mut contexts).unwrap() else {
                continue;
            };
            frame.truncate(len);
            let mut back = vec![0xA5; source.len()];
            FloatSplit.decode(geometry, &frame, &mut back, &mut contexts).unwrap();
            prop_assert_eq!(&back, &source);
            let mut short = vec![0; len - 1];
            prop_assert_eq!(FloatSplit.encode(geometry, &source, &mut short, &mut contexts).unwrap(), None);
            frames.push(frame);
        }
        frames.dedup();
        prop_assert!(frames.len() <= 1);
    }

    /// A frame with a few bytes changed is an error or fills its destination, and every kernel says the same.
    #[test]
    fn every_kernel_says_the_same_of_any_frame(
        elements in elements(16),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in 0..3usize,
    ) {
        let source: Vec<u8> = elements.iter().flat_map(|e| e.to_le_bytes()[..2].to_vec()).collect();
        let mut contexts = Contexts::default();
        let mut frame = vec![0; source.len() + 100];
        let Some(len) = FloatSplit.encode(geometry(Isa::Portable), &source, &mut frame, &mut contexts).unwrap() else {
            return Ok(());
        };
        frame.truncate(len - cut.min(len));
        for (at, byte) in changes {
            // The first bytes are those that matter most.
            let at = at.index(frame.len().clamp(1, 40));
            if let Some(changed) = frame.get_mut(at) {
                *changed = byte;
            }
        }
        let mut results = Vec::new();
        for isa in Isa::available() {
            let mut back = vec![0; source.len()];
            let result = FloatSplit.decode(geometry(isa), &frame, &mut back, &mut contexts);
            results.push(result.map(|()| back));
        }
        results.dedup();
        prop_assert_eq!(results.len(), 1);
    }
}
