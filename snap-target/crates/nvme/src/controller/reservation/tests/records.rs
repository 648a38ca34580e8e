//! Records: byte for byte, and refused where they are damaged.

use super::*;

#[test]
fn a_record_is_what_its_table_says() {
    let record = held(4).with_persistence(true).to_record();
    let mut expected = b"XIORESV1".to_vec();
    expected.extend_from_slice(&[2, 0, 0, 0, 4, 0, 2, 0, 0, 0, 0, 0]);
    for (who, key) in [(1_u8, 11_u64), (2, 22)] {
        expected.extend_from_slice(&[who; 16]);
        expected.extend_from_slice(&key.to_le_bytes());
    }
    expected.extend_from_slice(&crate::digest::crc32c(&expected).to_le_bytes());
    assert_eq!(record, expected);
}

#[test]
fn without_persistence_nothing_is_kept() {
    assert_eq!(held(4).to_record(), Vec::<u8>::new());
    assert_eq!(Table::from_record(&[]), Ok(Table::default()));
}

#[test]
fn every_flipped_bit_and_every_missing_byte_is_noticed() {
    let record = held(5).with_persistence(true).to_record();
    assert!(Table::from_record(&record).is_ok());
    for bit in 0..record.len() * 8 {
        let mut damaged = record.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(Table::from_record(&damaged).is_err(), "bit {bit}");
    }
    for len in 1..record.len() {
        assert!(Table::from_record(&record[..len]).is_err(), "{len} bytes");
    }
}

/// A record whose checksum is right and whose fields are not: another program's, or a bug's.
#[test]
fn contradictions_are_refused() {
    let record = held(1).with_persistence(true).to_record();
    for (place, value) in [
        (12, 7),   // no such type
        (12, 5),   // all registrants, and one holder
        (12, 0),   // no reservation, and a holder
        (14, 3),   // more registrants than there are
        (16, 2),   // a holder that is not there
        (20, 2),   // the same host twice, with the next
        (7, b'2'), // a later version
    ] {
        let mut wrong = record.clone();
        wrong.truncate(record.len() - 4);
        wrong[place] = value;
        if place == 20 {
            wrong[20..36].fill(2);
        }
        let crc = crate::digest::crc32c(&wrong);
        wrong.extend_from_slice(&crc.to_le_bytes());
        let refused = Table::from_record(&wrong);
        assert!(
            matches!(
                refused,
                Err(RecordError::Contradiction(_) | RecordError::NotARecord)
            ),
            "byte {place}: {refused:?}"
        );
    }
}
