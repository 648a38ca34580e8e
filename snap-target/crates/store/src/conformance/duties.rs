//! Submit takes all or nothing; everything taken completes once.

use reactor::buf::IoBuf;

use super::Subject;
use super::rig::Rig;
use crate::contract::{Completion, Op, Terms, Token};
use crate::error::{ErrorKind, StoreError};

/// The declared limits are usable at all.
pub(super) fn limits_are_sane(subject: &Subject<'_>) {
    let shared = subject.open();
    let rig = subject.rig_on(&shared);
    let limits = rig.limits();
    assert_eq!(
        limits,
        shared.limits(),
        "the handle declares what the store declares"
    );
    assert_eq!(limits.check(), Ok(()), "what every store must take");
    assert!(limits.writable, "the suite opens for writing");
    assert!(!shared.name().is_empty() && !shared.describe().is_empty());
}

fn expect_rejected(rig: &mut Rig, op: Op, buf: Option<IoBuf>, kind: ErrorKind) -> StoreError {
    let before = buf.as_ref().map(|buf| {
        (
            buf.len(),
            buf.segments().next().map(|segment| segment.ptr()),
        )
    });
    let rejected = rig
        .store
        .submit(op, buf, Token(1), Terms::default())
        .expect_err("this must be rejected");
    assert_eq!(rejected.op, op);
    let after = rejected.buf.as_ref().map(|buf| {
        (
            buf.len(),
            buf.segments().next().map(|segment| segment.ptr()),
        )
    });
    assert_eq!(after, before, "the very buffer comes back");
    assert_eq!(rejected.why.kind(), kind, "{}", rejected.why);
    rejected.why
}

/// What breaks a rule is rejected in submit, with its buffer, and nothing happens.
pub(super) fn misuse_is_rejected_with_its_buffer(subject: &Subject<'_>) {
    let mut rig = subject.rig();
    let limits = rig.limits();
    let buf = || Some(IoBuf::heap(512).unwrap());
    let read = Op::Read { offset: 0 };
    let write = Op::Write {
        offset: 0,
        durable: false,
    };
    for op in [read, write] {
        expect_rejected(&mut rig, op, None, ErrorKind::Misuse);
        expect_rejected(&mut rig, op, Some(IoBuf::empty()), ErrorKind::Misuse);
    }
    for op in [
        Op::Flush,
        Op::Discard {
            offset: 0,
            len: 512,
        },
        Op::Zero {
            offset: 0,
            len: 512,
            durable: false,
        },
    ] {
        expect_rejected(&mut rig, op, buf(), ErrorKind::Misuse);
    }
    let max = limits.transfer_bytes_max as usize;
    if limits.bytes > max as u64 {
        expect_rejected(
            &mut rig,
            read,
            Some(IoBuf::heap(max + 1).unwrap()),
            ErrorKind::Misuse,
        );
    }
    // The range's limit holds for what has no buffer: what is submitted is bounded, too.
    let range = u64::from(limits.range_bytes_max);
    if limits.bytes > range {
        let (offset, len) = (0, range + 1);
        let durable = false;
        let zero = Op::Zero {
            offset,
            len,
            durable,
        };
        for op in [zero, Op::Discard { offset, len }] {
            let why = expect_rejected(&mut rig, op, None, ErrorKind::Misuse);
            assert!(
                matches!(why, StoreError::TooLong { len, max, .. } if len == range + 1 && max == limits.range_bytes_max),
                "{why}"
            );
        }
    }
    let mut shreds = IoBuf::empty();
    let one = IoBuf::heap(1).unwrap();
    (0..=limits.segments_max).for_each(|_| shreds.append(one.clone()));
    if shreds.len() <= max && shreds.len() as u64 <= limits.bytes {
        expect_rejected(&mut rig, read, Some(shreds), ErrorKind::Misuse);
    }
    rig.expect_quiet();
}

/// The last byte exists, the next one does not; sums over 2^64 are no way in.
pub(super) fn ranges_end_at_the_end(subject: &Subject<'_>) {
    let mut rig = subject.rig();
    let bytes = rig.limits().bytes;
    for (offset, len) in [
        (bytes, 1),
        (bytes - 1, 2),
        (bytes - 511, 512),
        (bytes + 1, 1),
        (u64::MAX, 1),
        (u64::MAX - 100, 512),
    ] {
        let buf = || Some(IoBuf::heap(len).unwrap());
        let range = len as u64;
        expect_rejected(&mut rig, Op::Read { offset }, buf(), ErrorKind::OutOfRange);
        expect_rejected(
            &mut rig,
            Op::Write {
                offset,
                durable: true,
            },
            buf(),
            ErrorKind::OutOfRange,
        );
        expect_rejected(
            &mut rig,
            Op::Zero {
                offset,
                len: range,
                durable: false,
            },
            None,
            ErrorKind::OutOfRange,
        );
        let error = expect_rejected(
            &mut rig,
            Op::Discard { offset, len: range },
            None,
            ErrorKind::OutOfRange,
        );
        let text = error.to_string();
        assert!(
            text.contains(&format!("{offset}+{len}")) && text.contains(&bytes.to_string()),
            "{text}"
        );
        assert!(
            rig.store
                .lease(offset, u32::try_from(len).unwrap())
                .is_none(),
            "no lease beyond the end either"
        );
    }
    rig.expect_quiet();
    rig.write(bytes - 3, &[1, 2, 3]);
    let tail = rig.read(bytes - 4, 4);
    assert_eq!(
        tail,
        if subject.remembers {
            [0, 1, 2, 3]
        } else {
            [0; 4]
        }
    );
}

