//! `xio verify` of damaged volumes names the files that are damaged.

use std::fs;

use serde_json::Value;

use super::support::{Folder, Random, formats};

fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..bytes / 4)
        .flat_map(|_| random.next().to_le_bytes())
        .collect()
}

/// Flips a bit of the first byte of `part` in the file `name`.
fn flip(folder: &Folder, name: &str, part: &[u8]) {
    let mut bytes = folder.read(name);
    let at = bytes.windows(part.len()).position(|there| there == part);
    bytes[at.unwrap()] ^= 1;
    folder.write(name, &bytes);
}

fn verified(folder: &Folder) -> (Value, String) {
    let ran = folder.xio(["verify", "v.xio", "--json"]);
    assert_eq!(ran.status, 1);
    let said = folder.xio(["verify", "v.xio"]);
    assert_eq!(said.stderr, ran.stderr);
    (serde_json::from_str(&ran.stdout).unwrap(), said.stderr)
}

#[test]
fn the_files_of_damaged_granules_are_named() {
    let folder = Folder::new();
    fs::create_dir_all(folder.path("d/sub")).unwrap();
    let content = |file: u64| noise(file, 8192);
    for file in 0..12 {
        folder.write(&format!("d/sub/{file:02}"), &content(file));
    }
    folder.done(["pack", "d", "--store-as", "none", "-o", "v.xio"]);
    let clean: Value = serde_json::from_str(&folder.done(["verify", "v.xio", "--json"])).unwrap();
    assert_eq!(clean["damaged_files"], serde_json::json!([]));

    flip(&folder, "v.xio", &content(3)[5000..5032]);
    let (report, said) = verified(&folder);
    assert_eq!(report["damaged_files"], serde_json::json!(["sub/03"]));
    assert!(said.ends_with("\n1 file is damaged:\n  sub/03\n"), "{said}");

    for file in (0..12).filter(|file| *file != 3) {
        flip(&folder, "v.xio", &content(file)[..32]);
    }
    let (report, said) = verified(&folder);
    let all: Vec<String> = (0..12).map(|file| format!("sub/{file:02}")).collect();
    assert_eq!(report["damaged_files"], serde_json::json!(all));
    let list = all[..10].join("\n  ");
    assert!(
        said.ends_with(&format!(
            "\n12 files are damaged:\n  {list}\n  and 2 more\n"
        )),
        "{said}"
    );
}

#[test]
fn the_files_of_a_damaged_frame_are_named() {
    let folder = Folder::new();
    fs::create_dir(folder.path("d")).unwrap();
    for (name, words) in [("a", "first "), ("b", "second "), ("c", "third ")] {
        folder.write(&format!("d/{name}"), words.repeat(6_000).as_bytes());
    }
    folder.done([
        "pack",
        "d",
        "--store-as",
        "lz4",
        "--frame",
        "64KiB",
        "-o",
        "v.xio",
    ]);
    // The payload begins behind 32 KiB: the first frame has all of a and most of b.
    let mut volume = folder.read("v.xio");
    volume[32 << 10] ^= 1;
    folder.write("v.xio", &volume);
    let (report, said) = verified(&folder);
    assert_eq!(report["damaged_files"], serde_json::json!(["a", "b"]));
    assert!(
        said.ends_with("\n2 files are damaged:\n  a\n  b\n"),
        "{said}"
    );
}

#[test]
fn what_is_no_disk_has_no_files_and_damage_beside_the_files_is_in_none() {
    let folder = Folder::new();
    let content = noise(1, 40_000);
    folder.write("a", &content);
    folder.done(["pack", "a", "--dtype", "u8", "-o", "v.xio"]);
    flip(&folder, "v.xio", &content[9000..9032]);
    let (report, said) = verified(&folder);
    assert_eq!(report["damaged_files"], Value::Null);
    assert!(!said.contains("file"), "{said}");

    folder.done(["pack", "a", "--store-as", "none", "--force", "-o", "v.xio"]);
    let mut volume = folder.read("v.xio");
    let padding = (32 << 10) + content.len();
    assert_eq!(volume[padding], 0);
    volume[padding] = 1;
    folder.write("v.xio", &volume);
    let (report, said) = verified(&folder);
    assert_eq!(report["damaged_files"], serde_json::json!([]));
    assert!(said.ends_with("\nno file is damaged by any\n"), "{said}");
}

