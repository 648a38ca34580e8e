//! Files that get another size: nothing is cut off them that nobody said.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::time::Duration;

use admin_proto::v1::{NamespaceChange, Reason, event::Kind};
use nix::sys::stat::Mode;
use nvme::controller::Visibility;

use super::{Rig, new, nqn};
use crate::events::Entry;
use crate::manage::{Manager, NewSize};

/// A file of this many bytes, served as namespace 2.
pub(super) fn serve(rig: &Rig, bytes: usize) -> (Manager, PathBuf) {
    let disk = rig.folder.path().join("disk.raw");
    std::fs::write(&disk, vec![7; bytes]).unwrap();
    let mut manager = rig.manager().unwrap();
    let source = format!("file:{}", disk.display());
    assert_eq!(manager.attach(new(&source)), Ok(2));
    rig.fake.take();
    (manager, disk)
}

pub(super) fn lengthen(disk: &Path, bytes: u64) {
    let file = OpenOptions::new().write(true).open(disk).unwrap();
    file.set_len(bytes).unwrap();
}

pub(super) fn length(disk: &Path) -> u64 {
    std::fs::metadata(disk).unwrap().len()
}

#[test]
fn a_file_that_is_longer_than_what_is_served_is_cut_by_force_alone() {
    let rig = Rig::new();
    let (mut manager, disk) = serve(&rig, 8192);
    // Somebody made it longer, and put something there.
    lengthen(&disk, 16384);
    let mut resize = |bytes, force| manager.resize(&nqn("nqn.a"), 2, NewSize::Bytes(bytes), force);
    let refused = resize(12288, false).unwrap_err();
    assert_eq!(refused.reason, Reason::Shrinks, "{refused}");
    assert_eq!(length(&disk), 16384);
    assert_eq!(rig.fake.take(), Vec::<String>::new());
    // The size that it has already: nothing happens, whatever is behind it.
    for force in [false, true] {
        assert_eq!(resize(8192, force), Ok((8192, None)));
        assert_eq!(length(&disk), 16384);
        assert_eq!(rig.fake.take(), Vec::<String>::new());
    }
    assert_eq!(resize(12288, true), Ok((8192, None)));
    assert_eq!(rig.fake.take(), ["replace nqn.a 2 12288"]);
    assert_eq!(length(&disk), 12288);
    assert_eq!(resize(16384, false), Ok((12288, None)));
    assert_eq!(length(&disk), 16384);
}

/// As large as a store can be attached, and no larger.
#[test]
fn nothing_is_made_larger_than_it_could_be_attached() {
    const EIB_8: u64 = 1 << 63;
    let rig = Rig::new();
    let (mut manager, disk) = serve(&rig, 8192);
    let mut resize =
        |nsid, bytes| manager.resize(&nqn("nqn.a"), nsid, NewSize::Bytes(bytes), false);
    assert_eq!(resize(1, EIB_8), Ok((1 << 20, None)));
    for (nsid, bytes, why) in [
        (1, EIB_8 + 4096, "bytes: the size is over 8 EiB"),
        (1, u64::MAX - 4095, "bytes: the size is over 8 EiB"),
        (2, EIB_8, "bytes: no file has 8 EiB or more"),
    ] {
        assert_eq!(resize(nsid, bytes).unwrap_err().to_string(), why);
    }
    // Beyond what any file system here takes.
    let refused = resize(2, EIB_8 - 4096).unwrap_err();
    assert_eq!(refused.reason, Reason::SourceUnusable);
    let what_to_do = "takes no file of this size: take a smaller one";
    assert!(refused.to_string().ends_with(what_to_do), "{refused}");
    assert_eq!(length(&disk), 8192);
}

