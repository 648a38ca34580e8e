//! Files that somebody writes to while they are packed.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::support::Folder;

#[test]
fn a_file_that_is_written_to_is_not_packed() {
    let folder = Folder::new();
    let path = folder.write("busy.bin", &vec![0; 32 << 20]);
    let file = OpenOptions::new().write(true).open(path).unwrap();
    let is_over = AtomicBool::new(false);
    // From before the first byte is read until after the last.
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                file.write_all_at(&[1; 4096], 0).unwrap();
            }
        });
        let ran = folder.xio(["pack", "busy.bin", "--dtype", "u8", "-o", "v.xio"]);
        is_over.store(true, Ordering::Relaxed);
        let why = "it was changed meanwhile; try again when nothing writes to it";
        assert_eq!(ran.stderr, format!("error: busy.bin: {why}\n"));
        assert_eq!((ran.status, ran.stdout.as_str()), (1, ""));
    });
    assert_eq!(folder.names(), ["busy.bin"]);
}
