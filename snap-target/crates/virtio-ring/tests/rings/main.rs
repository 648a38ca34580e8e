//! Rings against a driver: every chain once, whatever the order; kills between any two stores; drivers that break the rules.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::missing_panics_doc,
    missing_docs,
    reason = "a test that cannot go on fails, and its numbers are small"
)]

mod driver;
mod hostile;
mod killed;
mod model;
mod ram;
