//! Commands and their answers.

use super::*;
use crate::queue::Transfer;
use nvme_spec::{Cid, Status};

fn c2h_data(cid: u16, flags: u8, offset: u32, data: &[u8]) -> Vec<u8> {
    let mut rest = cid.to_le_bytes().to_vec();
    rest.extend_from_slice(&[0; 2]);
    rest.extend_from_slice(&offset.to_le_bytes());
    rest.extend_from_slice(&(data.len() as u32).to_le_bytes());
    rest.extend_from_slice(&[0; 4]);
    rest.extend_from_slice(data);
    pdu(7, flags, 24, 24, 24 + data.len() as u32, &rest)
}

fn capsule_resp(cid: u16, sqhd: u16, completion: Completion) -> Vec<u8> {
    let mut rest = completion.dw0.to_le_bytes().to_vec();
    rest.extend_from_slice(&completion.dw1.to_le_bytes());
    rest.extend_from_slice(&sqhd.to_le_bytes());
    rest.extend_from_slice(&[0; 2]);
    rest.extend_from_slice(&cid.to_le_bytes());
    rest.extend_from_slice(&completion.status.to_wire().to_le_bytes());
    pdu(5, 0, 24, 0, 24, &rest)
}

/// TCP, "C2HData", "CapsuleResp"; Base, "Completion Queue Entry": every byte, and SQHD after each completion.
#[test]
fn a_read_is_answered_byte_for_byte_and_sqhd_goes_round() {
    let mut driver = Driver::connected(&TargetLimits::default(), 0, 3, true);
    // Connect was the first of the queue's completions.
    for (cid, sqhd) in [(0x1234, 2), (0x1235, 0), (0x1236, 1), (0x1237, 2)] {
        assert_eq!(
            driver.feed(&read(cid, 8)),
            [Event::Command { slot: Slot(0) }]
        );
        assert_eq!(driver.connection.command(Slot(0)).cid(), Cid(cid));
        assert_eq!(
            driver.connection.transfer(Slot(0)),
            Transfer::Remote { bytes: 8 }
        );
        driver.answer_with(Slot(0), 8, 0xA5);
        let expected = [
            c2h_data(cid, 4, 0, &[0xA5; 8]),
            capsule_resp(cid, sqhd, Completion::SUCCESS),
        ];
        assert_eq!(driver.sent(), expected);
    }
}

/// TCP, "C2HData: SUCCESS": instead of the response, without flow control, and only where nothing is lost by it.
#[test]
fn the_success_flag_stands_for_the_response_where_it_may() {
    for (policy, flow_control, used) in [
        (SuccessFlag::WithoutFlowControl, false, true),
        (SuccessFlag::WithoutFlowControl, true, false),
        (SuccessFlag::Never, false, false),
        (SuccessFlag::Always, true, true),
    ] {
        let mut driver = Driver::connected(&limits(policy), 0, 8, flow_control);
        let sqhd = if flow_control { 2 } else { 0xFFFF };
        driver.feed(&read(5, 4));
        driver.answer_with(Slot(0), 4, 1);
        let expected = if used {
            vec![c2h_data(5, 4 | 8, 0, &[1; 4])]
        } else {
            vec![
                c2h_data(5, 4, 0, &[1; 4]),
                capsule_resp(5, sqhd, Completion::SUCCESS),
            ]
        };
        assert_eq!(
            driver.sent(),
            expected,
            "{policy:?}, flow control {flow_control}"
        );

        // A result in DW0 needs the response.
        let completion = Completion::result(77);
        driver.feed(&read(6, 4));
        driver.connection.respond(Slot(0), completion, 4);
        let sqhd = if flow_control { 3 } else { 0xFFFF };
        assert_eq!(
            driver.sent(),
            [
                c2h_data(6, 4, 0, &[1; 4]),
                capsule_resp(6, sqhd, completion)
            ]
        );
    }
}

#[test]
fn an_error_carries_no_data() {
    let mut driver = Driver::plain();
    driver.feed(&read(5, 4));
    let completion = Completion::of(Status::LBA_OUT_OF_RANGE.dnr());
    driver.connection.respond(Slot(0), completion, 4);
    assert_eq!(driver.sent(), [capsule_resp(5, 2, completion)]);
}

/// Data beyond the host's descriptor never leave: the status says so instead.
#[test]
fn data_never_exceed_the_hosts_descriptor() {
    let expected = Completion::of(Status::DATA_SGL_LENGTH_INVALID.dnr());
    let mut driver = Driver::plain();
    for (command, bytes) in [(read(5, 4), 5), (flush(5), 1), (write(5, 64), 64)] {
        driver.feed(&command);
        driver.buffers[0] = vec![9; 64];
        driver
            .connection
            .respond(Slot(0), Completion::SUCCESS, bytes);
        let sent = driver.sent();
        assert_eq!(sent.len(), 1);
        assert_eq!(sent[0][20..], capsule_resp(5, 0, expected)[20..]);
    }
}

/// TCP, "C2HData: LAST_PDU, DATAO": long answers go in parts.
#[test]
fn long_answers_are_split_in_order() {
    let limits = TargetLimits {
        c2h_data_bytes_max: 4096,
        ..TargetLimits::default()
    };
    let mut driver = Driver::connected(&limits, 0, 8, true);
    driver.feed(&read(5, 10_000));
    driver.answer_with(Slot(0), 10_000, 3);
    let expected = [
        c2h_data(5, 0, 0, &[3; 4096]),
        c2h_data(5, 0, 4096, &[3; 4096]),
        c2h_data(5, 4, 8192, &[3; 1808]),
        capsule_resp(5, 2, Completion::SUCCESS),
    ];
    assert_eq!(driver.sent(), expected);
}

