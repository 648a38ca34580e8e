//! Memory does not grow with the input.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use super::support::{Folder, xio};

/// More than the limit, so that a pack which kept its input would be over it.
const INPUT_BYTES: usize = 160 << 20;
/// Far below the promise of 256 MiB.
const MEMORY_BYTES_MAX: u64 = 96 << 20;

/// The most memory that a process had resident so far (proc(5), VmHWM).
fn resident_bytes_max(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

#[test]
fn a_pack_of_any_length_stays_small() {
    for (chain, frame) in [("u16+lz4", "64KiB"), ("zstd:1", "4MiB")] {
        let folder = Folder::new();
        let mut child = xio()
            .args([
                "pack",
                "-",
                "--name",
                "n",
                "--dtype",
                "u32",
                "--store-as",
                chain,
                "--frame",
                frame,
                "-o",
            ])
            .arg(folder.path("v.xio"))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        let piece = vec![0; 1 << 20];
        for _ in 0..INPUT_BYTES / piece.len() {
            input.write_all(&piece).unwrap();
        }
        let memory_bytes = resident_bytes_max(child.id());
        drop(input);
        assert!(child.wait().unwrap().success());
        assert!(
            memory_bytes < MEMORY_BYTES_MAX,
            "{chain}: {memory_bytes} bytes"
        );
        let seen: serde_json::Value =
            serde_json::from_str(&folder.done(["inspect", "v.xio", "--json"])).unwrap();
        assert_eq!(seen["streams"][0]["source_bytes"], INPUT_BYTES);
    }
}
