//! Whole sessions that are made of bytes: windows that come and go, with descriptors and without, registers, queues in memory, commands that name any of it,
//! interrupts, resets, answers to the target's own messages, and messages that are none. Whatever a session does, three things hold: memory that was shared for
//! reading alone, or not at all, keeps its bytes; the target asks for memory by message only where a window without a descriptor allows it; and the next guest has
//! a disk that works. The same body runs under libFuzzer (`fuzz/fuzz_targets/vfio_session.rs`).

use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use rustix::event::{EventfdFlags, eventfd};
use zerocopy::IntoBytes;

use crate::client::{Client, DMA_READ, DMA_WRITE};
use crate::driver::{Machine, command, longs, memory_file, pattern, words};

const PAGE: u64 = 4096;
/// Pages of the guest's file: those that may be written, those that are shared for reading, and those that are not shared.
const OPEN: u64 = 32;
const READ_ONLY: u64 = 16;
const OTHERS: u64 = 16;
/// Where windows begin: any page of so many from there on.
const BASE: u64 = 0x4000_0000;
const PLACES: u64 = 64;
/// Operations of a session at most.
const OPERATIONS_MAX: usize = 200;

/// Runs one; it panics where something does not hold.
pub fn session(machine: &Machine, bytes: &[u8]) {
    let mut session = Session::new(machine, bytes);
    for _ in 0..OPERATIONS_MAX {
        if session.bytes.left.is_empty() || session.is_over {
            break;
        }
        session.operate();
        session.take_in();
    }
    let Session {
        memory, mut client, ..
    } = session;
    leave(&mut client);
    // The function has let the client go, with all that was under way, when the next one is served.
    let mut guest = machine.running();
    guest.still_works();
    leave(&mut guest.client);
    let kept = (READ_ONLY + OTHERS) as usize * PAGE as usize;
    let mut now = vec![0; kept];
    memory.read_exact_at(&mut now, OPEN * PAGE).unwrap();
    assert!(now == canary(), "memory that may not be written was");
}

/// The function has one client at a time: it has let go of this one when this returns.
fn leave(client: &mut Client) {
    let _gone = client.raw().shutdown(std::net::Shutdown::Write);
    let _ended = client.raw().read_to_end(&mut Vec::new());
}

fn canary() -> Vec<u8> {
    pattern(77, ((READ_ONLY + OTHERS) * PAGE) as usize)
}

/// What decides.
struct Bytes<'a> {
    left: &'a [u8],
}

impl Bytes<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.left.split_first() else {
            return 0;
        };
        self.left = rest;
        *first
    }

    fn of(&mut self, count: u64) -> u64 {
        u64::from(self.byte()) % count
    }

    fn word(&mut self) -> u32 {
        u32::from_le_bytes([(); 4].map(|()| self.byte()))
    }

    fn some(&mut self, bytes_max: u64) -> Vec<u8> {
        (0..self.of(bytes_max)).map(|_| self.byte()).collect()
    }

    /// An address of the guest's: in a window as a rule, at a page as a rule.
    fn address(&mut self) -> u64 {
        let pages = if self.byte() < 200 {
            PLACES / 2
        } else {
            PLACES
        };
        let page = BASE + self.of(pages) * PAGE;
        match self.byte() {
            0..=199 => page,
            200..=229 => page + u64::from(self.byte()) * 4,
            230..=249 => page + PAGE - 8,
            250 => 0xFEBF_0000,
            251 => u64::MAX - 0xFFF,
            _ => u64::from(self.word()) << 12,
        }
    }
}

/// A window without a descriptor: first and last address, and whether it may be read and written.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Apart {
    first: u64,
    last: u64,
    access: u32,
    number: usize,
}

struct Session<'a> {
    client: Client,
    bytes: Bytes<'a>,
    memory: File,
    is_over: bool,
    /// Those that the target may know of.
    apart: Vec<Apart>,
    windows_made: usize,
    /// Unmaps that were not answered: their message, and the windows that go.
    unmaps: Vec<(u16, Vec<usize>)>,
    /// What the target asks for: id, command, and where.
    asked: Vec<(u16, u16, u64, u64)>,
    tails: [u32; 4],
    events: Vec<OwnedFd>,
}

