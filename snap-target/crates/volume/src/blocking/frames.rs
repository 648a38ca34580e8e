//! How many frames of a stream are stored as they are: for people, who want to know what compression was of use for.

use zerocopy::FromBytes;

use super::{ReadAt, Reader, read_exactly};
use crate::format::raw::{BLOCK_BYTES, RawFrame};
use crate::format::{Frame, Layout, SourceId};
use crate::read::check_block;
use crate::{StreamIndex, VolumeError};

/// Frames of a stream that were looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RawFrames {
    /// How many.
    pub looked_at: u64,
    /// Of these, those whose block steps saved nothing, so that they are stored as their packed form.
    pub raw: u64,
}

impl<S: ReadAt> Reader<S> {
    /// Looks at the entries of a stream's frames: at all of them where they have at most `blocks_max` blocks, otherwise at those of so many blocks, spread
    /// over all. `None` for a stream whose chain does not shrink.
    ///
    /// # Errors
    /// Damage; [`VolumeError::Io`].
    pub fn raw_frames(
        &self,
        stream: StreamIndex,
        blocks_max: u64,
    ) -> Result<Option<RawFrames>, VolumeError> {
        let found = self.volume.stream(stream);
        let Some(found) = found.filter(|it| it.chain.shrinks()) else {
            return Ok(None);
        };
        let Layout::Framed { frames: table, .. } = found.layout else {
            return Ok(None);
        };
        let mut counted = RawFrames::default();
        if table.entry_count() == 0 {
            return Ok(Some(counted));
        }
        let blocks = table.locate(table.entry_count() - 1).0 + 1;
        let looked_at = blocks.min(blocks_max);
        for nth in 0..looked_at {
            let block = u64::try_from(u128::from(nth) * u128::from(blocks) / u128::from(looked_at));
            let block = block.unwrap_or(blocks);
            let mut bytes = [0; BLOCK_BYTES];
            let offset = table.block_offset(0, block);
            read_exactly(&self.store, SourceId::OWN, offset, &mut bytes)?;
            let keys = table.direct_keys(block);
            let volume_uuid = self.volume.superblock().volume_uuid;
            check_block(&table, &bytes, 0, block, keys.clone(), volume_uuid)?;
            for number in keys {
                let slot = table.locate(number).1;
                let raw = RawFrame::ref_from_bytes(table.entry(&bytes, slot));
                let raw = raw.map_err(|_| VolumeError::Usage("the block has no such frame"))?;
                let count = found.elements_of_frame(number).unwrap_or(0);
                let packed_bytes = found.chain.packed_bytes(count);
                let place = table.entry_place(number);
                let entry = Frame::parse(raw, place, packed_bytes, found.stored_bytes)?;
                counted.looked_at += 1;
                counted.raw += u64::from(u64::from(entry.stored_bytes) == packed_bytes);
            }
        }
        Ok(Some(counted))
    }
}
