//! Memory without a descriptor: data, lists and segments go by DMA_READ and DMA_WRITE.

use std::io::Write as _;
use std::time::Duration;

use nvme_spec::{SglDescriptor, Status, U32, U64};
use zerocopy::FromBytes;

use crate::client::{Asked, Client, DMA_READ, DMA_WRITE};
use crate::driver::{
    BASE, DATA, Guest, LIST, MEMORY_BYTES, Machine, command, descriptor, longs, pattern, places,
    set_prps, status, transfer, words,
};
use frontend_nvme::conformance::memory;

/// Right behind the memory that is shared.
const APART: u64 = BASE + MEMORY_BYTES;
const APART_BYTES: u64 = 4 << 20;

fn hidden(machine: &Machine) -> Guest {
    let mut guest = machine.running();
    guest.hide(APART, APART_BYTES);
    guest
}

/// Bytes of the guest's memory, wherever they are.
fn look(guest: &Guest, address: u64, bytes: usize) -> Vec<u8> {
    match address.checked_sub(APART) {
        Some(at) => guest.client.hidden.bytes[at as usize..][..bytes].to_vec(),
        None => guest.get(address, bytes),
    }
}

fn fill(guest: &mut Guest, address: u64, bytes: &[u8]) {
    match address.checked_sub(APART) {
        Some(at) => guest.client.hidden.bytes[at as usize..][..bytes.len()].copy_from_slice(bytes),
        None => guest.put(address, bytes),
    }
}

/// Writes blocks from some pages and reads them into others; the list, where there is one, is at `list`.
fn there_and_back(guest: &mut Guest, seed: u64, from: &[u64], to: &[u64], list: u64) {
    let blocks = from.len() as u32;
    let prps = |guest: &mut Guest, pages: &[u64]| match pages {
        [first] => (*first, 0),
        [first, second] => (*first, *second),
        [first, rest @ ..] => {
            fill(guest, list, &longs(rest));
            (*first, list)
        }
        [] => panic!("no pages"),
    };
    for (page, at) in from.iter().zip(0..) {
        fill(guest, *page, &pattern(seed + at, 4096));
    }
    let (prp1, prp2) = prps(guest, from);
    let written = guest.run(1, transfer(1, 0, blocks, prp1, prp2));
    assert_eq!(status(&written), Status::SUCCESS);
    for page in to {
        fill(guest, *page, &[0xEE; 4096]);
    }
    let (prp1, prp2) = prps(guest, to);
    let read = guest.run(1, transfer(2, 0, blocks, prp1, prp2));
    assert_eq!(status(&read), Status::SUCCESS);
    for (page, at) in to.iter().zip(0..) {
        assert!(
            look(guest, *page, 4096) == pattern(seed + at, 4096),
            "{page:#x}"
        );
    }
}

#[test]
fn data_go_by_messages() {
    let machine = Machine::start(memory(), 2);
    let mut guest = hidden(&machine);
    there_and_back(&mut guest, 1, &[APART], &[APART + 0x1000], 0);
    let of = |guest: &mut Guest| {
        let hidden = &mut guest.client.hidden;
        let both = (hidden.reads.clone(), hidden.writes.clone());
        hidden.reads.clear();
        hidden.writes.clear();
        both
    };
    assert_eq!(of(&mut guest), (vec![4096], vec![4096]));
    // Neighbours in the list that are none in memory; a page of each kind.
    let from = [APART + 0x5000, DATA, APART + 0x3000, DATA + 0x4000];
    let to = [DATA, APART, APART + 0x2000, DATA + 0x1000];
    there_and_back(&mut guest, 10, &from, &to, LIST);
    assert_eq!(of(&mut guest), (vec![4096; 2], vec![4096; 2]));
    // 1 MiB in one run: as many bytes a message as there may be.
    let run: Vec<u64> = (0..256).map(|page| APART + page * 4096).collect();
    there_and_back(&mut guest, 20, &run, &run, LIST);
    assert_eq!(of(&mut guest), (vec![32_768; 32], vec![32_768; 32]));
    // Half of a run is shared, and half is not.
    let across: Vec<u64> = (0..4).map(|page| APART - 0x2000 + page * 4096).collect();
    there_and_back(&mut guest, 30, &across, &across, LIST);
    assert_eq!(of(&mut guest), (vec![8192], vec![8192]));
    guest.still_works();
    assert_eq!(of(&mut guest), (vec![], vec![]));
}

