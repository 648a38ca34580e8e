//! Bytes that belong to nothing must be zero, and tables must have their bytes to themselves.

use std::ops::Range;

use super::Walk;
use crate::error::{Item, Place, VolumeError};
use crate::format::SourceId;
use crate::format::raw::first_nonzero;
use crate::format::superblock::PAYLOAD_OFFSET_MIN;

/// Padding is read in runs of this many bytes.
const RUN_BYTES: usize = 1 << 20;

impl Walk<'_> {
    pub(super) fn padding(&mut self) {
        let tail_offset = self.volume.superblock().tail_offset();
        let mut regions = std::mem::take(&mut self.regions);
        regions.sort_unstable_by_key(|region| (region.bytes.start, region.bytes.end));
        let mut at = PAYLOAD_OFFSET_MIN;
        // The region that reaches furthest so far.
        let mut reaching: Option<(Item, bool)> = None;
        for region in &regions {
            if region.bytes.start > at {
                self.zeros(at..region.bytes.start);
            } else if let Some((item, may_overlap)) = reaching
                && region.bytes.start < at
                && !(may_overlap && region.may_overlap)
            {
                self.note::<()>(Err(VolumeError::Malformed {
                    place: Place {
                        item: region.item,
                        source: SourceId::OWN,
                        offset: region.bytes.start,
                    },
                    field: "bytes",
                    expected: "bytes of its own".into(),
                    found: format!("bytes that are also those of {item}"),
                }));
            }
            if region.bytes.end > at {
                at = region.bytes.end;
                reaching = Some((region.item, region.may_overlap));
            }
        }
        self.zeros(at..tail_offset);
    }

    fn zeros(&mut self, range: Range<u64>) {
        let mut buffer = vec![0; RUN_BYTES];
        let mut at = range.start;
        while at < range.end {
            let len = usize::try_from(range.end - at).unwrap_or(usize::MAX);
            let bytes = &mut buffer[..len.min(RUN_BYTES)];
            let read = self.read(SourceId::OWN, at, bytes);
            if self.note(read).is_some()
                && let Some(found) = first_nonzero(bytes)
            {
                let place = Place {
                    item: Item::Padding,
                    source: SourceId::OWN,
                    offset: at + found as u64,
                };
                let found = bytes[found];
                self.note::<()>(Err(VolumeError::NotZero { place, found }));
            }
            at += bytes.len() as u64;
        }
    }
}
