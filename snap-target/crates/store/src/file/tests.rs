//! What a real file does too seldom or too late for a test: cancelled reads, failed flushes, a gate that is held.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use reactor::buf::IoBuf;
use reactor::{RingConfig, Wait};

use super::flight::{Flight, Stage};
use super::handle::FileStore;
use super::*;
use crate::contract::{Completion, Op, Terms, Token};
use crate::gate::{Pass, Permit};

const BYTES: u64 = 1 << 20;

fn state(fd: OwnedFd, direct: bool) -> Arc<FileState> {
    let opened = Opened {
        name: "file:test".to_owned(),
        fd,
        bytes: BYTES,
        direct,
        alignment_bytes: if direct { 512 } else { 1 },
        punches_holes: false,
        detour: None,
        may_block: false,
        gate: Arc::default(),
        hold: None,
    };
    Arc::new(FileState::of(opened, Access::ReadWrite))
}

/// A file without a name. It is opened without O_DIRECT: the state only says that it has blocks.
fn nameless() -> OwnedFd {
    let path = std::env::temp_dir().join(format!(
        "store-unit-{}-{:?}",
        std::process::id(),
        std::thread::current().id()
    ));
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .unwrap();
    std::fs::remove_file(path).unwrap();
    file.set_len(BYTES).unwrap();
    file.into()
}

/// The next `count` completions.
fn wait(ring: &Ring, store: &mut FileStore, count: usize) -> Vec<Completion> {
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut done = Vec::new();
    loop {
        store.poll(&mut done);
        if done.len() >= count {
            assert_eq!(done.len(), count);
            return done;
        }
        ring.turn(Wait::Block {
            until: Some(deadline),
        })
        .unwrap();
        assert!(Instant::now() < deadline, "no completion came");
    }
}

fn wait_one(ring: &Ring, store: &mut FileStore) -> Completion {
    wait(ring, store, 1).remove(0)
}

fn cancelled(offset: u64) -> Result<u32, StoreError> {
    Err(StoreError::Cancelled {
        store: "file:test".to_owned(),
        offset,
    })
}

#[test]
fn a_read_that_waits_in_the_kernel_is_cancelled_there() {
    // A pipe is a file whose reads wait.
    let (reader, _writer) = std::io::pipe().unwrap();
    let ring = Ring::new(&RingConfig::default()).unwrap();
    let mut store = FileStore::new(state(reader.into(), false), &ring).unwrap();
    store
        .submit(
            Op::Read { offset: 0 },
            Some(IoBuf::heap(100).unwrap()),
            Token(5),
            Terms::default(),
        )
        .unwrap();
    let mut done = Vec::new();
    for _ in 0..3 {
        ring.turn(Wait::Poll).unwrap();
        store.poll(&mut done);
    }
    assert!(done.is_empty());
    store.cancel(Token(5));
    let done = wait_one(&ring, &mut store);
    assert_eq!((done.token, done.result), (Token(5), cancelled(0)));
    assert_eq!(done.buf.map(|buf| buf.len()), Some(100));
}

#[test]
fn dropping_a_handle_ends_reads_that_wait_in_the_kernel() {
    let (reader, _writer) = std::io::pipe().unwrap();
    let ring = Ring::new(&RingConfig::default()).unwrap();
    let mut store = FileStore::new(state(reader.into(), false), &ring).unwrap();
    let mut kept = IoBuf::heap(100).unwrap();
    store
        .submit(
            Op::Read { offset: 0 },
            Some(kept.clone()),
            Token(5),
            Terms::default(),
        )
        .unwrap();
    ring.turn(Wait::Poll).unwrap();
    assert!(kept.exclusive().is_none());
    drop(store);
    assert!(
        kept.exclusive().is_some(),
        "nobody else refers to the buffer"
    );
}

