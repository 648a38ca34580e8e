//! The CRC-32C of bytes while those that come next are fetched into the cache: memory works while the processor calculates.
//!
//! The kernel is four vectors that are folded by turns (V. Gopal et al., *Fast CRC Computation for Generic Polynomials Using PCLMULQDQ*, 2009). Where the machine
//! lacks it, crc-fast does the sums and lines are asked for between them.

#![allow(unsafe_code)]

use super::Crc32c;

/// How far behind a byte those are that are fetched with it: what is checked and decoded together of 16-bit fields, so that the next part is there when
/// this one is presented, and both lie in a core's first cache beside what is presented.
const AHEAD_BYTES: usize = 8 << 10;

/// Bytes of which one sum is made between two fetches, without a kernel.
const STEP_BYTES: usize = 2 << 10;

const LINE_BYTES: usize = 64;

/// The CRC-32C of the first `len` of `bytes`. The others are those that will be wanted next.
///
/// # Panics
/// When there are fewer.
pub(super) fn crc32c(bytes: &[u8], len: usize) -> u32 {
    let (front, ahead) = (&bytes[..len], bytes.get(AHEAD_BYTES..).unwrap_or_default());
    #[cfg(target_arch = "x86_64")]
    if avx512::is_available() {
        // SAFETY: the machine has the features.
        return unsafe { avx512::crc32c(front, ahead) };
    }
    portable(front, ahead)
}

fn portable(front: &[u8], ahead: &[u8]) -> u32 {
    let mut crc = Crc32c::new();
    let mut ahead = ahead.chunks(STEP_BYTES);
    for step in front.chunks(STEP_BYTES) {
        for line in ahead.next().unwrap_or_default().chunks(LINE_BYTES) {
            fetch(line);
        }
        crc.update(step);
    }
    crc.value()
}

