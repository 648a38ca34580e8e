//! Get Log Page.

use super::*;
use nvme_spec::{Cid, Lba};

/// Get Log Page: LID (with LSP and RAE above), bytes, offset.
fn get_log(lid: u32, nsid: u32, bytes: u64, offset: u64) -> [u8; 64] {
    let numd_z = u32::try_from(bytes / 4 - 1).unwrap();
    let mut sqe = command(0x02, nsid, lid | numd_z << 16, numd_z >> 16);
    sqe[48..56].copy_from_slice(&offset.to_le_bytes());
    sqe
}

fn page(host: &mut Host, lid: u32, bytes: usize) -> Vec<u8> {
    let page = host
        .fetch(&get_log(lid, 0xFFFF_FFFF, bytes as u64, 0), bytes)
        .unwrap();
    assert_eq!(page.len(), bytes);
    page
}

const RETAIN: u32 = 1 << 15;
const ALL: u32 = 0xFFFF_FFFF;

#[test]
fn the_supported_pages_are_the_ones_there_are() {
    for (subnqn, there) in [
        (
            SUBSYSTEM,
            &[0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x12, 0x80][..],
        ),
        (DISCOVERY, &[0x00, 0x70]),
    ] {
        let mut host = Host::enabled(subnqn);
        let list = page(&mut host, 0x00, 1024);
        for lid in 0..256 {
            let listed = u32_at(&list, lid * 4);
            assert_eq!(listed, u32::from(there.contains(&lid)), "{lid:#x}");
            let read = host.fetch(&get_log(lid as u32, ALL, 64, 0), 64);
            let expected = if listed == 1 {
                None
            } else {
                Some(Status::INVALID_LOG_PAGE.dnr())
            };
            assert_eq!(read.err(), expected, "{lid:#x}");
        }
    }
}

/// Commands Supported and Effects, Feature Identifiers Supported and Effects: what answers, and nothing else.
#[test]
fn the_effects_logs_tell_what_is_carried_out() {
    let mut host = Host::io();
    let commands = page(&mut host, 0x05, 4096);
    let supported = |base: usize| {
        (0..256)
            .filter(|code| u32_at(&commands, base + code * 4) & 1 != 0)
            .collect::<Vec<_>>()
    };
    assert_eq!(supported(0), [0x02, 0x06, 0x08, 0x09, 0x0A, 0x0C, 0x18]);
    assert_eq!(
        supported(1024),
        [
            0x00, 0x01, 0x02, 0x04, 0x05, 0x08, 0x09, 0x0C, 0x0D, 0x0E, 0x11, 0x15, 0x19
        ]
    );
    for opcode in supported(1024) {
        let changes = [0x01, 0x04, 0x08, 0x09, 0x19].contains(&opcode);
        let wanted = if changes { 0b11 } else { 0b01 };
        assert_eq!(u32_at(&commands, 1024 + opcode * 4), wanted, "{opcode:#x}");
    }
    let features = page(&mut host, 0x12, 1024);
    for fid in 0..256 {
        let listed = u32_at(&features, fid * 4) & 1 == 1;
        let read = host.fetch(&command(0x0A, 3, fid as u32, u32::from(fid == 0x81)), 512);
        assert_eq!(listed, read.is_ok(), "FID {fid:#x}");
    }
    assert_eq!(u32_at(&features, 0x84 * 4), 1 | 1 << 20);
    assert_eq!(u32_at(&features, 0x0F * 4), 1 | 1 << 21);
    let mut other_set = get_log(0x05, ALL, 4096, 0);
    other_set[59] = 1;
    assert_eq!(host.fetch(&other_set, 4096), Err(INVALID_FIELD));
}

