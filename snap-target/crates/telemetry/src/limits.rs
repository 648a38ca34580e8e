//! The named limits of this crate.

use std::time::Duration;

/// Rows of hosts, each one (subsystem, host, namespace); 4 KiB for each reactor that counts in it. Where all are taken, the one whose host has been gone
/// for longest is given away; where all hosts are there, what comes is counted in a row named [`OTHERS`].
pub const HOST_ROWS_MAX: usize = 512;
/// Rows of namespaces; the same with those that are not served any more.
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
