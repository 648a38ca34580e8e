//! `xio diff`: what differs, and the exit status that says so.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use serde_json::{Value, json};

use super::disk::dataset;
use super::served::{NQN, Target};
use super::support::{Folder, fixture};

/// Runs `xio diff --json`, which must exit with `status` and say nothing besides.
fn diff(folder: &Folder, status: i32, arguments: &[&str]) -> Value {
    diff_noting(folder, status, "", arguments)
}

/// As [`diff`], with what it says besides.
fn diff_noting(folder: &Folder, status: i32, noted: &str, arguments: &[&str]) -> Value {
    let ran = folder.xio([&["diff", "--json"], arguments].concat());
    assert_eq!(
        (ran.status, ran.stderr.as_str()),
        (status, noted),
        "{}",
        ran.stdout
    );
    let shown: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(shown["same"], status == 0);
    shown
}

/// Path, change and first byte of each difference.
fn differences(shown: &Value) -> Vec<Value> {
    let all = shown["content"]["differences"].as_array().unwrap();
    all.iter()
        .map(|it| json!([it["path"], it["change"], it["first_byte"]]))
        .collect()
}

/// What is said where the digests of a side cannot be trusted.
fn untrusted(side: &str, why: &str) -> String {
    format!(
        "note: --trust-digests: all bytes are read, for there are no digests to trust: {side}: {why}\n"
    )
}

const STORE: [&str; 4] = ["--as", "*.bin=u32", "--store", "*.bin=u16+lz4"];

#[test]
fn folders_volumes_and_namespaces_in_any_mix() {
    let folder = Folder::new();
    dataset(&folder);
    folder.done([&["pack", "dataset", "-o", "v.xio"], &STORE[..]].concat());
    folder.done(["pack", "dataset", "-o", "plain.xio"]);
    let target = Target::start(NQN, &[&folder.path("v.xio")]);
    let url = target.url("?nsid=1");
    let sides = ["dataset", "v.xio", "plain.xio", &url];
    for a in sides {
        for b in sides {
            let shown = diff(&folder, 0, &[a, b, "--attributes"]);
            assert_eq!(shown["content"]["names"], 11);
            assert_eq!(shown["content"]["bytes"], 409_105);
        }
    }
    let said = folder.done(["diff", "dataset", "v.xio"]);
    let expected = "dataset and v.xio hold the same: 11 names and 409,105 bytes compared\n";
    assert_eq!(said, expected);
}

