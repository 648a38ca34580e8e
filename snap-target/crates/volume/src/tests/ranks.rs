//! Chains whose table is a blob: their golden volume, and tables and codes that nobody wrote.

use std::fs;

use transforms::{Chain, ElementType, RANKS_MAX, RankTable, TableKind, ViewChain};
use zerocopy::IntoBytes;

use super::driver::Driver;
use super::edit::{self, opened, refused};
use super::golden::{Golden, Made, assert_recorded, folder, of_chains};
use super::sample::{Builder, Memory, builder, store, with_table};
use crate::assemble::{Run, StreamSpec as AssembledSpec, ViewSpec};
use crate::checksum::crc32c;
use crate::format::{BlobIndex, BlobKind, ChainIndex, Layout};
use crate::limits::{CHAIN_TABLES_BYTES_MAX, CHAIN_TABLES_MAX};
use crate::verify::verify;
use crate::write::{Options, StreamSpec, Writer};
use crate::{Item, StreamIndex, Volume, VolumeError};

/// Tables of ids of one, two and three bytes; two chains of one name have tables of their own.
const GOLDEN: [Golden; 6] = [
    ("rank", ElementType::U32, 7, 0, 9001),
    ("rank", ElementType::U16, 14, 0, 9001),
    ("rank+lz4", ElementType::U32, 11, 0, 5003),
    ("rank+lz4hc:9", ElementType::U32, 22, 0, 3001),
    ("rank+lz4", ElementType::I32, 10, 0, 301),
    ("u32+rank", ElementType::I64, 17, 0, 2001),
];

/// Before Zstandard, as `xio pack --help` advises.
const GOLDEN_ZSTD: [Golden; 4] = [
    ("rank+zstd:9", ElementType::U32, 14, 0, 9001),
    ("rank+zstd:1", ElementType::U16, 12, 0, 9001),
    ("rank+zstd:19", ElementType::I32, 20, 0, 3001),
    ("u32+rank+zstd:3", ElementType::I64, 17, 0, 2001),
];

/// With tables whose ids are packed, as writers make them since 2026-11-29.
const GOLDEN_PACKED: [Golden; 3] = [
    ("rank", ElementType::U32, 14, 0, 9001),
    ("u16+rank+lz4", ElementType::I64, 15, 0, 5003),
    ("rank+zstd:3", ElementType::I32, 20, 0, 3001),
];

fn made_with_packed_ids() -> Made {
    of_chains(*b"golden, rank   \x03", &GOLDEN_PACKED)
}

fn made() -> Made {
    of_chains(*b"golden, rank   \x01", &GOLDEN)
}

fn made_with_zstd() -> Made {
    of_chains(*b"golden, rank   \x02", &GOLDEN_ZSTD)
}

/// rank.vol and rank-zstd.vol are of a writer that packed no ids.
#[test]
#[ignore = "makes files that are made once"]
fn make_the_golden_volume_of_packed_ids() {
    made_with_packed_ids().write("rank-packed.vol");
}

/// The volume whose ids are not packed, and the blob of the first chain's table.
fn sample() -> (Vec<u8>, Volume, BlobIndex) {
    let store = fs::read(folder().join("rank.vol")).unwrap();
    let volume = opened(&store).unwrap();
    let blob = volume.table_blob(ChainIndex(0), TableKind::Ranks).unwrap();
    (store, volume, blob)
}

/// The same volume with other bytes of the table, as many, and checksums that are right.
fn of_table(edit: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let (mut store, _, index) = sample();
    edit::blob(&mut store, index, edit);
    store
}

#[test]
fn each_chain_has_its_table_and_the_length_is_known_before() {
    let (store, volume, _) = sample();
    let mut blobs = Vec::new();
    for (index, (text, ..)) in (0..).zip(GOLDEN) {
        let blob = volume
            .table_blob(ChainIndex(index), TableKind::Ranks)
            .unwrap();
        let entry = &volume.blobs()[blob.0 as usize];
        assert_eq!(entry.kind, BlobKind::RankTable);
        let bytes = &store[entry.offset as usize..][..entry.bytes as usize];
        let stream = volume.stream(StreamIndex(index)).unwrap();
        let table = stream.chain.rank_table().unwrap();
        assert_eq!(**table, RankTable::parse(bytes).unwrap());
        assert_eq!(stream.chain.to_string(), text);
        blobs.push(blob.0);
    }
    blobs.dedup();
    assert_eq!(blobs.len(), GOLDEN.len());
}

