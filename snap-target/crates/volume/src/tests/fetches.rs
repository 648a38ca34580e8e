//! Drivers that break the contract, or whose store does: each case has its error, and the operation can be used again.

use transforms::Scratch;

use super::driver::Driver;
use super::sample::small_volume;
use crate::blocking::{ReadAt, open};
use crate::limits::READ_BYTES_MAX;
use crate::{
    Cache, ErrorKind, Fetch, FetchId, Opening, OutBuf, Progress, ReadOp, SourceId, Volume,
    VolumeError,
};

fn bytes_of(store: &[u8], fetch: &Fetch) -> Vec<u8> {
    let mut bytes = vec![0; fetch.len as usize];
    assert_eq!(
        store
            .read_at(SourceId::OWN, fetch.offset, &mut bytes)
            .unwrap(),
        bytes.len()
    );
    bytes
}

struct Bench {
    store: Vec<u8>,
    presented: Vec<u8>,
    volume: Volume,
    cache: Cache,
    scratch: Scratch,
    op: ReadOp,
    memory: Vec<u8>,
}

impl Bench {
    fn new() -> Bench {
        let (store, presented) = small_volume();
        Bench {
            volume: open(&store, store.len() as u64).unwrap(),
            store,
            presented,
            cache: Cache::new(0),
            scratch: Scratch::new(),
            op: ReadOp::new(),
            memory: vec![0; 4096],
        }
    }

    /// Starts a read of the first 4 KiB.
    fn start(&mut self) -> Progress {
        self.op.start(&self.volume, 0..4096).unwrap();
        let out = OutBuf::from_slice(&mut self.memory);
        self.op
            .step(&self.volume, &mut self.cache, &mut self.scratch, &out)
            .unwrap()
    }

    fn fetched(&mut self, id: FetchId, bytes: &[&[u8]]) -> Result<(), VolumeError> {
        let out = OutBuf::from_slice(&mut self.memory);
        let (cache, scratch) = (&mut self.cache, &mut self.scratch);
        self.op
            .fetched(id, bytes, &self.volume, cache, scratch, &out)
    }

    /// A read that goes as it should.
    fn works(&mut self) {
        let mut driver = Driver::new(0);
        std::mem::swap(&mut driver.op, &mut self.op);
        let (found, _) = driver.read(&self.volume, &self.store, 0..4096).unwrap();
        std::mem::swap(&mut driver.op, &mut self.op);
        assert!(found == self.presented[..4096]);
    }
}

