//! Bytes both ways, in every size, in the capsule and out of it; how many commands a queue takes; how long an association lives without a word.

use std::time::{Duration, Instant};

use nvme_spec::Status;
use telemetry::EventKind;

use super::bytes::range_sqe;
use super::{Data, On, Queue, Target, memory};

const HOST: &str = "nqn.2026-11.io.example:host";
const BLOCK: usize = 4096;
/// Of the memory store.
const BLOCKS_LEN: usize = 256;
const BLOCKS: u64 = BLOCKS_LEN as u64;
const COMPARE: u8 = 0x05;
const WRITE_ZEROES: u8 = 0x08;
const DATASET_MANAGEMENT: u8 = 0x09;
const COPY: u8 = 0x19;

const fn wire(status: Status) -> u16 {
    status.to_wire() >> 1
}

/// An admin queue and an I/O queue.
fn connect(target: &Target) -> (Queue, Queue) {
    let (admin, cntlid) = Queue::admin(&target.place, HOST, Duration::ZERO);
    (admin, Queue::io(&target.place, HOST, cntlid, 1))
}

/// Bytes that are another in each place and for each seed.
fn pattern(blocks: usize, seed: u8) -> Vec<u8> {
    let byte = |at: usize| u8::try_from((at / BLOCK * 7 + at % 251) % 256).unwrap() ^ seed;
    (0..blocks * BLOCK).map(byte).collect()
}

/// Taken from the host, and in the capsule where it takes them; read back by one command and block by block.
pub(super) fn every_size_is_written_and_read(on: &On) {
    let target = Target::start(on, memory());
    let (_admin, mut io) = connect(&target);
    let mut disk = vec![0; BLOCKS_LEN * BLOCK];
    for (round, blocks) in [1, 2, 3, 16, 17, 128, 256].into_iter().enumerate() {
        let seed = u8::try_from(round).unwrap();
        let first = (BLOCKS_LEN - blocks).min(round);
        let data = pattern(blocks, seed);
        disk[first * BLOCK..][..data.len()].copy_from_slice(&data);
        let cid = io.send_write_of(first as u64, data.clone());
        let ended = io.response();
        assert_eq!((ended.cid, ended.status), (cid, 0), "{blocks} blocks");
        assert!(
            io.read_of(0, 256).unwrap() == disk,
            "{blocks} blocks at {first}"
        );
        for (at, block) in data.chunks(BLOCK).enumerate().step_by(13) {
            assert!(
                io.read((first + at) as u64) == block,
                "block {at} of {blocks}"
            );
        }
    }
    for blocks in [1, 2] {
        let data = pattern(blocks, 0xC3);
        let sqe = range_sqe(0x01, 40, u16::try_from(blocks).unwrap());
        let cid = io.send(sqe, Data::InCapsule(data.clone()));
        let ended = io.response();
        assert_eq!((ended.cid, ended.status), (cid, 0));
        disk[40 * BLOCK..][..data.len()].copy_from_slice(&data);
        assert!(io.read_of(0, 256).unwrap() == disk, "in the capsule");
    }
}

/// What is refused, and what it would have written is not there.
pub(super) fn what_lies_beyond_the_end_is_refused_and_nothing_of_it_is_done(on: &On) {
    let target = Target::start(on, memory());
    let (_admin, mut io) = connect(&target);
    let beyond = wire(Status::LBA_OUT_OF_RANGE.dnr());
    assert_eq!(io.read_beyond(BLOCKS - 1, 2).status, beyond);
    assert_eq!(io.read_beyond(u64::MAX, 1).status, beyond);
    io.send_write_of(BLOCKS - 1, pattern(2, 9));
    assert_eq!(io.response().status, beyond);
    io.send(range_sqe(0x01, BLOCKS, 1), Data::InCapsule(vec![9; BLOCK]));
    assert_eq!(io.response().status, beyond);
    assert_eq!(io.read(BLOCKS - 1), [0; BLOCK]);
}