#[test]
fn a_table_is_checked_at_open_and_named() {
    let (mut store, volume, index) = sample();
    let blob = volume.blobs()[index.0 as usize].clone();
    store[blob.offset as usize + 9] ^= 1;
    match opened(&store).unwrap_err() {
        VolumeError::Checksum { place, .. } => {
            assert_eq!(
                (place.item, place.offset),
                (Item::Blob(index.0, BlobKind::RankTable), blob.offset)
            );
        }
        other => panic!("{other}"),
    }
    let says = |store: &[u8], why: &str| {
        let error = refused(store);
        assert!(error.contains(why), "{error}");
        assert!(
            error.contains(&format!("at byte {}", blob.offset)),
            "{error}"
        );
    };
    says(
        &of_table(|table| table[8] = table[9]),
        "which has a rank already",
    );
    says(
        &of_table(|table| table[0] -= 1),
        "bytes behind its header where",
    );
    says(
        &of_table(|table| table[4] = 0),
        "0 stoppers; 129 to 255 are possible",
    );
    says(
        &of_table(|table| table[6] = 1),
        "reserved bytes are not zero",
    );

    // Right by its CRC, and not by its digest.
    let mut store = of_table(|table| table.swap(8, 9));
    let blobs = volume.superblock().directory[3];
    edit::entry(&mut store, &blobs, u64::from(index.0), |entry| {
        entry[40] ^= 1
    });
    let error = opened(&store).unwrap_err();
    assert!(
        matches!(error, VolumeError::Digest { place } if place.item == Item::Blob(index.0, BlobKind::RankTable))
    );
}

#[test]
fn a_chain_says_which_table_it_has() {
    let (store, volume, index) = sample();
    let [_, streams, chains, blobs, _] = volume.superblock().directory;
    let with = |at: usize, bytes: &[u8]| {
        let mut store = store.clone();
        edit::entry(&mut store, &chains, 0, |entry| {
            entry[at..at + bytes.len()].copy_from_slice(bytes);
        });
        refused(&store)
    };
    let none = with(24, &[0xFF; 4]);
    assert!(
        none.contains("blob of a step is none, expected a rank table's"),
        "{none}"
    );
    let name = with(24, &[0; 4]);
    assert!(name.contains("expected a blob of kind 4"), "{name}");
    let far = with(24, &999u32.to_le_bytes());
    assert!(far.contains("blob of a step is 999"), "{far}");
    // The table of another chain: its ids are more than the elements hold.
    let other = volume.table_blob(ChainIndex(3), TableKind::Ranks).unwrap();
    let mut narrow = store.clone();
    edit::entry(&mut narrow, &chains, 1, |entry| {
        entry[24..28].copy_from_slice(&other.0.to_le_bytes());
    });
    let error = refused(&narrow);
    assert!(error.contains("which u16 does not hold"), "{error}");
    // A step that takes none.
    let mut strange = store.clone();
    edit::entry(&mut strange, &chains, 2, |entry| {
        entry[40..44].copy_from_slice(&index.0.to_le_bytes());
    });
    let error = refused(&strange);
    assert!(error.contains("blob of a step"), "{error}");
    // A kind that it was not.
    let mut kind = store.clone();
    edit::entry(&mut kind, &blobs, u64::from(index.0), |entry| entry[0] = 3);
    assert!(refused(&kind).contains("of kind 3"));
    // Tables that are more than a reader holds: refused before any of it is read.
    let mut large = store;
    edit::entry(&mut large, &blobs, u64::from(index.0), |entry| {
        entry[16..24].copy_from_slice(&(65u64 << 20).to_le_bytes());
    });
    assert!(opened(&large).is_err());
    assert_eq!(streams.entry_count(), GOLDEN.len() as u64);
}

/// A rank beyond the table: the read that meets it says so, and verification.
#[test]
fn a_rank_that_the_table_has_not_is_reported_when_read() {
    let (mut store, volume, _) = sample();
    let stream = volume.stream(StreamIndex(0)).unwrap();
    let Layout::Framed { frames, .. } = stream.layout else {
        panic!("it has frames");
    };
    let at = stream.stored_offset as usize;
    store[at + 5] = 200;
    let mut stored_bytes = 0;
    edit::entry(&mut store.clone(), &frames, 0, |entry| {
        stored_bytes = u32::from_le_bytes(entry[8..12].try_into().unwrap()) as usize;
    });
    let crc = crc32c(&store[at..at + stored_bytes]);
    edit::entry(&mut store, &frames, 0, |entry| {
        entry[12..16].copy_from_slice(crc.as_bytes());
    });
    let volume = opened(&store).unwrap();
    let error = Driver::new(0).read(&volume, &store, 0..100).unwrap_err();
    assert_eq!(
        error.to_string(),
        "presented byte 0: stream 0, frame 0, at byte 32768 of the volume: rank: corrupt frame: element 5 has rank 200, the table has 64"
    );
    let report = verify(&store, store.len() as u64, &mut |_| {}).unwrap();
    assert!(!report.is_clean());
}

