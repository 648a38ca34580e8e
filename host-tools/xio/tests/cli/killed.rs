//! `kill -9` of a pack leaves nothing under its name, and nothing that is taken for a volume.

use std::io::{ErrorKind, Write};
use std::process::{Child, Stdio};
use std::time::Duration;

use super::support::{Folder, xio};

fn start(folder: &Folder) -> Child {
    xio()
        .args([
            "pack",
            "-",
            "--name",
            "n",
            "--dtype",
            "u32",
            "--store-as",
            "u16+lz4",
            "--threads",
            "2",
            "-o",
        ])
        .arg(folder.path("v.xio"))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Files of other names than the volume's: where the filesystem has no nameless files, the one that was being written. It is taken for a
/// volume only if it is all there, which it is for a moment before it gets its name.
fn expect_no_unfinished_volume(folder: &Folder, source: &[u8]) {
    for name in folder.names() {
        if name != "v.xio" && folder.xio(["inspect", &name]).status == 0 {
            folder.done(["verify", &name]);
            folder.done(["unpack", &name, "--force", "-o", "out.bin"]);
            assert!(
                folder.read("out.bin") == source,
                "{name} is taken for a volume"
            );
        }
    }
}

#[test]
fn in_the_middle_of_the_input() {
    // Below a batch, several batches in, and more than all that are under way at a time.
    for bytes in [1_000, 3 << 20, 20 << 20] {
        let folder = Folder::new();
        let mut child = start(&folder);
        let mut input = child.stdin.take().unwrap();
        // The pipe holds 64 KiB: when this returns, the rest was read.
        let source = vec![0; bytes];
        input.write_all(&source).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!folder.path("v.xio").exists());
        expect_no_unfinished_volume(&folder, &source);
    }
}

#[test]
fn at_some_moment_near_the_end() {
    let source = vec![0; 4 << 20];
    let mut finished = 0;
    for turn in 0..30u32 {
        let folder = Folder::new();
        let mut child = start(&folder);
        let mut input = child.stdin.take().unwrap();
        match input.write_all(&source) {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => panic!("{error}"),
            _ => drop(input),
        }
        // What is left to do takes a few milliseconds: the moments are spread over it and beyond.
        std::thread::sleep(Duration::from_micros(u64::from(turn) * 700));
        child.kill().unwrap();
        child.wait().unwrap();
        expect_no_unfinished_volume(&folder, &source);
        if folder.path("v.xio").exists() {
            finished += 1;
            folder.done(["verify", "v.xio"]);
            folder.done(["unpack", "v.xio", "-o", "out.bin"]);
            assert!(folder.read("out.bin") == source);
        }
    }
    assert!(
        finished < 30,
        "every pack was finished before it was killed: nothing was tested"
    );
}
