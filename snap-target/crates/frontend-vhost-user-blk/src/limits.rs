//! The named limits of this frontend, in one place and checked against each other.

use std::time::Duration;

use store::TRANSFER_BYTES_MIN;
use virtio_ring::QUEUE_SIZE_MAX;

/// Queues of a device: one a virtual processor, as QEMU counts.
pub const QUEUES_MAX: u16 = 64;
/// Queues on one reactor, of all its devices: each is an owner of the reactor's ring, which waits for its driver and has a timer.
pub const SHARE_QUEUES_MAX: usize = 512;
/// Operations on the ring that a queue may have: it waits for its driver, as one that has ended before it may still do.
pub const QUEUE_OPS_MAX: usize = 2;
/// Bytes of a read or a write: no chain is longer than 2^32 bytes (virtio 1.3, 2.7.5.2). Drivers that heed SEG_MAX and SIZE_MAX ask for far less; firmware
/// heeds neither.
pub const REQUEST_BYTES_MAX: u32 = u32::MAX - (1 << 20) + 1;
/// SEG_MAX: with header and status a chain fits the queue of 128 descriptors that QEMU has unless it is told otherwise.
pub(crate) const SEGMENTS_MAX: u32 = 126;
/// SIZE_MAX.
pub(crate) const SEGMENT_BYTES_MAX: u32 = 32 << 10;
/// A request is carried out in pieces: what one buffer of an engine holds.
pub(crate) const PIECE_BYTES: u32 = 1 << 20;
/// Pieces of a request that are under way at a time: what a request has of an engine's buffers, however long it is.
pub(crate) const LANES_MAX: usize = 4;
/// Bytes that a device's queues on one reactor hold of its engine's memory for reads, and as many for writes: half of the buffers of a piece that an engine
/// has by default. Each queue may hold one piece whatever the others do.
pub(crate) const DEVICE_HELD_BYTES_MAX: u64 = 16 * PIECE_BYTES as u64;
/// Segments of a buffer that is handed to a store.
pub(crate) const PIECE_SEGMENTS_MAX: usize = store::SEGMENTS_MIN as usize;
/// Ranges of a discard.
pub(crate) const DISCARD_SEGMENTS_MAX: u32 = 32;
/// Blocks of a range that is discarded or zeroed.
pub(crate) const RANGE_BLOCKS_MAX: u32 = 1 << 16;
/// Chains that a queue takes in one turn of its reactor.
pub(crate) const TURN_CHAINS_MAX: usize = 64;
/// Bytes that a queue copies or hands to its store in one turn, before others have theirs. A piece may go beyond.
pub(crate) const TURN_BYTES_MAX: usize = PIECE_BYTES as usize;
/// Bytes of all queues of a reactor in one turn, before all else that it serves has its own. A piece may go beyond.
pub(crate) const SHARE_TURN_BYTES_MAX: usize = 4 * TURN_BYTES_MAX;
/// Answers that wait for others to be published with: as many as a line has room for. A turn's end publishes all.
pub(crate) const HELD_ANSWERS_MAX: usize = 8;
/// Bytes that are moved while answers wait so: what a few small requests move.
pub(crate) const HELD_BYTES_MAX: usize = 16 << 10;
/// How long a queue looks for chains by itself after the last one, before it has the driver tell.
pub(crate) const SPIN: Duration = Duration::from_micros(50);
/// From a request's arrival to its answer: below the 30 s after which hosts take a request for lost.
pub(crate) const REQUEST_PATIENCE: Duration = Duration::from_secs(25);
/// How long a request that finds its namespace gone waits for the one that takes its place.
pub(crate) const DETACHED_PATIENCE: Duration = Duration::from_secs(5);
/// How long a message of the monitor waits for what is in flight: longer than a request takes.
pub(crate) const DRAIN_PATIENCE: Duration = Duration::from_secs(30);
/// Between two tries to end the queues of a connection that is lost.
pub(crate) const CUT_REST: Duration = Duration::from_secs(1);
/// A store that keeps guest memory longer than this after a cancel works on copies.
pub(crate) const CANCEL_BOUND_MS_MAX: u32 = 2000;
/// What a killed process has under way at a remote store may land so long after it.
pub(crate) const LINGERS_MS_MAX: u32 = 25_000;
/// Records of what is in flight, as a monitor hands them in: those of another back-end may be longer than ours.
pub(crate) const INFLIGHT_BYTES_MAX: u64 = 64 << 20;
/// Regions of a guest's memory: GET_MAX_MEM_SLOTS.
pub(crate) const MEMORY_REGIONS_MAX: usize = 64;
/// Mappings of them: a table is mapped before the one that it replaces is unmapped. One more has the records of what is in flight.
pub const CLIENT_MAPPINGS_MAX: u64 = 2 * MEMORY_REGIONS_MAX as u64;
/// Orders that wait for one reactor.
pub(crate) const ORDERS_MAX: usize = 1024;

/// Bits of a request's token that name its slot; those above, of 16, name the lane of a piece.
pub(crate) const SLOT_BITS: u32 = 10;

const _: () = assert!(
    QUEUE_SIZE_MAX as u32 <= 1 << SLOT_BITS,
    "a token names each slot"
);
const _: () = assert!(
    LANES_MAX <= 1 << (16 - SLOT_BITS),
    "a token names each piece that is under way"
);
const _: () = assert!(
    (SEGMENTS_MAX * SEGMENT_BYTES_MAX) as usize <= LANES_MAX * PIECE_BYTES as usize,
    "what a driver that heeds the limits sends is under way at once"
);
const _: () = assert!(
    DEVICE_HELD_BYTES_MAX >= LANES_MAX as u64 * PIECE_BYTES as u64,
    "a request has all its lanes"
);
const _: () = assert!(
    PIECE_BYTES <= TRANSFER_BYTES_MIN,
    "a store takes each piece"
);
const _: () = assert!(
    (LINGERS_MS_MAX as u128) < DRAIN_PATIENCE.as_millis(),
    "a queue that waits for that can be stopped"
);
const _: () = assert!(
    REQUEST_PATIENCE.as_secs() < DRAIN_PATIENCE.as_secs(),
    "what is in flight has ended by then"
);
const _: () = assert!(
    SHARE_QUEUES_MAX >= QUEUES_MAX as usize,
    "one reactor serves a device with all its queues"
);
