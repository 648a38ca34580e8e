//! ICReq to Connect.

use super::*;
use nvme_spec::tcp::FatalErrorStatus as Fes;
use std::time::Duration;

/// TCP, "ICResp": the fields at their offsets.
#[test]
fn ic_resp_is_byte_for_byte_what_the_specification_says() {
    let limits = TargetLimits {
        alignment_z: 3,
        h2c_data_bytes_max: 0x2_0003,
        ..TargetLimits::default()
    };
    let mut driver = Driver::new(&limits);
    assert_eq!(driver.feed(&ic_req(0, 3)), []);
    let mut rest = vec![0; 120];
    rest[2] = 3;
    rest[3] = 3;
    // MAXH2CDATA is rounded to a multiple of 4.
    rest[4..8].copy_from_slice(&0x2_0000u32.to_le_bytes());
    assert_eq!(driver.sent(), [pdu(1, 0, 128, 0, 128, &rest)]);
    assert_eq!(driver.connection.digests(), (true, true));
}

/// TCP, "ICResp: DGST": a subset of what the host asked for.
#[test]
fn digests_are_used_where_both_ends_want_them() {
    for (asked, header, data) in [
        (0, true, true),
        (1, true, true),
        (2, true, true),
        (3, true, true),
        (3, false, true),
        (3, true, false),
    ] {
        let limits = TargetLimits {
            header_digest: header,
            data_digest: data,
            ..TargetLimits::default()
        };
        let mut driver = Driver::new(&limits);
        driver.feed(&ic_req(0, asked));
        let used = (header && asked & 1 != 0, data && asked & 2 != 0);
        assert_eq!(driver.connection.digests(), used);
        assert_eq!(
            driver.sent()[0][11],
            u8::from(used.0) | u8::from(used.1) << 1
        );
    }
}

/// TCP, "ICReq": PFV 0, HPDA 0 to 31.
#[test]
fn unsupported_ic_req_parameters_end_the_connection() {
    let mut driver = Driver::new(&TargetLimits::default());
    let mut request = ic_req(0, 0);
    request[8] = 1;
    let error = fatal(&driver.feed(&request));
    assert_eq!(
        (error.status, error.information),
        (Fes::UNSUPPORTED_PARAMETER, 8)
    );
    driver.assert_dead(error, &request);

    let mut driver = Driver::new(&TargetLimits::default());
    let request = ic_req(32, 0);
    let error = fatal(&driver.feed(&request));
    assert_eq!(
        (error.status, error.information),
        (Fes::INVALID_PDU_HEADER_FIELD, 10)
    );
    driver.assert_dead(error, &request);
}

/// CVE-2023-5178: a failure at each step from ICReq to Connect, then more bytes.
#[test]
fn a_failure_at_each_step_to_connect_leaves_nothing_that_reads_on() {
    let steps: [&[Vec<u8>]; 4] = [
        &[],
        &[ic_req(0, 0)],
        &[ic_req(0, 0), connect(1)],
        &[ic_req(0, 0), flush(1)],
    ];
    let wrong = pdu(0x55, 0, 24, 0, 24, &[0; 16]);
    for before in steps {
        let mut driver = Driver::new(&TargetLimits::default());
        for bytes in before {
            driver.feed(bytes);
        }
        driver.sent();
        let error = fatal(&driver.feed(&wrong));
        assert_eq!(
            (error.status, error.information),
            (Fes::INVALID_PDU_HEADER_FIELD, 0)
        );
        driver.assert_dead(error, &wrong);
    }
}

/// TCP, "Connection Establishment": ICReq is the first PDU and the only one of its kind (CVE-2026-89969).
#[test]
fn pdus_out_of_order_end_the_connection() {
    for first in [connect(1), flush(1), h2c_data(1, 0, 0, &[0; 4], LAST)] {
        let mut driver = Driver::new(&TargetLimits::default());
        let error = fatal(&driver.feed(&first));
        assert_eq!(
            (error.status, error.information),
            (Fes::PDU_SEQUENCE_ERROR, 0)
        );
        let header = usize::from(first[2]);
        driver.assert_dead(error, &first[..header]);
    }
    for mut driver in [Driver::plain(), {
        let mut driver = Driver::new(&TargetLimits::default());
        driver.feed(&ic_req(0, 0));
        driver.sent();
        driver
    }] {
        let error = fatal(&driver.feed(&ic_req(0, 0)));
        assert_eq!(error.status, Fes::PDU_SEQUENCE_ERROR);
        driver.assert_dead(error, &ic_req(0, 0));
    }
}

