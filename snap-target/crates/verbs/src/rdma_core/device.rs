//! Devices, protection domains, registrations and windows of libibverbs.

use std::ffi::{CStr, c_void};
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use reactor::Errno;

use super::cq::CompletionQueue;
use super::library::Calls;
use super::sys;
use super::{borrow, last, never_wait, numbered};
use crate::attributes::{DeviceAttributes, GidEntry, GidKind};
use crate::backend::{self, Native};
use crate::device::AsyncEvent;
use crate::error::{Result, VerbsError};
use crate::key::{Access, Gid, LKey, QpNumber, RKey};
use crate::limits::{DEVICES_MAX, GIDS_MAX};

/// A list of open devices; while it is held, librdmacm closes none of them.
pub(super) struct List {
    calls: &'static Calls,
    list: NonNull<*mut sys::Context>,
}

// SAFETY: the list is never changed, and its calls lock.
unsafe impl Send for List {}
// SAFETY: as for Send.
unsafe impl Sync for List {}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: it came from rdma_get_devices, and is given back once.
        unsafe { (self.calls.cm.rdma_free_devices)(self.list.as_ptr()) };
    }
}

pub(super) struct Device {
    calls: &'static Calls,
    pub(super) context: NonNull<sys::Context>,
    attributes: DeviceAttributes,
    with_inv: u32,
    /// Keeps the context open.
    _list: Arc<List>,
}

// SAFETY: libibverbs' calls on one context may be made by any thread.
unsafe impl Send for Device {}
// SAFETY: as for Send.
unsafe impl Sync for Device {}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.attributes.name)
    }
}

pub(super) fn list(calls: &'static Calls) -> Result<Vec<Arc<dyn backend::Device>>> {
    let devices = open_devices(calls)?;
    Ok(devices
        .into_iter()
        .map(|device| device as Arc<dyn backend::Device>)
        .collect())
}

/// The device that an identifier is bound to.
pub(super) fn of_context(calls: &'static Calls, context: *mut sys::Context) -> Result<Arc<Device>> {
    let mut devices = open_devices(calls)?.into_iter();
    devices
        .find(|device| device.context.as_ptr() == context)
        .ok_or_else(|| {
            VerbsError::call("rdma_get_devices", "the identifier's device", Errno::ENODEV)
        })
}

fn open_devices(calls: &'static Calls) -> Result<Vec<Arc<Device>>> {
    let mut count = 0;
    // SAFETY: it writes the count, and gives a list that ends with a null pointer.
    let Some(list) = NonNull::new(unsafe { (calls.cm.rdma_get_devices)(&raw mut count) }) else {
        return match Errno::last() {
            // No RDMA in the kernel: no device.
            Errno::ENOENT | Errno::ENODEV | Errno::ENOSYS => Ok(Vec::new()),
            errno => Err(VerbsError::call("rdma_get_devices", "the system", errno)),
        };
    };
    let list = Arc::new(List { calls, list });
    let count = usize::try_from(count).unwrap_or(0).min(DEVICES_MAX);
    let contexts = (0..count).filter_map(|at| {
        // SAFETY: the list has as many entries as it says.
        NonNull::new(unsafe { *list.list.as_ptr().add(at) })
    });
    contexts
        .map(|context| Device::open(calls, context, &list))
        .collect()
}

impl Device {
    fn open(
        calls: &'static Calls,
        context: NonNull<sys::Context>,
        list: &Arc<List>,
    ) -> Result<Arc<Self>> {
        // SAFETY: the list keeps the context open, and a context has a device, whose name ends with a zero and lives as long.
        let name =
            unsafe { CStr::from_ptr((calls.verbs.ibv_get_device_name)(context.as_ref().device)) };
        let name = name.to_string_lossy().into_owned();
        // SAFETY: a structure of numbers, for which zeros are values.
        let mut attr: sys::DeviceAttr = unsafe { std::mem::zeroed() };
        // SAFETY: the context is open, and `attr` is the structure that the call fills.
        let answer = unsafe { (calls.verbs.ibv_query_device)(context.as_ptr(), &raw mut attr) };
        numbered(answer, "ibv_query_device", || name.clone())?;
        // SAFETY: the context is open.
        never_wait(unsafe { context.as_ref() }.async_fd, "the device's events")?;
        Ok(Arc::new(Self {
            calls,
            context,
            attributes: attributes(name, &attr),
            with_inv: with_inv(attr.vendor_id),
            _list: list.clone(),
        }))
    }

    fn name(&self) -> String {
        self.attributes.name.clone()
    }
}

/// The flag by which a receive says that the peer invalidated a key of ours. Soft-RoCE's kernel driver writes the kernel's own value of the flag into the queue that it shares
/// with its provider, which hands it on as it is (seen with Linux 6.12 and rdma-core 56); the rest of the entry is right.
fn with_inv(vendor_id: u32) -> u32 {
    const RXE_VENDOR_ID: u32 = 0x00ff_ffff;
    const KERNEL_WITH_INVALIDATE: u32 = 1 << 2;
    if vendor_id == RXE_VENDOR_ID {
        KERNEL_WITH_INVALIDATE
    } else {
        sys::WC_WITH_INV
    }
}

