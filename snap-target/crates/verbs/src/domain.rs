//! Protection domains: registered memory, memory windows, and the scatter entries that work requests name memory by.

use std::any::Any;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use reactor::buf::{Mapping, Region, RegionId, Segment};

use crate::backend;
use crate::bytes;
use crate::device::Device;
use crate::error::{Result, VerbsError};
use crate::key::{Access, LKey, RKey};

/// Memory of this process that may be registered, with what keeps it mapped.
///
/// Peers and devices may write registered memory at any time, so nothing here gives a reference to its bytes; they are copied in and out.
#[derive(Clone)]
pub struct HostMemory {
    region: Region,
    /// Held, never looked at: dropping it may unmap the memory.
    _keeper: Arc<dyn Any + Send + Sync>,
}

// SAFETY: a region is an address, a length and a name; who reaches its bytes does so by copies of words, and the keeper may be shared.
unsafe impl Send for HostMemory {}
// SAFETY: as for Send.
unsafe impl Sync for HostMemory {}

impl HostMemory {
    /// A whole mapping: it gives out raw pointers only.
    #[must_use]
    pub fn of_mapping(mapping: &Arc<Mapping>) -> Self {
        Self {
            region: mapping.region(),
            _keeper: mapping.clone(),
        }
    }

    /// Bytes `[offset, offset + len)` of a mapping, under a name of their own; none where they do not all lie in it.
    #[must_use]
    pub fn of_part(mapping: &Arc<Mapping>, offset: usize, len: usize) -> Option<Self> {
        let end = offset.checked_add(len)?;
        let base = mapping.at(offset).filter(|_| end <= mapping.len())?;
        Some(Self {
            region: Region::new(base, len),
            _keeper: mapping.clone(),
        })
    }

    /// Memory of another kind: a pool's, a guest's.
    ///
    /// # Safety
    /// * `keeper` keeps the region mapped, readable and writable for as long as it lives.
    /// * Who makes references to bytes of the region does so only while no device and no peer may change them (`&`) or reach them (`&mut`): no work request that is outstanding
    ///   names them, and no peer knows a key to them. Holding an [`reactor::buf::IoBuf`] of them during a request does that.
    #[must_use]
    pub unsafe fn of_region(region: Region, keeper: impl Any + Send + Sync) -> Self {
        Self {
            region,
            _keeper: Arc::new(keeper),
        }
    }

    /// Bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.region.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.region.is_empty()
    }
}

impl fmt::Debug for HostMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostMemory")
            .field("region", &self.region)
            .finish_non_exhaustive()
    }
}

/// The name of a domain, so that what belongs to different ones is never put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DomainId(u64);

/// A protection domain (InfiniBand spec 10.2.3). Whatever is made in it keeps it alive.
#[derive(Debug)]
pub struct Domain {
    pub(crate) inner: Arc<DomainInner>,
}

#[derive(Debug)]
pub(crate) struct DomainInner {
    pub(crate) id: DomainId,
    use_of: Mutex<Use>,
    // Behind what is registered in it: fields are dropped in order.
    pub(crate) native: Box<dyn backend::Domain>,
    pub(crate) device: Device,
}

#[derive(Debug, Default)]
struct Use {
    queue_pairs: u32,
    /// Registrations whose handles are gone while queue pairs could still touch them.
    retired: Vec<Registered>,
}

impl Domain {
    pub(crate) fn new(device: Device, native: Box<dyn backend::Domain>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let inner = DomainInner {
            id: DomainId(NEXT.fetch_add(1, Ordering::Relaxed)),
            native,
            use_of: Mutex::default(),
            device,
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// The device it belongs to.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.inner.device
    }

    /// Pins the memory and lets the device use it (`ibv_reg_mr(3)`).
    ///
    /// # Errors
    /// [`Access::REMOTE_WRITE`] without [`Access::LOCAL_WRITE`] (InfiniBand spec 10.6.3.1), more bytes than the device can register, or more than may be locked.
    pub fn register(&self, memory: &HostMemory, access: Access) -> Result<Registration> {
        if access.contains(Access::REMOTE_WRITE) && !access.contains(Access::LOCAL_WRITE) {
            return Err(VerbsError::Misuse {
                call: "ibv_reg_mr",
                what: "remote write access needs local write access too",
            });
        }
        let device = &self.inner.device;
        let bytes = memory.len() as u64;
        device.limit(
            "bytes of a registration",
            bytes,
            device.attributes().mr_bytes_max,
        )?;
        // SAFETY: the memory's keeper lies behind the native region in `Registered`, which lets go of it only after it is deregistered.
        let native = unsafe {
            self.inner
                .native
                .register(memory.region.base().as_ptr(), memory.len(), access)
        }?;
        Ok(Registration {
            inner: Arc::new(RegistrationInner {
                registered: ManuallyDrop::new(Registered {
                    native,
                    memory: ManuallyDrop::new(memory.clone()),
                    gone: false,
                }),
                access,
                domain: self.inner.clone(),
            }),
        })
    }

    /// A memory window of type 2B that is bound to nothing (InfiniBand spec 10.6.7.2.2).
    ///
    /// # Errors
    /// The device has no such windows, or no more.
    pub fn allocate_window(&self) -> Result<MemoryWindow> {
        let attributes = self.inner.device.attributes();
        if !attributes.mw_type_2b {
            return Err(VerbsError::Unsupported {
                device: attributes.name.clone(),
                what: "memory windows of type 2B",
            });
        }
        Ok(MemoryWindow {
            native: self.inner.native.allocate_window()?,
            bound: Mutex::new(None),
            domain: self.inner.clone(),
        })
    }

    /// Bytes that stay registered because a queue pair could still touch them, though their registrations were dropped.
    #[must_use]
    pub fn retired_bytes(&self) -> usize {
        let use_of = self.inner.use_of();
        use_of.retired.iter().map(|gone| gone.memory.len()).sum()
    }
}

impl DomainInner {
    fn use_of(&self) -> std::sync::MutexGuard<'_, Use> {
        self.use_of.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn queue_pair_made(&self) {
        self.use_of().queue_pairs += 1;
    }

