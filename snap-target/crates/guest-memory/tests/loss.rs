//! Memory whose pages are gone: an access does not end the process, and it is known whose memory it was.

#![allow(
    clippy::unwrap_used,
    unsafe_code,
    missing_docs,
    reason = "a test that cannot go on fails, and one maps a file as others do"
)]

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::sync::Arc;

use guest_memory::{Access, Area, Fault, Leases, Loss, Shared, Way, Window, Windows, from_guest};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap};
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{Signal, raise};
use nix::unistd::ftruncate;
use reactor::buf::IoBuf;

const PAGE: u64 = 4096;

/// A file that takes no seals, so that it can be made shorter.
fn file(pages: u64) -> OwnedFd {
    let file = memfd_create("guest", MFdFlags::empty()).unwrap();
    resize(&file, pages);
    file
}

fn resize(file: &OwnedFd, pages: u64) {
    ftruncate(file, i64::try_from(pages * PAGE).unwrap()).unwrap();
}

fn shared(file: &OwnedFd, pages: u64, loss: &Arc<Loss>) -> Arc<Shared> {
    let mapped = Shared::map(file, 0, pages * PAGE, Access::BOTH, loss.clone(), ());
    Arc::new(mapped.unwrap())
}

/// A client with these files, one behind the other.
fn client(files: &[&OwnedFd], loss: &Arc<Loss>) -> Windows {
    let places = (0..).map(|index| index * 4 * PAGE);
    let all = Windows::of(loss.clone());
    files.iter().zip(places).fold(all, |all, (file, address)| {
        let window = Window {
            address,
            size: 4 * PAGE,
            access: Access::BOTH,
            memory: Some(shared(file, 4, loss)),
        };
        all.with(window, 8).unwrap()
    })
}

#[test]
fn an_access_to_a_page_that_is_gone_goes_on_and_all_of_that_client_is_lost() {
    let bell = EventFd::from_flags(EfdFlags::EFD_NONBLOCK).unwrap();
    let loss = Arc::new(Loss::told_by(bell.as_fd().try_clone_to_owned().unwrap()));
    let (short, whole) = (file(4), file(4));
    let all = client(&[&short, &whole], &loss);
    let (others_file, others_loss) = (file(4), Arc::new(Loss::default()));
    let others = client(&[&others_file], &others_loss);
    for windows in [&all, &others] {
        windows.write(0, &[7; 16]).unwrap();
    }
    all.write(4 * PAGE, &[8; 16]).unwrap();
    resize(&short, 1);

    let mut bytes = [1; 16];
    all.read(0, &mut bytes).unwrap();
    assert_eq!(bytes, [7; 16], "a page that is there is as it was");
    assert!(!loss.has_happened());
    assert!(bell.read().is_err(), "nothing has happened");

    // The access that finds it gone reads zeros, and whoever asks before it says so finds out.
    all.read(2 * PAGE, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 16]);
    assert!(loss.has_happened());
    assert_eq!(bell.read(), Ok(1));

    for address in [0, 2 * PAGE, 4 * PAGE] {
        assert_eq!(all.read(address, &mut bytes), Err(Fault::Lost { address }));
        assert_eq!(all.write(address, &bytes), Err(Fault::Lost { address }));
        let published = all.publish(address, [0; 4], true);
        assert_eq!(published, Err(Fault::Lost { address }));
    }
    assert_eq!(all.area(0, 64).unwrap_err(), Fault::Lost { address: 0 });
    let seen = shared(&whole, 4, &Arc::default());
    assert_eq!(
        Area::whole(&seen).unwrap().load8(0),
        8,
        "and nothing more is written"
    );
    others.read(0, &mut bytes).unwrap();
    assert_eq!(bytes, [7; 16]);
    assert!(!others_loss.has_happened());
}

/// What has pointers into memory already, and does not ask: rings, and buffers whose bytes are copied or made there.
#[test]
fn rings_and_buffers_over_memory_that_goes_stay_usable() {
    let loss = Arc::new(Loss::default());
    let file = file(4);
    let memory = shared(&file, 4, &loss);
    let ring = Area::of(&memory, 4096, 64).unwrap();
    let windows = client(&[&file], &loss);
    let mut leases = Leases::default();
    let guest = leases
        .view(&windows, [(0, 4 * 4096)], Way::FromGuest)
        .unwrap();
    let ours = IoBuf::heap(4 * 4096).unwrap();
    ring.store32(0, 5);
    resize(&file, 0);
    assert_eq!(ring.load32(0), 0);
    ring.store32(0, 6);
    assert_eq!(ring.load32(0), 6, "in memory of our own");
    assert_eq!(from_guest(&ours, &guest), 4 * 4096);
    assert!(loss.has_happened());
}

