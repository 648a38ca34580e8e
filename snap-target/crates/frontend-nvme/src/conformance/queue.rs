//! A host by the specification's byte offsets: one connection, commands one at a time, nothing on its own.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::bytes::{fabrics, host_id, range_sqe, sqe};
use super::{Answer, Capsule, Data, Place, Wire};

/// What has not come by then never will.
const PATIENCE: Duration = Duration::from_secs(10);
/// CC of an enabled controller: 64- and 16-byte entries, EN.
pub const ENABLED: u32 = 0x0046_0001;
/// The same without EN.
pub const DISABLED: u32 = 0x0046_0000;
/// [`ENABLED`] with SHN = normal shutdown.
pub const SHUT_DOWN: u32 = 0x0046_4001;
/// CNTLID of an admin queue's Connect.
const CNTLID_DYNAMIC: u16 = 0xFFFF;
const BLOCK_BYTES: u32 = 4096;
/// Of a queue whose size nobody asked for.
const ENTRIES: u16 = 32;

/// A response capsule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response {
    /// The command's identifier.
    pub cid: u16,
    /// What the command says.
    pub dw0: u32,
    /// SCT and SC, with DNR and More.
    pub status: u16,
}

/// A queue of a host: what it sends has rising identifiers, from 1 on.
pub struct Queue {
    /// Its connection.
    pub wire: Box<dyn Wire>,
    next_cid: u16,
    /// Answers that a call passed over.
    passed: VecDeque<Answer>,
}

impl Queue {
    /// A connection that has sent nothing.
    #[must_use]
    pub fn open(place: &Place, qid: u16, entries: u16) -> Queue {
        Queue::over(place.on.connect(place.address, qid, entries))
    }

    /// Over a connection that has sent nothing.
    #[must_use]
    pub fn over(wire: Box<dyn Wire>) -> Queue {
        Queue {
            wire,
            next_cid: 1,
            passed: VecDeque::new(),
        }
    }

    /// The admin queue of an enabled controller, and the controller's CNTLID.
    #[must_use]
    pub fn admin(place: &Place, host: &str, keep_alive: Duration) -> (Queue, u16) {
        let mut queue = Queue::open(place, 0, ENTRIES);
        queue.send_connect(
            &place.subsystem,
            (0, ENTRIES),
            CNTLID_DYNAMIC,
            host,
            keep_alive,
        );
        let connected = queue.response();
        assert_eq!(connected.status, 0);
        assert_eq!(queue.set_cc(ENABLED).status, 0);
        (queue, u16::try_from(connected.dw0).unwrap())
    }

    /// The admin queue of an enabled controller of another subsystem.
    #[must_use]
    pub fn admin_of(place: &Place, subsystem: &str, host: &str) -> Queue {
        let mut queue = Queue::open(place, 0, ENTRIES);
        let of = (0, ENTRIES);
        queue.send_connect(subsystem, of, CNTLID_DYNAMIC, host, Duration::ZERO);
        assert_eq!(queue.response().status, 0);
        assert_eq!(queue.set_cc(ENABLED).status, 0);
        queue
    }

    /// An I/O queue.
    #[must_use]
    pub fn io(place: &Place, host: &str, cntlid: u16, qid: u16) -> Queue {
        let (queue, connected) = Queue::try_io(place, host, cntlid, qid);
        assert_eq!(connected.status, 0);
        queue
    }

    /// An I/O queue of so many entries, QID 1.
    #[must_use]
    pub fn io_of(place: &Place, host: &str, cntlid: u16, entries: u16) -> Queue {
        let mut queue = Queue::open(place, 1, entries);
        queue.send_connect(&place.subsystem, (1, entries), cntlid, host, Duration::ZERO);
        assert_eq!(queue.response().status, 0);
        queue
    }

    /// A connection that asked for an I/O queue, and the answer.
    #[must_use]
    pub fn try_io(place: &Place, host: &str, cntlid: u16, qid: u16) -> (Queue, Response) {
        let mut queue = Queue::open(place, qid, ENTRIES);
        queue.send_connect(
            &place.subsystem,
            (qid, ENTRIES),
            cntlid,
            host,
            Duration::ZERO,
        );
        let connected = queue.response();
        (queue, connected)
    }

    /// A connection that has asked for an admin queue.
    #[must_use]
    pub fn asking_for_admin(place: &Place, host: &str) -> Queue {
        let mut queue = Queue::open(place, 0, ENTRIES);
        queue.send_connect(
            &place.subsystem,
            (0, ENTRIES),
            CNTLID_DYNAMIC,
            host,
            Duration::ZERO,
        );
        queue
    }

