//! The suite of queues, on RDMA.

#![allow(clippy::unwrap_used, reason = "a failure of a test is a panic")]

mod support;

use store_nvme::conformance::{CHECKS, run};

use support::peer::Conduct;
use support::rig::RdmaRig;

store_nvme::queue_checks!(RdmaRig::new());

/// As over a device that has no memory windows.
#[test]
fn without_windows() {
    let mut rig = RdmaRig::new();
    rig.transport = rig.transport.without_windows();
    run(&rig);
}

/// Every key is taken back here. Commands without a key then end before those whose key is on its way back, whatever order they were answered in: that
/// check is left out.
#[test]
fn against_a_controller_that_invalidates_nothing() {
    let mut rig = RdmaRig::new();
    rig.conduct = Conduct {
        invalidates: false,
        ..rig.conduct
    };
    let of_order = "a_full_queue_takes_no_more_and_loses_nothing";
    for check in CHECKS.iter().filter(|check| check.name != of_order) {
        (check.run)(&rig);
    }
}

#[test]
fn over_ipv6() {
    run(&RdmaRig::at(["fd00::1", "fd00::2"]));
}
