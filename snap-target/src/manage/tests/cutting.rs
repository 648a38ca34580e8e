//! Files that cannot be cut: what hosts were told is gone is never shown again.

use std::io;
use std::path::{Path, PathBuf};

use admin_proto::v1::Reason;
use nix::libc::EIO;

use super::resizing::{length, lengthen, serve};
use super::{Rig, nqn};
use crate::manage::{ManageError, Manager, NamespaceLive, NewSize};

const WHOLE: u64 = 8192;
const CUT: u64 = 4096;

/// Where this lies beside a file, the system does not cut it.
fn obstacle(disk: &Path) -> PathBuf {
    disk.with_extension("stuck")
}

fn fails_to_cut(disk: &Path, bytes: u64) -> io::Result<()> {
    if obstacle(disk).exists() && bytes < length(disk) {
        return Err(io::Error::from_raw_os_error(EIO));
    }
    store::set_file_size(disk, bytes)
}

/// A namespace of sevens that was cut to its half, and whose file was not.
fn uncut(rig: &Rig) -> (Manager, PathBuf) {
    let (mut manager, disk) = serve(rig, 8192);
    manager.set_size = fails_to_cut;
    std::fs::write(obstacle(&disk), "").unwrap();
    let (before, left) = resize(&mut manager, CUT).unwrap();
    assert_eq!(before, WHOLE);
    let left = left.unwrap();
    assert!(left.contains("hosts see the new size"), "{left}");
    assert_eq!(rig.fake.take(), ["replace nqn.a 2 4096"]);
    assert_eq!(length(&disk), WHOLE);
    (manager, disk)
}

fn resize(manager: &mut Manager, bytes: u64) -> Result<(u64, Option<String>), ManageError> {
    manager.resize(&nqn("nqn.a"), 2, NewSize::Bytes(bytes), true)
}

fn assert_sevens_and_zeros(disk: &Path) {
    let half = usize::try_from(CUT).unwrap();
    let bytes = std::fs::read(disk).unwrap();
    assert!(bytes[..half].iter().all(|byte| *byte == 7));
    assert!(bytes[half..].iter().all(|byte| *byte == 0));
}

#[test]
fn nothing_is_made_of_a_file_before_it_is_cut() {
    let rig = Rig::new();
    let (mut manager, disk) = uncut(&rig);
    for size in [
        NewSize::Bytes(WHOLE),
        NewSize::Bytes(2 * WHOLE),
        NewSize::Bytes(CUT),
        NewSize::Rescan,
    ] {
        let refused = manager.resize(&nqn("nqn.a"), 2, size, true).unwrap_err();
        assert_eq!(refused.reason, Reason::SourceUnusable, "{refused}");
        let why = "hosts were told that it ends after 4096 bytes";
        assert!(refused.to_string().contains(why), "{refused}");
    }
    assert_eq!(rig.fake.take(), Vec::<String>::new());
    assert_eq!(length(&disk), WHOLE);

    std::fs::remove_file(obstacle(&disk)).unwrap();
    assert_eq!(resize(&mut manager, WHOLE), Ok((CUT, None)));
    assert_eq!(rig.fake.take(), ["replace nqn.a 2 8192"]);
    assert_eq!(length(&disk), WHOLE);
    assert_sevens_and_zeros(&disk);
}

/// Asked again for the size that hosts see, and then what somebody puts behind it is there as ever.
#[test]
fn a_cut_that_is_made_at_last_is_forgotten() {
    let rig = Rig::new();
    let (mut manager, disk) = uncut(&rig);
    std::fs::remove_file(obstacle(&disk)).unwrap();
    assert_eq!(resize(&mut manager, CUT), Ok((CUT, None)));
    assert_eq!(length(&disk), CUT);
    lengthen(&disk, WHOLE);
    for _ in 0..2 {
        drop(manager);
        manager = rig.manager().unwrap();
        assert_eq!(length(&disk), WHOLE);
        assert_eq!(served(&manager), Some(WHOLE));
    }
}

/// A daemon that ends before the file is cut, whether it had tried or not: the next one cuts it before it is served.
#[test]
fn the_next_start_cuts_it_first() {
    let rig = Rig::new();
    let (manager, disk) = uncut(&rig);
    drop(manager);
    for _ in 0..2 {
        let mut manager = rig.manager().unwrap();
        assert_eq!(served(&manager), Some(CUT));
        assert_eq!(length(&disk), CUT);
        assert_eq!(resize(&mut manager, WHOLE), Ok((CUT, None)));
        assert_sevens_and_zeros(&disk);
        assert_eq!(resize(&mut manager, CUT), Ok((WHOLE, None)));
    }
}

/// Nobody but its owner knows what it is then.
#[test]
fn a_file_that_somebody_has_lengthened_meanwhile_is_left_to_him() {
    let rig = Rig::new();
    let (manager, disk) = uncut(&rig);
    drop(manager);
    lengthen(&disk, 2 * WHOLE);
    let mut manager = rig.manager().unwrap();
    assert_eq!(served(&manager), None);
    assert_eq!(length(&disk), 2 * WHOLE);
    let live = manager.live_namespace(&nqn("nqn.a"), 2);
    let Some(NamespaceLive::Failed(why)) = live else {
        panic!("{live:?}")
    };
    assert!(why.ends_with("(truncate --size 4096)"), "{why}");
    lengthen(&disk, CUT);
    manager.retry_failed();
    manager.wait_for_openings();
    assert_eq!(served(&manager), Some(CUT));
    // And it is forgotten.
    lengthen(&disk, WHOLE);
    assert_eq!(
        manager.resize(&nqn("nqn.a"), 2, NewSize::Rescan, false),
        Ok((CUT, None))
    );
    drop(manager);
    assert_eq!(served(&rig.manager().unwrap()), Some(WHOLE));
}

fn served(manager: &Manager) -> Option<u64> {
    match manager.live_namespace(&nqn("nqn.a"), 2)? {
        NamespaceLive::Served(namespace) => Some(namespace.bytes()),
        NamespaceLive::Failed(_) => None,
    }
}