    /// Sends Connect, for a queue of that number and of so many entries.
    pub fn send_connect(
        &mut self,
        subsystem: &str,
        (qid, entries): (u16, u16),
        cntlid: u16,
        host: &str,
        keep_alive: Duration,
    ) {
        let mut sqe = fabrics(0x01);
        sqe[42..44].copy_from_slice(&qid.to_le_bytes());
        sqe[44..46].copy_from_slice(&(entries - 1).to_le_bytes());
        let kato_ms = u32::try_from(keep_alive.as_millis()).unwrap();
        sqe[48..52].copy_from_slice(&kato_ms.to_le_bytes());
        let mut data = [0; 1024];
        data[..16].copy_from_slice(&host_id(host));
        data[16..18].copy_from_slice(&cntlid.to_le_bytes());
        data[256..256 + subsystem.len()].copy_from_slice(subsystem.as_bytes());
        data[512..512 + host.len()].copy_from_slice(host.as_bytes());
        self.send(sqe, Data::InCapsule(data.into()));
    }

    /// Sends a command under the next identifier, which is returned.
    pub fn send(&mut self, sqe: [u8; 64], data: Data) -> u16 {
        let (cid, capsule) = self.capsule(sqe, data);
        self.wire.send(vec![capsule]);
        cid
    }

    /// A command with the next identifier, which is not sent.
    pub fn capsule(&mut self, mut sqe: [u8; 64], data: Data) -> (u16, Capsule) {
        let cid = self.next_cid;
        self.next_cid = self.next_cid.wrapping_add(1);
        sqe[2..4].copy_from_slice(&cid.to_le_bytes());
        (cid, Capsule { sqe, data })
    }

    /// The next command has this identifier.
    pub fn use_cid(&mut self, cid: u16) {
        self.next_cid = cid;
    }

    /// The next answer.
    pub fn answer(&mut self) -> Answer {
        let passed = self.passed.pop_front();
        passed.unwrap_or_else(|| self.wire.answer())
    }

    /// The next answer, which brings no data.
    pub fn response(&mut self) -> Response {
        let answer = self.answer();
        assert!(
            answer.data.is_empty(),
            "data come with {:?}",
            answer.response
        );
        answer.response
    }

    /// The answer of this command: others that come before it are the next ones.
    pub fn response_to(&mut self, cid: u16) -> Response {
        if let Some(at) = self.passed.iter().position(|it| it.response.cid == cid) {
            return self.passed.remove(at).unwrap().response;
        }
        loop {
            let answer = self.wire.answer();
            if answer.response.cid == cid {
                return answer.response;
            }
            self.passed.push_back(answer);
        }
    }

    /// Returns once the target has closed the connection, whatever it sent before.
    pub fn wait_closed(&mut self) {
        self.wire.wait_closed();
    }

    /// Sets the controller's configuration.
    pub fn set_cc(&mut self, cc: u32) -> Response {
        let mut sqe = fabrics(0x00);
        sqe[44] = 0x14;
        sqe[48..52].copy_from_slice(&cc.to_le_bytes());
        self.send(sqe, Data::None);
        self.response()
    }