#[test]
fn each_kind_of_difference_is_told_with_its_place() {
    let folder = Folder::new();
    dataset(&folder);
    folder.done([&["pack", "dataset", "-o", "old.xio"], &STORE[..]].concat());
    let at = folder.path("dataset");
    let mut train = fs::read(at.join("train.bin")).unwrap();
    train[123_456] ^= 1;
    fs::write(at.join("train.bin"), &train).unwrap();
    fs::write(at.join("README"), b"words and more").unwrap();
    fs::remove_file(at.join("test.bin")).unwrap();
    fs::write(at.join("zzz"), b"new").unwrap();
    fs::remove_dir(at.join("empty")).unwrap();
    fs::write(at.join("empty"), b"").unwrap();
    fs::remove_file(at.join("link")).unwrap();
    symlink("elsewhere", at.join("link")).unwrap();
    // It says that the link leads nowhere.
    let packed = folder.xio([&["pack", "dataset", "-o", "new.xio"], &STORE[..]].concat());
    assert_eq!(packed.status, 0, "{}", packed.stderr);
    let expected = [
        json!(["README", "bytes", 5]),
        json!(["empty", "kind", null]),
        json!(["link", "target", null]),
        json!(["test.bin", "removed", null]),
        json!(["train.bin", "bytes", 123_456]),
        json!(["zzz", "added", null]),
    ];
    for (a, b) in [("old.xio", "new.xio"), ("old.xio", "dataset")] {
        assert_eq!(differences(&diff(&folder, 1, &[a, b])), expected);
        // The disks' own digests come to the same.
        let noted = match b {
            "dataset" => untrusted("dataset", "a folder has none of its own"),
            _ => String::new(),
        };
        let shown = diff_noting(&folder, 1, &noted, &[a, b, "--trust-digests"]);
        assert_eq!(differences(&shown), expected);
    }
    let ran = folder.xio(["diff", "old.xio", "new.xio"]);
    let (byte, was) = (train[123_456], train[123_456] ^ 1);
    assert_eq!((ran.status, ran.stderr.as_str()), (1, ""));
    let row = |name: &str| {
        let mut rows = ran.stdout.lines();
        let row = rows
            .find(|row| row.split_whitespace().nth(1) == Some(name))
            .unwrap();
        row.splitn(3, name).last().unwrap().trim().to_owned()
    };
    assert_eq!(
        row("train.bin"),
        format!("first at byte 123,456: {was:#04x}; {byte:#04x}")
    );
    assert_eq!(row("README"), "the same up to byte 5; 5 bytes; 14 bytes");
    assert_eq!(row("link"), "leads to deep/val.bin; elsewhere");
    assert_eq!(row("empty"), "a folder; a file of 0 bytes");
    assert!(ran.stdout.contains("\n6 differences; "), "{}", ran.stdout);

    // Attributes, where they are asked for.
    let same = Folder::new();
    dataset(&same);
    same.done(["pack", "dataset", "-o", "v.xio"]);
    let readme = same.path("dataset/deep/val.bin");
    fs::set_permissions(&readme, fs::Permissions::from_mode(0o600)).unwrap();
    diff(&same, 0, &["v.xio", "dataset"]);
    let shown = diff(&same, 1, &["v.xio", "dataset", "--attributes"]);
    assert_eq!(
        differences(&shown),
        [json!(["deep/val.bin", "attributes", null])]
    );
    // A copy has those of its disk, links theirs too, but no set-user-ID.
    same.done(["cp", "v.xio", "copied"]);
    let shown = diff(&same, 1, &["v.xio", "copied", "--attributes"]);
    let expected = [json!(["README", "attributes", null])];
    assert_eq!(differences(&shown), expected);
}

/// A hub's snapshot is links to blobs beside it. What is packed of it has the files; a copy of the folder has the links.
#[test]
fn links_that_lead_out_of_a_folder_are_the_files_that_were_packed() {
    let folder = Folder::new();
    fs::create_dir_all(folder.path("hub/blobs")).unwrap();
    fs::create_dir_all(folder.path("hub/snapshots/main")).unwrap();
    let link = |to: &str, name: &str| {
        symlink(to, folder.path(&format!("hub/snapshots/main/{name}"))).unwrap()
    };
    folder.write("hub/blobs/01", &[1; 5000]);
    folder.write("hub/blobs/02", &[2; 5000]);
    folder.write("hub/snapshots/main/plain", &[3; 100]);
    link("../../blobs/01", "model");
    link("../../blobs/02", "tokenizer");
    link("plain", "inside");
    let main = "hub/snapshots/main";
    let packed = folder.xio(["pack", main, "-o", "v.xio"]);
    let note = "note: 2 links lead to files outside the inputs (model, tokenizer): the disk has these files\n";
    assert_eq!((packed.status, packed.stderr.as_str()), (0, note));
    let planned = folder.xio(["plan", main]);
    assert!(
        planned
            .stdout
            .contains("! 2 links lead to files outside the inputs"),
        "{}",
        planned.stdout
    );
    folder.done(["cp", "v.xio", "copied"]);
    // A copy's links have times of their own.
    for (other, more) in [("v.xio", &["--attributes"][..]), ("copied", &[])] {
        for sides in [[main, other], [other, main]] {
            let shown = diff(&folder, 0, &[&sides[..], more].concat());
            assert_eq!(shown["content"]["bytes"], 10_100);
        }
    }
    folder.write("hub/blobs/02", &[&[2; 4999][..], &[9]].concat());
    let shown = diff(&folder, 1, &[main, "v.xio"]);
    assert_eq!(differences(&shown), [json!(["tokenizer", "bytes", 4999])]);
    // Two links are where they lead to.
    fs::create_dir(folder.path("links")).unwrap();
    for (to, name) in [
        ("../../blobs/01", "model"),
        ("x", "tokenizer"),
        ("plain", "inside"),
    ] {
        symlink(to, folder.path(&format!("links/{name}"))).unwrap();
    }
    folder.write("links/plain", &[3; 100]);
    let shown = diff(&folder, 1, &[main, "links"]);
    assert_eq!(differences(&shown), [json!(["tokenizer", "target", null])]);
}

