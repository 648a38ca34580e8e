//! The named limits of this frontend, in one place and checked against each other.

use std::time::Duration;

use store::TRANSFER_BYTES_MIN;

/// Requests of a queue at a time.
pub(crate) const DEPTH: u16 = 128;
/// Queues of a device: one a reactor.
pub const QUEUES_MAX: u16 = 64;
/// Devices of a daemon.
pub const DEVICES_MAX: usize = 16;
/// Bytes of a read or a write: what one buffer of an engine holds. The kernel splits what is longer.
pub const REQUEST_BYTES_MAX: u32 = 1 << 20;
/// Blocks of a range that is discarded or zeroed.
pub(crate) const RANGE_BLOCKS_MAX: u32 = 1 << 16;
/// From a request's arrival to its answer.
pub(crate) const REQUEST_PATIENCE: Duration = Duration::from_secs(25);
/// How long a request that finds its namespace gone waits for the one that takes its place.
pub(crate) const DETACHED_PATIENCE: Duration = Duration::from_secs(5);
/// How long what a reactor is asked may take: longer than a request does.
pub(crate) const DRAIN_PATIENCE: Duration = Duration::from_secs(30);
/// How long a disk may take to appear: its first sectors are read meanwhile, for partitions.
pub(crate) const START_PATIENCE: Duration = Duration::from_secs(60);
/// How long the server before this one may take to be gone, once its process has ended: where it had all requests that a queue may have, kernels from 6.7
/// to 6.15 see it with those requests' timeout alone ([`KERNEL_TIMEOUT`]).
pub(crate) const GONE_PATIENCE: Duration = Duration::from_secs(45);
/// The kernel's timeout of requests, rounded up.
const KERNEL_TIMEOUT: Duration = Duration::from_secs(31);
/// The same while its process is there: it may be ending.
pub(crate) const GOING_PATIENCE: Duration = Duration::from_secs(3);
/// From the start of a device to its disk, or the reason why there is none, at the longest: the server before is gone, a last order takes the device over,
/// and it appears.
pub const APPEAR_TIME_MAX: Duration = GONE_PATIENCE
    .saturating_add(ublk::PATIENCE)
    .saturating_add(START_PATIENCE);
/// Between two looks at whether it is.
pub(crate) const GONE_PAUSE: Duration = Duration::from_millis(20);
/// How long all requests that a queue may have may be under way before a device that is to wait is not made to.
pub(crate) const QUIESCE_PATIENCE: Duration = Duration::from_secs(2);
/// Orders that wait for one reactor.
pub(crate) const ORDERS_MAX: usize = 256;

/// What one reactor's ring has in flight for a device's queue on it: a fetch for each request that may come, and the copy of its data.
const QUEUE_OPS: u32 = 2 * DEPTH as u32;

/// Operations that a reactor's ring needs for so many devices: each has one queue there.
#[must_use]
pub fn ring_operations(devices: usize) -> u32 {
    // At most DEVICES_MAX.
    let devices = u32::try_from(devices.min(DEVICES_MAX)).unwrap_or(0);
    devices * QUEUE_OPS
}

const _: () = assert!(
    REQUEST_BYTES_MAX <= TRANSFER_BYTES_MIN,
    "a store takes each request"
);
const _: () = assert!(
    REQUEST_PATIENCE.as_secs() < DRAIN_PATIENCE.as_secs(),
    "what is in flight has ended by then"
);
const _: () = assert!(
    KERNEL_TIMEOUT.as_secs() < GONE_PATIENCE.as_secs()
        && DETACHED_PATIENCE.as_secs() < REQUEST_PATIENCE.as_secs(),
    "what is waited for has ended by then"
);
const _: () = assert!(DEPTH <= ublk::DEPTH_MAX && QUEUES_MAX <= ublk::QUEUES_MAX);
