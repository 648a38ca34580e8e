//! Completion queues, and what is refused before it becomes a request.

use std::os::fd::AsFd;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::Subject;
use super::rig::{CAPABILITIES, HERE, Pair, THERE, memory, plain_send, signaled};
use crate::completion::Opcode;
use crate::error::VerbsError;
use crate::key::{Access, WrId};
use crate::queue_pair::{Gather, Operation, ReceiveRequest, SendRequest};

fn readable(fd: &impl AsFd) -> bool {
    let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::ZERO).unwrap() == 1
}

/// Sends, and waits until the message has arrived, without touching the receiving queue.
fn arrives(pair: &mut Pair<'_>, solicited: bool) {
    pair.there().receive(1, &[]);
    let gather = Gather::Inline(&[]);
    pair.here().post(
        2,
        Operation::Send {
            gather,
            invalidate: None,
            solicited,
        },
    );
    pair.done(HERE, 2, Opcode::Send);
}

fn polled(pair: &mut Pair<'_>, end: usize) -> usize {
    let mut out = Vec::new();
    let cq = &pair.ends[end].cq;
    pair.subject.wait("a completion", &[], || {
        (cq.poll(&mut out).unwrap() > 0).then_some(())
    });
    out.len()
}

fn wakes(pair: &Pair<'_>, end: usize) {
    let cq = &pair.ends[end].cq;
    pair.subject.wait("the descriptor's readiness", &[cq], || {
        readable(cq).then_some(())
    });
}

pub(super) fn an_armed_queue_tells_once(subject: &Subject<'_>) {
    let mut pair = subject.pair();
    arrives(&mut pair, false);
    assert_eq!(polled(&mut pair, THERE), 1);
    assert!(!readable(&pair.there().cq), "not armed, not told");
    pair.there().cq.arm(false).unwrap();
    arrives(&mut pair, false);
    wakes(&pair, THERE);
    assert_eq!(pair.there().cq.take_events().unwrap(), 1);
    assert!(!readable(&pair.there().cq), "taken");
    assert_eq!(polled(&mut pair, THERE), 1);
    arrives(&mut pair, false);
    assert_eq!(polled(&mut pair, THERE), 1);
    assert!(!readable(&pair.there().cq), "armed once, told once");
    assert_eq!(pair.there().cq.take_events().unwrap(), 0);
}

pub(super) fn solicited_only_sleeps_through_others(subject: &Subject<'_>) {
    let mut pair = subject.pair();
    pair.there().cq.arm(true).unwrap();
    arrives(&mut pair, false);
    assert_eq!(polled(&mut pair, THERE), 1);
    assert!(!readable(&pair.there().cq), "it was not solicited");
    arrives(&mut pair, true);
    wakes(&pair, THERE);
    assert_eq!(pair.there().cq.take_events().unwrap(), 1);
    assert_eq!(polled(&mut pair, THERE), 1);
}

pub(super) fn a_full_queue_refuses_and_loses_nothing(subject: &Subject<'_>) {
    let mut pair = subject.pair();
    let capacity = pair.here().qp.capabilities().send_wr_max;
    assert!(
        capacity >= CAPABILITIES.send_wr_max,
        "no less than was asked for"
    );
    // Nothing can be done before a receive is posted.
    let list: Vec<SendRequest<'_>> = (0..u64::from(capacity) + 50)
        .map(|id| signaled(id, plain_send(Gather::Inline(&[]))))
        .collect();
    let refused = pair.here().qp.post_send(&list).unwrap_err();
    assert!(
        matches!(refused.error, VerbsError::QueueFull { .. }),
        "{refused}"
    );
    let posted = refused.posted as u64;
    assert!(
        posted >= u64::from(CAPABILITIES.send_wr_max),
        "{posted} of {capacity}"
    );
    let mut received = 0;
    for id in 0..posted {
        while received < posted.min(id + 16) {
            pair.there().receive(received, &[]);
            received += 1;
        }
        pair.done(THERE, id, Opcode::Receive);
        pair.done(HERE, id, Opcode::Send);
    }
    // The receive queue too.
    let list: Vec<ReceiveRequest<'_>> = (0..100_000)
        .map(|id| ReceiveRequest {
            id: WrId(id),
            entries: &[],
        })
        .collect();
    let refused = pair.there().qp.post_receive(&list).unwrap_err();
    assert!(
        matches!(refused.error, VerbsError::QueueFull { .. }),
        "{refused}"
    );
    assert!(refused.posted >= CAPABILITIES.recv_wr_max as usize);
    pair.here().post(7, plain_send(Gather::Inline(&[])));
    pair.done(THERE, 0, Opcode::Receive);
    pair.done(HERE, 7, Opcode::Send);
}

