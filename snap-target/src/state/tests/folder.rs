//! The folder itself: its lock, its damage, and the records of namespaces.

use std::path::Path;
use std::sync::mpsc::sync_channel;

use namespace::{Identity, Keeper, RecordKind};
use nix::fcntl::{Flock, FlockArg};
use nvme::controller::Visibility;
use nvme::nqn::Nqn;

use super::super::record::{seal, unseal};
use super::super::{Keepers, Overlay, StateError, StateFolder};
use super::{DISKS, MORE, desired};
use crate::config::NamespaceConfig;
use crate::desired::Desired;
use crate::limits::HOSTS_MAX;

fn overlay() -> Overlay {
    Overlay::between(&desired(DISKS), &desired(MORE))
}

#[test]
fn what_is_saved_is_found_by_the_next_daemon() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    let mut state = StateFolder::open(&path).unwrap();
    assert_eq!(state.load(), Ok(Overlay::default()));
    state.save(&overlay()).unwrap();
    drop(state);
    assert_eq!(StateFolder::open(&path).unwrap().load(), Ok(overlay()));
}

#[test]
fn what_a_start_would_not_read_again_is_not_saved() {
    let folder = tempfile::tempdir().unwrap();
    let mut state = StateFolder::open(folder.path()).unwrap();
    state.save(&overlay()).unwrap();
    let host = |number| Nqn::parse(&format!("nqn.{number:0>219}")).unwrap();
    let hosts: Vec<Nqn> = (0..HOSTS_MAX).map(host).collect();
    let mut desired = desired(MORE);
    let disks = &mut desired.subsystems.values_mut().next().unwrap().namespaces;
    let disk = disks.values().next().unwrap().clone();
    for nsid in 100..400 {
        let visibility = Visibility::Hosts(hosts.clone());
        let disk = NamespaceConfig {
            nsid,
            visibility,
            ..disk.clone()
        };
        disks.insert(nsid, disk);
    }
    let refused = state.save(&Overlay::between(&Desired::default(), &desired));
    assert!(
        matches!(refused, Err(StateError::TooLong { .. })),
        "{refused:?}"
    );
    drop(state);
    let found = StateFolder::open(folder.path()).unwrap().load();
    assert!(found == Ok(overlay()), "what was saved before is there");
}

#[test]
fn two_daemons_on_one_folder_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let first = StateFolder::open(folder.path()).unwrap();
    let error = StateFolder::open(folder.path()).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "the state folder {} is in use by another snap-target; end that one, or name another folder",
            folder.path().display()
        )
    );
    // Nor where somebody took the lock file away, or the first one could not make it.
    std::fs::remove_file(folder.path().join("lock")).unwrap();
    assert!(matches!(
        StateFolder::open(folder.path()),
        Err(StateError::InUse { .. })
    ));
    drop(first);
    let second = StateFolder::open(folder.path()).unwrap();
    // What locks the file alone, as earlier versions did.
    drop(second);
    let file = std::fs::File::open(folder.path().join("lock")).unwrap();
    let _other = Flock::lock(file, FlockArg::LockExclusiveNonblock).unwrap();
    assert!(matches!(
        StateFolder::open(folder.path()),
        Err(StateError::InUse { .. })
    ));
}

/// One flipped bit, a cut, or more bytes: refused, never taken for nothing.
#[test]
fn damage_anywhere_is_refused() {
    let record = seal("changes", 7, b"{\"some\": \"bytes\"}");
    assert_eq!(
        unseal("changes", &record, "f").unwrap(),
        (7, b"{\"some\": \"bytes\"}".as_slice())
    );
    for byte in 0..record.len() {
        for bit in 0..8 {
            let mut flipped = record.clone();
            flipped[byte] ^= 1 << bit;
            assert!(unseal("changes", &flipped, "f").is_err(), "{byte}.{bit}");
        }
        assert!(
            unseal("changes", &record[..byte], "f").is_err(),
            "cut at {byte}"
        );
    }
    let longer = [record.as_slice(), b"x"].concat();
    assert!(unseal("changes", &longer, "f").is_err());
    assert!(
        unseal("reservations", &record, "f").is_err(),
        "of another kind"
    );
}

