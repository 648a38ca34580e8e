//! What the decorators do, and which settings they refuse.

use std::time::{Duration, Instant};

use nix::errno::Errno;
use reactor::buf::IoBuf;
use reactor::{Ring, RingConfig, Wait};
use store::decorate::{Delay, Fault, Faulty, Limit, On, What, When};
use store::{
    BlockingStore, Completion, ErrorKind, Op, OpenOptions, SharedStore, Store, StoreError,
    StoreSpec, Terms, Token,
};

const BYTES: u64 = 1 << 20;

fn mem(options: OpenOptions) -> SharedStore {
    SharedStore::open(&StoreSpec::Mem { bytes: BYTES }, options).unwrap()
}

/// A handle and the completions that were polled but not yet looked at.
struct Handle {
    ring: Ring,
    store: Box<dyn Store>,
    done: Vec<Completion>,
}

impl Handle {
    fn new(shared: &SharedStore) -> Self {
        let ring = Ring::new(&RingConfig::default()).unwrap();
        Self {
            store: shared.open_handle(&ring).unwrap(),
            ring,
            done: Vec::new(),
        }
    }

    fn submit(&mut self, op: Op, buf: Option<IoBuf>, token: u64) {
        self.store
            .submit(op, buf, Token(token), Terms::default())
            .unwrap();
    }

    /// The oldest completion.
    fn wait(&mut self) -> Completion {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            self.store.poll(&mut self.done);
            if !self.done.is_empty() {
                return self.done.remove(0);
            }
            self.ring
                .turn(Wait::Block {
                    until: Some(deadline),
                })
                .unwrap();
            assert!(Instant::now() < deadline, "no completion came");
        }
    }
}

#[test]
fn delayed_operations_take_their_time_and_no_sleep_is_missed() {
    let ms = Duration::from_millis;
    let shared = Delay {
        read: ms(12),
        change: ms(4),
        flush: Duration::ZERO,
    }
    .over(mem(OpenOptions::read_write()))
    .unwrap();
    let mut handle = Handle::new(&shared);
    let start = Instant::now();
    let buf = || Some(IoBuf::heap(512).unwrap());
    handle.submit(Op::Read { offset: 0 }, buf(), 1);
    handle.submit(
        Op::Write {
            offset: 0,
            durable: false,
        },
        buf(),
        2,
    );
    handle.submit(Op::Flush, None, 3);
    // On a busy machine several are due by the time anybody looks; none may be early.
    let at_least = [ms(12), ms(4), ms(0)];
    let mut seen = [false; 3];
    for _ in 0..3 {
        let done = handle.wait();
        assert!(done.result.is_ok());
        let which = usize::try_from(done.token.0 - 1).unwrap();
        assert!(
            start.elapsed() >= at_least[which],
            "{:?} is early",
            done.token
        );
        assert!(!std::mem::replace(&mut seen[which], true), "once each");
    }
    assert!(
        handle.store.lease(0, 512).is_none(),
        "no way around the delay"
    );
}

#[test]
fn two_stores_share_the_line_of_a_limit_and_latencies_overlap() {
    let limit: Limit = "100MB/s,latency=20ms".parse().unwrap();
    let inner = vec![
        mem(OpenOptions::read_write()),
        mem(OpenOptions::read_write()),
    ];
    let mut handles: Vec<Handle> = limit.over(inner).iter().map(Handle::new).collect();
    let start = Instant::now();
    let len = 1_000_000;
    for handle in &mut handles {
        let buf = IoBuf::heap(len).unwrap();
        handle.submit(Op::Read { offset: 0 }, Some(buf), 1);
        handle.submit(Op::Flush, None, 2);
    }
    // 10 ms for each of the two on the line, and 20 ms latency for both at the same time.
    let at_least = [[30, 20], [40, 20]].map(|both| both.map(Duration::from_millis));
    for (handle, at_least) in handles.iter_mut().zip(at_least) {
        for _ in 0..2 {
            let done = handle.wait();
            assert!(done.result.is_ok());
            let which = usize::try_from(done.token.0 - 1).unwrap();
            assert!(start.elapsed() >= at_least[which], "{:?}", done.token);
        }
    }
    assert!(
        start.elapsed() < Duration::from_secs(10),
        "they end with the line, not with an alarm that is missed"
    );
}

/// Whoever lends a host's memory to a store that ends in submit lends it to none that holds what has ended.
#[test]
fn what_holds_operations_does_not_end_in_submit() {
    let open = || mem(OpenOptions::read_write());
    assert!(open().limits().ends_in_submit);
    let delay = Delay {
        change: Duration::from_millis(1),
        ..Delay::default()
    };
    assert!(!delay.over(open()).unwrap().limits().ends_in_submit);
    let limit: Limit = "100MB/s".parse().unwrap();
    let [limited] = &limit.over(vec![open()])[..] else {
        panic!("one store, one limited")
    };
    assert!(!limited.limits().ends_in_submit);
}

