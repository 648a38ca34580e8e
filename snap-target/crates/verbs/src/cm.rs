//! The connection manager: how queue pairs find each other (`rdma_cm(7)`; InfiniBand spec chapter 12 and annex A11).

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use reactor::Errno;

use crate::backend;
use crate::completion::CompletionQueue;
use crate::device::Device;
use crate::domain::Domain;
use crate::error::{Result, VerbsError};
use crate::key::CmKey;
use crate::limits::{
    ACCEPT_DATA_BYTES_MAX, BACKLOG_MAX, CONNECT_DATA_BYTES_MAX, INLINE_BYTES_MAX,
    REJECT_DATA_BYTES_MAX, RESOLVE_TIMEOUT_MAX, RETRY_COUNT_MAX, RNR_RETRY_ENDLESS,
    SCATTER_ENTRIES_MAX, WORK_REQUESTS_MAX,
};
use crate::queue_pair::{Counted, QpCapabilities, QueuePair};

/// What a connect or an accept asks for.
#[derive(Clone, Copy, Debug)]
pub struct ConnectParameters<'a> {
    /// Bytes for the peer: at most [`CONNECT_DATA_BYTES_MAX`], or [`ACCEPT_DATA_BYTES_MAX`].
    pub private_data: &'a [u8],
    /// RDMA Reads of the peer that may be in progress here (IRD).
    pub responder_resources: u8,
    /// RDMA Reads of ours that may be in progress at the peer (ORD). An accept must not ask for more than the request's `responder_resources`.
    pub initiator_depth: u8,
    /// Retries when an acknowledgement is lost, for both ends; the connecting end says it.
    pub retry_count: u8,
    /// Retries of the *peer* when it finds no receive posted here (`rdma_connect(3)`); [`RNR_RETRY_ENDLESS`] is without end.
    pub rnr_retry_count: u8,
}

impl Default for ConnectParameters<'_> {
    fn default() -> Self {
        Self {
            private_data: &[],
            responder_resources: 1,
            initiator_depth: 1,
            retry_count: RETRY_COUNT_MAX,
            rnr_retry_count: RNR_RETRY_ENDLESS,
        }
    }
}

/// Private data as it arrived. On InfiniBand and RoCE the field has a fixed length: behind what the peer gave come zeros.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PrivateData {
    bytes: [u8; ACCEPT_DATA_BYTES_MAX],
    len: u8,
}

impl PrivateData {
    pub(crate) fn new(given: &[u8]) -> Self {
        let len = given.len().min(ACCEPT_DATA_BYTES_MAX);
        let mut bytes = [0; ACCEPT_DATA_BYTES_MAX];
        bytes[..len].copy_from_slice(&given[..len]);
        #[expect(clippy::cast_possible_truncation, reason = "at most 196")]
        let len = len as u8;
        Self { bytes, len }
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl std::fmt::Debug for PrivateData {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.len)
    }
}

/// Why a connect was refused (InfiniBand spec 12.6.7.2; the values of `enum ib_cm_rej_reason`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectReason {
    /// 8: nobody listens there.
    NoListener,
    /// 28: the listener's program said no; its private data says why.
    Consumer,
    /// 10: the connection is stale: the peer still has an earlier one with the same queue pair.
    Stale,
    /// Another one, by its number.
    Other(i32),
}

impl RejectReason {
    pub(crate) fn from_wire(reason: i32) -> Self {
        match reason {
            8 => Self::NoListener,
            10 => Self::Stale,
            28 => Self::Consumer,
            other => Self::Other(other),
        }
    }
}

/// What both ends agreed on when a connection was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// What the peer gave with its accept; nothing at the accepting end.
    pub private_data: PrivateData,
    /// Reads of the peer that may be in progress here; 0 at the accepting end, which has said it itself.
    pub responder_resources: u8,
    /// Reads of ours that may be in progress at the peer; 0 at the accepting end.
    pub initiator_depth: u8,
}

