//! Chains with a dictionary, alone and beside a table of ranks: what both writers make, and dictionaries and references that nobody wrote.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use transforms::{Chain, ElementType, Scratch, Table, TableKind, ViewChain};

use super::driver::Driver;
use super::edit::{self, opened, refused};
use super::golden::{Golden, Made, assert_recorded, of_chains};
use super::sample::{Memory, builder, store, with_table};
use crate::assemble::{Run, StreamSpec as AssembledSpec, ViewSpec};
use crate::blocking::ReadAt;
use crate::checksum::crc32c;
use crate::format::{BlobIndex, BlobKind, ChainIndex, Layout, ViewIndex};
use crate::limits::DICTIONARY_BYTES_MAX;
use crate::verify::verify;
use crate::write::{ExtentSpec, Nowhere, Options, StreamSpec, WriteError, Writer};
use crate::{Item, StreamIndex, Volume, VolumeError};

const ELEMENTS: u64 = 60_000;
/// As golden volumes: by ranks and a dictionary, by a dictionary alone, and behind a shuffle.
const GOLDEN: [Golden; 4] = [
    ("rank+zstd-dict:9", ElementType::U32, 12, 0, 30_001),
    ("zstd-dict:3", ElementType::U16, 12, 0, 20_001),
    ("u16+shuffle+zstd-dict:19", ElementType::U32, 13, 0, 20_001),
    ("u32+rank+zstd-dict:1", ElementType::I64, 12, 0, 30_001),
];

fn golden() -> Made {
    of_chains(*b"golden, dict.  \x01", &GOLDEN)
}

#[test]
#[ignore = "makes a file that is made once"]
fn make_the_golden_volume_of_dictionaries() {
    golden().write("dictionary.vol");
}

#[test]
fn the_golden_volume_of_dictionaries_is_recorded_by_its_rules() {
    assert_recorded("dictionary.vol", &golden());
}

const CHAINS: [&str; 4] = [
    "rank+zstd-dict:9",
    "zstd-dict:3",
    "u16+shuffle+zstd-dict:1",
    "rank+zstd:3",
];

/// The first ids of a text.
fn data() -> Vec<u8> {
    let path = "../../../fixtures/data/r50k-u32.bin";
    let mut data = std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    data.truncate(4 * ELEMENTS as usize);
    data
}

/// A chain with all its tables.
fn whole(text: &str, data: &[u8]) -> Chain {
    with_table(Chain::parse(text, ElementType::U32).unwrap(), data)
}

fn spec(chain: Chain) -> StreamSpec {
    StreamSpec {
        frame_bytes: 4096,
        ..StreamSpec::new(chain)
    }
}

fn options() -> Options {
    Options {
        lba_bytes: 512,
        threads: 2,
        volume_uuid: None,
        writer: "test".into(),
    }
}

/// A stream and a view for each of the chains, by the writer; the length that it foretold.
fn made() -> (Vec<u8>, u64) {
    let data = data();
    let mut memory = Memory::default();
    let mut writer = Writer::new(&mut memory, options()).unwrap();
    let mut guess = Writer::new(Nowhere, options()).unwrap();
    for text in CHAINS {
        let spec = spec(whole(text, &data));
        let written = writer
            .add_stream(&spec, &mut &data[..], &mut |_| {})
            .unwrap();
        let run = |stream| ExtentSpec::Linear {
            stream,
            first_element: 0,
            elements: ELEMENTS,
            view: ViewChain::identity(),
        };
        let (source, stored) = (written.source_bytes, written.stored_bytes);
        let assumed = guess.assume_stream(&spec, source, stored).unwrap();
        writer.add_view(text, [run(written.stream)]).unwrap();
        guess.add_view(text, [run(assumed.stream)]).unwrap();
    }
    let foretold = guess.volume_bytes();
    writer.finish().unwrap();
    (memory.bytes, foretold)
}

fn read(volume: &Volume, store: &dyn ReadAt, range: Range<u64>) -> Result<Vec<u8>, VolumeError> {
    let read = Driver::new(0).read(volume, store, range);
    read.map(|(bytes, _)| bytes)
}

fn blob_of(volume: &Volume, chain: u32, kind: TableKind) -> BlobIndex {
    volume.table_blob(ChainIndex(chain), kind).unwrap()
}

