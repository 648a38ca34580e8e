//! Every block and entry of every extent table.

use std::ops::Range;

use super::Walk;
use crate::blocking::{ReadAt, Reader};
use crate::density::{Crowded, Density};
use crate::error::{Place, VolumeError};
use crate::format::field::Fields;
use crate::format::table::index_child_at;
use crate::format::{Extent, Mapping, Table, ViewIndex, extent};
use crate::read::Linear;

impl Walk<'_> {
    pub(super) fn views(&mut self) {
        for (index, view) in (0..).map(ViewIndex).zip(self.volume.views()) {
            self.claim_table(&view.extents);
            let volume = self.volume.with_view(index);
            if let Some(volume) = self.note(volume)
                && view.extents.levels() > 0
            {
                let mut reader = Reader::new(volume, self.store, 0);
                let root = view.extents.levels() - 1;
                let mut walk = ViewWalk {
                    reader: &mut reader,
                    table: &view.extents,
                    density: Density::new(),
                };
                self.subtree(&mut walk, root, 0, 0..view.presented_bytes);
            }
        }
    }

    /// A block and all that is below it. Below a block that is damaged nothing can be said: where it leads is not known.
    fn subtree(&mut self, view: &mut ViewWalk<'_, '_>, level: u8, block: u64, keys: Range<u64>) {
        let table = view.table;
        let read = self.block(table, level, block, keys.clone());
        let Some(bytes) = self.note(read) else {
            return;
        };
        // At most 504 keys, or 63 extents.
        let count = usize::try_from(table.entries_in(level, block)).unwrap_or(0);
        for index in 0..count {
            if level > 0 {
                let (child, child_keys) =
                    index_child_at(table, &bytes[..], level, block, &keys, index);
                self.subtree(view, level - 1, child, child_keys);
            } else {
                let place = table.entry_place(block * table.per_block() + index as u64);
                let raw = extent::leaf_extent(table, &bytes[..], index);
                let checked = raw
                    .ok_or(VolumeError::Usage("the leaf has no such extent"))
                    .and_then(|raw| Extent::parse(raw, place, &keys))
                    .and_then(|extent| view.check_extent(place, &extent));
                self.note(checked);
            }
        }
    }
}

/// A view under verification.
struct ViewWalk<'w, 's> {
    reader: &'w mut Reader<&'s dyn ReadAt>,
    table: &'w Table,
    density: Density,
}

impl ViewWalk<'_, '_> {
    /// Checks what an extent refers to, and that what it narrows fits. Elements that are presented as they were are looked at with their
    /// stream.
    fn check_extent(&mut self, place: Place, extent: &Extent) -> Result<(), VolumeError> {
        let volume = self.reader.volume().clone();
        let crowded = |crowded: Crowded| crowded.at(place);
        let presented = extent.start..extent.end();
        self.density.extent(presented).map_err(crowded)?;
        let Mapping::Linear { view_chain, .. } = extent.mapping else {
            return Ok(());
        };
        let linear = Linear::new(&volume, place, extent)?;
        if linear.is_rounded() && !volume.view().lossy {
            let fields = Fields { place };
            let expected = "only values that the source has, or a lossy view";
            return Err(fields.malformed("values", expected, "rounded ones"));
        }
        linear.crowds(&mut self.density, extent).map_err(crowded)?;
        if view_chain.is_none() || linear.fits() {
            return Ok(());
        }
        let mut out = vec![0; PART_BYTES];
        let mut at = extent.start;
        while at < extent.end() {
            let len = usize::try_from(extent.end() - at).unwrap_or(PART_BYTES);
            let out = &mut out[..len.min(PART_BYTES)];
            self.reader.read(at, out)?;
            at += out.len() as u64;
        }
        Ok(())
    }
}

/// An extent that narrows is read in parts of this many bytes.
const PART_BYTES: usize = 1 << 20;
