//! Floating point packed into a narrower type: what comes back, and what is said of it.

use serde_json::{Value, json};

use super::support::{Folder, pack_elements, sha256};

fn bytes(numbers: impl IntoIterator<Item = f32>) -> Vec<u8> {
    numbers.into_iter().flat_map(f32::to_le_bytes).collect()
}

fn view(folder: &Folder, volume: &str) -> Value {
    let shown = folder.done(["inspect", volume, "--json"]);
    let mut shown: Value = serde_json::from_str(&shown).unwrap();
    shown["views"][0].take()
}

#[test]
fn rounded_numbers_come_back_rounded_and_the_volume_says_what_was_lost() {
    let folder = Folder::new();
    // 200,000 numbers that bf16 keeps, and among them one of each kind of loss.
    let mut numbers: Vec<f32> = (0..200_000u32).map(|n| (n % 256) as f32).collect();
    let mut kept = numbers.clone();
    for (at, number, becomes) in [
        (7, 257.0, 256.0),
        (1000, 259.0, 260.0),
        (70_000, f32::MAX, f32::INFINITY),
        (70_001, f32::NEG_INFINITY, f32::NEG_INFINITY),
        (150_000, f32::from_bits(1), 0.0),
        (199_999, 1025.0, 1024.0),
    ] {
        numbers[at] = number;
        kept[at] = becomes;
    }
    numbers[3] = f32::NAN;
    kept[3] = f32::NAN;
    let (source, rounded) = (bytes(numbers), bytes(kept));
    folder.write("in.bin", &source);
    for chain in ["bf16", "bf16+shuffle+lz4"] {
        let pack = [
            "pack",
            "in.bin",
            "--dtype",
            "f32",
            "--store-as",
            chain,
            "--force",
            "-o",
        ];
        for volume in [&["v.xio"][..], &["one.xio", "--threads", "1"]] {
            let ran = folder.xio(pack.iter().chain(volume));
            let note = format!(
                "note: --store-as {chain}: of 200,000 numbers of f32, 1 became infinite and 1 became zero in bf16\n"
            );
            assert_eq!((ran.status, ran.stderr), (0, note));
        }
        assert!(folder.read("v.xio") == folder.read("one.xio"), "{chain}");
        folder.done(["verify", "v.xio"]);
        folder.done(["unpack", "v.xio", "--force", "-o", "out.bin"]);
        assert!(folder.read("out.bin") == rounded, "{chain}");

        let view = view(&folder, "v.xio");
        assert_eq!(view["lossy"], json!(true));
        let manifest = &view["manifest"];
        let source_bytes = 800_000;
        assert_eq!(
            manifest["sources"],
            json!([{ "path": "in.bin", "bytes": source_bytes, "sha256": sha256(&source), "format": "raw elements", "streams": [0], "unzipped_from": null }])
        );
        let stream = &manifest["streams"][0];
        assert_eq!(stream["stored_chain"], json!(chain));
        assert_eq!(stream["sha256"], json!(sha256(&rounded)));
        let float = json!({ "transform": 3, "version": 1, "parameter": 10 });
        assert_eq!(stream["steps"][0], float);
        let presented = &manifest["views"][0];
        let file = &presented["changed_files"][0];
        assert_eq!(
            (&file["path"], &file["bytes"], &file["sha256"]),
            (
                &json!("in.bin"),
                &json!(source_bytes),
                &json!(sha256(&rounded))
            )
        );
        let mut change = presented["changes"][0].clone();
        assert_eq!(
            (&change["to"], &change["presented_as"], &change["step"]),
            (&json!("bf16"), &json!("f32"), &float)
        );
        // Three errors of 1 and one far below, of all that are neither a NaN nor infinite.
        let rms = change["loss"]["rms_error"].take().as_f64().unwrap();
        assert!((rms - (3.0f64 / 199_997.0).sqrt()).abs() < 1e-15, "{rms}");
        assert_eq!(
            change["loss"],
            json!({
                "elements": 200_000,
                "largest_error": 1.0,
                "worst": { "source": 257.0, "presented": 256.0 },
                "rms_error": null,
                "saturated": 1,
                "vanished": 1,
                "nans": 1,
                "infinities": 1,
            })
        );
        let text = folder.done(["inspect", "v.xio"]);
        let row = "bf16 1 f32 bf16 800,000 1.000e0 3.873e-3 1 1 1";
        let words: Vec<&str> = text.split_whitespace().collect();
        assert!(words.join(" ").contains(row), "{text}");
    }
}

