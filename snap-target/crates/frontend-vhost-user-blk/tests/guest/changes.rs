//! A device whose disk changes, queues beside each other, and devices beside each other.

use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use frontend_vhost_user_blk::{Disk, QUEUES_MAX, SHARE_QUEUES_MAX};
use namespace::Identity;
use store::BlockingStore;

use super::monitor::{GUEST, Guest, Monitor, RING_BYTES, SIZE, USER, event, longs, words};
use super::served::{Served, memory};

const IN: u32 = 0;
const OUT: u32 = 1;
const BACKEND_REQ: u64 = 1 << 5;
const CONFIG_CHANGE: u32 = 2;

fn capacity(monitor: &mut Monitor) -> u64 {
    let answer = monitor.ask(24, &[words(&[0, 8, 0]), vec![0; 8]].concat());
    u64::from_le_bytes(answer[12..].try_into().unwrap())
}

#[test]
fn a_resize_is_told_and_in_force() {
    let served = Served::new(memory());
    let device = served.device.as_ref().unwrap();
    assert!(device.set_disk(served.resized(16)));
    let (mut monitor, mut guest) = (Monitor::connect(&served.path), Guest::new());
    monitor.negotiate_with(BACKEND_REQ);
    let (mut told, channel) = UnixStream::pair().unwrap();
    told.set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    monitor.order(21, &[], &[channel.as_fd()]);
    monitor.share(&guest);
    monitor.start(0);
    // What changed before anybody was there to hear it: told once, with the first queue.
    let mut message = [0; 12];
    told.read_exact(&mut message).unwrap();
    assert_eq!(message.to_vec(), words(&[CONFIG_CHANGE, 1, 0]));
    assert_eq!(capacity(&mut monitor), 16 * 8);
    let behind = guest.ask(IN, 16 * 8, &[], 4096);
    monitor.kick();
    guest.wait_used();
    assert_eq!(guest.status(&behind), 1, "it is behind the end");
    told.set_nonblocking(true).unwrap();
    assert!(told.read(&mut message).is_err(), "once");
    told.set_nonblocking(false).unwrap();
    assert!(device.set_disk(served.resized(32)));
    told.read_exact(&mut message).unwrap();
    assert_eq!(message.to_vec(), words(&[CONFIG_CHANGE, 1, 0]));
    assert_eq!(capacity(&mut monitor), 32 * 8);
    let inside = guest.ask(IN, 16 * 8, &[], 4096);
    monitor.kick();
    guest.wait_used();
    assert_eq!(guest.status(&inside), 0);
    // Smaller, too: what lies behind the new end is not there any more.
    assert!(device.set_disk(served.resized(8)));
    let gone = guest.ask(IN, 8 * 8, &[], 4096);
    monitor.kick();
    guest.wait_used();
    assert_eq!(guest.status(&gone), 1);
}

/// Nobody who tells of a change waits for a monitor.
#[test]
fn a_monitor_that_hears_of_no_change_holds_nobody_up() {
    let served = Served::new(memory());
    let mut monitor = Monitor::connect(&served.path);
    monitor.negotiate_with(BACKEND_REQ);
    let (_deaf, channel) = UnixStream::pair().unwrap();
    monitor.order(21, &[], &[channel.as_fd()]);
    let device = served.device.as_ref().unwrap();
    // More messages than the socket holds.
    for round in 0..100_000 {
        assert!(device.set_disk(served.resized(1 + round % 2)));
    }
    assert_eq!(capacity(&mut monitor), 16);
}

#[test]
fn another_disk_is_not_put_under_a_guests() {
    let served = Served::new(memory());
    let device = served.device.as_ref().unwrap();
    let mut other = served.namespace.clone();
    other.identity = Identity { uuid: [7; 16] };
    assert!(!device.set_disk(Disk::of(&other)), "other content");
    let mut protected = served.namespace.clone();
    protected.write_protected = true;
    assert!(
        !device.set_disk(Disk::of(&protected)),
        "a driver has asked whether it may write"
    );
}

#[test]
fn queues_serve_beside_each_other() {
    let served = Served::new(memory());
    let (mut monitor, guest) = (Monitor::connect(&served.path), Guest::new());
    monitor.negotiate();
    monitor.share(&guest);
    let mut others = vec![guest];
    for index in 0..2 {
        others.push(others[index].another_ring());
    }
    let mut kicks = Vec::new();
    for (ring, index) in [0, 1, 63].into_iter().enumerate() {
        monitor.kick = event();
        monitor.start_queue(index, ring * RING_BYTES, 0);
        kicks.push(monitor.kick.try_clone().unwrap());
    }
    for round in 0..u32::from(SIZE) * 3 {
        let mut asked = Vec::new();
        for (place, guest) in (0_u8..).zip(&mut others) {
            let block = round * 3 + u32::from(place);
            let data = [place + 1; 4096];
            guest.take_back_data();
            asked.push(guest.ask(OUT, u64::from(block) * 8, &data, 0));
        }
        for kick in &kicks {
            rustix::io::write(kick, &1_u64.to_ne_bytes()).unwrap();
        }
        for (guest, asked) in others.iter_mut().zip(&asked) {
            assert_eq!(guest.wait_used(), (asked.head.into(), 1));
            assert_eq!(guest.status(asked), 0);
        }
    }
    let blocks = usize::from(SIZE) * 9;
    let mut stored = vec![0; blocks * 4096];
    BlockingStore::new(&served.store)
        .unwrap()
        .read(0, &mut stored)
        .unwrap();
    for (block, bytes) in stored.chunks_exact(4096).enumerate() {
        let by = u8::try_from(block % 3).unwrap() + 1;
        assert!(bytes.iter().all(|byte| *byte == by), "block {block}");
    }
}

