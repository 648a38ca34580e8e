//! What goes in comes out: every chain, around the ends of frames, batches and blocks.

use super::support::{Folder, Random, fixture};

/// `count` values of `bytes` bytes below `values`, among them runs, so that compressors have work.
fn source(count: usize, bytes: usize, values: u32) -> Vec<u8> {
    let mut random = Random::new(count as u64);
    let mut value = 0;
    (0..count)
        .flat_map(|_| {
            if !random.next().is_multiple_of(3) {
                value = u64::from(random.next() % values);
            }
            value.to_le_bytes()[..bytes].to_vec()
        })
        .collect()
}

/// The matrix of all chains and lengths is tested where the writer is; here are a few of each kind, through the program.
#[test]
fn a_chain_of_each_kind_gives_back_every_length() {
    let folder = Folder::new();
    for (dtype, bytes, chain) in [
        ("u32", 4, "none"),
        ("u32", 4, "u16"),
        ("u64", 8, "bitpack:17"),
        ("u16", 2, "lz4"),
        ("f32", 4, "shuffle+zstd:1"),
        ("u16", 2, "rank"),
        ("u32", 4, "rank+zstd:1"),
        ("bf16", 2, "floatsplit"),
    ] {
        let frame = 4096 / bytes;
        for count in [0, 1, frame - 1, frame + 1] {
            let source = source(count, bytes, 65_536);
            folder.write("in.bin", &source);
            folder.done([
                "pack",
                "in.bin",
                "--dtype",
                dtype,
                "--store-as",
                chain,
                "--frame",
                "4KiB",
                "--force",
                "-o",
                "v.xio",
            ]);
            folder.done(["unpack", "v.xio", "--force", "-o", "out.bin"]);
            assert!(folder.read("out.bin") == source, "{dtype} {chain} {count}");
            folder.done(["verify", "v.xio"]);
        }
    }
}

#[test]
fn long_inputs_and_every_parameter_give_back_the_same() {
    let folder = Folder::new();
    let source = source(700_001, 4, 65_536);
    folder.write("in.bin", &source);
    for (chain, more) in [
        ("none", &["--lba", "512"][..]),
        ("none", &["--integrity", "none"]),
        ("bitpack:17", &["--threads", "5"]),
        ("u16+lz4", &["--frame", "1MiB"]),
        ("u16+zstd:3", &["--frame", "4MiB", "--lba", "512"]),
        ("shuffle+lz4", &["--frame", "1000"]),
        ("rank+lz4hc:9", &["--threads", "3"]),
    ] {
        let pack = [
            &[
                "pack",
                "in.bin",
                "--dtype",
                "u32",
                "--store-as",
                chain,
                "--force",
                "-o",
                "v.xio",
            ],
            more,
        ]
        .concat();
        folder.done(pack);
        folder.done(["unpack", "v.xio", "--force", "-o", "out.bin"]);
        assert!(folder.read("out.bin") == source, "{chain} {more:?}");
        folder.done(["verify", "v.xio"]);
        folder.done(["verify", "v.xio", "--against", "in.bin"]);
    }
}

#[test]
fn several_files_start_at_blocks_or_follow_end_to_end() {
    let folder = Folder::new();
    let parts: Vec<Vec<u8>> = [3, 0, 5_000, 1]
        .iter()
        .map(|count| source(*count, 2, 65_536))
        .collect();
    let names = ["a.bin", "b.bin", "c.bin", "d.bin"];
    for (name, part) in names.iter().zip(&parts) {
        folder.write(name, part);
    }
    for (lba, concat) in [("4096", false), ("512", false), ("4096", true)] {
        let mut expected = Vec::new();
        for part in &parts {
            if !concat {
                expected.resize(expected.len().next_multiple_of(lba.parse().unwrap()), 0);
            }
            expected.extend_from_slice(part);
        }
        let end: &[&str] = if concat { &["--concat"] } else { &[] };
        let pack = [
            "pack",
            "--dtype",
            "u16",
            "--store-as",
            "bitpack:16+lz4",
            "--lba",
            lba,
            "--force",
            "-o",
            "v.xio",
        ];
        folder.done([&pack, &names[..], end].concat());
        folder.done(["unpack", "v.xio", "--force", "-o", "out.bin"]);
        assert!(folder.read("out.bin") == expected, "{lba} {concat}");
        let against: Vec<&str> = names.iter().flat_map(|name| ["--against", *name]).collect();
        folder.done([&["verify", "v.xio"], &against[..], end].concat());
        folder.done(["verify", "v.xio"]);
    }
}

#[test]
fn the_volume_is_the_same_whatever_the_number_of_threads() {
    let folder = Folder::new();
    let r50k = fixture("r50k-u32.bin");
    for chain in ["none", "bitpack:17", "u16+lz4", "u16+zstd:3"] {
        for threads in ["1", "2", "3", "8"] {
            let name = format!("{threads}.xio");
            let pack = [
                "pack",
                r50k.to_str().unwrap(),
                "--dtype",
                "u32",
                "--store-as",
                chain,
                "--threads",
                threads,
                "--force",
                "-o",
                &name,
            ];
            folder.done(pack);
            assert!(
                folder.read("1.xio") == folder.read(&name),
                "{chain} {threads}"
            );
        }
    }
}

#[test]
fn real_data_gives_back_the_same() {
    let folder = Folder::new();
    for (name, dtype, chain) in [
        ("r50k-u32.bin", "u32", "u16+lz4hc"),
        ("o200k-u32.bin", "u32", "bitpack:18+zstd:3"),
        ("weights-f32.bin", "f32", "shuffle+zstd:3"),
        ("weights-f32.bin", "f32", "floatsplit"),
    ] {
        let path = fixture(name);
        let path = path.to_str().unwrap();
        folder.done([
            "pack",
            path,
            "--dtype",
            dtype,
            "--store-as",
            chain,
            "--force",
            "-o",
            "v.xio",
        ]);
        folder.done(["unpack", "v.xio", "--force", "-o", "out.bin"]);
        assert!(
            folder.read("out.bin") == std::fs::read(path).unwrap(),
            "{name}"
        );
        folder.done(["verify", "v.xio", "--against", path]);
    }
}