#[test]
fn a_client_is_asked_for_no_more_than_it_takes() {
    let machine = Machine::start(memory(), 1);
    let mut guest = Guest::new(Client::connect_with(&machine.socket(), 1000));
    guest.enable();
    guest.create_pair(1);
    guest.hide(APART, APART_BYTES);
    there_and_back(&mut guest, 1, &[APART], &[APART], 0);
    let parts = vec![1000, 1000, 1000, 1000, 96];
    assert_eq!(guest.client.hidden.reads, parts);
    assert_eq!(guest.client.hidden.writes, parts);
}

#[test]
fn lists_and_segments_go_by_messages() {
    let machine = Machine::start(memory(), 2);
    let mut guest = hidden(&machine);
    let shared: Vec<u64> = (0..8).map(|page| DATA + page * 0x3000).collect();
    let list = APART + 0x10_0000;
    there_and_back(&mut guest, 1, &shared, &shared, list);
    assert_eq!(
        guest.client.hidden.reads,
        [56, 56],
        "seven entries, each way"
    );
    // A list that begins at its page's end, so that it goes on in another one, which is shared.
    let pages: Vec<u64> = (0..16).map(|page| APART + page * 0x3000).collect();
    for (page, at) in pages.iter().zip(40..) {
        fill(&mut guest, *page, &pattern(at, 4096));
    }
    fill(&mut guest, list + 0xFF8, &longs(&[LIST]));
    guest.put_list(LIST, &pages[1..]);
    let written = guest.run(1, transfer(1, 0, 16, pages[0], list + 0xFF8));
    assert_eq!(status(&written), Status::SUCCESS);
    let read = guest.run(1, transfer(2, 15, 1, DATA, 0));
    assert_eq!(status(&read), Status::SUCCESS);
    assert!(guest.get(DATA, 4096) == pattern(55, 4096));
    // A segment that begins in shared memory and ends in the other; data there and there.
    let segment = APART - 32;
    let blocks = [
        descriptor(APART + 0x1003, 5000, 0),
        descriptor(DATA + 1, 1000, 0),
        descriptor(APART + 0x8001, 2192, 0),
    ]
    .concat();
    guest.put(segment, &blocks[..32]);
    fill(&mut guest, APART, &blocks[32..]);
    let bytes = pattern(77, 8192);
    fill(&mut guest, APART + 0x1003, &bytes[..5000]);
    guest.put(DATA + 1, &bytes[5000..6000]);
    fill(&mut guest, APART + 0x8001, &bytes[6000..]);
    for opcode in [1, 2] {
        let mut sqe = transfer(opcode, 4, 2, 0, 0);
        sqe.flags = 0x40;
        let last = descriptor(segment, 48, 0x30);
        sqe.dptr = SglDescriptor::read_from_bytes(&last[..]).unwrap();
        assert_eq!(status(&guest.run(1, sqe)), Status::SUCCESS);
        if opcode == 1 {
            for (place, len) in [
                (APART + 0x1003, 5000),
                (DATA + 1, 1000),
                (APART + 0x8001, 2192),
            ] {
                fill(&mut guest, place, &vec![0; len]);
            }
        }
    }
    let back = [
        look(&guest, APART + 0x1003, 5000),
        guest.get(DATA + 1, 1000),
        look(&guest, APART + 0x8001, 2192),
    ];
    assert!(back.concat() == bytes);
}

/// Data of admin commands, both ways.
#[test]
fn admin_data_go_by_messages() {
    let machine = Machine::start(memory(), 2);
    let mut guest = hidden(&machine);
    let mut identify = command(0x06, 0);
    identify.cdw10 = U32::new(1);
    identify.dptr.address = U64::new(DATA);
    assert_eq!(status(&guest.admin(identify)), Status::SUCCESS);
    set_prps(&mut identify, APART + 0x800, APART + 0x3000);
    assert_eq!(status(&guest.admin(identify)), Status::SUCCESS);
    let halves = [
        look(&guest, APART + 0x800, 0x800),
        look(&guest, APART + 0x3000, 0x800),
    ];
    assert!(halves.concat() == guest.get(DATA, 4096));
    // Host Behavior Support, 512 bytes from the host: ACRE.
    fill(&mut guest, APART, &[1]);
    let mut set = command(0x09, 0);
    set.cdw10 = U32::new(0x16);
    set.dptr.address = U64::new(APART);
    assert_eq!(status(&guest.admin(set)), Status::SUCCESS);
    assert_eq!(guest.client.hidden.reads, [512]);
    set.opcode = 0x0A;
    set.dptr.address = U64::new(DATA);
    assert_eq!(status(&guest.admin(set)), Status::SUCCESS);
    assert_eq!(guest.get(DATA, 1), [1]);
}

