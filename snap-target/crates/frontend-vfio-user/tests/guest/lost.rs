//! Guests whose memory goes while it is used: its file gets shorter, so that a page is not there when the device touches it.

use std::os::fd::AsFd;

use frontend_nvme::conformance::memory;
use frontend_vfio_user::Doorbells;

use crate::client::Client;
use crate::driver::{
    BASE, DATA, Guest, LIST, MEMORY_BYTES, Machine, memory_file, pattern, places, status, transfer,
};
use nvme_spec::Status;

const READ: u8 = 2;
const WRITE: u8 = 1;
const ANOTHER: u16 = 5;

/// Of a command with these two pointers.
fn blocks(pages: (u64, u64)) -> u32 {
    if pages.1 == LIST { 3 } else { 1 }
}

/// A function's guest whose memory ends at `cut` from now on, with one command in its queue that nobody has rung for.
fn cut_at(machine: &Machine, opcode: u8, pages: (u64, u64), cut: u64) -> Guest {
    let mut guest = machine.running();
    guest.put_list(LIST, &[DATA + 0x1000, DATA + 0x2000]);
    guest.prepare(1, transfer(opcode, 2, blocks(pages), pages.0, pages.1));
    guest.memory.set_len(cut - BASE).unwrap();
    guest
}

/// The target has ended the connection; nothing else came before.
fn is_let_go(guest: &mut Guest) -> bool {
    guest.client.try_message().is_none()
}

/// Whatever it is that is not there: the guest is let go without an answer, the disk has what it had but for what such a write was to change, the next guest of the
/// function has it, and so has the guest of another function all the time.
#[test]
fn a_guest_without_its_memory_is_let_go_and_others_are_not() {
    let (sq, cq) = places(1);
    for (what, opcode, pages, cut) in [
        ("a read's data", READ, (DATA, 0), DATA),
        ("a write's data", WRITE, (DATA, 0), DATA),
        (
            "the second page of a read",
            READ,
            (DATA, LIST),
            DATA + 0x1000,
        ),
        (
            "the last page of a write",
            WRITE,
            (DATA, LIST),
            DATA + 0x2000,
        ),
        ("a list", READ, (DATA, LIST), LIST),
        ("a completion queue", READ, (BASE, 0), cq),
        ("a submission queue", WRITE, (BASE, 0), sq),
        ("all of it", WRITE, (DATA, 0), BASE),
    ] {
        // On the function's own reactor, and on another.
        for reactors in [1, 2] {
            let machine = Machine::start(memory(), reactors);
            let path = machine.add_function(ANOTHER, Doorbells::Rung);
            let mut other = Guest::new(Client::connect(&path)).started();
            other.put(DATA, &pattern(9, 3 * 4096));
            other.put_list(LIST, &[DATA + 0x1000, DATA + 0x2000]);
            let written = other.run(1, transfer(WRITE, 2, 3, DATA, LIST));
            assert_eq!(status(&written), Status::SUCCESS);

            let mut guest = cut_at(&machine, opcode, pages, cut);
            guest.ring_tail(1);
            assert!(is_let_go(&mut guest), "{what}");
            if cut > cq + 0x1000 {
                assert!(guest.peek(1).is_none(), "{what}: nothing was answered");
            }
            other.put(DATA, &[0; 3 * 4096]);
            let read = other.run(1, transfer(READ, 2, 3, DATA, LIST));
            assert_eq!(status(&read), Status::SUCCESS);
            // What the guest's write was to change is as it was, or as a store found it that takes bytes from where they lie.
            let changed = if opcode == WRITE {
                blocks(pages) as usize
            } else {
                0
            };
            let read = other.get(DATA, 3 * 4096).split_off(changed * 4096);
            let expected = pattern(9, 3 * 4096).split_off(changed * 4096);
            assert!(read == expected, "{what}");
            machine.running().still_works();
        }
    }
}

/// The function itself touches it: its admin queue, and doorbells in memory.
#[test]
fn so_it_is_where_the_admin_queue_or_doorbells_are_gone() {
    let machine = Machine::start(memory(), 2);
    let mut guest = machine.running();
    guest.prepare(0, crate::driver::command(0x0A, 0));
    guest.memory.set_len(0).unwrap();
    guest.ring_tail(0);
    assert!(is_let_go(&mut guest));

    let mut guest = machine.running();
    let (shadow, events) = (DATA + 0x10_0000, DATA + 0x10_1000);
    guest.share_doorbells(shadow, events).unwrap();
    guest.still_works();
    guest.memory.set_len(shadow - BASE).unwrap();
    // The doorbell that is rung has the queue's reactor look at the others.
    guest.ring(0x1008, 0);
    assert!(is_let_go(&mut guest));
    machine.running().still_works();
}

/// Its queues are there, its data are not: no answer says that they came.
#[test]
fn nothing_is_answered_in_memory_that_is_there() {
    for opcode in [READ, WRITE] {
        let machine = Machine::start(memory(), 2);
        let mut guest = machine.running();
        let apart = memory_file();
        let place = BASE + MEMORY_BYTES;
        guest.map_file(apart.as_fd(), place, MEMORY_BYTES).unwrap();
        apart.set_len(0x1000).unwrap();
        let there = guest.run(1, transfer(opcode, 0, 1, place, 0));
        assert_eq!(status(&there), Status::SUCCESS);
        guest.submit(1, transfer(opcode, 0, 1, place + 0x1000, 0));
        assert!(is_let_go(&mut guest));
        assert!(guest.peek(1).is_none(), "nothing was answered");
    }
}
