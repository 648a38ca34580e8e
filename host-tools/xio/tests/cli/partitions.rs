//! Disks with partition tables, as another reader of tables finds them.

use std::fs;
use std::io::Cursor;
use std::os::unix::fs::symlink;

use gptman::GPT;

use super::disk::{of_disk, of_folder};
use super::mounting::{Mount, can_mount};
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
        "a partition is a whole number of blocks of 4096 bytes, and 2 files are not (one: 1 bytes, sub/odd: 5001 bytes): --pad fills them up with zeros",
        &["pack", "d", "--gpt", "-o", "w.xio"],
    );
    // Which nothing fills up.
    for name in ["e", "f", "g", "h", "i", "j"] {
        folder.write(&format!("d/{name}"), &[]);
    }
    folder.fails(
        2,
        "a partition has at least one block, of 4096 bytes, and 6 files are empty (e, f, g, h, i and 1 more): leave empty files out (--exclude), or make a filesystem, without --gpt",
        &["pack", "d", "--gpt", "--pad", "-o", "w.xio"],
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
            assert!(said.ends_with(", 1 folder, 0 symbolic links\n"), "{said}");
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
        assert!(said.ends_with("2 folders, 1 symbolic link\n"), "{said}");
        fs::remove_dir_all(folder.path(&copy).join(".xio")).unwrap();
        folder.done(["diff", "d", &copy]);
    }
}

/// A volume that presents a disk with these bytes flipped.
fn flipped(folder: &Folder, disk: &[u8], places: &[usize]) {
    let mut disk = disk.to_vec();
    for &at in places {
        disk[at] ^= 1;
    }
    folder.write("disk.img", &disk);
    let pack = ["pack", "disk.img", "--dtype", "u8", "--force"];
    folder.done([&pack[..], &["-o", "wrong.xio"]].concat());
}

/// The disk's backup of its partition table is as good, and what it was read for is said (UEFI 5.3.2).
#[test]
fn where_the_partition_table_is_damaged_its_backup_is_read() {
    for (lba, lba_bytes) in [("512", 512), ("4096", 4096)] {
        let folder = Folder::new();
        dataset(&folder);
        let pack = ["pack", "d", "--gpt", "--pad", "--lba", lba];
        folder.done([&pack[..], &["-o", "v.xio"]].concat());
        folder.done(["unpack", "v.xio", "-o", "v.img"]);
        let disk = folder.read("v.img");
        // The header's signature, its fields, an entry.
        let places = [lba_bytes, lba_bytes + 40, 2 * lba_bytes + 40];
        let whys = [
            "it has no header",
            "checksum mismatch of its header: recorded ",
            "checksum mismatch of its entries: recorded ",
        ];
        for (place, why) in places.into_iter().zip(whys) {
            flipped(&folder, &disk, &[place]);
            let said = format!("note: wrong.xio: the partition table at byte {lba}: {why}");
            let read = format!(
                "; the backup at byte {} is good, and is what is read\n",
                disk.len() - lba_bytes
            );
            let noted = |stderr: &str| stderr.starts_with(&said) && stderr.ends_with(&read);
            let ran = folder.xio(["diff", "v.xio", "wrong.xio"]);
            assert_eq!(ran.status, 0, "{}", ran.stdout);
            assert!(noted(&ran.stderr), "{}", ran.stderr);
            let ran = folder.xio(["cp", "wrong.xio", "copy"]);
            assert_eq!(ran.status, 0);
            assert!(noted(&ran.stderr), "{}", ran.stderr);
            for name in ["one", "sub/odd", "whole"] {
                let wanted = padded(folder.read(&format!("d/{name}")), lba_bytes);
                assert!(folder.read(&format!("copy/{name}")) == wanted, "{name}");
            }
            fs::remove_dir_all(folder.path("copy")).unwrap();
            if can_mount() {
                let mount = Mount::start(&folder, "wrong.xio", &format!("m{place}"), &[]);
                let found = of_folder(&mount.folder);
                let wanted = padded(folder.read("d/sub/odd"), lba_bytes);
                assert!(found[&b"sub/odd"[..]].content == wanted);
                assert!(noted(&mount.complaints()), "{}", mount.complaints());
            }
        }
        // A filesystem in the only partition is found as well.
        folder.done(["pack", "d", "--partitioned", "--lba", lba, "-o", "f.xio"]);
        folder.done(["unpack", "f.xio", "--force", "-o", "v.img"]);
        flipped(&folder, &folder.read("v.img"), &[lba_bytes + 40]);
        let ran = folder.xio(["diff", "d", "wrong.xio"]);
        assert_eq!(ran.status, 0, "{}", ran.stdout);
        assert!(ran.stderr.contains("is what is read\n"), "{}", ran.stderr);
    }
}