/// Every failed command leaves an entry, newest first; old ones fall out, the count goes on.
#[test]
fn the_error_log_has_real_entries() {
    let mut host = Host::io();
    assert_eq!(page(&mut host, 0x01, 4096), vec![0; 4096]);
    let mut wrong = command(0x06, 9, 0xEE, 0);
    wrong[2..4].copy_from_slice(&[0x34, 0x12]);
    assert_eq!(host.fetch(&wrong, 4096), Err(INVALID_FIELD));
    host.controller().record_error(&CommandError {
        queue: queue(2),
        cid: Cid(0x77),
        opcode: 0x02,
        nsid: Nsid(3),
        status: Status::UNRECOVERED_READ_ERROR,
        lba: Some(Lba(0x1_2345_6789)),
    });
    let log = page(&mut host, 0x01, 4096);
    let newest = &log[..64];
    assert_eq!(
        (u64_at(newest, 0), u16_at(newest, 8), u16_at(newest, 10)),
        (2, 2, 0x77)
    );
    assert_eq!(
        (u16_at(newest, 12), u16_at(newest, 14)),
        (0x281 << 1, 0xFFFF),
        "status, no parameter"
    );
    assert_eq!(
        (u64_at(newest, 16), u32_at(newest, 24)),
        (0x1_2345_6789, 3),
        "LBA, NSID"
    );
    assert_eq!(
        (newest[29], newest[31], newest[63]),
        (3, 0x02, 1),
        "TCP, opcode, version"
    );
    let older = &log[64..128];
    assert_eq!(
        (u64_at(older, 0), u16_at(older, 8), u16_at(older, 10)),
        (1, 0, 0x1234)
    );
    assert_eq!(
        (u16_at(older, 12), u32_at(older, 24)),
        (INVALID_FIELD.to_wire(), 9)
    );
    assert_eq!(log[128..], vec![0; 4096 - 128]);
    for _ in 0..100 {
        assert_eq!(
            host.plain(&command(0xFF, 0, 0, 0)),
            Err(Status::INVALID_OPCODE.dnr())
        );
    }
    let log = page(&mut host, 0x01, 4096);
    let counts: Vec<u64> = (0..64).map(|entry| u64_at(&log, entry * 64)).collect();
    assert_eq!(counts, (39..=102).rev().collect::<Vec<u64>>());
    assert_eq!(
        u64_at(&page(&mut host, 0x02, 512), 176),
        102,
        "SMART counts them all"
    );
}

#[test]
fn smart_tells_true_counters() {
    let mut host = Host::io();
    let more = ControllerCounters {
        bytes_read: 512_000,
        bytes_written: 1,
        read_commands: 10,
        write_commands: 20,
        media_errors: 3,
        busy_nanos: 120_000_000_000,
        ..ControllerCounters::default()
    };
    host.controller().counters_mut().add(&more);
    host.controller().counters_mut().add(&ControllerCounters {
        bytes_read: 1,
        ..ControllerCounters::default()
    });
    host.now = host.now + Duration::from_secs(7200);
    let log = page(&mut host, 0x02, 512);
    assert_eq!((log[0], log[3]), (0, 100));
    let counters: Vec<u64> = [32, 48, 64, 80, 96, 112, 128, 144, 160, 176]
        .iter()
        .map(|&at| u64_at(&log, at))
        .collect();
    assert_eq!(counters, [2, 1, 10, 20, 2, 1, 2, 0, 3, 0]);
    // One log for the controller: a namespace has none of its own.
    assert_eq!(
        host.fetch(&get_log(0x02, 1, 512, 0), 512),
        Err(INVALID_FIELD)
    );
    assert!(host.fetch(&get_log(0x02, 0, 512, 0), 512).is_ok());
}

#[test]
fn the_firmware_slot_names_the_revision() {
    let mut host = Host::io();
    let log = page(&mut host, 0x03, 512);
    assert_eq!(
        (log[0], &log[8..16], &log[16..]),
        (1, &b"1.2.3   "[..], &[0; 496][..])
    );
}

/// NUMD, LPO: windows into a page; what lies beyond the page is zeros, what begins beyond it is an error.
#[test]
fn windows_into_pages_are_exact() {
    let mut host = Host::io();
    let whole = page(&mut host, 0x05, 4096);
    for (offset, bytes) in [
        (0, 4),
        (8, 64),
        (4092, 4),
        (1024, 1024),
        (4000, 200),
        (4096, 8),
    ] {
        let part = host
            .fetch(&get_log(0x05, ALL, bytes as u64, offset as u64), bytes)
            .unwrap();
        let mut expected = whole[offset..].to_vec();
        expected.resize(bytes, 0);
        expected.truncate(bytes);
        assert_eq!(part, expected, "{bytes} at {offset}");
    }
    for offset in [1, 2, 3, 4094, 4100, 1 << 32, u64::MAX - 3, u64::MAX] {
        assert_eq!(
            host.fetch(&get_log(0x05, ALL, 4, offset), 4),
            Err(INVALID_FIELD),
            "{offset:#x}"
        );
    }
    // OT: offsets are bytes.
    let mut index = get_log(0x05, ALL, 4, 0);
    index[58] |= 0x80;
    assert_eq!(host.fetch(&index, 4), Err(INVALID_FIELD));
}