pub(super) fn what_does_not_fit_is_refused(subject: &Subject<'_>) {
    let mut pair = subject.pair();
    let other = pair.here().domain.device().allocate_domain().unwrap();
    let foreign = other.register(&memory(4096), Access::LOCAL_WRITE).unwrap();
    let foreign = [foreign.entry(0, 8).unwrap()];
    let good = [pair.here().entry(0, 8)];
    let many = vec![pair.here().entry(0, 8); 100];
    let long = vec![0; 4096];
    let misuse = |error: &VerbsError| matches!(error, VerbsError::Misuse { .. });
    let limit = |error: &VerbsError| matches!(error, VerbsError::Limit { .. });
    let send = |gather| signaled(2, plain_send(gather));
    let first = signaled(1, plain_send(Gather::Entries(&good)));
    for (bad, right) in [
        (
            send(Gather::Entries(&foreign)),
            &misuse as &dyn Fn(&VerbsError) -> bool,
        ),
        (send(Gather::Entries(&many)), &limit),
        (send(Gather::Inline(&long)), &limit),
    ] {
        pair.there().receive(3, &[pair.there().entry(0, 8)]);
        let refused = pair.here().qp.post_send(&[first, bad, first]).unwrap_err();
        assert_eq!(refused.posted, 1, "the first is posted, the third is not");
        assert!(right(&refused.error), "{refused}");
        pair.done(THERE, 3, Opcode::Receive);
        pair.done(HERE, 1, Opcode::Send);
    }
    let refused = pair
        .here()
        .qp
        .post_receive(&[ReceiveRequest {
            id: WrId(1),
            entries: &foreign,
        }])
        .unwrap_err();
    assert!(misuse(&refused.error), "{refused}");
    let memory = &pair.here().memory;
    for (offset, len) in [
        (memory.len(), 1),
        (memory.len() - 1, 2),
        (usize::MAX, 1),
        (0, u32::MAX),
    ] {
        let error = memory.entry(offset, len).unwrap_err();
        assert!(matches!(error, VerbsError::OutOfBounds { .. }), "{error}");
    }
    let error = other
        .register(&super::rig::memory(4096), Access::REMOTE_WRITE)
        .unwrap_err();
    assert!(misuse(&error), "{error}");
    pair.round_trip();
}

pub(super) fn two_queue_pairs_share_a_queue(subject: &Subject<'_>) {
    let mut pair = subject.pair();
    let [(_id, here), (_other, there)] = subject.second(&pair);
    let numbers = [pair.there().qp.number(), there.number()];
    assert_ne!(numbers[0], numbers[1]);
    for id in 0..8 {
        pair.there().receive(id, &[]);
        there
            .post_receive(&[ReceiveRequest {
                id: WrId(id),
                entries: &[],
            }])
            .unwrap();
        pair.here().send(id, &[]);
        here.post_send(&[signaled(id, plain_send(Gather::Inline(&[])))])
            .unwrap();
    }
    let mut next = [0; 2];
    for _ in 0..16 {
        let completion = pair.completion(THERE);
        assert!(completion.result.is_ok(), "{completion:?}");
        let which = numbers
            .iter()
            .position(|number| *number == completion.queue_pair)
            .unwrap();
        assert_eq!(completion.id, WrId(next[which]), "in order on each");
        next[which] += 1;
    }
    assert_eq!(next, [8, 8]);
}
