//! A guest: its memory in a file that it shares, and the least of an NVMe driver.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use frontend_nvme::link::Bound;
use frontend_vfio_user::{Doorbells, Names};
use guest_memory::{Access, Area, Shared};
use namespace::Namespace;
use nvme::nqn::Nqn;
use nvme_spec::{Cqe, Sqe, Status, U16, U32, U64};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, memfd_create};
use store::SharedStore;
use tempfile::TempDir;
use zerocopy::{FromBytes, IntoBytes};

use crate::client::Client;
use frontend_nvme::conformance::{NQN, Target, disk};

/// Guest memory begins here, so that addresses are no offsets.
pub const BASE: u64 = 0x8000_0000;
pub const MEMORY_BYTES: u64 = 16 << 20;
/// Where queues are; data are above.
const ADMIN_SQ: u64 = BASE + 0x1000;
const ADMIN_CQ: u64 = BASE + 0x2000;
const IO_SQ: u64 = BASE + 0x1_0000;
const IO_CQ: u64 = BASE + 0x2_0000;
pub const LIST: u64 = BASE + 0x3_0000;
pub const DATA: u64 = BASE + 0x10_0000;

pub const QUEUE_ENTRIES: u32 = 64;
const PATIENCE: Duration = Duration::from_secs(20);

/// A target with a function, and the folder of its socket.
pub struct Machine {
    pub target: Target,
    folder: TempDir,
    doorbells: Doorbells,
}

impl Machine {
    pub fn start(store: SharedStore, reactors: u16) -> Machine {
        Machine::with(vec![disk(store)], reactors)
    }

    pub fn with(namespaces: Vec<Namespace>, reactors: u16) -> Machine {
        Machine::serve(namespaces, reactors, Doorbells::Rung)
    }

    /// A function whose doorbells its guests map.
    pub fn polled(store: SharedStore, reactors: u16) -> Machine {
        Machine::serve(vec![disk(store)], reactors, Doorbells::Polled)
    }

    fn serve(namespaces: Vec<Namespace>, reactors: u16, doorbells: Doorbells) -> Machine {
        let folder = tempfile::tempdir().unwrap();
        let port = function_at(&folder.path().join("function"), 0, doorbells);
        let target = Target::start_on(port, namespaces, reactors);
        Machine {
            target,
            folder,
            doorbells,
        }
    }

    /// One more function of the same subsystem, as the listener of this number.
    pub fn add_function(&self, number: u16, doorbells: Doorbells) -> PathBuf {
        let path = self.folder.path().join(format!("function-{number}"));
        let port = function_at(&path, number, doorbells);
        self.target.admin().add_listener(number, port).unwrap();
        path
    }

    /// Until it is known that no function has a client any more.
    pub fn wait_unlinked(&self) {
        let admin = self.target.admin();
        let is_linked = || {
            let all = admin.controllers().unwrap();
            all.iter().any(|it| it.transport.is_some())
        };
        while is_linked() {
            std::thread::yield_now();
        }
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("function")
    }

    /// A guest that has just been turned on: its memory is shared, the controller is not enabled.
    pub fn guest(&self) -> Guest {
        self.guest_of(Client::connect(&self.socket()))
    }

    fn guest_of(&self, client: Client) -> Guest {
        let mut guest = Guest::new(client);
        if self.doorbells == Doorbells::Polled {
            guest.map_doorbells();
        }
        guest
    }

    /// The same with an enabled controller and one pair of I/O queues.
    pub fn running(&self) -> Guest {
        self.guest().started()
    }
}

/// Function `pfN` of the target's subsystem.
pub fn function_at(path: &Path, number: u16, doorbells: Doorbells) -> Box<dyn Bound> {
    let names = Names {
        subsystem: Nqn::parse(NQN).unwrap(),
        host: host_of(number),
    };
    Box::new(frontend_vfio_user::bind(path, names, doorbells).unwrap())
}

/// What the host of function `pfN` goes by.
pub fn host_of(number: u16) -> Nqn {
    Nqn::function_host(&format!("pf{number}"))
}

