//! librdmacm: event channels and identifiers.

use std::any::Any;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use nix::libc::{AF_INET, AF_INET6};
use reactor::Errno;

use super::device::{self, Device};
use super::library::Calls;
use super::qp::QueuePair;
use super::sys::{self, Sockaddr};
use super::{borrow, checked, last, never_wait};
use crate::backend::{self, Raised, Requested};
use crate::cm::{Agreed, ConnectParameters, EventKind, PrivateData, RejectReason};
use crate::error::{Result, VerbsError};
use crate::key::CmKey;
use crate::queue_pair::QpCapabilities;

pub(super) struct Channel {
    calls: &'static Calls,
    channel: NonNull<sys::EventChannel>,
    /// Taking an event writes to the identifier that it is for; so do calls on an identifier.
    busy: Mutex<()>,
}

// SAFETY: librdmacm's calls may be made by any thread; what they do not lock themselves, `busy` does.
unsafe impl Send for Channel {}
// SAFETY: as for Send.
unsafe impl Sync for Channel {}

impl std::fmt::Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an event channel")
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: its identifiers hold it, so it has none, and every event was acknowledged.
        unsafe { (self.calls.cm.rdma_destroy_event_channel)(self.channel.as_ptr()) };
    }
}

impl Channel {
    pub(super) fn new(calls: &'static Calls) -> Result<Self> {
        // SAFETY: it has no arguments.
        let channel = NonNull::new(unsafe { (calls.cm.rdma_create_event_channel)() });
        let channel = channel.ok_or_else(|| last("rdma_create_event_channel", "the system"))?;
        let channel = Self {
            calls,
            channel,
            busy: Mutex::new(()),
        };
        never_wait(channel.raw_fd(), "an event channel")?;
        Ok(channel)
    }

    fn raw_fd(&self) -> i32 {
        // SAFETY: the channel is open.
        unsafe { self.channel.as_ref() }.fd
    }

    fn busy(&self) -> MutexGuard<'_, ()> {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl backend::Channel for Channel {
    fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel is open as long as this is.
        unsafe { borrow(self.raw_fd()) }
    }

    fn next(&self) -> Result<Option<Raised>> {
        let _busy = self.busy();
        let mut event = ptr::null_mut();
        // SAFETY: the channel is open, and the call fills a pointer.
        if unsafe { (self.calls.cm.rdma_get_cm_event)(self.channel.as_ptr(), &raw mut event) } != 0
        {
            return match Errno::last() {
                Errno::EAGAIN => Ok(None),
                errno => Err(VerbsError::call(
                    "rdma_get_cm_event",
                    "an event channel",
                    errno,
                )),
            };
        }
        // SAFETY: the event is there until it is acknowledged, and its identifiers with it.
        let raised = unsafe { raised(self.calls, &*event) };
        // SAFETY: the event that was just taken, once.
        unsafe { (self.calls.cm.rdma_ack_cm_event)(event) };
        Ok(Some(raised))
    }

    fn create_id(self: Arc<Self>, key: CmKey) -> Result<Box<dyn backend::Id>> {
        let mut id = ptr::null_mut();
        // SAFETY: the channel is open, and the call fills a pointer; the context is a number to us and to nobody else.
        let answer = unsafe {
            (self.calls.cm.rdma_create_id)(
                self.channel.as_ptr(),
                &raw mut id,
                context(key),
                sys::PS_TCP,
            )
        };
        checked(answer, "rdma_create_id", || "an event channel".to_owned())?;
        let id = NonNull::new(id).ok_or_else(|| last("rdma_create_id", "an event channel"))?;
        Ok(Box::new(Id {
            calls: self.calls,
            id,
            device: OnceLock::new(),
            channel: Some(self),
        }))
    }

    fn adopt(self: Arc<Self>, id: &mut dyn backend::Id, key: CmKey) -> Result<()> {
        let Some(id) = id.as_any().downcast_mut::<Id>() else {
            return Err(VerbsError::Misuse {
                call: "rdma_migrate_id",
                what: "the request came from another implementation of verbs",
            });
        };
        // SAFETY: the identifier is there, and only we look at its context.
        unsafe { (*id.id.as_ptr()).context = context(key) };
        // SAFETY: as above; the channel pointer of an identifier that nobody has seen yet does not change.
        if unsafe { id.id.as_ref() }.channel != self.channel.as_ptr() {
            // SAFETY: both are there. Every event of the identifier was acknowledged, so it does not wait.
            let answer =
                unsafe { (self.calls.cm.rdma_migrate_id)(id.id.as_ptr(), self.channel.as_ptr()) };
            checked(answer, "rdma_migrate_id", || id.subject())?;
        }
        id.channel = Some(self);
        Ok(())
    }
}

