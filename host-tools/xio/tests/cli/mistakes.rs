//! Every mistake has its exit status and its words, and leaves no file.

use std::fs;

use serde_json::json;

use super::support::{Folder, fixture, pack_elements};

fn tokens(name: &str) -> String {
    fixture(name).into_os_string().into_string().unwrap()
}

#[test]
fn a_value_that_does_not_fit_is_named_with_its_place() {
    let o200k = tokens("o200k-u32.bin");
    for (chain, target) in [
        ("u16", "u16 (0..=65535)"),
        ("u16+lz4", "u16 (0..=65535)"),
        ("bitpack:16", "16 bits (0..=65535)"),
    ] {
        let folder = Folder::new();
        let error = format!(
            "{o200k}: element 0 (byte 0) is 127908, which does not fit {target}: it needs 17 bits, \
             and later elements may need more; choose a wider stored chain"
        );
        folder.fails(
            1,
            &error,
            &[
                "pack",
                &o200k,
                "--dtype",
                "u32",
                "--store-as",
                chain,
                "-o",
                "v.xio",
            ],
        );
        assert!(folder.names().is_empty());
    }
    let folder = Folder::new();
    // 17 bits hold the first value, and not the 9,048 that are above 131,071.
    let values: Vec<u32> = std::fs::read(&o200k)
        .unwrap()
        .chunks_exact(4)
        .map(|bytes| u32::from_le_bytes(bytes.try_into().unwrap()))
        .collect();
    let (at, value) = values
        .iter()
        .enumerate()
        .find(|(_, value)| **value > 131_071)
        .unwrap();
    let error = format!(
        "{o200k}: element {at} (byte {}) is {value}, which does not fit 17 bits (0..=131071): it needs 18 bits, \
         and later elements may need more; choose a wider stored chain",
        at * 4
    );
    folder.fails(
        1,
        &error,
        &[
            "pack",
            &o200k,
            "--dtype",
            "u32",
            "--store-as",
            "bitpack:17",
            "-o",
            "v.xio",
        ],
    );
    assert!(folder.names().is_empty());
}

#[test]
fn an_input_that_ends_inside_an_element_is_refused() {
    let folder = Folder::new();
    folder.write("odd.bin", &[0; 4003]);
    let why = "the input is 4003 bytes, which is not a whole number of u32 elements of 4 bytes: \
               3 bytes are left after element 1000; check the element type, or cut the input";
    folder.fails(
        1,
        &format!("odd.bin: {why}"),
        &["pack", "odd.bin", "--dtype", "u32", "-o", "v.xio"],
    );
    assert_eq!(folder.names(), ["odd.bin"]);
}

/// Bytes without a type take no steps of elements: what no elements take is a mistake all the same, and is told before anything is read.
#[test]
fn a_chain_of_no_elements_is_refused_where_only_bytes_are_packed() {
    let folder = Folder::new();
    folder.write("in.txt", b"text");
    let cases = [
        ("foo", "no transform is named \"foo\""),
        ("zstd-dict:44", "zstd-dict does not take \"44\""),
        ("zstd-dict", "zstd-dict does not take \"zstd-dict\""),
        ("zstd:3+foo", "no transform is named \"foo\""),
        ("zstd:3+u16", "u16 cannot stand there"),
        ("rank+rank", "rank cannot stand there"),
    ];
    for (chain, why) in cases {
        let rule = format!("*.none={chain}");
        let (stored_as, by_rule) = (["--store-as", chain], ["--store", rule.as_str()]);
        let told = [
            format!("--store-as {chain}: {why}"),
            format!("--store '{rule}': {why}"),
        ];
        for (how, told) in [stored_as, by_rule].iter().zip(told) {
            for command in [&["pack", "in.txt", "-o", "v.xio"][..], &["plan", "in.txt"]] {
                let run = folder.xio([command, &how[..]].concat());
                assert_eq!(run.status, 2, "{chain}: {}", run.stderr);
                assert!(
                    run.stderr.starts_with(&format!("error: {told}")),
                    "{}",
                    run.stderr
                );
            }
        }
    }
    assert_eq!(folder.names(), ["in.txt"]);
    // What some elements take is for those that do, and a note says which do not.
    let rank = folder.xio(["pack", "in.txt", "--store-as", "rank+zstd:9", "-o", "v.xio"]);
    assert_eq!(rank.status, 0, "{}", rank.stderr);
    assert!(
        rank.stderr.contains("stored without rank"),
        "{}",
        rank.stderr
    );
}

