//! Flushes, durable changes and zeroing: what is acknowledged, and what is not once one has failed.

use super::*;

/// A kernel that lost bytes says so once: to the first of two flushes that run beside each other, while the second is told that all is well.
#[test]
fn a_flush_beside_one_that_fails_fails_too() {
    let state = state(nameless(), false);
    let ring = Ring::new(&RingConfig::default()).unwrap();
    let [mut here, mut there] = [(); 2].map(|()| FileStore::new(state.clone(), &ring).unwrap());
    let mut failing = state.reports.permit();
    assert!(failing.try_enter(|| ring.waker()));
    let flush = |store: &mut FileStore, token| {
        store
            .submit(Op::Flush, None, Token(token), Terms::default())
            .unwrap()
    };
    flush(&mut here, 1);
    flush(&mut there, 2);
    let durable = Op::Write {
        offset: 0,
        durable: true,
    };
    there
        .submit(
            durable,
            Some(IoBuf::heap(10).unwrap()),
            Token(3),
            Terms::default(),
        )
        .unwrap();
    let mut done = Vec::new();
    for _ in 0..3 {
        ring.turn(Wait::Poll).unwrap();
        here.poll(&mut done);
        there.poll(&mut done);
    }
    assert!(done.is_empty(), "they wait: {done:?}");
    state.reports.note_failure(Errno::EIO);
    drop(failing);
    let failed = Err(state.flush_error().unwrap());
    assert_eq!(wait_one(&ring, &mut here).result, failed);
    let done = wait(&ring, &mut there, 2);
    assert!(done.iter().all(|done| done.result == failed));
    assert_eq!(ring.stats().completions, 0, "nobody asked the kernel");
}

/// Flushes that wait for one under way are done with one more, all of them.
#[test]
fn one_sync_is_enough_for_all_that_waited() {
    let state = state(nameless(), false);
    let ring = Ring::new(&RingConfig::default()).unwrap();
    let mut store = FileStore::new(state, &ring).unwrap();
    for token in 0..5 {
        store
            .submit(Op::Flush, None, Token(token), Terms::default())
            .unwrap();
    }
    let done = wait(&ring, &mut store, 5);
    assert!(done.iter().all(|done| done.result == Ok(0)));
    assert_eq!(ring.stats().completions, 2);
}

const ZERO: Op = Op::Zero {
    offset: 0,
    len: 10,
    durable: false,
};

fn flight(op: Op, stage: Stage) -> Flight {
    Flight {
        token: Token(1),
        op,
        buf: None,
        offset: 4096,
        total: 0,
        done: 0,
        sync_owed: matches!(op, Op::Flush | Op::Zero { durable: true, .. }),
        stage,
        ring_op: None,
        bounce: None,
        permit: Permit::not_needed(),
        report: Permit::not_needed(),
        since: None,
        cancelled: false,
    }
}

#[test]
fn after_a_failed_flush_no_flush_and_no_durable_write_is_acknowledged() {
    let state = state(nameless(), false);
    let ring = Ring::new(&RingConfig::default()).unwrap();
    let mut store = FileStore::new(state.clone(), &ring).unwrap();
    let mut elsewhere = FileStore::new(state.clone(), &ring).unwrap();
    store
        .submit(Op::Flush, None, Token(1), Terms::default())
        .unwrap();
    assert_eq!(wait_one(&ring, &mut store).result, Ok(0));

    let failed = StoreError::FlushFailed {
        store: "file:test".to_owned(),
        source: Errno::EIO,
    };
    assert_eq!(
        flight(Op::Flush, Stage::Sync)
            .take_in(Err(Errno::EIO), &state)
            .unwrap_err(),
        failed
    );
    // The kernel would say "all is well" to the next one.
    let why = store
        .submit(Op::Flush, None, Token(2), Terms::default())
        .unwrap_err()
        .why;
    assert_eq!(why, failed);
    assert!(why.to_string().contains("open it again"), "{why}");
    let buf = || Some(IoBuf::heap(10).unwrap());
    let rejected = elsewhere
        .submit(
            Op::Write {
                offset: 0,
                durable: true,
            },
            buf(),
            Token(3),
            Terms::default(),
        )
        .unwrap_err();
    assert_eq!(
        (rejected.why, rejected.buf.map(|buf| buf.len())),
        (failed, Some(10)),
        "on every handle"
    );
    store
        .submit(
            Op::Write {
                offset: 0,
                durable: false,
            },
            buf(),
            Token(4),
            Terms::default(),
        )
        .unwrap();
    assert_eq!(
        wait_one(&ring, &mut store).result,
        Ok(10),
        "plain writes and reads go on"
    );
}

