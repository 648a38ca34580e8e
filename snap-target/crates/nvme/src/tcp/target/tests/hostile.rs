//! Hostile hosts: what conformance lists for NVMe/TCP, by name.

use super::*;
use crate::queue::Transfer;
use nvme_spec::Status;
use nvme_spec::tcp::FatalErrorStatus as Fes;
use proptest::prelude::*;

/// A connection with a write in slot 0 whose R2T for 8192 bytes is out.
fn writing() -> Driver {
    let mut driver = Driver::plain();
    driver.feed(&write(0x55, 8192));
    driver.connection.request_data(Slot(0), Time::ZERO).unwrap();
    assert_eq!(driver.sent().len(), 1);
    driver
}

fn assert_fatal(mut driver: Driver, bytes: &[u8], status: Fes, information: u32) {
    let events = driver.feed(bytes);
    let error = fatal(&events);
    assert_eq!(
        (error.status, error.information),
        (status, information),
        "{}",
        error.why
    );
    assert_eq!(events.len(), 1, "{events:?}");
    let header = &bytes[..usize::from(bytes[2]).min(bytes.len())];
    let sent = driver.sent();
    assert_eq!(sent.len(), 1);
    assert_eq!(
        sent[0][24..24 + header.len().min(128)],
        header[..header.len().min(128)]
    );
    driver.assert_deaf();
}

/// CVE-2023-6356, -6535, -6536: H2CData beyond the command or the R2T's window, overlapping, empty, with wrong tags.
#[test]
fn h2c_data_outside_of_its_r2t_is_fatal() {
    let field = Fes::INVALID_PDU_HEADER_FIELD;
    let range = Fes::DATA_TRANSFER_OUT_OF_RANGE;
    let data = [0; 64];
    // Offset past the window, far past it, and wrapping.
    assert_fatal(writing(), &h2c_data(0x55, 0, 8192, &data, LAST), range, 0);
    assert_fatal(writing(), &h2c_data(0x55, 0, 4, &data, 0), range, 0);
    assert_fatal(
        writing(),
        &h2c_data(0x55, 0, u32::MAX, &data, LAST),
        range,
        0,
    );
    assert_fatal(
        writing(),
        &h2c_data(0x55, 0, u32::MAX - 63, &data, LAST),
        range,
        0,
    );
    // Length past the window.
    assert_fatal(writing(), &h2c_data(0x55, 0, 0, &[0; 8196], LAST), range, 0);
    // Overlapping: the same bytes again.
    let mut driver = writing();
    assert_eq!(driver.feed(&h2c_data(0x55, 0, 0, &data, 0)), []);
    assert_fatal(driver, &h2c_data(0x55, 0, 0, &data, 0), range, 0);
    // DATAL that lies about the PDU.
    let mut lying = h2c_data(0x55, 0, 0, &data, 0);
    lying[16] = 65;
    assert_fatal(writing(), &lying, field, 16);
    lying[16..20].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_fatal(writing(), &lying, field, 16);
    // No data at all.
    assert_fatal(writing(), &h2c_data(0x55, 0, 0, &[], LAST), field, 4);
    // Tags: of no slot, of a slot without R2T, of another command.
    assert_fatal(writing(), &h2c_data(0x55, 8, 0, &data, 0), field, 10);
    assert_fatal(writing(), &h2c_data(0x55, 0xFFFF, 0, &data, 0), field, 10);
    assert_fatal(writing(), &h2c_data(0x55, 1, 0, &data, 0), field, 10);
    assert_fatal(writing(), &h2c_data(0x56, 0, 0, &data, 0), field, 8);
    // LAST_PDU too early, and missing.
    assert_fatal(writing(), &h2c_data(0x55, 0, 0, &data, LAST), field, 1);
    assert_fatal(writing(), &h2c_data(0x55, 0, 0, &[0; 8192], 0), field, 1);
    // After the last byte.
    let mut driver = writing();
    assert_eq!(
        driver.feed(&h2c_data(0x55, 0, 0, &[0; 8192], LAST)).len(),
        1
    );
    assert_fatal(driver, &h2c_data(0x55, 0, 0, &data, LAST), field, 10);
}

