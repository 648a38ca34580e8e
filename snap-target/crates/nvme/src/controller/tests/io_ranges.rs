//! Commands without data of their own, and those whose data are ranges: every field and every bound.

use super::*;
use crate::controller::{Blocks, CopyFormats};
use nvme_spec::Lba;
use proptest::prelude::*;

const MDTS: u32 = 1 << 17;
const VERIFY: u8 = 0x0C;
const WRITE_ZEROES: u8 = 0x08;
const WRITE_UNCORRECTABLE: u8 = 0x04;
const DSM: u8 = 0x09;
const COPY: u8 = 0x19;
const OUT_OF_RANGE: Status = Status::LBA_OUT_OF_RANGE.dnr();
const PROTECTED: Status = Status::NAMESPACE_WRITE_PROTECTED.dnr();
const LENGTH: Status = Status::DATA_SGL_LENGTH_INVALID.dnr();
const TOO_LARGE: Status = Status::COMMAND_SIZE_LIMIT_EXCEEDED.dnr();

/// The two of [`namespaces`], and NSID 5: writable, 300 blocks of 512 bytes.
fn set() -> NamespaceSet {
    let mut infos: Vec<_> = namespaces().iter().cloned().collect();
    infos.push(NamespaceInfo {
        nsid: Nsid(5),
        block_count: 300,
        ..infos[1].clone()
    });
    NamespaceSet::new(8, infos).unwrap()
}

/// CDW10 to CDW12.
fn entry(opcode: u8, nsid: u32, slba: u64, cdw12: u32) -> [u8; 64] {
    let mut sqe = command(opcode, nsid, slba as u32, (slba >> 32) as u32);
    sqe[48..52].copy_from_slice(&cdw12.to_le_bytes());
    sqe
}

fn parse(sqe: &[u8; 64], bytes: u32) -> Result<IoCommand, Status> {
    let transfer = match bytes {
        0 => Transfer::None,
        bytes => Transfer::Remote { bytes },
    };
    let sqe = Sqe::read_from_bytes(sqe).unwrap();
    parse_io(&sqe, transfer, &set(), MDTS)
}

fn at(nsid: u32, lba: u64, blocks: u32) -> Blocks {
    Blocks {
        nsid: Nsid(nsid),
        lba: Lba(lba),
        blocks,
    }
}

/// NVM, "Verify", "Write Zeroes", "Write Uncorrectable": no data, so MDTS is no limit.
#[test]
fn commands_without_data_take_all_blocks_that_nlb_can_say() {
    assert_eq!(
        parse(&entry(VERIFY, 3, 7, 0xFFFF), 0),
        Ok(IoCommand::Verify(at(3, 7, 65536)))
    );
    assert_eq!(
        parse(&entry(VERIFY, 1, 999, 0), 0),
        Ok(IoCommand::Verify(at(1, 999, 1))),
        "a protected namespace can be verified"
    );
    assert_eq!(
        parse(&entry(WRITE_UNCORRECTABLE, 3, 7, 0xFFFF), 0),
        Ok(IoCommand::WriteUncorrectable(at(3, 7, 65536)))
    );
    let zeroes = |deallocate, force_unit_access| {
        Ok(IoCommand::WriteZeroes {
            blocks: at(3, 7, 65536),
            deallocate,
            force_unit_access,
        })
    };
    assert_eq!(
        parse(&entry(WRITE_ZEROES, 3, 7, 0xFFFF), 0),
        zeroes(false, false)
    );
    assert_eq!(
        parse(&entry(WRITE_ZEROES, 3, 7, 0xFFFF | 1 << 25), 0),
        zeroes(true, false)
    );
    assert_eq!(
        parse(&entry(WRITE_ZEROES, 3, 7, 0xFFFF | 1 << 30), 0),
        zeroes(false, true)
    );
    for opcode in [VERIFY, WRITE_ZEROES, WRITE_UNCORRECTABLE] {
        assert!(parse(&entry(opcode, 5, 299, 0), 0).is_ok());
        assert_eq!(parse(&entry(opcode, 5, 299, 1), 0), Err(OUT_OF_RANGE));
        assert_eq!(parse(&entry(opcode, 5, u64::MAX, 0), 0), Err(OUT_OF_RANGE));
    }
    for opcode in [WRITE_ZEROES, WRITE_UNCORRECTABLE] {
        assert_eq!(parse(&entry(opcode, 1, 0, 0), 0), Err(PROTECTED));
        assert_eq!(
            parse(&entry(opcode, 3, 0, 1 << 20), 0),
            Err(INVALID_FIELD),
            "DTYPE"
        );
    }
}

