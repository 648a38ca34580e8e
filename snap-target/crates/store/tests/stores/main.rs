//! Stores against the suite, and what is particular to each.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod conformance;
mod contract;
mod decorators;
mod file;
mod liar;
mod reactors;
mod scratch;
mod threaded;
