//! Files that were cut while writes to the namespace as it was before were under way: what those write behind the new end is never shown.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use admin_proto::v1::{HealthCode, Reason};
use frontend_nvme::Closing;

use super::resizing::{length, lengthen, serve};
use super::{Rig, new, nqn};
use crate::manage::{ManageError, Manager, NamespaceLive, NewSize};

const WHOLE: u64 = 8192;
const CUT: u64 = 4096;

/// A namespace of sevens that gets this size while a write is under way; that write then.
fn cut_under_a_write(rig: &Rig, size: NewSize) -> (Manager, PathBuf, Closing) {
    let (mut manager, disk) = serve(rig, 8192);
    if size == NewSize::Rescan {
        lengthen(&disk, CUT);
    }
    let left = Closing::default();
    *rig.fake.leaves.lock().unwrap() = Some(left.clone());
    let (before, why) = manager.resize(&nqn("nqn.a"), 2, size, true).unwrap();
    *rig.fake.leaves.lock().unwrap() = None;
    assert_eq!(before, WHOLE);
    let why = why.unwrap();
    assert!(why.contains("is cut off when they have ended"), "{why}");
    assert_eq!(length(&disk), CUT);
    (manager, disk, left)
}

/// Not to the end of what was there, nor to that of a block.
fn write_late(disk: &Path) {
    let file = OpenOptions::new().write(true).open(disk).unwrap();
    file.write_all_at(&[9; 512], WHOLE - 1024).unwrap();
}

fn resize(manager: &mut Manager, bytes: u64) -> Result<(u64, Option<String>), ManageError> {
    manager.resize(&nqn("nqn.a"), 2, NewSize::Bytes(bytes), true)
}

fn served(manager: &Manager) -> Option<u64> {
    match manager.live_namespace(&nqn("nqn.a"), 2)? {
        NamespaceLive::Served(namespace) => Some(namespace.bytes()),
        NamespaceLive::Failed(_) => None,
    }
}

/// It grows, and has zeros where something was.
fn assert_gone(manager: &mut Manager, disk: &Path) {
    assert_eq!(length(disk), CUT);
    assert_eq!(resize(manager, WHOLE), Ok((CUT, None)));
    let bytes = std::fs::read(disk).unwrap();
    let half = usize::try_from(CUT).unwrap();
    assert!(bytes[half..].iter().all(|byte| *byte == 0));
}

#[test]
fn what_was_under_way_at_a_cut_is_cut_off_when_it_has_ended() {
    for size in [NewSize::Bytes(CUT), NewSize::Rescan] {
        let rig = Rig::new();
        let (mut manager, disk, left) = cut_under_a_write(&rig, size);
        let problems = rig.health.report().problems;
        assert_eq!(problems[0].code(), HealthCode::Closing);
        for size in [WHOLE, CUT, CUT / 8] {
            let refused = resize(&mut manager, size).unwrap_err();
            assert_eq!(refused.reason, Reason::SourceClosing, "{refused}");
        }
        assert!(manager.waits_for_others());
        write_late(&disk);
        left.end();
        manager.look_around();
        manager.wait_for_openings();
        assert_eq!(rig.health.report().problems, []);
        assert_gone(&mut manager, &disk);
        // Nothing of it is kept: what somebody puts there later is his.
        drop(manager);
        assert_eq!(served(&rig.manager().unwrap()), Some(WHOLE));
    }
}

/// Somebody has cut the file by hand, and tells of it by its size.
#[test]
fn a_file_that_was_cut_by_hand_is_cut_again() {
    let rig = Rig::new();
    let (mut manager, disk) = serve(&rig, 8192);
    lengthen(&disk, CUT);
    let left = Closing::default();
    *rig.fake.leaves.lock().unwrap() = Some(left.clone());
    assert!(resize(&mut manager, CUT).unwrap().1.is_some());
    *rig.fake.leaves.lock().unwrap() = None;
    write_late(&disk);
    left.end();
    manager.look_around();
    manager.wait_for_openings();
    assert_gone(&mut manager, &disk);
}

/// The daemon ends before the write has: the next one does not take the file for what was asked for.
#[test]
fn a_restart_cuts_off_what_was_under_way() {
    for size in [NewSize::Bytes(CUT), NewSize::Rescan] {
        let rig = Rig::new();
        let (manager, disk, _left) = cut_under_a_write(&rig, size);
        write_late(&disk);
        drop(manager);
        let mut manager = rig.manager().unwrap();
        assert_eq!(served(&manager), Some(CUT));
        assert_gone(&mut manager, &disk);
    }
}

/// Taken away meanwhile: nobody takes the file in before it has been cut.
#[test]
fn a_file_that_is_to_be_cut_again_is_not_attached() {
    let rig = Rig::new();
    let (mut manager, disk, left) = cut_under_a_write(&rig, NewSize::Bytes(CUT));
    assert_eq!(manager.detach(&nqn("nqn.a"), 2), Ok(None));
    let source = format!("file:{}", disk.display());
    let refused = manager.attach(new(&source)).unwrap_err();
    assert_eq!(refused.reason, Reason::SourceClosing, "{refused}");
    write_late(&disk);
    left.end();
    manager.look_around();
    manager.wait_for_openings();
    assert_eq!(manager.attach(new(&source)), Ok(2));
    assert_gone(&mut manager, &disk);
}
