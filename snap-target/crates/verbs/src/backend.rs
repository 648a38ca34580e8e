//! What an implementation supplies. The public types stand in front of it: they keep objects alive in the right order, refuse what does not belong together, and check bounds
//! and limits, so that an implementation does none of that.

use std::any::Any;
use std::ffi::c_void;
use std::fmt::Debug;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use crate::attributes::{DeviceAttributes, GidEntry};
use crate::cm::{ConnectParameters, EventKind, PrivateData};
use crate::completion::{Completion, QpState};
use crate::device::AsyncEvent;
use crate::error::{PostError, Result};
use crate::key::{Access, CmKey, LKey, QpNumber, RKey};
use crate::queue_pair::{QpCapabilities, ReceiveRequest, SendRequest};

/// What the implementation itself made an object from; only it looks at it.
pub(crate) type Native = *mut c_void;

pub(crate) trait Transport: Send + Sync + Debug {
    fn channel(&self) -> Result<Arc<dyn Channel>>;
    fn devices(&self) -> Result<Vec<Arc<dyn Device>>>;
}

/// A connect request as it arrives.
pub(crate) struct Requested {
    pub(crate) id: Box<dyn Id>,
    pub(crate) private_data: PrivateData,
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
}

pub(crate) enum Raised {
    Event(CmKey, EventKind),
    /// The listener's key, and what arrived.
    Request(CmKey, Requested),
}

pub(crate) trait Channel: Send + Sync + Debug {
    fn fd(&self) -> BorrowedFd<'_>;
    fn next(&self) -> Result<Option<Raised>>;
    fn create_id(self: Arc<Self>, key: CmKey) -> Result<Box<dyn Id>>;
    /// Takes an identifier over from another channel, and names it.
    fn adopt(self: Arc<Self>, id: &mut dyn Id, key: CmKey) -> Result<()>;
}

pub(crate) trait Id: Send + Sync + Debug {
    fn resolve_address(
        &self,
        source: Option<SocketAddr>,
        destination: SocketAddr,
        timeout: Duration,
    ) -> Result<()>;
    fn resolve_route(&self, timeout: Duration) -> Result<()>;
    fn listen(&self, at: SocketAddr, backlog: u32) -> Result<()>;
    fn connect(&self, parameters: &ConnectParameters<'_>) -> Result<()>;
    fn accept(&self, parameters: &ConnectParameters<'_>) -> Result<()>;
    fn reject(&self, private_data: &[u8]) -> Result<()>;
    fn disconnect(&self) -> Result<()>;
    fn local_address(&self) -> Option<SocketAddr>;
    fn peer_address(&self) -> Option<SocketAddr>;
    fn device(&self) -> Result<Option<Arc<dyn Device>>>;
    fn create_queue_pair(
        &self,
        domain: &dyn Domain,
        send: &dyn CompletionQueue,
        receive: &dyn CompletionQueue,
        asked: &QpCapabilities,
    ) -> Result<(Box<dyn QueuePair>, QpCapabilities)>;
    fn as_any(&mut self) -> &mut dyn Any;
}

pub(crate) trait Device: Send + Sync + Debug {
    /// The same for every handle to one device, and for no other device of the process.
    fn identity(&self) -> usize;
    fn attributes(&self) -> &DeviceAttributes;
    fn gids(&self) -> Result<Vec<GidEntry>>;
    fn async_fd(&self) -> BorrowedFd<'_>;
    fn next_async_event(&self) -> Result<Option<AsyncEvent>>;
    fn allocate_domain(&self) -> Result<Box<dyn Domain>>;
    fn create_completion_queue(&self, entries: u32) -> Result<(Box<dyn CompletionQueue>, u32)>;
}

pub(crate) trait Domain: Send + Sync + Debug {
    /// # Safety
    /// The range stays mapped, readable and (for writing access) writable until the region is deregistered.
    unsafe fn register(&self, base: *mut u8, len: usize, access: Access)
    -> Result<Box<dyn Region>>;
    fn allocate_window(&self) -> Result<Box<dyn Window>>;
    fn native(&self) -> Native;
}

/// Registered memory. Dropped without [`Region::deregister`] it stays registered.
pub(crate) trait Region: Send + Sync + Debug {
    fn lkey(&self) -> LKey;
    fn rkey(&self) -> RKey;
    fn native(&self) -> Native;
    /// Afterwards the device touches the memory no more. Where it fails everything is as before.
    fn deregister(&self) -> Result<()>;
}

pub(crate) trait Window: Send + Debug {
    fn rkey(&self) -> RKey;
    /// A bind with this key was posted.
    fn set_rkey(&self, rkey: RKey);
    fn native(&self) -> Native;
}

pub(crate) trait CompletionQueue: Send + Sync + Debug {
    fn fd(&self) -> BorrowedFd<'_>;
    fn poll(&self, out: &mut Vec<Completion>, max: usize) -> Result<usize>;
    fn arm(&self, solicited_only: bool) -> Result<()>;
    fn take_events(&self) -> Result<u32>;
    fn native(&self) -> Native;
}

pub(crate) trait QueuePair: Send + Debug {
    fn number(&self) -> QpNumber;
    /// Tells the window of each bind that is posted, before the next request is looked at.
    fn post_send(&self, requests: &[SendRequest<'_>]) -> std::result::Result<(), PostError>;
    fn post_receive(&self, requests: &[ReceiveRequest<'_>]) -> std::result::Result<(), PostError>;
    fn state(&self) -> Result<QpState>;
    fn move_to_error(&self) -> Result<()>;
    /// The last call. Afterwards the device touches no memory for it; where it fails, it may.
    fn destroy(&self) -> Result<()>;
}