#[test]
fn a_mapped_file_is_named_and_its_bytes_are_counted_once() {
    let folder = Folder::new();
    fs::create_dir(folder.path("d")).unwrap();
    let sizes = [100_000, 300_000];
    for (name, bytes) in ["a", "b"].iter().zip(sizes) {
        folder.write(&format!("d/{name}"), &noise(7, bytes));
    }
    folder.done(["map", "d", "-o", "v.xio"]);
    let report: Value = serde_json::from_str(&folder.done(["verify", "v.xio", "--json"])).unwrap();
    let checked = report["checked_bytes"].as_u64().unwrap();
    let stored = folder.read("v.xio").len() as u64;
    let mapped: u64 = sizes.iter().map(|bytes| *bytes as u64).sum();
    // Superblocks and granules at the ends are looked at again.
    let whole = stored + mapped;
    assert!(
        (whole - 4096..whole + 40_960).contains(&checked),
        "{checked} {whole}"
    );

    let about = fs::metadata(folder.path("d/b")).unwrap();
    let mut bytes = folder.read("d/b");
    bytes[200_000] ^= 1;
    folder.write("d/b", &bytes);
    let file = fs::File::options()
        .write(true)
        .open(folder.path("d/b"))
        .unwrap();
    file.set_modified(about.modified().unwrap()).unwrap();
    let (report, said) = verified(&folder);
    assert_eq!(report["damaged_files"], serde_json::json!(["b"]));
    assert!(said.ends_with("\n1 file is damaged:\n  b\n"), "{said}");
}

/// Nothing else hangs on a manifest: what is damaged is said, with its place and both checksums, and the rest is shown.
#[test]
fn a_damaged_manifest_is_said_and_the_rest_is_shown() {
    let folder = Folder::new();
    fs::create_dir(folder.path("d")).unwrap();
    folder.write("d/a", &noise(1, 10_000));
    folder.done(["pack", "d", "-o", "v.xio"]);
    let whole = folder.done(["inspect", "v.xio"]);
    // The disk has it too, as a file, which lies before the volume's own.
    let mut volume = folder.read("v.xio");
    let name = b"\"xio_manifest\"";
    let at = volume.windows(name.len()).rposition(|it| it == name);
    volume[at.unwrap()] ^= 1;
    folder.write("v.xio", &volume);
    let ran = folder.xio(["inspect", "v.xio"]);
    assert_eq!(ran.status, 1);
    let why = ran.stderr.strip_prefix("error: v.xio: the manifest of d: ");
    let why = why.unwrap().strip_suffix('\n').unwrap();
    let (blob, why_not) = why.split_once(", at byte ").unwrap();
    let (place, sums) = why_not.split_once(" of the volume: ").unwrap();
    assert!(blob.starts_with("blob "), "{why}");
    assert_eq!(volume[place.parse::<usize>().unwrap()], b'{', "{why}");
    let sums = sums.strip_prefix("checksum mismatch: recorded ").unwrap();
    let (recorded, computed) = sums.split_once(", computed ").unwrap();
    assert!(recorded != computed && recorded.len() == 8 && computed.len() == 8);
    let (head, rest) = whole.split_once("\nmanifest of d\n").unwrap();
    let (_, rest) = rest.split_once("\nstreams\n").unwrap();
    assert_eq!(
        ran.stdout,
        format!("{head}\nmanifest of d\n  damaged: {why}\n\nstreams\n{rest}")
    );
    let ran = folder.xio(["inspect", "v.xio", "--json"]);
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(ran.status, 1);
    assert_eq!(report["views"][0]["manifest"], Value::Null);
    assert_eq!(report["views"][0]["manifest_error"], why);
    assert!(
        report["streams"]
            .as_array()
            .is_some_and(|it| !it.is_empty())
    );
}

/// What is done to a superblock, its state then, and why.
type Change = (fn(&mut [u8]), &'static str, &'static str);

