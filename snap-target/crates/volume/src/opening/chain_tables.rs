//! The tables of chains: read last, checked, and given to the chains that refer to them.

use transforms::{Table, TableKind};

use super::{Loading, WantedTable};
use crate::VolumeError;
use crate::format::field::Fields;
use crate::format::raw::BLOCK_BYTES_U64;
use crate::format::{BlobIndex, ChainIndex, ChainUse};
use crate::limits::{CHAIN_TABLES_BYTES_MAX, CHAIN_TABLES_MAX, FETCH_BYTES_MAX};
use crate::volume::{Directory, blob_place, check_blob};

/// What a limit is on.
const TOGETHER: &str = "tables of chains together";
const UNPACKED: &str = "tables of chains together, their ids unpacked,";

impl Loading {
    pub(super) fn plan_chain_tables(&mut self, fields: Fields) -> Result<(), VolumeError> {
        let mut uses: Vec<(u32, u32)> = (self.directory.chain_tables.iter())
            .map(|((chain, _), blob)| (blob.0, chain.0))
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
        fields.within("tables of chains", count, 0, CHAIN_TABLES_MAX)?;
        let [_, _, _, blobs, _] = self.directory.superblock.directory;
        let mut total = 0;
        for table in &tables {
            let Some(blob) = self.blob(table.blob) else {
                continue;
            };
            let (name, kind) = match blob.kind.table() {
                Some(TableKind::Scales) => ("bytes of scales", TableKind::Scales),
                Some(TableKind::Dictionary) => ("bytes of a dictionary", TableKind::Dictionary),
                _ => ("bytes of a rank table", TableKind::Ranks),
            };
            let place = blobs.entry_place(u64::from(table.blob.0));
            let (least, most) = kind.stored_bytes().into_inner();
            total += Fields { place }.within(name, blob.bytes, least, most)?;
        }
        fields.within(TOGETHER, total, 0, CHAIN_TABLES_BYTES_MAX)?;
        self.chain_tables = tables.into();
        Ok(())
    }

    /// The next blocks of the table that is being read.
    pub(super) fn chain_table_wanted(&self) -> Option<(u64, u64)> {
        let blob = self.blob(self.chain_tables.front()?.blob)?;
        let at = blob.offset + self.chain_table.len() as u64;
        let start = at / BLOCK_BYTES_U64 * BLOCK_BYTES_U64;
        let end = (blob.offset + blob.bytes).next_multiple_of(BLOCK_BYTES_U64);
        let bytes = (end - start).min(u64::from(FETCH_BYTES_MAX));
        Some((start, bytes))
    }

    pub(super) fn take_chain_table(
        &mut self,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), VolumeError> {
        let lost = VolumeError::Usage("no table of a chain is being read");
        let Some(index) = self.chain_tables.front().map(|table| table.blob) else {
            return Err(lost);
        };
        let Some(blob) = self.blob(index).cloned() else {
            return Err(lost);
        };
        let from = blob.offset + self.chain_table.len() as u64 - offset;
        let end = (blob.offset + blob.bytes - offset).min(bytes.len() as u64);
        let part = usize::try_from(from).ok().zip(usize::try_from(end).ok());
        let part = part.and_then(|(from, end)| bytes.get(from..end));
        self.chain_table.extend_from_slice(part.ok_or(lost)?);
        if (self.chain_table.len() as u64) < blob.bytes {
            return Ok(());
        }
        let table = std::mem::take(&mut self.chain_table);
        let chains = self.chain_tables.pop_front().map(|table| table.chains);
        check_blob(index, &blob, &table)?;
        let place = blob_place(index, &blob);
        // A chain refers to a blob of its own kind.
        let kind = blob.kind.table().unwrap_or(TableKind::Ranks);
        let table = Table::parse(kind, &table);
        let table = table.map_err(|error| VolumeError::Transform { place, error })?;
        // A packed one of a few bytes can be of two million ids.
        self.chain_tables_bytes += table.counted_bytes();
        let fields = Fields { place };
        fields.within(UNPACKED, self.chain_tables_bytes, 0, CHAIN_TABLES_BYTES_MAX)?;
        self.give_chain_table(&chains.unwrap_or_default(), &table)?;
        if self.chain_tables.is_empty() {
            self.hand_out_chains()?;
        }
        Ok(())
    }

    /// To the chains that refer to it.
    fn give_chain_table(
        &mut self,
        chains: &[ChainIndex],
        table: &Table,
    ) -> Result<(), VolumeError> {
        let [_, _, entries, ..] = self.directory.superblock.directory;
        for chain in chains {
            let used = self.directory.chains.get_mut(chain.0 as usize);
            if let Some(ChainUse::Stored(stored)) = used {
                let place = entries.entry_place(u64::from(chain.0));
                let with_it = stored.with_table(table.clone());
                *stored = with_it.map_err(|error| VolumeError::Transform { place, error })?;
            }
        }
        Ok(())
    }

    /// Streams were parsed before their chains had tables.
    fn hand_out_chains(&mut self) -> Result<(), VolumeError> {
        let [_, entries, ..] = self.directory.superblock.directory;
        let Directory {
            streams, chains, ..
        } = &mut self.directory;
        let tabled = (0u64..)
            .zip(streams)
            .filter(|(_, it)| it.chain.needs_table());
        for (index, stream) in tabled {
            if let Some(ChainUse::Stored(chain)) = chains.get(stream.chain_index.0 as usize) {
                stream.chain = chain.clone();
            }
            if let Some(scaled) = stream.chain.scaled_elements() {
                let place = entries.entry_place(index);
                let field = "elements of a stream whose chain has scales";
                Fields { place }.equal(field, stream.elements, scaled)?;
            }
        }
        Ok(())
    }
}
