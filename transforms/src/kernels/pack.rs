//! Fields of K bits: dispatch of packing and unpacking to the implementation of an instruction set.

use crate::element::{ElementType, ValueRange};
use crate::kernels::place::Place;
use crate::kernels::{Isa, convert, portable};

/// Unpacks `count` fields of `bits` bits into elements of `to_bytes` bytes, which must hold them. The first field starts at bit
/// `first_bit` (0..8) of `src`. Returns the range of the values met.
///
/// # Safety
/// `place` has room for `count` elements, at most a block of them, and does not overlap `src`. The machine has `isa`.
///
/// # Panics
/// When `src` does not hold the fields, an element does not hold a field, or `count` is 0.
pub(crate) unsafe fn unpack(
    isa: Isa,
    bits: u32,
    to_bytes: usize,
    src: &[u8],
    first_bit: u32,
    place: &mut Place,
    count: usize,
) -> ValueRange {
    assert!(count > 0 && (1..=32).contains(&bits) && first_bit < 8);
    assert!(bits as usize <= 8 * to_bytes && src.len() >= packed_bytes(bits, first_bit, count));
    debug_assert!(isa.is_available());
    if let (Some(from), 0) = (whole(bits as usize), first_bit) {
        // SAFETY: as below.
        return unsafe { convert::convert(isa, from, to_bytes, src, place, count) };
    }
    // SAFETY: the source was asserted, the destination and the instruction set are promised by the caller.
    unsafe {
        match to_bytes {
            1 => unpack_width::<1>(isa, bits, src, first_bit, place, count),
            2 => unpack_width::<2>(isa, bits, src, first_bit, place, count),
            4 => unpack_width::<4>(isa, bits, src, first_bit, place, count),
            8 => unpack_width::<8>(isa, bits, src, first_bit, place, count),
            _ => unreachable!("integers have 1, 2, 4 or 8 bytes"),
        }
    }
}

/// # Safety
/// As [`unpack`], and its assertions hold.
unsafe fn unpack_width<const W: usize>(
    isa: Isa,
    bits: u32,
    src: &[u8],
    first_bit: u32,
    place: &mut Place,
    count: usize,
) -> ValueRange {
    let mut seen = Seen::NOTHING;

    // Fields before the first one that starts a byte: fewer than 8, as every eighth field of a frame does.
    let starts_byte = |n: &usize| (first_bit as usize + n * bits as usize).is_multiple_of(8);
    let head = (0..8).find(starts_byte).unwrap_or(count).min(count);
    // SAFETY: the first `head` of `count` fields and elements.
    unsafe {
        let met = portable::unpack::<W>(bits, src, first_bit, place.cursor(), head);
        place.advance(head * W);
        seen.add(head, met);
    }
    if head == count {
        return seen.range();
    }
    let src = &src[(first_bit as usize + head * bits as usize) / 8..];
    let count = count - head;

    // SAFETY: what is left of source and place holds `count`; the instruction set is promised by the caller.
    let (done, min, max) = unsafe {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => super::avx512::unpack::<W>(bits, src, place, count),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => super::avx2::unpack::<W>(bits, src, place, count),
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => {
                let met = super::neon::unpack::<W>(bits, src, place.cursor(), count);
                place.advance(met.0 * W);
                (met.0, met.1.into(), met.2.into())
            }
            _ => (0, u64::MAX, 0),
        }
    };
    seen.add(done, (min, max));

    let src = &src[done * bits as usize / 8..];
    let rest = count - done;
    // SAFETY: the elements that the vectors left over; `done` is a multiple of 8, so they start a byte.
    unsafe {
        let met = portable::unpack::<W>(bits, src, 0, place.cursor(), rest);
        place.advance(rest * W);
        seen.add(rest, met);
    }
    seen.range()
}

/// Whether [`pack`] takes elements of `bytes` bytes: those of 8 only where a kernel narrows them on the way.
pub(crate) fn packs(isa: Isa, bytes: usize) -> bool {
    bytes <= 4 || matches!(isa, Isa::Avx2 | Isa::Avx512)
}