#[test]
fn cancelling_ends_a_delay() {
    let long = Duration::from_secs(50);
    let shared = Delay {
        read: long,
        ..Delay::default()
    }
    .over(mem(OpenOptions::read_write()))
    .unwrap();
    let mut handle = Handle::new(&shared);
    let start = Instant::now();
    handle.submit(Op::Read { offset: 0 }, Some(IoBuf::heap(1).unwrap()), 1);
    handle.store.poll(&mut handle.done);
    assert!(handle.done.is_empty());
    handle.store.cancel(Token(1));
    assert_eq!(handle.wait().token, Token(1));
    assert!(start.elapsed() < long / 2);
}

#[test]
fn delays_that_cannot_take_effect_are_refused() {
    let some = Duration::from_millis(1);
    for (delay, options, part) in [
        (Delay::default(), OpenOptions::read_write(), "no delay"),
        (
            Delay {
                read: Duration::from_secs(61),
                ..Delay::default()
            },
            OpenOptions::read_write(),
            "60 s",
        ),
        (
            Delay {
                change: some,
                ..Delay::default()
            },
            OpenOptions::read_only(),
            "read-only",
        ),
    ] {
        let error = delay.over(mem(options)).unwrap_err();
        assert!(matches!(
            error,
            StoreError::Decorator {
                decorator: "delay",
                ..
            }
        ));
        assert!(error.to_string().contains(part), "{error}");
    }
}

fn fault(on: On, range: std::ops::Range<u64>, when: When, what: What) -> Fault {
    Fault {
        on,
        range,
        when,
        what,
    }
}

fn content() -> Vec<u8> {
    (0..4096u32).map(|i| i.to_le_bytes()[0] ^ 0x11).collect()
}

/// A store with the content at its start, and one fault.
fn faulty(fault: Fault) -> (Faulty, BlockingStore) {
    let inner = mem(OpenOptions::read_write());
    BlockingStore::new(&inner)
        .unwrap()
        .write(0, &content())
        .unwrap();
    let faulty = Faulty::over(vec![fault], inner).unwrap();
    let store = BlockingStore::new(&faulty.store()).unwrap();
    (faulty, store)
}

#[test]
fn errors_strike_where_and_when_told() {
    let (faulty, mut store) = faulty(fault(
        On::Read,
        1000..1001,
        When::Nth(2),
        What::Error(Errno::EIO),
    ));
    let mut out = vec![0; 1000];
    store.read(0, &mut out).unwrap();
    store.read(1001, &mut out).unwrap();
    assert_eq!(faulty.strikes(0), 0, "none of these touched the byte");
    store.read(500, &mut out).unwrap();
    let error = store.read(1000, &mut out).unwrap_err();
    assert!(
        matches!(
            &error,
            StoreError::Io {
                what: "reading",
                offset: 1000,
                source: Errno::EIO,
                ..
            }
        ),
        "{error:?}"
    );
    assert_eq!(error.kind(), ErrorKind::Io);
    store.read(1000, &mut out).unwrap();
    assert!(out == content()[1000..2000], "the third is well again");
    assert_eq!((faulty.strikes(0), faulty.strikes(1)), (1, 0));
}

#[test]
fn a_failed_write_or_flush_did_not_happen() {
    let (_, mut store) = faulty(fault(
        On::Write,
        0..BYTES,
        When::EveryNth(2),
        What::Error(Errno::ENOSPC),
    ));
    store.write(0, &[1; 4]).unwrap();
    assert!(store.write(0, &[2; 4]).is_err());
    let mut out = [0; 5];
    store.read(0, &mut out).unwrap();
    assert_eq!(out, [1, 1, 1, 1, content()[4]]);
    let (faulty, mut store) = faulty(fault(
        On::Flush,
        0..0,
        When::Always,
        What::Error(Errno::EIO),
    ));
    assert!(store.run(Op::Flush).is_err());
    assert!(store.run(Op::Flush).is_err());
    assert_eq!(faulty.strikes(0), 2);
}

#[test]
fn one_byte_comes_corrupt() {
    let (faulty, mut store) = faulty(fault(
        On::Read,
        0..BYTES,
        When::Always,
        What::Corrupt {
            offset: 700,
            bits: 0x40,
        },
    ));
    let mut out = vec![0; 4096];
    store.read(0, &mut out).unwrap();
    let mut expected = content();
    expected[700] ^= 0x40;
    assert!(out == expected);
    store.read(701, &mut out[..1000]).unwrap();
    assert!(
        out[..1000] == content()[701..1701],
        "a read that does not cover it is right"
    );
    assert_eq!(faulty.strikes(0), 2);
}