/// One superblock is enough to read a volume; that others are gone is damage, to `inspect` too.
#[test]
fn superblocks_that_are_gone_are_damage() {
    let folder = Folder::new();
    folder.write("a", &noise(1, 40_000));
    folder.done(["pack", "a", "--dtype", "u8", "-o", "v.xio"]);
    let said = folder.done(["inspect", "v.xio"]);
    assert!(
        said.contains("\nsuperblocks: slot 0 whole, slot 1 whole, tail whole\n"),
        "{said}"
    );
    let whole = folder.read("v.xio");
    let tail = whole.len() - 4096;
    let places = [("slot 0", 0), ("slot 1", 16_384), ("tail", tail)];
    let (zero, spoil) = (
        |block: &mut [u8]| block.fill(0),
        |block: &mut [u8]| block[100] ^= 1,
    );
    let changes: [Change; 2] = [
        (zero, "empty", "it is empty"),
        (spoil, "damaged", "checksum mismatch: "),
    ];
    for (change, state, why) in changes {
        for gone in [&[0][..], &[1], &[2], &[0, 2], &[1, 2], &[0, 1]] {
            if (state, gone) == ("empty", &[0, 1]) {
                continue;
            }
            let mut volume = whole.clone();
            for place in gone {
                change(&mut volume[places[*place].1..][..4096]);
            }
            folder.write("v.xio", &volume);
            let (report, said) = verified(&folder);
            assert_eq!(report["damage_count"], gone.len());
            let inspected = folder.xio(["inspect", "v.xio"]);
            let as_json = folder.xio(["inspect", "v.xio", "--json"]);
            assert_eq!((inspected.status, as_json.status), (1, 1));
            assert_eq!(inspected.stderr, as_json.stderr);
            let begin = "error: v.xio: damaged, and can be read: restore it from a copy, or pack it again: ";
            assert!(inspected.stderr.starts_with(begin), "{}", inspected.stderr);
            for place in gone {
                let (name, at) = places[*place];
                let item = match name {
                    "tail" => "tail superblock".to_owned(),
                    slot => format!("superblock {slot}"),
                };
                let damage = format!("{item}, at byte {at} of the volume: ");
                assert!(said.contains(&damage) && said.contains(why), "{said}");
                assert!(said.contains(&format!("{name} {state}")), "{said}");
                assert!(inspected.stderr.contains(&format!("{damage}{why}")));
                assert!(
                    inspected
                        .stdout
                        .contains(&format!("\ndamaged: {damage}{why}"))
                );
                assert_eq!(report["superblocks"][*place]["state"], state);
            }
            folder.done(["unpack", "v.xio", "--force", "-o", "b"]);
            assert!(folder.read("b")[..40_000] == folder.read("a"));
        }
    }
}

/// As an object that was streamed is, copied into a file: whole, with a note.
#[test]
fn a_volume_that_was_streamed_is_whole() {
    let folder = Folder::new();
    folder.write("a", &noise(1, 40_000));
    folder.done(["pack", "a", "--dtype", "u8", "-o", "v.xio"]);
    let mut volume = folder.read("v.xio");
    volume[..32 << 10].fill(0);
    folder.write("v.xio", &volume);
    let golden = fs::read(formats("../golden-volumes/object.vol")).unwrap();
    folder.write("object.xio", &golden);
    for name in ["v.xio", "object.xio"] {
        let note = format!(
            "note: {name}: the front superblocks are empty: it was written as a stream, or they were lost\n"
        );
        for arguments in [&["verify", name][..], &["inspect", name]] {
            let json = folder.xio([arguments, &["--json"]].concat());
            let text = folder.xio(arguments);
            for ran in [&json, &text] {
                assert_eq!((ran.status, &ran.stderr), (0, &note), "{arguments:?}");
            }
            let report: Value = serde_json::from_str(&json.stdout).unwrap();
            let states = [0, 1, 2].map(|place| report["superblocks"][place]["state"].clone());
            assert_eq!(states, ["empty", "empty", "whole"]);
            match arguments[0] {
                "verify" => assert!(text.stdout.contains(" checked, nothing is damaged")),
                _ => assert!(
                    text.stdout
                        .contains("slot 0 empty, slot 1 empty, tail whole")
                ),
            }
        }
    }
}
