//! What a device's thread tells the reactor of a queue.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::Instant;

use guest_memory::{Area, Windows};
use virtio_ring::{Layout, Options, Position};

use crate::counters::Counters;
use crate::disk::Disk;

/// Names a queue while it runs: never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct QueueId(pub(crate) u32);

impl QueueId {
    pub(crate) fn next() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// A queue that is to run.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) id: QueueId,
    /// What logs call it.
    pub(crate) name: String,
    pub(crate) layout: Layout,
    pub(crate) options: Options,
    pub(crate) position: Position,
    /// Where it is written down what is in flight.
    pub(crate) record: Option<Area>,
    pub(crate) windows: Arc<Windows>,
    pub(crate) kick: OwnedFd,
    pub(crate) call: Option<OwnedFd>,
    pub(crate) error: Option<OwnedFd>,
    /// The driver flushes: what it writes may sit in a cache until then.
    pub(crate) writeback: bool,
    /// The driver knows another disk: nothing is done for it.
    pub(crate) is_foreign: bool,
    /// Nothing is taken before: writes of a process that was killed may still land.
    pub(crate) holds_until: Option<Instant>,
    pub(crate) disk: Arc<Disk>,
    pub(crate) counters: Arc<Counters>,
}

/// How a queue ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// What was taken is answered.
    Drained,
    /// The connection is lost: the driver hears of nothing any more, and whoever serves it next does again what is in flight. What stores have of it
    /// is waited for, so that it does not land behind that.
    Cut,
}

#[derive(Debug)]
pub(crate) enum Order {
    Start(Box<Start>, SyncSender<Result<(), String>>),
    Stop(QueueId, Ending, SyncSender<Option<Position>>),
    Windows(QueueId, Arc<Windows>, SyncSender<Result<(), String>>),
    Call(QueueId, Option<OwnedFd>),
    Disk(QueueId, Arc<Disk>),
    /// Whether what is written from now on may sit in a cache until it is flushed.
    Writeback(QueueId, bool, SyncSender<()>),
}

/// Reaches a reactor's [`Share`](crate::Share) from any thread.
#[derive(Clone, Debug)]
pub struct Door(pub(crate) reactor::Door<Order>);
