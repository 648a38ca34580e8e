//! Where what is presented goes: standard output, and files without their zeros.

use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::process::Stdio;

use super::support::{Folder, sha256, xio};

/// Zeros between a few bytes, for which no disk has to have room.
const BYTES: usize = 48 << 20;

fn with_a_hole(folder: &Folder) -> Vec<u8> {
    let mut bytes = vec![0; BYTES];
    bytes[..6].copy_from_slice(b"before");
    bytes[BYTES - 5..].copy_from_slice(b"after");
    fs::create_dir(folder.path("d")).unwrap();
    folder.write("d/a", &bytes);
    bytes
}

/// The file in `d` as bytes, in `a.xio`, whatever was there.
fn pack(folder: &Folder) {
    folder.done(
        "pack d/a --dtype u8 --store-as lz4 --force -o a.xio"
            .split(' ')
            .collect::<Vec<_>>(),
    );
}

fn taken(folder: &Folder, name: &str) -> u64 {
    fs::metadata(folder.path(name)).unwrap().blocks() * 512
}

#[test]
fn holes_stay_holes() {
    let folder = Folder::new();
    let bytes = with_a_hole(&folder);
    pack(&folder);
    folder.done(["unpack", "a.xio", "-o", "out"]);
    folder.done(["pack", "d", "-o", "d.xio"]);
    folder.done(["cp", "d.xio", "copy"]);
    for name in ["out", "copy/a"] {
        assert_eq!(sha256(&folder.read(name)), sha256(&bytes), "{name}");
        let taken = taken(&folder, name);
        assert!(taken < 1 << 20, "{name}: {taken}");
    }
    // The last bytes are zeros: the length is theirs all the same.
    folder.write("d/a", &bytes[..BYTES / 2]);
    pack(&folder);
    folder.done(["unpack", "a.xio", "--force", "-o", "out"]);
    assert!(folder.read("out") == bytes[..BYTES / 2]);
}

#[test]
fn a_dash_is_standard_output() {
    let folder = Folder::new();
    let bytes = with_a_hole(&folder);
    pack(&folder);
    let before = folder.names();
    let piped = xio()
        .current_dir(folder.path(""))
        .args(["unpack", "a.xio", "-o", "-"])
        .output()
        .unwrap();
    assert_eq!(
        (piped.status.code(), &piped.stderr[..]),
        (Some(0), &b""[..])
    );
    assert_eq!(sha256(&piped.stdout), sha256(&bytes));
    assert_eq!(folder.names(), before);

    // A reader that has seen enough is no error, and no word is said of it.
    let mut child = xio()
        .current_dir(folder.path(""))
        .args(["unpack", "a.xio", "-o", "-"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 6];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    assert_eq!(&first, b"before");
    let ended = child.wait_with_output().unwrap();
    assert_eq!(
        (ended.status.code(), &ended.stderr[..]),
        (Some(0), &b""[..])
    );
}
