//! Bytes at the places where Linux's fs/erofs/erofs_fs.h has the fields, written here as numbers and not taken from the crate.

#![allow(clippy::unwrap_used, reason = "a test")]

mod model;

use model::{Item, attributes, disk, empty, label, tree};

struct Disk(Vec<u8>);

impl Disk {
    fn number(&self, at: usize, bytes: usize) -> u64 {
        let bytes = self.0[at..at + bytes].iter().rev();
        bytes.fold(0, |number, &byte| number << 8 | u64::from(byte))
    }
}

/// CRC-32C bit by bit, as Linux's crc32c(): begun with all ones, not inverted at the end.
fn crc32c_le(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = crc >> 1 ^ if crc & 1 == 1 { 0x82F6_3B78 } else { 0 };
        }
    }
    crc
}

fn two_files_and_a_link() -> Disk {
    let mut model = empty();
    model.insert(b"-".to_vec(), (attributes(4000), Item::File(vec![5; 4097])));
    model.insert(b"d".to_vec(), (attributes(0o700), Item::Directory));
    model.insert(
        b"d/l".to_vec(),
        (attributes(3), Item::Symlink(b"target".to_vec())),
    );
    model.insert(b"z".to_vec(), (attributes(4), Item::File(vec![6; 1])));
    Disk(disk(&model, &tree(&model).lay_out(label()).unwrap()))
}

#[test]
fn superblock() {
    let disk = two_files_and_a_link();
    assert_eq!(disk.0[..1024], [0; 1024]);
    assert_eq!(disk.number(1024, 4), 0xE0F5_E1E2, "magic");
    let mut covered = disk.0[1024..4096].to_vec();
    covered[4..8].fill(0);
    assert_eq!(
        disk.number(1028, 4),
        u64::from(crc32c_le(&covered)),
        "checksum"
    );
    assert_eq!(disk.number(1032, 4), 3, "feature_compat: SB_CHKSUM, MTIME");
    assert_eq!(disk.number(1036, 1), 12, "blkszbits");
    assert_eq!(disk.number(1037, 1), 0, "sb_extslots");
    assert_eq!(disk.number(1038, 2), 128, "rootnid_2b");
    assert_eq!(disk.number(1040, 8), 5, "inos");
    assert_eq!(disk.number(1048, 8), 1_700_000_000, "epoch");
    assert_eq!(disk.number(1056, 4), 5, "fixed_nsec");
    // The superblock's block, one of inodes, two and one of payload.
    assert_eq!(disk.number(1060, 4), 5, "blocks_lo");
    assert_eq!(disk.0.len(), 5 * 4096);
    assert_eq!(disk.number(1064, 4), 0, "meta_blkaddr");
    assert_eq!(disk.number(1068, 4), 0, "xattr_blkaddr");
    assert_eq!(disk.0[1072..1088], *b"0123456789abcdef", "uuid");
    assert_eq!(
        disk.0[1088..1104],
        *b"model\0\0\0\0\0\0\0\0\0\0\0",
        "volume_name"
    );
    assert_eq!(disk.number(1104, 4), 0, "feature_incompat");
    assert_eq!(disk.0[1108..4096], [0; 2988]);
}

#[test]
fn inodes_and_entries() {
    let disk = two_files_and_a_link();
    // The root: 64 bytes, and behind it five entries of 12 bytes with 1 + 1 + 2 + 1 + 1 bytes of names.
    let root = 4096;
    let dirents = 5 * 12 + 6;
    assert_eq!(
        disk.number(root, 2),
        1 | 2 << 1,
        "i_format: extended, flat inline"
    );
    assert_eq!(disk.number(root + 2, 2), 0, "i_xattr_icount");
    assert_eq!(disk.number(root + 4, 2), 0o040_755, "i_mode");
    assert_eq!(disk.number(root + 6, 2), 0, "i_nb");
    assert_eq!(disk.number(root + 8, 8), dirents, "i_size");
    assert_eq!(disk.number(root + 16, 4), 0, "startblk_lo");
    assert_eq!(disk.number(root + 20, 4), 1, "i_ino");
    assert_eq!(disk.number(root + 44, 4), 3, "i_nlink");
    assert_eq!(disk.0[root + 48..root + 64], [0; 16]);
    // 4096 + 64 + 66 rounded up to 32 bytes is 4256, which is inode 133; the files take 2 numbers, the directory 3 or 4.
    let (dash, d, z, link) = (133, 135, 139, 141);
    let entries = root + 64;
    let expected = [
        (dash, 60, 1),
        (128, 61, 2),
        (128, 62, 2),
        (d, 64, 2),
        (z, 65, 1),
    ];
    for (index, (nid, name_offset, file_type)) in expected.into_iter().enumerate() {
        let at = entries + index * 12;
        assert_eq!(disk.number(at, 8), nid, "nid of entry {index}");
        assert_eq!(
            disk.number(at + 8, 2),
            name_offset,
            "nameoff of entry {index}"
        );
        assert_eq!(
            disk.number(at + 10, 1),
            file_type,
            "file_type of entry {index}"
        );
        assert_eq!(disk.number(at + 11, 1), 0);
    }
    assert_eq!(disk.0[entries + 60..entries + 66], *b"-...dz");
    let at = |nid: u64| usize::try_from(nid).unwrap() * 32;
    let file = at(dash);
    assert_eq!(disk.number(file, 2), 1, "i_format: extended, flat plain");
    assert_eq!(disk.number(file + 4, 2), 0o100_000 | 4000, "i_mode");
    assert_eq!(disk.number(file + 8, 8), 4097, "i_size");
    assert_eq!(disk.number(file + 16, 4), 2, "startblk_lo");
    assert_eq!(disk.number(file + 20, 4), 2, "i_ino");
    assert_eq!(disk.number(file + 24, 4), 4000, "i_uid");
    assert_eq!(
        disk.number(file + 28, 4),
        u64::from(u32::MAX - 4000),
        "i_gid"
    );
    assert_eq!(disk.number(file + 32, 8), 3_000_000, "i_mtime");
    assert_eq!(disk.number(file + 40, 4), 4000, "i_mtime_nsec");
    assert_eq!(disk.number(file + 44, 4), 1, "i_nlink");
    assert_eq!(disk.0[2 * 4096..2 * 4096 + 4097], [5; 4097]);
    assert_eq!(disk.number(at(z) + 16, 4), 4, "startblk_lo");
    assert_eq!(
        disk.number(at(z) + 32, 8).cast_signed(),
        -996_000,
        "i_mtime"
    );
    assert_eq!(disk.number(at(d) + 44, 4), 2, "i_nlink");
    // 27 bytes of dots, and the link.
    assert_eq!(disk.number(at(d) + 8, 8), 40, "i_size");
    assert_eq!(disk.number(at(d) + 64 + 12, 8), 128, "nid of '..'");
    assert_eq!(
        disk.number(at(link), 2),
        5,
        "i_format: extended, flat inline"
    );
    assert_eq!(disk.number(at(link) + 4, 2), 0o120_003, "i_mode");
    assert_eq!(disk.number(at(link) + 8, 8), 6, "i_size");
    assert_eq!(disk.0[at(link) + 64..at(link) + 70], *b"target");
}