impl<'a> Session<'a> {
    fn new(machine: &Machine, bytes: &'a [u8]) -> Self {
        let memory = memory_file();
        memory.write_all_at(&canary(), OPEN * PAGE).unwrap();
        let mut session = Self {
            client: Client::connect(&machine.socket()),
            bytes: Bytes { left: bytes },
            memory,
            is_over: false,
            apart: Vec::new(),
            windows_made: 0,
            unmaps: Vec::new(),
            asked: Vec::new(),
            tails: [0; 4],
            events: Vec::new(),
        };
        // Most sessions are of a guest that runs: the first byte says whether this one is.
        if session.bytes.byte() < 200 {
            session.begin();
        }
        session
    }

    /// Memory for four queues and some data, more of it without a descriptor, an enabled controller, and a queue pair.
    fn begin(&mut self) {
        self.map(BASE, 16 * PAGE, 0, 3, true);
        self.map(BASE + 20 * PAGE, 12 * PAGE, 0, 3, false);
        for (at, value) in [
            (0x24, 0x001F_001F),
            (0x28, BASE as u32),
            (0x2C, 0),
            (0x30, (BASE + PAGE) as u32),
            (0x34, 0),
        ] {
            self.write(at, value);
        }
        self.write(0x14, 0x0046_0001);
        for (opcode, page, cdw11) in [(0x05, 3, 3 | 1 << 16), (0x01, 2, 1 | 1 << 16)] {
            let mut sqe = command(opcode, 0);
            sqe.dptr.address.set(BASE + page * PAGE);
            sqe.cdw10.set(1 | 31 << 16);
            sqe.cdw11.set(cdw11);
            self.submit(0, sqe.as_bytes());
        }
    }

    fn send(&mut self, command: u16, flags: u32, body: &[u8], file: Option<BorrowedFd<'_>>) -> u16 {
        let id = self.client.try_send(command, flags, body, file.as_slice());
        self.is_over |= id.is_none();
        id.unwrap_or(0)
    }

    fn write(&mut self, offset: u64, value: u32) {
        let body = [longs(&[offset]), words(&[0, 4, value])].concat();
        let flags = u32::from(self.bytes.left.len().is_multiple_of(2)) << 4;
        self.send(10, flags, &body, None);
    }

    fn map(&mut self, address: u64, size: u64, offset: u64, access: u32, has_file: bool) {
        let body = [words(&[32, access]), longs(&[offset, address, size])].concat();
        let memory = self.memory.try_clone().unwrap();
        let file = has_file.then(|| memory.as_fd());
        self.send(2, 0, &body, file);
        if !has_file && size > 0 {
            let last = address.saturating_add(size - 1);
            self.apart.push(Apart {
                first: address,
                last,
                access,
                number: self.windows_made,
            });
            self.windows_made += 1;
        }
    }

    /// An entry behind the last of a queue, and its doorbell.
    fn submit(&mut self, queue: usize, entry: &[u8]) {
        let page = [0, 2, 4, 6][queue];
        let at = page * PAGE + u64::from(self.tails[queue]) * 64;
        self.memory.write_all_at(entry, at).unwrap();
        self.tails[queue] = (self.tails[queue] + 1) % 32;
        self.write(0x1000 + queue as u64 * 8, self.tails[queue]);
    }

    fn operate(&mut self) {
        match self.bytes.of(22) {
            0 => {
                let (pages, offset) = (1 + self.bytes.of(8), self.bytes.of(OPEN));
                let size = pages.min(OPEN - offset) * PAGE;
                let address = BASE + self.bytes.of(PLACES) * PAGE;
                let access = 1 + self.bytes.of(3) as u32;
                self.map(address, size, offset * PAGE, access, true);
            }
            1 => {
                let offset = OPEN + self.bytes.of(READ_ONLY);
                let address = BASE + self.bytes.of(PLACES) * PAGE;
                self.map(address, PAGE, offset * PAGE, 1, true);
            }
            2 | 3 => {
                let (address, pages) = (BASE + self.bytes.of(PLACES) * PAGE, 1 + self.bytes.of(4));
                let access = 1 + self.bytes.of(3) as u32;
                self.map(address, pages * PAGE, 0, access, false);
            }
            4 => self.unmap(),
            5 => self.register(),
            6 => {
                let (region, count) = (
                    [0, 7, 1][self.bytes.of(3) as usize],
                    self.bytes.of(16) as u32,
                );
                let at = u64::from(self.bytes.word() % 0x4100);
                self.send(
                    9,
                    0,
                    &[longs(&[at]), words(&[region, count])].concat(),
                    None,
                );
            }
            7..=10 | 15..=19 => self.submit_something(),
            11 => self.interrupts(),
            12 | 13 | 20 => self.answer(),
            14 => match self.bytes.byte() {
                0..=40 => drop(self.send(13, 0, &[], None)),
                at => self.write(0x1000 + u64::from(at % 40) * 4, u32::from(at)),
            },
            _ => match self.bytes.byte() {
                0..=20 => {
                    let (command, flags) = (u16::from(self.bytes.byte()), self.bytes.word() & 0x3F);
                    let body = self.bytes.some(64);
                    self.send(command, flags, &body, None);
                }
                _ => {
                    let place = self.bytes.of(OPEN) * PAGE;
                    let entries: Vec<u64> = (0..64).map(|_| self.bytes.address()).collect();
                    self.memory.write_all_at(&longs(&entries), place).unwrap();
                }
            },
        }
    }

