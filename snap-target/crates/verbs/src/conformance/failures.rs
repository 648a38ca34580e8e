//! What ends a connection, and how both ends hear of it.

use super::Subject;
use super::rig::{HERE, MEMORY_BYTES, Pair, THERE, memory, plain_send};
use crate::cm::ConnectParameters;
use crate::completion::{Opcode, Status};
use crate::key::{Access, RKey};
use crate::queue_pair::{Gather, Operation, Remote};

/// A message for which the receive has no room; what the receiver and the sender hear.
fn too_long(pair: &mut Pair<'_>) -> [Status; 2] {
    let into = [pair.there().entry(0, 99)];
    pair.there().receive(1, &into);
    pair.there().receive(2, &into);
    let from = [pair.here().entry(0, 100)];
    pair.here().send(3, &from);
    pair.here().send(4, &from);
    let there = pair.failed(THERE, 1);
    pair.flushed(THERE, &[2]);
    let here = pair.failed(HERE, 3);
    pair.flushed(HERE, &[4]);
    pair.in_error(HERE);
    pair.in_error(THERE);
    [there, here]
}

/// A message into memory that is not for writing; what the receiver and the sender hear.
fn protected(pair: &mut Pair<'_>) -> [Status; 2] {
    let other = pair
        .there()
        .domain
        .register(&memory(4096), Access::LOCAL_READ)
        .unwrap();
    other.copy_in(0, b"untouched").unwrap();
    pair.there().receive(1, &[other.entry(0, 64).unwrap()]);
    pair.there().receive(2, &[]);
    let from = [pair.here().entry(0, 8)];
    pair.here().send(3, &from);
    let there = pair.failed(THERE, 1);
    pair.flushed(THERE, &[2]);
    let here = pair.failed(HERE, 3);
    let mut left = [0; 9];
    other.copy_out(0, &mut left).unwrap();
    assert_eq!(left, *b"untouched");
    [there, here]
}

pub(super) fn a_message_that_is_too_long_ends_both(subject: &Subject<'_>) {
    assert!(
        !too_long(&mut subject.pair()).contains(&Status::Flushed),
        "both fail, and are not flushed"
    );
}

pub(super) fn a_receive_into_protected_memory_ends_both(subject: &Subject<'_>) {
    assert!(
        !protected(&mut subject.pair()).contains(&Status::Flushed),
        "both fail, and are not flushed"
    );
}

pub(super) fn receives_that_fail_say_why(subject: &Subject<'_>) {
    // A refusal that is lost shows as tries that are used up.
    let lost = |status| subject.loses && status == Status::RetryExceeded;
    let [there, here] = too_long(&mut subject.pair());
    assert_eq!(there, Status::LocalLength);
    assert!(
        here == Status::RemoteInvalidRequest || lost(here),
        "{here:?}"
    );
    let [there, here] = protected(&mut subject.pair());
    assert_eq!(there, Status::LocalProtection);
    assert!(here == Status::RemoteOperation || lost(here), "{here:?}");
}

pub(super) fn no_receive_is_told_when_tries_are_used_up(subject: &Subject<'_>) {
    // The accepting end says how often the connecting one tries.
    let few = ConnectParameters {
        rnr_retry_count: 2,
        ..ConnectParameters::default()
    };
    let mut pair = subject.pair_with(&ConnectParameters::default(), &few, 64);
    pair.here().receive(5, &[]);
    pair.here().send(1, &[]);
    pair.here().send(2, &[]);
    assert_eq!(pair.failed(HERE, 1), Status::RnrRetryExceeded);
    let mut rest = [pair.completion(HERE), pair.completion(HERE)].map(|completion| completion.id.0);
    rest.sort_unstable();
    assert_eq!(rest, [2, 5], "both queues are flushed");
    pair.in_error(HERE);
}

/// Both ends fail with this status: the request itself, then all else in order.
fn both_fail(pair: &mut Pair<'_>, post: impl Fn(&Pair<'_>), status: Status) {
    for id in [21, 22, 23] {
        pair.there().receive(id, &[]);
    }
    post(pair);
    pair.here().send(2, &[]);
    pair.here().send(3, &[]);
    pair.refused(HERE, 1, status);
    pair.flushed(HERE, &[2, 3]);
    pair.in_error(HERE);
    pair.in_error(THERE);
    pair.flushed(THERE, &[21, 22, 23]);
}

fn write_fails(pair: &mut Pair<'_>, remote: Remote, len: u32) {
    let from = [pair.here().entry(0, len)];
    both_fail(
        pair,
        |pair| pair.here().write(1, &from, remote),
        Status::RemoteAccess,
    );
}

