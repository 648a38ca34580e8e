//! Tables held against a foreign reader, against bytes written from the specification, and against what must be refused.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::io::Cursor;

use gpt::{ALIGNMENT_BYTES, DISK_BYTES_MAX, GptError, Layout, LbaBytes, Partition, lay_out};

const DISK: [u8; 16] = *b"\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff";
const SIZES: [LbaBytes; 2] = [LbaBytes::B512, LbaBytes::B4096];

fn partition(name: &[u8], number: u8, bytes: u64) -> Partition<'_> {
    let uuid = [number; 16];
    Partition { name, uuid, bytes }
}

fn disk(layout: &Layout) -> Vec<u8> {
    let mut disk = vec![0; usize::try_from(layout.disk_bytes()).unwrap()];
    let (head, tail) = (layout.head(), layout.tail());
    disk[..head.len()].copy_from_slice(&head);
    let at = usize::try_from(layout.tail_offset()).unwrap();
    disk[at..].copy_from_slice(&tail);
    disk
}

/// gptman reads the table, from the primary header and, with that gone, from the backup.
#[test]
fn a_foreign_reader_finds_each_partition() {
    for lba in SIZES {
        let names: Vec<String> = (0..128).map(|i| format!("file {i}")).collect();
        let partitions: Vec<Partition<'_>> = (1u8..)
            .zip(&names)
            .map(|(i, name)| partition(name.as_bytes(), i, u64::from(i) * 4096))
            .collect();
        let layout = lay_out(lba, DISK, &partitions).unwrap();
        let whole = disk(&layout);
        let mut headless = whole.clone();
        headless[..24_576].fill(0);
        for bytes in [whole, headless] {
            let mut cursor = Cursor::new(bytes);
            let table = gptman::GPT::read_from(&mut cursor, lba.bytes()).unwrap();
            let mut used = 0;
            for (number, entry) in table.iter().filter(|(_, entry)| entry.is_used()) {
                let (place, given) = (&layout.places()[used], &partitions[used]);
                used += 1;
                assert_eq!(number as usize, used);
                assert_eq!(entry.partition_name.as_str(), place.name);
                assert_eq!(entry.starting_lba * lba.bytes(), place.first_byte);
                assert_eq!(entry.size().unwrap() * lba.bytes(), given.bytes);
                assert_eq!(entry.unique_partition_guid, given.uuid);
                assert!(place.first_byte.is_multiple_of(ALIGNMENT_BYTES));
                assert!(entry.ending_lba <= table.header.last_usable_lba);
            }
            assert_eq!(used, 128);
            // As gptman would begin a table on a disk of this length.
            let fresh = gptman::GPT::new_from(&mut cursor, lba.bytes(), [1; 16]).unwrap();
            let usable = |table: &gptman::GPT| {
                let header = &table.header;
                (header.first_usable_lba, header.last_usable_lba)
            };
            assert_eq!(usable(&table), usable(&fresh));
        }
    }
}

/// Offsets and values from the UEFI specification, as numbers.
#[test]
fn bytes_of_a_table() {
    let layout = lay_out(LbaBytes::B512, DISK, &[partition(b"a\xc3\xa9", 0x5A, 1024)]).unwrap();
    assert_eq!(layout.disk_bytes(), 3 << 20);
    let disk = disk(&layout);
    let number = |at: usize, bytes: usize| {
        let bytes = disk[at..at + bytes].iter().rev();
        bytes.fold(0u64, |number, &byte| number << 8 | u64::from(byte))
    };
    let last = (3 << 20) / 512 - 1;
    assert_eq!(disk[..446], [0; 446]);
    assert_eq!(disk[446..454], [0, 0, 2, 0, 0xEE, 0xFF, 0xFF, 0xFF]);
    assert_eq!(number(454, 4), 1);
    assert_eq!(number(458, 4), last);
    assert_eq!(disk[462..510], [0; 48]);
    assert_eq!(disk[510..512], [0x55, 0xAA]);
    let primary = (512, 1, last, 2);
    let backup = (usize::try_from(last).unwrap() * 512, last, 1, last - 32);
    for (at, own, other, entries) in [primary, backup] {
        assert_eq!(disk[at..at + 8], *b"EFI PART");
        assert_eq!(number(at + 8, 4), 0x10000);
        assert_eq!(number(at + 12, 4), 92);
        assert_eq!(number(at + 20, 4), 0);
        assert_eq!(number(at + 24, 8), own);
        assert_eq!(number(at + 32, 8), other);
        assert_eq!(number(at + 40, 8), 34);
        assert_eq!(number(at + 48, 8), last - 33);
        let guid = b"\x33\x22\x11\x00\x55\x44\x77\x66\x88\x99\xaa\xbb\xcc\xdd\xee\xff";
        assert_eq!(disk[at + 56..at + 72], *guid);
        assert_eq!(number(at + 72, 8), entries);
        assert_eq!(number(at + 80, 4), 128);
        assert_eq!(number(at + 84, 4), 128);
        let entries = usize::try_from(entries).unwrap() * 512;
        let entry = &disk[entries..entries + 128];
        let linux = b"\xaf\x3d\xc6\x0f\x83\x84\x72\x47\x8e\x79\x3d\x69\xd8\x47\x7d\xe4";
        assert_eq!(entry[..16], *linux);
        assert_eq!(entry[16..32], [0x5A; 16]);
        assert_eq!(number(entries + 32, 8), 2048);
        assert_eq!(number(entries + 40, 8), 2049);
        assert_eq!(number(entries + 48, 8), 0);
        assert_eq!(entry[56..60], [b'a', 0, 0xE9, 0]);
        assert_eq!(entry[60..], [0; 68]);
        assert_eq!(disk[entries + 128..entries + 16_384], [0; 16_256]);
    }
}

