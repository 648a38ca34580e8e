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
    assert!(folder.read("two/one/large") == folder.read("a/large"));
}

/// Not as the folder that it was packed from: of that there may be several.
#[test]
fn each_volume_has_a_folder_that_is_called_as_its_file() {
    let folder = Folder::new();
    volumes(&folder);
    for (command, output) in [
        (&["pack", "a"][..], "a-v1.xio"),
        (&["pack", "a", "--name", "other"], "a-v2.tar.xio"),
        (&["map", "b", "--gpt", "--pad"], "no ending"),
    ] {
        folder.done([command, &["-o", output]].concat());
    }
    let inputs = ["a-v1.xio", "a-v2.tar.xio", "no ending", "ids.xio"];
    folder.done([&["format"], &inputs[..], &["-o", "all.xio"]].concat());
    folder.done(["cp", "all.xio", "all"]);
    let mut names: Vec<_> = fs::read_dir(folder.path("all")).unwrap().collect();
    names.sort_by_key(|entry| entry.as_ref().unwrap().file_name());
    let names: Vec<_> = names
        .into_iter()
        .map(|it| it.unwrap().file_name())
        .collect();
    assert_eq!(names, [".xio", "a-v1", "a-v2.tar", "ids.bin", "no ending"]);
    for name in ["a-v1", "a-v2.tar"] {
        assert!(folder.read(&format!("all/{name}/large")) == folder.read("a/large"));
    }
    assert!(folder.read("all/no ending/other")[..20_000] == folder.read("b/other"));
    let shown = folder.done(["inspect", "all.xio", "--json"]);
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    let listed = &shown["views"][0]["manifest"]["volumes"];
    for (index, path) in ["a-v1", "a-v2.tar", "no ending", "ids.bin"]
        .iter()
        .enumerate()
    {
        assert_eq!(listed[index]["views"][0]["path"], *path);
    }
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
    // One that is damaged is a volume, and what is damaged is said.
    let whole = folder.read("b.xio");
    folder.write("damaged.xio", &whole[..whole.len() - 4096]);
    let run = folder.xio(["format", "damaged.xio", "-o", "x.xio"]);
    assert_eq!(run.status, 1, "{}", run.stderr);
    assert!(
        run.stderr.starts_with("error: damaged.xio: "),
        "{}",
        run.stderr
    );
    assert!(!run.stderr.contains("is no volume"), "{}", run.stderr);
    std::fs::remove_file(folder.path("damaged.xio")).unwrap();
    folder.fails(
        2,
        "a is the name on the disk of volumes/a.xio and of volumes/a.xio: rename one of the volumes; one of bare elements is called as --name said when it was packed",
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

/// What was packed without checksums has none on a disk of several volumes either, and that is said. A rotten bit is presented there, as by the volume; `verify` finds it.
#[test]
fn volumes_without_checksums_are_named() {
    let folder = Folder::new();
    volumes(&folder);
    let plain = ["--integrity", "none", "--store-as", "none", "--no-manifest"];
    folder.done([&["pack", "b"][..], &plain, &["-o", "plain.xio"]].concat());
    let ran = folder.xio(["format", "volumes/a.xio", "plain.xio", "-o", "all.xio"]);
    assert_eq!(
        (ran.status, ran.stderr.as_str()),
        (
            0,
            "note: plain.xio: 20000 bytes have no checksums (--integrity none): damage to them is presented by this disk too, and only xio verify tells; pack it again without that option\n"
        )
    );
    folder.done(["verify", "all.xio"]);
    let inspected: serde_json::Value =
        serde_json::from_str(&folder.done(["inspect", "all.xio", "--json"])).unwrap();
    let unprotected = inspected["streams"].as_array().unwrap().iter();
    let unprotected = unprotected.filter(|it| it["integrity"] == "none");
    let bytes = unprotected.map(|it| it["stored_bytes"].as_u64().unwrap());
    assert_eq!(bytes.sum::<u64>(), 20_000);
    folder.done(["cp", "all.xio", "whole"]);
    assert!(of_folder(&folder.path("whole/plain")) == of_folder(&folder.path("b")));
    // The bit rots: no time of the file tells.
    let plain = folder.path("plain.xio");
    let mut bytes = folder.read("plain.xio");
    let content = folder.read("b/other");
    let at = bytes
        .windows(64)
        .position(|it| it == &content[..64])
        .unwrap();
    bytes[at + 5] ^= 1;
    let modified = fs::metadata(&plain).unwrap().modified().unwrap();
    fs::write(&plain, bytes).unwrap();
    let file = fs::File::options().write(true).open(&plain).unwrap();
    file.set_modified(modified).unwrap();
    folder.done(["cp", "all.xio", "rotten"]);
    let rotten = folder.read("rotten/plain/other");
    assert_eq!(rotten[5], content[5] ^ 1);
    assert!(rotten[6..] == content[6..]);
    let ran = folder.xio(["verify", "all.xio"]);
    assert_eq!(ran.status, 1, "{}{}", ran.stdout, ran.stderr);
}

/// A copy of a volume with one byte changed: the first that its first view's metadata are stored in.
fn with_damaged_metadata(folder: &Folder, volume: &str, damaged: &str) {
    let inspect = ["inspect", volume, "--json", "--extents", "1"];
    let inspected: serde_json::Value = serde_json::from_str(&folder.done(inspect)).unwrap();
    let first = &inspected["views"][0]["extents"][0];
    assert_eq!(
        (&first["start"], &first["mapping"]),
        (&0.into(), &"linear".into())
    );
    let stream = usize::try_from(first["stream"].as_u64().unwrap()).unwrap();
    let at = inspected["streams"][stream]["stored_offset"].as_u64();
    let mut bytes = folder.read(volume);
    bytes[usize::try_from(at.unwrap()).unwrap()] ^= 1;
    folder.write(damaged, &bytes);
}

/// A volume whose filesystem cannot be read gives no file of its bytes in the place of its files: it is refused, as by `cp`.
#[test]
fn a_volume_whose_filesystem_is_damaged_is_refused() {
    let folder = Folder::new();
    volumes(&folder);
    fs::create_dir(folder.path("bad")).unwrap();
    with_damaged_metadata(&folder, "volumes/a.xio", "bad/a.xio");
    let ran = folder.xio(["cp", "bad/a.xio", "copy"]);
    assert_eq!(ran.status, 1);
    let says = "error: bad/a.xio: presented byte 0: stream ";
    assert!(ran.stderr.starts_with(says), "{}", ran.stderr);
    let why = ran.stderr.strip_prefix("error: ").unwrap().trim_end();
    folder.fails(1, why, &["format", "bad/a.xio", "-o", "x.xio"]);
    folder.fails(1, why, &["format", "b.xio", "bad/a.xio", "-o", "x.xio"]);
    // Bytes that are right and a filesystem that is not.
    folder.done(["pack", "a", "-o", "v.xio"]);
    folder.spoil_disk(|disk| disk[1024 + 4] ^= 1);
    let ran = folder.xio(["cp", "wrong.xio", "copy"]);
    assert_eq!(ran.status, 1);
    let says = "error: wrong.xio: superblock: its checksum is ";
    assert!(ran.stderr.starts_with(says), "{}", ran.stderr);
    let why = ran.stderr.strip_prefix("error: ").unwrap().trim_end();
    folder.fails(1, why, &["format", "wrong.xio", "-o", "x.xio"]);
    assert!(!folder.path("x.xio").exists());
}

/// Volumes that map a file are not read through: what its bytes are is not looked at, and it is one file.
#[test]
fn a_mapped_image_is_a_file() {
    let folder = Folder::new();
    volumes(&folder);
    folder.done(["unpack", "volumes/a.xio", "-o", "disk.img"]);
    folder.done(["map", "disk.img", "--dtype", "u8", "-o", "image.xio"]);
    folder.done(["format", "image.xio", "-o", "one.xio"]);
    folder.done(["cp", "one.xio", "copy"]);
    assert!(folder.read("copy/disk.img") == folder.read("disk.img"));
}
