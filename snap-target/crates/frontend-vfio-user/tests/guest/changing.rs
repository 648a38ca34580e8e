//! What a guest changes while the controller reads it: each entry is taken as it was at one moment or at another, and nothing in between.

use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nvme_spec::{SglDescriptor, Sqe, Status};
use zerocopy::FromBytes;

use crate::driver::{BASE, DATA, Guest, LIST, MEMORY_BYTES, Machine, descriptor, status, transfer};
use frontend_nvme::conformance::memory;

const PATIENCE: Duration = Duration::from_secs(60);
/// Pages that a read may be told to fill, and one on either side.
const PAGES: u64 = 4;
const CANARY: [u8; 4096] = [0xC5; 4096];
const OUTSIDE: u64 = BASE + MEMORY_BYTES;

/// Ends the thread that changes things, also where an assertion fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Reads as `sqe` says, again and again, while `change` is called with numbers that are drawn and what writes into the guest's memory. It ends in all of these ways and no
/// others, and no byte comes elsewhere than into the pages.
fn while_it_changes(
    sqe: Sqe,
    ends_in: &[Status],
    change: impl Fn(u64, &dyn Fn(u64, &[u8])) + Sync,
) {
    let machine = Machine::start(memory(), 2);
    let mut guest = machine.running();
    let canaries = [DATA - 4096, DATA + PAGES * 4096];
    for at in canaries {
        guest.put(at, &CANARY);
    }
    let file = guest.memory.try_clone().unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let put = |at: u64, bytes: &[u8]| file.write_all_at(bytes, at - BASE).unwrap();
            let mut random = 1_u64;
            while !over.load(Ordering::Relaxed) {
                // xorshift64.
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                change(random >> 32, &put);
            }
        });
        let _ends = Ends(&over);
        let mut seen = BTreeSet::new();
        let until = Instant::now() + PATIENCE;
        for round in 0.. {
            let cqe = guest.run(1, sqe);
            let ended = status(&cqe);
            assert!(ends_in.contains(&ended), "{ended:?}");
            seen.insert(format!("{ended:?}"));
            if round >= 500 && seen.len() == ends_in.len() {
                break;
            }
            assert!(Instant::now() < until, "it ended as {seen:?}");
        }
    });
    for at in canaries {
        assert!(guest.get(at, 4096) == CANARY, "{at:#x}");
    }
    still_works(&mut guest);
}

fn still_works(guest: &mut Guest) {
    guest.still_works();
    assert_eq!(guest.csts(), 1);
}

/// One of the pages, a place in it, nowhere.
fn page(number: u64) -> u64 {
    match number % 8 {
        pick @ 0..4 => DATA + pick * 4096,
        4 => DATA + 0x10,
        5 => OUTSIDE,
        6 => u64::MAX - 4095,
        _ => 0,
    }
}

#[test]
fn a_prp_list_that_changes_while_it_is_read() {
    let read = transfer(2, 0, PAGES as u32, DATA, LIST);
    let ends_in = [
        Status::SUCCESS,
        Status::PRP_OFFSET_INVALID,
        Status::DATA_TRANSFER_ERROR,
    ];
    while_it_changes(read, &ends_in, |number, put| {
        let slot = LIST + number / 8 % (PAGES - 1) * 8;
        put(slot, &page(number).to_le_bytes());
        // Most of the time it is as it should be.
        for slot in 0..PAGES - 1 {
            let whole = DATA + (slot + 1) * 4096;
            put(LIST + slot * 8, &whole.to_le_bytes());
        }
    });
}

#[test]
fn an_sgl_segment_that_changes_while_it_is_read() {
    let mut read = transfer(2, 0, PAGES as u32, 0, 0);
    read.flags = 1 << 6;
    let first = descriptor(LIST, PAGES as u32 * 16, 0x30);
    read.dptr = SglDescriptor::read_from_bytes(&first).unwrap();
    let ends_in = [
        Status::SUCCESS,
        Status::DATA_SGL_LENGTH_INVALID,
        Status::SGL_TYPE_INVALID,
        Status::DATA_TRANSFER_ERROR,
    ];
    while_it_changes(read, &ends_in, |number, put| {
        let slot = LIST + number / 64 % PAGES * 16;
        let wrong = match number % 4 {
            0 => descriptor(OUTSIDE, 4096, 0),
            1 => descriptor(DATA, 4095, 0),
            2 => descriptor(DATA, 4096, 0x5A),
            _ => descriptor(page(number / 4 % 4), 4096, 0),
        };
        put(slot, &wrong);
        for slot in 0..PAGES {
            put(LIST + slot * 16, &descriptor(DATA + slot * 4096, 4096, 0));
        }
    });
}

/// The whole queue's entries: their opcode, namespace, place, length and pointers.
#[test]
fn commands_that_change_while_they_are_taken() {
    let queue = crate::driver::places(1).0;
    let ends_in = [
        Status::SUCCESS,
        Status::INVALID_OPCODE,
        // A namespace that may be, and is not there.
        Status::INVALID_FIELD,
        Status::LBA_OUT_OF_RANGE,
        // Two and four pages, with the second pointer or the list somewhere, and one of no page's beginning.
        Status::PRP_OFFSET_INVALID,
        Status::DATA_TRANSFER_ERROR,
    ];
    let list: Vec<u8> = (1..PAGES)
        .flat_map(|at| (DATA + at * 4096).to_le_bytes())
        .collect();
    let whole = transfer(2, 0, PAGES as u32, DATA, LIST);
    while_it_changes(whole, &ends_in, |number, put| {
        put(LIST, &list);
        let entry = queue + number / 64 % 64 * 64;
        match number % 16 {
            0 => put(entry, &[0x55]),
            1 => put(entry + 4, &99_u32.to_le_bytes()),
            2 => put(entry + 40, &(1_u64 << 40).to_le_bytes()),
            3 => put(entry + 4, &1_u32.to_le_bytes()),
            4 => put(entry + 40, &0_u64.to_le_bytes()),
            // NLB: one block, two, all pages, and 256 MiB, which is more than MDTS: Invalid Field in Command.
            5 => put(entry + 48, &0_u16.to_le_bytes()),
            6 => put(entry + 48, &u16::MAX.to_le_bytes()),
            7 => put(entry + 48, &1_u16.to_le_bytes()),
            8 => put(entry + 48, &(PAGES as u16 - 1).to_le_bytes()),
            9 => put(entry + 24, &page(number / 16 % 4).to_le_bytes()),
            10 => put(entry + 32, &page(number / 16 % 4 + 4).to_le_bytes()),
            11 => put(entry + 24, &DATA.to_le_bytes()),
            12 => put(entry + 32, &LIST.to_le_bytes()),
            _ => put(entry, &[2]),
        }
    });
}