/// Links into the folder that would lead nowhere on a disk are relative there: that is no difference. One that leads elsewhere is.
#[test]
fn links_that_were_made_relative_are_the_same() {
    let folder = Folder::new();
    fs::create_dir_all(folder.path("d/deep/er")).unwrap();
    folder.write("d/file", b"1");
    folder.write("d/other", b"2");
    let absolute = |name: &str| folder.path(&format!("d/{name}"));
    symlink(absolute("file"), absolute("to-file")).unwrap();
    symlink(absolute("deep"), absolute("deep/er/to-deep")).unwrap();
    symlink("../../../d/file", absolute("deep/er/above")).unwrap();
    symlink("../../file", absolute("deep/er/plain")).unwrap();
    symlink("/nowhere/at/all", absolute("dangling")).unwrap();
    let packed = folder.xio(["pack", "d", "-o", "v.xio"]);
    let told = packed.stderr.matches("which would lead nowhere").count();
    assert_eq!((packed.status, told), (0, 3), "{}", packed.stderr);
    folder.done(["cp", "v.xio", "copied"]);
    let target = fs::read_link(folder.path("copied/deep/er/above")).unwrap();
    assert_eq!(target, Path::new("../../file"));
    for other in ["v.xio", "copied", "d"] {
        for sides in [["d", other], [other, "d"]] {
            diff(&folder, 0, &sides);
        }
    }
    fs::remove_file(absolute("to-file")).unwrap();
    symlink(absolute("other"), absolute("to-file")).unwrap();
    let shown = diff(&folder, 1, &["d", "v.xio"]);
    assert_eq!(differences(&shown), [json!(["to-file", "target", null])]);
    let what = format!("leads to {}; file", absolute("other").display());
    assert_eq!(shown["content"]["differences"][0]["what"], what);
    // Of a disk nothing is followed: what it says is what it has.
    symlink("/nowhere/else", folder.path("copied/new")).unwrap();
    fs::remove_file(folder.path("copied/dangling")).unwrap();
    symlink("/nowhere", folder.path("copied/dangling")).unwrap();
    let shown = diff(&folder, 1, &["v.xio", "copied"]);
    let expected = [["dangling", "target"], ["new", "added"]];
    let expected = expected.map(|[path, change]| json!([path, change, null]));
    assert_eq!(differences(&shown), expected);
}

/// In JSON as in the table.
#[test]
fn names_are_told_as_they_are() {
    let folder = Folder::new();
    for side in ["a", "b"] {
        fs::create_dir(folder.path(side)).unwrap();
    }
    let names = ["données.txt", "日本語's \"file\"", "new\nline"];
    for name in names {
        folder.write(&format!("b/{name}"), b"");
    }
    let shown = diff(&folder, 1, &["a", "b"]);
    let expected = [names[0], "new\\x0aline", names[1]].map(|name| json!([name, "added", null]));
    assert_eq!(differences(&shown), expected);
    let ran = folder.xio(["diff", "a", "b"]);
    assert!(
        ran.stdout.contains("added   données.txt "),
        "{}",
        ran.stdout
    );
}

/// A digest that is trusted is not looked behind: it is what was asked for.
#[test]
fn digests_are_used_where_they_are_to_be_trusted() {
    let folder = Folder::new();
    dataset(&folder);
    folder.done(["pack", "dataset", "-o", "v.xio"]);
    folder.done(["pack", "dataset", "--store-as", "lz4", "-o", "w.xio"]);
    let shown = diff(&folder, 0, &["v.xio", "w.xio", "--trust-digests"]);
    let content = &shown["content"];
    // Six files, one of them with a name that is no text.
    assert_eq!(
        (&content["trusted_files"], &content["bytes"]),
        (&json!(6), &json!(0))
    );
    let noted = untrusted("dataset", "a folder has none of its own");
    let shown = diff_noting(&folder, 0, &noted, &["v.xio", "dataset", "--trust-digests"]);
    assert_eq!(shown["content"]["trusted_files"], 0);
    let target = Target::start(NQN, &[&folder.path("v.xio")]);
    let url = target.url("?nsid=1");
    let noted = untrusted(
        &url,
        "those of a namespace cannot be held against its volume",
    );
    diff_noting(&folder, 0, &noted, &["v.xio", &url, "--trust-digests"]);
}

