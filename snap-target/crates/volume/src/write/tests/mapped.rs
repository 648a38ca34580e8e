//! Files that are mapped where they lie: what is presented of them, what is recorded, what is refused.

use std::fs::{self, File, FileTimes};
use std::path::Path;
use std::time::{Duration, SystemTime};

use proptest::prelude::*;
use transforms::ValueRange;

use super::*;
use crate::blocking::{Files, Reader};
use crate::identity::sha256;
use crate::verify::verify;
use crate::write::{FileOutput, Region, ViewSpec};
use crate::{SourceId, SourcePolicy, Volume, VolumeError};

const CACHE_BYTES: usize = 4 << 20;

/// Maps `regions` of `FOLDER/data.bin` and presents each as a view: "0", "1", ...
fn map(folder: &Path, regions: &[Region]) -> Result<Vec<Written>, WriteError> {
    map_while(folder, regions, &mut |_| {})
}

fn map_while(
    folder: &Path,
    regions: &[Region],
    on_progress: &mut dyn FnMut(u64),
) -> Result<Vec<Written>, WriteError> {
    let output = FileOutput::create(&folder.join("v.xio"), true)?;
    let mut writer = Writer::new(output, options(1))?;
    let file = File::open(folder.join("data.bin")).unwrap();
    let mapped = writer.map_file(b"data.bin", &file, regions, on_progress)?;
    for (name, stream) in mapped.streams.iter().enumerate() {
        writer.add_view(&name.to_string(), [whole(stream)])?;
    }
    if regions.is_empty() {
        writer.add_view("nothing", [])?;
    }
    writer.finish()?;
    Ok(mapped.streams)
}

fn region(element: ElementType, offset: u64, elements: u64) -> Region {
    Region {
        element,
        offset,
        elements,
    }
}

/// The same noise each time.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 7u64;
    (0..bytes)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            state.to_be_bytes()[0]
        })
        .collect()
}

fn index(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap()
}

fn folder(data: &[u8]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("data.bin"), data).unwrap();
    folder
}

fn read_view(folder: &Path, view: usize) -> Result<Vec<u8>, VolumeError> {
    let mut reader = Reader::open_file(&folder.join("v.xio"), CACHE_BYTES)?;
    let volume = reader.volume().clone();
    let volume = volume
        .with_view_named(&view.to_string())
        .expect("the view is there");
    let mut bytes = vec![0; index(volume.presented_bytes())];
    reader.set_volume(volume);
    reader.read(0, &mut bytes)?;
    Ok(bytes)
}

/// The range of integers, by the most plain way.
fn range(element: ElementType, data: &[u8]) -> Option<ValueRange> {
    let signed = element.is_signed_integer();
    let values = data.chunks_exact(element.bytes()).map(|bytes| {
        let fill = if signed && bytes[bytes.len() - 1] >= 0x80 {
            0xFF
        } else {
            0
        };
        let mut wide = [fill; 16];
        wide[..bytes.len()].copy_from_slice(bytes);
        i128::from_le_bytes(wide)
    });
    let all: Vec<i128> = values.collect();
    let (min, max) = (all.iter().min()?, all.iter().max()?);
    element.is_integer().then_some(ValueRange {
        min: *min,
        max: *max,
    })
}

