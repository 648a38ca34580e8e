//! A host by the specification's byte offsets: one connection, PDUs one at a time, nothing on its own.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::target::NQN;

/// An answer that has not come by then never will.
const PATIENCE: Duration = Duration::from_secs(10);
/// CC of an enabled controller: 64- and 16-byte entries, EN.
pub const ENABLED: u32 = 0x0046_0001;
/// The same without EN.
pub const DISABLED: u32 = 0x0046_0000;
/// ENABLED with SHN = normal shutdown.
pub const SHUT_DOWN: u32 = 0x0046_4001;
/// CNTLID of an admin queue's Connect.
const CNTLID_DYNAMIC: u16 = 0xFFFF;
const BLOCK_BYTES: u32 = 4096;

const PDU_CAPSULE_CMD: u8 = 4;
const PDU_CAPSULE_RESP: u8 = 5;
const PDU_H2C_DATA: u8 = 6;
const PDU_R2T: u8 = 9;

/// A response capsule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response {
    pub cid: u16,
    pub dw0: u32,
    /// SCT and SC, with DNR and More.
    pub status: u16,
}

/// What a controller asked for.
#[derive(Clone, Copy, Debug)]
pub struct R2t {
    cid: u16,
    ttag: u16,
    offset: u32,
    len: u32,
}

/// One connection of a host.
pub struct Queue {
    socket: TcpStream,
    next_cid: u16,
}

impl Queue {
    /// A connection past ICReq.
    pub fn open(address: &str) -> Queue {
        let mut socket = TcpStream::connect(address).unwrap();
        socket.set_nodelay(true).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut hello = [0; 128];
        (hello[2], hello[4]) = (128, 128);
        socket.write_all(&hello).unwrap();
        socket.read_exact(&mut hello).unwrap();
        assert_eq!(hello[0], 1, "ICResp");
        Queue {
            socket,
            next_cid: 1,
        }
    }

    /// The admin queue of an enabled controller, and the controller's CNTLID.
    pub fn admin(address: &str, host: &str, keep_alive: Duration) -> (Queue, u16) {
        let mut queue = Queue::open(address);
        queue.send_connect(0, CNTLID_DYNAMIC, host, keep_alive);
        let connected = queue.response();
        assert_eq!(connected.status, 0);
        assert_eq!(queue.set_cc(ENABLED).status, 0);
        (queue, u16::try_from(connected.dw0).unwrap())
    }

    /// An I/O queue.
    pub fn io(address: &str, host: &str, cntlid: u16, qid: u16) -> Queue {
        let (queue, connected) = Queue::try_io(address, host, cntlid, qid);
        assert_eq!(connected.status, 0);
        queue
    }

    /// A connection that asked for an I/O queue, and the answer.
    pub fn try_io(address: &str, host: &str, cntlid: u16, qid: u16) -> (Queue, Response) {
        let mut queue = Queue::open(address);
        queue.send_connect(qid, cntlid, host, Duration::ZERO);
        let connected = queue.response();
        (queue, connected)
    }

    /// A connection that has asked for an admin queue.
    pub fn asking_for_admin(address: &str, host: &str) -> Queue {
        let mut queue = Queue::open(address);
        queue.send_connect(0, CNTLID_DYNAMIC, host, Duration::ZERO);
        queue
    }

    fn send_connect(&mut self, qid: u16, cntlid: u16, host: &str, keep_alive: Duration) {
        let mut sqe = fabrics(0x01);
        sqe[42..44].copy_from_slice(&qid.to_le_bytes());
        sqe[44..46].copy_from_slice(&31_u16.to_le_bytes());
        let kato_ms = u32::try_from(keep_alive.as_millis()).unwrap();
        sqe[48..52].copy_from_slice(&kato_ms.to_le_bytes());
        let mut data = [0; 1024];
        data[0] = 7;
        data[16..18].copy_from_slice(&cntlid.to_le_bytes());
        data[256..256 + NQN.len()].copy_from_slice(NQN.as_bytes());
        data[512..512 + host.len()].copy_from_slice(host.as_bytes());
        self.send(sqe, Data::InCapsule(&data));
    }

    pub fn set_cc(&mut self, cc: u32) -> Response {
        let mut sqe = fabrics(0x00);
        sqe[44] = 0x14;
        sqe[48..52].copy_from_slice(&cc.to_le_bytes());
        self.send(sqe, Data::Remote(0));
        self.response()
    }

    pub fn csts(&mut self) -> u32 {
        let mut sqe = fabrics(0x04);
        sqe[44] = 0x1C;
        self.send(sqe, Data::Remote(0));
        self.response().dw0
    }

    /// Asks for CSTS until it is this.
    pub fn wait_csts(&mut self, expected: u32) {
        let start = Instant::now();
        loop {
            let found = self.csts();
            if found == expected {
                return;
            }
            assert!(start.elapsed() < PATIENCE, "CSTS stays {found:#x}");
        }
    }

    /// Starts a write of one block; its data are asked for.
    pub fn send_write(&mut self, lba: u64) -> u16 {
        self.send_range(0x01, lba, 1)
    }

