//! Disks that nobody should have made: each refused for what is wrong with it, none crashing the reader or holding it up.

#![allow(clippy::unwrap_used, reason = "a test")]

mod model;

use std::io;

use erofs::limits::BLOCK_BYTES;
use erofs::{ErofsError, Image, Kind, ReadBlocks, Walk};
use model::{Item, attributes, disk, empty, label, sample_disk, tree};
use proptest::prelude::*;

/// What a copier does: everything is walked, every target and the ends of every file are read.
fn read_all(disk: &[u8]) -> Result<u64, ErofsError> {
    let mut image = Image::open(disk, (disk.len() / BLOCK_BYTES) as u64)?;
    let mut walk = Walk::new();
    let mut visited = 1;
    while let Some(visit) = walk.next(&mut image)? {
        visited += 1;
        match visit.inode.kind {
            Kind::Symlink => drop(image.target(&visit.inode)?),
            Kind::File => {
                let last = visit.inode.bytes.saturating_sub(1);
                let read = image.read(&visit.inode, last, &mut [0; 10])?;
                assert_eq!(read as u64, visit.inode.bytes.min(1));
            }
            Kind::Directory => {}
        }
    }
    Ok(visited)
}

/// CRC-32C bit by bit, as Linux's crc32c().
fn seal(disk: &mut [u8]) {
    disk[1028..1032].fill(0);
    let mut crc = u32::MAX;
    for byte in &disk[1024..4096] {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = crc >> 1 ^ if crc & 1 == 1 { 0x82F6_3B78 } else { 0 };
        }
    }
    disk[1028..1032].copy_from_slice(&crc.to_le_bytes());
}

/// A directory `d` with a directory `e`, a file `f` of 3 bytes, a link `l`.
fn small() -> Vec<u8> {
    let mut model = empty();
    model.insert(b"d".to_vec(), (attributes(1), Item::Directory));
    model.insert(b"d/e".to_vec(), (attributes(2), Item::Directory));
    model.insert(b"f".to_vec(), (attributes(3), Item::File(b"abc".to_vec())));
    model.insert(b"l".to_vec(), (attributes(4), Item::Symlink(b"f".to_vec())));
    disk(&model, &tree(&model).lay_out(label()).unwrap())
}

// Where things are in it: the root and its entries, then d, f, l, e.
const ROOT: usize = 4096;
const ROOT_ENTRIES: usize = ROOT + 64;
const D: usize = ROOT + 64 + 96;
const D_ENTRIES: usize = D + 64;
const F: usize = D + 64 + 64;
const L: usize = F + 64;
const E: usize = L + 64 + 32;

/// What is said of the small disk with `bytes` at `at`.
fn said(at: usize, bytes: &[u8]) -> String {
    let mut disk = small();
    disk[at..at + bytes.len()].copy_from_slice(bytes);
    if at < BLOCK_BYTES {
        seal(&mut disk);
    }
    read_all(&disk).unwrap_err().to_string()
}

#[test]
fn what_is_not_touched_reads() {
    assert_eq!(read_all(&small()).unwrap(), 5);
    assert_eq!(read_all(&sample_disk()).unwrap(), 1010);
}

#[test]
fn superblocks() {
    let no_erofs = "there is no EROFS here: ";
    assert_eq!(
        read_all(&[]).unwrap_err().to_string(),
        format!("{no_erofs}the disk is shorter than a block")
    );
    assert_eq!(
        said(1024, &[0]),
        format!("{no_erofs}its magic number is not at byte 1024")
    );
    assert_eq!(said(1036, &[9]), "block size: 2^9; this is not read here");
    assert_eq!(
        said(1104, &0x84u32.to_le_bytes()),
        "incompatible features: 0x84; this is not read here"
    );
    assert_eq!(
        said(1114, &[1]),
        "directory block size: 2^1 blocks; this is not read here"
    );
    assert_eq!(
        said(1060, &4u32.to_le_bytes()),
        "superblock: the filesystem has 4 blocks, the disk 3"
    );
    assert_eq!(
        said(1040, &385u64.to_le_bytes()),
        "superblock: 385 inodes do not fit into 3 blocks"
    );
    assert_eq!(
        said(1056, &1_000_000_000u32.to_le_bytes()),
        "superblock: its nanoseconds are a second or more"
    );
    assert_eq!(
        said(1038, &137u16.to_le_bytes()),
        "superblock: the root is not a directory"
    );
    assert_eq!(
        said(1064, &3u32.to_le_bytes()),
        "inode 128: it lies beyond the end of the disk"
    );
    let mut disk = small();
    disk[2000] ^= 1;
    let error = read_all(&disk).unwrap_err().to_string();
    assert!(
        error.starts_with("superblock: its checksum is 0x"),
        "{error}"
    );
}

