//! Blocks marked uncorrectable: what reads them fails, what writes them clears them, and both survive a restart.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use namespace::{EngineConfig, Io, Namespace, NamespaceError, RecordKind};
use nvme_spec::Status;
use store::{Op, SharedStore};

use super::bench::{Bench, LBA_BYTES, Notebook, buf, config, disk, memory, pattern};
use super::stepped::Steps;

pub(super) fn kept(store: &SharedStore, notebook: &Arc<Notebook>) -> Namespace {
    let mut namespace = disk(1, store.clone());
    namespace.keeper = notebook.clone();
    namespace.restore_marks().unwrap();
    namespace
}

fn mark(lba: u64, blocks: u32) -> Io {
    Io::WriteUncorrectable { lba, blocks }
}

fn record(notebook: &Notebook) -> Vec<u8> {
    let records = notebook.records.lock().unwrap();
    records
        .get(RecordKind::Uncorrectable.name())
        .cloned()
        .unwrap_or_default()
}

#[test]
fn whatever_reads_a_marked_block_fails_with_its_address() {
    let mut bench = Bench::new(2, vec![disk(1, memory(100)), disk(2, memory(100))]);
    bench.run(1, 1, mark(20, 3)).unwrap();
    let reads = [
        (
            Io::Read {
                lba: 0,
                blocks: 100,
                into: None,
            },
            20,
        ),
        (
            Io::Read {
                lba: 22,
                blocks: 1,
                into: Some(buf(&[0; LBA_BYTES])),
            },
            22,
        ),
        (Io::ReadDurable { lba: 21, blocks: 9 }, 21),
        (Io::Verify { lba: 3, blocks: 97 }, 20),
        (
            Io::Compare {
                lba: 20,
                data: buf(&pattern(1, 0)),
            },
            20,
        ),
        (
            Io::CompareAndWrite {
                lba: 18,
                expected: Box::new(buf(&[0; 3 * LBA_BYTES])),
                data: buf(&[1; 3 * LBA_BYTES]),
                durable: false,
            },
            20,
        ),
    ];
    for (io, lba) in reads {
        let what = format!("{io:?}");
        let error = bench.run(0, 1, io).unwrap_err();
        assert_eq!(error.first_lba(LBA_BYTES as u32), Some(lba), "{what}");
        assert_eq!(error.status(false), Status::UNRECOVERED_READ_ERROR.dnr());
    }
    let copy = Io::Copy {
        lba: 0,
        sources: vec![bench.source(1, 0, 20), bench.source(1, 10, 11)],
        durable: false,
    };
    let error = bench.run(0, 2, copy).unwrap_err();
    assert_eq!(error.status(true), Status::UNRECOVERED_READ_ERROR.dnr());
    assert_eq!(error.first_lba(LBA_BYTES as u32), Some(20));
    assert!(bench.read(1, 0, 20).is_ok() && bench.read(1, 23, 77).is_ok());
}

/// Write, Write Zeroes (with and without deallocation) and Copy clear what they write; deallocation alone does not.
#[test]
fn writes_clear_marks_durably_before_they_are_answered() {
    let (store, notebook) = (memory(100), Arc::new(Notebook::default()));
    let mut bench = Bench::new(2, vec![kept(&store, &notebook)]);
    bench.run(0, 1, mark(10, 40)).unwrap();
    let marked = record(&notebook);
    assert!(!marked.is_empty());
    let zeroes = |lba, deallocate| Io::WriteZeroes {
        lba,
        blocks: 2,
        deallocate,
        durable: false,
    };
    let copy = Io::Copy {
        lba: 20,
        sources: vec![bench.source(1, 0, 2)],
        durable: false,
    };
    let write = Io::Write {
        lba: 23,
        data: buf(&pattern(2, 7)),
        durable: false,
    };
    for (io, lba) in [
        (write, 23),
        (zeroes(26, false), 26),
        (zeroes(29, true), 29),
        (copy, 20),
    ] {
        // Not answered before the keeper has it.
        notebook.holds.store(true, SeqCst);
        let token = bench.begin(1, 1, io);
        while notebook.held.lock().unwrap().is_empty() {
            bench.turn();
        }
        for _ in 0..20 {
            bench.turn();
        }
        assert!(bench.reactors[1].done.is_empty(), "block {lba}");
        notebook.holds.store(false, SeqCst);
        notebook.let_go();
        bench.end(1, token).unwrap();
        assert!(bench.read(1, lba, 2).is_ok());
        assert!(bench.read(1, lba + 2, 1).is_err());
    }
    let ranges = vec![(10, 5)];
    bench.run(0, 1, Io::Deallocate { ranges }).unwrap();
    assert!(bench.read(1, 10, 1).is_err(), "nothing was written there");

    // Another life finds the same.
    drop(bench);
    let mut bench = Bench::new(1, vec![kept(&store, &notebook)]);
    let readable: Vec<u64> = (0..100)
        .filter(|&lba| bench.read(1, lba, 1).is_ok())
        .collect();
    let wanted: Vec<u64> = (0..10)
        .chain([20, 21, 23, 24, 26, 27, 29, 30])
        .chain(50..100)
        .collect();
    assert_eq!(readable, wanted);
    bench.write(1, 0, &pattern(100, 1)).unwrap();
    assert_eq!(record(&notebook), [], "nothing is marked any more");
}