#[test]
fn a_write_waits_at_the_gate_and_can_be_cancelled_there() {
    let state = state(nameless(), true);
    let ring = Ring::new(&RingConfig::default()).unwrap();
    let mut store = FileStore::new(state.clone(), &ring).unwrap();
    let mut other = Permit::new(state.gate.clone(), Pass::Exclusive);
    assert!(other.try_enter(|| ring.waker()));
    let block = || Some(IoBuf::heap(512).unwrap());
    for (token, offset) in [(1, 512), (2, 100), (3, 1024)] {
        store
            .submit(
                Op::Write {
                    offset,
                    durable: false,
                },
                block(),
                Token(token),
                Terms::default(),
            )
            .unwrap();
    }
    let mut done = Vec::new();
    for _ in 0..3 {
        ring.turn(Wait::Poll).unwrap();
        store.poll(&mut done);
    }
    assert!(done.is_empty(), "the gate is closed: {done:?}");
    store.cancel(Token(2));
    assert_eq!(wait_one(&ring, &mut store).result, cancelled(100));
    // Leaving wakes those who wait, who may sleep by now.
    drop(other);
    assert!(ring.turn(Wait::Block { until: None }).unwrap().notified);
    let done = wait(&ring, &mut store, 2);
    let mut tokens = [done[0].token, done[1].token];
    tokens.sort_unstable();
    assert_eq!(tokens, [Token(1), Token(3)]);
    // The cancelled one's announcement is withdrawn: whole blocks pass.
    assert!(Permit::new(state.gate.clone(), Pass::Shared).try_enter(|| ring.waker()));
}

#[test]
fn an_announced_exclusive_write_is_not_starved() {
    let state = state(nameless(), true);
    let ring = Ring::new(&RingConfig::default()).unwrap();
    let enter = |permit: &mut Permit| permit.try_enter(|| ring.waker());
    let mut first = Permit::new(state.gate.clone(), Pass::Shared);
    let mut second = Permit::new(state.gate.clone(), Pass::Shared);
    assert!(
        enter(&mut first) && enter(&mut second),
        "whole blocks pass together"
    );
    let mut alone = Permit::new(state.gate.clone(), Pass::Exclusive);
    assert!(!enter(&mut alone));
    let mut late = Permit::new(state.gate.clone(), Pass::Shared);
    assert!(
        !enter(&mut late),
        "newcomers let the announced one pass first"
    );
    drop((first, second));
    assert!(!enter(&mut late));
    assert!(enter(&mut alone));
    assert!(!enter(&mut late) && !enter(&mut Permit::new(state.gate.clone(), Pass::Exclusive)));
    drop(alone);
    assert!(enter(&mut late));
}

/// Whoever writes parts of blocks without end lets the others pass between.
#[test]
fn exclusive_writes_without_end_let_whole_blocks_pass() {
    let gate = Arc::new(Gate::default());
    let ring = Ring::new(&RingConfig::default()).unwrap();
    let enter = |permit: &mut Permit| permit.try_enter(|| ring.waker());
    let new = |pass| Permit::new(gate.clone(), pass);
    let mut inside = new(Pass::Exclusive);
    let mut next = new(Pass::Exclusive);
    let mut waiting = [new(Pass::Shared), new(Pass::Shared), new(Pass::Shared)];
    assert!(enter(&mut inside) && !enter(&mut next));
    assert!(!waiting.iter_mut().any(enter));
    drop(inside);
    assert!(!enter(&mut next), "those who waited pass first");
    let [first, second, gone] = &mut waiting;
    assert!(enter(first) && !enter(&mut next));
    let mut late = new(Pass::Shared);
    assert!(!enter(&mut late), "who comes in their turn is none of them");
    assert!(enter(second));
    *gone = Permit::not_needed();
    drop(waiting);
    assert!(!enter(&mut late) && enter(&mut next));
    drop(next);
    assert!(enter(&mut late));
}

/// Two that open one file anew, at another size for instance, do not undo each other's parts of a block.
#[test]
fn a_file_has_one_gate_however_often_it_is_opened() {
    let path = std::env::temp_dir().join(format!("store-gate-{}", std::process::id()));
    std::fs::write(&path, vec![0; 1 << 16]).unwrap();
    let options = crate::OpenOptions::read_write();
    let [before, after] = [(); 2].map(|()| FileBackend::open(&path, options).unwrap());
    std::fs::remove_file(&path).unwrap();
    let ring = Ring::new(&RingConfig::default()).unwrap();
    let mut part = Permit::new(before.state.gate.clone(), Pass::Exclusive);
    assert!(part.try_enter(|| ring.waker()));
    let mut other = Permit::new(after.state.gate.clone(), Pass::Shared);
    assert!(!other.try_enter(|| ring.waker()));
    drop(part);
    assert!(other.try_enter(|| ring.waker()));
}

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
