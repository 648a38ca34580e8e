//! Guest memory of a test: it counts loads, and can end the device's process at any store.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use virtio_ring::{Area, Memory};

/// What a process that is killed at a store panics with.
pub const KILLED: &str = "killed at a store";

#[derive(Clone, Debug, Default)]
pub struct Ram {
    shared: Rc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    bytes: RefCell<Vec<u8>>,
    /// Stores of the device that are let through; none: all.
    fuse: Cell<Option<u64>>,
    loads: RefCell<HashMap<usize, u32>>,
}

#[derive(Clone, Debug)]
pub struct Part {
    ram: Ram,
    start: usize,
    bytes: usize,
}

impl Ram {
    pub fn new(bytes: usize) -> Self {
        let ram = Self::default();
        *ram.shared.bytes.borrow_mut() = vec![0; bytes];
        ram
    }

    /// The device's process ends at the store behind so many more.
    pub fn kill_after(&self, stores: Option<u64>) {
        self.shared.fuse.set(stores);
    }

    /// How often the device has loaded from each address since this was last asked.
    pub fn take_loads(&self) -> HashMap<usize, u32> {
        self.shared.loads.take()
    }

    /// The driver's own accesses.
    pub fn read<const N: usize>(&self, at: usize) -> [u8; N] {
        self.shared.bytes.borrow()[at..at + N].try_into().unwrap()
    }

    pub fn write(&self, at: usize, bytes: &[u8]) {
        self.shared.bytes.borrow_mut()[at..at + bytes.len()].copy_from_slice(bytes);
    }

    pub fn write16(&self, at: usize, value: u16) {
        self.write(at, &value.to_le_bytes());
    }

    pub fn read16(&self, at: usize) -> u16 {
        u16::from_le_bytes(self.read(at))
    }

    /// A run of it, for a record.
    pub fn part(&self, start: usize, bytes: usize) -> Part {
        Part {
            ram: self.clone(),
            start,
            bytes,
        }
    }

    fn device_store(&self, at: usize, bytes: &[u8]) {
        if let Some(left) = self.shared.fuse.get() {
            assert!(left > 0, "{KILLED}");
            self.shared.fuse.set(Some(left - 1));
        }
        self.write(at, bytes);
    }

    fn device_load<const N: usize>(&self, at: usize) -> [u8; N] {
        *self.shared.loads.borrow_mut().entry(at).or_default() += 1;
        self.read(at)
    }
}

impl Memory for Ram {
    type Area = Part;

    fn area(&self, address: u64, bytes: u64) -> Option<Part> {
        let end = address.checked_add(bytes)?;
        (end <= self.shared.bytes.borrow().len() as u64).then(|| {
            self.part(
                usize::try_from(address).unwrap(),
                usize::try_from(bytes).unwrap(),
            )
        })
    }

    fn load64(&self, address: u64) -> Option<u64> {
        self.area(address, 8)?;
        Some(u64::from_le_bytes(
            self.device_load(usize::try_from(address).unwrap()),
        ))
    }
}

macro_rules! accesses {
    ($($load:ident $store:ident $value:ty),*) => {
        impl Area for Part {
            fn bytes(&self) -> usize {
                self.bytes
            }
            $(
                fn $load(&self, at: usize) -> $value {
                    assert!(at + size_of::<$value>() <= self.bytes && at % size_of::<$value>() == 0);
                    <$value>::from_le_bytes(self.ram.device_load(self.start + at))
                }

                fn $store(&self, at: usize, value: $value) {
                    assert!(at + size_of::<$value>() <= self.bytes && at % size_of::<$value>() == 0);
                    self.ram.device_store(self.start + at, &value.to_le_bytes());
                }
            )*
        }
    };
}

accesses!(load8 store8 u8, load16 store16 u16, load32 store32 u32, load64 store64 u64);
