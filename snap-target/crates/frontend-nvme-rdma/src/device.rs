//! What all connections of a device share: one protection domain, and the memory that is registered in it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use reactor::buf::{Mapping, RegionId, Segment};
use verbs::{Access, Device, Domain, HostMemory, Registration, ScatterEntry, VerbsError};

use crate::limits::CAPSULE_BYTES_PER_DEVICE_MAX;

/// See the module.
#[derive(Debug)]
pub(crate) struct OnDevice {
    domain: Domain,
    /// Pools of the reactors; none where one could not be registered.
    pools: Mutex<Vec<(RegionId, Option<Arc<Registration>>)>>,
    /// Bytes of the connections' own memory.
    own_bytes: AtomicU64,
}

impl OnDevice {
    pub(crate) fn new(device: &Device) -> Result<Self, VerbsError> {
        Ok(Self {
            domain: device.allocate_domain()?,
            pools: Mutex::default(),
            own_bytes: AtomicU64::new(0),
        })
    }

    pub(crate) fn domain(&self) -> &Domain {
        &self.domain
    }

    pub(crate) fn device(&self) -> &Device {
        self.domain.device()
    }

    fn name(&self) -> &str {
        &self.device().attributes().name
    }

    /// A pool's registration; it is made where this is the first to ask.
    fn pool(&self, memory: &Arc<Mapping>) -> Option<Arc<Registration>> {
        let id = memory.region().id();
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = pools.iter().find(|(known, _)| *known == id) {
            return known.clone();
        }
        let registered = self
            .domain
            .register(&HostMemory::of_mapping(memory), Access::LOCAL_WRITE);
        let registered = match registered {
            Ok(registration) => Some(Arc::new(registration)),
            Err(error) => {
                tracing::warn!(
                    device = self.name(), %error, bytes = memory.len(),
                    "the buffers of a reactor cannot be registered: data over RDMA are copied once more"
                );
                None
            }
        };
        pools.push((id, registered.clone()));
        registered
    }

    /// Fresh registered memory of a connection.
    pub(crate) fn own_memory(self: &Arc<Self>, bytes: usize) -> Result<OwnMemory, VerbsError> {
        let asked = bytes as u64;
        let held = self.own_bytes.fetch_add(asked, Ordering::Relaxed);
        // Counted from here on, whatever happens.
        let mut memory = OwnMemory {
            registration: None,
            bytes: asked,
            on: self.clone(),
        };
        if held + asked > CAPSULE_BYTES_PER_DEVICE_MAX {
            return Err(VerbsError::Limit {
                what: "bytes of capsules and staging of all connections",
                asked: held + asked,
                max: CAPSULE_BYTES_PER_DEVICE_MAX,
                subject: self.name().to_owned(),
            });
        }
        let mapping = Mapping::new(bytes).map_err(|_| VerbsError::Misuse {
            call: "mmap",
            what: "there is no memory for another connection",
        })?;
        let mapping = HostMemory::of_mapping(&Arc::new(mapping));
        memory.registration = Some(self.domain.register(&mapping, Access::LOCAL_WRITE)?);
        Ok(memory)
    }
}

/// Registered memory of one connection; it goes back when its queue pair is gone.
#[derive(Debug)]
pub(crate) struct OwnMemory {
    /// There, but for the moment of its making and of its end.
    registration: Option<Registration>,
    bytes: u64,
    on: Arc<OnDevice>,
}

impl OwnMemory {
    pub(crate) fn entry(&self, offset: usize, len: u32) -> Option<ScatterEntry> {
        self.registration.as_ref()?.entry(offset, len).ok()
    }

    /// False where the bytes lie outside.
    pub(crate) fn copy_out(&self, offset: usize, out: &mut [u8]) -> bool {
        let registration = self.registration.as_ref();
        registration.is_some_and(|memory| memory.copy_out(offset, out).is_ok())
    }

    /// False where the bytes lie outside.
    pub(crate) fn copy_in(&self, offset: usize, content: &[u8]) -> bool {
        let registration = self.registration.as_ref();
        registration.is_some_and(|memory| memory.copy_in(offset, content).is_ok())
    }
}

impl Drop for OwnMemory {
    fn drop(&mut self) {
        self.on.own_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        // Dropped alone, it would stay registered as long as any connection of the device lives.
        if let Some(registration) = self.registration.take()
            && let Err((_registration, error)) = registration.deregister()
        {
            tracing::warn!(%error, "memory of a connection stays registered");
        }
    }
}

/// The registrations that a connection has met: found again without a lock.
#[derive(Debug)]
pub(crate) struct Pools {
    on: Arc<OnDevice>,
    known: Vec<(RegionId, Option<Arc<Registration>>)>,
}

impl Pools {
    pub(crate) fn of(on: &Arc<OnDevice>) -> Self {
        Self {
            on: on.clone(),
            known: Vec::with_capacity(4),
        }
    }

    /// A segment for the device; none where its memory is not registered.
    pub(crate) fn entry(&mut self, segment: &Segment<'_>) -> Option<ScatterEntry> {
        let memory = segment.pool_memory()?;
        let id = segment.region();
        let at = match self.known.iter().position(|(known, _)| *known == id) {
            Some(at) => at,
            None => {
                self.known.push((id, self.on.pool(memory)));
                self.known.len() - 1
            }
        };
        let registration = self.known.get(at)?.1.as_ref()?;
        registration.entry_of(segment).ok()
    }
}
