//! The step of a chain that takes a table of the volume: the chain gets it, and frames go through both.

use std::sync::Arc;
use std::time::Instant;

use super::{Chain, ns_since, wrong_length};
use crate::TransformError;
use crate::element::Packing;
use crate::rank_table::RankTable;
use crate::registry::TableTransform;
use crate::scales::{Table, TableKind};
use crate::scratch::{Contexts, Scratch, sized};

/// Such a step, and the table.
#[derive(Clone, Copy)]
pub(super) struct ByTable<'a> {
    step: &'static dyn TableTransform,
    table: &'a RankTable,
}

impl Chain {
    /// Whether there is a step that takes a table.
    #[must_use]
    pub fn needs_table(&self) -> bool {
        self.table_kind().is_some()
    }

    /// Which table that is.
    #[must_use]
    pub fn table_kind(&self) -> Option<TableKind> {
        match self.packing() {
            Packing::Int8 { .. } => Some(TableKind::Scales),
            _ => self.inner.by_table.map(|_| TableKind::Ranks),
        }
    }

    /// The elements of all rows that its scales are for: those of its stream. `None` without scales.
    #[must_use]
    pub fn scaled_elements(&self) -> Option<u64> {
        match (self.packing(), &self.table) {
            (Packing::Int8 { row_elements }, Some(Table::Scales(scales))) => {
                Some(scales.values().len() as u64 * u64::from(row_elements))
            }
            _ => None,
        }
    }

    /// The table of that step, where the chain has got it.
    #[must_use]
    pub fn table(&self) -> Option<&Table> {
        self.table.as_ref()
    }

    /// The table of `rank`, where the chain has got it.
    #[must_use]
    pub fn rank_table(&self) -> Option<&Arc<RankTable>> {
        match &self.table {
            Some(Table::Ranks(table)) => Some(table),
            _ => None,
        }
    }

    /// The same chain with the table of its step.
    ///
    /// # Errors
    /// A chain without such a step; a table with ids that its elements do not hold.
    pub fn with_table(&self, table: impl Into<Table>) -> Result<Chain, TransformError> {
        let table = table.into();
        if self.table_kind() != Some(table.kind()) {
            return Err(self.table_needed(match table {
                Table::Ranks(_) => "no step of it takes a table",
                Table::Scales(_) => "no step of it takes scales",
            }));
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
        Ok(Chain {
            inner: Arc::clone(&self.inner),
            table: Some(table),
            isa: self.isa,
        })
    }

    pub(crate) fn table_needed(&self, why: &'static str) -> TransformError {
        TransformError::TableNeeded {
            chain: self.to_string(),
            why,
        }
    }

    /// The step that takes a table, and the table; `None` where there is no such step.
    pub(super) fn by_table(&self) -> Result<Option<ByTable<'_>>, TransformError> {
        match (self.inner.by_table, self.rank_table()) {
            (None, _) => Ok(None),
            (Some(step), Some(table)) => Ok(Some(ByTable { step, table })),
            (Some(_), None) => Err(self.table_needed("its rank table is not here")),
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
            Some(len) => compress.encode(self.isa, &codes[..len], dst, contexts),
            None => Ok(None),
        }
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
            let geometry = compress.geometry(self.isa);
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
