//! The suite of queues, on TCP.

#![allow(clippy::unwrap_used, reason = "a failure of a test is a panic")]

mod support;

use nvme::tcp::target::TargetLimits;
use store_nvme::conformance::run;

use support::rig::TcpRig;

store_nvme::queue_checks!(TcpRig::new(false, false));

#[test]
fn with_header_digests() {
    run(&TcpRig::new(true, false));
}

#[test]
fn with_data_digests() {
    run(&TcpRig::new(false, true));
}

#[test]
fn with_both_digests() {
    run(&TcpRig::new(true, true));
}

/// A controller that cuts data into small PDUs, and wants them aligned.
#[test]
fn in_small_pieces() {
    let mut rig = TcpRig::new(true, true);
    rig.limits = TargetLimits {
        h2c_data_bytes_max: 4096,
        r2t_bytes_max: 12 << 10,
        c2h_data_bytes_max: 4096,
        alignment_z: 31,
        ..rig.limits
    };
    run(&rig);
}
