//! The disk that a plan shows is the one that is packed; what no disk is, and what does not fit, is refused before the files are read.
//!
//! That nothing was read before a refusal shows in that it comes at all: the files here have holes of terabytes.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;

use printout::size::grouped;
use serde_json::{Value, json};

use super::mounting::is_root;
use super::support::{Folder, Random, limited};

const TIB: u64 = 1 << 40;

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..bytes).map(|_| random.next().to_le_bytes()[3]).collect()
}

fn dataset(folder: &Folder) {
    fs::create_dir_all(folder.path("d/sub")).unwrap();
    for (name, bytes) in [("d/a", 300_000), ("d/sub/b", 1), ("d/sub/c", 8192)] {
        folder.write(name, &noise(bytes as u64, bytes));
    }
}

/// A file of a hole.
fn hole(folder: &Folder, name: &str, bytes: u64) {
    let file = File::create(folder.path(name)).unwrap();
    file.set_len(bytes).unwrap();
}

#[test]
fn the_planned_disk_is_the_packed_one() {
    let folder = Folder::new();
    dataset(&folder);
    for shape in [
        &["--gpt", "--pad"][..],
        &["--gpt", "--pad", "--lba", "512"],
        &["--gpt", "--pad", "--present-as", "source"],
        &["--partitioned", "--no-manifest", "--label", "x"],
        &["--partitioned", "--no-manifest", "--lba", "512"],
        &["--no-manifest"],
    ] {
        let plan = folder.done([&["plan", "d", "--json"], shape].concat());
        let pack = ["pack", "d", "--json", "--force", "-o", "v.xio"];
        let pack = folder.done([&pack[..], shape].concat());
        let (plan, pack) = (parsed(&plan), parsed(&pack));
        let planned = &plan["disk"];
        assert_eq!(planned["bytes"], pack["disk_bytes"], "{shape:?}");
        assert_eq!(
            planned["metadata_bytes"], pack["metadata_bytes"],
            "{shape:?}"
        );
        assert_eq!(planned["partitions"], pack["partitions"], "{shape:?}");
        assert_eq!(planned["manifest_on_top"], false, "{shape:?}");
    }
    let plan = parsed(&folder.done(["plan", "d", "--json"]));
    let pack = parsed(&folder.done(["pack", "d", "--json", "--force", "-o", "v.xio"]));
    folder.done(["cp", "v.xio", "c"]);
    let manifest = folder.read("c/.xio/manifest.json").len() as u64;
    let whole = plan["disk"]["bytes"].as_u64().unwrap() + manifest.next_multiple_of(4096);
    assert_eq!(plan["disk"]["manifest_on_top"], true);
    assert_eq!(pack["disk_bytes"], whole);

    // By hand: 300,000, 1 and 8,192 bytes in partitions from 1, 2 and 3 MiB on.
    let said = folder.done(["plan", "d", "--gpt", "--pad"]);
    let line = "a disk of 5,242,880 bytes: 3 of at most 128 partitions, one for each file, with 7,199 bytes of padding in them\n";
    assert!(said.contains(line), "{said}");
    let rows: Vec<Vec<&str>> = said
        .lines()
        .skip_while(|line| !line.starts_with('#'))
        .take(4)
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(rows[1], ["1", "a", "1,048,576", "303,104", "3,104"]);
    assert_eq!(rows[2], ["2", "sub/b", "2,097,152", "4,096", "4,095"]);
    assert_eq!(rows[3], ["3", "sub/c", "3,145,728", "8,192", "0"]);
    let said = folder.done(["plan", "d", "--partitioned"]);
    let is_told = |line: &str| {
        line.starts_with("a disk of ")
            && line.contains(" bytes: a filesystem in the only partition of a table, ")
            && line.ends_with(" bytes of it metadata; on top comes /.xio/manifest.json")
    };
    assert!(said.lines().any(is_told), "{said}");
}

