//! A controller that a test plays over verbs in memory, and what the suite of queues needs of RDMA.

#![allow(dead_code, reason = "each test uses some of it")]

pub mod peer;
pub mod rig;
