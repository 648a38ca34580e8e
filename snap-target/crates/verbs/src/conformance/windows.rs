//! Memory windows of type 2B.

use super::Subject;
use super::rig::{End, HERE, Pair, THERE, all_access, memory, pattern, signaled};
use crate::completion::{Opcode, Status};
use crate::domain::{MemoryWindow, Registration};
use crate::error::VerbsError;
use crate::key::{Access, RKey};
use crate::queue_pair::{Gather, Operation, QueuePair};

/// The part of its memory that a window gives.
const AT: usize = 8192;
const LEN: usize = 4096;

fn both() -> Access {
    Access::REMOTE_READ | Access::REMOTE_WRITE
}

fn bind_to(qp: &QueuePair, window: &MemoryWindow, registration: &Registration, access: Access) {
    let bind = Operation::Bind {
        window,
        registration,
        offset: AT,
        len: LEN,
        access,
    };
    qp.post_send(&[signaled(100, bind)]).unwrap();
}

/// A window on the accepting end's memory, bound for the connection.
fn bound(pair: &mut Pair<'_>, access: Access) -> MemoryWindow {
    let window = pair.there().domain.allocate_window().unwrap();
    bind_again(pair, &window, access);
    window
}

fn bind_again(pair: &mut Pair<'_>, window: &MemoryWindow, access: Access) {
    let next = window.next_rkey();
    let there: &End = pair.there();
    bind_to(&there.qp, window, &there.memory, access);
    assert_eq!(window.rkey(), next, "the key that was foretold");
    pair.done(THERE, 100, Opcode::Bind);
}

fn write(pair: &Pair<'_>, rkey: RKey, offset: usize, len: u32) {
    let from = [pair.here().entry(0, len)];
    pair.here()
        .write(1, &from, pair.there().remote_by(offset, rkey));
}

fn writes(pair: &mut Pair<'_>, rkey: RKey, offset: usize, len: u32) {
    let content = pattern(len as usize, offset as u64);
    pair.here().fill(0, &content);
    write(pair, rkey, offset, len);
    pair.done(HERE, 1, Opcode::Write);
    assert!(pair.there().bytes(offset, len as usize) == content);
}

fn write_is_denied(pair: &mut Pair<'_>, rkey: RKey, offset: usize, len: u32) {
    let before = pair.there().bytes(offset, len as usize);
    pair.here().fill(0, &vec![0xdd; len as usize]);
    write(pair, rkey, offset, len);
    pair.refused(HERE, 1, Status::RemoteAccess);
    pair.in_error(THERE);
    assert!(
        pair.there().bytes(offset, len as usize) == before,
        "nothing was written"
    );
}

pub(super) fn a_window_gives_its_range(subject: &Subject<'_>) {
    let mut pair = subject.pair();
    let window = bound(&mut pair, both());
    writes(&mut pair, window.rkey(), AT, 4096);
    writes(&mut pair, window.rkey(), AT + LEN - 1, 1);
    let into = [pair.here().entry(0, 4096)];
    let remote = pair.there().remote_by(AT, window.rkey());
    pair.here().read(5, &into, remote);
    pair.done(HERE, 5, Opcode::Read);
    assert!(pair.here().bytes(0, LEN) == pair.there().bytes(AT, LEN));
}

pub(super) fn a_window_gives_no_more_than_its_range(subject: &Subject<'_>) {
    for (offset, len) in [(AT - 1, 2), (AT + LEN - 1, 2), (0, 16)] {
        let mut pair = subject.pair();
        let window = bound(&mut pair, both());
        write_is_denied(&mut pair, window.rkey(), offset, len);
    }
}

pub(super) fn a_window_gives_its_rights_and_no_more(subject: &Subject<'_>) {
    let mut pair = subject.pair();
    let window = bound(&mut pair, Access::REMOTE_READ);
    let into = [pair.here().entry(0, 16)];
    let remote = pair.there().remote_by(AT, window.rkey());
    pair.here().read(5, &into, remote);
    pair.done(HERE, 5, Opcode::Read);
    write_is_denied(&mut pair, window.rkey(), AT, 16);
    let mut pair = subject.pair();
    let window = bound(&mut pair, Access::REMOTE_WRITE);
    writes(&mut pair, window.rkey(), AT, 16);
    let into = [pair.here().entry(0, 16)];
    let remote = pair.there().remote_by(AT, window.rkey());
    pair.here().read(6, &into, remote);
    pair.refused(HERE, 6, Status::RemoteAccess);
}

