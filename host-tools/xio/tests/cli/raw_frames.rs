//! What `xio inspect` says of frames that compression was of no use for.

use serde_json::{Value, json};

use super::support::{Folder, Random, pack_elements};

/// So many frames of 64 KiB: zeros and noise by turns, as `is_noise` says.
fn frames(count: u64, is_noise: impl Fn(u64) -> bool) -> Vec<u8> {
    let mut random = Random::new(5);
    let frame = |number| -> Vec<u8> {
        match is_noise(number) {
            true => (0..16_384)
                .flat_map(|_| random.next().to_le_bytes())
                .collect(),
            false => vec![0; 65_536],
        }
    };
    (0..count).flat_map(frame).collect()
}

#[test]
fn the_share_of_frames_that_are_stored_raw_is_shown() {
    let folder = Folder::new();
    folder.write("some.bin", &frames(20, |number| number % 4 == 1));
    folder.write("none.bin", &frames(3, |_| false));
    folder.write("all.bin", &[frames(2, |_| true), vec![7]].concat());
    folder.write("empty.bin", &[]);
    let pack = |chain: &str, volume: &str| {
        let inputs = [
            "pack",
            "some.bin",
            "none.bin",
            "all.bin",
            "empty.bin",
            "--dtype",
            "u8",
        ];
        folder.done(inputs.iter().chain(&["--store-as", chain, "-o", volume]));
        let json: Value =
            serde_json::from_str(&folder.done(["inspect", volume, "--json"])).unwrap();
        let text = folder.done(["inspect", volume]);
        let streams = json["streams"].as_array().unwrap();
        let of = |it: &Value| it["raw_frames"].clone();
        let rows: Vec<String> = (text.lines())
            .skip_while(|line| *line != "streams")
            .skip(2)
            .take(streams.len())
            .map(str::to_owned)
            .collect();
        (streams.iter().map(of).collect::<Vec<_>>(), rows)
    };
    let counted = |raw, looked_at| json!({ "raw": raw, "looked_at": looked_at });
    for chain in ["lz4", "zstd:3"] {
        let (json, rows) = pack(chain, &format!("{chain}.xio"));
        let expected = [counted(5, 20), counted(0, 3), counted(3, 3), counted(0, 0)];
        assert_eq!(json, expected, "{chain}");
        for (row, share) in rows.iter().zip(["25.0 %", "0.0 %", "100.0 %", " -  "]) {
            assert!(row.contains(share), "{share}: {row}");
        }
    }
    // Without frames, and in frames that are as long as they were, nothing could have shrunk.
    let (json, rows) = pack("none", "none.xio");
    assert!(json.iter().all(Value::is_null), "{json:?}");
    assert!(rows.iter().all(|row| !row.contains('%')), "{rows:?}");
    folder.write("pairs.bin", &frames(2, |_| true));
    folder.done(pack_elements("pairs.bin", "u16", "shuffle"));
    let shown: Value = serde_json::from_str(&folder.done(["inspect", "v.xio", "--json"])).unwrap();
    assert!(shown["streams"][0]["raw_frames"].is_null());
}

#[test]
fn a_damaged_frame_table_hides_nothing_else() {
    let folder = Folder::new();
    folder.write("a.bin", &frames(20, |number| number % 4 == 1));
    folder.done(pack_elements("a.bin", "u8", "lz4"));
    let shown: Value = serde_json::from_str(&folder.done(["inspect", "v.xio", "--json"])).unwrap();
    let stored = shown["streams"][0]["stored_offset"].as_u64().unwrap();
    let stored_end = stored + shown["streams"][0]["stored_bytes"].as_u64().unwrap();
    // The table is the block behind the payload.
    let table = usize::try_from(stored_end.next_multiple_of(4096)).unwrap();
    let mut volume = folder.read("v.xio");
    volume[table + 100] ^= 1;
    folder.write("v.xio", &volume);
    let ran = folder.xio(["inspect", "v.xio"]);
    assert_eq!(ran.status, 1, "{}", ran.stderr);
    assert!(
        ran.stdout.contains("damaged") && ran.stdout.contains("extents of"),
        "{}",
        ran.stdout
    );
    assert!(
        ran.stderr.contains("frames table of stream 0, block 0"),
        "{}",
        ran.stderr
    );
}
