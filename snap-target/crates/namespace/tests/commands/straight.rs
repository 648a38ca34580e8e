//! Reads and writes that go straight between a store and memory that others change: what they do, and that nothing has happened where they do not.

use namespace::{Io, NamespaceKey};
use reactor::buf::IoBuf;
use store::{OpenOptions, SharedStore, StoreSpec};

use super::bench::{Bench, LBA_BYTES, buf, disk, memory, pattern};
use super::stepped::Steps;

fn zeros(blocks: usize) -> IoBuf {
    buf(&vec![0; blocks * LBA_BYTES])
}

/// A read of so many blocks into a buffer of so many; what is there then, if it was done.
fn read_into(
    bench: &mut Bench,
    nsid: u32,
    lba: u64,
    (blocks, room): (u32, usize),
) -> Option<Vec<u8>> {
    let (key, into) = (bench.key(nsid), zeros(room));
    let engine = &mut bench.reactors[0].engine;
    let read = engine.read_into(key, (lba, blocks), &into);
    let bytes = into.to_vec();
    if read.is_none() {
        assert!(
            bytes.iter().all(|byte| *byte == 0),
            "not read, and yet there"
        );
    }
    read.map(|result| result.map(|()| bytes).unwrap())
}

/// Whether a write was done.
fn write_from(bench: &mut Bench, nsid: u32, (lba, blocks): (u64, u32), data: &[u8]) -> bool {
    let key = bench.key(nsid);
    let engine = &mut bench.reactors[0].engine;
    let written = engine.write_from(key, (lba, blocks), &buf(data), false);
    written.map(Result::unwrap).is_some()
}

#[test]
fn they_do_what_asked_ones_do() {
    let mut bench = Bench::new(2, vec![disk(1, memory(64))]);
    let (first, second) = (pattern(3, 1), pattern(2, 2));
    bench.write(1, 10, &first).unwrap();
    assert_eq!(read_into(&mut bench, 1, 10, (3, 3)), Some(first.clone()));
    assert!(write_from(&mut bench, 1, (12, 2), &second));
    bench.turn();
    assert_eq!(bench.read(1, 10, 2).unwrap(), first[..2 * LBA_BYTES]);
    assert_eq!(bench.read(1, 12, 2).unwrap(), second);
    // To the last block.
    assert!(write_from(&mut bench, 1, (62, 2), &second));
    assert_eq!(read_into(&mut bench, 1, 62, (2, 2)), Some(second));
    assert!(bench.reactors.iter().all(|each| !each.engine.is_busy()));
}

#[test]
fn what_cannot_be_is_asked_for_and_refused_there() {
    let mut protected = disk(2, memory(64));
    protected.write_protected = true;
    let mut bench = Bench::new(1, vec![disk(1, memory(64)), protected]);
    let data = pattern(2, 1);
    let before = bench.read(1, 0, 64).unwrap();
    // Beyond the end, around it, of no block, and of another length than they say.
    for (lba, blocks, bytes) in [
        (63, 2, 2),
        (64, 1, 1),
        (u64::MAX, 2, 2),
        (5, 0, 0),
        (5, 1, 2),
        (5, 3, 2),
    ] {
        assert_eq!(
            read_into(&mut bench, 1, lba, (blocks, bytes)),
            None,
            "{lba} {blocks}"
        );
        let part = &data[..bytes.min(2) * LBA_BYTES];
        assert!(
            !write_from(&mut bench, 1, (lba, blocks), part),
            "{lba} {blocks}"
        );
    }
    assert_eq!(bench.read(1, 0, 64).unwrap(), before);
    assert!(!write_from(&mut bench, 2, (5, 2), &data));
    assert!(read_into(&mut bench, 2, 5, (2, 2)).is_some());
    let nobodys = NamespaceKey::next();
    let engine = &mut bench.reactors[0].engine;
    assert!(engine.read_into(nobodys, (0, 1), &zeros(1)).is_none());
    let written = engine.write_from(nobodys, (0, 1), &zeros(1), false);
    assert!(written.is_none());
    // One that takes no more requests.
    let key = bench.key(1);
    bench.reactors[0].engine.retire(key);
    assert_eq!(read_into(&mut bench, 1, 0, (1, 1)), None);
    assert!(!write_from(&mut bench, 1, (0, 1), &data[..LBA_BYTES]));
}

#[test]
fn marked_blocks_are_not_read_and_their_writes_are_asked_for() {
    let mut bench = Bench::new(1, vec![disk(1, memory(64))]);
    let mark = Io::WriteUncorrectable { lba: 20, blocks: 2 };
    bench.run(0, 1, mark).unwrap();
    for (lba, blocks) in [(20, 1), (21, 1), (19, 2), (10, 30)] {
        assert_eq!(
            read_into(&mut bench, 1, lba, (blocks, blocks as usize)),
            None
        );
    }
    assert!(read_into(&mut bench, 1, 18, (2, 2)).is_some());
    assert!(!write_from(&mut bench, 1, (20, 1), &pattern(1, 1)));
    assert!(write_from(&mut bench, 1, (22, 1), &pattern(1, 1)));
}

/// They count as writes under way until the next poll, and wait for what is exclusive.
#[test]
fn writes_keep_to_exclusive_operations() {
    let mut bench = Bench::new(2, vec![disk(1, memory(64))]);
    let (first, second) = (pattern(1, 1), pattern(1, 2));
    assert!(write_from(&mut bench, 1, (5, 1), &first));
    let swap = Io::CompareAndWrite {
        lba: 5,
        expected: Box::new(buf(&first)),
        data: buf(&second),
        durable: false,
    };
    let exclusive = bench.begin(1, 1, swap);
    for _ in 0..20 {
        bench.turn_of(1);
    }
    assert!(
        !bench.is_done(1, exclusive),
        "the other engine was not polled"
    );
    bench.turn_of(0);
    assert!(
        !write_from(&mut bench, 1, (5, 1), &first),
        "it is waited for"
    );
    bench.end(1, exclusive).unwrap();
    assert_eq!(bench.read(1, 5, 1).unwrap(), second);
    bench.turn();
    assert!(write_from(&mut bench, 1, (5, 1), &first));
}

#[test]
fn stores_that_take_time_are_asked() {
    let (steps, store) = Steps::over(memory(64));
    let mut bench = Bench::new(1, vec![disk(1, store)]);
    assert_eq!(read_into(&mut bench, 1, 5, (1, 1)), None);
    assert!(!write_from(&mut bench, 1, (5, 1), &pattern(1, 1)));
    assert_eq!(steps.taken(), 0);
}

#[test]
fn a_store_of_nothing_reads_zeros() {
    let spec = StoreSpec::parse("null:32KiB").unwrap();
    let store = SharedStore::open(&spec, OpenOptions::read_write()).unwrap();
    let mut bench = Bench::new(1, vec![disk(1, store)]);
    let (key, into) = (bench.key(1), buf(&pattern(5, 3)));
    let engine = &mut bench.reactors[0].engine;
    engine.read_into(key, (7, 5), &into).unwrap().unwrap();
    assert_eq!(into.to_vec(), zeros(5).to_vec());
    assert!(write_from(&mut bench, 1, (7, 5), &pattern(5, 3)));
    assert_eq!(read_into(&mut bench, 1, 7, (5, 5)), Some(zeros(5).to_vec()));
}
