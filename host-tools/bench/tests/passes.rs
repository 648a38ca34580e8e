//! What the passes of a buffered load read from the disk. A test program of its own, since the kernel counts by process.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::fs::File;
use std::sync::atomic::AtomicBool;

use bench::progress::Progress;
use bench::run::run;
use bench::spec::JobSpec;
use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};

const FILE_BYTES: u64 = 8 << 20;
const LOOPS: u64 = 4;

/// Bytes that this process had the system read from a medium (proc(5)).
fn read_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/io").unwrap();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("read_bytes: "));
    line.unwrap().parse().unwrap()
}

#[test]
fn each_pass_reads_from_the_disk_and_not_what_the_one_before_has_left_in_memory() {
    // Where the build is, which is seldom in memory as /tmp may be.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let fs = fstatfs(File::open(folder.path()).unwrap()).unwrap();
    if fs.filesystem_type() == TMPFS_MAGIC {
        eprintln!("skipped: the build is on a tmpfs, which reads nothing from a disk");
        return;
    }
    for rw in ["read", "randread"] {
        let mut spec = JobSpec::new("passes");
        let path = folder.path().join("file").display().to_string();
        for (name, value) in [
            ("filename", path.as_str()),
            ("size", &FILE_BYTES.to_string()),
            ("bs", "64k"),
            ("iodepth", "4"),
            ("loops", &LOOPS.to_string()),
            ("rw", rw),
        ] {
            spec.set(name, Some(value)).unwrap();
        }
        let before = read_bytes();
        let report = run(&[spec], &mut Progress::new(), &AtomicBool::new(false)).unwrap();
        let read = read_bytes() - before;
        assert!(report.jobs[0].error.is_none());
        // The program's own pages may be read meanwhile: a part of a pass.
        let expected = LOOPS * FILE_BYTES..(LOOPS + 1) * FILE_BYTES;
        assert!(
            expected.contains(&read),
            "{rw}: {read} bytes, not {expected:?}"
        );
    }
}
