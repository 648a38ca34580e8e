//! What the writer refuses, in its words; and what it makes of sizes.

#![allow(clippy::unwrap_used, reason = "a test")]

mod model;

use std::io::Read;

use erofs::limits::{BLOCK_BYTES, BLOCKS_MAX};
use erofs::{Attributes, FilePlace, Image, Label, Layout, Time, Tree, Walk};
use model::{label, sample, tree};

fn root() -> Tree {
    Tree::new(Attributes::new(0o755)).unwrap()
}

fn said<T: std::fmt::Debug>(result: Result<T, erofs::ErofsError>) -> String {
    result.unwrap_err().to_string()
}

/// A tree of one file.
fn one_file(bytes: u64) -> Result<Layout, erofs::ErofsError> {
    let mut tree = root();
    tree.add_file(tree.root(), b"file", bytes, Attributes::new(0o644))?;
    tree.lay_out(label())
}

#[test]
fn names_that_cannot_be() {
    let mut tree = root();
    let at = tree.root();
    let mut add = |name: &[u8]| said(tree.add_file(at, name, 1, Attributes::new(0)));
    assert_eq!(add(b""), "the name \"\" is empty");
    assert_eq!(
        add(b".."),
        "the name \"..\" means a directory itself, or the one above"
    );
    assert_eq!(
        add(b"."),
        "the name \".\" means a directory itself, or the one above"
    );
    assert_eq!(add(b"a/b"), "the name \"a/b\" has a '/' or NUL in it");
    assert_eq!(add(b"a\0b"), "the name \"a\\x00b\" has a '/' or NUL in it");
    let long = "x".repeat(256);
    assert_eq!(
        add(long.as_bytes()),
        format!("the name \"{long}\" has more than 255 bytes")
    );
    assert_eq!(tree.lay_out(label()).unwrap().files().count(), 0);
}

#[test]
fn names_that_are_there_twice() {
    let mut tree = root();
    let a = tree
        .add_directory(tree.root(), b"a", Attributes::new(0))
        .unwrap();
    tree.add_file(a, b"\xff", 1, Attributes::new(0)).unwrap();
    tree.add_file(tree.root(), b"\xff", 1, Attributes::new(0))
        .unwrap();
    tree.add_symlink(a, b"\xff", b"t", Attributes::new(0))
        .unwrap();
    assert_eq!(said(tree.lay_out(label())), "/a/\\xff is in the tree twice");
}

#[test]
fn targets_and_attributes_that_cannot_be() {
    let mut tree = root();
    let at = tree.root();
    let mut link = |target: &[u8]| said(tree.add_symlink(at, b"l", target, Attributes::new(0)));
    assert_eq!(link(b""), "the symbolic link \"l\" has an empty target");
    assert_eq!(
        link(b"\0"),
        "the symbolic link \"l\" has a NUL in its target"
    );
    assert_eq!(
        link(&[b'x'; 4096]),
        "the symbolic link \"l\" has a target of more than 4095 bytes"
    );
    assert_eq!(
        said(tree.add_directory(at, b"d", Attributes::new(0o10_000))),
        "permissions 0o10000; 0 to 0o7777 are possible"
    );
    let mut late = Attributes::new(0);
    late.modified.nanoseconds = 1_000_000_000;
    assert_eq!(
        said(tree.add_file(at, b"f", 0, late)),
        "nanoseconds 1000000000; 0 to 999999999 are possible"
    );
    let named = |name: &[u8]| Label {
        volume_name: name.to_vec(),
        ..label()
    };
    assert_eq!(
        said(root().lay_out(named(b"sixteen bytes it"))),
        "the filesystem's label sixteen bytes it; a label has up to 15 bytes, without NUL; choose a shorter one (--label)"
    );
    assert!(root().lay_out(named(b"fifteen bytes i")).is_ok());
    assert!(root().lay_out(named(b"a\0")).is_err());
    let built = Time {
        seconds: 0,
        nanoseconds: u32::MAX,
    };
    assert!(root().lay_out(Label { built, ..label() }).is_err());
}

#[test]
fn identifiers_of_another_tree() {
    let mut other = root();
    let directory = other
        .add_directory(other.root(), b"d", Attributes::new(0))
        .unwrap();
    let file = other
        .add_file(other.root(), b"f", 1, Attributes::new(0))
        .unwrap();
    let mut tree = root();
    let added = tree.add_file(directory, b"f", 1, Attributes::new(0));
    assert_eq!(said(added), "the directory is none of this tree");
    let mut layout = tree.lay_out(label()).unwrap();
    assert_eq!(said(layout.place(file, 9)), "the file is none of this tree");
    assert_eq!(said(layout.path(file)), "the file is none of this tree");
}

/// Metadata of one file: the superblock, and a block with two inodes.
#[test]
fn the_last_block_that_can_be_numbered() {
    let most = (BLOCKS_MAX - 2) * BLOCK_BYTES as u64;
    let layout = one_file(most).unwrap();
    assert_eq!(layout.blocks(), u32::MAX);
    assert_eq!(
        said(one_file(most + 1)),
        "the disk would have 4294967296 blocks of 4 KiB; EROFS numbers 4294967295, which is 16 TiB: put the files on several disks"
    );
    assert!(said(one_file(u64::MAX)).starts_with("the disk would have 4503599627370498 blocks"));
    let mut tree = root();
    for name in [b"a", b"b", b"c"] {
        tree.add_file(tree.root(), name, u64::MAX, Attributes::new(0))
            .unwrap();
    }
    assert!(said(tree.lay_out(label())).starts_with("the disk would have "));
}

