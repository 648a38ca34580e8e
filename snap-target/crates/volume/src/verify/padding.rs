//! Bytes that belong to nothing must be zero, and tables must have their bytes to themselves.

use std::ops::Range;

use super::Walk;
use crate::error::{Item, Place, VolumeError};
use crate::format::SourceId;
use crate::format::raw::{BLOCK_BYTES_U64, first_nonzero};
use crate::format::superblock::{PAYLOAD_OFFSET_MIN, SLOT_OFFSETS};

/// Padding is read in runs of this many bytes.
const RUN_BYTES: usize = 1 << 20;

impl Walk<'_> {
    pub(super) fn padding(&mut self) {
        let tail_offset = self.volume.superblock().tail_offset();
        let mut regions = std::mem::take(&mut self.regions);
        regions.sort_unstable_by_key(|region| (region.bytes.start, region.bytes.end));
        for slot in SLOT_OFFSETS.windows(2) {
            self.zeros(slot[0] + BLOCK_BYTES_U64..slot[1]);
        }
        let [.., last_slot] = SLOT_OFFSETS;
        self.zeros(last_slot + BLOCK_BYTES_U64..PAYLOAD_OFFSET_MIN);
        let mut at = PAYLOAD_OFFSET_MIN;
        // The region that reaches furthest so far.
        let mut reaching: Option<(Item, bool)> = None;
        for region in &regions {
            if region.bytes.start > at {
                self.gap(reaching, at..region.bytes.start);
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
        self.gap(reaching, at..tail_offset);
    }

    /// Bytes between what is referred to. In a first generation without unknown tables they are zero; later ones leave there what earlier ones
    /// wrote, and unknown tables may refer to them. What fills up a stream's last block is zero always.
    fn gap(&mut self, before: Option<(Item, bool)>, gap: Range<u64>) {
        let superblock = self.volume.superblock();
        let all_is_known = superblock.generation == 1
            && superblock.compat | superblock.ro_compat == 0
            && superblock.ignored.is_empty();
        let checked_end = match (all_is_known, before) {
            (true, _) => gap.end,
            (_, Some((Item::Stream(_), _))) => {
                gap.start.next_multiple_of(BLOCK_BYTES_U64).min(gap.end)
            }
            _ => gap.start,
        };
        self.zeros(gap.start..checked_end);
        self.unreferenced_bytes += gap.end - checked_end;
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
