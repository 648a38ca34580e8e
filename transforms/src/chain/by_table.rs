//! The steps of a chain that take a table of the volume: the chain gets it, and frames go through both.

use std::sync::Arc;
use std::time::Instant;

use super::{Chain, ns_since, wrong_length};
use crate::TransformError;
use crate::dictionary::Dictionary;
use crate::element::Packing;
use crate::rank_table::RankTable;
use crate::registry::TableTransform;
use crate::scratch::{Contexts, Scratch, sized};
use crate::table::{Table, TableKind};

/// The step `rank`, and the table.
#[derive(Clone, Copy)]
pub(super) struct ByTable<'a> {
    step: &'static dyn TableTransform,
    table: &'a RankTable,
}

impl Chain {
    /// Which tables its steps take, in their order.
    pub fn table_kinds(&self) -> impl Iterator<Item = TableKind> {
        self.steps().iter().filter_map(|step| step.id.table_kind())
    }

    /// Whether a step of it takes such a table.
    #[must_use]
    pub fn takes(&self, kind: TableKind) -> bool {
        self.table_kinds().any(|taken| taken == kind)
    }

    /// Whether there is a step that takes a table.
    #[must_use]
    pub fn needs_table(&self) -> bool {
        self.table_kinds().next().is_some()
    }

    /// The first table that a step of it takes and that it has not got.
    #[must_use]
    pub fn missing_table(&self) -> Option<TableKind> {
        self.table_kinds().find(|kind| self.table(*kind).is_none())
    }

    /// The tables that it has got, in the order of their steps.
    pub fn tables(&self) -> impl Iterator<Item = &Table> {
        self.table_kinds().filter_map(|kind| self.table(kind))
    }

    /// The elements of all rows that its scales are for: those of its stream. `None` without scales.
    #[must_use]
    pub fn scaled_elements(&self) -> Option<u64> {
        match (self.packing(), self.table(TableKind::Scales)) {
            (Packing::Int8 { row_elements }, Some(Table::Scales(scales))) => {
                Some(scales.values().len() as u64 * u64::from(row_elements))
            }
            _ => None,
        }
    }

    /// The table of this kind, where the chain has got it.
    #[must_use]
    pub fn table(&self, kind: TableKind) -> Option<&Table> {
        self.tables.get(kind)
    }

    /// The table of this kind, which a step of the chain takes.
    ///
    /// # Errors
    /// [`TransformError::TableNeeded`] where the chain has not got it.
    pub(crate) fn needed_table(&self, kind: TableKind) -> Result<&Table, TransformError> {
        self.table(kind)
            .ok_or_else(|| self.table_needed(kind.not_here()))
    }

    /// The table of `rank`, where the chain has got it.
    #[must_use]
    pub fn rank_table(&self) -> Option<&Arc<RankTable>> {
        match self.table(TableKind::Ranks) {
            Some(Table::Ranks(table)) => Some(table),
            _ => None,
        }
    }

    /// The dictionary of `zstd-dict`, where the chain has got it.
    #[must_use]
    pub fn dictionary(&self) -> Option<&Arc<Dictionary>> {
        match self.table(TableKind::Dictionary) {
            Some(Table::Dictionary(dictionary)) => Some(dictionary),
            _ => None,
        }
    }

    /// The same chain with the table of a step; of a chain with several such steps, the others stay as they are.
    ///
    /// # Errors
    /// A chain without such a step; a table with ids that its elements do not hold.
    pub fn with_table(&self, table: impl Into<Table>) -> Result<Chain, TransformError> {
        let table = table.into();
        let kind = table.kind();
        if !self.takes(kind) {
            return Err(self.table_needed(kind.not_taken()));
        }
        if let Table::Ranks(ranks) = &table {
            let held = self.packing().range();
            if !held.is_some_and(|held| held.contains(i128::from(ranks.largest()))) {
                return Err(TransformError::Table {
                    why: format!(
                        "it has id {}, which {} does not hold",
                        ranks.largest(),
                        self.packing()
                    ),
                });
            }
        }
        let mut with_it = self.clone();
        with_it.tables.put(table);
        Ok(with_it)
    }

