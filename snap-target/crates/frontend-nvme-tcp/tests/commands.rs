//! The NVM commands over the wire: exact status codes, exact bytes.

#![allow(
    clippy::unwrap_used,
    reason = "a failure of a test is a panic with its line"
)]
#![allow(
    clippy::cast_possible_truncation,
    reason = "numbers of a test, known to be small"
)]

mod support;

use frontend_nvme::conformance::{Gate, NQN, Queue, Target, memory};
use std::time::Duration;
use support::on;

use initiator::{Initiator, Options};
use namespace::{Identity, Namespace};
use nvme::initiator::command::{self, Blocks};
use nvme::initiator::nvm;
use nvme_spec::{Lba, Nsid, Status};
use reactor::RingConfig;
use reactor::buf::PoolConfig;

const BLOCK: usize = 4096;
const OK: Status = Status::SUCCESS;
const OUT_OF_RANGE: Status = Status::LBA_OUT_OF_RANGE.dnr();

/// Bytes that are another in each block and for each seed.
fn pattern(blocks: usize, seed: u8) -> Vec<u8> {
    (0..blocks * BLOCK)
        .map(|at| (at / BLOCK * 7 + at % 251) as u8 ^ seed)
        .collect()
}

/// Namespaces 1 and 2 of 256 blocks of 4096 bytes, 3 of 2048 blocks of 512.
fn target() -> Target {
    let disk = |nsid: u32, lba_bytes| {
        let identity = Identity::of_raw("test", &nsid.to_le_bytes());
        Namespace::of_store(nsid, memory(), identity, lba_bytes)
    };
    let disks = vec![disk(1, 4096), disk(2, 4096), disk(3, 512)];
    Target::start_all(&on(), disks, RingConfig::default(), PoolConfig::default())
}

fn host(target: &Target) -> Initiator {
    Initiator::connect(&target.address, NQN, &Options::default()).unwrap()
}

fn read(host: &mut Initiator, nsid: u32, lba: usize, blocks: usize) -> Vec<u8> {
    let mut bytes = vec![0xEE; blocks * BLOCK];
    host.read(nsid, (lba * BLOCK) as u64, &mut bytes).unwrap();
    bytes
}

#[test]
fn comparing_and_verifying() {
    let target = target();
    let mut host = host(&target);
    // In the capsule (8 KiB at most), and by R2T.
    for blocks in [1, 2, 3, 256] {
        let data = pattern(blocks, 5);
        host.write(1, 0, &data).unwrap();
        assert_eq!(host.compare(1, 0, &data).unwrap(), OK);
        let mut other = data.clone();
        *other.last_mut().unwrap() ^= 1;
        assert_eq!(
            host.compare(1, 0, &other).unwrap(),
            Status::COMPARE_FAILURE.dnr()
        );
    }
    assert_eq!(host.verify(1, 0, 256).unwrap(), OK);
    assert_eq!(host.verify(1, 0, 257).unwrap(), OUT_OF_RANGE);
    assert_eq!(host.verify(4, 0, 1).unwrap(), Status::INVALID_FIELD.dnr());
    assert_eq!(host.flush_all().unwrap(), OK);
    host.shutdown().unwrap();
}

#[test]
fn zeroing_and_deallocating() {
    let target = target();
    let mut host = host(&target);
    let data = pattern(256, 1);
    host.write(1, 0, &data).unwrap();
    assert_eq!(host.write_zeroes(1, 10, 100, false).unwrap(), OK);
    assert_eq!(host.write_zeroes(1, 120, 10, true).unwrap(), OK);
    assert_eq!(host.deallocate(1, &[(0, 2), (200, 56)]).unwrap(), OK);
    let outside = [(5, 1), (256, 1)];
    assert_eq!(host.deallocate(1, &outside).unwrap(), OUT_OF_RANGE);
    assert_eq!(host.write_zeroes(1, 256, 1, false).unwrap(), OUT_OF_RANGE);
    let after = read(&mut host, 1, 0, 256);
    for (lba, block) in after.chunks(BLOCK).enumerate() {
        let zeroed = matches!(lba, 0..2 | 10..110 | 120..130 | 200..256);
        let wanted = if zeroed {
            vec![0; BLOCK]
        } else {
            data[lba * BLOCK..][..BLOCK].to_vec()
        };
        assert!(block == wanted, "block {lba}");
    }
    host.shutdown().unwrap();
}

