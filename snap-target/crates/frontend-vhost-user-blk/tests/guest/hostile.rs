//! Monitors that break the protocol: their connection ends, and the device is there for the next.

use std::fs::File;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use guest_memory::CLIENT_BYTES_MAX;
use store::BlockingStore;

use super::monitor::{
    DATA, GUEST, Guest, MEMORY_BYTES, Monitor, SIZE, USER, copy, event, longs, memory_file, words,
};
use super::served::{Served, memory};

const PATIENCE: Duration = Duration::from_secs(60);
const IN: u32 = 0;

/// That a message ends a connection that has come so far, and that the device serves the next one.
fn ends(served: &Served, what: &str, breaks: impl FnOnce(&mut Monitor, &Guest)) {
    let guest = Guest::new();
    let mut monitor = Monitor::connect(&served.path);
    monitor.negotiate();
    monitor.share(&guest);
    breaks(&mut monitor, &guest);
    while monitor.receive().is_some() {}
    assert!(monitor.is_over(), "{what}");
    let mut next = Monitor::connect(&served.path);
    next.negotiate();
}

#[test]
fn messages_that_are_none() {
    let served = Served::new(memory());
    for (what, code, flags, body) in [
        ("no such message", 99, 1, vec![]),
        ("one that was not offered", 6, 1, longs(&[0, 0])),
        ("postcopy", 28, 1, vec![]),
        ("another version", 1, 2, vec![]),
        ("a reply", 1, 1 | 4, vec![]),
        ("a body where there is none", 1, 1, vec![0]),
        ("a short body", 2, 1, vec![0; 7]),
        ("a long body", 2, 1, vec![0; 9]),
        ("a body that is too long", 24, 1, vec![0; 513]),
        ("a short table", 5, 1, vec![0; 4]),
        ("a table of more than it has", 5, 1, words(&[1, 0])),
        (
            "a table of more than there may be",
            5,
            1,
            [words(&[9, 0]), vec![0; 288]].concat(),
        ),
        (
            "a configuration that is longer than it",
            24,
            1,
            [words(&[250, 10, 0]), vec![0; 10]].concat(),
        ),
        (
            "a configuration whose end overflows",
            24,
            1,
            words(&[u32::MAX, 2, 0]),
        ),
        ("features that were not offered", 2, 1, longs(&[1 << 63])),
        (
            "protocol features that were not offered",
            16,
            1,
            longs(&[1 << 40]),
        ),
        ("a queue that is not there", 8, 1, words(&[64, 16])),
        ("a queue of no size", 8, 1, words(&[0, 0])),
        (
            "a queue of a size that is no power of two",
            8,
            1,
            words(&[0, 48]),
        ),
        ("a queue of too many", 8, 1, words(&[0, 1 << 16])),
        ("a queue half enabled", 18, 1, words(&[0, 2])),
        ("a kick of nothing", 12, 1, longs(&[0])),
        ("polling", 12, 1, longs(&[1 << 8])),
        ("a kick with more than a queue", 12, 1, longs(&[1 << 9])),
        (
            "a queue in memory that is not there",
            9,
            1,
            [words(&[0, 0]), longs(&[1, 2, 3, 0])].concat(),
        ),
        (
            "a queue that logs",
            9,
            1,
            [words(&[0, 1]), longs(&[USER, USER, USER, 0])].concat(),
        ),
        (
            "memory that is not there",
            38,
            1,
            longs(&[0, GUEST, 4096, USER, 0]),
        ),
        (
            "records for no queue",
            31,
            1,
            [longs(&[0, 0]), vec![0; 8]].concat(),
        ),
        (
            "records of queues that are too long",
            31,
            1,
            [longs(&[0, 0]), vec![1, 0, 0, 8, 0, 0, 0, 0]].concat(),
        ),
    ] {
        ends(&served, what, |monitor, _| {
            monitor.send(code, flags, &body, &[])
        });
    }
}

/// Each message that names a queue, with each number that none has where it has eight bits for it, and with those at the edges of 32.
#[test]
fn queues_that_are_not_there() {
    let served = Served::new(memory());
    for index in [
        64,
        65,
        127,
        128,
        255,
        256,
        0xFFFF,
        1 << 16,
        1 << 31,
        u32::MAX,
    ] {
        for (code, body) in [
            (8, words(&[index, 16])),
            (
                9,
                [words(&[index, 0]), longs(&[USER, USER, USER, 0])].concat(),
            ),
            (10, words(&[index, 0])),
            (11, words(&[index, 0])),
            (18, words(&[index, 0])),
            (18, words(&[index, 1])),
        ] {
            let what = format!("message {code} of queue {index}");
            ends(&served, &what, |monitor, _| {
                monitor.send(code, 1, &body, &[])
            });
        }
    }
    let event = event();
    for index in 64..256 {
        for code in [12, 13, 14] {
            let what = format!("message {code} of queue {index}");
            ends(&served, &what, |monitor, _| {
                monitor.send(code, 1, &longs(&[index]), &[event.as_fd()]);
            });
        }
    }
}