/// NVM, "Compare": MDTS and the data's length count as they do for Write; a protected namespace can be compared with.
#[test]
fn compare_is_checked_as_a_write_is() {
    let Ok(IoCommand::Compare(range)) = parse(&entry(0x05, 1, 5, 2), 3 * 4096) else {
        panic!("Compare of a protected namespace")
    };
    assert_eq!((range.lba, range.blocks, range.bytes), (Lba(5), 3, 12288));
    assert_eq!(parse(&entry(0x05, 1, 5, 2), 2 * 4096), Err(LENGTH));
    assert_eq!(
        parse(&entry(0x05, 1, 5, 32), MDTS + 4096),
        Err(INVALID_FIELD)
    );
    assert_eq!(parse(&entry(0x05, 1, 999, 1), 8192), Err(OUT_OF_RANGE));
}

/// NVM, "Flush"; VWC 2:1 = 11b.
#[test]
fn flush_of_all_namespaces_is_taken() {
    assert_eq!(
        parse(&entry(0x00, 0xFFFF_FFFF, 0, 0), 0),
        Ok(IoCommand::Flush(Nsid::BROADCAST))
    );
}

/// A range of Dataset Management.
fn dataset_range(lba: u64, blocks: u32) -> Vec<u8> {
    let mut bytes = vec![0x5A; 4];
    bytes.extend(blocks.to_le_bytes());
    bytes.extend(lba.to_le_bytes());
    bytes
}

/// Dataset Management of these ranges, with so many bytes of data.
fn dataset(
    nsid: u32,
    attributes: u32,
    ranges: &[(u64, u32)],
    bytes: usize,
) -> Result<Vec<(Lba, u32)>, Status> {
    let sqe = command(DSM, nsid, ranges.len() as u32 - 1, attributes);
    let IoCommand::DatasetManagement(command) = parse(&sqe, bytes as u32)? else {
        panic!("{sqe:?}")
    };
    assert_eq!(command.data_bytes as usize, bytes);
    let mut data: Vec<u8> = ranges
        .iter()
        .flat_map(|&(lba, blocks)| dataset_range(lba, blocks))
        .collect();
    data.resize(bytes, 0xEE);
    Ok(command.blocks(&data, &set())?)
}

#[test]
fn dataset_ranges_are_read_from_a_list_that_may_be_longer() {
    let ranges = [(5, 1), (0, 0), (10, 290)];
    let wanted = Ok(vec![(Lba(5), 1), (Lba(10), 290)]);
    for bytes in [48, 64, 4096] {
        assert_eq!(dataset(5, 4, &ranges, bytes), wanted);
    }
    assert_eq!(dataset(5, 4, &ranges, 47), Err(LENGTH));
    assert_eq!(dataset(5, 4, &ranges, 4097), Err(LENGTH));
    assert_eq!(
        dataset(5, 4, &[(0, 300); 256], 4096).unwrap(),
        vec![(Lba(0), 300); 256]
    );
}

/// One range outside, anywhere in the list, and nothing is done.
#[test]
fn a_dataset_range_outside_fails_the_command() {
    for bad in [(300, 1), (299, 2), (u64::MAX, 1), (0, 301), (301, 0)] {
        for at in 0..3 {
            let mut ranges = [(0, 1); 3];
            ranges[at] = bad;
            assert_eq!(dataset(5, 4, &ranges, 48), Err(OUT_OF_RANGE), "{bad:?}");
            assert_eq!(dataset(5, 0, &ranges, 48), Err(OUT_OF_RANGE), "{bad:?}");
        }
    }
}

