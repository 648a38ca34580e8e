//! Known failure of others: SPDK's TCP target dies of its own nvme_fuzz, by Reservation Acquire with Preempt and Abort. Here it comes in every state.

use super::*;
use crate::conformance::Gate;
use crate::conformance::{DISABLED, ENABLED};
use std::time::Instant;

/// What has not happened by then never will.
const PATIENCE: Duration = Duration::from_secs(10);

/// Both hosts are registered, and `b` holds a reservation: Write Exclusive.
fn b_holds(target: &Target) -> (Host, Host) {
    let (mut a, mut b) = connect_both(target);
    assert_eq!(
        (a.register(0), b.register(0), b.acquire(1)),
        (SUCCESS, SUCCESS, SUCCESS)
    );
    (a, b)
}

/// What `a` preempts while the store has a write of `b`'s.
struct Contest {
    gate: Gate,
    a: Host,
    b: Host,
    /// The write's identifier, on `b`'s first queue.
    held: u16,
    target: Target,
}

impl Contest {
    fn over_a_held_write(on: &On) -> Contest {
        let (gate, store) = Gate::over(memory(), 1);
        let target = Target::start_many(on, disk(store), 2);
        let (a, mut b) = b_holds(&target);
        let held = b.first.write(7, 0xBB);
        gate.wait_held(1);
        Contest {
            gate,
            a,
            b,
            held,
            target,
        }
    }
}

/// Nobody is registered; somebody else is; only oneself; a key that nobody has; 0.
pub(in crate::conformance) fn preempt_and_abort_without_anything_to_preempt(on: &On) {
    let (_target, mut a, mut b) = two_hosts(on);
    for key in [0, KEY_A, KEY_B, u64::MAX] {
        assert_eq!(
            a.preempt(PREEMPT_AND_ABORT, 1, key),
            CONFLICT,
            "not registered"
        );
    }
    assert_eq!(b.register(0), SUCCESS);
    assert_eq!(a.preempt(PREEMPT_AND_ABORT, 1, KEY_B), CONFLICT);
    assert_eq!(a.register(0), SUCCESS);
    for key in [0, u64::MAX] {
        assert_eq!(a.preempt(PREEMPT_AND_ABORT, 1, key), CONFLICT);
    }
    assert_eq!(a.report().2.len(), 2);
}

/// Against oneself: without a reservation the registration goes, the holder changes its type and stays.
pub(in crate::conformance) fn preempt_and_abort_against_oneself(on: &On) {
    let (_target, mut a, _b) = two_hosts(on);
    assert_eq!(a.register(0), SUCCESS);
    assert_eq!(a.preempt(PREEMPT_AND_ABORT, 1, KEY_A), SUCCESS);
    assert_eq!(a.report(), (0, 0, vec![]));
    for rtype in 1..=6 {
        assert_eq!((a.register(0), a.acquire(rtype)), (SUCCESS, SUCCESS));
        let next = rtype % 6 + 1;
        let of_all = rtype >= 5;
        let key = if of_all { 0 } else { KEY_A };
        assert_eq!(
            a.preempt(PREEMPT_AND_ABORT, next, key),
            SUCCESS,
            "type {rtype}"
        );
        let mine = (a.id(), KEY_A, true);
        assert_eq!(a.report(), (u8::try_from(next).unwrap(), 0, vec![mine]));
        // A write of one's own goes on.
        assert_eq!(a.write(1), [SUCCESS; 2]);
        assert_eq!(a.clear(), SUCCESS);
    }
}

/// A write that the store has: the command is answered when the store has let go of it, and not before.
pub(in crate::conformance) fn preempt_and_abort_waits_for_what_the_store_has(on: &On) {
    let Contest {
        gate,
        mut a,
        mut b,
        held,
        target: _target,
    } = Contest::over_a_held_write(on);
    let preempt = a.send_preempt(PREEMPT_AND_ABORT, 1, KEY_B);
    // In force by now, and not answered.
    a.wait_until_holder();
    let write = a.first.send_bring(0x01, 1, [7, 0, 0], &[0x55; 4096]);
    gate.open();
    let ended = b.first.response();
    assert_eq!((ended.cid, ended.status), (held, SUCCESS));
    let answer = a.second.response();
    assert_eq!((answer.cid, answer.status), (preempt, SUCCESS));
    let written = a.first.response();
    assert_eq!((written.cid, written.status), (write, SUCCESS));
    assert_eq!(
        a.second.read(7),
        vec![0x55; 4096],
        "never behind the newer one"
    );
}