    /// The last queue pair lets go of what nobody names any more.
    pub(crate) fn queue_pair_gone(&self) {
        let mut use_of = self.use_of();
        use_of.queue_pairs -= 1;
        if use_of.queue_pairs == 0 {
            let retired = std::mem::take(&mut use_of.retired);
            drop(use_of);
            drop(retired);
        }
    }
}

/// Memory that the device knows. Dropping it takes it from the device, then lets go of the memory, in this order.
#[derive(Debug)]
struct Registered {
    native: Box<dyn backend::Region>,
    memory: ManuallyDrop<HostMemory>,
    gone: bool,
}

impl Registered {
    fn deregister(&mut self) -> Result<()> {
        if !self.gone {
            self.native.deregister()?;
            self.gone = true;
        }
        Ok(())
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // Where the device does not let go of the memory it must never be unmapped: better lost than written by a device after it has another owner.
        if self.deregister().is_ok() {
            // SAFETY: dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.memory) };
        }
    }
}

#[derive(Debug)]
pub(crate) struct RegistrationInner {
    registered: ManuallyDrop<Registered>,
    access: Access,
    domain: Arc<DomainInner>,
}

impl Drop for RegistrationInner {
    fn drop(&mut self) {
        // SAFETY: taken once, here.
        let registered = unsafe { ManuallyDrop::take(&mut self.registered) };
        if registered.gone {
            return;
        }
        let mut use_of = self.domain.use_of();
        if use_of.queue_pairs > 0 {
            use_of.retired.push(registered);
        }
        // Otherwise it goes here, and the lock first: nothing of it is needed to deregister.
        else {
            drop(use_of);
            drop(registered);
        }
    }
}

/// Memory that a device may use, in one domain.
///
/// Dropping it is always sound: while queue pairs of its domain exist, the memory stays registered and mapped until the last of them is gone. Who needs the memory back
/// sooner (a guest that unmaps it) calls [`Registration::deregister`].
#[derive(Debug)]
pub struct Registration {
    pub(crate) inner: Arc<RegistrationInner>,
}

impl Registration {
    /// The key for scatter entries.
    #[must_use]
    pub fn lkey(&self) -> LKey {
        self.inner.registered.native.lkey()
    }

    /// The key for peers, as far as [`Access`] lets them.
    #[must_use]
    pub fn rkey(&self) -> RKey {
        self.inner.registered.native.rkey()
    }

    /// What the device may do.
    #[must_use]
    pub fn access(&self) -> Access {
        self.inner.access
    }

    /// Bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.memory().len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The region whose memory it is: [`reactor::buf::Segment`]s know theirs.
    #[must_use]
    pub fn region(&self) -> RegionId {
        self.inner.memory().region.id()
    }

    /// The address that a peer names byte `offset` by.
    ///
    /// # Errors
    /// It lies outside.
    pub fn remote_address(&self, offset: usize) -> Result<u64> {
        Ok(self.inner.range(offset, 0)?.addr().get() as u64)
    }

    /// Bytes `[offset, offset + len)` for a work request.
    ///
    /// # Errors
    /// They lie outside.
    pub fn entry(&self, offset: usize, len: u32) -> Result<ScatterEntry> {
        let at = self.inner.range(offset, len as usize)?;
        Ok(ScatterEntry {
            address: at.addr().get() as u64,
            len,
            lkey: self.lkey(),
            domain: self.inner.domain.id,
        })
    }

