//! The named limits of a connection over TCP, in one place, asserted against each other.

use std::time::Duration;

use nvme::tcp::batch::ITEM_BYTES_MAX;
use nvme_spec::tcp::ADMIN_CAPSULE_DATA_BYTES;

/// PDUs in one gathered send. One send a turn and connection; more gains nothing once a send covers the socket's buffer.
pub(crate) const BATCH_PDUS_MAX: usize = 64;
/// Pieces of one gathered send: header, payload of a few segments, digest, for each PDU.
pub(crate) const BATCH_SEGMENTS_MAX: usize = 512;
/// Header and digest bytes of one gathered send.
pub(crate) const BATCH_HEADER_BYTES: usize = BATCH_PDUS_MAX * ITEM_BYTES_MAX;
/// Room for what a gathered send holds: with the system's default a large read leaves in many small pieces.
pub(crate) const SEND_BUFFER_BYTES: usize = 512 << 10;
/// Listener backlog: connections that the kernel has made and that wait to be accepted (it takes no more than net.core.somaxconn says).
pub(crate) const BACKLOG: i32 = 1024;
/// Turns in a row that a send may wait for the answers of what is being received, while data arrive faster than they are taken. The host has been
/// asked for the data of at least as many writes then, and goes on with them.
pub(crate) const SEND_POSTPONED_MAX: usize = 8;
/// What a receive in place takes beyond the payload: the next header, seldom more, since what it takes of the next payload is copied.
pub(crate) const LANDING_BYTES: usize = 2 << 10;
/// Receives after the last payload in place that do not repeat yet: more such payload is likely, and would cost a cancellation.
pub(crate) const SINGLE_RECEIVES: u32 = 32;
/// What is thrown away at a time of what a host still sends on a connection that has ended here.
pub(crate) const FAREWELL_BYTES: usize = 16 << 10;

/// A peer that says nothing for so long is asked whether it is there (TCP keepalive), so often, so many times: a host without a keep alive timer
/// (KATO 0) that is gone without a word holds its controller no longer than that.
pub(crate) const PEER_IDLE: Duration = Duration::from_secs(15);
pub(crate) const PEER_PROBE_INTERVAL: Duration = Duration::from_secs(5);
pub(crate) const PEER_PROBES: u32 = 3;

const _: () = assert!(BATCH_SEGMENTS_MAX <= 1024, "IOV_MAX");
const _: () = assert!(
    ADMIN_CAPSULE_DATA_BYTES <= 8 << 10,
    "in-capsule data come out of the shared buffers, with a copy"
);
const _: () = assert!(
    BATCH_SEGMENTS_MAX >= 3 * BATCH_PDUS_MAX,
    "header, payload and digest of each PDU in one piece each"
);
