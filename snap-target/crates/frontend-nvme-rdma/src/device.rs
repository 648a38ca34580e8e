//! What all connections of a device share: one protection domain, and the memory that is registered in it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use reactor::buf::{Mapping, RegionId, Segment};
use verbs::{
    Access, ControlThread, Device, Domain, HostMemory, Registration, ScatterEntry, VerbsError,
};

use crate::limits::{CAPSULE_BYTES_PER_DEVICE_MAX, POOLS_EXPECTED};

/// How far the registration of a pool is.
#[derive(Debug)]
enum Pool {
    Asked,
    Registered(Arc<Registration>),
    Failed,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct OnDevice {
    domain: Domain,
    control: ControlThread,
    /// Pools of the reactors.
    pools: Mutex<Vec<(RegionId, Pool)>>,
    /// Goes up with each change of a pool.
    pool_changes: AtomicU64,
    /// Bytes of the connections' own memory.
    own_bytes: AtomicU64,
}

impl OnDevice {
    pub(crate) fn new(device: &Device, control: &ControlThread) -> Result<Self, VerbsError> {
        Ok(Self {
            domain: device.allocate_domain()?,
            control: control.clone(),
            pools: Mutex::default(),
            pool_changes: AtomicU64::new(0),
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

    /// A pool's registration, where it has been made; where nobody has asked for it, it is made from now on.
    fn pool(self: &Arc<Self>, memory: &Arc<Mapping>) -> Option<Arc<Registration>> {
        let id = memory.region().id();
        let mut pools = self.pools();
        if let Some((_, known)) = pools.iter().find(|(known, _)| *known == id) {
            return match known {
                Pool::Registered(registration) => Some(registration.clone()),
                Pool::Asked | Pool::Failed => None,
            };
        }
        pools.push((id, Pool::Asked));
        drop(pools);
        // Pinning a pool takes long.
        let (on, memory) = (self.clone(), memory.clone());
        self.control.run(move || on.register(&memory));
        None
    }

    fn register(&self, memory: &Arc<Mapping>) {
        let id = memory.region().id();
        let registered = self
            .domain
            .register(&HostMemory::of_mapping(memory), Access::LOCAL_WRITE);
        let now = match registered {
            Ok(registration) => Pool::Registered(Arc::new(registration)),
            Err(error) => {
                tracing::warn!(
                    device = self.name(), %error, bytes = memory.len(),
                    "the buffers of a reactor cannot be registered: data over RDMA are copied once more, until the next connection tries it again"
                );
                Pool::Failed
            }
        };
        if let Some((_, place)) = self.pools().iter_mut().find(|(known, _)| *known == id) {
            *place = now;
        }
        self.pool_changes.fetch_add(1, Ordering::Release);
    }

    /// A connection comes: what could not be registered is tried again.
    fn forget_failures(&self) {
        let mut pools = self.pools();
        let before = pools.len();
        pools.retain(|(_, pool)| !matches!(pool, Pool::Failed));
        if pools.len() < before {
            self.pool_changes.fetch_add(1, Ordering::Release);
        }
    }

    fn pools(&self) -> MutexGuard<'_, Vec<(RegionId, Pool)>> {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
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
    known: Vec<(RegionId, Arc<Registration>)>,
    /// Looked for in vain, when the device's changes were so many.
    missing: Vec<RegionId>,
    changes: u64,
}

impl Pools {
    pub(crate) fn of(on: &Arc<OnDevice>) -> Self {
        on.forget_failures();
        Self {
            on: on.clone(),
            known: Vec::with_capacity(POOLS_EXPECTED),
            missing: Vec::with_capacity(POOLS_EXPECTED),
            changes: 0,
        }
    }

    /// A segment for the device; none where its memory is not registered, or not yet.
    pub(crate) fn entry(&mut self, segment: &Segment<'_>) -> Option<ScatterEntry> {
        let memory = segment.pool_memory()?;
        let id = segment.region();
        if let Some((_, registration)) = self.known.iter().find(|(known, _)| *known == id) {
            return registration.entry_of(segment).ok();
        }
        let changes = self.on.pool_changes.load(Ordering::Acquire);
        if std::mem::replace(&mut self.changes, changes) != changes {
            self.missing.clear();
        }
        if self.missing.contains(&id) {
            return None;
        }
        let Some(registration) = self.on.pool(memory) else {
            self.missing.push(id);
            return None;
        };
        let entry = registration.entry_of(segment).ok();
        self.known.push((id, registration));
        entry
    }
}
