//! Manifests of all writers, read by one strict reader; digests are made again from the files.

mod reader;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use printout::size::grouped;
use reader::{check, list, name_of, number, width};
use serde_json::{Value, json};

use super::support::{Folder, formats, sha256};

/// The manifest of a volume's view, checked, with its sources and streams.
fn manifest(folder: &Folder, volume: &str, sources: &Path) -> Value {
    let inspected = folder.done(["inspect", volume, "--json"]);
    let mut inspected: Value = serde_json::from_str(&inspected).unwrap();
    let manifest = inspected["views"][0]["manifest"].take();
    check(&manifest);
    assert_eq!(manifest["lossy"], inspected["views"][0]["lossy"]);
    check_sources(&manifest, sources);
    check_streams(&manifest, &inspected["streams"]);
    manifest
}

/// What the files hold; of what was unzipped, the files that it was unzipped from.
fn check_sources(manifest: &Value, folder: &Path) {
    for source in list(&manifest["sources"]) {
        let origin = &source["unzipped_from"];
        let source = if origin.is_null() { source } else { origin };
        let path = folder.join(OsStr::from_bytes(&name_of(source, "path")));
        let content = fs::read(&path).unwrap();
        assert_eq!(source["bytes"], content.len(), "{source}");
        assert_eq!(source["sha256"], sha256(&content), "{source}");
    }
}

/// What the volume has of its streams, and what they are where a file is one of them.
fn check_streams(manifest: &Value, in_volume: &Value) {
    let sources = list(&manifest["sources"]);
    for (index, stream) in list(&manifest["streams"]).iter().enumerate() {
        let there = &in_volume[index];
        for (member, as_inspected) in [
            ("elements", "elements"),
            ("type", "dtype"),
            ("stored_chain", "stored_chain"),
            ("stored_bytes", "stored_bytes"),
            ("sha256", "sha256"),
            ("range", "range"),
        ] {
            assert_eq!(stream[member], there[as_inspected], "{index} {member}");
        }
        let of_stream: Vec<&Value> = sources
            .iter()
            .filter(|it| list(&it["streams"]).contains(&index.into()))
            .collect();
        if let [only] = of_stream.as_slice()
            && list(&only["streams"]).len() == 1
        {
            let bytes = number(&stream["elements"]) * width(&stream["type"]);
            assert_eq!(only["bytes"], bytes);
            assert_eq!(
                only["sha256"] == stream["sha256"],
                stream["loss"].is_null(),
                "{stream}"
            );
        }
    }
}

fn floats(numbers: &[f32]) -> Vec<u8> {
    numbers
        .iter()
        .flat_map(|number| number.to_le_bytes())
        .collect()
}

/// Names of any bytes, two names of a file, a link, an empty file, and numbers that f16 does not hold.
fn dataset(folder: &Folder) {
    fs::create_dir_all(folder.path("d/sub")).unwrap();
    for (name, content) in [
        (&b"a\xff"[..], &b"one"[..]),
        (b"a\xfe", b"two"),
        (b"none", b""),
    ] {
        fs::write(folder.path("d").join(OsStr::from_bytes(name)), content).unwrap();
    }
    let ids: Vec<u8> = (0..30_000u32).flat_map(u32::to_le_bytes).collect();
    folder.write("d/ids.u32", &ids);
    let numbers: Vec<f32> = (0..9_000u32).map(|n| n as f32 * 1.1).collect();
    folder.write("d/sub/w.f32", &floats(&numbers));
    fs::hard_link(folder.path("d/sub/w.f32"), folder.path("d/sub/again.f32")).unwrap();
    symlink("w.f32", folder.path("d/sub/link.f32")).unwrap();
    folder.write("d/huge.f32", &floats(&[1e30, -1e30]));
}

const PRESENTED: [&str; 6] = [
    "--as",
    "*.u32=u32",
    "--as",
    "*.f32=f32",
    "--present-as",
    "source,f16",
];

fn presented(folder: &Folder, command: &str, volume: &str) -> String {
    let arguments = [&[command, "d"][..], &PRESENTED, &["-o", volume]].concat();
    let ran = folder.xio(arguments);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    ran.stderr
}