/// A whole queue of commands on each of two reactors, with registers read in between.
#[test]
fn many_at_a_time() {
    let machine = Machine::start(memory(), 2);
    let mut guest = hidden(&machine);
    guest.create_pair(2);
    let (each, rounds) = (48_u64, 4);
    for round in 0..rounds {
        for opcode in [1, 2] {
            for at in 0..2 * each {
                let page = APART + (at ^ round) * 4096;
                match opcode {
                    1 => fill(&mut guest, page, &pattern(round << 8 | at, 4096)),
                    _ => fill(&mut guest, page, &[0; 4096]),
                }
            }
            for at in 0..2 * each {
                let page = APART + (at ^ round) * 4096;
                guest.submit(1 + (at % 2) as u16, transfer(opcode, at, 1, page, 0));
                if at % 8 == 0 {
                    assert_eq!(guest.csts(), 1);
                }
            }
            for at in 0..2 * each {
                let cqe = guest.complete(1 + (at % 2) as u16);
                assert_eq!(status(&cqe), Status::SUCCESS);
            }
        }
        for at in 0..2 * each {
            let page = APART + (at ^ round) * 4096;
            let is_it = look(&guest, page, 4096) == pattern(round << 8 | at, 4096);
            assert!(is_it, "{round} {at}");
        }
    }
    let messages = (2 * each * rounds) as usize;
    let hidden = &guest.client.hidden;
    assert_eq!(
        (hidden.reads.len(), hidden.writes.len()),
        (messages, messages)
    );
}

/// A read that fails at once leaves its place to nobody: its slot's next command has data of its own.
#[test]
fn a_read_that_fails_leaves_its_place_to_nobody() {
    let machine = Machine::start(memory(), 1);
    let mut guest = hidden(&machine);
    fill(&mut guest, APART, &pattern(7, 4096));
    let written = guest.run(1, transfer(1, 0, 1, APART, 0));
    assert_eq!(status(&written), Status::SUCCESS);
    let marked = guest.run(1, transfer(4, 1, 1, 0, 0));
    assert_eq!(status(&marked), Status::SUCCESS);
    guest.put(DATA, &[0xEE; 4096]);
    fill(&mut guest, APART, &[0; 8 * 4096]);
    let failing: Vec<u16> = (0..8)
        .map(|_| guest.prepare(1, transfer(2, 1, 1, DATA, 0)))
        .collect();
    for page in 0..8 {
        guest.prepare(1, transfer(2, 0, 1, APART + page * 4096, 0));
    }
    guest.ring_tail(1);
    for _ in 0..16 {
        let cqe = guest.complete(1);
        let wanted = match failing.contains(&cqe.cid.get()) {
            true => Status::UNRECOVERED_READ_ERROR,
            false => Status::SUCCESS,
        };
        assert_eq!(status(&cqe), wanted);
    }
    assert!(guest.get(DATA, 4096) == [0xEE; 4096]);
    for page in 0..8 {
        assert!(
            look(&guest, APART + page * 4096, 4096) == pattern(7, 4096),
            "{page}"
        );
    }
    guest.still_works();
}

/// Both ends have a full socket: the target has more to write than it holds, and the client sends without looking.
#[test]
fn both_sockets_are_full() {
    let machine = Machine::start(memory(), 2);
    let mut guest = hidden(&machine);
    let socket = guest.client.raw();
    socket
        .set_write_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let run: Vec<u64> = (1..256).map(|page| APART + page * 4096).collect();
    guest.put_list(LIST, &run);
    for queue in 2..=8 {
        guest.create_pair(queue);
    }
    // Three messages of 32 KiB a queue, and a socket holds about 208 KiB.
    for _ in 0..4 {
        for queue in 1..=8 {
            guest.submit(queue, transfer(2, 0, 256, APART, LIST));
        }
    }
    // Four MiB of posted writes of the interrupt table's bytes, which have no effect.
    let table = [longs(&[0x2000]), words(&[0, 1024]), vec![0; 1024]].concat();
    for _ in 0..4096 {
        guest.client.post(10, &table);
    }
    for queue in 1..=8 {
        for _ in 0..4 {
            assert_eq!(status(&guest.complete(queue)), Status::SUCCESS);
        }
    }
    assert_eq!(guest.client.hidden.writes, vec![32_768; 8 * 4 * 32]);
    guest.still_works();
}

