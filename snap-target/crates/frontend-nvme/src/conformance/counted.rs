//! What hosts do, as telemetry has it: exact numbers, and the events in their order.

use std::time::{Duration, Instant};

use nvme_spec::Status;
use telemetry::{Event, EventKind, HostName};

use super::{Gate, On, Queue, Target, memory};

const HOST: &str = "nqn.2026-11.io.example:host";
const OTHER_HOST: &str = "nqn.2026-11.io.example:other";
const NO_KEEP_ALIVE: Duration = Duration::ZERO;
/// Blocks of the memory store.
const BLOCKS: u64 = 256;

/// An admin queue and an I/O queue.
fn connect(target: &Target, host: &str) -> (Queue, Queue, u16) {
    let (admin, cntlid) = Queue::admin(&target.place, host, NO_KEEP_ALIVE);
    let io = Queue::io(&target.place, host, cntlid, 1);
    (admin, io, cntlid)
}

pub(super) fn commands_bytes_and_errors_are_exact_and_survive_a_reconnect(on: &On) {
    let target = Target::start(on, memory());
    for round in 1..=2 {
        let (_admin, mut io, _) = connect(&target, HOST);
        for lba in 0..3 {
            io.read(lba);
        }
        for lba in 0..2 {
            let cid = io.write(lba, 0xAA);
            assert_eq!(io.response().cid, cid);
        }
        assert_eq!(io.flush().status, 0);
        io.read_beyond(BLOCKS - 1, 2);
        // The answers are here, so they are counted.
        let row = target.row(HOST, 1).unwrap();
        let kinds = ["read", "write", "flush", "compare"].map(|kind| row.commands[kind]);
        assert_eq!(kinds, [4 * round, 2 * round, round, 0]);
        assert_eq!(
            (row.bytes_read, row.bytes_written),
            (3 * 4096 * round, 2 * 4096 * round)
        );
        assert_eq!((row.errors["generic"], row.errors["media"]), (round, 0));
        assert_eq!((row.in_flight, row.abandoned), (0, 0));
        // Failed ones have no time.
        assert_eq!(
            (row.read_latency.count, row.write_latency.count),
            (3 * round, 2 * round)
        );
    }
    // Another host counts for itself.
    let (_admin, mut io, _) = connect(&target, OTHER_HOST);
    io.read(0);
    assert_eq!(target.row(OTHER_HOST, 1).unwrap().commands["read"], 1);
    assert_eq!(target.row(HOST, 1).unwrap().commands["read"], 8);
}

pub(super) fn namespaces_that_are_not_there_share_a_row(on: &On) {
    let target = Target::start(on, memory());
    let (_admin, mut io, _) = connect(&target, HOST);
    for nsid in [0, 2, 3, 1000, u32::MAX - 1] {
        assert_ne!(io.flush_of(nsid).status, 0);
    }
    let row = target.row(HOST, 0).unwrap();
    assert_eq!((row.commands["flush"], row.errors["generic"]), (5, 5));
    assert_eq!(target.telemetry.snapshot().hosts.len(), 1);
}

pub(super) fn a_command_is_in_flight_until_it_is_answered_or_its_connection_ends(on: &On) {
    let (gate, store) = Gate::over(memory(), 1);
    let target = Target::start(on, store);
    let (_admin, mut io, _) = connect(&target, HOST);
    io.write(0, 0xAA);
    gate.wait_held(1);
    let row = target.row(HOST, 1).unwrap();
    assert_eq!((row.in_flight, row.commands["write"]), (1, 0));
    drop(io);
    let events = target.events_with(EventKind::QueueClosed);
    let closed = events
        .iter()
        .find(|event| event.kind == EventKind::QueueClosed)
        .unwrap();
    assert_eq!(closed.value, 1, "the store has it still");
    gate.open();
    drop(_admin);
    target.events_with(EventKind::ControllerEnded);
    let row = target.row(HOST, 1).unwrap();
    assert_eq!(
        (row.in_flight, row.abandoned, row.commands["write"]),
        (0, 1, 0)
    );
}

pub(super) fn a_latency_holds_the_time_that_the_store_took(on: &On) {
    let (gate, store) = Gate::over(memory(), 1);
    let target = Target::start(on, store);
    let (_admin, mut io, _) = connect(&target, HOST);
    let sent = Instant::now();
    io.write(0, 0xAA);
    gate.wait_held(1);
    let held = Instant::now();
    std::thread::sleep(Duration::from_millis(5));
    let least = held.elapsed();
    gate.open();
    io.response();
    let most = sent.elapsed();
    let latency = target.row(HOST, 1).unwrap().write_latency;
    assert_eq!(latency.count, 1);
    let ns = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap();
    assert!(
        (ns(least)..=ns(most)).contains(&latency.sum_ns),
        "{latency:?}"
    );
}

