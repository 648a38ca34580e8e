//! What is bounded, and by how much.

use std::time::Duration;

/// Jobs (threads) of one run.
pub const JOBS_MAX: usize = 256;
/// Commands that a job keeps outstanding.
pub const DEPTH_MAX: u32 = 4096;
/// Bytes of the smallest block: a sector, and room for a verify header.
pub const BLOCK_BYTES_MIN: u32 = 512;
/// Bytes of the largest block.
pub const BLOCK_BYTES_MAX: u32 = 64 << 20;
/// Bytes of all buffers of one job.
pub const BUFFER_BYTES_MAX: u64 = 4 << 30;
/// How long a target may say nothing once a job's time is over, or the user wants an end, before what is outstanding is given up.
pub const SILENCE_MAX: Duration = Duration::from_secs(2);
/// Bytes of a job file.
pub const JOB_FILE_BYTES_MAX: u64 = 1 << 20;
/// Blocks that a verified write can remember (four bytes each).
pub const TRACKED_BLOCKS_MAX: u64 = 1 << 28;
/// Blocks of a random map with several block sizes (one bit each: 512 MiB).
pub const MAPPED_BLOCKS_MAX: u64 = 1 << 32;
/// Ranges of an order (16 bytes each).
pub const ORDER_RANGES_MAX: usize = 1 << 24;
/// Whole units of these are read where an order names a part of one: pages, and blocks of every disk.
pub const ORDER_UNIT_BYTES: u64 = 4096;
/// Bytes at the start of a target that are looked at before it is written.
pub const LOOKED_AT_BYTES: usize = 1 << 20;