/// A key as what an identifier carries for us.
#[expect(
    clippy::cast_possible_truncation,
    reason = "64-bit machines: a key fits a pointer"
)]
fn context(key: CmKey) -> *mut std::ffi::c_void {
    ptr::without_provenance_mut(key.0 as usize)
}

/// # Safety
/// The event was taken and is not acknowledged.
unsafe fn raised(calls: &'static Calls, event: &sys::CmEvent) -> Raised {
    // SAFETY: an event's identifier is there until the event is acknowledged.
    let key_of = |id: *mut sys::CmId| CmKey(unsafe { (*id).context }.addr() as u64);
    // SAFETY: the event's private data is there as long as the event.
    let data = || unsafe { private_data(&event.conn) };
    let errno = || Errno::from_raw(event.status.abs());
    let kind = match event.event {
        0 => EventKind::AddressResolved,
        1 => EventKind::AddressError(errno()),
        2 => EventKind::RouteResolved,
        3 => EventKind::RouteError(errno()),
        4 => {
            let Some(id) = NonNull::new(event.id) else {
                return Raised::Event(key_of(event.listen_id), EventKind::Other(4));
            };
            // SAFETY: the identifier is there. librdmacm gives it its listener's context: it is nobody's until it is adopted.
            unsafe { (*id.as_ptr()).context = ptr::null_mut() };
            let requested = Requested {
                id: Box::new(Id {
                    calls,
                    id,
                    device: OnceLock::new(),
                    channel: None,
                }),
                private_data: data(),
                responder_resources: event.conn.responder_resources,
                initiator_depth: event.conn.initiator_depth,
            };
            return Raised::Request(key_of(event.listen_id), requested);
        }
        6 => EventKind::ConnectError(errno()),
        7 => EventKind::Unreachable(errno()),
        8 => EventKind::Rejected(RejectReason::from_wire(event.status), data()),
        9 => EventKind::Established(Agreed {
            private_data: data(),
            responder_resources: event.conn.responder_resources,
            initiator_depth: event.conn.initiator_depth,
        }),
        10 => EventKind::Disconnected,
        11 => EventKind::DeviceRemoval,
        14 => EventKind::AddressChange,
        15 => EventKind::TimewaitExit,
        other => EventKind::Other(other),
    };
    Raised::Event(key_of(event.id), kind)
}

/// # Safety
/// The pointer is null, or there are as many bytes behind it as the length says.
unsafe fn private_data(conn: &sys::ConnParam) -> PrivateData {
    let len = usize::from(conn.private_data_len);
    if conn.private_data.is_null() || len == 0 {
        return PrivateData::new(&[]);
    }
    // SAFETY: by this function's contract; they are copied before it returns.
    PrivateData::new(unsafe { std::slice::from_raw_parts(conn.private_data.cast(), len) })
}

pub(super) struct Id {
    calls: &'static Calls,
    pub(super) id: NonNull<sys::CmId>,
    device: OnceLock<Arc<Device>>,
    /// `None` for a request that is not adopted: its channel is its listener's, which it does not keep.
    channel: Option<Arc<Channel>>,
}

// SAFETY: librdmacm's calls may be made by any thread; what they do not lock themselves, its channel's `busy` does.
unsafe impl Send for Id {}
// SAFETY: as for Send.
unsafe impl Sync for Id {}

impl std::fmt::Debug for Id {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an identifier")
    }
}

impl Drop for Id {
    fn drop(&mut self) {
        // SAFETY: its queue pair holds it, so it has none; every event was acknowledged, so this does not wait.
        unsafe { (self.calls.cm.rdma_destroy_id)(self.id.as_ptr()) };
    }
}

impl Id {
    fn busy(&self) -> Option<MutexGuard<'_, ()>> {
        self.channel.as_ref().map(|channel| channel.busy())
    }

    /// What an error is about: the peer where it is known, else our own address.
    fn subject(&self) -> String {
        let address = self.address(false).or_else(|| self.address(true));
        address.map_or_else(|| "an identifier".to_owned(), |address| address.to_string())
    }

    fn address(&self, own: bool) -> Option<SocketAddr> {
        // SAFETY: the identifier is there; whoever changes its addresses holds `busy`, as our callers do.
        let id = unsafe { self.id.as_ref() };
        from_sockaddr(if own { &id.src_addr } else { &id.dst_addr })
    }

    /// A call on the identifier, alone.
    fn call(&self, call: &'static str, run: impl FnOnce(*mut sys::CmId) -> i32) -> Result<()> {
        let _busy = self.busy();
        let answer = run(self.id.as_ptr());
        if answer == 0 {
            return Ok(());
        }
        let errno = Errno::last();
        Err(VerbsError::call(call, self.subject(), errno))
    }

    fn param(parameters: &ConnectParameters<'_>) -> sys::ConnParam {
        sys::ConnParam {
            private_data: parameters.private_data.as_ptr().cast(),
            private_data_len: u8::try_from(parameters.private_data.len()).unwrap_or(0),
            responder_resources: parameters.responder_resources,
            initiator_depth: parameters.initiator_depth,
            flow_control: 1,
            retry_count: parameters.retry_count,
            rnr_retry_count: parameters.rnr_retry_count,
            srq: 0,
            qp_num: 0,
        }
    }

    fn bound(&self) -> Result<Option<&Arc<Device>>> {
        if let Some(device) = self.device.get() {
            return Ok(Some(device));
        }
        let _busy = self.busy();
        // SAFETY: the identifier is there; its device is set under `busy`.
        let context = unsafe { self.id.as_ref() }.verbs;
        if context.is_null() {
            return Ok(None);
        }
        let device = device::of_context(self.calls, context)?;
        Ok(Some(self.device.get_or_init(|| device)))
    }
}

