//! What `inspect` and `pack` count, against arithmetic done here.

use serde_json::Value;

use super::support::{Folder, fixture};

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn inspect_counts_what_was_packed() {
    let folder = Folder::new();
    let r50k = fixture("r50k-u32.bin");
    // The fixture's README: 493,438 values from 0 to 50,256.
    let (elements, source_bytes) = (493_438u64, 1_973_752u64);
    for (chain, packed_bits) in [("none", 32), ("u16", 16), ("bitpack:17", 17)] {
        let pack = [
            "pack",
            r50k.to_str().unwrap(),
            "--dtype",
            "u32",
            "--store-as",
            chain,
            "--force",
            "--json",
            "-o",
            "v.xio",
        ];
        let packed = json(&folder.done(pack));
        let seen = json(&folder.done(["inspect", "v.xio", "--json"]));
        let stored_bytes = (elements * packed_bits).div_ceil(8);
        let stream = &seen["streams"][0];
        assert_eq!(stream["dtype"], "u32");
        assert_eq!(stream["stored_chain"], chain);
        assert_eq!(stream["elements"], elements);
        assert_eq!(stream["source_bytes"], source_bytes);
        assert_eq!(stream["stored_bytes"], stored_bytes);
        assert_eq!(stream["checksums"], stored_bytes.div_ceil(4096));
        assert_eq!(stream["frames"], Value::Null);
        assert_eq!(
            stream["bits_per_value"].as_f64().unwrap(),
            stored_bytes as f64 * 8.0 / elements as f64
        );
        assert_eq!(
            stream["range"],
            serde_json::json!({ "min": "0", "max": "50256" })
        );
        assert_eq!(
            stream["sha256"],
            "96996f526ce1844ba0c892f0832c20b9755aca9b121a4f2af82ff8a257550c7b"
        );
        assert_eq!(seen["integrity"]["covered_bytes"], stored_bytes);
        assert_eq!(seen["integrity"]["uncovered_bytes"], 0);
        assert_eq!(seen["lba_bytes"], 4096);
        assert_eq!(seen["views"][0]["name"], "r50k-u32.bin");
        assert_eq!(seen["views"][0]["presented_bytes"], source_bytes);
        assert_eq!(seen["views"][0]["blocks"], source_bytes.div_ceil(4096));
        assert_eq!(seen["views"][0]["extent_count"], 1);
        // A checksum is 4 bytes, 1,012 of them fill a block; one extent, one block for each of the five directory tables.
        let table_blocks = stored_bytes.div_ceil(4096).div_ceil(1012) + 1 + 5;
        assert_eq!(seen["table_bytes"], table_blocks * 4096);
        // The slots in 32 KiB, the tail, the payload, the tables, and a block for the name.
        let volume_bytes =
            32_768 + 4096 + stored_bytes.next_multiple_of(4096) + table_blocks * 4096 + 4096;
        assert_eq!(seen["volume_bytes"], volume_bytes);
        assert_eq!(folder.read("v.xio").len() as u64, volume_bytes);
        for field in ["volume_uuid", "volume_bytes"] {
            assert_eq!(packed[field], seen[field]);
        }
        for field in [
            "elements",
            "source_bytes",
            "stored_bytes",
            "range",
            "sha256",
        ] {
            assert_eq!(packed["streams"][0][field], stream[field], "{field}");
        }
    }
}

