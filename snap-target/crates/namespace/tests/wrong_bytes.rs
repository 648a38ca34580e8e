//! Stored bytes that come wrong: they are read again, from another copy where there is one, and the host sees the right ones or an error.

#![allow(
    clippy::unwrap_used,
    reason = "a failure of a test is a panic with its line"
)]
#![allow(
    clippy::result_large_err,
    reason = "the error is what is tested, as it comes"
)]

#[allow(dead_code, reason = "others take the rest of it")]
#[path = "frames/crew.rs"]
mod crew;
mod support;

use std::sync::Arc;
use std::time::Duration;

use namespace::{EngineConfig, FrameConfig, FrameWorkers, Namespace, NamespaceSet};
use nvme_spec::Status;
use store::SharedStore;
use store::decorate::{Fault, Faulty, Limit, On, What, When};
use store_array::replicas::{self, Member};

use crew::Crew;
use support::{Packed, source};

/// Chains of every kind: read in place, unpacked, decoded.
const CHAINS: [&str; 4] = ["none", "u16", "bitpack:18", "u16+lz4"];
/// Blocks of 4 KiB in the first frame.
const FRAME_BLOCKS: u32 = 16;

/// A byte of the first frame, or granule, is wrong in the reads that this says.
fn liar(packed: &Packed, when: When) -> Faulty {
    let at = packed.volume().streams()[0].stored_offset;
    let fault = Fault {
        on: On::Read,
        range: at..at + 4096,
        when,
        what: What::Corrupt {
            offset: at + 808,
            bits: 0x10,
        },
    };
    Faulty::over(vec![fault], packed.store()).unwrap()
}

fn replicas(stores: Vec<SharedStore>) -> SharedStore {
    let member = |(index, store): (usize, SharedStore)| Member {
        name: format!("copy {}", index + 1),
        store: Ok(store),
    };
    let members = stores.into_iter().enumerate().map(member);
    replicas::open(members.collect(), Duration::from_secs(5)).unwrap()
}

/// One reactor over a store.
fn crew(packed: &Packed, store: SharedStore) -> Crew {
    let namespace = Namespace::of_view(1, packed.volume(), vec![store]);
    Crew::new(1, namespace, &EngineConfig::default())
}

fn expected(lba: u64, blocks: u32) -> Vec<u8> {
    let start = usize::try_from(lba).unwrap() * 4096;
    source()[start..start + blocks as usize * 4096].to_vec()
}

fn assert_counts(crew: &Crew, reads_again: u64, damaged_reads: u64) {
    let counted = (
        crew.sum(|it| it.reads_again),
        crew.sum(|it| it.damaged_reads),
    );
    assert_eq!(counted, (reads_again, damaged_reads));
}

#[test]
fn bytes_that_were_hit_on_their_way_are_read_again() {
    for chain in CHAINS {
        let packed = Packed::new("wrong-once", chain);
        let faulty = liar(&packed, When::Nth(1));
        let mut crew = crew(&packed, faulty.store());
        assert!(crew.read(0, 0, FRAME_BLOCKS).unwrap() == expected(0, FRAME_BLOCKS));
        assert_eq!(faulty.strikes(0), 1);
        assert_counts(&crew, 1, 0);
        assert!(crew.is_idle());
    }
}

#[test]
fn a_store_that_is_always_wrong_is_asked_twice() {
    for chain in CHAINS {
        let packed = Packed::new("wrong-always", chain);
        let faulty = liar(&packed, When::Always);
        let mut crew = crew(&packed, faulty.store());
        for reads in 1..=3 {
            let error = crew.read(0, 0, 1).unwrap_err();
            let status = error.status(false);
            assert_eq!(status, Status::UNRECOVERED_READ_ERROR.dnr(), "{error}");
            assert_eq!(faulty.strikes(0), 2 * reads);
            assert_counts(&crew, reads, reads);
        }
        assert!(crew.is_idle());
    }
}

#[test]
fn another_replica_has_the_right_bytes() {
    for chain in CHAINS {
        let packed = Packed::new("wrong-replica", chain);
        let faulty = liar(&packed, When::Always);
        let store = replicas(vec![faulty.store(), packed.store(), packed.store()]);
        let mut crew = crew(&packed, store.clone());
        assert_eq!(store.problems(), [""; 0]);
        assert!(crew.read(0, 0, 1).unwrap() == expected(0, 1));
        assert_eq!(faulty.strikes(0), 1, "{chain}");
        assert_counts(&crew, 1, 0);
        // Bytes around it too, and what is far away.
        assert!(crew.read(0, 0, FRAME_BLOCKS).unwrap() == expected(0, FRAME_BLOCKS));
        assert!(crew.read(0, 64, 1).unwrap() == expected(64, 1));
        assert_eq!(faulty.strikes(0), 1, "it is not asked for them again");
        assert_counts(&crew, 1, 0);
        let [problem] = &store.problems()[..] else {
            panic!("{:?}", store.problems())
        };
        let says = "replica fault over";
        assert!(
            problem.text.starts_with(says) && problem.text.contains("wrong bytes 1 times"),
            "{problem:?}"
        );
    }
}