#[test]
fn what_cannot_be_saved_is_not_answered_as_done() {
    let (store, notebook) = (memory(100), Arc::new(Notebook::default()));
    let mut bench = Bench::new(1, vec![kept(&store, &notebook)]);
    bench.run(0, 1, mark(10, 1)).unwrap();
    notebook.refuses.store(true, SeqCst);
    let error = bench.run(0, 1, mark(20, 1)).unwrap_err();
    assert!(matches!(error, NamespaceError::Unsaved { .. }), "{error}");
    let error = bench.write(1, 10, &pattern(1, 1)).unwrap_err();
    assert_eq!(error.status(true), Status::WRITE_FAULT);
    assert!(bench.write(1, 30, &pattern(1, 1)).is_ok(), "no mark there");
}

/// A write over a marked block and its neighbour is under way, its data written, when the neighbour is marked: the write takes the mark of the first
/// away, not the one that came after its data.
#[test]
fn a_write_under_way_takes_no_mark_that_came_after_it() {
    let (steps, store) = Steps::over(memory(100));
    let mut bench = Bench::new(2, vec![disk(1, store)]);
    bench.run(0, 1, mark(10, 1)).unwrap();
    let over = Io::Write {
        lba: 10,
        data: buf(&pattern(2, 7)),
        durable: false,
    };
    let over = bench.begin(0, 1, over);
    steps.allow(1);
    while steps.log().last().is_none_or(|op| !op.is_durable()) {
        // Until its data are in the store, and the flush before its mark goes is asked for.
        bench.turn();
    }
    let marked = bench.begin(1, 1, mark(11, 1));
    for _ in 0..20 {
        bench.turn();
    }
    steps.allow(100);
    bench.end(0, over).unwrap();
    bench.end(1, marked).unwrap();
    assert_eq!(bench.read(1, 10, 1).unwrap(), pattern(2, 7)[..LBA_BYTES]);
    let error = bench.read(1, 11, 1).unwrap_err();
    assert_eq!(error.first_lba(LBA_BYTES as u32), Some(11));
}

/// A write takes long; meanwhile some of its blocks are marked, and another write clears them. What that one was told stays true: the first write ends
/// without marking anything again, here and for a restart, also where it has a mark of its own to clear.
#[test]
fn a_write_under_way_brings_no_mark_back_that_another_has_cleared() {
    let zeroes = Io::WriteZeroes {
        lba: 10,
        blocks: 8,
        deallocate: false,
        durable: false,
    };
    let write = Io::Write {
        lba: 10,
        data: buf(&pattern(8, 1)),
        durable: false,
    };
    for slow in [write, zeroes] {
        let (steps, store) = Steps::over(memory(100));
        steps.let_reads_pass();
        let notebook = Arc::new(Notebook::default());
        let mut bench = Bench::new(2, vec![kept(&store, &notebook)]);
        bench.run(1, 1, mark(10, 8)).unwrap();
        let slow = bench.begin(0, 1, slow);
        bench.run(1, 1, mark(10, 8)).unwrap();
        let quick = Io::Write {
            lba: 14,
            data: buf(&pattern(2, 7)),
            durable: false,
        };
        let quick = bench.begin(1, 1, quick);
        while !bench.is_done(1, quick) {
            steps.held()[1..].iter().for_each(|&at| steps.choose(at));
            bench.turn();
        }
        bench.end(1, quick).unwrap();
        assert_eq!(bench.read(1, 14, 2).unwrap(), pattern(2, 7));
        steps.allow(100);
        bench.end(0, slow).unwrap();
        assert!(bench.read(1, 14, 2).is_ok());
        assert!(bench.read(1, 13, 1).is_err() && bench.read(1, 16, 1).is_err());
        drop(bench);
        let mut bench = Bench::new(1, vec![kept(&store, &notebook)]);
        assert!(bench.read(1, 14, 2).is_ok(), "after a restart");
        assert!(bench.read(1, 13, 1).is_err() && bench.read(1, 16, 1).is_err());
    }
}