/// Entries of queues do not go by messages, and doorbells do not.
#[test]
fn queues_are_not_there() {
    let machine = Machine::start(memory(), 2);
    let mut guest = hidden(&machine);
    let mut cq = command(0x05, 0);
    cq.dptr.address = U64::new(APART);
    cq.cdw10 = U32::new(2 | 15 << 16);
    cq.cdw11 = U32::new(1);
    assert_eq!(status(&guest.admin(cq)), Status::INVALID_FIELD);
    guest.create_cq(2, places(2).1, 16).unwrap();
    for place in [APART, APART - 0x1000] {
        // The second begins in shared memory: 128 entries are two pages.
        let refused = guest.create_sq(2, 2, place, 128);
        let expected = match guest.read_register(0, 4) & 0xFFFF {
            mqes if mqes < 127 && place != APART => Status::INVALID_QUEUE_SIZE,
            _ => Status::INVALID_FIELD,
        };
        assert_eq!(refused, Err(expected), "{place:#x}");
    }
    let refused = guest.share_doorbells(APART, APART + 0x1000);
    assert_eq!(refused, Err(Status::INVALID_FIELD));
    assert!(guest.client.is_silent(), "nothing was asked for");
    guest.still_works();
}

/// A command on queue 1, and what the client is asked for it.
fn asked_for(guest: &mut Guest, opcode: u8) -> Asked {
    guest.submit(1, transfer(opcode, 0, 1, APART, 0));
    let asked = guest.client.asked();
    let expected = match opcode {
        1 => DMA_READ,
        _ => DMA_WRITE,
    };
    assert_eq!(
        (asked.command, asked.address, asked.count),
        (expected, APART, 4096)
    );
    asked
}

#[test]
fn a_window_goes_when_its_messages_are_answered() {
    let machine = Machine::start(memory(), 2);
    let mut guest = hidden(&machine);
    for opcode in [1, 2] {
        let asked = asked_for(&mut guest, opcode);
        let body = Guest::unmap_body(APART, APART_BYTES);
        let unmap = guest.client.send(3, 0, &body, &[]);
        for _ in 0..50 {
            assert_eq!(guest.csts(), 1, "answered at once, and the other is not");
        }
        guest.client.serve(asked);
        assert_eq!(guest.client.reply(unmap), Ok(body));
        assert_eq!(status(&guest.complete(1)), Status::SUCCESS);
        guest.hide(APART, APART_BYTES);
    }
    // What a command has there still is not asked for any more.
    guest.put_list(LIST, &[APART + 0x3000, APART + 0x5000]);
    guest.submit(1, transfer(2, 0, 3, APART, LIST));
    let asked = guest.client.asked();
    let body = Guest::unmap_body(APART, APART_BYTES);
    let unmap = guest.client.send(3, 0, &body, &[]);
    assert_eq!(guest.csts(), 1);
    guest.client.serve(asked);
    assert_eq!(guest.client.reply(unmap), Ok(body));
    assert_eq!(status(&guest.complete(1)), Status::DATA_TRANSFER_ERROR);
    assert!(guest.client.is_silent());
}

/// CSTS.RDY and a queue's deletion wait for a write of the guest's memory.
#[test]
fn a_reset_waits_for_the_last_message() {
    let machine = Machine::start(memory(), 2);
    let mut guest = hidden(&machine);
    let asked = asked_for(&mut guest, 2);
    guest.write_register(0x14, 0x0046_0000);
    for _ in 0..50 {
        assert_eq!(guest.csts(), 1, "the client may be writing");
        assert_eq!(guest.read_register(0x14, 4), 0x0046_0000);
    }
    guest.client.serve(asked);
    guest.wait_ready(false);
    assert!(guest.peek(1).is_none(), "nobody waits for its completion");
    guest.enable();
    guest.create_pair(1);
    // A read of memory changes nothing there.
    let asked = asked_for(&mut guest, 1);
    guest.disable();
    guest.client.serve(asked);
    guest.enable();
    guest.create_pair(1);

    let asked = asked_for(&mut guest, 2);
    let mut delete = command(0x00, 0);
    delete.cdw10 = U32::new(1);
    guest.submit(0, delete);
    let mut identify = command(0x0A, 0);
    identify.cdw10 = U32::new(0x07);
    guest.run(0, identify);
    assert!(guest.peek(0).is_none(), "the client may be writing");
    guest.client.serve(asked);
    assert_eq!(status(&guest.complete(0)), Status::SUCCESS);
    guest.delete(0x04, 1).unwrap();
    guest.create_pair(1);
    guest.still_works();
}