/// Regions with gaps between them, and the length of a file that they fit into.
fn regions() -> impl Strategy<Value = (Vec<Region>, usize)> {
    let element = prop::sample::select(vec![
        ElementType::U8,
        ElementType::I8,
        ElementType::U16,
        ElementType::I32,
        ElementType::U64,
        ElementType::F32,
        ElementType::F64,
    ]);
    // Some are longer than a chunk of the scan; some are empty.
    let elements = prop_oneof![0..3u64, 0..9000u64, 130_000..300_000u64];
    let gap = prop_oneof![Just(0u64), 0..20u64, 4000..9000u64];
    let one = (element, elements, gap);
    (prop::collection::vec(one, 0..8), 0..5000u64).prop_map(|(list, tail)| {
        let mut at = 0;
        let mut regions = Vec::new();
        for (element, elements, gap) in list {
            regions.push(region(element, at + gap, elements));
            at += gap + elements * element.bytes() as u64;
        }
        (regions, index(at + tail))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn what_is_mapped_is_presented((regions, bytes) in regions()) {
        let data = noise(bytes);
        let folder = folder(&data);
        let streams = map(folder.path(), &regions).unwrap();
        prop_assert_eq!(streams.len(), regions.len());
        for (view, (stream, region)) in streams.iter().zip(&regions).enumerate() {
            let start = index(region.offset);
            let end = start + index(region.elements) * region.element.bytes();
            let expected = &data[start..end];
            prop_assert!(read_view(folder.path(), view).unwrap() == expected, "view {}", view);
            prop_assert_eq!(stream.sha256, sha256(expected));
            prop_assert_eq!(stream.proven, range(region.element, expected));
            prop_assert_eq!(stream.source_bytes, expected.len() as u64);
        }
        let (mut files, store_bytes) = Files::open(&folder.path().join("v.xio")).unwrap();
        let volume = crate::blocking::open(&files, store_bytes).unwrap();
        prop_assert_eq!(volume.sources()[1].digest, Some(sha256(&data)));
        files.open_sources(&volume, &SourcePolicy::default()).unwrap();
        let report = verify(&files, store_bytes, &mut |_| {}).unwrap();
        prop_assert!(report.is_clean(), "{:?}", report.damage);
    }
}

#[test]
fn a_flipped_bit_is_reported_with_the_file_and_its_offset() {
    let data = noise(30_000);
    let folder = folder(&data);
    map(folder.path(), &[region(ElementType::U16, 1001, 14_000)]).unwrap();
    let path = folder.path().join("data.bin");
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    let mut flipped = data;
    flipped[9000] ^= 4;
    fs::write(&path, flipped).unwrap();
    // As a disk does it: nobody's clock was told.
    let file = File::options().write(true).open(&path).unwrap();
    file.set_modified(modified).unwrap();
    let error = read_view(folder.path(), 0).unwrap_err();
    assert_eq!(error.kind(), crate::ErrorKind::Corrupt);
    let told = error.to_string();
    assert!(told.contains("data.bin") && told.contains("8192"), "{told}");
}

#[test]
fn a_file_that_was_changed_is_not_served_and_one_that_was_copied_is() {
    let data = noise(9000);
    let folder = folder(&data);
    map(folder.path(), &[region(ElementType::U8, 0, 9000)]).unwrap();
    let path = folder.path().join("data.bin");
    let touch = |seconds| {
        let times =
            FileTimes::new().set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_times(times)
            .unwrap();
    };
    let refused = || match read_view(folder.path(), 0) {
        Err(error @ VolumeError::SourceChanged { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    };
    touch(1000);
    assert_eq!(read_view(folder.path(), 0).unwrap(), data);
    let mut other = data.clone();
    other[8999] ^= 1;
    fs::write(&path, &other).unwrap();
    touch(2000);
    assert!(refused().contains("SHA-256"), "{}", refused());
    fs::write(&path, &data[..8999]).unwrap();
    assert!(
        refused().contains("it is 8999 bytes, and was 9000"),
        "{}",
        refused()
    );
    fs::write(&path, &data).unwrap();
    assert_eq!(read_view(folder.path(), 0).unwrap(), data);
}

#[test]
fn a_file_that_changes_while_it_is_mapped_is_refused() {
    let folder = folder(&noise(3 << 20));
    let path = folder.path().join("data.bin");
    let whole = [region(ElementType::U8, 0, 3 << 20)];
    let file = File::options().write(true).open(&path).unwrap();
    type Change<'f> = &'f dyn Fn();
    let changes: [(&str, Change<'_>); 3] = [
        ("its modification time", &|| {
            file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        }),
        ("its length", &|| file.set_len(4 << 20).unwrap()),
        ("its length", &|| file.set_len(1 << 20).unwrap()),
    ];
    for (expected, change) in changes {
        file.set_len(3 << 20).unwrap();
        let mut first = true;
        let outcome = map_while(folder.path(), &whole, &mut |_| {
            if std::mem::take(&mut first) {
                change();
            }
        });
        match outcome {
            Err(WriteError::Changed { what }) => assert_eq!(what, expected),
            other => panic!("{expected}: {other:?}"),
        }
        assert!(!folder.path().join("v.xio").exists());
    }
}

#[test]
fn regions_and_locators_that_cannot_be_are_refused() {
    let folder = folder(&noise(1000));
    let refused = |regions: &[Region]| match map(folder.path(), regions) {
        Err(WriteError::Refused { field, why }) => (field, why),
        other => panic!("{other:?}"),
    };
    for outside in [
        region(ElementType::U8, 0, 1001),
        region(ElementType::U32, 1, 250),
        region(ElementType::U64, u64::MAX, 1),
        region(ElementType::U64, 0, u64::MAX),
    ] {
        let (field, why) = refused(&[outside]);
        assert_eq!(field, "region");
        assert!(why.contains("of a file of 1000 bytes"), "{why}");
    }
    let (_, why) = refused(&[
        region(ElementType::U8, 0, 10),
        region(ElementType::U8, 9, 1),
    ]);
    assert!(why.contains("begins at byte 9"), "{why}");

    let file = File::open(folder.path().join("data.bin")).unwrap();
    for locator in [&b""[..], &[b'a'; 4097], b"a\0b"] {
        let mut recorder = Recorder::default();
        let mut writer = Writer::new(&mut recorder, options(1)).unwrap();
        let outcome = writer.map_file(locator, &file, &[], &mut |_| {});
        assert!(
            matches!(
                outcome,
                Err(WriteError::Refused {
                    field: "locator",
                    ..
                })
            ),
            "{outcome:?}"
        );
    }
}

#[test]
fn mapped_and_stored_streams_and_manifests_live_in_one_volume() {
    let data = noise(20_000);
    let folder = folder(&data);
    let path = folder.path().join("v.xio");
    let write = |manifest: Option<&str>, lossy| {
        let mut writer = Writer::new(FileOutput::create(&path, true)?, options(1))?;
        let stored = writer.add_stream(
            &spec("none", ElementType::U8, 0),
            &mut &data[..5000],
            &mut |_| {},
        )?;
        let file = File::open(folder.path().join("data.bin")).unwrap();
        let mapped = writer.map_file(
            b"data.bin",
            &file,
            &[region(ElementType::U8, 5000, 15_000)],
            &mut |_| {},
        )?;
        let view = ViewSpec {
            name: "0".into(),
            manifest: manifest.map(|text| text.as_bytes().to_vec()),
            lossy,
        };
        writer.add_view(view, [whole(&stored), whole(&mapped.streams[0])])?;
        writer.finish().map(|finished| finished.volume_uuid)
    };
    let plain = write(None, false).unwrap();
    assert_eq!(read_view(folder.path(), 0).unwrap(), data);
    assert_eq!(write(None, false).unwrap(), plain);
    let told = write(Some("{}"), false).unwrap();
    let lossy = write(Some("{}"), true).unwrap();
    assert!(plain != told && told != lossy && plain != lossy);
    let (files, store_bytes) = Files::open(&path).unwrap();
    let volume: Volume = crate::blocking::open(&files, store_bytes).unwrap();
    let view = &volume.views()[0];
    assert!(view.lossy);
    let manifest = crate::blocking::read_blob(&volume, &files, view.manifest.unwrap()).unwrap();
    assert_eq!(manifest, b"{}");
    assert_eq!(
        volume.stream(crate::StreamIndex(1)).unwrap().source,
        SourceId(1)
    );
    assert!(matches!(
        write(None, true),
        Err(WriteError::Refused {
            field: "manifest",
            ..
        })
    ));
}