/// What lies behind another part than the last would move.
#[test]
fn of_a_mixed_namespace_the_last_part_alone_gets_another_size() {
    let rig = Rig::new();
    let [first, last] = ["first.raw", "last.raw"].map(|name| rig.folder.path().join(name));
    for disk in [&first, &last] {
        std::fs::write(disk, vec![7; 8192]).unwrap();
    }
    let mut manager = rig.manager().unwrap();
    let source = format!("mixed:file:{}+file:{}", first.display(), last.display());
    assert_eq!(manager.attach(new(&source)), Ok(2));
    rig.fake.take();
    let mut resize = |size, force| manager.resize(&nqn("nqn.a"), 2, size, force);
    assert_eq!(resize(NewSize::Bytes(24576), false), Ok((16384, None)));
    assert_eq!(rig.fake.take(), ["replace nqn.a 2 24576"]);
    assert_eq!((length(&first), length(&last)), (8192, 16384));
    let refused = resize(NewSize::Bytes(12288), false).unwrap_err();
    assert_eq!(refused.reason, Reason::Shrinks, "{refused}");
    assert_eq!(resize(NewSize::Bytes(12288), true), Ok((24576, None)));
    assert_eq!(rig.fake.take(), ["replace nqn.a 2 12288"]);
    assert_eq!((length(&first), length(&last)), (8192, 4096));
    // Nothing is left for it.
    let refused = resize(NewSize::Bytes(8192), true).unwrap_err();
    assert_eq!(refused.reason, Reason::Size, "{refused}");
    // By itself.
    lengthen(&last, 8192);
    assert_eq!(resize(NewSize::Rescan, false), Ok((12288, None)));
    assert_eq!(rig.fake.take(), ["replace nqn.a 2 16384"]);
    // Another part stays as it is served.
    lengthen(&first, 12288);
    assert_eq!(resize(NewSize::Rescan, false), Ok((16384, None)));
    assert_eq!(rig.fake.take(), Vec::<String>::new());
    lengthen(&last, 8292);
    let refused = resize(NewSize::Rescan, false).unwrap_err().to_string();
    let why = "last.raw has 8292 bytes, which is no whole number of blocks of 4096";
    assert!(refused.contains(why), "{refused}");
}

#[test]
fn a_change_that_cannot_be_kept_cuts_nothing() {
    let rig = Rig::new();
    let (mut manager, disk) = serve(&rig, 8192);
    rig.fake.fail(Some("replace"));
    let refused = manager.resize(&nqn("nqn.a"), 2, NewSize::Bytes(4096), true);
    assert_eq!(refused.unwrap_err().reason, Reason::Ending);
    assert_eq!(length(&disk), 8192);
}

#[test]
fn another_file_under_the_name_of_the_disk_is_not_taken_for_it() {
    let rig = Rig::new();
    let (mut manager, disk) = serve(&rig, 8192);
    std::fs::rename(&disk, disk.with_extension("old")).unwrap();
    std::fs::write(&disk, vec![0; 16384]).unwrap();
    for (size, force) in [
        (NewSize::Rescan, false),
        (NewSize::Bytes(32768), false),
        (NewSize::Bytes(4096), true),
    ] {
        let refused = manager.resize(&nqn("nqn.a"), 2, size, force).unwrap_err();
        assert_eq!(refused.reason, Reason::SourceUnusable, "{refused}");
        assert_eq!(length(&disk), 16384);
    }
    assert_eq!(rig.fake.take(), Vec::<String>::new());
}

/// A pipe that nobody reads is opened for ever.
#[test]
fn a_file_that_cannot_be_flushed_keeps_neither_the_others_nor_the_end_waiting() {
    let rig = Rig::new();
    let (manager, disk) = serve(&rig, 8192);
    assert_eq!(manager.flush(Duration::from_secs(60)), 0);
    std::fs::remove_file(&disk).unwrap();
    nix::unistd::mkfifo(&disk, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
    assert_eq!(manager.flush(Duration::ZERO), 1);
    // The thread is let go.
    let _reader = OpenOptions::new().read(true).open(&disk).unwrap();
}

/// Who follows namespaces alone hears of all that come and go, served or not.
#[test]
fn each_namespace_of_a_subsystem_that_goes_is_told() {
    let rig = Rig::new();
    let (mut manager, disk) = serve(&rig, 8192);
    drop(manager);
    std::fs::remove_file(&disk).unwrap();
    manager = rig.manager().unwrap();
    let told = |from: u64| -> Vec<(u32, NamespaceChange, bool)> {
        let batch = rig.events.read(from, 99);
        let one = |entry: &Entry| match entry {
            Entry::Event(event) => match event.kind.as_ref()? {
                Kind::Namespace(it) => Some((it.nsid, it.change(), it.uuid.is_empty())),
                _ => None,
            },
            Entry::NotNoted => None,
        };
        batch.items.iter().filter_map(|entry| one(entry)).collect()
    };
    let from = rig.events.last() + 1;
    manager
        .set_visibility(&nqn("nqn.a"), 2, Visibility::Hosts(Vec::new()))
        .unwrap();
    assert_eq!(told(from), [(2, NamespaceChange::Visibility, true)]);
    let from = rig.events.last() + 1;
    manager.delete_subsystem(&nqn("nqn.a"), true).unwrap();
    let detached = NamespaceChange::Detached;
    assert_eq!(told(from), [(1, detached, false), (2, detached, true)]);
}
