//! A tree in memory with its payload, and the whole disk that it gives.
#![allow(dead_code, reason = "each test program uses a part")]

use std::collections::BTreeMap;

use erofs::limits::BLOCK_BYTES;
use erofs::{Attributes, DirectoryId, Label, Layout, Time, Tree};

/// What lies at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    Directory,
    File(Vec<u8>),
    Symlink(Vec<u8>),
}

/// By path from the root, whose own is empty. A directory comes before what is in it.
pub type Model = BTreeMap<Vec<u8>, (Attributes, Item)>;

pub fn label() -> Label {
    Label {
        uuid: *b"0123456789abcdef",
        built: Time {
            seconds: 1_700_000_000,
            nanoseconds: 5,
        },
        volume_name: b"model".to_vec(),
    }
}

pub fn attributes(number: u32) -> Attributes {
    Attributes {
        permissions: u16::try_from(number % 0o10000).unwrap(),
        uid: number,
        gid: u32::MAX - number,
        modified: Time {
            seconds: i64::from(number) * 1000 - 1_000_000,
            nanoseconds: number % 1_000_000_000,
        },
    }
}

/// A model with a root.
pub fn empty() -> Model {
    Model::from([(Vec::new(), (attributes(0o755), Item::Directory))])
}

pub fn parent_and_name(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}

/// The tree of a model. Files are added in the order of their paths.
pub fn tree(model: &Model) -> Tree {
    let mut tree = Tree::new(model[&b""[..]].0).unwrap();
    let mut directories: BTreeMap<&[u8], DirectoryId> = BTreeMap::from([(&b""[..], tree.root())]);
    for (path, (attributes, item)) in model.iter().filter(|(path, _)| !path.is_empty()) {
        let (parent, name) = parent_and_name(path);
        let parent = directories[parent];
        match item {
            Item::Directory => {
                let directory = tree.add_directory(parent, name, *attributes).unwrap();
                directories.insert(path, directory);
            }
            Item::File(bytes) => {
                tree.add_file(parent, name, bytes.len() as u64, *attributes)
                    .unwrap();
            }
            Item::Symlink(target) => {
                tree.add_symlink(parent, name, target, *attributes).unwrap();
            }
        }
    }
    tree
}

/// The disk's bytes: the metadata, and each file's where the layout says.
pub fn disk(model: &Model, layout: &Layout) -> Vec<u8> {
    let mut disk = vec![0; layout.blocks() as usize * BLOCK_BYTES];
    for (block, bytes) in layout.metadata().enumerate() {
        disk[block * BLOCK_BYTES..][..BLOCK_BYTES].copy_from_slice(&bytes);
    }
    let files = model.values().filter_map(|(_, item)| match item {
        Item::File(bytes) => Some(bytes),
        _ => None,
    });
    for (place, bytes) in layout.files().zip(files) {
        assert_eq!(place.bytes, bytes.len() as u64);
        let at = place.first_block as usize * BLOCK_BYTES;
        disk[at..at + bytes.len()].copy_from_slice(bytes);
    }
    disk
}

/// A disk of every kind of thing.
pub fn sample() -> Model {
    let mut model = empty();
    let mut put = |path: &[u8], item| {
        let number = u32::try_from(model.len()).unwrap() * 37;
        model.insert(path.to_vec(), (attributes(number), item));
    };
    put(b"tokens", Item::Directory);
    put(b"tokens/train.bin", Item::File(vec![7; 10_000]));
    put(b"tokens/empty", Item::File(Vec::new()));
    put(b"none", Item::Directory);
    put(b"!first", Item::File(b"sorts before the dots".to_vec()));
    put(b"..last", Item::File(vec![1; 4096]));
    put(b"\xff\x01\n", Item::Symlink(b"tokens/train.bin".to_vec()));
    put(b"long", Item::Symlink(vec![b'l'; 4095]));
    put(b"many", Item::Directory);
    for i in 0..1000u32 {
        let name = format!("many/a file with a name that has its length {i:04}");
        put(name.as_bytes(), Item::File(i.to_le_bytes().to_vec()));
    }
    model
}

pub fn sample_disk() -> Vec<u8> {
    let model = sample();
    disk(&model, &tree(&model).lay_out(label()).unwrap())
}