/// What happened to an identifier.
#[derive(Debug)]
pub enum EventKind {
    /// The address is known, and with it the device.
    AddressResolved,
    /// There is no way to the address.
    AddressError(Errno),
    /// The route is known: connect.
    RouteResolved,
    /// There is no route.
    RouteError(Errno),
    /// A peer wants a connection with this listener.
    ConnectRequest(Request),
    /// The connection stands.
    Established(Agreed),
    /// The peer, or its node, said no.
    Rejected(RejectReason, PrivateData),
    /// The connection could not be made on this side.
    ConnectError(Errno),
    /// The peer does not answer.
    Unreachable(Errno),
    /// The connection is over: by the peer, or after our own disconnect.
    Disconnected,
    /// The network address moved to another device; the identifier still has the old one.
    AddressChange,
    /// The device is going: drop the identifier and all that was made on the device.
    DeviceRemoval,
    /// The queue pair's number may be used again.
    TimewaitExit,
    /// An event that this crate does not use, by the kernel's number.
    Other(u32),
}

/// An event of the connection manager.
#[derive(Debug)]
pub struct Event {
    /// Whose it is. For [`EventKind::ConnectRequest`] the listener's. What happens to a request before it is adopted comes under a key that nobody has.
    pub key: CmKey,
    /// What happened.
    pub kind: EventKind,
}

/// Where events of identifiers arrive, with a descriptor that becomes readable when there is one.
#[derive(Debug)]
pub struct EventChannel {
    native: Arc<dyn backend::Channel>,
}

fn new_key() -> CmKey {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    CmKey(NEXT.fetch_add(1, Ordering::Relaxed))
}

impl EventChannel {
    pub(crate) fn new(native: Arc<dyn backend::Channel>) -> Self {
        Self { native }
    }

    /// The next event, never waiting.
    ///
    /// # Errors
    /// The kernel's connection manager failed.
    pub fn next_event(&self) -> Result<Option<Event>> {
        let Some(raised) = self.native.next()? else {
            return Ok(None);
        };
        Ok(Some(match raised {
            backend::Raised::Event(key, kind) => Event { key, kind },
            backend::Raised::Request(key, requested) => Event {
                key,
                kind: EventKind::ConnectRequest(Request {
                    inner: Some(requested),
                    _channel: self.native.clone(),
                }),
            },
        }))
    }

    /// A fresh identifier, to connect with.
    ///
    /// # Errors
    /// The kernel has no more.
    pub fn create_id(&self) -> Result<CmId> {
        let key = new_key();
        let native = self.native.clone().create_id(key)?;
        Ok(CmId::new(native, key))
    }

    /// Listens at an address; an unspecified one stands for all.
    ///
    /// # Errors
    /// No device has the address, or somebody listens there.
    pub fn listen(&self, at: SocketAddr, backlog: u32) -> Result<Listener> {
        limit("backlog", backlog.into(), BACKLOG_MAX.into())?;
        let key = new_key();
        let native = self.native.clone().create_id(key)?;
        native.listen(at, backlog)?;
        Ok(Listener { native, key })
    }

    /// Takes a connect request, which may come from another thread's channel: from here on its events arrive at this one.
    ///
    /// # Errors
    /// The kernel refuses; the peer is told that it is rejected.
    pub fn adopt(&self, mut request: Request) -> Result<CmId> {
        let key = new_key();
        let Some(mut requested) = request.inner.take() else {
            return Err(VerbsError::Misuse {
                call: "adopt",
                what: "the request was taken before",
            });
        };
        self.native.clone().adopt(requested.id.as_mut(), key)?;
        Ok(CmId::new(requested.id, key))
    }
}

impl AsFd for EventChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.native.fd()
    }
}

/// A peer that wants a connection. Dropped, it is rejected. It may go to another thread, to be adopted there.
pub struct Request {
    /// `None` once it is adopted.
    inner: Option<backend::Requested>,
    // Behind the identifier, which belongs to its listener's channel until it is adopted.
    _channel: Arc<dyn backend::Channel>,
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Request")
            .field("peer", &self.peer_address())
            .finish_non_exhaustive()
    }
}

impl Request {
    /// What the peer gave.
    #[must_use]
    pub fn private_data(&self) -> &[u8] {
        self.inner
            .as_ref()
            .map_or(&[], |inner| inner.private_data.as_bytes())
    }

    /// The most that an accept may ask for as `responder_resources`: reads that the peer wants in progress here.
    #[must_use]
    pub fn responder_resources(&self) -> u8 {
        self.inner
            .as_ref()
            .map_or(0, |inner| inner.responder_resources)
    }

    /// The most that an accept may ask for as `initiator_depth`: reads of ours that the peer has room for.
    #[must_use]
    pub fn initiator_depth(&self) -> u8 {
        self.inner.as_ref().map_or(0, |inner| inner.initiator_depth)
    }