#[test]
fn marking_and_clearing() {
    let target = target();
    let mut host = host(&target);
    assert_eq!(host.write_uncorrectable(1, 7, 3).unwrap(), OK);
    let mut block = [0; BLOCK];
    let error = host.read(1, 8 * BLOCK as u64, &mut block).unwrap_err();
    let unreadable = Status::UNRECOVERED_READ_ERROR.dnr();
    assert!(
        matches!(error, initiator::Error::Command { status, .. } if status == unreadable),
        "{error}"
    );
    assert_eq!(host.verify(1, 0, 256).unwrap(), unreadable);
    assert_eq!(host.copy(1, 100, &[(1, 6, 4)], false).unwrap(), unreadable);
    host.write(1, 7 * BLOCK as u64, &pattern(2, 3)).unwrap();
    assert_eq!(host.verify(1, 0, 9).unwrap(), OK);
    assert_eq!(host.verify(1, 9, 1).unwrap(), unreadable);
    assert_eq!(host.write_zeroes(1, 9, 1, true).unwrap(), OK);
    assert_eq!(host.verify(1, 0, 256).unwrap(), OK);
    assert_eq!(host.write_uncorrectable(1, 255, 2).unwrap(), OUT_OF_RANGE);
    host.shutdown().unwrap();
}

#[test]
fn copying() {
    let target = target();
    let mut host = host(&target);
    let (one, two) = (pattern(256, 1), pattern(256, 2));
    host.write(1, 0, &one[..100 * BLOCK]).unwrap();
    host.write(2, 0, &two).unwrap();
    let status = host.copy(1, 200, &[(1, 3, 4), (1, 0, 2)], false).unwrap();
    assert_eq!(status, OK);
    let wanted = [&one[3 * BLOCK..7 * BLOCK], &one[..2 * BLOCK]].concat();
    assert!(read(&mut host, 1, 200, 6) == wanted);

    // Format 2h has to be enabled.
    let across = [(2, 50, 3), (1, 1, 1)];
    let refused = host.copy(1, 220, &across, true).unwrap();
    assert_eq!(refused, Status::INVALID_FIELD.dnr());
    assert_eq!(host.enable_copy_anywhere().unwrap(), OK);
    assert_eq!(host.copy(1, 220, &across, true).unwrap(), OK);
    let wanted = [&two[50 * BLOCK..53 * BLOCK], &one[BLOCK..2 * BLOCK]].concat();
    assert!(read(&mut host, 1, 220, 4) == wanted);

    for (sources, status) in [
        (vec![(3, 0, 1)], Status::INCOMPATIBLE_NAMESPACE.dnr()),
        (
            vec![(1, 0, 1), (1, 199, 2)],
            Status::OVERLAPPING_IO_RANGE.dnr(),
        ),
        (vec![(1, 0, 257)], Status::COMMAND_SIZE_LIMIT_EXCEEDED.dnr()),
        (vec![(2, 255, 2)], OUT_OF_RANGE),
        (vec![(2, 0, 57)], OUT_OF_RANGE),
        (vec![(9, 0, 1)], Status::INVALID_FIELD.dnr()),
    ] {
        let got = host.copy(1, 200, &sources, true).unwrap();
        assert_eq!(got, status, "{sources:?}");
    }
    host.shutdown().unwrap();
}

#[test]
fn comparing_and_writing_as_one() {
    let target = target();
    let mut host = host(&target);
    // In capsules, and by R2T.
    for blocks in [1, 2, 3, 8] {
        let (old, new) = (pattern(blocks, 1), pattern(blocks, 2));
        host.write(1, 0, &old).unwrap();
        assert_eq!(host.compare_and_write(1, 0, &old, &new).unwrap(), [OK, OK]);
        assert!(read(&mut host, 1, 0, blocks) == new);
        assert_eq!(
            host.compare_and_write(1, 0, &old, &old).unwrap(),
            [Status::COMPARE_FAILURE.dnr(), Status::FUSED_FAILED]
        );
        assert!(read(&mut host, 1, 0, blocks) == new, "nothing was written");
    }
    let (long, short) = (pattern(9, 1), pattern(1, 1));
    assert_eq!(
        host.compare_and_write(1, 0, &long, &long).unwrap(),
        [
            Status::ATOMIC_WRITE_UNIT_EXCEEDED.dnr(),
            Status::FUSED_FAILED
        ]
    );
    assert_eq!(
        host.compare_and_write(1, 0, &pattern(2, 1), &short)
            .unwrap(),
        [Status::INVALID_FIELD.dnr(); 2],
        "ranges that differ"
    );
    assert_eq!(
        host.compare_and_write(1, 256, &short, &short).unwrap(),
        [OUT_OF_RANGE, Status::FUSED_FAILED]
    );
    host.shutdown().unwrap();
}

/// Base, "Fused Operations": a half without its other half, and one whose other half is not next to it.
#[test]
fn halves_alone_are_aborted() {
    let target = target();
    let mut host = host(&target);
    let data = pattern(1, 1);
    let blocks = Blocks {
        lba: Lba(0),
        count: 1,
        lba_bytes: BLOCK as u32,
    };
    let mut first = nvm::compare(Nsid(1), blocks);
    let mut second = command::write(Nsid(1), blocks);
    nvm::fuse(&mut first, &mut second);
    let plain = command::write(Nsid(1), blocks);
    let with = |command| (command, data.clone());
    let statuses = host
        .commands(vec![with(first), with(plain), with(second), with(second)])
        .unwrap();
    let missing = Status::FUSED_MISSING;
    assert_eq!(statuses, [missing, OK, missing, missing]);
    // Pairs one behind the other, and a plain write between them.
    let pair = || [with(first), with(second)];
    let commands = [pair(), pair()].concat();
    assert_eq!(host.commands(commands).unwrap(), [OK; 4]);
    let commands = vec![
        with(first),
        with(second),
        with(plain),
        with(first),
        with(second),
    ];
    assert_eq!(host.commands(commands).unwrap(), [OK; 5]);
    host.shutdown().unwrap();
}

