//! Connect requests of every kind, and what goes back.

use super::super::{Refusal, Request};
use super::limits;
use crate::queue::QueueId;

/// RECFMT, QID, HRQSIZE, HSQSIZE, CNTLID, 22 reserved bytes.
fn private_data(words: [u16; 5]) -> Vec<u8> {
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.resize(32, 0);
    bytes
}

fn parse(words: [u16; 5]) -> Result<Request, Refusal> {
    Request::parse(&private_data(words), 16, 16, &limits())
}

#[test]
fn a_good_request_is_taken_and_accepted() {
    let request = parse([0, 3, 9, 7, 0x1234]).unwrap();
    let expected = Request {
        queue: QueueId(3),
        entries: 8,
        host_receives: 9,
        reads_max: 16,
    };
    assert_eq!(request, expected);
    let mut accept = vec![0, 0, 8, 0];
    accept.resize(32, 0);
    assert_eq!(request.accept_data().to_vec(), accept);
}

#[test]
fn each_fault_has_its_status() {
    let faults = [
        ([1, 0, 8, 7, 0], 2),
        ([0, 0xFFFF, 8, 7, 0], 3),
        ([0, 1, 8, 0, 0], 4),
        ([0, 1, 8, 8, 0], 4),
        ([0, 1, 8, 0xFFFF, 0], 4),
        ([0, 1, 0, 7, 0], 5),
    ];
    for (words, status) in faults {
        let refusal = parse(words).unwrap_err();
        assert_eq!(refusal.reject_data(), [0, 0, status, 0], "{words:?}");
        assert_ne!(refusal.to_string(), "the connect request is refused");
    }
}

#[test]
fn every_length_that_is_too_short_is_refused_and_padding_is_not() {
    let mut data = private_data([0, 1, 8, 7, 0]);
    for len in 0..32 {
        let refusal = Request::parse(&data[..len], 16, 16, &limits()).unwrap_err();
        assert_eq!(refusal.reject_data(), [0, 0, 1, 0], "{len} bytes");
    }
    data.resize(56, 0xFF);
    assert!(Request::parse(&data, 16, 16, &limits()).is_ok());
}

#[test]
fn reads_are_as_many_as_host_device_and_we_allow() {
    let data = private_data([0, 1, 8, 7, 0]);
    let reads =
        |host, device| Request::parse(&data, host, device, &limits()).map(|it| it.reads_max);
    assert_eq!(reads(3, 200), Ok(3));
    assert_eq!(reads(200, 5), Ok(5));
    assert_eq!(reads(200, 200), Ok(16));
    assert_eq!(reads(0, 16).unwrap_err().reject_data(), [0, 0, 7, 0]);
}