/// NUMD against the descriptor and MDTS; nothing overflows.
#[test]
fn lengths_are_checked_against_descriptor_and_mdts() {
    let mut host = Host::io();
    assert_eq!(
        host.fetch(&get_log(0x05, ALL, 4096, 0), 4092),
        Err(Status::DATA_SGL_LENGTH_INVALID.dnr())
    );
    assert_eq!(
        host.fetch(&get_log(0x05, ALL, 4096, 0), 0),
        Err(Status::DATA_SGL_LENGTH_INVALID.dnr())
    );
    assert_eq!(
        host.fetch(&get_log(0x05, ALL, 1 << 20, 0), 1 << 20)
            .unwrap()
            .len(),
        1 << 20
    );
    assert_eq!(
        host.fetch(&get_log(0x05, ALL, (1 << 20) + 4, 0), 2 << 20),
        Err(INVALID_FIELD)
    );
    assert_eq!(
        host.fetch(&get_log(0x05, ALL, 1 << 34, !3), 4096),
        Err(INVALID_FIELD)
    );
}

/// The discovery log: one record for each listener, wildcard addresses replaced, a generation, no referrals; then the service itself at each.
#[test]
fn the_discovery_log_names_every_listener() {
    let mut host = Host::enabled(DISCOVERY);
    let log = page(&mut host, 0x70, 1024 + 4 * 1024);
    assert_eq!(
        (u64_at(&log, 0), u64_at(&log, 8), u16_at(&log, 16)),
        (1, 4, 0),
        "GENCTR, NUMREC, RECFMT"
    );
    let text = |at: usize, len: usize| String::from_utf8(log[at..at + len].to_vec()).unwrap();
    // SUBTYPE 2: a subsystem; 3: this service. EFLAGS: hosts may stay connected, and each address tells the same.
    let (data, current) = ((2, SUBSYSTEM, 0, 64), (3, DISCOVERY, 0b11, 32));
    for (record, (subtype, subnqn, eflags, entries), family, port_id, port, address) in [
        (1024, data, 1, 1, "4420", "192.0.2.9"),
        (2048, data, 2, 2, "4421", "2001:db8::1"),
        (3072, current, 1, 1, "4420", "192.0.2.9"),
        (4096, current, 2, 2, "4421", "2001:db8::1"),
    ] {
        // TRTYPE 3; TREQ: secure channel not required, flow control may be off, a host identifier may be 0.
        assert_eq!(log[record..record + 4], [3, family, subtype, 0b1110]);
        assert_eq!(u16_at(&log, record + 10), eflags);
        assert_eq!(
            (
                u16_at(&log, record + 4),
                u16_at(&log, record + 6),
                u16_at(&log, record + 8)
            ),
            (port_id, 0xFFFF, entries)
        );
        assert_eq!(text(record + 32, 32), format!("{port:<32}"));
        assert_eq!(text(record + 512, 256), format!("{address:<256}"));
        assert_eq!(text(record + 256, subnqn.len() + 1), format!("{subnqn}\0"));
        assert_eq!(log[record + 768], 0, "no TLS");
    }
    // As nvme-cli reads it: the header alone, then all in pieces.
    assert_eq!(
        host.fetch(&get_log(0x70, 0, 1024, 0), 1024).unwrap(),
        log[..1024]
    );
    assert_eq!(
        host.fetch(&get_log(0x70 | RETAIN, 0, 512, 1024), 512)
            .unwrap(),
        log[1024..1536]
    );
}

/// Any piece of the log is the same as that part of the whole; what is behind its end reads as zeros, and nothing begins there.
#[test]
fn the_discovery_log_is_one_log_in_whatever_pieces() {
    let mut host = Host::enabled(DISCOVERY);
    let whole = 5 * 1024;
    let log = page(&mut host, 0x70, whole);
    for offset in (0..=whole).step_by(516) {
        for bytes in [4, 1020, 1024, 1028, 3000, 8192] {
            let ask = get_log(0x70, 0, bytes as u64, offset as u64);
            let mut wanted = log[offset..].to_vec();
            wanted.resize(bytes, 0);
            assert_eq!(host.fetch(&ask, bytes).unwrap(), wanted, "{offset} {bytes}");
        }
    }
    let beyond = |offset| get_log(0x70, 0, 4, offset);
    assert_eq!(host.fetch(&beyond(5 * 1024), 4).unwrap(), [0; 4]);
    for offset in [5 * 1024 + 4, 1 << 40, u64::MAX - 3] {
        let refused = host.fetch(&beyond(offset), 4);
        assert_eq!(refused, Err(Status::INVALID_FIELD.dnr()), "{offset}");
    }
}

