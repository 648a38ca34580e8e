//! Every implementation of every kernel, each forced in turn, against the scalar reference.

#![allow(clippy::cast_possible_truncation)] // test values are cut to width on purpose

use super::place::{FAR_BYTES_MIN, Place};
use super::*;
use crate::element::{ElementType, Packing};

/// A fixed sequence of numbers without pattern (splitmix64), so that a failure is the same on every machine.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next().to_le_bytes()[3]).collect()
    }
}

/// Counts around every vector length, and one with many vectors.
const COUNTS: [usize; 13] = [1, 2, 7, 8, 9, 15, 16, 31, 33, 63, 64, 129, 1000];

fn range_of(values: &[i128]) -> ValueRange {
    ValueRange {
        min: *values.iter().min().unwrap(),
        max: *values.iter().max().unwrap(),
    }
}

#[test]
fn unpack_is_the_reference_at_every_width_bit_and_count() {
    let mut numbers = Numbers(1);
    for isa in Isa::available() {
        for bits in 1..=32 {
            for to_bytes in [1, 2, 4, 8] {
                if bits as usize > 8 * to_bytes {
                    continue;
                }
                for first_bit in 0..8 {
                    for count in COUNTS {
                        unpack_case(isa, bits, to_bytes, first_bit, count, &mut numbers);
                    }
                }
            }
        }
    }
}

fn unpack_case(
    isa: Isa,
    bits: u32,
    to_bytes: usize,
    first_bit: u32,
    count: usize,
    numbers: &mut Numbers,
) {
    // Exactly the bytes that hold the fields, so that a read behind them is behind the allocation.
    let src = numbers.bytes((first_bit as usize + bits as usize * count).div_ceil(8));
    let values: Vec<i128> = (0..count as u64)
        .map(|i| reference::field(bits, &src, u64::from(first_bit) + i * u64::from(bits)))
        .collect();
    // One element of guard, and an odd address.
    let mut out = vec![0xEE; 1 + (count + 1) * to_bytes];
    // SAFETY: `out` has `count` elements behind its first byte.
    let met = unsafe {
        let mut place = Place::new(isa, out.as_mut_ptr().add(1), count * to_bytes);
        pack::unpack(isa, bits, to_bytes, &src, first_bit, &mut place, count)
    };
    let what = format!("{isa:?} K={bits} to {to_bytes} bytes, bit {first_bit}, {count} fields");
    for (i, value) in values.iter().enumerate() {
        let element = &out[1 + i * to_bytes..][..to_bytes];
        assert_eq!(
            element,
            &value.to_le_bytes()[..to_bytes],
            "{what}, field {i}"
        );
    }
    assert_eq!(out[0], 0xEE, "{what}: wrote in front of the destination");
    assert!(
        out[1 + count * to_bytes..].iter().all(|b| *b == 0xEE),
        "{what}: wrote behind the destination"
    );
    assert_eq!(met, range_of(&values), "{what}");
}

#[test]
fn pack_is_read_back_by_the_reference_at_every_width_and_count() {
    let mut numbers = Numbers(2);
    for isa in Isa::available() {
        for bits in 1..=32u32 {
            for from_bytes in [1usize, 2, 4, 8] {
                if !pack::packs(isa, from_bytes) {
                    continue;
                }
                for count in COUNTS {
                    let mask = u64::MAX >> (64 - bits.min(8 * from_bytes as u32));
                    let values: Vec<u64> = (0..count).map(|_| numbers.next() & mask).collect();
                    let src: Vec<u8> = values
                        .iter()
                        .flat_map(|v| v.to_le_bytes()[..from_bytes].to_vec())
                        .collect();
                    let len = (bits as usize * count).div_ceil(8);
                    let mut out = vec![0xEE; len];
                    // SAFETY: `out` has room for the fields; `isa` is available.
                    let met = unsafe {
                        let mut place = Place::new(isa, out.as_mut_ptr(), len);
                        pack::pack(isa, bits, from_bytes, &src, &mut place, count)
                    };

                    let what = format!("{isa:?} K={bits} from {from_bytes} bytes, {count} fields");
                    let values: Vec<i128> = values.into_iter().map(i128::from).collect();
                    let back: Vec<i128> = (0..count as u64)
                        .map(|i| reference::field(bits, &out, i * u64::from(bits)))
                        .collect();
                    assert_eq!(back, values, "{what}");
                    assert_eq!(met, range_of(&values), "{what}");
                    let used = bits as usize * count % 8;
                    if used > 0 {
                        assert_eq!(out[len - 1] >> used, 0, "{what}: padding");
                    }
                }
            }
        }
    }
}