#[test]
fn a_chain_has_both_its_tables_and_reads_by_them() {
    let (store, foretold) = made();
    assert_eq!(store.len() as u64, foretold);
    let volume = opened(&store).unwrap();
    let data = data();
    for (index, text) in (0..).zip(CHAINS) {
        let stream = volume.stream(StreamIndex(index)).unwrap();
        assert_eq!(stream.chain, whole(text, &data), "{text}");
        for table in stream.chain.tables() {
            let blob = blob_of(&volume, stream.chain_index.0, table.kind());
            let entry = &volume.blobs()[blob.0 as usize];
            assert_eq!(entry.kind, BlobKind::of_table(table.kind()));
            let bytes = &store[entry.offset as usize..][..entry.bytes as usize];
            assert_eq!(table.to_bytes(), bytes);
        }
        let viewed = volume.with_view(ViewIndex(index)).unwrap();
        assert!(read(&viewed, &store, 0..data.len() as u64).unwrap() == data);
        let part = read(&viewed, &store, 100_001..100_004).unwrap();
        assert_eq!(part, data[100_001..100_004]);
    }
    // The ranks of two chains are one blob; what is trained behind other steps is another dictionary.
    let ranks = [0, 3].map(|chain| blob_of(&volume, chain, TableKind::Ranks));
    assert_eq!(ranks[0], ranks[1]);
    let mut dictionaries = [0, 1, 2].map(|chain| blob_of(&volume, chain, TableKind::Dictionary).0);
    dictionaries.sort_unstable();
    assert!(dictionaries.windows(2).all(|two| two[0] < two[1]));
    assert_eq!(
        volume.table_blob(ChainIndex(3), TableKind::Dictionary),
        None
    );
    let report = verify(&store, store.len() as u64, &mut |_| {}).unwrap();
    assert!(report.is_clean());
    // The same inputs, the same volume.
    assert!(made().0 == store);
}

/// The other writer interns chains and blobs by itself.
#[test]
fn an_assembled_volume_has_them_as_well() {
    let data = data();
    let chain = whole("rank+zstd-dict:9", &data);
    let mut builder = builder(512);
    let spec = AssembledSpec::own(chain.clone(), 1024);
    let stream = store(&mut builder, spec, 1024, &data);
    let again = AssembledSpec::own(chain.clone(), 512);
    store(&mut builder, again, 512, &data);
    let run = Run::Linear {
        stream,
        first_element: 0,
        elements: ELEMENTS,
        view: ViewChain::identity(),
    };
    let view = ViewSpec {
        name: "ids".into(),
        ..ViewSpec::default()
    };
    builder.add_view(view, [run]).unwrap();
    let made = builder.finish().unwrap().into_bytes();
    let volume = opened(&made).unwrap();
    assert_eq!(volume.stream(stream).unwrap().chain, chain);
    let kinds: Vec<BlobKind> = volume.blobs().iter().map(|it| it.kind).collect();
    let count = |kind| kinds.iter().filter(|it| **it == kind).count();
    assert_eq!(count(BlobKind::Dictionary), 1);
    assert_eq!(count(BlobKind::RankTable), 1);
    let bytes = data.len() as u64;
    assert!(read(&volume, &made, 0..bytes).unwrap() == data);
}

#[test]
fn a_writer_asks_for_the_table_that_is_missing() {
    let data = data();
    let chain = Chain::parse("rank+zstd-dict:9", ElementType::U32).unwrap();
    let ranks = whole("rank+zstd:9", &data).rank_table().unwrap().clone();
    let ranked = chain.with_table(ranks).unwrap();
    let mut memory = Memory::default();
    let mut writer = Writer::new(&mut memory, options()).unwrap();
    for (chain, why) in [
        (chain, "which is made of all that is stored by it"),
        (
            ranked,
            "needs a dictionary, which is trained on what is stored by it",
        ),
    ] {
        let added = writer.add_stream(&spec(chain), &mut &data[..], &mut |_| {});
        match added.unwrap_err() {
            WriteError::Refused { why: found, .. } => assert!(found.ends_with(why), "{found}"),
            other => panic!("{other}"),
        }
    }
}

/// The same volume with other bytes of the first chain's dictionary, as many, and checksums that are right.
fn of_dictionary(edit: impl FnOnce(&mut [u8])) -> (Vec<u8>, u64) {
    let (mut store, _) = made();
    let volume = opened(&store).unwrap();
    let index = blob_of(&volume, 0, TableKind::Dictionary);
    edit::blob(&mut store, index, edit);
    (store, volume.blobs()[index.0 as usize].offset)
}

