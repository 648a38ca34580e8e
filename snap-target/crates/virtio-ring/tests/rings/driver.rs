//! A driver, written from the specification for its side: it owns no code of the ring's.

use std::collections::{BTreeMap, VecDeque};

use virtio_ring::{Descriptor, Format, Layout, inflight::record_bytes};

use super::ram::{Part, Ram};

/// Where things lie in the memory of a test.
const DESCRIPTORS: usize = 0x1000;
const DRIVER: usize = 0x8000;
const DEVICE: usize = 0xA000;
pub const RECORD: usize = 0xE000;
pub const TABLES: usize = 0x2_0000;
const TABLE_BYTES: usize = 0x400;
pub const RAM_BYTES: usize = 0x10_0000;

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;

/// A chain that a driver makes available.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub parts: Vec<Descriptor>,
    pub indirect: bool,
}

impl Request {
    /// So many times the same 512 bytes, which the device writes.
    pub fn of_writable(parts: usize) -> Self {
        let part = Descriptor {
            address: 0x4000,
            bytes: 512,
            writable: true,
        };
        Self {
            parts: vec![part; parts],
            indirect: false,
        }
    }
}

pub struct Driver {
    pub ram: Ram,
    pub layout: Layout,
    event_index: bool,
    /// Of a split ring: free descriptors. Of a packed one: free buffer ids.
    free: VecDeque<u16>,
    free_slots: u16,
    available: u16,
    available_wrap: bool,
    used: u16,
    used_wrap: bool,
    /// By id: what was asked, and the slots or descriptors that it has.
    pub outstanding: BTreeMap<u16, (Request, Vec<u16>)>,
    kicked_at: (u16, bool),
}

impl Driver {
    pub fn new(format: Format, size: u16, event_index: bool) -> Self {
        Self {
            ram: Ram::new(RAM_BYTES),
            layout: Layout {
                format,
                size,
                descriptors: DESCRIPTORS as u64,
                driver: DRIVER as u64,
                device: DEVICE as u64,
            },
            event_index,
            free: (0..size).collect(),
            free_slots: size,
            available: 0,
            available_wrap: true,
            used: 0,
            used_wrap: true,
            outstanding: BTreeMap::new(),
            kicked_at: (0, true),
        }
    }

    /// The base that its monitor gives a device for a ring that nobody has used.
    pub fn base(&self) -> u32 {
        match self.layout.format {
            Format::Split => 0,
            Format::Packed => 0x8000_8000,
        }
    }

    pub fn record(&self) -> Part {
        let bytes = record_bytes(self.layout.format, self.layout.size);
        self.ram.part(RECORD, usize::try_from(bytes).unwrap())
    }

    fn size(&self) -> u16 {
        self.layout.size
    }

    fn slots_of(request: &Request) -> usize {
        if request.indirect {
            1
        } else {
            request.parts.len()
        }
    }

    /// Makes a chain available; its id, or none where there is no room.
    pub fn add(&mut self, request: &Request) -> Option<u16> {
        let slots = Self::slots_of(request);
        if usize::from(self.free_slots) < slots || self.free.is_empty() {
            return None;
        }
        match self.layout.format {
            Format::Split => self.add_split(request, slots),
            Format::Packed => self.add_packed(request, slots),
        }
    }

    fn add_split(&mut self, request: &Request, slots: usize) -> Option<u16> {
        if self.free.len() < slots {
            return None;
        }
        let taken: Vec<u16> = self.free.drain(..slots).collect();
        self.free_slots -= u16::try_from(slots).unwrap();
        let head = taken[0];
        if request.indirect {
            let table = self.table(head, &request.parts, true);
            let bytes = u32::try_from(request.parts.len() * 16).unwrap();
            self.descriptor(DESCRIPTORS, head, table, bytes, [INDIRECT, 0]);
        } else {
            for (number, part) in request.parts.iter().enumerate() {
                let next = taken.get(number + 1).copied();
                let flags = flag(part.writable, WRITE) | flag(next.is_some(), NEXT);
                let index = taken[number];
                self.descriptor(
                    DESCRIPTORS,
                    index,
                    part.address,
                    part.bytes,
                    [flags, next.unwrap_or(0)],
                );
            }
        }
        let place = DRIVER + 4 + 2 * usize::from(self.available % self.size());
        self.ram.write16(place, head);
        self.available = self.available.wrapping_add(1);
        self.ram.write16(DRIVER + 2, self.available);
        self.outstanding.insert(head, (request.clone(), taken));
        Some(head)
    }

