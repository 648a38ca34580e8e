//! Frames stored by a trained dictionary: what goes in comes out, the volume says what it has, and what is too short for one.

use std::fs;

use serde_json::Value;

use super::support::{Folder, Random, fixture, pack_elements};

/// Lines of some sixty kinds, which a short frame has few of, with numbers that they have not in common.
fn lines(count: usize, seed: u64) -> Vec<u8> {
    let mut letters = Random::new(7);
    let mut word = |_: usize| -> String {
        (0..100)
            .map(|_| char::from(b'a' + (letters.next() % 26) as u8))
            .collect()
    };
    let kinds: Vec<String> = (0..61).map(&mut word).collect();
    let mut random = Random::new(seed);
    let mut line = |_: usize| {
        let (a, b) = (random.next(), random.next());
        let kind = &kinds[a as usize % kinds.len()];
        format!("{{\"step\": {}, \"{kind}\": {b}}}\n", a % 9973)
    };
    (0..count).flat_map(|it| line(it).into_bytes()).collect()
}

fn json(folder: &Folder, arguments: &[&str]) -> Value {
    serde_json::from_str(&folder.done(arguments)).unwrap()
}

/// The streams of `v.xio`: chain, and length of the dictionary.
fn streams(folder: &Folder) -> Vec<(String, Option<u64>)> {
    let seen = json(folder, &["inspect", "v.xio", "--json"]);
    let streams = seen["streams"].as_array().unwrap().iter();
    streams
        .map(|it| {
            let chain = it["stored_chain"].as_str().unwrap().to_owned();
            (chain, it["dictionary"]["bytes"].as_u64())
        })
        .collect()
}

/// Ids, text and bytes: a stream of each, each with a dictionary of its own, in one volume, which is the same again whatever the threads.
#[test]
fn a_folder_comes_back_from_streams_with_a_dictionary_each() {
    let folder = Folder::new();
    fs::create_dir(folder.path("d")).unwrap();
    let ids = fs::read(fixture("r50k-u32.bin")).unwrap();
    folder.write("d/a.bin", &ids[..1_200_000]);
    folder.write("d/b.bin", &ids[1_200_000..]);
    let narrow = ids.as_chunks::<4>().0.iter().flat_map(|it| [it[0], it[1]]);
    folder.write("d/c.u16", &narrow.take(500_000).collect::<Vec<u8>>());
    folder.write("d/log.jsonl", &lines(20_000, 1));
    folder.write("d/more.jsonl", &lines(5_000, 2));
    folder.write("d/plain.txt", b"a few words");
    let pack = |output, threads| {
        let typed = ["pack", "d", "--as", "*.bin=u32", "--as", "*.u16=u16"];
        let stored = [
            "--store",
            "*.bin=rank+zstd-dict:9",
            "--store",
            "*.u16=rank+zstd-dict:3",
            "--store",
            "*.jsonl=zstd-dict:9",
            "--store",
            "*=none",
            "--frame",
            "4KiB",
        ];
        let rest = ["--force", "--threads", threads, "-o", output];
        folder.done([&typed[..], &stored, &rest].concat())
    };
    let told = pack("v.xio", "3");
    assert!(
        told.contains(" bytes of u32 as rank+zstd-dict:9: "),
        "{told}"
    );
    folder.done(["diff", "d", "v.xio"]);
    folder.done(["verify", "v.xio"]);
    pack("again.xio", "1");
    assert!(folder.read("v.xio") == folder.read("again.xio"));

    let streams = streams(&folder);
    let of = |chain: &str| {
        streams
            .iter()
            .filter(|it| it.0 == chain)
            .collect::<Vec<_>>()
    };
    for chain in ["rank+zstd-dict:9", "rank+zstd-dict:3", "zstd-dict:9"] {
        let found = of(chain);
        assert!(
            matches!(found[..], [(_, Some(bytes))] if *bytes >= 1024),
            "{chain}: {streams:?}"
        );
    }
    assert!(!of("none").is_empty() && of("none").iter().all(|it| it.1.is_none()));

    // A stream's steps name its tables, each another.
    let seen = json(&folder, &["inspect", "v.xio", "--json"]);
    let steps = seen["views"][0]["manifest"]["streams"]
        .as_array()
        .unwrap()
        .iter();
    let steps = steps.filter(|it| it["stored_chain"].as_str().unwrap().contains("zstd-dict"));
    let mut tables: Vec<&str> = steps
        .flat_map(|it| it["steps"].as_array().unwrap())
        .map(|it| it["table"].as_str().unwrap())
        .collect();
    assert_eq!(tables.len(), 5);
    tables.sort_unstable();
    tables.dedup();
    assert_eq!(tables.len(), 5);

    let text = folder.done(["inspect", "v.xio"]);
    assert_eq!(
        text.matches(" has a dictionary: blob ").count(),
        3,
        "{text}"
    );
    assert_eq!(
        text.matches(" has a rank table: blob ").count(),
        2,
        "{text}"
    );
}