pub(super) fn a_window_is_taken_back_by_its_owner(subject: &Subject<'_>) {
    let mut pair = subject.pair();
    let window = bound(&mut pair, both());
    writes(&mut pair, window.rkey(), AT, 100);
    pair.there().post(
        2,
        Operation::LocalInvalidate {
            rkey: window.rkey(),
        },
    );
    pair.done(THERE, 2, Opcode::LocalInvalidate);
    pair.round_trip();
    write_is_denied(&mut pair, window.rkey(), AT, 100);
}

pub(super) fn a_window_is_taken_back_by_a_message(subject: &Subject<'_>) {
    let mut pair = subject.pair();
    let window = bound(&mut pair, both());
    writes(&mut pair, window.rkey(), AT, 100);
    let into = [pair.there().entry(0, 64)];
    pair.there().receive(2, &into);
    let send = Operation::Send {
        gather: Gather::Inline(b"done with it"),
        invalidate: Some(window.rkey()),
        solicited: true,
    };
    pair.here().post(3, send);
    let done = pair.done(THERE, 2, Opcode::Receive);
    assert_eq!((done.bytes, done.invalidated), (12, Some(window.rkey())));
    pair.done(HERE, 3, Opcode::Send);
    assert_eq!(pair.there().bytes(0, 12), b"done with it");
    pair.round_trip();
    write_is_denied(&mut pair, window.rkey(), AT, 100);
}

pub(super) fn a_window_is_bound_again_under_another_key(subject: &Subject<'_>) {
    let mut pair = subject.pair();
    let window = bound(&mut pair, both());
    let first = window.rkey();
    for _ in 0..300 {
        let rkey = window.rkey();
        pair.there().post(2, Operation::LocalInvalidate { rkey });
        pair.done(THERE, 2, Opcode::LocalInvalidate);
        bind_again(&mut pair, &window, both());
        assert_eq!(window.rkey(), rkey.next_tag());
    }
    assert_eq!(window.rkey().0 >> 8, first.0 >> 8, "the index stays");
    writes(&mut pair, window.rkey(), AT, 100);
    let old = RKey((window.rkey().0 & !0xff) | (window.rkey().0.wrapping_sub(1) & 0xff));
    write_is_denied(&mut pair, old, AT, 100);
}

pub(super) fn a_window_is_for_one_queue_pair(subject: &Subject<'_>) {
    let mut pair = subject.pair();
    let [(_id, here), (_other_id, _there)] = subject.second(&pair);
    let window = bound(&mut pair, both());
    writes(&mut pair, window.rkey(), AT, 100);
    // The same domain and the same memory, through the other connection.
    pair.there().fill(AT, &[0xee; 100]);
    let from = [pair.here().entry(0, 100)];
    let remote = pair.there().remote_by(AT, window.rkey());
    here.post_send(&[signaled(
        1,
        Operation::Write {
            gather: Gather::Entries(&from),
            remote,
        },
    )])
    .unwrap();
    pair.refused(HERE, 1, Status::RemoteAccess);
    assert_eq!(pair.there().bytes(AT, 100), [0xee; 100]);
    writes(&mut pair, window.rkey(), AT, 100);
}

pub(super) fn bound_memory_stays_registered(subject: &Subject<'_>) {
    let mut pair = subject.pair();
    let other = pair
        .there()
        .domain
        .register(&memory(4 * LEN), all_access())
        .unwrap();
    let window = pair.there().domain.allocate_window().unwrap();
    bind_to(&pair.there().qp, &window, &other, both());
    pair.done(THERE, 100, Opcode::Bind);
    let (other, error) = other.deregister().unwrap_err();
    assert!(matches!(error, VerbsError::Misuse { .. }), "{error}");
    pair.there().post(
        2,
        Operation::LocalInvalidate {
            rkey: window.rkey(),
        },
    );
    pair.done(THERE, 2, Opcode::LocalInvalidate);
    drop(window);
    other.deregister().map_err(|(_, error)| error).unwrap();
    // A window wants memory with the right to bind.
    let plain = pair
        .there()
        .domain
        .register(&memory(4 * LEN), both() | Access::LOCAL_WRITE)
        .unwrap();
    let window = pair.there().domain.allocate_window().unwrap();
    let bind = Operation::Bind {
        window: &window,
        registration: &plain,
        offset: AT,
        len: LEN,
        access: both(),
    };
    let error = pair.there().qp.post_send(&[signaled(3, bind)]).unwrap_err();
    assert!(matches!(error.error, VerbsError::Misuse { .. }), "{error}");
    let bind = Operation::Bind {
        window: &window,
        registration: &pair.there().memory,
        offset: usize::MAX,
        len: LEN,
        access: both(),
    };
    let error = pair.there().qp.post_send(&[signaled(3, bind)]).unwrap_err();
    assert!(
        matches!(error.error, VerbsError::OutOfBounds { .. }),
        "{error}"
    );
    pair.round_trip();
}
