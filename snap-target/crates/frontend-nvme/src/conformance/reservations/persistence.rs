//! Persist Through Power Loss: answered when it is kept, taken up when the namespace is served again.

use super::*;
use crate::conformance::TestKeeper;
use namespace::RecordKind;
use std::time::Instant;

/// What has not happened by then never will.
const PATIENCE: Duration = Duration::from_secs(10);

const SET_PTPL: u32 = 3;
const CLEAR_PTPL: u32 = 2;

fn serve(on: &On, keeper: &TestKeeper) -> Target {
    let namespace = disk(memory()).kept_by(keeper.shared()).unwrap();
    Target::start_many(on, namespace, 2)
}

/// Feature 83h.
fn persistence(host: &mut Host) -> u32 {
    let answer = host.admin.plain(0x0A, 1, [0x83, 0, 0]);
    assert_eq!(answer.status, SUCCESS);
    answer.dw0
}

pub(in crate::conformance) fn a_reservation_survives_the_target_where_its_host_asked_for_it(
    on: &On,
) {
    let keeper = TestKeeper::default();
    let target = serve(on, &keeper);
    let (mut a, mut b) = connect_both(&target);
    assert_eq!((a.register(SET_PTPL), b.register(0)), (SUCCESS, SUCCESS));
    assert_eq!(a.acquire(1), SUCCESS);
    let before = a.report();
    assert_eq!((before.0, before.1), (1, 1));
    drop((a, b));
    drop(target);

    let target = serve(on, &keeper);
    let (mut a, mut b) = connect_both(&target);
    assert_eq!(b.write(1), [CONFLICT; 2]);
    assert_eq!(a.report(), before);
    assert_eq!(a.write(1), [SUCCESS; 2]);
    assert_eq!(persistence(&mut a), 1);
    // PTPL = 0: it holds as long as the target does.
    assert_eq!(b.admin.plain(0x09, 1, [0x83, 0, 0]).status, SUCCESS);
    assert_eq!((persistence(&mut a), b.write(1)), (0, [CONFLICT; 2]));
    drop((a, b));
    drop(target);

    let target = serve(on, &keeper);
    let (mut a, mut b) = connect_both(&target);
    assert_eq!(b.write(1), [SUCCESS; 2]);
    assert_eq!(a.report(), (0, 0, vec![]));
    // CPTPL says the same.
    assert_eq!(
        (a.register(SET_PTPL), b.register(CLEAR_PTPL)),
        (SUCCESS, SUCCESS)
    );
    assert_eq!(persistence(&mut a), 0);
}

/// While it is being kept nothing is in force and nothing answered; other commands wait their turn, a report does not.
pub(in crate::conformance) fn a_change_is_answered_when_it_is_kept(on: &On) {
    let keeper = TestKeeper::default();
    let target = serve(on, &keeper);
    let (mut a, mut b) = connect_both(&target);
    assert_eq!(a.register(SET_PTPL), SUCCESS);
    keeper.hold();
    let acquire = a
        .second
        .send_bring(ACQUIRE, 1, [1 << 8, 0, 0], &keys(KEY_A, 0));
    keeper.wait_held();
    let register = b.first.send_bring(REGISTER, 1, [0, 0, 0], &keys(0, KEY_B));
    assert_eq!(b.report().0, 0, "no reservation yet");
    assert_eq!(write_in_capsule(&mut b.second, 1).status, SUCCESS);
    keeper.release();
    let answer = a.second.response();
    assert_eq!((answer.cid, answer.status), (acquire, SUCCESS));
    let answer = b.first.response();
    assert_eq!((answer.cid, answer.status), (register, SUCCESS));
    assert_eq!(b.report().2.len(), 2);
    assert_eq!(b.write(1), [CONFLICT; 2]);
}