    pub(crate) fn table_needed(&self, why: &'static str) -> TransformError {
        TransformError::TableNeeded {
            chain: self.to_string(),
            why,
        }
    }

    /// The step `rank`, and the table; `None` where there is no such step.
    pub(super) fn by_table(&self) -> Result<Option<ByTable<'_>>, TransformError> {
        match (self.inner.by_table, self.rank_table()) {
            (None, _) => Ok(None),
            (Some(step), Some(table)) => Ok(Some(ByTable { step, table })),
            (Some(_), None) => Err(self.table_needed(TableKind::Ranks.not_here())),
        }
    }

    /// Packed elements through the step with a table, then through the compressor; `None` when they do not fit `dst`.
    pub(super) fn encode_by_table(
        &self,
        by_table: ByTable<'_>,
        packed: &[u8],
        codes: &mut Vec<u8>,
        dst: &mut [u8],
        contexts: &mut Contexts,
    ) -> Result<Option<usize>, TransformError> {
        let ByTable { step, table } = by_table;
        let packing = self.packing();
        let Some(compress) = self.inner.compress else {
            return step.encode(table, packing, packed, dst);
        };
        let elements = packed.len() / (packing.bits() / 8) as usize;
        let codes = sized(codes, step.encoded_bytes_max(elements));
        match step.encode(table, packing, packed, codes)? {
            Some(len) => compress.encode(self, &codes[..len], dst, contexts),
            None => Ok(None),
        }
    }

    /// What the compressor gets of a frame: the form behind the steps before it.
    pub(crate) fn compressor_input<'a>(
        &self,
        first: u64,
        src: &[u8],
        scratch: &'a mut Scratch,
    ) -> Result<&'a [u8], TransformError> {
        let elements = src.len() / self.source().bytes();
        if !src.len().is_multiple_of(self.source().bytes()) {
            return Err(TransformError::PartialElement {
                bytes: src.len(),
                element: self.source(),
            });
        }
        let packed_bytes = self.packed_bytes(elements as u64);
        self.check_frame_size(packed_bytes)?;
        let len = usize::try_from(packed_bytes).unwrap_or(usize::MAX);
        let packed = sized(&mut scratch.packed, len);
        self.pack(first, src, packed)?;
        if let Some(ByTable { step, table }) = self.by_table()? {
            let codes = sized(&mut scratch.reordered, step.encoded_bytes_max(elements));
            let written = step.encode(table, self.packing(), packed, codes)?;
            return Ok(&codes[..written.unwrap_or(0)]);
        }
        if let Some(reorder) = self.inner.reorder {
            let reordered = sized(&mut scratch.reordered, len);
            reorder.encode(self, packed, reordered, &mut scratch.contexts)?;
            return Ok(reordered);
        }
        Ok(packed)
    }

    /// The other way round. How long the codes are is not known before they are there.
    pub(super) fn decode_by_table(
        &self,
        by_table: ByTable<'_>,
        stored: &[u8],
        scratch: &mut Scratch,
        packed: &mut [u8],
    ) -> Result<(), TransformError> {
        let ByTable { step, table } = by_table;
        if stored.len() > packed.len() {
            return Err(TransformError::Corrupt {
                step: step.descriptor().name,
                why: wrong_length(stored, packed),
            });
        }
        let packing = self.packing();
        let mut codes = stored;
        if let Some(compress) = self.inner.compress {
            let begun = Instant::now();
            let elements = packed.len() / (packing.bits() / 8) as usize;
            let room = sized(&mut scratch.reordered, step.encoded_bytes_max(elements));
            let geometry = compress.geometry(self)?;
            let contexts = &mut scratch.contexts;
            let len = compress
                .transform
                .decode_some(geometry, stored, room, contexts)?;
            codes = &room[..len];
            scratch.times.compress_ns = ns_since(begun);
        }
        let begun = Instant::now();
        step.decode(self.isa, table, packing, codes, packed)?;
        scratch.times.reorder_ns = ns_since(begun);
        Ok(())
    }
}