    /// `rest`: flags and next of a split one, id and flags of a packed one.
    fn descriptor(&self, table: usize, index: u16, address: u64, bytes: u32, rest: [u16; 2]) {
        let at = table + 16 * usize::from(index);
        self.ram.write(at, &address.to_le_bytes());
        self.ram.write(at + 8, &bytes.to_le_bytes());
        self.ram.write16(at + 12, rest[0]);
        self.ram.write16(at + 14, rest[1]);
    }

    /// An indirect table of an id.
    fn table(&self, id: u16, parts: &[Descriptor], split: bool) -> u64 {
        let at = TABLES + usize::from(id) * TABLE_BYTES;
        for (number, part) in (0..).zip(parts) {
            let more = usize::from(number) + 1 < parts.len();
            let write = flag(part.writable, WRITE);
            if split {
                self.descriptor(
                    at,
                    number,
                    part.address,
                    part.bytes,
                    [write | flag(more, NEXT), number + 1],
                );
            } else {
                self.descriptor(at, number, part.address, part.bytes, [0, write]);
            }
        }
        at as u64
    }

    fn add_packed(&mut self, request: &Request, slots: usize) -> Option<u16> {
        let id = self.free.pop_front()?;
        self.free_slots -= u16::try_from(slots).unwrap();
        let mut parts = request.parts.clone();
        if request.indirect {
            let table = self.table(id, &request.parts, false);
            let bytes = u32::try_from(request.parts.len() * 16).unwrap();
            parts = vec![Descriptor {
                address: table,
                bytes,
                writable: false,
            }];
        }
        let mut taken = Vec::new();
        let mut first = None;
        for (number, part) in parts.iter().enumerate() {
            let more = number + 1 < parts.len();
            let own =
                flag(request.indirect, INDIRECT) | flag(part.writable, WRITE) | flag(more, NEXT);
            let round = if self.available_wrap { 1 << 7 } else { 1 << 15 };
            // The id stands in the last one only.
            let named = if more { 0xDEAD } else { id };
            let index = self.available;
            if number == 0 {
                // The first one's flags are written last.
                self.descriptor(
                    DESCRIPTORS,
                    index,
                    part.address,
                    part.bytes,
                    [
                        named,
                        self.ram.read16(DESCRIPTORS + 16 * usize::from(index) + 14),
                    ],
                );
                first = Some((index, own | round));
            } else {
                self.descriptor(
                    DESCRIPTORS,
                    index,
                    part.address,
                    part.bytes,
                    [named, own | round],
                );
            }
            taken.push(index);
            self.available += 1;
            if self.available == self.size() {
                self.available = 0;
                self.available_wrap = !self.available_wrap;
            }
        }
        let (index, flags) = first?;
        self.ram
            .write16(DESCRIPTORS + 16 * usize::from(index) + 14, flags);
        self.outstanding.insert(id, (request.clone(), taken));
        Some(id)
    }

