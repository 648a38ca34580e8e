//! Stores that fail, lie and delay: the exact error each time, and never a wrong byte.

#![allow(
    clippy::unwrap_used,
    reason = "a failure of a test is a panic with its line"
)]
#![allow(
    clippy::result_large_err,
    reason = "the error is what is tested, as it comes"
)]

mod support;

use std::sync::Arc;

use namespace::{
    Asked, Done, Engine, EngineConfig, Identity, Io, Namespace, NamespaceError, NamespaceKey,
    NamespaceSet,
};
use nvme_spec::Status;
use reactor::buf::PoolConfig;
use reactor::{Ring, RingConfig, Wait};
use store::decorate::{Fault, Faulty, On, What, When};
use store::{OpenOptions, SharedStore, StoreSpec};

use support::{Packed, source};

struct Bench {
    ring: Ring,
    engine: Engine,
    key: NamespaceKey,
}

impl Bench {
    fn new(namespace: Namespace, pool: PoolConfig) -> Bench {
        let ring = Ring::new(&RingConfig::default()).unwrap();
        let config = EngineConfig {
            pool,
            ..EngineConfig::default()
        };
        let key = namespace.key;
        let engine = Engine::new(
            &ring,
            &NamespaceSet::new(vec![Arc::new(namespace)]),
            &config,
        )
        .unwrap();
        Bench { ring, engine, key }
    }

    fn wait(&mut self, count: usize) -> Vec<Done> {
        let mut done = Vec::new();
        while done.len() < count {
            self.engine.poll(&mut done);
            if done.len() < count {
                self.ring.turn(Wait::Poll).unwrap();
                while self.ring.next_ready().is_some() {}
            }
        }
        done
    }

    fn read(&mut self, lba: u64, blocks: u32) -> Result<Vec<u8>, NamespaceError> {
        let done = self
            .engine
            .submit(
                self.key,
                Io::Read {
                    lba,
                    blocks,
                    into: None,
                },
                Asked::with(7),
            )
            .or_else(|| self.wait(1).pop())
            .unwrap();
        assert_eq!(done.token, 7);
        done.result.map(|()| done.buf.unwrap().to_vec())
    }
}

fn struck(on: On, range: std::ops::Range<u64>, what: What) -> Fault {
    Fault {
        on,
        range,
        when: When::Always,
        what,
    }
}

#[test]
fn short_failing_and_corrupt_stores_are_errors_and_never_bytes() {
    for chain in ["none", "u16", "u16+lz4"] {
        let packed = Packed::new(&format!("faults-{}", chain.len()), chain);
        let payload = 32768..40960;
        let corrupt = What::Corrupt {
            offset: 33_000,
            bits: 0x04,
        };
        for what in [
            corrupt,
            What::Short { missing: 100 },
            What::Error(reactor::Errno::EIO),
        ] {
            let faulty = Faulty::over(
                vec![struck(On::Read, payload.clone(), what)],
                packed.store(),
            )
            .unwrap();
            let namespace = Namespace::of_view(1, packed.volume(), vec![faulty.store()]);
            let damage = namespace.damage.clone();
            let mut bench = Bench::new(namespace, PoolConfig::default());
            let error = bench.read(0, 1).unwrap_err();
            let met = damage.first().cloned();
            let first = met.as_ref().map(|first| (&first.what[..], first.lba));
            let text = error.to_string();
            let is_damage = what == corrupt;
            assert_eq!(
                first,
                is_damage.then_some((&text[..], Some(0))),
                "{chain}, {what:?}"
            );
            let (matches, status) = match what {
                What::Corrupt { .. } => (
                    matches!(error, NamespaceError::Volume { .. }),
                    Status::UNRECOVERED_READ_ERROR.dnr(),
                ),
                What::Short { .. } => (
                    matches!(error, NamespaceError::Short { .. }),
                    Status::UNRECOVERED_READ_ERROR,
                ),
                _ => (
                    matches!(error, NamespaceError::Store { .. }),
                    Status::UNRECOVERED_READ_ERROR,
                ),
            };
            assert!(matches, "{chain}, {what:?}: {error}");
            assert_eq!(error.status(false), status, "{chain}, {what:?}");
            assert!(faulty.strikes(0) > 0);
            let last = source().len() as u64 / 4096 - 1;
            let start = usize::try_from(last * 4096).unwrap();
            assert!(
                bench.read(last, 1).unwrap() == source()[start..start + 4096],
                "{chain}, {what:?}: elsewhere all is well"
            );
            bench.read(0, 1).unwrap_err();
            assert_eq!(damage.reads(), if is_damage { 2 } else { 0 });
            assert_eq!(damage.first().cloned(), met, "the first stays");
            let counters = bench.engine.counters();
            assert_eq!(counters.damaged_reads, damage.reads(), "{chain}, {what:?}");
        }
    }
}

