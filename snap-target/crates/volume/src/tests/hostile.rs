//! Volumes whose checksums are right and whose contents are not: the exact field is named, at open, when read, or by verification.

use transforms::{TransformError, ValueRange};

use super::driver::Driver;
use super::edit;
use super::sample::small_volume;
use crate::blocking::open;
use crate::format::{Layout, Table};
use crate::verify::verify;
use crate::{ErrorKind, Item, StreamIndex, Volume, VolumeError};

/// An edit of an entry: which table, which entry, at which byte, what.
struct Edit<'e>(&'e str, u64, usize, &'e [u8]);

/// The volume, its tables, and its streams: 0 `none` u8, 1 `u16`, 2 `bitpack:17`, 3 `bitpack:12+lz4`, 4 `shuffle+zstd:3`.
fn table(volume: &Volume, name: &str) -> Table {
    let directory = &volume.superblock().directory;
    match name {
        "sources" => directory[0],
        "streams" => directory[1],
        "chains" => directory[2],
        "blobs" => directory[3],
        "views" => directory[4],
        "extents" => volume.views()[0].extents,
        "extents of view 1" => volume.views()[1].extents,
        "frames" => match volume.streams()[3].layout {
            Layout::Framed { frames, .. } => frames,
            Layout::Unframed { .. } => panic!("stream 3 has frames"),
        },
        "checksums" => match volume.streams()[0].layout {
            Layout::Unframed { checksums, .. } => checksums.unwrap(),
            Layout::Framed { .. } => panic!("stream 0 has no frames"),
        },
        other => panic!("{other}"),
    }
}

fn edited(edit: &Edit<'_>) -> Vec<u8> {
    let (mut store, _) = small_volume();
    let volume = open(&store, store.len() as u64).unwrap();
    let Edit(name, index, at, bytes) = edit;
    edit::entry(&mut store, &table(&volume, name), *index, |entry| {
        assert_ne!(
            &entry[*at..at + bytes.len()],
            *bytes,
            "the edit changes nothing"
        );
        entry[*at..at + bytes.len()].copy_from_slice(bytes);
    });
    store
}

/// The first thing that opening, or else reading everything of each view, says.
fn first_error(store: &[u8]) -> Option<VolumeError> {
    let volume = match open(store, store.len() as u64) {
        Ok(volume) => volume,
        Err(error) => return Some(error),
    };
    for view in 0..volume.views().len() as u32 {
        let volume = volume.with_view(crate::ViewIndex(view)).unwrap();
        let range = 0..volume.presented_bytes();
        if let Err(error) = Driver::new(0).read(&volume, &store, range) {
            return Some(error);
        }
    }
    None
}

