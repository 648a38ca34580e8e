//! The worked example of docs/format.md is a real volume: its bytes are made here, and compared with the document.
//!
//! `UPDATE_DOCUMENTS=1 cargo test -p volume worked_example` writes it into the document again.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use transforms::{Chain, ElementType, RankTable, RowMaxima, Scratch, ViewChain};

use super::sample::Memory;
use crate::blocking::open;
use crate::format::{Layout, Table};
use crate::identity::uuid_text;
use crate::write::{ExtentSpec, Options, StreamSpec, Writer};

const BEGIN: &str = "<!-- worked example: made by the volume crate's tests -->\n";
const END: &str = "<!-- end of the worked example -->\n";

const ELEMENTS: [u32; 6] = [10, 20, 30, 40_000, 50, 60];

fn example() -> Vec<u8> {
    let options = Options {
        lba_bytes: 512,
        threads: 1,
        volume_uuid: Some(*b"\x01\x23\x45\x67\x89\xab\x4d\xef\x81\x23\x45\x67\x89\xab\xcd\xef"),
        writer: "example".into(),
    };
    let data: Vec<u8> = ELEMENTS.iter().flat_map(|e| e.to_le_bytes()).collect();
    let mut memory = Memory::default();
    let mut writer = Writer::new(&mut memory, options).unwrap();
    let spec = StreamSpec::new(Chain::parse("u16", ElementType::U32).unwrap());
    let written = writer
        .add_stream(&spec, &mut &data[..], &mut |_| {})
        .unwrap();
    let run = ExtentSpec::Linear {
        stream: written.stream,
        first_element: 0,
        elements: ELEMENTS.len() as u64,
        view: ViewChain::identity(),
    };
    writer
        .add_view("ids", [run, ExtentSpec::Inline(b"end".to_vec())])
        .unwrap();
    writer.finish().unwrap();
    memory.bytes
}

/// Sixteen bytes a line; a run of lines of zeros is one line.
fn dump(text: &mut String, bytes: &[u8], offset: usize) {
    let mut skipped = false;
    for (at, line) in (offset..).step_by(16).zip(bytes.chunks(16)) {
        if line.iter().all(|byte| *byte == 0) {
            if !skipped {
                writeln!(text, "        *").unwrap();
            }
            skipped = true;
            continue;
        }
        skipped = false;
        let hex: Vec<_> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        let letters: String = line
            .iter()
            .map(|byte| {
                if byte.is_ascii_graphic() {
                    *byte as char
                } else {
                    '.'
                }
            })
            .collect();
        writeln!(text, "{at:08x}  {}  {letters}", hex.join(" ")).unwrap();
    }
}

fn section() -> String {
    let store = example();
    let volume = open(&store, store.len() as u64).unwrap();
    let mut text = String::new();
    writeln!(
        text,
        "Six u32, `{ELEMENTS:?}`, stored as `u16`, presented as they were under the name `ids`, with the three bytes `end` after them: a volume\n\
         of {} bytes with blocks of 512. Its namespace UUID is `{}`. Lines of zeros are left out (`*`).\n",
        store.len(),
        uuid_text(&volume.namespace_uuid()),
    )
    .unwrap();
    let mut block = |title: &str, offset: u64| {
        let at = offset as usize;
        writeln!(text, "**{title}**\n\n```").unwrap();
        dump(&mut text, &store[at..at + 4096], at);
        writeln!(text, "```\n").unwrap();
    };
    let directory = &volume.superblock().directory;
    let Layout::Unframed {
        checksums: Some(checksums),
        ..
    } = volume.streams()[0].layout
    else {
        panic!("the stream has no frames")
    };
    let title = |name: &str, table: &Table| {
        format!(
            "{name}: {} of {} bytes",
            table.entry_count(),
            table.kind().entry_bytes()
        )
    };
    block("Superblock, slot 0", 0);
    block(
        "Payload of stream 0: six u16, padding",
        volume.streams()[0].stored_offset,
    );
    block(
        &title("Checksums of stream 0", &checksums),
        checksums.offset(),
    );
    let extents = volume.view().extents;
    block(&title("Extents of view 0", &extents), extents.offset());
    block(
        "Bytes of blob 0, the view's name",
        volume.blobs()[0].offset / 4096 * 4096,
    );
    let names = ["Sources", "Streams", "Chains", "Blobs", "Views"];
    for (name, table) in names.iter().zip(directory) {
        block(&title(name, table), table.offset());
    }
    block("Superblock, tail", volume.superblock().tail_offset());
    text
}

