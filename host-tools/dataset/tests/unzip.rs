//! Compressed MDS shards become what streaming's writer had before it compressed them, or nothing is packed.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use bzip2::read::MultiBzDecoder;
use dataset::{Catalogue, DatasetError, Hints, Kind, Scan, Unzipped, unzip};
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use sha1::{Digest, Sha1};
use tempfile::TempDir;

/// A dataset that streaming's writer compressed with bz2, in a folder with other names.
struct Zipped {
    folder: TempDir,
}

const SHARDS: [&str; 4] = [
    "shard.00000.mds",
    "shard.00001.mds",
    "shard.00002.mds",
    "shard.00003.mds",
];

impl Zipped {
    fn new() -> Zipped {
        let zipped = Zipped {
            folder: TempDir::new().unwrap(),
        };
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/formats/mds/zip");
        fs::create_dir_all(zipped.path("")).unwrap();
        for entry in fs::read_dir(fixture).unwrap() {
            let from = entry.unwrap().path();
            fs::copy(&from, zipped.path(from.file_name().unwrap())).unwrap();
        }
        zipped
    }

    fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.folder.path().join("d/train").join(name)
    }

    fn merged_index(&self) -> Value {
        let mut merged = self.index();
        for shard in merged["shards"].as_array_mut().unwrap() {
            for file in ["raw_data", "zip_data"] {
                let name = shard[file]["basename"].as_str().unwrap().to_owned();
                shard[file]["basename"] = json!(format!("train/{name}"));
            }
        }
        merged
    }

    fn index(&self) -> Value {
        serde_json::from_slice(&fs::read(self.path("index.json")).unwrap()).unwrap()
    }

    /// Changes what the index says of the shards.
    fn change_index(&self, change: impl Fn(&mut Value)) {
        let mut index = self.index();
        index["shards"]
            .as_array_mut()
            .unwrap()
            .iter_mut()
            .for_each(change);
        fs::write(self.path("index.json"), index.to_string()).unwrap();
    }

    /// The shards in another compression, with what the index says of it.
    fn recompress(&self, compression: &str, suffix: &str, compress: impl Fn(&[u8]) -> Vec<u8>) {
        for name in SHARDS {
            let zip = self.path(format!("{name}.bz2"));
            fs::write(
                self.path(format!("{name}.{suffix}")),
                compress(&bunzip(&zip)),
            )
            .unwrap();
            fs::remove_file(zip).unwrap();
        }
        self.change_index(|shard| {
            shard["compression"] = json!(compression);
            let name = shard["raw_data"]["basename"].as_str().unwrap().to_owned();
            shard["zip_data"]["basename"] = json!(format!("{name}.{suffix}"));
        });
    }

    fn unzip(&self) -> Result<(Scan, Unzipped), DatasetError> {
        let spool = self.folder.path().join("spool");
        fs::create_dir(&spool).unwrap();
        let mut scan = Scan::new(&[self.folder.path().join("d")]).unwrap();
        let unzipped = unzip(&mut scan, &spool, &mut |_| ())?;
        Ok((scan, unzipped))
    }

    fn refusal(&self) -> String {
        self.unzip().unwrap_err().to_string()
    }
}

fn bunzip(path: &Path) -> Vec<u8> {
    let mut raw = Vec::new();
    let zip = fs::read(path).unwrap();
    MultiBzDecoder::new(zip.as_slice())
        .read_to_end(&mut raw)
        .unwrap();
    raw
}

fn zstd(raw: &[u8]) -> Vec<u8> {
    let mut zip = vec![0; zstd_safe::compress_bound(raw.len())];
    let bytes = zstd_safe::compress(&mut zip[..], raw, 3).unwrap();
    zip.truncate(bytes);
    zip
}

fn gz(raw: &[u8]) -> Vec<u8> {
    let mut zip = GzEncoder::new(Vec::new(), flate2::Compression::default());
    zip.write_all(raw).unwrap();
    zip.finish().unwrap()
}

/// The shards have the digests that their writer gave them, and the index says of them what it says of shards that are raw.
fn assert_is_raw(zipped: &Zipped, scan: &Scan) {
    let source = zipped.index();
    let mut wanted = source.clone();
    for shard in wanted["shards"].as_array_mut().unwrap() {
        shard["compression"] = Value::Null;
        shard["zip_data"] = Value::Null;
    }
    let read = |name: &str| {
        let path = format!("train/{name}");
        let entry = scan.entries.iter().find(|it| it.path == path.as_bytes());
        fs::read(&scan.file(entry.unwrap().file().unwrap()).unwrap().path).unwrap()
    };
    let index: Value = serde_json::from_slice(&read("index.json")).unwrap();
    assert_eq!(index, wanted);
    for shard in source["shards"].as_array().unwrap() {
        let raw = &shard["raw_data"];
        let found = read(raw["basename"].as_str().unwrap());
        assert_eq!(json!(found.len()), raw["bytes"]);
        let sha1 = Sha1::digest(&found)
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect::<String>();
        assert_eq!(json!(sha1), raw["hashes"]["sha1"]);
    }
}