#[test]
fn files_that_are_not_what_they_should_be_are_named() {
    let folder = Folder::new();
    folder.write("in.bin", &[0; 16]);
    folder.write("text", b"no volume");
    std::fs::create_dir(folder.path("folder")).unwrap();
    let pack = |input, output| ["pack", input, "--dtype", "u32", "-o", output];
    folder.fails(
        3,
        "reading gone.bin: No such file or directory (os error 2)",
        &pack("gone.bin", "v.xio"),
    );
    folder.fails(
        2,
        "folder is a folder; name the files in it, or leave --dtype out to pack all of it as a disk",
        &pack("folder", "v.xio"),
    );
    folder.fails(
        2,
        "text exists already; choose another name, or replace it with --force",
        &pack("in.bin", "text"),
    );
    folder.fails(
        2,
        "folder is not a regular file; choose the name of a file",
        &pack("in.bin", "folder"),
    );
    folder.fails(
        3,
        "creating a file for no/v.xio: No such file or directory (os error 2)",
        &pack("in.bin", "no/v.xio"),
    );
    assert_eq!(folder.read("text"), b"no volume");
    folder.fails(
        1,
        "text: not a volume: it is too small (9 bytes on the store)",
        &["inspect", "text"],
    );
    folder.fails(
        2,
        "folder is a folder, not a volume",
        &["inspect", "folder"],
    );
    folder.fails(
        3,
        "opening gone.xio: No such file or directory (os error 2)",
        &["verify", "gone.xio"],
    );
    assert_eq!(folder.names(), ["folder", "in.bin", "text"]);
}

#[test]
fn parameters_that_cannot_be_are_refused_before_anything_is_read() {
    let folder = Folder::new();
    folder.write("in.bin", &[0; 16]);
    let pack = |more: &[&'static str]| {
        [&["pack", "in.bin", "--dtype", "u32", "-o", "v.xio"], more].concat()
    };
    folder.fails(
        2,
        "logical block size: 520 bytes; 512 and 4096 are possible",
        &pack(&["--lba", "520"]),
    );
    folder.fails(
        2,
        "frame size: 16 bytes hold less than 8 elements of u32; 32 bytes are the least",
        &pack(&["--store-as", "lz4", "--frame", "16"]),
    );
    folder.fails(
        2,
        "frame size: 8388608 source bytes, 8388608 packed: a frame has at most 4194304 of either",
        &pack(&["--store-as", "lz4", "--frame", "8MiB"]),
    );
    folder.fails(
        2,
        "integrity: lz4 has frames, and frames always have a checksum",
        &pack(&["--store-as", "lz4", "--integrity", "none"]),
    );
    let unknown = folder.xio(pack(&["--store-as", "u16+lzma"]));
    assert_eq!(unknown.status, 2);
    assert!(unknown.stderr.starts_with(
        "error: --store-as u16+lzma: no transform is named \"lzma\"; known are none, "
    ));
    let late = folder.xio(pack(&["--store-as", "lz4+u16"]));
    assert_eq!(late.status, 2);
    assert!(
        late.stderr
            .contains("element steps come before block steps"),
        "{}",
        late.stderr
    );
    folder.fails(
        2,
        "'-' can be given once: there is one standard input",
        &[
            "pack", "-", "-", "--dtype", "u8", "--name", "n", "-o", "v.xio",
        ],
    );
    folder.fails(
        2,
        "the first input has no name to call the view by; give one with --name",
        &["pack", "-", "--dtype", "u8", "-o", "v.xio"],
    );
    assert_eq!(folder.names(), ["in.bin"]);
}