/// The reactor that has the preempted host's write does not come to the order. Whoever sees that the reservation is its may write, at the desk's reactor or
/// another, and does not write under that one: its writes wait, while its reads go on.
pub(in crate::conformance) fn preempt_and_abort_holds_writes_back_until_every_reactor_knows_of_it(
    on: &On,
) {
    let (gate, store) = Gate::over_thread(memory());
    let target = Target::start_many(on, disk(store), 3);
    let (mut a, mut b) = b_holds(&target);
    // `a` is at the first two reactors. The third stands still with this.
    let held = b.first.send_bring(0x01, 1, [7, 0, 0], &[0xBB; 4096]);
    gate.wait_held(1);
    let data = keys(KEY_A, KEY_B);
    let cdw10 = 1 << 8 | PREEMPT_AND_ABORT;
    let preempt = a.first.send_bring(ACQUIRE, 1, [cdw10, 0, 0], &data);
    a.wait_until_holder();
    let writes = [&mut a.first, &mut a.second].map(|queue| {
        let cid = queue.send_bring(0x01, 1, [7, 0, 0], &[0x55; 4096]);
        // What comes next is not the write's answer.
        assert!(queue.read(8) == [0; 4096]);
        cid
    });
    gate.open();
    let ended = b.first.response();
    assert_eq!(ended.cid, held);
    let mut answers = [a.first.response(), a.first.response()].map(|it| (it.cid, it.status));
    answers.sort_unstable();
    assert_eq!(answers, [(preempt, SUCCESS), (writes[0], SUCCESS)]);
    let answer = a.second.response();
    assert_eq!((answer.cid, answer.status), (writes[1], SUCCESS));
    assert!(
        a.first.read(7) == [0x55; 4096],
        "the preempted host's late write"
    );
    // Nothing is left up.
    assert_eq!(a.write(9), [SUCCESS; 2]);
}

impl Host {
    /// Over the first queue: the second waits for an answer.
    fn report_over_first(&mut self) -> Vec<u8> {
        self.first
            .fetch(REPORT, 1, [4096 / 4 - 1, 1, 0], 4096)
            .unwrap()
    }

    /// Returns once the reservation is this host's.
    fn wait_until_holder(&mut self) {
        let start = Instant::now();
        while self.holder() != self.id() {
            assert!(start.elapsed() < PATIENCE, "the reservation did not change");
        }
    }

    fn holder(&mut self) -> [u8; 16] {
        let report = self.report_over_first();
        let mut entries = report[64..].chunks_exact(64).take(report[5].into());
        let holder = entries.find(|entry| entry[2] == 1);
        holder.map_or([0; 16], |entry| entry[16..32].try_into().unwrap())
    }
}

/// The preempted host resets its controller while its write drains; both ends come.
pub(in crate::conformance) fn preempt_and_abort_during_a_controller_reset(on: &On) {
    let Contest {
        gate,
        mut a,
        mut b,
        target,
        ..
    } = Contest::over_a_held_write(on);
    assert_eq!(b.admin.set_cc(DISABLED).status, SUCCESS);
    let preempt = a.send_preempt(PREEMPT_AND_ABORT, 1, KEY_B);
    a.wait_until_holder();
    gate.open();
    let answer = a.second.response();
    assert_eq!((answer.cid, answer.status), (preempt, SUCCESS));
    b.admin.wait_csts(0);
    assert_eq!(b.admin.set_cc(ENABLED).status, SUCCESS);
    b.first = Queue::io(&target.place, B, b.cntlid, 1);
    assert_eq!(write_in_capsule(&mut b.first, 7).status, CONFLICT);
}

/// The preempting host's own controller resets while it waits for the answer: the target goes on, and the reservation is its.
pub(in crate::conformance) fn preempt_and_abort_by_a_host_that_resets(on: &On) {
    let Contest {
        gate,
        mut a,
        mut b,
        held,
        target,
    } = Contest::over_a_held_write(on);
    a.send_preempt(PREEMPT_AND_ABORT, 1, KEY_B);
    a.wait_until_holder();
    assert_eq!(a.admin.set_cc(DISABLED).status, SUCCESS);
    gate.open();
    let ended = b.first.response();
    assert_eq!((ended.cid, ended.status), (held, SUCCESS));
    a.admin.wait_csts(0);
    assert_eq!(a.admin.set_cc(ENABLED).status, SUCCESS);
    a.first = Queue::io(&target.place, A, a.cntlid, 1);
    assert_eq!(write_in_capsule(&mut a.first, 7).status, SUCCESS);
    assert_eq!(b.write(7), [CONFLICT; 2]);
}

