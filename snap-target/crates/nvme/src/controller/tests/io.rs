//! I/O commands: opcode, NSID, blocks, length, protection.

use super::*;
use nvme_spec::Lba;
use proptest::prelude::*;

const MDTS: u32 = 1 << 17;
const READ: u8 = 0x02;
const WRITE: u8 = 0x01;
const FLUSH: u8 = 0x00;

/// A range command: SLBA, blocks.
fn range(opcode: u8, nsid: u32, slba: u64, blocks: u32) -> [u8; 64] {
    let mut sqe = command(opcode, nsid, slba as u32, (slba >> 32) as u32);
    sqe[48..50].copy_from_slice(&u16::try_from(blocks - 1).unwrap().to_le_bytes());
    sqe
}

fn parse(sqe: &[u8; 64], bytes: u32) -> Result<IoCommand, Status> {
    let transfer = if bytes == 0 {
        Transfer::None
    } else {
        Transfer::Remote { bytes }
    };
    parse_io(
        &Sqe::read_from_bytes(sqe).unwrap(),
        transfer,
        &namespaces(),
        MDTS,
    )
}

#[test]
fn ranges_are_parsed_exactly() {
    let expected = BlockRange {
        nsid: Nsid(1),
        lba: Lba(5),
        blocks: 3,
        offset_bytes: 5 * 4096,
        bytes: 3 * 4096,
        force_unit_access: false,
    };
    assert_eq!(
        parse(&range(READ, 1, 5, 3), 3 * 4096),
        Ok(IoCommand::Read(expected))
    );
    let slba = (1 << 40) - 256;
    let mut write = range(WRITE, 3, slba, 256);
    write[51] = 0x40;
    let expected = BlockRange {
        nsid: Nsid(3),
        lba: Lba(slba),
        blocks: 256,
        offset_bytes: slba * 512,
        bytes: MDTS,
        force_unit_access: true,
    };
    assert_eq!(parse(&write, MDTS), Ok(IoCommand::Write(expected)));
    assert_eq!(
        parse(&range(FLUSH, 1, 0, 1), 0),
        Ok(IoCommand::Flush(Nsid(1)))
    );
}

/// NVM, "Opcodes": what is not there is Invalid Command Opcode, whatever the rest says.
#[test]
fn other_opcodes_are_refused() {
    let known = [0x00, 0x01, 0x02, 0x04, 0x05, 0x08, 0x09, 0x0C, 0x19];
    for opcode in (0..=255).filter(|opcode| !known.contains(opcode)) {
        assert_eq!(
            parse(&range(opcode, 3, 0, 1), 512),
            Err(Status::INVALID_OPCODE.dnr()),
            "{opcode:#x}"
        );
    }
}

/// Base, "Namespace Identifier": invalid, inactive, broadcast.
#[test]
fn wrong_namespaces_are_refused() {
    for opcode in [0x00, 0x01, 0x02, 0x04, 0x05, 0x08, 0x09, 0x0C, 0x19] {
        for nsid in [0, 1025, 0xFFFF_FFFE, 0xFFFF_FFFF] {
            // VWC 2:1 = 11b: this one flushes all.
            if (opcode, nsid) == (FLUSH, 0xFFFF_FFFF) {
                continue;
            }
            assert_eq!(
                parse(&range(opcode, nsid, 0, 1), 512),
                Err(INVALID_NAMESPACE),
                "{nsid:#x}"
            );
        }
        for nsid in [2, 4, 1024] {
            assert_eq!(
                parse(&range(opcode, nsid, 0, 1), 512),
                Err(INVALID_FIELD),
                "{nsid}"
            );
        }
    }
}

/// NVM, "LBA Out of Range".
#[test]
fn blocks_beyond_the_end_are_refused() {
    let out = Err(Status::LBA_OUT_OF_RANGE.dnr());
    assert!(parse(&range(READ, 1, 999, 1), 4096).is_ok());
    assert_eq!(parse(&range(READ, 1, 999, 2), 8192), out);
    assert_eq!(parse(&range(READ, 1, 1000, 1), 4096), out);
    assert_eq!(parse(&range(READ, 1, u64::MAX, 1), 4096), out);
    assert_eq!(parse(&range(READ, 1, u64::MAX, 65536), 4096), out);
    assert_eq!(parse(&range(WRITE, 3, 1 << 40, 1), 512), out);
}

/// MDTS, and the descriptor's length against the blocks'.
#[test]
fn lengths_must_agree_and_stay_within_mdts() {
    assert!(parse(&range(READ, 1, 0, 32), MDTS).is_ok());
    assert_eq!(
        parse(&range(READ, 1, 0, 33), MDTS + 4096),
        Err(INVALID_FIELD)
    );
    assert_eq!(
        parse(&range(READ, 3, 0, 65536), 65536 * 512),
        Err(INVALID_FIELD)
    );
    let length = Err(Status::DATA_SGL_LENGTH_INVALID.dnr());
    assert_eq!(parse(&range(READ, 1, 0, 1), 4095), length);
    assert_eq!(parse(&range(READ, 1, 0, 1), 4097), length);
    assert_eq!(parse(&range(READ, 1, 0, 1), 0), length);
    assert_eq!(parse(&range(WRITE, 3, 0, 1), 4096), length);
}

