//! Tables that are read: ours, a foreign writer's, and such as do not hold together.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::io::Cursor;

use gpt::{
    GptError, HEAD_BYTES, LbaBytes, Parsed, Partition, Place, TAIL_BYTES, is_protective, lay_out,
};

const SIZES: [LbaBytes; 2] = [LbaBytes::B512, LbaBytes::B4096];

fn place(name: &str, first_byte: u64, bytes: u64) -> Place {
    Place {
        name: name.to_owned(),
        first_byte,
        bytes,
    }
}

/// The first and the last bytes of a disk, and how many it has.
#[derive(Clone)]
struct Disk {
    head: Vec<u8>,
    tail: Vec<u8>,
    bytes: u64,
}

impl Disk {
    fn parse(&self) -> Result<Option<Parsed>, GptError> {
        gpt::parse(&self.head, &self.tail, self.bytes)
    }

    /// Without its backup.
    fn headed(mut self) -> Disk {
        self.tail.fill(0);
        self
    }
}

/// A table that is as it should be.
fn whole(places: &[Place]) -> Result<Option<Parsed>, GptError> {
    Ok(Some(Parsed {
        places: places.to_vec(),
        backup: None,
    }))
}

fn expected() -> [Place; 2] {
    [
        place("a\u{e9}", 1 << 20, 8192),
        place("sub/\u{1D11E}", 2 << 20, 3 << 20),
    ]
}

/// A disk with partitions of 8 KiB and of 3 MiB.
fn ours(lba: LbaBytes) -> Disk {
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
    let mut tail = vec![0; TAIL_BYTES - layout.tail().len()];
    tail.extend(layout.tail());
    let bytes = layout.disk_bytes();
    Disk { head, tail, bytes }
}

fn why(disk: &Disk) -> String {
    match disk.parse().unwrap_err() {
        GptError::Table { why, .. } => why,
        other => panic!("{other}"),
    }
}

#[test]
fn what_was_laid_out_is_found() {
    for lba in SIZES {
        assert_eq!(ours(lba).parse(), whole(&expected()));
        assert_eq!(ours(lba).headed().parse(), whole(&expected()));
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
        let expected = [
            place("late", 700 * lba, 100 * lba),
            place("early", 64 * lba, lba),
        ];
        let mut disk = Disk {
            head: disk[..HEAD_BYTES].to_vec(),
            tail: disk[disk.len() - TAIL_BYTES..].to_vec(),
            bytes: disk.len() as u64,
        };
        assert_eq!(disk.parse(), whole(&expected));
        // Its backup too.
        disk.head[usize::try_from(lba).unwrap() + 60] ^= 1;
        let found = disk.parse().unwrap().unwrap();
        assert_eq!(found.places, expected);
        assert_eq!(found.backup.unwrap().1, (4 << 20) - lba);
    }
}

#[test]
fn what_is_no_table_is_none() {
    let disk = ours(LbaBytes::B4096);
    let (head, bytes) = (&disk.head, disk.bytes);
    assert!(is_protective(head));
    assert_eq!(gpt::parse(&[], &[], 0), Ok(None));
    assert_eq!(gpt::parse(&[0; HEAD_BYTES], &disk.tail, bytes), Ok(None));
    assert_eq!(gpt::parse(&head[..4096], &head[..4096], 4096), Ok(None));
    // A table of the MBR's own kind.
    let mut other = disk.clone();
    other.head[450] = 0x83;
    assert!(!is_protective(&other.head));
    assert_eq!(other.parse(), Ok(None));
    // Neither of the two headers.
    let mut neither = disk.headed();
    neither.head[4096] ^= 1;
    assert_eq!(neither.parse(), Ok(None));
}