/// Packs `count` unsigned elements of `from_bytes` bytes (see [`packs`]) into fields of `bits` bits, the first at a whole byte; the unused
/// bits of the last byte are 0. Returns the range of the values met; when one is over `bits` bits, the fields are of no use, and when
/// one is over 32, the largest returned is some value over 32 bits.
///
/// # Safety
/// `place` has room for `count` fields, at most a block of them, and does not overlap `src`. The machine has `isa`.
///
/// # Panics
/// When `src` is too short, or `count` is 0.
pub(crate) unsafe fn pack(
    isa: Isa,
    bits: u32,
    from_bytes: usize,
    src: &[u8],
    place: &mut Place,
    count: usize,
) -> ValueRange {
    debug_assert!(isa.is_available());
    assert!(count > 0 && (1..=32).contains(&bits));
    assert!(src.len() / from_bytes >= count && packs(isa, from_bytes));
    // AVX-512 brings several vectors of elements together in one of bytes: better than one store for each.
    let bytes_by_hand = isa == Isa::Avx512 && bits == 8 && from_bytes > 1;
    if let (Some(from), Some(to), false) =
        (whole(8 * from_bytes), whole(bits as usize), bytes_by_hand)
    {
        // SAFETY: as below.
        return unsafe { convert::convert(isa, from, to.bytes(), src, place, count) };
    }
    // SAFETY: the source was asserted, the place and the instruction set are promised by the caller.
    unsafe {
        match from_bytes {
            1 => pack_width::<1>(isa, bits, src, place, count),
            2 => pack_width::<2>(isa, bits, src, place, count),
            4 => pack_width::<4>(isa, bits, src, place, count),
            8 => pack_width::<8>(isa, bits, src, place, count),
            _ => unreachable!("integers have 1, 2, 4 or 8 bytes"),
        }
    }
}

/// # Safety
/// As [`pack`], and its assertions hold.
unsafe fn pack_width<const W: usize>(
    isa: Isa,
    bits: u32,
    src: &[u8],
    place: &mut Place,
    count: usize,
) -> ValueRange {
    let mut seen = Seen::NOTHING;
    let bytes = packed_bytes(bits, 0, count);
    // SAFETY: source and place hold `count`, and the machine has the instruction set, as the caller promises.
    let (done, min, max) = unsafe {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => super::avx512::pack::<W>(bits, src, place, count),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => super::avx2::pack::<W>(bits, src, place, count),
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => {
                let met = super::neon::pack::<W>(bits, src, place.next(bytes), count);
                place.advance(packed_bytes(bits, 0, met.0));
                (met.0, met.1.into(), met.2.into())
            }
            _ => (0, u64::MAX, 0),
        }
    };
    seen.add(done, (min, max));

    let (src, rest) = (&src[done * W..], count - done);
    // A multiple of 8 fields is done: whole bytes.
    let bytes = bytes - packed_bytes(bits, 0, done);
    // SAFETY: the fields that the vectors left over.
    unsafe {
        let met = portable::pack::<W>(bits, src, place.next(bytes), rest);
        place.advance(bytes);
        seen.add(rest, met);
    }
    seen.range()
}

/// The integer that a field of `bits` bits is, when there is one: it is moved faster as such.
fn whole(bits: usize) -> Option<ElementType> {
    match bits {
        8 => Some(ElementType::U8),
        16 => Some(ElementType::U16),
        32 => Some(ElementType::U32),
        64 => Some(ElementType::U64),
        _ => None,
    }
}

/// The smallest and largest value so far.
struct Seen {
    min: u64,
    max: u64,
}

impl Seen {
    const NOTHING: Seen = Seen {
        min: u64::MAX,
        max: 0,
    };

    /// Adds what a loop over `count` values met.
    fn add(&mut self, count: usize, (min, max): (u64, u64)) {
        if count > 0 {
            self.min = self.min.min(min);
            self.max = self.max.max(max);
        }
    }

    fn range(&self) -> ValueRange {
        ValueRange {
            min: self.min.into(),
            max: self.max.into(),
        }
    }
}

/// Bytes that hold `count` fields of `bits` bits behind `first_bit` other bits.
fn packed_bytes(bits: u32, first_bit: u32, count: usize) -> usize {
    (first_bit as usize + bits as usize * count).div_ceil(8)
}
