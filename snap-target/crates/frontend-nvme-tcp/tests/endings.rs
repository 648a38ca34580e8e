//! The ends of controllers while a store still has a write of theirs: nobody else notices, and nothing of them begins again before
//! the write has ended (design: "Failure").

#![allow(
    clippy::unwrap_used,
    reason = "a failure of a test is a panic with its line"
)]

mod support;

use std::time::Duration;

use support::held::Gate;
use support::raw::{Queue, Response};
use support::target::{Target, memory};

const HOST: &str = "nqn.2026-11.io.example:host";
const OTHER_HOST: &str = "nqn.2026-11.io.example:other";
/// The shortest that there is (KAS).
const KEEP_ALIVE: Duration = Duration::from_secs(1);
/// No timer.
const NO_KEEP_ALIVE: Duration = Duration::ZERO;
/// Connect Invalid Parameters, Do Not Retry.
const CONNECT_INVALID_PARAMETERS: u16 = 0x4182;
/// IATTR: the parameter is in the data; IPO: CNTLID.
const CNTLID_IN_DATA: u32 = 1 << 16 | 16;

/// A controller that ends with a write under way stays longer than its keep alive; the target must not look after its silence for ever.
#[test]
fn keep_alive_of_a_draining_controller() {
    let (gate, store) = Gate::over(memory(), 1);
    let target = Target::start(store);
    let (admin, cntlid) = Queue::admin(&target.address, HOST, KEEP_ALIVE);
    let mut io = Queue::io(&target.address, HOST, cntlid, 1);
    io.write(0, 0xAA);
    gate.wait_held(1);
    drop((admin, io));

    // Silent from later on than the first, for as long: when its time is over, the first one's is.
    let (mut silent, _) = Queue::admin(&target.address, OTHER_HOST, KEEP_ALIVE);
    silent.wait_closed();
    let (_admin, cntlid) = Queue::admin(&target.address, OTHER_HOST, NO_KEEP_ALIVE);
    let mut other = Queue::io(&target.address, OTHER_HOST, cntlid, 1);
    assert_eq!(other.read(1), vec![0; 4096]);
    gate.open();
}

/// The admin queue is gone, a write drains, and another I/O queue of the association knocks: it is not let in, and the host comes back when
/// the write has ended.
#[test]
fn no_io_queue_connects_to_a_controller_that_is_ending() {
    let (gate, store) = Gate::over(memory(), 1);
    let target = Target::start(store);
    let (admin, cntlid) = Queue::admin(&target.address, HOST, NO_KEEP_ALIVE);
    let mut io = Queue::io(&target.address, HOST, cntlid, 1);
    io.write(0, 0xAA);
    gate.wait_held(1);
    drop(admin);
    // Its connection goes with the admin queue's: the target has noticed.
    io.wait_closed();

    let (_refused, answer) = Queue::try_io(&target.address, HOST, cntlid, 2);
    let refused = Response {
        cid: 1,
        dw0: CNTLID_IN_DATA,
        status: CONNECT_INVALID_PARAMETERS,
    };
    assert_eq!(answer, refused);

    let mut again = Queue::asking_for_admin(&target.address, HOST);
    gate.open();
    let connected = again.response();
    assert_eq!(
        (connected.status, connected.dw0),
        (0, u32::from(cntlid) + 1)
    );
}
