//! Requests in flight while memory goes, queues stop, or the connection is lost.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use frontend_nvme::conformance::Gate;
use store::BlockingStore;

use super::monitor::{
    GUEST, Guest, MEMORY_BYTES, Monitor, PROTOCOL, USER, longs, memory_file, words,
};
use super::served::{Served, memory};

const OUT: u32 = 1;
const INFLIGHT_SHMFD: u64 = 1 << 12;
/// What must not happen has happened by then, or it does not.
const A_WHILE: Duration = Duration::from_millis(300);

fn running(served: &Served, guest: &Guest) -> Monitor {
    running_from(served, guest, 0)
}

fn running_from(served: &Served, guest: &Guest, base: u32) -> Monitor {
    let mut monitor = Monitor::connect(&served.path);
    monitor.negotiate();
    monitor.share(guest);
    monitor.start(base);
    monitor
}

/// Whether an event was told since the last time.
fn take(event: &OwnedFd) -> bool {
    rustix::io::read(event, &mut [0; 8]).is_ok()
}

/// Whether a reply is there within a while.
fn is_answered(monitor: &Monitor) -> bool {
    monitor.socket.set_read_timeout(Some(A_WHILE)).unwrap();
    let mut byte = [0];
    let peeked = rustix::net::recv(&monitor.socket, &mut byte[..], rustix::net::RecvFlags::PEEK);
    monitor
        .socket
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    peeked.is_ok()
}

#[test]
fn a_queue_stops_when_what_it_took_has_ended() {
    let (gate, store) = Gate::over(memory(), 2);
    let (served, mut guest) = (Served::new(store), Guest::new());
    let mut monitor = running(&served, &guest);
    let asked = [
        guest.ask(OUT, 0, &[1; 4096], 0),
        guest.ask(OUT, 8, &[2; 4096], 0),
    ];
    monitor.kick();
    gate.wait_held(2);
    monitor.send(11, 1, &words(&[0, 0]), &[]);
    assert!(!is_answered(&monitor));
    assert_eq!(guest.used_index(), 0);
    gate.open();
    let (code, body) = monitor.receive().unwrap();
    assert_eq!(
        (code, body),
        (11, words(&[0, 2])),
        "it would go on behind both"
    );
    assert_eq!(guest.used_index(), 2);
    assert_eq!(asked.map(|asked| guest.status(&asked)), [0, 0]);
    // And it goes on there.
    monitor.start(2);
    let third = guest.ask(OUT, 16, &[3; 4096], 0);
    monitor.kick();
    for _ in 0..3 {
        guest.wait_used();
    }
    assert_eq!(guest.status(&third), 0);
}

#[test]
fn memory_goes_when_nothing_touches_it() {
    let (gate, store) = Gate::over(memory(), 1);
    let (served, mut guest) = (Served::new(store), Guest::new());
    let mut monitor = running(&served, &guest);
    // Another region, whose bytes are written from: the queue's own stays.
    let more = memory_file(1 << 20);
    let region = longs(&[0, GUEST + MEMORY_BYTES, 1 << 20, USER + MEMORY_BYTES, 0]);
    monitor.order(37, &region, &[more.as_fd()]);
    let header = 0x20_0000;
    guest.put(header, &[words(&[OUT, 0]), longs(&[0])].concat());
    guest.chain_at(&[
        (GUEST + header as u64, 16, false),
        (GUEST + MEMORY_BYTES, 4096, false),
        (GUEST + header as u64 + 64, 1, true),
    ]);
    monitor.kick();
    gate.wait_held(1);
    monitor.send(38, 1 | 8, &region, &[]);
    assert!(!is_answered(&monitor), "what is in flight may touch it");
    gate.open();
    let answer = monitor.receive().unwrap();
    assert_eq!(answer, (38, longs(&[0])));
    assert_eq!(guest.wait_used().1, 1);
    assert_eq!(monitor.try_order(38, &region, &[]), Some(1), "it is gone");
}

