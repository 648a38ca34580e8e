//! One disk over several volumes: packed, mapped, of bare elements, and of disks themselves.

use std::fs;

use super::disk::{of_disk, of_folder};
use super::served::{NQN, Target};
use super::support::{Folder, Random, fixture};

/// Two folders and a file of ids.
fn volumes(folder: &Folder) {
    let mut random = Random::new(3);
    for (name, bytes) in [("a/large", 50_000), ("a/sub/small", 7), ("b/other", 20_000)] {
        let content: Vec<u8> = (0..bytes)
            .map(|_| random.next().to_le_bytes()[0] & 0x1F)
            .collect();
        let path = folder.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    std::os::unix::fs::symlink("large", folder.path("a/link")).unwrap();
    fs::create_dir(folder.path("volumes")).unwrap();
    let ids = fixture("tiny-u32.bin");
    let ids = ids.to_str().unwrap();
    folder.done([
        "pack",
        "a",
        "--store-as",
        "lz4",
        "--no-manifest",
        "-o",
        "volumes/a.xio",
    ]);
    folder.done(["map", "b", "--no-manifest", "-o", "b.xio"]);
    folder.done([
        "pack",
        ids,
        "--dtype",
        "u32",
        "--store-as",
        "u16+zstd:3",
        "--name",
        "ids.bin",
        "-o",
        "ids.xio",
    ]);
}

#[test]
fn their_files_stand_side_by_side_and_no_byte_is_copied() {
    let folder = Folder::new();
    volumes(&folder);
    let inputs = ["volumes/a.xio", "b.xio", "ids.xio"];
    let said = folder.done([&["format"], &inputs[..], &["-o", "all.xio"]].concat());
    assert!(said.contains("4 files of 78,007 bytes"), "{said}");
    assert!(!said.contains("--allow-sources"), "{said}");
    folder.done(["verify", "all.xio"]);
    folder.done(["unpack", "all.xio", "-o", "disk.img"]);
    let found = of_disk(&folder.read("disk.img"));
    for name in ["a", "b"] {
        for (path, wanted) in of_folder(&folder.path(name)) {
            let path = [name.as_bytes(), b"/", &path].concat();
            assert!(found.get(&path) == Some(&wanted), "{}", path.escape_ascii());
        }
    }
    let ids = fs::read(fixture("tiny-u32.bin")).unwrap();
    assert!(found[&b"ids.bin"[..]].content == ids);
    // The folders' names are in them; the manifest and its folder are the disk's own.
    assert!(found.len() == 2 + 4 + 1 + 1 + 2, "{}", found.len());
    let inspected: serde_json::Value =
        serde_json::from_str(&folder.done(["inspect", "all.xio", "--json"])).unwrap();
    assert!(
        inspected["payload_bytes"].as_u64().unwrap() < 4096,
        "{inspected}"
    );
    assert_eq!(
        inspected["views"][0]["manifest"]["volumes"][2]["file"],
        "ids.xio"
    );

    // Both are moved together, and served.
    fs::create_dir(folder.path("moved")).unwrap();
    for name in ["all.xio", "volumes", "b.xio", "b", "ids.xio"] {
        fs::rename(folder.path(name), folder.path(&format!("moved/{name}"))).unwrap();
    }
    let target = Target::start(NQN, &[&folder.path("moved/all.xio")]);
    folder.done(["cp", &target.url(""), "copied"]);
    assert!(folder.read("copied/a/large") == folder.read("a/large"));
    assert!(folder.read("copied/b/other") == folder.read("moved/b/other"));
}

#[test]
fn a_single_disk_is_the_root_and_can_be_collected_again() {
    let folder = Folder::new();
    volumes(&folder);
    folder.done(["format", "volumes/a.xio", "--label", "one", "-o", "one.xio"]);
    folder.done([
        "format", "one.xio", "ids.xio", "--lba", "512", "-o", "two.xio",
    ]);
    folder.done(["verify", "two.xio"]);
    folder.done(["cp", "one.xio", "one"]);
    folder.done(["cp", "two.xio", "two"]);
    assert!(folder.read("one/sub/small") == folder.read("a/sub/small"));
    assert!(folder.read("two/a.xio/large") == folder.read("a/large"));
}

#[test]
fn what_is_no_volume_or_was_changed_is_refused() {
    let folder = Folder::new();
    volumes(&folder);
    folder.fails(
        2,
        "a is no volume; make one of it with xio pack, or with xio map, which copies nothing",
        &["format", "a", "-o", "x.xio"],
    );
    folder.fails(
        2,
        "a is the name of a view of volumes/a.xio and of volumes/a.xio: name them apart (--name, when they are packed)",
        &["format", "volumes/a.xio", "volumes/a.xio", "-o", "x.xio"],
    );
    folder.fails(
        2,
        "b.xio is one of the volumes, and would be replaced: choose another name for the disk",
        &["format", "b.xio", "-o", "b.xio", "--force"],
    );
    folder.done(["format", "ids.xio", "b.xio", "-o", "all.xio"]);
    let mut ids = folder.read("ids.xio");
    let place = folder.path("ids.xio").canonicalize().unwrap();
    ids[33_000] ^= 1;
    folder.write("ids.xio", &ids);
    folder.fails(
        1,
        &format!(
            "all.xio: {} is not the file that the volume was mapped on: its SHA-256 is another one; map or format it again",
            place.display()
        ),
        &["verify", "all.xio"],
    );
}
