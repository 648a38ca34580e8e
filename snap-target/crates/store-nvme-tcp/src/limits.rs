//! The named limits of a queue, in one place.

use std::time::Duration;

use nvme::tcp::batch::ITEM_BYTES_MAX;

/// PDUs that the machine hands out at a time.
pub(crate) const BATCH_PDUS_MAX: usize = 64;
/// Pieces of one gathered send: header, payload of some segments, digest, for each PDU. What has more goes with the next.
pub(crate) const BATCH_SEGMENTS_MAX: usize = 512;
/// Header and digest bytes of one gathered send.
pub(crate) const BATCH_HEADER_BYTES: usize = BATCH_PDUS_MAX * ITEM_BYTES_MAX;

/// What a receive takes beyond the payload that has its place: many small PDUs at once. It stays in a second-level cache.
pub(crate) const LANDING_BYTES: usize = 128 << 10;
/// Behind payload of this size or more the next receive takes headers only.
pub(crate) const DIRECT_BYTES_MIN: u32 = 16 << 10;
/// What that is: a few headers. More would be the next payload's, at a copy.
pub(crate) const HEADERS_ONLY_BYTES: usize = 256;

/// How soon an operation is tried again that the ring had no room for.
pub(crate) const RETRY: Duration = Duration::from_millis(1);
/// How long the kernel keeps a TermReq that the peer does not take.
pub(crate) const LINGER: Duration = Duration::from_secs(2);

const _: () = assert!(HEADERS_ONLY_BYTES < LANDING_BYTES);
const _: () = assert!(BATCH_SEGMENTS_MAX <= 1024, "IOV_MAX");