    /// Where the peer is.
    #[must_use]
    pub fn peer_address(&self) -> Option<SocketAddr> {
        self.inner.as_ref()?.id.peer_address()
    }

    /// The address that it asked for.
    #[must_use]
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.inner.as_ref()?.id.local_address()
    }

    /// Says no, with at most [`REJECT_DATA_BYTES_MAX`] bytes of why.
    ///
    /// # Errors
    /// There are more bytes, or the kernel refuses; the peer is rejected even so.
    pub fn reject(mut self, private_data: &[u8]) -> Result<()> {
        data_limit(private_data, REJECT_DATA_BYTES_MAX)?;
        self.inner
            .take()
            .map_or(Ok(()), |inner| inner.id.reject(private_data))
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if let Some(inner) = self.inner.take() {
            // The identifier goes next, which rejects too where this could not.
            let _gone_with_its_identifier = inner.id.reject(&[]);
        }
    }
}

/// A place where peers ask for connections. Dropped, it listens no more.
#[derive(Debug)]
pub struct Listener {
    native: Box<dyn backend::Id>,
    key: CmKey,
}

impl Listener {
    /// The name that its events carry.
    #[must_use]
    pub fn key(&self) -> CmKey {
        self.key
    }

    /// Where it listens; with the port that was chosen where none was given.
    #[must_use]
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.native.local_address()
    }
}

#[derive(Debug)]
pub(crate) struct CmInner {
    native: Box<dyn backend::Id>,
}

/// One end of a connection, for the connection manager: it exists before its queue pair, and at least as long.
#[derive(Debug)]
pub struct CmId {
    inner: Arc<CmInner>,
    key: CmKey,
    has_queue_pair: std::sync::atomic::AtomicBool,
}

impl CmId {
    fn new(native: Box<dyn backend::Id>, key: CmKey) -> Self {
        Self {
            inner: Arc::new(CmInner { native }),
            key,
            has_queue_pair: false.into(),
        }
    }

    fn native(&self) -> &dyn backend::Id {
        self.inner.native.as_ref()
    }

    /// The name that its events carry.
    #[must_use]
    pub fn key(&self) -> CmKey {
        self.key
    }

    /// Asks which device leads to `destination`, from `source` if that matters: [`EventKind::AddressResolved`] or [`EventKind::AddressError`] follows.
    ///
    /// # Errors
    /// It can be seen at once that none does.
    pub fn resolve_address(
        &self,
        source: Option<SocketAddr>,
        destination: SocketAddr,
        timeout: Duration,
    ) -> Result<()> {
        timeout_limit(timeout)?;
        self.native().resolve_address(source, destination, timeout)
    }

    /// Asks for the route: [`EventKind::RouteResolved`] or [`EventKind::RouteError`] follows.
    ///
    /// # Errors
    /// The address is not resolved.
    pub fn resolve_route(&self, timeout: Duration) -> Result<()> {
        timeout_limit(timeout)?;
        self.native().resolve_route(timeout)
    }

    /// The device that it leads through, once its address is resolved; for an adopted request from the start.
    ///
    /// # Errors
    /// The device cannot be asked what it can do.
    pub fn device(&self) -> Result<Option<Device>> {
        Ok(self.native().device()?.map(Device::new))
    }

    /// Makes its queue pair; an identifier has one in its life.
    ///
    /// # Errors
    /// The address is not resolved, things belong to different devices, or more is asked for than the device has.
    pub fn create_queue_pair(
        &self,
        domain: &Domain,
        send: &CompletionQueue,
        receive: &CompletionQueue,
        capabilities: &QpCapabilities,
    ) -> Result<QueuePair> {
        let misuse = |what| VerbsError::Misuse {
            call: "rdma_create_qp",
            what,
        };
        let Some(device) = self.device()? else {
            return Err(misuse(
                "the identifier has no device yet: resolve its address first",
            ));
        };
        if [domain.device(), &send.inner.device, &receive.inner.device]
            .iter()
            .any(|other| **other != device)
        {
            return Err(misuse(
                "domain and completion queues must be of the identifier's device",
            ));
        }
        check_capabilities(&device, capabilities)?;
        if self.has_queue_pair.swap(true, Ordering::Relaxed) {
            return Err(misuse("the identifier has, or had, a queue pair"));
        }
        let counted = Counted::new(&domain.inner);
        let (native, capabilities) = self.native().create_queue_pair(
            domain.inner.native.as_ref(),
            send.inner.native.as_ref(),
            receive.inner.native.as_ref(),
            capabilities,
        )?;
        Ok(QueuePair::new(
            native,
            counted,
            capabilities,
            self.inner.clone(),
            send.inner.clone(),
            receive.inner.clone(),
        ))
    }