/// A host sees the subsystems that it may connect to, and no others.
#[test]
fn the_discovery_log_shows_only_what_the_host_may_use() {
    let mut hidden = subsystem();
    hidden.hosts = HostPolicy::Only(vec![Nqn::parse("nqn.2026-01.io.example:other").unwrap()]);
    let mut registry = Registry::new(Target::new([hidden], [listener("0.0.0.0:4420", 1)]).unwrap());
    let (sqe, data) = connect_command(0, 31, 0xFFFF, DISCOVERY);
    let id = registry
        .connect(&sqe, &data, &local(), Time::ZERO)
        .unwrap()
        .controller;
    let mut host = Host {
        registry,
        id,
        now: Time::ZERO,
        next_slot: 0,
    };
    host.set_cc(0x0046_0001);
    let log = page(&mut host, 0x70, 2048);
    assert_eq!(u64_at(&log, 8), 1);
    // The service itself, at its only address.
    assert_eq!((log[1026], u16_at(&log, 1034)), (3, 0b10));
}

/// What was counted is the subsystem's: a host that comes back, and another host, find it; what came before this process is added, error numbers
/// as well.
#[test]
fn smart_totals_survive_the_host() {
    let mut host = Host::io();
    let before = ControllerCounters {
        bytes_read: 512_000,
        bytes_written: 1,
        read_commands: 5,
        write_commands: 6,
        media_errors: 7,
        busy_nanos: 2 * 60_000_000_000,
        error_log_entries: 40,
    };
    let lifetime = Lifetime {
        power_cycles: 9,
        unsafe_shutdowns: 4,
        powered: Duration::from_secs(3 * 3600 - 1),
        counters: before,
    };
    let nqn = Nqn::parse(SUBSYSTEM).unwrap();
    // The subsystem was made an hour after the process.
    host.now = host.now + Duration::from_secs(3600);
    host.registry.set_lifetime(&nqn, lifetime, host.now);
    let more = ControllerCounters {
        bytes_read: 1,
        read_commands: 10,
        ..ControllerCounters::default()
    };
    host.controller().counters_mut().add(&more);
    assert_eq!(host.registry.end(host.id), Closed::Controller);
    let mut sum = before;
    (sum.bytes_read, sum.read_commands) = (512_001, 15);
    let until_now = host.registry.lifetime(&nqn, host.now).unwrap();
    let as_counted = Lifetime {
        counters: sum,
        ..lifetime
    };
    assert_eq!(until_now, as_counted);
    host.now = host.now + Duration::from_secs(7201);
    let (sqe, data) = connect_command(0, 31, 0xFFFF, SUBSYSTEM);
    let again = host.registry.connect(&sqe, &data, &local(), host.now);
    host.id = again.unwrap().controller;
    host.set_cc(0x0046_0001);
    assert_eq!(
        host.fetch(&command(0x06, 9, 0xEE, 0), 4096),
        Err(INVALID_FIELD)
    );
    let errors = page(&mut host, 0x01, 64);
    assert_eq!(u64_at(&errors, 0), 41, "Error Count");
    let log = page(&mut host, 0x02, 512);
    let read = [32, 48, 64, 80, 96, 112, 128, 144, 160, 176].map(|at| u64_at(&log, at));
    assert_eq!(
        read,
        [2, 1, 15, 6, 2, 9, 5, 4, 7, 41],
        "data units read and written, reads, writes, busy minutes, power cycles, hours, unsafe shutdowns, media errors, error log entries"
    );
    let removed = host.registry.remove_subsystem(&nqn);
    assert_eq!(removed, Some(vec![host.id]));
    assert_eq!(host.registry.lifetime(&nqn, host.now), None);
}

#[test]
fn a_life_shows_the_same_until_an_hour_or_a_counter_is_another() {
    let life = Lifetime {
        powered: Duration::from_secs(3600),
        ..Lifetime::default()
    };
    let later = |secs| Lifetime {
        powered: Duration::from_secs(secs),
        ..life
    };
    assert!(life.shows_the_same(&later(7199)));
    assert!(!life.shows_the_same(&later(7200)));
    let mut counted = later(7199);
    counted.counters.error_log_entries = 1;
    assert!(!life.shows_the_same(&counted));
    let cycled = Lifetime {
        power_cycles: 2,
        ..life
    };
    assert!(!life.shows_the_same(&cycled));
}
