//! A monitor and its guest's driver: messages by their bytes, and a split ring of one queue.

use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use guest_memory::{Access, Area, Shared};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::MemfdFlags;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

pub const GUEST: u64 = 0x10_0000;
pub const USER: u64 = 0x7000_0000;
pub const MEMORY_BYTES: u64 = 4 << 20;
pub const SIZE: u16 = 16;
const TABLE: usize = 0;
const AVAILABLE: usize = 0x1000;
const USED: usize = 0x2000;
/// A ring of a queue, with what is between it and the next.
pub const RING_BYTES: usize = 0x4000;
/// Where requests lie: those of each ring behind those of the one before.
pub const DATA: usize = 0x10_0000;
const DATA_BYTES: usize = 0x10_0000;

pub const F_ALL: u64 = 1 << 9 | 1 << 30 | 1 << 32;
pub const PROTOCOL: u64 = 1 | 1 << 3 | 1 << 9 | 1 << 12 | 1 << 13 | 1 << 15;
const PATIENCE: Duration = Duration::from_secs(20);

/// The guest: its memory, and what its driver knows of the ring.
pub struct Guest {
    pub file: OwnedFd,
    pub ram: Area,
    pub bytes: u64,
    /// Where its ring lies.
    ring: usize,
    available: u16,
    used: u16,
    /// Bytes of the memory that requests have taken.
    data: usize,
    next: u16,
}

pub struct Monitor {
    pub socket: UnixStream,
    pub kick: OwnedFd,
    pub call: OwnedFd,
}

/// A place in the guest's memory, bytes, flags, next.
pub type RawDescriptor = (usize, u32, u16, u16);

/// Where the areas of a ring lie in the guest's memory.
#[derive(Clone, Copy)]
pub struct Places {
    pub size: u16,
    pub table: usize,
    pub driver: usize,
    pub device: usize,
}

pub fn memory_file(bytes: u64) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create("guest", flags).unwrap();
    rustix::fs::ftruncate(&file, bytes).unwrap();
    file
}

/// Another file of the same content.
pub fn copy(file: &OwnedFd) -> OwnedFd {
    let bytes = u64::try_from(rustix::fs::fstat(file).unwrap().st_size).unwrap();
    let other = memory_file(bytes);
    let mut content = vec![0; usize::try_from(bytes).unwrap()];
    assert_eq!(
        rustix::io::pread(file, &mut content, 0).unwrap(),
        content.len()
    );
    assert_eq!(
        rustix::io::pwrite(&other, &content, 0).unwrap(),
        content.len()
    );
    other
}

impl Guest {
    pub fn new() -> Self {
        Self::with_bytes(MEMORY_BYTES)
    }

    pub fn with_bytes(bytes: u64) -> Self {
        let file = memory_file(bytes);
        let memory = Shared::map(&file, 0, bytes, Access::BOTH, Arc::default(), ()).unwrap();
        Self {
            file,
            bytes,
            ram: Area::whole(&Arc::new(memory)).unwrap(),
            ring: 0,
            available: 0,
            used: 0,
            data: DATA,
            next: 0,
        }
    }

    /// The same guest, in memory of its own.
    pub fn copy(&self) -> Self {
        let file = copy(&self.file);
        let memory = Shared::map(&file, 0, self.bytes, Access::BOTH, Arc::default(), ()).unwrap();
        Self {
            file,
            ram: Area::whole(&Arc::new(memory)).unwrap(),
            ..*self
        }
    }

    /// Another ring of the same guest.
    pub fn another_ring(&self) -> Self {
        let mut other = Self {
            file: self.file.try_clone().unwrap(),
            ram: self.ram.clone(),
            bytes: self.bytes,
            ring: self.ring + RING_BYTES,
            available: 0,
            used: 0,
            data: 0,
            next: 0,
        };
        other.take_back_data();
        other
    }

    pub fn put(&self, at: usize, bytes: &[u8]) {
        for (offset, byte) in bytes.iter().enumerate() {
            self.ram.store8(at + offset, *byte);
        }
    }

    pub fn get(&self, at: usize, bytes: usize) -> Vec<u8> {
        (0..bytes)
            .map(|offset| self.ram.load8(at + offset))
            .collect()
    }

