//! The ends of controllers while a store still has a write of theirs: nobody else notices, and nothing of them begins again before
//! the write has ended (design: "Failure").

use std::time::Duration;

use reactor::Errno;
use store::decorate::{self, Fault, Faulty, What, When};

use super::{DISABLED, ENABLED, Gate, On, Queue, Response, SHUT_DOWN, Target, memory, served};

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
/// IPO: QID in the entry.
const QID_IN_SQE: u32 = 42;
/// CSTS.RDY.
const READY: u32 = 1;

/// A controller that ends with a write under way stays longer than its keep alive; the target must not look after its silence for ever.
pub(super) fn keep_alive_of_a_draining_controller(on: &On) {
    let (gate, store) = Gate::over(memory(), 1);
    let target = Target::start(on, store);
    let (admin, cntlid) = Queue::admin(&target.place, HOST, KEEP_ALIVE);
    let mut io = Queue::io(&target.place, HOST, cntlid, 1);
    io.write(0, 0xAA);
    gate.wait_held(1);
    drop((admin, io));

    // Silent from later on than the first, for as long: when its time is over, the first one's is.
    let (mut silent, _) = Queue::admin(&target.place, OTHER_HOST, KEEP_ALIVE);
    silent.wait_closed();
    let (_admin, cntlid) = Queue::admin(&target.place, OTHER_HOST, NO_KEEP_ALIVE);
    let mut other = Queue::io(&target.place, OTHER_HOST, cntlid, 1);
    assert_eq!(other.read(1), vec![0; 4096]);
    gate.open();
}

/// The admin queue is gone, a write drains, and another I/O queue of the association knocks: it is not let in, and the host comes back when
/// the write has ended.
pub(super) fn no_io_queue_connects_to_a_controller_that_is_ending(on: &On) {
    let (gate, store) = Gate::over(memory(), 1);
    let target = Target::start(on, store);
    let (admin, cntlid) = Queue::admin(&target.place, HOST, NO_KEEP_ALIVE);
    let mut io = Queue::io(&target.place, HOST, cntlid, 1);
    io.write(0, 0xAA);
    gate.wait_held(1);
    drop(admin);
    // Its connection goes with the admin queue's: the target has noticed.
    io.wait_closed();

    let (_refused, answer) = Queue::try_io(&target.place, HOST, cntlid, 2);
    let refused = Response {
        cid: 1,
        dw0: CNTLID_IN_DATA,
        status: CONNECT_INVALID_PARAMETERS,
    };
    assert_eq!(answer, refused);

    let mut again = Queue::asking_for_admin(&target.place, HOST);
    gate.open();
    let connected = again.response();
    assert_eq!(
        (connected.status, connected.dw0),
        (0, u32::from(cntlid) + 1)
    );
}

/// CC.EN=0 with a write under way: CSTS.RDY says so as long as the write can still be applied, and what the host writes through a queue of
/// after the reset stays.
pub(super) fn ready_stays_until_the_queues_have_ended(on: &On) {
    let (gate, store) = Gate::over(memory(), 1);
    let target = Target::start(on, store);
    let (mut admin, cntlid) = Queue::admin(&target.place, HOST, NO_KEEP_ALIVE);
    let mut io = Queue::io(&target.place, HOST, cntlid, 1);
    io.write(0, 0xAA);
    gate.wait_held(1);
    assert_eq!(admin.set_cc(DISABLED).status, 0);
    io.wait_closed();
    assert_eq!(admin.csts(), READY);

    // A host that does not wait: enabled again, another queue. Not yet.
    assert_eq!(admin.set_cc(ENABLED).status, 0);
    let (_refused, answer) = Queue::try_io(&target.place, HOST, cntlid, 2);
    let refused = Response {
        cid: 1,
        dw0: QID_IN_SQE,
        status: CONNECT_INVALID_PARAMETERS,
    };
    assert_eq!(answer, refused);
    assert_eq!(admin.set_cc(DISABLED).status, 0);

    gate.open();
    admin.wait_csts(0);
    assert_eq!(admin.set_cc(ENABLED).status, 0);
    assert_eq!(admin.csts(), READY);
    let mut again = Queue::io(&target.place, HOST, cntlid, 2);
    assert_eq!(again.read(0), vec![0xAA; 4096], "it ended before the reset");
    let cid = again.write(0, 0xBB);
    assert_eq!(
        (again.response().cid, again.read(0)),
        (cid, vec![0xBB; 4096])
    );
}