fn attributes(name: String, attr: &sys::DeviceAttr) -> DeviceAttributes {
    // What the kernel has as a signed number is never negative.
    let count = |value: i32| u32::try_from(value).unwrap_or(0);
    let depth = |value: i32| u8::try_from(value.clamp(0, 255)).unwrap_or(u8::MAX);
    let flags = attr.device_cap_flags;
    DeviceAttributes {
        name,
        ports: attr.phys_port_cnt,
        qp_max: count(attr.max_qp),
        qp_wr_max: count(attr.max_qp_wr),
        sge_max: count(attr.max_sge),
        sge_rd_max: count(attr.max_sge_rd),
        cq_max: count(attr.max_cq),
        cqe_max: count(attr.max_cqe),
        mr_max: count(attr.max_mr),
        mr_bytes_max: attr.max_mr_size,
        mw_max: count(attr.max_mw),
        qp_rd_atom_max: depth(attr.max_qp_rd_atom),
        qp_init_rd_atom_max: depth(attr.max_qp_init_rd_atom),
        mw_type_2b: flags & sys::DEVICE_MEM_WINDOW_TYPE_2B != 0,
        invalidate: flags & sys::DEVICE_MEM_MGT_EXTENSIONS != 0
            || flags & sys::DEVICE_MEM_WINDOW_TYPE_2B != 0,
    }
}

impl backend::Device for Device {
    fn identity(&self) -> usize {
        self.context.addr().get()
    }

    fn attributes(&self) -> &DeviceAttributes {
        &self.attributes
    }

    fn gids(&self) -> Result<Vec<GidEntry>> {
        let mut table = vec![sys::GidEntry::default(); GIDS_MAX];
        // SAFETY: the table has the length and the entry size that are said.
        let count = unsafe {
            (self.calls.verbs._ibv_query_gid_table)(
                self.context.as_ptr(),
                table.as_mut_ptr(),
                table.len(),
                0,
                size_of::<sys::GidEntry>(),
            )
        };
        let Ok(count) = usize::try_from(count) else {
            let errno = Errno::from_raw(i32::try_from(-count).unwrap_or(0));
            return Err(VerbsError::call("ibv_query_gid_table", self.name(), errno));
        };
        let entry = |entry: &sys::GidEntry| GidEntry {
            gid: Gid(entry.gid),
            index_z: entry.gid_index,
            port: entry.port_num,
            kind: match entry.gid_type {
                0 => GidKind::Ib,
                1 => GidKind::RoceV1,
                2 => GidKind::RoceV2,
                other => GidKind::Other(other),
            },
        };
        Ok(table.iter().take(count).map(entry).collect())
    }

    fn async_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the context is open as long as this is.
        unsafe { borrow(self.context.as_ref().async_fd) }
    }

    fn next_async_event(&self) -> Result<Option<AsyncEvent>> {
        let mut event = sys::AsyncEvent {
            element: ptr::null_mut(),
            event_type: 0,
        };
        // SAFETY: the context is open, and `event` is what the call fills.
        if unsafe { (self.calls.verbs.ibv_get_async_event)(self.context.as_ptr(), &raw mut event) }
            != 0
        {
            return match Errno::last() {
                Errno::EAGAIN => Ok(None),
                errno => Err(VerbsError::call("ibv_get_async_event", self.name(), errno)),
            };
        }
        // SAFETY: an object with an event that is not acknowledged is not destroyed: its destruction waits.
        let told = unsafe { async_event(&event) };
        // SAFETY: the event that was just taken, once.
        unsafe { (self.calls.verbs.ibv_ack_async_event)(&raw mut event) };
        Ok(Some(told))
    }

    fn allocate_domain(&self) -> Result<Box<dyn backend::Domain>> {
        // SAFETY: the context is open.
        let pd = unsafe { (self.calls.verbs.ibv_alloc_pd)(self.context.as_ptr()) };
        let pd = NonNull::new(pd).ok_or_else(|| last("ibv_alloc_pd", self.name()))?;
        Ok(Box::new(Domain {
            calls: self.calls,
            pd,
            device: self.name(),
        }))
    }

    fn create_completion_queue(
        &self,
        entries: u32,
    ) -> Result<(Box<dyn backend::CompletionQueue>, u32)> {
        let queue = CompletionQueue::create(
            self.calls,
            self.context,
            entries,
            self.name(),
            self.with_inv,
        )?;
        let entries = queue.entries();
        Ok((Box::new(queue), entries))
    }
}