/// It is wrong in each block that a read needs, tables and payload: one after the other is found so, and the read goes on with the other replica.
#[test]
fn a_replica_may_be_wrong_everywhere() {
    for chain in CHAINS {
        let packed = Packed::new("wrong-everywhere", chain);
        let bytes = packed.store().bytes();
        let first = packed.volume().streams()[0].stored_offset;
        let faults = (first..bytes - 4096).step_by(4096).map(|at| Fault {
            on: On::Read,
            range: at..at + 4096,
            when: When::Always,
            what: What::Corrupt {
                offset: at + 100,
                bits: 1,
            },
        });
        let faulty = Faulty::over(faults.collect(), packed.store()).unwrap();
        let store = replicas(vec![faulty.store(), packed.store()]);
        let mut crew = crew(&packed, store);
        for lba in [0, 128] {
            assert!(
                crew.read(0, lba, 128).unwrap() == expected(lba, 128),
                "{chain}"
            );
        }
        assert!(crew.sum(|it| it.reads_again) > 1, "{chain}");
        assert_eq!(crew.sum(|it| it.damaged_reads), 0);
    }
}

#[test]
fn where_all_replicas_are_wrong_it_is_an_error() {
    for chain in CHAINS {
        let packed = Packed::new("wrong-replicas", chain);
        let all = [(); 2].map(|()| liar(&packed, When::Always));
        let store = replicas(all.iter().map(Faulty::store).collect());
        let mut crew = crew(&packed, store);
        for reads in 1..=3 {
            let error = crew.read(0, 0, 1).unwrap_err();
            let status = error.status(false);
            assert_eq!(status, Status::UNRECOVERED_READ_ERROR.dnr(), "{error}");
            // Each copy, and one of them once more.
            assert_eq!(all[0].strikes(0) + all[1].strikes(0), 3 * reads);
            assert!(all[0].strikes(0) >= reads && all[1].strikes(0) >= reads);
            assert_counts(&crew, 2 * reads, reads);
        }
    }
}

/// Found by a worker, for requests of several reactors: one fetch more for all of them.
#[test]
fn a_frame_that_a_worker_finds_wrong_is_read_again_for_all() {
    let packed = Packed::new("wrong-worker", "u16+zstd:1");
    let faulty = liar(&packed, When::Always);
    let workers = FrameWorkers::start(1, 3).unwrap();
    let config = EngineConfig {
        frames: FrameConfig {
            workers: Some(workers.queue()),
            decode_inline_ns_max: 0,
            ..FrameConfig::default()
        },
        ..EngineConfig::default()
    };
    let store = replicas(vec![faulty.store(), packed.store()]);
    let namespace = Namespace::of_view(1, packed.volume(), vec![store]);
    let mut crew = Crew::new(3, namespace, &config);
    for member in 0..3 {
        crew.submit(member, member as u64, 1, member as u64);
    }
    for done in crew.wait(3) {
        done.result.unwrap();
        assert!(done.buf.unwrap().to_vec() == expected(done.token, 1));
    }
    assert_eq!(faulty.strikes(0), 1);
    assert_counts(&crew, 1, 0);
    assert_eq!(crew.sum(|it| it.frames_decoded_by_workers), 2);
    assert_eq!(crew.sum(|it| it.frames_decoded), 1);
}

/// A table is wrong once: so are the places that it would have named.
#[test]
fn a_table_that_came_wrong_is_read_again() {
    let packed = Packed::new("wrong-table", "u16+lz4");
    // Everything behind the payload: tables, and the end.
    let volume = packed.volume();
    let stream = &volume.streams()[0];
    let tables = stream.stored_offset + stream.stored_bytes;
    let tables = tables.next_multiple_of(4096);
    let fault = Fault {
        on: On::Read,
        range: tables..tables + 4096,
        when: When::Nth(1),
        what: What::Corrupt {
            offset: tables + 100,
            bits: 1,
        },
    };
    let faulty = Faulty::over(vec![fault], packed.store()).unwrap();
    let mut crew = crew(&packed, faulty.store());
    for lba in (0..256).step_by(16) {
        assert!(crew.read(0, lba, 16).unwrap() == expected(lba, 16));
    }
    assert_eq!(faulty.strikes(0), 1);
    assert_counts(&crew, 1, 0);
}

