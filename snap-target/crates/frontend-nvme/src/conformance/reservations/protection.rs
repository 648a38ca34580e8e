//! Namespace Write Protection Config (84h): in force on every reactor when it is answered, kept, and told.

use super::*;
use crate::conformance::Gate;
use crate::conformance::TestKeeper;
use store::{OpenOptions, SharedStore, StoreSpec};

fn set(host: &mut Host, state: u32) -> u16 {
    host.admin.plain(0x09, 1, [0x84, state, 0]).status
}

fn get(host: &mut Host) -> (u32, u8) {
    let answer = host.admin.plain(0x0A, 1, [0x84, 0, 0]);
    assert_eq!(answer.status, SUCCESS);
    let identify = host.admin.fetch(0x06, 1, [0, 0, 0], 4096).unwrap();
    (answer.dw0, identify[99])
}

/// What was written before is durable when the host is told; no write comes behind that.
pub(in crate::conformance) fn a_namespace_that_is_protected_is_flushed_before_the_answer(on: &On) {
    let (gate, store) = Gate::over_flushes(memory(), 1);
    let target = Target::start_many(on, disk(store), 2);
    let (mut a, mut b) = connect_both(&target);
    assert_eq!(a.write(1), [SUCCESS; 2]);
    let cid = a.admin.send_plain(0x09, 1, [0x84, 1, 0]);
    gate.wait_held(1);
    assert_eq!(b.write(1), [WRITE_PROTECTED; 2]);
    gate.open();
    let answer = a.admin.response();
    assert_eq!((answer.cid, answer.status), (cid, SUCCESS));
    // Lifting it has nothing to flush.
    assert_eq!(set(&mut b, 0), SUCCESS);
}

/// Writes that were let in before, on both reactors, change the namespace when they end: until then nobody is told that it is protected, and the flush comes
/// behind them.
pub(in crate::conformance) fn nothing_changes_once_a_host_is_told_of_the_protection(on: &On) {
    let (gate, store) = Gate::over(memory(), 2);
    let (flush, store) = Gate::over_flushes(store, 1);
    let target = Target::start_many(on, disk(store), 2);
    let (mut a, mut b) = connect_both(&target);
    let cids = [b.first.write(7, 0xBB), b.second.write(8, 0xBB)];
    gate.wait_held(2);
    let set_protection = a.admin.send_plain(0x09, 1, [0x84, 1, 0]);
    // In force by now.
    while b.first.bring(0x01, 1, [9, 0, 0], &[0x55; 4096]).status != WRITE_PROTECTED {}
    assert_eq!(get(&mut b).1, 0, "its attributes say nothing yet");
    assert_eq!(flush.held(), 0);
    gate.open();
    for (queue, cid) in [&mut b.first, &mut b.second].into_iter().zip(cids) {
        let ended = queue.response();
        assert_eq!((ended.cid, ended.status), (cid, SUCCESS));
    }
    flush.wait_held(1);
    assert_eq!(b.second.read(7), vec![0xBB; 4096]);
    flush.open();
    let answer = a.admin.response();
    assert_eq!((answer.cid, answer.status), (set_protection, SUCCESS));
    assert_eq!(get(&mut b), (1, 1));
}

/// A write that a store does not end: the host is told that the protection has failed, in time, though no other write is let in.
pub(in crate::conformance) fn a_write_that_does_not_end_fails_the_command(on: &On) {
    let (gate, store) = Gate::over(memory(), 1);
    let patience = std::time::Duration::from_millis(100);
    let target = Target::start_impatient(on, disk(store), 2, patience);
    let (mut a, mut b) = connect_both(&target);
    let cid = b.first.write(7, 0xBB);
    gate.wait_held(1);
    assert_eq!(set(&mut a, 1), INTERNAL_ERROR);
    assert_eq!((get(&mut a), a.write(1)), ((1, 1), [WRITE_PROTECTED; 2]));
    gate.open();
    let ended = b.first.response();
    assert_eq!((ended.cid, ended.status), (cid, SUCCESS));
    assert_eq!((set(&mut a, 1), get(&mut b)), (SUCCESS, (1, 1)));
}

