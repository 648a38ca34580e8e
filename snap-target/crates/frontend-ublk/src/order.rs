//! What a device's thread tells the reactor of a queue.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, SyncSender};
use std::time::Instant;

use reactor::{Full, Sender};
use ublk::Descriptors;

use crate::disk::Disk;
use crate::limits::DRAIN_PATIENCE;

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

/// A reactor does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a reactor did not answer within {} s", DRAIN_PATIENCE.as_secs())]
pub(crate) struct Silent;

/// Reaches a reactor's [`Share`](crate::Share) from any thread.
#[derive(Clone, Debug)]
pub struct Door {
    pub(crate) sender: Sender<Order>,
}

impl Door {
    /// Sends from a thread that may wait.
    pub(crate) fn send(&self, order: Order) -> Result<(), Silent> {
        let until = Instant::now() + DRAIN_PATIENCE;
        let mut order = order;
        while let Err(Full(back)) = self.sender.send(order) {
            if Instant::now() > until {
                return Err(Silent);
            }
            order = back;
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Sends an order, whose answer is waited for later.
    pub(crate) fn begin<T>(
        &self,
        order: impl FnOnce(SyncSender<T>) -> Order,
    ) -> Result<Asked<T>, Silent> {
        let until = Instant::now() + DRAIN_PATIENCE;
        let (answer, answered) = mpsc::sync_channel(1);
        self.send(order(answer))?;
        Ok(Asked { answered, until })
    }
}

/// An order whose answer is to come.
#[derive(Debug)]
pub(crate) struct Asked<T> {
    answered: mpsc::Receiver<T>,
    until: Instant,
}

impl<T> Asked<T> {
    pub(crate) fn wait(self) -> Result<T, Silent> {
        let left = self.until.saturating_duration_since(Instant::now());
        self.answered.recv_timeout(left).map_err(|_| Silent)
    }
}
