//! Integer type to integer type with AVX-512. Each step works on one vector of the wider of the two types.

use std::arch::x86_64::*;
use std::ptr;

use super::avx512_extent::Extent;
use super::convert::NOTHING;
use super::place::Place;
use super::{prefetch, prefetch_wide};
use crate::element::{ElementType, ValueRange};
use crate::kernels::reference;

/// See [`super::convert::convert`].
///
/// # Safety
/// The machine has the features; `src` is readable for `count > 0` integers of type `from`, and `place` has room for `count` of
/// `to_bytes` bytes.
pub(super) unsafe fn convert(
    from: ElementType,
    to_bytes: usize,
    src: *const u8,
    place: &mut Place,
    count: usize,
) -> ValueRange {
    macro_rules! run {
        ($from:literal, $to:literal, $wide:literal) => {
            if from.is_signed_integer() {
                // SAFETY: passed on to the caller.
                unsafe { convert_width::<$from, $to, $wide, true>(src, place, count) }
            } else {
                // SAFETY: passed on to the caller.
                unsafe { convert_width::<$from, $to, $wide, false>(src, place, count) }
            }
        };
    }
    let met = match (from.bytes(), to_bytes) {
        (1, 1) => run!(1, 1, 1),
        (1, 2) => run!(1, 2, 2),
        (1, 4) => run!(1, 4, 4),
        (1, 8) => run!(1, 8, 8),
        (2, 1) => run!(2, 1, 2),
        (2, 2) => run!(2, 2, 2),
        (2, 4) => run!(2, 4, 4),
        (2, 8) => run!(2, 8, 8),
        (4, 1) => run!(4, 1, 4),
        (4, 2) => run!(4, 2, 4),
        (4, 4) => run!(4, 4, 4),
        (4, 8) => run!(4, 8, 8),
        (8, 1) => run!(8, 1, 8),
        (8, 2) => run!(8, 2, 8),
        (8, 4) => run!(8, 4, 8),
        (8, 8) => run!(8, 8, 8),
        _ => unreachable!("integers have 1, 2, 4 or 8 bytes"),
    };
    let mut seen = met.range;
    for i in met.done..count {
        // SAFETY: one of the elements that the vectors left over, on both sides.
        unsafe {
            let value = element(from, src, i, &mut seen);
            ptr::copy_nonoverlapping(
                reference::low_bytes(value).as_ptr(),
                place.cursor(),
                to_bytes,
            );
            place.advance(to_bytes);
        }
    }
    seen.unwrap_or(NOTHING)
}

/// See [`super::convert::extent`].
///
/// # Safety
/// The machine has the features; `src` is readable for `count > 0` integers of type `from`.
pub(super) unsafe fn extent(from: ElementType, src: *const u8, count: usize) -> ValueRange {
    macro_rules! run {
        ($bytes:literal) => {
            if from.is_signed_integer() {
                // SAFETY: passed on to the caller.
                unsafe { extent_width::<$bytes, true>(src, count) }
            } else {
                // SAFETY: passed on to the caller.
                unsafe { extent_width::<$bytes, false>(src, count) }
            }
        };
    }
    let met = match from.bytes() {
        1 => run!(1),
        2 => run!(2),
        4 => run!(4),
        _ => run!(8),
    };
    let mut seen = met.range;
    for i in met.done..count {
        // SAFETY: one of the elements that the vectors left over.
        unsafe { element(from, src, i, &mut seen) };
    }
    seen.unwrap_or(NOTHING)
}

/// Element `index`, which is added to what was seen.
///
/// # Safety
/// `src` is readable for it.
unsafe fn element(
    from: ElementType,
    src: *const u8,
    index: usize,
    seen: &mut Option<ValueRange>,
) -> i128 {
    // SAFETY: promised by the caller.
    let bytes = unsafe { std::slice::from_raw_parts(src.add(index * from.bytes()), from.bytes()) };
    let value = reference::whole(from, bytes);
    let range = ValueRange {
        min: value,
        max: value,
    };
    super::widen(seen, range);
    value
}

/// What the vectors did and met.
struct Met {
    done: usize,
    range: Option<ValueRange>,
}

/// Whole vectors of `WIDE`-byte lanes, `WIDE` being the larger of `FROM` and `TO`.
///
/// # Safety
/// As [`convert`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
unsafe fn convert_width<
    const FROM: usize,
    const TO: usize,
    const WIDE: usize,
    const SIGNED: bool,