#[test]
fn the_golden_volumes_of_ranks_are_recorded_by_their_rules() {
    assert_recorded("rank.vol", &made());
    assert_recorded("rank-zstd.vol", &made_with_zstd());
    assert_recorded("rank-packed.vol", &made_with_packed_ids());
}

#[test]
fn the_tables_of_the_golden_volume_are_packed() {
    let bytes = fs::read(folder().join("rank-packed.vol")).unwrap();
    let volume = opened(&bytes).unwrap();
    for (index, _) in (0..).zip(GOLDEN_PACKED) {
        let chain = &volume.stream(StreamIndex(index)).unwrap().chain;
        let table = chain.rank_table().unwrap();
        assert!(table.stored_bytes() < table.plain_bytes());
    }
}

/// A blob of a few hundred bytes can be of two million ids: the limit counts what they are.
#[test]
fn packed_tables_count_with_all_their_ids() {
    let fit = CHAIN_TABLES_BYTES_MAX / (8 + 3 * RANKS_MAX as u64);
    let mut builder = builder(512);
    let largest = |number: u64| {
        let first = (2_097_152 - number) as u32;
        let ids: Vec<u8> = (first..)
            .take(RANKS_MAX)
            .flat_map(u32::to_le_bytes)
            .collect();
        let chain = with_table(Chain::parse("rank", ElementType::U32).unwrap(), &ids);
        chain.table(TableKind::Ranks).unwrap().to_bytes()
    };
    let mut blobs = Vec::new();
    for number in 0..=fit {
        add_eight_ids(&mut builder, "rank", number);
        let table = largest(number);
        assert!(table.len() < 1024, "{} bytes", table.len());
        blobs.push(builder.add_blob(BlobKind::RankTable, &table).unwrap());
    }
    let stream = add_eight_ids(&mut builder, "rank", 0);
    add_view_of_ids(&mut builder, stream);
    let mut store = builder.finish().unwrap().into_bytes();
    let [_, _, chains, ..] = opened(&store).unwrap().superblock().directory;
    for (chain, blob) in (0..).zip(blobs) {
        opened(&store).unwrap();
        edit::entry(&mut store, &chains, chain, |entry| {
            entry[24..28].copy_from_slice(&blob.0.to_le_bytes());
        });
    }
    let bytes = (fit + 1) * (8 + 3 * RANKS_MAX as u64);
    let error = refused(&store);
    let why = format!(
        "tables of chains together, their ids unpacked, is {bytes}, expected 0 to 67108864"
    );
    assert!(error.contains(&why), "{error}");
}

/// Eight ids that no other number has.
fn eight_ids(number: u64) -> Vec<u8> {
    let ids = (0..8).map(|n| n * number % 5_000 + number);
    ids.flat_map(|id| (id as u32).to_le_bytes()).collect()
}

fn of_eight_ids(text: &str, number: u64) -> Chain {
    let chain = Chain::parse(text, ElementType::U32).unwrap();
    with_table(chain, &eight_ids(number))
}

fn add_eight_ids(builder: &mut Builder, text: &str, number: u64) -> StreamIndex {
    let spec = AssembledSpec::own(of_eight_ids(text, number), 8);
    store(builder, spec, 8, &eight_ids(number))
}

fn add_view_of_ids(builder: &mut Builder, stream: StreamIndex) {
    let spec = ViewSpec {
        name: "ids".into(),
        ..ViewSpec::default()
    };
    let run = Run::Linear {
        stream,
        first_element: 0,
        elements: 8,
        view: ViewChain::identity(),
    };
    builder.add_view(spec, [run]).unwrap();
}

/// A builder with as many tables as there may be.
fn full() -> Builder {
    let mut builder = builder(512);
    for number in 0..CHAIN_TABLES_MAX {
        add_eight_ids(&mut builder, "rank", number);
    }
    builder
}