    /// Makes a request available; where its data and its status lie, and its head.
    pub fn ask(&mut self, kind: u32, sector: u64, out: &[u8], into: u32) -> Asked {
        let header = self.data;
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&kind.to_le_bytes());
        bytes[8..].copy_from_slice(&sector.to_le_bytes());
        self.put(header, &bytes);
        let data = header + 0x1000;
        let length = out.len().max(into as usize);
        let status = data + length;
        self.put(data, out);
        self.ram.store8(status, 0xAA);
        self.data = (status + 0x1000) & !0xFFF;
        let mut parts = vec![(header, 16, false)];
        if !out.is_empty() {
            parts.push((data, u32::try_from(out.len()).unwrap(), false));
        }
        if into > 0 {
            parts.push((data, into, true));
        }
        parts.push((status, 1, true));
        let head = self.chain(&parts);
        Asked { head, data, status }
    }

    /// The next chain begins at the first descriptor.
    pub fn restart_chain(&mut self) {
        self.next = 0;
    }

    /// What was asked before has ended: its memory is free again.
    pub fn take_back_data(&mut self) {
        self.data = DATA + self.ring / RING_BYTES * DATA_BYTES;
    }

    /// Makes a chain available.
    pub fn chain(&mut self, parts: &[(usize, u32, bool)]) -> u16 {
        let places: Vec<(u64, u32, bool)> = parts
            .iter()
            .map(|(at, bytes, writable)| (GUEST + *at as u64, *bytes, *writable))
            .collect();
        self.chain_at(&places)
    }

    pub fn chain_at(&mut self, parts: &[(u64, u32, bool)]) -> u16 {
        let head = self.next;
        for (number, (address, bytes, writable)) in parts.iter().enumerate() {
            let index = self.next % SIZE;
            self.next = (self.next + 1) % SIZE;
            let at = self.ring + TABLE + 16 * usize::from(index);
            let more = number + 1 < parts.len();
            self.ram.store64(at, *address);
            self.ram.store32(at + 8, *bytes);
            self.ram
                .store16(at + 12, u16::from(*writable) << 1 | u16::from(more));
            self.ram.store16(at + 14, self.next);
        }
        self.publish(head);
        head
    }

    /// Makes descriptors available as they are, in the first places of the table.
    pub fn raw_chain(&mut self, parts: &[RawDescriptor]) -> u16 {
        for (number, (at, bytes, flags, next)) in parts.iter().enumerate() {
            let place = self.ring + TABLE + 16 * number;
            self.ram.store64(place, GUEST + *at as u64);
            self.ram.store32(place + 8, *bytes);
            self.ram.store16(place + 12, *flags);
            self.ram.store16(place + 14, *next);
        }
        self.publish(0);
        0
    }

    fn publish(&mut self, head: u16) {
        let available = self.ring + AVAILABLE;
        self.ram
            .store16(available + 4 + 2 * usize::from(self.available % SIZE), head);
        self.available = self.available.wrapping_add(1);
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        self.ram.store16(available + 2, self.available);
    }

    /// Waits for the next chain that comes back: its head and length.
    pub fn wait_used(&mut self) -> (u32, u32) {
        let until = Instant::now() + PATIENCE;
        while self.used_index() == self.used {
            assert!(Instant::now() < until, "nothing came back");
            std::thread::yield_now();
        }
        let at = self.ring + USED + 4 + 8 * usize::from(self.used % SIZE);
        self.used = self.used.wrapping_add(1);
        (self.ram.load32(at), self.ram.load32(at + 4))
    }

    pub fn used_index(&self) -> u16 {
        self.ram.load16(self.ring + USED + 2)
    }

    pub fn status(&self, asked: &Asked) -> u8 {
        self.ram.load8(asked.status)
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Asked {
    pub head: u16,
    pub data: usize,
    status: usize,
}

pub fn words(values: &[u32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

pub fn longs(values: &[u64]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

pub fn event() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap()
}

impl Monitor {
    pub fn connect(path: &Path) -> Self {
        let socket = UnixStream::connect(path).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self {
            socket,
            kick: event(),
            call: event(),
        }
    }

    /// Sends a message as it is.
    pub fn send(&self, code: u32, flags: u32, body: &[u8], files: &[BorrowedFd<'_>]) {
        let bytes = [
            words(&[code, flags, u32::try_from(body.len()).unwrap()]),
            body.to_vec(),
        ]
        .concat();
        self.send_bytes(&bytes, files);
    }

    pub fn send_bytes(&self, bytes: &[u8], files: &[BorrowedFd<'_>]) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(files)));
        }
        // A device that has ended the connection takes nothing.
        let _sent = sendmsg(
            &self.socket,
            &[IoSlice::new(bytes)],
            &mut ancillary,
            SendFlags::NOSIGNAL,
        );
    }

    /// A request that must be acknowledged, with success.
    pub fn order(&mut self, code: u32, body: &[u8], files: &[BorrowedFd<'_>]) {
        assert_eq!(self.try_order(code, body, files), Some(0), "request {code}");
    }

    /// What it is acknowledged with; none: the connection ends.
    pub fn try_order(&mut self, code: u32, body: &[u8], files: &[BorrowedFd<'_>]) -> Option<u64> {
        self.send(code, 1 | 8, body, files);
        let (reply, body) = self.receive()?;
        assert_eq!(reply, code);
        Some(u64::from_le_bytes(body.try_into().unwrap()))
    }

    pub fn ask(&mut self, code: u32, body: &[u8]) -> Vec<u8> {
        self.send(code, 1, body, &[]);
        let (reply, body) = self.receive().expect("an answer");
        assert_eq!(reply, code);
        body
    }

    pub fn receive(&mut self) -> Option<(u32, Vec<u8>)> {
        let mut header = [0; 12];
        self.socket.read_exact(&mut header).ok()?;
        let word = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().unwrap());
        assert_eq!(word(4), 1 | 4, "a reply of version 1");
        let mut body = vec![0; word(8) as usize];
        self.socket.read_exact(&mut body).ok()?;
        Some((word(0), body))
    }

    /// Whether the device has ended the connection.
    pub fn is_over(&mut self) -> bool {
        let mut byte = [0];
        matches!(self.socket.read(&mut byte), Ok(0))
    }

    pub fn negotiate(&mut self) {
        self.negotiate_with(0);
    }

    /// With other protocol features besides.
    pub fn negotiate_with(&mut self, protocol: u64) {
        self.negotiate_only(PROTOCOL | protocol);
    }

    /// With these protocol features.
    pub fn negotiate_only(&mut self, protocol: u64) {
        let offered = u64::from_le_bytes(self.ask(1, &[]).try_into().unwrap());
        assert_eq!(offered & (1 << 30), 1 << 30);
        self.send(16, 1, &longs(&[protocol]), &[]);
        self.order(2, &longs(&[F_ALL & offered]), &[]);
    }

    pub fn share(&mut self, guest: &Guest) {
        self.share_file(guest.file.as_fd(), guest.bytes);
    }

    pub fn share_file(&mut self, file: BorrowedFd<'_>, bytes: u64) {
        let table = [words(&[1, 0]), longs(&[GUEST, bytes, USER, 0])].concat();
        self.order(5, &table, &[file]);
    }

    /// Everything up to a queue that runs.
    pub fn start(&mut self, base: u32) {
        self.start_queue(0, 0, base);
    }

    /// The same of any queue, whose ring lies at `ring`.
    pub fn start_queue(&mut self, index: u32, ring: usize, base: u32) {
        self.describe_queue(index, ring, base);
        self.order(18, &words(&[index, 1]), &[]);
    }

    /// All but that it may run.
    pub fn describe_queue(&mut self, index: u32, ring: usize, base: u32) {
        let places = Places {
            size: SIZE,
            table: ring + TABLE,
            driver: ring + AVAILABLE,
            device: ring + USED,
        };
        self.describe_ring(index, &places, base);
    }

    /// The same of a ring whose areas lie anywhere.
    pub fn start_ring(&mut self, index: u32, places: &Places, base: u32) {
        self.describe_ring(index, places, base);
        self.order(18, &words(&[index, 1]), &[]);
    }

    fn describe_ring(&mut self, index: u32, places: &Places, base: u32) {
        self.order(8, &words(&[index, places.size.into()]), &[]);
        self.order(10, &words(&[index, base]), &[]);
        let at = |offset: usize| USER + offset as u64;
        let address = [
            words(&[index, 0]),
            longs(&[at(places.table), at(places.device), at(places.driver), 0]),
        ]
        .concat();
        self.order(9, &address, &[]);
        let (kick, call) = (
            self.kick.try_clone().unwrap(),
            self.call.try_clone().unwrap(),
        );
        self.order(12, &longs(&[index.into()]), &[kick.as_fd()]);
        self.order(13, &longs(&[index.into()]), &[call.as_fd()]);
    }

    pub fn kick(&self) {
        rustix::io::write(&self.kick, &1_u64.to_ne_bytes()).unwrap();
    }

    /// Stops the queue; its base.
    pub fn stop(&mut self) -> u32 {
        let body = self.ask(11, &words(&[0, 0]));
        u32::from_le_bytes(body[4..].try_into().unwrap())
    }

    /// Memory for what is in flight: as the device describes it, and its file.
    pub fn inflight(&mut self) -> (Vec<u8>, OwnedFd) {
        let asked = [
            longs(&[0, 0]),
            1_u16.to_le_bytes().to_vec(),
            SIZE.to_le_bytes().to_vec(),
            vec![0; 4],
        ]
        .concat();
        self.send(31, 1, &asked, &[]);
        let mut header = [0; 12];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut iov = [std::io::IoSliceMut::new(&mut header)];
        let received = recvmsg(
            &self.socket,
            &mut iov,
            &mut ancillary,
            RecvFlags::CMSG_CLOEXEC,
        )
        .unwrap();
        assert_eq!(received.bytes, 12);
        let mut files = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(came) = message {
                files.extend(came);
            }
        }
        assert_eq!(files.len(), 1);
        let mut body = vec![0; 24];
        self.socket.read_exact(&mut body).unwrap();
        (body, files.remove(0))
    }
}
