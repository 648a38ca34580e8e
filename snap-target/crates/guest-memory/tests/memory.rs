//! Guest memory that is shared by descriptor: what a guest sees of it, through its own mapping of the same file.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::missing_panics_doc,
    missing_docs,
    reason = "a test that cannot go on fails, and its numbers are small"
)]

use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use guest_memory::{Access, Fault, Leases, MapError, Shared, Way, Window, Windows};
use nix::sys::memfd::{MFdFlags, memfd_create};
use reactor::buf::IoBuf;

const BOTH: Access = Access {
    read: true,
    write: true,
};

/// A guest's file, whose bytes are their own offsets, folded.
fn file(bytes: usize) -> std::fs::File {
    let fd: OwnedFd = memfd_create("guest", MFdFlags::MFD_CLOEXEC).unwrap();
    let mut file = std::fs::File::from(fd);
    file.write_all(&pattern(0, bytes)).unwrap();
    file
}

fn pattern(from: usize, bytes: usize) -> Vec<u8> {
    (from..from + bytes)
        .map(|at| (at ^ at >> 8) as u8)
        .collect()
}

fn bytes_at(file: &mut std::fs::File, offset: u64, bytes: usize) -> Vec<u8> {
    let mut out = vec![0; bytes];
    file.seek(SeekFrom::Start(offset)).unwrap();
    file.read_exact(&mut out).unwrap();
    out
}

/// Two windows that follow each other and lie the other way round in the file, and one that was not shared.
fn windows(file: &std::fs::File) -> Windows {
    let place = |address, offset| Window {
        address,
        size: 0x2000,
        access: BOTH,
        memory: Some(Arc::new(
            Shared::map(file, offset, 0x2000, BOTH, Arc::default(), ()).unwrap(),
        )),
    };
    let apart = Window {
        address: 0x20_0000,
        size: 0x1000,
        access: BOTH,
        memory: None,
    };
    [place(0x10_0000, 0x2000), place(0x10_2000, 0), apart]
        .into_iter()
        .fold(Windows::default(), |all, window| {
            all.with(window, 8).unwrap()
        })
}

#[test]
fn bytes_go_through_windows_to_their_places() {
    let mut guest = file(0x4000);
    let all = windows(&guest);
    let mut out = vec![0; 0x1000];
    all.read(0x10_1800, &mut out).unwrap();
    assert_eq!(out[..0x800], pattern(0x3800, 0x800));
    assert_eq!(out[0x800..], pattern(0, 0x800));

    all.write(0x10_1FFE, b"abcd").unwrap();
    assert_eq!(bytes_at(&mut guest, 0x3FFE, 2), b"ab");
    assert_eq!(bytes_at(&mut guest, 0, 3), [b'c', b'd', pattern(2, 1)[0]]);
}

#[test]
fn an_entry_is_published_whole() {
    let mut guest = file(0x4000);
    let all = windows(&guest);
    let bytes: [u8; 16] = std::array::from_fn(|at| 0xA0 + at as u8);
    let entry =
        std::array::from_fn(|word| u32::from_ne_bytes(bytes[word * 4..][..4].try_into().unwrap()));
    all.publish(0x10_1FF0, entry, true).unwrap();
    assert_eq!(bytes_at(&mut guest, 0x3FF0, 16), bytes);
    let odd = all.publish(0x10_0008, entry, false).unwrap_err();
    assert_eq!(odd, Fault::Denied { address: 0x10_0008 });
    let outside = all.publish(0x10_4000, entry, true).unwrap_err();
    assert_eq!(outside, Fault::Outside { address: 0x10_4000 });
}

/// Entries that lie in two windows, and behind the last one.
#[test]
fn entries_are_read_in_their_order_or_not_at_all() {
    let guest = file(0x4000);
    let all = windows(&guest);
    let mut read = Vec::new();
    let words = |from| -> [u64; 8] {
        let bytes = pattern(from, 64);
        std::array::from_fn(|word| u64::from_ne_bytes(bytes[word * 8..][..8].try_into().unwrap()))
    };
    all.entries(0x10_1FC0, 2, |entry: [u64; 8]| read.push(entry))
        .unwrap();
    assert_eq!(read, [words(0x3FC0), words(0)]);
    let refused = |address, count| {
        let mut is_given = false;
        let fault = all.entries(address, count, |_: [u64; 8]| is_given = true);
        assert!(!is_given);
        fault.unwrap_err()
    };
    let outside = Fault::Outside { address: 0x10_4000 };
    assert_eq!(refused(0x10_3FC0, 2), outside);
    assert_eq!(refused(0x10_0000, usize::MAX), outside);
    for odd in [0x10_0008, 0x10_0020, 0x10_1FE0] {
        assert_eq!(refused(odd, 1), Fault::Denied { address: odd });
    }
    let odd_size = all.entries(0x10_0000, 1, |_: [u64; 3]| ());
    assert_eq!(odd_size, Err(Fault::Denied { address: 0x10_0000 }));
}