#[test]
fn a_command_line_that_is_not_one_has_status_2() {
    let folder = Folder::new();
    for (arguments, says) in [
        (&["frobnicate"][..], "unrecognized subcommand 'frobnicate'"),
        (
            &["pack", "in.bin", "--dtype", "u8", "--label", "x", "-o", "v"],
            "the argument '--dtype <TYPE>' cannot be used with '--label <LABEL>'",
        ),
        (&["pack", "in.bin", "--concat", "-o", "v"], "--dtype <TYPE>"),
        (
            &["pack", "in.bin", "--dtype", "u31", "-o", "v.xio"],
            "\"u31\" is no element type; known are u8 i8",
        ),
        (
            &[
                "pack", "in.bin", "--dtype", "u32", "--frame", "64K", "-o", "v",
            ],
            "'64K' is not a size",
        ),
        (&["verify", "v.xio", "--concat"], "--against <FILE>"),
        (
            &["verify", "nbd://host/x", "--against", "a"],
            "'nbd://host/x' does not begin with nvme+tcp://",
        ),
        (
            &["verify", "nvme+tcp://127.0.0.1/nqn.x:y"],
            "a namespace can only be compared: name the files that it was packed from with --against",
        ),
    ] {
        let ran = folder.xio(arguments);
        assert_eq!((ran.status, ran.stdout.as_str()), (2, ""), "{arguments:?}");
        assert!(
            ran.stderr.starts_with("error: ") && ran.stderr.contains(says),
            "{}",
            ran.stderr
        );
    }
}

#[test]
fn bytes_that_differ_are_found_and_placed() {
    let folder = Folder::new();
    let tiny = std::fs::read(fixture("tiny-u32.bin")).unwrap();
    folder.write("a.bin", &tiny);
    folder.write("b.bin", &tiny[..400]);
    folder.done([
        "pack",
        "a.bin",
        "b.bin",
        "--dtype",
        "u32",
        "--store-as",
        "u16+lz4",
        "-o",
        "v.xio",
    ]);
    let verify = |files: [&'static str; 2]| {
        [
            "verify",
            "v.xio",
            "--against",
            files[0],
            "--against",
            files[1],
        ]
    };
    assert_eq!(
        folder.done(verify(["a.bin", "b.bin"])),
        "v.xio: 8,592 bytes are the same\n"
    );

    let mut other = tiny.clone();
    other[7_001] ^= 0x40;
    folder.write("c.bin", &other);
    let (presented, expected) = (tiny[7_001], other[7_001]);
    let error = format!(
        "v.xio: presented byte 7001 is {presented:#04x}; byte 7001 of c.bin is {expected:#04x}"
    );
    folder.fails(1, &error, &verify(["c.bin", "b.bin"]));
    let mut other = tiny[..400].to_vec();
    other[399] = 0xEE;
    folder.write("d.bin", &other);
    let error = format!(
        "v.xio: presented byte 8591 is {:#04x}; byte 399 of d.bin is 0xee",
        tiny[399]
    );
    folder.fails(1, &error, &verify(["a.bin", "d.bin"]));

    folder.fails(
        1,
        "v.xio presents 8,592 bytes, a.bin has 8,000",
        &["verify", "v.xio", "--against", "a.bin"],
    );
    // Files on a disk are no bytes of it.
    folder.done(["format", "v.xio", "-o", "disk.xio"]);
    let files = "and --against takes the files of a volume without a filesystem; file by file";
    folder.fails(
        2,
        &format!("disk.xio is a disk, {files}: xio diff FOLDER 'disk.xio'"),
        &["verify", "disk.xio", "--against", "a.bin"],
    );
    fs::create_dir(folder.path("d")).unwrap();
    folder.fails(
        2,
        &format!("d is a folder, {files}: xio diff d 'disk.xio'"),
        &["verify", "disk.xio", "--against", "d"],
    );
    for (files, difference) in [
        (
            &["--against", "c.bin", "--against", "b.bin"][..],
            json!({
                "what": "byte",
                "presented_offset": 7_001,
                "presented": presented,
                "expected": expected,
                "file": "c.bin",
                "file_offset": 7_001,
            }),
        ),
        (
            &["--against", "a.bin"],
            json!({ "what": "length", "presented_bytes": 8_592, "files_bytes": 8_000 }),
        ),
    ] {
        let ran = folder.xio([&["verify", "v.xio", "--json"], files].concat());
        assert_eq!(ran.status, 1, "{}", ran.stderr);
        let seen: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!(
            seen,
            json!({ "verified": "v.xio", "difference": difference })
        );
        assert!(ran.stderr.starts_with("error: v.xio"), "{}", ran.stderr);
    }
    let concat = [&verify(["a.bin", "b.bin"])[..], &["--concat"]].concat();
    folder.fails(
        1,
        "v.xio presents 8,592 bytes, the 2 files have 8,400",
        &concat,
    );
}

