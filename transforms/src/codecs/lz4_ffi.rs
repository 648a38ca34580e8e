//! The few calls of the C library lz4 that are made with a caller's state, behind safe functions.
//! `lz4-sys` builds and links the library; it does not declare these entry points itself.

#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_void};

use lz4_sys::LZ4_decompress_safe;

/// The most bytes the library takes in one call (`LZ4_MAX_INPUT_SIZE`).
pub(super) const INPUT_BYTES_MAX: usize = 0x7E00_0000;

unsafe extern "C" {
    fn LZ4_sizeofState() -> c_int;
    fn LZ4_compress_fast_extState(
        state: *mut c_void,
        src: *const c_char,
        dst: *mut c_char,
        src_size: c_int,
        dst_capacity: c_int,
        acceleration: c_int,
    ) -> c_int;
    fn LZ4_sizeofStateHC() -> c_int;
    fn LZ4_compress_HC_extStateHC(
        state: *mut c_void,
        src: *const c_char,
        dst: *mut c_char,
        src_size: c_int,
        max_dst_size: c_int,
        level: c_int,
    ) -> c_int;
}

/// Work memory of the fast compressor.
pub(super) struct FastState(Vec<u64>);

/// Work memory of the high-compression compressor.
pub(super) struct HcState(Vec<u64>);

impl FastState {
    pub(super) fn new() -> Option<FastState> {
        // SAFETY: a function of no arguments that returns a constant.
        zeroed_words(unsafe { LZ4_sizeofState() }).map(FastState)
    }

    /// Compresses `src` into `dst`; `None` when it does not fit, or `src` is empty or over [`INPUT_BYTES_MAX`].
    pub(super) fn compress(&mut self, src: &[u8], dst: &mut [u8]) -> Option<usize> {
        let (src_size, dst_size) = sizes(src, dst)?;
        // SAFETY: the state has the size the library asked for and 8-byte alignment, and is initialised by the call; both
        // slices are valid for the sizes given, and the library writes no more than `dst_size`.
        let written = unsafe {
            LZ4_compress_fast_extState(
                self.0.as_mut_ptr().cast(),
                src.as_ptr().cast(),
                dst.as_mut_ptr().cast(),
                src_size,
                dst_size,
                1,
            )
        };
        usize::try_from(written).ok().filter(|&n| n > 0)
    }
}

impl HcState {
    pub(super) fn new() -> Option<HcState> {
        // SAFETY: a function of no arguments that returns a constant.
        zeroed_words(unsafe { LZ4_sizeofStateHC() }).map(HcState)
    }

    /// Compresses `src` into `dst` at `level`; `None` when it does not fit, or `src` is empty or over [`INPUT_BYTES_MAX`].
    pub(super) fn compress(&mut self, level: c_int, src: &[u8], dst: &mut [u8]) -> Option<usize> {
        let (src_size, dst_size) = sizes(src, dst)?;
        // SAFETY: as in `FastState::compress`.
        let written = unsafe {
            LZ4_compress_HC_extStateHC(
                self.0.as_mut_ptr().cast(),
                src.as_ptr().cast(),
                dst.as_mut_ptr().cast(),
                src_size,
                dst_size,
                level,
            )
        };
        usize::try_from(written).ok().filter(|&n| n > 0)
    }
}

/// Decodes one raw LZ4 block into `dst`; the bytes written, or `None` when the block is malformed or longer than `dst`.
pub(super) fn decompress(src: &[u8], dst: &mut [u8]) -> Option<usize> {
    let (src_size, dst_size) = sizes(src, dst)?;
    // SAFETY: both slices are valid for the sizes given; `LZ4_decompress_safe` is the library's function for hostile input: it
    // reads no more than `src_size` and writes no more than `dst_size`.
    let written = unsafe {
        LZ4_decompress_safe(
            src.as_ptr().cast(),
            dst.as_mut_ptr().cast(),
            src_size,
            dst_size,
        )
    };
    usize::try_from(written).ok()
}

/// The lengths as the library takes them, when it takes them. Capacity beyond its type is of no use to it, so it is cut. Nothing is
/// not taken: from level 10 on the compressor steps back from the end of its source before it looks at its length.
fn sizes(src: &[u8], dst: &[u8]) -> Option<(c_int, c_int)> {
    if src.is_empty() || src.len() > INPUT_BYTES_MAX {
        return None;
    }
    let src_size = c_int::try_from(src.len()).ok()?;
    Some((src_size, c_int::try_from(dst.len()).unwrap_or(c_int::MAX)))
}

fn zeroed_words(bytes: c_int) -> Option<Vec<u64>> {
    let words = usize::try_from(bytes).ok()?.div_ceil(8);
    let mut state = Vec::new();
    state.try_reserve_exact(words).ok()?;
    state.resize(words, 0);
    Some(state)
}
