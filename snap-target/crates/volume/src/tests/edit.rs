//! Edits of a finished volume that leave every checksum right: what a hostile writer can do.

use zerocopy::{FromBytes, IntoBytes};

use crate::blocking::open;
use crate::checksum::crc32c;
use crate::format::raw::{BLOCK_BYTES, RawSuperblock};
use crate::format::superblock::{SLOT_OFFSETS, seal};
use crate::format::{BlobIndex, Table};
use crate::identity::sha256;
use crate::{Volume, VolumeError};

/// Changes all superblocks in the same way.
pub(crate) fn superblocks(store: &mut [u8], edit: impl Fn(&mut RawSuperblock)) {
    let tail = store.len() - BLOCK_BYTES;
    let [slot_0, slot_1] = SLOT_OFFSETS.map(|offset| offset as usize);
    for at in [slot_0, slot_1, tail] {
        superblock_at(store, at, &edit);
    }
}

/// Changes the superblock at `at`.
pub(crate) fn superblock_at(store: &mut [u8], at: usize, edit: impl Fn(&mut RawSuperblock)) {
    let bytes = &mut store[at..at + BLOCK_BYTES];
    let mut raw = RawSuperblock::read_from_bytes(bytes).unwrap();
    edit(&mut raw);
    seal(&mut raw);
    bytes.copy_from_slice(raw.as_bytes());
}

/// Changes an entry of a table.
pub(crate) fn entry(store: &mut [u8], table: &Table, index: u64, edit: impl FnOnce(&mut [u8])) {
    let place = table.entry_place(index);
    let (number, _) = table.locate(index);
    let at = place.offset as usize;
    edit(&mut store[at..at + table.kind().entry_bytes() as usize]);
    reseal(store, table.block_offset(0, number) as usize);
}

/// Changes the bytes of a blob, as many.
pub(crate) fn blob(store: &mut [u8], index: BlobIndex, edit: impl FnOnce(&mut [u8])) {
    let volume = opened(store).unwrap();
    let blob = &volume.blobs()[index.0 as usize];
    let bytes = &mut store[blob.offset as usize..(blob.offset + blob.bytes) as usize];
    edit(bytes);
    let (crc, digest) = (crc32c(bytes), sha256(bytes));
    let blobs = volume.superblock().directory[3];
    entry(store, &blobs, u64::from(index.0), |entry| {
        entry[4..8].copy_from_slice(&crc.to_le_bytes());
        entry[32..64].copy_from_slice(&digest);
    });
}

/// What was made of it.
pub(crate) fn opened(store: &[u8]) -> Result<Volume, VolumeError> {
    open(store, store.len() as u64)
}

/// Why it is none.
pub(crate) fn refused(store: &[u8]) -> String {
    opened(store).unwrap_err().to_string()
}

/// Changes a block of a table.
pub(crate) fn block(
    store: &mut [u8],
    table: &Table,
    level: u8,
    number: u64,
    edit: impl FnOnce(&mut [u8]),
) {
    let at = table.block_offset(level, number) as usize;
    edit(&mut store[at..at + BLOCK_BYTES]);
    reseal(store, at);
}

/// Makes the CRC of a table block right again.
pub(crate) fn reseal(store: &mut [u8], at: usize) {
    let crc = crc32c(&store[at + 4..at + BLOCK_BYTES]);
    store[at..at + 4].copy_from_slice(&crc.to_le_bytes());
}
