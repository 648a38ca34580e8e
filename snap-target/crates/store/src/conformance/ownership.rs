//! Between submit and completion a buffer belongs to the store, and only then.

use std::time::Instant;

use reactor::Wait;
use reactor::buf::IoBuf;

use super::Subject;
use super::rig::{Rig, pattern};
use crate::contract::{Op, Terms, Token};
use crate::error::{ErrorKind, StoreError};

/// Pool slots stay taken until the completion, cancelled or not, and are free after it.
pub(super) fn a_buffer_belongs_to_the_store_until_its_completion(subject: &Subject<'_>) {
    let mut rig = subject.rig();
    let count = rig.limits().queue_depth_max.min(8);
    for at in 0..u64::from(count) {
        let buf = rig.pool.alloc(4096).unwrap();
        rig.submit(
            Op::Read {
                offset: at * 4096 + 1,
            },
            Some(buf),
            at,
        );
    }
    (0..u64::from(count))
        .step_by(2)
        .for_each(|at| rig.store.cancel(Token(at)));
    assert_eq!(
        rig.pool.usage().used_bytes,
        count as usize * 4096,
        "cancelling gives nothing back by itself"
    );
    let done = rig.wait(count as usize);
    assert_eq!(
        rig.pool.usage().used_bytes,
        count as usize * 4096,
        "now they are the caller's"
    );
    for mut done in done {
        assert!(
            done.buf.as_mut().and_then(IoBuf::exclusive).is_some(),
            "the store kept no view of the buffer"
        );
    }
    assert_eq!(rig.pool.usage().used_bytes, 0);
}

/// Closed, a handle rejects, completes what it has, says when that is over, and its drop then waits for nothing.
pub(super) fn a_closed_handle_ends_what_it_has_and_takes_no_more(subject: &Subject<'_>) {
    let shared = subject.open();
    for count in [0, 8] {
        let mut rig = subject.rig_on(&shared);
        let count = count.min(rig.limits().queue_depth_max);
        assert!(!rig.store.is_closed(), "nobody closed it");
        for at in 0..u64::from(count) {
            let offset = at * 8192 + at;
            let buf = Some(rig.pool.alloc(8192).unwrap());
            let write = Op::Write {
                offset,
                durable: true,
            };
            let op = if at % 2 == 0 {
                Op::Read { offset }
            } else {
                write
            };
            rig.submit(op, buf, at);
        }
        rig.store.close();
        let buf = Some(IoBuf::heap(512).unwrap());
        let rejected = rig
            .store
            .submit(Op::Read { offset: 0 }, buf, Token(99), Terms::default())
            .expect_err("a closed handle takes nothing");
        assert!(
            matches!(rejected.why, StoreError::Closed { .. }),
            "{}",
            rejected.why
        );
        assert_eq!(rejected.buf.map(|buf| buf.len()), Some(512));
        assert!(
            count == 0 || !rig.store.is_closed(),
            "completions are still to be polled"
        );
        for done in rig.wait(count as usize) {
            match done.result {
                Ok(bytes) => assert_eq!(bytes, 8192),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}"),
            }
        }
        let until = Instant::now() + subject.patience;
        while !rig.store.is_closed() {
            assert!(
                Instant::now() < until,
                "with nothing in flight it is closed"
            );
            rig.ring.turn(Wait::Block { until: Some(until) }).unwrap();
            rig.store.poll(&mut rig.completions);
        }
        rig.expect_quiet();
        assert_eq!(rig.pool.usage().used_bytes, 0);
        let Rig { store, ring, .. } = rig;
        let before = ring.stats().enters;
        drop(store);
        assert_eq!(ring.stats().enters, before, "the drop waited for something");
    }
}

