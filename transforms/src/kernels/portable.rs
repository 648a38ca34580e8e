//! Bit packing in plain Rust: a 64-bit accumulator.

/// Unpacks `count` fields of `bits` bits, the first at bit `first_bit` (0..8) of `src`, into elements of `W` bytes. Returns the
/// smallest and largest.
///
/// # Safety
/// `src` holds the fields (checked by the caller); `dst` is writable for `count * W` bytes and does not overlap `src`.
pub(super) unsafe fn unpack<const W: usize>(
    bits: u32,
    src: &[u8],
    first_bit: u32,
    dst: *mut u8,
    count: usize,
) -> (u64, u64) {
    let mask = u64::from(u32::MAX >> (32 - bits));
    let (mut min, mut max) = (u64::MAX, 0);
    let mut at = first_bit as usize;
    for i in 0..count {
        let value = field(src, at) & mask;
        at += bits as usize;
        min = min.min(value);
        max = max.max(value);
        let bytes = value.to_le_bytes();
        // SAFETY: `i < count`, and W <= 8 bytes are copied from an array of 8.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), dst.add(i * W), W) };
    }
    (min, max)
}

/// 32 or more bits from bit `at` of `src` on; bits behind its end are 0.
fn field(src: &[u8], at: usize) -> u64 {
    let start = at / 8;
    let word = match src.get(start..start + 8) {
        Some(bytes) => u64::from_le_bytes(bytes.try_into().unwrap_or_default()),
        None => {
            let mut bytes = [0; 8];
            let rest = src.get(start..).unwrap_or(&[]);
            bytes[..rest.len()].copy_from_slice(rest);
            u64::from_le_bytes(bytes)
        }
    };
    word >> (at % 8)
}

/// Packs `count` elements of `W` bytes (zero-extended) into fields of `bits` bits from bit 0 of `dst` on. The unused bits of the
/// last byte are 0. Returns the smallest and largest element.
///
/// # Panics
/// When a slice is too short.
pub(super) fn pack<const W: usize>(
    bits: u32,
    src: &[u8],
    dst: &mut [u8],
    count: usize,
) -> (u64, u64) {
    let mask = u64::from(u32::MAX >> (32 - bits));
    let (mut min, mut max) = (u64::MAX, 0);
    let (mut word, mut held) = (0u64, 0u32);
    let mut out = 0;
    for element in src.chunks_exact(W).take(count) {
        let mut bytes = [0; 8];
        bytes[..W].copy_from_slice(element);
        let value = u64::from_le_bytes(bytes);
        min = min.min(value);
        max = max.max(value);
        word |= (value & mask) << held;
        held += bits;
        if held >= 32 {
            let [a, b, c, d, ..] = word.to_le_bytes();
            dst[out..out + 4].copy_from_slice(&[a, b, c, d]);
            out += 4;
            word >>= 32;
            held -= 32;
        }
    }
    let rest = held.div_ceil(8) as usize;
    dst[out..out + rest].copy_from_slice(&word.to_le_bytes()[..rest]);
    (min, max)
}
