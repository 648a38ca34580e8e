//! The client's memory, and the least of a driver that polls.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use guest_memory::{Access, Area, Shared};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use crate::client::Client;

/// Guest memory begins here, so that addresses are no offsets.
const BASE: u64 = 0x8000_0000;
const ADMIN_SQ: usize = 0;
const ADMIN_CQ: usize = 0x1000;
const SHADOW: usize = 0x2000;
const EVENTS: usize = 0x3000;
const SQ: usize = 0x1_0000;
const CQ: usize = 0x2_0000;
/// A page of each slot's.
const LISTS: usize = 0x10_0000;
const DATA: usize = 0x20_0000;
const ADMIN_ENTRIES: u32 = 16;
const BLOCK_BYTES: u64 = 4096;

/// Where doorbells are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Mapped,
    Rung,
    Shadow,
}

/// What the commands do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Read,
    Write,
}

/// A pair of queues as the driver sees them.
struct Pair {
    id: u64,
    sq: usize,
    cq: usize,
    entries: u32,
    tail: u32,
    head: u32,
    phase: u32,
}

/// See the module.
pub struct Guest {
    client: Client,
    memory: Area,
    page: Option<Area>,
    is_shadowed: bool,
    admin: Pair,
    io: Pair,
    bytes: u64,
}

impl Guest {
    /// Connects, enables the controller, and makes a pair of queues for commands of so many bytes.
    pub fn attach(socket: &Path, mode: Mode, bytes: u64, depth: u16) -> Guest {
        let mut client = Client::connect(socket);
        let room = DATA + usize::from(depth) * bytes as usize;
        let file = memfd_create("guest", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, room as u64).unwrap();
        let map = [words(&[32, 3]), longs(&[0, BASE, room as u64])].concat();
        client.call(2, &map, &[file.as_fd()]).unwrap();
        let page = (mode == Mode::Mapped).then(|| doorbells(&mut client));
        let pair = |id, sq, cq, entries| Pair {
            id,
            sq,
            cq,
            entries,
            tail: 0,
            head: 0,
            phase: 1,
        };
        let mut guest = Guest {
            client,
            memory: mapped(&file, 0, room as u64),
            page,
            is_shadowed: false,
            admin: pair(0, ADMIN_SQ, ADMIN_CQ, ADMIN_ENTRIES),
            io: pair(1, SQ, CQ, u32::from(depth) + 1),
            bytes,
        };
        guest.start(mode);
        for slot in 0..depth {
            guest.prepare(slot);
        }
        guest
    }

    fn start(&mut self, mode: Mode) {
        for at in (0..self.memory.bytes()).step_by(8) {
            self.memory.store64(at, 0);
        }
        let entries = ADMIN_ENTRIES - 1;
        self.write_register(0x24, entries | entries << 16);
        for (at, queue) in [(0x28, ADMIN_SQ), (0x30, ADMIN_CQ)] {
            self.write_register(at, address(queue) as u32);
            self.write_register(at + 4, 0);
        }
        self.write_register(0x14, 0x0046_0001);
        while self.read_register(0x1C) & 1 == 0 {}
        let last = self.io.entries - 1;
        // Create I/O Completion Queue without interrupts, Create I/O Submission Queue.
        self.admin(0x05, address(CQ), 0, 1 | last << 16, 1);
        self.admin(0x01, address(SQ), 0, 1 | last << 16, 1 | 1 << 16);
        if mode == Mode::Shadow {
            self.admin(0x7C, address(SHADOW), address(EVENTS), 0, 0);
            self.is_shadowed = true;
        }
    }

    fn write_register(&mut self, offset: u64, value: u32) {
        let body = [longs(&[offset]), words(&[0, 4, value])].concat();
        self.client.call(10, &body, &[]).unwrap();
    }

    fn read_register(&mut self, offset: u64) -> u32 {
        let body = [longs(&[offset]), words(&[0, 4])].concat();
        let reply = self.client.call(9, &body, &[]).unwrap();
        u32::from_le_bytes(reply[16..20].try_into().unwrap())
    }

    fn admin(&mut self, opcode: u64, prp1: u64, prp2: u64, cdw10: u32, cdw11: u32) {
        let at = self.admin.sq + self.admin.tail as usize * 64;
        let cdw = u64::from(cdw10) | u64::from(cdw11) << 32;
        for (word, value) in [opcode, 0, 0, prp1, prp2, cdw, 0, 0]
            .into_iter()
            .enumerate()
        {
            self.memory.store64(at + word * 8, value);
        }
        self.admin.tail = (self.admin.tail + 1) % self.admin.entries;
        self.ring(0, self.admin.tail);
        while entry(&self.memory, &mut self.admin).is_none() {}
        self.ring(1, self.admin.head);
    }

    /// What is the same of all commands of a slot: where their data are.
    fn prepare(&mut self, slot: u16) {
        let data = address(self.data(slot));
        let list = LISTS + usize::from(slot) * 0x1000;
        for page in 1..(self.bytes / BLOCK_BYTES) {
            let at = list + (page as usize - 1) * 8;
            self.memory.store64(at, data + page * BLOCK_BYTES);
        }
    }

