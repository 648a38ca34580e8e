//! What steps of a chain take beside their parameters, as blobs of the volume: tables, one of each kind at most.

use std::sync::Arc;

use crate::TransformError;
use crate::dictionary::Dictionary;
use crate::rank_table::RankTable;
use crate::scales::Scales;

/// What a step of a chain takes beside its parameter, as a blob of the volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Table {
    /// Of `rank`.
    Ranks(Arc<RankTable>),
    /// Of `int8`.
    Scales(Arc<Scales>),
    /// Of `zstd-dict`.
    Dictionary(Arc<Dictionary>),
}

/// Which table a step takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TableKind {
    /// Of `rank`: one for any number of streams.
    Ranks,
    /// Of `int8`: one for each stream.
    Scales,
    /// Of `zstd-dict`: one for any number of streams.
    Dictionary,
}

/// The tables that a chain has got: a slot for each kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tables {
    slots: [Option<Table>; TableKind::ALL.len()],
}

impl Table {
    /// Reads what [`to_bytes`](Table::to_bytes) wrote; hostile input.
    ///
    /// # Errors
    /// [`TransformError::Table`], [`TransformError::Scales`], [`TransformError::Dictionary`].
    pub fn parse(kind: TableKind, bytes: &[u8]) -> Result<Table, TransformError> {
        Ok(match kind {
            TableKind::Ranks => Table::Ranks(Arc::new(RankTable::parse(bytes)?)),
            TableKind::Scales => Table::Scales(Arc::new(Scales::parse(bytes)?)),
            TableKind::Dictionary => Table::Dictionary(Arc::new(Dictionary::parse(bytes)?)),
        })
    }

    /// Which it is.
    #[must_use]
    pub fn kind(&self) -> TableKind {
        match self {
            Table::Ranks(_) => TableKind::Ranks,
            Table::Scales(_) => TableKind::Scales,
            Table::Dictionary(_) => TableKind::Dictionary,
        }
    }

    /// As a volume stores it.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Table::Ranks(table) => table.to_bytes(),
            Table::Scales(scales) => scales.to_bytes(),
            Table::Dictionary(dictionary) => dictionary.to_bytes(),
        }
    }

    /// How many bytes that is.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        match self {
            Table::Ranks(table) => table.stored_bytes(),
            Table::Scales(scales) => scales.stored_bytes(),
            Table::Dictionary(dictionary) => dictionary.stored_bytes(),
        }
    }

    /// How many bytes of it limits count: those that it is stored in, or would be with ids as they are, where that is more.
    #[must_use]
    pub fn counted_bytes(&self) -> u64 {
        match self {
            Table::Ranks(table) => table.stored_bytes().max(table.plain_bytes()),
            Table::Scales(_) | Table::Dictionary(_) => self.stored_bytes(),
        }
    }
}

impl From<Arc<RankTable>> for Table {
    fn from(table: Arc<RankTable>) -> Table {
        Table::Ranks(table)
    }
}

impl From<Arc<Scales>> for Table {
    fn from(scales: Arc<Scales>) -> Table {
        Table::Scales(scales)
    }
}

impl From<Arc<Dictionary>> for Table {
    fn from(dictionary: Arc<Dictionary>) -> Table {
        Table::Dictionary(dictionary)
    }
}

impl TableKind {
    /// Every kind.
    pub const ALL: [TableKind; 3] = [TableKind::Ranks, TableKind::Scales, TableKind::Dictionary];

    /// The bytes of the shortest and the longest.
    #[must_use]
    pub fn stored_bytes(self) -> std::ops::RangeInclusive<u64> {
        match self {
            TableKind::Ranks => RankTable::STORED_BYTES_MIN..=RankTable::STORED_BYTES_MAX,
            TableKind::Scales => Scales::STORED_BYTES_MIN..=Scales::STORED_BYTES_MAX,
            TableKind::Dictionary => Dictionary::STORED_BYTES_MIN..=Dictionary::STORED_BYTES_MAX,
        }
    }

    /// What it is called, in errors.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            TableKind::Ranks => "rank table",
            TableKind::Scales => "scales",
            TableKind::Dictionary => "dictionary",
        }
    }

    /// The error of a chain that needs it and has not got it.
    pub(crate) fn not_here(self) -> &'static str {
        match self {
            TableKind::Ranks => "its rank table is not here",
            TableKind::Scales => "its scales are not here",
            TableKind::Dictionary => "its dictionary is not here",
        }
    }

    /// The error of a chain that is given it and has no step for it.
    pub(crate) fn not_taken(self) -> &'static str {
        match self {
            TableKind::Ranks => "no step of it takes a table",
            TableKind::Scales => "no step of it takes scales",
            TableKind::Dictionary => "no step of it takes a dictionary",
        }
    }
}

impl Tables {
    pub(crate) fn get(&self, kind: TableKind) -> Option<&Table> {
        self.slots[kind as usize].as_ref()
    }

    pub(crate) fn put(&mut self, table: Table) {
        let slot = table.kind() as usize;
        self.slots[slot] = Some(table);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 200 ids from 0 on, in so many bytes each; packed where that is none.
    fn ranks(id_bytes: usize) -> Table {
        if id_bytes == 0 {
            let mut counts = crate::IdCounts::new();
            let ids: Vec<u8> = (0..200).collect();
            counts.add(crate::ElementType::U8, &ids).unwrap();
            return Arc::new(counts.table().unwrap()).into();
        }
        let mut bytes = vec![200, 0, 0, 0, 255, u8::try_from(id_bytes).unwrap(), 0, 0];
        for id in 0u32..200 {
            bytes.extend(&id.to_le_bytes()[..id_bytes]);
        }
        Table::parse(TableKind::Ranks, &bytes).unwrap()
    }

    #[test]
    fn a_table_counts_as_what_it_takes_or_would_take() {
        let of = |id_bytes| {
            let table = ranks(id_bytes);
            (
                table.counted_bytes(),
                table.stored_bytes() == table.counted_bytes(),
            )
        };
        assert_eq!(
            [of(0), of(1), of(2), of(3)],
            [(208, false), (208, true), (408, true), (608, true)]
        );
    }
}