/// What cannot be kept is not done.
pub(in crate::conformance) fn a_change_that_cannot_be_kept_is_refused(on: &On) {
    let keeper = TestKeeper::default();
    let target = serve(on, &keeper);
    let (mut a, mut b) = connect_both(&target);
    assert_eq!(a.register(SET_PTPL), SUCCESS);
    keeper.fail(true);
    assert_eq!(a.acquire(1), INTERNAL_ERROR);
    assert_eq!(b.write(1), [SUCCESS; 2]);
    assert_eq!(a.report().0, 0);
    keeper.fail(false);
    assert_eq!(a.acquire(1), SUCCESS);
    assert_eq!(b.write(1), [CONFLICT; 2]);
}

/// RESCAP, and what is not promised where nothing is kept.
pub(in crate::conformance) fn persistence_is_offered_only_where_it_can_be_had(on: &On) {
    let keeper = TestKeeper::default();
    for (target, rescap, status) in [
        (serve(on, &keeper), 0xFF, SUCCESS),
        (
            Target::start_many(on, disk(memory()), 2),
            0xFE,
            INVALID_FIELD,
        ),
    ] {
        let mut a = Host::connect(&target, A, KEY_A);
        let identify = a.admin.fetch(0x06, 1, [0, 0, 0], 4096).unwrap();
        assert_eq!(identify[31], rescap);
        assert_eq!(a.register(SET_PTPL), status);
        assert_eq!(a.admin.plain(0x09, 1, [0x83, 1, 0]).status, status);
    }
}

/// The queue closes while its command is being kept: the host comes back when it is, and finds it done.
pub(in crate::conformance) fn a_command_of_a_queue_that_closed_is_not_applied_behind_its_hosts_back(
    on: &On,
) {
    let keeper = TestKeeper::default();
    let target = serve(on, &keeper);
    let (mut a, _b) = connect_both(&target);
    assert_eq!(a.register(SET_PTPL), SUCCESS);
    keeper.hold();
    a.second
        .send_bring(ACQUIRE, 1, [1 << 8, 0, 0], &keys(KEY_A, 0));
    keeper.wait_held();
    drop(a);
    let mut again = Queue::asking_for_admin(&target.place, A);
    keeper.release();
    assert_eq!(again.response().status, SUCCESS);
    drop(again);
    let mut a = Host::connect(&target, A, KEY_A);
    assert_eq!(a.report().0, 1);
}

/// Nobody waits for ever for a keeper: what it has is refused, and so is what comes meanwhile. When it is kept after all, what is in force is kept over it.
pub(in crate::conformance) fn a_keeper_that_does_not_answer_hangs_nobody(on: &On) {
    let keeper = TestKeeper::default();
    let namespace = disk(memory()).kept_by(keeper.shared()).unwrap();
    let target = Target::start_impatient(on, namespace, 2, Duration::from_millis(50));
    let (mut a, mut b) = connect_both(&target);
    assert_eq!(a.register(SET_PTPL), SUCCESS);
    let registered = keeper.record(RecordKind::Reservations);
    keeper.hold();
    let cdw10 = 1 << 8;
    let acquire = a
        .second
        .send_bring(ACQUIRE, 1, [cdw10, 0, 0], &keys(KEY_A, 0));
    keeper.wait_held();
    let waiting = b.first.send_bring(REGISTER, 1, [0, 0, 0], &keys(0, KEY_B));
    let ends = [a.second.response(), b.first.response()].map(|end| (end.cid, end.status));
    assert_eq!(ends, [(acquire, INTERNAL_ERROR), (waiting, INTERNAL_ERROR)]);
    assert_eq!(b.register(0), INTERNAL_ERROR, "at once");
    assert_eq!(b.admin.plain(0x09, 1, [0x84, 1, 0]).status, INTERNAL_ERROR);
    assert_eq!((b.write(1), a.report().0), ([SUCCESS; 2], 0));
    assert_eq!(keeper.record(RecordKind::Reservations), registered);
    keeper.release();
    let start = Instant::now();
    while keeper.record(RecordKind::Reservations) != registered {
        assert!(start.elapsed() < PATIENCE, "what is in force is not kept");
    }
    // It may be told a little later.
    while a.acquire(1) == INTERNAL_ERROR {
        assert!(start.elapsed() < PATIENCE, "refused for ever");
    }
    assert_eq!((a.report().0, b.write(1)), (1, [CONFLICT; 2]));
}
