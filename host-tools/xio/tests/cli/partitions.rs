//! Disks with partition tables, as another reader of tables finds them.

use std::fs;
use std::io::Cursor;

use gptman::GPT;

use super::disk::{of_disk, of_folder};
use super::support::{Folder, Random};

fn dataset(folder: &Folder) {
    fs::create_dir_all(folder.path("d/sub")).unwrap();
    let mut random = Random::new(7);
    for (name, bytes) in [("whole", 8192), ("sub/odd", 5001), ("one", 1)] {
        let content: Vec<u8> = (0..bytes).map(|_| random.next().to_le_bytes()[0]).collect();
        folder.write(&format!("d/{name}"), &content);
    }
}

fn table_of(disk: &[u8]) -> (u64, GPT) {
    let mut disk = Cursor::new(disk);
    let table = GPT::find_from(&mut disk).unwrap();
    (table.sector_size, table)
}

/// Names with their bytes.
fn partitions(disk: &[u8]) -> Vec<(String, Vec<u8>)> {
    let (lba, table) = table_of(disk);
    let used = table.iter().filter(|(_, partition)| partition.is_used());
    used.map(|(_, partition)| {
        let at = |lbas: u64| usize::try_from(lbas * lba).unwrap();
        let bytes = &disk[at(partition.starting_lba)..at(partition.ending_lba + 1)];
        (partition.partition_name.as_str().to_owned(), bytes.to_vec())
    })
    .collect()
}

#[test]
fn a_partition_for_each_file() {
    let folder = Folder::new();
    dataset(&folder);
    for lba in ["512", "4096"] {
        let arguments = [
            "pack", "d", "--gpt", "--pad", "--lba", lba, "--force", "--json", "-o", "v.xio",
        ];
        let said: serde_json::Value = serde_json::from_str(&folder.done(arguments)).unwrap();
        folder.done(["verify", "v.xio"]);
        folder.done(["unpack", "v.xio", "--force", "-o", "disk.img"]);
        let disk = folder.read("disk.img");
        let found = partitions(&disk);
        assert_eq!(table_of(&disk).0.to_string(), lba);
        let names: Vec<_> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["one", "whole", "sub/odd"]);
        for ((name, bytes), told) in found.iter().zip(said["partitions"].as_array().unwrap()) {
            let source = folder.read(&format!("d/{name}"));
            assert!(bytes.starts_with(&source) && bytes[source.len()..].iter().all(|b| *b == 0));
            assert_eq!(told["padding_bytes"], bytes.len() - source.len(), "{name}");
        }
    }
    folder.fails(
        2,
        "one is 1 bytes; a partition is a whole number of blocks of 4096, and at least one: fill it up with --pad (an empty file cannot be)",
        &["pack", "d", "--gpt", "-o", "w.xio"],
    );
}

#[test]
fn more_than_128_files_need_a_filesystem() {
    let folder = Folder::new();
    fs::create_dir(folder.path("d")).unwrap();
    for number in 0..129 {
        folder.write(&format!("d/{number}"), &[1; 512]);
    }
    folder.fails(
        2,
        "129 partitions; a table holds 128: put the files on one filesystem, or on several disks",
        &["pack", "d", "--gpt", "--lba", "512", "-o", "v.xio"],
    );
    fs::remove_file(folder.path("d/0")).unwrap();
    folder.done(["pack", "d", "--gpt", "--lba", "512", "-o", "v.xio"]);
}

#[test]
fn a_filesystem_in_a_partition() {
    let folder = Folder::new();
    dataset(&folder);
    folder.done([
        "pack",
        "d",
        "--partitioned",
        "--label",
        "tokens",
        "-o",
        "v.xio",
    ]);
    folder.done(["unpack", "v.xio", "-o", "disk.img"]);
    let found = partitions(&folder.read("disk.img"));
    let [(name, bytes)] = found.as_slice() else {
        panic!("{} partitions", found.len());
    };
    assert_eq!(name, "tokens");
    let mut found = of_disk(bytes);
    assert!(found.remove(&b".xio"[..]).is_some());
    assert!(found.remove(&b".xio/manifest.json"[..]).is_some());
    assert!(found == of_folder(&folder.path("d")));
}