/// Several inputs share the ranks and the dictionary; rows have scales of their own, and so a dictionary.
#[test]
fn elements_come_back_and_inputs_share_what_they_can() {
    let folder = Folder::new();
    let ids = fs::read(fixture("o200k-u32.bin")).unwrap();
    folder.write("a.bin", &ids[..900_004]);
    folder.write("b.bin", &ids[900_004..]);
    let weights = fs::read(fixture("weights-f32.bin")).unwrap();
    folder.write("w.bin", &weights);
    folder.write("log", &lines(10_000, 3));
    for (files, dtype, chain, frame, dictionaries) in [
        (
            &["a.bin", "b.bin"][..],
            "u32",
            "rank+zstd-dict:9",
            "4KiB",
            1,
        ),
        (&["a.bin"], "u32", "zstd-dict:1", "1KiB", 1),
        (&["b.bin", "a.bin"], "u32", "shuffle+zstd-dict:3", "2000", 1),
        (&["w.bin"], "f32", "bf16+zstd-dict:3", "8KiB", 1),
        (
            &["w.bin", "w.bin"],
            "f32",
            "int8:384+zstd-dict:3",
            "4KiB",
            1,
        ),
        (&["log"], "u8", "zstd-dict:22", "4KiB", 1),
        (&["log"], "u8", "bitpack:7+zstd-dict:3", "4KiB", 1),
    ] {
        let how = [
            "--concat",
            "--dtype",
            dtype,
            "--store-as",
            chain,
            "--frame",
            frame,
        ];
        let pack = |output| [&["pack"], files, &how, &["--force", "-o", output]].concat();
        let packed = folder.xio(pack("v.xio"));
        assert_eq!(packed.status, 0, "{chain}: {}", packed.stderr);
        folder.done(["verify", "v.xio"]);
        folder.xio(pack("again.xio"));
        assert!(folder.read("v.xio") == folder.read("again.xio"), "{chain}");
        let seen = json(&folder, &["inspect", "v.xio", "--json"]);
        let blobs = seen["streams"].as_array().unwrap().iter();
        let mut blobs: Vec<u64> = blobs
            .map(|it| it["dictionary"]["blob"].as_u64().unwrap())
            .collect();
        blobs.dedup();
        assert_eq!(blobs.len(), dictionaries, "{chain}");
        if dtype == "f32" {
            continue;
        }
        folder.done(["unpack", "v.xio", "--force", "-o", "out"]);
        let all: Vec<u8> = files.iter().flat_map(|it| folder.read(it)).collect();
        assert!(folder.read("out") == all, "{chain}");
    }
}

/// Of what is too short nobody trains a dictionary: it is stored without one, and a note says so.
#[test]
fn what_is_too_short_for_a_dictionary_is_stored_without() {
    let folder = Folder::new();
    let ids = fs::read(fixture("r50k-u32.bin")).unwrap();
    folder.write("few.bin", &ids[..20_000]);
    let few = folder.xio(
        [
            &pack_elements("few.bin", "u32", "rank+zstd-dict:9")[..],
            &["--frame", "4KiB"],
        ]
        .concat(),
    );
    let why = "note: few.bin: stored by rank+zstd:9, without a dictionary: it has 5 frames to be trained on, and at least 8 are needed; shorter ones would be more\n";
    assert_eq!((few.status, few.stderr.as_str()), (0, why));
    assert_eq!(streams(&folder), [("rank+zstd:9".to_owned(), None)]);
    folder.done(["unpack", "v.xio", "-o", "out"]);
    assert!(folder.read("out") == ids[..20_000]);

    folder.write("none.bin", b"");
    let none = folder.xio(
        [
            &pack_elements("none.bin", "u32", "zstd-dict:9")[..],
            &["--force"],
        ]
        .concat(),
    );
    let why = "note: none.bin: stored by zstd:9, without a dictionary: it has 0 frames to be trained on, and at least 8 are needed; shorter ones would be more\n";
    assert_eq!((none.status, none.stderr.as_str()), (0, why));

    // Scales are of each input, and so dictionaries are: one has none.
    let floats = (0..200_000u32).flat_map(|n| ((n % 1009 * (n % 31)) as f32).to_le_bytes());
    let floats: Vec<u8> = floats.collect();
    folder.write("long.f32", &floats);
    folder.write("short.f32", &floats[..4000]);
    let inputs = [
        "pack",
        "long.f32",
        "short.f32",
        "--dtype",
        "f32",
        "--store-as",
        "int8:100+zstd-dict:9",
    ];
    let both = folder.xio([&inputs[..], &["--force", "-o", "v.xio"]].concat());
    let why = "note: short.f32: stored by int8:100+zstd:9, without a dictionary: it has 1 frame to be trained on, and at least 8 are needed; shorter ones would be more\n";
    assert_eq!(both.status, 0, "{}", both.stderr);
    assert!(both.stderr.starts_with(why), "{}", both.stderr);
    let chains: Vec<_> = streams(&folder).into_iter().map(|it| it.0).collect();
    assert_eq!(chains, ["int8:100+zstd-dict:9", "int8:100+zstd:9"]);
    folder.done(["verify", "v.xio"]);
    fs::remove_file(folder.path("v.xio")).unwrap();

    let error = "standard input: zstd-dict:3 reads its input twice, first to train a dictionary; write it to a file, and pack that";
    let named = [
        &pack_elements("-", "u8", "zstd-dict:3")[..],
        &["--name", "n"],
    ]
    .concat();
    folder.fails(2, error, &named);

    // Its header is a stream of bytes.
    fs::create_dir(folder.path("d")).unwrap();
    let mut array =
        b"\x93NUMPY\x01\x00\x76\x00{'descr': '<u4', 'fortran_order': False, 'shape': (493438,), }"
            .to_vec();
    array.resize(127, b' ');
    array.push(b'\n');
    array.extend(&ids);
    folder.write("d/ids.npy", &array);
    let how = ["d", "--store-as", "rank+zstd-dict:9", "--frame", "4KiB"];
    let packed = folder.xio([&["pack"], &how[..], &["-o", "v.xio"]].concat());
    let note = "the u8 of d/ids.npy: stored by zstd:9, without a dictionary: it has 1 frame to be trained on, and at least 8 are needed; shorter ones would be more";
    assert_eq!(
        (packed.status, packed.stderr),
        (0, format!("note: {note}\n"))
    );
    folder.done(["diff", "d", "v.xio"]);
    let mut chains: Vec<_> = streams(&folder).into_iter().map(|it| it.0).collect();
    chains.sort();
    chains.retain(|chain| chain.contains("zstd"));
    assert_eq!(chains, ["rank+zstd-dict:9", "zstd:9"]);
    let plan = folder.xio([&["plan"], &how[..]].concat());
    assert_eq!(plan.status, 0, "{}", plan.stderr);
    assert!(
        plan.stdout.contains(&format!("! {note}\n")),
        "{}",
        plan.stdout
    );
}