    /// The next chain that came back: its id and length; none where a packed ring says that nothing was written.
    pub fn reap(&mut self) -> Option<(u16, Option<u32>)> {
        let (id, written) = match self.layout.format {
            Format::Split => {
                if self.ram.read16(DEVICE + 2) == self.used {
                    return None;
                }
                let at = DEVICE + 4 + 8 * usize::from(self.used % self.size());
                self.used = self.used.wrapping_add(1);
                (
                    u32::from_le_bytes(self.ram.read(at)),
                    Some(u32::from_le_bytes(self.ram.read(at + 4))),
                )
            }
            Format::Packed => {
                let at = DESCRIPTORS + 16 * usize::from(self.used);
                let flags = self.ram.read16(at + 14);
                let (available, used) = (flags >> 7 & 1 != 0, flags >> 15 & 1 != 0);
                if available != used || used != self.used_wrap {
                    return None;
                }
                (
                    self.ram.read16(at + 12).into(),
                    (flags & 2 != 0).then(|| u32::from_le_bytes(self.ram.read(at + 8))),
                )
            }
        };
        let id = u16::try_from(id).unwrap();
        let (_, taken) = self
            .outstanding
            .remove(&id)
            .expect("what came back was outstanding");
        let slots = u16::try_from(taken.len()).unwrap();
        self.free_slots += slots;
        match self.layout.format {
            Format::Split => self.free.extend(taken),
            Format::Packed => {
                self.free.push_back(id);
                self.used += slots;
                if self.used >= self.size() {
                    self.used -= self.size();
                    self.used_wrap = !self.used_wrap;
                }
            }
        }
        Some((id, written))
    }

    /// Asks to be told of the next chain that comes back; true where one is there already.
    pub fn sleep(&mut self) -> bool {
        match (self.layout.format, self.event_index) {
            (Format::Split, true) => self
                .ram
                .write16(DRIVER + 4 + 2 * usize::from(self.size()), self.used),
            (Format::Split, false) => self.ram.write16(DRIVER, 0),
            (Format::Packed, true) => {
                self.ram
                    .write16(DRIVER, self.used | flag(self.used_wrap, 1 << 15));
                self.ram.write16(DRIVER + 2, 2);
            }
            (Format::Packed, false) => self.ram.write16(DRIVER + 2, 0),
        }
        self.has_used()
    }

    /// Asks not to be told.
    pub fn wake(&self) {
        match (self.layout.format, self.event_index) {
            (Format::Split, true) => {}
            (Format::Split, false) => self.ram.write16(DRIVER, 1),
            (Format::Packed, _) => self.ram.write16(DRIVER + 2, 1),
        }
    }

    pub fn has_used(&self) -> bool {
        match self.layout.format {
            Format::Split => self.ram.read16(DEVICE + 2) != self.used,
            Format::Packed => {
                let flags = self
                    .ram
                    .read16(DESCRIPTORS + 16 * usize::from(self.used) + 14);
                let (available, used) = (flags >> 7 & 1 != 0, flags >> 15 & 1 != 0);
                available == used && used == self.used_wrap
            }
        }
    }

    /// Whether the device wants to be told of what was made available since it was last asked, as a driver sees it.
    pub fn kicks(&mut self) -> bool {
        let (new, wrap) = (self.available, self.available_wrap);
        let (old, old_wrap) = std::mem::replace(&mut self.kicked_at, (new, wrap));
        match self.layout.format {
            Format::Split if self.event_index => {
                let event = self.ram.read16(DEVICE + 4 + 8 * usize::from(self.size()));
                new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
            }
            Format::Split => self.ram.read16(DEVICE) & 1 == 0,
            Format::Packed => match self.ram.read16(DEVICE + 2) {
                1 => false,
                2 => {
                    let event = self.ram.read16(DEVICE);
                    let (at, at_wrap) = (event & 0x7FFF, event >> 15 != 0);
                    // On a line on which the present round begins at 0.
                    let place = |index: u16, of: bool| {
                        i32::from(index)
                            - if of == wrap {
                                0
                            } else {
                                i32::from(self.size())
                            }
                    };
                    let (at, new, old) =
                        (place(at, at_wrap), place(new, wrap), place(old, old_wrap));
                    old <= at && at < new
                }
                _ => true,
            },
        }
    }
}

fn flag(is_set: bool, bit: u16) -> u16 {
    if is_set { bit } else { 0 }
}