#[test]
fn a_lost_write_leaves_stale_bytes() {
    let (faulty, mut store) = faulty(fault(On::Write, 100..200, When::Nth(1), What::Stale));
    store.write(150, &[9; 10]).unwrap();
    let mut out = vec![0; 4096];
    store.read(0, &mut out).unwrap();
    assert!(out == content(), "acknowledged and lost");
    store.write(150, &[9; 10]).unwrap();
    store.read(150, &mut out[..10]).unwrap();
    assert_eq!((&out[..10], faulty.strikes(0)), (&[9; 10][..], 1));
}

#[test]
fn short_transfers_say_how_short_and_leave_junk() {
    let inner = mem(OpenOptions::read_write());
    BlockingStore::new(&inner)
        .unwrap()
        .write(0, &content())
        .unwrap();
    let faults = vec![
        fault(
            On::Read,
            0..BYTES,
            When::Always,
            What::Short { missing: 100 },
        ),
        fault(
            On::Write,
            0..BYTES,
            When::Always,
            What::Short { missing: 100 },
        ),
    ];
    let shared = Faulty::over(faults, inner.clone()).unwrap().store();
    let mut handle = Handle::new(&shared);
    handle.submit(Op::Read { offset: 0 }, Some(IoBuf::heap(512).unwrap()), 1);
    let done = handle.wait();
    assert_eq!(done.result, Ok(412));
    let got = done.buf.unwrap().to_vec();
    assert!(got[..412] == content()[..412] && got[412..] == [0xee; 100]);

    for (len, transferred) in [(300, 200), (50, 0)] {
        let data = IoBuf::from_bytes(&vec![3; len]).unwrap();
        let op = Op::Write {
            offset: 1000,
            durable: false,
        };
        handle.submit(op, Some(data), 1);
        let done = handle.wait();
        assert_eq!(
            (done.result, done.buf.map(|buf| buf.len())),
            (Ok(transferred), Some(len)),
            "the whole buffer comes back"
        );
    }
    let mut out = vec![0; 300];
    BlockingStore::new(&inner)
        .unwrap()
        .read(1000, &mut out)
        .unwrap();
    assert!(
        out[..200] == [3; 200] && out[200..] == content()[1200..1300],
        "and the rest was not written"
    );
}

#[test]
fn faults_that_cannot_strike_are_refused() {
    let all = 0..BYTES;
    for (fault, part) in [
        (
            fault(On::Read, 5..5, When::Always, What::Error(Errno::EIO)),
            "empty",
        ),
        (
            fault(
                On::Read,
                0..BYTES + 1,
                When::Always,
                What::Error(Errno::EIO),
            ),
            "beyond the end",
        ),
        (
            fault(On::Read, all.clone(), When::Nth(0), What::Error(Errno::EIO)),
            "counted from 1",
        ),
        (
            fault(
                On::Read,
                all.clone(),
                When::EveryNth(0),
                What::Error(Errno::EIO),
            ),
            "counted from 1",
        ),
        (
            fault(
                On::Read,
                all.clone(),
                When::Always,
                What::Corrupt { offset: 1, bits: 0 },
            ),
            "no bit",
        ),
        (
            fault(
                On::Read,
                0..10,
                When::Always,
                What::Corrupt {
                    offset: 10,
                    bits: 1,
                },
            ),
            "outside",
        ),
        (
            fault(
                On::Write,
                all.clone(),
                When::Always,
                What::Corrupt { offset: 1, bits: 1 },
            ),
            "reads only",
        ),
        (
            fault(
                On::Read,
                all.clone(),
                When::Always,
                What::Short { missing: 0 },
            ),
            "misses no byte",
        ),
        (
            fault(On::Flush, 0..0, When::Always, What::Short { missing: 1 }),
            "no length",
        ),
        (
            fault(On::Read, all.clone(), When::Always, What::Stale),
            "only a write",
        ),
    ] {
        let error = Faulty::over(vec![fault], mem(OpenOptions::read_write())).unwrap_err();
        assert!(matches!(
            error,
            StoreError::Decorator {
                decorator: "fault",
                ..
            }
        ));
        assert!(error.to_string().contains(part), "{error}");
    }
    let write = fault(On::Write, all, When::Always, What::Stale);
    let error = Faulty::over(vec![write], mem(OpenOptions::read_only())).unwrap_err();
    assert!(error.to_string().contains("read-only"), "{error}");
}
