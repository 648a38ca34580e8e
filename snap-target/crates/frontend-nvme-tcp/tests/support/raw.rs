//! A host's end of a connection over TCP, PDUs one at a time: what the suite's hosts stand on, and what only TCP's tests do with it.

use std::any::Any;
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use frontend_nvme::conformance::{
    Answer, Capsule, Carrier, Data, NQN, Place, Queue, Response, Wire, range_sqe, sqe, u16_at,
    u32_at,
};
use frontend_nvme::link::Bound;
use frontend_nvme_tcp::{SuccessFlag, bind};

/// An answer that has not come by then never will.
const PATIENCE: Duration = Duration::from_secs(10);
const BLOCK_BYTES: u32 = 4096;

const PDU_C2H_TERM: u8 = 3;
const PDU_CAPSULE_CMD: u8 = 4;
const PDU_CAPSULE_RESP: u8 = 5;
const PDU_H2C_DATA: u8 = 6;
const PDU_C2H_DATA: u8 = 7;
const PDU_R2T: u8 = 9;
const LAST: u8 = 0b100;
const SUCCESS: u8 = 0b1000;

/// The loopback; each listening end at a port of its own.
#[derive(Debug)]
pub struct Tcp;

impl Carrier for Tcp {
    fn bind(&self) -> Box<dyn Bound> {
        let any = "127.0.0.1:0".parse().unwrap();
        Box::new(bind(any, SuccessFlag::Always).unwrap())
    }

    fn connect(&self, to: SocketAddr, _qid: u16, _entries: u16) -> Box<dyn Wire> {
        Box::new(TcpWire::connected(to, false))
    }
}

/// What listens at an address, with this subsystem.
pub fn place(address: &str, subsystem: &str) -> Place {
    Place {
        on: Arc::new(Tcp),
        address: address.parse().unwrap(),
        subsystem: subsystem.to_owned(),
    }
}

/// What a controller asked for.
#[derive(Clone, Copy, Debug)]
pub struct R2t {
    pub cid: u16,
    ttag: u16,
    pub offset: u32,
    pub len: u32,
}

impl R2t {
    fn of(pdu: &[u8]) -> R2t {
        R2t {
            cid: u16_at(pdu, 8),
            ttag: u16_at(pdu, 10),
            offset: u32_at(pdu, 12),
            len: u32_at(pdu, 16),
        }
    }
}

/// One connection, past ICReq.
pub struct TcpWire {
    socket: TcpStream,
    /// A digest follows the data of every PDU.
    data_digest: bool,
    /// What came while data were asked for.
    came: VecDeque<Answer>,
}

impl TcpWire {
    fn connected(to: SocketAddr, data_digest: bool) -> TcpWire {
        let mut socket = TcpStream::connect(to).unwrap();
        socket.set_nodelay(true).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut hello = [0; 128];
        (hello[2], hello[4]) = (128, 128);
        hello[11] = u8::from(data_digest) << 1;
        socket.write_all(&hello).unwrap();
        socket.read_exact(&mut hello).unwrap();
        assert_eq!(hello[0], 1, "ICResp");
        assert_eq!(
            hello[11],
            u8::from(data_digest) << 1,
            "the digest asked for"
        );
        TcpWire {
            socket,
            data_digest,
            came: VecDeque::new(),
        }
    }

    /// A command as it travels.
    fn capsule(&self, capsule: &Capsule) -> Vec<u8> {
        let mut sqe = capsule.sqe;
        sqe[1] |= 0x40;
        let (bytes, in_capsule): (usize, &[u8]) = match &capsule.data {
            Data::None => (0, &[]),
            Data::Into(bytes) => (*bytes as usize, &[]),
            Data::From(data) => (data.len(), &[]),
            Data::InCapsule(data) => (data.len(), data),
        };
        sqe[32..36].copy_from_slice(&u32::try_from(bytes).unwrap().to_le_bytes());
        sqe[39] = if in_capsule.is_empty() { 0x5A } else { 0x01 };
        let mut pdu = self.pdu_header(PDU_CAPSULE_CMD, 0, 72, in_capsule.len());
        pdu.extend(sqe);
        self.push_data(&mut pdu, in_capsule);
        pdu
    }

    /// Hands over data as they are asked for, until all have been or the command is answered.
    fn hand_over(&mut self, cid: u16, data: &[u8]) {
        let mut asked_for = 0;
        while asked_for < data.len() {
            let pdu = self.pdu();
            if pdu[0] != PDU_R2T {
                let answer = self.answer_of(pdu);
                let is_over = answer.response.cid == cid;
                self.came.push_back(answer);
                if is_over {
                    return;
                }
                continue;
            }
            let r2t = R2t::of(&pdu);
            assert_eq!((r2t.cid, r2t.offset as usize), (cid, asked_for));
            asked_for += r2t.len as usize;
            let bytes = self.data_pdu(r2t, 0, &data[r2t.offset as usize..asked_for]);
            self.socket.write_all(&bytes).unwrap();
        }
    }

