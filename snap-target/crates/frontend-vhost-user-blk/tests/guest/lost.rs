//! Guests whose memory goes while it is used: its file gets shorter, so that a page is not there when the device touches it.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::MemfdFlags;

use super::monitor::{DATA, GUEST, Guest, MEMORY_BYTES, Monitor, USER, longs, words};
use super::served::{DISK_BYTES, Served, file, memory};

const USED_INDEX: u64 = 0x2000 + 2;

/// Memory that takes no seals, with what the guest has in its own.
fn unsealed(guest: &Guest) -> OwnedFd {
    let file = rustix::fs::memfd_create("guest", MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, MEMORY_BYTES).unwrap();
    let all = guest.get(0, MEMORY_BYTES as usize);
    assert_eq!(rustix::io::pwrite(&file, &all, 0).unwrap(), all.len());
    file
}

/// The device has ended the connection.
fn is_let_go(monitor: &mut Monitor) -> bool {
    while monitor.receive().is_some() {}
    monitor.is_over()
}

/// A request, of which the device finds its data, its header or its ring gone: the connection ends, and the next one has the disk as it was.
#[test]
fn a_guest_without_its_memory_is_let_go() {
    for store in [memory, file] {
        for (what, is_write, cut) in [
            ("a read's data", false, DATA as u64 + 0x1000),
            ("a write's data", true, DATA as u64 + 0x1000),
            ("a header", false, DATA as u64),
            ("the ring", true, 0),
        ] {
            let served = Served::new(store());
            let mut guest = Guest::new();
            match is_write {
                true => guest.ask(1, 8, &[0x5A; 4096], 0),
                false => guest.ask(0, 8, &[], 4096),
            };
            let lent = unsealed(&guest);
            let mut monitor = Monitor::connect(&served.path);
            monitor.negotiate();
            monitor.share_file(lent.as_fd(), MEMORY_BYTES);
            monitor.describe_queue(0, 0, 0);
            rustix::fs::ftruncate(&lent, cut).unwrap();
            monitor.send(18, 1, &words(&[0, 1]), &[]);
            assert!(is_let_go(&mut monitor), "{what}");
            let mut index = [0; 2];
            let read = rustix::io::pread(&lent, &mut index, USED_INDEX).unwrap();
            assert!(read == 0 || index == [0, 0], "{what}: nothing came back");
            drop(monitor);

            let mut guest = Guest::new();
            let mut next = Monitor::connect(&served.path);
            next.negotiate();
            next.share(&guest);
            next.start(0);
            let asked = guest.ask(0, 0, &[], DISK_BYTES.min(64 << 10) as u32);
            next.kick();
            guest.wait_used();
            assert_eq!(guest.status(&asked), 0, "{what}");
            assert!(
                guest
                    .get(asked.data, 64 << 10)
                    .iter()
                    .all(|byte| *byte == 0)
            );
        }
    }
}

/// A second region, of a file of its own, and a page in it that is not there any more when this returns.
pub fn share_with_another(monitor: &mut Monitor, guest: &Guest) -> OwnedFd {
    let apart = rustix::fs::memfd_create("guest", MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&apart, 0x2000).unwrap();
    let table = [
        words(&[2, 0]),
        longs(&[GUEST, MEMORY_BYTES, USER, 0]),
        longs(&[APART, 0x2000, USER + MEMORY_BYTES, 0]),
    ]
    .concat();
    monitor.order(5, &table, &[guest.file.as_fd(), apart.as_fd()]);
    rustix::fs::ftruncate(&apart, 0x1000).unwrap();
    apart
}

/// Where that region is, and the page.
const APART: u64 = GUEST + MEMORY_BYTES;
pub const GONE: u64 = APART + 0x1000;

/// Its ring, header and status are there, its data are not: no answer says that they came. A driver's status byte is what it was: Linux's may be 0, which says so.
#[test]
fn nothing_is_given_back_in_memory_that_is_there() {
    const STATUS: usize = DATA + 0x800;
    for store in [memory, file] {
        for is_write in [false, true] {
            let served = Served::new(store());
            let mut guest = Guest::new();
            let mut monitor = Monitor::connect(&served.path);
            monitor.negotiate();
            let _apart = share_with_another(&mut monitor, &guest);
            monitor.start(0);
            guest.put(DATA, &[words(&[is_write.into(), 0]), longs(&[8])].concat());
            guest.ram.store8(STATUS, 0);
            guest.chain_at(&[
                (GUEST + DATA as u64, 16, false),
                (GONE, 4096, !is_write),
                (GUEST + STATUS as u64, 1, true),
            ]);
            monitor.kick();
            assert!(is_let_go(&mut monitor));
            assert_eq!(guest.used_index(), 0, "write {is_write}");
        }
    }
}