#[test]
fn messages_with_files_that_do_not_belong() {
    let served = Served::new(memory());
    let file = memory_file(1 << 20);
    let table = |address: u64, bytes: u64, user: u64, offset: u64| {
        [words(&[1, 0]), longs(&[address, bytes, user, offset])].concat()
    };
    let one = |what, code, body: Vec<u8>| {
        ends(&served, what, |monitor, _| {
            monitor.send(code, 1, &body, &[file.as_fd()])
        })
    };
    one("a file with a message that has none", 1, vec![]);
    one("a kick that is no event", 12, longs(&[0]));
    one("a call that is no event", 13, longs(&[0]));
    one("an event of a queue that is not there", 13, longs(&[200]));
    one(
        "memory that is longer than its file",
        5,
        table(0, 2 << 20, USER, 0),
    );
    one(
        "memory that begins behind its file",
        5,
        table(0, 4096, USER, 1 << 30),
    );
    one("memory that is no page", 5, table(0, 4095, USER, 0));
    one("memory that begins in a page", 5, table(512, 4096, USER, 0));
    one(
        "memory whose file begins in a page",
        5,
        table(0, 4096, USER, 512),
    );
    one("memory of nothing", 5, table(0, 0, USER, 0));
    one("memory that ends nowhere", 5, table(!0xFFF, 8192, USER, 0));
    one(
        "memory that the monitor has nowhere",
        5,
        table(0, 8192, !0xFFF, 0),
    );
    one(
        "memory that is there",
        37,
        longs(&[0, GUEST, 4096, USER, 0]),
    );
    let records = |bytes: u64, offset: u64, queues: u16, size: u16| {
        [
            longs(&[bytes, offset]),
            queues.to_le_bytes().to_vec(),
            size.to_le_bytes().to_vec(),
            vec![0; 4],
        ]
        .concat()
    };
    one("records that are too short", 32, records(64, 0, 1, SIZE));
    one(
        "records behind their file",
        32,
        records(1 << 20, 1 << 20, 1, SIZE),
    );
    one(
        "records of a size that overflows",
        32,
        records(u64::MAX, 0, 1, SIZE),
    );
    one(
        "records for too many queues",
        32,
        records(1 << 20, 0, u16::MAX, SIZE),
    );
    one(
        "records that are longer than any",
        32,
        records((64 << 20) + 4096, 0, 1, SIZE),
    );
    let on_disk = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    on_disk.set_len(MEMORY_BYTES).unwrap();
    let device = File::options().read(true).write(true).open("/dev/zero");
    for file in [on_disk, device.unwrap()] {
        // Whoever touches a page of it waits for a file system, or a program.
        ends(&served, "memory that is none", |monitor, _| {
            let table = table(0, MEMORY_BYTES, USER, 0);
            monitor.send(5, 1, &table, &[file.as_fd()]);
        });
    }
    let sparse = memory_file(1 << 46);
    ends(&served, "more than one guest may have", |monitor, _| {
        let region = |at: u64, bytes| longs(&[0, at, bytes, USER + at, 0]);
        let most = region(1 << 41, CLIENT_BYTES_MAX - MEMORY_BYTES);
        monitor.order(37, &most, &[sparse.as_fd()]);
        monitor.send(37, 1, &region(1 << 42, 4096), &[sparse.as_fd()]);
    });
    ends(&served, "two files for one region", |monitor, guest| {
        monitor.send(
            5,
            1,
            &table(GUEST, MEMORY_BYTES, USER, 0),
            &[guest.file.as_fd(), file.as_fd()],
        );
    });
    ends(
        &served,
        "more files than a message may have",
        |monitor, _| {
            let files: Vec<_> = (0..12).map(|_| file.as_fd()).collect();
            monitor.send(5, 1, &table(GUEST, MEMORY_BYTES, USER, 0), &files);
        },
    );
    ends(&served, "two regions that overlap", |monitor, _| {
        let both = [
            words(&[2, 0]),
            longs(&[0, 8192, USER, 0]),
            longs(&[4096, 8192, USER + 8192, 0]),
        ]
        .concat();
        monitor.send(5, 1, &both, &[file.as_fd(), file.as_fd()]);
    });
}

