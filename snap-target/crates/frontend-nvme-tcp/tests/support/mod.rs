//! The suite's targets and hosts over TCP.

#![allow(dead_code, reason = "each test program uses a part")]

pub mod raw;

use std::sync::Arc;

use frontend_nvme::conformance::On;

/// What carries them.
pub fn on() -> On {
    Arc::new(raw::Tcp)
}
