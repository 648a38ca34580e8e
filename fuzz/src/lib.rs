//! The bodies of the fuzz targets, as the tests of `nvme` and `transforms` have them.

#![allow(dead_code, unused_imports, reason = "the tests use more of it")]

#[path = "../../snap-target/crates/nvme/tests/hostile_pdus/against_host.rs"]
mod against_host;
#[path = "../../snap-target/crates/nvme/tests/hostile_pdus/against_target.rs"]
mod against_target;
#[path = "../../snap-target/crates/nvme/tests/hostile_pdus/bodies.rs"]
pub mod bodies;
#[path = "../../snap-target/crates/nvme/tests/hostile_pdus/capsules/mod.rs"]
pub mod capsules;
#[path = "../../transforms/tests/hostile_bytes/bodies.rs"]
pub mod stored;
#[path = "../../snap-target/crates/nvme/tests/support/mod.rs"]
mod support;
#[path = "../../snap-target/crates/nvme/tests/hostile_pdus/wire.rs"]
mod wire;

#[global_allocator]
static ALLOCATOR: support::memory::Counting = support::memory::Counting;
