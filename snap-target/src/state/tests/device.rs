//! UUIDs of block devices that have no name of their own.

use std::path::Path;

use super::super::{StateError, StateFolder};

#[test]
fn a_device_keeps_its_uuid_and_another_one_in_its_place_has_another() {
    let folder = tempfile::tempdir().unwrap();
    let (sda, sdb) = (Path::new("/dev/sda"), Path::new("/dev/sdb"));
    let mut state = StateFolder::open(folder.path()).unwrap();
    let first = state.device(sda, 1 << 30).unwrap();
    assert_eq!((first[6] >> 4, first[8] >> 6), (4, 2), "RFC 9562, random");
    let second = state.device(sdb, 1 << 30).unwrap();
    assert_ne!(first, second);
    drop(state);
    let mut state = StateFolder::open(folder.path()).unwrap();
    assert_eq!(state.device(sda, 1 << 30), Ok(first));
    // Grown while it was served: the same one.
    state.keep_device(sda, 2 << 30, first).unwrap();
    assert_eq!(state.device(sda, 2 << 30), Ok(first));
    let other = state.device(sda, 3 << 30).unwrap();
    assert_ne!(other, first);
    assert_eq!(state.device(sda, 3 << 30), Ok(other));
    assert_eq!(state.device(sdb, 1 << 30), Ok(second));
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|it| it == "device") {
            std::fs::write(path, b"junk").unwrap();
        }
    }
    assert!(matches!(
        state.device(sda, 3 << 30),
        Err(StateError::Damaged { .. })
    ));
}
