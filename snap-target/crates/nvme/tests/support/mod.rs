//! What the test programs share besides `nvme::simulation`: a host's queue without I/O, and an allocator that counts.

#![allow(dead_code, reason = "each test program uses a part")]

pub mod host;
pub mod memory;