pub(super) fn the_flight_recorder_has_the_life_of_a_controller(on: &On) {
    let target = Target::start(on, memory());
    let (admin, mut io, cntlid) = connect(&target, HOST);
    io.read(0);
    let failed = io.read_beyond(BLOCKS - 1, 2);
    drop(io);
    target.events_with(EventKind::QueueClosed);
    drop(admin);
    let events = target.events_with(EventKind::ControllerEnded);
    let kinds: Vec<EventKind> = events.iter().map(|event| event.kind).collect();
    assert_eq!(
        kinds,
        [
            EventKind::HostConnected,
            EventKind::QueueOpened,
            EventKind::CommandFailed,
            EventKind::QueueClosed,
            EventKind::ControllerEnded
        ]
    );
    assert!(events.iter().all(|event| event.cntlid == cntlid));
    assert!(events.iter().all(|event| event.host.as_str() == HOST));
    let of_command = Event {
        cid: failed.cid,
        opcode: 0x02,
        nsid: 1,
        lba: BLOCKS - 1,
        blocks: 2,
        value: events[2].value,
        ..Event::of_queue(EventKind::CommandFailed, cntlid, 1, HostName::new(HOST))
    };
    assert_eq!(
        events[2],
        of_command.with_status(Status::LBA_OUT_OF_RANGE.dnr())
    );
}

pub(super) fn the_flight_recorder_names_the_host_that_was_refused(on: &On) {
    let target = Target::start(on, memory());
    let (_, refused) = Queue::try_io(&target.place, HOST, 7, 1);
    assert_ne!(refused.status, 0);
    let events = target.events_with(EventKind::ConnectRefused);
    assert_eq!(events[0].host.as_str(), HOST);
}

pub(super) fn a_command_is_slow_from_the_threshold_on(on: &On) {
    let target = Target::start(on, memory());
    let (_admin, mut io, cntlid) = connect(&target, HOST);
    target.telemetry.set_slow_command(Duration::from_secs(3600));
    io.read(1);
    target.telemetry.set_slow_command(Duration::ZERO);
    io.read(7);
    let events = target.events();
    let slow: Vec<&Event> = events
        .iter()
        .filter(|event| event.kind == EventKind::SlowCommand)
        .collect();
    let [slow] = slow[..] else {
        panic!("one: {slow:?}")
    };
    assert_eq!(
        (slow.cntlid, slow.sqid, slow.lba, slow.blocks, slow.status),
        (cntlid, 1, 7, 1, 0)
    );
}

/// Data Units Read and Written, Host Read and Host Write Commands of the SMART log.
fn smart(admin: &mut Queue) -> [u64; 4] {
    let log = admin.log_page(0x02, 512);
    [32, 48, 64, 80].map(|at| u64::from_le_bytes(log[at..at + 8].try_into().unwrap()))
}

/// A data unit is 512,000 bytes, so 125 blocks of 4 KiB are one.
pub(super) fn smart_counts_commands_besides_read_and_write_by_what_they_move(on: &On) {
    let target = Target::start(on, memory());
    let (mut admin, mut io, _) = connect(&target, HOST);
    assert_eq!(smart(&mut admin), [0, 0, 0, 0]);
    assert_eq!(io.plain(0x0C, 1, [0, 0, 124]).status, 0, "Verify");
    assert_eq!(smart(&mut admin), [1, 0, 1, 0]);
    let mut source = [0; 32];
    source[16] = 124;
    assert_eq!(io.bring(0x19, 1, [125, 0, 0], &source).status, 0, "Copy");
    assert_eq!(smart(&mut admin), [2, 1, 1, 0]);
    assert_eq!(
        io.bring(0x05, 1, [0, 0, 0], &[0; 4096]).status,
        0,
        "Compare"
    );
    assert_eq!(smart(&mut admin), [3, 1, 2, 0]);
    // What fails moves nothing.
    assert_ne!(io.bring(0x19, 1, [200, 0, 0], &source).status, 0);
    assert_ne!(io.bring(0x05, 1, [0, 0, 0], &[1; 4096]).status, 0);
    assert_eq!(smart(&mut admin), [3, 1, 2, 0]);
}