/// Base, "Connect command": commands before it, and a second one, are a sequence error of the command.
#[test]
fn only_connect_comes_first_and_only_once() {
    let mut driver = Driver::new(&TargetLimits::default());
    driver.feed(&ic_req(0, 0));
    driver.sent();
    for command in [
        flush(7),
        capsule(&sqe(WRITE, 7, 1, 64, IN_CAPSULE), &[1; 64]),
    ] {
        assert_eq!(driver.feed(&command), []);
        let answer = &driver.sent()[0];
        // CID, then Command Sequence Error (0Ch) with DNR, in the last words of the entry.
        assert_eq!(answer[20..24], [7, 0, 0x0C << 1, 0x80]);
    }
    let mut driver = Driver::plain();
    assert_eq!(driver.feed(&connect(9)), []);
    assert_eq!(driver.sent()[0][20..24], [9, 0, 0x0C << 1, 0x80]);
    assert_eq!(driver.feed(&flush(10)), [Event::Command { slot: Slot(0) }]);
}

#[test]
fn a_connection_without_connect_ends_in_time() {
    let limits = TargetLimits {
        connect_timeout: Duration::from_secs(3),
        ..TargetLimits::default()
    };
    let mut driver = Driver::new(&limits);
    let deadline = Time::ZERO + Duration::from_secs(3);
    assert_eq!(driver.connection.deadline(), Some(deadline));
    driver.feed(&ic_req(0, 0));
    driver
        .connection
        .tick(Time::from_nanos(deadline.as_nanos() - 1));
    assert_eq!(driver.connection.next_event(), None);
    driver.connection.tick(deadline);
    assert_eq!(driver.connection.next_event(), Some(Event::TimedOut));
    driver.assert_deaf();

    let mut driver = Driver::plain();
    assert_eq!(driver.connection.deadline(), None);
    driver
        .connection
        .tick(Time::ZERO + Duration::from_secs(1000));
    assert_eq!(driver.connection.next_event(), None);
}

/// TCP, "H2CTermReq".
#[test]
fn a_host_that_terminates_is_believed() {
    let mut term = pdu(2, 0, 24, 0, 32, &[0; 16]);
    term[8] = 4;
    term[10..14].copy_from_slice(&0x0102_0304u32.to_le_bytes());
    term.extend_from_slice(&[0; 8]);
    let mut driver = Driver::plain();
    let status = Fes::DATA_TRANSFER_OUT_OF_RANGE;
    assert_eq!(
        driver.feed(&term),
        [Event::HostTerminated {
            status,
            information: 0x0102_0304
        }]
    );
    driver.assert_deaf();
}

/// Between Connect and authentication there is one slot, Connect's deadline, and nothing but authentication commands.
#[test]
fn before_authentication_there_is_nothing_else() {
    let mut driver = Driver::new(&TargetLimits::default());
    driver.feed(&ic_req(0, 0));
    driver.sent();
    driver.feed(&connect(0));
    let deadline = driver.connection.deadline();
    assert!(deadline.is_some());
    driver.connection.established(8, true);
    driver.connection.respond(Slot(0), Completion::SUCCESS, 0);
    driver.sent();
    assert_eq!(driver.connection.deadline(), deadline);

    let fabrics = |fctype: u8| {
        let mut sqe = sqe(0x7F, 1, 0, 0, TRANSPORT);
        sqe[4] = fctype;
        capsule(&sqe, &[])
    };
    let required = 0x191 | 1 << 14;
    for (command, status) in [
        (flush(1), required),
        (fabrics(0x00), required),
        (fabrics(0x04), required),
        (fabrics(0x01), 0x0C | 1 << 14),
    ] {
        assert_eq!(driver.feed(&command), []);
        let sent = driver.sent();
        assert_eq!(sent.len(), 1);
        let found = u16::from_le_bytes(sent[0][22..24].try_into().unwrap()) >> 1;
        assert_eq!(found, status);
    }
    for fctype in [0x05, 0x06] {
        let events = driver.feed(&fabrics(fctype));
        assert_eq!(events, [Event::Command { slot: Slot(0) }]);
        driver.connection.respond(Slot(0), Completion::SUCCESS, 0);
        driver.sent();
    }

    driver.connection.authenticated();
    assert_eq!(driver.connection.deadline(), None);
    let both = driver.feed(&[flush(2), flush(3)].concat());
    let [
        Event::Command { slot: first },
        Event::Command { slot: second },
    ] = both[..]
    else {
        panic!("{both:?}")
    };
    assert_ne!(first, second);

    // Its time is over: closed, as without Connect.
    let mut late = Driver::new(&TargetLimits::default());
    late.feed(&ic_req(0, 0));
    late.sent();
    late.feed(&connect(0));
    late.connection.established(8, true);
    late.connection.tick(deadline.unwrap());
    assert_eq!(late.connection.next_event(), Some(Event::TimedOut));
}
