//! `xio demo` against a target in this process: a script takes snap-target's place and says where that target listens.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use super::served::Target;
use super::support::{Folder, Ran, fixture, xio};

const NQN: &str = "nqn.2026-11.io.xio:demo";

/// Writes its arguments into one pipe, then says what comes out of another.
const SCRIPT: &str = r#"#!/bin/sh
printf '%s\n' "$@" >"$(dirname "$0")/asked"
cat "$(dirname "$0")/answer"
exec sleep 600
"#;

fn program(folder: &Folder, script: &str) -> PathBuf {
    let path = folder.write("target", script.as_bytes());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn data() -> PathBuf {
    fixture("")
}

/// Runs the demo; its volumes are served after `change` had a chance to put others in their place.
fn demo(folder: &Folder, change: impl FnOnce(&mut Vec<PathBuf>)) -> Ran {
    for pipe in ["asked", "answer"] {
        let made = Command::new("mkfifo")
            .arg(folder.path(pipe))
            .status()
            .unwrap();
        assert!(made.success());
    }
    let demo = xio()
        .args(["demo", "--json", "--seconds", "0", "--target"])
        .arg(program(folder, SCRIPT))
        .arg("--data")
        .arg(data())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Opening a pipe waits for its other end: each side waits for the other, and nobody polls. A demo that ends before it starts the
    // script closes nothing, so it is waited for on a thread of its own, which then takes the script's part.
    let asked = folder.path("asked");
    let waiting = thread::spawn(move || {
        let output = demo.wait_with_output().unwrap();
        let _nobody_reads = fs::OpenOptions::new().read(true).write(true).open(asked);
        output
    });
    let asked = fs::read_to_string(folder.path("asked")).unwrap();
    let arguments: Vec<&str> = asked.lines().collect();
    let at = arguments
        .iter()
        .position(|argument| *argument == "--listen")
        .unwrap();
    assert_eq!(
        arguments[at..][..4],
        ["--listen", "127.0.0.1:0", "--nqn", NQN]
    );
    let mut volumes: Vec<PathBuf> = arguments[..at].iter().map(PathBuf::from).collect();
    change(&mut volumes);
    let volumes: Vec<&Path> = volumes.iter().map(PathBuf::as_path).collect();
    let target = Target::start(NQN, &volumes);
    fs::write(
        folder.path("answer"),
        format!("nsid table\nready {}\n", target.address),
    )
    .unwrap();

    let output = waiting.join().unwrap();
    assert!(!volumes[0].exists(), "the volumes are removed");
    Ran {
        status: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

#[test]
fn every_row_is_read_back_and_counted() {
    let folder = Folder::new();
    let mut file_bytes = Vec::new();
    let ran = demo(&folder, |volumes| {
        file_bytes = volumes
            .iter()
            .map(|volume| fs::metadata(volume).unwrap().len())
            .collect();
    });
    assert_eq!((ran.status, ran.stderr.as_str()), (0, ""));
    let report: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    let rows = report["rows"].as_array().unwrap();
    assert!(rows.len() >= 15, "{}", rows.len());
    assert_eq!(rows.len(), file_bytes.len());
    for (row, &file_bytes) in rows.iter().zip(&file_bytes) {
        assert_eq!(row["volume_bytes"], file_bytes);
        assert_eq!(row["first_difference"], serde_json::Value::Null);
        assert_eq!(row["readings"], 5);
        let source = fs::metadata(fixture(row["data"].as_str().unwrap()))
            .unwrap()
            .len();
        assert_eq!(row["source_bytes"], source);
        let delivered = source.next_multiple_of(4096);
        assert_eq!(row["delivered_bytes"], delivered);
        // A C2HData header is 24 bytes; commands are of 128 KiB at the least.
        let wire = row["wire_bytes"].as_u64().unwrap();
        assert!(
            (delivered + 24..=delivered + 24 * delivered.div_ceil(128 << 10)).contains(&wire),
            "{wire}"
        );
    }
    let row = |data: &str, chain: &str| {
        let found = rows
            .iter()
            .find(|row| row["data"] == data && row["stored_chain"] == chain);
        found.unwrap()["stored_bytes"].as_u64().unwrap()
    };
    assert_eq!(row("r50k-u32.bin", "none"), 1_973_752);
    assert_eq!(row("r50k-u32.bin", "u16"), 986_876);
    assert_eq!(
        row("o200k-u32.bin", "bitpack:18"),
        (425_344u64 * 18).div_ceil(8)
    );
}

#[test]
fn one_byte_that_differs_fails_the_demo() {
    let folder = Folder::new();
    let mut weights = fs::read(fixture("weights-f32.bin")).unwrap();
    weights[1_000_000] ^= 0x80;
    folder.write("weights-f32.bin", &weights);
    folder.done([
        "pack",
        "weights-f32.bin",
        "--dtype",
        "f32",
        "-o",
        "other.xio",
    ]);
    let ran = demo(&folder, |volumes| {
        *volumes.last_mut().unwrap() = folder.path("other.xio")
    });
    assert_eq!(ran.status, 1);
    let says = "error: weights-f32.bin stored as shuffle+zstd:3: byte 1000000 is another than the source's\n";
    assert_eq!(ran.stderr, says);
    let report: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(
        report["rows"].as_array().unwrap().last().unwrap()["first_difference"],
        1_000_000
    );
}

#[test]
fn a_target_that_ends_or_is_not_there_is_an_error() {
    let folder = Folder::new();
    let script = program(&folder, "#!/bin/sh\necho 'cannot listen' >&2\nexit 1\n");
    let (script, data) = (script.to_str().unwrap(), data());
    let demo = |target| ["demo", "--target", target, "--data", data.to_str().unwrap()];
    let ran = folder.xio(demo(script));
    assert_eq!((ran.status, ran.stdout.as_str()), (3, ""));
    let says = format!(
        "cannot listen\nerror: {script} has ended before it listened; what it said is above\n"
    );
    assert_eq!(ran.stderr, says);
    let gone = folder.path("gone");
    let gone = gone.to_str().unwrap();
    folder.fails(
        3,
        &format!("starting {gone}: No such file or directory (os error 2)"),
        &demo(gone),
    );
    folder.fails(
        3,
        "reading nowhere/r50k-u32.bin: No such file or directory (os error 2)",
        &["demo", "--target", script, "--data", "nowhere"],
    );
}
