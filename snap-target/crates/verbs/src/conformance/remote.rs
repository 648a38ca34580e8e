//! RDMA Reads and Writes.

use super::Subject;
use super::rig::{HERE, MEMORY_BYTES, THERE, pattern, plain_send, signaled};
use crate::cm::ConnectParameters;
use crate::completion::Opcode;
use crate::domain::ScatterEntry;
use crate::key::RKey;
use crate::queue_pair::{Gather, Operation, Remote, SendRequest};

pub(super) fn writes_and_reads_carry_every_byte(subject: &Subject<'_>) {
    let mut pair = subject.pair();
    for len in [1_u32, 7, 1024, 4095, 65_537, 1 << 20] {
        let content = pattern(len as usize, u64::from(len) + 1);
        let bytes = len as usize;
        pair.here().fill(3, &content);
        pair.there().fill(0, &vec![0xee; bytes + 20]);
        // Two pieces there, two other pieces back.
        let cut = len / 3;
        let from = [
            pair.here().entry(3, cut),
            pair.here().entry(3 + cut as usize, len - cut),
        ];
        let remote = pair.there().remote(9);
        pair.here().write(1, &from, remote);
        pair.done(HERE, 1, Opcode::Write);
        assert!(
            pair.there().bytes(9, bytes) == content,
            "{len} bytes written"
        );
        assert_eq!(pair.there().bytes(8, 1), [0xee], "the byte before");
        assert_eq!(pair.there().bytes(9 + bytes, 1), [0xee], "the byte behind");
        let back = 2 << 20;
        let cut = len / 2;
        let into = [
            pair.here().entry(back, cut),
            pair.here().entry(back + cut as usize, len - cut),
        ];
        pair.here().read(2, &into, remote);
        assert_eq!(pair.done(HERE, 2, Opcode::Read).bytes, len);
        assert!(
            pair.here().bytes(back, bytes) == content,
            "{len} bytes read"
        );
    }
    // Either end may: the accepting one too.
    pair.there().fill(0, b"from there");
    let from = [pair.there().entry(0, 10)];
    let remote = pair.here().remote(MEMORY_BYTES - 10);
    pair.there().write(3, &from, remote);
    pair.done(THERE, 3, Opcode::Write);
    assert_eq!(pair.here().bytes(MEMORY_BYTES - 10, 10), b"from there");
    let into = [pair.there().entry(100, 10)];
    pair.there().read(4, &into, remote);
    pair.done(THERE, 4, Opcode::Read);
    assert_eq!(pair.there().bytes(100, 10), b"from there");
}

pub(super) fn a_write_is_there_before_the_message_behind_it(subject: &Subject<'_>) {
    let mut pair = subject.pair();
    for round in 0..20_u64 {
        let content = pattern(50_000, round);
        pair.here().fill(0, &content);
        let into = [pair.there().entry(MEMORY_BYTES - 64, 64)];
        pair.there().receive(1, &into);
        let from = [pair.here().entry(0, 50_000)];
        let remote = pair.there().remote(1 << 20);
        let write = Operation::Write {
            gather: Gather::Entries(&from),
            remote,
        };
        let list = [
            SendRequest {
                signaled: false,
                ..signaled(2, write)
            },
            signaled(3, plain_send(Gather::Inline(b"done"))),
        ];
        pair.here().qp.post_send(&list).unwrap();
        pair.done(THERE, 1, Opcode::Receive);
        assert!(
            pair.there().bytes(1 << 20, 50_000) == content,
            "round {round}"
        );
        pair.done(HERE, 3, Opcode::Send);
    }
}

pub(super) fn more_reads_than_the_depth_wait(subject: &Subject<'_>) {
    let depths = ConnectParameters {
        responder_resources: 2,
        initiator_depth: 2,
        ..ConnectParameters::default()
    };
    let mut pair = subject.pair_with(&depths, &depths, 64);
    pair.there().fill(0, &pattern(32 * 4096, 9));
    let entries: Vec<[ScatterEntry; 1]> = (0..32)
        .map(|at| [pair.here().entry((1 << 20) + at * 4096, 4096)])
        .collect();
    let list: Vec<SendRequest<'_>> = (0_u64..)
        .zip(&entries)
        .map(|(id, entries)| {
            let remote = pair.there().remote(usize::try_from(id).unwrap() * 4096);
            signaled(id, Operation::Read { entries, remote })
        })
        .collect();
    pair.here().qp.post_send(&list).unwrap();
    for id in 0..32 {
        assert_eq!(pair.done(HERE, id, Opcode::Read).bytes, 4096);
    }
    assert!(pair.here().bytes(1 << 20, 32 * 4096) == pattern(32 * 4096, 9));
}

pub(super) fn a_fence_waits_for_reads(subject: &Subject<'_>) {
    let mut pair = subject.pair();
    for round in 0..20_u64 {
        let content = pattern(20_000, round);
        pair.there().fill(0, &content);
        pair.here().fill(0, &[0; 20_000]);
        let into = [pair.here().entry(0, 20_000)];
        let back = [pair.there().entry(1 << 20, 20_000)];
        pair.there().receive(1, &back);
        let read = Operation::Read {
            entries: &into,
            remote: pair.there().remote(0),
        };
        // What was read is sent back: without the fence it could be sent before it is there.
        let list = [
            SendRequest {
                signaled: false,
                ..signaled(2, read)
            },
            SendRequest {
                fence: true,
                ..signaled(3, plain_send(Gather::Entries(&into)))
            },
        ];
        pair.here().qp.post_send(&list).unwrap();
        pair.done(THERE, 1, Opcode::Receive);
        assert!(
            pair.there().bytes(1 << 20, 20_000) == content,
            "round {round}"
        );
        pair.done(HERE, 3, Opcode::Send);
    }
}

pub(super) fn nothing_needs_no_key(subject: &Subject<'_>) {
    let mut pair = subject.pair();
    let remote = Remote {
        address: 0,
        rkey: RKey(0),
    };
    pair.here().write(1, &[], remote);
    pair.done(HERE, 1, Opcode::Write);
    pair.here().read(2, &[], remote);
    assert_eq!(pair.done(HERE, 2, Opcode::Read).bytes, 0);
    pair.round_trip();
}