/// Whatever writes over marked blocks has its data on stable storage before the record that they are not marked any more: after power loss the mark is
/// there, or the new data.
#[test]
fn data_are_durable_before_their_marks_go() {
    let (steps, store) = Steps::over(memory(100));
    steps.allow(usize::MAX / 2);
    let notebook = Arc::new(Notebook::default());
    let mut bench = Bench::new(1, vec![kept(&store, &notebook)]);
    let zeroes = |deallocate| Io::WriteZeroes {
        lba: 10,
        blocks: 2,
        deallocate,
        durable: false,
    };
    let copy = Io::Copy {
        lba: 10,
        sources: vec![bench.source(1, 0, 2)],
        durable: false,
    };
    let write = Io::Write {
        lba: 10,
        data: buf(&pattern(2, 7)),
        durable: false,
    };
    for io in [write, zeroes(false), zeroes(true), copy] {
        let what = format!("{io:?}");
        bench.run(0, 1, mark(10, 2)).unwrap();
        notebook.holds.store(true, SeqCst);
        let before = steps.taken();
        let token = bench.begin(0, 1, io);
        while notebook.held.lock().unwrap().is_empty() {
            bench.turn();
        }
        let log = steps.log().split_off(before);
        let last = log.iter().rfind(|op| op.is_change() || op.is_durable());
        assert!(last.is_some_and(Op::is_durable), "{what}: {log:?}");
        notebook.holds.store(false, SeqCst);
        notebook.let_go();
        bench.end(0, token).unwrap();
    }
}

/// A keeper that does not answer: nobody waits for it for ever, not those that came when it had as much as it may have, and neither a write.
#[test]
fn a_keeper_that_does_not_answer_hangs_nobody() {
    /// Records that keepers may have of one engine at a time, and more.
    const MORE: u64 = 100;
    let config = EngineConfig {
        keep_patience: Duration::from_millis(50),
        ..config()
    };
    let (store, notebook) = (memory(4 * MORE), Arc::new(Notebook::default()));
    let mut bench = Bench::with(1, vec![kept(&store, &notebook)], config);
    bench.run(0, 1, mark(399, 1)).unwrap();
    notebook.holds.store(true, SeqCst);
    let write = Io::Write {
        lba: 399,
        data: buf(&pattern(1, 1)),
        durable: false,
    };
    let write = bench.begin(0, 1, write);
    let marks: Vec<u64> = (0..MORE)
        .map(|lba| bench.begin(0, 1, mark(2 * lba, 1)))
        .collect();
    for token in [&marks[..], &[write]].concat() {
        let error = bench.end(0, token).unwrap_err();
        assert!(matches!(error, NamespaceError::Unsaved { .. }), "{error}");
        assert_eq!(error.status(true), Status::WRITE_FAULT);
    }
    (0..3).for_each(|_| bench.turn());
    assert!(!bench.reactors[0].engine.is_busy() && !bench.reactors[0].engine.has_work());
    assert!(bench.read(1, 399, 1).is_err(), "the mark is there");
    // It answers at last, to nobody; then everything goes on.
    notebook.holds.store(false, SeqCst);
    notebook.let_go();
    bench.turn();
    bench.run(0, 1, mark(300, 1)).unwrap();
    bench.write(1, 399, &pattern(1, 2)).unwrap();
    assert_eq!(bench.read(1, 399, 1).unwrap(), pattern(1, 2));
    drop(bench);
    let mut bench = Bench::new(1, vec![kept(&store, &notebook)]);
    assert!(bench.read(1, 300, 1).is_err() && bench.read(1, 399, 1).is_ok());
}

/// A write that failed because the cleared mark could not be saved leaves the mark: the next one clears it, and is not lost by a restart.
#[test]
fn a_mark_that_could_not_be_cleared_is_still_there() {
    let (store, notebook) = (memory(100), Arc::new(Notebook::default()));
    let mut bench = Bench::new(1, vec![kept(&store, &notebook)]);
    bench.run(0, 1, mark(10, 2)).unwrap();
    notebook.refuses.store(true, SeqCst);
    bench.write(1, 10, &pattern(1, 1)).unwrap_err();
    let error = bench.read(1, 10, 1).unwrap_err();
    assert_eq!(error.first_lba(LBA_BYTES as u32), Some(10));
    notebook.refuses.store(false, SeqCst);
    bench.write(1, 10, &pattern(1, 2)).unwrap();
    assert_eq!(bench.read(1, 10, 1).unwrap(), pattern(1, 2));
    drop(bench);
    let mut bench = Bench::new(1, vec![kept(&store, &notebook)]);
    assert_eq!(bench.read(1, 10, 1).unwrap(), pattern(1, 2));
    assert!(bench.read(1, 11, 1).is_err());
}

