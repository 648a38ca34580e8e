//! `xio map`: files that stay where they are.

use std::fs;
use std::os::unix::fs::FileExt;

use super::served::{NQN, Target};
use super::support::{Folder, Random};

fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..bytes).map(|_| random.next().to_le_bytes()[3]).collect()
}

#[test]
fn mapped_files_are_presented_as_packed_ones_are_and_are_not_copied() {
    let folder = Folder::new();
    fs::create_dir(folder.path("data")).unwrap();
    let a = noise(1, 3_000_002);
    let b = noise(2, 10_000);
    folder.write("data/a.bin", &a);
    folder.write("data/b.bin", &b);
    let inputs = ["data/a.bin", "data/b.bin"];
    let said = folder.done([&["map"], &inputs[..], &["--dtype", "u16", "-o", "m.xio"]].concat());
    assert!(said.contains("3,010,002 bytes of u16 in 2 files"), "{said}");
    assert!(!said.contains("--allow-sources"), "{said}");
    folder.done([&["pack"], &inputs[..], &["--dtype", "u16", "-o", "p.xio"]].concat());
    folder.done(["unpack", "m.xio", "-o", "m.bin"]);
    folder.done(["unpack", "p.xio", "-o", "p.bin"]);
    assert!(folder.read("m.bin") == folder.read("p.bin"));
    assert!(folder.read("m.bin")[..a.len()] == a);
    assert!(folder.read("m.xio").len() < 100_000);
    folder.done(["verify", "m.xio"]);

    let path = folder.path("m.xio");
    let target = Target::start(NQN, &[&path]);
    let url = target.url("?nsid=1");
    let mut verify = vec!["verify", &url];
    for input in inputs {
        verify.extend(["--against", input]);
    }
    folder.done(verify);
}

#[test]
fn a_mapped_file_that_was_changed_is_refused_by_its_name() {
    let folder = Folder::new();
    let mut data = noise(3, 50_000);
    let path = folder.write("tokens.bin", &data);
    folder.done(["map", "tokens.bin", "--dtype", "u8", "-o", "t.xio"]);
    data[40_000] ^= 1;
    fs::write(&path, &data).unwrap();
    let place = path.canonicalize().unwrap();
    let why = "its SHA-256 is another one; map or format it again";
    let error = format!(
        "t.xio: {} is not the file that the volume was mapped on: {why}",
        place.display()
    );
    folder.fails(1, &error, &["verify", "t.xio"]);
    folder.fails(1, &error, &["unpack", "t.xio", "-o", "out.bin"]);
    folder.done([
        "map",
        "tokens.bin",
        "--dtype",
        "u8",
        "-o",
        "t.xio",
        "--force",
    ]);
    folder.done(["verify", "t.xio"]);
}

/// What changes and keeps its length and time is found where it is read: a mapped file always has checksums.
#[test]
fn a_mapped_file_that_was_changed_secretly_is_found_and_named() {
    let folder = Folder::new();
    let path = folder.write("tokens.bin", &noise(5, 50_000));
    folder.done(["map", "tokens.bin", "--dtype", "u8", "-o", "t.xio"]);
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    let modified = file.metadata().unwrap().modified().unwrap();
    let changed = noise(5, 50_000)[40_000] ^ 1;
    file.write_all_at(&[changed], 40_000).unwrap();
    file.set_modified(modified).unwrap();
    let ran = folder.xio(["verify", "t.xio"]);
    assert_eq!(ran.status, 1);
    let lines: Vec<_> = ran.stderr.lines().collect();
    let [first, granule, content] = lines.as_slice() else {
        panic!("{}", ran.stderr);
    };
    let advice = "restore what it maps, or map or format it again";
    assert_eq!(
        *first,
        format!("error: t.xio: 2 places are damaged; {advice}:")
    );
    let place = "  stream 0, granule 9, at byte 36864 of source 1: checksum mismatch: ";
    assert!(granule.starts_with(place), "{granule}");
    assert!(
        granule.ends_with("; that source is tokens.bin"),
        "{granule}"
    );
    let whole = "  content, at byte 0 of source 1: SHA-256 mismatch; that source is tokens.bin";
    assert_eq!(*content, whole);
    let ran = folder.xio(["unpack", "t.xio", "-o", "out.bin"]);
    assert_eq!(ran.status, 1);
    assert!(
        ran.stderr.ends_with("; that source is tokens.bin\n"),
        "{}",
        ran.stderr
    );
    // Nobody can do without them.
    let ran = folder.xio(["map", "tokens.bin", "--integrity", "none", "-o", "n.xio"]);
    assert_eq!(ran.status, 2);
    assert!(
        ran.stderr.contains("unexpected argument '--integrity'"),
        "{}",
        ran.stderr
    );
}