/// A pair of queues as the driver sees them.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    pub sq: u64,
    pub cq: u64,
    pub entries: u32,
    pub tail: u32,
    pub head: u32,
    pub phase: bool,
}

impl Pair {
    fn new(sq: u64, cq: u64, entries: u32) -> Pair {
        Pair {
            sq,
            cq,
            entries,
            tail: 0,
            head: 0,
            phase: true,
        }
    }
}

/// Doorbells in the guest's memory, and how many were not rung for it.
#[derive(Clone, Copy, Debug)]
pub struct Shadow {
    pub shadow: u64,
    pub events: u64,
    pub tails_spared: u64,
    pub heads_spared: u64,
}

pub struct Guest {
    pub client: Client,
    pub memory: File,
    /// By queue identifier.
    pub pairs: Vec<Pair>,
    /// Where doorbells are in memory, once the controller was told.
    pub doorbells: Option<Shadow>,
    /// The doorbells themselves, where the client has mapped them.
    pub page: Option<Area>,
    next_cid: u16,
}

impl Guest {
    /// Writes and reads one block through a queue.
    pub fn works(&mut self, queue: u16, seed: u64) {
        let lba = seed % 16;
        self.put(DATA, &pattern(seed, 4096));
        let written = self.run(queue, transfer(1, lba, 1, DATA, 0));
        assert_eq!(status(&written), Status::SUCCESS);
        self.put(DATA, &[0; 4096]);
        let read = self.run(queue, transfer(2, lba, 1, DATA, 0));
        assert_eq!(status(&read), Status::SUCCESS);
        assert!(self.get(DATA, 4096) == pattern(seed, 4096));
    }

    /// The guest has a disk that works.
    pub fn still_works(&mut self) {
        self.works(1, 3);
    }

    /// With an enabled controller and one pair of I/O queues.
    pub fn started(mut self) -> Guest {
        self.enable();
        self.create_pair(1);
        self
    }

    pub fn new(client: Client) -> Guest {
        let memory = memory_file();
        let mut guest = Guest {
            client,
            memory,
            pairs: Vec::new(),
            doorbells: None,
            page: None,
            next_cid: 0,
        };
        guest.map(BASE, MEMORY_BYTES, 0, 3).unwrap();
        guest
    }

    pub fn map(&mut self, address: u64, size: u64, offset: u64, flags: u32) -> Result<(), u32> {
        let body = map_body(address, size, offset, flags);
        let fd = self.memory.as_fd();
        self.client.call(2, &body, &[fd]).map(drop)
    }

    /// A window of another file than the guest's own.
    pub fn map_file(&mut self, file: BorrowedFd<'_>, address: u64, size: u64) -> Result<(), u32> {
        let body = map_body(address, size, 0, 3);
        self.client.call(2, &body, &[file]).map(drop)
    }

    /// A window without a descriptor, whose bytes the client gives and takes.
    pub fn hide(&mut self, address: u64, size: u64) {
        self.map_apart(address, size).unwrap();
        self.client.hidden.base = address;
        self.client.hidden.bytes = vec![0; size as usize];
    }

    /// A window without a descriptor.
    pub fn map_apart(&mut self, address: u64, size: u64) -> Result<(), u32> {
        let body = map_body(address, size, 0, 3);
        self.client.call(2, &body, &[]).map(drop)
    }

    pub fn unmap_body(address: u64, size: u64) -> Vec<u8> {
        [words(&[24, 0]), longs(&[address, size])].concat()
    }

    pub fn read_register(&mut self, offset: u64, bytes: u32) -> u64 {
        self.read_region(0, offset, bytes)
    }

    pub fn read_config(&mut self, offset: u64, bytes: u32) -> u64 {
        self.read_region(7, offset, bytes)
    }

    fn read_region(&mut self, region: u32, offset: u64, bytes: u32) -> u64 {
        let body = [longs(&[offset]), words(&[region, bytes])].concat();
        let reply = self.client.call(9, &body, &[]).unwrap();
        assert_eq!(reply[..16], body);
        let mut value = [0; 8];
        value[..bytes as usize].copy_from_slice(&reply[16..]);
        u64::from_le_bytes(value)
    }