    /// Starts a write of so many blocks, whose data are asked for.
    pub fn send_long_write(&mut self, lba: u64, blocks: u16) -> u16 {
        self.send_range(0x01, lba, blocks)
    }

    /// Sends a write of one block with its data. No answer is waited for.
    pub fn write(&mut self, lba: u64, fill: u8) -> u16 {
        let cid = self.send_write(lba);
        let r2t = self.r2t();
        assert_eq!((r2t.cid, r2t.offset, r2t.len), (cid, 0, BLOCK_BYTES));
        self.send_data(r2t, fill);
        cid
    }

    /// Reads one block.
    pub fn read(&mut self, lba: u64) -> Vec<u8> {
        let cid = self.send_range(0x02, lba, 1);
        let data = self.pdu();
        assert_eq!(data[0], 7, "C2HData");
        assert_eq!(u16_at(&data, 8), cid);
        assert_eq!(data[1] & 0b1000, 0b1000, "SUCCESS stands for the response");
        data[24..].to_vec()
    }

    pub fn flush(&mut self) -> Response {
        let mut sqe = [0; 64];
        sqe[4] = 1;
        self.send(sqe, Data::Remote(0));
        self.response()
    }

    fn send_range(&mut self, opcode: u8, lba: u64, blocks: u16) -> u16 {
        let mut sqe = [0; 64];
        (sqe[0], sqe[4]) = (opcode, 1);
        sqe[40..48].copy_from_slice(&lba.to_le_bytes());
        sqe[48..50].copy_from_slice(&(blocks - 1).to_le_bytes());
        self.send(sqe, Data::Remote(u32::from(blocks) * BLOCK_BYTES))
    }

    fn send(&mut self, mut sqe: [u8; 64], data: Data<'_>) -> u16 {
        let cid = self.next_cid;
        self.next_cid += 1;
        sqe[1] = 0x40;
        sqe[2..4].copy_from_slice(&cid.to_le_bytes());
        let (bytes, in_capsule): (u32, &[u8]) = match data {
            Data::Remote(bytes) => (bytes, &[]),
            Data::InCapsule(data) => (u32::try_from(data.len()).unwrap(), data),
        };
        sqe[32..36].copy_from_slice(&bytes.to_le_bytes());
        sqe[39] = if in_capsule.is_empty() { 0x5A } else { 0x01 };
        let mut pdu = pdu_header(PDU_CAPSULE_CMD, 0, 72, in_capsule.len());
        pdu.extend(sqe);
        pdu.extend(in_capsule);
        self.socket.write_all(&pdu).unwrap();
        cid
    }

    /// Sends all that an R2T asked for.
    pub fn send_data(&mut self, r2t: R2t, fill: u8) {
        let mut pdu = pdu_header(PDU_H2C_DATA, 0b100, 24, r2t.len as usize);
        pdu.extend(r2t.cid.to_le_bytes());
        pdu.extend(r2t.ttag.to_le_bytes());
        pdu.extend(r2t.offset.to_le_bytes());
        pdu.extend(r2t.len.to_le_bytes());
        pdu.extend([0; 4]);
        pdu.resize(24 + r2t.len as usize, fill);
        self.socket.write_all(&pdu).unwrap();
    }

    pub fn r2t(&mut self) -> R2t {
        let pdu = self.pdu();
        assert_eq!(pdu[0], PDU_R2T, "R2T");
        R2t {
            cid: u16_at(&pdu, 8),
            ttag: u16_at(&pdu, 10),
            offset: u32_at(&pdu, 12),
            len: u32_at(&pdu, 16),
        }
    }

    pub fn response(&mut self) -> Response {
        let pdu = self.pdu();
        assert_eq!(pdu[0], PDU_CAPSULE_RESP, "a response");
        Response {
            dw0: u32_at(&pdu, 8),
            cid: u16_at(&pdu, 20),
            status: u16_at(&pdu, 22) >> 1,
        }
    }

    fn pdu(&mut self) -> Vec<u8> {
        let mut pdu = vec![0; 8];
        self.socket.read_exact(&mut pdu).unwrap();
        pdu.resize(u32_at(&pdu, 4) as usize, 0);
        self.socket.read_exact(&mut pdu[8..]).unwrap();
        pdu
    }

    /// Returns once the target has closed the connection, whatever it sent before.
    pub fn wait_closed(&mut self) {
        let mut rest = Vec::new();
        match self.socket.read_to_end(&mut rest) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
    }
}

enum Data<'a> {
    /// None where zero.
    Remote(u32),
    InCapsule(&'a [u8]),
}

fn fabrics(fctype: u8) -> [u8; 64] {
    let mut sqe = [0; 64];
    (sqe[0], sqe[4]) = (0x7F, fctype);
    sqe
}

/// PDU type, flags, HLEN, PDO, PLEN.
fn pdu_header(pdu_type: u8, flags: u8, hlen: u8, data_bytes: usize) -> Vec<u8> {
    let pdo = if data_bytes == 0 { 0 } else { hlen };
    let plen = u32::from(hlen) + u32::try_from(data_bytes).unwrap();
    let mut header = vec![pdu_type, flags, hlen, pdo];
    header.extend(plen.to_le_bytes());
    header
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap())
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}
