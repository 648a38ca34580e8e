//! A function as its guest has it: a client of the protocol, memory that it shares, and a driver that does what a test tells it.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::missing_panics_doc,
    missing_docs,
    reason = "a test that cannot go on fails, and its numbers are small"
)]

mod apart;
mod changing;
mod client;
mod compliance;
#[expect(
    clippy::duplicate_mod,
    reason = "the same cases over doorbells that are polled"
)]
#[path = "compliance.rs"]
mod compliance_polled;
mod delayed;
mod driver;
mod endings;
mod foreign;
mod hostile;
mod hosts;
mod interrupts;
mod lent;
mod lost;
mod messages;
mod ordinary;
mod polled;
mod session;
mod shadow;