    pub fn write_register(&mut self, offset: u64, value: u32) {
        let body = write_body(offset, value);
        self.client.call(10, &body, &[]).unwrap();
    }

    /// A doorbell comes as QEMU sends it: posted.
    pub fn ring(&mut self, offset: u64, value: u32) {
        self.client.post(10, &write_body(offset, value));
    }

    /// A doorbell by its number. As Linux does it where an I/O queue's are in memory: the value goes there, and the doorbell is rung where it passes the one that
    /// the controller waits at.
    fn ring_or_write(&mut self, index: u64, value: u32) {
        let at = 0x1000 + index * 4;
        if let Some(page) = &self.page {
            std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
            return page.store32(index as usize * 4, value);
        }
        let Some(mut doorbells) = self.doorbells.filter(|_| index >= 2) else {
            return self.ring(at, value);
        };
        let word = |guest: &Guest, page: u64| {
            let bytes = guest.get(page + index * 4, 4);
            u32::from_le_bytes(bytes.try_into().unwrap())
        };
        let old = word(self, doorbells.shadow);
        self.put(doorbells.shadow + index * 4, &value.to_le_bytes());
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        let event = word(self, doorbells.events);
        let [value_16, old_16, event_16] = [value, old, event].map(|it| it as u16);
        let passed = value_16.wrapping_sub(event_16).wrapping_sub(1);
        let is_to_ring = passed < value_16.wrapping_sub(old_16);
        match (is_to_ring, index % 2) {
            (false, 0) => doorbells.tails_spared += 1,
            (false, _) => doorbells.heads_spared += 1,
            (true, _) => self.ring(at, value),
        }
        self.doorbells = Some(doorbells);
    }

    /// DEVICE_GET_REGION_INFO, with room for every capability.
    pub fn region_info(&mut self, region: u32) -> (Vec<u8>, Vec<OwnedFd>) {
        let ask = [words(&[128, 0, region, 0]), longs(&[0, 0])].concat();
        let id = self.client.send(5, 0, &ask, &[]);
        let (reply, fds) = self.client.reply_with_fds(id);
        (reply.unwrap(), fds)
    }

    /// Maps the doorbells' page, as SPDK's client does: from the descriptor that comes with BAR0, where the one area of it says.
    pub fn map_doorbells(&mut self) {
        let (info, fds) = self.region_info(0);
        let area = [words(&[1, 0]), longs(&[0x1000, 0x1000])].concat();
        assert_eq!(info[40..], area, "one area: the second page");
        let shared =
            Shared::map(&fds[0], 0x1000, 0x1000, Access::BOTH, Arc::default(), ()).unwrap();
        self.page = Area::whole(&Arc::new(shared));
    }

    /// Doorbell Buffer Config.
    pub fn share_doorbells(&mut self, shadow: u64, events: u64) -> Result<(), Status> {
        let mut sqe = command(0x7C, 0);
        set_prps(&mut sqe, shadow, events);
        done(&self.admin(sqe))?;
        self.doorbells = Some(Shadow {
            shadow,
            events,
            tails_spared: 0,
            heads_spared: 0,
        });
        Ok(())
    }

    pub fn csts(&mut self) -> u32 {
        self.read_register(0x1C, 4) as u32
    }

    /// Waits for CSTS.RDY.
    pub fn wait_ready(&mut self, ready: bool) {
        let until = Instant::now() + PATIENCE;
        while (self.csts() & 1 == 1) != ready {
            assert!(Instant::now() < until, "CSTS.RDY does not become {ready}");
        }
    }

    pub fn enable(&mut self) {
        let entries = QUEUE_ENTRIES - 1;
        self.write_register(0x24, entries | entries << 16);
        for (at, queue) in [(0x28, ADMIN_SQ), (0x30, ADMIN_CQ)] {
            self.write_register(at, queue as u32);
            self.write_register(at + 4, (queue >> 32) as u32);
        }
        // What an earlier controller left there has phase tags.
        self.put(ADMIN_CQ, &[0; 0x1000]);
        self.write_register(0x14, 0x0046_0001);
        self.wait_ready(true);
        self.pairs = vec![Pair::new(ADMIN_SQ, ADMIN_CQ, QUEUE_ENTRIES)];
    }

