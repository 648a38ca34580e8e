//! The named limits of connections over RDMA, in one place, asserted against each other.

use std::time::Duration;

use nvme::rdma::target::ADMIN_CAPSULE_DATA_BYTES;
use verbs::limits::{
    BACKLOG_MAX, COMPLETION_ENTRIES_MAX, REQUESTS_PER_POST_MAX, SCATTER_ENTRIES_MAX,
    WORK_REQUESTS_MAX,
};

/// Connect requests that may wait at one listener.
pub(crate) const BACKLOG: u32 = 256;
/// Connect requests that are looked at in one turn of the reactor, and those whose queues are being made: more wait in the backlog.
pub(crate) const REQUESTS_PER_TURN: usize = 32;
pub(crate) const MAKING_MAX: usize = 64;
/// A listener that failed listens again after so long, then after twice as long, and so on.
pub(crate) const LISTEN_AGAIN_MIN: Duration = Duration::from_secs(1);
pub(crate) const LISTEN_AGAIN_MAX: Duration = Duration::from_secs(30);
/// Pools that a connection meets: what its tables of them have room for from the start.
pub(crate) const POOLS_EXPECTED: usize = 8;
/// RDMA READs in progress of one connection; what host and device allow may be less.
pub(crate) const READS_MAX: u8 = 16;
/// Requests of a send queue for each entry of the queue: a command's data and its response, and some whose data come in pieces.
pub(crate) const SEND_REQUESTS_PER_ENTRY: u32 = 3;
/// Requests of a send queue; with more to post they wait.
pub(crate) const SEND_REQUESTS_MAX: u32 = 4096;
/// Segments of one RDMA READ or WRITE; a buffer of more takes several.
pub(crate) const SCATTER_MAX: u32 = 8;
/// Requests that are posted with one call of the device.
pub(crate) const BATCH_MAX: usize = REQUESTS_PER_POST_MAX;
/// A response lies in its request.
pub(crate) const INLINE_BYTES: u32 = 16;

/// Bytes of capsules of all connections of a device: registered memory that hosts make us hold.
pub(crate) const CAPSULE_BYTES_PER_DEVICE_MAX: u64 = 4 << 30;
/// What goes through a connection's staging in one piece, and how many pieces at a time; an admin queue's data are a few pages.
pub(crate) const CHUNK_BYTES: u32 = 64 << 10;
pub(crate) const CHUNKS: usize = 4;
pub(crate) const ADMIN_CHUNKS: usize = 1;
/// A copy in small steps: what lies on the stack.
pub(crate) const COPY_STEP_BYTES: usize = 4 << 10;

/// Turns without a completion after which a connection is waited for rather than polled: some 50 us.
pub(crate) const EMPTY_POLLS_MAX: u32 = 64;

const _: () = assert!(BACKLOG <= BACKLOG_MAX && SCATTER_MAX <= SCATTER_ENTRIES_MAX);
const _: () = assert!(SEND_REQUESTS_MAX <= WORK_REQUESTS_MAX);
const _: () = assert!(
    SEND_REQUESTS_MAX + (1 << 16) <= COMPLETION_ENTRIES_MAX,
    "a completion queue holds what a send queue and the receives of the longest queue may bring"
);
const _: () = assert!(ADMIN_CAPSULE_DATA_BYTES >= 1024, "the data of Connect");
