//! Elements to planes of their bytes, and back.

use crate::kernels::Isa;

/// Byte `j` of element `e` of `src` goes to `dst[j * elements + e]`.
///
/// # Panics
/// When the lengths differ or are no multiple of `width`.
pub(crate) fn split(_isa: Isa, width: usize, src: &[u8], dst: &mut [u8]) {
    assert!(src.len() == dst.len() && src.len().is_multiple_of(width));
    let elements = src.len() / width;
    for (e, element) in src.chunks_exact(width).enumerate() {
        for (j, byte) in element.iter().enumerate() {
            dst[j * elements + e] = *byte;
        }
    }
}

/// The inverse of [`split`].
///
/// # Panics
/// When the lengths differ or are no multiple of `width`.
pub(crate) fn join(_isa: Isa, width: usize, src: &[u8], dst: &mut [u8]) {
    assert!(src.len() == dst.len() && src.len().is_multiple_of(width));
    let elements = src.len() / width;
    for (e, element) in dst.chunks_exact_mut(width).enumerate() {
        for (j, byte) in element.iter_mut().enumerate() {
            *byte = src[j * elements + e];
        }
    }
}
