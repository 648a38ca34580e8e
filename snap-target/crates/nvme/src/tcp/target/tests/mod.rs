//! The target's end, byte by byte. PDUs are built here from the specification's offsets, not from the structures under test.

#![expect(
    clippy::cast_possible_truncation,
    reason = "lengths of test data, all small"
)]

mod answers;
mod handshake;
mod hostile;
mod identifiers;
mod owed;
mod wire;
mod writes;

use super::{Connection, Event, SuccessFlag, TargetLimits, Want};
use crate::Time;
use crate::queue::{Completion, Slot};
use crate::tcp::batch::TxBatch;
use crate::tcp::pdu::FatalError;

/// A PDU with its common header: type, flags, HLEN, PDO, PLEN, then the rest.
pub fn pdu(pdu_type: u8, flags: u8, hlen: u8, pdo: u8, plen: u32, rest: &[u8]) -> Vec<u8> {
    let mut bytes = vec![pdu_type, flags, hlen, pdo];
    bytes.extend_from_slice(&plen.to_le_bytes());
    bytes.extend_from_slice(rest);
    bytes
}

/// ICReq: PFV, HPDA, DGST, MAXR2T.
pub fn ic_req(hpda: u8, dgst: u8) -> Vec<u8> {
    let mut rest = vec![0; 120];
    rest[2] = hpda;
    rest[3] = dgst;
    pdu(0, 0, 128, 0, 128, &rest)
}

/// A submission queue entry: opcode, PSDT = 01b, CID, NSID, SGL descriptor (length, type).
pub fn sqe(opcode: u8, cid: u16, nsid: u32, sgl_len: u32, sgl_type: u8) -> [u8; 64] {
    let mut sqe = [0; 64];
    sqe[0] = opcode;
    sqe[1] = 0x40;
    sqe[2..4].copy_from_slice(&cid.to_le_bytes());
    sqe[4..8].copy_from_slice(&nsid.to_le_bytes());
    sqe[32..36].copy_from_slice(&sgl_len.to_le_bytes());
    sqe[39] = sgl_type;
    sqe
}

pub const READ: u8 = 2;
pub const WRITE: u8 = 1;
pub const FLUSH: u8 = 0;
pub const TRANSPORT: u8 = 0x5A;
pub const IN_CAPSULE: u8 = 0x01;
pub const LAST: u8 = 4;

/// A capsule without digests; `data` inside it.
pub fn capsule(sqe: &[u8; 64], data: &[u8]) -> Vec<u8> {
    let pdo = if data.is_empty() { 0 } else { 72 };
    let mut bytes = pdu(4, 0, 72, pdo, 72 + data.len() as u32, sqe);
    bytes.extend_from_slice(data);
    bytes
}

pub fn read(cid: u16, bytes: u32) -> Vec<u8> {
    capsule(&sqe(READ, cid, 1, bytes, TRANSPORT), &[])
}

pub fn write(cid: u16, bytes: u32) -> Vec<u8> {
    capsule(&sqe(WRITE, cid, 1, bytes, TRANSPORT), &[])
}

pub fn flush(cid: u16) -> Vec<u8> {
    capsule(&sqe(FLUSH, cid, 1, 0, TRANSPORT), &[])
}

/// Connect with 1024 bytes of data in the capsule.
pub fn connect(cid: u16) -> Vec<u8> {
    let mut sqe = sqe(0x7F, cid, 1, 1024, IN_CAPSULE);
    sqe[4] = 0x01;
    capsule(&sqe, &[0; 1024])
}

/// H2CData with its data.
pub fn h2c_data(cid: u16, ttag: u16, offset: u32, data: &[u8], flags: u8) -> Vec<u8> {
    let len = data.len() as u32;
    let mut bytes = pdu(
        6,
        flags,
        24,
        24,
        24 + len,
        &h2c_fields(cid, ttag, offset, len),
    );
    bytes.extend_from_slice(data);
    bytes
}

