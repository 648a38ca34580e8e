//! The element steps of a chain: from source elements to their packed form, and what a reader gets of them.

use super::Chain;
use crate::TransformError;
use crate::element::{Packing, ValueRange};
use crate::encoder::{self, Refused};
use crate::kernels::{q8, rows};
use crate::scales::ScaledRows;

/// Source bytes that are rounded and widened at a time: whole elements of every type, and whole groups.
const READ_BACK_BYTES: usize = 8192;

impl Chain {
    /// Packs elements, the first of which is element `first` of the stream, into `dst`, which is exactly as long as they need.
    pub(super) fn pack(
        &self,
        first: u64,
        src: &[u8],
        dst: &mut [u8],
    ) -> Result<Option<ValueRange>, TransformError> {
        let source = self.source();
        if let Some(scaled) = ScaledRows::of(self)? {
            scaled.check(first, (src.len() / source.bytes()) as u64)?;
            return rows::quantize(self.isa, source, scaled.rows(), first, src, dst)
                .map(|()| None)
                .map_err(|(index, bits)| TransformError::BeyondScale { index, bits });
        }
        encoder::encode(self.isa, source, &self.inner.layout, src, dst)
            .map_err(|refused| self.refused(refused))
    }

    /// As [`read_back_at`](Chain::read_back_at), of the first elements of a stream: of most chains there is no difference.
    ///
    /// # Errors
    /// As there.
    pub fn read_back(&self, src: &[u8], dst: &mut [u8]) -> Result<(), TransformError> {
        self.read_back_at(0, src, dst)
    }

    /// What a reader gets of whole elements in `src`, the first of which is element `first` of the stream, into `dst`, which is as long: the same
    /// bytes, unless the chain rounds. Groups of elements that share a scale begin with `src`, rows with the stream.
    ///
    /// # Errors
    /// Bytes that end inside an element, a destination that is shorter or longer, [`Unscalable`](TransformError::Unscalable), or
    /// [`BeyondScale`](TransformError::BeyondScale).
    pub fn read_back_at(
        &self,
        first: u64,
        src: &[u8],
        dst: &mut [u8],
    ) -> Result<(), TransformError> {
        let source = self.source();
        if !src.len().is_multiple_of(source.bytes()) {
            return Err(TransformError::PartialElement {
                bytes: src.len(),
                element: source,
            });
        }
        if src.len() != dst.len() {
            return Err(TransformError::DestinationTooSmall {
                needed: src.len() as u64,
                available: dst.len() as u64,
            });
        }
        if !self.contract().is_lossy() {
            dst.copy_from_slice(src);
            return Ok(());
        }
        let scaled = ScaledRows::of(self)?;
        // In the cache. A packed element is shorter than the source's: of q8_0 at most 34 bytes for 64.
        let mut tile = [0; READ_BACK_BYTES];
        let parts = src
            .chunks(READ_BACK_BYTES)
            .zip(dst.chunks_mut(READ_BACK_BYTES));
        for (part, (src, dst)) in parts.enumerate() {
            let elements = (src.len() / source.bytes()) as u64;
            let packed_bytes = usize::try_from(self.packed_bytes(elements)).unwrap_or(usize::MAX);
            let rounded = &mut tile[..packed_bytes];
            let before = (part * READ_BACK_BYTES / source.bytes()) as u64;
            match self.packing() {
                Packing::Whole(packed) => {
                    encoder::convert_floats(self.isa, source, packed, src, rounded);
                    encoder::convert_floats(self.isa, packed, source, rounded, dst);
                }
                Packing::Q8_0 => {
                    encoder::encode_q8_0(self.isa, source, src, rounded)
                        .map_err(|refused| self.refused(refused.behind(before)))?;
                    let presented = q8::present(self.isa, (source, source), rounded, 0, dst);
                    debug_assert_eq!(presented, Ok(()), "scales are finite, or were refused");
                }
                Packing::Int8 { .. } => {
                    let first = first + before;
                    let packed = self.pack(first, src, rounded);
                    packed.map_err(|error| behind(error, before))?;
                    if let Some(scaled) = &scaled {
                        let types = (source, source);
                        rows::present(self.isa, types, scaled.rows(), first, rounded, dst);
                    }
                }
                Packing::Bits(_) => dst.copy_from_slice(src),
            }
        }
        Ok(())
    }

    /// The error for a value that some element step did not take: names the first that did not.
    fn refused(&self, refused: Refused) -> TransformError {
        let (index, value) = match refused {
            Refused::Integer { index, value } => (index, value),
            Refused::Number { index, bits } => {
                return TransformError::Unscalable { index, bits };
            }
        };
        let inner = &*self.inner;
        let unfit = |packing: &&Packing| packing.range().is_none_or(|r| !r.contains(value));
        let target = inner.packings.iter().find(unfit);
        TransformError::OutOfRange {
            index,
            value,
            target: *target.unwrap_or(&inner.layout.packing),
        }
    }
}

/// The same, counted from so many elements earlier.
fn behind(error: TransformError, before: u64) -> TransformError {
    match error {
        TransformError::BeyondScale { index, bits } => TransformError::BeyondScale {
            index: before + index,
            bits,
        },
        other => other,
    }
}
