//! Views in the blocks of GGUF's Q8_0: what gguf makes of the same files, the errors that the manifest says, and what has no blocks.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::support::{Folder, formats, sha256};

/// Copies fixtures/formats/gguf/blocks.gguf, whose tensors of one dimension, and with rows of 33, stay as they are.
fn model(folder: &Folder) {
    fs::create_dir_all(folder.path("d")).unwrap();
    fs::copy(formats("gguf/blocks.gguf"), folder.path("d/m.gguf")).unwrap();
}

fn numbers(count: u32) -> Vec<u8> {
    let number = |n: u32| f32::from_bits(n.wrapping_mul(2_654_435_761) & 0x807F_FFFF | 0x3E00_0000);
    (0..count).flat_map(|n| number(n).to_le_bytes()).collect()
}

#[test]
fn a_gguf_file_is_presented_as_gguf_would_have_quantized_it_however_it_is_stored() {
    for command in ["pack", "map"] {
        for stored in ["none", "lz4", "auto:lossless"] {
            if command == "map" && stored != "none" {
                continue;
            }
            let folder = Folder::new();
            model(&folder);
            let mut arguments = vec![command, "d", "--present-as", "source,q8_0", "-o", "v.xio"];
            if command == "pack" {
                arguments.extend(["--store-as", stored]);
            }
            let ran = folder.xio(&arguments);
            assert_eq!(ran.status, 0, "{}", ran.stderr);
            folder.done(["verify", "v.xio"]);
            folder.done(["cp", "v.xio", "c"]);
            assert!(folder.read("c/source/m.gguf") == folder.read("d/m.gguf"));
            let wanted = fs::read(formats("gguf/blocks.q8_0.gguf")).unwrap();
            assert!(folder.read("c/q8_0/m.gguf") == wanted, "{command} {stored}");

            let manifest: Value =
                serde_json::from_slice(&folder.read("c/.xio/manifest.json")).unwrap();
            assert_eq!(manifest["lossy"], true);
            let view = &manifest["views"][1];
            assert_eq!(view["changed_files"][0]["sha256"], sha256(&wanted));
            let changes = view["changes"].as_array().unwrap();
            let of = |from: &str| changes.iter().find(|it| it["from"] == from).unwrap();
            for (from, elements) in [("f32", 3 * 64 + 5 * 32), ("f16", 64), ("bf16", 192)] {
                let change = of(from);
                assert_eq!(
                    (&change["to"], &change["presented_as"]),
                    (&json!("q8_0"), &json!("q8_0"))
                );
                let step = json!({"transform": 4, "version": 1, "parameter": 0});
                assert_eq!(change["step"], step);
                assert_eq!(change["loss"]["elements"], elements);
            }
        }
    }
}

/// The errors are those of the numbers themselves: of each the largest, and the root of the mean square.
#[test]
fn elements_without_a_header_are_blocks_alone_and_the_manifest_says_what_was_lost() {
    let folder = Folder::new();
    fs::create_dir_all(folder.path("d")).unwrap();
    let source = numbers(100_000);
    folder.write("d/w.f32", &source);
    let arguments = [
        "pack",
        "d",
        "--as",
        "*.f32=f32",
        "--present-as",
        "q8_0",
        "-o",
        "v.xio",
    ];
    let ran = folder.xio(arguments);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    let told =
        "w.f32: nothing in the file says its type: its reader has to be told the changed one";
    assert!(ran.stderr.contains(told), "{}", ran.stderr);
    folder.done(["verify", "v.xio"]);
    folder.done(["cp", "v.xio", "c"]);
    let blocks = folder.read("c/w.f32");
    assert_eq!(blocks.len(), 100_000 / 32 * 34);
    let (mut largest, mut squares) = (0f64, 0f64);
    for (block, numbers) in blocks.chunks(34).zip(source.chunks(128)) {
        let scale = scale(u16::from_le_bytes([block[0], block[1]]));
        for (steps, number) in block[2..].iter().zip(numbers.as_chunks().0) {
            let error = f64::from(f32::from(steps.cast_signed()) * scale)
                - f64::from(f32::from_le_bytes(*number));
            largest = largest.max(error.abs());
            squares += error * error;
        }
    }
    let manifest: Value = serde_json::from_slice(&folder.read("c/.xio/manifest.json")).unwrap();
    let loss = &manifest["views"][0]["changes"][0]["loss"];
    assert_eq!(loss["largest_error"], largest);
    let rms = loss["rms_error"].as_f64().unwrap();
    let wanted = (squares / 100_000.0).sqrt();
    assert!((rms - wanted).abs() < 1e-12 * wanted, "{rms} {wanted}");
}

/// Normal numbers of binary16.
fn scale(bits: u16) -> f32 {
    let exponent = u32::from(bits >> 10 & 31) + 112;
    f32::from_bits(exponent << 23 | u32::from(bits & 1023) << 13)
}

#[test]
fn what_is_no_whole_number_of_blocks_or_has_no_blocks_is_refused_with_its_place() {
    let refused = |name: &str, content: &[u8], options: &[&str], says: &str| {
        let folder = Folder::new();
        fs::create_dir_all(folder.path("d")).unwrap();
        folder.write(&format!("d/{name}"), content);
        for command in ["plan", "pack"] {
            let mut arguments = vec![command, "d", "--present-as", "q8_0"];
            arguments.extend(options);
            arguments.extend(
                (command == "pack")
                    .then_some(["-o", "v.xio"])
                    .iter()
                    .flatten(),
            );
            let ran = folder.xio(&arguments);
            assert_ne!(ran.status, 0, "{command} {name}");
            let said = ran.stdout + &ran.stderr;
            assert!(said.contains(says), "{command} {name}: {said}");
            assert!(!Path::new(&folder.path("v.xio")).exists());
        }
    };
    let as_f32 = ["--as", "*.f32=f32"];
    refused(
        "w.f32",
        &numbers(1000),
        &as_f32,
        "f32 as q8_0: 1000 elements are 31 blocks of 32 and 8 more, from byte 3968 of the file on, which are no block",
    );
    let mut unscalable = numbers(4096);
    unscalable[4 * 2049..][..4].copy_from_slice(&f32::INFINITY.to_le_bytes());
    refused(
        "w.f32",
        &unscalable,
        &as_f32,
        "element 2049 (byte 8196 of the file) is inf",
    );
    let npy = fs::read(formats("npy/plane.npy")).unwrap();
    refused("plane.npy", &npy, &[], "numpy has no q8_0; GGUF has");
    let mixed = fs::read(formats("safetensors/mixed.safetensors")).unwrap();
    refused(
        "m.safetensors",
        &mixed,
        &[],
        "safetensors has no q8_0; GGUF has",
    );
}