/// A store that does not let go of a read: its host resets, and comes back after its connections were lost, while other hosts and other disks
/// notice nothing. What the store ends later is nobody's.
pub(super) fn a_read_that_hangs_keeps_no_host_away(on: &On) {
    let (target, place) = served::Target::serving(on);
    let (gate, store) = Gate::over_reads(memory(), 2);
    target.attach(&served::disk(1, store)).unwrap();
    target.attach(&served::disk(2, memory())).unwrap();
    let (mut admin, cntlid) = Queue::admin(&place, HOST, NO_KEEP_ALIVE);
    let mut io = Queue::io(&place, HOST, cntlid, 1);
    io.send_reads(1, 0, 1);
    gate.wait_held(1);
    assert_eq!(admin.set_cc(DISABLED).status, 0);
    io.wait_closed();
    admin.wait_csts(0);
    assert_eq!(admin.set_cc(ENABLED).status, 0);

    let mut io = Queue::io(&place, HOST, cntlid, 2);
    io.send_reads(1, 1, 1);
    gate.wait_held(2);
    drop((admin, io));
    let (_admin, cntlid) = Queue::admin(&place, HOST, NO_KEEP_ALIVE);
    let mut io = Queue::io(&place, HOST, cntlid, 1);
    // Flush of the disk that does not hang.
    assert_eq!(io.flush_of(2).status, 0);
    gate.open();
    assert_eq!(io.read(0), vec![0; 4096]);
}

/// What could not be made durable is not shut down.
pub(super) fn a_shutdown_whose_flush_fails_is_fatal_and_not_complete(on: &On) {
    let flushes_fail = Fault {
        on: decorate::On::Flush,
        range: 0..0,
        when: When::Always,
        what: What::Error(Errno::EIO),
    };
    let faulty = Faulty::over(vec![flushes_fail], memory()).unwrap();
    let target = Target::start(on, faulty.store());
    let (mut admin, cntlid) = Queue::admin(&target.place, HOST, NO_KEEP_ALIVE);
    let mut io = Queue::io(&target.place, HOST, cntlid, 1);
    let written = io.write(0, 0xAA);
    assert_eq!(io.response().cid, written);
    assert_eq!(admin.set_cc(SHUT_DOWN).status, 0);
    let (fatal, in_progress) = (1 << 1, 0b01 << 2);
    admin.wait_csts(READY | fatal | in_progress);
    // A reset mends it.
    assert_eq!(admin.set_cc(DISABLED).status, 0);
    admin.wait_csts(0);
}

/// And what could, is.
pub(super) fn a_shutdown_whose_flush_succeeds_is_complete(on: &On) {
    let target = Target::start(on, memory());
    let (mut admin, _) = Queue::admin(&target.place, HOST, NO_KEEP_ALIVE);
    assert_eq!(admin.set_cc(SHUT_DOWN).status, 0);
    admin.wait_csts(READY | 0b10 << 2);
}

/// A disk hangs: a host that wrote to it waits for it. One that only read it does not, and neither does one that wrote elsewhere.
pub(super) fn a_disk_that_hangs_holds_up_the_shutdown_of_those_who_wrote_to_it(on: &On) {
    const THIRD_HOST: &str = "nqn.2026-11.io.example:third";
    let (target, place) = served::Target::serving(on);
    let (gate, store) = Gate::over_flushes(memory(), 3);
    target.attach(&served::disk(1, store)).unwrap();
    target.attach(&served::disk(2, memory())).unwrap();
    let mut hosts = [HOST, OTHER_HOST, THIRD_HOST].map(|host| {
        let (admin, cntlid) = Queue::admin(&place, host, NO_KEEP_ALIVE);
        (admin, Queue::io(&place, host, cntlid, 1))
    });
    let [(first, first_io), (second, second_io), (third, third_io)] = &mut hosts;
    let written = first_io.write(0, 0xAA);
    assert_eq!(first_io.response().cid, written);
    assert_eq!(second_io.read(0), vec![0xAA; 4096]);
    let write_zeroes = third_io.plain(0x08, 2, [0, 0, 0]);
    assert_eq!(write_zeroes.status, 0);
    for admin in [&mut *first, &mut *second, &mut *third] {
        assert_eq!(admin.set_cc(SHUT_DOWN).status, 0);
    }
    let (in_progress, complete) = (READY | 0b01 << 2, READY | 0b10 << 2);
    gate.wait_held(1);
    second.wait_csts(complete);
    third.wait_csts(complete);
    assert_eq!(first.csts(), in_progress);
    gate.open();
    first.wait_csts(complete);
}
