//! Single names and places of directories, held against the whole of them.

#![allow(clippy::unwrap_used, reason = "a test")]

mod model;

use std::collections::BTreeMap;

use erofs::limits::BLOCK_BYTES;
use erofs::{Entry, ErofsError, Image, Inode, Kind, Position, ReadBlocks, Walk};
use model::{Item, attributes, disk, empty, label, parent_and_name, sample, sample_disk, tree};
use proptest::prelude::*;

/// A directory, and the names in it with their inodes.
type Directory = (Inode, Vec<(Vec<u8>, u64)>);

/// Every directory and what the walk finds in it, by path.
fn directories(image: &mut Image<&[u8]>) -> BTreeMap<Vec<u8>, Directory> {
    let root = image.root().unwrap();
    let mut found = BTreeMap::from([(Vec::new(), (root, Vec::new()))]);
    let mut walk = Walk::new();
    while let Some(visit) = walk.next(image).unwrap() {
        let (parent, name) = parent_and_name(&visit.path);
        let names = &mut found.get_mut(parent).unwrap().1;
        names.push((name.to_vec(), visit.inode.nid));
        if visit.inode.kind == Kind::Directory {
            found.insert(visit.path, (visit.inode, Vec::new()));
        }
    }
    found
}

fn list<R: ReadBlocks>(
    image: &mut Image<R>,
    directory: &Inode,
    at: Position,
    most: usize,
) -> Result<Vec<(Entry, Position)>, ErofsError> {
    let mut listed = Vec::new();
    image.entries_from(directory, at, |_, entry, next| {
        listed.push((entry, next));
        Ok(listed.len() < most)
    })?;
    Ok(listed)
}

fn open(disk: &[u8]) -> Image<&[u8]> {
    Image::open(disk, (disk.len() / BLOCK_BYTES) as u64).unwrap()
}

#[test]
fn every_name_is_found_and_no_other() {
    let mut model = sample();
    // Longer than a block each, with names that begin alike.
    for i in 0..3000u32 {
        let name = format!("many/{i:x}");
        model.insert(name.into_bytes(), (attributes(i), Item::File(Vec::new())));
    }
    let disk = disk(&model, &tree(&model).lay_out(label()).unwrap());
    let mut image = open(&disk);
    let directories = directories(&mut image);
    let many = directories[&b"many"[..]].1.len();
    assert_eq!(many, 4000);
    for (directory, names) in directories.values() {
        for (name, nid) in names {
            let found = image.find(directory, name).unwrap().unwrap();
            assert_eq!((&found.name, found.nid), (name, *nid));
            // Its neighbours in the order of bytes.
            for other in [
                [name.as_slice(), b"\x01"].concat(),
                name[..name.len() - 1].to_vec(),
            ] {
                let there = names.iter().any(|(name, _)| *name == other);
                let found = image.find(directory, &other).unwrap();
                assert_eq!(found.is_some(), there, "{}", other.escape_ascii());
            }
        }
        for absent in [&b""[..], b"\x01", &[0xff; 255]] {
            assert_eq!(image.find(directory, absent).unwrap(), None);
        }
        let itself = image.find(directory, b".").unwrap().unwrap();
        assert_eq!((itself.nid, itself.kind), (directory.nid, Kind::Directory));
        assert!(image.find(directory, b"..").unwrap().is_some());
    }
}

#[test]
fn a_directory_is_listed_from_any_place_on() {
    let disk = sample_disk();
    let mut image = open(&disk);
    for (directory, names) in directories(&mut image).values() {
        let all = list(&mut image, directory, Position::default(), usize::MAX).unwrap();
        let dots: Vec<_> = all
            .iter()
            .filter(|(it, _)| it.name.starts_with(b"."))
            .collect();
        assert_eq!(
            dots.iter()
                .filter(|(it, _)| it.name == b"." || it.name == b"..")
                .count(),
            2
        );
        let without: Vec<_> = all
            .iter()
            .filter(|(it, _)| it.name != b"." && it.name != b"..")
            .map(|(it, _)| (it.name.clone(), it.nid))
            .collect();
        assert_eq!(&without, names);
        for (index, (_, next)) in all.iter().enumerate() {
            let rest = list(&mut image, directory, *next, 3).unwrap();
            let expected = all[index + 1..].iter().take(3);
            assert!(rest.iter().eq(expected), "behind {index}");
        }
        let beyond = Position {
            block: 1 << 40,
            slot: 0,
        };
        assert_eq!(list(&mut image, directory, beyond, 1).unwrap(), []);
        let beyond = Position {
            block: u64::MAX,
            slot: u16::MAX,
        };
        assert_eq!(list(&mut image, directory, beyond, 1).unwrap(), []);
    }
}

#[test]
fn only_a_directory_has_names() {
    let mut model = empty();
    model.insert(b"f".to_vec(), (attributes(3), Item::File(b"abc".to_vec())));
    let disk = disk(&model, &tree(&model).lay_out(label()).unwrap());
    let mut image = open(&disk);
    let root = image.root().unwrap();
    let file = image.find(&root, b"f").unwrap().unwrap();
    let file = image.inode(file.nid).unwrap();
    let refused = image.find(&file, b"f").unwrap_err().to_string();
    assert_eq!(
        refused,
        format!("inode {}: it is not a directory", file.nid)
    );
    assert!(list(&mut image, &file, Position::default(), 1).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever a few bytes of the metadata are: it answers or is refused, and a listing ends.
    #[test]
    fn any_bytes_changed(
        changes in prop::collection::vec((4096usize..80_000, any::<u8>()), 1..20),
        name in prop::collection::vec(any::<u8>(), 1..20),
    ) {
        let mut disk = sample_disk();
        let clean = disk.clone();
        let mut image = open(&clean);
        let directories = directories(&mut image);
        for (at, byte) in changes {
            disk[at] = byte;
        }
        let Ok(mut image) = Image::open(disk.as_slice(), (disk.len() / BLOCK_BYTES) as u64) else {
            return Ok(());
        };
        for (directory, names) in directories.values() {
            let Ok(directory) = image.inode(directory.nid) else { continue };
            let _ = image.find(&directory, &name);
            for (name, _) in names.iter().step_by(97) {
                let _ = image.find(&directory, name);
            }
            if let Ok(listed) = list(&mut image, &directory, Position::default(), usize::MAX) {
                prop_assert!(listed.len() as u64 <= directory.bytes);
            }
        }
    }
}
