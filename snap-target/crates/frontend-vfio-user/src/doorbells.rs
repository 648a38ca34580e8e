//! Doorbells that the client maps: a page of memory in BAR0's place, which it writes without a message, and which the queues' reactors look at all the time.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use guest_memory::{Access, Area, Shared};
use nvme::pcie::{DOORBELLS_AT, Doorbell};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use vfio_user::Area as Mappable;

use crate::limits::DOORBELL_PAGE_BYTES;

/// Where in BAR0, and in the descriptor's file, the page is.
pub(crate) const MAPPABLE: Mappable = Mappable {
    offset: DOORBELLS_AT,
    size: DOORBELL_PAGE_BYTES,
};

/// See the module. One client's: the next one gets another, so that nothing that an old one has still mapped is anybody's doorbell.
#[derive(Debug)]
pub(crate) struct DoorbellPage {
    /// Goes to the client. Nobody can make it shorter.
    file: OwnedFd,
    area: Area,
}

impl DoorbellPage {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("xio-doorbells", flags)?;
        ftruncate(&file, MAPPABLE.offset + MAPPABLE.size)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let shared = Shared::map(
            &file,
            MAPPABLE.offset,
            MAPPABLE.size,
            Access::BOTH,
            Arc::default(),
            (),
        );
        let shared = shared.map_err(io::Error::other)?;
        let area = Area::whole(&Arc::new(shared));
        Ok(Self {
            file,
            area: area.ok_or_else(|| io::Error::other("a page that cannot be read and written"))?,
        })
    }

    /// What the client says of a doorbell now; none where the page has no place for it.
    pub(crate) fn load(&self, doorbell: Doorbell) -> Option<u32> {
        let value = self.area.load32(place(doorbell)?);
        // What the doorbell tells of was written before it.
        fence(Ordering::Acquire);
        Some(value)
    }

    /// The doorbell came as a message, or begins.
    pub(crate) fn store(&self, doorbell: Doorbell, value: u32) {
        if let Some(place) = place(doorbell) {
            self.area.store32(place, value);
        }
    }

    /// As at power-on.
    pub(crate) fn clear(&self) {
        for at in (0..self.area.bytes()).step_by(4) {
            self.area.store32(at, 0);
        }
    }
}

impl AsFd for DoorbellPage {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn place(doorbell: Doorbell) -> Option<usize> {
    usize::try_from(doorbell.page_offset()?).ok()
}