    pub fn disable(&mut self) {
        self.write_register(0x14, 0x0046_0000);
        self.wait_ready(false);
    }

    /// A pair of I/O queues; the completions of each interrupt by the vector of its number.
    pub fn create_pair(&mut self, id: u16) {
        let (sq, cq) = places(id);
        self.create_cq(id, cq, QUEUE_ENTRIES).unwrap();
        self.create_sq(id, id, sq, QUEUE_ENTRIES).unwrap();
    }

    pub fn create_cq(&mut self, id: u16, place: u64, entries: u32) -> Result<(), Status> {
        self.put(place, &vec![0; entries as usize * 16]);
        let mut sqe = command(0x05, 0);
        sqe.dptr.address = U64::new(place);
        sqe.cdw10 = U32::new(u32::from(id) | (entries - 1) << 16);
        sqe.cdw11 = U32::new(3 | u32::from(id) << 16);
        done(&self.admin(sqe))
    }

    pub fn create_sq(&mut self, id: u16, cq: u16, place: u64, entries: u32) -> Result<(), Status> {
        let mut sqe = command(0x01, 0);
        sqe.dptr.address = U64::new(place);
        sqe.cdw10 = U32::new(u32::from(id) | (entries - 1) << 16);
        sqe.cdw11 = U32::new(1 | u32::from(cq) << 16);
        done(&self.admin(sqe))?;
        let index = usize::from(id);
        let nowhere = Pair::new(0, 0, 2);
        if self.pairs.len() <= index {
            self.pairs.resize(index + 1, nowhere);
        }
        self.pairs[index] = Pair::new(place, places(cq).1, entries);
        Ok(())
    }

    pub fn delete(&mut self, opcode: u8, id: u16) -> Result<(), Status> {
        let mut sqe = command(opcode, 0);
        sqe.cdw10 = U32::new(id.into());
        done(&self.admin(sqe))
    }

    /// An admin command, to its end.
    pub fn admin(&mut self, sqe: Sqe) -> Cqe {
        self.run(0, sqe)
    }

    /// A command on a queue, to its end, with nothing else under way there.
    pub fn run(&mut self, queue: u16, sqe: Sqe) -> Cqe {
        let cid = self.submit(queue, sqe);
        let cqe = self.complete(queue);
        assert_eq!(cqe.cid.get(), cid);
        assert_eq!(cqe.sqid.get(), queue);
        cqe
    }

    /// Puts a command into a queue and rings.
    pub fn submit(&mut self, queue: u16, sqe: Sqe) -> u16 {
        let cid = self.prepare(queue, sqe);
        self.ring_tail(queue);
        cid
    }

    /// Puts a command into its queue, and tells nobody.
    pub fn prepare(&mut self, queue: u16, mut sqe: Sqe) -> u16 {
        let cid = self.next_cid;
        self.next_cid = self.next_cid.wrapping_add(1);
        sqe.cid = U16::new(cid);
        let pair = self.pairs[usize::from(queue)];
        self.put(pair.sq + u64::from(pair.tail) * 64, sqe.as_bytes());
        self.pairs[usize::from(queue)].tail = (pair.tail + 1) % pair.entries;
        cid
    }

    /// Rings for all that was prepared.
    pub fn ring_tail(&mut self, queue: u16) {
        let tail = self.pairs[usize::from(queue)].tail;
        self.ring_or_write(u64::from(queue) * 2, tail);
    }

