//! The table against a model written from the specification's own cases, and its records and commands byte by byte.

mod commands;
mod model;
mod records;
mod sentences;

use super::*;
use nvme_spec::reservation::{NotificationType, ReservationType};
use nvme_spec::{IoOpcode, Status};

const fn host(number: u8) -> HostId {
    HostId([number; 16])
}

fn register(table: &Table, who: u8, key: u64) -> Table {
    let request = Request::Register {
        new: Key(key),
        persistence: Persistence::Keep,
    };
    table.carry_out(host(who), &request).unwrap().table
}

fn acquire(table: &Table, who: u8, key: u64, rtype: u8) -> Table {
    let request = Request::Acquire {
        current: Key(key),
        rtype: ReservationType(rtype),
    };
    table.carry_out(host(who), &request).unwrap().table
}

/// Host 1 holds a reservation of this type, host 2 is registered as well, host 3 is not.
fn held(rtype: u8) -> Table {
    let both = register(&register(&Table::default(), 1, 11), 2, 22);
    acquire(&both, 1, 11, rtype)
}

/// Base, "Command Behavior in the Presence of a Reservation": a row for each type; holder, registrant, other; read group, write group.
/// A = allowed, C = conflict.
#[test]
fn command_behavior_in_the_presence_of_a_reservation() {
    const ROWS: [(u8, &str); 6] = [
        (1, "AA AC AC"),
        (2, "AA CC CC"),
        (3, "AA AA AC"),
        (4, "AA AA CC"),
        (5, "AA AA AC"),
        (6, "AA AA CC"),
    ];
    const READ_GROUP: [IoOpcode; 3] = [IoOpcode::READ, IoOpcode::COMPARE, IoOpcode::VERIFY];
    const WRITE_GROUP: [IoOpcode; 6] = [
        IoOpcode::WRITE,
        IoOpcode::WRITE_ZEROES,
        IoOpcode::WRITE_UNCORRECTABLE,
        IoOpcode::DATASET_MANAGEMENT,
        IoOpcode::FLUSH,
        IoOpcode::COPY,
    ];
    for (rtype, row) in ROWS {
        let table = held(rtype);
        for (who, cell) in (1..).zip(row.split(' ')) {
            let rights = table.rights(host(who));
            let (read, write) = (cell.starts_with('A'), cell.ends_with('A'));
            for opcode in READ_GROUP {
                assert_eq!(
                    rights.allow(opcode),
                    read,
                    "type {rtype}, host {who}, {opcode:?}"
                );
            }
            for opcode in WRITE_GROUP {
                assert_eq!(
                    rights.allow(opcode),
                    write,
                    "type {rtype}, host {who}, {opcode:?}"
                );
            }
        }
    }
}

#[test]
fn without_a_reservation_everybody_may_everything() {
    let table = register(&Table::default(), 1, 11);
    assert_eq!(table.rights(host(1)), Rights::ALL);
    assert_eq!(table.rights(host(2)), Rights::ALL);
}

#[test]
fn registrants_are_bounded() {
    let one_more = Request::Register {
        new: Key(7),
        persistence: Persistence::Keep,
    };
    let mut table = Table::default();
    let numbered = |number: usize| {
        let mut host = HostId([0xEE; 16]);
        host.0[..8].copy_from_slice(&(number as u64).to_le_bytes());
        host
    };
    for number in 0..REGISTRANTS_MAX {
        table = table.carry_out(numbered(number), &one_more).unwrap().table;
    }
    let registered = u16::try_from(REGISTRANTS_MAX).unwrap();
    assert_eq!(table.report(64)[5..7], registered.to_le_bytes());
    let kept = table.with_persistence(true);
    assert_eq!(Table::from_record(&kept.to_record()), Ok(kept));
    assert_eq!(
        table.carry_out(host(255), &one_more),
        Err(Status::INTERNAL_ERROR)
    );
    let by_replacing = Request::Replace {
        current: None,
        new: Key(7),
        persistence: Persistence::Keep,
    };
    assert_eq!(
        table.carry_out(host(255), &by_replacing),
        Err(Status::INTERNAL_ERROR)
    );
    // Who is there already is no more.
    assert!(table.carry_out(numbered(0), &one_more).is_ok());
}

/// The generation is all that a host sees of a change that went and came; it goes round.
#[test]
fn the_generation_wraps() {
    let table = Table {
        generation: u32::MAX,
        ..Table::default()
    };
    assert_eq!(register(&table, 1, 11).generation, 0);
}

#[test]
fn a_report_has_every_field_in_its_place() {
    let table = held(3).with_persistence(true);
    let report = table.report(64 + 2 * 64 + 8);
    let mut expected = vec![0; 64 + 2 * 64 + 8];
    // Two registrations: GEN is 2.
    expected[0] = 2;
    expected[4] = 3;
    expected[5] = 2;
    expected[9] = 1;
    for (index, (who, key, holds)) in [(1_u8, 11, 1), (2, 22, 0)].into_iter().enumerate() {
        let entry = &mut expected[64 + index * 64..][..64];
        entry[..2].copy_from_slice(&[0xFF, 0xFF]);
        entry[2] = holds;
        entry[8] = key;
        entry[16..32].fill(who);
    }
    assert_eq!(report, expected);
    // Less room: the header still counts both.
    assert_eq!(table.report(64 + 64), expected[..128]);
    assert_eq!(table.report(8), expected[..8]);
    // All registrants hold those types.
    let report = held(6).report(192);
    assert_eq!((report[64 + 2], report[128 + 2]), (1, 1));
}

#[test]
fn notifications_come_oldest_first_and_count_those_that_were_lost() {
    use super::notification::Notifications;
    let mut queue = Notifications::default();
    assert_eq!(queue.page(), vec![0; 64]);
    for nsid in 1..=257 {
        queue.push(
            nvme_spec::Nsid(nsid),
            NotificationType::RESERVATION_RELEASED,
        );
    }
    let page = queue.page();
    queue.pop();
    // 1 and 2 are lost; 3 is the oldest, 254 more wait.
    assert_eq!(page[..8], 3_u64.to_le_bytes());
    assert_eq!((page[8], page[9]), (2, 254));
    assert_eq!(page[12..16], 3_u32.to_le_bytes());
    assert!(page[16..].iter().all(|&byte| byte == 0));
    assert!(queue.any());
}
