//! PDUs by the specification's byte offsets (TCP 1.0, clause 3.6), not by the structures under test.

#![allow(clippy::too_many_arguments, reason = "a header's fields")]

pub const IC_REQ: u8 = 0x00;
pub const IC_RESP: u8 = 0x01;
pub const H2C_TERM: u8 = 0x02;
pub const C2H_TERM: u8 = 0x03;
pub const CAPSULE_CMD: u8 = 0x04;
pub const CAPSULE_RESP: u8 = 0x05;
pub const H2C_DATA: u8 = 0x06;
pub const C2H_DATA: u8 = 0x07;
pub const R2T: u8 = 0x09;

pub const LAST_PDU: u8 = 1 << 2;
pub const SUCCESS: u8 = 1 << 3;

/// FES values.
pub const HEADER_FIELD: u16 = 1;
pub const SEQUENCE: u16 = 2;
pub const OUT_OF_RANGE: u16 = 4;
pub const LIMIT: u16 = 5;

/// Byte offsets for FEI.
pub const FLAGS: u32 = 1;
pub const HLEN: u32 = 2;
pub const CCCID: u32 = 8;
pub const TTAG: u32 = 10;
pub const DATAL: u32 = 16;

/// Common header and the rest; PLEN counts both.
pub fn pdu(pdu_type: u8, flags: u8, hlen: u8, pdo: u8, rest: &[u8]) -> Vec<u8> {
    let plen = 8 + rest.len() as u32;
    let mut bytes = vec![pdu_type, flags, hlen, pdo];
    bytes.extend_from_slice(&plen.to_le_bytes());
    bytes.extend_from_slice(rest);
    bytes
}

/// ICReq (PFV, HPDA, DGST, MAXR2T) and ICResp (PFV, CPDA, DGST, MAXH2CDATA) have one shape.
pub fn ic(pdu_type: u8, alignment: u8, dgst: u8, limit: u32) -> Vec<u8> {
    let mut rest = vec![0; 120];
    rest[2] = alignment;
    rest[3] = dgst;
    rest[4..8].copy_from_slice(&limit.to_le_bytes());
    pdu(pdu_type, 0, 128, 0, &rest)
}

/// The four fields that H2CData, C2HData and R2T share: identifier, tag, offset, length; then the data.
pub fn data_pdu(
    pdu_type: u8,
    flags: u8,
    cid: u16,
    tag: u16,
    offset: u32,
    len: u32,
    data: &[u8],
) -> Vec<u8> {
    let mut rest = Vec::new();
    rest.extend_from_slice(&cid.to_le_bytes());
    rest.extend_from_slice(&tag.to_le_bytes());
    rest.extend_from_slice(&offset.to_le_bytes());
    rest.extend_from_slice(&len.to_le_bytes());
    rest.extend_from_slice(&[0; 4]);
    rest.extend_from_slice(data);
    let pdo = if pdu_type == R2T { 0 } else { 24 };
    pdu(pdu_type, flags, 24, pdo, &rest)
}

pub fn h2c_data(flags: u8, cid: u16, ttag: u16, offset: u32, data: &[u8]) -> Vec<u8> {
    data_pdu(H2C_DATA, flags, cid, ttag, offset, data.len() as u32, data)
}

pub fn c2h_data(flags: u8, cid: u16, offset: u32, data: &[u8]) -> Vec<u8> {
    data_pdu(C2H_DATA, flags, cid, 0, offset, data.len() as u32, data)
}

pub fn r2t(cid: u16, ttag: u16, offset: u32, len: u32) -> Vec<u8> {
    data_pdu(R2T, 0, cid, ttag, offset, len, &[])
}

/// A submission queue entry of the NVM command set: opcode, identifier, first block, blocks, and a transport descriptor.
pub fn sqe(opcode: u8, cid: u16, lba: u32, blocks: u16, sgl_bytes: u32) -> [u8; 64] {
    let mut sqe = [0; 64];
    sqe[0] = opcode;
    sqe[1] = 0x40;
    sqe[2..4].copy_from_slice(&cid.to_le_bytes());
    sqe[4] = 1;
    sqe[32..36].copy_from_slice(&sgl_bytes.to_le_bytes());
    sqe[39] = 0x5A;
    sqe[40..44].copy_from_slice(&lba.to_le_bytes());
    sqe[48..50].copy_from_slice(&blocks.wrapping_sub(1).to_le_bytes());
    sqe
}

pub const FLUSH: u8 = 0;
pub const WRITE: u8 = 1;
pub const READ: u8 = 2;

/// CapsuleCmd without data.
pub fn capsule(sqe: [u8; 64]) -> Vec<u8> {
    pdu(CAPSULE_CMD, 0, 72, 0, &sqe)
}

/// CapsuleCmd with data inside: the descriptor says so too.
pub fn capsule_with_data(mut sqe: [u8; 64], data: &[u8]) -> Vec<u8> {
    sqe[32..36].copy_from_slice(&(data.len() as u32).to_le_bytes());
    sqe[39] = 0x01;
    pdu(CAPSULE_CMD, 0, 72, 72, &[&sqe, data].concat())
}

/// CapsuleResp: identifier and status (SCT and SC as 11 bits).
pub fn response(cid: u16, status: u16) -> Vec<u8> {
    let mut rest = [0; 16];
    rest[12..14].copy_from_slice(&cid.to_le_bytes());
    rest[14..16].copy_from_slice(&(status << 1).to_le_bytes());
    pdu(CAPSULE_RESP, 0, 24, 0, &rest)
}

/// One PDU of what an end sent, without digests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent(pub Vec<u8>);

impl Sent {
    /// Cuts a stream at its PLENs.
    pub fn all(mut stream: &[u8]) -> Vec<Sent> {
        let mut pdus = Vec::new();
        while !stream.is_empty() {
            let plen = u32::from_le_bytes(stream[4..8].try_into().unwrap()) as usize;
            let (one, rest) = stream.split_at(plen);
            pdus.push(Sent(one.to_vec()));
            stream = rest;
        }
        pdus
    }

    pub fn pdu_type(&self) -> u8 {
        self.0[0]
    }

    /// The 16 bits at a byte offset.
    pub fn half(&self, at: usize) -> u16 {
        u16::from_le_bytes(self.0[at..at + 2].try_into().unwrap())
    }

    /// The 32 bits at a byte offset.
    pub fn word(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.0[at..at + 4].try_into().unwrap())
    }

    /// FES and FEI of a TermReq.
    pub fn fault(&self) -> (u16, u32) {
        assert!(matches!(self.pdu_type(), H2C_TERM | C2H_TERM), "{self:?}");
        (self.half(8), self.word(10))
    }

    /// SCT and SC of a CapsuleResp.
    pub fn status(&self) -> u16 {
        assert_eq!(self.pdu_type(), CAPSULE_RESP);
        self.half(8 + 14) >> 1 & 0x7FF
    }
}
