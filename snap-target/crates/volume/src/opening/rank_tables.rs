//! The tables of chains: read last, checked, and given to the chains that refer to them.

use std::sync::Arc;

use transforms::RankTable;

use super::{Loading, WantedTable};
use crate::VolumeError;
use crate::format::field::Fields;
use crate::format::raw::BLOCK_BYTES_U64;
use crate::format::{BlobIndex, ChainIndex, ChainUse};
use crate::limits::{
    FETCH_BYTES_MAX, RANK_TABLE_BYTES_MAX, RANK_TABLES_BYTES_MAX, RANK_TABLES_MAX,
};
use crate::volume::{Directory, blob_place, check_blob};

impl Loading {
    pub(super) fn plan_rank_tables(&mut self, fields: Fields) -> Result<(), VolumeError> {
        let mut uses: Vec<(u32, u32)> = (self.directory.rank_tables.iter())
            .map(|(chain, blob)| (blob.0, chain.0))
            .collect();
        uses.sort_unstable();
        let tables = uses.chunk_by(|(one, _), (next, _)| one == next);
        let tables: Vec<WantedTable> = tables
            .filter_map(|of_one| {
                Some(WantedTable {
                    blob: BlobIndex(of_one.first()?.0),
                    chains: of_one.iter().map(|(_, chain)| ChainIndex(*chain)).collect(),
                })
            })
            .collect();
        let count = tables.len() as u64;
        fields.within("rank tables", count, 0, RANK_TABLES_MAX)?;
        let [_, _, _, blobs, _] = self.directory.superblock.directory;
        let mut total = 0;
        for table in &tables {
            let bytes = self.blob(table.blob).map_or(0, |blob| blob.bytes);
            let place = blobs.entry_place(u64::from(table.blob.0));
            let least = RankTable::STORED_BYTES_MIN;
            let name = "bytes of a rank table";
            total += Fields { place }.within(name, bytes, least, RANK_TABLE_BYTES_MAX)?;
        }
        fields.within("rank tables together", total, 0, RANK_TABLES_BYTES_MAX)?;
        self.rank_tables = tables.into();
        Ok(())
    }

    /// The next blocks of the rank table that is being read.
    pub(super) fn rank_table_wanted(&self) -> Option<(u64, u64)> {
        let blob = self.blob(self.rank_tables.front()?.blob)?;
        let at = blob.offset + self.rank_table.len() as u64;
        let start = at / BLOCK_BYTES_U64 * BLOCK_BYTES_U64;
        let end = (blob.offset + blob.bytes).next_multiple_of(BLOCK_BYTES_U64);
        let bytes = (end - start).min(u64::from(FETCH_BYTES_MAX));
        Some((start, bytes))
    }

    pub(super) fn take_rank_table(&mut self, offset: u64, bytes: &[u8]) -> Result<(), VolumeError> {
        let lost = VolumeError::Usage("no rank table is being read");
        let Some(index) = self.rank_tables.front().map(|table| table.blob) else {
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
        let chains = self.rank_tables.pop_front().map(|table| table.chains);
        check_blob(index, &blob, &table)?;
        let place = blob_place(index, &blob);
        let table = RankTable::parse(&table);
        let table = table.map_err(|error| VolumeError::Transform { place, error })?;
        self.give_rank_table(&chains.unwrap_or_default(), &Arc::new(table))?;
        if self.rank_tables.is_empty() {
            self.hand_out_chains();
        }
        Ok(())
    }

    /// To the chains that refer to it.
    fn give_rank_table(
        &mut self,
        chains: &[ChainIndex],
        table: &Arc<RankTable>,
    ) -> Result<(), VolumeError> {
        let [_, _, entries, ..] = self.directory.superblock.directory;
        for chain in chains {
            let used = self.directory.chains.get_mut(chain.0 as usize);
            if let Some(ChainUse::Stored(stored)) = used {
                let place = entries.entry_place(u64::from(chain.0));
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
