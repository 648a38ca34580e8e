//! Another disk under a driver that knows the last one, after a restart: nothing that was meant for the one reaches the other.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use frontend_nvme::conformance::Gate;
use store::BlockingStore;

use super::ledger::{LINGERS_MS, Ledger};
use super::monitor::{F_ALL, Guest, Monitor, copy, longs};
use super::served::{Served, memory};

const IN: u32 = 0;
const OUT: u32 = 1;
const FLUSH: u32 = 4;
const GET_ID: u32 = 8;
const IO_ERROR: u8 = 1;

/// A guest with two writes in flight, as a daemon leaves it that is killed: what its monitor keeps, and where their statuses are.
fn left_in_flight() -> (Guest, Vec<u8>, OwnedFd, [super::monitor::Asked; 2]) {
    let (gate, store) = Gate::over(memory(), 2);
    let (served, mut guest) = (Served::new(store), Guest::new());
    let mut monitor = Monitor::connect(&served.path);
    monitor.negotiate();
    let (about, records) = monitor.inflight();
    monitor.share(&guest);
    monitor.start(0);
    let asked = [
        guest.ask(OUT, 0, &[1; 4096], 0),
        guest.ask(OUT, 8, &[2; 4096], 0),
    ];
    monitor.kick();
    gate.wait_held(2);
    // As all is at this moment: what becomes of the first daemon is seen by nobody.
    let left = (guest.copy(), about, copy(&records), asked);
    gate.open();
    left
}

/// Its monitor has come back, to whoever listens now.
fn back(served: &Served, guest: &Guest, about: &[u8], records: &OwnedFd) -> Monitor {
    let mut monitor = Monitor::connect(&served.path);
    monitor.negotiate();
    monitor.order(32, about, &[records.as_fd()]);
    monitor.share(guest);
    monitor.start(0);
    monitor
}

fn stored(served: &Served) -> Vec<u8> {
    let mut bytes = vec![0; 8192];
    let read = BlockingStore::new(&served.store)
        .unwrap()
        .read(0, &mut bytes);
    read.unwrap();
    bytes
}

#[test]
fn writes_in_flight_do_not_reach_another_disk() {
    type Change = fn(&mut namespace::Namespace);
    let others: [(&str, Change); 3] = [
        ("another UUID", |it| it.identity.uuid[15] ^= 1),
        ("other blocks", |it| {
            it.lba_bytes = 512;
            it.blocks *= 8;
        }),
        ("read-only now", |it| it.write_protected = true),
    ];
    for (what, change) in others {
        let (mut guest, about, records, asked) = left_in_flight();
        let served = Served::with(memory(), change);
        let mut monitor = back(&served, &guest, &about, &records);
        for asked in &asked {
            assert_eq!(guest.wait_used(), (asked.head.into(), 1), "{what}");
            assert_eq!(guest.status(asked), IO_ERROR, "{what}");
        }
        // Its driver goes on with nothing.
        for (kind, out, into) in [
            (IN, vec![], 4096),
            (OUT, vec![3; 4096], 0),
            (FLUSH, vec![], 0),
            (GET_ID, vec![], 20),
        ] {
            let asked = guest.ask(kind, 0, &out, into);
            monitor.kick();
            guest.wait_used();
            assert_eq!(guest.status(&asked), IO_ERROR, "{what}: {kind}");
        }
        assert!(stored(&served) == [0; 8192], "{what}");
        // It begins anew: its monitor asks for another record.
        let base = monitor.stop();
        let (_about, _records) = monitor.inflight();
        monitor.start(base);
        guest.take_back_data();
        let asked = guest.ask(IN, 0, &[], 4096);
        monitor.kick();
        guest.wait_used();
        assert_eq!(guest.status(&asked), 0, "{what}");
    }
}

#[test]
fn the_same_disk_goes_on_wherever_its_record_was_made() {
    // A record of a back-end that says nothing of its disk is shorter.
    for says_nothing in [false, true] {
        let (mut guest, mut about, records, asked) = left_in_flight();
        if says_nothing {
            let bytes = u64::from_le_bytes(about[..8].try_into().unwrap());
            about[..8].copy_from_slice(&(bytes - 64).to_le_bytes());
        }
        let served = Served::new(memory());
        let _monitor = back(&served, &guest, &about, &records);
        for asked in &asked {
            assert_eq!(guest.wait_used(), (asked.head.into(), 1));
            assert_eq!(guest.status(asked), 0);
        }
        assert!(stored(&served) == [[1; 4096], [2; 4096]].concat());
    }
}

#[test]
fn a_driver_with_what_a_disk_does_not_offer_knows_another() {
    const DISCARD: u64 = 1 << 13;
    let served = Served::with(memory(), |namespace| namespace.write_protected = true);
    let mut guest = Guest::new();
    let mut monitor = Monitor::connect(&served.path);
    monitor.negotiate();
    monitor.order(2, &longs(&[F_ALL | DISCARD]), &[]);
    monitor.share(&guest);
    monitor.start(0);
    let asked = guest.ask(IN, 0, &[], 4096);
    monitor.kick();
    guest.wait_used();
    assert_eq!(guest.status(&asked), IO_ERROR);
    let base = monitor.stop();
    monitor.order(2, &longs(&[F_ALL]), &[]);
    monitor.start(base);
    let asked = guest.ask(IN, 0, &[], 4096);
    monitor.kick();
    guest.wait_used();
    assert_eq!(guest.status(&asked), 0);
}

#[test]
fn nothing_is_done_again_before_the_last_writes_cannot_land() {
    let (mut guest, about, records, asked) = left_in_flight();
    let made = Instant::now();
    let (ledger, store) = Ledger::over_lingering(memory());
    let served = Served::new(store);
    let mut monitor = back(&served, &guest, &about, &records);
    let later = guest.ask(OUT, 0, &[3; 4096], 0);
    monitor.kick();
    // What was in flight, and what comes behind it.
    for asked in [asked[0], asked[1], later] {
        assert_eq!(guest.wait_used(), (asked.head.into(), 1));
        assert!(made.elapsed() >= Duration::from_millis(LINGERS_MS.into()));
        assert_eq!(guest.status(&asked), 0);
    }
    assert_eq!(ledger.take(), [("write", false); 3]);
    assert_eq!(monitor.stop(), 3);
    // A driver that has nothing in flight waits for nothing, and so does one that begins.
    for has_record in [false, true] {
        let guest_of = Guest::new();
        let (_, store) = Ledger::over_lingering(memory());
        let served = Served::new(store);
        let mut guest = guest_of;
        let mut monitor = Monitor::connect(&served.path);
        monitor.negotiate();
        let (about, records) = monitor.inflight();
        if has_record {
            monitor.order(32, &about, &[records.as_fd()]);
        }
        monitor.share(&guest);
        monitor.start(0);
        // Stopped at once: what is held would have it wait.
        let asked = guest.ask(OUT, 0, &[1; 4096], 0);
        monitor.kick();
        guest.wait_used();
        assert_eq!(guest.status(&asked), 0);
    }
}
