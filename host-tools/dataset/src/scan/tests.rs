use std::io::Read;
use std::os::unix::fs::symlink;

use formats::ByteSource;

use super::*;

fn paths(scan: &Scan) -> Vec<String> {
    scan.entries.iter().map(Entry::shown).collect()
}

#[test]
fn the_contents_of_a_single_folder_are_the_root() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("b")).unwrap();
    fs::write(folder.path().join("b/x"), "12").unwrap();
    fs::write(folder.path().join("a"), "1").unwrap();
    fs::hard_link(folder.path().join("a"), folder.path().join("c")).unwrap();
    let scan = Scan::new(&[folder.path().to_owned()]).unwrap();
    assert_eq!(paths(&scan), ["", "a", "b", "c", "b/x"]);
    assert_eq!(scan.files.len(), 2);
    assert_eq!(scan.entries[1].file(), scan.entries[3].file());
    assert_eq!(scan.source_bytes(), 3);
    assert_eq!(scan.entries[4].parent(), b"b");
    assert_eq!(scan.entries[4].name(), b"x");
}

#[test]
fn several_inputs_stand_in_the_root_by_their_names() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir_all(at("z/inner")).unwrap();
    fs::write(at("z/inner/x"), "1").unwrap();
    fs::write(at("t.bin"), "1").unwrap();
    let scan = Scan::new(&[at("z"), at("t.bin")]).unwrap();
    assert_eq!(paths(&scan), ["", "t.bin", "z", "z/inner", "z/inner/x"]);
    let twice = Scan::new(&[at("t.bin"), at("z/../t.bin")]).unwrap_err();
    assert!(twice.to_string().ends_with("have the same name"), "{twice}");
    let alone = Scan::new(&[at("t.bin")]).unwrap();
    assert_eq!(paths(&alone), ["", "t.bin"]);
}

#[test]
fn links_that_lead_out_are_followed_and_others_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir_all(at("in/sub")).unwrap();
    fs::create_dir(at("out")).unwrap();
    fs::write(at("out/blob"), "blob").unwrap();
    fs::write(at("in/file"), "x").unwrap();
    symlink("../out/blob", at("in/followed")).unwrap();
    symlink(at("out/blob"), at("in/sub/again")).unwrap();
    symlink("file", at("in/kept")).unwrap();
    symlink("sub", at("in/to-sub")).unwrap();
    symlink("nowhere", at("in/dangling")).unwrap();
    symlink("../out", at("in/to-out")).unwrap();
    symlink(at("in/sub"), at("in/absolute")).unwrap();
    symlink("sub/../../in/file", at("in/above")).unwrap();
    symlink("../file", at("in/sub/inside")).unwrap();
    let scan = Scan::new(&[at("in")]).unwrap();
    let kind = |name: &str| {
        let entry = scan.entries.iter().find(|e| e.path == name.as_bytes());
        entry.unwrap().kind.clone()
    };
    let Kind::File(blob) = kind("followed") else {
        panic!("{:?}", kind("followed"));
    };
    assert_eq!(scan.file(blob).unwrap().bytes, 4);
    assert!(matches!(kind("sub/again"), Kind::File(id) if id == blob));
    let Kind::File(file) = kind("file") else {
        panic!("{:?}", kind("file"));
    };
    assert!(matches!(kind("kept"), Kind::Symlink { file: Some(id), .. } if id == file));
    for name in ["to-sub", "dangling", "to-out"] {
        assert!(
            matches!(kind(name), Kind::Symlink { file: None, .. }),
            "{name}"
        );
    }
    let noted: Vec<_> = scan.notes.iter().map(String::as_str).collect();
    let whole = at("in/sub").display().to_string();
    let nowhere = "which would lead nowhere on the disk; it leads to";
    assert_eq!(
        noted,
        [
            &format!("above: a link to sub/../../in/file, {nowhere} file there"),
            &format!("absolute: a link to {whole}, {nowhere} sub there"),
            "dangling: a link that leads nowhere; it is kept as it is",
            "to-out: a link that leads to a folder that is not among the inputs; it is kept as it is",
            "2 links lead to files outside the inputs (followed, sub/again): the disk has these files",
        ]
    );
}

