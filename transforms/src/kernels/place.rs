//! Where kernels write: the destination itself, or, for large results, past the cache.
//!
//! An ordinary store first reads the line it writes to. Where the result is far larger than the cache that is a third of the memory
//! traffic, so it is made a few lines at a time in a tile in the cache, and copied out by stores that do not read: `memcpy` does
//! the same. Smaller results stay in the cache: whoever asked for them looks at them next.

use std::ptr;

use crate::chain::FRAME_BYTES_MAX;
use crate::kernels::{BLOCK_ELEMENTS, Isa};

/// Results of this many bytes and more are written past the cache. Over every I/O request, and over every frame: those are read
/// again at once.
pub(crate) const FAR_BYTES_MIN: usize = 32 << 20;
const _: () = assert!(FAR_BYTES_MIN as u64 > FRAME_BYTES_MAX);

/// What a store past the cache writes at once: a line that is written in two parts is read after all.
const LINE_BYTES: usize = 64;

/// The tile is copied out when it has this much. Little, so that stores to memory and loads of the source overlap.
const FLUSH_BYTES: usize = 1024;

/// A kernel that writes its block in one go finds room for it behind what is not copied out yet.
const TILE_BYTES: usize = FLUSH_BYTES + BLOCK_ELEMENTS * 8;

/// The bytes of one result, written from the first to the last: a block at a time by [`next`](Place::next) and
/// [`advance`](Place::advance), or a step at a time by a [`Pen`].
pub(crate) struct Place {
    pen: Pen,
    /// The end of the destination.
    #[cfg(target_arch = "x86_64")]
    end: *mut u8,
    far: Option<Far>,
}

/// Where the next byte is written. A kernel takes it from the place, keeps it in registers, and puts it back.
#[derive(Clone, Copy)]
pub(crate) struct Pen {
    at: *mut u8,
    /// When the pen gets here, the tile is copied out. Never, where there is none.
    limit: *mut u8,
}

/// The tile, and where its first byte belongs.
struct Far {
    tile: Box<Tile>,
    dst: *mut u8,
    isa: Isa,
}

#[repr(align(64))]
struct Tile([u8; TILE_BYTES]);

impl Place {
    /// For a result of `bytes` bytes at `dst`.
    ///
    /// # Safety
    /// `dst` is writable for `bytes` bytes until the place is dropped, no more are written through the place, and the machine has
    /// `isa`.
    pub(crate) unsafe fn new(isa: Isa, dst: *mut u8, bytes: usize) -> Place {
        if !cfg!(target_arch = "x86_64") || bytes < FAR_BYTES_MIN {
            let limit = ptr::without_provenance_mut(usize::MAX);
            return Place {
                pen: Pen { at: dst, limit },
                #[cfg(target_arch = "x86_64")]
                end: dst.wrapping_add(bytes),
                far: None,
            };
        }
        let mut tile = Box::new(Tile([0; TILE_BYTES]));
        let pen = Pen {
            at: tile.0.as_mut_ptr(),
            limit: tile.0[FLUSH_BYTES..].as_mut_ptr(),
        };
        Place {
            pen,
            #[cfg(target_arch = "x86_64")]
            end: dst.wrapping_add(bytes),
            far: Some(Far { tile, dst, isa }),
        }
    }

    /// Whether it is written past the cache.
    pub(crate) fn is_far(&self) -> bool {
        self.far.is_some()
    }

    /// Where the next bytes are written: a block of a kernel's elements fits.
    pub(crate) fn cursor(&self) -> *mut u8 {
        self.pen.at
    }

    /// The next `len` bytes, as a slice.
    ///
    /// # Safety
    /// They are part of the result, are no more than one block of a kernel's elements, and hold values (no kernel reads them).
    pub(crate) unsafe fn next(&mut self, len: usize) -> &mut [u8] {
        // SAFETY: promised by the caller of this and of `new`.
        unsafe { std::slice::from_raw_parts_mut(self.pen.at, len) }
    }

    /// Moves on by `len` bytes, which have been written.
    ///
    /// # Safety
    /// They are part of the result, and no more than one block of a kernel's elements.
    pub(crate) unsafe fn advance(&mut self, len: usize) {
        let mut pen = self.pen;
        // SAFETY: passed on to the caller.
        unsafe { pen.advance(len, self) };
        self.pen = pen;
    }

