//! Terms change when an operation ends, never what it does.

use std::time::{Duration, Instant};

use reactor::buf::IoBuf;

use super::Subject;
use super::rig::{Rig, pattern};
use crate::contract::{Completion, Op, Terms, Token};
use crate::error::{ErrorKind, StoreError};

const BYTES: usize = 8192;

/// Terms whose time was over before the operation came.
fn too_late() -> Terms {
    Terms::by(Instant::now().checked_sub(Duration::from_secs(1)))
}

fn end(rig: &mut Rig, op: Op, buf: Option<IoBuf>, terms: Terms) -> Completion {
    let taken = rig.store.submit(op, buf, Token(1), terms);
    taken.expect("an operation is taken or refused whatever its terms are");
    rig.wait(1).remove(0)
}

/// An operation whose time is over ends: as done, with its effect, or as not done, without.
pub(super) fn what_had_no_time_was_done_or_was_not(subject: &Subject<'_>) {
    let mut rig = subject.rig();
    let (before, after) = (pattern(BYTES, 1), pattern(BYTES, 2));
    rig.write(4096, &before);
    let write = Op::Write {
        offset: 4096,
        durable: false,
    };
    let buf = IoBuf::from_bytes(&after).unwrap();
    let written = end(&mut rig, write, Some(buf), too_late());
    assert_eq!(written.buf.map(|buf| buf.len()), Some(BYTES));
    let expected = match &written.result {
        Ok(bytes) => {
            assert_eq!(*bytes as usize, BYTES);
            after
        }
        Err(error) => {
            assert_not_done(error);
            before
        }
    };
    let read = Op::Read { offset: 4096 };
    let late = end(
        &mut rig,
        read,
        Some(IoBuf::heap(BYTES).unwrap()),
        too_late(),
    );
    let found = match late.result {
        Ok(_) => late.buf.unwrap().to_vec(),
        Err(error) => {
            assert_not_done(&error);
            rig.read(4096, BYTES)
        }
    };
    let zeros = vec![0; BYTES];
    assert!(found == if subject.remembers { expected } else { zeros });
    if let Err(error) = end(&mut rig, Op::Flush, None, too_late()).result {
        assert_not_done(&error);
    }
    rig.expect_quiet();
}

fn assert_not_done(error: &StoreError) {
    let kind = error.kind();
    assert_eq!(kind, ErrorKind::Unreachable, "it had no time: {error}");
}

/// Reads ahead and reads that are waited for, together: each has its bytes. A store that is busy for the first takes the second.
pub(super) fn a_read_ahead_delivers_what_any_read_does(subject: &Subject<'_>) {
    let mut rig = subject.rig();
    let data = pattern(1 << 20, 3);
    rig.write(0, &data);
    let ahead = Terms {
        deadline: None,
        is_ahead: true,
    };
    let depth = u64::from(rig.limits().queue_depth_max);
    let mut taken = Vec::new();
    for at in 0..depth {
        let is_last = at + 1 == depth;
        let terms = if is_last { Terms::default() } else { ahead };
        let op = Op::Read {
            offset: at * 512 % (1 << 20),
        };
        let buf = Some(IoBuf::heap(512).unwrap());
        match rig.store.submit(op, buf, Token(at), terms) {
            Ok(()) => taken.push(at),
            Err(rejected) => {
                assert_eq!(rejected.why, StoreError::Busy);
                assert!(!is_last, "there was room for a read that is waited for");
                assert!(!taken.is_empty(), "a store that is idle takes a read ahead");
            }
        }
    }
    let mut seen = Vec::new();
    for done in rig.wait(taken.len()) {
        assert_eq!(done.result, Ok(512));
        let at = usize::try_from(done.token.0 * 512 % (1 << 20)).unwrap();
        let found = done.buf.unwrap().to_vec();
        assert!(!subject.remembers || found == data[at..at + 512], "at {at}");
        seen.push(done.token.0);
    }
    seen.sort_unstable();
    assert_eq!(seen, taken);
    rig.expect_quiet();
}

/// Reads ahead that somebody comes to wait for: each ends once, with its bytes, and is none of those ahead any more.
pub(super) fn a_read_ahead_may_be_hurried(subject: &Subject<'_>) {
    let mut rig = subject.rig();
    let data = pattern(1 << 20, 4);
    rig.write(0, &data);
    let place = |token: u64| usize::try_from(token * 512 % (1 << 20)).unwrap();
    let submit = |rig: &mut Rig, token: u64| {
        let terms = Terms {
            deadline: None,
            is_ahead: true,
        };
        let offset = place(token) as u64;
        let buf = Some(IoBuf::heap(512).unwrap());
        let taken = rig
            .store
            .submit(Op::Read { offset }, buf, Token(token), terms);
        taken.map_err(|rejected| assert_eq!(rejected.why, StoreError::Busy))
    };
    let depth = u64::from(rig.limits().queue_depth_max);
    let mut taken = (0..depth)
        .take_while(|token| submit(&mut rig, *token).is_ok())
        .count() as u64;
    rig.store.hurry(Token(taken - 1));
    if taken < depth {
        assert!(
            submit(&mut rig, taken).is_ok(),
            "a hurried read leaves its place to another one ahead"
        );
        taken += 1;
    }
    // All, twice, and one that nobody knows.
    for token in (0..taken).chain(0..=taken) {
        rig.store.hurry(Token(token));
    }
    let mut seen = Vec::new();
    for done in rig.wait(usize::try_from(taken).unwrap()) {
        assert_eq!(done.result, Ok(512));
        let at = place(done.token.0);
        let found = done.buf.unwrap().to_vec();
        assert!(!subject.remembers || found == data[at..at + 512], "at {at}");
        seen.push(done.token.0);
    }
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..taken));
    rig.expect_quiet();
}
