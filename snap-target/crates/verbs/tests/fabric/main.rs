//! The fabric in memory: it passes the suite, whatever its links do; and what only it can show.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on has failed; panicking is its report"
)]

mod connections;
mod ends;
mod faults;
mod memory;
mod programs;
mod suite;

/// Addresses for tests: two of each kind.
pub(crate) fn address(text: &str) -> std::net::IpAddr {
    text.parse().unwrap()
}