    fn unmap(&mut self) {
        let all = self.bytes.byte() < 10;
        let (address, pages) = (BASE + self.bytes.of(PLACES) * PAGE, 1 + self.bytes.of(8));
        let known = self.apart.get(self.bytes.of(8) as usize).copied();
        let (address, size) = match known {
            Some(window) => (window.first, window.last - window.first + 1),
            None => (address, pages * PAGE),
        };
        let body = match all {
            true => [words(&[24, 2]), longs(&[0, 0])].concat(),
            false => [words(&[24, 0]), longs(&[address, size])].concat(),
        };
        let id = self.send(3, 0, &body, None);
        let (first, last) = if all {
            (0, u64::MAX)
        } else {
            (address, address + size - 1)
        };
        // Another may be there in its place before this is answered.
        let going = self
            .apart
            .iter()
            .filter(|it| first <= it.first && it.last <= last);
        let going = going.map(|it| it.number).collect();
        self.unmaps.push((id, going));
    }

    fn register(&mut self) {
        let (at, value) = match self.bytes.of(8) {
            0 => (0x14, 0x0046_0001),
            1 => (0x14, 0x0046_0000),
            2 => (0x24, self.bytes.word()),
            3 => (0x28 + self.bytes.of(4) * 4, self.bytes.address() as u32),
            4 => (0x0C + self.bytes.of(2) * 4, self.bytes.word()),
            5 => (0x20, 0x4E56_4D65),
            6 => (0x1C, 0x10),
            _ => (u64::from(self.bytes.word() % 0x3000), self.bytes.word()),
        };
        self.write(at, value);
    }

    fn submit_something(&mut self) {
        // Mostly of the queue that there is, of the namespace that there is, and short.
        let queue = [0, 0, 1, 1, 1, 1, 2, 3][self.bytes.of(8) as usize];
        let opcodes: &[u8] = match queue {
            0 => &[
                0x00, 0x01, 0x02, 0x04, 0x05, 0x06, 0x08, 0x09, 0x0A, 0x0C, 0x7C, 0x7F,
            ],
            _ => &[
                0x01, 0x02, 0x01, 0x02, 0x01, 0x02, 0x00, 0x04, 0x05, 0x08, 0x09, 0x19,
            ],
        };
        let opcode = opcodes[self.bytes.of(opcodes.len() as u64) as usize];
        let nsid = [1, 1, 1, 1, 1, 1, 0, 2][self.bytes.of(8) as usize];
        let mut sqe = command(opcode, nsid);
        sqe.cid.set(self.bytes.byte().into());
        let (first, second) = (self.bytes.address(), self.bytes.address());
        sqe.as_mut_bytes()[24..32].copy_from_slice(&first.to_le_bytes());
        sqe.as_mut_bytes()[32..40].copy_from_slice(&second.to_le_bytes());
        match self.bytes.byte() {
            // An SGL of one block, or a segment.
            0..=40 => {
                sqe.flags = 0x40;
                let len = self.bytes.word() % 0x1_0000;
                sqe.as_mut_bytes()[32..36].copy_from_slice(&len.to_le_bytes());
                sqe.as_mut_bytes()[39] = [0, 0x20, 0x30, 0x50][self.bytes.of(4) as usize];
            }
            41..=45 => sqe.flags = self.bytes.byte(),
            _ => {}
        }
        match queue {
            0 => {
                let id = 1 + self.bytes.of(3) as u32;
                let (cdw10, cdw11) = match opcode {
                    0x01 | 0x05 => (id | (self.bytes.of(40) as u32) << 16, 3 | id << 16),
                    0x06 => (self.bytes.of(8) as u32, 0),
                    0x02 => (self.bytes.of(8) as u32 | 0x00FF_0000, 0),
                    0x09 | 0x0A => (self.bytes.of(0x20) as u32, self.bytes.word()),
                    _ => (id, 0),
                };
                sqe.cdw10.set(cdw10);
                sqe.cdw11.set(cdw11);
            }
            _ => {
                sqe.cdw10.set(self.bytes.byte().into());
                let blocks_z = match self.bytes.byte() {
                    0..=199 => self.bytes.of(4) as u32,
                    _ => self.bytes.byte().into(),
                };
                sqe.cdw12.set(blocks_z);
            }
        }
        let entry = sqe.as_bytes().to_vec();
        self.submit(queue, &entry);
    }

