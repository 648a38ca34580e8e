//! Tables, cut into blocks as docs/format.md says.

use std::ops::Range;

use zerocopy::IntoBytes;

use super::appender::Appender;
use super::{Output, WriteError};
use crate::checksum::crc32c;
use crate::format::raw::{BLOCK_BYTES, ENTRY_AREA_BYTES, RawBlockHeader};
use crate::format::{Table, TableKind};
use crate::identity::Uuid;

const HEADER_BYTES: usize = size_of::<RawBlockHeader>();
const KEYS_PER_BLOCK: usize = ENTRY_AREA_BYTES / size_of::<u64>();

/// Writes a table of `entry_count` entries at the appender's position, a block boundary. `fill` writes the entry of an index into
/// the bytes it is given and says which keys it covers: for a table that is found by index, that index.
pub(super) fn write_table<O: Output>(
    out: &mut Appender<O>,
    kind: TableKind,
    owner: u32,
    entry_count: u64,
    volume_uuid: Uuid,
    mut fill: impl FnMut(u64, &mut [u8]) -> Result<Range<u64>, WriteError>,
) -> Result<Table, WriteError> {
    let table = Table::at(kind, owner, entry_count, out.position());
    let entry_bytes = kind.entry_bytes() as usize;
    let mut index = 0;
    let mut covered = Vec::new();
    for block in 0..table.level_blocks(0) {
        let mut bytes = [0; BLOCK_BYTES];
        let mut keys = None;
        let entries = bytes[HEADER_BYTES..].chunks_exact_mut(entry_bytes);
        for (entry, _) in entries.zip(0..table.entries_in(0, block)) {
            let entry_keys = fill(index, entry)?;
            keys =
                Some(keys.map_or(entry_keys.start, |keys: Range<u64>| keys.start)..entry_keys.end);
            index += 1;
        }
        let keys = keys.unwrap_or_default();
        seal(&mut bytes, &table, 0, block, keys.clone(), volume_uuid);
        out.append(&bytes)?;
        if kind.is_indexed() {
            covered.push(keys);
        }
    }
    for level in 1..table.levels() {
        covered = write_level(out, &table, level, &covered, volume_uuid)?;
    }
    Ok(table)
}

/// Writes the index blocks over the blocks that cover `children`; returns what they cover themselves.
fn write_level<O: Output>(
    out: &mut Appender<O>,
    table: &Table,
    level: u8,
    children: &[Range<u64>],
    volume_uuid: Uuid,
) -> Result<Vec<Range<u64>>, WriteError> {
    let mut covered = Vec::new();
    for (block, children) in (0..).zip(children.chunks(KEYS_PER_BLOCK)) {
        let mut bytes = [0; BLOCK_BYTES];
        let entries = bytes[HEADER_BYTES..].chunks_exact_mut(size_of::<u64>());
        for (entry, child) in entries.zip(children) {
            entry.copy_from_slice(&child.start.to_le_bytes());
        }
        let keys = match children {
            [first, .., last] => first.start..last.end,
            [only] => only.clone(),
            [] => 0..0,
        };
        seal(&mut bytes, table, level, block, keys.clone(), volume_uuid);
        out.append(&bytes)?;
        covered.push(keys);
    }
    Ok(covered)
}

fn seal(
    bytes: &mut [u8; BLOCK_BYTES],
    table: &Table,
    level: u8,
    block: u64,
    keys: Range<u64>,
    volume_uuid: Uuid,
) {
    let header = table.header(level, block, keys, volume_uuid);
    bytes[..HEADER_BYTES].copy_from_slice(header.as_bytes());
    // The CRC is the header's first field, and covers all that follows it.
    let crc = crc32c(&bytes[4..]);
    bytes[..4].copy_from_slice(&crc.to_le_bytes());
}
