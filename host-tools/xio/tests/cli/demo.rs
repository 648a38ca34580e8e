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
    // The ways come first, then the folder's two disks.
    assert_eq!(rows.len() + 2, file_bytes.len());
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
fn the_files_of_the_folder_are_read_through_its_disk_and_counted() {
    let folder = Folder::new();
    let ran = demo(&folder, |_| ());
    assert_eq!((ran.status, ran.stderr.as_str()), (0, ""));
    let report: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    let reads = report["folder"]["reads"].as_array().unwrap();
    let of = |at: usize, member: &str| reads[at][member].as_u64().unwrap();
    let files = reads.iter().map(|read| read["file"].as_str().unwrap());
    let expected = [
        "source/tokens/o200k.bin",
        "source/tokens/o200k.idx",
        "source/tokens/o200k.bin",
        "o200k.bin",
        "source/model.safetensors",
        "source/embeddings.npy",
        "f16/embeddings.npy",
    ];
    assert!(files.eq(expected), "{reads:?}");
    for (at, read) in reads.iter().enumerate() {
        assert_eq!(read["first_difference"], serde_json::Value::Null);
        // Whole blocks, and headers of 24 bytes: for both ends and for each 128 KiB at the least.
        let plain = of(at, "plain_bytes");
        let wire = plain + 24..=plain + 24 * (2 + (plain >> 17).max(1));
        assert!(wire.contains(&of(at, "wire_bytes")), "{read}");
    }
    let presented = |at| of(at, "presented_bytes");
    assert_eq!((presented(0), of(0, "plain_bytes")), (1_701_376, 1_703_936));
    assert!(of(0, "fetched_bytes") < 1_701_376 / 2);

    // 16 KiB lie in four blocks or five; compressed frames have 64 KiB of ids.
    for at in [2, 3] {
        assert_eq!(
            (of(at, "readings"), of(at, "reading_bytes")),
            (64, 16 << 10)
        );
        assert!((16 << 10..=20 << 10).contains(&of(at, "plain_bytes")));
    }
    assert!(of(2, "fetched_bytes") > 20 << 10);
    // Frames of 4 KiB, by rank: less than the 18 bits that every id fits.
    assert_eq!(reads[3]["stored_chain"], "rank");
    assert!(of(3, "stored_bytes") < 425_344 * 18 / 8 * 3 / 4);
    // In 18 bits these are 9 KiB, and checksums are of 4 KiB: 13 KiB.
    assert!(of(3, "fetched_bytes") < 12 << 10, "{}", reads[3]);

    assert_eq!(reads[4]["presented_type"], "bf16");
    assert!(of(4, "stored_bytes") < presented(4) * 3 / 4);
    // Embeddings keep their bytes, and take less.
    assert!(of(5, "stored_bytes") < 786_432 * 9 / 10);
    assert_eq!(presented(5), 786_432 + 128);
    assert_eq!(presented(6), 4096 + 786_432 / 2);
    let rounding = &report["folder"]["rounding"];
    assert_eq!(rounding["elements"], 512 * 384);
    // Where the largest values are, from 1/8 to 1/4, half a spacing of f16 is 2^-14.
    let largest_error = rounding["largest_error"].as_f64().unwrap();
    assert!((2f64.powi(-15)..=2f64.powi(-14)).contains(&largest_error));
    assert_eq!(
        (&rounding["saturated"], &rounding["nans"]),
        (&0.into(), &0.into())
    );
}

/// A copy of the folder on a disk of its own, and what the demo says where it is served.
fn demo_of_another(change: impl FnOnce(&Path), present_as: &[&str]) -> Ran {
    let folder = Folder::new();
    let copy = folder.path("copy");
    fs::create_dir_all(copy.join("tokens")).unwrap();
    for name in [
        "tokens/o200k.bin",
        "tokens/o200k.idx",
        "model.safetensors",
        "embeddings.npy",
    ] {
        fs::copy(data().join("../dataset").join(name), copy.join(name)).unwrap();
    }
    change(&copy);
    let views = present_as.iter().flat_map(|view| ["--present-as", view]);
    let ran = folder.xio(["pack", "copy", "-o", "other.xio"].into_iter().chain(views));
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    demo(&folder, |volumes| volumes[22] = folder.path("other.xio"))
}

#[test]
fn one_byte_of_a_file_that_differs_fails_the_demo() {
    let change = |copy: &Path| {
        let path = copy.join("model.safetensors");
        let mut weights = fs::read(&path).unwrap();
        weights[2_000_001] ^= 1;
        fs::write(path, weights).unwrap();
    };
    let ran = demo_of_another(change, &["source,f16"]);
    assert_eq!(ran.status, 1);
    let says = "error: source/model.safetensors of dataset.xio: byte 2000001 is another than the source's\n";
    assert_eq!(ran.stderr, says);
    let report: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(report["folder"]["reads"][4]["first_difference"], 2_000_001);
}

#[test]
fn what_is_not_presented_in_f16_fails_the_demo() {
    let ran = demo_of_another(|_| (), &["source", "f16:*=keep"]);
    assert_eq!((ran.status, ran.stdout.as_str()), (1, ""));
    let says = "error: f16/embeddings.npy: its header does not say 'descr': '<f2'\n";
    assert_eq!(ran.stderr, says);
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
    let ran = demo(&folder, |volumes| volumes[21] = folder.path("other.xio"));
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