#[test]
fn inodes() {
    assert_eq!(
        said(F, &[0x41]),
        "inode format: 0x41; this is not read here"
    );
    assert_eq!(
        said(F, &[1 | 4 << 1]),
        "data layout: 4; this is not read here"
    );
    assert_eq!(
        said(F + 4, &0o020_644u16.to_le_bytes()),
        "file type: 0o20000; this is not read here"
    );
    assert_eq!(
        said(F + 4, &0o120_644u16.to_le_bytes()),
        "inode 137: its directory says that it is something else"
    );
    assert_eq!(
        said(F + 16, &3u32.to_le_bytes()),
        "inode 137: 3 bytes from block 3 on; the disk has 3 blocks"
    );
    assert_eq!(
        said(F + 8, &4097u64.to_le_bytes()),
        "inode 137: 4097 bytes from block 2 on; the disk has 3 blocks"
    );
    assert_eq!(
        said(F + 8, &u64::MAX.to_le_bytes()),
        format!(
            "inode 137: {} bytes from block 2 on; the disk has 3 blocks",
            u64::MAX
        )
    );
    assert_eq!(
        said(F + 40, &u32::MAX.to_le_bytes()),
        "inode 137: its nanoseconds are a second or more"
    );
    let crosses = "inode 139: the end of its content crosses a block or the disk's end";
    assert_eq!(said(L + 8, &4000u64.to_le_bytes()), crosses);
    let no_target = "inode 139: it is no symbolic link with a target of 1 to 4095 bytes";
    assert_eq!(said(L + 8, &0u64.to_le_bytes()), no_target);
    assert_eq!(said(L + 64, &[0]), "inode 139: its target has a NUL in it");
    assert_eq!(
        said(L + 2, &[1]),
        "extended attributes: 1 units in inode 139; this is not read here"
    );
    assert_eq!(said(L, &[4]), "inode format: 0x4; this is not read here");
}

#[test]
fn directories() {
    let root = |entry: usize| ROOT_ENTRIES + entry * 12;
    let in_root = "directory 128, its block 0: ";
    // Entries of the root: '.', '..', d, f, l.
    for nid in [u64::MAX, u64::MAX / 32, 12 * 4096 / 32] {
        let error = said(root(3), &nid.to_le_bytes());
        let beyond = [
            format!("inode {nid}: its number is beyond the disk"),
            format!("inode {nid}: it lies beyond the end of the disk"),
        ];
        assert!(beyond.contains(&error), "{error}");
    }
    assert_eq!(
        said(root(3) + 10, &[3]),
        format!("{in_root}\"f\" is of type 3")
    );
    assert_eq!(
        said(root(3) + 10, &[2]),
        "inode 137: its directory says that it is something else"
    );
    assert_eq!(
        said(root(0), &[129]),
        format!("{in_root}'.' is inode 129, and should be 128")
    );
    assert_eq!(
        said(root(1), &[129]),
        format!("{in_root}'..' is inode 129, and should be 128")
    );
    for first_name in [0u16, 11, 13, 66, 72, 5000] {
        assert_eq!(
            said(root(0) + 8, &first_name.to_le_bytes()),
            format!("{in_root}its first name is said to be at byte {first_name}")
        );
    }
    // Fewer entries than there are: the names of the others are taken for the last one's.
    assert!(said(root(0) + 8, &48u16.to_le_bytes()).starts_with(in_root));
    assert_eq!(
        said(root(2) + 8, &5u16.to_le_bytes()),
        format!("{in_root}the name of entry 1 is not in it")
    );
    assert_eq!(
        said(root(4) + 8, &u16::MAX.to_le_bytes()),
        format!("{in_root}the name of entry 3 is not in it")
    );
    assert_eq!(
        said(root(3) + 8, &63u16.to_le_bytes()),
        format!("{in_root}the name of entry 2 has 0 bytes")
    );
    let names = ROOT_ENTRIES + 60;
    assert_eq!(
        said(names + 4, b"d"),
        format!("{in_root}\"d\" comes after \"d\"")
    );
    assert_eq!(
        said(names + 4, b"a"),
        format!("{in_root}\"a\" comes after \"d\"")
    );
    assert_eq!(
        said(names + 4, b"/"),
        format!("{in_root}the name \"/\" has a '/' or NUL in it")
    );
    assert_eq!(
        said(names + 4, b"\0"),
        format!("{in_root}the name \"\\x00\" has a '/' or NUL in it")
    );
    assert_eq!(
        said(names + 5, b"\0"),
        format!("{in_root}the name of entry 4 has 0 bytes")
    );
    // The root in itself, again and again.
    assert_eq!(
        said(names, b"-"),
        "inode 128: there are more names than the superblock counts inodes"
    );
    assert_eq!(
        said(ROOT + 8, &0u64.to_le_bytes()),
        "inode 128: it has no '.' or no '..'"
    );
    assert_eq!(
        said(ROOT + 8, &11u64.to_le_bytes()),
        format!("{in_root}entry 0 is cut off")
    );
    assert_eq!(
        said(E + 4, &0o100_000u16.to_le_bytes()),
        "inode 142: its directory says that it is something else"
    );
}