    /// The next completion, which the driver takes.
    pub fn complete(&mut self, queue: u16) -> Cqe {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(cqe) = self.peek(queue) {
                let pair = &mut self.pairs[usize::from(queue)];
                pair.head += 1;
                if pair.head == pair.entries {
                    pair.head = 0;
                    pair.phase = !pair.phase;
                }
                let head = pair.head;
                self.ring_or_write(u64::from(queue) * 2 + 1, head);
                return cqe;
            }
            assert!(Instant::now() < until, "no completion on queue {queue}");
            self.client.serve_pending();
            std::thread::yield_now();
        }
    }

    /// The next completion, if it is there.
    pub fn peek(&self, queue: u16) -> Option<Cqe> {
        let pair = self.pairs[usize::from(queue)];
        let bytes = self.get(pair.cq + u64::from(pair.head) * 16, 16);
        let cqe = Cqe::read_from_bytes(&bytes[..]).unwrap();
        (cqe.status_and_phase.get() & 1 == u16::from(pair.phase)).then_some(cqe)
    }

    pub fn put(&self, address: u64, bytes: &[u8]) {
        self.memory.write_all_at(bytes, address - BASE).unwrap();
    }

    pub fn get(&self, address: u64, bytes: usize) -> Vec<u8> {
        let mut out = vec![0; bytes];
        self.memory.read_exact_at(&mut out, address - BASE).unwrap();
        out
    }

    /// MSI-X: a descriptor for one vector.
    pub fn vector(&mut self, vector: u32) -> OwnedFd {
        let fd = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let body = words(&[20, 4 | 32, 2, vector, 1]);
        self.client.call(8, &body, &[fd.as_fd()]).unwrap();
        fd
    }

    /// The entries of a PRP list.
    pub fn put_list(&self, address: u64, pages: &[u64]) {
        self.put(address, &longs(pages));
    }
}

/// Memory as a guest shares it.
pub fn memory_file() -> File {
    let fd: OwnedFd = memfd_create("guest", MemfdFlags::CLOEXEC).unwrap();
    let memory = File::from(fd);
    memory.set_len(MEMORY_BYTES).unwrap();
    memory
}

/// Where a pair's queues are.
pub fn places(id: u16) -> (u64, u64) {
    (
        IO_SQ + u64::from(id) * 0x1000,
        IO_CQ + u64::from(id) * 0x1000,
    )
}

pub fn command(opcode: u8, nsid: u32) -> Sqe {
    let mut sqe = Sqe::ZERO;
    sqe.opcode = opcode;
    sqe.nsid = U32::new(nsid);
    sqe
}

/// An SGL descriptor: type and sub type last.
pub fn descriptor(address: u64, bytes: u32, id: u8) -> [u8; 16] {
    let mut out = [0; 16];
    out[..8].copy_from_slice(&address.to_le_bytes());
    out[8..12].copy_from_slice(&bytes.to_le_bytes());
    out[15] = id;
    out
}

/// Read (2) or write (1) of blocks of 4 KiB, to or from these PRPs.
pub fn transfer(opcode: u8, lba: u64, blocks: u32, prp1: u64, prp2: u64) -> Sqe {
    let mut sqe = command(opcode, 1);
    set_prps(&mut sqe, prp1, prp2);
    sqe.set_slba(nvme_spec::Lba(lba));
    sqe.cdw12 = U32::new(blocks - 1);
    sqe
}

pub fn set_prps(sqe: &mut Sqe, prp1: u64, prp2: u64) {
    let bytes = sqe.as_mut_bytes();
    bytes[24..32].copy_from_slice(&prp1.to_le_bytes());
    bytes[32..40].copy_from_slice(&prp2.to_le_bytes());
}

/// The status that a command ended with, Do Not Retry aside.
pub fn status(cqe: &Cqe) -> Status {
    cqe.status().code()
}

fn done(cqe: &Cqe) -> Result<(), Status> {
    match status(cqe) {
        Status::SUCCESS => Ok(()),
        status => Err(status),
    }
}

fn map_body(address: u64, size: u64, offset: u64, flags: u32) -> Vec<u8> {
    [words(&[32, flags]), longs(&[offset, address, size])].concat()
}

fn write_body(offset: u64, value: u32) -> Vec<u8> {
    [longs(&[offset]), words(&[0, 4, value])].concat()
}

pub fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

pub fn longs(longs: &[u64]) -> Vec<u8> {
    longs.iter().flat_map(|long| long.to_le_bytes()).collect()
}

/// Bytes that are different everywhere.
pub fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut out = Vec::with_capacity(bytes);
    while out.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend(state.to_le_bytes());
    }
    out.truncate(bytes);
    out
}
