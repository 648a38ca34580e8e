//! Files stored by rank: what it does not take is named with its place, and what it is not done to with a note.

use std::fs;

use super::support::{Folder, fixture, pack_elements};

/// Values that have no rank, in a file and in the second file of a disk; and what cannot be read twice.
#[test]
fn what_rank_does_not_take_is_named_with_its_place_and_what_to_do() {
    let folder = Folder::new();
    let large = "which is no token id that rank takes: ids are 0 to 4194303; store them by bitpack:K, or a narrower type, before lz4 or zstd";
    let negative = "which is no token id that rank takes: ids are 0 to 4194303; store them by i16+zstd:3, or i32+zstd:3";

    let mut values = vec![5i32; 300_000];
    values[290_001] = -100;
    values[290_002] = -200;
    let bytes: Vec<u8> = values.iter().flat_map(|it| it.to_le_bytes()).collect();
    folder.write("labels.bin", &bytes);
    let error = format!("labels.bin: element 290001 (byte 1160004) is -100, {negative}");
    folder.fails(
        1,
        &error,
        &pack_elements("labels.bin", "i32", "rank+zstd:9"),
    );

    values[290_001] = 1 << 22;
    values[290_002] = 1 << 23;
    let bytes: Vec<u8> = values.iter().flat_map(|it| it.to_le_bytes()).collect();
    folder.write("ids.bin", &bytes);
    let error = format!("ids.bin: element 290001 (byte 1160004) is 4194304, {large}");
    folder.fails(1, &error, &pack_elements("ids.bin", "u32", "rank"));

    values[290_001] = 70_000;
    let bytes: Vec<u8> = values.iter().flat_map(|it| it.to_le_bytes()).collect();
    folder.write("wide.bin", &bytes);
    let error = "wide.bin: element 290001 (byte 1160004) is 70000, which does not fit u16 (0..=65535): it needs 17 bits, and later elements may need more; choose a wider stored chain";
    folder.fails(1, error, &pack_elements("wide.bin", "u32", "u16+rank"));
    fs::remove_file(folder.path("wide.bin")).unwrap();

    let error = "standard input: rank reads its input twice, first to count the ids; write it to a file, and pack that";
    let named = [&pack_elements("-", "u32", "rank")[..], &["--name", "ids"]].concat();
    folder.fails(2, error, &named);
    let error =
        "--store-as rank: rank cannot take u64: it takes u16, i16, u32 and i32; write u32+rank";
    folder.fails(2, error, &pack_elements("ids.bin", "u64", "rank"));

    // The first file of the stream is right.
    fs::create_dir(folder.path("d")).unwrap();
    folder.write("d/a.bin", &[9, 0, 0, 0].repeat(1000));
    fs::rename(folder.path("ids.bin"), folder.path("d/b.bin")).unwrap();
    let disk = [
        "pack",
        "d",
        "--as",
        "*=u32",
        "--store",
        "*.bin=rank",
        "-o",
        "v.xio",
    ];
    let error = format!("d/b.bin: element 290001 (byte 1160004) is 4194304, {large}");
    folder.fails(1, &error, &disk);
    assert_eq!(folder.names(), ["d", "labels.bin"]);
}

/// Ids that are too many for a table are no one file's: the stream is named.
#[test]
fn more_different_ids_than_a_table_holds_are_of_all_files_of_the_stream() {
    let folder = Folder::new();
    let half = 1u32 << 20;
    let ids =
        |range: std::ops::Range<u32>| -> Vec<u8> { range.flat_map(u32::to_le_bytes).collect() };
    fs::create_dir(folder.path("d")).unwrap();
    folder.write("d/a.bin", &ids(0..half));
    folder.write("d/b.bin", &ids(half..2 * half + 1));
    let why = "not a rank table: 2097153 different ids; at most 2097152 are possible: use bitpack";
    let error = format!("the u32 of 2 files from d/a.bin on cannot be stored as rank: {why}");
    let disk = [
        "pack",
        "d",
        "--as",
        "*=u32",
        "--store-as",
        "rank",
        "-o",
        "v.xio",
    ];
    folder.fails(1, &error, &disk);
    let error = format!("2 files from d/a.bin on: {why}");
    let files = [
        "pack",
        "d/a.bin",
        "d/b.bin",
        "--dtype",
        "u32",
        "--store-as",
        "rank",
        "-o",
        "v.xio",
    ];
    folder.fails(1, &error, &files);
}

/// Bytes have no ranks and no exponents: where that was said of files, a note says what is missing.
#[test]
fn files_without_a_type_are_stored_without_rank_and_a_note_says_so() {
    let folder = Folder::new();
    fs::create_dir(folder.path("d")).unwrap();
    let ids = fs::read(fixture("r50k-u32.bin")).unwrap();
    folder.write("d/raw.bin", &ids);
    folder.write("d/words.txt", b"words");
    let store = ["--store", "*.bin=rank+zstd:9"];
    let note = "--store '*.bin=rank+zstd:9': 1 file without an element type (raw.bin), stored without rank; add --as 'raw.bin=u32'";
    let packed = folder.xio([&["pack", "d", "-o", "v.xio"][..], &store].concat());
    assert_eq!(
        (packed.status, packed.stderr),
        (0, format!("note: {note}\n"))
    );
    assert!(packed.stdout.contains("zstd:9"), "{}", packed.stdout);
    let plan = folder.xio([&["plan", "d"][..], &store].concat());
    assert!(
        plan.stdout.contains(&format!("\n! {note}\n")),
        "{}",
        plan.stdout
    );

    let typed = [
        &["pack", "d", "--as", "raw.bin=u32", "--force", "-o", "v.xio"][..],
        &store,
    ]
    .concat();
    let typed = folder.done(typed);
    assert!(typed.contains("rank+zstd:9"), "{typed}");
    folder.done(["diff", "d", "v.xio"]);

    folder.write("d/more.bin", &ids);
    let two = folder.xio([
        "pack",
        "d",
        "--store",
        "*.bin=floatsplit",
        "--force",
        "-o",
        "v.xio",
    ]);
    let note = "note: --store '*.bin=floatsplit': 2 files without an element type (more.bin, raw.bin), stored without floatsplit; add --as '*.bin=bf16'\n";
    assert_eq!((two.status, two.stderr.as_str()), (0, note));
    let all = folder.xio(["pack", "d", "--store-as", "rank", "--force", "-o", "v.xio"]);
    let note = "note: --store-as rank: 3 files without an element type (more.bin, raw.bin, words.txt), stored without rank; add --as 'more.bin=u32'\n";
    assert_eq!((all.status, all.stderr.as_str()), (0, note));
}
