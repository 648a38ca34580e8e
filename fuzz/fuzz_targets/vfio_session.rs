//! A PCIe function and its client: one session an input, on one target that all of them share.
#![no_main]

use std::sync::OnceLock;

use frontend_nvme::conformance::memory;

#[allow(dead_code, reason = "the guest's tests use the rest")]
#[path = "../../snap-target/crates/frontend-vfio-user/tests/guest/client.rs"]
mod client;
#[allow(dead_code, reason = "the guest's tests use the rest")]
#[path = "../../snap-target/crates/frontend-vfio-user/tests/guest/driver.rs"]
mod driver;
#[path = "../../snap-target/crates/frontend-vfio-user/tests/guest/session.rs"]
mod session;

static MACHINE: OnceLock<driver::Machine> = OnceLock::new();

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let machine = MACHINE.get_or_init(|| driver::Machine::start(memory(), 2));
    session::session(machine, data);
});
