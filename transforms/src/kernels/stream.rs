//! Writing a large result past the cache.
//!
//! An ordinary store first reads the line it writes to. Where the result is far larger than the cache that is a third of the memory
//! traffic, so it is made a tile at a time in the cache and copied out by stores that do not read: `memcpy` does the same.
//! Smaller results stay in the cache: whoever asked for them looks at them next.

use crate::chain::FRAME_BYTES_MAX;
use crate::element::ValueRange;
use crate::kernels::{BLOCK_ELEMENTS, Isa};

/// Results of this many bytes and more are written past the cache. Over every I/O request, and over every frame: those are read
/// again at once.
pub(crate) const BYTES_MIN: usize = 32 << 20;
const _: () = assert!(BYTES_MIN as u64 > FRAME_BYTES_MAX);

/// Bytes of a tile. Few, so that the stores past the cache and the loads of the next tile's source overlap.
const TILE_BYTES: usize = 4096;

/// Where the blocks of one result are made: in the destination, or in a tile that is copied out past the cache.
pub(crate) struct Place {
    tile: Option<Box<Tile>>,
    block_elements: usize,
    isa: Isa,
}

#[repr(align(64))]
struct Tile([u8; TILE_BYTES]);

impl Place {
    /// For a result of `bytes` bytes, where no element has more than `element_bytes` on either side.
    pub(crate) fn for_result(isa: Isa, bytes: usize, element_bytes: usize) -> Place {
        if cfg!(target_arch = "x86_64") && bytes >= BYTES_MIN {
            Place {
                tile: Some(Box::new(Tile([0; TILE_BYTES]))),
                block_elements: TILE_BYTES / 64 / element_bytes * 64,
                isa,
            }
        } else {
            Place {
                tile: None,
                block_elements: BLOCK_ELEMENTS,
                isa,
            }
        }
    }

    /// The most elements of one block: a multiple of 64.
    pub(crate) fn block_elements(&self) -> usize {
        self.block_elements
    }

    /// Has `kernel` write a block, and sees to it that its `len` bytes get to `dst`.
    ///
    /// # Safety
    /// `dst` is writable for `len` bytes. `kernel` writes `len` bytes to the pointer that it gets, and no others.
    ///
    /// # Panics
    /// When the block has more than [`block_elements`](Self::block_elements) elements.
    pub(crate) unsafe fn make(
        &mut self,
        dst: *mut u8,
        len: usize,
        kernel: impl FnOnce(*mut u8) -> ValueRange,
    ) -> ValueRange {
        let Some(tile) = &mut self.tile else {
            return kernel(dst);
        };
        let tile = &mut tile.0[..len];
        let met = kernel(tile.as_mut_ptr());
        // SAFETY: promised by the caller; the tile is our own.
        unsafe { copy(self.isa, tile, dst) };
        met
    }
}

/// Orders what was written past the cache before everything that comes behind.
impl Drop for Place {
    fn drop(&mut self) {
        #[cfg(target_arch = "x86_64")]
        if self.tile.is_some() {
            // SAFETY: SSE is part of every x86-64.
            unsafe { std::arch::x86_64::_mm_sfence() };
        }
    }
}

/// Copies `src` to `dst` past the cache. A fence must follow before anybody is told that the bytes are there.
///
/// # Safety
/// `dst` is writable for `src.len()` bytes and does not overlap `src`. The machine has `isa`.
unsafe fn copy(isa: Isa, src: &[u8], dst: *mut u8) {
    // Lines at both ends that are not wholly ours are written in the ordinary way.
    let head = dst.align_offset(64).min(src.len());
    let lines = (src.len() - head) / 64;
    let tail = head + lines * 64;
    // SAFETY: the three parts make up `src.len()` bytes of both sides; the lines' addresses are multiples of 64.
    unsafe {
        std::ptr::copy_nonoverlapping(src.as_ptr(), dst, head);
        let (from, to) = (src.as_ptr().add(head), dst.add(head));
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => x86::lines_avx512(from, to, lines),
            #[cfg(target_arch = "x86_64")]
            _ => x86::lines(from, to, lines),
            #[cfg(not(target_arch = "x86_64"))]
            _ => std::ptr::copy_nonoverlapping(from, to, lines * 64),
        }
        std::ptr::copy_nonoverlapping(src.as_ptr().add(tail), dst.add(tail), src.len() - tail);
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    /// # Safety
    /// `src` is readable and `dst` writable for `lines * 64` bytes; `dst` is a multiple of 64.
    pub(super) unsafe fn lines(src: *const u8, dst: *mut u8, lines: usize) {
        for quarter in 0..lines * 4 {
            // SAFETY: inside what the caller promises. SSE2 is part of every x86-64.
            unsafe {
                let bytes = _mm_loadu_si128(src.add(quarter * 16).cast());
                _mm_stream_si128(dst.add(quarter * 16).cast(), bytes);
            }
        }
    }

    /// # Safety
    /// As [`lines`]; the machine has the feature.
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn lines_avx512(src: *const u8, dst: *mut u8, lines: usize) {
        for line in 0..lines {
            // SAFETY: inside what the caller promises.
            unsafe {
                let bytes = _mm512_loadu_si512(src.add(line * 64).cast());
                _mm512_stream_si512(dst.add(line * 64).cast(), bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_past_the_cache_is_a_copy_at_every_alignment_and_length() {
        #[allow(clippy::cast_possible_truncation)] // any bytes will do
        let src: Vec<u8> = (0..400usize).map(|i| (i * 7) as u8).collect();
        for isa in Isa::available() {
            for offset in 0..64 {
                for len in (0..130).chain([192, 255, 256, 257, 400]) {
                    let mut out = vec![0xEE; 64 + 400 + 1];
                    // SAFETY: `len` bytes behind `offset` are inside `out`; the instruction set is available.
                    unsafe { copy(isa, &src[..len], out.as_mut_ptr().add(offset)) };
                    let (front, rest) = out.split_at(offset);
                    assert_eq!(&rest[..len], &src[..len], "{isa:?} {offset} {len}");
                    let around = front.iter().chain(&rest[len..]);
                    assert!(
                        around.into_iter().all(|b| *b == 0xEE),
                        "{isa:?} {offset} {len}"
                    );
                }
            }
        }
    }
}
