//! Guests whose memory goes while it is used: its file gets shorter, so that a page is not there when the device touches it.

use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::MemfdFlags;

use super::monitor::{DATA, Guest, MEMORY_BYTES, Monitor, event, longs, words};
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

fn is_signalled(file: &OwnedFd) -> bool {
    let mut asked = [PollFd::new(file, PollFlags::IN)];
    let patience = Timespec {
        tv_sec: 20,
        tv_nsec: 0,
    };
    poll(&mut asked, Some(&patience)).unwrap() == 1
}

/// A request, of which the device finds its data, its header or its ring gone: the queue ends, its monitor hears so, and the next connection has the disk as it was.
#[test]
fn a_queue_of_memory_that_is_gone_ends() {
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
            let told = event();
            monitor.order(14, &longs(&[0]), &[told.as_fd()]);
            rustix::fs::ftruncate(&lent, cut).unwrap();
            monitor.order(18, &words(&[0, 1]), &[]);
            assert!(is_signalled(&told), "{what}");
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
