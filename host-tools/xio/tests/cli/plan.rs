//! `xio plan` says what `xio pack` does, and writes nothing; `xio pack` chooses chains by itself.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::Value;

use super::support::{Folder, Random, fixture, formats};

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// Real ids, weights and text, a Megatron pair, tensors, and what does not shrink.
fn dataset(folder: &Folder) {
    fs::create_dir_all(folder.path("d/model")).unwrap();
    for (from, to) in [
        ("megatron/text-i32.bin", "d/text.bin"),
        ("megatron/text-i32.idx", "d/text.idx"),
        ("safetensors/mixed.safetensors", "d/model/mixed.safetensors"),
        ("other/a.tar", "d/a.tar"),
    ] {
        fs::copy(formats(from), folder.path(to)).unwrap();
    }
    // All of each is tried: more would only take longer.
    for (from, to) in [
        ("o200k-u32.bin", "d/o200k.ids"),
        ("r50k-u32.bin", "d/r50k.ids"),
        ("weights-f32.bin", "d/weights.f32"),
    ] {
        let bytes = fs::read(fixture(from)).unwrap();
        folder.write(to, &bytes[..200_000]);
    }
    let readme = fs::read(formats("../../docs/format.md")).unwrap();
    folder.write("d/README", &readme);
    let mut random = Random::new(3);
    let noise: Vec<u8> = (0..20_000)
        .flat_map(|_| random.next().to_le_bytes())
        .collect();
    folder.write("d/noise.gz", &noise);
}

const TYPES: [&str; 4] = ["--as", "*.ids=u32", "--as", "*.f32=f32"];

/// Sizes of chains that only narrow are exact; those of others within 5 %, and some bytes for each frame that is cut in another way.
fn agree(folder: &Folder, options: &[&str]) -> (Value, Value) {
    let plan = folder.done([&["plan", "d", "--json"], options].concat());
    let pack = folder.done([&["pack", "d", "--json", "--force", "-o", "v.xio"], options].concat());
    let (plan, pack) = (json(&plan), json(&pack));
    let (planned, packed) = (
        plan["streams"].as_array().unwrap(),
        pack["streams"].as_array().unwrap(),
    );
    assert_eq!(planned.len(), packed.len());
    for (planned, packed) in planned.iter().zip(packed) {
        for same in ["type", "stored_chain", "source_bytes"] {
            assert_eq!(planned[same], packed[same], "{planned} {packed}");
        }
        let (said, made) = (
            planned["stored_bytes"].as_u64().unwrap(),
            packed["stored_bytes"].as_u64().unwrap(),
        );
        let is_exact = !["lz4", "zstd", "floatsplit", "rank"]
            .iter()
            .any(|codec| packed["stored_chain"].as_str().unwrap().contains(codec));
        assert_eq!(planned["exact"], is_exact);
        let room = if is_exact { 0 } else { made / 20 + 1024 };
        assert!(said.abs_diff(made) <= room, "{planned} {packed}");
    }
    for group in pack["groups"].as_array().unwrap() {
        let chosen = plan["groups"].as_array().unwrap().iter().find(|other| {
            ["kind", "type", "elements", "range"]
                .iter()
                .all(|key| other[*key] == group[*key])
        });
        assert_eq!(chosen.unwrap()["stored_chain"], group["stored_chain"]);
    }
    (plan, pack)
}

#[test]
fn pack_makes_what_plan_says() {
    let folder = Folder::new();
    dataset(&folder);
    for options in [
        &[][..],
        &["--prefer", "speed"],
        &["--access", "random:16KiB", "--store", "weights.f32=none"],
        &[
            "--store-as",
            "zstd:1",
            "--store",
            "*.ids=auto:lossless",
            "--frame",
            "128KiB",
        ],
    ] {
        let (plan, _) = agree(&folder, &[&TYPES, options].concat());
        let whole: u64 = plan["streams"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it["stored_bytes"].as_u64().unwrap())
            .sum();
        assert_eq!(plan["stored_bytes"], whole);
        folder.done(["verify", "v.xio"]);
        let _ = fs::remove_dir_all(folder.path("c"));
        folder.done(["cp", "v.xio", "c"]);
        for name in [
            "o200k.ids",
            "r50k.ids",
            "weights.f32",
            "text.bin",
            "README",
            "noise.gz",
            "model/mixed.safetensors",
        ] {
            assert!(
                folder.read(&format!("c/{name}")) == folder.read(&format!("d/{name}")),
                "{name}"
            );
        }
    }
}