>(
    src: *const u8,
    place: &mut Place,
    count: usize,
) -> Met {
    let per_vector = 64 / WIDE;
    let vectors = count / per_vector;
    let mut extent = Extent::<WIDE, SIGNED>::nothing();
    let mut pen = place.pen();
    for i in 0..vectors {
        // SAFETY: vector `i` has `per_vector` elements on both sides.
        unsafe {
            let from = src.add(i * per_vector * FROM);
            if FROM > TO {
                prefetch_wide(from);
            } else {
                prefetch(from);
            }
            let values = load::<FROM, WIDE, SIGNED>(from);
            extent.add(values);
            store::<WIDE, TO>(pen.at(), values);
            pen.advance(per_vector * TO, place);
        }
    }
    place.put_back(pen);
    Met {
        done: vectors * per_vector,
        range: (vectors > 0).then(|| range(&extent)),
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
unsafe fn extent_width<const WIDE: usize, const SIGNED: bool>(src: *const u8, count: usize) -> Met {
    let per_vector = 64 / WIDE;
    let vectors = count / per_vector;
    let mut extent = Extent::<WIDE, SIGNED>::nothing();
    for i in 0..vectors {
        // SAFETY: vector `i` has 64 bytes.
        unsafe {
            let from = src.add(i * 64);
            prefetch_wide(from);
            extent.add(_mm512_loadu_si512(from.cast()));
        }
    }
    Met {
        done: vectors * per_vector,
        range: (vectors > 0).then(|| range(&extent)),
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
fn range<const WIDE: usize, const SIGNED: bool>(extent: &Extent<WIDE, SIGNED>) -> ValueRange {
    let (min, max) = (extent.min(), extent.max());
    if SIGNED {
        ValueRange {
            min: min.cast_signed().into(),
            max: max.cast_signed().into(),
        }
    } else {
        ValueRange {
            min: min.into(),
            max: max.into(),
        }
    }
}

/// Loads `64 / WIDE` elements of `FROM` bytes, and extends them to lanes of `WIDE` bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
unsafe fn load<const FROM: usize, const WIDE: usize, const SIGNED: bool>(
    from: *const u8,
) -> __m512i {
    // SAFETY: exactly 64 / WIDE * FROM bytes are loaded.
    unsafe {
        match (FROM, WIDE, SIGNED) {
            (1, 2, false) => _mm512_cvtepu8_epi16(_mm256_loadu_si256(from.cast())),
            (1, 2, true) => _mm512_cvtepi8_epi16(_mm256_loadu_si256(from.cast())),
            (1, 4, false) => _mm512_cvtepu8_epi32(_mm_loadu_si128(from.cast())),
            (1, 4, true) => _mm512_cvtepi8_epi32(_mm_loadu_si128(from.cast())),
            (1, 8, false) => _mm512_cvtepu8_epi64(_mm_loadl_epi64(from.cast())),
            (1, 8, true) => _mm512_cvtepi8_epi64(_mm_loadl_epi64(from.cast())),
            (2, 4, false) => _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast())),
            (2, 4, true) => _mm512_cvtepi16_epi32(_mm256_loadu_si256(from.cast())),
            (2, 8, false) => _mm512_cvtepu16_epi64(_mm_loadu_si128(from.cast())),
            (2, 8, true) => _mm512_cvtepi16_epi64(_mm_loadu_si128(from.cast())),
            (4, 8, false) => _mm512_cvtepu32_epi64(_mm256_loadu_si256(from.cast())),
            (4, 8, true) => _mm512_cvtepi32_epi64(_mm256_loadu_si256(from.cast())),
            _ => _mm512_loadu_si512(from.cast()),
        }
    }
}

/// Stores the low `TO` bytes of each lane of `WIDE` bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
unsafe fn store<const WIDE: usize, const TO: usize>(to: *mut u8, values: __m512i) {
    // SAFETY: exactly 64 / WIDE * TO bytes are stored.
    unsafe {
        match (WIDE, TO) {
            (2, 1) => _mm256_storeu_si256(to.cast(), _mm512_cvtepi16_epi8(values)),
            (4, 1) => _mm_storeu_si128(to.cast(), _mm512_cvtepi32_epi8(values)),
            (4, 2) => _mm256_storeu_si256(to.cast(), _mm512_cvtepi32_epi16(values)),
            (8, 1) => _mm_storel_epi64(to.cast(), _mm512_cvtepi64_epi8(values)),
            (8, 2) => _mm_storeu_si128(to.cast(), _mm512_cvtepi64_epi16(values)),
            (8, 4) => _mm256_storeu_si256(to.cast(), _mm512_cvtepi64_epi32(values)),
            _ => _mm512_storeu_si512(to.cast(), values),
        }
    }
}
