//! Sends and receives.

use super::Subject;
use super::rig::{HERE, MEMORY_BYTES, THERE, pattern, plain_send, signaled};
use crate::cm::ConnectParameters;
use crate::completion::Opcode;
use crate::domain::ScatterEntry;
use crate::key::WrId;
use crate::queue_pair::{Gather, ReceiveRequest, SendRequest};

pub(super) fn messages_of_every_size_arrive(subject: &Subject<'_>) {
    let mut pair = subject.pair();
    for len in [
        0_u32,
        1,
        63,
        64,
        1023,
        1024,
        1025,
        4096,
        4097,
        100_003,
        1 << 20,
    ] {
        let content = pattern(len as usize, len.into());
        pair.here().fill(1, &content);
        pair.there().fill(0, &vec![0xee; len as usize + 2]);
        let into = [pair.there().entry(1, len)];
        pair.there().receive(1, &into);
        let from = [pair.here().entry(1, len)];
        pair.here().send(2, &from);
        assert_eq!(pair.done(THERE, 1, Opcode::Receive).bytes, len);
        pair.done(HERE, 2, Opcode::Send);
        assert!(
            pair.there().bytes(1, len as usize) == content,
            "{len} bytes"
        );
        assert_eq!(pair.there().bytes(0, 1), [0xee], "the byte before");
        assert_eq!(
            pair.there().bytes(1 + len as usize, 1),
            [0xee],
            "the byte behind"
        );
    }
}

pub(super) fn messages_are_scattered_and_gathered(subject: &Subject<'_>) {
    let mut pair = subject.pair();
    let content = pattern(7000, 5);
    pair.here().fill(0, &content);
    // Gathered from the end to the front, scattered over other cuts, with an entry without bytes, into room for more.
    let from =
        [(6000, 1000), (1000, 5000), (0, 0), (0, 1000)].map(|(at, len)| pair.here().entry(at, len));
    let into = [(100_000, 1), (300_000, 2999), (200_000, 9000)]
        .map(|(at, len)| pair.there().entry(at, len));
    pair.there().receive(1, &into);
    pair.here().send(2, &from);
    assert_eq!(pair.done(THERE, 1, Opcode::Receive).bytes, 7000);
    pair.done(HERE, 2, Opcode::Send);
    let sent = [&content[6000..], &content[1000..6000], &content[..1000]].concat();
    let there = pair.there();
    let arrived = [
        there.bytes(100_000, 1),
        there.bytes(300_000, 2999),
        there.bytes(200_000, 4000),
    ]
    .concat();
    assert!(arrived == sent);
    assert_eq!(there.bytes(204_000, 1), [0], "nothing behind it");
}

pub(super) fn inline_bytes_are_taken_at_the_post(subject: &Subject<'_>) {
    let mut pair = subject.pair();
    // Posted while there is no receive: it is sent after the bytes have changed.
    let mut bytes = *b"what was posted";
    pair.here().post(1, plain_send(Gather::Inline(&bytes)));
    bytes.fill(b'x');
    let into = [pair.there().entry(0, 64)];
    pair.there().receive(2, &into);
    assert_eq!(pair.done(THERE, 2, Opcode::Receive).bytes, 15);
    pair.done(HERE, 1, Opcode::Send);
    assert_eq!(pair.there().bytes(0, 15), b"what was posted");
}

pub(super) fn messages_arrive_in_order(subject: &Subject<'_>) {
    let mut pair = subject.pair();
    let slot = |id: u64| usize::try_from(id).unwrap() * 8192;
    for round in 0..4_u64 {
        let ids: Vec<u64> = (0..48).map(|at| round * 48 + at).collect();
        for &id in &ids {
            let len = 1 + (id * 611) % 8000;
            pair.here()
                .fill(slot(id % 48), &pattern(usize::try_from(len).unwrap(), id));
            let into = [pair.there().entry(slot(id % 48), 8192)];
            pair.there().receive(id, &into);
        }
        let entries: Vec<[ScatterEntry; 1]> = ids
            .iter()
            .map(|&id| {
                [pair
                    .here()
                    .entry(slot(id % 48), u32::try_from(1 + (id * 611) % 8000).unwrap())]
            })
            .collect();
        let list: Vec<SendRequest<'_>> = ids
            .iter()
            .zip(&entries)
            .map(|(&id, entry)| signaled(id, plain_send(Gather::Entries(entry))))
            .collect();
        pair.here().qp.post_send(&list).unwrap();
        for &id in &ids {
            let len = 1 + (id * 611) % 8000;
            assert_eq!(u64::from(pair.done(THERE, id, Opcode::Receive).bytes), len);
            let len = usize::try_from(len).unwrap();
            assert!(
                pair.there().bytes(slot(id % 48), len) == pattern(len, id),
                "message {id}"
            );
        }
        for &id in &ids {
            pair.done(HERE, id, Opcode::Send);
        }
    }
}

pub(super) fn what_is_not_signaled_is_silent(subject: &Subject<'_>) {
    let mut pair = subject.pair();
    // Many times around a queue of 64: silent requests make room when a later one is told.
    for round in 0..12_u64 {
        for id in 0..16 {
            pair.there().receive(id, &[]);
        }
        let list: Vec<SendRequest<'_>> = (0..16)
            .map(|at| SendRequest {
                signaled: at == 15,
                ..signaled(round * 16 + at, plain_send(Gather::Inline(&[])))
            })
            .collect();
        pair.here().qp.post_send(&list).unwrap();
        for id in 0..16 {
            pair.done(THERE, id, Opcode::Receive);
        }
        pair.done(HERE, round * 16 + 15, Opcode::Send);
    }
    pair.round_trip();
}

pub(super) fn a_receive_may_come_late(subject: &Subject<'_>) {
    let endless = ConnectParameters::default();
    let mut pair = subject.pair_with(&endless, &endless, 64);
    pair.here().fill(0, b"patience");
    let from = [pair.here().entry(0, 8)];
    pair.here().send(1, &from);
    // The other direction works meanwhile.
    pair.here().receive(2, &[]);
    pair.there().send(3, &[]);
    pair.done(HERE, 2, Opcode::Receive);
    pair.done(THERE, 3, Opcode::Send);
    let into = [pair.there().entry(MEMORY_BYTES - 8, 8)];
    pair.there()
        .qp
        .post_receive(&[ReceiveRequest {
            id: WrId(4),
            entries: &into,
        }])
        .unwrap();
    pair.done(THERE, 4, Opcode::Receive);
    pair.done(HERE, 1, Opcode::Send);
    assert_eq!(pair.there().bytes(MEMORY_BYTES - 8, 8), b"patience");
}