    fn data(&self, slot: u16) -> usize {
        DATA + usize::from(slot) * self.bytes as usize
    }

    /// Puts a command into the queue; its identifier is its slot.
    pub fn put(&mut self, slot: u16, op: Op, place: u64) {
        let opcode = match op {
            Op::Read => 2,
            Op::Write => 1,
        };
        let blocks = self.bytes / BLOCK_BYTES;
        let prp1 = address(self.data(slot));
        let prp2 = match blocks {
            1 => 0,
            2 => prp1 + BLOCK_BYTES,
            _ => address(LISTS + usize::from(slot) * 0x1000),
        };
        let at = self.io.sq + self.io.tail as usize * 64;
        // NSID 1.
        let first = opcode | u64::from(slot) << 16 | 1 << 32;
        let entry = [first, 0, 0, prp1, prp2, place * blocks, blocks - 1, 0];
        for (word, value) in entry.into_iter().enumerate() {
            self.memory.store64(at + word * 8, value);
        }
        self.io.tail += 1;
        if self.io.tail == self.io.entries {
            self.io.tail = 0;
        }
    }

    /// The next answer, if it is there: its slot.
    pub fn take(&mut self) -> Option<u16> {
        entry(&self.memory, &mut self.io)
    }

    pub fn ring_tail(&mut self) {
        self.ring(self.io.id * 2, self.io.tail);
    }

    pub fn ring_head(&mut self) {
        self.ring(self.io.id * 2 + 1, self.io.head);
    }

    fn ring(&mut self, index: u64, value: u32) {
        if let Some(page) = &self.page {
            fence(Ordering::Release);
            return page.store32(index as usize * 4, value);
        }
        if self.is_shadowed && index >= 2 && !self.passes(index as usize * 4, value) {
            return;
        }
        let body = [longs(&[0x1000 + index * 4]), words(&[0, 4, value])].concat();
        self.client.post(10, &body);
    }

    /// Writes a doorbell to memory, as Linux does; whether the controller waits for it as well.
    fn passes(&self, at: usize, value: u32) -> bool {
        let old = self.memory.load32(SHADOW + at) as u16;
        fence(Ordering::Release);
        self.memory.store32(SHADOW + at, value);
        fence(Ordering::SeqCst);
        let event = self.memory.load32(EVENTS + at) as u16;
        let value = value as u16;
        value.wrapping_sub(event).wrapping_sub(1) < value.wrapping_sub(old)
    }

    /// Bytes of its own for a place.
    pub fn stamp(&mut self, slot: u16, place: u64) {
        let at = self.data(slot);
        for word in 0..self.bytes / 8 {
            self.memory.store64(at + word as usize * 8, of(place, word));
        }
    }

    /// That a slot's data are a place's.
    pub fn compare(&mut self, slot: u16, place: u64) {
        let at = self.data(slot);
        for word in 0..self.bytes / 8 {
            let is = self.memory.load64(at + word as usize * 8);
            assert_eq!(is, of(place, word), "byte {} of place {place}", word * 8);
        }
    }

    pub fn is_zeros(&self, slot: u16) -> bool {
        self.memory.load64(self.data(slot)) == 0
    }
}

/// An entry of a completion queue, which the driver takes: the identifier of its command, which must have succeeded.
fn entry(memory: &Area, pair: &mut Pair) -> Option<u16> {
    let at = pair.cq + pair.head as usize * 16;
    let last = memory.load32(at + 12);
    if last >> 16 & 1 != pair.phase {
        return None;
    }
    fence(Ordering::Acquire);
    assert_eq!(last >> 17, 0, "a command failed");
    pair.head += 1;
    if pair.head == pair.entries {
        pair.head = 0;
        pair.phase ^= 1;
    }
    Some(last as u16)
}

fn of(place: u64, word: u64) -> u64 {
    (place << 20 | word).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1
}

fn address(offset: usize) -> u64 {
    BASE + offset as u64
}

/// The doorbells' page: what SPDK's client looks for in BAR0.
fn doorbells(client: &mut Client) -> Area {
    let ask = [words(&[128, 0, 0, 0]), longs(&[0, 0])].concat();
    let id = client.send(5, 0, &ask, &[]);
    let (reply, fds) = client.reply_with_fds(id);
    reply.unwrap();
    let fd = fds.first().expect("a function with `poll`");
    mapped(fd, 0x1000, 0x1000)
}

fn mapped(file: &OwnedFd, offset: u64, bytes: u64) -> Area {
    let shared = Shared::map(file, offset, bytes, Access::BOTH, Arc::default(), ()).unwrap();
    Area::whole(&Arc::new(shared)).unwrap()
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn longs(longs: &[u64]) -> Vec<u8> {
    longs.iter().flat_map(|long| long.to_le_bytes()).collect()
}