    /// Asks the peer for a connection: [`EventKind::Established`], [`EventKind::Rejected`], [`EventKind::Unreachable`] or [`EventKind::ConnectError`] follows.
    ///
    /// # Errors
    /// Limits, or the route is not resolved, or there is no queue pair.
    pub fn connect(&self, parameters: &ConnectParameters<'_>) -> Result<()> {
        self.check(parameters, CONNECT_DATA_BYTES_MAX)?;
        self.native().connect(parameters)
    }

    /// Says yes to an adopted request, once its queue pair is made and receives are posted: [`EventKind::Established`] follows once the peer has heard it.
    ///
    /// # Errors
    /// Limits, or the request is gone.
    pub fn accept(&self, parameters: &ConnectParameters<'_>) -> Result<()> {
        self.check(parameters, ACCEPT_DATA_BYTES_MAX)?;
        self.native().accept(parameters)
    }

    /// Says no to an adopted request.
    ///
    /// # Errors
    /// More bytes than [`REJECT_DATA_BYTES_MAX`], or the request is gone.
    pub fn reject(&self, private_data: &[u8]) -> Result<()> {
        data_limit(private_data, REJECT_DATA_BYTES_MAX)?;
        self.native().reject(private_data)
    }

    /// Moves its queue pair to error and ends the connection: the peer is told, and [`EventKind::Disconnected`] follows at both ends. After the peer's disconnect it answers it.
    ///
    /// # Errors
    /// There is no connection.
    pub fn disconnect(&self) -> Result<()> {
        self.native().disconnect()
    }

    /// Its own address, once known.
    #[must_use]
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.native().local_address()
    }

    /// The peer's address, once known.
    #[must_use]
    pub fn peer_address(&self) -> Option<SocketAddr> {
        self.native().peer_address()
    }

    fn check(&self, parameters: &ConnectParameters<'_>, data_max: usize) -> Result<()> {
        data_limit(parameters.private_data, data_max)?;
        let retry = "retry count (3 bits)";
        limit(retry, parameters.retry_count.into(), RETRY_COUNT_MAX.into())?;
        limit(
            retry,
            parameters.rnr_retry_count.into(),
            RNR_RETRY_ENDLESS.into(),
        )?;
        if let Some(device) = self.device()? {
            let (resources, depth) = (parameters.responder_resources, parameters.initiator_depth);
            let attributes = device.attributes();
            device.limit(
                "responder_resources",
                resources.into(),
                attributes.qp_rd_atom_max.into(),
            )?;
            device.limit(
                "initiator_depth",
                depth.into(),
                attributes.qp_init_rd_atom_max.into(),
            )?;
        }
        Ok(())
    }
}

fn check_capabilities(device: &Device, asked: &QpCapabilities) -> Result<()> {
    let has = device.attributes();
    let requests = has.qp_wr_max.min(WORK_REQUESTS_MAX).into();
    let entries = has.sge_max.min(SCATTER_ENTRIES_MAX).into();
    device.limit(
        "requests of the send queue",
        asked.send_wr_max.into(),
        requests,
    )?;
    device.limit(
        "requests of the receive queue",
        asked.recv_wr_max.into(),
        requests,
    )?;
    device.limit(
        "scatter entries to send",
        asked.send_sge_max.into(),
        entries,
    )?;
    device.limit(
        "scatter entries to receive",
        asked.recv_sge_max.into(),
        entries,
    )?;
    device.limit(
        "inline bytes",
        asked.inline_bytes_max.into(),
        INLINE_BYTES_MAX.into(),
    )
}

fn data_limit(data: &[u8], max: usize) -> Result<()> {
    limit("bytes of private data", data.len() as u64, max as u64)
}

fn timeout_limit(timeout: Duration) -> Result<()> {
    limit(
        "seconds of a timeout",
        timeout.as_secs(),
        RESOLVE_TIMEOUT_MAX.as_secs(),
    )
}

fn limit(what: &'static str, asked: u64, max: u64) -> Result<()> {
    if asked <= max {
        return Ok(());
    }
    Err(VerbsError::Limit {
        what,
        asked,
        max,
        subject: "every connection".to_owned(),
    })
}