    fn interrupts(&mut self) {
        let flags = [
            1 | 32,
            2 | 32,
            4 | 32,
            1 | 8,
            1 | 16,
            self.bytes.byte().into(),
        ];
        let flags: u32 = flags[self.bytes.of(6) as usize];
        let index = [0, 2, 1][self.bytes.of(3) as usize];
        let (start, count) = (self.bytes.of(66) as u32, self.bytes.of(3) as u32);
        let event = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let file = (self.bytes.byte() < 150).then(|| event.as_fd());
        let body = words(&[20, flags, index, start, count]);
        self.send(8, 0, &body, file);
        self.events.push(event);
    }

    /// One of the target's messages: well, or not.
    fn answer(&mut self) {
        if self.asked.is_empty() {
            return;
        }
        let at = self.bytes.of(self.asked.len() as u64) as usize;
        let (id, command, address, count) = self.asked.remove(at);
        let mut body = longs(&[address, count]);
        if command == DMA_READ {
            body.extend(pattern(count, count as usize));
        }
        let (mut flags, mut error) = (1, 0);
        match self.bytes.byte() {
            0..=20 => (flags, error) = (0x21, self.bytes.byte().into()),
            21..=30 => body.truncate(self.bytes.byte().into()),
            31..=34 => body.push(0),
            _ => {}
        }
        self.is_over |= self
            .client
            .try_answer(id, command, flags, error, &body)
            .is_none();
    }

    /// Whatever the target has sent by the time that it answers a read of CSTS: registers are answered at once.
    fn take_in(&mut self) {
        let read = self.send(9, 0, &[longs(&[0x1C]), words(&[0, 4])].concat(), None);
        while !self.is_over {
            let Some((header, body)) = self.client.try_message() else {
                self.is_over = true;
                return;
            };
            let word = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().unwrap());
            let (id, command) = (word(0) as u16, (word(0) >> 16) as u16);
            if word(8) & 0xF == 0 {
                self.is_asked(id, command, &body);
            } else if (id, command) == (read, 9) {
                return;
            } else if let Some(at) = self.unmaps.iter().position(|it| it.0 == id)
                && command == 3
            {
                let (_, gone) = self.unmaps.remove(at);
                if word(8) & 0x20 == 0 {
                    self.apart.retain(|it| !gone.contains(&it.number));
                }
            }
        }
    }

    fn is_asked(&mut self, id: u16, command: u16, body: &[u8]) {
        let long = |at: usize| u64::from_le_bytes(body[at..at + 8].try_into().unwrap());
        let (address, count) = (long(0), long(8));
        let access = match command {
            DMA_READ => 1,
            DMA_WRITE => 2,
            other => panic!("the target asks for {other}"),
        };
        assert!(count > 0 && count <= 32 << 10, "{count} bytes");
        let allows = |it: &Apart| {
            it.first <= address && address + (count - 1) <= it.last && it.access & access != 0
        };
        assert!(
            self.apart.iter().any(allows),
            "{command} of {count} bytes at {address:#x}, which no window allows"
        );
        assert!(
            self.asked.iter().all(|it| it.0 != id),
            "one identifier twice"
        );
        self.asked.push((id, command, address, count));
    }
}

/// Bytes of a session that differ from seed to seed.
#[cfg(test)]
mod tests {
    use super::*;
    use frontend_nvme::conformance::memory;

    /// As many as a few seconds take; `VFIO_SESSIONS` asks for more.
    #[test]
    fn sessions_of_any_bytes() {
        let asked = std::env::var("VFIO_SESSIONS").ok();
        let count: u64 = asked.and_then(|text| text.parse().ok()).unwrap_or(400);
        let machine = Machine::start(memory(), 2);
        for seed in 0..count {
            let bytes = pattern(seed + 1, 200 + (seed % 7 * 300) as usize);
            let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                session(&machine, &bytes)
            }));
            assert!(ran.is_ok(), "the session of seed {seed}");
        }
    }
}
