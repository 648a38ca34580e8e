//! Tables that are read: ours, a foreign writer's, and such as do not hold together.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::io::Cursor;

use gpt::{GptError, HEAD_BYTES, LbaBytes, Partition, Place, lay_out, parse};

const SIZES: [LbaBytes; 2] = [LbaBytes::B512, LbaBytes::B4096];

fn place(name: &str, first_byte: u64, bytes: u64) -> Place {
    Place {
        name: name.to_owned(),
        first_byte,
        bytes,
    }
}

/// Head and length of a disk with partitions of 8 KiB and of 3 MiB.
fn ours(lba: LbaBytes) -> (Vec<u8>, u64) {
    let of = |name, number, bytes| Partition {
        name,
        uuid: [number; 16],
        bytes,
    };
    let partitions = [
        of(&b"a\xc3\xa9"[..], 1, 8192),
        of(b"sub/\xf0\x9d\x84\x9e", 2, 3 << 20),
    ];
    let layout = lay_out(lba, [9; 16], &partitions).unwrap();
    let mut head = layout.head();
    head.resize(HEAD_BYTES, 0);
    (head, layout.disk_bytes())
}

fn why(head: &[u8], disk_bytes: u64) -> String {
    match parse(head, disk_bytes).unwrap_err() {
        GptError::Table { why, .. } => why,
        other => panic!("{other}"),
    }
}

#[test]
fn what_was_laid_out_is_found() {
    for lba in SIZES {
        let (head, disk_bytes) = ours(lba);
        let found = parse(&head, disk_bytes).unwrap().unwrap();
        let expected = [
            place("a\u{e9}", 1 << 20, 8192),
            place("sub/\u{1D11E}", 2 << 20, 3 << 20),
        ];
        assert_eq!(found, expected);
    }
}

/// gptman writes: entries of its own places, in the order of the table.
#[test]
fn a_foreign_table_is_read() {
    for lba in SIZES {
        let lba = lba.bytes();
        let mut disk = Cursor::new(vec![0; 4 << 20]);
        let mut table = gptman::GPT::new_from(&mut disk, lba, [5; 16]).unwrap();
        for (number, first, last, name) in [(1, 700, 799, "late"), (3, 64, 64, "early")] {
            table[number] = gptman::GPTPartitionEntry {
                partition_type_guid: [7; 16],
                unique_partition_guid: [u8::try_from(number).unwrap(); 16],
                starting_lba: first,
                ending_lba: last,
                attribute_bits: 0,
                partition_name: name.into(),
            };
        }
        gptman::GPT::write_protective_mbr_into(&mut disk, lba).unwrap();
        table.write_into(&mut disk).unwrap();
        let disk = disk.into_inner();
        let found = parse(&disk[..HEAD_BYTES], disk.len() as u64);
        let expected = [
            place("late", 700 * lba, 100 * lba),
            place("early", 64 * lba, lba),
        ];
        assert_eq!(found.unwrap().unwrap(), expected);
    }
}

#[test]
fn what_is_no_table_is_none() {
    let (mut head, disk_bytes) = ours(LbaBytes::B4096);
    assert_eq!(parse(&[], 0), Ok(None));
    assert_eq!(parse(&[0; HEAD_BYTES], disk_bytes), Ok(None));
    assert_eq!(parse(&head[..4096], 4096), Ok(None));
    // A table of the MBR's own kind.
    let mut other = head.clone();
    other[450] = 0x83;
    assert_eq!(parse(&other, disk_bytes), Ok(None));
    head[4096] ^= 1;
    assert_eq!(parse(&head, disk_bytes), Ok(None));
}

/// Each bit of header and entries is under a checksum, but for those that say that it is a table.
#[test]
fn no_flipped_bit_is_believed() {
    for lba in SIZES {
        let (head, disk_bytes) = ours(lba);
        let header = usize::try_from(lba.bytes()).unwrap();
        for at in (header..header + 92).chain(2 * header..2 * header + 16_384) {
            for bit in [0, 7] {
                let mut wrong = head.clone();
                wrong[at] ^= 1 << bit;
                let parsed = parse(&wrong, disk_bytes);
                if at < header + 8 {
                    assert_eq!(parsed, Ok(None), "{at}");
                } else {
                    assert!(matches!(parsed, Err(GptError::Table { .. })), "{at}");
                }
            }
        }
    }
}

/// With checksums that are right.
#[test]
fn fields_that_do_not_hold_together_are_named() {
    let (head, disk_bytes) = ours(LbaBytes::B512);
    let wrong = |at: usize, bytes: &[u8]| {
        let mut head = head.clone();
        head[at..at + bytes.len()].copy_from_slice(bytes);
        let crc = |bytes: &[u8]| crc32(bytes).to_le_bytes();
        let entries = crc(&head[1024..1024 + 16_384]);
        if at >= 1024 {
            head[512 + 88..512 + 92].copy_from_slice(&entries);
        }
        head[512 + 16..512 + 20].fill(0);
        let header = crc(&head[512..512 + 92]);
        head[512 + 16..512 + 20].copy_from_slice(&header);
        why(&head, disk_bytes)
    };
    let number = |value: u64| value.to_le_bytes();
    assert_eq!(
        wrong(520, &[0, 0, 2, 0]),
        "its revision is 131072; only 65536 is read here"
    );
    assert_eq!(
        wrong(512 + 24, &number(2)),
        "the header's own block is 2; only 1 is read here"
    );
    assert_eq!(
        wrong(512 + 72, &number(u64::MAX)),
        "the entries' first block is 18446744073709551615; only 2 is read here"
    );
    assert_eq!(
        wrong(512 + 80, &u32::MAX.to_le_bytes()),
        "4294967295 entries; up to 128 are read here"
    );
    assert_eq!(
        wrong(512 + 84, &0u32.to_le_bytes()),
        "an entry's length is 0; only 128 is read here"
    );
    // The first partition: blocks 2048 to 2063; the second from 4096 on; 12,288 in all.
    assert_eq!(disk_bytes / 512, 12_288);
    let (first, last) = (1024 + 32, 1024 + 40);
    assert_eq!(
        wrong(last, &number(2047)),
        "partition 1 is block 2048 to 2047; the usable ones are 34 to 12254"
    );
    assert_eq!(
        wrong(first, &number(33)),
        "partition 1 is block 33 to 2063; the usable ones are 34 to 12254"
    );
    assert_eq!(
        wrong(last, &number(u64::MAX)),
        "partition 1 is block 2048 to 18446744073709551615; the usable ones are 34 to 12254"
    );
    assert_eq!(
        wrong(last, &number(4096)),
        "partition 2 overlaps \"a\u{e9}\""
    );
    // A disk that was cut off.
    assert_eq!(
        why(&head, 4 << 20),
        "partition 2 ends with block 10239; the disk has 8192 of 512 bytes"
    );
}

/// Bit by bit, as the specification defines it.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc: u32, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            crc >> 1 ^ if crc & 1 == 1 { 0xEDB8_8320 } else { 0 }
        })
    })
}