#[test]
fn files_elsewhere_are_opened_where_they_are_allowed() {
    let (here, there) = (Folder::new(), Folder::new());
    let data = there.write("far.bin", &noise(4, 9_999));
    let data = data.canonicalize().unwrap();
    let place = data.parent().unwrap().to_str().unwrap();
    let said = here.done([
        "map",
        data.to_str().unwrap(),
        "--dtype",
        "u8",
        "-o",
        "f.xio",
    ]);
    assert!(
        said.contains(&format!("--allow-sources {place}\n")),
        "{said}"
    );
    let refused = here.xio(["verify", "f.xio"]);
    assert_eq!(refused.status, 3);
    assert!(
        refused.stderr.contains("--allow-sources"),
        "{}",
        refused.stderr
    );
    here.done(["verify", "f.xio", "--allow-sources", place]);

    // What is printed suffices, wherever the files are below it.
    fs::create_dir_all(there.path("x/deep")).unwrap();
    fs::create_dir(there.path("y")).unwrap();
    fs::create_dir(there.path("z")).unwrap();
    for (seed, name) in [(5, "x/deep/a.bin"), (6, "x/b.bin"), (7, "y/c.bin")] {
        there.write(name, &noise(seed, 40_000));
    }
    let at = |name: &str| data.with_file_name(name).to_str().unwrap().to_owned();
    here.done(["pack", &at("x"), "-o", &at("x.xio")]);
    here.done(["pack", &at("y"), "-o", &at("z/y.xio")]);
    let options = format!("--allow-sources {place}");
    for make in [
        &["map", &at("x"), &at("y")][..],
        &["map", &at("x/b.bin"), &at("y/c.bin"), "--dtype", "u8"],
        &["format", &at("x.xio"), &at("z/y.xio")],
    ] {
        let said = here.done([make, &["--force", "-o", "f.xio"]].concat());
        assert_eq!(
            said.lines().last().unwrap().split_once(": ").unwrap().1,
            options
        );
        let verify = ["verify", "f.xio", "--allow-sources", place];
        here.done(verify);
    }
}

#[test]
fn what_cannot_be_mapped_is_said_before_anything_is_written() {
    let folder = Folder::new();
    folder.write("odd.bin", &[0; 7]);
    fs::create_dir(folder.path("d")).unwrap();
    folder.fails(
        2,
        "d is not a regular file, and only such are mapped",
        &["map", "d", "--dtype", "u8", "-o", "x.xio"],
    );
    folder.fails(
        2,
        "odd.bin is to be mapped, and would be replaced by the volume: choose another name for it",
        &[
            "map", "odd.bin", "--dtype", "u8", "-o", "odd.bin", "--force",
        ],
    );
    let ran = folder.xio(["map", "odd.bin", "--dtype", "u32", "-o", "x.xio"]);
    assert_eq!(ran.status, 1);
    assert!(
        ran.stderr.contains("3 bytes are left after element 1"),
        "{}",
        ran.stderr
    );
    folder.fails(
        3,
        "reading none.bin: No such file or directory (os error 2)",
        &["map", "none.bin", "-o", "x.xio"],
    );
    assert_eq!(folder.names(), ["d", "odd.bin"]);
}
