//! Compare and Write toward all other writes of a namespace.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use namespace::{Io, NamespaceError};
use nvme_spec::Status;
use store::decorate::{Fault, Faulty, On, What, When};

use super::bench::{Bench, LBA_BYTES, buf, disk, memory, pattern};
use super::stepped::Steps;
use super::threads::{LongWrites, Thread, on_threads};

fn swap(lba: u64, expected: &[u8], data: &[u8]) -> Io {
    Io::CompareAndWrite {
        lba,
        expected: Box::new(buf(expected)),
        data: buf(data),
        durable: true,
    }
}

fn write(lba: u64, data: &[u8]) -> Io {
    Io::Write {
        lba,
        data: buf(data),
        durable: false,
    }
}

#[test]
fn writes_under_way_end_first_and_later_ones_wait() {
    let (steps, store) = Steps::over(memory(64));
    let mut bench = Bench::new(2, vec![disk(1, store)]);
    let [first, swapped, later] = [1, 2, 3].map(|seed| pattern(1, seed));
    let before = bench.begin(0, 1, write(5, &first));
    // It finds what the write under way leaves, not what was there when it came.
    let exclusive = bench.begin(1, 1, swap(5, &first, &swapped));
    let after_here = bench.begin(1, 1, write(5, &later));
    let after_there = bench.begin(0, 1, write(6, &later));
    for _ in 0..20 {
        bench.turn();
    }
    assert_eq!(steps.taken(), 1, "the store has the first write alone");
    steps.allow(1);
    bench.end(0, before).unwrap();
    for _ in 0..20 {
        bench.turn();
    }
    assert_eq!(steps.taken(), 2, "and now the read of the comparison");
    steps.allow(1);
    for _ in 0..20 {
        bench.turn();
    }
    assert_eq!(steps.taken(), 3, "and now its write");
    steps.allow(100);
    bench.end(1, exclusive).unwrap();
    bench.end(1, after_here).unwrap();
    bench.end(0, after_there).unwrap();
    assert_eq!(bench.read(1, 5, 1).unwrap(), later);
}

/// A store that carries writes out at once: they count as under way until their engine's next poll, and none begins beside an exclusive operation.
#[test]
fn writes_that_are_carried_out_at_once_keep_to_it_too() {
    let mut bench = Bench::new(2, vec![disk(1, memory(64))]);
    let [first, swapped, later] = [1, 2, 3].map(|seed| pattern(1, seed));
    let before = bench.begin(0, 1, write(5, &first));
    assert!(bench.is_done(0, before), "at once");
    let exclusive = bench.begin(1, 1, swap(5, &first, &swapped));
    for _ in 0..20 {
        bench.turn_of(1);
    }
    assert!(
        !bench.is_done(1, exclusive),
        "the other engine was not polled"
    );
    // What belongs to the same turn of the other engine still comes before it; whoever comes later waits, on either engine.
    let beside = bench.begin(0, 1, write(7, &later));
    assert!(bench.is_done(0, beside));
    let after_here = bench.begin(1, 1, write(5, &later));
    bench.turn_of(0);
    let after_there = bench.begin(0, 1, write(6, &later));
    assert!(!bench.is_done(0, after_there) && !bench.is_done(1, after_here));
    bench.end(1, exclusive).unwrap();
    bench.end(0, after_there).unwrap();
    bench.end(1, after_here).unwrap();
    assert_eq!(bench.read(1, 5, 1).unwrap(), later);
    assert!(bench.reactors.iter().all(|each| !each.engine.is_busy()));
    // Nothing was left inside: the next exclusive operation has its turn.
    let again = bench.run(0, 1, swap(5, &later, &first));
    again.unwrap();
    assert_eq!(bench.read(1, 5, 1).unwrap(), first);
}

/// Reads are not held up.
#[test]
fn reads_go_on_meanwhile() {
    let (steps, store) = Steps::over(memory(64));
    let mut bench = Bench::new(2, vec![disk(1, store)]);
    let before = bench.begin(0, 1, write(5, &pattern(1, 1)));
    let exclusive = bench.begin(1, 1, swap(5, &pattern(1, 1), &pattern(1, 2)));
    bench.turn();
    steps.allow(1);
    bench.end(0, before).unwrap();
    let read = Io::Read {
        lba: 0,
        blocks: 1,
        into: None,
    };
    let read = bench.begin(0, 1, read);
    steps.allow(2);
    bench.end(0, read).unwrap();
    steps.allow(2);
    bench.end(1, exclusive).unwrap();
}

#[test]
fn what_differs_is_not_written() {
    let mut bench = Bench::new(1, vec![disk(1, memory(64))]);
    let (there, other) = (pattern(8, 1), pattern(8, 2));
    bench.write(1, 0, &there).unwrap();
    let mut expected = there.clone();
    expected[5 * LBA_BYTES] ^= 1;
    let error = bench.run(0, 1, swap(0, &expected, &other)).unwrap_err();
    assert!(
        matches!(error, NamespaceError::Miscompare { lba: 5, .. }),
        "{error}"
    );
    assert_eq!(bench.read(1, 0, 8).unwrap(), there);
    assert!(bench.write(1, 0, &other).is_ok(), "writes go on");
}

