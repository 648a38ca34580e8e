//! Commands as they stand on the wire.

use super::*;
use crate::controller::{NamespaceInfo, NamespaceSet, Protection, Visibility};
use crate::queue::Transfer;
use nvme_spec::{Nsid, Sqe};
use zerocopy::FromBytes;

const MDTS: u32 = 1 << 17;

fn namespaces() -> NamespaceSet {
    let info = NamespaceInfo {
        nsid: Nsid(1),
        handle: 0,
        visibility: Visibility::All,
        block_count: 8,
        lba_bytes: 4096,
        uuid: [1; 16],
        nguid: [1; 16],
        eui64: None,
        write_protected: false,
        protection: Protection::None,
        keeps_reservations: false,
        optimal_boundary_blocks: 0,
        optimal_blocks: 0,
        deallocated_reads_zeros: false,
        atomic_blocks: 0,
    };
    NamespaceSet::new(1, [info]).unwrap()
}

fn sqe(opcode: u8, nsid: u32, cdw10: u32, cdw11: u32) -> Sqe {
    let mut bytes = [0; 64];
    bytes[0] = opcode;
    bytes[4..8].copy_from_slice(&nsid.to_le_bytes());
    bytes[40..44].copy_from_slice(&cdw10.to_le_bytes());
    bytes[44..48].copy_from_slice(&cdw11.to_le_bytes());
    Sqe::read_from_bytes(&bytes).unwrap()
}

fn of(sqe: &Sqe, bytes: u32) -> Option<Result<ReservationCommand, Status>> {
    ReservationCommand::of(sqe, Transfer::Remote { bytes }, &namespaces(), MDTS)
}

fn data(first: u64, second: u64) -> Vec<u8> {
    [first.to_le_bytes(), second.to_le_bytes()].concat()
}

#[test]
fn other_commands_are_none_of_ours() {
    for opcode in [0x00, 0x01, 0x02, 0x05, 0x09, 0x19, 0x18, 0x7F] {
        assert_eq!(of(&sqe(opcode, 1, 0, 1), 16), None, "{opcode:02x}");
    }
}

#[test]
fn entries_are_checked_before_their_data_are_asked_for() {
    for (opcode, bytes) in [(0x0D, 16), (0x11, 16), (0x15, 8)] {
        let command = ReservationCommand::Change {
            nsid: Nsid(1),
            bytes,
        };
        assert_eq!(of(&sqe(opcode, 1, 0, 0), bytes), Some(Ok(command)));
        for wrong in [0, bytes - 1, bytes + 1, 4096] {
            let status = Status::DATA_SGL_LENGTH_INVALID.dnr();
            assert_eq!(of(&sqe(opcode, 1, 0, 0), wrong), Some(Err(status)));
        }
        let mut fused = sqe(opcode, 1, 0, 0);
        fused.flags = 1;
        assert_eq!(of(&fused, bytes), Some(Err(Status::INVALID_FIELD.dnr())));
        for (nsid, status) in [
            (0, Status::INVALID_NAMESPACE),
            (0xFFFF_FFFF, Status::INVALID_NAMESPACE),
            (2, Status::INVALID_FIELD),
        ] {
            assert_eq!(of(&sqe(opcode, nsid, 0, 0), bytes), Some(Err(status.dnr())));
        }
    }
}

#[test]
fn reports_are_checked() {
    let report = |numd: u32, eds: u32, bytes: u32| of(&sqe(0x0E, 1, numd, eds), bytes);
    let ok = ReservationCommand::Report {
        nsid: Nsid(1),
        bytes: 4096,
    };
    assert_eq!(report(1023, 1, 4096), Some(Ok(ok)));
    let inconsistent = Status::HOST_ID_INCONSISTENT.dnr();
    assert_eq!(report(1023, 0, 4096), Some(Err(inconsistent)));
    let too_long = Status::INVALID_FIELD.dnr();
    for numd in [MDTS / 4, 0x3FFF_FFFF, 0x4000_0000, 0xFFFF_FFFF] {
        assert_eq!(report(numd, 1, MDTS), Some(Err(too_long)), "{numd:x}");
    }
    let no_room = Status::DATA_SGL_LENGTH_INVALID.dnr();
    assert_eq!(report(1023, 1, 4092), Some(Err(no_room)));
}

#[test]
fn register_is_read_exactly() {
    let parse = |cdw10, durable| Request::parse(&sqe(0x0D, 1, cdw10, 0), &data(5, 6), durable);
    let invalid = Err(Status::INVALID_FIELD.dnr());
    assert_eq!(
        parse(0, false),
        Ok(Request::Register {
            new: Key(6),
            persistence: Persistence::Keep
        })
    );
    assert_eq!(
        parse(1 | 2 << 30, false),
        Ok(Request::Unregister {
            current: Some(Key(5)),
            persistence: Persistence::Clear
        })
    );
    assert_eq!(
        parse(2 | 1 << 3 | 3 << 30, true),
        Ok(Request::Replace {
            current: None,
            new: Key(6),
            persistence: Persistence::Set
        })
    );
    // What cannot be kept is not promised.
    assert_eq!(parse(3 << 30, false), invalid);
    assert_eq!(parse(1 << 30, true), invalid);
    for action in 3..8 {
        assert_eq!(parse(action, true), invalid, "action {action}");
    }
    let keyless = |action| Request::parse(&sqe(0x0D, 1, action, 0), &data(5, 0), true);
    assert_eq!((keyless(0), keyless(2)), (invalid, invalid));
    assert!(keyless(1).is_ok());
}

#[test]
fn acquire_and_release_are_read_exactly() {
    let parse = |opcode, cdw10| Request::parse(&sqe(opcode, 1, cdw10, 0), &data(5, 6), true);
    let invalid = Err(Status::INVALID_FIELD.dnr());
    let rtype = ReservationType(4);
    let current = Key(5);
    assert_eq!(parse(0x11, 4 << 8), Ok(Request::Acquire { current, rtype }));
    for (action, abort) in [(1, false), (2, true)] {
        let preempt = Request::Preempt {
            current,
            preempt: Key(6),
            rtype,
            abort,
        };
        assert_eq!(parse(0x11, 4 << 8 | action), Ok(preempt));
    }
    for (opcode, cdw10) in [
        (0x11, 0),
        (0x11, 7 << 8),
        (0x11, 4 << 8 | 3),
        (0x11, 4 << 8 | 1 << 3),
        (0x15, 4 << 8 | 2),
        (0x15, 4 << 8 | 1 << 3),
    ] {
        assert_eq!(parse(opcode, cdw10), invalid, "{opcode:02x} {cdw10:x}");
    }
    assert_eq!(parse(0x15, 4 << 8), Ok(Request::Release { current, rtype }));
    assert_eq!(parse(0x15, 1), Ok(Request::Clear { current }));
}

#[test]
fn short_data_are_refused() {
    for (opcode, bytes) in [(0x0D, 16), (0x11, 16), (0x15, 8)] {
        let short = Request::parse(&sqe(opcode, 1, 0, 0), &vec![1; bytes - 1], true);
        assert_eq!(short, Err(Status::DATA_SGL_LENGTH_INVALID.dnr()));
    }
}
