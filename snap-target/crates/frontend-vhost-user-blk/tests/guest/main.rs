//! A device over its socket, as a monitor and a guest's driver use it: both are the tests' own.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::missing_panics_doc,
    missing_docs,
    reason = "a test that cannot go on fails, and its numbers are small"
)]

mod another;
mod cache;
mod changes;
mod disks;
mod foreign;
mod greedy;
mod hostile;
mod kept;
mod ledger;
mod long;
mod lost;
mod monitor;
mod packed;
mod sequences;
mod served;
mod turns;