#[test]
fn a_plan_says_what_no_disk_is() {
    let folder = Folder::new();
    fs::create_dir(folder.path("d")).unwrap();
    for number in 0..129 {
        folder.write(&format!("d/{number}"), &[1; 512]);
    }
    let why =
        "129 partitions; a table holds 128: put the files on one filesystem, or on several disks";
    for (lba, why) in [
        ("512", why),
        (
            "4096",
            "a partition is a whole number of blocks of 4096 bytes, and 129 files are not (0: 512 bytes, 1: 512 bytes, 10: 512 bytes, 100: 512 bytes, 101: 512 bytes and 124 more): --pad fills them up with zeros",
        ),
    ] {
        let plan = ["plan", "d", "--gpt", "--lba", lba];
        let ran = folder.xio(plan);
        assert_eq!(ran.status, 1);
        assert_eq!(
            ran.stderr,
            "error: 'xio pack' would refuse this: see above\n"
        );
        assert!(
            ran.stdout.contains(&format!("\n! {why}\n")),
            "{}",
            ran.stdout
        );
        let ran = folder.xio([&plan[..], &["--json"]].concat());
        let said = parsed(&ran.stdout);
        assert_eq!(
            (&said["disk"], &said["refused"]),
            (&Value::Null, &json!([why]))
        );
        folder.fails(2, why, &["pack", "d", "--gpt", "--lba", lba, "-o", "v.xio"]);
    }
    assert_eq!(folder.names(), ["d"]);
}

#[test]
fn what_no_disk_holds_is_refused_before_it_is_read() {
    let folder = Folder::new();
    fs::create_dir(folder.path("d")).unwrap();
    hole(&folder, "d/a", 9 * TIB);
    hole(&folder, "d/b", 9 * TIB - 1);
    // Of 4 KiB, two of them for names.
    let blocks = 2 * 9 * TIB / 4096 + 2;
    let why = format!(
        "the disk would have {blocks} blocks of 4 KiB; EROFS numbers 4294967295, which is 16 TiB: put the files on several disks"
    );
    folder.fails(2, &why, &["plan", "d", "--no-manifest"]);
    for command in ["pack", "map"] {
        folder.fails(2, &why, &[command, "d", "--no-manifest", "-o", "v.xio"]);
        folder.fails(
            2,
            "a partition is a whole number of blocks of 4096 bytes, and 1 file is not (b: 9895604649983 bytes): --pad fills them up with zeros",
            &[command, "d", "--gpt", "-o", "v.xio"],
        );
        folder.fails(
            2,
            "/dev/null is not a regular file; choose the name of a file",
            &[command, "d", "--gpt", "--pad", "-o", "/dev/null"],
        );
    }
    assert_eq!(folder.names(), ["d"]);
}

#[test]
fn a_file_system_that_is_too_small_is_named_with_both_sizes() {
    let folder = Folder::new();
    fs::create_dir(folder.path("d")).unwrap();
    hole(&folder, "d/a", 8 * TIB);
    let place = folder.path("").canonicalize().unwrap();
    let place = place.display();
    for (takes, arguments) in [
        (
            "8,796,093,054,976",
            &["pack", "d", "--store-as", "none"][..],
        ),
        (
            "4,398,046,543,872",
            &["pack", "d", "--as", "a=u32", "--store-as", "u16"],
        ),
        ("8,796,093,054,976", &["pack", "d/a", "--dtype", "u8"]),
        (
            "4,947,802,357,760",
            &["pack", "d/a", "--dtype", "u32", "--store-as", "bitpack:18"],
        ),
    ] {
        let ran = folder.xio([arguments, &["-o", "v.xio"]].concat());
        assert_eq!((ran.status, ran.stdout.as_str()), (3, ""), "{}", ran.stderr);
        let says = format!("error: v.xio takes {takes} bytes, and the file system of {place} has ");
        let rest = ran.stderr.strip_prefix(&says).expect(&ran.stderr);
        let (left, rest) = rest.split_once(' ').unwrap();
        let left: u64 = left.replace(',', "").parse().unwrap();
        assert!(left < 4 * TIB);
        assert_eq!(rest, "left; choose another place, or make room\n");
    }
    assert_eq!(folder.names(), ["d"]);
}

