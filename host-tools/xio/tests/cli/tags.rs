//! `xio tag`, and volumes by their tags.

use std::fs;

use super::support::{Folder, fixture, limited};

fn uuid(folder: &Folder, volume: &str) -> String {
    let shown: serde_json::Value =
        serde_json::from_str(&folder.done(["inspect", volume, "--json"])).unwrap();
    shown["volume_uuid"].as_str().unwrap().to_owned()
}

/// Two volumes in the folder `sets`.
fn sets() -> Folder {
    let folder = Folder::new();
    fs::create_dir(folder.path("sets")).unwrap();
    let r50k = fs::read(fixture("r50k-u32.bin")).unwrap();
    folder.write("a.bin", &r50k);
    folder.write("b.bin", &r50k[..40_000]);
    for name in ["a", "b"] {
        let (input, output) = (format!("{name}.bin"), format!("sets/{name}.xio"));
        folder.done([
            "pack",
            &input,
            "--dtype",
            "u32",
            "--store-as",
            "u16",
            "-o",
            &output,
        ]);
    }
    folder
}

#[test]
fn a_tagged_volume_is_used_by_its_name() {
    let folder = sets();
    let (a, b) = (uuid(&folder, "sets/a.xio"), uuid(&folder, "sets/b.xio"));
    assert_eq!(
        folder.done(["tag", "sets", "--json"]),
        "{\"folder\":\"sets\",\"tags\":{}}\n"
    );
    let said = folder.done(["tag", "sets/a.xio", "v1", "--note", "first crawl"]);
    assert_eq!(said, format!("a.xio: volume {a} is v1\n"));
    folder.done(["tag", "sets/b.xio", "small"]);
    let listed: serde_json::Value =
        serde_json::from_str(&folder.done(["tag", "sets", "--json"])).unwrap();
    let v1 = &listed["tags"]["v1"];
    assert_eq!(
        (&v1["file"], &v1["note"]),
        (&"a.xio".into(), &"first crawl".into())
    );
    assert_eq!(v1["volume_uuid"], a.as_str());
    let table = folder.done(["tag", "sets"]);
    let row = |name: &str| table.lines().find(|line| line.starts_with(name)).unwrap();
    assert!(row("v1 ").contains("  there  first crawl"), "{table}");
    assert!(row("small ").contains(&b), "{table}");

    // Wherever a command takes a volume.
    assert_eq!(uuid(&folder, "sets@v1"), a);
    folder.done(["verify", "sets@v1", "--against", "a.bin"]);
    folder.done(["unpack", "sets@small", "-o", "out.bin"]);
    assert!(folder.read("out.bin") == folder.read("b.bin"));
    folder.done(["diff", "sets@v1", "sets/a.xio"]);
    folder.done(["format", "sets@v1", "sets@small", "-o", "disk.xio"]);
    folder.done(["cp", "disk.xio", "disk"]);
    // A volume of elements is a file of its name.
    assert!(folder.read("disk/a.bin") == folder.read("a.bin"));
    assert!(folder.read("disk/b.bin") == folder.read("b.bin"));
    // By one of its tags it is given another.
    let said = folder.done(["tag", "sets@v1", "again"]);
    assert_eq!(said, format!("a.xio: volume {a} is again\n"));
    assert_eq!(uuid(&folder, "sets@again"), a);
    folder.done(["tag", "sets", "--delete", "again"]);

    let there = format!("the tag 'v1' is there: a.xio, volume {a}; --move gives it to another");
    folder.fails(2, &there, &["tag", "sets/b.xio", "v1"]);
    folder.done(["tag", "sets/b.xio", "v1", "--move"]);
    assert_eq!(uuid(&folder, "sets@v1"), b);
    let said = folder.done(["tag", "sets", "--delete", "v1"]);
    assert_eq!(said, format!("v1 was b.xio, volume {b}\n"));
    let absent = "no tag 'v1' in sets; 'xio tag sets' lists them";
    folder.fails(2, absent, &["inspect", "sets@v1"]);
    folder.fails(2, absent, &["tag", "sets", "--delete", "v1"]);
    let names = fs::read_dir(folder.path("sets")).unwrap();
    assert_eq!(names.count(), 3, "two volumes and the tags");
}