/// TCP, "ICResp: MAXH2CDATA".
#[test]
fn h2c_data_beyond_maxh2cdata_is_fatal() {
    let limits = TargetLimits {
        h2c_data_bytes_max: 4096,
        ..TargetLimits::default()
    };
    let mut driver = Driver::connected(&limits, 0, 8, true);
    driver.feed(&write(1, 8192));
    driver.connection.request_data(Slot(0), Time::ZERO).unwrap();
    driver.sent();
    assert_fatal(
        driver,
        &h2c_data(1, 0, 0, &[0; 4100], 0),
        Fes::LIMIT_EXCEEDED,
        0,
    );
}

/// CVE-2026-22998: H2CData before Connect, for a read, for a slot that is free, for a write that nobody asked for.
#[test]
fn h2c_data_in_the_wrong_state_is_fatal() {
    let data = h2c_data(0x55, 0, 0, &[0; 64], LAST);
    let mut before = Driver::new(&TargetLimits::default());
    before.feed(&ic_req(0, 0));
    before.sent();
    assert_fatal(before, &data, Fes::PDU_SEQUENCE_ERROR, 0);

    let field = Fes::INVALID_PDU_HEADER_FIELD;
    assert_fatal(Driver::plain(), &data, field, 10);
    let mut reading = Driver::plain();
    reading.feed(&read(0x55, 64));
    assert_fatal(reading, &data, field, 10);
    let mut unasked = Driver::plain();
    unasked.feed(&write(0x55, 64));
    assert_fatal(unasked, &data, field, 10);
    // The R2T is decided but has not left.
    let mut unsent = Driver::plain();
    unsent.feed(&write(0x55, 64));
    unsent.connection.request_data(Slot(0), Time::ZERO).unwrap();
    let error = fatal(&unsent.feed(&data));
    assert_eq!((error.status, error.information), (field, 10));
}

/// What was answered but had not left before a fatal error stays behind: only the C2HTermReq follows.
#[test]
fn answers_do_not_follow_a_fatal_error() {
    let mut driver = Driver::plain();
    driver.feed(&flush(1));
    driver.feed(&write(2, 64));
    driver.connection.respond(Slot(0), Completion::SUCCESS, 0);
    driver.connection.request_data(Slot(1), Time::ZERO).unwrap();
    let wrong = pdu(0x55, 0, 24, 0, 24, &[0; 16]);
    let error = fatal(&driver.feed(&wrong));
    driver.assert_dead(error, &wrong);
}

/// CVE-2026-89969, CVE-2025-21927: every HLEN with and without digests, every PDU type; only the specified one passes.
#[test]
fn every_wrong_header_length_is_fatal() {
    for (pdu_type, right) in [(0u8, 128u8), (2, 24), (4, 72), (6, 24)] {
        for dgst in [0, 1, 3] {
            for hlen in (0..=255).filter(|&hlen| hlen != right) {
                let mut driver = if pdu_type == 0 {
                    Driver::new(&TargetLimits::default())
                } else {
                    Driver::connected(&TargetLimits::default(), dgst, 8, true)
                };
                let bytes = pdu(pdu_type, u8::from(dgst != 0), hlen, 0, 128, &[0; 120]);
                let error = fatal(&driver.feed(&bytes));
                assert_eq!(
                    (error.status, error.information),
                    (Fes::INVALID_PDU_HEADER_FIELD, 2)
                );
                driver.sent();
                driver.assert_deaf();
            }
        }
    }
}

/// TCP, "Common Header": types that no host sends.
#[test]
fn unknown_pdu_types_are_fatal() {
    for pdu_type in (0..=255).filter(|pdu_type| ![0, 2, 4, 6].contains(pdu_type)) {
        assert_fatal(
            Driver::plain(),
            &pdu(pdu_type, 0, 24, 0, 24, &[0; 16]),
            Fes::INVALID_PDU_HEADER_FIELD,
            0,
        );
    }
}