/// `d/e` leads back to `d`; and to the root.
#[test]
fn circles() {
    let e_in_d = D_ENTRIES + 2 * 12;
    for target in [D, ROOT] {
        let nid = (target / 32) as u64;
        let error = said(e_in_d, &nid.to_le_bytes());
        let expected = format!(
            "directory {nid}, its block 0: '..' is inode 128, and should be {}",
            D / 32
        );
        assert_eq!(error, expected);
    }
}

/// A file under more names than there are inodes.
#[test]
fn more_names_than_inodes() {
    assert_eq!(
        said(1040, &3u64.to_le_bytes()),
        "inode 137: there are more names than the superblock counts inodes"
    );
}

#[test]
fn more_directories_above_each_other_than_a_path_has() {
    let mut model = empty();
    let mut path = b"d".to_vec();
    for _ in 0..2049 {
        model.insert(path.clone(), (attributes(0), Item::Directory));
        path.extend_from_slice(b"/d");
    }
    let disk = disk(&model, &tree(&model).lay_out(label()).unwrap());
    let error = read_all(&disk).unwrap_err().to_string();
    assert!(
        error.ends_with(": more than 2048 directories lie above it"),
        "{error}"
    );
}

#[test]
fn a_medium_that_does_not_read() {
    #[derive(Debug)]
    struct Broken;
    impl ReadBlocks for Broken {
        fn read_block(&mut self, _: u32, _: &mut [u8; BLOCK_BYTES]) -> io::Result<()> {
            Err(io::Error::other("unplugged"))
        }
    }
    let error = Image::open(Broken, 1).unwrap_err().to_string();
    assert_eq!(error, "block 0 cannot be read: unplugged");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever a few bytes of the metadata are, it reads or is refused.
    #[test]
    fn any_bytes_changed(changes in prop::collection::vec((1024usize..3 * 4096, any::<u8>()), 1..6)) {
        let mut disk = small();
        for (at, byte) in changes {
            disk[at] = byte;
        }
        seal(&mut disk);
        let _ = read_all(&disk);
    }

    /// The same where it hurts: inodes and entries.
    #[test]
    fn any_field_changed(
        changes in prop::collection::vec((0usize..(E + 128 - ROOT), any::<u8>()), 1..4),
    ) {
        let mut disk = small();
        for (at, byte) in changes {
            disk[ROOT + at] = byte;
        }
        let _ = read_all(&disk);
    }

    #[test]
    fn any_disk_cut_off(blocks in 0usize..3) {
        let disk = small();
        prop_assert!(read_all(&disk[..blocks * BLOCK_BYTES]).is_err());
    }
}
