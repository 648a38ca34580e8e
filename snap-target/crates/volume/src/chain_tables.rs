//! The tables of chains of a volume that is being written: each once, as many and as long as a reader holds.

use transforms::Table;

use crate::limits::{CHAIN_TABLES_BYTES_MAX, CHAIN_TABLES_MAX};

/// In the order in which chains came with them.
#[derive(Debug, Default)]
pub(crate) struct ChainTables {
    tables: Vec<Table>,
    bytes: u64,
}

impl ChainTables {
    /// Takes a table in, and says whether it was not there.
    ///
    /// # Errors
    /// The limit that it passes, and what to do.
    pub(crate) fn add(&mut self, table: &Table) -> Result<bool, String> {
        if self.position(table).is_some() {
            return Ok(false);
        }
        if self.tables.len() as u64 >= CHAIN_TABLES_MAX {
            return Err(format!(
                "more than {CHAIN_TABLES_MAX} of them: store fewer streams by rank, int8 or zstd-dict"
            ));
        }
        let bytes = self.bytes + table.counted_bytes();
        if bytes > CHAIN_TABLES_BYTES_MAX {
            return Err(format!(
                "{bytes} bytes with ids unpacked; at most {CHAIN_TABLES_BYTES_MAX} are possible: store fewer streams by rank or zstd-dict, or by q8_0 and not by int8"
            ));
        }
        self.bytes = bytes;
        self.tables.push(table.clone());
        Ok(true)
    }

    /// Which of them it is.
    pub(crate) fn position(&self, table: &Table) -> Option<usize> {
        self.tables.iter().position(|known| known == table)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Table> {
        self.tables.iter()
    }
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation)] // numbers of tables and of ids are small
mod tests {
    use std::sync::Arc;

    use transforms::{ElementType, IdCounts, RANKS_MAX, RankTable};

    use super::*;

    /// A table of the first `count` ids, the first two of them changed for `number`: no two are the same.
    fn table(count: u32, number: u32) -> Table {
        let mut bytes = count.to_le_bytes().to_vec();
        bytes.extend([129, 3, 0, 0]);
        for id in (0..count).map(|id| if id == 0 { (1 << 22) - 1 - number } else { id }) {
            bytes.extend(&id.to_le_bytes()[..3]);
        }
        Table::Ranks(Arc::new(RankTable::parse(&bytes).unwrap()))
    }

    #[test]
    fn a_table_is_taken_in_once_and_not_beyond_either_limit() {
        let mut tables = ChainTables::default();
        for number in 0..CHAIN_TABLES_MAX as u32 {
            assert_eq!(tables.add(&table(2, number)), Ok(true));
        }
        assert_eq!(tables.add(&table(2, 7)), Ok(false));
        let error = tables.add(&table(2, CHAIN_TABLES_MAX as u32)).unwrap_err();
        assert!(error.starts_with("more than 4096 of them"), "{error}");
        assert_eq!(tables.position(&table(2, 4095)), Some(4095));

        let largest = 8 + 3 * RANKS_MAX as u64;
        let mut tables = ChainTables::default();
        let fit = CHAIN_TABLES_BYTES_MAX / largest;
        for number in 0..fit as u32 {
            assert_eq!(tables.add(&table(RANKS_MAX as u32, number)), Ok(true));
        }
        let error = tables.add(&table(RANKS_MAX as u32, 99)).unwrap_err();
        let bytes = (fit + 1) * largest;
        assert!(
            error.starts_with(&format!("{bytes} bytes with ids unpacked; at most")),
            "{error}"
        );
        assert_eq!(tables.iter().count() as u64, fit);

        // Packed ones count as much.
        let packed = |number: u32| {
            let ids: Vec<u8> = (number..)
                .take(RANKS_MAX)
                .flat_map(u32::to_le_bytes)
                .collect();
            let mut counts = IdCounts::new();
            counts.add(ElementType::U32, &ids).unwrap();
            Table::Ranks(Arc::new(counts.table().unwrap()))
        };
        let mut tables = ChainTables::default();
        for number in 0..fit as u32 {
            assert!(packed(number).stored_bytes() < 1024);
            assert_eq!(tables.add(&packed(number)), Ok(true));
        }
        assert_eq!(tables.add(&packed(99)).unwrap_err(), error);
    }
}