    /// A buffer's segment for a work request; the caller keeps the buffer until the request is done.
    ///
    /// # Errors
    /// It lies in other memory.
    pub fn entry_of(&self, segment: &Segment<'_>) -> Result<ScatterEntry> {
        if segment.region() != self.region() {
            return Err(VerbsError::Misuse {
                call: "entry_of",
                what: "the segment lies in memory of another registration",
            });
        }
        let len = u32::try_from(segment.len()).map_err(|_| VerbsError::OutOfBounds {
            offset: segment.region_offset() as u64,
            len: segment.len() as u64,
            registered: self.len() as u64,
        })?;
        self.entry(segment.region_offset(), len)
    }

    /// Copies bytes from `offset` on out of the memory. Where a device writes them meanwhile, `out` gets some of either content.
    ///
    /// # Errors
    /// They lie outside.
    pub fn copy_out(&self, offset: usize, out: &mut [u8]) -> Result<()> {
        let from = self.inner.range(offset, out.len())?;
        // SAFETY: the range is inside memory that its keeper keeps mapped; by the contracts of `HostMemory` nobody has a `&mut` to it.
        unsafe { bytes::load(from.as_ptr(), out) };
        Ok(())
    }

    /// Copies `content` into the memory from `offset` on.
    ///
    /// # Errors
    /// It lies outside.
    pub fn copy_in(&self, offset: usize, content: &[u8]) -> Result<()> {
        let to = self.inner.range(offset, content.len())?;
        // SAFETY: as in `copy_out`; nobody has a reference to it.
        unsafe { bytes::store(to.as_ptr(), content) };
        Ok(())
    }

    /// Takes the memory from the device now. Afterwards the device touches it no more: work requests that name it fail, and so do peers.
    ///
    /// # Errors
    /// A window that was last bound to it exists still, or the device refuses. The registration comes back with the error.
    pub fn deregister(self) -> std::result::Result<(), (Self, VerbsError)> {
        match Arc::try_unwrap(self.inner) {
            Ok(mut inner) => match inner.registered.deregister() {
                Ok(()) => Ok(()),
                Err(error) => {
                    let inner = Arc::new(inner);
                    Err((Self { inner }, error))
                }
            },
            Err(inner) => Err((
                Self { inner },
                VerbsError::Misuse {
                    call: "ibv_dereg_mr",
                    what: "a memory window was bound to it: drop the window first, or bind it elsewhere",
                },
            )),
        }
    }

    pub(crate) fn native(&self) -> backend::Native {
        self.inner.registered.native.native()
    }

    pub(crate) fn domain(&self) -> DomainId {
        self.inner.domain.id
    }
}

impl RegistrationInner {
    fn memory(&self) -> &HostMemory {
        &self.registered.memory
    }

    /// The first byte of a range that lies inside.
    fn range(&self, offset: usize, len: usize) -> Result<NonNull<u8>> {
        let region = &self.memory().region;
        match offset.checked_add(len) {
            // SAFETY: the offset is inside the region, or just behind its last byte.
            Some(end) if end <= region.len() => Ok(unsafe { region.base().add(offset) }),
            _ => Err(VerbsError::OutOfBounds {
                offset: offset as u64,
                len: len as u64,
                registered: region.len() as u64,
            }),
        }
    }
}

/// A run of registered memory for a work request: made by a [`Registration`], inside its bounds.
#[derive(Clone, Copy, Debug)]
pub struct ScatterEntry {
    pub(crate) address: u64,
    pub(crate) len: u32,
    pub(crate) lkey: LKey,
    pub(crate) domain: DomainId,
}

impl ScatterEntry {
    /// Bytes.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// A memory window of type 2B: a key to a part of a registration that its owner gives to a peer and takes back, through a queue pair and for that queue pair alone
/// (InfiniBand spec 10.6.7.2.2). A window whose bind failed, or was flushed, is of no more use.
#[derive(Debug)]
pub struct MemoryWindow {
    // First: a window goes before what it is bound to.
    native: Box<dyn backend::Window>,
    /// What the last bind named: a device does not deregister memory with a window on it.
    bound: Mutex<Option<Arc<RegistrationInner>>>,
    domain: Arc<DomainInner>,
}

impl MemoryWindow {
    /// The key of the bind that was posted last.
    #[must_use]
    pub fn rkey(&self) -> RKey {
        self.native.rkey()
    }

    /// The key that the next bind will make valid: it may stand in a message posted behind the bind.
    #[must_use]
    pub fn next_rkey(&self) -> RKey {
        self.native.rkey().next_tag()
    }

    pub(crate) fn domain(&self) -> DomainId {
        self.domain.id
    }

    pub(crate) fn native(&self) -> backend::Native {
        self.native.native()
    }

    /// A bind to `registration` was posted.
    pub(crate) fn bind_posted(&self, registration: &Registration) {
        self.native.set_rkey(self.next_rkey());
        let before = self
            .bound
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .replace(registration.inner.clone());
        drop(before);
    }
}