/// What is chosen does not depend on threads or time.
#[test]
fn the_same_input_gives_the_same_volume() {
    let folder = Folder::new();
    dataset(&folder);
    let pack = |threads: &str, volume: &str| {
        let arguments = [
            "pack",
            "d",
            "--name",
            "d",
            "--threads",
            threads,
            "-o",
            volume,
        ];
        folder.done([&arguments[..], &TYPES].concat());
        folder.read(volume)
    };
    assert!(pack("1", "one.xio") == pack("3", "three.xio"));
}

/// Three times the sample: what is said of it is scaled.
#[test]
fn what_is_longer_than_the_sample_is_within_5_percent() {
    let folder = Folder::new();
    fs::create_dir(folder.path("d")).unwrap();
    let ids = fs::read(fixture("r50k-u32.bin")).unwrap();
    folder.write("d/r50k.ids", &ids.repeat(3));
    let (plan, _) = agree(&folder, &["--as", "*=u32", "--frame", "64KiB"]);
    assert_eq!(plan["groups"][0]["sampled_bytes"], 2 << 20);
    assert_eq!(plan["exact"], false);
}

#[test]
fn what_is_chosen_is_named_and_explained() {
    let folder = Folder::new();
    dataset(&folder);
    fs::copy(fixture("o200k-u32.bin"), folder.path("d/o200k.ids")).unwrap();
    let wish = ["--explain", "--prefer", "speed", "--frame", "64KiB"];
    let said = folder.done([&["pack", "d", "-o", "v.xio"], &wish[..], &TYPES].concat());
    assert!(
        said.contains("  1,701,376 bytes of u32 as bitpack:18: 957,024 bytes (ratio 1.78)\n"),
        "{said}"
    );
    assert!(said.contains(" bytes of f32 as none: "), "{said}");
    assert!(said.contains("raw elements: 1 run of u32, 1,701,376 bytes, 0..199,999; tried on 1,701,376 of them (100.0 %)\n"), "{said}");
    assert!(said.contains("\nbitpack:18 because it weighs least: stored bytes count 8 times a copied one (--prefer speed)"), "{said}");
    for chain in [
        "bitpack:24+shuffle+zstd:9",
        "bitpack:18+lz4hc:9",
        "none",
        "lz4",
    ] {
        assert!(
            said.lines()
                .any(|line| line.starts_with(&format!("{chain} "))),
            "{chain}: {said}"
        );
    }
    // Its table, 21,428 bytes, counts: without it these are a ratio of 2.69.
    let rank = said.lines().find(|line| line.starts_with("rank  "));
    assert!(
        rank.unwrap().contains(" 64KiB   2.60       12.29 "),
        "{said}"
    );
    // Without --explain, the best three of them, and why.
    let said = folder.done(["pack", "d/o200k.ids", "--as", "*=u32", "-o", "w.xio"]);
    let head = said
        .find("raw elements: 1 run of u32, 1,701,376 bytes")
        .unwrap();
    let lines: Vec<&str> = said[head..].lines().collect();
    assert!(lines[1].starts_with("chain "), "{said}");
    assert!(lines[2].starts_with("rank  "), "{said}");
    assert_eq!(lines[5], "31 more were tried: --explain shows all");
    assert!(
        lines[6].starts_with("rank because it weighs least: "),
        "{said}"
    );
    let random = folder.done([
        "plan",
        "d/o200k.ids",
        "--as",
        "*=u32",
        "--access",
        "random:16KiB",
        "--explain",
    ]);
    assert!(random.contains("fetched for 16KiB\n"), "{random}");
}

