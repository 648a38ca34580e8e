//! RDMA verbs behind a contract: a connection manager, registered memory, reliable connections.
//!
//! **What it is.** [`Verbs`] is the entry, for any thread. An [`EventChannel`] is where a thread's connections report ([`Event`]); a [`CmId`] is one end of a connection; a
//! [`Device`] has [`Domain`]s with [`Registration`]s and [`MemoryWindow`]s, and [`CompletionQueue`]s; a [`QueuePair`] takes [`SendRequest`]s and [`ReceiveRequest`]s. Nothing
//! waits for a peer: event channels, completion queues and devices have descriptors that a reactor can poll. Calls that make and destroy take a device's time; a
//! [`ControlThread`] is where a reactor has them made.
//!
//! Two implementations: [`rdma_core`], the system's librdmacm and libibverbs, opened at run time; and [`memory`], a fabric of nodes and links in one process, with
//! a clock that its test steps. With the feature `conformance` there is the suite that both pass.
//!
//! **Its contract.**
//! * An object may be used by any one thread, and moved to another. Objects keep what they stand on alive, so any order of dropping is sound.
//! * Memory is named by [`ScatterEntry`]s, which a registration makes inside its bounds. A registration outlives the queue pairs that could touch its memory, or is taken from the
//!   device first. Memory that a peer may write is never `&mut [u8]`: bytes are copied in and out.
//! * What does not belong together (another domain, another device, another implementation) is refused.
//! * Requests of one queue complete in order, and after a failure all others complete as flushed. A request that is not signaled completes only when it fails.
//! * Posting and polling through [`rdma_core`] allocate nothing, beyond the caller's own vector of completions.
//!
//! ```
//! use std::sync::Arc;
//! use verbs::{Access, HostMemory, memory::Fabric};
//!
//! let fabric = Fabric::new(1);
//! let node = fabric.node(&["10.0.0.1".parse()?])?;
//! let device = &node.verbs().devices()?[0];
//! let domain = device.allocate_domain()?;
//! let mapping = Arc::new(reactor::buf::Mapping::new(4096)?);
//! let memory = domain.register(&HostMemory::of_mapping(&mapping), Access::LOCAL_WRITE)?;
//! assert_eq!(memory.entry(4000, 96)?.len(), 96);
//! assert!(memory.entry(4000, 97).is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! **What it does not do.** No unreliable transports, no atomics, no immediate data, no shared receive queues, no retry policy above the connection.

#![deny(unsafe_code)]

mod attributes;
#[allow(
    unsafe_code,
    reason = "a contract that is unsafe to break; it has no unsafe block"
)]
mod backend;
#[allow(unsafe_code, reason = "copies of shared memory; each block says why")]
mod bytes;
mod cm;
mod completion;
#[cfg(feature = "conformance")]
pub mod conformance;
#[allow(
    unsafe_code,
    reason = "a value that is dropped elsewhere; the block says why"
)]
mod control;
mod device;
#[allow(
    unsafe_code,
    reason = "memory that devices write, and its lifetime; each block says why"
)]
mod domain;
mod error;
mod key;
pub mod limits;
pub mod memory;
mod queue_pair;
pub mod rdma_core;

pub use attributes::{DeviceAttributes, GidEntry, GidKind};
pub use cm::{
    Agreed, CmId, ConnectParameters, Event, EventChannel, EventKind, Listener, PrivateData,
    RejectReason, Request,
};
pub use completion::{Completion, CompletionQueue, Done, Failed, Opcode, QpState, Status};
pub use control::{ControlThread, Elsewhere, TakenApart};
pub use device::{AsyncEvent, Device, Verbs};
pub use domain::{Domain, HostMemory, MemoryWindow, Registration, ScatterEntry};
pub use error::{PostError, Result, VerbsError};
pub use key::{Access, CmKey, Gid, LKey, QpNumber, RKey, WrId};
pub use queue_pair::{
    Gather, Operation, QpCapabilities, QueuePair, ReceiveRequest, Remote, SendRequest,
};