/// Deallocation is a change, hints are not.
#[test]
fn hints_may_be_given_for_a_protected_namespace() {
    assert_eq!(dataset(1, 4, &[(0, 1)], 16), Err(PROTECTED));
    assert_eq!(dataset(1, 3, &[(0, 1)], 16), Ok(vec![(Lba(0), 1)]));
    let IoCommand::DatasetManagement(hint) = parse(&command(DSM, 1, 0, 1), 16).unwrap() else {
        panic!()
    };
    assert!(hint.integral_read && !hint.deallocate);
}

/// Copy of (SNSID, SLBA, blocks) to NSID 5, by the bytes of the descriptors.
fn copy(
    format: u32,
    sdlba: u64,
    sources: &[(u32, u64, u32)],
    enabled: u16,
) -> Result<Vec<Blocks>, Status> {
    let sqe = entry(COPY, 5, sdlba, (sources.len() as u32 - 1) | (format << 8));
    let IoCommand::Copy(command) = parse(&sqe, sources.len() as u32 * 32)? else {
        panic!("{sqe:?}")
    };
    let mut data = Vec::new();
    for &(nsid, lba, blocks) in sources {
        let mut range = [0; 32];
        range[..4].copy_from_slice(&nsid.to_le_bytes());
        range[8..16].copy_from_slice(&lba.to_le_bytes());
        range[16..18].copy_from_slice(&u16::try_from(blocks - 1).unwrap().to_le_bytes());
        data.extend(range);
    }
    let formats = CopyFormats::default();
    formats.enable(enabled);
    Ok(command.sources(&data, &set(), &formats)?)
}

#[test]
fn copy_sources_are_of_the_same_namespace_or_of_those_named() {
    let here = vec![at(5, 0, 10), at(5, 50, 5)];
    assert_eq!(copy(0, 100, &[(0, 0, 10), (0, 50, 5)], 0), Ok(here.clone()));
    assert_eq!(
        copy(0, 100, &[(3, 0, 10), (9, 50, 5)], 0),
        Ok(here),
        "format 0h: that field is reserved"
    );
    assert_eq!(
        copy(2, 100, &[(3, 100, 10), (5, 50, 5)], 1 << 2),
        Ok(vec![at(3, 100, 10), at(5, 50, 5)])
    );
    assert_eq!(copy(2, 100, &[(3, 0, 1)], !(1 << 2)), Err(INVALID_FIELD));
    for format in [1, 3, 4, 15] {
        assert_eq!(copy(format, 100, &[(5, 0, 1)], 0xFFFF), Err(INVALID_FIELD));
    }
}

