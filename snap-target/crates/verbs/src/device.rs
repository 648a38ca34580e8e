//! Devices, and the way to them.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use crate::attributes::{DeviceAttributes, GidEntry};
use crate::backend;
use crate::cm::EventChannel;
use crate::completion::{CompletionQueue, CqInner};
use crate::domain::Domain;
use crate::error::{Result, VerbsError};
use crate::key::QpNumber;
use crate::limits::COMPLETION_ENTRIES_MAX;

/// An implementation of verbs: the system's, or one in memory. Cheap to clone, for any thread.
#[derive(Clone, Debug)]
pub struct Verbs {
    transport: Arc<dyn backend::Transport>,
}

impl Verbs {
    pub(crate) fn new(transport: Arc<dyn backend::Transport>) -> Self {
        Self { transport }
    }

    /// A fresh event channel of the connection manager.
    ///
    /// # Errors
    /// The kernel has no connection manager, or this user may not use it.
    pub fn event_channel(&self) -> Result<EventChannel> {
        Ok(EventChannel::new(self.transport.channel()?))
    }

    /// The devices that are there.
    ///
    /// # Errors
    /// They cannot be listed. That there is none is no error.
    pub fn devices(&self) -> Result<Vec<Device>> {
        let devices = self.transport.devices()?;
        Ok(devices.into_iter().map(Device::new).collect())
    }
}

/// What a device tells apart from completions (`ibv_get_async_event(3)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsyncEvent {
    /// A completion queue overflowed: its completions are lost.
    CompletionQueueError,
    /// A queue pair failed in a way that no completion can tell.
    QueuePairFatal(QpNumber),
    /// A peer's request broke the rules of the connection: the queue pair is in error.
    QueuePairRequestError(QpNumber),
    /// A peer's request broke the protection of memory: the queue pair is in error.
    QueuePairAccessError(QpNumber),
    /// A queue pair's peer sent something before the connection manager told that the connection stands.
    CommunicationEstablished(QpNumber),
    /// The device failed or is going.
    DeviceFatal,
    /// A port came up, by its number.
    PortActive(u32),
    /// A port went down, by its number.
    PortError(u32),
    /// A port's addresses changed, by its number.
    GidChange(u32),
    /// Another one, by the kernel's number.
    Other(u32),
}

/// An RDMA device that is open. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Device {
    pub(crate) native: Arc<dyn backend::Device>,
}

impl PartialEq for Device {
    fn eq(&self, other: &Self) -> bool {
        self.native.identity() == other.native.identity()
    }
}

impl Eq for Device {}

impl Device {
    pub(crate) fn new(native: Arc<dyn backend::Device>) -> Self {
        Self { native }
    }

    /// What it can do.
    #[must_use]
    pub fn attributes(&self) -> &DeviceAttributes {
        self.native.attributes()
    }

    /// Its addresses.
    ///
    /// # Errors
    /// The table cannot be read.
    pub fn gids(&self) -> Result<Vec<GidEntry>> {
        self.native.gids()
    }

    /// A fresh protection domain: what is registered in it is reached by its own queue pairs only.
    ///
    /// # Errors
    /// The device has no more.
    pub fn allocate_domain(&self) -> Result<Domain> {
        Ok(Domain::new(self.clone(), self.native.allocate_domain()?))
    }

    /// A fresh completion queue for at least so many completions.
    ///
    /// # Errors
    /// More than the device can hold were asked for, or memory is short.
    pub fn create_completion_queue(&self, entries: u32) -> Result<CompletionQueue> {
        let attributes = self.attributes();
        let max = attributes.cqe_max.min(COMPLETION_ENTRIES_MAX);
        self.limit("completion queue entries", entries.into(), max.into())?;
        let (native, entries) = self.native.create_completion_queue(entries.max(1))?;
        Ok(CompletionQueue {
            inner: Arc::new(CqInner {
                native,
                device: self.clone(),
                entries,
            }),
        })
    }

    /// The next of the device's events, never waiting. All handles to a device share them: one place in a process takes them.
    ///
    /// # Errors
    /// The device failed.
    pub fn next_async_event(&self) -> Result<Option<AsyncEvent>> {
        self.native.next_async_event()
    }

    pub(crate) fn limit(&self, what: &'static str, asked: u64, max: u64) -> Result<()> {
        if asked <= max {
            return Ok(());
        }
        Err(VerbsError::Limit {
            what,
            asked,
            max,
            subject: self.attributes().name.clone(),
        })
    }
}

impl AsFd for Device {
    /// Readable when [`Device::next_async_event`] has something.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.native.async_fd()
    }
}