#[test]
fn a_dictionary_is_checked_at_open_and_named() {
    let says = |edit: fn(&mut [u8]), why: &str| {
        let (store, offset) = of_dictionary(edit);
        let error = refused(&store);
        assert!(error.contains(why), "{error}");
        assert!(error.contains(&format!("at byte {offset}")), "{error}");
    };
    says(|it| it[0] ^= 1, "it does not begin with the magic number");
    says(|it| it[4..8].fill(0), "its id is 0");
    says(|it| it[8..].fill(0xFF), "its tables of codes are not right");

    let (mut store, _) = made();
    let volume = opened(&store).unwrap();
    let index = blob_of(&volume, 0, TableKind::Dictionary);
    store[volume.blobs()[index.0 as usize].offset as usize + 100] ^= 1;
    match opened(&store).unwrap_err() {
        VolumeError::Checksum { place, .. } => {
            let item = Item::Blob(index.0, BlobKind::Dictionary);
            assert_eq!(place.item, item);
            assert_eq!(item.to_string(), format!("blob {} (a dictionary)", index.0));
        }
        other => panic!("{other}"),
    }
}

/// A dictionary that is right, and not the one: frames do not name theirs, so that a reader of them cannot tell. The stream's digest does.
#[test]
fn another_dictionary_is_found_by_verification() {
    let (mut store, _) = of_dictionary(|it| {
        let half = it.len() / 2;
        it[half..].reverse();
    });
    let volume = opened(&store).unwrap();
    let data = data();
    let found = read(&volume, &store, 0..data.len() as u64);
    assert!(found.is_err() || found.is_ok_and(|found| found != data));
    let report = verify(&store, store.len() as u64, &mut |_| {}).unwrap();
    assert!(!report.is_clean());

    // Nor is the other chain's one, to which the first is made to refer.
    store = made().0;
    let volume = opened(&store).unwrap();
    let other = blob_of(&volume, 1, TableKind::Dictionary);
    let [_, _, chains, ..] = volume.superblock().directory;
    edit::entry(&mut store, &chains, 0, |entry| {
        entry[40..44].copy_from_slice(&other.0.to_le_bytes());
    });
    opened(&store).unwrap();
    let report = verify(&store, store.len() as u64, &mut |_| {}).unwrap();
    assert!(!report.is_clean());
}

#[test]
fn a_chain_says_which_dictionary_it_has() {
    let (store, _) = made();
    let volume = opened(&store).unwrap();
    let [_, _, chains, ..] = volume.superblock().directory;
    let ranks = blob_of(&volume, 0, TableKind::Ranks);
    let dictionary = blob_of(&volume, 0, TableKind::Dictionary);
    // Of the first chain: rank is its step 0, zstd-dict step 1.
    let with = |step: usize, blob: u32| {
        let mut store = store.clone();
        edit::entry(&mut store, &chains, 0, |entry| {
            entry[24 + 16 * step..][..4].copy_from_slice(&blob.to_le_bytes());
        });
        refused(&store)
    };
    let none = with(1, u32::MAX);
    assert!(
        none.contains("blob of a step is none, expected a dictionary's"),
        "{none}"
    );
    let other = with(1, ranks.0);
    assert!(other.contains("expected a blob of kind 5"), "{other}");
    let other = with(0, dictionary.0);
    assert!(other.contains("expected a blob of kind 4"), "{other}");
    let far = with(1, 999);
    assert!(far.contains("blob of a step is 999"), "{far}");
    // A step that takes none: the zstd of the fourth chain.
    let mut strange = store.clone();
    edit::entry(&mut strange, &chains, 3, |entry| {
        entry[40..44].copy_from_slice(&dictionary.0.to_le_bytes());
    });
    let error = refused(&strange);
    assert!(error.contains("this transform takes none"), "{error}");
    // Longer and shorter than a dictionary may be: refused before any of it is read.
    for bytes in [255, DICTIONARY_BYTES_MAX + 1] {
        let mut builder = builder(512);
        let data = data();
        let spec = AssembledSpec::own(whole("zstd-dict:3", &data), 1024);
        let stream = super::sample::store(&mut builder, spec, 1024, &data);
        let blob = builder
            .add_blob(BlobKind::Dictionary, &vec![0; bytes as usize])
            .unwrap();
        let run = Run::Linear {
            stream,
            first_element: 0,
            elements: 8,
            view: ViewChain::identity(),
        };
        let view = ViewSpec {
            name: "ids".into(),
            ..ViewSpec::default()
        };
        builder.add_view(view, [run]).unwrap();
        let mut made = builder.finish().unwrap().into_bytes();
        let [_, _, chains, ..] = opened(&made).unwrap().superblock().directory;
        edit::entry(&mut made, &chains, 0, |entry| {
            entry[24..28].copy_from_slice(&blob.0.to_le_bytes());
        });
        let error = refused(&made);
        let told = format!("bytes of a dictionary is {bytes}, expected 256 to 1048576");
        assert!(error.contains(&told), "{error}");
    }
}