/// Asks for the cache line of the first byte.
#[inline(always)]
fn fetch(line: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch of any address is harmless; SSE is part of every x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above; it changes neither memory nor flags.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) line.as_ptr(), options(nostack, readonly, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = line;
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use std::arch::x86_64::*;

    use super::{LINE_BYTES, fetch};

    /// Bits of a lane that is folded by itself, of a vector, and of all vectors.
    const LANE_BITS: u32 = 128;
    const VECTOR_BITS: u32 = 512;
    const VECTORS: usize = 4;
    const BLOCK_BITS: u32 = 2048;
    const BLOCK_BYTES: usize = BLOCK_BITS as usize / 8;
    const _: () = assert!(VECTORS * VECTOR_BITS as usize == BLOCK_BITS as usize);

    /// What a vector's lanes are multiplied by, the halves of each by factors of their own.
    type Factors = [u64; 8];

    /// By which each lane is moved over a block.
    static OVER_A_BLOCK: Factors = factors([BLOCK_BITS; 4]);

    /// By which each lane of the last block is moved to where the last lane is; that one stays.
    static TO_THE_LAST: [Factors; VECTORS] = {
        let mut all = [[0; 8]; VECTORS];
        let (mut vector, mut behind) = (0, BLOCK_BITS);
        while vector < VECTORS {
            let last = behind - LANE_BITS;
            let bits = [
                last,
                last - LANE_BITS,
                last - 2 * LANE_BITS,
                last - 3 * LANE_BITS,
            ];
            all[vector] = factors(bits);
            behind -= VECTOR_BITS;
            vector += 1;
        }
        all
    };

    /// What moves each lane over so many bits; zeros where it is 0. The product of a half, 64 bits, and a factor of 32 lies 33 bits further on already, bits being turned
    /// round; and the first half of a lane has 64 bits more to go than the second.
    const fn factors(bits: [u32; 4]) -> Factors {
        let mut factors = [0; 8];
        let mut lane = 0;
        while lane < 4 {
            if bits[lane] > 0 {
                factors[2 * lane] = power_of_x(bits[lane] + 64 - 33) as u64;
                factors[2 * lane + 1] = power_of_x(bits[lane] - 33) as u64;
            }
            lane += 1;
        }
        factors
    }

    /// x^n modulo the polynomial, its highest power in bit 0.
    const fn power_of_x(n: u32) -> u32 {
        const CRC_32C: u32 = 0x82F6_3B78;
        let mut power = 1u32 << 31;
        let mut i = 0;
        while i < n {
            power = (power >> 1) ^ ((power & 1) * CRC_32C);
            i += 1;
        }
        power
    }

    pub(super) fn is_available() -> bool {
        is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("vpclmulqdq")
            && is_x86_feature_detected!("sse4.2")
    }

    /// The CRC-32C of `front`, while as much of `ahead` is fetched.
    #[target_feature(enable = "avx512f,avx512vl,vpclmulqdq,sse4.2")]
    pub(super) fn crc32c(front: &[u8], ahead: &[u8]) -> u32 {
        let (blocks, rest) = front.as_chunks::<BLOCK_BYTES>();
        let mut crc = !0;
        if let [first, blocks @ ..] = blocks {
            let mut ahead = ahead.chunks(BLOCK_BYTES);
            let by = load(&OVER_A_BLOCK);
            let mut v = vectors(first);
            let begun = _mm512_castsi128_si512(_mm_cvtsi32_si128(-1));
            v[0] = _mm512_xor_si512(v[0], begun);
            for block in blocks {
                for line in ahead.next().unwrap_or_default().chunks(LINE_BYTES) {
                    fetch(line);
                }
                let next = vectors(block);
                for i in 0..VECTORS {
                    v[i] = fold(v[i], by, next[i]);
                }
            }
            for line in ahead.next().unwrap_or_default().chunks(LINE_BYTES) {
                fetch(line);
            }
            crc = reduce(v);
        }
        let (words, bytes) = rest.as_chunks();
        for word in words {
            crc = with_word(crc, u64::from_le_bytes(*word));
        }
        !bytes.iter().fold(crc, |crc, byte| _mm_crc32_u8(crc, *byte))
    }

    /// The remainder of the vectors.
    #[target_feature(enable = "avx512f,avx512vl,vpclmulqdq,sse4.2")]
    fn reduce(v: [__m512i; VECTORS]) -> u32 {
        const LAST_LANE: __mmask8 = 0b1100_0000;
        let mut sum = _mm512_maskz_mov_epi64(LAST_LANE, v[VECTORS - 1]);
        for (v, factors) in v.into_iter().zip(&TO_THE_LAST) {
            sum = fold(v, load(factors), sum);
        }
        let upper = _mm512_extracti64x4_epi64::<1>(sum);
        let sum = _mm256_xor_si256(_mm512_castsi512_si256(sum), upper);
        let upper = _mm256_extracti128_si256::<1>(sum);
        let sum = _mm_xor_si128(_mm256_castsi256_si128(sum), upper);
        let crc = with_word(0, _mm_cvtsi128_si64(sum).cast_unsigned());
        with_word(crc, _mm_extract_epi64::<1>(sum).cast_unsigned())
    }

    /// The lanes of `v` multiplied, added to `next`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512vl,vpclmulqdq")]
    fn fold(v: __m512i, by: __m512i, next: __m512i) -> __m512i {
        const XOR_OF_THREE: i32 = 0x96;
        let lower = _mm512_clmulepi64_epi128::<0x00>(v, by);
        let upper = _mm512_clmulepi64_epi128::<0x11>(v, by);
        _mm512_ternarylogic_epi64::<XOR_OF_THREE>(lower, upper, next)
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn vectors(block: &[u8; BLOCK_BYTES]) -> [__m512i; VECTORS] {
        // SAFETY: a block is so many vectors.
        std::array::from_fn(|i| unsafe {
            _mm512_loadu_si512(block.as_ptr().cast::<__m512i>().add(i))
        })
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn load(factors: &Factors) -> __m512i {
        // SAFETY: 64 bytes.
        unsafe { _mm512_loadu_si512(factors.as_ptr().cast()) }
    }

    #[inline]
    #[target_feature(enable = "sse4.2")]
    #[allow(clippy::cast_possible_truncation)] // the upper half of the result is zero
    fn with_word(crc: u32, word: u64) -> u32 {
        _mm_crc32_u64(crc.into(), word) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By the definition, a bit at a time.
    fn reference(bytes: &[u8]) -> u32 {
        let crc = bytes.iter().fold(!0u32, |crc, byte| {
            (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
                (crc >> 1) ^ ((crc & 1) * 0x82F6_3B78)
            })
        });
        !crc
    }

    #[test]
    fn every_length_has_the_sum_of_the_definition_whatever_comes_next() {
        let bytes: Vec<u8> = (0..30_000u32)
            .map(|i| (i.wrapping_mul(i) >> 7).to_le_bytes()[0])
            .collect();
        let lengths = (0..=1100).chain([2047, 2048, 2049, 4095, 4096, 4097, 8192, 20_000]);
        for len in lengths {
            for start in [0, 1, 63] {
                let (rest, expected) = (&bytes[start..], reference(&bytes[start..start + len]));
                assert_eq!(crc32c(rest, len), expected, "{len} from {start}");
                assert_eq!(
                    crc32c(&rest[..len], len),
                    expected,
                    "{len} from {start}, the last"
                );
                assert_eq!(
                    portable(&rest[..len], &rest[len..]),
                    expected,
                    "{len} from {start}, portable"
                );
            }
        }
    }

    #[test]
    fn every_flipped_bit_is_seen() {
        let mut granule = [0x5A; 4096];
        let whole = crc32c(&granule, 4096);
        for bit in 0..8 * granule.len() {
            granule[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(crc32c(&granule, 4096), whole, "bit {bit}");
            granule[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
