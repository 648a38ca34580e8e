//! A function as its guest has it: a client of the protocol, memory that it shares, and a driver that does what a test tells it.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::missing_panics_doc,
    missing_docs,
    reason = "a test that cannot go on fails, and its numbers are small"
)]

mod apart;
mod client;
mod compliance;
mod delayed;
mod driver;
mod endings;
mod hostile;
mod interrupts;
mod messages;
mod ordinary;
mod session;
mod shadow;
