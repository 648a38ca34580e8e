//! What a device's thread tells the reactor of a queue.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::SyncSender;

use ublk::Descriptors;

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
    /// Its number in the device.
    pub(crate) number: u16,
    pub(crate) depth: u16,
    /// The device's file.
    pub(crate) file: OwnedFd,
    pub(crate) descriptors: Descriptors,
    pub(crate) disk: Arc<Disk>,
}

#[derive(Debug)]
pub(crate) enum Order {
    Start(Box<Start>, SyncSender<Result<(), String>>),
    /// Begins no request any more; answered when those that it has begun have ended. The kernel gives the others to the next server.
    Drain(QueueId, SyncSender<()>),
    /// Answered when the kernel has ended the queue.
    Await(QueueId, SyncSender<()>),
    Disk(QueueId, Arc<Disk>),
}

/// Reaches a reactor's [`Share`](crate::Share) from any thread.
#[derive(Clone, Debug)]
pub struct Door(pub(crate) reactor::Door<Order>);
