//! `--dtype` with `--store-as auto:lossless`: one chain for all inputs, every bit kept, and why it was taken.

use std::fs;

use serde_json::Value;

use super::support::{Folder, Random, fixture, pack_elements};

fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..bytes / 4)
        .flat_map(|_| random.next().to_le_bytes())
        .collect()
}

/// Elements of each type: ids, weights, noise, counts with a sign, none.
fn corpora(folder: &Folder) -> Vec<(&'static str, &'static str)> {
    let ids = std::fs::read(fixture("r50k-u32.bin")).unwrap();
    let ids = &ids[..600_000];
    let weights = std::fs::read(fixture("weights-f32.bin")).unwrap();
    let weights = &weights[..600_000];
    folder.write("ids.u32", ids);
    let narrow = ids.as_chunks::<4>().0.iter().flat_map(|it| [it[0], it[1]]);
    folder.write("ids.u16", &narrow.collect::<Vec<u8>>());
    let wide = ids
        .as_chunks::<4>()
        .0
        .iter()
        .flat_map(|it| (i64::from(u32::from_le_bytes(*it)) - 9).to_le_bytes());
    folder.write("signed.i64", &wide.collect::<Vec<u8>>());
    folder.write("weights.f32", weights);
    let upper = weights
        .as_chunks::<4>()
        .0
        .iter()
        .flat_map(|it| [it[2], it[3]]);
    folder.write("weights.bf16", &upper.collect::<Vec<u8>>());
    folder.write("noise.u64", &noise(1, 400_000));
    folder.write("noise.f64", &noise(2, 400_000));
    folder.write("one.u8", &[7]);
    folder.write("none.u32", &[]);
    vec![
        ("ids.u32", "u32"),
        ("ids.u16", "u16"),
        ("signed.i64", "i64"),
        ("weights.f32", "f32"),
        ("weights.bf16", "bf16"),
        ("noise.u64", "u64"),
        ("noise.f64", "f64"),
        ("one.u8", "u8"),
        ("none.u32", "u32"),
    ]
}

#[test]
fn what_is_chosen_keeps_every_bit_and_is_what_a_folder_would_get() {
    let folder = Folder::new();
    for (file, dtype) in corpora(&folder) {
        for prefer in ["ratio", "speed", "balanced"] {
            for access in ["sequential", "random:4KiB"] {
                let wish = [
                    "--prefer",
                    prefer,
                    "--access",
                    access,
                    "--json",
                    "--explain",
                ];
                let pack = pack_elements(file, dtype, "auto:lossless");
                let pack = pack.iter().chain(&wish).chain(&["--force"]);
                let told: Value = serde_json::from_str(&folder.done(pack)).unwrap();
                let what = format!("{file} {prefer} {access}: {}", told["stored_chain"]);
                folder.done(["verify", "v.xio"]);
                folder.done(["unpack", "v.xio", "--force", "-o", "out"]);
                assert!(folder.read("out") == folder.read(file), "{what}");
                let choice = &told["choice"];
                assert_eq!(choice["stored_chain"], told["stored_chain"], "{what}");
                let tried = choice["tried"].as_array().unwrap();
                assert!(
                    tried.len() > 3 && tried[0]["stored_chain"] == told["stored_chain"],
                    "{what}"
                );
                if folder.read(file).is_empty() {
                    continue;
                }
                let hint = format!("{file}={dtype}");
                let plan = ["plan", file, "--as", &hint];
                let plan: Value =
                    serde_json::from_str(&folder.done(plan.iter().chain(&wish))).unwrap();
                let kinds = plan["groups"].as_array().unwrap();
                assert_eq!(kinds.len(), 1, "{what}");
                assert_eq!(kinds[0]["stored_chain"], told["stored_chain"], "{what}");
            }
        }
    }
}

#[test]
fn inputs_share_a_chain_that_holds_them_all_and_the_reader_is_told_why() {
    let folder = Folder::new();
    let shard = |first: u32, range: u32| -> Vec<u8> {
        (0..50_000u32)
            .flat_map(|n| (first + n * 7919 % range).to_le_bytes())
            .collect()
    };
    // One shard needs 8 bits, the other 17.
    folder.write("a.bin", &shard(0, 200));
    folder.write("b.bin", &shard(100_000, 300));
    let pack = [
        "pack",
        "a.bin",
        "b.bin",
        "--concat",
        "--dtype",
        "u32",
        "--store-as",
        "auto:lossless",
        "-o",
        "v.xio",
    ];
    let told = folder.done(pack);
    assert!(
        told.contains(
            "raw elements: 2 runs of u32, 400,000 bytes, 0..100,299; tried on 400,000 of them"
        ),
        "{told}"
    );
    assert!(told.contains("because it weighs least"), "{told}");
    folder.done(["verify", "v.xio"]);
    folder.done(["unpack", "v.xio", "-o", "out"]);
    assert!(folder.read("out") == [folder.read("a.bin"), folder.read("b.bin")].concat());
    let shown: Value = serde_json::from_str(&folder.done(["inspect", "v.xio", "--json"])).unwrap();
    let chains = shown["streams"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| &it["stored_chain"]);
    let chains: Vec<_> = chains.collect();
    assert!(chains.len() == 2 && chains[0] == chains[1], "{chains:?}");
}

#[test]
fn a_value_that_keeps_the_others_from_being_narrowed_is_told() {
    let folder = Folder::new();
    let mut ids: Vec<u32> = (0..50_000u32).map(|n| n * 7919 % 40_000).collect();
    for (value, is_told) in [(u32::MAX, true), (39_999, false)] {
        ids[25_000] = value;
        let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
        folder.write("a.bin", &bytes);
        let told = folder.done(pack_elements("a.bin", "u32", "auto:lossless"));
        let says = "but for the value 4,294,967,295, narrower chains could be tried (of what was tried the others are 0..39,999)";
        assert_eq!(told.contains(says), is_told, "{told}");
        fs::remove_file(folder.path("v.xio")).unwrap();
    }
}

#[test]
fn what_cannot_be_read_twice_and_what_has_nothing_to_choose_is_refused() {
    let folder = Folder::new();
    folder.write("a.bin", &[1, 2, 3]);
    let auto = [
        "--dtype",
        "u8",
        "--store-as",
        "auto:lossless",
        "-o",
        "v.xio",
    ];
    let of = |input: &'static str| [&["pack", input, "--name", "a"][..], &auto].concat();
    folder.fails(
        2,
        "standard input: auto:lossless reads its input twice, first to try chains on it; write it to a file, and pack that, or name a chain",
        &of("-"),
    );
    assert!(!folder.path("v.xio").exists());
    let ran = folder.xio(pack_elements("a.bin", "u16", "auto:lossless"));
    assert!(
        ran.status == 1 && ran.stderr.contains("not a whole number of u16"),
        "{}",
        ran.stderr
    );
    for option in [
        &["--prefer", "ratio"][..],
        &["--access", "sequential"],
        &["--explain"],
    ] {
        let pack = pack_elements("a.bin", "u8", "lz4");
        let ran = folder.xio(pack.iter().chain(option));
        assert_eq!(ran.status, 2, "{option:?}: {}", ran.stderr);
        assert!(
            ran.stderr.contains("say --store-as auto:lossless"),
            "{}",
            ran.stderr
        );
    }
}