/// A file that gets shorter would end the daemon: what is in flight is written down in none that can, and memory that takes seals has one.
#[test]
fn files_that_their_monitor_can_make_shorter() {
    let served = Served::new(memory());
    let guest = Guest::new();
    let mut monitor = Monitor::connect(&served.path);
    monitor.negotiate();
    monitor.share(&guest);
    let shrunk = rustix::fs::ftruncate(&guest.file, 0);
    assert_eq!(shrunk, Err(rustix::io::Errno::PERM));
    // The one that the device made, and a copy of it that takes seals.
    let (about, records) = monitor.inflight();
    for kept in [&records, &copy(&records)] {
        monitor.order(32, &about, &[kept.as_fd()]);
        let shrunk = rustix::fs::ftruncate(kept, 0);
        assert_eq!(shrunk, Err(rustix::io::Errno::PERM));
    }
    drop(monitor);
    let bytes = u64::try_from(rustix::fs::fstat(&records).unwrap().st_size).unwrap();
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let unsealed = rustix::fs::memfd_create("inflight", flags).unwrap();
    rustix::fs::ftruncate(&unsealed, bytes).unwrap();
    ends(&served, "records that can get shorter", |monitor, _| {
        monitor.send(32, 1, &about, &[unsealed.as_fd()]);
    });
}

#[test]
fn a_queue_that_runs_is_not_changed() {
    let served = Served::new(memory());
    for (code, body) in [
        (8, words(&[0, 8])),
        (10, words(&[0, 3])),
        (
            9,
            [
                words(&[0, 0]),
                longs(&[USER, USER + 0x2000, USER + 0x1000, 0]),
            ]
            .concat(),
        ),
        (2, longs(&[1 << 30])),
        (31, [longs(&[0, 0]), vec![1, 0, 16, 0, 0, 0, 0, 0]].concat()),
    ] {
        ends(
            &served,
            &format!("request {code} while a queue runs"),
            |monitor, _| {
                monitor.start(0);
                monitor.send(code, 1, &body, &[]);
            },
        );
    }
}

#[test]
fn a_queue_whose_areas_are_taken_away_ends_the_connection() {
    let served = Served::new(memory());
    ends(&served, "memory without the ring", |monitor, _| {
        monitor.start(0);
        let region = longs(&[0, GUEST, MEMORY_BYTES, USER, 0]);
        monitor.send(38, 1, &region, &[]);
    });
}

#[test]
fn a_connection_that_is_cut_anywhere_leaves_the_device() {
    let served = Served::new(memory());
    let guest = Guest::new();
    let table = [
        words(&[5, 1, 40]),
        words(&[1, 0]),
        longs(&[GUEST, MEMORY_BYTES, USER, 0]),
    ]
    .concat();
    for bytes in 0..table.len() {
        let mut monitor = Monitor::connect(&served.path);
        monitor.negotiate();
        monitor.send_bytes(&table[..bytes], &[guest.file.as_fd()]);
        drop(monitor);
    }
    let mut next = Monitor::connect(&served.path);
    next.negotiate();
    next.share(&guest);
    next.start(0);
    assert_eq!(next.stop(), 0);
}

#[test]
fn driver_that_breaks_its_ring_stops_it_alone() {
    let served = Served::new(memory());
    let guest = Guest::new();
    let mut monitor = Monitor::connect(&served.path);
    monitor.negotiate();
    monitor.share(&guest);
    monitor.start(0);
    // More than the ring has.
    guest.ram.store16(0x1002, SIZE + 1);
    monitor.kick();
    assert_eq!(monitor.stop(), 0, "nothing was taken");
    assert_eq!(guest.used_index(), 0);
    guest.ram.store16(0x1002, 0);
    monitor.start(0);
    assert_eq!(monitor.stop(), 0);
}

#[test]
fn queues_of_every_size() {
    const PACKED: u64 = 1 << 34;
    let served = Served::new(memory());
    let others = [1 << 16, (1 << 16) + 16, 1 << 31, u32::MAX];
    for (packed, is_taken) in [
        (
            false,
            (|size| size <= 1024 && u32::is_power_of_two(size)) as fn(u32) -> bool,
        ),
        (true, |size| (1..=1024).contains(&size)),
    ] {
        let connect = || {
            let mut monitor = Monitor::connect(&served.path);
            monitor.negotiate();
            if packed {
                monitor.order(2, &longs(&[1 << 30 | 1 << 32 | PACKED]), &[]);
            }
            monitor
        };
        let mut monitor = connect();
        for size in (0..=1100).chain(others) {
            let answer = monitor.try_order(8, &words(&[0, size]), &[]);
            let expected = if is_taken(size) { 0 } else { 1 };
            assert_eq!(answer, Some(expected), "{size}, packed: {packed}");
            if expected == 1 {
                assert!(monitor.is_over());
                monitor = connect();
            }
        }
    }
}