#[test]
fn the_worked_example_is_true() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/format.md");
    let document = fs::read_to_string(&path).unwrap();
    let (before, rest) = document.split_once(BEGIN).unwrap();
    let (found, after) = rest.split_once(END).unwrap();
    let expected = format!("\n{}", section());
    if std::env::var_os("UPDATE_DOCUMENTS").is_some() {
        fs::write(&path, format!("{before}{BEGIN}{expected}{END}{after}")).unwrap();
        return;
    }
    assert_eq!(found, expected, "run it with UPDATE_DOCUMENTS=1");
}

/// The bytes of the frame behind a mark: two hexadecimal digits each, up to what is said of a line.
fn frame_behind(mark: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/format.md");
    let document = fs::read_to_string(path).unwrap();
    let mark = format!("<!-- {mark}: read by the volume crate's tests -->");
    let (_, behind) = document.split_once(&mark).unwrap();
    let (_, block) = behind.split_once("```\n").unwrap();
    let (block, _) = block.split_once("```").unwrap();
    let bytes = block.lines().flat_map(|line| {
        let words = line.split_once("   ").map_or(line, |(bytes, _)| bytes);
        words
            .split_whitespace()
            .map(|byte| u8::from_str_radix(byte, 16).unwrap())
    });
    bytes.collect()
}

/// What the document says of two frames and a table is what the decoder makes of them.
#[test]
fn the_worked_frames_are_true() {
    let rank = frame_behind("rank");
    let ids: Vec<u8> = (0u16..300).flat_map(u16::to_le_bytes).collect();
    let table = [&[44, 1, 0, 0, 254, 2, 0, 0], &ids[..]].concat();
    let table = RankTable::parse(&table).unwrap();
    let packed_ids = frame_behind("packed ids");
    assert_eq!((table.plain_bytes(), packed_ids.len()), (608, 23));
    let of = |table: &RankTable| (table.ids().to_vec(), table.stoppers());
    assert_eq!(of(&RankTable::parse(&packed_ids).unwrap()), of(&table));
    let chain = Chain::parse("rank", ElementType::U32).unwrap();
    let chain = chain.with_table(Arc::new(table)).unwrap();
    let mut packed = [0; 24];
    chain
        .unblock(&rank, &mut Scratch::new(), &mut packed)
        .unwrap();
    let expected = [5u32, 253, 254, 255, 256, 299].map(u32::to_le_bytes);
    assert_eq!((rank.len(), packed.as_chunks().0), (10, &expected[..]));

    let split = frame_behind("floatsplit");
    let chain = Chain::parse("floatsplit", ElementType::Bf16).unwrap();
    let mut packed = [0; 32];
    chain
        .unblock(&split, &mut Scratch::new(), &mut packed)
        .unwrap();
    let expected = [
        1., 1., 0.5, 1., 2., 1., 1., 0.5, 1., 1., 2., 1., 1., 1., 0.5, 1.0f32,
    ];
    let upper = expected.map(|it| ((it.to_bits() >> 16) as u16).to_le_bytes());
    assert_eq!((split.len(), packed.as_chunks().0), (28, &upper[..]));

    let group = frame_behind("q8_0");
    let chain = Chain::parse("q8_0", ElementType::F32).unwrap();
    let numbers = [127., 0.5, -0.5, 1.25, -126.5f32].map(f32::to_le_bytes);
    let source = [numbers.concat(), vec![0; 27 * 4]].concat();
    let mut packed = [0; 34];
    chain
        .encode_frame(&source, &mut Scratch::new(), &mut packed)
        .unwrap();
    assert_eq!(group, packed);

    let rows = frame_behind("int8");
    let (scales, steps) = rows.split_at(8);
    let chain = Chain::parse("int8:4", ElementType::F32).unwrap();
    let numbers = [63.5, 1., -0.75, 0., -31.75, 0.25, 0.5, 31.75f32].map(f32::to_le_bytes);
    let mut maxima = RowMaxima::new(&chain).unwrap();
    maxima.add(&numbers.concat()).unwrap();
    let made = maxima.scales().unwrap();
    assert_eq!(made.to_bytes(), scales);
    let chain = chain.with_table(Arc::new(made)).unwrap();
    let mut packed = [0; 8];
    chain
        .encode_frame(&numbers.concat(), &mut Scratch::new(), &mut packed)
        .unwrap();
    assert_eq!(steps, packed);
}