#[test]
fn extents_are_shown_as_they_were_laid_out() {
    let folder = Folder::new();
    folder.write("a.bin", &[1; 600]);
    folder.write("b.bin", &[2; 1_000]);
    folder.done([
        "pack",
        "a.bin",
        "b.bin",
        "--dtype",
        "u16",
        "--store-as",
        "lz4",
        "--lba",
        "512",
        "-o",
        "v.xio",
    ]);
    let expected = serde_json::json!([
        { "start": 0, "bytes": 600, "mapping": "linear", "stream": 0, "first_element": 0, "view_chain": null },
        { "start": 600, "bytes": 424, "mapping": "zero" },
        { "start": 1024, "bytes": 1000, "mapping": "linear", "stream": 1, "first_element": 0, "view_chain": null },
    ]);
    let seen = json(&folder.done(["inspect", "v.xio", "--json"]));
    assert_eq!(seen["views"][0]["extents"], expected);
    let seen = json(&folder.done(["inspect", "v.xio", "--json", "--extents", "0"]));
    assert_eq!(seen["views"][0]["extents"], serde_json::json!([]));
    let text = folder.done(["inspect", "v.xio", "--extents", "2"]);
    let extents: Vec<&str> = text
        .lines()
        .skip_while(|line| *line != "extents of a.bin")
        .skip(1)
        .take(4)
        .collect();
    assert_eq!(
        extents,
        [
            "  #  start  bytes  mapping  stream  first element  presented as",
            "  0      0    600  linear        0              0  -",
            "  1    600    424  zero          -              -  -",
            "  and 1 more: --extents N shows N",
        ]
    );
}

#[test]
fn frames_are_counted_and_cut_where_they_were_asked_to_be() {
    let folder = Folder::new();
    let r50k = fixture("r50k-u32.bin");
    for (frame, frame_elements) in [
        ("64KiB", 16_384u64),
        ("4KiB", 1_024),
        ("1MiB", 262_144),
        ("4099", 1_024),
    ] {
        let pack = [
            "pack",
            r50k.to_str().unwrap(),
            "--dtype",
            "u32",
            "--store-as",
            "u16+lz4",
            "--frame",
            frame,
            "--force",
            "-o",
            "v.xio",
        ];
        folder.done(pack);
        let stream = &json(&folder.done(["inspect", "v.xio", "--json"]))["streams"][0];
        assert_eq!(stream["frame_elements"], frame_elements);
        assert_eq!(stream["frames"], 493_438u64.div_ceil(frame_elements));
        assert_eq!(stream["checksums"], Value::Null);
    }
}

#[test]
fn what_no_checksum_covers_is_counted() {
    let folder = Folder::new();
    folder.write("a.bin", &[1; 10_000]);
    folder.done([
        "pack",
        "a.bin",
        "--dtype",
        "u8",
        "--integrity",
        "none",
        "-o",
        "v.xio",
    ]);
    let seen = json(&folder.done(["inspect", "v.xio", "--json"]));
    assert_eq!(seen["integrity"]["uncovered_bytes"], 10_000);
    assert_eq!(seen["integrity"]["covered_bytes"], 0);
    let text = folder.done(["inspect", "v.xio"]);
    assert!(text.ends_with("integrity: 0 of 10,000 stored bytes are covered by crc32c, 10,000 (100.0 %) by nothing\n"), "{text}");
    let verified = json(&folder.done(["verify", "v.xio", "--json"]));
    assert_eq!(verified["uncovered_bytes"], 10_000);
}

#[test]
fn the_tables_of_inspect_align() {
    let folder = Folder::new();
    let r50k = fixture("r50k-u32.bin");
    folder.done([
        "pack",
        r50k.to_str().unwrap(),
        "--dtype",
        "u32",
        "--store-as",
        "bitpack:17",
        "-o",
        "v.xio",
    ]);
    let text = folder.done(["inspect", "v.xio"]);
    let streams: Vec<&str> = text
        .lines()
        .skip_while(|line| *line != "streams")
        .skip(1)
        .take(2)
        .collect();
    assert_eq!(
        streams,
        [
            "  #  type  stored as   elements  source bytes  stored bytes  bits/value  ratio  frames  frame  raw  integrity  range",
            "  0  u32   bitpack:17   493,438     1,973,752     1,048,556       17.00   1.88       -      -    -  crc32c     0..=50256",
        ]
    );
}
