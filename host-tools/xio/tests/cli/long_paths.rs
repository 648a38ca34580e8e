//! Folders so deep that their paths are longer than what Linux takes: made one in the other, as archives unpack them.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::support::{Folder, xio};

/// 20 folders in each other, each with a name of 250 bytes, and a file in the last.
const MAKE: &str = "
import os, sys
os.chdir(sys.argv[1])
for number in range(20):
    name = f'{number:03}' + 'n' * 247
    os.mkdir(name)
    os.chdir(name)
open('file', 'w').write('deep down')
";

fn name(number: usize) -> String {
    format!("{number:03}{}", "n".repeat(247))
}

fn deep(folder: &Folder) {
    fs::create_dir(folder.path("d")).unwrap();
    let mut python = Command::new("python3");
    let made = python.args(["-c", MAKE]).arg(folder.path("d")).status();
    assert!(made.unwrap().success());
}

/// In the middle of it.
fn half(folder: &Folder) -> PathBuf {
    (0..10).fold(folder.path("d"), |path, number| path.join(name(number)))
}

#[test]
fn what_is_too_deep_is_named_before_anything_is_done() {
    let folder = Folder::new();
    deep(&folder);
    // "d", and sixteen names with a '/' before each.
    let at = format!("\n  {}...", &name(0)[..60]);
    let end = "nnn: the path has 4268 bytes, and Linux takes 4095: ";
    for command in [
        &["plan", "d"][..],
        &["pack", "d", "-o", "v.xio"],
        &["map", "d", "-o", "v.xio"],
    ] {
        let ran = folder.xio(command);
        assert_eq!((ran.status, ran.stdout.as_str()), (2, ""), "{}", ran.stderr);
        let why = "error: 1 name cannot be on a disk (it holds files, folders and links); ";
        assert!(ran.stderr.starts_with(why), "{}", ran.stderr);
        assert!(ran.stderr.contains(&at), "{}", ran.stderr);
        assert!(ran.stderr.contains(end), "{}", ran.stderr);
        assert_eq!(folder.names(), ["d"]);
    }
    let out = ["--exclude", &name(16)];
    let ran = folder.xio([&["pack", "d"], &out[..], &["-o", "v.xio"]].concat());
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    let ran = folder.xio(["diff", "d", "v.xio"]);
    assert_eq!((ran.status, ran.stdout.as_str()), (3, ""));
    let why = "File name too long (os error 36)\n";
    assert!(
        ran.stderr.starts_with("error: reading d/000"),
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.ends_with(why), "{}", ran.stderr);
}

#[test]
fn from_near_it_is_packed_and_copied() {
    let folder = Folder::new();
    deep(&folder);
    let half = half(&folder);
    let volume = folder.path("v.xio").into_os_string().into_string().unwrap();
    let run = |arguments: &[&str]| {
        let ran = xio().current_dir(&half).args(arguments).output().unwrap();
        let said = String::from_utf8(ran.stderr).unwrap();
        (ran.status.code(), said)
    };
    let packed = run(&["pack", ".", "--no-manifest", "-o", &volume]);
    assert_eq!(packed, (Some(0), String::new()));
    assert_eq!(run(&["diff", ".", &volume]), (Some(0), String::new()));
    // What is mapped is named by its real path.
    let (status, said) = run(&["map", ".", "-o", "../mapped.xio"]);
    assert_eq!(status, Some(0), "{said}");

    let file = (10..20).fold(PathBuf::new(), |path, number| path.join(name(number)));
    folder.done(["cp", "v.xio", "copy"]);
    assert_eq!(
        fs::read(folder.path("copy").join(&file).join("file")).unwrap(),
        b"deep down"
    );
    let there = fs::read_dir(&half).unwrap().count();
    let to = half.join("copy").into_os_string().into_string().unwrap();
    let ran = folder.xio(["cp", "v.xio", &to]);
    assert_eq!((ran.status, ran.stdout.as_str()), (2, ""), "{}", ran.stderr);
    let why = format!("error: {}...", &name(10)[..60]);
    assert!(ran.stderr.starts_with(&why), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("n/file: its path would have "),
        "{}",
        ran.stderr
    );
    assert_eq!(fs::read_dir(&half).unwrap().count(), there);
    assert_eq!(run(&["cp", &volume, "copy"]), (Some(0), String::new()));
    assert_eq!(run(&["diff", "copy", &volume]), (Some(0), String::new()));
}
