//! Drivers of both ends without I/O, for tests: each takes bytes, places payload in buffers of its own, and gives bytes.

#![allow(dead_code, reason = "each test program uses a part")]

mod admin;
pub mod host;
mod io;
pub mod memory;
pub mod random;
mod store;
pub mod target;