/// A frame that nobody wrote: the read that meets it says so, and verification.
#[test]
fn a_frame_of_noise_is_reported_when_read() {
    let (mut store, _) = made();
    let volume = opened(&store).unwrap();
    let stream = volume.stream(StreamIndex(1)).unwrap();
    let Layout::Framed { frames, .. } = stream.layout else {
        panic!("it has frames");
    };
    let at = stream.stored_offset as usize;
    let mut stored_bytes = 0;
    edit::entry(&mut store.clone(), &frames, 0, |entry| {
        stored_bytes = u32::from_le_bytes(entry[8..12].try_into().unwrap()) as usize;
    });
    store[at + 12..at + stored_bytes].fill(0x55);
    let crc = crc32c(&store[at..at + stored_bytes]);
    edit::entry(&mut store, &frames, 0, |entry| {
        entry[12..16].copy_from_slice(&crc.to_le_bytes());
    });
    let volume = opened(&store).unwrap().with_view(ViewIndex(1)).unwrap();
    let error = read(&volume, &store, 0..100).unwrap_err();
    let error = error.to_string();
    assert!(error.contains("stream 1, frame 0, at byte"), "{error}");
    assert!(error.contains("zstd-dict: corrupt frame"), "{error}");
    let report = verify(&store, store.len() as u64, &mut |_| {}).unwrap();
    assert!(!report.is_clean());
}

/// An unknown step is refused by its number, whatever else it says: so did readers that came before this one.
#[test]
fn a_reader_that_does_not_know_the_step_says_so() {
    let (mut store, _) = made();
    let [_, _, chains, ..] = opened(&store).unwrap().superblock().directory;
    edit::entry(&mut store, &chains, 1, |entry| {
        entry[16..18].copy_from_slice(&0x1FFu16.to_le_bytes());
    });
    let error = refused(&store);
    assert!(error.contains("transform number 511 is unknown"), "{error}");
}

/// Dictionaries count among the tables of chains, and several streams share one.
#[test]
fn streams_share_a_dictionary() {
    let data = data();
    let chain = whole("zstd-dict:3", &data);
    let mut memory = Memory::default();
    let mut writer = Writer::new(&mut memory, options()).unwrap();
    for _ in 0..3 {
        writer
            .add_stream(&spec(chain.clone()), &mut &data[..], &mut |_| {})
            .unwrap();
    }
    let zeros = [ExtentSpec::Zero { bytes: 512 }];
    writer.add_view("zeros", zeros).unwrap();
    writer.finish().unwrap();
    let volume = opened(&memory.bytes).unwrap();
    let blobs = volume.blobs().iter();
    let dictionaries = blobs.filter(|it| it.kind == BlobKind::Dictionary);
    assert_eq!(dictionaries.count(), 1);
    // Prepared once for all of them.
    let of = |stream| {
        let stream = volume.stream(StreamIndex(stream)).unwrap();
        match stream.chain.table(TableKind::Dictionary) {
            Some(Table::Dictionary(dictionary)) => Arc::clone(dictionary),
            _ => panic!("it has one"),
        }
    };
    assert!(Arc::ptr_eq(&of(0), &of(2)));
    let mut scratch = Scratch::new();
    let frame = volume.stream(StreamIndex(0)).unwrap();
    let mut stored = vec![0; 4096];
    let encoded = frame
        .chain
        .encode_frame(&data[..4096], &mut scratch, &mut stored);
    assert!(encoded.unwrap().stored_bytes < 4096);
}
