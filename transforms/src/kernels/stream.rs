//! Writing a large result past the cache.
//!
//! An ordinary store first reads the line it writes to. Where the result is far larger than the cache that is a third of the memory
//! traffic, so it is made a tile at a time in the cache and copied out by stores that do not read: `memcpy` does the same.
//! Smaller results stay in the cache: whoever asked for them looks at them next.

use std::ptr;

use crate::chain::FRAME_BYTES_MAX;
use crate::element::ValueRange;
use crate::kernels::{BLOCK_ELEMENTS, Isa};

/// Results of this many bytes and more are written past the cache. Over every I/O request, and over every frame: those are read
/// again at once.
pub(crate) const BYTES_MIN: usize = 32 << 20;
const _: () = assert!(BYTES_MIN as u64 > FRAME_BYTES_MAX);

/// Bytes of a tile. Few, so that the stores past the cache and the loads of the next tile's source overlap.
const TILE_BYTES: usize = 4096;

/// What stores past the cache write at once: anything less makes them read the line after all.
const LINE_BYTES: usize = 64;

/// Where one result is made, block by block: in the destination, or in a tile that is copied out past the cache.
pub(crate) struct Place {
    /// Where the next byte goes.
    dst: *mut u8,
    isa: Isa,
    block_elements: usize,
    tile: Option<Tile>,
}

struct Tile {
    bytes: Box<Lines>,
    /// Bytes at the front of the tile that belong at `dst` and do not fill a line yet.
    carried: usize,
}

#[repr(align(64))]
struct Lines([u8; LINE_BYTES + TILE_BYTES]);

impl Place {
    /// For a result of `bytes` bytes at `dst`, where no element has more than `element_bytes` on either side.
    ///
    /// # Safety
    /// `dst` is writable for `bytes` bytes until the place is dropped, and the machine has `isa`.
    pub(crate) unsafe fn new(isa: Isa, dst: *mut u8, bytes: usize, element_bytes: usize) -> Place {
        let far = cfg!(target_arch = "x86_64") && bytes >= BYTES_MIN;
        Place {
            dst,
            isa,
            block_elements: if far {
                TILE_BYTES / LINE_BYTES / element_bytes * LINE_BYTES
            } else {
                BLOCK_ELEMENTS
            },
            tile: far.then(|| Tile {
                bytes: Box::new(Lines([0; LINE_BYTES + TILE_BYTES])),
                carried: 0,
            }),
        }
    }

    /// The most elements of one block: a multiple of 64.
    pub(crate) fn block_elements(&self) -> usize {
        self.block_elements
    }

    /// Has `kernel` write the next block of `len` bytes, and sees to it that it gets to the destination.
    ///
    /// # Safety
    /// The blocks together are no more than the result. `kernel` writes `len` bytes to the pointer that it gets, and no others.
    ///
    /// # Panics
    /// When the block has more than [`block_elements`](Self::block_elements) elements.
    pub(crate) unsafe fn make(
        &mut self,
        len: usize,
        kernel: impl FnOnce(*mut u8) -> ValueRange,
    ) -> ValueRange {
        let Some(tile) = &mut self.tile else {
            let met = kernel(self.dst);
            // SAFETY: behind the block, in the result.
            self.dst = unsafe { self.dst.add(len) };
            return met;
        };
        let end = tile.carried + len;
        let filled = &mut tile.bytes.0[..end];
        let met = kernel(filled[tile.carried..].as_mut_ptr());

        // The bytes in front of the destination's first whole line, and those behind the last one, are not whole lines: the former
        // are written in the ordinary way, once, and the latter are carried to the next block.
        let head = self.dst.align_offset(LINE_BYTES).min(end);
        let lines = (end - head) / LINE_BYTES;
        let done = head + lines * LINE_BYTES;
        // SAFETY: `done` bytes at `dst` are the result's; `dst + head` is a multiple of a line.
        unsafe {
            ptr::copy_nonoverlapping(filled.as_ptr(), self.dst, head);
            copy_lines(
                self.isa,
                filled.as_ptr().add(head),
                self.dst.add(head),
                lines,
            );
            self.dst = self.dst.add(done);
        }
        filled.copy_within(done.., 0);
        tile.carried = end - done;
        met
    }
}

/// Writes what is still carried, and orders what was written past the cache before everything that comes behind.
impl Drop for Place {
    fn drop(&mut self) {
        let Some(tile) = &self.tile else {
            return;
        };
        // SAFETY: the bytes carried are the result's next ones. SSE is part of every x86-64.
        unsafe {
            ptr::copy_nonoverlapping(tile.bytes.0.as_ptr(), self.dst, tile.carried);
            #[cfg(target_arch = "x86_64")]
            std::arch::x86_64::_mm_sfence();
        }
    }
}

/// Copies lines past the cache. A fence must follow before anybody is told that the bytes are there.
///
/// # Safety
/// `src` is readable and `dst` writable for so many lines; `dst` is a multiple of a line. The machine has `isa`.
unsafe fn copy_lines(isa: Isa, src: *const u8, dst: *mut u8, lines: usize) {
    // SAFETY: passed on to the caller.
    unsafe {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => x86::lines_avx512(src, dst, lines),
            #[cfg(target_arch = "x86_64")]
            _ => x86::lines(src, dst, lines),
            #[cfg(not(target_arch = "x86_64"))]
            _ => ptr::copy_nonoverlapping(src, dst, lines * LINE_BYTES),
        }
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
    fn what_is_made_past_the_cache_is_there_at_every_alignment_and_in_blocks_of_any_length() {
        #[allow(clippy::cast_possible_truncation)] // any bytes will do
        let src: Vec<u8> = (0..2000usize).map(|i| (i * 7) as u8).collect();
        let nothing = ValueRange { min: 0, max: 0 };
        for isa in Isa::available() {
            for offset in 0..64 {
                for block in [1, 3, 63, 64, 65, 136, 1000] {
                    let mut out = vec![0xEE; 64 + src.len() + 64];
                    // SAFETY: the source's length behind `offset` is inside `out`; the instruction set is available; each block's
                    // bytes are written.
                    unsafe {
                        let dst = out.as_mut_ptr().add(offset);
                        let mut place = Place::new(isa, dst, BYTES_MIN, 1);
                        for block in src.chunks(block) {
                            place.make(block.len(), |dst| {
                                ptr::copy_nonoverlapping(block.as_ptr(), dst, block.len());
                                nothing
                            });
                        }
                    }
                    let what = format!("{isa:?} at {offset} by {block}");
                    assert_eq!(&out[offset..][..src.len()], &src, "{what}");
                    let around = out[..offset].iter().chain(&out[offset + src.len()..]);
                    assert!(around.into_iter().all(|b| *b == 0xEE), "{what}");
                }
            }
        }
    }
}