/// All of it, where every figure is known: 100 ids below 2^9, and three bytes.
#[test]
fn the_plan_of_small_files_is_exactly_this() {
    let folder = Folder::new();
    fs::create_dir(folder.path("d")).unwrap();
    let mut random = Random::new(5);
    let mut ids: Vec<u16> = (0..3998).map(|_| (random.next() >> 23) as u16).collect();
    ids.extend([0, 511]);
    let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
    folder.write("d/a.bin", &bytes);
    folder.write("d/none", b"");
    let before = folder.names();
    let said = folder.done([
        "plan",
        "d",
        "--as",
        "*.bin=u16",
        "--present-as",
        "source,u32",
    ]);
    let wanted = "\
file   format        type   count  min..max  stored as  bytes  stored  bits/value
a.bin  raw elements  u16    4,000    0..511  bitpack:9  8,000   4,500        9.00
none   unknown       bytes      0                           0       0           -

2 files of 8,000 bytes, stored in 4,500 bytes (ratio 1.78; exact), in a volume of about 94,208 bytes (ratio 0.08): it also holds checksums, the filesystem and the manifest
a disk of 32,768 bytes: a filesystem on the whole disk, 8,192 bytes of it metadata; on top comes /.xio/manifest.json

one read of all of it, decoded  presented       store      wire      PCIe  host memory  against plain files
plain files, no xio             as they are  7.81 KiB  7.81 KiB  7.81 KiB     7.81 KiB
at the storage node             source       92.0 KiB  7.81 KiB  7.81 KiB     7.81 KiB  more: store
at the host's DPU               source       92.0 KiB  92.0 KiB  7.81 KiB     7.81 KiB  more: store, wire
in the host, no offload         source       92.0 KiB  92.0 KiB  92.0 KiB     99.8 KiB  more: store, wire, PCIe, memory
at the storage node             u32          92.0 KiB  15.6 KiB  15.6 KiB     15.6 KiB  more: store, wire, PCIe, memory
at the host's DPU               u32          92.0 KiB  92.0 KiB  15.6 KiB     15.6 KiB  more: store, wire, PCIe, memory
in the host, no offload         u32          92.0 KiB  92.0 KiB  92.0 KiB      108 KiB  more: store, wire, PCIe, memory
! 1 file without a header: the reader hard-codes the type (nanoGPT's train.py has np.uint16); a view of another type needs that line changed
";
    assert!(said.starts_with(wanted), "{said}");
    assert_eq!(folder.names(), before, "it writes nothing");
}

#[test]
fn many_files_are_shown_by_kind() {
    let folder = Folder::new();
    fs::create_dir(folder.path("d")).unwrap();
    for file in 0..30 {
        folder.write(&format!("d/{file:02}.ids"), &[7; 400].repeat(file + 1));
    }
    let said = folder.done(["plan", "d", "--as", "*.ids=u8"]);
    let first: Vec<&str> = said.lines().take(2).collect();
    assert!(
        first[0].starts_with("kind          files  type    count"),
        "{said}"
    );
    assert!(
        first[1].starts_with("raw elements     30  u8    186,000      7..7  bitpack:3"),
        "{said}"
    );
    assert!(
        said.contains("the largest of 30 files (--all shows each):\n"),
        "{said}"
    );
    assert!(
        said.contains("\n29.ids ") && said.contains("\n20.ids ") && !said.contains("\n19.ids "),
        "{said}"
    );
    let all = folder.done(["plan", "d", "--as", "*.ids=u8", "--all"]);
    assert!(
        all.contains("\n00.ids ") && all.contains("\n29.ids "),
        "{all}"
    );
}

#[test]
fn what_pack_would_refuse_is_said_with_its_place() {
    let folder = Folder::new();
    fs::create_dir(folder.path("d")).unwrap();
    let mut npy = fs::read(formats("npy/ids-v1.npy")).unwrap();
    npy.truncate(npy.len() - 1);
    folder.write("d/short.npy", &npy);
    let ran = folder.xio(["plan", "d"]);
    assert_eq!(
        (ran.status, ran.stderr.as_str()),
        (1, "error: 'xio pack' would refuse this: see above\n")
    );
    assert!(
        ran.stdout
            .contains("! short.npy: not a valid npy file: at byte ")
            && ran.stdout.contains("--keep 'short.npy'"),
        "{}",
        ran.stdout
    );
    let kept = folder.done(["plan", "d", "--keep", "short.npy"]);
    assert!(!kept.contains("not a valid"), "{kept}");

    fs::remove_file(folder.path("d/short.npy")).unwrap();
    for name in ["text-i32.bin", "text-i32.idx"] {
        fs::copy(formats("megatron").join(name), folder.path("d").join(name)).unwrap();
    }
    let ran = folder.xio(["plan", "d", "--present-as", "u32"]);
    assert_eq!(ran.status, 1);
    assert!(
        ran.stdout
            .contains("its index has no u32: Megatron itself takes uint16"),
        "{}",
        ran.stdout
    );
    let packed = folder.xio(["pack", "d", "--present-as", "u32", "-o", "v.xio"]);
    assert!(packed.status != 0);
    // A type that does not hold the values.
    fs::copy(fixture("o200k-u32.bin"), folder.path("o200k")).unwrap();
    let ran = folder.xio(["plan", "o200k", "--as", "*=u32", "--present-as", "u16"]);
    assert_eq!(ran.status, 1);
    assert!(
        ran.stdout
            .contains("! --present-as u16: o200k: values of 0..199999 do not fit u16"),
        "{}",
        ran.stdout
    );
    assert_eq!(
        folder
            .xio([
                "pack",
                "o200k",
                "--as",
                "*=u32",
                "--present-as",
                "u16",
                "-o",
                "v.xio"
            ])
            .status,
        1
    );
    // A chain that does not hold the values.
    let ran = folder.xio(["plan", "d", "--store-as", "u8"]);
    assert_eq!(ran.status, 1);
    assert!(
        ran.stderr.contains("cannot be stored as u8"),
        "{}",
        ran.stderr
    );
}

#[test]
fn what_a_person_should_know_is_said() {
    let folder = Folder::new();
    fs::create_dir(folder.path("d")).unwrap();
    fs::copy(fixture("tiny-u32.bin"), folder.path("d/tokens")).unwrap();
    fs::copy(fixture("weights-f32.bin"), folder.path("d/w.f32")).unwrap();
    for name in ["text-i32.bin", "text-i32.idx"] {
        fs::copy(formats("megatron").join(name), folder.path("d").join(name)).unwrap();
    }
    fs::copy(formats("llmc/ids-u32.bin"), folder.path("d/llmc.bin")).unwrap();
    fs::copy(formats("other/a.jpeg"), folder.path("d/a.jpeg")).unwrap();
    let mut random = Random::new(9);
    let wide: Vec<u8> = (0..20_000)
        .flat_map(|_| random.next().to_le_bytes())
        .collect();
    folder.write("d/hashes.u32", &wide);
    symlink("gone", folder.path("d/link")).unwrap();
    let said = folder.done(["plan", "d", "--as", "*.f32=f32", "--as", "*.u32=u32"]);
    for line in [
        "! link: a link that leads nowhere; it is kept as it is\n",
        "! tokens: no known format, but it may be u32: the highest of every four bytes is zero, as in token ids; if it is, say so: --as 'tokens=u32'\n",
        "saves nothing: the largest needs 32 of 32 bits; compression does not pay either",
        "! 1,572,864 bytes of f32 and f64: floats are never narrowed in the store",
        "! 2 files without a header: the reader hard-codes the type",
        "! 1 file of llm.c, 1 of them u32: its own loader",
        "! 1 file of a Megatron pair in int32 with ids below 65,500 (text-i32.bin): Megatron takes uint16 for these; --present-as u16 presents half the bytes, index and all; \
         u16 does not hold the integers of 1 file (hashes.u32): leave them as they are with --keep 'hashes.u32'\n",
        "! 1 file of JPEG (a.jpeg): presented as they are: it is compressed already\n",
    ] {
        assert!(said.contains(line), "{line}\n{said}");
    }
    // It takes the advice.
    let narrow = folder.done([
        "plan",
        "d",
        "--as",
        "*.f32=f32",
        "--as",
        "*.u32=u32",
        "--as",
        "tokens=u32",
        "--present-as",
        "u16",
        "--keep",
        "hashes.u32",
    ]);
    assert!(
        !narrow.contains("may be u32") && !narrow.contains("ids below 65,500"),
        "{narrow}"
    );
}

/// Each kind of a pair is named, and what is said to be kept is what a type has to be kept from.
#[test]
fn megatron_pairs_are_named_with_what_they_can_become() {
    let folder = Folder::new();
    fs::create_dir(folder.path("d")).unwrap();
    for name in ["a", "b", "wide", "wider", "marked"] {
        for ending in ["bin", "idx"] {
            let from = formats(&format!("megatron/text-i32.{ending}"));
            fs::copy(from, folder.path(&format!("d/{name}.{ending}"))).unwrap();
        }
    }
    for (name, id) in [("wide", 65_536), ("wider", i32::MAX), ("marked", -1)] {
        let path = format!("d/{name}.bin");
        let mut ids = folder.read(&path);
        ids[8..12].copy_from_slice(&id.to_le_bytes());
        folder.write(&path, &ids);
    }
    let said = folder.done(["plan", "d"]);
    let keep = ["marked.bin", "wide.bin", "wider.bin"].map(|name| format!("--keep '{name}'"));
    let keep = keep.join(" ");
    for line in [
        format!(
            "! 2 files of a Megatron pair in int32 with ids below 65,500 (a.bin, b.bin): Megatron takes uint16 for these; --present-as u16 presents half the bytes, \
             index and all; u16 does not hold the integers of 3 files (marked.bin, wide.bin, wider.bin): leave them as they are with {keep}\n"
        ),
        "! 1 file of a Megatron pair with values below 0, marks such as -1 (marked.bin): uint16 does not hold these, so a view is int32\n".to_owned(),
        "! 2 files of a Megatron pair with ids over 65,499 (wide.bin, wider.bin): Megatron's index has no uint32, so a view is int32, however few bits are stored\n"
            .to_owned(),
    ] {
        assert!(said.contains(&line), "{line}\n{said}");
    }
    let narrow = ["pack", "d", "--present-as", "u16", "-o", "v.xio"];
    let ran = folder.xio(narrow);
    assert_eq!(ran.status, 1, "{}", ran.stdout);
    let keep = keep.replace('\'', "");
    let keep: Vec<&str> = keep.split(' ').collect();
    folder.done([&narrow[..], &keep].concat());
    folder.done(["cp", "v.xio", "c"]);
    for (name, part) in [("a", 2), ("b", 2), ("wide", 1), ("wider", 1), ("marked", 1)] {
        let bytes = |folder_name: &str| folder.read(&format!("{folder_name}/{name}.bin")).len();
        assert_eq!(bytes("c") * part, bytes("d"), "{name}");
    }
}

/// What docs/datasets.md shows is what the program prints.
#[test]
fn the_documented_plan_is_what_is_printed() {
    let root = formats("../..");
    let page = fs::read_to_string(root.join("docs/datasets.md")).unwrap();
    let (_, shown) = page.split_once("$ xio plan fixtures/dataset\n").unwrap();
    let (shown, _) = shown.split_once("```").unwrap();
    let plan = super::support::xio()
        .current_dir(root)
        .args(["plan", "fixtures/dataset"])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8(plan.stdout).unwrap(), shown);
}

#[test]
fn wishes_that_cannot_be_are_refused() {
    let folder = Folder::new();
    folder.write("a.bin", &[1; 64]);
    folder.fails(
        2,
        "--store and --unzip are for files whose format is recognised; with --dtype, say how the elements are stored with --store-as",
        &["pack", "a.bin", "--dtype", "u8", "--unzip", "-o", "v.xio"],
    );
    let ran = folder.xio(["plan", "a.bin", "--access", "random"]);
    assert_eq!(ran.status, 2);
    assert!(
        ran.stderr.contains("it is 'sequential' or 'random:SIZE'"),
        "{}",
        ran.stderr
    );
    let ran = folder.xio(["plan", "a.bin", "--frame", "1GiB"]);
    assert_eq!(ran.status, 2);
    assert!(
        ran.stderr.contains("a frame has at most 4194304"),
        "{}",
        ran.stderr
    );
    let gone = folder.xio(["plan", "gone"]);
    assert_eq!(gone.status, 3);
}
