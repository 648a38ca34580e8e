//! The configuration space (virtio 1.3, 5.2.4: `struct virtio_blk_config`).

use vhost_user::CONFIG_BYTES_MAX;

use crate::disk::{Disk, SECTOR_BYTES};
use crate::limits::{
    DISCARD_SEGMENTS_MAX, QUEUES_MAX, RANGE_BLOCKS_MAX, SEGMENT_BYTES_MAX, SEGMENTS_MAX,
};

/// Where `writeback` is: the only byte that a driver may write.
pub(crate) const AT_WRITEBACK: usize = 32;

/// All of it; what no feature offers is 0.
pub(crate) fn of(disk: &Disk, writeback: bool) -> [u8; CONFIG_BYTES_MAX as usize] {
    let mut space = [0; CONFIG_BYTES_MAX as usize];
    let mut put = |at: usize, bytes: &[u8]| {
        if let Some(place) = space.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    };
    let range_sectors = RANGE_BLOCKS_MAX * disk.sectors_per_block();
    put(0, &disk.sectors().to_le_bytes());
    put(8, &SEGMENT_BYTES_MAX.to_le_bytes());
    put(12, &SEGMENTS_MAX.to_le_bytes());
    // 16: geometry, not offered.
    put(20, &disk.block_bytes.to_le_bytes());
    put(24, &topology(disk));
    put(34, &QUEUES_MAX.to_le_bytes());
    if !disk.read_only {
        put(AT_WRITEBACK, &[u8::from(writeback)]);
        put(36, &range_sectors.to_le_bytes());
        put(40, &DISCARD_SEGMENTS_MAX.to_le_bytes());
        put(44, &disk.sectors_per_block().to_le_bytes());
        put(48, &range_sectors.to_le_bytes());
        put(52, &1_u32.to_le_bytes());
        // write_zeroes_may_unmap.
        put(56, &[1]);
    }
    space
}

/// Physical blocks are the logical ones; reads cost least in `opt_io_size`.
fn topology(disk: &Disk) -> [u8; 8] {
    let optimal_blocks = (disk.optimal_bytes / disk.block_bytes.max(SECTOR_BYTES)).max(1);
    let mut bytes = [0; 8];
    // physical_block_exp and alignment_offset are 0.
    bytes[2..4].copy_from_slice(&1_u16.to_le_bytes());
    bytes[4..8].copy_from_slice(&optimal_blocks.to_le_bytes());
    bytes
}
