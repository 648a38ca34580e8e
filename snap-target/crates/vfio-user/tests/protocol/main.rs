//! The protocol's machine, message by message, at its bytes.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::missing_panics_doc,
    missing_docs,
    reason = "a test that cannot go on fails, and its numbers are small"
)]

mod client;
mod commands;
mod hostile;
mod interrupts;