    /// The answer that begins with this PDU.
    fn answer_of(&mut self, mut pdu: Vec<u8>) -> Answer {
        let mut data = Vec::new();
        while pdu[0] == PDU_C2H_DATA {
            data.extend_from_slice(self.without_digest(&pdu[24..]));
            if pdu[1] & LAST != 0 {
                assert_ne!(pdu[1] & SUCCESS, 0, "SUCCESS stands for the response");
                let response = Response {
                    cid: u16_at(&pdu, 8),
                    dw0: 0,
                    status: 0,
                };
                return Answer { response, data };
            }
            pdu = self.pdu();
        }
        assert_eq!(pdu[0], PDU_CAPSULE_RESP, "a response");
        let response = Response {
            dw0: u32_at(&pdu, 8),
            cid: u16_at(&pdu, 20),
            status: u16_at(&pdu, 22) >> 1,
        };
        Answer { response, data }
    }

    /// An H2CData PDU as it travels: bytes `[start, start + data)` of what an R2T asked for.
    fn data_pdu(&self, r2t: R2t, start: usize, data: &[u8]) -> Vec<u8> {
        let (start, len) = (
            u32::try_from(start).unwrap(),
            u32::try_from(data.len()).unwrap(),
        );
        let last = u8::from(start + len == r2t.len) << 2;
        let mut pdu = self.pdu_header(PDU_H2C_DATA, last, 24, data.len());
        pdu.extend(r2t.cid.to_le_bytes());
        pdu.extend(r2t.ttag.to_le_bytes());
        pdu.extend((r2t.offset + start).to_le_bytes());
        pdu.extend(len.to_le_bytes());
        pdu.extend([0; 4]);
        self.push_data(&mut pdu, data);
        pdu
    }

    fn push_data(&self, pdu: &mut Vec<u8>, data: &[u8]) {
        pdu.extend(data);
        if self.data_digest && !data.is_empty() {
            pdu.extend(crc32c(data).to_le_bytes());
        }
    }

    /// Data as they came in a PDU, checked.
    fn without_digest<'a>(&self, data: &'a [u8]) -> &'a [u8] {
        if !self.data_digest {
            return data;
        }
        let (data, digest) = data.split_at(data.len() - 4);
        assert_eq!(u32_at(digest, 0), crc32c(data), "data digest");
        data
    }

    /// PDU type, flags, HLEN, PDO, PLEN.
    fn pdu_header(&self, pdu_type: u8, flags: u8, hlen: u8, data_bytes: usize) -> Vec<u8> {
        let has_digest = self.data_digest && data_bytes > 0;
        let pdo = if data_bytes == 0 { 0 } else { hlen };
        let plen = usize::from(hlen) + data_bytes + if has_digest { 4 } else { 0 };
        let mut header = vec![pdu_type, flags | u8::from(has_digest) << 1, hlen, pdo];
        header.extend(u32::try_from(plen).unwrap().to_le_bytes());
        header
    }

    fn pdu(&mut self) -> Vec<u8> {
        let mut pdu = vec![0; 8];
        self.socket.read_exact(&mut pdu).unwrap();
        pdu.resize(u32_at(&pdu, 4) as usize, 0);
        self.socket.read_exact(&mut pdu[8..]).unwrap();
        pdu
    }
}

impl Wire for TcpWire {
    fn send(&mut self, capsules: Vec<Capsule>) {
        let pdus: Vec<Vec<u8>> = capsules.iter().map(|it| self.capsule(it)).collect();
        self.socket.write_all(&pdus.concat()).unwrap();
        for capsule in capsules {
            if let Data::From(data) = capsule.data {
                self.hand_over(u16_at(&capsule.sqe, 2), &data);
            }
        }
    }

    fn answer(&mut self) -> Answer {
        if let Some(came) = self.came.pop_front() {
            return came;
        }
        let pdu = self.pdu();
        self.answer_of(pdu)
    }

    fn wait_closed(&mut self) {
        let mut rest = Vec::new();
        match self.socket.read_to_end(&mut rest) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
    }
}

/// What a host does over TCP alone: data are announced and kept back until the test hands them over.
pub trait TcpQueue {
    fn tcp(&mut self) -> &mut TcpWire;

    /// Any command whose data stay with the host until they are handed over; not waited for.
    fn announce(&mut self, sqe: [u8; 64], bytes: u32) -> u16;

