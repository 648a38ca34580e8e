//! Runs of guest memory for rings, and single values.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::missing_panics_doc,
    missing_docs,
    reason = "a test that cannot go on fails, and its numbers are small"
)]

use std::os::fd::OwnedFd;
use std::sync::Arc;

use guest_memory::{Access, Area, Fault, Shared, Window, Windows};

const PAGE: u64 = 4096;

fn memory(pages: u64, access: Access) -> (OwnedFd, Arc<Shared>) {
    let file =
        nix::sys::memfd::memfd_create("guest", nix::sys::memfd::MFdFlags::MFD_CLOEXEC).unwrap();
    nix::unistd::ftruncate(&file, i64::try_from(pages * PAGE).unwrap()).unwrap();
    let memory = Shared::map(&file, 0, pages * PAGE, access, Arc::default(), ()).unwrap();
    (file, Arc::new(memory))
}

fn window(address: u64, pages: u64, memory: Option<&Arc<Shared>>, access: Access) -> Window {
    Window {
        address,
        size: pages * PAGE,
        access,
        memory: memory.cloned(),
    }
}

#[test]
fn an_area_is_inside_of_one_window_that_may_be_read_and_written() {
    let (_file, both) = memory(2, Access::BOTH);
    let only_read = Access {
        read: true,
        write: false,
    };
    let (_other, readable) = memory(1, only_read);
    let windows = [
        window(0x1_0000, 2, Some(&both), Access::BOTH),
        window(0x1_2000, 1, Some(&readable), only_read),
        window(0x1_3000, 1, None, Access::BOTH),
    ];
    let windows = windows.into_iter().fold(Windows::default(), |all, window| {
        all.with(window, 8).unwrap()
    });
    let area = windows.area(0x1_0010, 2 * PAGE - 0x10).unwrap();
    assert_eq!(area.bytes(), 2 * 4096 - 0x10);
    let fault = |address, bytes| windows.area(address, bytes).unwrap_err();
    assert_eq!(
        fault(0x1_0010, 2 * PAGE),
        Fault::Outside { address: 0x1_2000 }
    );
    assert_eq!(fault(0x1_2000, 8), Fault::Denied { address: 0x1_2000 });
    assert_eq!(fault(0x1_3000, 8), Fault::NotShared { address: 0x1_3000 });
    assert_eq!(fault(0x1_4000, 8), Fault::Outside { address: 0x1_4000 });
    assert_eq!(
        fault(u64::MAX - 3, 8),
        Fault::Outside {
            address: u64::MAX - 3
        }
    );
    assert!(Area::of(&both, 4096, 4097).is_none());
    assert!(Area::of(&both, usize::MAX, 2).is_none());
    assert!(Area::of(&both, 0, 0).is_none());
    assert!(Area::whole(&readable).is_none());
}

#[test]
fn values_are_little_endian_and_where_they_are() {
    let (_file, memory) = memory(1, Access::BOTH);
    let windows = Windows::default()
        .with(window(0x1000, 1, Some(&memory), Access::BOTH), 1)
        .unwrap();
    let area = windows.area(0x1000, PAGE).unwrap();
    area.store64(8, 0x0807_0605_0403_0201);
    area.store32(16, 0x0C0B_0A09);
    area.store16(20, 0x0E0D);
    area.store8(22, 0x0F);
    let mut bytes = [0; 15];
    windows.read(0x1008, &mut bytes).unwrap();
    assert_eq!(bytes, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
    assert_eq!(
        (area.load64(8), area.load32(16)),
        (0x0807_0605_0403_0201, 0x0C0B_0A09)
    );
    assert_eq!((area.load16(20), area.load8(22)), (0x0E0D, 0x0F));
    // Aligned or not.
    assert_eq!(windows.load64(0x1008), Ok(0x0807_0605_0403_0201));
    assert_eq!(windows.load64(0x1009), Ok(0x0908_0706_0504_0302));
    assert_eq!(
        windows.load64(0x1FF9),
        Err(Fault::Outside { address: 0x2000 })
    );
}

#[test]
fn a_value_may_lie_across_windows() {
    let (file, memory) = memory(2, Access::BOTH);
    let second = Shared::map(&file, PAGE, PAGE, Access::BOTH, Arc::default(), ()).unwrap();
    let windows = Windows::default().with(window(0x1000, 1, Some(&memory), Access::BOTH), 2);
    let windows = windows
        .unwrap()
        .with(window(0x2000, 1, Some(&Arc::new(second)), Access::BOTH), 2)
        .unwrap();
    windows.write(0x1FFC, &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
    assert_eq!(windows.load64(0x1FFC), Ok(0x0807_0605_0403_0201));
}

#[test]
#[should_panic(expected = "of an area of")]
fn a_place_outside_is_a_defect_of_ours() {
    let (_file, memory) = memory(1, Access::BOTH);
    let area = Area::of(&memory, 0, 64).unwrap();
    let _value = area.load16(63);
}

#[test]
fn an_area_keeps_its_memory_mapped() {
    struct Told(std::sync::mpsc::Sender<()>);
    impl Drop for Told {
        fn drop(&mut self) {
            self.0.send(()).unwrap();
        }
    }
    let (file, _memory) = memory(1, Access::BOTH);
    let (tell, told) = std::sync::mpsc::channel();
    let shared = Arc::new(
        Shared::map(
            &file,
            0,
            PAGE,
            Access::BOTH,
            Arc::default(),
            std::sync::Mutex::new(Told(tell)),
        )
        .unwrap(),
    );
    let area = Area::whole(&shared).unwrap();
    drop(shared);
    assert!(told.try_recv().is_err(), "the area has it");
    area.store8(0, 1);
    drop(area);
    assert!(told.try_recv().is_ok());
}
