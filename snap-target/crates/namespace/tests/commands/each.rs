//! Each command, and its exact error.

use namespace::{Io, Namespace, NamespaceError};
use nvme_spec::Status;
use store::decorate::{Fault, Faulty, On, What, When};

use super::bench::{Bench, LBA_BYTES, buf, disk, memory, pattern};
use super::support::{Packed, source};

const MIB_BLOCKS: u32 = (1 << 20) / LBA_BYTES as u32;

#[test]
fn compare_finds_the_first_block_that_differs() {
    let mut bench = Bench::new(1, vec![disk(1, memory(4096))]);
    // Longer than a piece.
    let data = pattern(1000, 3);
    bench.write(1, 17, &data).unwrap();
    let compare = |data: &[u8]| Io::Compare {
        lba: 17,
        data: buf(data),
    };
    let back = bench.run(0, 1, compare(&data)).unwrap().unwrap();
    assert_eq!(
        back.to_vec(),
        data,
        "the buffer comes back as after a write"
    );
    for block in [0, 1, 255, 256, 257, 999] {
        let mut other = data.clone();
        other[block * LBA_BYTES + 511] ^= 1;
        let error = bench.run(0, 1, compare(&other)).unwrap_err();
        assert_eq!(error.first_lba(LBA_BYTES as u32), Some(17 + block as u64));
        assert_eq!(error.status(false), Status::COMPARE_FAILURE.dnr());
        assert!(!error.is_media());
    }
}

#[test]
fn views_are_compared_and_verified_through_their_checksums() {
    let packed = Packed::new("commands-view", "u16+lz4");
    let blocks = (source().len() / 4096) as u32;
    let namespace = Namespace::of_view(1, packed.volume(), vec![packed.store()]);
    let mut bench = Bench::new(1, vec![namespace]);
    let mut bytes = source();
    bytes.truncate(blocks as usize * 4096);
    let compare = |bytes: &[u8]| Io::Compare {
        lba: 0,
        data: buf(bytes),
    };
    assert!(bench.run(0, 1, compare(&bytes)).is_ok());
    bytes[70_000] ^= 0x80;
    let error = bench.run(0, 1, compare(&bytes)).unwrap_err();
    assert_eq!(error.first_lba(4096), Some(70_000 / 4096));
    assert!(bench.run(0, 1, Io::Verify { lba: 0, blocks }).is_ok());
    assert_eq!(
        bench.reactors[0].engine.counters().delivered_bytes,
        0,
        "nobody got those bytes"
    );

    let corrupt = Fault {
        on: On::Read,
        range: 32_768..40_960,
        when: When::Always,
        what: What::Corrupt {
            offset: 33_000,
            bits: 0x04,
        },
    };
    let faulty = Faulty::over(vec![corrupt], packed.store()).unwrap();
    let namespace = Namespace::of_view(1, packed.volume(), vec![faulty.store()]);
    let mut bench = Bench::new(1, vec![namespace]);
    let error = bench.run(0, 1, Io::Verify { lba: 0, blocks }).unwrap_err();
    assert!(
        matches!(error, NamespaceError::Volume { .. }) && error.is_media(),
        "{error}"
    );
    assert_eq!(error.status(false), Status::UNRECOVERED_READ_ERROR.dnr());
}

/// A view is write-protected as a whole, against every command that changes blocks or what is read of them; what changes nothing passes.
#[test]
fn a_view_takes_no_change_of_any_kind() {
    let packed = Packed::new("commands-protected", "u16+lz4");
    let namespace = Namespace::of_view(1, packed.volume(), vec![packed.store()]);
    let mut bench = Bench::new(1, vec![namespace, disk(2, memory(64))]);
    let before = bench.read(1, 0, 4).unwrap();
    let block = || buf(&before[..4096]);
    let changes = [
        Io::Write {
            lba: 0,
            data: block(),
            durable: false,
        },
        Io::WriteZeroes {
            lba: 0,
            blocks: 1,
            deallocate: false,
            durable: false,
        },
        Io::WriteZeroes {
            lba: 0,
            blocks: 1,
            deallocate: true,
            durable: true,
        },
        Io::Deallocate {
            ranges: vec![(0, 1)],
        },
        Io::WriteUncorrectable { lba: 0, blocks: 1 },
        Io::Copy {
            lba: 0,
            sources: vec![bench.source(1, 1, 1)],
            durable: false,
        },
        Io::CompareAndWrite {
            lba: 0,
            expected: Box::new(block()),
            data: block(),
            durable: false,
        },
    ];
    for io in changes {
        let what = format!("{io:?}");
        let error = bench.run(0, 1, io).unwrap_err();
        let status = Status::NAMESPACE_WRITE_PROTECTED.dnr();
        assert_eq!(error.status(true), status, "{what}");
    }
    bench.run(0, 1, Io::Flush).unwrap();
    let others = vec![bench.key(1)];
    bench.run(0, 2, Io::FlushAll { others }).unwrap();
    assert_eq!(bench.read(1, 0, 4).unwrap(), before);
}