/// Compare, Write Zeroes, Dataset Management and Copy, by their bytes.
pub(super) fn the_other_commands_move_and_compare_bytes(on: &On) {
    let target = Target::start(on, memory());
    let (_admin, mut io) = connect(&target);
    let mut disk = pattern(64, 1);
    io.send_write_of(0, disk.clone());
    assert_eq!(io.response().status, 0);
    let of_blocks = |blocks: u32| [0, 0, blocks - 1];
    assert_eq!(io.bring_when_asked(COMPARE, of_blocks(64), &disk).status, 0);
    let mut other = disk.clone();
    other[64 * BLOCK - 1] ^= 1;
    let differs = io.bring_when_asked(COMPARE, of_blocks(64), &other);
    assert_eq!(differs.status, wire(Status::COMPARE_FAILURE.dnr()));
    assert_eq!(io.plain(WRITE_ZEROES, 1, [8, 0, 3]).status, 0);
    disk[8 * BLOCK..12 * BLOCK].fill(0);
    let mut range = [0; 16];
    (range[4], range[8]) = (2, 20);
    assert_eq!(io.bring(DATASET_MANAGEMENT, 1, [0, 4, 0], &range).status, 0);
    disk[20 * BLOCK..22 * BLOCK].fill(0);
    let mut source = [0; 32];
    (source[8], source[16]) = (30, 4);
    assert_eq!(io.bring(COPY, 1, [50, 0, 0], &source).status, 0);
    disk.copy_within(30 * BLOCK..35 * BLOCK, 50 * BLOCK);
    assert!(io.read_of(0, 64).unwrap() == disk);
}

/// Every entry of a queue at once, again and again: each command is answered once, with its own bytes.
pub(super) fn as_many_commands_as_a_queue_has_entries_are_answered(on: &On) {
    let target = Target::start(on, memory());
    for entries in [2, 3, 32] {
        let (_admin, cntlid) = Queue::admin(&target.place, HOST, Duration::ZERO);
        let mut io = Queue::io_of(&target.place, HOST, cntlid, entries);
        let data = pattern(32, 5);
        io.send_write_of(0, data.clone());
        assert_eq!(io.response().status, 0);
        // One entry of a queue stays free.
        let count = usize::from(entries) - 1;
        for _ in 0..20 {
            let capsules: Vec<_> = (0..count)
                .map(|lba| io.capsule(range_sqe(0x02, lba as u64, 1), Data::Into(4096)))
                .collect();
            let (cids, capsules): (Vec<u16>, Vec<_>) = capsules.into_iter().unzip();
            io.wire.send(capsules);
            let mut left = cids.clone();
            while !left.is_empty() {
                let answer = io.answer();
                let at = left.iter().position(|&cid| cid == answer.response.cid);
                left.remove(at.unwrap());
                let lba = cids.iter().position(|&cid| cid == answer.response.cid);
                assert_eq!(answer.response.status, 0);
                assert!(answer.data == data[lba.unwrap() * BLOCK..][..BLOCK]);
            }
        }
    }
}

/// A host that says nothing for its keep alive time is gone, with all its queues; a keep alive in time keeps it.
pub(super) fn an_association_without_a_word_ends_after_its_keep_alive_time(on: &On) {
    let target = Target::start(on, memory());
    let keep_alive = Duration::from_secs(1);
    let began = Instant::now();
    let (mut admin, cntlid) = Queue::admin(&target.place, HOST, keep_alive);
    let mut io = Queue::io(&target.place, HOST, cntlid, 1);
    while began.elapsed() < 2 * keep_alive {
        // Keep Alive: answered means that it counts from here.
        assert_eq!(admin.plain(0x18, 0, [0, 0, 0]).status, 0);
        std::thread::yield_now();
    }
    let last = Instant::now();
    admin.wait_closed();
    io.wait_closed();
    assert!(
        last.elapsed() >= keep_alive * 9 / 10,
        "{:?}",
        last.elapsed()
    );
    let ended = target.events_with(EventKind::ControllerEnded);
    assert!(ended.iter().all(|event| event.cntlid == cntlid));
}