#[test]
fn places_of_the_callers_choice() {
    let mut tree = root();
    let a = tree
        .add_file(tree.root(), b"a", 5000, Attributes::new(0))
        .unwrap();
    let b = tree
        .add_file(tree.root(), b"b", 5000, Attributes::new(0))
        .unwrap();
    let mut layout = tree.lay_out(label()).unwrap();
    let places = |layout: &Layout| layout.files().map(|f| f.first_block).collect::<Vec<_>>();
    assert_eq!(places(&layout), [2, 4]);
    assert_eq!(layout.blocks(), 6);
    layout.place(b, 2).unwrap();
    assert_eq!(places(&layout), [2, 2]);
    assert_eq!(layout.blocks(), 4);
    layout.place(a, 1000).unwrap();
    assert_eq!(layout.blocks(), 1002);
    assert_eq!(
        said(layout.place(a, 1)),
        "/a cannot lie at block 1: metadata lies there"
    );
    layout.place(a, u32::MAX - 2).unwrap();
    assert_eq!(layout.blocks(), u32::MAX);
    assert_eq!(
        said(layout.place(a, u32::MAX - 1)),
        "/a cannot lie at block 4294967294: its end would be beyond 16 TiB"
    );
}

/// A file of 500 GB costs what any other costs, and its size and place come back.
#[test]
fn a_file_of_500_gb() {
    let layout = one_file(500_000_000_000).unwrap();
    assert_eq!(layout.metadata_blocks(), 2);
    let metadata: Vec<u8> = layout.metadata().flatten().collect();
    let blocks = u64::from(layout.blocks());
    assert_eq!(blocks, 2 + 122_070_313);
    let mut image = Image::open(metadata.as_slice(), blocks).unwrap();
    let file = Walk::new().next(&mut image).unwrap().unwrap();
    assert_eq!(file.inode.bytes, 500_000_000_000);
    assert_eq!(file.inode.payload.first_block, 2);
}

/// A directory of 100,000 entries, sorted across its blocks.
#[test]
fn a_directory_of_100_000_entries() {
    let mut tree = root();
    for i in 0..100_000u32 {
        let name = format!("{:06}.jpg", i.wrapping_mul(7919) % 100_000);
        tree.add_file(tree.root(), name.as_bytes(), 100, Attributes::new(0o644))
            .unwrap();
    }
    let layout = tree.lay_out(label()).unwrap();
    // 64 inodes a block; 22 bytes an entry: 184 in the first block, behind '.' and '..', then 186.
    let directory_blocks = 1 + (100_000u32 - 184).div_ceil(186);
    assert_eq!(
        layout.metadata_blocks(),
        1 + 100_001u32.div_ceil(64) + directory_blocks
    );
    let metadata: Vec<u8> = layout.metadata().flatten().collect();
    let mut image = Image::open(metadata.as_slice(), layout.blocks().into()).unwrap();
    let mut walk = Walk::new();
    let mut expected = (0..100_000u32).map(|i| format!("{i:06}.jpg").into_bytes());
    while let Some(visit) = walk.next(&mut image).unwrap() {
        assert_eq!(Some(visit.path), expected.next());
    }
    assert_eq!(expected.next(), None);
}

/// The same tree and label give the same bytes, whatever order things were added in but files; and read() gives what the iterator gives.
#[test]
fn metadata_is_a_function_of_the_tree() {
    let model = sample();
    let layout = tree(&model).lay_out(label()).unwrap();
    let blocks: Vec<u8> = layout.metadata().flatten().collect();
    assert_eq!(blocks.len() as u64, layout.metadata().total_bytes());
    let mut read = Vec::new();
    layout.metadata().read_to_end(&mut read).unwrap();
    assert!(read == blocks);
    let mut pieces = Vec::new();
    let mut metadata = layout.metadata();
    let mut piece = [0; 777];
    loop {
        let bytes = metadata.read(&mut piece).unwrap();
        pieces.extend_from_slice(&piece[..bytes]);
        if bytes == 0 {
            break;
        }
    }
    assert!(pieces == blocks);
    let again = tree(&model).lay_out(label()).unwrap();
    assert!(again.metadata().flatten().eq(blocks.iter().copied()));
    let named = Label {
        uuid: [1; 16],
        ..label()
    };
    let other = tree(&model).lay_out(named).unwrap();
    let other: Vec<u8> = other.metadata().flatten().collect();
    assert!(other[4096..] == blocks[4096..]);
    assert!(other[..4096] != blocks[..4096]);
}

/// Files lie one after the other behind the metadata, in the order in which they were added; one without bytes lies nowhere.
#[test]
fn files_lie_in_the_order_they_were_added() {
    let mut tree = root();
    let sizes = [4097, 0, 1, 4096];
    let files = sizes.map(|bytes| {
        let name = format!("{}", 9_999 - bytes);
        tree.add_file(tree.root(), name.as_bytes(), bytes, Attributes::new(0))
            .unwrap()
    });
    let layout = tree.lay_out(label()).unwrap();
    let expected = [2, 0, 4, 5].into_iter().zip(sizes).zip(files);
    let expected = expected.map(|((first_block, bytes), file)| FilePlace {
        file,
        first_block,
        bytes,
    });
    assert!(layout.files().eq(expected));
    assert_eq!(layout.blocks(), 6);
    assert_eq!(layout.path(files[0]).unwrap(), "/5902");
}