#[test]
fn a_limit_on_files_is_named_with_both_sizes() {
    let folder = Folder::new();
    dataset(&folder);
    folder.write("plain", &noise(1, 200_000));
    let packed = parsed(&folder.done(["pack", "d", "--json", "-o", "v.xio"]));
    let disk = format!(
        "disk.img takes {}",
        grouped(packed["disk_bytes"].as_u64().unwrap())
    );
    let says = |takes: &str| {
        format!(
            "error: {takes} bytes, and this process may write files of 65,536 (RLIMIT_FSIZE; ulimit -f unlimited)\n"
        )
    };
    for (takes, arguments) in [
        (
            "w.xio takes 232,768",
            &["pack", "plain", "--dtype", "u8", "-o", "w.xio"][..],
        ),
        (
            "w.xio takes 340,961",
            &["pack", "d", "--store-as", "none", "-o", "w.xio"],
        ),
        (&disk, &["unpack", "v.xio", "-o", "disk.img"]),
    ] {
        let ran = limited(&folder, 65_536, arguments);
        assert_eq!((ran.status, ran.stderr), (3, says(takes)), "{arguments:?}");
    }
    // What is chosen for noise is no compression, but that is known only when it was tried: then it is as long as a plan says.
    let ran = limited(&folder, 65_536, &["pack", "d", "-o", "w.xio"]);
    let planned = parsed(&folder.done(["plan", "d", "--json"]));
    let planned = grouped(planned["volume_bytes"].as_u64().unwrap());
    let about = says(&format!("w.xio takes about {planned}"));
    assert_eq!((ran.status, ran.stderr), (3, about));
    // And what compresses is known about.
    folder.write("d/text", &b"some words and some more ".repeat(20_000));
    fs::remove_file(folder.path("d/a")).unwrap();
    let ran = limited(&folder, 32_800, &["pack", "d", "-o", "w.xio"]);
    assert_eq!(ran.status, 3);
    let says = ran
        .stderr
        .strip_prefix("error: w.xio takes about ")
        .expect(&ran.stderr);
    assert!(
        says.contains(" bytes, and this process may write files of 32,800 ("),
        "{says}"
    );
    // However well something compresses, each frame of it takes an entry and a byte: that is known before it is read.
    fs::create_dir(folder.path("sparse")).unwrap();
    let sparse = fs::File::create(folder.path("sparse/zeros")).unwrap();
    sparse.set_len(1 << 30).unwrap();
    for arguments in [
        &["pack", "sparse/zeros", "--dtype", "u8"][..],
        &["pack", "sparse"],
    ] {
        let arguments = [arguments, &["--store-as", "zstd:3", "-o", "w.xio"]].concat();
        let ran = limited(&folder, 704_511, &arguments);
        let says = "error: w.xio takes at least 704,512 bytes, and this process may write files of 704,511 (";
        assert!(ran.stderr.starts_with(says), "{}", ran.stderr);
        assert_eq!(ran.status, 3);
    }
    fs::remove_dir_all(folder.path("sparse")).unwrap();
    // With nothing left to write the least of a volume does not fit either.
    for command in ["map", "format"] {
        let input = if command == "map" { "d" } else { "v.xio" };
        let ran = limited(&folder, 4096, &[command, input, "-o", "w.xio"]);
        assert_eq!(ran.status, 3);
        let says = "error: w.xio takes 32,768 bytes, and this process may write files of 4,096 (";
        assert!(ran.stderr.starts_with(says), "{}", ran.stderr);
    }
    assert_eq!(folder.names(), ["d", "plain", "v.xio"]);
}