/// Where both tables are damaged nothing is hidden: the disk is refused, with both places.
#[test]
fn partition_tables_that_are_damaged_are_named() {
    let folder = Folder::new();
    dataset(&folder);
    folder.done(["pack", "d", "--gpt", "--pad", "-o", "v.xio"]);
    folder.done(["unpack", "v.xio", "-o", "v.img"]);
    let disk = folder.read("v.img");
    flipped(&folder, &disk, &[8192 + 40, disk.len() - 4096 + 40]);
    fs::create_dir(folder.path("m")).unwrap();
    for (status, arguments) in [
        (1, ["cp", "wrong.xio", "copy"]),
        (1, ["mount", "wrong.xio", "m"]),
        (3, ["diff", "wrong.xio", "d"]),
    ] {
        let ran = folder.xio(arguments);
        let why = "error: wrong.xio: the partition table at byte 4096: checksum mismatch of its entries: recorded ";
        assert!(ran.stderr.starts_with(why), "{}", ran.stderr);
        let also = format!(
            "; and the partition table at byte {}: checksum mismatch of its header: recorded ",
            disk.len() - 4096
        );
        assert!(ran.stderr.contains(&also), "{}", ran.stderr);
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

/// `xio format` finds what `cp` and `mount` find: the filesystem of the only partition, and partitions as files.
#[test]
fn the_files_of_partitioned_disks_are_collected() {
    for lba in ["512", "4096"] {
        let folder = Folder::new();
        dataset(&folder);
        symlink("sub/odd", folder.path("d/link")).unwrap();
        let pack = ["pack", "d", "--lba", lba];
        folder.done([&pack[..], &["--partitioned", "-o", "part.xio"]].concat());
        fs::remove_file(folder.path("d/link")).unwrap();
        let gpt = ["--gpt", "--pad", "--name", "gpt", "-o", "gpt.xio"];
        folder.done([&pack[..], &gpt].concat());
        for volume in ["part.xio", "gpt.xio"] {
            folder.done(["cp", volume, &format!("{volume}.copy")]);
        }
        let _ = fs::remove_dir_all(folder.path("part.xio.copy/.xio"));
        // Each alone: what it holds is the root.
        for volume in ["part.xio", "gpt.xio"] {
            let alone = format!("alone-{volume}");
            let said = folder.done(["format", volume, "-o", &alone]);
            assert!(said.contains(": 3 files of "), "{said}");
            folder.done(["verify", &alone]);
            folder.done(["cp", &alone, "alone"]);
            fs::remove_dir_all(folder.path("alone/.xio")).unwrap();
            let wanted = of_folder(&folder.path(&format!("{volume}.copy")));
            let found = of_folder(&folder.path("alone"));
            assert!(found.keys().eq(wanted.keys()), "{volume}");
            for (path, wanted) in &wanted {
                assert!(found[path].content == wanted.content, "{volume}");
            }
            fs::remove_dir_all(folder.path("alone")).unwrap();
        }
        // Side by side: each in a directory.
        let ran = folder.xio(["format", "part.xio", "gpt.xio", "-o", "both.xio"]);
        assert_eq!((ran.status, ran.stderr.as_str()), (0, ""));
        folder.done(["cp", "both.xio", "both"]);
        for (volume, name) in [("part.xio", "part"), ("gpt.xio", "gpt")] {
            let _ = fs::remove_dir_all(folder.path(&format!("both/{name}/.xio")));
            let wanted = of_folder(&folder.path(&format!("{volume}.copy")));
            let found = of_folder(&folder.path(&format!("both/{name}")));
            assert!(found.keys().eq(wanted.keys()), "{volume}");
            for (path, wanted) in &wanted {
                assert!(found[path].content == wanted.content, "{volume}");
            }
        }
        assert!(of_folder(&folder.path("part.xio.copy")).contains_key(&b"link"[..]));
    }
}

/// A damaged table is read from its backup, which is said; where both are, the volume is refused.
#[test]
fn damaged_tables_are_collected_as_they_are_copied() {
    let folder = Folder::new();
    dataset(&folder);
    folder.done(["pack", "d", "--gpt", "--pad", "-o", "v.xio"]);
    folder.done(["unpack", "v.xio", "-o", "v.img"]);
    let disk = folder.read("v.img");
    flipped(&folder, &disk, &[4096 + 40]);
    let copied = folder.xio(["cp", "wrong.xio", "copy"]);
    let ran = folder.xio(["format", "wrong.xio", "-o", "f.xio"]);
    assert_eq!((ran.status, &ran.stderr), (0, &copied.stderr));
    assert!(ran.stderr.contains("is what is read\n"), "{}", ran.stderr);
    folder.done(["cp", "f.xio", "files"]);
    assert!(folder.read("files/sub/odd") == folder.read("copy/sub/odd"));
    flipped(&folder, &disk, &[4096 + 40, disk.len() - 4096 + 40]);
    let copied = folder.xio(["cp", "wrong.xio", "copy2"]);
    let ran = folder.xio(["format", "wrong.xio", "-o", "f2.xio"]);
    assert_eq!((ran.status, &ran.stderr), (1, &copied.stderr));
    assert!(!folder.path("f2.xio").exists());
}

/// Only files are partitions. What is left out is said, and nothing is said to be kept.
#[test]
fn links_and_empty_folders_are_named_as_left_out() {
    let folder = Folder::new();
    dataset(&folder);
    symlink("whole", folder.path("d/link")).unwrap();
    symlink("nowhere", folder.path("d/dangling")).unwrap();
    fs::create_dir_all(folder.path("d/empty/deep")).unwrap();
    let note = "--gpt: each partition is a file: left out are 2 symbolic links and 2 folders without files (dangling, empty, link, empty/deep); a filesystem holds them";
    let gpt = ["d", "--gpt", "--pad"];
    let ran = folder.xio([&["pack"][..], &gpt, &["-o", "v.xio"]].concat());
    assert_eq!((ran.status, ran.stderr), (0, format!("note: {note}\n")));
    let planned = folder.done([&["plan"][..], &gpt].concat());
    assert!(planned.contains(&format!("\n! {note}\n")), "{planned}");
    assert!(!planned.contains("kept as it is"), "{planned}");
    folder.done(["cp", "v.xio", "copy"]);
    let found = of_folder(&folder.path("copy"));
    assert_eq!(found.len(), 4);
    // A filesystem has them all.
    let ran = folder.xio(["pack", "d", "-o", "f.xio"]);
    let kept = "note: dangling: a link that leads nowhere; it is kept as it is\n";
    assert_eq!((ran.status, ran.stderr.as_str()), (0, kept));
}
