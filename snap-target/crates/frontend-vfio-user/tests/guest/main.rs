//! A function as its guest has it: a client of the protocol, memory that it shares, and a driver that does what a test tells it.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::missing_panics_doc,
    missing_docs,
    reason = "a test that cannot go on fails, and its numbers are small"
)]

#[path = "../../../frontend-nvme-tcp/tests/support/held.rs"]
#[allow(dead_code, reason = "shared with the tests of another transport")]
mod held;
#[path = "../../../frontend-nvme-tcp/tests/support/target.rs"]
#[allow(dead_code, reason = "shared with the tests of another transport")]
mod target;

mod client;
mod driver;
mod endings;
mod hostile;
mod interrupts;
mod ordinary;
