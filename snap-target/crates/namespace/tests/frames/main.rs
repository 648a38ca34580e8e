//! Frames that several requests and several engines want: fetched once, decoded once, the same for all; and nobody waits for ever.

#![allow(
    clippy::unwrap_used,
    reason = "a failure of a test is a panic with its line"
)]
#![allow(
    clippy::result_large_err,
    reason = "the error is what is tested, as it comes"
)]

mod budget;
mod counted;
mod crew;
mod failing;
mod held;
mod random;
mod sharing;
mod turns;

#[path = "../support/gated.rs"]
mod gated;
#[path = "../support/mod.rs"]
mod support;

use namespace::{EngineConfig, FrameConfig, FrameWorkers, Namespace};

/// Presented bytes of a frame: the writer's default.
const FRAME_BYTES: u64 = 64 << 10;
const BLOCK: u64 = 4096;
const BLOCKS_PER_FRAME: u64 = FRAME_BYTES / BLOCK;

/// A namespace over a volume as it is on the disk.
fn namespace(packed: &support::Packed) -> Namespace {
    Namespace::of_view(1, packed.volume(), vec![packed.store()])
}

/// Every frame goes to the workers.
fn by_workers(workers: &FrameWorkers) -> EngineConfig {
    EngineConfig {
        frames: FrameConfig {
            workers: Some(workers.queue()),
            decode_inline_ns_max: 0,
            ..FrameConfig::default()
        },
        ..EngineConfig::default()
    }
}

/// The presented bytes of `blocks` logical blocks from `lba` on, the zeros after the end included.
fn expected(source: &[u8], lba: u64, blocks: u64) -> Vec<u8> {
    let start = usize::try_from(lba * BLOCK).unwrap().min(source.len());
    let len = usize::try_from(blocks * BLOCK).unwrap();
    let mut bytes = source[start..].to_vec();
    bytes.resize(len.max(bytes.len()), 0);
    bytes.truncate(len);
    bytes
}