    /// An I/O queue with data digests.
    fn io_with_digests(place: &Place, host: &str, cntlid: u16, qid: u16) -> Queue {
        let mut queue = Queue::over(Box::new(TcpWire::connected(place.address, true)));
        queue.send_connect(NQN, (qid, 32), cntlid, host, Duration::ZERO);
        assert_eq!(queue.response().status, 0);
        queue
    }

    /// Starts a write of one block; its data are asked for.
    fn send_write(&mut self, lba: u64) -> u16 {
        self.send_long_write(lba, 1)
    }

    /// Starts a write of so many blocks, whose data are asked for.
    fn send_long_write(&mut self, lba: u64, blocks: u16) -> u16 {
        let bytes = u32::from(blocks) * BLOCK_BYTES;
        self.announce(range_sqe(0x01, lba, blocks), bytes)
    }

    /// Any command whose data are asked for; not waited for.
    fn send_remote(&mut self, opcode: u8, nsid: u32, cdw: [u32; 3], bytes: u32) -> u16 {
        self.announce(sqe(opcode, nsid, cdw), bytes)
    }

    /// A half of so many blocks, FUSE 1 or 2, whose data are asked for; not waited for.
    fn send_remote_half(&mut self, fuse: u8, opcode: u8, lba: u64, blocks: u16) -> u16 {
        let mut sqe = range_sqe(opcode, lba, blocks);
        sqe[1] = fuse;
        self.announce(sqe, u32::from(blocks) * BLOCK_BYTES)
    }

    /// What is asked for next.
    fn r2t(&mut self) -> R2t {
        let pdu = self.tcp().pdu();
        assert_eq!(pdu[0], PDU_R2T, "R2T");
        R2t::of(&pdu)
    }

    /// Sends all that an R2T asked for.
    fn send_data(&mut self, r2t: R2t, fill: u8) {
        let pdu = self.data_pdu(r2t, 0, &vec![fill; r2t.len as usize]);
        self.send_bytes(&pdu);
    }

    /// Sends one block of what an R2T asked for.
    fn send_part(&mut self, r2t: R2t, block: usize, fill: u8) {
        let pdu = self.data_pdu(r2t, block * 4096, &[fill; 4096]);
        self.send_bytes(&pdu);
    }

    /// An H2CData PDU as it travels.
    fn data_pdu(&mut self, r2t: R2t, start: usize, data: &[u8]) -> Vec<u8> {
        self.tcp().data_pdu(r2t, start, data)
    }

    /// Sends the data of these writes as they are asked for, until all are answered. The data of a write by its place in the list.
    fn finish_writes(&mut self, cids: &[u16], data: impl Fn(usize) -> Vec<u8>) {
        let mut answered = 0;
        while answered < cids.len() {
            let pdu = self.tcp().pdu();
            if pdu[0] == PDU_R2T {
                let r2t = R2t::of(&pdu);
                let write = cids.iter().position(|&cid| cid == r2t.cid).unwrap();
                let bytes = self.data_pdu(r2t, 0, &data(write));
                self.send_bytes(&bytes);
            } else {
                assert_eq!((pdu[0], u16_at(&pdu, 22) >> 1), (PDU_CAPSULE_RESP, 0));
                assert!(cids.contains(&u16_at(&pdu, 20)));
                answered += 1;
            }
        }
    }

    /// A write's capsule as it travels, with the data in it or without.
    fn write_capsule(&mut self, lba: u64, blocks: u16, in_capsule: &[u8]) -> (u16, Vec<u8>);

    /// Sends bytes as they are.
    fn send_bytes(&mut self, bytes: &[u8]) {
        self.tcp().socket.write_all(bytes).unwrap();
    }

    /// FES of the C2HTermReq that comes next.
    fn fatal_error_status(&mut self) -> u16 {
        let pdu = self.tcp().pdu();
        assert_eq!(pdu[0], PDU_C2H_TERM, "C2HTermReq");
        u16_at(&pdu, 8)
    }
}

impl TcpQueue for Queue {
    fn tcp(&mut self) -> &mut TcpWire {
        let wire: &mut dyn Any = &mut *self.wire;
        wire.downcast_mut().unwrap()
    }

    fn announce(&mut self, sqe: [u8; 64], bytes: u32) -> u16 {
        self.send(sqe, Data::Into(bytes))
    }

    fn write_capsule(&mut self, lba: u64, blocks: u16, in_capsule: &[u8]) -> (u16, Vec<u8>) {
        let data = match in_capsule {
            [] => Data::Into(u32::from(blocks) * BLOCK_BYTES),
            data => Data::InCapsule(data.into()),
        };
        let (cid, capsule) = self.capsule(range_sqe(0x01, lba, blocks), data);
        (cid, self.tcp().capsule(&capsule))
    }
}

/// CRC-32C, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for &byte in bytes {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = crc >> 1 ^ (0x82F6_3B78 & (crc & 1).wrapping_neg());
        }
    }
    !crc
}
