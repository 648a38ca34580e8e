//! Every limit, in one place.

use std::time::Duration;

/// How long the kernel may keep names and attributes: they never change.
pub const KEPT: Duration = Duration::from_secs(365 * 24 * 3600);
/// Bytes that are fetched at a time where a reader goes on and on.
pub const CHUNK_BYTES: u64 = 1 << 20;
/// Chunks that are held, read or on their way.
pub const CHUNKS_MAX: usize = 32;
/// Chunks that are asked for ahead of a reader.
pub const CHUNKS_AHEAD: u64 = 2;
/// Threads that fetch them.
pub const AHEAD_THREADS: usize = 2;
/// Readers whose places are remembered.
pub const RUNS_MAX: usize = 32;
/// Requests in a row after which a reader is taken to go on.
pub const RUN_REQUESTS: u32 = 3;
/// Bytes that they have together, at least: small samples of a random order come near each other by chance, whose number grows with that of the samples.
pub const RUN_BYTES: u64 = 128 << 10;
/// Bytes before and behind the end of a run in which its next request may begin: the kernel's requests overtake each other, and files begin at blocks.
pub const RUN_SLACK_BYTES: u64 = 256 << 10;
/// Bytes of metadata that are fetched at a time: directories and inodes lie together.
pub const PAGE_BYTES: u64 = 64 << 10;
/// Pages of metadata in each of two generations.
pub const PAGES_MAX: usize = 128;
/// Places that were complained of, each of which is not named again.
pub const COMPLAINTS_MAX: usize = 1024;
/// Names that are gone through to find what a damaged file is called.
pub const NAMES_SEARCHED_MAX: usize = 1 << 20;
/// Threads that answer the kernel.
pub const THREADS_MAX: usize = 64;
