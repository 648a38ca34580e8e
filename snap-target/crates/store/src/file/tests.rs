//! What a real file does too seldom or too late for a test: cancelled reads, failed flushes, a gate that is held.

mod changes;

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