fn read_fails(pair: &mut Pair<'_>, remote: Remote, len: u32) {
    let into = [pair.here().entry(0, len)];
    pair.here().fill(0, &[0xee; 64]);
    both_fail(
        pair,
        |pair| pair.here().read(1, &into, remote),
        Status::RemoteAccess,
    );
    assert_eq!(pair.here().bytes(0, 64), [0xee; 64], "nothing was read");
}

pub(super) fn a_wrong_key_ends_both(subject: &Subject<'_>) {
    for wrong in [0x100, 1] {
        let mut pair = subject.pair();
        let rkey = RKey(pair.there().memory.rkey().0 ^ wrong);
        let remote = pair.there().remote_by(0, rkey);
        write_fails(&mut pair, remote, 8);
        let mut pair = subject.pair();
        let rkey = RKey(pair.there().memory.rkey().0 ^ wrong);
        let remote = pair.there().remote_by(0, rkey);
        read_fails(&mut pair, remote, 8);
    }
}

pub(super) fn a_range_beyond_the_end_ends_both(subject: &Subject<'_>) {
    let mut pair = subject.pair();
    let remote = pair.there().remote(MEMORY_BYTES - 7);
    pair.there().fill(MEMORY_BYTES - 7, &[0xee; 7]);
    write_fails(&mut pair, remote, 8);
    assert_eq!(
        pair.there().bytes(MEMORY_BYTES - 7, 7),
        [0xee; 7],
        "nothing was written"
    );
    let mut pair = subject.pair();
    let remote = pair.there().remote(MEMORY_BYTES - 7);
    read_fails(&mut pair, remote, 8);
    let mut pair = subject.pair();
    let first = pair.there().remote(0);
    let before = Remote {
        address: first.address - 1,
        ..first
    };
    read_fails(&mut pair, before, 8);
}

pub(super) fn a_missing_right_ends_both(subject: &Subject<'_>) {
    for (access, writing) in [
        (Access::LOCAL_WRITE | Access::REMOTE_READ, true),
        (Access::LOCAL_WRITE | Access::REMOTE_WRITE, false),
    ] {
        let mut pair = subject.pair();
        let other = pair.there().domain.register(&memory(4096), access).unwrap();
        other.copy_in(0, b"untouched").unwrap();
        let remote = Remote {
            address: other.remote_address(0).unwrap(),
            rkey: other.rkey(),
        };
        if writing {
            write_fails(&mut pair, remote, 8);
        } else {
            read_fails(&mut pair, remote, 8);
        }
        let mut left = [0; 9];
        other.copy_out(0, &mut left).unwrap();
        assert_eq!(left, *b"untouched");
    }
}

pub(super) fn deregistered_memory_is_denied(subject: &Subject<'_>) {
    let mut pair = subject.pair();
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let kept = memory(4096);
    let other = pair.there().domain.register(&kept, access).unwrap();
    let remote = Remote {
        address: other.remote_address(0).unwrap(),
        rkey: other.rkey(),
    };
    let from = [pair.here().entry(0, 8)];
    pair.here().write(7, &from, remote);
    pair.done(HERE, 7, Opcode::Write);
    other.deregister().map_err(|(_, error)| error).unwrap();
    assert_eq!(
        pair.there().domain.retired_bytes(),
        0,
        "it is gone now, not later"
    );
    write_fails(&mut pair, remote, 8);
}

pub(super) fn outstanding_requests_are_flushed_in_order(subject: &Subject<'_>) {
    let mut pair = subject.pair();
    for id in 0..10 {
        pair.there().receive(id, &[]);
    }
    pair.there().qp.move_to_error().unwrap();
    pair.flushed(THERE, &(0..10).collect::<Vec<_>>());
    pair.in_error(THERE);
}

pub(super) fn posts_behind_an_error_are_flushed(subject: &Subject<'_>) {
    let mut pair = subject.pair();
    pair.here().qp.move_to_error().unwrap();
    pair.in_error(HERE);
    let from = [pair.here().entry(0, 8)];
    let remote = pair.there().remote(0);
    pair.there().fill(0, &[0xee; 8]);
    pair.here().post(1, plain_send(Gather::Inline(b"x")));
    pair.here().post(
        2,
        Operation::Write {
            gather: Gather::Entries(&from),
            remote,
        },
    );
    pair.flushed(HERE, &[1, 2]);
    assert_eq!(pair.there().bytes(0, 8), [0xee; 8]);
}

pub(super) fn receives_behind_an_error_are_flushed(subject: &Subject<'_>) {
    let mut pair = subject.pair();
    pair.here().receive(1, &[]);
    pair.here().qp.move_to_error().unwrap();
    pair.flushed(HERE, &[1]);
    pair.here().receive(2, &[]);
    pair.flushed(HERE, &[2]);
}
