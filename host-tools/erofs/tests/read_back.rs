//! Trees of every shape, read back by our reader and by a foreign one.

#![allow(clippy::unwrap_used, reason = "a test")]

mod model;

use erofs::limits::BLOCK_BYTES;
use erofs::{Image, Kind, Walk};
use model::{Item, Model, attributes, disk, empty, label, sample, tree};
use proptest::collection::vec;
use proptest::prelude::*;

/// Everything on a disk, by our reader.
fn read_by_us(disk: &[u8]) -> Model {
    let mut image = Image::open(disk, (disk.len() / BLOCK_BYTES) as u64).unwrap();
    let root = image.root().unwrap();
    let mut found = Model::from([(Vec::new(), (root.attributes, Item::Directory))]);
    let mut walk = Walk::new();
    while let Some(visit) = walk.next(&mut image).unwrap() {
        let inode = visit.inode;
        let item = match inode.kind {
            Kind::Directory => Item::Directory,
            Kind::Symlink => Item::Symlink(image.target(&inode).unwrap()),
            Kind::File => {
                let mut bytes = vec![0; usize::try_from(inode.bytes).unwrap()];
                assert_eq!(image.read(&inode, 0, &mut bytes).unwrap(), bytes.len());
                Item::File(bytes)
            }
        };
        assert!(
            found.insert(visit.path, (inode.attributes, item)).is_none(),
            "visited twice"
        );
    }
    assert_eq!(image.superblock().inodes, found.len() as u64);
    found
}

/// The same by erofs-rs, with the inodes' links.
fn read_by_erofs_rs(disk: &[u8]) -> (Model, Vec<(Vec<u8>, u32)>) {
    let image = erofs_rs::EroFS::new(erofs_rs::backend::SliceImage::new(disk)).unwrap();
    let mut found = Model::new();
    let mut links = Vec::new();
    let mut add = |path: Vec<u8>, inode: erofs_rs::types::Inode| {
        let (seconds, nanoseconds) = inode.modified_unix();
        let attributes = erofs::Attributes {
            permissions: inode.permissions(),
            uid: inode.uid(),
            gid: inode.gid(),
            modified: erofs::Time {
                seconds,
                nanoseconds,
            },
        };
        let item = if inode.is_dir() {
            Item::Directory
        } else if inode.is_symlink() {
            Item::Symlink(image.read_link_inode(inode).unwrap().into_vec())
        } else {
            let file = image.open_inode_file(inode).unwrap();
            let mut bytes = vec![0; usize::try_from(inode.data_size()).unwrap()];
            let mut done = 0;
            while done < bytes.len() {
                let read = file.read_at(&mut bytes[done..], done as u64).unwrap();
                assert!(read > 0, "the file ends at byte {done}");
                done += read;
            }
            Item::File(bytes)
        };
        links.push((path.clone(), inode.nlink()));
        found.insert(path, (attributes, item));
    };
    let root = image.super_block().root_inode_id();
    add(Vec::new(), image.get_inode(root).unwrap());
    for entry in image.walk_dir("/").unwrap() {
        let entry = entry.unwrap();
        let path = entry.dir_entry.path().into_vec();
        add(path[1..].to_vec(), entry.inode);
    }
    (found, links)
}

fn check(model: &Model) {
    let layout = tree(model).lay_out(label()).unwrap();
    let disk = disk(model, &layout);
    assert!(read_by_us(&disk) == *model, "our reader");
    let (found, links) = read_by_erofs_rs(&disk);
    assert!(found == *model, "erofs-rs");
    for (path, links) in links {
        let inside = |other: &[u8]| !other.is_empty() && model::parent_and_name(other).0 == path;
        let is_directory = |item: &Item| *item == Item::Directory;
        let below = model
            .iter()
            .filter(|(other, (_, item))| inside(other) && is_directory(item));
        let expected = match model[&path].1 {
            Item::Directory => 2 + u32::try_from(below.count()).unwrap(),
            _ => 1,
        };
        assert_eq!(links, expected, "links of {}", path.escape_ascii());
    }
}

#[test]
fn the_sample_reads_back() {
    check(&sample());
}

#[test]
fn a_root_alone_reads_back() {
    check(&empty());
}

/// Directories whose entries fill a block to the byte, and one more or less; so that the end is inline, a block, or none.
#[test]
fn directories_that_end_at_a_block() {
    // '.' and '..' take 27 bytes, an entry 12 and its name.
    for last in [1, 20, 254, 255] {
        for names in [15, 16, 31] {
            let mut model = empty();
            for i in 0..names {
                let name = format!("{i:0>243}").into_bytes();
                model.insert(name, (attributes(i), Item::File(vec![])));
            }
            model.insert(vec![b'z'; last], (attributes(77), Item::Directory));
            check(&model);
        }
    }
    // 27 + 15 * (12 + 255) + 12 + 52 = 4096.
    for last in [51, 52, 53] {
        let mut model = empty();
        for i in 0..15 {
            let name = format!("{i:0>255}").into_bytes();
            model.insert(name, (attributes(i), Item::File(vec![])));
        }
        model.insert(
            vec![b'z'; last],
            (attributes(77), Item::Symlink(vec![b't'])),
        );
        check(&model);
    }
}

#[test]
fn targets_of_every_length_around_the_limits() {
    let mut model = empty();
    for bytes in [1, 31, 32, 33, 2047, 2048, 2049, 4094, 4095] {
        let name = format!("link{bytes}").into_bytes();
        model.insert(name, (attributes(1), Item::Symlink(vec![b'x'; bytes])));
    }
    check(&model);
}

#[test]
fn a_deep_tree_reads_back() {
    let mut model = empty();
    let mut path = Vec::new();
    for depth in 0..1000 {
        path.extend_from_slice(if depth == 0 { b"d" } else { b"/d" });
        model.insert(path.clone(), (attributes(depth), Item::Directory));
    }
    check(&model);
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    let byte = any::<u8>().prop_filter("a name's byte", |byte| !matches!(byte, 0 | b'/'));
    let few = prop::sample::select(b".!-a\xff".to_vec());
    prop_oneof![vec(few, 1..5), vec(byte, 1..=255)]
        .prop_filter("not a dot", |name| !matches!(name.as_slice(), b"." | b".."))
}

/// Each step puts a thing into one of the directories that are there.
fn any_model() -> impl Strategy<Value = Model> {
    let item = prop_oneof![
        2 => Just(Item::Directory),
        3 => (0usize..10_000, any::<u8>()).prop_map(|(len, byte)| Item::File(vec![byte; len])),
        1 => vec(1u8.., 1..=4095).prop_map(Item::Symlink),
    ];
    let step = (any::<prop::sample::Index>(), name(), item, any::<u32>());
    vec(step, 0..60).prop_map(|steps| {
        let mut model = empty();
        let mut directories = vec![Vec::new()];
        for (parent, name, item, number) in steps {
            let mut path = parent.get(&directories).clone();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(&name);
            if model.contains_key(&path) {
                continue;
            }
            if item == Item::Directory {
                directories.push(path.clone());
            }
            model.insert(path, (attributes(number % 1_000_000), item));
        }
        model
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_tree_reads_back(model in any_model()) {
        check(&model);
    }
}