/// A manifest that came with the files it was copied with says what they were.
#[test]
fn the_manifest_of_another_disk_is_not_trusted_and_not_kept() {
    let folder = Folder::new();
    dataset(&folder);
    folder.done(["pack", "dataset", "-o", "v.xio"]);
    folder.done(["cp", "v.xio", "copy"]);
    assert!(folder.path("copy/.xio/manifest.json").exists());
    let noted = untrusted("copy", "a folder has none of its own");
    diff_noting(&folder, 0, &noted, &["v.xio", "copy", "--trust-digests"]);
    let mut train = folder.read("copy/train.bin");
    train[5] ^= 1;
    folder.write("copy/train.bin", &train);
    let expected = [json!(["train.bin", "bytes", 5])];
    for (volume, more) in [("without.xio", &["--no-manifest"][..]), ("with.xio", &[])] {
        let packed = folder.xio([&["pack", "copy", "-o", volume], more].concat());
        let note = "what the disk that this is a copy of says of itself; it is left out";
        assert_eq!(packed.stderr, format!("note: .xio: {note}\n"));
        assert_eq!(packed.status, 0);
        let noted = match more {
            [] => String::new(),
            _ => untrusted(volume, "it has no manifest"),
        };
        let arguments = ["v.xio", volume, "--trust-digests"];
        let shown = diff_noting(&folder, 1, &noted, &arguments);
        assert_eq!(differences(&shown), expected);
    }
    // A disk whose bytes are others than those that it was made of.
    let readme = folder.read("dataset/README");
    folder.spoil_disk(|disk| {
        let mut all = disk.windows(readme.len());
        let at = all.position(|bytes| bytes == readme).unwrap();
        disk[at] ^= 1;
    });
    let why = "its manifest is not the one that the volume was made with";
    let noted = untrusted("wrong.xio", why);
    let shown = diff_noting(
        &folder,
        1,
        &noted,
        &["v.xio", "wrong.xio", "--trust-digests"],
    );
    assert_eq!(differences(&shown), [json!(["README", "bytes", 0])]);
}

/// A folder of the disk's own name may be the user's.
#[test]
fn a_users_folder_is_compared_whatever_it_is_called() {
    let folder = Folder::new();
    dataset(&folder);
    fs::create_dir(folder.path("dataset/.xio")).unwrap();
    folder.write("dataset/.xio/mine", b"words");
    folder.write("dataset/.xio/manifest.json", b"{\"name\": 5}");
    folder.done(["pack", "dataset", "--no-manifest", "-o", "v.xio"]);
    diff(&folder, 0, &["dataset", "v.xio"]);
    folder.write("dataset/.xio/mine", b"Words");
    folder.write("dataset/.xio/manifest.json", b"{\"name\": 6}");
    let shown = diff(&folder, 1, &["dataset", "v.xio"]);
    assert_eq!(
        differences(&shown),
        [
            json!([".xio/manifest.json", "bytes", 9]),
            json!([".xio/mine", "bytes", 0]),
        ]
    );
}