#[test]
fn a_list_that_is_full_takes_no_more() {
    let blocks = 2 * namespace::limits::MARKS_MAX as u64 + 2;
    let mut bench = Bench::new(1, vec![disk(1, memory(blocks))]);
    for at in 0..namespace::limits::MARKS_MAX as u64 {
        bench.run(0, 1, mark(at * 2, 1)).unwrap();
    }
    let error = bench.run(0, 1, mark(blocks - 1, 1)).unwrap_err();
    assert!(matches!(error, NamespaceError::MarksFull { .. }), "{error}");
    assert_eq!(error.status(true), Status::WRITE_FAULT.dnr());
    assert!(bench.read(1, blocks - 1, 1).is_ok());
    // A write makes room.
    bench.write(1, 0, &pattern(1, 1)).unwrap();
    bench.run(0, 1, mark(blocks - 1, 1)).unwrap();
}

#[test]
fn a_damaged_record_is_not_taken_for_none() {
    let notebook = Arc::new(Notebook::default());
    let kind = RecordKind::Uncorrectable.name();
    notebook
        .records
        .lock()
        .unwrap()
        .insert(kind, b"XIOMARK1 and more".to_vec());
    let mut namespace = disk(1, memory(8));
    namespace.keeper = notebook;
    assert!(namespace.restore_marks().is_err());
}

/// A namespace whose end is drawn back and moved out again: what is there by then nobody has marked.
#[test]
fn what_grows_has_no_marks_of_what_was_there_before() {
    let (notebook, store) = (Arc::new(Notebook::default()), memory(100));
    let mut bench = Bench::new(1, vec![kept(&store, &notebook)]);
    bench.run(0, 1, mark(10, 1)).unwrap();
    let first = record(&notebook);
    bench.run(0, 1, mark(49, 20)).unwrap();
    let whole = kept(&store, &notebook);
    let mut cut = disk(1, store.clone()).succeeding(&whole);
    cut.blocks = 50;
    let again = disk(1, store.clone()).succeeding(&cut);
    assert_ne!(record(&notebook), first, "block 49 is marked still");
    let mut bench = Bench::new(1, vec![again]);
    assert!(bench.read(1, 50, 50).is_ok());
    for lba in [10, 49] {
        let error = bench.read(1, lba, 1).unwrap_err();
        assert!(matches!(error, NamespaceError::Uncorrectable { lba: at, .. } if at == lba));
    }
    // The same after a restart.
    bench.write(1, 49, &pattern(1, 1)).unwrap();
    assert_eq!(record(&notebook), first);
}

/// Served in other blocks, a disk has the marks where it had them.
#[test]
fn marks_stay_where_they_were_when_the_blocks_are_others() {
    let (notebook, store) = (Arc::new(Notebook::default()), memory(128));
    let mut bench = Bench::new(1, vec![kept(&store, &notebook)]);
    // The last 512-byte block of 4 KiB, and the first of the next.
    bench.run(0, 1, mark(15, 2)).unwrap();
    drop(bench);
    let identity = disk(1, store.clone()).identity;
    let mut large = Namespace::of_store(1, store.clone(), identity, 4096);
    large.keeper = notebook.clone();
    large.restore_marks().unwrap();
    let mut bench = Bench::new(1, vec![large]);
    let read = |bench: &mut Bench, lba| {
        let into = None;
        bench
            .run(
                0,
                1,
                Io::Read {
                    lba,
                    blocks: 1,
                    into,
                },
            )
            .is_ok()
    };
    let readable: Vec<bool> = (0..16).map(|lba| read(&mut bench, lba)).collect();
    let marked = [1, 2];
    for (lba, readable) in readable.into_iter().enumerate() {
        assert_eq!(readable, !marked.contains(&lba), "block {lba}");
    }
    drop(bench);
    let mut bench = Bench::new(1, vec![kept(&store, &notebook)]);
    for (lba, is_readable) in [(14, true), (15, false), (16, false), (17, true)] {
        assert_eq!(bench.read(1, lba, 1).is_ok(), is_readable, "block {lba}");
    }
}
