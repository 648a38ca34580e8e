//! Disks with partition tables, as another reader of tables finds them.

use std::fs;
use std::io::Cursor;
use std::os::unix::fs::symlink;

use gptman::GPT;

use super::disk::{of_disk, of_folder};
use super::served::{NQN, Target};
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

/// What of a partition is behind its file.
fn padded(mut bytes: Vec<u8>, lba_bytes: usize) -> Vec<u8> {
    bytes.resize(bytes.len().next_multiple_of(lba_bytes), 0);
    bytes
}

#[test]
fn partitions_are_copied_and_compared_as_files() {
    let folder = Folder::new();
    dataset(&folder);
    for (lba, lba_bytes) in [("512", 512), ("4096", 4096)] {
        let pack = ["pack", "d", "--gpt", "--pad", "--lba", lba, "--force"];
        folder.done([&pack[..], &["-o", "v.xio"]].concat());
        let target = Target::start(NQN, &[&folder.path("v.xio")]);
        let url = target.url("?nsid=1");
        for (number, source) in ["v.xio", &url].into_iter().enumerate() {
            let copy = format!("copy-{lba}-{number}");
            let said = folder.done(["cp", source, &copy]);
            assert!(said.contains(": 3 files of "), "{said}");
            assert!(said.ends_with(", 1 folders, 0 symbolic links\n"), "{said}");
            let found = of_folder(&folder.path(&copy));
            let names: Vec<_> = found
                .keys()
                .map(|it| it.escape_ascii().to_string())
                .collect();
            assert_eq!(names, ["one", "sub", "sub/odd", "whole"]);
            for name in ["one", "sub/odd", "whole"] {
                let wanted = padded(folder.read(&format!("d/{name}")), lba_bytes);
                assert!(found[name.as_bytes()].content == wanted, "{source} {name}");
            }
        }
        folder.done(["diff", "v.xio", &url]);
        let ran = folder.xio(["diff", "d", "v.xio"]);
        assert_eq!((ran.status, ran.stderr.as_str()), (1, ""));
        assert!(
            ran.stdout.contains("2 differences; 5 names"),
            "{}",
            ran.stdout
        );
        assert!(!ran.stdout.contains("whole"), "{}", ran.stdout);
    }
    // Where nothing is padded the partitions are the files.
    fs::write(folder.path("d/one"), [5; 512]).unwrap();
    fs::write(folder.path("d/sub/odd"), [7; 5120]).unwrap();
    folder.done(["pack", "d", "--gpt", "--lba", "512", "-o", "exact.xio"]);
    folder.done(["diff", "d", "exact.xio"]);
    // A file alone is no filesystem because it is alone.
    folder.done(["pack", "d/whole", "--gpt", "-o", "alone.xio"]);
    folder.done(["cp", "alone.xio", "alone"]);
    assert!(folder.read("alone/whole") == folder.read("d/whole"));
}

#[test]
fn a_filesystem_in_a_partition_is_copied_and_compared_as_one_on_a_whole_disk() {
    let folder = Folder::new();
    dataset(&folder);
    symlink("sub/odd", folder.path("d/link")).unwrap();
    folder.done(["pack", "d", "-o", "whole.xio"]);
    for lba in ["512", "4096"] {
        let volume = format!("v{lba}.xio");
        folder.done(["pack", "d", "--partitioned", "--lba", lba, "-o", &volume]);
        let target = Target::start(NQN, &[&folder.path(&volume)]);
        let url = target.url("?nsid=1");
        for source in [&volume, &url] {
            for other in ["d", "whole.xio"] {
                folder.done(["diff", source, other, "--attributes"]);
                // A folder has no digests to trust, which is noted.
                let ran = folder.xio(["diff", source, other, "--trust-digests"]);
                assert_eq!(ran.status, 0, "{}{}", ran.stdout, ran.stderr);
            }
        }
        let copy = format!("copy{lba}");
        let said = folder.done(["cp", &url, &copy]);
        assert!(said.ends_with("2 folders, 1 symbolic links\n"), "{said}");
        fs::remove_dir_all(folder.path(&copy).join(".xio")).unwrap();
        folder.done(["diff", "d", &copy]);
    }
}

/// A table that does not hold together hides nothing: the disk is refused, with the place.
#[test]
fn a_partition_table_that_is_damaged_is_named() {
    let folder = Folder::new();
    dataset(&folder);
    folder.done(["pack", "d", "--gpt", "--pad", "-o", "v.xio"]);
    folder.done(["unpack", "v.xio", "-o", "disk.img"]);
    let mut disk = folder.read("disk.img");
    disk[8192 + 40] ^= 1;
    folder.write("disk.img", &disk);
    folder.done(["pack", "disk.img", "--dtype", "u8", "-o", "wrong.xio"]);
    fs::create_dir(folder.path("m")).unwrap();
    for (status, arguments) in [
        (1, ["cp", "wrong.xio", "copy"]),
        (1, ["mount", "wrong.xio", "m"]),
        (3, ["diff", "wrong.xio", "d"]),
    ] {
        let ran = folder.xio(arguments);
        let why = "error: wrong.xio: the partition table at byte 4096: checksum mismatch of its entries: recorded ";
        assert!(ran.stderr.starts_with(why), "{}", ran.stderr);
        assert_eq!((ran.status, ran.stdout.as_str()), (status, ""));
    }
    assert!(!folder.path("copy").exists());
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