#[test]
fn of_files_packed_and_mapped() {
    for command in ["pack", "map"] {
        let folder = Folder::new();
        dataset(&folder);
        presented(&folder, command, "v.xio");
        let manifest = manifest(&folder, "v.xio", &folder.path("d"));
        folder.done(["cp", "v.xio", "c"]);
        let on_disk: Value = serde_json::from_slice(&folder.read("c/.xio/manifest.json")).unwrap();
        assert_eq!(on_disk, manifest, "{command}");

        let mut names: Vec<_> = list(&manifest["sources"])
            .iter()
            .map(|source| name_of(source, "path"))
            .collect();
        names.sort_unstable();
        let wanted = [
            "a\u{fe}",
            "a\u{ff}",
            "huge.f32",
            "ids.u32",
            "none",
            "sub/again.f32",
            "sub/w.f32",
        ];
        let wanted = wanted.map(|name| name.chars().map(|c| c as u8).collect::<Vec<u8>>());
        assert_eq!(names, wanted);
        // Every byte of every file is in a stream once; two names are one file.
        let streams = list(&manifest["streams"]).iter();
        let in_streams: u64 = streams
            .map(|it| number(&it["elements"]) * width(&it["type"]))
            .sum();
        assert_eq!(in_streams, 3 + 3 + 120_000 + 36_000 + 8, "{command}");

        let [source, f16] = list(&manifest["views"]) else {
            panic!("{manifest}");
        };
        assert_eq!(
            source,
            &json!({ "name": "source", "changes": [], "changed_files": [] })
        );
        assert_eq!(f16["name"], "f16");
        let mut by_path = BTreeMap::new();
        for file in list(&f16["changed_files"]) {
            let path = name_of(file, "path");
            let copied = folder.path("c/f16").join(OsStr::from_bytes(&path));
            let content = fs::read(copied).unwrap();
            assert_eq!(file["bytes"], content.len(), "{command} {file}");
            assert_eq!(file["sha256"], sha256(&content), "{command} {file}");
            by_path.insert(path, number(&file["source"]));
        }
        let paths: Vec<&[u8]> = by_path.keys().map(Vec::as_slice).collect();
        assert_eq!(paths, [&b"huge.f32"[..], b"sub/again.f32", b"sub/w.f32"]);
        let source_of = |path: &[u8]| {
            let index = usize::try_from(by_path[path]).unwrap();
            name_of(&manifest["sources"][index], "path")
        };
        assert_eq!(source_of(b"huge.f32"), b"huge.f32");
        let inode = |path: &str| fs::metadata(folder.path(path)).unwrap().ino();
        assert_eq!(inode("d/sub/w.f32"), inode("d/sub/again.f32"));
        assert_eq!(source_of(b"sub/w.f32"), b"sub/again.f32");

        // 9,000 numbers under two names are 9,000.
        let [change] = list(&f16["changes"]) else {
            panic!("{f16}");
        };
        assert_eq!(change["source_bytes"], 36_000 + 8, "{command}");
        assert_eq!(
            change["step"],
            json!({ "transform": 3, "version": 1, "parameter": 9 })
        );
        assert_eq!(change["loss"]["saturated"], 2);
    }
}

#[test]
fn of_elements_packed_and_mapped() {
    let folder = Folder::new();
    folder.write("a", &floats(&[0.5, 1.1, 2.2]));
    folder.write("b", &floats(&[7e5, 1e-9]));
    for (arguments, rounded) in [
        (&["pack", "--store-as", "lz4"][..], false),
        (&["pack", "--store-as", "f16+lz4"], true),
        (&["map"], false),
    ] {
        let ran = folder.xio(
            [
                arguments,
                &[
                    "a", "b", "--dtype", "f32", "--concat", "--force", "-o", "v.xio",
                ],
            ]
            .concat(),
        );
        assert_eq!(ran.status, 0, "{}", ran.stderr);
        let manifest = manifest(&folder, "v.xio", &folder.path("."));
        let sources = list(&manifest["sources"]).iter();
        let sources: Vec<_> = sources.map(|it| (&it["path"], &it["streams"])).collect();
        assert_eq!(
            sources,
            [(&json!("a"), &json!([0])), (&json!("b"), &json!([1]))]
        );
        let [view] = list(&manifest["views"]) else {
            panic!("{manifest}");
        };
        assert_eq!(manifest["lossy"], rounded);
        if !rounded {
            assert_eq!(
                view,
                &json!({ "name": "source", "changes": [], "changed_files": [] })
            );
            assert_eq!(ran.stderr, "");
            continue;
        }
        assert_eq!(
            ran.stderr,
            "note: --store-as f16+lz4: of 5 numbers of f32, 1 became infinite and 1 became zero in f16\n"
        );
        folder.done(["unpack", "v.xio", "--force", "-o", "out"]);
        let out = folder.read("out");
        let digests: Vec<&Value> = list(&view["changed_files"])
            .iter()
            .map(|it| &it["sha256"])
            .collect();
        assert_eq!(
            digests,
            [&json!(sha256(&out[..12])), &json!(sha256(&out[12..]))]
        );
        let change = &view["changes"][0];
        let types = ["from", "to", "presented_as"].map(|name| change[name].as_str().unwrap());
        assert_eq!(
            (view["name"].as_str(), types),
            (Some("f16"), ["f32", "f16", "f32"])
        );
        assert_eq!(change["step"], manifest["streams"][0]["steps"][0]);
    }
}