/// The other host's queues close, with a write at the store, before and while it is preempted.
pub(in crate::conformance) fn preempt_and_abort_while_the_other_hosts_queue_closes(on: &On) {
    for closes_before in [true, false] {
        let Contest {
            gate,
            mut a,
            b,
            target: _target,
            ..
        } = Contest::over_a_held_write(on);
        let mut b = Some(b);
        if closes_before {
            drop(b.take());
        }
        let preempt = a.send_preempt(PREEMPT_AND_ABORT, 1, KEY_B);
        a.wait_until_holder();
        drop(b);
        gate.open();
        let answer = a.second.response();
        assert_eq!((answer.cid, answer.status), (preempt, SUCCESS));
        assert_eq!(a.write(7), [SUCCESS; 2]);
        assert_eq!(a.second.read(7), vec![0x55; 4096]);
    }
}

/// Both hosts preempt each other again and again, with writes under way: these are answered, each once, and the disk is as their statuses say.
pub(in crate::conformance) fn preempt_and_abort_of_two_hosts_against_each_other(on: &On) {
    const WRITES: u64 = 8;
    let (_target, mut a, mut b) = two_hosts(on);
    assert_eq!(
        (a.register(0), b.register(0), a.acquire(2)),
        (SUCCESS, SUCCESS, SUCCESS)
    );
    for turn in 0..50_u8 {
        let (one, other) = if turn % 2 == 0 {
            (&mut b, &mut a)
        } else {
            (&mut a, &mut b)
        };
        let before: Vec<Vec<u8>> = (0..WRITES).map(|lba| other.second.read(lba)).collect();
        let written = vec![0x80 + turn; 4096];
        let mut under_way: Vec<u16> = (0..WRITES)
            .map(|lba| {
                let cdw = [u32::try_from(lba).unwrap(), 0, 0];
                other.first.send_bring(0x01, 1, cdw, &written)
            })
            .collect();
        assert_eq!(one.preempt(PREEMPT_AND_ABORT, 2, other.key), SUCCESS);
        let mut answered: Vec<(u16, u16)> = (0..WRITES)
            .map(|_| other.first.response())
            .map(|ended| (ended.cid, ended.status))
            .collect();
        under_way.sort_unstable();
        answered.sort_unstable();
        let cids: Vec<u16> = answered.iter().map(|(cid, _)| *cid).collect();
        assert_eq!(cids, under_way, "each once");
        // Identifiers rise with the blocks here.
        for ((lba, before), (_, status)) in (0..).zip(&before).zip(&answered) {
            let now = one.second.read(lba);
            match *status {
                SUCCESS => assert_eq!(now, written),
                CONFLICT => assert_eq!(now, *before),
                PREEMPTED => assert!(now == *before || now == written, "block {lba} is torn"),
                status => panic!("a write under way ended with {status:#x}"),
            }
        }
        // Nothing more was answered: the next answer is to this.
        assert_eq!(other.register(0), SUCCESS);
        assert_eq!(one.write(1), [SUCCESS; 2]);
        assert_eq!(other.write(1), [CONFLICT; 2]);
    }
}

/// A flush of all namespaces is of this one too: it ends as any command of the preempted host.
pub(in crate::conformance) fn preempt_and_abort_ends_a_flush_of_all_namespaces(on: &On) {
    let (gate, store) = Gate::over_flushes(memory(), 1);
    let target = Target::start_many(on, disk(store), 2);
    let (mut a, mut b) = b_holds(&target);
    let flush = b.first.send_plain(0x00, u32::MAX, [0, 0, 0]);
    gate.wait_held(1);
    let preempt = a.send_preempt(PREEMPT_AND_ABORT, 1, KEY_B);
    a.wait_until_holder();
    gate.open();
    let ended = b.first.response();
    assert_eq!((ended.cid, ended.status), (flush, PREEMPTED));
    let answer = a.second.response();
    assert_eq!((answer.cid, answer.status), (preempt, SUCCESS));
}
