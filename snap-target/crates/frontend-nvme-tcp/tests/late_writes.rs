//! A write of a connection that is gone is never applied behind a newer one's back: its host is let in again only when the store is done
//! with it (design: "Failure"; TP4129's concern).

#![allow(
    clippy::unwrap_used,
    reason = "a failure of a test is a panic with its line"
)]

mod support;

use frontend_nvme::conformance::{Gate, NQN, Target, memory};
use std::thread;
use std::time::Duration;
use support::on;

use initiator::{Initiator, Options};

/// A host that gives up soon, with an identity of its own.
fn impatient() -> Options {
    Options {
        command_timeout: Duration::from_millis(200),
        ..Options::default()
    }
}

fn patient(host: &Options) -> Options {
    Options {
        command_timeout: Duration::from_secs(30),
        ..host.clone()
    }
}

#[test]
fn a_host_comes_back_only_when_its_last_write_has_ended() {
    let (gate, store) = Gate::over(memory(), 1);
    let target = Target::start(&on(), store);
    let impatient = impatient();
    let mut host = Initiator::connect(&target.address, NQN, &impatient).unwrap();
    let error = host.write(1, 0, &[0xAA; 4096]).unwrap_err();
    assert!(error.ends_connection(), "the host gave up: {error}");
    drop(host);

    // Another host is not held up by it.
    let mut other = Initiator::connect(&target.address, NQN, &Options::default()).unwrap();
    let mut block = [0; 4096];
    other.read(1, 4096, &mut block).unwrap();

    let early = Initiator::connect(&target.address, NQN, &impatient);
    assert!(
        early.is_err(),
        "it was let in while its old write was under way"
    );
    gate.open();
    let mut again = Initiator::connect(&target.address, NQN, &patient(&impatient)).unwrap();
    again.write(1, 0, &[0xBB; 4096]).unwrap();
    again.read(1, 0, &mut block).unwrap();
    assert_eq!(block, [0xBB; 4096]);
}

/// The old write lands when the store's gate is opened. Whatever another host was told is written by then must not be under it.
#[test]
fn a_late_write_does_not_land_behind_another_hosts() {
    let (gate, store) = Gate::over(memory(), 1);
    let target = Target::start(&on(), store);
    let mut lost = Initiator::connect(&target.address, NQN, &impatient()).unwrap();
    assert!(lost.write(1, 0, &[0xAA; 4096]).is_err());
    drop(lost);
    gate.wait_held(1);

    // Another host's write waits, and what a host gave up while it waited is never written.
    let mut hasty = Initiator::connect(&target.address, NQN, &impatient()).unwrap();
    assert!(hasty.write(1, 0, &[0xBB; 4096]).is_err());
    drop(hasty);
    let address = target.address.clone();
    let other = thread::spawn(move || {
        let options = patient(&impatient());
        let mut other = Initiator::connect(&address, NQN, &options).unwrap();
        other.write(1, 0, &[0xCC; 4096]).unwrap();
        let mut block = [0; 4096];
        other.read(1, 0, &mut block).unwrap();
        block
    });
    gate.open();
    assert_eq!(other.join().unwrap(), [0xCC; 4096]);
}