#[test]
fn a_short_or_long_fetch_is_refused_with_its_place() {
    for wrong in [0, 1, 4095, 4097] {
        let mut bench = Bench::new();
        assert_eq!(bench.start(), Progress::Fetching);
        let fetch = bench.op.next_fetch().unwrap();
        let error = bench.fetched(fetch.id, &[&vec![0; wrong]]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        assert_eq!(error.presented_byte(), Some(0));
        let VolumeError::ShortFetch {
            source_id,
            offset,
            expected,
            found,
        } = error.cause()
        else {
            panic!("{error}")
        };
        assert_eq!(*source_id, SourceId::OWN);
        assert_eq!(*offset, fetch.offset);
        assert_eq!((*expected, *found), (4096, wrong as u64));
        bench.works();
    }
}

#[test]
fn a_fetch_that_is_not_under_way_is_refused_and_changes_nothing() {
    let mut bench = Bench::new();
    bench.start();
    // Not taken yet, never asked for.
    for id in [FetchId(0), FetchId(1), FetchId(u64::MAX)] {
        let error = bench.fetched(id, &[&[0; 4096]]).unwrap_err();
        assert!(matches!(error, VolumeError::UnknownFetch { .. }), "{error}");
    }
    let fetch = bench.op.next_fetch().unwrap();
    let bytes = bytes_of(&bench.store, &fetch);
    bench.fetched(fetch.id, &[&bytes]).unwrap();
    // Handed over twice.
    let error = bench.fetched(fetch.id, &[&bytes]).unwrap_err();
    assert!(matches!(error, VolumeError::UnknownFetch { .. }), "{error}");
    assert_eq!(error.kind(), ErrorKind::Usage);
    // The operation goes on.
    while bench.op.progress() == Progress::Fetching {
        let fetch = bench.op.next_fetch().unwrap();
        let bytes = bytes_of(&bench.store, &fetch);
        bench.fetched(fetch.id, &[&bytes]).unwrap();
        if let crate::Placement::Direct { out_offset } = fetch.placement {
            let at = out_offset as usize;
            bench.memory[at..at + bytes.len()].copy_from_slice(&bytes);
        }
    }
    assert!(bench.memory == bench.presented[..4096]);
}

#[test]
fn a_late_answer_to_an_earlier_read_is_refused() {
    let mut bench = Bench::new();
    bench.start();
    let stale = bench.op.next_fetch().unwrap();
    bench.start();
    let fetch = bench.op.next_fetch().unwrap();
    assert_ne!(stale.id, fetch.id);
    let bytes = bytes_of(&bench.store, &stale);
    let error = bench.fetched(stale.id, &[&bytes]).unwrap_err();
    assert!(matches!(error, VolumeError::UnknownFetch { .. }), "{error}");
    bench.works();
}

#[test]
fn stale_bytes_are_refused() {
    // Whole blocks and granules, of another place of the same volume.
    let mut bench = Bench::new();
    bench.start();
    let root = bench.op.next_fetch().unwrap();
    let checksums = bench.volume.streams()[0].stored_offset;
    let mut elsewhere = root;
    elsewhere.offset = checksums;
    let bytes = bytes_of(&bench.store, &elsewhere);
    let error = bench.fetched(root.id, &[&bytes]).unwrap_err();
    assert!(
        matches!(error.cause(), VolumeError::Checksum { .. }),
        "{error}"
    );

    bench.start();
    loop {
        let fetch = bench.op.next_fetch().unwrap();
        let is_payload = fetch.offset < 61_440 + 24_576;
        let mut from = fetch;
        if is_payload {
            assert_eq!(fetch.offset, 32_768);
            from.offset = 36_864;
        }
        let bytes = bytes_of(&bench.store, &from);
        match bench.fetched(fetch.id, &[&bytes]) {
            Ok(()) => assert!(!is_payload),
            Err(error) => {
                assert!(is_payload);
                assert!(
                    matches!(error.cause(), VolumeError::Checksum { .. }),
                    "{error}"
                );
                break;
            }
        }
    }
    bench.works();
}

#[test]
fn after_an_error_nothing_is_asked_for_until_the_next_start() {
    let mut bench = Bench::new();
    bench.start();
    let fetch = bench.op.next_fetch().unwrap();
    assert!(bench.fetched(fetch.id, &[&[0; 4096]]).is_err());
    assert_eq!(bench.op.next_fetch(), None);
    assert_eq!(bench.op.progress(), Progress::Fetching);
    let out = OutBuf::from_slice(&mut bench.memory);
    let error = bench
        .op
        .step(&bench.volume, &mut bench.cache, &mut bench.scratch, &out)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Usage);
    assert!(bench.fetched(fetch.id, &[&[0; 4096]]).is_err());
    bench.works();
}

#[test]
fn ranges_and_destinations_that_do_not_fit_are_refused() {
    let mut bench = Bench::new();
    let last = bench.volume.block_count() * 512;
    let backward = std::ops::Range { start: 5, end: 4 };
    let beyond = [
        0..last + 1,
        last..last + 512,
        u64::MAX - 1..u64::MAX,
        backward,
    ];
    for range in beyond {
        let error = bench.op.start(&bench.volume, range).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfRange);
    }
    assert!(READ_BYTES_MAX > last);
    bench.op.start(&bench.volume, 0..8192).unwrap();
    let out = OutBuf::from_slice(&mut bench.memory);
    let error = bench
        .op
        .step(&bench.volume, &mut bench.cache, &mut bench.scratch, &out)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Usage);
    // A read of nothing is done at once.
    let mut driver = Driver::new(0);
    for at in [0, 77, last] {
        let (found, counters) = driver.read(&bench.volume, &bench.store, at..at).unwrap();
        assert_eq!((found.len(), counters.fetches), (0, 0));
    }
    // So is one of what lies after the exact end.
    let exact = bench.presented.len() as u64;
    assert!(exact < last);
    let (found, counters) = driver
        .read(&bench.volume, &bench.store, exact..last)
        .unwrap();
    assert!(found.iter().all(|byte| *byte == 0));
    assert_eq!(counters.fetches, 0);
    bench.works();
}

#[test]
fn opening_refuses_short_and_unknown_fetches() {
    let (store, _) = small_volume();
    let mut opening = Opening::new(store.len() as u64);
    let error = opening.fetched(FetchId(0), &[0; 4096]).unwrap_err();
    assert!(
        matches!(error, VolumeError::UnknownFetch { id: 0 }),
        "{error}"
    );
    let fetch = opening.next_fetch().unwrap();
    let error = opening.fetched(fetch.id, &[0; 4095]).unwrap_err();
    assert!(
        matches!(
            error,
            VolumeError::ShortFetch {
                expected: 4096,
                found: 4095,
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(opening.next_fetch(), None);
    assert_eq!(opening.finish().unwrap_err().kind(), ErrorKind::Usage);

    let mut opening = Opening::new(store.len() as u64);
    assert!(opening.next_fetch().is_some());
    assert_eq!(opening.finish().unwrap_err().kind(), ErrorKind::Usage);
}