    /// How many bytes from the cursor on a kernel may overwrite whose stores are wider than its steps: later steps write them again. In a
    /// tile there is always room behind a pen, for it never stays beyond its limit.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn room(&self) -> usize {
        if self.is_far() {
            usize::MAX
        } else {
            self.end.addr() - self.pen.at.addr()
        }
    }

    /// The pen, to write a step at a time.
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    pub(crate) fn pen(&self) -> Pen {
        self.pen
    }

    /// Takes the pen back.
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    pub(crate) fn put_back(&mut self, pen: Pen) {
        self.pen = pen;
    }

    /// Copies out the tile's whole lines.
    #[cold]
    fn copy_out(&mut self, pen: Pen) -> Pen {
        let Some(far) = &mut self.far else {
            return pen;
        };
        let tile = far.tile.0.as_mut_ptr();
        let end = pen.at.addr() - tile.addr();
        // What is in front of the destination's first whole line is written in the ordinary way, once; what does not fill a line at
        // the end stays in the tile.
        let head = far.dst.align_offset(LINE_BYTES).min(end);
        let lines = (end - head) / LINE_BYTES;
        let done = head + lines * LINE_BYTES;
        // SAFETY: `done` bytes at `dst` are the result's, and the tile's first `end` bytes are written; `dst + head` is a multiple of a
        // line; `new`'s caller promised the instruction set.
        unsafe {
            ptr::copy_nonoverlapping(tile, far.dst, head);
            copy_lines(far.isa, tile.add(head), far.dst.add(head), lines);
            ptr::copy(tile.add(done), tile, end - done);
            far.dst = far.dst.add(done);
            Pen {
                at: tile.add(end - done),
                ..pen
            }
        }
    }
}

impl Pen {
    /// Where the next step is written.
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    #[inline(always)]
    pub(crate) fn at(&self) -> *mut u8 {
        self.at
    }

    /// Moves on by `len` bytes of `place`, which have been written.
    ///
    /// # Safety
    /// The pen is this place's newest one. The bytes are part of the result, and no more than one block of a kernel's elements.
    #[inline(always)]
    pub(crate) unsafe fn advance(&mut self, len: usize, place: &mut Place) {
        // SAFETY: promised by the caller.
        self.at = unsafe { self.at.add(len) };
        if self.at >= self.limit {
            *self = place.copy_out(*self);
        }
    }
}

/// Writes what is still in the tile, and orders what was written past the cache before everything that comes behind.
impl Drop for Place {
    fn drop(&mut self) {
        let pen = self.copy_out(self.pen);
        if let Some(far) = &self.far {
            let tile = far.tile.0.as_ptr();
            // SAFETY: the bytes left in the tile are the result's next ones. SSE is part of every x86-64.
            unsafe {
                ptr::copy_nonoverlapping(tile, far.dst, pen.at.addr() - tile.addr());
                #[cfg(target_arch = "x86_64")]
                std::arch::x86_64::_mm_sfence();
            }
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
            Isa::Avx2 => x86::lines_avx2(src, dst, lines),
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
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn lines_avx2(src: *const u8, dst: *mut u8, lines: usize) {
        for half in 0..lines * 2 {
            // SAFETY: inside what the caller promises.
            unsafe {
                let bytes = _mm256_loadu_si256(src.add(half * 32).cast());
                _mm256_stream_si256(dst.add(half * 32).cast(), bytes);
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
    fn what_is_written_past_the_cache_is_there_at_every_alignment_and_in_steps_of_any_length() {
        #[allow(clippy::cast_possible_truncation)] // any bytes will do
        let src: Vec<u8> = (0..5000usize).map(|i| (i * 7) as u8).collect();
        for isa in Isa::available() {
            for offset in 0..64 {
                for step in [1, 34, 63, 64, 65, 1000, 1024, 1025, 4096] {
                    let mut out = vec![0xEE; 64 + src.len() + 64];
                    // SAFETY: the source's length behind `offset` is inside `out`, and no more is written; the instruction set is
                    // available.
                    unsafe {
                        let dst = out.as_mut_ptr().add(offset);
                        let mut place = Place::new(isa, dst, FAR_BYTES_MIN);
                        for step in src.chunks(step) {
                            place.next(step.len()).copy_from_slice(step);
                            place.advance(step.len());
                        }
                    }
                    let what = format!("{isa:?} at {offset} by {step}");
                    assert_eq!(&out[offset..][..src.len()], &src, "{what}");
                    let around = out[..offset].iter().chain(&out[offset + src.len()..]);
                    assert!(around.into_iter().all(|b| *b == 0xEE), "{what}");
                }
            }
        }
    }
}