/// Each bit of header and entries is under a checksum: the backup is read instead. Without one, only what says that it is a table makes it none.
#[test]
fn no_flipped_bit_is_believed() {
    for lba in SIZES {
        let disk = ours(lba);
        let lba = lba.bytes();
        let header = usize::try_from(lba).unwrap();
        for at in (header..header + 92).chain(2 * header..2 * header + 16_384) {
            for bit in [0, 7] {
                let mut wrong = disk.clone();
                wrong.head[at] ^= 1 << bit;
                let found = wrong.parse().unwrap().unwrap();
                assert_eq!(found.places, expected(), "{at}");
                let Some((GptError::Table { at: lost, why }, backup)) = found.backup else {
                    panic!("{at}: a damaged table was believed");
                };
                assert_eq!((lost, backup), (lba, disk.bytes - lba), "{at}: {why}");
                let alone = wrong.headed().parse();
                if at < header + 8 {
                    assert_eq!(why, "it has no header");
                    assert_eq!(alone, Ok(None), "{at}");
                } else {
                    assert!(matches!(alone, Err(GptError::Table { .. })), "{at}");
                }
            }
        }
    }
}

/// Both tables damaged: both are named, and nothing is believed.
#[test]
fn no_flipped_bit_of_the_backup_is_believed() {
    for lba in SIZES {
        let mut disk = ours(lba);
        let lba = usize::try_from(lba.bytes()).unwrap();
        // A backup that is damaged alone is not looked at.
        disk.tail[TAIL_BYTES - 1 - lba] ^= 1;
        assert_eq!(disk.parse(), whole(&expected()));
        disk.tail[TAIL_BYTES - 1 - lba] ^= 1;
        disk.head[2 * lba + 40] ^= 1;
        let (header, entries) = (TAIL_BYTES - lba, TAIL_BYTES - lba - 16_384);
        for at in (header..header + 92).chain(entries..header) {
            let mut wrong = disk.clone();
            wrong.tail[at] ^= 4;
            let why = why(&wrong);
            assert!(
                why.starts_with("checksum mismatch of its entries: "),
                "{why}"
            );
            let also = if (header..header + 8).contains(&at) {
                "; there is no backup in the last block".to_owned()
            } else {
                format!(
                    "; and the partition table at byte {}: ",
                    disk.bytes - lba as u64
                )
            };
            assert!(why.contains(&also), "{at}: {why}");
        }
    }
}

/// With checksums that are right.
#[test]
fn fields_that_do_not_hold_together_are_named() {
    let disk = ours(LbaBytes::B512).headed();
    let disk_bytes = disk.bytes;
    let wrong = |at: usize, bytes: &[u8]| {
        let mut disk = disk.clone();
        let head = &mut disk.head;
        head[at..at + bytes.len()].copy_from_slice(bytes);
        let crc = |bytes: &[u8]| crc32(bytes).to_le_bytes();
        let entries = crc(&head[1024..1024 + 16_384]);
        if at >= 1024 {
            head[512 + 88..512 + 92].copy_from_slice(&entries);
        }
        head[512 + 16..512 + 20].fill(0);
        let header = crc(&head[512..512 + 92]);
        head[512 + 16..512 + 20].copy_from_slice(&header);
        why(&disk)
    };
    let header = |why: &str| format!("{why}; there is no backup in the last block");
    let number = |value: u64| value.to_le_bytes();
    assert_eq!(
        wrong(520, &[0, 0, 2, 0]),
        header("its revision is 131072; only 65536 is read here")
    );
    assert_eq!(
        wrong(512 + 24, &number(2)),
        header("the header's own block is 2; only 1 is read here")
    );
    assert_eq!(
        wrong(512 + 72, &number(u64::MAX)),
        header("the entries' first block is 18446744073709551615; only 2 is read here")
    );
    assert_eq!(
        wrong(512 + 80, &u32::MAX.to_le_bytes()),
        header("4294967295 entries; up to 128 are read here")
    );
    assert_eq!(
        wrong(512 + 84, &0u32.to_le_bytes()),
        header("an entry's length is 0; only 128 is read here")
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
    let cut = Disk {
        bytes: 4 << 20,
        ..disk.clone()
    };
    assert_eq!(
        why(&cut),
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