#[test]
fn what_is_not_the_tagged_content_any_more_is_refused() {
    let folder = sets();
    let (a, b) = (uuid(&folder, "sets/a.xio"), uuid(&folder, "sets/b.xio"));
    folder.done(["tag", "sets/a.xio", "v1"]);
    fs::rename(folder.path("sets/b.xio"), folder.path("sets/a.xio")).unwrap();
    let error = format!(
        "the tag 'v1' was given to volume {a}, and a.xio is volume {b} now; 'xio tag --move' gives it to what is there"
    );
    folder.fails(1, &error, &["inspect", "sets@v1"]);
    folder.fails(1, &error, &["unpack", "sets@v1", "-o", "out.bin"]);
    folder.fails(1, &error, &["format", "sets@v1", "-o", "disk.xio"]);
    folder.fails(1, &error, &["tag", "sets@v1", "v2"]);
    assert!(
        folder
            .done(["tag", "sets"])
            .contains("  another volume now")
    );
    folder.write("sets/a.xio", b"no volume any more");
    assert!(folder.done(["tag", "sets"]).contains("  not readable"));
    fs::remove_file(folder.path("sets/a.xio")).unwrap();
    assert!(folder.done(["tag", "sets"]).contains("  gone"));
    // A file whose name looks like a tag is a file.
    let folder = sets();
    fs::rename(folder.path("sets/a.xio"), folder.path("sets@v1")).unwrap();
    assert_eq!(uuid(&folder, "sets@v1"), a);
}

#[test]
fn a_disk_that_is_full_is_said_of_the_file_that_has_the_tags() {
    let folder = sets();
    let said = "writing sets/xio-tags.json: File too large (os error 27)";
    let ran = limited(&folder, 0, &["tag", "sets/a.xio", "v1"]);
    assert_eq!((ran.status, ran.stderr), (3, format!("error: {said}\n")));
    assert_eq!(fs::read_dir(folder.path("sets")).unwrap().count(), 2);
}

#[test]
fn tags_of_strangers_lead_nowhere_else() {
    let folder = sets();
    folder.done(["tag", "sets/a.xio", "v1"]);
    let text = String::from_utf8(folder.read("sets/xio-tags.json")).unwrap();
    for (from, to, why) in [
        (
            "a.xio",
            "../a.bin",
            "sets/xio-tags.json: the tag 'v1': '../a.bin' is no name of a file in the folder",
        ),
        (
            "\"v1\"",
            "\"v/1\"",
            "sets/xio-tags.json: 'v/1' is no name of a tag: 1 to 64 letters, digits, '-', '_', '.'",
        ),
        (
            "\"xio_tags\": 1",
            "\"xio_tags\": 9",
            "sets/xio-tags.json: version 9; this program reads 1",
        ),
    ] {
        folder.write("sets/xio-tags.json", text.replace(from, to).as_bytes());
        let why = format!("{why}; mend it, or remove it and give the tags again");
        folder.fails(1, &why, &["inspect", "sets@v1"]);
        folder.fails(1, &why, &["tag", "sets"]);
        folder.fails(1, &why, &["tag", "sets/b.xio", "v2"]);
    }
    folder.write("sets/xio-tags.json", b"{ 5");
    folder.fails(
        1,
        "sets/xio-tags.json: it is no list of tags: key must be a string at line 1 column 3; mend it, or remove it and give the tags again",
        &["tag", "sets"],
    );
    let served = "nvme+tcp://127.0.0.1:4420/nqn.2026-11.io.xio:snap?nsid=1";
    for arguments in [&["tag", served][..], &["tag", served, "v1"]] {
        folder.fails(
            2,
            &format!("{served} is served by a target, and tags name volumes in folders: give the volume's file where it lies, or its folder"),
            arguments,
        );
    }
    let name = "'a b' is no name of a tag: 1 to 64 letters, digits, '-', '_', '.'";
    folder.fails(2, name, &["tag", "sets/b.xio", "a b"]);
}