/// A batch of any size yields the same bytes.
#[test]
fn batches_of_one_item_lose_nothing() {
    let answers = |batch_items| {
        let mut driver = Driver::connected(
            &TargetLimits {
                c2h_data_bytes_max: 4096,
                ..limits(SuccessFlag::Never)
            },
            3,
            8,
            true,
        );
        driver.batch_items = batch_items;
        for cid in 0..4 {
            driver.feed(&digested(&read(cid, 9000), false));
            driver.answer_with(Slot(cid), 9000, cid as u8);
        }
        driver.sent()
    };
    let whole = answers(64);
    assert_eq!(whole.len(), 4 * 4);
    assert_eq!(answers(1), whole);
    assert_eq!(answers(3), whole);
}

/// TCP, "Digests", "PDO": header digest, padding to HPDA, data digest, each at its place.
#[test]
fn digests_and_alignment_frame_the_data() {
    for hpda in [0u8, 1, 3, 15, 31] {
        let mut driver = Driver::new(&TargetLimits::default());
        driver.feed(&ic_req(hpda, 3));
        driver.feed(&digested(&connect(0), true));
        driver.connection.established(8, false);
        driver.connection.authenticated();
        driver.connection.respond(Slot(0), Completion::SUCCESS, 0);
        driver.sent();
        driver.feed(&digested(&read(5, 16), true));
        driver.answer_with(Slot(0), 16, 0x77);
        let sent = driver.sent();
        let pdo = 28usize.next_multiple_of((usize::from(hpda) + 1) * 4);
        let mut expected = c2h_data(5, 1 | 2 | 4 | 8, 0, &[])[..24].to_vec();
        expected[3] = u8::try_from(pdo).unwrap();
        expected[4..8].copy_from_slice(&(pdo as u32 + 16 + 4).to_le_bytes());
        expected[16..20].copy_from_slice(&16u32.to_le_bytes());
        let header_digest = crate::digest::crc32c(&expected);
        expected.extend_from_slice(&header_digest.to_le_bytes());
        expected.resize(pdo, 0);
        expected.extend_from_slice(&[0x77; 16]);
        expected.extend_from_slice(&crate::digest::crc32c(&[0x77; 16]).to_le_bytes());
        assert_eq!(sent, [expected], "HPDA {hpda}");
    }
}

/// However the stream is cut, the same commands come out.
#[test]
fn a_stream_cut_at_every_byte_means_the_same() {
    for dgst in [0, 3] {
        let frame = |bytes: Vec<u8>| {
            if dgst == 0 {
                bytes
            } else {
                digested(&bytes, true)
            }
        };
        let mut stream = frame(read(1, 512));
        stream.extend(frame(capsule(
            &sqe(WRITE, 2, 1, 40, IN_CAPSULE),
            &[0x42; 40],
        )));
        stream.extend(frame(flush(3)));
        for cut in 0..=stream.len() {
            let mut driver = Driver::connected(&TargetLimits::default(), dgst, 8, true);
            let mut events = driver.feed(&stream[..cut]);
            events.extend(driver.feed(&stream[cut..]));
            let expected = [
                Event::Command { slot: Slot(0) },
                Event::Command { slot: Slot(1) },
                Event::DataReady { slot: Slot(1) },
                Event::Command { slot: Slot(2) },
            ];
            assert_eq!(events, expected, "cut at {cut}, DGST {dgst}");
            assert_eq!(driver.buffers[1], [0x42; 40]);
            assert_eq!(driver.connection.command(Slot(2)).cid(), Cid(3));
        }
    }
}

/// The queue's depth bounds everything: a host that is ahead of our sends waits, one that overruns its queue is cut off.
#[test]
fn the_queues_depth_bounds_the_commands() {
    let mut driver = Driver::connected(&TargetLimits::default(), 0, 4, true);
    for cid in 0..4 {
        assert_eq!(driver.feed(&flush(cid)).len(), 1);
    }
    driver.connection.respond(Slot(2), Completion::SUCCESS, 0);
    // Answered but not sent: the host may know of it before we know that it left.
    let mut events = Vec::new();
    assert_eq!(driver.feed_some(&flush(4), &mut events), 0);
    assert_eq!((driver.connection.want(), events.len()), (Want::Slot, 0));
    assert_eq!(driver.sent().len(), 1);
    assert_eq!(driver.feed(&flush(4)), [Event::Command { slot: Slot(2) }]);
    let error = fatal(&driver.feed(&flush(5)));
    assert_eq!(
        error.status,
        nvme_spec::tcp::FatalErrorStatus::PDU_SEQUENCE_ERROR
    );
    driver.assert_dead(error, &[]);
    assert_eq!(driver.connection.occupied().count(), 4);
}

#[test]
fn an_outstanding_command_is_found_by_its_identifier() {
    let mut driver = Driver::plain();
    driver.feed(&flush(0x0A0A));
    driver.feed(&flush(0x0B0B));
    assert_eq!(driver.connection.find(Cid(0x0B0B)), Some(Slot(1)));
    assert_eq!(driver.connection.find(Cid(0x0C0C)), None);
    driver.connection.respond(Slot(1), Completion::SUCCESS, 0);
    assert_eq!(driver.connection.find(Cid(0x0B0B)), None);
    assert_eq!(
        driver.connection.occupied().collect::<Vec<_>>(),
        [Slot(0), Slot(1)]
    );
    driver.sent();
    assert_eq!(driver.connection.occupied().collect::<Vec<_>>(), [Slot(0)]);
}