    /// The controller's status.
    pub fn csts(&mut self) -> u32 {
        let mut sqe = fabrics(0x04);
        sqe[44] = 0x1C;
        self.send(sqe, Data::None);
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

    /// Asks to be told of changes of namespaces and of the discovery log (Set Features 0Bh).
    pub fn notify(&mut self, notices: u32) {
        let answer = self.plain(0x09, 0, [0x0B, notices, 0]);
        assert_eq!(answer.status, 0);
    }

    /// Sends an Asynchronous Event Request, which is answered when something happens.
    pub fn send_event_request(&mut self) -> u16 {
        self.send_plain(0x0C, 0, [0, 0, 0])
    }

    /// The first bytes of a log page.
    pub fn log_page(&mut self, page: u8, bytes: u32) -> Vec<u8> {
        self.send_log_page(page, bytes);
        self.take_log_page()
    }

    /// Asks for the first bytes of a log page.
    pub fn send_log_page(&mut self, page: u8, bytes: u32) {
        let mut sqe = sqe(0x02, u32::MAX, [u32::from(page), 0, 0]);
        let dwords_z = u16::try_from(bytes / 4 - 1).unwrap();
        sqe[42..44].copy_from_slice(&dwords_z.to_le_bytes());
        self.send(sqe, Data::Into(bytes));
    }

    /// The answer.
    pub fn take_log_page(&mut self) -> Vec<u8> {
        let answer = self.answer();
        assert_eq!(answer.response.status, 0);
        answer.data
    }

    /// Sends a write of one block; its data are taken, and no answer is waited for.
    pub fn write(&mut self, lba: u64, fill: u8) -> u16 {
        self.send_write_of(lba, vec![fill; BLOCK_BYTES as usize])
    }

    /// Sends a write of whole blocks of namespace 1; its data are taken, and no answer is waited for.
    pub fn send_write_of(&mut self, lba: u64, data: Vec<u8>) -> u16 {
        let blocks = u16::try_from(data.len() / BLOCK_BYTES as usize).unwrap();
        self.send(range_sqe(0x01, lba, blocks), Data::From(data))
    }

    /// Reads one block.
    pub fn read(&mut self, lba: u64) -> Vec<u8> {
        self.read_of(lba, 1).unwrap()
    }

    /// Reads blocks of namespace 1: them, or the status.
    ///
    /// # Errors
    /// The status of a read that failed.
    pub fn read_of(&mut self, lba: u64, blocks: u16) -> Result<Vec<u8>, u16> {
        let bytes = u32::from(blocks) * BLOCK_BYTES;
        let cid = self.send(range_sqe(0x02, lba, blocks), Data::Into(bytes));
        self.fetched(cid, bytes)
    }

    fn fetched(&mut self, cid: u16, bytes: u32) -> Result<Vec<u8>, u16> {
        let answer = self.answer();
        assert_eq!(answer.response.cid, cid);
        if answer.response.status != 0 {
            return Err(answer.response.status);
        }
        assert_eq!(answer.data.len(), bytes as usize);
        Ok(answer.data)
    }

    /// Reads blocks that are not there.
    pub fn read_beyond(&mut self, lba: u64, blocks: u16) -> Response {
        let bytes = u32::from(blocks) * BLOCK_BYTES;
        self.send(range_sqe(0x02, lba, blocks), Data::Into(bytes));
        self.response()
    }

    /// Starts so many reads at once, whose answers the test takes later, or never.
    pub fn send_reads(&mut self, count: usize, lba: u64, blocks: u16) -> Vec<u16> {
        let bytes = u32::from(blocks) * BLOCK_BYTES;
        let (cids, capsules) = (0..count)
            .map(|_| self.capsule(range_sqe(0x02, lba, blocks), Data::Into(bytes)))
            .unzip();
        self.wire.send(capsules);
        cids
    }

    /// Takes the answer of a read of zeros.
    pub fn take_read(&mut self, cid: u16, blocks: u16) {
        let data = self.fetched(cid, u32::from(blocks) * BLOCK_BYTES).unwrap();
        assert!(data.iter().all(|&byte| byte == 0));
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
        self.send(sqe(opcode, nsid, cdw), Data::None)
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
        self.send(sqe(opcode, nsid, cdw), Data::InCapsule(data.into()))
    }

    /// A half of a fused operation, FUSE 1 or 2, that brings data in its capsule; not waited for.
    pub fn send_half(&mut self, fuse: u8, opcode: u8, cdw: [u32; 3], data: &[u8]) -> u16 {
        let mut sqe = sqe(opcode, 1, cdw);
        sqe[1] = fuse;
        self.send(sqe, Data::InCapsule(data.into()))
    }

    /// Any command whose data are taken from the host.
    pub fn bring_when_asked(&mut self, opcode: u8, cdw: [u32; 3], data: &[u8]) -> Response {
        self.send(sqe(opcode, 1, cdw), Data::From(data.into()));
        self.response()
    }

    /// Any command that fetches data: them, or the status.
    ///
    /// # Errors
    /// The status of a command that failed.
    pub fn fetch(
        &mut self,
        opcode: u8,
        nsid: u32,
        cdw: [u32; 3],
        bytes: u32,
    ) -> Result<Vec<u8>, u16> {
        let cid = self.send(sqe(opcode, nsid, cdw), Data::Into(bytes));
        self.fetched(cid, bytes)
    }

    /// Flushes namespace 1.
    pub fn flush(&mut self) -> Response {
        self.flush_of(1)
    }

    /// Flushes another namespace.
    pub fn flush_of(&mut self, nsid: u32) -> Response {
        self.plain(0x00, nsid, [0, 0, 0])
    }
}