impl backend::Id for Id {
    fn resolve_address(
        &self,
        source: Option<SocketAddr>,
        destination: SocketAddr,
        timeout: Duration,
    ) -> Result<()> {
        let mut source = source.map(to_sockaddr);
        let mut to = to_sockaddr(destination);
        let timeout_ms = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
        let source = source
            .as_mut()
            .map_or(ptr::null_mut(), |source| ptr::from_mut(source).cast());
        let done = self.call("rdma_resolve_addr", |id| {
            // SAFETY: the identifier is there; both addresses are as long as any, and are copied.
            unsafe {
                (self.calls.cm.rdma_resolve_addr)(id, source, (&raw mut to).cast(), timeout_ms)
            }
        });
        // The identifier may not know the address yet.
        done.map_err(|error| about(error, destination))
    }

    fn resolve_route(&self, timeout: Duration) -> Result<()> {
        let timeout_ms = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
        self.call("rdma_resolve_route", |id| {
            // SAFETY: the identifier is there.
            unsafe { (self.calls.cm.rdma_resolve_route)(id, timeout_ms) }
        })
    }

    fn listen(&self, at: SocketAddr, backlog: u32) -> Result<()> {
        let mut address = to_sockaddr(at);
        let bound = self.call("rdma_bind_addr", |id| {
            // SAFETY: the identifier is there; the address is as long as any, and is copied.
            unsafe { (self.calls.cm.rdma_bind_addr)(id, (&raw mut address).cast()) }
        });
        bound.map_err(|error| about(error, at))?;
        let backlog = i32::try_from(backlog).unwrap_or(i32::MAX);
        let listens = self.call("rdma_listen", |id| {
            // SAFETY: the identifier is there.
            unsafe { (self.calls.cm.rdma_listen)(id, backlog) }
        });
        listens.map_err(|error| about(error, at))
    }

    fn connect(&self, parameters: &ConnectParameters<'_>) -> Result<()> {
        let mut param = Self::param(parameters);
        self.call("rdma_connect", |id| {
            // SAFETY: the identifier is there; the private data is as long as it says, and is copied.
            unsafe { (self.calls.cm.rdma_connect)(id, &raw mut param) }
        })
    }

    fn accept(&self, parameters: &ConnectParameters<'_>) -> Result<()> {
        let mut param = Self::param(parameters);
        self.call("rdma_accept", |id| {
            // SAFETY: as for connect.
            unsafe { (self.calls.cm.rdma_accept)(id, &raw mut param) }
        })
    }

    fn reject(&self, private_data: &[u8]) -> Result<()> {
        let len = u8::try_from(private_data.len()).unwrap_or(0);
        self.call("rdma_reject", |id| {
            // SAFETY: the identifier is there; the private data is as long as it says, and is copied.
            unsafe { (self.calls.cm.rdma_reject)(id, private_data.as_ptr().cast(), len) }
        })
    }

    fn disconnect(&self) -> Result<()> {
        self.call("rdma_disconnect", |id| {
            // SAFETY: the identifier is there.
            unsafe { (self.calls.cm.rdma_disconnect)(id) }
        })
    }

    fn local_address(&self) -> Option<SocketAddr> {
        let _busy = self.busy();
        self.address(true)
    }

    fn peer_address(&self) -> Option<SocketAddr> {
        let _busy = self.busy();
        self.address(false)
    }

    fn device(&self) -> Result<Option<Arc<dyn backend::Device>>> {
        let device = self.bound()?;
        Ok(device.map(|device| device.clone() as Arc<dyn backend::Device>))
    }