#[test]
fn a_damaged_folder_says_the_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("changes");
    let mut state = StateFolder::open(folder.path()).unwrap();
    for (bytes, expected) in [
        (
            b"".to_vec(),
            "is damaged: its first line has no end; put a copy of it back, or move it away to go on without what it kept",
        ),
        (
            b"xio-state 2 changes\n".to_vec(),
            "was written by a newer snap-target; start that one, or move the file away to go on without what it kept",
        ),
        (
            seal("changes", 1, b"{}"),
            "is damaged: missing field `subsystems` at line 1 column 2; put a copy of it back, or move it away to go on without what it kept",
        ),
    ] {
        std::fs::write(&file, &bytes).unwrap();
        assert_eq!(
            state.load().unwrap_err().to_string(),
            format!("{} {expected}", file.display())
        );
    }
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    assert!(matches!(
        StateFolder::open(Path::new("/proc/no-such/state")),
        Err(StateError::System {
            what: "it cannot be made",
            ..
        })
    ));
}

fn save(keeper: &dyn Keeper, kind: RecordKind, bytes: &[u8]) -> Result<(), String> {
    let (told, result) = sync_channel(1);
    keeper.save(
        kind,
        bytes.to_vec(),
        Box::new(move |result| told.send(result).unwrap()),
    );
    result.recv().unwrap().map_err(|error| error.to_string())
}

#[test]
fn records_are_kept_by_namespace_and_kind() {
    let folder = tempfile::tempdir().unwrap();
    let keepers = Keepers::start(folder.path()).unwrap();
    let (a, b) = (Identity { uuid: [1; 16] }, Identity { uuid: [2; 16] });
    let keeper = keepers.of(&a);
    assert!(keeper.is_durable());
    assert_eq!(keeper.load(RecordKind::Reservations), Ok(None));
    for round in 0..3 {
        save(&*keeper, RecordKind::Reservations, &[round; 700]).unwrap();
    }
    save(&*keeper, RecordKind::Uncorrectable, b"blocks").unwrap();
    // Another daemon, later.
    let keepers = Keepers::start(folder.path()).unwrap();
    let found = |of, kind| keepers.of(of).load(kind).unwrap();
    assert_eq!(found(&a, RecordKind::Reservations), Some(vec![2; 700]));
    assert_eq!(
        found(&a, RecordKind::Uncorrectable),
        Some(b"blocks".to_vec())
    );
    assert_eq!(found(&a, RecordKind::WriteProtection), None);
    assert_eq!(found(&b, RecordKind::Reservations), None);
}

/// A record that cannot be saved, or is damaged, is told, and nothing is made up.
#[test]
fn records_that_cannot_be_kept_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let keepers = Keepers::start(folder.path()).unwrap();
    let keeper = keepers.of(&Identity { uuid: [1; 16] });
    save(&*keeper, RecordKind::Reservations, b"before").unwrap();
    let file = folder
        .path()
        .join("01010101-0101-0101-0101-010101010101.reservations");
    // Its place is taken by a folder: the next record cannot be written.
    let new = file.with_extension("reservations.new");
    std::fs::create_dir(&new).unwrap();
    let error = save(&*keeper, RecordKind::Reservations, b"after").unwrap_err();
    assert_eq!(
        error,
        "the record of reservations cannot be kept: 01010101-0101-0101-0101-010101010101.reservations: Is a directory (os error 21)"
    );
    assert_eq!(
        keeper.load(RecordKind::Reservations),
        Ok(Some(b"before".to_vec()))
    );
    std::fs::write(&file, b"junk").unwrap();
    assert!(keeper.load(RecordKind::Reservations).is_err());
}

/// Whoever opens a pipe waits for its writer.
#[test]
fn a_pipe_in_the_place_of_a_file_is_refused_and_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let mut state = StateFolder::open(folder.path()).unwrap();
    let mode = nix::sys::stat::Mode::S_IRWXU;
    nix::unistd::mkfifo(&folder.path().join("changes"), mode).unwrap();
    let error = state.load().unwrap_err().to_string();
    assert!(error.contains("changes is no regular file"), "{error}");
}