/// A range longer than the store zeroes at once takes a turn of the reactor for each piece.
#[test]
fn zeroes_are_written_a_piece_a_turn() {
    let blocks = 8 * MIB_BLOCKS;
    for deallocate in [false, true] {
        let mut bench = Bench::new(1, vec![disk(1, memory(u64::from(blocks) + 2))]);
        for lba in (0..u64::from(blocks) + 2).step_by(1000) {
            let count = 1000.min(u64::from(blocks) + 2 - lba) as usize;
            bench.write(1, lba, &pattern(count, 9)).unwrap();
        }
        let before = bench.read(1, 0, 1).unwrap();
        let end = u64::from(blocks) + 1;
        let after = bench.read(1, end, 1).unwrap();
        let zeroes = Io::WriteZeroes {
            lba: 1,
            blocks,
            deallocate,
            durable: true,
        };
        bench.begin(0, 1, zeroes);
        let mut turns = 0;
        while bench.reactors[0].done.is_empty() {
            assert!(turns < 100);
            bench.turn();
            turns += 1;
        }
        assert!(turns >= 8, "{turns}");
        assert!(bench.reactors[0].done.pop().unwrap().result.is_ok());
        for lba in (1..end).step_by(MIB_BLOCKS as usize) {
            let read = bench.read(1, lba, MIB_BLOCKS).unwrap();
            assert!(read.iter().all(|&byte| byte == 0), "from {lba}");
        }
        assert_eq!(bench.read(1, 0, 1).unwrap(), before);
        assert_eq!(bench.read(1, end, 1).unwrap(), after);
    }
}

#[test]
fn deallocated_ranges_of_memory_read_as_zeros_and_one_outside_stops_all() {
    let mut bench = Bench::new(1, vec![disk(1, memory(100))]);
    let data = pattern(100, 1);
    bench.write(1, 0, &data).unwrap();
    let outside = Io::Deallocate {
        ranges: vec![(3, 5), (99, 2)],
    };
    let error = bench.run(0, 1, outside).unwrap_err();
    assert_eq!(error.status(true), Status::LBA_OUT_OF_RANGE.dnr());
    assert_eq!(bench.read(1, 0, 100).unwrap(), data, "nothing was done");
    let ranges = vec![(3, 5), (50, 50)];
    bench.run(0, 1, Io::Deallocate { ranges }).unwrap();
    let read = bench.read(1, 0, 100).unwrap();
    for (lba, block) in read.chunks(LBA_BYTES).enumerate() {
        let zeroed = (3..8).contains(&lba) || lba >= 50;
        let wanted = if zeroed {
            vec![0; LBA_BYTES]
        } else {
            data[lba * LBA_BYTES..][..LBA_BYTES].to_vec()
        };
        assert_eq!(block, wanted, "block {lba}");
    }
}