#[test]
fn pack_meets_values_that_do_not_fit() {
    for isa in Isa::available() {
        for bits in 1..32u32 {
            for from_bytes in [1usize, 2, 4, 8] {
                if bits as usize >= 8 * from_bytes || !pack::packs(isa, from_bytes) {
                    continue;
                }
                for place in 0..130 {
                    let mut src = vec![0u8; 130 * from_bytes];
                    let too_large = 1u64 << bits;
                    src[place * from_bytes..][..from_bytes]
                        .copy_from_slice(&too_large.to_le_bytes()[..from_bytes]);
                    let mut out = vec![0; 130 * 4];
                    // SAFETY: `out` has room for the fields; `isa` is available.
                    let met = unsafe {
                        let mut place = Place::new(isa, out.as_mut_ptr(), out.len());
                        pack::pack(isa, bits, from_bytes, &src, &mut place, 130)
                    };
                    assert_eq!(
                        met.max,
                        i128::from(too_large),
                        "{isa:?} K={bits} at {place}"
                    );
                }
            }
        }
    }
}

#[test]
fn pack_meets_values_over_32_bits() {
    for isa in Isa::available() {
        if !pack::packs(isa, 8) {
            continue;
        }
        for bits in 1..=32u32 {
            for place in 0..130 {
                for bit in [32, 47, 63] {
                    let mut src = vec![0u8; 130 * 8];
                    src[place * 8..][..8].copy_from_slice(&(1u64 << bit).to_le_bytes());
                    let mut out = vec![0; 130 * 4];
                    // SAFETY: `out` has room for the fields; `isa` is available.
                    let met = unsafe {
                        let mut place = Place::new(isa, out.as_mut_ptr(), out.len());
                        pack::pack(isa, bits, 8, &src, &mut place, 130)
                    };
                    let over = i128::from(u32::MAX) + 1;
                    assert!(met.max >= over, "{isa:?} K={bits} at {place}, bit {bit}");
                }
            }
        }
    }
}

#[test]
fn convert_is_the_reference_for_every_pair_of_types() {
    let mut numbers = Numbers(3);
    for isa in Isa::available() {
        for from in ElementType::INTEGERS {
            for to in ElementType::INTEGERS {
                for count in COUNTS {
                    let src = numbers.bytes(count * from.bytes());
                    let values: Vec<i128> = (0..count)
                        .map(|i| reference::whole(from, &src[i * from.bytes()..]))
                        .collect();
                    let mut out = vec![0xEE; 1 + (count + 1) * to.bytes()];
                    // SAFETY: `out` has `count` elements behind its first byte.
                    let met = unsafe {
                        let dst = out.as_mut_ptr().add(1);
                        let mut place = Place::new(isa, dst, count * to.bytes());
                        convert::convert(isa, from, to.bytes(), &src, &mut place, count)
                    };
                    let what = format!("{isa:?} {from} to {to}, {count} elements");
                    for (i, value) in values.iter().enumerate() {
                        let element = &out[1 + i * to.bytes()..][..to.bytes()];
                        assert_eq!(element, &value.to_le_bytes()[..to.bytes()], "{what}, {i}");
                    }
                    assert!(out[1 + count * to.bytes()..].iter().all(|b| *b == 0xEE));
                    assert_eq!(met, range_of(&values), "{what}");
                    assert_eq!(convert::extent(isa, from, &src, count), met, "{what}");
                }
            }
        }
    }
}

/// What a kernel does with a place of `len` bytes at `dst`, of a result that counts as one of `bytes`.
fn written(len: usize, bytes: usize, isa: Isa, kernel: impl Fn(&mut Place)) -> Vec<u8> {
    const GUARD: usize = 64;
    let mut out = vec![0xEE; GUARD + len + GUARD];
    // SAFETY: the kernels here write `len` bytes, which `out` has behind the guard; the instruction set is available.
    let mut place = unsafe { Place::new(isa, out.as_mut_ptr().add(GUARD), bytes) };
    kernel(&mut place);
    drop(place);
    assert!(out[..GUARD].iter().all(|b| *b == 0xEE), "in front of it");
    assert!(out[GUARD + len..].iter().all(|b| *b == 0xEE), "behind it");
    out[GUARD..][..len].to_vec()
}

