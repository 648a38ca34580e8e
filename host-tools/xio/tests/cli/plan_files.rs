//! `xio plan`'s row of a file is the file's own, though one choice is made for all files of a kind.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::Value;

use super::support::{Folder, Random, fixture};

fn plan(folder: &Folder, options: &[&str]) -> Value {
    let said = folder.done([&["plan", "d", "--json"], options].concat());
    serde_json::from_str(&said).unwrap()
}

fn bytes(values: impl IntoIterator<Item = u32>) -> Vec<u8> {
    values.into_iter().flat_map(u32::to_le_bytes).collect()
}

/// Five kinds of ids that one stream holds: of each the range, and what it is stored in when it is planned alone with the same chain.
#[test]
fn ranges_and_stored_bytes_are_the_files_own() {
    const COUNT: u32 = 50_000;
    let folder = Folder::new();
    fs::create_dir_all(folder.path("d")).unwrap();
    let mut random = Random::new(11);
    let mut below = |max: u32| -> Vec<u32> { (0..COUNT).map(|_| random.next() % max).collect() };
    let files = [
        ("flat", vec![40_000; COUNT as usize]),
        ("count", (0..COUNT).map(|n| n % 1_000 + 33_000).collect()),
        ("few", below(4).iter().map(|n| n + 50_000).collect()),
        ("some", below(300).iter().map(|n| n * 200).collect()),
        ("noise", below(65_000)),
    ];
    for (name, values) in &files {
        folder.write(&format!("d/{name}"), &bytes(values.iter().copied()));
    }
    let options = ["--as", "*=u32", "--store-as", "u16+lz4", "--frame", "64KiB"];
    let planned = plan(&folder, &options);
    let (mut sum, streams) = (0, planned["streams"].as_array().unwrap());
    assert_eq!(streams.len(), 1);
    for (name, values) in &files {
        let rows = planned["files"].as_array().unwrap().iter();
        let row = rows.clone().find(|row| row["path"] == *name).unwrap();
        let part = &row["parts"][0];
        let (min, max) = (values.iter().min().unwrap(), values.iter().max().unwrap());
        assert_eq!(
            part["range"]["min"].to_string().trim_matches('"'),
            min.to_string()
        );
        assert_eq!(
            part["range"]["max"].to_string().trim_matches('"'),
            max.to_string()
        );
        let file = format!("d/{name}");
        let alone = ["pack", &file, "--json", "--force", "-o", "v.xio"];
        let alone = folder.xio([&alone[..], &options].concat()).stdout;
        let alone: Value = serde_json::from_str(&alone).unwrap();
        let made = alone["streams"][0]["stored_bytes"].as_u64().unwrap();
        let said = part["stored_bytes"].as_u64().unwrap();
        assert!(
            said.abs_diff(made) <= made / 10 + 1024,
            "{name}: {said} {made}"
        );
        sum += said;
    }
    assert_eq!(streams[0]["stored_bytes"], sum);
}

/// A link to a file that a view changes is a file of its own there.
#[test]
fn placements_count_every_name_that_has_bytes() {
    let folder = Folder::new();
    fs::create_dir_all(folder.path("d/blobs")).unwrap();
    folder.write(
        "d/blobs/b",
        &fs::read(fixture("../formats/safetensors/mixed.safetensors")).unwrap(),
    );
    symlink("blobs/b", folder.path("d/m.safetensors")).unwrap();
    let options = ["--present-as", "bf16"];
    let planned = plan(&folder, &options);
    folder.done([&["pack", "d", "--no-manifest", "-o", "v.xio"], &options[..]].concat());
    folder.done(["cp", "v.xio", "c"]);
    let mut there = 0;
    for name in ["c/blobs/b", "c/m.safetensors"] {
        let about = fs::symlink_metadata(folder.path(name)).unwrap();
        there += if about.is_file() { about.len() } else { 0 };
    }
    let rows = planned["placements"].as_array().unwrap();
    let node = rows
        .iter()
        .find(|row| row["where"] == "storage_node")
        .unwrap();
    assert_eq!(node["wire_bytes"], there);
    assert_eq!(node["pcie_bytes"], there);
}

#[test]
fn a_long_name_is_cut_in_the_table_and_whole_in_json() {
    let folder = Folder::new();
    fs::create_dir_all(folder.path("d")).unwrap();
    let name = format!("{}{}", "a".repeat(195), "b".repeat(60));
    folder.write(&format!("d/{name}"), &[1; 100]);
    let said = folder.done(["plan", "d"]);
    let row = said.lines().nth(1).unwrap();
    assert!(row.starts_with(&format!("…{}  ", "b".repeat(59))), "{said}");
    assert_eq!(plan(&folder, &[])["files"][0]["path"], name);
}