/// An error of the write is told from one of the comparison.
#[test]
fn the_half_that_failed_is_named() {
    for (on, in_write) in [(On::Read, false), (On::Write, true)] {
        let fault = Fault {
            on,
            range: 0..4096,
            when: When::Always,
            what: What::Error(reactor::Errno::EIO),
        };
        let faulty = Faulty::over(vec![fault], memory(64)).unwrap();
        let mut bench = Bench::new(1, vec![disk(1, faulty.store())]);
        let zeros = vec![0; LBA_BYTES];
        let error = bench.run(0, 1, swap(0, &zeros, &zeros)).unwrap_err();
        let is_write = matches!(error, NamespaceError::InPart { is_write: true, .. });
        assert_eq!(is_write, in_write, "{error}");
        let status = if in_write {
            Status::WRITE_FAULT
        } else {
            Status::UNRECOVERED_READ_ERROR
        };
        assert_eq!(error.status(false), status);
        assert!(bench.write(1, 32, &pattern(1, 1)).is_ok(), "writes go on");
    }
}

/// Three reactors count up in one block; a fourth writes beside it all the time. Not one step is lost.
#[test]
fn counting_up_on_several_reactors_loses_nothing() {
    const STEPS: u64 = 300;
    let namespace = Arc::new(disk(1, memory(64)));
    on_threads(4, &namespace, |number, thread| {
        for step in 0..STEPS {
            if number == 3 {
                thread.run(write(1 + step % 60, &pattern(1, 1))).unwrap();
            } else {
                count_up(thread);
            }
        }
    });
    let mut bench = Bench::new(1, vec![(*namespace).clone()]);
    let counted = bench.read(1, 0, 1).unwrap();
    assert_eq!(
        u64::from_le_bytes(counted[..8].try_into().unwrap()),
        3 * STEPS
    );
}

/// One step up, as often as it takes.
fn count_up(thread: &mut Thread) {
    loop {
        let read = Io::Read {
            lba: 0,
            blocks: 1,
            into: None,
        };
        let before = thread.run(read).unwrap().unwrap();
        let count = u64::from_le_bytes(before[..8].try_into().unwrap());
        let mut after = before.clone();
        after[..8].copy_from_slice(&(count + 1).to_le_bytes());
        match thread.run(swap(0, &before, &after)) {
            Ok(_) => return,
            Err(NamespaceError::Miscompare { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// The window between the comparison and its write, held open: what three other reactors write into it is not lost, because it waits.
#[test]
fn what_is_written_between_comparison_and_write_is_not_lost() {
    const WRITERS: usize = 3;
    /// Turns in which a write that nothing holds back ends.
    const TURNS: usize = 50;
    let (held, store) = LongWrites::over(memory(64));
    let namespace = Arc::new(disk(1, store));
    let begun = AtomicUsize::new(0);
    let swapped = pattern(WRITERS, 9);
    on_threads(WRITERS as u16 + 1, &namespace, |number, thread| {
        let lba = usize::from(number);
        if lba == WRITERS {
            let zeros = vec![0; WRITERS * LBA_BYTES];
            thread.begin(swap(0, &zeros, &swapped));
            thread.turn_until(|_| held.holds_one());
            thread.turn_until(|_| begun.load(SeqCst) == WRITERS);
            held.let_go();
        } else {
            thread.turn_until(|_| held.holds_one());
            thread.begin(write(number.into(), &pattern(1, lba as u8)));
            (0..TURNS).for_each(|_| thread.turn());
            begun.fetch_add(1, SeqCst);
        }
        thread.end().unwrap();
    });
    let mut bench = Bench::new(1, vec![(*namespace).clone()]);
    for lba in 0..WRITERS {
        let found = bench.read(1, lba as u64, 1).unwrap();
        assert!(
            found == pattern(1, lba as u8),
            "the write of block {lba} is lost"
        );
    }
}

/// Whoever waits for a write under way elsewhere goes on when that has ended, though the store answers without an event and nobody else wakes it.
#[test]
fn what_waited_for_a_write_elsewhere_goes_on_by_itself() {
    let (held, store) = LongWrites::over(memory(64));
    let namespace = Arc::new(disk(1, store));
    let begun = AtomicUsize::new(0);
    on_threads(2, &namespace, |number, thread| {
        if number == 0 {
            thread.begin(write(8, &pattern(2, 1)));
            thread.turn_until(|_| begun.load(SeqCst) == 1);
            held.let_go();
            thread.end().unwrap();
        } else {
            thread.turn_until(|_| held.holds_one());
            thread.begin(swap(0, &pattern(1, 0), &pattern(1, 2)));
            begun.fetch_add(1, SeqCst);
            let ended = thread.end_asleep();
            assert!(matches!(ended, Err(NamespaceError::Miscompare { .. })));
        }
    });
}