#[test]
fn nothing_is_said_of_what_is_not_rounded() {
    let folder = Folder::new();
    folder.write("in.bin", &bytes([1.5, 2.5]));
    let said = folder.done(pack_elements("in.bin", "f32", "lz4"));
    assert_eq!(said.lines().count(), 1, "{said}");
    let view = view(&folder, "v.xio");
    let manifest = &view["manifest"];
    assert_eq!(
        (
            &view["lossy"],
            &manifest["lossy"],
            &manifest["streams"][0]["loss"]
        ),
        (&json!(false), &json!(false), &Value::Null)
    );
}

#[test]
fn a_header_is_not_rounded() {
    let folder = Folder::new();
    let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (4,), }";
    let mut array = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    array.extend(format!("{header:<117}\n").bytes());
    assert_eq!(array.len(), 128);
    array.extend(bytes([1.0, 2.0, 3.0, 4.0]));
    folder.write("a.npy", &array);
    let refused = folder.xio(pack_elements("a.npy", "f32", "f16"));
    assert_eq!(refused.status, 2, "{}", refused.stderr);
    let why = "a.npy is npy: with --dtype, a chain that rounds takes files of elements alone";
    assert!(refused.stderr.contains(why), "{}", refused.stderr);
    // Left as it is, it is bytes like others.
    folder.done(pack_elements("a.npy", "f32", "lz4"));
}

/// Groups of 32 with a scale: its largest number comes back, the others within half a step, and the manifest says q8_0.
#[test]
fn quantized_numbers_come_back_and_the_volume_says_what_was_lost() {
    let folder = Folder::new();
    // Scales of 1, and steps that are kept; one number is half way between two steps, one is less than half a step; the last group has one number.
    let mut numbers: Vec<f32> = (0..100_001u32).map(|n| (n % 32) as f32 - 15.0).collect();
    for group in numbers.chunks_mut(32) {
        group[0] = 127.0;
    }
    let mut kept = numbers.clone();
    for (at, number, becomes) in [(40, -2.5, -3.0), (99_999, 0.25, 0.0)] {
        numbers[at] = number;
        kept[at] = becomes;
    }
    folder.write("in.bin", &bytes(numbers));
    let quantized = bytes(kept);
    let pack = ["pack", "in.bin", "--dtype", "f32", "--force", "-o", "v.xio"];
    for (chain, stored) in [("q8_0", Some(106_284)), ("q8_0+zstd:3", None)] {
        let ran = folder.xio(pack.iter().chain(&["--store-as", chain]));
        let note =
            format!("note: --store-as {chain}: of 100,001 numbers of f32, 1 became zero in q8_0\n");
        assert_eq!((ran.status, ran.stderr), (0, note));
        folder.done(["verify", "v.xio"]);
        folder.done(["unpack", "v.xio", "--force", "-o", "out.bin"]);
        assert!(folder.read("out.bin") == quantized, "{chain}");

        let view = view(&folder, "v.xio");
        assert_eq!(view["lossy"], json!(true));
        let manifest = &view["manifest"];
        let stream = &manifest["streams"][0];
        let step = json!({ "transform": 4, "version": 1, "parameter": 0 });
        assert_eq!(stream["steps"][0], step);
        assert_eq!(stream["sha256"], json!(sha256(&quantized)));
        if let Some(bytes) = stored {
            assert_eq!(stream["stored_bytes"], json!(bytes));
        }
        let change = &manifest["views"][0]["changes"][0];
        let members = (&change["to"], &change["presented_as"], &change["step"]);
        assert_eq!(members, (&json!("q8_0"), &json!("f32"), &step));
        let loss = &change["loss"];
        let members = (
            &loss["largest_error"],
            &loss["vanished"],
            &loss["saturated"],
        );
        assert_eq!(members, (&json!(0.5), &json!(1), &json!(0)));
        let text = folder.done(["inspect", "v.xio"]);
        let words: Vec<&str> = text.split_whitespace().collect();
        assert!(words.join(" ").contains(&format!("{chain} 8.5")), "{text}");
    }
    let disk = folder.xio([
        "pack",
        "in.bin",
        "--as",
        "*=f32",
        "--store-as",
        "q8_0",
        "-o",
        "d.xio",
    ]);
    assert_eq!(disk.status, 2, "{}", disk.stderr);
    assert!(disk.stderr.contains("q8_0 rounds"), "{}", disk.stderr);
}