#[test]
fn links_inside_lead_there_on_the_disk_too() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir_all(at("in/sub/deep")).unwrap();
    fs::create_dir(at("other")).unwrap();
    fs::write(at("in/sub/file"), "x").unwrap();
    fs::write(at("other/file"), "y").unwrap();
    symlink(at("in/sub/file"), at("in/absolute")).unwrap();
    symlink(at("in/sub"), at("in/sub/deep/folder")).unwrap();
    symlink("../../../in/sub/file", at("in/sub/deep/above")).unwrap();
    symlink("../file", at("in/sub/deep/plain")).unwrap();
    symlink(at("in"), at("in/root")).unwrap();
    symlink(at("other/file"), at("in/sub/elsewhere")).unwrap();
    let targets = |scan: &Scan, names: &[&str]| -> Vec<String> {
        let of = |name: &&str| {
            let entry = scan.entries.iter().find(|it| it.path == name.as_bytes());
            match &entry.unwrap().kind {
                Kind::Symlink { target, .. } => String::from_utf8(target.clone()).unwrap(),
                other => format!("{other:?}"),
            }
        };
        names.iter().map(of).collect()
    };
    let names = [
        "absolute",
        "sub/deep/folder",
        "sub/deep/above",
        "sub/deep/plain",
        "root",
    ];
    let scan = Scan::new(&[at("in")]).unwrap();
    let expected = ["sub/file", "..", "../file", "../file", "."];
    assert_eq!(targets(&scan, &names), expected);
    // One for each that leads elsewhere now, and one for what was outside.
    assert_eq!(scan.notes.len(), 5, "{:?}", scan.notes);
    let note = format!(
        "absolute: a link to {}, which would lead nowhere on the disk; it leads to sub/file there",
        at("in/sub/file").display()
    );
    assert_eq!(scan.notes[0], note);
    // What is outside of one input is inside of two.
    let scan = Scan::new(&[at("in"), at("other")]).unwrap();
    let names = [
        "in/absolute",
        "in/sub/deep/above",
        "in/sub/elsewhere",
        "in/root",
    ];
    let expected = ["sub/file", "../../../in/sub/file", "../../other/file", "."];
    assert_eq!(targets(&scan, &names), expected);
}

#[test]
fn a_copy_of_a_disk_does_not_bring_what_that_says_of_itself() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let ours = br#"{"sources": [], "xio_manifest": 1}"#;
    fs::create_dir_all(at(".xio")).unwrap();
    fs::create_dir_all(at("deep/.xio")).unwrap();
    for name in [".xio/manifest.json", "deep/.xio/manifest.json"] {
        fs::write(at(name), ours).unwrap();
    }
    let scan = || Scan::new(&[folder.path().to_owned()]).unwrap();
    let note = "what the disk that this is a copy of says of itself; it is left out";
    let found = scan();
    assert_eq!(
        paths(&found),
        ["", "deep", "deep/.xio", "deep/.xio/manifest.json"]
    );
    assert_eq!(found.notes, [format!(".xio: {note}")]);
    assert_eq!(found.files.len(), 1);
    // A user's file beside it stays.
    fs::write(at(".xio/mine"), "words").unwrap();
    let found = scan();
    assert_eq!(paths(&found)[..3], ["", ".xio", "deep"]);
    assert_eq!(paths(&found)[3], ".xio/mine");
    assert_eq!(found.notes, [format!(".xio/manifest.json: {note}")]);
    // So does one that is called as ours is.
    fs::write(at(".xio/manifest.json"), "{\"name\": 5}").unwrap();
    fs::remove_file(at(".xio/mine")).unwrap();
    let found = scan();
    assert_eq!(paths(&found)[3], ".xio/manifest.json");
    assert!(found.notes.is_empty());
}

#[test]
fn what_no_disk_holds_is_named_and_what_changed_too() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
    let pipe = |name: &str| {
        let made = std::process::Command::new("mkfifo").arg(at(name)).status();
        assert!(made.unwrap().success());
    };
    pipe("pipe");
    // Of a file that nobody may read, root neither.
    symlink("/sys/bus/cpu/drivers_probe", at("secret")).unwrap();
    symlink("/dev/null", at("device")).unwrap();
    let refused = Scan::new(&[folder.path().to_owned()]).unwrap_err();
    let shown = |name: &str| at(name).display().to_string();
    let said = format!(
        "3 names cannot be on a disk (it holds files, folders and links); leave them out with --exclude PATTERN, such as --exclude 'pipe':\n  {}: a pipe\n  {}: a socket\n  {}: cannot be read: Permission denied (os error 13)",
        shown("pipe"),
        shown("socket"),
        shown("secret")
    );
    assert_eq!(refused.to_string(), said);
    for name in ["a", "b", "c"] {
        pipe(name);
    }
    let refused = Scan::new(&[folder.path().to_owned()])
        .unwrap_err()
        .to_string();
    assert!(refused.starts_with("6 names cannot"), "{refused}");
    assert!(refused.ends_with(": a socket\n  and 1 more"), "{refused}");
    assert_eq!(refused.lines().count(), 7, "{refused}");
    let all = ["pipe", "socket", "secret", "a", "b", "c"];
    let all = all.map(|pattern| pattern.parse().unwrap());
    let scan = Scan::without(&[folder.path().to_owned()], &all).unwrap();
    assert_eq!(paths(&scan), ["", "device"]);
    fs::write(at("file"), "1").unwrap();
    let scan = Scan::new(&[at("file")]).unwrap();
    scan.files[0].open().unwrap();
    fs::write(at("file"), "12").unwrap();
    let changed = scan.files[0].open().unwrap_err();
    assert!(matches!(changed, DatasetError::Changed { .. }), "{changed}");
}

