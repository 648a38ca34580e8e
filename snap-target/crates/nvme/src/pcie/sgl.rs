//! Scatter gather lists (Base, "Scatter Gather List (SGL)") in the host's memory: data blocks, segments, and last segments. SGLS says that there are no others.
//!
//! A command has one descriptor: a data block, or a segment of more. The last descriptor of a segment leads to the next one, which a last segment does not.

use nvme_spec::command::SglId;
use nvme_spec::{SglDescriptor, Status};
use zerocopy::FromBytes;

use super::{PAGE_BYTES, Piece};

/// Descriptors of one command that are looked at: a list that leads to itself has an end.
pub const DESCRIPTORS_MAX: u16 = 1024;
/// Bytes of a descriptor.
const DESCRIPTOR_BYTES: u32 = 16;

/// What is left of a command's SGL: give it the parts that it asks for until it asks for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sgls {
    /// Bytes that no piece covers yet.
    left: u32,
    /// Descriptors that may still be looked at.
    descriptors_left: u16,
    segment: Option<Segment>,
}

/// Descriptors in the host's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    address: u64,
    bytes: u32,
    is_last: bool,
}

/// A part of a segment that is to be copied out of the host's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SglPart {
    /// Where it begins.
    pub address: u64,
    /// Bytes: whole descriptors, a page of them at most.
    pub bytes: u16,
}

impl Sgls {
    /// The descriptor of a command with so many bytes of data. What it says itself goes to `pieces`. Data blocks beyond the data are not looked at: SGLS allows
    /// them.
    ///
    /// # Errors
    /// The status of a list that is wrong, or too short.
    pub fn new(
        descriptor: &SglDescriptor,
        bytes: u32,
        pieces: &mut impl FnMut(Piece),
    ) -> Result<Sgls, Status> {
        let mut sgls = Sgls {
            left: bytes,
            descriptors_left: DESCRIPTORS_MAX,
            segment: None,
        };
        match descriptor.id() {
            SglId::DATA_BLOCK => sgls.block(descriptor, pieces),
            SglId::SEGMENT | SglId::LAST_SEGMENT => sgls.segment = Some(segment(descriptor)?),
            _ => return Err(Status::SGL_TYPE_INVALID.dnr()),
        }
        sgls.check_end()?;
        Ok(sgls)
    }

    /// What to copy out next; none once every byte has its piece.
    #[must_use]
    pub fn wants(&self) -> Option<SglPart> {
        let segment = self.segment.filter(|_| self.left > 0)?;
        Some(SglPart {
            address: segment.address,
            bytes: part_bytes(&segment),
        })
    }

    /// Takes the part that was wanted, as it was copied: it is not looked at again.
    ///
    /// # Errors
    /// As [`Sgls::new`]; [`Status::INVALID_FIELD`] where it is not as long as was asked.
    pub fn take(&mut self, part: &[u8], pieces: &mut impl FnMut(Piece)) -> Result<(), Status> {
        let Some(mut segment) = self.segment.take() else {
            return Ok(());
        };
        let wanted = part_bytes(&segment);
        if part.len() != usize::from(wanted) {
            return Err(Status::INVALID_FIELD.dnr());
        }
        for bytes in part.chunks_exact(DESCRIPTOR_BYTES as usize) {
            let descriptor = SglDescriptor::read_from_bytes(bytes);
            let descriptor = descriptor.map_err(|_| Status::INTERNAL_ERROR)?;
            let left = self.descriptors_left.checked_sub(1);
            self.descriptors_left = left.ok_or(Status::INVALID_SGL_COUNT.dnr())?;
            segment.bytes -= DESCRIPTOR_BYTES;
            self.descriptor(&descriptor, &segment, pieces)?;
        }
        if self.segment.is_none() && segment.bytes > 0 {
            segment.address = segment.address.wrapping_add(u64::from(wanted));
            self.segment = Some(segment);
        }
        self.check_end()
    }

    /// A descriptor of a segment, with what of that is behind it.
    fn descriptor(
        &mut self,
        descriptor: &SglDescriptor,
        of: &Segment,
        pieces: &mut impl FnMut(Piece),
    ) -> Result<(), Status> {
        let leads_on = of.bytes == 0 && !of.is_last;
        match descriptor.id() {
            SglId::DATA_BLOCK if leads_on && self.left > 0 => {
                self.block(descriptor, pieces);
                // Where the data are complete, nobody asks what would come next.
                match self.left {
                    0 => Ok(()),
                    _ => Err(Status::INVALID_SGL_SEGMENT.dnr()),
                }
            }
            SglId::DATA_BLOCK => {
                self.block(descriptor, pieces);
                Ok(())
            }
            SglId::SEGMENT | SglId::LAST_SEGMENT if leads_on => {
                self.segment = Some(segment(descriptor)?);
                Ok(())
            }
            SglId::SEGMENT | SglId::LAST_SEGMENT => Err(Status::INVALID_SGL_SEGMENT.dnr()),
            _ => Err(Status::SGL_TYPE_INVALID.dnr()),
        }
    }

    fn block(&mut self, descriptor: &SglDescriptor, pieces: &mut impl FnMut(Piece)) {
        let bytes = descriptor.length.get().min(self.left);
        if bytes > 0 {
            self.left -= bytes;
            let address = descriptor.address.get();
            pieces(Piece { address, bytes });
        }
    }