/// A disk over volumes says what these say, on the disk too; and what it says is enough for `diff --trust-digests`.
#[test]
fn of_volumes_on_one_disk() {
    let folder = Folder::new();
    dataset(&folder);
    presented(&folder, "pack", "v.xio");
    folder.write("a", &floats(&[0.5, 1.1]));
    folder.done([
        "pack",
        "a",
        "--dtype",
        "f32",
        "--store-as",
        "lz4",
        "-o",
        "a.xio",
    ]);
    folder.done(["format", "v.xio", "a.xio", "-o", "all.xio"]);
    folder.done(["verify", "all.xio"]);
    let all = manifest(&folder, "all.xio", &folder.path("."));
    assert_eq!(all["lossy"], true);
    folder.done(["cp", "all.xio", "c"]);
    let on_disk: Value = serde_json::from_slice(&folder.read("c/.xio/manifest.json")).unwrap();
    assert_eq!(on_disk, all);
    let [v, a] = list(&all["volumes"]) else {
        panic!("{all}");
    };
    for (volume, file, path, is_filesystem, sources) in
        [(v, "v.xio", "v", true, "d"), (a, "a.xio", "a", false, ".")]
    {
        let view = &volume["views"][0];
        assert_eq!(
            (&volume["file"], &view["path"]),
            (&json!(file), &json!(path))
        );
        assert_eq!(view["is_filesystem"], is_filesystem);
        let of_volume = manifest(&folder, file, &folder.path(sources));
        assert_eq!(view["manifest"], of_volume);
        let mut text = serde_json::to_vec_pretty(&of_volume).unwrap();
        text.push(b'\n');
        assert_eq!(view["manifest_sha256"], sha256(&text));
    }
    assert_eq!(
        sha256(&folder.read("c/v/.xio/manifest.json")),
        v["views"][0]["manifest_sha256"]
    );
    let text = folder.done(["inspect", "all.xio"]);
    assert!(
        text.contains("2 volumes, 8 sources of 192,022 bytes, some of them rounded"),
        "{text}"
    );
    assert!(text.contains("v/f16"), "{text}");
    let same = folder.done(["diff", "all.xio", "all.xio", "--trust-digests"]);
    assert!(same.contains("14 of them by their digests"), "{same}");

    // A disk that is alone is the root, and its manifest is in that of the new one.
    folder.done(["format", "v.xio", "-o", "one.xio"]);
    folder.done(["cp", "one.xio", "one"]);
    let one = manifest(&folder, "one.xio", &folder.path("."));
    let on_disk: Value = serde_json::from_slice(&folder.read("one/.xio/manifest.json")).unwrap();
    assert_eq!(on_disk, one);
    assert_eq!(
        one["volumes"][0]["views"][0]["manifest"],
        v["views"][0]["manifest"]
    );
    assert_eq!(one["volumes"][0]["views"][0]["path"], "");
}