/// Whatever reads a file: its name, where it ends, and how long it was.
#[test]
fn a_file_that_is_cut_off_while_it_is_read_says_where() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    fs::write(&path, [7; 1000]).unwrap();
    let source = SourceFile::new(&path, &fs::metadata(&path).unwrap());
    let open = source.open().unwrap();
    let mut reader = open.reader();
    let mut all = [0; 300];
    reader.read_exact(&mut all).unwrap();
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(400).unwrap();
    let wanted = format!(
        "{}: it was changed meanwhile: it ends at byte 400, and had 1000 bytes; try again when nothing writes to it",
        path.display()
    );
    let read = |error| DatasetError::io("reading", &path, error).to_string();
    assert_eq!(read(open.read_at(399, &mut [0; 2]).unwrap_err()), wanted);
    assert_eq!(
        read(reader.read_to_end(&mut Vec::new()).unwrap_err()),
        wanted
    );
    assert_eq!(open.check().unwrap_err().to_string(), wanted);
    // Changed, and not cut.
    file.set_len(1001).unwrap();
    let grown = open.check().unwrap_err().to_string();
    assert!(
        grown.ends_with("/file: it was changed meanwhile; try again when nothing writes to it"),
        "{grown}"
    );
}

#[test]
fn what_is_excluded_is_not_looked_at() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for name in ["d/cache/deep", "d/sub/cache", "other"] {
        fs::create_dir_all(at(name)).unwrap();
    }
    for name in [
        "d/cache/deep/x",
        "d/sub/cache/y",
        "d/sub/a.tmp",
        "d/b.tmp",
        "d/keep",
    ] {
        fs::write(at(name), name).unwrap();
    }
    symlink("cache/deep/x", at("d/to-x")).unwrap();
    symlink("b.tmp", at("d/to-b")).unwrap();
    symlink("keep", at("d/to-keep")).unwrap();
    let without = |inputs: &[&str], patterns: &[&str]| {
        let inputs: Vec<PathBuf> = inputs.iter().map(|name| at(name)).collect();
        let patterns: Vec<Pattern> = patterns.iter().map(|it| it.parse().unwrap()).collect();
        Scan::without(&inputs, &patterns).unwrap()
    };
    // A name wherever it is; a path from the root on.
    let scan = without(&["d"], &["cache", "sub/*.tmp", "gone", "no/where"]);
    let expected = ["", "b.tmp", "keep", "sub", "to-b", "to-keep", "to-x"];
    assert_eq!(paths(&scan), expected);
    assert_eq!(
        scan.notes,
        [
            "to-x: a link that leads to what --exclude leaves out; it is kept as it is",
            "--exclude leaves out 3 files or folders",
        ]
    );
    let useless: Vec<String> = scan.useless_exclusions().map(ToString::to_string).collect();
    assert_eq!(useless, ["gone", "no/where"]);
    let scan = without(&["d"], &["*.tmp", "cache"]);
    assert_eq!(paths(&scan), ["", "keep", "sub", "to-b", "to-keep", "to-x"]);
    assert_eq!(scan.files.len(), 1);
    // One of several inputs; then a path begins with its name.
    let scan = without(&["d", "other"], &["d/cache", "other"]);
    assert!(paths(&scan).contains(&"d/sub/cache/y".to_owned()));
    assert!(
        !paths(&scan)
            .iter()
            .any(|path| path.starts_with("d/cache") || path == "other")
    );
    assert_eq!(
        scan.notes.last().unwrap(),
        "--exclude leaves out 2 files or folders"
    );
    assert_eq!(
        without(&["d"], &["b.tmp"]).notes.last().unwrap(),
        "--exclude leaves out 1 file or folder"
    );
}

#[test]
fn what_a_disk_does_not_keep_is_said() {
    use rustix::fs::{XattrFlags, setxattr};
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("a"), "1").unwrap();
    fs::write(at("b"), "2").unwrap();
    let alone = Scan::new(&[folder.path().to_owned()]).unwrap();
    assert!(alone.notes.is_empty(), "{:?}", alone.notes);
    for name in ["c", "d", "e"] {
        fs::hard_link(at("b"), at(name)).unwrap();
    }
    // A file system may have none of them.
    let attributed = setxattr(at("a"), "user.origin", b"crawl", XattrFlags::empty()).is_ok();
    let scan = Scan::new(&[folder.path().to_owned()]).unwrap();
    let links = "3 names are hard links to files that have another name too (c is b): on the disk each name is a file of its own, over bytes that are stored once";
    let attributes = "1 file or folder has extended attributes (a: user.origin), which a disk does not hold: they are left out";
    assert_eq!(scan.notes[0], links);
    assert_eq!(scan.notes.get(1).is_some(), attributed);
    if attributed {
        assert_eq!(scan.notes[1], attributes);
    }
}