/// # Safety
/// The event was taken and is not acknowledged.
unsafe fn async_event(event: &sys::AsyncEvent) -> AsyncEvent {
    let qp = || {
        // SAFETY: events of these kinds name a queue pair, which exists until they are acknowledged.
        QpNumber(unsafe { (*event.element.cast::<sys::Qp>()).qp_num })
    };
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the union's first four bytes, on a little-endian machine"
    )]
    let port = event.element.addr() as u32;
    match event.event_type {
        0 => AsyncEvent::CompletionQueueError,
        1 => AsyncEvent::QueuePairFatal(qp()),
        2 => AsyncEvent::QueuePairRequestError(qp()),
        3 => AsyncEvent::QueuePairAccessError(qp()),
        4 => AsyncEvent::CommunicationEstablished(qp()),
        8 => AsyncEvent::DeviceFatal,
        9 => AsyncEvent::PortActive(port),
        10 => AsyncEvent::PortError(port),
        18 => AsyncEvent::GidChange(port),
        other => AsyncEvent::Other(other),
    }
}

struct Domain {
    calls: &'static Calls,
    pd: NonNull<sys::Pd>,
    device: String,
}

// SAFETY: libibverbs' calls on a domain may be made by any thread.
unsafe impl Send for Domain {}
// SAFETY: as for Send.
unsafe impl Sync for Domain {}

impl std::fmt::Debug for Domain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a domain of {}", self.device)
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: whatever was made in it holds it, so it is empty; where the kernel knows of something left, the domain stays with it.
        unsafe { (self.calls.verbs.ibv_dealloc_pd)(self.pd.as_ptr()) };
    }
}

impl backend::Domain for Domain {
    unsafe fn register(
        &self,
        base: *mut u8,
        len: usize,
        access: Access,
    ) -> Result<Box<dyn backend::Region>> {
        let access = i32::try_from(access.bits()).unwrap_or(0);
        // SAFETY: by the trait's contract the memory is there and stays.
        let mr = unsafe {
            (self.calls.verbs.ibv_reg_mr)(self.pd.as_ptr(), base.cast::<c_void>(), len, access)
        };
        let mr = NonNull::new(mr)
            .ok_or_else(|| last("ibv_reg_mr", format!("{} ({len} bytes)", self.device)))?;
        Ok(Box::new(Region {
            calls: self.calls,
            mr,
            device: self.device.clone(),
        }))
    }

    fn allocate_window(&self) -> Result<Box<dyn backend::Window>> {
        // SAFETY: the domain's context is open.
        let alloc = unsafe { (*self.pd.as_ref().context).ops.alloc_mw };
        let unsupported =
            || VerbsError::call("ibv_alloc_mw", self.device.clone(), Errno::EOPNOTSUPP);
        let alloc = alloc.ok_or_else(unsupported)?;
        // SAFETY: the domain is there.
        let mw = NonNull::new(unsafe { alloc(self.pd.as_ptr(), sys::MW_TYPE_2) });
        let mw = mw.ok_or_else(|| last("ibv_alloc_mw", self.device.clone()))?;
        Ok(Box::new(Window { mw }))
    }

    fn native(&self) -> Native {
        self.pd.as_ptr().cast()
    }
}

struct Region {
    calls: &'static Calls,
    mr: NonNull<sys::Mr>,
    device: String,
}

// SAFETY: the structure is only read, and its call locks.
unsafe impl Send for Region {}
// SAFETY: as for Send.
unsafe impl Sync for Region {}

impl std::fmt::Debug for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a registration of {}", self.device)
    }
}

impl backend::Region for Region {
    fn lkey(&self) -> LKey {
        // SAFETY: the front asks for keys only while it is registered.
        LKey(unsafe { self.mr.as_ref() }.lkey)
    }

    fn rkey(&self) -> RKey {
        // SAFETY: as for the lkey.
        RKey(unsafe { self.mr.as_ref() }.rkey)
    }

    fn native(&self) -> Native {
        self.mr.as_ptr().cast()
    }

    fn deregister(&self) -> Result<()> {
        // SAFETY: the front calls it until it succeeds once, and never touches the region afterwards.
        let answer = unsafe { (self.calls.verbs.ibv_dereg_mr)(self.mr.as_ptr()) };
        numbered(answer, "ibv_dereg_mr", || self.device.clone())
    }
}

struct Window {
    mw: NonNull<sys::Mw>,
}

// SAFETY: one thread at a time has it.
unsafe impl Send for Window {}

impl std::fmt::Debug for Window {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a memory window")
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: the window is there, and its domain, and so its context; it goes once.
        unsafe {
            if let Some(dealloc) = (*self.mw.as_ref().context).ops.dealloc_mw {
                dealloc(self.mw.as_ptr());
            }
        }
    }
}

impl backend::Window for Window {
    fn rkey(&self) -> RKey {
        // SAFETY: the window is there.
        RKey(unsafe { self.mw.as_ref() }.rkey)
    }

    fn set_rkey(&self, rkey: RKey) {
        // SAFETY: the window is there, and one thread at a time has it. A provider reads the field for the next bind, and leaves it to us for windows of type 2
        // (`ibv_bind_mw(3)`).
        unsafe { (*self.mw.as_ptr()).rkey = rkey.0 };
    }

    fn native(&self) -> Native {
        self.mw.as_ptr().cast()
    }
}