#[test]
fn devices_do_not_disturb_each_other() {
    let served = Served::new(memory());
    let (path, device) = served.another();
    let (mut good, mut guest) = (Monitor::connect(&path), Guest::new());
    good.negotiate();
    good.share(&guest);
    good.start(0);
    let harms: [fn(&mut Monitor, &mut Guest); 4] = [
        |monitor, _| monitor.send(99, 1, &[], &[]),
        |monitor, guest| {
            // More chains than there are.
            guest.ram.store16(0x1002, 0x8000);
            monitor.kick();
            assert_eq!(monitor.stop(), 0);
        },
        |monitor, guest| {
            // A descriptor that leads to itself.
            guest.ram.store16(12, 1);
            guest.ram.store16(14, 0);
            guest.ram.store16(0x1002, 1);
            monitor.kick();
            assert_eq!(guest.wait_used(), (0, 0));
            assert_eq!(monitor.stop(), 1);
        },
        |monitor, _| monitor.send_bytes(&[5, 0, 0], &[]),
    ];
    for harm in harms {
        let mut bad_guest = Guest::new();
        let mut bad = Monitor::connect(&served.path);
        bad.negotiate();
        bad.share(&bad_guest);
        bad.start(0);
        harm(&mut bad, &mut bad_guest);
        drop(bad);
        let asked = guest.ask(OUT, 0, &[5; 4096], 0);
        good.kick();
        assert_eq!(guest.wait_used(), (asked.head.into(), 1));
        assert_eq!(guest.status(&asked), 0);
    }
    drop(device);
}

/// As many regions as GET_MAX_MEM_SLOTS says; one more ends the connection, and the next has all of them.
#[test]
fn a_guest_has_so_many_regions_of_memory_and_no_more() {
    let served = Served::new(memory());
    let guest = Guest::new();
    for _ in 0..2 {
        let mut monitor = Monitor::connect(&served.path);
        monitor.negotiate();
        let slots = u64::from_le_bytes(monitor.ask(36, &[]).try_into().unwrap());
        assert_eq!(slots, 64);
        let region = |slot: u64| {
            let (at, bytes) = (slot * 0x1000, 0x1000);
            [longs(&[0]), longs(&[GUEST + at, bytes, USER + at, at])].concat()
        };
        for slot in 0..slots {
            monitor.order(37, &region(slot), &[guest.file.as_fd()]);
        }
        let refused = monitor.try_order(37, &region(slots), &[guest.file.as_fd()]);
        assert_eq!(refused, Some(1));
        assert!(monitor.is_over());
    }
}

/// Records of what is in flight, asked for by GET_INFLIGHT_FD: of one queue to as many as a device has.
#[test]
fn records_are_of_as_many_queues_as_a_device_has() {
    let served = Served::new(memory());
    for (queues, is_granted) in [
        (1_u16, true),
        (64, true),
        (0, false),
        (65, false),
        (u16::MAX, false),
    ] {
        let mut monitor = Monitor::connect(&served.path);
        monitor.negotiate();
        let asked = [
            longs(&[0, 0]),
            queues.to_le_bytes().to_vec(),
            SIZE.to_le_bytes().to_vec(),
            vec![0; 4],
        ]
        .concat();
        monitor.send(31, 1, &asked, &[]);
        assert_eq!(monitor.receive().is_some(), is_granted, "{queues}");
    }
}

#[test]
fn a_reactor_has_room_for_so_many_queues_and_no_more() {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit {
        current: limit.maximum,
        ..limit
    };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, raised).unwrap();
    let served = Served::new(memory());
    let guest = Guest::new();
    let full = SHARE_QUEUES_MAX / usize::from(QUEUES_MAX);
    let mut devices = Vec::new();
    for number in 0..full {
        let (path, device) = served.another_at(number);
        let mut monitor = Monitor::connect(&path);
        monitor.negotiate();
        monitor.share(&guest);
        for queue in 0..u32::from(QUEUES_MAX) {
            monitor.start_queue(queue, queue as usize * RING_BYTES, 0);
        }
        devices.push((monitor, device));
    }
    let mut monitor = Monitor::connect(&served.path);
    monitor.negotiate();
    monitor.share(&guest);
    monitor.describe_queue(0, 0, 0);
    assert_eq!(monitor.try_order(18, &words(&[0, 1]), &[]), Some(1));
    assert!(monitor.is_over());
    // Those that are there are not disturbed; where one goes, another has room.
    let (mut first, _device) = devices.pop().unwrap();
    assert_eq!(first.stop(), 0);
    let mut monitor = Monitor::connect(&served.path);
    monitor.negotiate();
    monitor.share(&guest);
    monitor.start(0);
}
