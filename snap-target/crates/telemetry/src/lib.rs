//! What a target did: counters, latency histograms, a flight recorder, and their text forms.
//!
//! **What it is.** A [`Telemetry`] is made once, with one [`ReactorTelemetry`] a reactor. A reactor writes to its own alone, with plain stores; anyone
//! reads everything at any time: [`Telemetry::snapshot`] for numbers, [`Telemetry::events`] and [`Telemetry::dump`] for the last events.
//! [`prometheus`] makes Prometheus' text of a snapshot. [`LogLimit`] bounds the log lines that a host can provoke.
//!
//! **Its contract.** Writing a number or an event takes no lock, no locked instruction and no allocation. Rows are found by name under a lock, by
//! a queue's first command to a namespace; they outlive connections, so that a host that comes back counts on, until their place
//! is needed for somebody who is there: their number is bounded ([`limits`]). A snapshot is not one moment: each number in it was true at some time while it was made.
//!
//! **What it does not do.** No I/O and no clock of its own in the data path: who writes brings the time.

#![forbid(unsafe_code)]

mod cell;
mod histogram;
mod host_row;
mod kind;
pub mod limits;
mod log_limit;
pub mod metrics;
mod namespace_row;
pub mod prometheus;
mod reactor;
mod recorder;
mod rows;
mod snapshot;
mod target;
mod utc;

pub use cell::Counter;
pub use histogram::{Histogram, HistogramSnapshot};
pub use host_row::{Ended, HostRow};
pub use kind::{CommandKind, StatusClass};
pub use log_limit::LogLimit;
pub use namespace_row::{DecodeRow, NamespaceCounters, NamespaceRow, TransformRow};
pub use reactor::{PoolCounters, ReactorCounters, ReactorTelemetry};
pub use recorder::{DumpFormat, Event, EventKind, FlightRecorder, HostName, Recorded};
pub use snapshot::{
    DecodeSnapshot, HostSnapshot, NamespaceSnapshot, PoolSnapshot, ReactorSnapshot, Snapshot,
    TransformSnapshot,
};
pub use target::{Telemetry, TelemetryConfig};