#[test]
fn kernels_write_the_same_past_the_cache() {
    let src = Numbers(5).bytes(8 * BLOCK_ELEMENTS);
    for isa in Isa::available() {
        for count in [1, 64, 1000, BLOCK_ELEMENTS] {
            let both = |len: usize, what: String, kernel: &dyn Fn(&mut Place)| {
                let near = written(len, len, isa, kernel);
                let far = written(len, FAR_BYTES_MIN, isa, kernel);
                assert!(near == far, "{isa:?} {what}, {count} elements");
            };
            for bits in 1..=32u32 {
                let len = (bits as usize * count).div_ceil(8);
                for bytes in [1, 2, 4, 8] {
                    if !pack::packs(isa, bytes) {
                        continue;
                    }
                    let what = format!("K={bits} from {bytes} bytes");
                    let mask = u32::MAX >> (32 - bits.min(8 * bytes as u32));
                    let elements = src.chunks_exact(4).flat_map(|v| {
                        let value = u32::from_le_bytes([v[0], v[1], v[2], v[3]]) & mask;
                        u64::from(value).to_le_bytes()[..bytes].to_vec()
                    });
                    let elements: Vec<u8> = elements.take(count * bytes).collect();
                    // SAFETY: a place of `len` bytes has room for `count` fields; `isa` is available.
                    both(len, what, &|place| unsafe {
                        pack::pack(isa, bits, bytes, &elements, place, count);
                    });
                }
                for bytes in [1, 2, 4, 8] {
                    if bits as usize > 8 * bytes {
                        continue;
                    }
                    let what = format!("K={bits} to {bytes} bytes");
                    // SAFETY: a place of `count * bytes` bytes has room for `count` elements; `isa` is available.
                    both(count * bytes, what, &|place| unsafe {
                        pack::unpack(isa, bits, bytes, &src[..len], 0, place, count);
                    });
                }
            }
            for from in ElementType::FLOATS {
                for to in ElementType::FLOATS {
                    let what = format!("{from} to {to}");
                    // SAFETY: as above.
                    both(count * to.bytes(), what, &|place| unsafe {
                        floats::convert(isa, from, to, &src, place, count);
                    });
                }
            }
            for (from, to) in [
                (ElementType::U64, 1),
                (ElementType::I16, 8),
                (ElementType::U32, 4),
                (ElementType::U16, 2),
                (ElementType::U8, 1),
            ] {
                // SAFETY: as above.
                both(
                    count * to,
                    format!("{from} to {to} bytes"),
                    &|place| unsafe {
                        convert::convert(isa, from, to, &src, place, count);
                    },
                );
            }
        }
    }
}

#[test]
fn split_and_join_are_the_definition_and_its_inverse() {
    let mut numbers = Numbers(4);
    for isa in Isa::available() {
        for width in [2, 3, 4, 8] {
            for count in COUNTS {
                let src = numbers.bytes(count * width);
                let mut planes = vec![0; src.len()];
                transpose::split(isa, width, &src, &mut planes);
                for (i, byte) in src.iter().enumerate() {
                    let (element, plane) = (i / width, i % width);
                    assert_eq!(planes[plane * count + element], *byte, "{isa:?} {width}");
                }
                let mut back = vec![0; src.len()];
                transpose::join(isa, width, &planes, &mut back);
                assert_eq!(back, src, "{isa:?} width {width}, {count} elements");
            }
        }
    }
}

#[test]
fn the_reference_reads_what_is_written_here() {
    // 3-bit fields 1, 2, 3, 4, 5, 6, 7, 0: bits from the least significant on.
    let bytes = [0b1101_0001, 0b0101_1000, 0b0001_1111];
    let fields: Vec<i128> = (0..8).map(|i| reference::field(3, &bytes, 3 * i)).collect();
    assert_eq!(fields, [1, 2, 3, 4, 5, 6, 7, 0]);
    assert_eq!(reference::whole(ElementType::I16, &[0xFE, 0xFF]), -2);
    assert_eq!(reference::whole(ElementType::U16, &[0xFE, 0xFF]), 65_534);
    let packing = Packing::Whole(ElementType::I64);
    assert_eq!(
        reference::element(packing, &[0, 0, 0, 0, 0, 0, 0, 0x80], 0),
        i128::from(i64::MIN)
    );
}
