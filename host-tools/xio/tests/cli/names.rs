//! Names of any bytes, as Linux has them.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;

use serde_json::Value;

use super::support::Folder;

/// A name that is no text.
fn name(end: &str) -> OsString {
    OsStr::from_bytes(&[b"a\xff", end.as_bytes()].concat()).to_owned()
}

/// As JSON and messages show it.
fn shown(end: &str) -> String {
    format!("a\u{fffd}{end}")
}

#[test]
fn every_command_takes_a_name_that_is_no_text() {
    let folder = Folder::new();
    let data = folder.path("data");
    fs::create_dir(&data).unwrap();
    fs::write(data.join(name(".bin")), vec![7; 20_000]).unwrap();
    let file = OsStr::new("data").to_owned();
    let bare = [data.join(name(".bin")).into_os_string()];
    let (disk, elements) = (name("-disk.xio"), name("-elements.xio"));
    let (of_all, out) = (name("-all.xio"), name(".out"));
    let text = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
    let json = |arguments: &[Vec<OsString>]| -> Value {
        serde_json::from_str(&folder.done(arguments.concat())).unwrap()
    };
    let output = |volume: &OsString| vec![OsString::from("--json"), "-o".into(), volume.clone()];

    for command in ["pack", "map"] {
        let force = text(&["--force"]);
        let made = [
            text(&[command]),
            vec![file.clone()],
            output(&disk),
            force.clone(),
        ];
        assert_eq!(json(&made)["volume"], shown("-disk.xio"));
        let dtype = text(&["--dtype", "u8", "--name", "e"]);
        let made = [
            text(&[command]),
            bare.to_vec(),
            dtype,
            output(&elements),
            force,
        ];
        assert_eq!(json(&made)["volume"], shown("-elements.xio"));
    }
    let both = vec![disk.clone(), elements.clone()];
    let made = [text(&["format", "--name", "all"]), both, output(&of_all)];
    assert_eq!(json(&made)["volume"], shown("-all.xio"));

    let seen = [text(&["inspect", "--json"]), vec![disk.clone()]];
    assert_eq!(json(&seen)["volume"], shown("-disk.xio"));
    let verified = [text(&["verify", "--json"]), vec![elements.clone()]];
    assert_eq!(json(&verified)["verified"], shown("-elements.xio"));
    let same = [text(&["diff", "--json"]), vec![file, disk.clone()]];
    assert_eq!(json(&same)["b"], shown("-disk.xio"));
    let copied = [text(&["cp"]), vec![disk, out.clone()]].concat();
    folder.done(copied);
    let copy = folder.path("").join(out).join(name(".bin"));
    assert_eq!(fs::read(copy).unwrap(), vec![7; 20_000]);

    // A byte that differs is told with the file's name.
    let other = folder.path("").join(name(".other"));
    fs::write(&other, vec![8; 20_000]).unwrap();
    let against = vec!["--against".into(), name(".other")];
    let ran = folder.xio([text(&["verify", "--json"]), vec![elements], against].concat());
    assert_eq!(ran.status, 1, "{}", ran.stderr);
    let different: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(different["difference"]["file"], shown(".other"));
}

/// A terminal takes no commands from names.
#[test]
fn names_in_notes_and_errors_are_no_commands() {
    let folder = Folder::new();
    fs::create_dir(folder.path("d")).unwrap();
    std::os::unix::fs::symlink("no\x1b[2Jwhere", folder.path("d/l\x1bk")).unwrap();
    folder.write("d/a\x1b[31mred\x07", b"12345");
    let noted = "l\\x1bk: a link that leads nowhere; it is kept as it is\n";
    let ran = folder.xio(["pack", "d", "-o", "v.xio"]);
    assert_eq!((ran.status, ran.stderr), (0, format!("note: {noted}")));
    let planned = folder.done(["plan", "d"]);
    assert!(planned.contains(&format!("\n! {noted}")), "{planned}");
    assert!(!planned.contains('\x1b'), "{planned:?}");
    folder.fails(
        2,
        "a partition is a whole number of blocks of 4096 bytes, and 1 file is not (a\\x1b[31mred\\x07: 5 bytes): --pad fills them up with zeros",
        &["pack", "d", "--gpt", "-o", "w.xio"],
    );
    // Nor from what is on the command line.
    folder.fails(
        3,
        "opening no\\x1b[31mthing: No such file or directory (os error 2)",
        &["inspect", "no\x1b[31mthing"],
    );
}
