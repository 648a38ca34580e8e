//! Stores around stores, for tests and demonstrations: one that is slow, one that has a line of its own, one that fails.
//!
//! A decorator is checked when it is built: settings that cannot take effect are refused, not ignored.

mod delay;
mod fault;
mod held;
mod limit;

pub use delay::Delay;
pub use fault::{Fault, Faulty, On, What, When};
pub use limit::Limit;