/// The limits that the document promises are those of the code.
#[test]
fn the_limits_are_those_of_the_document() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/format.md");
    let document = fs::read_to_string(path).unwrap();
    use crate::limits::*;
    for (name, value, text) in [
        (
            "volume_bytes, source bytes, presented_bytes",
            BYTES_MAX,
            "2^56",
        ),
        ("elements of a stream", ELEMENTS_MAX, "2^56"),
        ("sources", SOURCES_MAX, "2,097,152"),
        ("streams", STREAMS_MAX, "2,097,152"),
        ("chains", CHAINS_MAX, "131,072"),
        ("blobs", BLOBS_MAX, "4,194,304"),
        ("views", VIEWS_MAX, "4,096"),
        (
            "the five directory tables together",
            DIRECTORY_BYTES_MAX,
            "1 GiB",
        ),
        ("extents of a view", EXTENTS_MAX, "2^32"),
        (
            "frames of a stream, checksums of a stream",
            FRAMES_MAX,
            "2^44",
        ),
        ("packed bytes of a frame", FRAME_PACKED_BYTES_MAX, "4 MiB"),
        (
            "steps of a chain",
            crate::format::raw::CHAIN_STEPS_MAX as u64,
            "8",
        ),
        ("blob bytes", BLOB_BYTES_MAX, "64 MiB"),
        (
            "all blobs of kinds 1 and 2 together",
            TEXTS_BYTES_MAX,
            "128 MiB",
        ),
        (
            "blobs of kinds 4, 5 and 6 that chains refer to",
            CHAIN_TABLES_MAX,
            "4,096",
        ),
        (
            "all blobs of kinds 4, 5 and 6 that chains refer to, together",
            CHAIN_TABLES_BYTES_MAX,
            "64 MiB",
        ),
        ("bytes of a dictionary", DICTIONARY_BYTES_MAX, "1 MiB"),
        (
            "rows of a stream of int8",
            transforms::ROWS_MAX as u64,
            "16,777,216",
        ),
        (
            "entries of a rank table",
            transforms::RANKS_MAX as u64,
            "2,097,152",
        ),
        (
            "ids of a rank table",
            transforms::IDS_END.into(),
            "below 4,194,304",
        ),
        ("generation", GENERATION_MAX, "2^56"),
        (
            "extents that touch a 4 KiB block of presented bytes (at a multiple of 4096)",
            BLOCK_EXTENTS_MAX as u64,
            "1,024",
        ),
        (
            "frames that touch such a block",
            BLOCK_FRAMES_MAX as u64,
            "64",
        ),
    ] {
        let row = format!("| {name} | {text} |");
        assert!(document.contains(&row), "{row}");
        let number = match text.split_once(' ') {
            Some(("below", end)) => end.replace(',', "").parse().unwrap(),
            Some((count, "GiB")) => count.parse::<u64>().unwrap() << 30,
            Some((count, _)) => count.parse::<u64>().unwrap() << 20,
            None => match text.strip_prefix("2^") {
                Some(power) => 1 << power.parse::<u32>().unwrap(),
                None => text.replace(',', "").parse().unwrap(),
            },
        };
        assert_eq!(number, value, "{name}");
    }
}
