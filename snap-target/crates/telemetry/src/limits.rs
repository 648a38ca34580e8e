//! The named limits of this crate.

use std::time::Duration;

/// Rows of hosts, each one (subsystem, host, namespace): a thousand hosts with 32 namespaces each. Their memory is taken as they are used: for each reactor
/// that counts in one 0.5 KiB, and 1.7 KiB each for times of reads and of writes. Where all hosts are there, what comes is counted in a row named [`OTHERS`].
pub const HOST_ROWS_MAX: usize = 32_768;
/// From so many rows on, the one whose host has been gone for longest is given away.
pub const HOST_ROWS_KEPT: usize = 2048;
/// Rows of namespaces: as for hosts, and those that are not served any more are kept as long as there is room.
pub const NAMESPACE_ROWS_MAX: usize = 1024;
/// Stored chains of one namespace whose decoding is counted; further ones share a row named [`OTHERS`].
pub const DECODE_ROWS_MAX: usize = 16;
/// Transforms of one namespace whose time is counted; further ones share a row named [`OTHERS`].
pub const TRANSFORM_ROWS_MAX: usize = 16;
/// The row of what found no place. No NQN and no chain is called so.
pub const OTHERS: &str = "(others)";
/// Events that a flight recorder keeps, as a default: 1.25 MiB.
pub const EVENTS: usize = 4096;
/// A command that takes longer is an event, as a default.
pub const SLOW_COMMAND: Duration = Duration::from_millis(250);
/// Log lines of one call site that may come at once.
pub const LOG_BURST: u32 = 20;
/// Then one in this time.
pub const LOG_INTERVAL: Duration = Duration::from_secs(1);

const _: () = assert!(
    HOST_ROWS_KEPT <= HOST_ROWS_MAX,
    "rows are given away before there are no more"
);
