//! `xio ranges`: the bytes of the disk that it names are those of the files.

use std::fs;

use super::support::Folder;

/// Two files and a folder; each is longer than blocks, so that it has a last piece elsewhere.
fn packed() -> (Folder, [Vec<u8>; 3], Vec<u8>) {
    let folder = Folder::new();
    let made = |bytes: usize, seed: u32| -> Vec<u8> {
        let words = (0..u32::try_from(bytes.div_ceil(4)).unwrap())
            .map(|n| (n ^ seed).wrapping_mul(2_654_435_761));
        let mut made: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
        made.truncate(bytes);
        made
    };
    let files = [made(300_001, 1), made(70_000, 2), made(20, 3)];
    fs::create_dir_all(folder.path("d/train")).unwrap();
    for (name, bytes) in ["d/train/a", "d/train/b", "d/c"].iter().zip(&files) {
        folder.write(name, bytes);
    }
    folder.done(["pack", "d", "--store-as", "none", "-o", "d.xio"]);
    folder.done(["unpack", "d.xio", "-o", "disk"]);
    let disk = folder.read("disk");
    (folder, files, disk)
}

/// Offset and number of bytes of each line.
fn parsed(text: &str) -> Vec<(usize, usize)> {
    let of = |line: &str| {
        let (offset, bytes) = line.split_once(' ').unwrap();
        (offset.parse().unwrap(), bytes.parse().unwrap())
    };
    text.lines().map(of).collect()
}

fn bytes_of(disk: &[u8], text: &str) -> Vec<u8> {
    let ranges = parsed(text).into_iter();
    ranges
        .flat_map(|(offset, bytes)| disk[offset..offset + bytes].to_vec())
        .collect()
}

#[test]
fn files_are_where_their_ranges_are() {
    let (folder, [a, b, c], disk) = packed();
    let of = |files: &[&str]| {
        let text = folder.done(["ranges", "d.xio"].iter().chain(files));
        bytes_of(&disk, &text)
    };
    assert!(of(&["train/a"]) == a);
    assert!(of(&["c"]) == c);
    assert!(of(&["/train/b", "c"]) == [&b[..], &c].concat(), "as given");
    assert!(of(&["train/"]) == [&a[..], &b].concat(), "a folder's files");
    let samples = ["train/a", "--samples", "64KiB"];
    assert!(of(&samples) == a);
    let cut = folder.done(["ranges", "d.xio"].iter().chain(&samples));
    assert!(parsed(&cut).iter().all(|(_, bytes)| *bytes <= 65_536));
    let shuffled = ["train/a", "--samples", "64KiB", "--shuffle", "3"];
    let shuffled = folder.done(["ranges", "d.xio"].iter().chain(&shuffled));
    assert_ne!(shuffled, cut);
    let sorted = |text: &str| {
        let mut lines: Vec<_> = parsed(text);
        lines.sort_unstable();
        lines
    };
    assert_eq!(sorted(&shuffled), sorted(&cut));
    let refused = folder.xio(["ranges", "d.xio", "train/x"]);
    assert_eq!(refused.status, 2, "{}", refused.stderr);
}

#[test]
fn a_volume_without_files_is_one_range() {
    let folder = Folder::new();
    folder.write("a", &[7; 10_000]);
    let pack = "pack a --dtype u8 --store-as none -o a.xio";
    folder.done(pack.split(' '));
    assert_eq!(folder.done(["ranges", "a.xio"]), "0 10000\n");
    let samples = "ranges a.xio --samples 4096";
    assert_eq!(
        folder.done(samples.split(' ')),
        "0 4096\n4096 4096\n8192 1808\n"
    );
    assert_eq!(folder.xio(["ranges", "a.xio", "a"]).status, 2);
    assert_eq!(folder.xio("ranges a.xio --samples 0".split(' ')).status, 2);
}

/// From a shuffled epoch to reads in that order: each unit of the disk that a range touches, no other.
#[test]
fn bench_reads_the_order() {
    let (folder, _, disk) = packed();
    let epoch = "ranges d.xio train --samples 10000 --shuffle 7";
    let order = folder.done(epoch.split(' '));
    folder.write("epoch", order.as_bytes());
    let rounded = |(offset, bytes): (usize, usize)| {
        let end = (offset + bytes).next_multiple_of(4096).min(disk.len());
        end - offset / 4096 * 4096
    };
    let expected: usize = parsed(&order).into_iter().map(rounded).sum();
    let bench = "bench disk --order epoch --bs 8k --output-format json";
    let text = folder.done(bench.split(' '));
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    let read = &report["jobs"][0]["read"];
    assert_eq!(read["io_bytes"], expected);
    folder.write("wrong", b"0 4096\n9 x\n");
    let wrong = folder.xio(["bench", "disk", "--order", "wrong"]);
    assert_eq!(wrong.status, 2);
    assert!(wrong.stderr.contains("wrong:2: `9 x`"), "{}", wrong.stderr);
    // A block that is not the one that was written there is found where the order comes by.
    folder.done("bench v --size 64k --rw write --bs 4k --verify crc32c".split(' '));
    folder.write("order", b"40960 8192\n4096 4096\n");
    let verify = "bench v --rw read --bs 4k --verify crc32c --order order";
    folder.done(verify.split(' '));
    let mut bytes = folder.read("v");
    bytes[20_000] ^= 1;
    folder.write("v", &bytes);
    folder.done(verify.split(' '));
    bytes[45_060] ^= 1;
    folder.write("v", &bytes);
    let found = folder.xio(verify.split(' '));
    assert_eq!(found.status, 1, "{}", found.stderr);
    assert!(found.stderr.contains("45060"), "{}", found.stderr);
}
