//! Clients that mean harm: messages that nobody sends, and orders in which nobody sends them. A client that breaks the protocol is let go, and the next one is
//! served.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::fd::AsFd;

use crate::client::Client;
use crate::driver::{BASE, Guest, Machine, longs, words};
use frontend_nvme::conformance::memory;

/// Errors of the protocol are the system's.
const EINVAL: u32 = 22;

/// A guest of the next client has a disk that works.
fn next_is_served(machine: &Machine) {
    let mut guest = machine.running();
    guest.still_works();
}

#[test]
fn clients_that_break_the_protocol() {
    let machine = Machine::start(memory(), 1);
    for bytes in [&[0xFF; 64][..], b"GET / HTTP/1.1\r\n\r\n", &[0; 16]] {
        let mut client = Client::dial(&machine.socket());
        client.raw().write_all(bytes).unwrap();
        assert!(client.is_let_go());
    }
    next_is_served(&machine);
}

/// Each command before VERSION, a second VERSION, a reply to nothing.
#[test]
fn messages_out_of_their_order() {
    let machine = Machine::start(memory(), 1);
    for command in (0..=20).chain([0xFFFF]).filter(|it| *it != 1) {
        let mut client = Client::dial(&machine.socket());
        client.send(command, 0, &[0; 32], &[]);
        assert!(client.is_let_go(), "{command}");
    }
    let mut guest = machine.running();
    assert_eq!(guest.client.call(1, &[0; 4], &[]), Err(EINVAL));
    guest.still_works();
    // Windows that were never mapped, or twice; interrupts before their kinds were asked for.
    let absent = guest
        .client
        .call(3, &Guest::unmap_body(0x1000, 0x1000), &[]);
    assert_eq!(absent, Err(2));
    assert_eq!(guest.map(BASE, 0x1000, 0, 3), Err(17));
    guest.still_works();
    // The reply to a DMA_READ that nobody sent.
    guest.client.send(11, 1, &[0; 16], &[]);
    assert!(guest.client.is_let_go());
    next_is_served(&machine);
}

/// Commands whose bodies are too short, too long, or say what is not so: each is answered with an error, and nothing else happens.
#[test]
fn messages_that_say_what_is_not_so() {
    let machine = Machine::start(memory(), 1);
    let mut guest = machine.running();
    let of_region =
        |region: u32, offset: u64, count: u32| [longs(&[offset]), words(&[region, count])].concat();
    let mut wrong: Vec<(u16, Vec<u8>)> = Vec::new();
    // Bodies of every length up to what each command has, and one byte more where it takes no data.
    for (command, bytes) in [
        (2, 32),
        (3, 24),
        (4, 16),
        (5, 32),
        (7, 16),
        (8, 20),
        (9, 16),
        (10, 16),
    ] {
        wrong.extend((0..bytes).map(|len| (command, vec![0; len])));
    }
    wrong.push((13, vec![0]));
    // Registers beyond the region, regions that are not there, counts that are not the data's.
    for (region, offset, count) in [
        (0, 0x4000, 4),
        (0, 0x3FFD, 4),
        (0, u64::MAX, 4),
        (0, u64::MAX - 3, 8),
        (7, 4096, 1),
        (1, 0, 4),
        (9, 0, 4),
        (u32::MAX, 0, 4),
        (0, 0, u32::MAX),
        (0, 0, (1 << 20) + 1),
    ] {
        wrong.push((9, of_region(region, offset, count)));
        wrong.push((10, [of_region(region, offset, count), vec![0; 4]].concat()));
    }
    wrong.push((10, [of_region(0, 0x14, 4), vec![0; 3]].concat()));
    wrong.push((10, [of_region(0, 0x14, 4), vec![0; 5]].concat()));
    // Interrupts that are not there, and flags that contradict each other.
    for set in [
        [20, 4 | 32, 2, 64, 2],
        [20, 4 | 32, 2, u32::MAX, 1],
        [20, 4 | 32, 2, 1, u32::MAX],
        [20, 4 | 32, 5, 0, 1],
        [20, 4 | 32, 1, 0, 1],
        [20, 1 | 2 | 32, 2, 0, 1],
        [20, 1 | 8 | 32, 2, 0, 1],
        [20, 0, 2, 0, 1],
        [20, u32::MAX, 2, 0, 1],
    ] {
        wrong.push((8, words(&set)));
    }
    // Commands that are not offered, and that are none.
    for command in [0, 6, 11, 12, 14, 15, 16, 17, 18, 19, 0x7FFF, 0xFFFF] {
        wrong.push((command, vec![0; 24]));
    }
    for (command, body) in wrong {
        let refused = guest.client.call(command, &body, &[]);
        assert!(refused.is_err(), "{command} {body:?}: {refused:?}");
    }
    // Descriptors where none belong.
    let fd = guest.memory.try_clone().unwrap();
    for command in [3, 4, 5, 7, 9, 10, 13] {
        let refused = guest.client.call(command, &[0; 24], &[fd.as_fd()]);
        assert!(refused.is_err(), "{command}");
    }
    guest.still_works();
    assert_eq!(guest.csts(), 1);
}

/// A session of ordinary messages of which one is changed, dropped, sent twice or cut short: whatever comes of it, the next client is served.
#[test]
fn sessions_with_one_message_that_is_wrong() {
    let machine = Machine::start(memory(), 1);
    let version = b"\0\0\0\0{\"capabilities\":{\"max_msg_fds\":16}}\0".to_vec();
    let write = |offset: u64, value: u32| [longs(&[offset]), words(&[0, 4, value])].concat();
    let session: Vec<(u16, Vec<u8>)> = vec![
        (1, version),
        (4, words(&[16, 0, 0, 0])),
        (5, [words(&[32, 0, 0, 0]), longs(&[0, 0])].concat()),
        (8, words(&[20, 1 | 32, 2, 0, 0])),
        (10, write(0x24, 0x003F_003F)),
        (10, write(0x14, 0x0046_0001)),
        (9, [longs(&[0x1C]), words(&[0, 4])].concat()),
        (10, write(0x1000, 5)),
        (13, Vec::new()),
    ];
    let mut random = 0x9E37_79B9_u64;
    for round in 0..300 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(round | 1);
        let (at, byte) = ((random >> 33) as usize, (random >> 21) as usize);
        let mut messages: Vec<Vec<u8>> = session
            .iter()
            .zip(1_u16..)
            .map(|((command, body), id)| {
                let head = [id.to_le_bytes(), command.to_le_bytes()].concat();
                let size = words(&[16 + body.len() as u32, 0, 0]);
                [head, size, body.clone()].concat()
            })
            .collect();
        let victim = at % messages.len();
        let bytes = messages[victim].len();
        match round % 5 {
            0 => messages[victim][byte % bytes] ^= 1 << (random >> 60 & 7),
            1 => messages[victim][byte % 16] = (random >> 8) as u8,
            2 => drop(messages.remove(victim)),
            3 => messages.insert(victim, messages[victim].clone()),
            _ => messages[victim].truncate(byte % bytes),
        }
        let mut client = Client::dial(&machine.socket());
        // In pieces that end anywhere.
        for piece in messages.concat().chunks(1 + byte % 40) {
            if client.raw().write_all(piece).is_err() {
                break;
            }
        }
        // The function has one client at a time: the next comes when it has let go of this one.
        let _gone = client.raw().shutdown(Shutdown::Write);
        let _ended = client.raw().read_to_end(&mut Vec::new());
    }
    next_is_served(&machine);
}
