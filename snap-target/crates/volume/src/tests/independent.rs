//! The reader that was written from docs/format.md alone refuses what this one refuses.

use std::path::Path;
use std::process::Command;

use transforms::ElementType::{self, Bf16, F16, F32, F64, I32, I64, U8, U16, U32, U64};
use transforms::TableKind;
use zerocopy::IntoBytes;

use super::edit;
use super::golden::{Golden, folder, of_chains};
use crate::blocking::open;
use crate::checksum::crc32c;
use crate::format::{ChainIndex, Layout};
use crate::identity::sha256;
use crate::{StreamIndex, VolumeError};

/// The first is a chain of one step with a table, too short to be packed; the second has one frame of a split plane.
const VOLUME: [Golden; 2] = [("rank", U32, 3, 0, 400), ("floatsplit", Bf16, 16, 0, 1200)];

/// What Python says; `None` where there is none here.
fn python(volume: &Path) -> Option<(bool, String)> {
    let script = folder().join("read_volume.py");
    let output = Command::new("python3").arg(script).arg(volume).output();
    let output = output
        .inspect_err(|error| println!("skipped: no python3 here ({error})"))
        .ok()?;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    Some((output.status.success(), stderr))
}

/// It refuses the volume in one line, which has `why` in it.
fn python_refuses(what: &str, store: &[u8], why: &str) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), store).unwrap();
    if let Some((success, stderr)) = python(file.path()) {
        assert!(!success, "{what}: read");
        assert!(stderr.contains(why), "{what}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{what}: {stderr}");
    }
}

/// Steps by number and parameter.
type Steps = &'static [(u16, u32)];

const U16_STEP: (u16, u32) = (0x0001, 3);
const BF16_STEP: (u16, u32) = (0x0003, 10);
const Q8_0: (u16, u32) = (0x0004, 0);
const SHUFFLE: (u16, u32) = (0x0100, 0);
const LZ4: (u16, u32) = (0x0101, 0);
const LZ4HC: (u16, u32) = (0x0102, 9);
const ZSTD: (u16, u32) = (0x0103, 3);
const FLOATSPLIT: (u16, u32) = (0x0104, 0);
const RANK: (u16, u32) = (0x0200, 0);

const fn bitpack(bits: u32) -> (u16, u32) {
    (0x0002, bits)
}

const INVALID: [(ElementType, Steps); 49] = [
    (U32, &[bitpack(16), RANK]),
    (U32, &[bitpack(32), RANK]),
    (U8, &[RANK]),
    (U64, &[RANK]),
    (I64, &[RANK]),
    (F32, &[RANK]),
    (U32, &[RANK, RANK]),
    (U32, &[RANK, SHUFFLE]),
    (U32, &[SHUFFLE, RANK]),
    (U32, &[RANK, U16_STEP]),
    (U32, &[(0x0200, 1)]),
    (U32, &[FLOATSPLIT]),
    (Bf16, &[(0x0104, 1)]),
    (Bf16, &[SHUFFLE, FLOATSPLIT]),
    (Bf16, &[FLOATSPLIT, FLOATSPLIT]),
    (Bf16, &[FLOATSPLIT, LZ4]),
    (Bf16, &[FLOATSPLIT, ZSTD]),
    (Bf16, &[LZ4, FLOATSPLIT]),
    (U32, &[RANK, FLOATSPLIT]),
    (U32, &[LZ4, LZ4]),
    (U32, &[LZ4, ZSTD]),
    (U32, &[LZ4HC, LZ4]),
    (U32, &[LZ4, SHUFFLE]),
    (U32, &[ZSTD, RANK]),
    (U32, &[LZ4, U16_STEP]),
    (U32, &[SHUFFLE, SHUFFLE]),
    (U32, &[SHUFFLE, U16_STEP]),
    (U8, &[SHUFFLE]),
    (U32, &[bitpack(17), SHUFFLE]),
    (U32, &[(0x0100, 1)]),
    (U32, &[(0x0101, 1)]),
    (U32, &[(0x0102, 13)]),
    (U32, &[(0x0103, 0)]),
    (U32, &[(0x0103, 23)]),
    (U32, &[bitpack(0)]),
    (U32, &[bitpack(33)]),
    (U32, &[bitpack(17), U16_STEP]),
    (F32, &[U16_STEP]),
    (F32, &[BF16_STEP, BF16_STEP]),
    (F16, &[BF16_STEP]),
    (U32, &[Q8_0]),
    (F64, &[Q8_0]),
    (F32, &[(0x0004, 1)]),
    (F32, &[BF16_STEP, Q8_0]),
    (F32, &[Q8_0, BF16_STEP]),
    (F32, &[Q8_0, Q8_0]),
    (F32, &[Q8_0, SHUFFLE]),
    (F32, &[Q8_0, FLOATSPLIT]),
    (F32, &[LZ4, Q8_0]),
];

