//! A guest's memory as its monitor describes it.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use guest_memory::{Access, Loss, Quota, Shared, Window, Windows};
use rustix::event::{EventfdFlags, eventfd};
use vhost_user::MemoryRegion;

use crate::error::SessionError;
use crate::limits::{CLIENT_MAPPINGS_MAX, MEMORY_REGIONS_MAX};

/// All regions at one moment, mapped. A change makes another one.
#[derive(Clone, Debug)]
pub(crate) struct GuestMap {
    pub(crate) windows: Arc<Windows>,
    regions: Vec<Mapped>,
    gone: Arc<Gone>,
}

/// A region that is mapped.
#[derive(Clone, Debug)]
struct Mapped {
    region: MemoryRegion,
    /// Device and inode of its file.
    file: (u64, u64),
    window: Window,
    name: u64,
}

/// Regions that are in a table no longer, until nothing touches them.
#[derive(Debug)]
#[must_use = "their memory may be in use until this says that it is not"]
pub(crate) struct Going {
    names: Vec<u64>,
    gone: Arc<Gone>,
}

/// What is told where memory of a client is lost, and the bell that it rings.
pub(crate) fn loss() -> io::Result<(Arc<Loss>, OwnedFd)> {
    let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    Ok((Arc::new(Loss::told_by(bell.try_clone()?)), bell))
}

impl GuestMap {
    /// Nothing yet, of a client.
    pub(crate) fn of_client(loss: Arc<Loss>) -> Self {
        Self::nothing(Arc::new(Gone::new(loss)))
    }

    fn nothing(gone: Arc<Gone>) -> Self {
        Self {
            windows: Arc::new(Windows::of(gone.loss.clone())),
            regions: Vec::new(),
            gone,
        }
    }

    /// What says whether memory of the connection is lost.
    pub(crate) fn loss(&self) -> &Arc<Loss> {
        &self.gone.loss
    }

    /// These regions, whichever there were. One that stays as it was keeps its mapping: what is in flight there need not end.
    pub(crate) fn of(&self, given: &[(MemoryRegion, OwnedFd)]) -> Result<Self, SessionError> {
        let nothing = Self::nothing(self.gone.clone());
        given.iter().try_fold(nothing, |map, (region, file)| {
            let identity = identity(file)?;
            let is_it = |it: &&Mapped| it.region == *region && it.file == identity;
            match self.regions.iter().find(is_it) {
                Some(known) => map.plus(known.clone()),
                None => map.with(*region, file),
            }
        })
    }

    /// These and one more.
    pub(crate) fn with(&self, region: MemoryRegion, file: &OwnedFd) -> Result<Self, SessionError> {
        let mapped = self.map(region, file)?;
        self.plus(mapped)
    }

    /// These without one.
    pub(crate) fn without(&self, region: &MemoryRegion) -> Result<Self, SessionError> {
        let (windows, _) = self.windows.without(region.guest_address, region.bytes)?;
        let mut regions = self.regions.clone();
        regions.retain(|it| it.region.guest_address != region.guest_address);
        Ok(Self {
            windows: Arc::new(windows),
            regions,
            gone: self.gone.clone(),
        })
    }

    /// What the next table no longer has.
    pub(crate) fn going(&self, next: &Self) -> Going {
        let stays = |mapped: &&Mapped| next.regions.iter().any(|it| it.name == mapped.name);
        let going = self.regions.iter().filter(|mapped| !stays(mapped));
        Going {
            names: going.map(|mapped| mapped.name).collect(),
            gone: self.gone.clone(),
        }
    }

    /// The guest's address of a byte that its monitor names.
    pub(crate) fn guest_address(&self, user_address: u64) -> Option<u64> {
        let regions = self.regions.iter().map(|it| &it.region);
        let inside = |region: &&MemoryRegion| {
            let offset = user_address.checked_sub(region.user_address);
            offset.is_some_and(|offset| offset < region.bytes)
        };
        let region = regions.into_iter().find(inside)?;
        Some(region.guest_address + (user_address - region.user_address))
    }

    fn plus(&self, mapped: Mapped) -> Result<Self, SessionError> {
        let windows = self
            .windows
            .with(mapped.window.clone(), MEMORY_REGIONS_MAX)?;
        let mut regions = self.regions.clone();
        regions.push(mapped);
        Ok(Self {
            windows: Arc::new(windows),
            regions,
            gone: self.gone.clone(),
        })
    }

    fn map(&self, region: MemoryRegion, file: &OwnedFd) -> Result<Mapped, SessionError> {
        let MemoryRegion {
            guest_address: address,
            bytes,
            user_address,
            file_offset,
        } = region;
        if user_address.checked_add(bytes).is_none() || address.checked_add(bytes).is_none() {
            return Err(SessionError::Region { address, bytes });
        }
        let taken = guest_memory::mapped_bytes(file, file_offset, bytes)?;
        let charge = self.gone.quota.charge(taken)?;
        let (name, farewell) = self.gone.next();
        let keeper = (charge, farewell);
        let loss = self.loss().clone();
        let memory = Shared::map(file, file_offset, bytes, Access::BOTH, loss, keeper)?;
        if !memory.keeps_length() {
            self.gone.warn_of_length();
        }
        Ok(Mapped {
            region,
            file: identity(file)?,
            window: Window {
                address,
                size: bytes,
                access: Access::BOTH,
                memory: Some(Arc::new(memory)),
            },
            name,
        })
    }
}

impl Going {
    /// Waits until their memory is unmapped, at most so long; whether it is. Whoever waits must not hold a table that has them.
    #[must_use]
    pub(crate) fn wait(&self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        let mut state = self.gone.lock();
        while self.names.iter().any(|name| state.mapped.contains(name)) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.gone.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

/// Which mappings there are of a connection's.
#[derive(Debug)]
struct Gone {
    quota: Quota,
    loss: Arc<Loss>,
    state: Mutex<State>,
    changed: Condvar,
    has_warned: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    mapped: Vec<u64>,
}

impl Gone {
    fn new(loss: Arc<Loss>) -> Self {
        Self {
            quota: Quota::new(CLIENT_MAPPINGS_MAX),
            loss,
            state: Mutex::default(),
            changed: Condvar::default(),
            has_warned: AtomicBool::default(),
        }
    }
}

impl Gone {
    fn next(self: &Arc<Self>) -> (u64, Farewell) {
        let mut state = self.lock();
        let name = state.next;
        state.next += 1;
        state.mapped.push(name);
        (name, Farewell(name, self.clone()))
    }

    /// Once a connection.
    fn warn_of_length(&self) {
        if !self.has_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "a guest's memory is a file that its monitor can make shorter, and the guest loses its disk if it does: give the guest a memory-backend-memfd, which is sealed against that"
            );
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Dropped when the memory is unmapped.
#[derive(Debug)]
struct Farewell(u64, Arc<Gone>);

impl Drop for Farewell {
    fn drop(&mut self) {
        self.1.lock().mapped.retain(|name| *name != self.0);
        self.1.changed.notify_all();
    }
}

fn identity(file: &OwnedFd) -> Result<(u64, u64), SessionError> {
    let status = rustix::fs::fstat(file).map_err(|error| SessionError::System {
        what: "looking at a file of guest memory",
        source: io::Error::from(error),
    })?;
    Ok((status.st_dev, status.st_ino))
}