/// Where not every byte can be reached, none is.
#[test]
fn a_fault_comes_before_a_byte_is_moved() {
    let mut guest = file(0x4000);
    let all = windows(&guest);
    let outside = Fault::Outside { address: 0x10_4000 };
    let mut out = [7; 8];
    assert_eq!(all.read(0x10_3FFC, &mut out), Err(outside));
    assert_eq!(out, [7; 8]);
    assert_eq!(all.write(0x10_3FFC, &[9; 8]), Err(outside));
    assert_eq!(bytes_at(&mut guest, 0x1FFC, 4), pattern(0x1FFC, 4));
    let not_shared = Fault::NotShared { address: 0x20_0000 };
    assert_eq!(all.read(0x20_0000, &mut out), Err(not_shared));
}

#[test]
fn buffers_lie_over_pieces_in_their_order() {
    let mut guest = file(0x4000);
    let all = windows(&guest);
    let mut leases = Leases::default();
    // The second piece crosses from one window into the next.
    let pieces = [(0x10_2010, 16), (0x10_1FF8, 16), (0x10_0000, 8)];
    let view = leases.view(&all, pieces, Way::ToGuest).unwrap();
    assert_eq!((view.len(), view.is_guest()), (40, true));
    let data: Vec<u8> = (100..140).collect();
    let from = IoBuf::from_bytes(&data).unwrap();
    let from = from.slice(0..40);
    assert_eq!(guest_memory::to_guest(&view, &from), 40);
    assert_eq!(bytes_at(&mut guest, 0x10, 16), data[..16]);
    assert_eq!(bytes_at(&mut guest, 0x3FF8, 8), data[16..24]);
    assert_eq!(bytes_at(&mut guest, 0, 8), data[24..32]);
    assert_eq!(bytes_at(&mut guest, 0x2000, 8), data[32..]);

    let back = leases.view(&all, pieces, Way::FromGuest).unwrap();
    let to = IoBuf::heap(40).unwrap();
    assert_eq!(guest_memory::from_guest(&to, &back), 40);
    assert_eq!(to.to_vec()[..40], data);
    let refused = leases.view(&all, [(0x20_0000, 4)], Way::FromGuest);
    assert_eq!(
        refused.unwrap_err(),
        Fault::NotShared { address: 0x20_0000 }
    );
}

/// Who waits for a window to be unmapped hears of it when the last buffer over it has gone, and not before.
#[test]
fn a_window_stays_mapped_as_long_as_a_buffer_lies_in_it() {
    struct Count(Arc<AtomicU32>);
    impl Drop for Count {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let mut guest = file(0x1000);
    let unmapped = Arc::new(AtomicU32::new(0));
    let keeper = Count(unmapped.clone());
    let memory = Shared::map(&guest, 0, 0x1000, BOTH, Arc::default(), keeper).unwrap();
    let window = Window {
        address: 0,
        size: 0x1000,
        access: BOTH,
        memory: Some(Arc::new(memory)),
    };
    let all = Windows::default().with(window, 1).unwrap();
    let mut leases = Leases::default();
    let view = leases.view(&all, [(0x10, 4)], Way::ToGuest).unwrap();
    let (left, gone) = all.without(0, 0x1000).unwrap();
    drop((all, gone, left));
    leases.clear();
    assert_eq!(unmapped.load(Ordering::SeqCst), 0);
    let from = IoBuf::from_bytes(b"late").unwrap().slice(0..4);
    assert_eq!(guest_memory::to_guest(&view, &from), 4);
    drop(view);
    assert_eq!(unmapped.load(Ordering::SeqCst), 1);
    assert_eq!(bytes_at(&mut guest, 0x10, 4), b"late");
}

#[test]
fn a_file_that_is_too_short_is_not_mapped() {
    let guest = file(0x1800);
    let short = Shared::map(&guest, 0x1000, 0x1000, BOTH, Arc::default(), ()).unwrap_err();
    let expected = MapError::Short {
        file_bytes: 0x1800,
        end: 0x2000,
    };
    assert_eq!(short, expected);
    let place = Shared::map(&guest, u64::MAX, 0x1000, BOTH, Arc::default(), ()).unwrap_err();
    assert!(matches!(place, MapError::Place { .. }), "{place:?}");
    let odd = Shared::map(&guest, 0x10, 0x1000, BOTH, Arc::default(), ()).unwrap_err();
    assert!(matches!(odd, MapError::Place { .. }), "{odd:?}");
}

#[test]
fn numbers_are_read_and_written_whole() {
    let mut file = file(0x4000);
    let windows = windows(&file);
    let value = u32::from_le_bytes(bytes_at(&mut file, 0x2010, 4).try_into().unwrap());
    assert_eq!(windows.load(0x10_0010), Ok(value));
    assert_eq!(windows.store(0x10_1FFC, 0xAABB_CCDD), Ok(()));
    assert_eq!(
        bytes_at(&mut file, 0x3FFC, 4),
        0xAABB_CCDD_u32.to_le_bytes()
    );
    for address in [0x10_0001, 0x10_0002, 0x10_1FFD] {
        assert_eq!(windows.load(address), Err(Fault::Denied { address }));
        assert_eq!(windows.store(address, 0), Err(Fault::Denied { address }));
    }
    let address = 0x20_0000;
    assert_eq!(windows.load(address), Err(Fault::NotShared { address }));
    let address = 0x10_4000;
    assert_eq!(windows.store(address, 0), Err(Fault::Outside { address }));
}