#[test]
fn chains_that_cannot_be_are_refused_by_both_readers() {
    let made = of_chains(*b"chains, refused\x01", &VOLUME).volume;
    let volume = open(&made, made.len() as u64).unwrap();
    let [_, _, chains, ..] = volume.superblock().directory;
    let table = volume.table_blob(ChainIndex(0), TableKind::Ranks).unwrap();
    let with = |element: ElementType, steps: &[(u16, u32)]| {
        let mut store = made.clone();
        edit::entry(&mut store, &chains, 0, |entry| {
            entry[16..].fill(0);
            (entry[0], entry[1]) = (element.code(), steps.len() as u8);
            for (step, (id, parameter)) in entry[16..].chunks_exact_mut(16).zip(steps) {
                let blob = if *id == RANK.0 { table.0 } else { u32::MAX };
                step[..2].copy_from_slice(&id.to_le_bytes());
                step[2..4].copy_from_slice(&1u16.to_le_bytes());
                step[4..8].copy_from_slice(&parameter.to_le_bytes());
                step[8..12].copy_from_slice(&blob.to_le_bytes());
            }
        });
        store
    };
    for (element, steps) in INVALID {
        let what = format!("{steps:x?} of {element}");
        let store = with(element, steps);
        match open(&store, store.len() as u64).unwrap_err() {
            VolumeError::Transform { place, .. } => {
                assert_eq!(place, chains.entry_place(0), "{what}");
            }
            other => panic!("{what}: {other}"),
        }
        python_refuses(&what, &store, "chain: ");
    }
    // What the edit makes of a chain that can be is read.
    for (element, steps) in [(U32, &[RANK][..]), (U32, &[RANK, LZ4][..])] {
        let store = with(element, steps);
        open(&store, store.len() as u64).unwrap();
    }
    for (element, steps) in [(U16, &[RANK, ZSTD][..]), (I32, &[RANK, LZ4HC][..])] {
        // A stream of another type refers to it.
        let store = with(element, steps);
        let error = open(&store, store.len() as u64).unwrap_err();
        assert!(!error.to_string().contains("cannot"), "{error}");
    }
}

/// What is cut off ends the reading in a line that says so.
#[test]
fn frames_and_tables_that_are_cut_off_are_refused_by_both_readers() {
    let made = of_chains(*b"chains, cut off\x01", &VOLUME).volume;
    let volume = open(&made, made.len() as u64).unwrap();
    let [_, _, _, blobs, _] = volume.superblock().directory;
    let table = volume.table_blob(ChainIndex(0), TableKind::Ranks).unwrap();
    let blob = &volume.blobs()[table.0 as usize];
    for bytes in [0, 1, 7, 8, 9, blob.bytes - 1] {
        let mut store = made.clone();
        let cut = &made[blob.offset as usize..][..bytes as usize];
        let (crc, digest) = (crc32c(cut), sha256(cut));
        edit::entry(&mut store, &blobs, u64::from(table.0), |entry| {
            entry[4..8].copy_from_slice(crc.as_bytes());
            entry[16..24].copy_from_slice(&bytes.to_le_bytes());
            entry[32..64].copy_from_slice(&digest);
        });
        assert!(open(&store, store.len() as u64).is_err());
        python_refuses(&format!("a table of {bytes} bytes"), &store, "");
    }
    let stream = volume.stream(StreamIndex(1)).unwrap();
    let Layout::Framed { frames, .. } = stream.layout else {
        panic!("it has frames");
    };
    let at = stream.stored_offset as usize;
    for bytes in [1u32, 3, 4, 5, 6, 9, 40, 1300] {
        let mut store = made.clone();
        let crc = crc32c(&made[at..at + bytes as usize]);
        edit::entry(&mut store, &frames, 0, |entry| {
            entry[8..12].copy_from_slice(bytes.as_bytes());
            entry[12..16].copy_from_slice(crc.as_bytes());
        });
        let report = crate::verify::verify(&store, store.len() as u64, &mut |_| {}).unwrap();
        assert!(!report.is_clean());
        python_refuses(&format!("a frame of {bytes} bytes"), &store, "");
    }
}
