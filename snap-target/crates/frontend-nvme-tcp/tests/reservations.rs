//! Reservations and write protection while writes wait for data that they were asked for. What is alike over every transport is in the suite.

#![allow(
    clippy::unwrap_used,
    reason = "a failure of a test is a panic with its line"
)]

mod support;

use frontend_nvme::conformance::reservations::{
    COMMAND_ID_CONFLICT, CONFLICT, Host, KEY_A, KEY_B, PREEMPT_AND_ABORT, PREEMPTED, SUCCESS,
    WRITE_PROTECTED, connect_both, two_hosts, write_in_capsule,
};
use frontend_nvme::conformance::{Gate, Target, disk, memory};
use support::on;
use support::raw::TcpQueue;

/// Both hosts are registered, and `b` holds a reservation: Write Exclusive.
fn b_holds(target: &Target) -> (Host, Host) {
    let (mut a, mut b) = connect_both(target);
    assert_eq!(
        (a.register(0), b.register(0), b.acquire(1)),
        (SUCCESS, SUCCESS, SUCCESS)
    );
    (a, b)
}

/// Feature 84h.
fn set(host: &mut Host, state: u32) -> u16 {
    host.admin.plain(0x09, 1, [0x84, state, 0]).status
}

/// The same, and NSATTR of Identify Namespace.
fn get(host: &mut Host) -> (u32, u8) {
    let answer = host.admin.plain(0x0A, 1, [0x84, 0, 0]);
    assert_eq!(answer.status, SUCCESS);
    let identify = host.admin.fetch(0x06, 1, [0, 0, 0], 4096).unwrap();
    (answer.dw0, identify[99])
}

/// What has not begun ends at once, on both reactors, before the answer; reservation and data are as the preempting host left them.
#[test]
fn preempt_and_abort_with_writes_that_wait_for_data() {
    let target = Target::start_many(&on(), disk(memory()), 2);
    let (mut a, mut b) = b_holds(&target);
    let cids = [b.first.send_write(7), b.second.send_write(7)];
    let r2ts = [b.first.r2t(), b.second.r2t()];
    assert_eq!(a.preempt(PREEMPT_AND_ABORT, 1, KEY_B), SUCCESS);
    assert_eq!(write_in_capsule(&mut a.first, 7).status, SUCCESS);
    for ((queue, r2t), cid) in [&mut b.first, &mut b.second]
        .into_iter()
        .zip(r2ts)
        .zip(cids)
    {
        queue.send_data(r2t, 0xBB);
        let ended = queue.response();
        assert_eq!((ended.cid, ended.status), (cid, PREEMPTED));
    }
    assert_eq!(a.second.read(7), vec![0x55; 4096]);
    assert_eq!(a.report(), (1, 0, vec![(a.id(), KEY_A, true)]));
}

/// A host that gives two writes the same identifier: the second is refused, nothing of it reaches the store, and who preempts ends the first.
#[test]
fn preempt_and_abort_of_writes_with_the_same_identifier() {
    let (gate, store) = Gate::over(memory(), 1);
    let target = Target::start_many(&on(), disk(store), 2);
    let (mut a, mut b) = b_holds(&target);
    let cid = b.first.send_write(7);
    let r2t = b.first.r2t();
    b.first.use_cid(cid);
    let second = write_in_capsule(&mut b.first, 7);
    assert_eq!((second.cid, second.status), (cid, COMMAND_ID_CONFLICT));
    assert_eq!(gate.held(), 0, "it did not reach the store");
    assert_eq!(a.preempt(PREEMPT_AND_ABORT, 1, KEY_B), SUCCESS);
    gate.open();
    assert_eq!(write_in_capsule(&mut a.first, 7).status, SUCCESS);
    b.first.send_data(r2t, 0xBB);
    let ended = b.first.response();
    assert_eq!((ended.cid, ended.status), (cid, PREEMPTED));
    assert_eq!(a.second.read(7), vec![0x55; 4096]);
}

#[test]
fn write_protection_is_in_force_when_it_is_answered_and_others_are_told() {
    let (_target, mut a, mut b) = two_hosts(&on());
    // Attached Namespace Attribute Notices.
    assert_eq!(b.admin.plain(0x09, 0, [0x0B, 1 << 8, 0]).status, SUCCESS);
    let event = b.admin.send_plain(0x0C, 0, [0, 0, 0]);
    let cid = b.second.send_write(7);
    let r2t = b.second.r2t();
    assert_eq!(set(&mut a, 1), SUCCESS);
    b.second.send_data(r2t, 0xBB);
    let ended = b.second.response();
    assert_eq!((ended.cid, ended.status), (cid, WRITE_PROTECTED));
    assert_eq!(
        (a.write(1), b.write(1)),
        ([WRITE_PROTECTED; 2], [WRITE_PROTECTED; 2])
    );
    assert_eq!((b.read(), b.first.flush().status), ([SUCCESS; 2], SUCCESS));
    let told = b.admin.response();
    assert_eq!((told.cid, told.dw0), (event, 0x0004_0002));
    assert_eq!((get(&mut a), get(&mut b)), ((1, 1), (1, 1)));
    assert_eq!(set(&mut b, 0), SUCCESS);
    assert_eq!((a.write(1), b.write(1)), ([SUCCESS; 2], [SUCCESS; 2]));
    assert_eq!(get(&mut a), (0, 0));
}

/// A write that waits for its data when the reservation comes is not applied when they are there.
#[test]
fn a_write_whose_data_come_after_the_reservation_conflicts() {
    let (_target, mut a, mut b) = two_hosts(&on());
    let cid = b.second.send_write(7);
    let r2t = b.second.r2t();
    assert_eq!((a.register(0), a.acquire(1)), (SUCCESS, SUCCESS));
    b.second.send_data(r2t, 0xBB);
    let ended = b.second.response();
    assert_eq!((ended.cid, ended.status), (cid, CONFLICT));
    assert_eq!(a.second.read(7), vec![0; 4096]);
    // And one that would be asked for its data is not.
    assert_eq!(b.first.send_write(7), b.first.response().cid);
}