/// PLEN and PDO that contradict HLEN, the digests and each other.
#[test]
fn contradictory_lengths_are_fatal() {
    let field = Fes::INVALID_PDU_HEADER_FIELD;
    let entry = sqe(WRITE, 1, 1, 64, IN_CAPSULE);
    let header = |flags, pdo, plen| pdu(4, flags, 72, pdo, plen, &entry);
    assert_fatal(Driver::plain(), &header(0, 0, 71), field, 4);
    assert_fatal(Driver::plain(), &header(0, 0, 0), field, 4);
    assert_fatal(Driver::plain(), &header(0, 72, 72 + 8193), field, 4);
    assert_fatal(Driver::plain(), &header(0, 72, u32::MAX), field, 4);
    assert_fatal(Driver::plain(), &header(0, 71, 200), field, 3);
    assert_fatal(Driver::plain(), &header(0, 73, 200), field, 3);
    assert_fatal(Driver::plain(), &header(0, 200, 200), field, 4);
    assert_fatal(Driver::plain(), &header(0, 204, 200), field, 4);
    // Digest flags that were not negotiated, or are missing.
    assert_fatal(Driver::plain(), &header(1, 0, 76), field, 1);
    assert_fatal(Driver::plain(), &header(2, 72, 140), field, 1);
    let digests = || Driver::connected(&TargetLimits::default(), 3, 8, true);
    assert_fatal(digests(), &header(0, 0, 72), field, 1);
    assert_fatal(digests(), &header(1, 76, 140), field, 1);
    assert_fatal(digests(), &header(1 | 2, 72, 140), field, 3);
    assert_fatal(digests(), &header(1 | 2, 76, 80), field, 4);
    // ICReq and H2CTermReq are exactly so long.
    let mut ic = ic_req(0, 0);
    ic[4] = 129;
    assert_fatal(Driver::new(&TargetLimits::default()), &ic, field, 4);
    assert_fatal(Driver::plain(), &pdu(2, 0, 24, 0, 153, &[0; 16]), field, 4);
}

/// CVE-2026-80789: a descriptor far over MDTS costs nothing; data are asked for only within the limit.
#[test]
fn a_huge_descriptor_reserves_nothing() {
    let mut driver = Driver::plain();
    driver.feed(&write(1, u32::MAX));
    assert_eq!(
        driver.connection.transfer(Slot(0)),
        Transfer::Remote { bytes: u32::MAX }
    );
    assert_eq!(
        driver.connection.request_data(Slot(0), Time::ZERO),
        Err(Status::INVALID_FIELD.dnr())
    );
    driver
        .connection
        .respond(Slot(0), Completion::of(Status::INVALID_FIELD.dnr()), 0);
    assert_eq!(driver.sent().len(), 1);
    assert!(driver.buffers[0].is_empty());
    // Exactly the limit is asked for.
    driver.feed(&write(2, 1 << 20));
    assert_eq!(driver.connection.request_data(Slot(0), Time::ZERO), Ok(()));
}

/// TCP, "Header Digest Error": FES 3 with the digest received as FEI; the command is not looked at.
#[test]
fn a_wrong_header_digest_is_fatal() {
    for flipped in [2, 10, 40, 71, 72, 75] {
        let mut driver = Driver::connected(&TargetLimits::default(), 1, 8, true);
        let mut bytes = digested(&flush(1), false);
        bytes[flipped] ^= 0x80;
        let error = fatal(&driver.feed(&bytes));
        // A flip in HLEN is seen before the digest can be.
        if flipped == 2 {
            assert_eq!(error.status, Fes::INVALID_PDU_HEADER_FIELD);
        } else {
            let received = u32::from_le_bytes(bytes[72..76].try_into().unwrap());
            assert_eq!(
                (error.status, error.information),
                (Fes::HEADER_DIGEST_ERROR, received)
            );
        }
        driver.sent();
        driver.assert_deaf();
    }
}

/// What a random host does next.
#[derive(Clone, Debug)]
enum Move {
    Read(u32),
    Write {
        in_capsule: bool,
        bytes: u32,
    },
    Flush,
    Data {
        ttag: u16,
        offset: u32,
        bytes: u32,
        last: bool,
    },
    Answer(u16),
    AskForData(u16),
    Send,
    Flip {
        at: usize,
        bit: u8,
    },
    Garbage(Vec<u8>),
}