#[test]
fn what_is_in_flight_when_the_connection_is_lost_is_done_again_by_the_next() {
    let (gate, store) = Gate::over(memory(), 2);
    let (served, mut guest) = (Served::new(store), Guest::new());
    let mut monitor = Monitor::connect(&served.path);
    monitor.negotiate();
    let (about, records) = monitor.inflight();
    monitor.order(32, &about, &[records.as_fd()]);
    monitor.share(&guest);
    monitor.start(0);
    let asked = [
        guest.ask(OUT, 0, &[1; 4096], 0),
        guest.ask(OUT, 8, &[2; 4096], 0),
    ];
    monitor.kick();
    gate.wait_held(2);
    let (kick, call) = (
        monitor.kick.try_clone().unwrap(),
        monitor.call.try_clone().unwrap(),
    );
    drop(monitor);
    // Nothing is begun while the old requests may still land.
    let mut next = Monitor::connect(&served.path);
    (next.kick, next.call) = (kick, call);
    next.send(1, 1, &[], &[]);
    assert!(
        !is_answered(&next),
        "the next connection waits for the last one's requests"
    );
    gate.open();
    assert_eq!(next.receive().unwrap().0, 1);
    assert_eq!(
        guest.used_index(),
        0,
        "the lost connection tells the guest nothing"
    );
    next.negotiate();
    next.order(32, &about, &[records.as_fd()]);
    next.share(&guest);
    // The monitor of a device that was killed knows the used index only.
    next.start(0);
    assert_eq!(guest.wait_used(), (asked[0].head.into(), 1));
    assert_eq!(guest.wait_used(), (asked[1].head.into(), 1));
    assert_eq!(asked.map(|asked| guest.status(&asked)), [0, 0]);
    let mut stored = [0; 8192];
    BlockingStore::new(&served.store)
        .unwrap()
        .read(0, &mut stored)
        .unwrap();
    assert_eq!(stored, [[1; 4096], [2; 4096]].concat()[..]);
    // Once.
    let third = guest.ask(OUT, 16, &[3; 4096], 0);
    next.kick();
    assert_eq!(guest.wait_used(), (third.head.into(), 1));
    assert_eq!(guest.used_index(), 3);
}

#[test]
fn a_device_that_ends_is_taken_up_by_the_next() {
    let (mut served, mut guest) = (Served::new(memory()), Guest::new());
    let mut monitor = Monitor::connect(&served.path);
    monitor.negotiate();
    let (about, records) = monitor.inflight();
    monitor.share(&guest);
    monitor.start(0);
    guest.ask(OUT, 0, &[1; 4096], 0);
    monitor.kick();
    guest.wait_used();
    served.listen_again();
    assert!(monitor.is_over());
    guest.ask(OUT, 8, &[2; 4096], 0);
    let mut next = Monitor::connect(&served.path);
    next.negotiate();
    next.order(32, &about, &[records.as_fd()]);
    next.share(&guest);
    next.start(0);
    guest.wait_used();
    assert_eq!(guest.used_index(), 2);
}

#[test]
fn a_planned_stop_answers_what_it_took_before_the_connection_ends() {
    let (gate, store) = Gate::over(memory(), 2);
    let (mut served, mut guest) = (Served::new(store), Guest::new());
    let mut monitor = Monitor::connect(&served.path);
    // Nobody keeps what is in flight: an answer that does not come now never comes.
    monitor.negotiate_only(PROTOCOL & !INFLIGHT_SHMFD);
    monitor.share(&guest);
    monitor.start(0);
    let asked = [
        guest.ask(OUT, 0, &[1; 4096], 0),
        guest.ask(OUT, 8, &[2; 4096], 0),
    ];
    monitor.kick();
    gate.wait_held(2);
    take(&monitor.call);
    served.device.as_ref().unwrap().begin_end();
    assert!(
        !is_answered(&monitor),
        "the connection is there while answers are to come"
    );
    gate.open();
    assert!(monitor.is_over());
    assert_eq!(guest.used_index(), 2);
    assert_eq!(asked.map(|asked| guest.status(&asked)), [0, 0]);
    assert!(take(&monitor.call), "its driver was told");
    // What comes later is the next one's.
    let third = guest.ask(OUT, 16, &[3; 4096], 0);
    served.listen_again();
    let mut next = running_from(&served, &guest, 2);
    for _ in 0..3 {
        guest.wait_used();
    }
    assert_eq!(guest.status(&third), 0);
    assert_eq!(next.stop(), 3);
}

#[test]
fn a_monitor_that_does_not_end_its_message_keeps_no_device() {
    let served = Served::new(memory());
    let mut monitor = Monitor::connect(&served.path);
    monitor.negotiate();
    // A header, and of its body nothing.
    monitor.send_bytes(&words(&[2, 1, 8]), &[]);
    assert!(monitor.is_over());
    Monitor::connect(&served.path).negotiate();
}