/// What was fetched ahead is wrong: it is not kept, whichever reactor has it, and the store is asked.
#[test]
fn a_wrong_plain_frame_is_dropped() {
    for reactors in [1, 3] {
        let packed = Packed::new("wrong-plain", "u16");
        let faulty = liar(&packed, When::Nth(1));
        let limit: Limit = "1GB/s,latency=1ms".parse().unwrap();
        let store = limit.over(vec![faulty.store()]).remove(0);
        let namespace = Namespace::of_view(1, packed.volume(), vec![store]);
        let config = EngineConfig {
            prefetch_bytes: 32 << 20,
            ..EngineConfig::default()
        };
        let set = NamespaceSet::new(vec![Arc::new(namespace)]);
        let key = set.all()[0].key;
        let mut crew = Crew::over(reactors, &set, &config);
        crew.members[0].engine.hint(key, &[(0, 16)]);
        while crew.sum(|it| it.prefetched_frames) == 0 {
            crew.turn();
        }
        assert_eq!(faulty.strikes(0), 1);
        assert!(crew.read(0, 0, 1).unwrap() == expected(0, 1));
        assert_counts(&crew, 1, 0);
        let used = crew.sum(|it| it.prefetch_hits);
        assert_eq!((used, crew.sum(|it| it.prefetch_kept_bytes)), (1, 0));
        for member in 0..usize::from(reactors) {
            assert!(crew.read(member, 0, 1).unwrap() == expected(0, 1));
        }
        assert_counts(&crew, 1, 0);
        let unread = crew.members.iter().map(|it| it.engine.unread_bytes());
        assert_eq!(unread.sum::<usize>(), 0);
    }
}

/// Fetched ahead from the replica that is wrong, after the other one served the same bytes: of them nobody knows who did, so nobody is accused.
#[test]
fn nobody_is_accused_for_what_was_fetched_ahead() {
    let packed = Packed::new("wrong-ahead", "u16");
    let volume = packed.volume();
    let stream = &volume.streams()[0];
    let payload = stream.stored_offset..stream.stored_offset + stream.stored_bytes;
    let faults = payload.step_by(4096).map(|at| Fault {
        on: On::Read,
        range: at..at + 4096,
        when: When::Always,
        what: What::Corrupt {
            offset: at,
            bits: 1,
        },
    });
    let faults: Vec<_> = faults.collect();
    let count = faults.len();
    let faulty = Faulty::over(faults, packed.store()).unwrap();
    let strikes = || (0..count).map(|fault| faulty.strikes(fault)).sum::<u64>();
    let limit: Limit = "1GB/s,latency=1ms".parse().unwrap();
    // Of two that have nothing to do, the first is asked.
    let store = replicas(limit.over(vec![packed.store(), faulty.store()]));
    let namespace = Namespace::of_view(1, packed.volume(), vec![store.clone()]);
    let config = EngineConfig {
        prefetch_bytes: 32 << 20,
        ..EngineConfig::default()
    };
    let set = NamespaceSet::new(vec![Arc::new(namespace)]);
    let key = set.all()[0].key;
    let mut crew = Crew::over(1, &set, &config);
    let places = [32, 104, 200];
    for lba in places {
        assert!(crew.read(0, lba, 1).unwrap() == expected(lba, 1));
    }
    assert_eq!(strikes(), 0, "the right one served them");
    let hints: Vec<_> = places.iter().map(|lba| (*lba, 16)).collect();
    crew.members[0].engine.hint(key, &hints);
    // All that came with them: 64 KiB of the store are 32 blocks. Nothing is outstanding then, so that what is asked again goes to the first.
    while crew.sum(|it| it.prefetched_frames) < 5 {
        crew.turn();
    }
    assert!(strikes() > 0, "the wrong one had some of them");
    let before = strikes();
    // Frames from end to end: no byte comes from the store by the way.
    for (lba, count) in [(16, 32), (80, 64), (176, 64)] {
        assert!(crew.read(0, lba, count).unwrap() == expected(lba, count));
    }
    assert_eq!(crew.sum(|it| it.reads_again), 1);
    assert_eq!(strikes(), before);
    assert_eq!(store.problems(), [""; 0]);
    assert_eq!(crew.sum(|it| it.damaged_reads), 0);
}
