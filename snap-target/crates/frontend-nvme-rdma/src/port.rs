//! Addresses where hosts ask for connections, and the devices behind them.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};

use frontend_nvme::Clock;
use frontend_nvme::link::{Bound, Link, LinkError, LinkLimits, Listener};
use nix::poll::PollFlags;
use nvme::controller::Transport;
use nvme::rdma::target::Refusal;
use nvme_spec::rdma::RejectStatus;
use reactor::{Fd, Owner, OwnerId, Ring};
use verbs::{Device, EventChannel, EventKind, Request, Verbs, VerbsError};

use crate::device::OnDevice;
use crate::limits::BACKLOG;
use crate::link::{RdmaLink, shared};
use crate::queue::Queue;

/// RDMA for one process: its listeners share what is registered with a device. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Rdma {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    verbs: Verbs,
    devices: Mutex<Vec<Arc<OnDevice>>>,
}

impl Rdma {
    /// On these verbs: [`verbs::rdma_core::open`]'s, or a fabric's in memory.
    #[must_use]
    pub fn new(verbs: Verbs) -> Self {
        let devices = Mutex::default();
        Self {
            inner: Arc::new(Inner { verbs, devices }),
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
        })
    }

    /// What is shared by the connections of a device.
    fn on(&self, device: &Device) -> Result<Arc<OnDevice>, VerbsError> {
        let devices = &self.inner.devices;
        let mut devices = devices.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = devices.iter().find(|known| known.device() == device) {
            return Ok(known.clone());
        }
        let fresh = Arc::new(OnDevice::new(device)?);
        devices.push(fresh.clone());
        Ok(fresh)
    }

    /// A device has gone: what was registered with it goes with its last connection.
    fn forget(&self, device: &Device) {
        let devices = &self.inner.devices;
        let mut devices = devices.lock().unwrap_or_else(PoisonError::into_inner);
        devices.retain(|known| known.device() != device);
    }
}

/// A listening end that takes no connections yet.
#[derive(Debug)]
pub struct RdmaPort {
    // In the order in which they go.
    _listener: verbs::Listener,
    channel: EventChannel,
    address: SocketAddr,
    rdma: Rdma,
}

impl Bound for RdmaPort {
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
        let listening = Listening {
            owner: ring.register()?,
            requests: shared(self.channel.as_fd())?,
            limits: *limits,
            clock,
            port: *self,
        };
        listening.wait()?;
        Ok(Box::new(listening))
    }
}

/// A listening end on the desk's ring.
#[derive(Debug)]
struct Listening {
    owner: Owner,
    requests: Fd,
    limits: LinkLimits,
    clock: Clock,
    port: RdmaPort,
}

impl Listener for Listening {
    fn owner_id(&self) -> OwnerId {
        self.owner.id()
    }

    fn next_connection(&mut self, has_room: bool) -> Option<Result<Box<dyn Link>, LinkError>> {
        loop {
            match self.port.channel.next_event() {
                Ok(Some(event)) => match event.kind {
                    EventKind::ConnectRequest(request) if has_room => {
                        return Some(self.welcome(request));
                    }
                    EventKind::ConnectRequest(request) => {
                        let refusal = Refusal(RejectStatus::NO_RESOURCES);
                        // Where the host is gone there is nobody to tell.
                        let _gone = request.reject(&refusal.reject_data());
                        return Some(Err(LinkError::NoRoom));
                    }
                    EventKind::DeviceRemoval => self.device_removed(),
                    _ => {}
                },
                Ok(None) => {
                    // Nothing is lost between the two: the descriptor tells as long as there is something.
                    self.owner.next_event()?;
                    if let Err(error) = self.wait() {
                        return Some(Err(error));
                    }
                }
                Err(error) => {
                    let address = self.port.address;
                    tracing::error!(%error, %address, "the listener takes no more connections");
                    return None;
                }
            }
        }
    }
}

impl Listening {
    fn wait(&self) -> Result<(), LinkError> {
        let readable = PollFlags::POLLIN.bits();
        let waited = self.owner.poll(&self.requests, readable, 0);
        waited
            .map(drop)
            .map_err(|refused| LinkError::Resources(refused.to_string()))
    }

    fn welcome(&self, request: Request) -> Result<Box<dyn Link>, LinkError> {
        let rdma = &self.port.rdma;
        let on = |device: &Device| rdma.on(device);
        let queue = Queue::accept(request, &rdma.inner.verbs, on, &self.limits, self.clock)?;
        Ok(Box::new(RdmaLink::new(queue, self.owner.ring())?))
    }

    fn device_removed(&self) {
        let address = self.port.address;
        tracing::error!(%address, "the RDMA device of a listener was removed: add the listener again when it is back");
        let there = self.port.rdma.inner.verbs.devices().unwrap_or_default();
        let devices = &self.port.rdma.inner.devices;
        let devices = devices.lock().unwrap_or_else(PoisonError::into_inner);
        let gone: Vec<Device> = devices
            .iter()
            .map(|known| known.device().clone())
            .filter(|device| !there.contains(device))
            .collect();
        drop(devices);
        for device in &gone {
            self.port.rdma.forget(device);
        }
    }
}