/// Several threads run into it at the same time, while others map and unmap.
#[test]
fn threads_that_meet_it_together_all_go_on() {
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..200 {
                    let loss = Arc::new(Loss::default());
                    let file = file(4);
                    let memory = shared(&file, 4, &loss);
                    let area = Area::whole(&memory).unwrap();
                    resize(&file, 0);
                    std::thread::scope(|touching| {
                        for page in 0..4 {
                            let (area, loss) = (area.clone(), loss.clone());
                            touching.spawn(move || {
                                area.store8(page * 4096, 1);
                                assert!(loss.has_happened());
                            });
                        }
                    });
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..2000 {
                    let loss = Arc::new(Loss::default());
                    let file = file(1);
                    let area = Area::whole(&shared(&file, 1, &loss)).unwrap();
                    area.store8(0, 1);
                    assert!(!loss.has_happened());
                }
            });
        }
    });
}

/// Runs a part of a test in a process of its own: how that ended, and what it printed.
fn alone(part: &str) -> (ExitStatus, String) {
    let ran = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", part, "--ignored"])
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&ran.stdout);
    (ran.status, printed.into_owned())
}

/// A mapping that was let go of is nobody's: what is at its address then ends the process as ever, as does any other access to what is not there.
#[test]
fn what_is_no_guests_memory_ends_the_process_as_before() {
    let (ended, printed) = alone("touches_memory_that_is_no_guests");
    assert_eq!(ended.signal(), Some(7), "SIGBUS: {printed}");
}

/// A signal that somebody sends is no access: it ends the process, and does not leave it without the handler.
#[test]
fn a_signal_that_is_sent_ends_the_process() {
    let (ended, printed) = alone("is_sent_a_signal");
    assert_eq!(ended.signal(), Some(7), "SIGBUS: {printed}");
    assert!(!printed.contains("goes on"), "{printed}");
}

#[test]
#[ignore = "ends its process: a part of the test above"]
fn is_sent_a_signal() {
    let _memory = shared(&file(1), 1, &Arc::default());
    raise(Signal::SIGBUS).unwrap();
    println!("it goes on");
}

/// One page of 2 GiB is gone: what is put there is a part of them, whatever a process may have of its own.
#[test]
fn a_large_guest_costs_no_more_than_a_small_one() {
    let (ended, printed) = alone("loses_a_page_of_many");
    assert!(ended.success(), "{ended}: {printed}");
}

/// Touches memory while its process may have so many bytes more than it has now, and not while something else may need some.
fn with_room_for(bytes: u64, touch: impl FnOnce()) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let data = status.lines().find_map(|line| line.strip_prefix("VmData:"));
    let kib = data.and_then(|text| text.trim().strip_suffix(" kB"));
    let most = kib.unwrap().parse::<u64>().unwrap() * 1024 + bytes;
    setrlimit(Resource::RLIMIT_DATA, most, u64::MAX).unwrap();
    touch();
    setrlimit(Resource::RLIMIT_DATA, u64::MAX, u64::MAX).unwrap();
}

#[test]
#[ignore = "sets its process a limit: a part of the test above"]
fn loses_a_page_of_many() {
    const PAGES: u64 = 2 << 18;
    let loss = Arc::new(Loss::default());
    let guests = file(PAGES);
    let area = Area::whole(&shared(&guests, PAGES, &loss)).unwrap();
    area.store8(0, 7);
    resize(&guests, PAGES - 1);
    with_room_for(1 << 30, || area.store8(area.bytes() - 1, 1));
    assert!(loss.has_happened());
    assert_eq!(area.load8(area.bytes() - 1), 1);
    assert_eq!(area.load8(0), 7, "what is far from it is as it was");
    // No room for a large part any more.
    resize(&guests, PAGES / 2);
    with_room_for(1 << 20, || area.store8(area.bytes() * 3 / 4, 1));
}

#[test]
#[ignore = "ends its process: a part of the test above"]
fn touches_memory_that_is_no_guests() {
    let loss = Arc::new(Loss::default());
    let guests = file(4);
    let memory = shared(&guests, 4, &loss);
    resize(&guests, 0);
    Area::whole(&memory).unwrap().store8(0, 1);
    assert!(loss.has_happened());
    drop(memory);
    let empty = file(0);
    let (bytes, flags) = (4096.try_into().unwrap(), MapFlags::MAP_SHARED);
    // SAFETY: a fresh mapping at an address of the kernel's choice.
    let other = unsafe { mmap(None, bytes, ProtFlags::PROT_READ, flags, &empty, 0) }.unwrap();
    // SAFETY: mapped, and not there: this is the end.
    let value = unsafe { other.cast::<u8>().read_volatile() };
    println!("{value} was read, of an empty file");
}
