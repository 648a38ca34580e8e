//! A load generator: a closed loop of commands on one queue, each replaced as soon as it completes, with the data verified.

mod engine;
mod histogram;
mod pattern;

pub use engine::{Access, Load, Report, Verify};
pub use histogram::Histogram;
pub use pattern::{Mismatch, Pattern};