pub fn h2c_fields(cid: u16, ttag: u16, offset: u32, len: u32) -> Vec<u8> {
    let mut rest = Vec::new();
    rest.extend_from_slice(&cid.to_le_bytes());
    rest.extend_from_slice(&ttag.to_le_bytes());
    rest.extend_from_slice(&offset.to_le_bytes());
    rest.extend_from_slice(&len.to_le_bytes());
    rest.extend_from_slice(&[0; 4]);
    rest
}

/// Puts header digests (and data digests) into a PDU made without.
pub fn digested(plain: &[u8], data_digest: bool) -> Vec<u8> {
    let hlen = usize::from(plain[2]);
    let data = &plain[hlen..];
    let mut bytes = plain[..hlen].to_vec();
    bytes[1] |= 1;
    let mut plen = plain.len() as u32 + 4;
    if !data.is_empty() {
        bytes[3] += 4;
        if data_digest {
            bytes[1] |= 2;
            plen += 4;
        }
    }
    bytes[4..8].copy_from_slice(&plen.to_le_bytes());
    let crc = crate::digest::crc32c(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes.extend_from_slice(data);
    if data_digest && !data.is_empty() {
        bytes.extend_from_slice(&crate::digest::crc32c(data).to_le_bytes());
    }
    bytes
}

/// A driver: its payload memory, and what it saw.
pub struct Driver {
    pub connection: Connection,
    /// By slot.
    pub buffers: Vec<Vec<u8>>,
    /// Items of one batch.
    pub batch_items: usize,
}

impl Driver {
    pub fn new(limits: &TargetLimits) -> Driver {
        Driver {
            connection: Connection::new(limits, Time::ZERO),
            buffers: vec![Vec::new(); 256],
            batch_items: 64,
        }
    }

    /// ICReq and Connect are done.
    pub fn connected(limits: &TargetLimits, dgst: u8, entries: u16, flow_control: bool) -> Driver {
        let mut driver = Driver::new(limits);
        assert_eq!(driver.feed(&ic_req(0, dgst)), []);
        let mut request = connect(0xC0);
        if dgst != 0 {
            request = digested(&request, dgst & 2 != 0);
        }
        let events = driver.feed(&request);
        assert_eq!(
            events,
            [
                Event::Connect { slot: Slot(0) },
                Event::DataReady { slot: Slot(0) }
            ]
        );
        driver.connection.established(entries, flow_control);
        driver.connection.authenticated();
        driver.connection.respond(Slot(0), Completion::SUCCESS, 0);
        assert_eq!(driver.sent().len(), 2);
        driver.buffers[0].clear();
        driver
    }

    pub fn plain() -> Driver {
        Driver::connected(&TargetLimits::default(), 0, 8, true)
    }

    /// Gives bytes as they come off a socket; says what happened. Bytes that cannot be taken yet, or ever, are lost.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<Event> {
        let mut events = Vec::new();
        let taken = self.feed_some(bytes, &mut events);
        assert!(
            taken == bytes.len() || matches!(self.connection.want(), Want::Closed | Want::Slot)
        );
        events
    }

    /// The same; says how many bytes were taken.
    pub fn feed_some(&mut self, bytes: &[u8], events: &mut Vec<Event>) -> usize {
        let mut at = 0;
        loop {
            events.extend(std::iter::from_fn(|| self.connection.next_event()));
            let rest = &bytes[at..];
            at += match self.connection.want() {
                Want::Header(missing) => {
                    assert!(missing > 0);
                    if rest.is_empty() {
                        return at;
                    }
                    self.connection.headers(rest)
                }
                Want::Payload {
                    slot,
                    offset,
                    len,
                    digest,
                } => {
                    let part = &rest[..rest.len().min(len as usize)];
                    if part.is_empty() {
                        return at;
                    }
                    let buffer = &mut self.buffers[slot.index()];
                    let end = offset as usize + part.len();
                    if buffer.len() < end {
                        buffer.resize(end, 0xEE);
                    }
                    buffer[offset as usize..end].copy_from_slice(part);
                    let before = self.connection.payload_crc();
                    let crc = if digest {
                        crate::digest::crc32c_append(before, part)
                    } else {
                        0
                    };
                    self.connection.payload(part.len() as u32, crc);
                    part.len()
                }
                Want::Discard(len) => {
                    let part = rest.len().min(len as usize);
                    if part == 0 {
                        return at;
                    }
                    self.connection.payload(part as u32, 0);
                    part
                }
                Want::Event => 0,
                Want::Slot | Want::Closed => return at,
            };
        }
    }

    /// What leaves, PDU by PDU: header bytes, payload, digest. Everything handed out also leaves.
    pub fn sent(&mut self) -> Vec<Vec<u8>> {
        let mut batch = TxBatch::with_capacity(self.batch_items);
        let mut pdus = Vec::new();
        while self.connection.has_outgoing() {
            self.connection.transmit(&mut batch);
            assert!(!batch.is_empty());
            for index in 0..batch.items().len() {
                let item = batch.items()[index].clone();
                let payload = item.payload.map_or(Vec::new(), |part| {
                    let buffer = &self.buffers[part.slot.index()];
                    buffer[part.offset as usize..(part.offset + part.len) as usize].to_vec()
                });
                if item.data_digest() {
                    batch.set_data_digest(index, crate::digest::crc32c(&payload));
                }
                let mut bytes = batch.header(&item).to_vec();
                bytes.extend_from_slice(&payload);
                bytes.extend_from_slice(batch.digest(&item));
                assert_eq!(
                    bytes.len() as u32,
                    u32::from_le_bytes(bytes[4..8].try_into().unwrap()),
                    "PLEN"
                );
                pdus.push(bytes);
                if let Some(slot) = item.ends {
                    self.connection.transmitted(slot);
                }
            }
            batch.clear();
        }
        pdus
    }

    /// The answer to a read: `byte` repeated.
    pub fn answer_with(&mut self, slot: Slot, bytes: u32, byte: u8) {
        self.buffers[slot.index()] = vec![byte; bytes as usize];
        self.connection.respond(slot, Completion::SUCCESS, bytes);
    }

    /// The connection has ended with this error, says so to the host once, and looks at nothing more.
    pub fn assert_dead(&mut self, error: FatalError, header: &[u8]) {
        let sent = self.sent();
        let fault = &header[..header.len().min(128)];
        let mut expected = pdu(3, 0, 24, 0, 24 + fault.len() as u32, &[]);
        expected.extend_from_slice(&error.status.0.to_le_bytes());
        expected.extend_from_slice(&error.information.to_le_bytes());
        expected.extend_from_slice(&[0; 10]);
        expected.extend_from_slice(fault);
        assert_eq!(sent, [expected], "C2HTermReq");
        self.assert_deaf();
    }

    /// No byte is interpreted any more (CVE-2026-52989), and nothing is sent.
    pub fn assert_deaf(&mut self) {
        for bytes in [
            ic_req(0, 0),
            connect(1),
            flush(2),
            read(3, 4096),
            h2c_data(4, 0, 0, &[0; 64], LAST),
        ] {
            assert_eq!(self.connection.want(), Want::Closed);
            assert_eq!(self.connection.headers(&bytes), 0);
            assert_eq!(self.connection.next_event(), None);
            assert!(!self.connection.has_outgoing());
        }
        for slot in 0..8 {
            self.connection.respond(Slot(slot), Completion::SUCCESS, 0);
            assert!(
                self.connection
                    .request_data(Slot(slot), Time::ZERO)
                    .is_err()
            );
        }
        assert!(!self.connection.has_outgoing());
    }
}

/// The fatal error among events; it is the last.
pub fn fatal(events: &[Event]) -> FatalError {
    match events.last() {
        Some(Event::Fatal(error)) => *error,
        other => panic!("no fatal error but {other:?}"),
    }
}

pub fn limits(success_flag: SuccessFlag) -> TargetLimits {
    TargetLimits {
        success_flag,
        ..TargetLimits::default()
    }
}
