//! Objects keep what they stand on alive.

use std::any::Any;

use super::Subject;
use super::rig::{End, HERE, Pair, THERE, all_access, memory, pattern};
use crate::completion::Opcode;
use crate::queue_pair::Remote;

pub(super) fn dropped_memory_serves_its_queue_pairs(subject: &Subject<'_>) {
    let mut pair = subject.pair();
    let content = pattern(4096, 3);
    let other = pair
        .here()
        .domain
        .register(&memory(4096), all_access())
        .unwrap();
    other.copy_in(0, &content).unwrap();
    let from = [other.entry(0, 4096).unwrap()];
    drop(other);
    assert_eq!(pair.here().domain.retired_bytes(), 4096);
    let into = [pair.there().entry(0, 4096)];
    // Posted, and sent only once there is a receive.
    pair.here().send(1, &from);
    pair.there().receive(2, &into);
    pair.done(THERE, 2, Opcode::Receive);
    pair.done(HERE, 1, Opcode::Send);
    assert!(pair.there().bytes(0, 4096) == content);
    let Pair {
        ends: [here, _there],
        ..
    } = pair;
    let End { qp, domain, .. } = here;
    drop(qp);
    assert_eq!(domain.retired_bytes(), 0, "the last queue pair is gone");
}

pub(super) fn any_order_of_dropping_is_sound(subject: &Subject<'_>) {
    // Each of six things first, then the others forwards or backwards, with requests outstanding.
    for first in 0..6 {
        for backwards in [false, true] {
            let pair = subject.pair();
            let into = [pair.here().entry(0, 4096)];
            let remote: Remote = pair.there().remote(0);
            pair.here().receive(1, &into);
            pair.here().read(2, &into, remote);
            pair.here().send(3, &into);
            let Pair {
                ends: [here, there],
                ..
            } = pair;
            let End {
                memory,
                qp,
                id,
                cq,
                domain,
                channel,
                ..
            } = here;
            let mut things: Vec<Box<dyn Any>> = vec![
                Box::new(memory),
                Box::new(qp),
                Box::new(id),
                Box::new(cq),
                Box::new(domain),
                Box::new(channel),
            ];
            drop(things.remove(first));
            if backwards {
                things.reverse();
            }
            for thing in things {
                drop(thing);
            }
            drop(there);
        }
    }
    subject.pair().round_trip();
}

pub(super) fn connections_come_and_go(subject: &Subject<'_>) {
    for round in 0..20 {
        let mut pair = subject.pair();
        pair.round_trip();
        if round % 2 == 0 {
            pair.here().id.disconnect().unwrap();
        }
    }
}