/// The raw shard that a disk presents has a digest, and so has the compressed one that it was made of.
#[test]
fn of_shards_that_were_unzipped() {
    let folder = Folder::new();
    fs::create_dir_all(folder.path("d/train")).unwrap();
    let mut zip_bytes = 0;
    for file in fs::read_dir(formats("mds/zip")).unwrap() {
        let file = file.unwrap();
        let copy = folder.path("d/train").join(file.file_name());
        zip_bytes += fs::copy(file.path(), copy).unwrap();
    }
    folder.write("d/plain", b"not zipped");
    // A command that was killed has left its raw shards.
    fs::create_dir(folder.path(".xio-unzip-left")).unwrap();
    folder.write(".xio-unzip-left/shard.00000.mds", b"raw");
    let ran = folder.xio(["pack", "d", "--unzip", "-o", "v.xio"]);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    assert_eq!(folder.names(), ["d", "v.xio"]);
    let manifest = manifest(&folder, "v.xio", &folder.path("d"));
    folder.done(["cp", "v.xio", "c"]);
    let sources = list(&manifest["sources"]).iter();
    let paths = sources.map(|source| {
        let presented = folder.read(&format!("c/{}", source["path"].as_str().unwrap()));
        assert_eq!(source["bytes"], presented.len(), "{source}");
        assert_eq!(source["sha256"], sha256(&presented), "{source}");
        (
            source["path"].as_str(),
            source["unzipped_from"]["path"].as_str(),
        )
    });
    let wanted = [
        ("plain", None),
        ("train/index.json", Some("train/index.json")),
        ("train/shard.00000.mds", Some("train/shard.00000.mds.bz2")),
        ("train/shard.00001.mds", Some("train/shard.00001.mds.bz2")),
        ("train/shard.00002.mds", Some("train/shard.00002.mds.bz2")),
        ("train/shard.00003.mds", Some("train/shard.00003.mds.bz2")),
    ];
    let wanted = wanted.map(|(path, from)| (Some(path), from));
    assert_eq!(paths.collect::<Vec<_>>(), wanted);
    let text = folder.done(["inspect", "v.xio"]);
    let said = format!(
        "\n  5 of them are raw, unzipped from {} bytes\n",
        grouped(zip_bytes)
    );
    assert!(text.contains(&said), "{text}");
}

/// What has the name of the disk's own folder and is not the volume's manifest stays.
#[test]
fn a_folder_of_the_user_is_not_replaced_by_the_manifest() {
    let folder = Folder::new();
    fs::create_dir_all(folder.path("d/.xio")).unwrap();
    folder.write("d/.xio/manifest.json", b"mine");
    folder.done(["pack", "d", "--no-manifest", "-o", "v.xio"]);
    let ran = folder.xio(["format", "v.xio", "-o", "all.xio"]);
    assert_eq!(
        ran.stderr,
        "note: .xio: the volumes have this name, so that the disk has no manifest there; xio inspect shows the volume's\n"
    );
    folder.done(["cp", "all.xio", "c"]);
    assert_eq!(folder.read("c/.xio/manifest.json"), b"mine");
    manifest(&folder, "all.xio", &folder.path("."));
}

/// It is over 1 MiB, and whole: with the disk's own file and without.
#[test]
fn of_many_files() {
    let folder = Folder::new();
    fs::create_dir(folder.path("d")).unwrap();
    for number in 0..2_600 {
        folder.write(&format!("d/{number:0240}"), b"");
    }
    for arguments in [&[][..], &["--no-manifest"]] {
        folder.done([&["pack", "d", "--force", "-o", "v.xio"], arguments].concat());
        let manifest = manifest(&folder, "v.xio", &folder.path("d"));
        assert_eq!(list(&manifest["sources"]).len(), 2_600);
        assert!(manifest.to_string().len() > 900_000);
    }
}

/// The example of docs/format.md is what the commands there make.
#[test]
fn of_the_document() {
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/format.md");
    let document = fs::read_to_string(PathBuf::from(document)).unwrap();
    let (_, example) = document.split_once("<!-- manifest -->").unwrap();
    let (_, example) = example.split_once("```json\n").unwrap();
    let (example, _) = example.split_once("```").unwrap();
    let folder = Folder::new();
    fs::create_dir(folder.path("d")).unwrap();
    folder.write(
        "d/x",
        b"\0\0\x80\x3f\0\x08\x80\x3f\0\xb8\x88\x47\x5f\x70\x89\x30",
    );
    let arguments = [
        "pack",
        "d",
        "--as",
        "x=f32",
        "--store-as",
        "lz4",
        "--present-as",
        "f16",
        "-o",
        "d.xio",
    ];
    assert_eq!(folder.xio(arguments).status, 0);
    folder.done(["cp", "d.xio", "c"]);
    let made = String::from_utf8(folder.read("c/.xio/manifest.json")).unwrap();
    check(&serde_json::from_str(&made).unwrap());
    assert!(made == example, "docs/format.md has to say:\n{made}");
}