/// As many tables as there may be, and one more blob of a table that no chain refers to.
fn many_tables() -> (Vec<u8>, BlobIndex) {
    let mut builder = full();
    // With a table that is there: a chain more, and no table.
    let stream = add_eight_ids(&mut builder, "rank+lz4", 0);
    let chain = of_eight_ids("rank", CHAIN_TABLES_MAX);
    let table = chain.table(TableKind::Ranks).unwrap().to_bytes();
    let more = builder.add_blob(BlobKind::RankTable, &table).unwrap();
    add_view_of_ids(&mut builder, stream);
    (builder.finish().unwrap().into_bytes(), more)
}

#[test]
fn neither_writer_makes_more_tables_than_are_read() {
    let mut builder = full();
    let spec = AssembledSpec::own(of_eight_ids("rank", CHAIN_TABLES_MAX), 8);
    let mut stream = builder.begin_stream(spec).unwrap();
    stream
        .append(&eight_ids(CHAIN_TABLES_MAX), 8, None)
        .unwrap();
    let refused = stream.finish(None).unwrap_err().to_string();
    assert!(refused.contains("more than 4096 of them"), "{refused}");

    let options = Options {
        lba_bytes: 512,
        threads: 1,
        volume_uuid: Some([7; 16]),
        writer: "test".into(),
    };
    let mut memory = Memory::default();
    let mut writer = Writer::new(&mut memory, options).unwrap();
    let mut add = |number| {
        let spec = StreamSpec::new(of_eight_ids("rank", number));
        writer.add_stream(&spec, &mut &eight_ids(number)[..], &mut |_| {})
    };
    for number in 0..CHAIN_TABLES_MAX {
        add(number).unwrap();
    }
    let refused = add(CHAIN_TABLES_MAX).unwrap_err().to_string();
    assert!(
        refused.contains("tables of chains: more than 4096 of them"),
        "{refused}"
    );
}

#[test]
fn as_many_tables_as_there_may_be_are_read_and_no_more() {
    let (mut store, more) = many_tables();
    let volume = opened(&store).unwrap();
    let [.., chains, _, _] = volume.superblock().directory;
    assert_eq!(chains.entry_count(), CHAIN_TABLES_MAX + 1);
    for chain in [0, 1, 4095, 4096] {
        let stream = volume.stream(StreamIndex(chain)).unwrap();
        let blob = volume
            .table_blob(ChainIndex(chain), TableKind::Ranks)
            .unwrap();
        let entry = &volume.blobs()[blob.0 as usize];
        let bytes = &store[entry.offset as usize..][..entry.bytes as usize];
        assert_eq!(
            stream.chain.table(TableKind::Ranks).unwrap().to_bytes(),
            bytes
        );
    }
    edit::entry(&mut store, &chains, CHAIN_TABLES_MAX, |entry| {
        entry[24..28].copy_from_slice(&more.0.to_le_bytes());
    });
    let error = refused(&store);
    assert!(
        error.contains("tables of chains is 4097, expected 0 to 4096"),
        "{error}"
    );
}

/// By its entry: nothing of it is read.
#[test]
fn a_table_of_no_possible_length_is_refused_before_it_is_read() {
    let mut builder = builder(512);
    let data = 7u32.to_le_bytes().repeat(8);
    let chain = with_table(Chain::parse("rank", ElementType::U32).unwrap(), &data);
    let stream = store(&mut builder, AssembledSpec::own(chain, 8), 8, &data);
    let most = 8 + 3 * RANKS_MAX;
    let long = builder
        .add_blob(BlobKind::RankTable, &vec![0; most + 1])
        .unwrap();
    let short = builder.add_blob(BlobKind::RankTable, &[0; 8]).unwrap();
    add_view_of_ids(&mut builder, stream);
    let made = builder.finish().unwrap().into_bytes();
    let [_, _, chains, blobs, _] = opened(&made).unwrap().superblock().directory;
    for (blob, bytes) in [(long, most + 1), (short, 8)] {
        let mut store = made.clone();
        edit::entry(&mut store, &chains, 0, |entry| {
            entry[24..28].copy_from_slice(&blob.0.to_le_bytes());
        });
        let error = opened(&store).unwrap_err();
        let told = format!("bytes of a rank table is {bytes}, expected 9 to {most}");
        assert!(error.to_string().contains(&told), "{error}");
        let VolumeError::Malformed { place, .. } = error else {
            panic!("{error}");
        };
        assert_eq!(place, blobs.entry_place(u64::from(blob.0)));
    }
}
