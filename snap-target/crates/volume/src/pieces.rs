//! Fetched bytes, which may come in several pieces.

use std::ops::Range;

use crate::VolumeError;
use crate::checksum::{Crc32c, crc32c_of_front};

/// Bytes of a source, in one or more pieces.
#[derive(Clone, Copy)]
pub(crate) struct Pieces<'a> {
    pub(crate) pieces: &'a [&'a [u8]],
    /// Where the first byte is in the source.
    pub(crate) offset: u64,
}

impl<'a> Pieces<'a> {
    pub(crate) fn len(&self) -> usize {
        self.pieces.iter().map(|piece| piece.len()).sum()
    }

    /// The parts of the pieces that lie in `range`, bytes of the source.
    fn parts(self, range: Range<u64>) -> impl Iterator<Item = &'a [u8]> {
        let mut at = self.offset;
        self.pieces.iter().filter_map(move |piece| {
            let here = at..at + piece.len() as u64;
            at = here.end;
            let from = range.start.clamp(here.start, here.end) - here.start;
            let to = range.end.clamp(here.start, here.end) - here.start;
            let part = usize::try_from(from).ok().zip(usize::try_from(to).ok());
            let part = part.and_then(|(from, to)| piece.get(from..to));
            part.filter(|part| !part.is_empty())
        })
    }

    /// The piece that has all of `range`, from its first byte on.
    fn piece_from(self, range: &Range<u64>) -> Option<&'a [u8]> {
        let mut start = self.offset;
        for piece in self.pieces {
            let end = start + piece.len() as u64;
            if (start..end).contains(&range.start) {
                let from = usize::try_from(range.start - start).ok()?;
                return piece.get(from..).filter(|_| range.end <= end);
            }
            start = end;
        }
        None
    }

    /// The CRC-32C of the bytes of `range`. Those behind them in the same piece are expected to be wanted next.
    pub(crate) fn crc32c(self, range: Range<u64>) -> Result<u32, VolumeError> {
        let wanted = range.end - range.start;
        let len = usize::try_from(wanted).ok();
        if let Some((len, piece)) = len.zip(self.piece_from(&range)) {
            return Ok(crc32c_of_front(piece, len));
        }
        let mut crc = Crc32c::new();
        let mut found = 0;
        for part in self.parts(range) {
            crc.update(part);
            found += part.len() as u64;
        }
        match found == wanted {
            true => Ok(crc.value()),
            false => Err(VolumeError::Usage("bytes outside the fetch were wanted")),
        }
    }

    /// The bytes of `range` in one run: where they lie, or copied to `assembly`; and how many were copied.
    pub(crate) fn contiguous<'b>(
        self,
        range: Range<u64>,
        assembly: &'b mut Vec<u8>,
    ) -> Result<(&'b [u8], u64), VolumeError>
    where
        'a: 'b,
    {
        let wanted = range.end - range.start;
        let mut parts = self.parts(range.clone());
        let first = parts.next().unwrap_or_default();
        if first.len() as u64 == wanted {
            return Ok((first, 0));
        }
        self.gather(range, assembly)?;
        Ok((assembly, wanted))
    }

    /// Copies the bytes of `range` to `to`, in place of what it holds.
    pub(crate) fn gather(self, range: Range<u64>, to: &mut Vec<u8>) -> Result<(), VolumeError> {
        to.clear();
        for part in self.parts(range.clone()) {
            to.extend_from_slice(part);
        }
        match to.len() as u64 == range.end - range.start {
            true => Ok(()),
            false => Err(VolumeError::Usage("bytes outside the fetch were wanted")),
        }
    }

    /// Copies the bytes of `range` to `to`, which is as long.
    pub(crate) fn copy_range(self, range: Range<u64>, to: &mut [u8]) -> Result<(), VolumeError> {
        let mut rest = to;
        for part in self.parts(range) {
            let len = part.len().min(rest.len());
            let (now, later) = rest.split_at_mut(len);
            now.copy_from_slice(&part[..len]);
            rest = later;
        }
        match rest.is_empty() {
            true => Ok(()),
            false => Err(VolumeError::Usage("bytes outside the fetch were wanted")),
        }
    }

    /// Copies all bytes to `to`, which is as long.
    pub(crate) fn copy_to(self, to: &mut [u8]) {
        let mut rest = to;
        for piece in self.pieces {
            let len = piece.len().min(rest.len());
            let (now, later) = rest.split_at_mut(len);
            now.copy_from_slice(&piece[..len]);
            rest = later;
        }
    }
}