/// After the drop of a handle with operations in flight every buffer is free, and nothing writes to its memory any more.
pub(super) fn dropping_the_handle_lets_go_of_every_buffer(subject: &Subject<'_>) {
    let shared = subject.open();
    for turned in [false, true] {
        let Rig {
            mut store,
            pool,
            ring,
            ..
        } = subject.rig_on(&shared);
        let count = store.limits().queue_depth_max.min(8);
        for at in 0..u64::from(count) {
            let buf = pool.alloc(64 << 10).unwrap();
            let offset = at * (64 << 10) + at;
            let op = if at % 2 == 0 {
                Op::Read { offset }
            } else {
                Op::Write {
                    offset,
                    durable: true,
                }
            };
            assert!(
                store
                    .submit(op, Some(buf), Token(at), Terms::default())
                    .is_ok()
            );
        }
        if turned {
            ring.turn(Wait::Poll).unwrap();
        }
        drop(store);
        assert_eq!(
            pool.usage().used_bytes,
            0,
            "the drop waited for the operations"
        );
        let mut again: Vec<IoBuf> = (0..count).map(|_| pool.alloc(64 << 10).unwrap()).collect();
        for buf in &mut again {
            buf.fill(0, 64 << 10, 0xa5);
        }
        for _ in 0..3 {
            ring.turn(Wait::Poll).unwrap();
        }
        assert!(
            again
                .iter()
                .all(|buf| buf.to_vec().iter().all(|&byte| byte == 0xa5)),
            "nothing wrote to freed memory"
        );
        // What was in flight left the store usable.
        let mut rig = subject.rig_on(&shared);
        rig.write(5, &[1, 2, 3]);
        assert_eq!(
            rig.read(5, 3),
            if subject.remembers { [1, 2, 3] } else { [0; 3] }
        );
    }
}

/// After its completion a write is over, cancelled or not: it never comes in behind a later one.
pub(super) fn what_completed_takes_no_effect_any_more(subject: &Subject<'_>) {
    const LEN: usize = 8192;
    if !subject.remembers {
        return;
    }
    let shared = subject.open();
    let mut rig = subject.rig_on(&shared);
    let count = u64::from(rig.limits().queue_depth_max.min(16));
    let offset = |at: u64| at * LEN as u64 + 7;
    for (round, durable) in [false, true].into_iter().enumerate() {
        for at in 0..count {
            let buf = IoBuf::from_bytes(&[0xee; LEN]).unwrap();
            let offset = offset(at);
            rig.submit(Op::Write { offset, durable }, Some(buf), at);
        }
        (0..count)
            .filter(|at| at % 4 != 3)
            .for_each(|at| rig.store.cancel(Token(at)));
        rig.wait(usize::try_from(count).unwrap());
        // Nobody else is at work: what is written now is what is there from now on.
        let expected: Vec<Vec<u8>> = (0..count)
            .map(|at| pattern(LEN, at + 100 * round as u64))
            .collect();
        for (at, bytes) in (0..).zip(&expected) {
            rig.write(offset(at), bytes);
        }
        for look in ["at once", "after some turns", "on another handle"] {
            let mut other = (look == "on another handle").then(|| subject.rig_on(&shared));
            for (at, bytes) in (0..).zip(&expected) {
                let back = other.as_mut().unwrap_or(&mut rig).read(offset(at), LEN);
                assert!(
                    back == *bytes,
                    "an older write took effect behind a newer one ({look})"
                );
            }
            for _ in 0..3 {
                rig.ring.turn(Wait::Poll).unwrap();
            }
            rig.expect_quiet();
        }
    }
}

/// A completed read's buffer is the caller's: what it writes there stays, and the store does not change.
pub(super) fn nothing_touches_a_buffer_after_its_completion(subject: &Subject<'_>) {
    let mut rig = subject.rig();
    let data = pattern(8192, 5);
    rig.write(0, &data);
    let mut buf = rig
        .run(Op::Read { offset: 0 }, Some(IoBuf::heap(8192).unwrap()))
        .unwrap();
    buf.fill(0, 8192, 0x77);
    let mut other = rig
        .run(
            Op::Write {
                offset: 100_000,
                durable: false,
            },
            Some(IoBuf::from_bytes(&data).unwrap()),
        )
        .unwrap();
    other.fill(0, 8192, 0x77);
    for _ in 0..3 {
        rig.ring.turn(Wait::Poll).unwrap();
    }
    assert_eq!(buf.to_vec(), vec![0x77; 8192]);
    let expected = if subject.remembers {
        data
    } else {
        vec![0; 8192]
    };
    assert!(
        rig.read(0, 8192) == expected,
        "writing to a read's buffer does not change the store"
    );
    assert!(
        rig.read(100_000, 8192) == expected,
        "nor does writing to a completed write's buffer"
    );
}