#[test]
fn copies_gather_from_several_namespaces() {
    let disks = vec![disk(1, memory(3000)), disk(2, memory(500))];
    let mut bench = Bench::new(1, disks);
    let (one, two) = (pattern(3000, 1), pattern(500, 2));
    bench.write(1, 0, &one[..1500 * LBA_BYTES]).unwrap();
    bench.write(2, 0, &two).unwrap();
    let copy = Io::Copy {
        lba: 2000,
        sources: vec![
            bench.source(1, 10, 300),
            bench.source(2, 0, 1),
            bench.source(1, 5, 7),
        ],
        durable: true,
    };
    bench.run(0, 1, copy).unwrap();
    let wanted = [
        &one[10 * LBA_BYTES..310 * LBA_BYTES],
        &two[..LBA_BYTES],
        &one[5 * LBA_BYTES..12 * LBA_BYTES],
    ]
    .concat();
    assert_eq!(bench.read(1, 2000, 308).unwrap(), wanted);
    assert!(
        bench
            .read(1, 2308, 10)
            .unwrap()
            .iter()
            .all(|&byte| byte == 0)
    );
    let bad = [
        (
            vec![bench.source(1, 2999, 2)],
            Status::LBA_OUT_OF_RANGE.dnr(),
        ),
        (vec![bench.source(9, 0, 1)], Status::INVALID_NAMESPACE.dnr()),
        (vec![bench.source(1, 0, 2049)], Status::INVALID_FIELD.dnr()),
    ];
    for (sources, status) in bad {
        let copy = Io::Copy {
            lba: 0,
            sources,
            durable: false,
        };
        assert_eq!(bench.run(0, 2, copy).unwrap_err().status(true), status);
    }
    assert_eq!(bench.read(2, 0, 500).unwrap(), two, "nothing was written");
}

/// A source that cannot be read is a read error, and nothing is written.
#[test]
fn a_copy_says_which_half_failed() {
    for (on, status) in [
        (On::Read, Status::UNRECOVERED_READ_ERROR),
        (On::Write, Status::WRITE_FAULT),
    ] {
        let fault = Fault {
            on,
            range: 0..4 * LBA_BYTES as u64,
            when: When::Always,
            what: What::Error(reactor::Errno::EIO),
        };
        let faulty = Faulty::over(vec![fault], memory(100)).unwrap();
        let mut bench = Bench::new(1, vec![disk(1, faulty.store()), disk(2, memory(100))]);
        let (to, from) = if on == On::Read { (2, 1) } else { (1, 2) };
        let sources = vec![bench.source(from, 3, 1)];
        let copy = Io::Copy {
            lba: 0,
            sources,
            durable: false,
        };
        let error = bench.run(0, to, copy).unwrap_err();
        assert_eq!(error.status(true), status);
        assert!(error.is_media());
        // The store says no block: it is the source's first, of the namespace that is read.
        let at = (on == On::Read).then_some((1, 3));
        assert_eq!(error.first_block(LBA_BYTES as u32), at);
    }
}

#[test]
fn one_flush_serves_all_namespaces_and_reports_the_one_that_fails() {
    let flush = |bench: &Bench| Io::FlushAll {
        others: vec![bench.key(2), bench.key(3)],
    };
    let disks = |third| vec![disk(1, memory(8)), disk(2, memory(8)), disk(3, third)];
    let mut bench = Bench::new(1, disks(memory(8)));
    let all = flush(&bench);
    assert!(bench.run(0, 1, all).is_ok());
    let fault = Fault {
        on: On::Flush,
        range: 0..u64::MAX,
        when: When::Always,
        what: What::Error(reactor::Errno::EIO),
    };
    let faulty = Faulty::over(vec![fault], memory(8)).unwrap();
    let mut bench = Bench::new(1, disks(faulty.store()));
    let all = flush(&bench);
    let error = bench.run(0, 1, all).unwrap_err();
    assert!(
        matches!(error, NamespaceError::Store { nsid: 3, .. }),
        "{error}"
    );
    // One that is being detached, or is gone, is none of those that are there.
    let mut bench = Bench::new(1, disks(memory(8)));
    let (all, second) = (flush(&bench), bench.key(2));
    bench.reactors[0].engine.retire(second);
    bench.run(0, 1, all).unwrap();
    let others = vec![namespace::NamespaceKey::next(), bench.key(3)];
    bench.run(0, 1, Io::FlushAll { others }).unwrap();
    let mut bench = Bench::new(1, disks(faulty.store()));
    // FUA on a read flushes what it presents.
    let read =
        |nsid: u32, bench: &mut Bench| bench.run(0, nsid, Io::ReadDurable { lba: 1, blocks: 2 });
    assert_eq!(read(1, &mut bench).unwrap().unwrap().len(), 2 * LBA_BYTES);
    assert!(read(3, &mut bench).is_err());
}