#[test]
fn elements_are_compared_as_their_type_says() {
    let folder = Folder::new();
    let r50k = fs::read(fixture("r50k-u32.bin")).unwrap();
    let mut other = r50k.clone();
    for element in [1000, 1001, 400_000] {
        other[element * 4] ^= 1;
    }
    let value = |bytes: &[u8], element: usize| {
        u32::from_le_bytes(bytes[element * 4..][..4].try_into().unwrap()).to_string()
    };
    folder.write("a.bin", &r50k);
    folder.write("b.bin", &other);
    folder.write("short.bin", &r50k[..400]);
    for (input, chain, output) in [
        ("a.bin", "u16+lz4", "a.xio"),
        ("a.bin", "bitpack:17", "a17.xio"),
        ("b.bin", "u16+lz4", "b.xio"),
        ("short.bin", "none", "short.xio"),
    ] {
        folder.done([
            "pack",
            input,
            "--dtype",
            "u32",
            "--store-as",
            chain,
            "--name",
            "ids",
            "-o",
            output,
        ]);
    }
    let target = Target::start(NQN, &[&folder.path("a17.xio")]);
    let url = target.url("?nsid=1");
    diff(&folder, 0, &["a.xio", "a17.xio"]);
    diff(&folder, 0, &["a.xio", &url]);
    diff(&folder, 0, &[&url, "a.xio"]);
    for (a, b) in [("a.xio", "b.xio"), (url.as_str(), "b.xio")] {
        let shown = diff(&folder, 1, &[a, b]);
        let content = &shown["content"];
        assert_eq!(
            (&content["type"], &content["different_elements"]),
            (&json!("u32"), &json!(3))
        );
        let first = json!({
            "element": 1000, "byte": 4000, "a": value(&r50k, 1000), "b": value(&other, 1000),
        });
        assert_eq!(content["first"], first);
    }
    // Zeros behind the data could be the namespace's own.
    folder.write("longer.bin", &[&r50k[..], &[0; 400]].concat());
    folder.done(["pack", "longer.bin", "--dtype", "u32", "-o", "longer.xio"]);
    let unknown =
        "; a namespace is whole blocks, and does not say how many of the zeros at its end are data";
    let said = folder.done(["diff", "longer.xio", &url]);
    let same = format!("longer.xio and {url} hold the same: 493,568 elements of u32 compared");
    assert_eq!(said, format!("{same}{unknown}\n"));
    let said = folder.done(["verify", &url, "--against", "longer.bin"]);
    assert_eq!(
        said,
        format!("{url}: 1,974,272 bytes are the same{unknown}\n")
    );
    let ran = folder.xio(["diff", "a.xio", "short.xio"]);
    assert_eq!(ran.status, 1);
    assert_eq!(ran.stdout, "a.xio has 1,973,752 bytes, short.xio 400\n");
    let said = folder.done(["diff", "a.xio", "a17.xio"]);
    assert_eq!(
        said,
        "a.xio and a17.xio hold the same: 493,438 elements of u32 compared\n"
    );

    // The same content, stored otherwise.
    let shown = diff(&folder, 1, &["a.xio", "a17.xio", "--layout"]);
    let streams = |side: &str| shown["layout"][side]["streams"][0]["stored_chain"].clone();
    assert_eq!(
        (streams("a"), streams("b")),
        (json!("u16+lz4"), json!("bitpack:17"))
    );
    diff(&folder, 0, &["a.xio", "a.xio", "--layout"]);
    let served = format!("{url} does not say how it is stored: --layout is for volumes in files");
    folder.fails(2, &served, &["diff", &url, "a.xio", "--layout"]);
}

#[test]
fn what_cannot_be_compared_is_no_difference() {
    let folder = Folder::new();
    dataset(&folder);
    folder.done(["pack", "dataset", "-o", "v.xio"]);
    folder.write("a.bin", &[7; 9000]);
    folder.done(["pack", "a.bin", "--dtype", "u8", "-o", "a.xio"]);
    let why = "has neither a filesystem nor partitions: there is nothing to compare file by file";
    folder.fails(
        2,
        &format!("dataset has files, and a.xio {why}"),
        &["diff", "a.xio", "dataset"],
    );
    assert_eq!(folder.xio(["diff", "v.xio", "missing.xio"]).status, 3);
    let mut volume = folder.read("a.xio");
    volume[4096 * 2] ^= 1;
    let middle = volume.len() / 2;
    volume[middle] ^= 1;
    folder.write("a2.xio", &volume);
    let ran = folder.xio(["diff", "a.xio", "a2.xio"]);
    // Damage is not a difference.
    assert_eq!((ran.status, ran.stdout.as_str()), (3, ""), "{}", ran.stderr);
}