/// A client that never answers: its command fails, and others at once, until it has.
#[test]
fn a_reply_that_never_comes() {
    let machine = Machine::start(memory(), 2);
    let mut guest = hidden(&machine);
    let asked = asked_for(&mut guest, 1);
    // Other commands go on meanwhile.
    guest.create_pair(2);
    guest.works(2, 5);
    assert!(guest.peek(1).is_none());
    while guest.peek(1).is_none() {
        std::thread::yield_now();
    }
    assert_eq!(status(&guest.complete(1)), Status::DATA_TRANSFER_ERROR);
    let next = guest.run(2, transfer(2, 0, 1, APART, 0));
    assert_eq!(status(&next), Status::DATA_TRANSFER_ERROR);
    assert!(guest.client.is_silent(), "it is not asked again");
    // Late, but it comes.
    guest.client.serve(asked);
    there_and_back(&mut guest, 3, &[APART], &[APART + 0x1000], 0);
}

/// Replies that are not what was asked for: the command fails, or the client is let go.
#[test]
fn replies_that_are_wrong() {
    let machine = Machine::start(memory(), 2);
    let mut guest = hidden(&machine);
    let echo = |address: u64, count: u64| longs(&[address, count]);
    for (opcode, error, body) in [
        // It says that it cannot.
        (1, 14, vec![]),
        (2, 14, vec![]),
        (1, 0x2A, echo(APART, 4096)),
        // Too few bytes, too many, another place, another length, none.
        (1, 0, [echo(APART, 4096), vec![1; 4095]].concat()),
        (1, 0, [echo(APART, 4096), vec![1; 4097]].concat()),
        (1, 0, [echo(APART + 1, 4096), vec![1; 4096]].concat()),
        (1, 0, [echo(APART, 4095), vec![1; 4096]].concat()),
        (1, 0, [echo(APART, u64::MAX), vec![1; 4096]].concat()),
        (1, 0, echo(APART, 4096)),
        (1, 0, vec![]),
        (1, 0, vec![0; 15]),
    ] {
        let asked = asked_for(&mut guest, opcode);
        let flags = if error == 0 { 1 } else { 0x21 };
        guest
            .client
            .answer(asked.id, asked.command, flags, error, &body);
        let cqe = guest.complete(1);
        assert_eq!(
            status(&cqe),
            Status::DATA_TRANSFER_ERROR,
            "{opcode} {body:?}"
        );
        there_and_back(&mut guest, 3, &[APART], &[APART + 0x1000], 0);
    }
    // To nothing, to another, of another kind, twice: nothing that this client says counts.
    for harm in 0..4 {
        let asked = asked_for(&mut guest, 1);
        let body = [echo(APART, 4096), vec![1; 4096]].concat();
        let client = &mut guest.client;
        match harm {
            0 => client.answer(asked.id.wrapping_add(1), DMA_READ, 1, 0, &body),
            1 => client.answer(asked.id, DMA_WRITE, 1, 0, &body),
            2 => client.answer(asked.id, DMA_READ, 2, 0, &body),
            _ => {
                client.answer(asked.id, DMA_READ, 1, 0, &body);
                let reply = [
                    asked.id.to_le_bytes().to_vec(),
                    DMA_READ.to_le_bytes().to_vec(),
                    words(&[16, 1, 0]),
                ];
                // The target may be gone already.
                let _sent = client.raw().write_all(&reply.concat());
            }
        }
        assert!(client.is_let_go(), "{harm}");
        drop(guest);
        guest = hidden(&machine);
        guest.still_works();
    }
}

/// A command that is given up while its data are on their way: what comes of them goes nowhere, and its slot has another command by then.
#[test]
fn data_that_come_too_late() {
    let machine = Machine::start(memory(), 2);
    let mut guest = hidden(&machine);
    let cid = guest.submit(1, transfer(1, 0, 1, APART, 0));
    let asked = guest.client.asked();
    let mut abort = command(0x08, 0);
    abort.cdw10 = U32::new(1 | u32::from(cid) << 16);
    let aborted = guest.admin(abort);
    assert_eq!(status(&aborted), Status::SUCCESS);
    if aborted.dw0.get() & 1 == 0 {
        assert_eq!(status(&guest.complete(1)), Status::ABORT_REQUESTED);
    }
    guest.put(DATA, &pattern(4, 4096));
    let written = guest.run(1, transfer(1, 1, 1, DATA, 0));
    assert_eq!(status(&written), Status::SUCCESS);
    guest.client.serve(asked);
    guest.still_works();
}