/// Ends a thread of a test when it is dropped.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What a descriptor or a header says while the device looks at it is taken or not taken, but nothing in between.
#[test]
fn descriptors_and_headers_that_change_while_they_are_read() {
    const STATUS: usize = 0x30_0000;
    const INTO: usize = 0x20_0000;
    const OUTSIDE: u64 = GUEST + MEMORY_BYTES;
    let served = Served::new(memory());
    let mut guest = Guest::new();
    let mut monitor = Monitor::connect(&served.path);
    monitor.negotiate();
    monitor.share(&guest);
    monitor.start(0);
    let ends = AtomicBool::new(false);
    let canary = vec![0xC5; 0x1000];
    // Before, behind and between what the device may write.
    let canaries = [INTO - 0x1000, INTO + 0x2000, STATUS - 0x1000, STATUS + 8];
    for at in canaries {
        guest.put(at, &canary);
    }
    let ram = guest.ram.clone();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let ram = ram;
            let mut random = 1_u64;
            let mut pick = |values: [u64; 4]| {
                // xorshift64.
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                values[(random >> 32) as usize % 4]
            };
            while !ends.load(Ordering::Relaxed) {
                // The type and the sector; the address, length, flags and next of the descriptor of the data. Any mixture of the sectors' bytes is one
                // of the first two blocks, or beyond the end.
                ram.store32(DATA, pick([0, 1, 8, 77]) as u32);
                ram.store64(DATA + 8, pick([0, 8, 1 << 40, 1 << 41]));
                let into = GUEST + INTO as u64;
                ram.store64(16, pick([into, into + 0x1000, OUTSIDE - 0x800, OUTSIDE]));
                ram.store32(24, pick([4096, 4096, u32::MAX.into(), 0]) as u32);
                ram.store16(28, pick([3, 3, 1, 7]) as u16);
                ram.store16(30, pick([2, 2, 1, 9]) as u16);
                std::thread::yield_now();
            }
        });
        // Also where an assertion fails: the scope waits for its thread.
        let _end = Ends(&ends);
        // Requests by how they ended: done, failed, unsupported, without a status.
        let mut seen = [0_u32; 4];
        let until = Instant::now() + PATIENCE;
        while seen.iter().sum::<u32>() < 500 || seen.contains(&0) {
            assert!(Instant::now() < until, "ends of requests: {seen:?}");
            guest.put(STATUS, &[0xAA]);
            guest.restart_chain();
            let at = |offset: usize| GUEST + offset as u64;
            let head = guest.chain_at(&[
                (at(DATA), 16, false),
                (at(INTO), 4096, true),
                (at(STATUS), 1, true),
            ]);
            monitor.kick();
            let (used, written) = guest.wait_used();
            assert_eq!(used, u32::from(head));
            // A loop that ends while it is gone round: the data may be there several times, at most as often as there are descriptors.
            assert!(written <= 4096 * u32::from(SIZE), "{written}");
            let status = guest.get(STATUS, 1)[0];
            seen[usize::from(status.min(3))] += 1;
        }
    });
    for at in canaries {
        assert_eq!(guest.get(at, 0x1000), canary, "{at:#x}");
    }
    // Its disk works, and behind what its chains can have named nothing was written.
    guest.restart_chain();
    guest.put(DATA, &[words(&[0, 0]), longs(&[0])].concat());
    let asked = guest.ask(0, 16, &[], 64 << 10);
    monitor.kick();
    guest.wait_used();
    assert_eq!(guest.status(&asked), 0);
    let mut stored = vec![1; 1 << 20];
    BlockingStore::new(&served.store)
        .unwrap()
        .read(u64::from(SIZE) * 4096, &mut stored)
        .unwrap();
    assert!(stored.iter().all(|byte| *byte == 0));
}

/// Event descriptors that block, the call full and the kick empty but for one: a reactor that waited at them would serve nobody any more. Another disk of the
/// same reactor goes on, and so does this one.
#[test]
fn descriptors_that_block_keep_nobody_waiting() {
    let served = Served::new(memory());
    let (path, _device) = served.another();
    let (mut monitor, mut guest) = (Monitor::connect(&served.path), Guest::new());
    monitor.negotiate();
    monitor.share(&guest);
    monitor.start(0);
    rustix::io::write(&monitor.call, &(u64::MAX - 2).to_ne_bytes()).unwrap();
    for file in [&monitor.call, &monitor.kick] {
        rustix::fs::fcntl_setfl(file, rustix::fs::OFlags::empty()).unwrap();
    }
    for sector in 0..20 {
        let asked = guest.ask(IN, sector * 8, &[], 4096);
        monitor.kick();
        guest.wait_used();
        assert_eq!(guest.status(&asked), 0);
    }
    let (mut other, mut its_guest) = (Monitor::connect(&path), Guest::new());
    other.negotiate();
    other.share(&its_guest);
    other.start(0);
    let asked = its_guest.ask(IN, 0, &[], 4096);
    other.kick();
    its_guest.wait_used();
    assert_eq!(its_guest.status(&asked), 0);
}
