//! A host by the specification's byte offsets: one connection, PDUs one at a time, nothing on its own.

mod bytes;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::target::NQN;
pub use bytes::host_id;
use bytes::{crc32c, fabrics, range_sqe, sqe, u16_at, u32_at};

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

const PDU_C2H_TERM: u8 = 3;
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

/// One connection of a host.
pub struct Queue {
    socket: TcpStream,
    next_cid: u16,
    /// A digest follows the data of every PDU.
    data_digest: bool,
}

impl Queue {
    /// A connection past ICReq.
    pub fn open(address: &str) -> Queue {
        Queue::open_with(address, false)
    }

    fn open_with(address: &str, data_digest: bool) -> Queue {
        let mut socket = TcpStream::connect(address).unwrap();
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
        Queue {
            socket,
            next_cid: 1,
            data_digest,
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

    /// The admin queue of an enabled controller of another subsystem.
    pub fn admin_of(address: &str, subsystem: &str, host: &str) -> Queue {
        let mut queue = Queue::open(address);
        queue.send_connect_to(subsystem, 0, CNTLID_DYNAMIC, host, Duration::ZERO);
        assert_eq!(queue.response().status, 0);
        assert_eq!(queue.set_cc(ENABLED).status, 0);
        queue
    }

    /// An I/O queue.
    pub fn io(address: &str, host: &str, cntlid: u16, qid: u16) -> Queue {
        let (queue, connected) = Queue::try_io(address, host, cntlid, qid);
        assert_eq!(connected.status, 0);
        queue
    }

    /// An I/O queue of so many entries, QID 1.
    pub fn io_of(address: &str, host: &str, cntlid: u16, entries: u16) -> Queue {
        let mut queue = Queue::open(address);
        queue.send_connect_sized(NQN, 1, entries - 1, cntlid, host, Duration::ZERO);
        assert_eq!(queue.response().status, 0);
        queue
    }

    /// An I/O queue with data digests.
    pub fn io_with_digests(address: &str, host: &str, cntlid: u16, qid: u16) -> Queue {
        let mut queue = Queue::open_with(address, true);
        queue.send_connect(qid, cntlid, host, Duration::ZERO);
        assert_eq!(queue.response().status, 0);
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
        self.send_connect_to(NQN, qid, cntlid, host, keep_alive);
    }

    fn send_connect_to(
        &mut self,
        subsystem: &str,
        qid: u16,
        cntlid: u16,
        host: &str,
        keep_alive: Duration,
    ) {
        self.send_connect_sized(subsystem, qid, 31, cntlid, host, keep_alive);
    }

    fn send_connect_sized(
        &mut self,
        subsystem: &str,
        qid: u16,
        sqsize_z: u16,
        cntlid: u16,
        host: &str,
        keep_alive: Duration,
    ) {
        let mut sqe = fabrics(0x01);
        sqe[42..44].copy_from_slice(&qid.to_le_bytes());
        sqe[44..46].copy_from_slice(&sqsize_z.to_le_bytes());
        let kato_ms = u32::try_from(keep_alive.as_millis()).unwrap();
        sqe[48..52].copy_from_slice(&kato_ms.to_le_bytes());
        let mut data = [0; 1024];
        data[..16].copy_from_slice(&host_id(host));
        data[16..18].copy_from_slice(&cntlid.to_le_bytes());
        data[256..256 + subsystem.len()].copy_from_slice(subsystem.as_bytes());
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

    /// Asks to be told of changes of namespaces and of the discovery log (Set Features 0Bh).
    pub fn notify(&mut self, notices: u32) {
        let mut sqe = [0; 64];
        (sqe[0], sqe[40]) = (0x09, 0x0B);
        sqe[44..48].copy_from_slice(&notices.to_le_bytes());
        self.send(sqe, Data::Remote(0));
        assert_eq!(self.response().status, 0);
    }

    /// Sends an Asynchronous Event Request, which is answered when something happens.
    pub fn send_event_request(&mut self) -> u16 {
        let mut sqe = [0; 64];
        sqe[0] = 0x0C;
        self.send(sqe, Data::Remote(0))
    }

    /// The first bytes of a log page.
    pub fn log_page(&mut self, page: u8, bytes: u32) -> Vec<u8> {
        self.send_log_page(page, bytes);
        self.take_log_page()
    }

    /// Asks for the first bytes of a log page.
    pub fn send_log_page(&mut self, page: u8, bytes: u32) {
        let mut sqe = [0; 64];
        (sqe[0], sqe[40]) = (0x02, page);
        sqe[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        let dwords_z = u16::try_from(bytes / 4 - 1).unwrap();
        sqe[42..44].copy_from_slice(&dwords_z.to_le_bytes());
        self.send(sqe, Data::Remote(bytes));
    }

    /// The answer.
    pub fn take_log_page(&mut self) -> Vec<u8> {
        let data = self.pdu();
        assert_eq!(data[0], 7, "C2HData");
        self.without_digest(&data[24..]).to_vec()
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
        self.without_digest(&data[24..]).to_vec()
    }

    /// Reads blocks that are not there.
    pub fn read_beyond(&mut self, lba: u64, blocks: u16) -> Response {
        self.send_range(0x02, lba, blocks);
        self.response()
    }

    /// Starts so many reads at once, whose answers the test takes later, or never.
    pub fn send_reads(&mut self, count: usize, lba: u64, blocks: u16) -> Vec<u16> {
        let data = || Data::Remote(u32::from(blocks) * BLOCK_BYTES);
        let (cids, capsules): (Vec<u16>, Vec<Vec<u8>>) = (0..count)
            .map(|_| self.capsule(range_sqe(0x02, lba, blocks), data()))
            .unzip();
        self.send_bytes(&capsules.concat());
        cids
    }

    /// Takes the answer of a read of zeros.
    pub fn take_read(&mut self, cid: u16, blocks: u16) {
        let data = self.pdu();
        assert_eq!((data[0], u16_at(&data, 8)), (7, cid), "C2HData");
        assert_eq!(data.len(), 24 + usize::from(blocks) * 4096);
        assert!(data[24..].iter().all(|&byte| byte == 0));
    }

    /// Sends the data of these writes as they are asked for, until all are answered. The data of a write by its place in the list.
    pub fn finish_writes(&mut self, cids: &[u16], data: impl Fn(usize) -> Vec<u8>) {
        let mut answered = 0;
        while answered < cids.len() {
            let pdu = self.pdu();
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
    pub fn write_capsule(&mut self, lba: u64, blocks: u16, in_capsule: &[u8]) -> (u16, Vec<u8>) {
        let data = if in_capsule.is_empty() {
            Data::Remote(u32::from(blocks) * BLOCK_BYTES)
        } else {
            Data::InCapsule(in_capsule)
        };
        self.capsule(range_sqe(0x01, lba, blocks), data)
    }

    /// An H2CData PDU as it travels: bytes `[start, start + data)` of what an R2T asked for.
    pub fn data_pdu(&self, r2t: R2t, start: usize, data: &[u8]) -> Vec<u8> {
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

    /// Sends bytes as they are.
    pub fn send_bytes(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).unwrap();
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

    /// An Abort of another queue's command: whether it says that it aborted it.
    pub fn abort(&mut self, qid: u16, cid: u16) -> bool {
        self.send_abort(qid, cid);
        let answer = self.response();
        assert_eq!((answer.status, answer.dw0 & !1), (0, 0));
        answer.dw0 == 0
    }

    /// An Abort that is not waited for.
    pub fn send_abort(&mut self, qid: u16, cid: u16) -> u16 {
        self.send_plain(0x08, 0, [u32::from(cid) << 16 | u32::from(qid), 0, 0])
    }

    /// Any command without data; CDW10 to CDW12.
    pub fn plain(&mut self, opcode: u8, nsid: u32, cdw: [u32; 3]) -> Response {
        let cid = self.send_plain(opcode, nsid, cdw);
        let response = self.response();
        assert_eq!(response.cid, cid);
        response
    }

    /// The same, not waited for.
    pub fn send_plain(&mut self, opcode: u8, nsid: u32, cdw: [u32; 3]) -> u16 {
        self.send(sqe(opcode, nsid, cdw), Data::Remote(0))
    }

    /// Any command that brings data in its capsule.
    pub fn bring(&mut self, opcode: u8, nsid: u32, cdw: [u32; 3], data: &[u8]) -> Response {
        let cid = self.send_bring(opcode, nsid, cdw, data);
        let response = self.response();
        assert_eq!(response.cid, cid);
        response
    }

    /// The same, not waited for.
    pub fn send_bring(&mut self, opcode: u8, nsid: u32, cdw: [u32; 3], data: &[u8]) -> u16 {
        self.send(sqe(opcode, nsid, cdw), Data::InCapsule(data))
    }

    /// Any command whose data are asked for; not waited for.
    pub fn send_remote(&mut self, opcode: u8, nsid: u32, cdw: [u32; 3], bytes: u32) -> u16 {
        self.send(sqe(opcode, nsid, cdw), Data::Remote(bytes))
    }

    /// A half of a fused operation, FUSE 1 or 2, that brings data in its capsule; not waited for.
    pub fn send_half(&mut self, fuse: u8, opcode: u8, cdw: [u32; 3], data: &[u8]) -> u16 {
        let mut sqe = sqe(opcode, 1, cdw);
        sqe[1] = fuse;
        self.send(sqe, Data::InCapsule(data))
    }

    /// A half of so many blocks, FUSE 1 or 2, whose data are asked for; not waited for.
    pub fn send_remote_half(&mut self, fuse: u8, opcode: u8, lba: u64, blocks: u16) -> u16 {
        let mut sqe = range_sqe(opcode, lba, blocks);
        sqe[1] = fuse;
        self.send(sqe, Data::Remote(u32::from(blocks) * BLOCK_BYTES))
    }

    /// Any command that brings data which it is asked for.
    pub fn bring_when_asked(&mut self, opcode: u8, cdw: [u32; 3], data: &[u8]) -> Response {
        let bytes = u32::try_from(data.len()).unwrap();
        self.send(sqe(opcode, 1, cdw), Data::Remote(bytes));
        let r2t = self.r2t();
        let pdu = self.data_pdu(r2t, 0, data);
        self.send_bytes(&pdu);
        self.response()
    }

    /// Any command that fetches data: them, or the status.
    pub fn fetch(
        &mut self,
        opcode: u8,
        nsid: u32,
        cdw: [u32; 3],
        bytes: u32,
    ) -> Result<Vec<u8>, u16> {
        let cid = self.send(sqe(opcode, nsid, cdw), Data::Remote(bytes));
        let pdu = self.pdu();
        if pdu[0] == PDU_CAPSULE_RESP {
            assert_eq!(u16_at(&pdu, 20), cid);
            return Err(u16_at(&pdu, 22) >> 1);
        }
        assert_eq!((pdu[0], u16_at(&pdu, 8)), (7, cid), "C2HData");
        assert_eq!(pdu[1] & 0b1000, 0b1000, "SUCCESS stands for the response");
        Ok(self.without_digest(&pdu[24..]).to_vec())
    }

    pub fn flush(&mut self) -> Response {
        self.flush_of(1)
    }

    /// Flushes another namespace.
    pub fn flush_of(&mut self, nsid: u32) -> Response {
        let mut sqe = [0; 64];
        sqe[4..8].copy_from_slice(&nsid.to_le_bytes());
        self.send(sqe, Data::Remote(0));
        self.response()
    }

    fn send_range(&mut self, opcode: u8, lba: u64, blocks: u16) -> u16 {
        let data = Data::Remote(u32::from(blocks) * BLOCK_BYTES);
        self.send(range_sqe(opcode, lba, blocks), data)
    }

    fn send(&mut self, sqe: [u8; 64], data: Data<'_>) -> u16 {
        let (cid, pdu) = self.capsule(sqe, data);
        self.send_bytes(&pdu);
        cid
    }

    fn capsule(&mut self, mut sqe: [u8; 64], data: Data<'_>) -> (u16, Vec<u8>) {
        let cid = self.next_cid;
        self.next_cid = self.next_cid.wrapping_add(1);
        sqe[1] |= 0x40;
        sqe[2..4].copy_from_slice(&cid.to_le_bytes());
        let (bytes, in_capsule): (u32, &[u8]) = match data {
            Data::Remote(bytes) => (bytes, &[]),
            Data::InCapsule(data) => (u32::try_from(data.len()).unwrap(), data),
        };
        sqe[32..36].copy_from_slice(&bytes.to_le_bytes());
        sqe[39] = if in_capsule.is_empty() { 0x5A } else { 0x01 };
        let mut pdu = self.pdu_header(PDU_CAPSULE_CMD, 0, 72, in_capsule.len());
        pdu.extend(sqe);
        self.push_data(&mut pdu, in_capsule);
        (cid, pdu)
    }

    /// Sends one block of what an R2T asked for.
    pub fn send_part(&mut self, r2t: R2t, block: usize, fill: u8) {
        let pdu = self.data_pdu(r2t, block * 4096, &[fill; 4096]);
        self.send_bytes(&pdu);
    }

    /// The next command has this identifier.
    pub fn use_cid(&mut self, cid: u16) {
        self.next_cid = cid;
    }

    /// FES of the C2HTermReq that comes next.
    pub fn fatal_error_status(&mut self) -> u16 {
        let pdu = self.pdu();
        assert_eq!(pdu[0], PDU_C2H_TERM, "C2HTermReq");
        u16_at(&pdu, 8)
    }

    /// Sends all that an R2T asked for.
    pub fn send_data(&mut self, r2t: R2t, fill: u8) {
        let pdu = self.data_pdu(r2t, 0, &vec![fill; r2t.len as usize]);
        self.send_bytes(&pdu);
    }

    pub fn r2t(&mut self) -> R2t {
        let pdu = self.pdu();
        assert_eq!(pdu[0], PDU_R2T, "R2T");
        R2t::of(&pdu)
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