#[test]
fn shards_are_what_they_were_before_they_were_compressed() {
    let zipped = Zipped::new();
    for name in ["shard.00000.mds.a", "shard.00000.mdt", "a", "z"] {
        fs::write(zipped.path(name), name).unwrap();
    }
    fs::create_dir(zipped.path("shard.00000.mds.c")).unwrap();
    fs::write(zipped.path("shard.00000.mds.c/x"), "x").unwrap();
    let (scan, unzipped) = zipped.unzip().unwrap();
    assert_is_raw(&zipped, &scan);
    let zip_bytes = 346 + 1814 + 357 + 350;
    let raw_bytes = zipped.index()["shards"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["raw_data"]["bytes"].as_u64().unwrap())
        .sum();
    assert_eq!(
        unzipped,
        Unzipped {
            shards: 4,
            zip_bytes,
            raw_bytes
        }
    );
    let names: Vec<String> = scan.entries.iter().map(dataset::Entry::shown).collect();
    let wanted = [
        "",
        "train",
        "train/a",
        "train/index.json",
        "train/shard.00000.mds",
        "train/shard.00000.mds.a",
        "train/shard.00000.mds.c",
        "train/shard.00000.mdt",
        "train/shard.00001.mds",
        "train/shard.00002.mds",
        "train/shard.00003.mds",
        "train/z",
        "train/shard.00000.mds.c/x",
    ];
    assert_eq!(names, wanted);
    // They are recognised as any shards are.
    let catalogue = Catalogue::new(&scan, &Hints::default()).unwrap();
    catalogue.check(&scan).unwrap();
    let shard = scan
        .entries
        .iter()
        .find(|it| it.path == b"train/shard.00001.mds")
        .unwrap();
    let recognised = catalogue.get(shard.file().unwrap()).unwrap();
    assert_eq!(recognised.description.format.name(), "MDS shard");
    let origin = scan
        .file(shard.file().unwrap())
        .unwrap()
        .origin
        .clone()
        .unwrap();
    assert_eq!(
        (origin.path.as_slice(), origin.bytes),
        (&b"train/shard.00001.mds.bz2"[..], 1814)
    );
    let zip = fs::read(zipped.path("shard.00001.mds.bz2")).unwrap();
    assert_eq!(origin.sha256[..], sha2::Sha256::digest(zip)[..]);
}

#[test]
fn each_compression_is_undone() {
    for (compression, suffix, compress) in [
        ("zstd:3", "zstd", zstd as fn(&[u8]) -> Vec<u8>),
        ("gz:6", "gz", gz),
        ("gz", "gz", gz),
    ] {
        let zipped = Zipped::new();
        zipped.recompress(compression, suffix, compress);
        let (scan, unzipped) = zipped.unzip().unwrap();
        assert_is_raw(&zipped, &scan);
        assert_eq!(unzipped.shards, 4);
    }
}

#[test]
fn frames_one_behind_another_are_one_shard() {
    let zipped = Zipped::new();
    let halves = |compress: fn(&[u8]) -> Vec<u8>| {
        move |raw: &[u8]| {
            let (a, b) = raw.split_at(raw.len() / 2);
            [compress(a), compress(b)].concat()
        }
    };
    zipped.recompress("zstd", "zstd", halves(zstd));
    assert_is_raw(&zipped, &zipped.unzip().unwrap().0);
    let zipped = Zipped::new();
    zipped.recompress("gz", "gz", halves(gz));
    assert_is_raw(&zipped, &zipped.unzip().unwrap().0);
}

#[test]
fn a_damaged_shard_is_refused() {
    type Compress = fn(&[u8]) -> Vec<u8>;
    let compressions: [(&str, Compress); 2] = [("zstd", zstd), ("gz", gz)];
    for (name, compress) in compressions {
        let zipped = Zipped::new();
        zipped.recompress(name, name, |raw| {
            let mut zip = compress(raw);
            zip.pop();
            zip
        });
        let refusal = zipped.refusal();
        assert!(
            refusal.contains(&format!("shard.00000.mds.{name} cannot be decompressed: ")),
            "{refusal}"
        );
    }
    let zipped = Zipped::new();
    zipped.recompress("zstd", "zstd", |raw| zstd(&[raw, &[0]].concat()));
    assert!(
        zipped.refusal().ends_with(
            "shard.00000.mds.zstd becomes longer than the 543 bytes that the index says"
        )
    );
    let zipped = Zipped::new();
    zipped.recompress("zstd", "zstd", |raw| zstd(&raw[1..]));
    assert!(
        zipped
            .refusal()
            .ends_with("shard.00000.mds.zstd becomes 542 bytes; the index says 543")
    );
    let zipped = Zipped::new();
    zipped.recompress("zstd", "zstd", |raw| zstd(&vec![7; raw.len()]));
    let refusal = zipped.refusal();
    assert!(
        refusal.contains("shard.00000.mds.zstd becomes bytes whose sha1 is "),
        "{refusal}"
    );
    assert!(
        refusal.ends_with("; the index says a619c8bfad5ecc71a998e7267c12b34c03dd8700"),
        "{refusal}"
    );
}

