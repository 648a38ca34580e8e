//! A controller that a test plays over a plain socket.

#![allow(dead_code, reason = "each test program uses a part")]

pub mod host;
pub mod peer;
pub mod rig;
