//! The loops that move bits, one implementation per instruction set, all tested against one scalar reference.
//!
//! Contract of every kernel: it is given enough bytes on both sides, it writes the destination and never reads it, it
//! keeps the low bits of each value, and it returns the smallest and largest value that it met. Whether they are allowed is the
//! caller's question: it asks once per [`BLOCK_ELEMENTS`], and looks for the exact element only when the answer is no.

#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx2_dense;
#[cfg(target_arch = "x86_64")]
mod avx2_extent;
#[cfg(target_arch = "x86_64")]
mod avx2_floats;
#[cfg(target_arch = "x86_64")]
mod avx2_narrow;
#[cfg(target_arch = "x86_64")]
mod avx2_q8;
#[cfg(target_arch = "x86_64")]
mod avx2_rows;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod avx512_convert;
#[cfg(target_arch = "x86_64")]
mod avx512_dense;
#[cfg(target_arch = "x86_64")]
mod avx512_extent;
#[cfg(target_arch = "x86_64")]
mod avx512_floats;
#[cfg(target_arch = "x86_64")]
mod avx512_q8;
#[cfg(target_arch = "x86_64")]
mod avx512_rows;
#[cfg(target_arch = "x86_64")]
mod avx512_transpose;
pub(crate) mod convert;
pub(crate) mod dense;
#[cfg(target_arch = "x86_64")]
mod float_kernels;
pub(crate) mod floats;
pub(crate) mod huffman;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(target_arch = "aarch64")]
mod neon_dense;
#[cfg(target_arch = "aarch64")]
mod neon_q8;
#[cfg(target_arch = "aarch64")]
mod neon_rotated;
#[cfg(target_arch = "aarch64")]
mod neon_rows;
pub(crate) mod pack;
pub(crate) mod place;
mod portable;
pub(crate) mod q8;
pub(crate) mod reference;
pub(crate) mod rotated;
pub(crate) mod rows;
mod tables;
pub(crate) mod transpose;

#[cfg(test)]
mod tests;

use crate::element::ValueRange;

/// Elements between two range checks. A multiple of 64, so that each block of packed bits starts at a whole byte and a whole
/// vector; small enough that the block is still in the cache when the exact element is looked for.
pub(crate) const BLOCK_ELEMENTS: usize = 4096;

/// An instruction set for which kernels are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Isa {
    /// Plain Rust, compiled for the target's baseline.
    Portable,
    /// AVX2 with BMI1, BMI2, F16C, LZCNT and POPCNT (Haswell and later).
    Avx2,
    /// AVX-512 F, BW, VL, DQ, VBMI and VBMI2 (Ice Lake and later).
    Avx512,
    /// NEON (every aarch64).
    Neon,
}

impl Isa {
    /// Every instruction set that this machine has, the best last.
    #[must_use]
    pub fn available() -> Vec<Isa> {
        [Isa::Portable, Isa::Neon, Isa::Avx2, Isa::Avx512]
            .into_iter()
            .filter(|isa| isa.is_available())
            .collect()
    }

    /// The best that this machine has.
    #[must_use]
    pub fn best() -> Isa {
        for isa in [Isa::Avx512, Isa::Avx2, Isa::Neon] {
            if isa.is_available() {
                return isa;
            }
        }
        Isa::Portable
    }

    /// Whether this machine has it. (Detection is cached by the standard library.)
    #[must_use]
    pub fn is_available(self) -> bool {
        match self {
            Isa::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("bmi1")
                    && is_x86_feature_detected!("bmi2")
                    && is_x86_feature_detected!("f16c")
                    && is_x86_feature_detected!("lzcnt")
                    && is_x86_feature_detected!("popcnt")
            }
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => {
                Isa::Avx2.is_available()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vbmi")
                    && is_x86_feature_detected!("avx512vbmi2")
            }
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => true,
            #[allow(unreachable_patterns)]
            _ => false,
        }
    }
}

/// Asks for the source line that a kernel will reach in a while. The hardware looks ahead only within a page; a third of the
/// throughput from memory is lost without this.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn prefetch(at: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    const AHEAD_BYTES: usize = 2048;
    // SAFETY: a prefetch of any address is harmless; SSE is part of every x86-64.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(AHEAD_BYTES).cast()) };
}

/// The same for kernels that read more than they write: from further away, and not into the first cache, whose few outstanding
/// loads are what limits them.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn prefetch_wide(at: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
    const AHEAD_BYTES: usize = 4096;
    // SAFETY: as above.
    unsafe { _mm_prefetch::<_MM_HINT_T1>(at.wrapping_add(AHEAD_BYTES).cast()) };
}

/// Folds what a kernel met in one block into what it met so far.
pub(crate) fn widen(seen: &mut Option<ValueRange>, block: ValueRange) {
    *seen = Some(match seen {
        Some(seen) => seen.union(&block),
        None => block,
    });
}