/// NVM, "Namespace is Write Protected", for any write.
#[test]
fn protected_namespaces_take_no_write() {
    let protected = Err(Status::NAMESPACE_WRITE_PROTECTED.dnr());
    assert_eq!(parse(&range(WRITE, 1, 0, 1), 4096), protected);
    assert_eq!(parse(&range(WRITE, 1, 5000, 1), 1), protected);
}

/// FUSE and DTYPE ask for what is not there; a descriptor that the transport refused is answered as it said.
#[test]
fn fields_that_are_not_supported_are_refused() {
    // FUSES: Compare first and Write second, and nothing else.
    for (opcode, fuse) in [
        (READ, 1),
        (READ, 2),
        (READ, 3),
        (WRITE, 1),
        (0x05, 2),
        (0x05, 3),
        (0x08, 2),
    ] {
        let mut sqe = range(opcode, 3, 0, 1);
        sqe[1] |= fuse;
        assert_eq!(parse(&sqe, 512), Err(INVALID_FIELD), "{opcode:#x} {fuse}");
    }
    let mut directive = range(WRITE, 3, 0, 1);
    directive[50] = 0x10;
    assert_eq!(parse(&directive, 512), Err(INVALID_FIELD));
    let sqe = Sqe::read_from_bytes(&range(READ, 1, 0, 1)).unwrap();
    let refused = Status::SGL_TYPE_INVALID.dnr();
    assert_eq!(
        parse_io(&sqe, Transfer::Refused(refused), &namespaces(), MDTS),
        Err(refused)
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Any entry: no panic, and what passes lies inside its namespace and the limits.
    #[test]
    fn any_entry_that_passes_is_inside(bytes in any::<[u8; 32]>(), rest in any::<[u8; 32]>(), nsid in 0..5u32, len in 0..300_000u32) {
        let mut entry = [0; 64];
        entry[..32].copy_from_slice(&bytes);
        entry[32..].copy_from_slice(&rest);
        entry[0] = [0x01, 0x02, 0x05, entry[0]][usize::from(entry[0] >> 6)];
        entry[1] &= 0xFC;
        entry[4..8].copy_from_slice(&nsid.to_le_bytes());
        // Mostly small numbers, so that some pass.
        entry[42..48].fill(0);
        entry[49] = 0;
        let blocks = u32::from(entry[48]) + 1;
        for len in [len, blocks * 4096, blocks * 512] {
            if let Ok(IoCommand::Read(range) | IoCommand::Write(range) | IoCommand::Compare(range)) = parse(&entry, len) {
                let set = namespaces();
                let info = set.get(range.nsid).unwrap();
                prop_assert!(range.lba.0 + u64::from(range.blocks) <= info.block_count);
                prop_assert_eq!(range.bytes, range.blocks * info.lba_bytes);
                prop_assert_eq!(range.offset_bytes, range.lba.0 * u64::from(info.lba_bytes));
                prop_assert!(range.bytes == len && range.bytes <= MDTS);
            }
        }
    }

    /// Any admin entry on any controller: no panic, never more data than there is room for.
    #[test]
    fn any_admin_entry_is_survived(entry in any::<[u8; 64]>(), opcode in 0..12usize, low in any::<u8>(), room in 0..5000usize, discovery in any::<bool>()) {
        let mut host = Host::enabled(if discovery { DISCOVERY } else { SUBSYSTEM });
        let mut entry = entry;
        entry[0] = [0x02, 0x06, 0x08, 0x09, 0x0A, 0x0C, 0x18, 0x7F, 0x7F, 0x02, 0x0A, entry[0]][opcode];
        entry[1] &= 0xFC;
        entry[40] = low;
        let mut out = vec![0xEE; room];
        match host.run(&entry, &entry.clone(), &mut out) {
            Outcome::Done { data_bytes, completion, .. } => {
                prop_assert!(data_bytes as usize <= room);
                prop_assert!(data_bytes == 0 || completion.status.is_success());
            }
            Outcome::Pending
            | Outcome::Abort { .. }
            | Outcome::OfNamespace(_)
            | Outcome::Queue(_) => {}
        }
    }
}

/// PRPs have no length: the command alone says how many bytes there are.
#[test]
fn prps_are_as_long_as_the_command() {
    let sqe = Sqe::read_from_bytes(&range(READ, 1, 5, 3)).unwrap();
    let parsed = parse_io(&sqe, Transfer::InMemory, &namespaces(), MDTS);
    let Ok(IoCommand::Read(range)) = parsed else {
        panic!("{parsed:?}")
    };
    assert_eq!((range.lba, range.bytes), (Lba(5), 3 * 4096));
}
