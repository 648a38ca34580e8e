//! A driver that says whether its disk's cache writes back (VIRTIO_BLK_F_CONFIG_WCE).

use std::os::fd::AsFd;

use super::ledger::Ledger;
use super::monitor::{F_ALL, Guest, Monitor, PROTOCOL, longs, words};
use super::served::{Served, memory};

const OUT: u32 = 1;
const WRITE_ZEROES: u32 = 13;
const CONFIG_WCE: u64 = 1 << 11;
const FLUSH: u64 = 1 << 9;

/// A monitor that has come so far as one that begins: it reads the configuration first.
fn begin(served: &Served, guest: &Guest, features: u64) -> Monitor {
    let mut monitor = Monitor::connect(&served.path);
    monitor.send(16, 1, &longs(&[PROTOCOL]), &[]);
    assert_eq!(writeback(&mut monitor), 1);
    monitor.order(2, &longs(&[features]), &[]);
    monitor.share(guest);
    monitor
}

/// What the configuration space says.
fn writeback(monitor: &mut Monitor) -> u8 {
    monitor.ask(24, &[words(&[32, 1, 0]), vec![0]].concat())[12]
}

/// What becomes of writing bytes of it.
fn set(monitor: &mut Monitor, offset: u32, bytes: &[u8]) -> Option<u64> {
    let length = u32::try_from(bytes.len()).unwrap();
    let body = [words(&[offset, length, 0]), bytes.to_vec()].concat();
    monitor.try_order(25, &body, &[])
}

/// A write, and a range of zeros: whether the store was to make them durable.
fn is_durable(monitor: &Monitor, guest: &mut Guest, ledger: &Ledger) -> bool {
    guest.take_back_data();
    let range = [longs(&[64]), words(&[8, 0])].concat();
    for (kind, out) in [(OUT, vec![1; 4096]), (WRITE_ZEROES, range)] {
        let asked = guest.ask(kind, 0, &out, 0);
        monitor.kick();
        guest.wait_used();
        assert_eq!(guest.status(&asked), 0);
    }
    let came = ledger.take();
    let durable = came[0].1;
    let expected = match durable {
        true => vec![("write", true), ("zero", false), ("flush", true)],
        false => vec![("write", false), ("zero", false)],
    };
    assert_eq!(came, expected);
    durable
}

#[test]
fn the_driver_turns_the_cache_off_and_on() {
    let (ledger, store) = Ledger::over(memory());
    let (served, mut guest) = (Served::new(store), Guest::new());
    let mut monitor = begin(&served, &guest, F_ALL | CONFIG_WCE);
    monitor.start(0);
    assert!(!is_durable(&monitor, &mut guest, &ledger));
    for value in [0, 1, 0] {
        assert_eq!(set(&mut monitor, 32, &[value]), Some(0));
        assert_eq!(writeback(&mut monitor), value);
        assert_eq!(is_durable(&monitor, &mut guest, &ledger), value == 0);
    }
    // A queue that starts later knows it, too.
    let base = monitor.stop();
    monitor.start(base);
    assert!(is_durable(&monitor, &mut guest, &ledger));
}

#[test]
fn other_bytes_are_not_written_and_the_connection_goes_on() {
    let served = Served::new(memory());
    let guest = Guest::new();
    let mut monitor = begin(&served, &guest, F_ALL | CONFIG_WCE);
    let space = monitor.ask(24, &[words(&[0, 60, 0]), vec![0; 60]].concat())[12..].to_vec();
    for (offset, bytes) in [
        (32, vec![2]),
        (32, vec![255]),
        (0, vec![7]),
        (33, vec![1]),
        (31, vec![1, 0]),
    ] {
        assert_eq!(
            set(&mut monitor, offset, &bytes),
            Some(1),
            "{offset}: {bytes:?}"
        );
    }
    // All of it as it is, but for the one byte.
    let mut changed = space.clone();
    changed[32] = 0;
    assert_eq!(set(&mut monitor, 0, &changed), Some(0));
    assert_eq!(writeback(&mut monitor), 0);
    // Nobody who has not negotiated it may.
    let mut monitor = {
        drop(monitor);
        begin(&served, &guest, F_ALL)
    };
    assert_eq!(set(&mut monitor, 32, &[0]), Some(1));
    assert_eq!(writeback(&mut monitor), 1);
}

#[test]
fn a_driver_that_does_not_flush_has_a_cache_that_writes_through() {
    let (ledger, store) = Ledger::over(memory());
    let (served, mut guest) = (Served::new(store), Guest::new());
    let mut monitor = begin(&served, &guest, (F_ALL | CONFIG_WCE) & !FLUSH);
    monitor.start(0);
    assert!(is_durable(&monitor, &mut guest, &ledger));
}

#[test]
fn a_driver_that_comes_back_has_what_it_was_told() {
    let (ledger, store) = Ledger::over(memory());
    let served = Served::new(store);
    for value in [0, 1] {
        let mut guest = Guest::new();
        let mut monitor = begin(&served, &guest, F_ALL | CONFIG_WCE);
        let (about, records) = monitor.inflight();
        monitor.start(0);
        assert_eq!(set(&mut monitor, 32, &[value]), Some(0));
        drop(monitor);
        // It does not read the configuration again.
        let mut monitor = Monitor::connect(&served.path);
        monitor.send(16, 1, &longs(&[PROTOCOL]), &[]);
        monitor.order(2, &longs(&[F_ALL | CONFIG_WCE]), &[]);
        monitor.order(32, &about, &[records.as_fd()]);
        monitor.share(&guest);
        monitor.start(0);
        assert_eq!(is_durable(&monitor, &mut guest, &ledger), value == 0);
        assert_eq!(writeback(&mut monitor), value);
    }
    // One without a record may have been told anything.
    let mut guest = Guest::new();
    let mut monitor = Monitor::connect(&served.path);
    monitor.send(16, 1, &longs(&[PROTOCOL]), &[]);
    monitor.order(2, &longs(&[F_ALL | CONFIG_WCE]), &[]);
    monitor.share(&guest);
    monitor.start(0);
    assert!(is_durable(&monitor, &mut guest, &ledger));
    assert_eq!(writeback(&mut monitor), 0);
}
