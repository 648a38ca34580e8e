//! The named limits of this crate, in one place and checked against each other.

use std::time::Duration;

use volume::limits::{FETCH_BYTES_MAX, FRAME_PACKED_BYTES_MAX};

/// Requests in flight on one engine; more are parked by the frontends' queue depths, which sum up to less by configuration.
pub(crate) const REQUESTS_MAX: usize = 1 << 16;
/// Fetches of one request, or of one run of frames: the low bits of a store token.
pub(crate) const FETCHES_MAX: usize = 1 << 8;
/// Neighbouring frames that have the same home: 1 MiB of frames of the default size, so that a long read is fetched in long pieces.
pub(crate) const GROUP_FRAMES: usize = 16;
/// A decode that takes longer, by the estimate of its codec, goes to a worker (design: "Reactor").
pub(crate) const DECODE_INLINE_NS_MAX: u64 = 50_000;
/// Decoding that one turn of a reactor does itself; what is left over goes on in the next turn. Four of the longest inline decodes: sockets are
/// looked after often enough, and a turn still costs little beside what it decodes.
pub(crate) const TURN_DECODE_NS_MAX: u64 = 4 * DECODE_INLINE_NS_MAX;
/// Decoding for one fetch before others have their turn: a common read ends in one go, and a long one does not hold up short ones.
pub(crate) const SLICE_NS_MAX: u64 = 2 * DECODE_INLINE_NS_MAX;
/// Frames of one engine that the workers have: each keeps a copy of its stored bytes.
pub(crate) const JOBS_MAX: usize = 32;
/// Of them, for each worker, those that nobody waits for: as soon as it has ended one there is the next, and little stands before one that
/// somebody waits for.
pub(crate) const AHEAD_JOBS_PER_WORKER: usize = 2;
/// Fetches ahead that one engine has under way for one namespace.
pub(crate) const AHEAD_FETCHES_MAX: usize = 64;
/// Bytes of a range that are fetched together.
pub(crate) const ORDERED_BYTES_MAX: u64 = 1 << 20;
/// Of hints and of an order, bytes of the store that are on their way before its pace is known, and at least.
pub(crate) const UNDER_WAY_BYTES_MIN: u64 = 2 * ORDERED_BYTES_MAX;
/// For a byte of the store hosts see so many at most, as far as that limit goes: zeros, say, cost the store nothing.
pub(crate) const UNDER_WAY_RATIO_MAX: u64 = 8;
/// Ranges of an order that wait for their turn; whoever gives them waits for room.
pub const ORDER_RANGES_MAX: usize = 1 << 16;
/// Pieces of an order that its quota has room for at least, where a frame is not more than that.
pub(crate) const ORDER_PIECES: u64 = 4;
/// So many reads in a row that find nothing of an order: its reader is elsewhere.
pub(crate) const ORDER_MISSES_MAX: u32 = 64;
/// The part of what may be unread that is given up then, is one of so many.
pub(crate) const ORDER_SHARES: u64 = 8;
/// The same, where hosts say of more than there is room for that they will read it.
pub(crate) const HINT_SHARES: u64 = 4;
/// Times that stored bytes are read again because they were not what was written, however many copies their store has.
pub(crate) const READS_AGAIN_MAX: u32 = 16;
/// Messages about frames that wait for one engine, of each kind.
pub(crate) const MESSAGES_MAX: usize = 256;
/// Answers that one namespace of several may hold, in parts of what is left of their memory: one that does not answer ends at three quarters,
/// two at three sevenths each.
pub(crate) const SHARE_OF_WHAT_IS_LEFT: usize = 3;
/// Counters of writes under way that a namespace has; reactors beyond their number share some.
pub(crate) const GATE_COUNTERS: usize = 16;
/// Ranges of blocks that Write Uncorrectable may mark in one namespace: a record of 16 KiB, saved as a whole.
pub const MARKS_MAX: usize = 1 << 10;
/// Ranges that writes into the midst of marked ones may cut them into; a write beyond that fails.
pub(crate) const MARKS_CUT_MAX: usize = 16 * MARKS_MAX;
/// How long a record may take to reach stable storage before what wanted it is refused: with what may follow it, below the 30 s of a host.
pub const KEEP_PATIENCE: Duration = Duration::from_secs(8);
/// Records that one engine has its keepers save at a time; more wait.
pub(crate) const SAVES_MAX: usize = 64;
/// What Verify and Compare read at a time.
pub(crate) const CHECKED_BYTES: u32 = 128 << 10;
/// Parts of a mixed namespace: each reactor has handles to the stores of all of them.
pub const MIXED_PARTS_MAX: usize = 16;
/// Threads that decode.
pub const WORKERS_MAX: usize = 8;

const _: () = assert!(
    (REQUESTS_MAX as u64) < 1 << 32 && FETCHES_MAX as u64 <= 1 << 32,
    "both fit a store token"
);
const _: () = assert!(
    FRAME_PACKED_BYTES_MAX / FETCH_BYTES_MAX as u64 + 2 <= FETCHES_MAX as u64,
    "the parts of the longest frame, rounded out, fit a store token"
);
const _: () = assert!(TURN_DECODE_NS_MAX >= DECODE_INLINE_NS_MAX);