/// Each edit must be met by an error that says what is expected, and where.
fn each_says(cases: &[(Edit<'_>, &str)]) {
    let mut wrong = Vec::new();
    for (edit, expected) in cases {
        let text = says(&edited(edit));
        if !text.contains(expected) || !text.contains("at byte") {
            wrong.push(format!(
                "{} {} at {}: expected {expected:?} of: {text}",
                edit.0, edit.1, edit.2
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Text that names what was met.
fn says(store: &[u8]) -> String {
    let Some(error) = first_error(store) else {
        return "nothing".into();
    };
    let kind = error.kind();
    assert!(
        matches!(kind, ErrorKind::Corrupt | ErrorKind::Unsupported),
        "{error}"
    );
    // Verification finds it as well.
    if let Ok(report) = verify(&store, store.len() as u64, &mut |_| {}) {
        assert!(!report.is_clean(), "verification missed: {error}");
    }
    error.to_string()
}

const ONE_32: &[u8] = &[1, 0, 0, 0];
const BIG_32: &[u8] = &[0, 0, 0, 0x7F];
const BIG_64: &[u8] = &[0, 0, 0, 0, 0, 0, 0, 0x7F];
const MAX_64: &[u8] = &[0xFF; 8];

#[test]
fn each_field_of_the_directory_is_checked_and_named() {
    let cases = [
        (
            Edit("sources", 0, 0, &[1, 0]),
            "kind is 1, expected 0 (own)",
        ),
        (
            Edit("sources", 0, 2, &[9, 0]),
            "digest_kind is 9, expected 0",
        ),
        (Edit("sources", 0, 4, ONE_32), "locator is 1, expected none"),
        (Edit("sources", 0, 8, BIG_64), "bytes is"),
        (Edit("sources", 0, 24, ONE_32), "first_member is 1"),
        (Edit("sources", 0, 28, ONE_32), "member_count is 1"),
        (Edit("sources", 0, 32, ONE_32), "stripe_bytes is 1"),
        (Edit("sources", 0, 40, ONE_32), "reserved bytes 40 to 47"),
        (Edit("sources", 0, 64, ONE_32), "digest of kind none"),
        (Edit("sources", 0, 127, &[1]), "reserved bytes 96 to 127"),
        (Edit("chains", 0, 0, &[77]), "element_type is 77"),
        (Edit("chains", 0, 1, &[9]), "step_count is 9"),
        (Edit("chains", 0, 1, &[1]), "transform number 0 is unknown"),
        (Edit("chains", 0, 2, &[2]), "use is 2"),
        (Edit("chains", 0, 5, &[2]), "reserved bytes 3 to 15"),
        (Edit("chains", 0, 16, ONE_32), "unused steps"),
        (
            Edit("chains", 1, 16, &[0x34, 0x12]),
            "transform number 4660 is unknown",
        ),
        (
            Edit("chains", 1, 18, &[9, 0]),
            "integer version 9 is unknown",
        ),
        (Edit("chains", 2, 20, &[99, 0]), "does not take \"99\""),
        (Edit("chains", 1, 24, ONE_32), "blob of a step is 1"),
        (Edit("chains", 1, 28, ONE_32), "reserved bytes of a step"),
        (Edit("streams", 0, 0, BIG_32), "source is"),
        (Edit("streams", 0, 4, BIG_32), "chain is"),
        (
            Edit("streams", 0, 4, &[5]),
            "a view chain, expected a stored chain",
        ),
        (
            Edit("streams", 0, 8, &[5]),
            "element_type is u32, expected u8",
        ),
        (
            Edit("streams", 0, 9, &[1]),
            "layout is 1, expected 0 (unframed)",
        ),
        (
            Edit("streams", 0, 9, &[2]),
            "layout is 2 (mutable), which this program does not know",
        ),
        (
            Edit("streams", 0, 10, &[3]),
            "integrity is 3, which this program does not know",
        ),
        (
            Edit("streams", 0, 10, &[0]),
            "table of a stream without integrity",
        ),
        (Edit("streams", 3, 10, &[0]), "integrity is 0, expected 1"),
        (
            Edit("streams", 3, 9, &[0]),
            "layout is 0, expected 1 (framed)",
        ),
        (Edit("streams", 0, 11, &[4]), "range_known is 4"),
        (
            Edit("streams", 4, 11, &[1]),
            "range_known is 1, expected 0, for f32",
        ),
        (Edit("streams", 0, 12, &[0xFF, 0xFF]), "skip_bytes is"),
        (Edit("streams", 0, 16, ONE_32), "stored_offset is"),
        (Edit("streams", 0, 16, &[0, 0]), "stored bytes is"),
        (Edit("streams", 0, 16, BIG_64), "stored bytes is"),
        (Edit("streams", 0, 24, BIG_64), "stored bytes is"),
        (Edit("streams", 0, 24, ONE_32), "stored_bytes is"),
        (
            Edit("streams", 0, 32, ONE_32),
            "stored_bytes is 9000, expected",
        ),
        (Edit("streams", 0, 32, MAX_64), "elements is"),
        (
            Edit("streams", 0, 40, ONE_32),
            "frame_elements is 1, expected 0",
        ),
        (Edit("streams", 3, 40, ONE_32), "frame_elements is"),
        (Edit("streams", 3, 40, &[0; 8]), "frame_elements is 0"),
        (
            Edit("streams", 3, 40, &[0, 0, 0, 1]),
            "packed bytes of a frame is",
        ),
        (Edit("streams", 3, 40, &[0, 8]), "entry_count of frames"),
        (Edit("streams", 1, 48, &[0xFF; 16]), "range is -1..="),
        (Edit("streams", 0, 79, &[0x80]), "range_max is"),
        (Edit("streams", 0, 80, &[7]), "table kind is 7, expected 8"),
        (Edit("streams", 0, 84, &[8]), "entry_bytes is 4, expected 8"),
        (Edit("streams", 0, 84, &[3]), "entry_bytes is 3"),
        (
            Edit("streams", 0, 88, &[9]),
            "entry_count of checksums is 9, expected 3",
        ),
        (Edit("streams", 0, 88, MAX_64), "entry_count is"),
        (Edit("streams", 0, 96, ONE_32), "table offset is"),
        (Edit("streams", 0, 96, BIG_64), "table is at"),
        (
            Edit("streams", 0, 104, &[5]),
            "block_count is 5, expected 1",
        ),
        (
            Edit("streams", 0, 112, &[2]),
            "generation of the table is 2, expected 1 to 1",
        ),
        (
            Edit("streams", 0, 112, &[0]),
            "generation of the table is 0",
        ),
        (Edit("streams", 0, 14, &[1]), "flags is 1"),
        (Edit("streams", 0, 120, &[5]), "digest_kind is 5"),
        (Edit("streams", 0, 122, &[5]), "cipher is 5"),
        (Edit("streams", 0, 124, &[5]), "reserved bytes 124 to 127"),
        (Edit("streams", 0, 255, &[5]), "reserved bytes 160 to 255"),
        (Edit("blobs", 0, 8, BIG_64), "blob is at"),
        (Edit("blobs", 0, 16, MAX_64), "bytes is"),
        (Edit("blobs", 0, 24, ONE_32), "reserved bytes 24 to 31"),
        (Edit("blobs", 0, 4, ONE_32), "checksum mismatch"),
        (
            Edit("blobs", 0, 0, &[3]),
            "name is blob 0, of kind 3, expected a blob of kind 2",
        ),
        (Edit("views", 0, 0, &[0; 16]), "view_uuid is zeros"),
        (Edit("views", 0, 16, &[0; 8]), "entry_count of extents"),
        (
            Edit("views", 0, 16, ONE_32),
            "entry_count of extents is 15, expected 1 to 1",
        ),
        (Edit("views", 0, 16, &[9, 9]), "end_key is"),
        (Edit("views", 0, 24, BIG_32), "name is"),
        (Edit("views", 0, 28, &[0]), "manifest is blob 0, of kind 2"),
        (
            Edit("views", 1, 72, &[1]),
            "manifest is none, expected a blob index, for a lossy view",
        ),
        (Edit("views", 0, 72, &[2]), "flags is 2"),
        (Edit("views", 0, 76, &[0; 16]), "revision_uuid is zeros"),
        (Edit("views", 0, 255, &[2]), "reserved bytes 92 to 255"),
        (Edit("sources", 0, 16, ONE_32), "modified_ns is"),
        (
            Edit("views", 1, 24, &[0]),
            "name is \"exact\", expected unique",
        ),
    ];
    each_says(&cases);
}

#[test]
fn each_field_of_an_extent_is_checked_when_it_is_read() {
    // Extents of view 0: 5 times linear, inline of 3 bytes, zero of 100; of view 1: linear of 1,000 elements, narrowed.
    let cases = [
        (Edit("extents", 0, 0, ONE_32), "start is 1, expected 0"),
        (Edit("extents", 1, 0, ONE_32), "start is 1, expected 9000"),
        (Edit("extents", 1, 8, &[2]), "start is 9003, expected 9002"),
        (Edit("extents", 1, 8, &[0]), "bytes is 0"),
        (Edit("extents", 14, 8, &[101]), "end of the last extent"),
        (Edit("extents", 14, 8, MAX_64), "a sum with"),
        (
            Edit("extents", 0, 16, &[3]),
            "mapping is 3 (permuted), which this program does not know",
        ),
        (
            Edit("extents", 0, 16, &[4]),
            "mapping is 4 (interleaved), which this program does not know",
        ),
        (Edit("extents", 0, 16, &[200]), "mapping is 200"),
        (Edit("extents", 0, 17, &[1]), "flags is 1"),
        (Edit("extents", 0, 18, &[1]), "reserved bytes 18 to 19"),
        (Edit("extents", 0, 20, BIG_32), "stream is"),
        (
            Edit("extents", 0, 20, &[4]),
            "elements is 0 to 2250, expected within the stream's 2000",
        ),
        (
            Edit("extents", 0, 24, &[1]),
            "elements is 1 to 9001, expected within the stream's 9000",
        ),
        (Edit("extents", 0, 24, MAX_64), "a sum with"),
        (
            Edit("extents", 0, 32, &[5, 0, 0, 0]),
            "view_chain is 5, expected a view chain of u8",
        ),
        (Edit("extents", 0, 36, &[0]), "map is"),
        (Edit("extents", 0, 63, &[1]), "reserved bytes 40 to 63"),
        (Edit("extents", 1, 20, &[1]), "stream of an inline extent"),
        (Edit("extents", 1, 27, &[1]), "body after the inline data"),
        (Edit("extents", 2, 20, &[1]), "stream of a zero extent"),
        (Edit("extents", 2, 63, &[1]), "body of a zero extent"),
        (
            Edit("extents", 2, 16, &[1]),
            "at most 40 for an inline extent",
        ),
        (
            Edit("extents of view 1", 0, 20, &[2]),
            "which does not fit u16",
        ),
        (
            Edit("extents of view 1", 0, 32, &[0, 0, 0, 0]),
            "view_chain is 0, expected a view chain of u32",
        ),
    ];
    each_says(&cases);
}

#[test]
fn an_extent_may_not_end_inside_an_element() {
    // The extent of stream 1 (u32) ends a byte early, and the inline extent after it begins there.
    let (mut store, _) = small_volume();
    let volume = open(&store, store.len() as u64).unwrap();
    let extents = table(&volume, "extents");
    edit::entry(&mut store, &extents, 3, |entry| {
        entry[8..16].copy_from_slice(&19_999u64.to_le_bytes());
    });
    edit::entry(&mut store, &extents, 4, |entry| {
        entry[0..8].copy_from_slice(&29_102u64.to_le_bytes());
        entry[8..16].copy_from_slice(&4u64.to_le_bytes());
    });
    let text = says(&store);
    assert!(
        text.contains("bytes is 19999, expected a multiple of 4"),
        "{text}"
    );
}

#[test]
fn each_field_of_a_frame_is_checked_when_it_is_read() {
    let cases = [
        (Edit("frames", 0, 0, MAX_64), "a sum with"),
        (Edit("frames", 0, 0, BIG_64), "frame is"),
        (
            Edit("frames", 0, 8, &[0; 4]),
            "stored_bytes is 0, expected 1 to 1536",
        ),
        (Edit("frames", 0, 8, BIG_32), "stored_bytes is"),
        (
            Edit("frames", 0, 12, ONE_32),
            "checksum mismatch: recorded 00000001",
        ),
        (Edit("frames", 0, 16, &[1]), "tag is"),
        (Edit("frames", 0, 32, &[1]), "key_id is 1"),
        (Edit("frames", 0, 36, &[1]), "flags is 1"),
        (
            Edit("checksums", 0, 0, ONE_32),
            "checksum mismatch: recorded 00000001",
        ),
    ];
    each_says(&cases);
}

#[test]
fn frames_that_leave_a_gap_are_found_by_verification() {
    // Frame 1 begins a byte early: its own checksum fails, and the table is wrong as well.
    let store = edited(&Edit("frames", 1, 0, ONE_32));
    let report = verify(&store, store.len() as u64, &mut |_| {}).unwrap();
    let texts: Vec<_> = report.damage.iter().map(ToString::to_string).collect();
    assert!(
        texts
            .iter()
            .any(|t| t.contains("entry 1") && t.contains("offset is 1")),
        "{texts:?}"
    );
}

#[test]
fn an_element_outside_the_proven_range_is_reported_with_its_place() {
    // Stream 1 holds u32 in 16 bits. Of the proven range, half is left.
    let (mut store, _) = small_volume();
    let volume = open(&store, store.len() as u64).unwrap();
    let proven = volume.streams()[1].proven.unwrap();
    let max = (proven.min + proven.max) / 2;
    edit::entry(&mut store, &table(&volume, "streams"), 1, |entry| {
        entry[64..80].copy_from_slice(&max.to_le_bytes());
    });
    let volume = open(&store, store.len() as u64).unwrap();
    let extent_start = 9000 + 3 + 100;
    let range = extent_start..extent_start + 20_000;
    let error = Driver::new(0).read(&volume, &store, range).unwrap_err();
    let VolumeError::Transform {
        place,
        error: cause,
    } = error.cause()
    else {
        panic!("{error}")
    };
    let TransformError::OutsideProven {
        index,
        value,
        range,
    } = cause
    else {
        panic!("{cause}")
    };
    assert_eq!(
        *range,
        ValueRange {
            min: proven.min,
            max
        }
    );
    assert!(*value > max);
    // The first such element of the stream, and the byte where it would be presented.
    assert_eq!(error.presented_byte(), Some(extent_start + 4 * index));
    assert_eq!(
        place.item,
        Item::Granule {
            stream: 1,
            granule: index * 2 / 4096
        }
    );
    let report = verify(&store, store.len() as u64, &mut |_| {}).unwrap();
    assert!(
        report
            .damage
            .iter()
            .any(|e| e.to_string().contains("proven range"))
    );
}

#[test]
fn verification_proves_the_range_of_identity_streams_too() {
    // Stream 0 holds u8 as they are: a reader hands them on, verification looks at them.
    let (mut store, _) = small_volume();
    let volume = open(&store, store.len() as u64).unwrap();
    edit::entry(&mut store, &table(&volume, "streams"), 0, |entry| {
        entry[64..80].copy_from_slice(&200i128.to_le_bytes());
    });
    let report = verify(&store, store.len() as u64, &mut |_| {}).unwrap();
    let text = report.damage[0].to_string();
    assert!(
        text.contains("range of the elements") && text.contains("stream 0"),
        "{text}"
    );
}

#[test]
fn blocks_that_are_stale_or_misplaced_are_recognised() {
    let (whole, _) = small_volume();
    let volume = open(&whole, whole.len() as u64).unwrap();
    let at = |name: &str| table(&volume, name).offset() as usize;
    // A whole block of another table, of another stream, of another volume: its checksum is right.
    let cases = [
        ("frames", "checksums", "block kind is 8, expected 7"),
        ("extents", "extents of view 1", "is"),
    ];
    for (to, from, expected) in cases {
        let mut store = whole.clone();
        let (to_at, from_at) = (at(to), at(from));
        store.copy_within(from_at..from_at + 4096, to_at);
        let text = says(&store);
        assert!(text.contains(expected), "{text}");
    }
    for name in [
        "frames",
        "checksums",
        "extents",
        "views",
        "streams",
        "blobs",
    ] {
        let mut store = whole.clone();
        edit::block(&mut store, &table(&volume, name), 0, 0, |block| {
            block[40] ^= 1
        });
        let text = says(&store);
        assert!(text.contains("a block of another volume"), "{text}");
    }
    for (at, expected) in [
        (5, "level is"),
        (6, "entry_count is"),
        (8, "owner is"),
        (12, "entry_bytes is"),
        (16, "block_index is"),
        (24, "generation is"),
        (48, "first_key is"),
        (56, "end_key is"),
        (4095, "bytes after the last entry"),
    ] {
        for name in ["frames", "checksums", "extents", "chains"] {
            let mut store = whole.clone();
            edit::block(&mut store, &table(&volume, name), 0, 0, |block| {
                block[at] ^= 1
            });
            let text = says(&store);
            assert!(text.contains(expected), "{name}: {text}");
        }
    }
}

#[test]
fn tables_that_share_their_blocks_are_found_by_verification() {
    // View 1 is made to present view 0's extents: their owner says whose they are.
    let (mut store, _) = small_volume();
    let volume = open(&store, store.len() as u64).unwrap();
    let views = table(&volume, "views");
    let first = volume.views()[0].clone();
    edit::entry(&mut store, &views, 1, |entry| {
        entry[16..24].copy_from_slice(&first.presented_bytes.to_le_bytes());
        entry[32..72].copy_from_slice(zerocopy::IntoBytes::as_bytes(&first.extents.to_raw()));
    });
    let text = says(&store);
    assert!(text.contains("owner is 0, expected 1"), "{text}");
    // Also when the block is in the cache already, as what it is.
    let volume = open(&store, store.len() as u64).unwrap();
    let mut driver = Driver::new(1 << 20);
    assert!(driver.read(&volume, &store, 0..512).is_ok());
    let narrow = volume.with_view(crate::ViewIndex(1)).unwrap();
    let error = driver.read(&narrow, &store, 0..512).unwrap_err();
    assert!(
        error.to_string().contains("owner is 0, expected 1"),
        "{error}"
    );
    let report = verify(&store, store.len() as u64, &mut |_| {}).unwrap();
    let texts: Vec<_> = report.damage.iter().map(ToString::to_string).collect();
    assert!(
        texts.iter().any(|t| t.contains("bytes of its own")),
        "{texts:?}"
    );
}

#[test]
fn two_views_may_not_have_one_uuid() {
    let (whole, _) = small_volume();
    let volume = open(&whole, whole.len() as u64).unwrap();
    let uuid = volume.views()[0].view_uuid;
    let text = says(&edited(&Edit("views", 1, 0, &uuid)));
    assert!(
        text.contains("view_uuid is another view's, expected unique"),
        "{text}"
    );
}

#[test]
fn a_recorded_digest_is_compared() {
    let (mut store, _) = small_volume();
    let volume = open(&store, store.len() as u64).unwrap();
    let streams = table(&volume, "streams");
    let extent_bytes = 9000;
    let (data, _) = Driver::new(0)
        .read(&volume, &store, 0..extent_bytes)
        .unwrap();
    let right = crate::identity::sha256(&data);
    for (digest, clean) in [(right, true), ([3; 32], false)] {
        edit::entry(&mut store, &streams, 0, |entry| {
            entry[120] = 1;
            entry[128..160].copy_from_slice(&digest);
        });
        let volume = open(&store, store.len() as u64).unwrap();
        assert_eq!(volume.stream(StreamIndex(0)).unwrap().digest, Some(digest));
        let report = verify(&store, store.len() as u64, &mut |_| {}).unwrap();
        assert_eq!(report.is_clean(), clean);
        if !clean {
            assert!(matches!(report.damage[0], VolumeError::Digest { .. }));
        }
    }
}