#[test]
fn a_failed_durable_write_may_have_eaten_the_report_of_others() {
    for (durable, errno, poisons) in [
        (true, Errno::EIO, true),
        (true, Errno::ENOSPC, false),
        (false, Errno::EIO, false),
    ] {
        let state = state(nameless(), false);
        let error = flight(
            Op::Write {
                offset: 4096,
                durable,
            },
            Stage::Direct,
        )
        .take_in(Err(errno), &state)
        .unwrap_err();
        let (store, what, offset, source) = ("file:test".to_owned(), "writing", 4096, errno);
        let expected = match errno {
            Errno::ENOSPC => StoreError::NoSpace {
                store,
                what,
                offset,
                source,
            },
            _ => StoreError::Io {
                store,
                what,
                offset,
                source,
                advice: "; the medium is failing, or the server that it is mounted from does not answer: see the kernel log",
            },
        };
        assert_eq!(error, expected);
        assert_eq!(state.flush_error().is_some(), poisons);
    }
}

/// What NFS says of a read: the file was removed or replaced on the server, or it does not answer (mounted `softerr`).
#[test]
fn what_a_server_says_comes_with_what_to_do() {
    let gone = "the server that it is mounted from does not have the file any more that was opened: put it back and attach it again";
    let silent = "the server that it is mounted from does not answer";
    for (errno, advice) in [
        (Errno::ESTALE, gone),
        (Errno::EBADF, gone),
        (Errno::ETIMEDOUT, silent),
    ] {
        let state = state(nameless(), false);
        let mut reading = flight(Op::Read { offset: 4096 }, Stage::Direct);
        let error = reading.take_in(Err(errno), &state).unwrap_err();
        let expected = format!("file:test: reading at byte 4096 failed: {errno}; {advice}");
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn ways_to_zero_are_tried_in_turn() {
    let state = state(nameless(), false);
    let mut zeroing = flight(ZERO, Stage::ZeroRange(0));
    zeroing.total = 10;
    for next in [Stage::ZeroRange(1), Stage::Plan] {
        zeroing.take_in(Err(Errno::EOPNOTSUPP), &state).unwrap();
        assert_eq!((zeroing.stage, zeroing.done), (next, 0));
    }
    let mut discarding = flight(Op::Discard { offset: 0, len: 10 }, Stage::Discard);
    assert!(
        discarding.take_in(Err(Errno::EOPNOTSUPP), &state).is_ok(),
        "discarding is a hint"
    );
    let mut failing = flight(Op::Discard { offset: 0, len: 10 }, Stage::Discard);
    assert!(failing.take_in(Err(Errno::EIO), &state).is_err());
    // Not where the range is to read as zeros afterwards.
    let mut state = Arc::into_inner(state).unwrap();
    state.limits.discard_zeroes = true;
    let mut refused = flight(Op::Discard { offset: 0, len: 10 }, Stage::Discard);
    assert!(refused.take_in(Err(Errno::EOPNOTSUPP), &state).is_err());
}

#[test]
fn a_write_that_moves_nothing_is_an_error_not_a_loop() {
    let state = state(nameless(), false);
    let error = flight(
        Op::Write {
            offset: 4096,
            durable: false,
        },
        Stage::Direct,
    )
    .take_in(Ok(0), &state)
    .unwrap_err();
    assert!(matches!(
        error,
        StoreError::Io {
            source: Errno::EIO,
            ..
        }
    ));
    let error = flight(Op::Read { offset: 4096 }, Stage::Direct)
        .take_in(Ok(0), &state)
        .unwrap_err();
    assert!(matches!(
        error,
        StoreError::Truncated {
            offset: 4096,
            bytes: BYTES,
            ..
        }
    ));
    let fill = Stage::Fill {
        start: 4096,
        end: 8192,
        wanted: 100,
        have: 0,
    };
    let direct = self::state(nameless(), true);
    let mut filling = flight(
        Op::Write {
            offset: 4096,
            durable: false,
        },
        fill,
    );
    // Short, in the middle of a block: the rest is read again from the last whole block on.
    filling.take_in(Ok(1000), &direct).unwrap();
    assert_eq!(
        filling.stage,
        Stage::Fill {
            start: 4096,
            end: 8192,
            wanted: 100,
            have: 512
        }
    );
    filling.take_in(Ok(4096 - 512), &direct).unwrap();
    assert_eq!(
        filling.stage,
        Stage::WriteBack {
            start: 4096,
            end: 8192,
            wanted: 100
        }
    );
    let mut stuck = flight(
        Op::Write {
            offset: 4096,
            durable: false,
        },
        fill,
    );
    assert!(matches!(
        stuck.take_in(Ok(100), &direct).unwrap_err(),
        StoreError::Truncated { offset: 4096, .. }
    ));
}

#[test]
fn a_durable_zeroing_ends_with_a_flush_and_fails_with_it() {
    let durable = Op::Zero {
        offset: 4096,
        len: 8192,
        durable: true,
    };
    let state = state(nameless(), false);
    let ring = Ring::new(&RingConfig::default()).unwrap();
    let mut store = FileStore::new(state.clone(), &ring).unwrap();
    store
        .submit(durable, None, Token(1), Terms::default())
        .unwrap();
    assert_eq!(wait_one(&ring, &mut store).result, Ok(0));
    // The zeroing and the flush behind it, and no third operation.
    assert_eq!(ring.stats().completions, 2);

    let mut failing = flight(durable, Stage::Sync);
    (failing.total, failing.done) = (8192, 8192);
    let failed = StoreError::FlushFailed {
        store: "file:test".to_owned(),
        source: Errno::EIO,
    };
    assert_eq!(
        failing.take_in(Err(Errno::EIO), &state).unwrap_err(),
        failed
    );
    let rejected = store
        .submit(durable, None, Token(2), Terms::default())
        .unwrap_err();
    assert_eq!(rejected.why, failed, "nor is a later one acknowledged");
}

#[test]
fn a_cancelled_flush_that_was_interrupted_is_no_failed_flush() {
    for errno in [Errno::EINTR, Errno::ECANCELED] {
        let state = state(nameless(), false);
        let mut flushing = flight(Op::Flush, Stage::Sync);
        flushing.cancelled = true;
        let error = flushing.take_in(Err(errno), &state).unwrap_err();
        assert_eq!(Err(error), cancelled(4096));
        assert_eq!(state.flush_error(), None, "later flushes are as good");
    }
    let state = state(nameless(), false);
    let mut flushing = flight(Op::Flush, Stage::Sync);
    assert!(flushing.take_in(Err(Errno::EINTR), &state).is_ok());
    assert!(!flushing.is_finished(), "not cancelled: the same again");
}

#[test]
fn what_a_cancel_ends_is_there_at_the_next_poll_without_a_turn() {
    let state = state(nameless(), true);
    let ring = Ring::new(&RingConfig::default()).unwrap();
    let mut store = FileStore::new(state.clone(), &ring).unwrap();
    let mut other = Permit::new(state.gate.clone(), Pass::Exclusive);
    assert!(other.try_enter(|| ring.waker()));
    let write = Op::Write {
        offset: 512,
        durable: false,
    };
    let block = IoBuf::heap(512).unwrap();
    store
        .submit(write, Some(block), Token(1), Terms::default())
        .unwrap();
    let mut done = Vec::new();
    store.poll(&mut done);
    assert!(done.is_empty(), "it is parked");
    store.cancel(Token(1));
    // Nothing would wake a ring that blocks now.
    store.poll(&mut done);
    assert_eq!(done.remove(0).result, cancelled(512));
}