/// A store that does not answer the flush: the host is told so, in time, and nothing is written any more.
pub(in crate::conformance) fn a_flush_that_is_not_answered_fails_the_command(on: &On) {
    let (gate, store) = Gate::over_flushes(memory(), 1);
    let patience = std::time::Duration::from_millis(100);
    let target = Target::start_impatient(on, disk(store), 2, patience);
    let (mut a, mut b) = connect_both(&target);
    assert_eq!(a.write(1), [SUCCESS; 2]);
    assert_eq!(set(&mut a, 1), INTERNAL_ERROR);
    assert_eq!((get(&mut b), b.write(1)), ((1, 1), [WRITE_PROTECTED; 2]));
    gate.open();
    assert_eq!(set(&mut b, 0), SUCCESS);
    assert_eq!(a.write(1), [SUCCESS; 2]);
}

/// Until power cycle: nobody lifts it, and a start does. Permanent: nothing does.
pub(in crate::conformance) fn the_lasting_states_are_lifted_by_what_they_say(on: &On) {
    let keeper = TestKeeper::default();
    for (set_to, before, after) in [(1, 0, 1), (0, 1, 0), (2, 0, 0), (3, 0, 3), (3, 3, 3)] {
        let namespace = disk(memory()).kept_by(keeper.shared()).unwrap();
        let target = Target::start_many(on, namespace, 2);
        let mut a = Host::connect(&target, A, KEY_A);
        assert_eq!(get(&mut a), (before, u8::from(before != 0)));
        assert_eq!(set(&mut a, set_to), SUCCESS);
        if set_to > 1 {
            for other in (0..4).filter(|&other| other != set_to) {
                assert_eq!(set(&mut a, other), FEATURE_NOT_CHANGEABLE);
            }
        }
        drop((a, target));
        let namespace = disk(memory()).kept_by(keeper.shared()).unwrap();
        assert_eq!(namespace.access.protection().to_wire(), after);
    }
}

/// What cannot be kept is not done.
pub(in crate::conformance) fn protection_that_cannot_be_kept_is_refused(on: &On) {
    let keeper = TestKeeper::default();
    let namespace = disk(memory()).kept_by(keeper.shared()).unwrap();
    let target = Target::start_many(on, namespace, 2);
    let mut a = Host::connect(&target, A, KEY_A);
    keeper.fail(true);
    assert_eq!(set(&mut a, 1), INTERNAL_ERROR);
    assert_eq!((get(&mut a), a.write(1)), ((0, 0), [SUCCESS; 2]));
}

/// A namespace that nobody may write stays so, whatever hosts set.
pub(in crate::conformance) fn no_host_lifts_what_was_never_writable(on: &On) {
    let spec = StoreSpec::Mem { bytes: 1 << 20 };
    let store = SharedStore::open(&spec, OpenOptions::read_write()).unwrap();
    let mut namespace = disk(store);
    namespace.write_protected = true;
    let target = Target::start_many(on, namespace, 2);
    let mut a = Host::connect(&target, A, KEY_A);
    assert_eq!(get(&mut a), (1, 1));
    assert_eq!(set(&mut a, 1), SUCCESS);
    for state in [0, 2, 3] {
        assert_eq!(set(&mut a, state), FEATURE_NOT_CHANGEABLE);
    }
    assert_eq!((get(&mut a), a.write(1)), ((1, 1), [WRITE_PROTECTED; 2]));
}

/// Dataset Management without AD changes nothing: it is taken as by a view, whoever protects the namespace. With AD it is refused.
pub(in crate::conformance) fn hints_are_taken_of_a_protected_namespace(on: &On) {
    let (_target, mut a, mut b) = two_hosts(on);
    let mut range = [0; 16];
    range[4] = 1;
    let both = |host: &mut Host, attributes| {
        let cdw = [0, attributes, 0];
        let queues = [&mut host.first, &mut host.second];
        queues.map(|queue| queue.bring(0x09, 1, cdw, &range).status)
    };
    assert_eq!(
        (both(&mut a, 1), both(&mut b, 4)),
        ([SUCCESS; 2], [SUCCESS; 2])
    );
    assert_eq!(set(&mut a, 1), SUCCESS);
    assert_eq!(
        (both(&mut a, 1), both(&mut b, 3)),
        ([SUCCESS; 2], [SUCCESS; 2])
    );
    assert_eq!(
        (both(&mut a, 4), both(&mut b, 5)),
        ([WRITE_PROTECTED; 2], [WRITE_PROTECTED; 2])
    );
}
