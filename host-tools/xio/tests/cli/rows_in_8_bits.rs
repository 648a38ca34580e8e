//! Floating point packed in rows with a scale each: what comes back, what is said of it, and what has no rows.

use serde_json::{Value, json};

use super::support::{Folder, fixture, pack_elements, sha256};

const ROW: usize = 384;

/// What comes back of rows, by the words of numpy: `rint(x * (1 / scale)) * scale`, and the scales.
fn by_definition(source: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let (mut back, mut scales) = (Vec::new(), Vec::new());
    for row in source.chunks(4 * ROW) {
        let numbers = row.as_chunks().0.iter().map(|it| f32::from_le_bytes(*it));
        let largest = numbers
            .clone()
            .fold(0f32, |one, other| one.max(other.abs()));
        let scale = largest / 127.0;
        let by = if scale == 0.0 { 0.0 } else { 1.0 / scale };
        back.extend(numbers.flat_map(|number| {
            #[allow(clippy::cast_possible_truncation)] // at most 127
            let steps = (number * by).round_ties_even() as i8;
            (f32::from(steps) * scale).to_le_bytes()
        }));
        scales.extend(scale.to_le_bytes());
    }
    (back, scales)
}

fn inspected(folder: &Folder, volume: &str) -> Value {
    serde_json::from_str(&folder.done(["inspect", volume, "--json"])).unwrap()
}

#[test]
fn weights_come_back_by_their_rows_and_the_volume_says_what_was_lost() {
    let folder = Folder::new();
    let source = std::fs::read(fixture("weights-f32.bin")).unwrap();
    folder.write("w.bin", &source);
    // A second input has scales of its own.
    let twice: Vec<u8> = (source[..4 * 10 * ROW].as_chunks().0.iter())
        .flat_map(|it| (2.0 * f32::from_le_bytes(*it)).to_le_bytes())
        .collect();
    folder.write("twice.bin", &twice);
    let (back, scales) = by_definition(&source);
    let (back_twice, scales_twice) = by_definition(&twice);
    let pairs = source.as_chunks().0.iter().zip(back.as_chunks().0);
    let errors = pairs
        .map(|(was, is)| f64::from(f32::from_le_bytes(*is)) - f64::from(f32::from_le_bytes(*was)));
    let largest = errors.clone().fold(0f64, |one, other| one.max(other.abs()));
    let squares: f64 = errors.clone().map(|it| it * it).sum();
    #[allow(clippy::cast_precision_loss)] // few
    let rms = (squares / (source.len() / 4) as f64).sqrt();

    for chain in ["int8:384", "int8:384+zstd:3"] {
        let pack = [
            "pack",
            "w.bin",
            "twice.bin",
            "--concat",
            "--dtype",
            "f32",
            "--store-as",
            chain,
            "--frame",
            "16KiB",
        ];
        for volume in [
            &["-o", "v.xio", "--force"][..],
            &["-o", "one.xio", "--force", "--threads", "1"],
        ] {
            let ran = folder.xio(pack.iter().chain(volume));
            let note = format!(
                "note: --store-as {chain}: of 397,056 numbers of f32, 4,145 became zero in int8:384\n"
            );
            assert_eq!((ran.status, ran.stderr), (0, note));
        }
        assert!(folder.read("v.xio") == folder.read("one.xio"), "{chain}");
        folder.done(["verify", "v.xio"]);
        folder.done(["unpack", "v.xio", "--force", "-o", "out.bin"]);
        assert!(
            folder.read("out.bin") == [&back[..], &back_twice].concat(),
            "{chain}"
        );
        let shown = inspected(&folder, "v.xio");
        for (stream, scales) in [(0, &scales), (1, &scales_twice)] {
            let told = &shown["streams"][stream]["scales"];
            assert_eq!(told["rows"], scales.len() / 4);
            assert_eq!(told["bytes"], scales.len());
            let manifest = &shown["views"][0]["manifest"];
            let step = &manifest["streams"][stream]["steps"][0];
            let expected =
                json!({"transform": 5, "version": 1, "parameter": ROW, "table": sha256(scales)});
            assert_eq!(*step, expected);
        }
        let manifest = &shown["views"][0]["manifest"];
        assert_eq!(manifest["lossy"], true);
        let loss = &manifest["views"][0]["changed_files"][0]["losses"][0]["loss"];
        assert_eq!(loss["elements"], source.len() / 4);
        assert_eq!(loss["largest_error"].as_f64(), Some(largest));
        let told = loss["rms_error"].as_f64().unwrap();
        assert!((told / rms - 1.0).abs() < 1e-9, "{told} of {rms}");
        let text = folder.done(["inspect", "v.xio"]);
        assert!(text.contains("chain 0 has scales: blob "), "{text}");
        assert!(text.contains("4,096 bytes, 1,024 rows"), "{text}");
    }
}

#[test]
fn what_has_no_rows_or_no_scales_is_named_with_what_to_do() {
    let folder = Folder::new();
    let mut numbers: Vec<u8> = [1.5f32; 1000]
        .iter()
        .flat_map(|it| it.to_le_bytes())
        .collect();
    folder.write("w.bin", &numbers);
    let pack = |chain| pack_elements("w.bin", "f32", chain);
    let refused = |status, chain, why: &str| {
        let ran = folder.xio(pack(chain));
        assert_eq!(ran.status, status, "{}", ran.stderr);
        assert!(ran.stderr.contains(why), "{chain}: {}", ran.stderr);
        assert!(!folder.path("v.xio").exists());
    };
    refused(
        1,
        "int8:384",
        "w.bin: not the scales of int8: the last row has 232 of 384 elements: int8:ROW takes whole rows, and ROW is what a row has",
    );
    refused(2, "int8:0", "int8 does not take \"0\": expected int8:ROW");
    refused(2, "int8", "int8 does not take \"int8\": expected int8:ROW");
    refused(2, "int8:8+shuffle+lz4", "shuffle cannot take int8:8");
    numbers[4 * 700..][..4].copy_from_slice(&f32::NAN.to_le_bytes());
    folder.write("w.bin", &numbers);
    refused(
        1,
        "int8:500",
        "w.bin: element 700 (byte 2800) is NaN, for which int8 has no scale: it takes finite numbers",
    );
    folder.write("w.bin", &[]);
    refused(
        1,
        "int8:8",
        "w.bin: not the scales of int8: there are no rows",
    );
    folder.fails(
        2,
        "standard input: int8:8 reads its input twice, first to find the scales; write it to a file, and pack that",
        &["pack", "-", "--name", "w", "--dtype", "f32", "--store-as", "int8:8", "-o", "v.xio"],
    );
    // Files with headers are not stored so.
    std::fs::create_dir(folder.path("d")).unwrap();
    folder.write("d/w.bin", &numbers);
    let ran = folder.xio([
        "pack",
        "d",
        "--as",
        "*.bin=f32",
        "--store-as",
        "int8:8",
        "-o",
        "v.xio",
    ]);
    assert_eq!(ran.status, 2, "{}", ran.stderr);
    // A view of it has no place for scales.
    let ran = folder.xio([
        "pack",
        "d",
        "--as",
        "*.bin=f32",
        "--present-as",
        "int8:8",
        "-o",
        "v.xio",
    ]);
    assert_eq!(ran.status, 2, "{}", ran.stderr);
}