#[test]
fn what_cannot_be_presented_raw_is_refused() {
    type Spoil<'a> = &'a dyn Fn(&Zipped);
    let cases: [(Spoil<'_>, &str); 6] = [
        (
            &|it| fs::remove_file(it.path("shard.00002.mds.bz2")).unwrap(),
            "train/index.json names the shard shard.00002.mds.bz2, which is not there as a file: fetch it, or leave out --unzip",
        ),
        (
            &|it| fs::write(it.path("shard.00002.mds"), "").unwrap(),
            "train/index.json names the raw shard shard.00002.mds, which is there already, beside the compressed one: take one of them out, or leave out --unzip",
        ),
        (
            &|it| it.change_index(|shard| shard["compression"] = json!("br:9")),
            "shard.00000.mds.bz2 is compressed with \"br:9\"; zstd, gz and bz2 can be unzipped here: decompress it with streaming, or leave out --unzip",
        ),
        (
            &|it| it.change_index(|shard| shard["raw_data"]["basename"] = json!("../x")),
            "train/index.json names a raw shard \"../x\", which is no file name beside the compressed one: mend it, or leave out --unzip",
        ),
        (
            &|it| it.change_index(|shard| shard["raw_data"]["basename"] = json!("same")),
            "train/index.json names the raw shard same for two compressed ones: mend it, or leave out --unzip",
        ),
        (
            &|it| fs::hard_link(it.path("shard.00000.mds.bz2"), it.path("other")).unwrap(),
            "train/index.json names the shard shard.00000.mds.bz2, which has other names too: a link to a compressed shard leads to none when the shard is presented raw: take the others out, or leave out --unzip",
        ),
    ];
    for (spoil, wanted) in cases {
        let zipped = Zipped::new();
        spoil(&zipped);
        let refusal = zipped.refusal();
        assert!(refusal.ends_with(wanted), "{refusal}");
    }
}

#[test]
fn other_folders_stay_as_they_are() {
    let zipped = Zipped::new();
    zipped.recompress("zstd", "zstd", zstd);
    for name in SHARDS {
        fs::write(zipped.path(name), "raw").unwrap();
        fs::remove_file(zipped.path(format!("{name}.zstd"))).unwrap();
    }
    zipped.change_index(|shard| {
        shard["compression"] = Value::Null;
        shard["zip_data"] = Value::Null;
    });
    let (scan, unzipped) = zipped.unzip().unwrap();
    assert_eq!(unzipped, Unzipped::default());
    assert!(scan.files.iter().all(|file| file.origin.is_none()));
    assert!(
        scan.entries
            .iter()
            .all(|it| !matches!(it.kind, Kind::File(_)) || it.path.starts_with(b"train/"))
    );
}

/// What streaming's `merge_index` makes: an index above the partitions', which stay.
#[test]
fn a_merged_index_and_those_it_was_merged_of_name_the_same_raw_shards() {
    let zipped = Zipped::new();
    let merged = zipped.merged_index();
    fs::write(zipped.path("../index.json"), merged.to_string()).unwrap();
    // The same file in another place, with shards of its own.
    fs::create_dir(zipped.path("../val")).unwrap();
    fs::hard_link(zipped.path("index.json"), zipped.path("../val/index.json")).unwrap();
    for name in SHARDS {
        let (from, to) = (format!("{name}.bz2"), format!("../val/{name}.bz2"));
        fs::copy(zipped.path(from), zipped.path(to)).unwrap();
    }
    let (scan, unzipped) = zipped.unzip().unwrap();
    assert_eq!(unzipped.shards, 8);
    assert_is_raw(&zipped, &scan);
    let entry = |path: &str| {
        let mut entries = scan.entries.iter();
        entries.find(|it| it.path == path.as_bytes()).unwrap()
    };
    let read = |path: &str| fs::read(&scan.file(entry(path).file().unwrap()).unwrap().path);
    let mut wanted = merged.clone();
    for shard in wanted["shards"].as_array_mut().unwrap() {
        shard["compression"] = Value::Null;
        shard["zip_data"] = Value::Null;
        let raw = read(shard["raw_data"]["basename"].as_str().unwrap()).unwrap();
        assert_eq!(json!(raw.len()), shard["raw_data"]["bytes"]);
    }
    let root: Value = serde_json::from_slice(&read("index.json").unwrap()).unwrap();
    assert_eq!(root, wanted);
    for name in SHARDS {
        let [train, val] = ["train", "val"].map(|part| read(&format!("{part}/{name}")).unwrap());
        assert!(train == val, "{name}");
    }
}

#[test]
fn indexes_that_disagree_are_refused() {
    let zipped = Zipped::new();
    let mut merged = zipped.merged_index();
    merged["shards"][1]["raw_data"]["hashes"]["sha1"] = json!("00");
    fs::write(zipped.path("../index.json"), merged.to_string()).unwrap();
    let wanted = "train/index.json says other things of the shard shard.00001.mds.bz2 than another index, or says it twice: mend one of them, or leave out --unzip";
    let refusal = zipped.refusal();
    assert!(refusal.ends_with(wanted), "{refusal}");
}