/// Whichever reading of the file finds it.
#[test]
fn a_value_that_does_not_fit_is_named_with_its_place() {
    let folder = Folder::new();
    let mut values = vec![5u32; 300_000];
    values[290_001] = 70_000;
    let bytes: Vec<u8> = values.iter().flat_map(|it| it.to_le_bytes()).collect();
    fs::create_dir(folder.path("d")).unwrap();
    folder.write("d/a.bin", &[9, 0, 0, 0].repeat(1000));
    folder.write("d/b.bin", &bytes);
    let error = "d/b.bin: element 290001 (byte 1160004) is 70000, which does not fit u16 (0..=65535): it needs 17 bits, and later elements may need more; choose a wider stored chain";
    folder.fails(
        1,
        error,
        &pack_elements("d/b.bin", "u32", "u16+zstd-dict:3"),
    );
    let store = ["--as", "*=u32", "--store-as", "u16+zstd-dict:3"];
    folder.fails(
        1,
        error,
        &[&["pack", "d"], &store[..], &["-o", "v.xio"]].concat(),
    );
}

/// What is chosen by itself has been worth it: with the dictionary the volume is shorter than by the same without.
#[test]
fn a_dictionary_is_chosen_where_it_saves_more_than_it_takes() {
    let folder = Folder::new();
    let access = ["--access", "random:4KiB", "--prefer", "ratio", "--json"];
    let chosen = |file: &str, dtype| {
        let pack = pack_elements(file, dtype, "auto:lossless");
        let told = json(&folder, &[&pack[..], &access, &["--force"]].concat());
        let chain = told["stored_chain"].as_str().unwrap().to_owned();
        let frame = told["choice"]["frame_bytes"].to_string();
        (chain, frame, told["volume_bytes"].as_u64().unwrap())
    };
    folder.write("log", &lines(30_000, 4));
    let (chain, frame, bytes) = chosen("log", "u8");
    assert!(chain.contains("zstd-dict:"), "{chain}");
    folder.done(["unpack", "v.xio", "-o", "out"]);
    assert!(folder.read("out") == folder.read("log"));
    let plain = chain.replace("zstd-dict:", "zstd:");
    let pack = pack_elements("log", "u8", &plain);
    let without = json(
        &folder,
        &[&pack[..], &["--frame", &frame, "--json", "--force"]].concat(),
    );
    let without = without["volume_bytes"].as_u64().unwrap();
    assert!(bytes < without, "{chain}: {bytes}, {plain}: {without}");

    // Nothing in common.
    let mut random = Random::new(5);
    let noise = (0..500_000).flat_map(|_| random.next().to_le_bytes());
    folder.write("noise", &noise.collect::<Vec<u8>>());
    assert_eq!(chosen("noise", "u32").0, "none");
    // Much, but too little of it.
    folder.write("short", &lines(300, 6));
    assert!(!chosen("short", "u8").0.contains("zstd-dict"));
}