#[test]
fn a_flipped_bit_is_reported_and_nothing_of_it_presented() {
    let folder = Folder::new();
    folder.write("a.bin", &std::fs::read(fixture("tiny-u32.bin")).unwrap());
    folder.done(pack_elements("a.bin", "u32", "u16+lz4"));
    let mut volume = folder.read("v.xio");
    volume[32_768 + 1_000] ^= 0x10;
    folder.write("bad.xio", &volume);
    let damage = "stream 0, frame 0, at byte 32768 of the volume: checksum mismatch: recorded ";
    let ran = folder.xio(["verify", "bad.xio"]);
    let says = format!(
        "error: bad.xio: 1 place is damaged; restore it from a copy, or pack it again:\n  {damage}"
    );
    assert_eq!((ran.status, ran.stdout.as_str()), (1, ""));
    assert!(ran.stderr.starts_with(&says), "{}", ran.stderr);

    let ran = folder.xio(["verify", "bad.xio", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((ran.status, &report["damage_count"]), (1, &1.into()));
    assert!(report["damage"][0].as_str().unwrap().starts_with(damage));

    // What is no volume, or is not there, is said to programs as well.
    folder.write("none.bin", &[7; 8192]);
    for (name, status) in [("none.bin", 1), ("absent.xio", 3)] {
        let ran = folder.xio(["verify", name, "--json"]);
        let error = ran.stderr.strip_prefix("error: ").unwrap().trim_end();
        let said: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!(ran.status, status);
        assert_eq!(said, json!({ "verified": name, "error": error }));
    }
    std::fs::remove_file(folder.path("none.bin")).unwrap();

    let ran = folder.xio(["unpack", "bad.xio", "-o", "out.bin"]);
    assert_eq!(ran.status, 1);
    assert!(
        ran.stderr
            .starts_with(&format!("error: bad.xio: presented byte 0: {damage}")),
        "{}",
        ran.stderr
    );
    assert_eq!(folder.names(), ["a.bin", "bad.xio", "v.xio"]);
}

#[test]
fn too_many_tiny_files_end_to_end_are_refused_with_what_to_do() {
    let folder = Folder::new();
    let names: Vec<String> = (0..65).map(|n| format!("{n}.bin")).collect();
    for name in &names {
        folder.write(name, &[1, 0, 0, 0]);
    }
    let options = [
        "--dtype",
        "u32",
        "--concat",
        "--store-as",
        "u16+lz4",
        "-o",
        "v.xio",
    ];
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    folder.fails(
        2,
        "view: more than 64 frames that touch a 4 KiB block, at presented byte 256; use larger frames, fewer and larger streams, or a chain without compressor and shuffle",
        &[&["pack"], &names[..], &options].concat(),
    );
    folder.done([&["pack"], &names[..64], &options].concat());
}

/// A file of 9 TiB of zeros, which nobody waits for: what is said of it is said before it is read.
#[test]
fn what_no_disk_can_be_is_said_before_anything_is_read() {
    let folder = Folder::new();
    let vast = |name: &str, more: u64| {
        let path = folder.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let file = std::fs::File::create(path).unwrap();
        file.set_len((9 << 40) + more).unwrap();
    };
    for name in ["one/a", "two/a", "two/b"] {
        vast(name, 0);
    }
    vast("odd/a", 1);
    vast("own/a", 0);
    std::fs::create_dir(folder.path("own/.xio")).unwrap();
    folder.write("one.xio", b"there already");
    for (arguments, error) in [
        (
            &["one", "--label", "seventeen letters"][..],
            "the filesystem's label seventeen letters; a label has up to 15 bytes, without NUL; choose a shorter one (--label)",
        ),
        (
            &["two"],
            "the disk would have 4831838210 blocks of 4 KiB; EROFS numbers 4294967295, which is 16 TiB: put the files on several disks",
        ),
        (
            &["odd", "--gpt"],
            "a partition is a whole number of blocks of 4096 bytes, and 1 file is not (a: 9895604649985 bytes): --pad fills them up with zeros",
        ),
        (
            &["own"],
            ".xio is the name of the folder that a disk keeps its manifest in; rename it, or leave the manifest out with --no-manifest",
        ),
        (
            &["one", "-o", "one.xio"],
            "one.xio exists already; choose another name, or replace it with --force",
        ),
    ] {
        for command in ["pack", "map"] {
            let output: &[&str] = match arguments {
                [.., "one.xio"] => &[],
                _ => &["-o", "v.xio"],
            };
            folder.fails(2, error, &[&[command], arguments, output].concat());
        }
    }
    assert_eq!(folder.names(), ["odd", "one", "one.xio", "own", "two"]);
}

#[test]
fn a_value_that_a_view_does_not_hold_is_named_with_its_place() {
    let folder = Folder::new();
    std::fs::create_dir(folder.path("d")).unwrap();
    let mut values = vec![7u32; 300_000];
    values[262_844] = 65_536;
    let bytes: Vec<u8> = values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    folder.write("d/big.bin", &bytes);
    let error = "d/big.bin: cannot be u16: element 262844 (byte 1051376 of the file) is 65536, \
                 which does not fit u16 (0..=65535); choose a type that holds it";
    let arguments = [
        "pack",
        "d",
        "--as",
        "*.bin=u32",
        "--present-as",
        "u16",
        "-o",
        "v.xio",
    ];
    folder.fails(1, error, &arguments);
}

#[test]
fn a_folder_is_called_what_it_is_called_wherever_one_is() {
    let folder = Folder::new();
    std::fs::create_dir_all(folder.path("set/deep")).unwrap();
    folder.write("set/a", b"words");
    let pack = super::support::xio()
        .current_dir(folder.path("set"))
        .args(["pack", ".", "-o", "../here.xio"])
        .output()
        .unwrap();
    assert!(
        pack.status.success(),
        "{}",
        String::from_utf8_lossy(&pack.stderr)
    );
    folder.done(["pack", "set/deep/..", "-o", "above.xio"]);
    for volume in ["here.xio", "above.xio"] {
        let seen = folder.done(["inspect", volume, "--json"]);
        let seen: serde_json::Value = serde_json::from_str(&seen).unwrap();
        assert_eq!(seen["views"][0]["name"], "set", "{volume}");
    }
}

/// Without checksums an element outside of the recorded range is all that tells: verify and a read name the same granule, the one that it begins in.
#[test]
fn an_element_outside_of_the_range_is_placed_where_it_is() {
    let folder = Folder::new();
    let ids: Vec<u8> = (0..300_000_u32)
        .flat_map(|id| (id % 60_000).to_le_bytes())
        .collect();
    folder.write("a.bin", &ids);
    // Of 18 bits each: 1820 elements have 4,095 bytes, so that this one begins in the last byte of a granule, and ends in the next.
    for (chain, bits, element) in [("u16", 16, 150_000), ("bitpack:18", 18, 1_820 + 16_384)] {
        let pack = pack_elements("a.bin", "u32", chain);
        folder.done([pack.as_slice(), &["--integrity", "none", "--force"]].concat());
        let mut volume = folder.read("v.xio");
        let last_bit = bits * element + bits - 1;
        volume[32_768 + last_bit / 8] |= 1 << (last_bit % 8);
        volume[32_768 + last_bit / 8] |= 1 << (last_bit % 8 - 1);
        folder.write("bad.xio", &volume);
        let granule = bits * element / 8 / 4096;
        let place = format!("granule {granule}, at byte {}", 32_768 + granule * 4096);
        for command in [
            vec!["verify", "bad.xio"],
            vec!["unpack", "bad.xio", "-o", "out.bin"],
        ] {
            let ran = folder.xio(command);
            assert_eq!(ran.status, 1);
            assert!(ran.stderr.contains(&place), "{place}: {}", ran.stderr);
            assert!(ran.stderr.contains(&element.to_string()), "{}", ran.stderr);
        }
    }
}
