//! A frontend to test, a store that a test holds, and a host that does only what a test tells it.

#![allow(dead_code, reason = "each test program uses a part")]

pub mod held;
pub mod keeper;
pub mod raw;
pub mod served;
pub mod target;
