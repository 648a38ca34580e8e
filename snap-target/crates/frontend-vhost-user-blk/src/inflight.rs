//! The file of what is in flight: made here, kept by the monitor, given back after a restart.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use guest_memory::{Access, Area, Shared};
use rustix::fs::{MemfdFlags, SealFlags};
use vhost_user::Inflight;
use virtio_ring::{Format, inflight::record_bytes};

use crate::error::SessionError;
use crate::limits::QUEUES_MAX;

/// The records of all queues of a device.
#[derive(Debug)]
pub(crate) struct Records {
    memory: Arc<Shared>,
    /// As the monitor was told, or told.
    pub(crate) about: Inflight,
}

impl Records {
    /// For a device without any yet. The file is zero-filled: no queue has used it.
    pub(crate) fn create(asked: Inflight, format: Format) -> Result<(Self, OwnedFd), SessionError> {
        let bytes = bytes_of(asked, format)?;
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
        let records = Self {
            memory: Arc::new(Shared::map(&file, 0, bytes, Access::BOTH, ())?),
            about,
        };
        Ok((records, file))
    }

    /// What the monitor kept.
    pub(crate) fn take_up(
        about: Inflight,
        file: &OwnedFd,
        format: Format,
    ) -> Result<Self, SessionError> {
        if about.bytes < bytes_of(about, format)? {
            return Err(SessionError::Inflight("it is shorter than its queues need"));
        }
        let memory = Shared::map(file, about.file_offset, about.bytes, Access::BOTH, ())?;
        Ok(Self {
            memory: Arc::new(memory),
            about,
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
