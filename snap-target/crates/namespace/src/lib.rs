//! Namespaces: what the host sees, read and written through stores.
//!
//! **What it is.** A [`Namespace`] is the immutable description that every reactor shares: its size, identity, protection, and what
//! stands behind it (a raw store, a view of a volume, or several of both). An [`Engine`] is one reactor's way to it: it owns handles to the stores, the
//! staging pools, a cache, and the requests in flight. Engines share frames: each has one of them as its home, and is fetched and decoded
//! once however many requests want it ([`Engine::meet`]); what takes long is decoded by [`FrameWorkers`].
//!
//! **Its contract.** Every request given to [`Engine::submit`] is answered exactly once, at once or by [`Engine::poll`], with its
//! token. A read is answered with a buffer that holds every byte asked for; where the store's bytes lie in memory and are the presented
//! bytes, that buffer is the store's own memory and nothing was copied. A request that finds no memory or a full store is parked and
//! retried, never refused. An error carries the wire status and its cause together.
//!
//! **What it does not do.** It does not know NVMe queues or sockets, does not check LBAs against the command set (the frontend's parser
//! did), and does not retry a store's error.

#![deny(unsafe_code)]

mod access;
mod ahead;
mod attached;
mod attachments;
mod chain_rows;
mod compound;
mod damage;
mod engine;
mod error;
mod exclusive;
mod fence;
mod frames;
mod identity;
mod keeper;
pub mod limits;
mod marks;
#[allow(
    unsafe_code,
    reason = "hands a reactor's memory to the volume as slices and segments; each block says why"
)]
mod memory;
mod mixed;
mod parts;
mod provenance;
mod raw;
mod request;
mod shared;
mod view;

pub use access::{AccessGate, Found, TakeUpError, protection_record};
pub use ahead::{Ahead, Kept, ORDER_RANGES_MAX, Order, OrderEnd, OrderProgress};
pub use damage::{Damage, FirstDamage};
pub use engine::{Engine, EngineConfig, EngineError};
pub use error::NamespaceError;
pub use exclusive::WriteGate;
pub use fence::{HeldFence, WriteFence};
pub use frames::{FrameConfig, FrameQueue, FrameWorkers, Peer};
pub use identity::Identity;
pub use keeper::{Forgetful, KeepError, Keeper, RecordKind, Saved};
pub use marks::Marks;
pub use mixed::{MixError, Mixed, MixedPart};
pub use provenance::Provenance;
pub use request::{Answer, Asked, Done, Io, Source};
pub use shared::{Backing, Namespace, NamespaceKey, NamespaceSet};
pub use telemetry::NamespaceCounters;
pub use volume::ahead::ReaderId;