#[test]
fn a_raw_store_that_returns_less_is_an_error() {
    let memory = SharedStore::open(
        &StoreSpec::Mem { bytes: 1 << 20 },
        OpenOptions::read_write(),
    )
    .unwrap();
    let faults = vec![
        struck(On::Read, 0..4096, What::Short { missing: 1 }),
        struck(On::Write, 8192..12288, What::Error(reactor::Errno::EIO)),
    ];
    let faulty = Faulty::over(faults, memory).unwrap();
    let namespace =
        Namespace::of_store(1, faulty.store(), Identity::of_raw("test", b"short"), 4096);
    let mut bench = Bench::new(namespace, PoolConfig::default());
    let error = bench.read(0, 1).unwrap_err();
    assert!(
        matches!(
            error,
            NamespaceError::Short {
                wanted: 4096,
                got: 4095,
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(bench.read(1, 1).unwrap(), [0; 4096]);
    let data = reactor::buf::IoBuf::from_bytes(&[5; 4096]).unwrap();
    let done = bench
        .engine
        .submit(
            bench.key,
            Io::Write {
                lba: 2,
                data,
                durable: false,
            },
            Asked::with(9),
        )
        .or_else(|| bench.wait(1).pop())
        .unwrap();
    assert_eq!(done.result.unwrap_err().status(true), Status::WRITE_FAULT);
}

/// A pool with room for one request at a time: the others park, and each is answered in its turn with its own bytes.
#[test]
fn requests_that_find_no_memory_wait_their_turn() {
    let packed = Packed::new("parked", "u16+zstd:1");
    let namespace = Namespace::of_view(1, packed.volume(), vec![packed.store()]);
    let pool = PoolConfig {
        slots_4k: 1,
        slots_16k: 1,
        slots_64k: 1,
        slots_128k: 1,
        slots_1m: 1,
        register: false,
    };
    let mut bench = Bench::new(namespace, pool);
    let mut answered = Vec::new();
    for lba in 0..64 {
        answered.extend(bench.engine.submit(
            bench.key,
            Io::Read {
                lba,
                blocks: 1,
                into: None,
            },
            Asked::with(lba),
        ));
    }
    assert!(
        bench.engine.counters().parked > 0,
        "there was room for a few only"
    );
    let whole = source();
    let mut count = 0;
    while count < 64 {
        for done in answered.drain(..) {
            let start = usize::try_from(done.token).unwrap() * 4096;
            done.result.unwrap();
            assert!(
                done.buf.unwrap().to_vec() == whole[start..start + 4096],
                "LBA {}",
                done.token
            );
            count += 1;
        }
        if count < 64 {
            answered = bench.wait(1);
        }
    }
    assert!(!bench.engine.is_busy());
}

#[test]
fn what_lies_beyond_or_is_protected_is_refused() {
    let packed = Packed::new("beyond", "u16");
    let volume = packed.volume();
    let blocks = volume.block_count();
    let mut bench = Bench::new(
        Namespace::of_view(1, volume, vec![packed.store()]),
        PoolConfig::default(),
    );
    for (lba, count) in [(blocks, 1), (blocks - 1, 2), (u64::MAX, 1), (0, 0)] {
        assert_eq!(
            bench.read(lba, count).unwrap_err().status(false),
            Status::LBA_OUT_OF_RANGE.dnr(),
            "{lba}, {count}"
        );
    }
    let data = reactor::buf::IoBuf::from_bytes(&[0; 4096]).unwrap();
    let done = bench
        .engine
        .submit(
            bench.key,
            Io::Write {
                lba: 0,
                data,
                durable: false,
            },
            Asked::with(1),
        )
        .unwrap();
    assert_eq!(
        done.result.unwrap_err().status(true),
        Status::NAMESPACE_WRITE_PROTECTED.dnr()
    );
    let done = bench
        .engine
        .submit(NamespaceKey::next(), Io::Flush, Asked::with(1))
        .unwrap();
    assert_eq!(
        done.result.unwrap_err().status(true),
        Status::INVALID_NAMESPACE.dnr()
    );
}

/// What a host can do about it decides the status: come back later, or make room.
#[test]
fn a_full_store_and_an_unreachable_one_have_a_status_of_their_own() {
    let memory = SharedStore::open(
        &StoreSpec::Mem { bytes: 1 << 20 },
        OpenOptions::read_write(),
    )
    .unwrap();
    let full = What::Error(reactor::Errno::ENOSPC);
    let away = What::Unreachable {
        retry_after_ms: Some(1500),
    };
    let faults = vec![
        struck(On::Write, 0..4096, full),
        struck(On::Write, 4096..8192, away),
        struck(On::Read, 4096..8192, away),
    ];
    let faulty = Faulty::over(faults, memory).unwrap();
    let identity = Identity::of_raw("test", b"full");
    let namespace = Namespace::of_store(1, faulty.store(), identity, 4096);
    let mut bench = Bench::new(namespace, PoolConfig::default());
    for (lba, status) in [
        (0, Status::CAPACITY_EXCEEDED.dnr()),
        (1, Status::NAMESPACE_NOT_READY),
    ] {
        let data = reactor::buf::IoBuf::from_bytes(&[5; 4096]).unwrap();
        let durable = false;
        let write = Io::Write { lba, data, durable };
        let done = bench
            .engine
            .submit(bench.key, write, Asked::with(9))
            .or_else(|| bench.wait(1).pop())
            .unwrap();
        let error = done.result.unwrap_err();
        assert_eq!(error.status(true), status, "{error}");
        assert!(!error.is_media(), "{error}");
    }
    let error = bench.read(1, 1).unwrap_err();
    assert_eq!(error.status(false), Status::NAMESPACE_NOT_READY);
    assert!(
        error.to_string().ends_with("try again in 1500 ms"),
        "{error}"
    );
}