/// NVM, "Copy": MSSRL, MCL, MSRC, the ends of both namespaces, formats, overlap.
#[test]
fn copies_are_bounded_before_anything_is_done() {
    assert_eq!(copy(2, 0, &[(3, 0, 300)], 4), Ok(vec![at(3, 0, 300)]));
    assert_eq!(copy(2, 1, &[(3, 0, 300)], 4), Err(OUT_OF_RANGE));
    assert_eq!(copy(2, u64::MAX, &[(3, 0, 300)], 4), Err(OUT_OF_RANGE));
    assert_eq!(copy(0, 0, &[(0, 299, 2)], 0), Err(OUT_OF_RANGE));
    assert_eq!(copy(2, 0, &[(3, 0, 2049)], 4), Err(TOO_LARGE), "MSSRL");
    assert_eq!(
        copy(2, 0, &[(3, 0, 2048), (3, 0, 1)], 4),
        Err(TOO_LARGE),
        "MCL"
    );
    assert!(copy(2, 0, &[(3, 0, 1); 128], 4).is_ok());
    assert_eq!(copy(2, 0, &[(3, 0, 1); 129], 4), Err(TOO_LARGE), "MSRC");
    assert_eq!(
        copy(2, 0, &[(1, 0, 1)], 4),
        Err(Status::INCOMPATIBLE_NAMESPACE.dnr()),
        "4096 to 512 bytes"
    );
    assert_eq!(copy(2, 0, &[(4, 0, 1)], 4), Err(INVALID_FIELD));
    assert_eq!(copy(2, 0, &[(0, 0, 1)], 4), Err(INVALID_NAMESPACE));
    let overlapping = Err(Status::OVERLAPPING_IO_RANGE.dnr());
    assert_eq!(copy(0, 9, &[(0, 0, 10)], 0), overlapping);
    assert_eq!(copy(0, 0, &[(0, 100, 5), (0, 14, 10)], 0), overlapping);
    assert!(copy(0, 10, &[(0, 0, 10)], 0).is_ok());
    assert!(copy(2, 0, &[(3, 0, 10)], 4).is_ok(), "another namespace");
    assert_eq!(parse(&entry(COPY, 1, 0, 0), 32), Err(PROTECTED));
    assert_eq!(parse(&entry(COPY, 5, 0, 1 << 20), 32), Err(INVALID_FIELD));
    for bytes in [0, 31, 4097] {
        assert_eq!(parse(&entry(COPY, 5, 0, 0), bytes), Err(LENGTH));
    }
}

/// Host Behavior Support, CDFE: bytes 4 and 5.
#[test]
fn the_host_enables_copy_formats_for_all_its_queues() {
    let mut host = Host::io();
    let formats = host.controller().copy_formats();
    let mut behavior = vec![0; 512];
    let sqe = command(0x09, 0, 0x16, 0);
    // Formats that are not offered as well: they are enabled, and refused where they are used.
    for cdfe in [0xFFFF_u16, 1 << 2] {
        behavior[4..6].copy_from_slice(&cdfe.to_le_bytes());
        let outcome = host.run(&sqe, &behavior, &mut []);
        assert!(
            matches!(outcome, Outcome::Done { completion, .. } if completion.status.is_success())
        );
    }
    let IoCommand::Copy(copy) = parse(&entry(COPY, 5, 0, 2 << 8), 32).unwrap() else {
        panic!()
    };
    let mut source = [0; 32];
    source[0] = 3;
    assert_eq!(
        copy.sources(&source, &set(), &formats),
        Ok(vec![at(3, 0, 1)])
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Any list: no panic, and what passes lies inside.
    #[test]
    fn any_list_that_passes_is_inside(
        opcode in prop::sample::select(vec![DSM, COPY]),
        data in prop::collection::vec(prop_oneof![Just(0), Just(3), Just(5), any::<u8>()], 0..4096),
        nr in 0..4u32, format in prop::sample::select(vec![0, 2]), sdlba in 0..300u64,
    ) {
        let sqe = match opcode {
            DSM => command(DSM, 5, nr, 4),
            _ => entry(COPY, 5, sdlba, nr | format << 8),
        };
        let formats = CopyFormats::default();
        formats.enable(4);
        match parse(&sqe, data.len() as u32) {
            Ok(IoCommand::DatasetManagement(dataset)) => {
                for (lba, blocks) in dataset.blocks(&data, &set()).unwrap_or_default() {
                    prop_assert!(blocks > 0 && lba.0 + u64::from(blocks) <= 300);
                }
            }
            Ok(IoCommand::Copy(copy)) => {
                let sources = copy.sources(&data, &set(), &formats).unwrap_or_default();
                let total: u32 = sources.iter().map(|source| source.blocks).sum();
                prop_assert!(sources.is_empty() || copy.lba.0 + u64::from(total) <= 300);
                for source in sources {
                    let end = set().get(source.nsid).unwrap().block_count;
                    prop_assert!(source.lba.0 + u64::from(source.blocks) <= end);
                }
            }
            _ => {}
        }
    }
}
