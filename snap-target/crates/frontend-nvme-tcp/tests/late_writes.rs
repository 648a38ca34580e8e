//! A write of a connection that is gone is never applied behind a newer one's back: its host is let in again only when the store is done
//! with it (design: "Failure"; TP4129's concern).

#![allow(
    clippy::unwrap_used,
    reason = "a failure of a test is a panic with its line"
)]

mod support;

use std::time::{Duration, Instant};

use initiator::{Initiator, Options};
use store::decorate::Delay;
use support::target::{NQN, Target, memory};

#[test]
fn a_host_comes_back_only_when_its_last_write_has_ended() {
    let write_takes = Duration::from_millis(1500);
    let slow = Delay {
        change: write_takes,
        ..Delay::default()
    };
    let target = Target::start(slow.over(memory()).unwrap());
    let impatient = Options {
        command_timeout: Duration::from_millis(200),
        ..Options::default()
    };
    let mut host = Initiator::connect(&target.address, NQN, &impatient).unwrap();
    let submitted = Instant::now();
    let error = host.write(1, 0, &[0xAA; 4096]).unwrap_err();
    assert!(error.ends_connection(), "the host gave up: {error}");
    drop(host);

    // Another host is not held up by it.
    let mut other = Initiator::connect(&target.address, NQN, &Options::default()).unwrap();
    let mut block = [0; 4096];
    other.read(1, 4096, &mut block).unwrap();

    let patient = Options {
        command_timeout: Duration::from_secs(30),
        ..impatient
    };
    let mut again = Initiator::connect(&target.address, NQN, &patient).unwrap();
    assert!(
        submitted.elapsed() >= write_takes,
        "it was let in while its old write was still under way"
    );
    again.write(1, 0, &[0xBB; 4096]).unwrap();
    again.read(1, 0, &mut block).unwrap();
    assert_eq!(block, [0xBB; 4096]);
}
