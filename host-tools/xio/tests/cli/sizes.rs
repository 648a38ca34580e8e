//! What `xio plan` says that a volume takes is what `xio pack` writes.

use std::fs;

use serde_json::Value;

use super::support::{Folder, Random, fixture};

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut noise: Vec<u8> = (0..bytes.div_ceil(4))
        .flat_map(|_| random.next().to_le_bytes())
        .collect();
    noise.truncate(bytes);
    noise
}

/// The volume's length as it is planned, in all places the same, and as it is packed.
fn planned_and_packed(folder: &Folder, options: &[&str]) -> (u64, u64) {
    let plan = json(&folder.done([&["plan", "d", "--json"], options].concat()));
    let pack = [&["pack", "d", "--json", "--force", "-o", "d.xio"], options].concat();
    let pack = json(&folder.xio(pack).stdout);
    let planned = plan["volume_bytes"].as_u64().unwrap();
    for row in plan["placements"].as_array().unwrap() {
        let stored = match row["where"].as_str().unwrap() {
            "plain" => plan["source_bytes"].as_u64().unwrap(),
            _ => planned,
        };
        assert_eq!(row["store_bytes"], stored, "{row}");
    }
    let packed = pack["volume_bytes"].as_u64().unwrap();
    assert_eq!(fs::metadata(folder.path("d.xio")).unwrap().len(), packed);
    (planned, packed)
}

/// 3,000 files of 2 KB: the names, the extents and the manifest are a fifth of the volume.
#[test]
fn a_volume_of_many_small_files_is_as_long_as_planned() {
    let folder = Folder::new();
    for part in 0..30 {
        fs::create_dir_all(folder.path(&format!("d/{part:02}"))).unwrap();
        for file in 0..100 {
            let seed: u64 = part * 100 + file;
            folder.write(&format!("d/{part:02}/{file:03}.rec"), &noise(seed, 2_000));
        }
    }
    for options in [
        &[][..],
        &["--no-manifest"],
        &["--partitioned", "--lba", "512"],
    ] {
        let (planned, packed) = planned_and_packed(&folder, options);
        assert!(
            planned.abs_diff(packed) <= packed / 200,
            "{options:?}: {planned} {packed}"
        );
        assert!(packed > 6_300_000, "{packed}");
    }
}

#[test]
fn a_volume_of_one_large_file_is_as_long_as_planned() {
    let folder = Folder::new();
    fs::create_dir(folder.path("d")).unwrap();
    let ids = fs::read(fixture("o200k-u32.bin")).unwrap();
    folder.write("d/ids.bin", &ids.repeat(4));
    let typed = ["--as", "*.bin=u32"];
    let exact = [&typed[..], &["--store-as", "bitpack:18"]].concat();
    let (planned, packed) = planned_and_packed(&folder, &exact);
    assert!(planned.abs_diff(packed) <= 4096, "{planned} {packed}");
    // Scaled from a sample.
    let (planned, packed) =
        planned_and_packed(&folder, &[&typed[..], &["--frame", "64KiB"]].concat());
    assert!(
        planned.abs_diff(packed) <= packed / 20,
        "{planned} {packed}"
    );
}

/// Two views, of which one is rounded: their headers are stored, and what was measured is in the manifest.
#[test]
fn a_volume_of_two_precisions_is_as_long_as_planned() {
    let folder = Folder::new();
    fs::create_dir(folder.path("d")).unwrap();
    let mixed = fs::read(fixture("../formats/safetensors/mixed.safetensors")).unwrap();
    for file in 0..100 {
        folder.write(&format!("d/{file}.safetensors"), &mixed);
    }
    let options = ["--present-as", "source,bf16", "--store-as", "none"];
    let (planned, packed) = planned_and_packed(&folder, &options);
    assert!(
        planned.abs_diff(packed) <= packed / 50,
        "{planned} {packed}"
    );
}