    /// A list that has ended has a piece for every byte.
    fn check_end(&self) -> Result<(), Status> {
        match self.left > 0 && self.segment.is_none() {
            true => Err(Status::DATA_SGL_LENGTH_INVALID.dnr()),
            false => Ok(()),
        }
    }
}

/// Where a descriptor leads.
fn segment(descriptor: &SglDescriptor) -> Result<Segment, Status> {
    let bytes = descriptor.length.get();
    if bytes == 0 || !bytes.is_multiple_of(DESCRIPTOR_BYTES) {
        return Err(Status::INVALID_SGL_SEGMENT.dnr());
    }
    Ok(Segment {
        address: descriptor.address.get(),
        bytes,
        is_last: descriptor.id() == SglId::LAST_SEGMENT,
    })
}

fn part_bytes(segment: &Segment) -> u16 {
    // At most a page.
    u16::try_from(segment.bytes.min(PAGE_BYTES)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nvme_spec::{U32, U64};
    use zerocopy::IntoBytes;

    fn of(id: SglId, address: u64, bytes: u32) -> SglDescriptor {
        SglDescriptor {
            address: U64::new(address),
            length: U32::new(bytes),
            id: id.0,
            ..SglDescriptor::EMPTY
        }
    }

    /// What a list says: its pieces, and each segment's part when it is asked for.
    fn walked(
        first: SglDescriptor,
        bytes: u32,
        parts: &[(u64, &[SglDescriptor])],
    ) -> Result<Vec<(u64, u32)>, Status> {
        let mut pieces = Vec::new();
        let mut push = |piece: Piece| pieces.push((piece.address, piece.bytes));
        let mut sgls = Sgls::new(&first, bytes, &mut push)?;
        while let Some(wanted) = sgls.wants() {
            let (_, part) = parts
                .iter()
                .find(|(address, _)| *address == wanted.address)
                .unwrap();
            sgls.take(part.as_bytes(), &mut push)?;
        }
        Ok(pieces)
    }

    #[test]
    fn blocks_and_segments_are_walked_in_their_order() {
        let (block, next, last) = (SglId::DATA_BLOCK, SglId::SEGMENT, SglId::LAST_SEGMENT);
        let one = walked(of(block, 0x1001, 512), 512, &[]);
        assert_eq!(one, Ok(vec![(0x1001, 512)]));
        let longer = walked(of(block, 0x1001, u32::MAX), 512, &[]);
        assert_eq!(longer, Ok(vec![(0x1001, 512)]));
        let first = [of(block, 0x1, 7), of(block, 0x2, 0), of(next, 0xB, 32)];
        let second = [of(block, 0x3, 9), of(last, 0xC, 48)];
        let third = [of(block, 0x4, 100), of(block, 0x5, 4), of(block, 0x6, 4)];
        let all = walked(
            of(next, 0xA, 48),
            100,
            &[(0xA, &first), (0xB, &second), (0xC, &third)],
        );
        assert_eq!(all, Ok(vec![(0x1, 7), (0x3, 9), (0x4, 84)]));
    }

    /// Of a long segment a page is asked for at a time.
    #[test]
    fn long_segments_are_taken_in_parts() {
        let page: Vec<_> = (0..256).map(|at| of(SglId::DATA_BLOCK, at, 1)).collect();
        let rest = [of(SglId::DATA_BLOCK, 0x777, 10)];
        let all = walked(
            of(SglId::LAST_SEGMENT, 0x10_0000, 4096 + 16),
            266,
            &[(0x10_0000, &page), (0x10_1000, &rest)],
        )
        .unwrap();
        assert_eq!(
            (all.len(), all[255], all[256]),
            (257, (255, 1), (0x777, 10))
        );
    }

    #[test]
    fn lists_that_are_wrong_are_refused() {
        let (block, next, last) = (SglId::DATA_BLOCK, SglId::SEGMENT, SglId::LAST_SEGMENT);
        let looped = [of(block, 0, 0), of(next, 0xA, 32)];
        let no_next = [of(block, 0, 4), of(block, 0, 4)];
        let early = [of(last, 0xA, 16), of(block, 0, 512)];
        for (first, part, status) in [
            (of(block, 0, 511), &no_next, Status::DATA_SGL_LENGTH_INVALID),
            (of(next, 0xA, 32), &looped, Status::INVALID_SGL_COUNT),
            (of(last, 0xA, 32), &looped, Status::INVALID_SGL_SEGMENT),
            (of(next, 0xA, 32), &no_next, Status::INVALID_SGL_SEGMENT),
            (of(last, 0xA, 32), &no_next, Status::DATA_SGL_LENGTH_INVALID),
            (of(next, 0xA, 32), &early, Status::INVALID_SGL_SEGMENT),
            (of(next, 0xA, 0), &looped, Status::INVALID_SGL_SEGMENT),
            (of(last, 0xA, 24), &looped, Status::INVALID_SGL_SEGMENT),
            (
                of(SglId::KEYED_DATA_BLOCK, 0, 512),
                &looped,
                Status::SGL_TYPE_INVALID,
            ),
        ] {
            let refused = walked(first, 512, &[(0xA, part)]);
            assert_eq!(refused, Err(status.dnr()), "{first:?}");
        }
    }
}