fn moves() -> impl Strategy<Value = Move> {
    let length = prop_oneof![Just(0u32), 1..20_000u32, Just(u32::MAX)];
    prop_oneof![
        4 => length.clone().prop_map(Move::Read),
        4 => (any::<bool>(), 0..9000u32).prop_map(|(in_capsule, bytes)| Move::Write { in_capsule, bytes }),
        2 => Just(Move::Flush),
        4 => (0..10u16, prop_oneof![Just(0u32), 0..9000u32], 0..9000u32, any::<bool>())
            .prop_map(|(ttag, offset, bytes, last)| Move::Data { ttag, offset, bytes, last }),
        6 => (0..10u16).prop_map(Move::Answer),
        4 => (0..10u16).prop_map(Move::AskForData),
        4 => Just(Move::Send),
        1 => (0..80usize, 0..8u8).prop_map(|(at, bit)| Move::Flip { at, bit }),
        1 => proptest::collection::vec(any::<u8>(), 1..200).prop_map(Move::Garbage),
    ]
}

fn bytes_of(step: &Move, cid: u16) -> Vec<u8> {
    match step {
        Move::Read(bytes) => read(cid, *bytes),
        Move::Write {
            in_capsule: true,
            bytes,
        } => {
            let data = vec![1; (*bytes).min(9000) as usize];
            capsule(&sqe(WRITE, cid, 1, *bytes, IN_CAPSULE), &data)
        }
        Move::Write { bytes, .. } => write(cid, *bytes),
        Move::Flush => flush(cid),
        Move::Data {
            ttag,
            offset,
            bytes,
            last,
        } => h2c_data(
            *ttag,
            *ttag,
            *offset,
            &vec![2; *bytes as usize],
            if *last { LAST } else { 0 },
        ),
        Move::Garbage(bytes) => bytes.clone(),
        Move::Flip { at, bit } => {
            let mut bytes = flush(cid);
            let at = at % bytes.len();
            bytes[at] ^= 1 << bit;
            bytes
        }
        Move::Answer(_) | Move::AskForData(_) | Move::Send => Vec::new(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Any sequence of a host's bytes and a driver's calls: no panic, no more slots than entries, no payload outside of a
    /// command's own length, nothing after the end.
    #[test]
    fn any_sequence_leaves_the_machine_sound(steps in proptest::collection::vec(moves(), 0..60), cut in 1..97usize) {
        let mut driver = Driver::connected(&TargetLimits::default(), 0, 8, true);
        let mut ended = false;
        for (cid, step) in (0..).zip(&steps) {
            let mut events = Vec::new();
            match step {
                Move::Answer(slot) if driver.connection.find(driver.connection.command(Slot(*slot)).cid()) == Some(Slot(*slot)) => {
                    driver.buffers[usize::from(*slot)].resize(20_000, 0);
                    driver.connection.respond(Slot(*slot), Completion::SUCCESS, 8);
                }
                Move::AskForData(slot) => drop(driver.connection.request_data(Slot(*slot), Time::ZERO)),
                Move::Send => drop(driver.sent()),
                step => for piece in bytes_of(step, cid).chunks(cut) {
                    if driver.feed_some(piece, &mut events) < piece.len() {
                        break;
                    }
                },
            }
            prop_assert!(driver.connection.occupied().count() <= 8);
            for slot in 0..16 {
                let room = driver.connection.transfer(Slot(slot)).bytes().max(20_000);
                prop_assert!(driver.buffers[usize::from(slot)].len() <= room as usize);
            }
            prop_assert!(!ended || events.is_empty());
            ended |= events.iter().any(|event| matches!(event, Event::Fatal(_) | Event::HostTerminated { .. }));
            if ended {
                prop_assert_eq!(driver.connection.want(), Want::Closed);
            }
        }
    }

    /// Any bytes at all, from the first on.
    #[test]
    fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..600), greeted in any::<bool>(), cut in 1..300usize) {
        let mut driver = Driver::new(&TargetLimits::default());
        if greeted {
            driver.feed(&ic_req(0, 3));
        }
        let mut events = Vec::new();
        for piece in bytes.chunks(cut) {
            driver.feed_some(piece, &mut events);
        }
        driver.sent();
    }
}