/// A host that goes while its fused operation is under way leaves nothing behind.
#[test]
fn a_pair_that_is_given_up_lets_others_write() {
    let (gate, store) = Gate::over(memory(), 1);
    let target = Target::start(&on(), store);
    let impatient = Options {
        command_timeout: Duration::from_millis(200),
        ..Options::default()
    };
    let mut lost = Initiator::connect(&target.address, NQN, &impatient).unwrap();
    let zeros = vec![0; BLOCK];
    assert!(
        lost.compare_and_write(1, 0, &zeros, &pattern(1, 1))
            .is_err()
    );
    drop(lost);
    gate.wait_held(1);
    gate.open();
    let mut other = Initiator::connect(&target.address, NQN, &Options::default()).unwrap();
    let (new, newer) = (pattern(1, 2), pattern(1, 3));
    other.write(1, 0, &new).unwrap();
    assert_eq!(
        other.compare_and_write(1, 0, &new, &newer).unwrap(),
        [OK, OK]
    );
    assert!(read(&mut other, 1, 0, 1) == newer);
    other.shutdown().unwrap();
}

/// A source of Copy in format 2h.
fn source(nsid: u32, lba: u64, blocks: u16) -> Vec<u8> {
    let mut range = vec![0; 32];
    range[..4].copy_from_slice(&nsid.to_le_bytes());
    range[8..16].copy_from_slice(&lba.to_le_bytes());
    range[16..18].copy_from_slice(&(blocks - 1).to_le_bytes());
    range
}

/// Base and NVM, "Error Information": NSID and LBA name one block, the first that is concerned, wherever the command found it.
#[test]
fn the_error_log_names_the_block_that_failed() {
    let target = target();
    let name = "nqn.2026-11.io.example:host";
    let (mut admin, cntlid) = Queue::admin(&target.place, name, Duration::ZERO);
    let mut io = Queue::io(&target.place, name, cntlid, 1);
    let mut behavior = [0; 512];
    behavior[4] = 1 << 2;
    assert_eq!(admin.bring(0x09, 0, [0x16, 0, 0], &behavior).status, 0);
    assert_eq!(io.plain(0x04, 2, [40, 0, 9]).status, 0, "2 is marked at 40");
    let mut hints = [0; 32];
    hints[4] = 1;
    // 255 and one more.
    (hints[20], hints[24]) = (2, 255);
    let sources = [source(2, 0, 4), source(2, 38, 3)].concat();
    let copy = |nr_z: u32| nr_z | 2 << 8;
    let status = |io: &mut Queue, opcode, cdw, data: &[u8]| match data {
        [] => io.plain(opcode, 1, cdw).status,
        data => io.bring(opcode, 1, cdw, data).status,
    };
    for (opcode, cdw, data, wanted) in [
        (0x0C, [255, 0, 1], &[][..], (OUT_OF_RANGE, 1, 256, 40)),
        (0x0C, [300, 0, 0], &[], (OUT_OF_RANGE, 1, 300, 40)),
        (0x08, [250, 0, 9], &[], (OUT_OF_RANGE, 1, 256, 40)),
        (0x09, [1, 0, 0], &hints, (OUT_OF_RANGE, 1, 256, 0xFFFF)),
        (
            0x19,
            [100, 0, copy(0)],
            &source(2, 250, 10),
            (OUT_OF_RANGE, 2, 256, 0xFFFF),
        ),
        (
            0x19,
            [250, 0, copy(0)],
            &source(2, 0, 10),
            (OUT_OF_RANGE, 1, 256, 0xFFFF),
        ),
        (
            0x19,
            [100, 0, copy(1)],
            &sources,
            (Status::UNRECOVERED_READ_ERROR.dnr(), 2, 40, 0xFFFF),
        ),
    ] {
        let (failed, nsid, lba, parameter) = wanted;
        assert_eq!(status(&mut io, opcode, cdw, data), failed.to_wire() >> 1);
        let entry = admin.log_page(0x01, 64);
        let number = |at: usize, bytes: usize| -> u64 {
            let bytes = entry[at..at + bytes].iter().rev();
            bytes.fold(0, |value, byte| value << 8 | u64::from(*byte))
        };
        let found = (number(24, 4), number(16, 8), number(14, 2));
        assert_eq!(found, (nsid, lba, parameter), "{opcode:x}h {cdw:?}");
    }
}
