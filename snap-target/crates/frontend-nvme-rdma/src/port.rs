//! Addresses where hosts ask for connections, and the devices behind them.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use frontend_nvme::Clock;
use frontend_nvme::link::{Bound, LinkError, LinkLimits, Listener, Trouble};
use nvme::controller::Transport;
use reactor::Ring;
use verbs::{ControlThread, Device, EventChannel, Verbs, VerbsError};

use crate::device::OnDevice;
use crate::limits::BACKLOG;
use crate::listening::Listening;

/// RDMA for one process: its listeners share what is registered with a device. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Rdma {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    verbs: Verbs,
    control: ControlThread,
    devices: Mutex<Vec<Arc<OnDevice>>>,
}

impl Rdma {
    /// On these verbs: [`verbs::rdma_core::open`]'s, or a fabric's in memory. Queues are made and taken apart, and pools registered, on `control`.
    #[must_use]
    pub fn new(verbs: Verbs, control: ControlThread) -> Self {
        let devices = Mutex::default();
        Self {
            inner: Arc::new(Inner {
                verbs,
                control,
                devices,
            }),
        }
    }

    /// Listens at `address`, for any thread to take connections from.
    ///
    /// # Errors
    /// No device has the address, or somebody listens there.
    pub fn bind(&self, address: SocketAddr) -> Result<RdmaPort, VerbsError> {
        let channel = self.inner.verbs.event_channel()?;
        let listener = channel.listen(address, BACKLOG)?;
        Ok(RdmaPort {
            address: listener.local_address().unwrap_or(address),
            _listener: listener,
            channel,
            rdma: self.clone(),
            trouble: Trouble::default(),
        })
    }

    pub(crate) fn verbs(&self) -> &Verbs {
        &self.inner.verbs
    }

    pub(crate) fn control(&self) -> &ControlThread {
        &self.inner.control
    }

    /// What is shared by the connections of a device.
    pub(crate) fn on(&self, device: &Device) -> Result<Arc<OnDevice>, VerbsError> {
        let devices = &self.inner.devices;
        let mut devices = devices.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = devices.iter().find(|known| known.device() == device) {
            return Ok(known.clone());
        }
        let fresh = Arc::new(OnDevice::new(device, &self.inner.control)?);
        devices.push(fresh.clone());
        Ok(fresh)
    }

    /// Devices have gone: what was registered with one goes with its last connection.
    pub(crate) fn forget_gone(&self) {
        let there = self.inner.verbs.devices().unwrap_or_default();
        let devices = &self.inner.devices;
        let mut devices = devices.lock().unwrap_or_else(PoisonError::into_inner);
        let gone = devices.extract_if(.., |known| !there.contains(known.device()));
        let gone: Vec<_> = gone.collect();
        drop(devices);
        self.inner.control.run(move || drop(gone));
    }
}

/// A listening end that takes no connections yet.
#[derive(Debug)]
pub struct RdmaPort {
    // In the order in which they go.
    _listener: verbs::Listener,
    pub(crate) channel: EventChannel,
    pub(crate) address: SocketAddr,
    pub(crate) rdma: Rdma,
    pub(crate) trouble: Trouble,
}

impl Bound for RdmaPort {
    fn trouble(&self) -> Option<Trouble> {
        Some(self.trouble.clone())
    }

    fn transport(&self) -> Transport {
        Transport::Rdma
    }

    fn address(&self) -> SocketAddr {
        self.address
    }

    fn listen(
        self: Box<Self>,
        ring: &Ring,
        limits: &LinkLimits,
        clock: Clock,
    ) -> Result<Box<dyn Listener>, LinkError> {
        Ok(Box::new(Listening::new(*self, ring, limits, clock)?))
    }
}