/// A limit that is met in the middle ends no command without a word (SIGXFSZ): the write fails, and nothing is left.
#[test]
fn a_limit_on_files_that_is_met_in_the_middle_is_named() {
    let folder = Folder::new();
    dataset(&folder);
    // A table of checksums, 4 bytes for each 4 KiB.
    hole(&folder, "large", 256 << 20);
    folder.done(["pack", "d", "-o", "v.xio"]);
    folder.done(["map", "large", "--dtype", "u8", "-o", "large.xio"]);
    let before = folder.names();
    for arguments in [
        &["map", "large", "--dtype", "u8", "-o", "w.xio"][..],
        &["format", "large.xio", "-o", "w.xio"],
    ] {
        let ran = limited(&folder, 65_536, arguments);
        let says = "error: writing w.xio: File too large (os error 27): it takes at least ";
        let rest = ran.stderr.strip_prefix(says).expect(&ran.stderr);
        let (takes, rest) = rest.split_once(' ').unwrap();
        assert!(takes.parse::<u64>().unwrap() > 65_536, "{takes}");
        assert_eq!(
            rest,
            "bytes; nothing of it is kept: the limit on files is smaller (RLIMIT_FSIZE; ulimit -f unlimited), or the file system's is\n"
        );
        assert_eq!((ran.status, ran.stdout.as_str()), (3, ""));
        assert_eq!(folder.names(), before);
    }
    // The largest file of a copy is known before.
    let ran = limited(&folder, 299_999, &["cp", "v.xio", "copy"]);
    let says = "error: copy/a takes 300,000 bytes, and this process may write files of 299,999 (RLIMIT_FSIZE; ulimit -f unlimited)\n";
    assert_eq!((ran.status, ran.stderr.as_str()), (3, says));
    assert_eq!(folder.names(), before);
    let ran = limited(&folder, 300_000, &["cp", "v.xio", "copy"]);
    assert_eq!((ran.status, ran.stderr.as_str()), (0, ""));
}

/// A file system in memory, gone with the test.
struct Small(PathBuf);

impl Small {
    /// `None`: this machine, or this user, mounts none.
    fn mount(folder: &Folder, options: &str) -> Option<Small> {
        if !is_root() {
            println!("skipped: only root mounts a small file system");
            return None;
        }
        let small = folder.path("small");
        fs::create_dir(&small).unwrap();
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "xio-test"])
            .arg(&small)
            .status();
        if !mount.unwrap().success() {
            println!("skipped: this machine does not mount a tmpfs");
            return None;
        }
        Some(Small(small))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// What is only met in the middle of a copy is told by the name that a person knows, not by that of the unfinished copy.
#[test]
fn a_copy_that_ends_early_names_the_file_in_its_place() {
    let folder = Folder::new();
    dataset(&folder);
    folder.done(["pack", "d", "--no-manifest", "-o", "v.xio"]);
    // Its root, the unfinished copy and the root in that, "a" and "sub".
    let Some(small) = Small::mount(&folder, "size=1m,nr_inodes=5") else {
        return;
    };
    folder.fails(
        3,
        "v.xio: writing small/c/sub/b: No space left on device (os error 28)",
        &["cp", "v.xio", "small/c"],
    );
    assert_eq!(fs::read_dir(&small.0).unwrap().count(), 0);
}

/// What is not known beforehand ends in an error of the system, and nothing of the volume is left.
#[test]
fn a_disk_that_is_full_in_the_middle_leaves_nothing() {
    let folder = Folder::new();
    dataset(&folder);
    let Some(Small(small)) = &Small::mount(&folder, "size=128k") else {
        return;
    };
    let ran = folder.xio(["pack", "d", "--store-as", "lz4", "-o", "small/v.xio"]);
    let says =
        "error: writing small/v.xio: No space left on device (os error 28): it takes at least ";
    let rest = ran.stderr.strip_prefix(says).expect(&ran.stderr);
    let (takes, rest) = rest.split_once(' ').unwrap();
    assert!(
        (131_073..400_000).contains(&takes.parse::<u64>().unwrap()),
        "{takes}"
    );
    assert_eq!(
        rest,
        "bytes, and there is room for 131072; nothing of it is kept: choose another place, or make room\n"
    );
    assert_eq!((ran.status, ran.stdout.as_str()), (3, ""));
    assert_eq!(fs::read_dir(small).unwrap().count(), 0);
    folder.done(["pack", "d", "--no-manifest", "-o", "v.xio"]);
    let place = small.canonicalize().unwrap();
    folder.fails(
        3,
        &format!(
            "small/c takes 308,193 bytes, and the file system of {} has 131,072 left; choose another place, or make room",
            place.display()
        ),
        &["cp", "v.xio", "small/c"],
    );
    assert_eq!(fs::read_dir(small).unwrap().count(), 0);
}
