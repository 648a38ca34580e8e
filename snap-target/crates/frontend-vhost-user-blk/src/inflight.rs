//! The file of what is in flight: made here, kept by the monitor, given back after a restart.
//!
//! Behind the records of the queues, whose layout is the protocol's, stands what the driver was told: the file's size is ours to say, and the monitor gives
//! back what it was given. So whoever takes it up knows whether it serves the disk that the driver knows.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use guest_memory::{Access, Area, Loss, Shared};
use rustix::fs::{MemfdFlags, SealFlags};
use vhost_user::Inflight;
use virtio_ring::Format;
use virtio_ring::inflight::{has_in_flight, record_bytes};

use crate::disk::DiskIdentity;
use crate::error::SessionError;
use crate::guest::RingArea;
use crate::limits::{INFLIGHT_BYTES_MAX, QUEUES_MAX};

/// Bytes of what stands behind the records: "XIOBLK 1", UUID, bytes of a block, whether it is read-only, whether its cache writes back.
const TOLD_BYTES: usize = 64;
const MARK: u64 = u64::from_le_bytes(*b"XIOBLK 1");
const AT_MARK: usize = 0;
const AT_UUID: usize = 8;
const AT_BLOCK_BYTES: usize = 24;
const AT_READ_ONLY: usize = 28;
const AT_WRITEBACK: usize = 29;

/// The records of all queues of a device.
#[derive(Debug)]
pub(crate) struct Records {
    memory: Arc<Shared>,
    told: Option<Area>,
    /// As the monitor was told, or told.
    pub(crate) about: Inflight,
}

impl Records {
    /// For a device without any yet. The file is zero-filled: no queue has used it.
    pub(crate) fn create(
        asked: Inflight,
        format: Format,
        told: Told,
        loss: &Arc<Loss>,
    ) -> Result<(Self, OwnedFd), SessionError> {
        let bytes = bytes_of(asked, format)? + TOLD_BYTES as u64;
        let system = |what| {
            move |error: rustix::io::Errno| SessionError::System {
                what,
                source: io::Error::from(error),
            }
        };
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("inflight", flags).map_err(system("memfd_create"))?;
        rustix::fs::ftruncate(&file, bytes).map_err(system("ftruncate"))?;
        let seals = SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&file, seals).map_err(system("sealing a memfd"))?;
        let about = Inflight {
            bytes,
            file_offset: 0,
            ..asked
        };
        let records = Self::over(&file, about, format, loss)?;
        if let Some(area) = &records.told {
            told.store(area);
        }
        Ok((records, file))
    }

    /// What the monitor kept.
    pub(crate) fn take_up(
        about: Inflight,
        file: &OwnedFd,
        format: Format,
        loss: &Arc<Loss>,
    ) -> Result<Self, SessionError> {
        if about.bytes < bytes_of(about, format)? {
            return Err(SessionError::Inflight("it is shorter than its queues need"));
        }
        let records = Self::over(file, about, format, loss)?;
        match records.memory.keeps_length() {
            true => Ok(records),
            false => Err(SessionError::Inflight(
                "its file is not sealed against getting shorter (F_SEAL_SHRINK), as the one was that this device made",
            )),
        }
    }

    fn over(
        file: &OwnedFd,
        about: Inflight,
        format: Format,
        loss: &Arc<Loss>,
    ) -> Result<Self, SessionError> {
        if about.bytes > INFLIGHT_BYTES_MAX {
            return Err(SessionError::Inflight("it is longer than any queues need"));
        }
        let memory = Shared::map(
            file,
            about.file_offset,
            about.bytes,
            Access::BOTH,
            loss.clone(),
            (),
        )?;
        let memory = Arc::new(memory);
        let behind = usize::try_from(bytes_of(about, format)?).ok();
        let told = behind.and_then(|behind| Area::of(&memory, behind, TOLD_BYTES));
        Ok(Self {
            memory,
            told,
            about,
        })
    }

    /// What the driver was told by whoever made them; none: it was another back-end.
    pub(crate) fn told(&self) -> Option<Told> {
        Told::load(self.told.as_ref()?)
    }

    /// The driver has changed how its cache works.
    pub(crate) fn set_writeback(&self, writeback: bool) {
        if let Some(area) = self.told.as_ref().filter(|area| Told::load(area).is_some()) {
            area.store8(AT_WRITEBACK, u8::from(writeback));
        }
    }

    /// Whether requests were in flight when they were left.
    pub(crate) fn has_in_flight(&self, format: Format) -> bool {
        let size = self.about.queue_size;
        let mut queues = 0..u32::from(self.about.queues);
        queues.any(|index| {
            let area = self.of(index, format, size).map(RingArea);
            area.is_ok_and(|area| has_in_flight(&area, format, size))
        })
    }

    /// The record of a queue.
    pub(crate) fn of(&self, index: u32, format: Format, size: u16) -> Result<Area, SessionError> {
        if index >= self.about.queues.into() || size > self.about.queue_size {
            return Err(SessionError::Inflight(
                "a queue is not among those it was made for",
            ));
        }
        let bytes = record_bytes(format, self.about.queue_size);
        let offset = usize::try_from(bytes * u64::from(index)).ok();
        let area = offset.zip(usize::try_from(bytes).ok());
        let area = area.and_then(|(offset, bytes)| Area::of(&self.memory, offset, bytes));
        area.ok_or(SessionError::Inflight("a queue's record is not in it"))
    }
}

/// What a driver was told of its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) disk: DiskIdentity,
    pub(crate) writeback: bool,
}

impl Told {
    fn store(&self, area: &Area) {
        for (at, byte) in (AT_UUID..).zip(self.disk.uuid) {
            area.store8(at, byte);
        }
        area.store32(AT_BLOCK_BYTES, self.disk.block_bytes);
        area.store8(AT_READ_ONLY, u8::from(self.disk.read_only));
        area.store8(AT_WRITEBACK, u8::from(self.writeback));
        area.store64(AT_MARK, MARK);
    }

    fn load(area: &Area) -> Option<Self> {
        if area.load64(AT_MARK) != MARK {
            return None;
        }
        let mut uuid = [0; 16];
        for (at, byte) in (AT_UUID..).zip(&mut uuid) {
            *byte = area.load8(at);
        }
        Some(Self {
            disk: DiskIdentity {
                uuid,
                block_bytes: area.load32(AT_BLOCK_BYTES),
                read_only: area.load8(AT_READ_ONLY) != 0,
            },
            writeback: area.load8(AT_WRITEBACK) != 0,
        })
    }
}

fn bytes_of(about: Inflight, format: Format) -> Result<u64, SessionError> {
    if !(1..=QUEUES_MAX).contains(&about.queues) {
        return Err(SessionError::Inflight(
            "it is for no queue, or for more than there may be",
        ));
    }
    let size = format.check_size(about.queue_size.into());
    let size =
        size.map_err(|_| SessionError::Inflight("its queues have a size that none may have"))?;
    Ok(record_bytes(format, size) * u64::from(about.queues))
}