#[test]
fn names_too_long_or_no_text() {
    let shown = |name: &[u8]| {
        let layout = lay_out(LbaBytes::B4096, DISK, &[partition(name, 1, 4096)]).unwrap();
        layout.places()[0].name.clone()
    };
    let fits = "x".repeat(36);
    assert_eq!(shown(fits.as_bytes()), fits);
    // The digits are what sha256sum says of the name.
    let cut = format!("{}~6ee29e87", "x".repeat(27));
    assert_eq!(shown("x".repeat(37).as_bytes()), cut);
    // 18 characters of two units each; a 19th does not fit, and no pair is cut in two.
    let pairs = "\u{1D11E}".repeat(18);
    assert_eq!(shown(pairs.as_bytes()), pairs);
    let short = shown("\u{1D11E}".repeat(19).as_bytes());
    let beginning = format!("{}~", "\u{1D11E}".repeat(13));
    assert!(short.starts_with(&beginning), "{short}");
    assert_eq!(short.encode_utf16().count(), 35);
    assert_ne!(shown(b"\xff"), shown(b"\xfe"));
    assert!(shown(b"\xff").starts_with("\u{FFFD}~"));
    let long = |end: u8| shown(&[&[b'y'; 40][..], &[end]].concat());
    assert_ne!(long(b'1'), long(b'2'));
}

#[test]
fn what_is_refused() {
    let said = |partitions: &[Partition<'_>]| {
        let refused = lay_out(LbaBytes::B4096, DISK, partitions);
        refused.unwrap_err().to_string()
    };
    assert_eq!(
        said(&[partition(b"a", 1, 4095)]),
        "\"a\" is 4095 bytes; a partition is a whole number of blocks of 4096, and at least one"
    );
    assert!(said(&[partition(b"a", 1, 0)]).starts_with("\"a\" is 0 bytes"));
    assert_eq!(said(&[partition(b"", 1, 4096)]), "the name \"\" is empty");
    assert_eq!(
        said(&[partition(b"a\0", 1, 4096)]),
        "the name \"a\\x00\" has a NUL in it"
    );
    let a = partition(b"a", 1, 4096);
    assert_eq!(
        said(&[a, partition(b"a", 2, 4096)]),
        "the name \"a\" is there twice"
    );
    let uuid = "the UUID of \"b\" is zero, or another partition's or the disk's";
    assert_eq!(said(&[a, partition(b"b", 1, 4096)]), uuid);
    assert_eq!(said(&[partition(b"b", 0, 4096)]), uuid);
    let as_the_disk = Partition {
        uuid: DISK,
        ..partition(b"b", 0, 4096)
    };
    assert_eq!(said(&[as_the_disk]), uuid);
    assert_eq!(
        said(&[a; 129]),
        "129 partitions; a table holds 128: put the files on one filesystem, or on several disks"
    );
}

#[test]
fn the_largest_disk() {
    let disk_of = |bytes| lay_out(LbaBytes::B4096, DISK, &[partition(b"a", 1, bytes)]);
    let most = DISK_BYTES_MAX - 2 * ALIGNMENT_BYTES;
    assert_eq!(disk_of(most).unwrap().disk_bytes(), DISK_BYTES_MAX);
    for bytes in [most + 4096, u64::MAX - 4095] {
        assert_eq!(disk_of(bytes).unwrap_err(), GptError::DiskTooLarge);
    }
}

/// More blocks than the MBR can tell.
#[test]
fn a_disk_of_more_than_2_tib() {
    let layout = lay_out(LbaBytes::B512, DISK, &[partition(b"a", 1, 3 << 40)]).unwrap();
    assert_eq!(layout.head()[458..462], [0xFF; 4]);
    assert_eq!(layout.disk_bytes(), (3 << 40) + 2 * ALIGNMENT_BYTES);
}