/// Opened for reading, a store takes no change and still reads and flushes.
pub(super) fn changes_need_write_access(subject: &Subject<'_>) {
    let Some(open) = &subject.open_read_only else {
        return;
    };
    let mut rig = subject.rig_on(&open());
    assert!(!rig.limits().writable);
    let buf = || Some(IoBuf::heap(512).unwrap());
    let error = expect_rejected(
        &mut rig,
        Op::Write {
            offset: 0,
            durable: false,
        },
        buf(),
        ErrorKind::ReadOnly,
    );
    assert!(error.to_string().contains("open it for writing"), "{error}");
    expect_rejected(
        &mut rig,
        Op::Zero {
            offset: 0,
            len: 512,
            durable: false,
        },
        None,
        ErrorKind::ReadOnly,
    );
    expect_rejected(
        &mut rig,
        Op::Discard {
            offset: 0,
            len: 512,
        },
        None,
        ErrorKind::ReadOnly,
    );
    rig.expect_quiet();
    assert_eq!(rig.read(0, 512).len(), 512);
    rig.run(Op::Flush, None);
}

/// Over the queue depth submit says busy and gives the buffer back; what was taken completes, and there is room again.
pub(super) fn a_full_queue_is_busy_and_loses_nothing(subject: &Subject<'_>) {
    let mut rig = subject.rig();
    let depth = rig.limits().queue_depth_max;
    for _round in 0..2 {
        let mut taken = 0u64;
        let rejected = loop {
            match rig.store.submit(
                Op::Read {
                    offset: taken * 512,
                },
                Some(IoBuf::heap(512).unwrap()),
                Token(taken),
                Terms::default(),
            ) {
                Ok(()) => taken += 1,
                Err(rejected) => break rejected,
            }
            assert!(taken <= u64::from(depth), "more in flight than declared");
        };
        assert_eq!(rejected.why, StoreError::Busy);
        assert_eq!(rejected.buf.map(|buf| buf.len()), Some(512));
        assert_eq!(taken, u64::from(depth), "as many in flight as declared");
        let mut tokens = tokens(&rig.wait(usize::try_from(taken).unwrap()));
        tokens.sort_unstable();
        assert_eq!(
            tokens,
            (0..taken).collect::<Vec<_>>(),
            "each completes once"
        );
        rig.expect_quiet();
    }
}

fn tokens(done: &[Completion]) -> Vec<u64> {
    done.iter().map(|done| done.token.0).collect()
}

/// A cancelled operation completes as cancelled or done; an unknown token is ignored.
pub(super) fn every_operation_completes_once_cancelled_or_not(subject: &Subject<'_>) {
    let mut rig = subject.rig();
    rig.store.cancel(Token(77));
    rig.expect_quiet();
    let count = rig.limits().queue_depth_max.min(32);
    for round in 0..4 {
        for at in 0..u64::from(count) {
            let buf = Some(IoBuf::heap(2048).unwrap());
            let offset = at * 2048 + round;
            let op = if at % 2 == 0 {
                Op::Read { offset }
            } else {
                Op::Write {
                    offset,
                    durable: false,
                }
            };
            rig.submit(op, buf, at);
            if at % 4 < 2 {
                rig.store.cancel(Token(at));
            }
        }
        // Twice, in the other order, and after some have completed already.
        (0..u64::from(count))
            .rev()
            .filter(|at| at % 4 < 2)
            .for_each(|at| rig.store.cancel(Token(at)));
        let done = rig.wait(count as usize);
        let mut seen = tokens(&done);
        seen.sort_unstable();
        assert_eq!(
            seen,
            (0..u64::from(count)).collect::<Vec<_>>(),
            "each completes once"
        );
        for done in done {
            assert_eq!(
                done.buf.map(|buf| buf.len()),
                Some(2048),
                "the buffer comes back, cancelled or not"
            );
            match done.result {
                Ok(bytes) => assert_eq!(bytes, 2048),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
                    assert!(
                        done.token.0 % 4 < 2,
                        "only what was cancelled ends as cancelled"
                    );
                }
            }
        }
        (0..u64::from(count)).for_each(|at| rig.store.cancel(Token(at)));
        rig.expect_quiet();
    }
}

/// Flush and durable writes complete, also with nothing to do.
pub(super) fn flush_completes(subject: &Subject<'_>) {
    let mut rig = subject.rig();
    rig.run(Op::Flush, None);
    let buf = IoBuf::from_bytes(&[5; 700]).unwrap();
    rig.run(
        Op::Write {
            offset: 100,
            durable: true,
        },
        Some(buf),
    );
    rig.run(Op::Flush, None);
    rig.run(
        Op::Zero {
            offset: 0,
            len: 700,
            durable: true,
        },
        None,
    );
    rig.run(
        Op::Zero {
            offset: 0,
            len: 0,
            durable: true,
        },
        None,
    );
    rig.run(Op::Discard { offset: 0, len: 0 }, None);
}