    fn create_queue_pair(
        &self,
        domain: &dyn backend::Domain,
        send: &dyn backend::CompletionQueue,
        receive: &dyn backend::CompletionQueue,
        asked: &QpCapabilities,
    ) -> Result<(Box<dyn backend::QueuePair>, QpCapabilities)> {
        let mut init = sys::QpInitAttr {
            qp_context: ptr::null_mut(),
            send_cq: send.native().cast(),
            recv_cq: receive.native().cast(),
            srq: ptr::null_mut(),
            cap: sys::QpCap {
                max_send_wr: asked.send_wr_max,
                max_recv_wr: asked.recv_wr_max,
                max_send_sge: asked.send_sge_max,
                max_recv_sge: asked.recv_sge_max,
                max_inline_data: asked.inline_bytes_max,
            },
            qp_type: sys::QPT_RC,
            sq_sig_all: 0,
        };
        self.call("rdma_create_qp", |id| {
            // SAFETY: the front has checked that domain and queues are of this implementation and of the identifier's device; the queue pair's owner keeps them.
            unsafe { (self.calls.cm.rdma_create_qp)(id, domain.native().cast(), &raw mut init) }
        })?;
        let capabilities = QpCapabilities {
            send_wr_max: init.cap.max_send_wr,
            recv_wr_max: init.cap.max_recv_wr,
            send_sge_max: init.cap.max_send_sge,
            recv_sge_max: init.cap.max_recv_sge,
            inline_bytes_max: init.cap.max_inline_data,
        };
        // SAFETY: the call has set it.
        let qp = NonNull::new(unsafe { self.id.as_ref() }.qp);
        let qp =
            qp.ok_or_else(|| VerbsError::call("rdma_create_qp", self.subject(), Errno::EIO))?;
        let queue_pair = QueuePair::new(self.calls, qp, self.id, &capabilities);
        Ok((Box::new(queue_pair), capabilities))
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

/// The error with this address in it.
fn about(error: VerbsError, address: SocketAddr) -> VerbsError {
    match error {
        VerbsError::Call { call, errno, .. } => VerbsError::call(call, address.to_string(), errno),
        other => other,
    }
}

/// `struct sockaddr_in` or `struct sockaddr_in6`.
fn to_sockaddr(address: SocketAddr) -> Sockaddr {
    let mut out = [0; 128];
    #[expect(
        clippy::cast_possible_truncation,
        reason = "address families are small numbers"
    )]
    let family = if address.is_ipv4() {
        AF_INET as u16
    } else {
        AF_INET6 as u16
    };
    out[0..2].copy_from_slice(&family.to_ne_bytes());
    out[2..4].copy_from_slice(&address.port().to_be_bytes());
    match address {
        SocketAddr::V4(v4) => out[4..8].copy_from_slice(&v4.ip().octets()),
        SocketAddr::V6(v6) => {
            out[4..8].copy_from_slice(&v6.flowinfo().to_be_bytes());
            out[8..24].copy_from_slice(&v6.ip().octets());
            out[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
        }
    }
    Sockaddr(out)
}

fn from_sockaddr(Sockaddr(bytes): &Sockaddr) -> Option<SocketAddr> {
    let family = i32::from(u16::from_ne_bytes([bytes[0], bytes[1]]));
    let port = u16::from_be_bytes([bytes[2], bytes[3]]);
    let ip = match family {
        AF_INET => IpAddr::from(<[u8; 4]>::try_from(&bytes[4..8]).ok()?),
        AF_INET6 => IpAddr::from(<[u8; 16]>::try_from(&bytes[8..24]).ok()?),
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use std::mem::{offset_of, size_of};

    use nix::libc::{sockaddr_in, sockaddr_in6, sockaddr_storage};

    use super::*;

    #[test]
    fn addresses_are_laid_out_as_the_c_library_has_them() {
        assert_eq!(size_of::<Sockaddr>(), size_of::<sockaddr_storage>());
        let v4 = to_sockaddr("10.1.2.3:4420".parse().unwrap()).0;
        assert_eq!(v4[offset_of!(sockaddr_in, sin_port)..][..2], [0x11, 0x44]);
        assert_eq!(v4[offset_of!(sockaddr_in, sin_addr)..][..4], [10, 1, 2, 3]);
        let v6 = to_sockaddr("[fd00::1:2%7]:65535".parse().unwrap()).0;
        assert_eq!(v6[offset_of!(sockaddr_in6, sin6_port)..][..2], [0xff, 0xff]);
        assert_eq!(
            v6[offset_of!(sockaddr_in6, sin6_addr)..][..16],
            [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 2]
        );
        assert_eq!(
            v6[offset_of!(sockaddr_in6, sin6_scope_id)..][..4],
            7_u32.to_ne_bytes()
        );
        for text in ["10.1.2.3:4420", "[fd00::1:2]:65535", "0.0.0.0:0"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(from_sockaddr(&to_sockaddr(address)), Some(address));
        }
        assert_eq!(from_sockaddr(&Sockaddr([0; 128])), None);
    }
}
