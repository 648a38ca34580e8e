//! The tables of chains: read last, checked, and given to the chains that refer to them.

use std::sync::Arc;

use transforms::RankTable;

use super::Loading;
use crate::VolumeError;
use crate::format::field::Fields;
use crate::format::raw::BLOCK_BYTES_U64;
use crate::format::{BlobIndex, ChainUse};
use crate::limits::{FETCH_BYTES_MAX, RANK_TABLES_BYTES_MAX};
use crate::volume::{Directory, blob_place, check_blob};

impl Loading {
    pub(super) fn plan_rank_tables(&mut self, fields: Fields) -> Result<(), VolumeError> {
        let mut tables: Vec<BlobIndex> = self.directory.rank_tables.values().copied().collect();
        tables.sort_unstable_by_key(|table| table.0);
        tables.dedup();
        let blobs = tables.iter().filter_map(|table| self.blob(*table));
        let total = blobs.map(|blob| blob.bytes).sum();
        fields.within("rank tables together", total, 0, RANK_TABLES_BYTES_MAX)?;
        self.rank_tables = tables.into();
        Ok(())
    }

    /// The next blocks of the rank table that is being read.
    pub(super) fn rank_table_wanted(&self) -> Option<(u64, u64)> {
        let blob = self.blob(*self.rank_tables.front()?)?;
        let at = blob.offset + self.rank_table.len() as u64;
        let start = at / BLOCK_BYTES_U64 * BLOCK_BYTES_U64;
        let end = (blob.offset + blob.bytes).next_multiple_of(BLOCK_BYTES_U64);
        // An empty blob at the start of a block has none.
        let bytes = (end - start).clamp(BLOCK_BYTES_U64, u64::from(FETCH_BYTES_MAX));
        Some((start, bytes))
    }

    pub(super) fn take_rank_table(&mut self, offset: u64, bytes: &[u8]) -> Result<(), VolumeError> {
        let lost = VolumeError::Usage("no rank table is being read");
        let Some(index) = self.rank_tables.front().copied() else {
            return Err(lost);
        };
        let Some(blob) = self.blob(index).cloned() else {
            return Err(lost);
        };
        let from = blob.offset + self.rank_table.len() as u64 - offset;
        let end = (blob.offset + blob.bytes - offset).min(bytes.len() as u64);
        let part = usize::try_from(from).ok().zip(usize::try_from(end).ok());
        let part = part.and_then(|(from, end)| bytes.get(from..end));
        self.rank_table.extend_from_slice(part.ok_or(lost)?);
        if (self.rank_table.len() as u64) < blob.bytes {
            return Ok(());
        }
        let table = std::mem::take(&mut self.rank_table);
        self.rank_tables.pop_front();
        check_blob(index, &blob, &table)?;
        let place = blob_place(index, &blob);
        let table = RankTable::parse(&table);
        let table = table.map_err(|error| VolumeError::Transform { place, error })?;
        self.give_rank_table(index, &Arc::new(table))?;
        if self.rank_tables.is_empty() {
            self.hand_out_chains();
        }
        Ok(())
    }

    /// To the chains that refer to it.
    fn give_rank_table(
        &mut self,
        index: BlobIndex,
        table: &Arc<RankTable>,
    ) -> Result<(), VolumeError> {
        let [_, _, chains, ..] = self.directory.superblock.directory;
        for (chain, of) in &self.directory.rank_tables {
            let used = self.directory.chains.get_mut(chain.0 as usize);
            if let Some(ChainUse::Stored(stored)) = used.filter(|_| *of == index) {
                let place = chains.entry_place(u64::from(chain.0));
                let with_it = stored.with_table(Arc::clone(table));
                *stored = with_it.map_err(|error| VolumeError::Transform { place, error })?;
            }
        }
        Ok(())
    }

    /// Streams were parsed before their chains had tables.
    fn hand_out_chains(&mut self) {
        let Directory {
            streams, chains, ..
        } = &mut self.directory;
        for stream in streams.iter_mut().filter(|it| it.chain.needs_table()) {
            if let Some(ChainUse::Stored(chain)) = chains.get(stream.chain_index.0 as usize) {
                stream.chain = chain.clone();
            }
        }
    }
}
