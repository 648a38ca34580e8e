//! What reactors tell each other.

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nvme::controller::{Admitted, CommandError, ControllerId};
use nvme::queue::{QueueId, Slot};
use nvme::tcp::target::Connection as Machine;
use reactor::Sender;

/// From one reactor to another.
#[derive(Debug)]
pub(crate) enum Message {
    /// To an I/O reactor: this queue is yours for life.
    Adopt(Box<Adoption>),
    /// To an I/O reactor: close the queues of this controller.
    CloseQueues(ControllerId),
    /// To the desk: this queue's requests have ended and its connection is closed.
    QueueClosed(ControllerId, QueueId),
    /// To the desk: a command failed; for the Error Information log.
    Failed(ControllerId, CommandError),
    /// To any: end.
    Stop,
}

/// An I/O queue that was let in, on its way to its reactor.
#[derive(Debug)]
pub(crate) struct Adoption {
    pub(crate) socket: TcpStream,
    pub(crate) machine: Machine,
    pub(crate) admitted: Admitted,
    /// The Connect command, still to be answered.
    pub(crate) connect: Slot,
    pub(crate) counters: Arc<QueueCounters>,
}

/// Reaches a frontend from any thread.
#[derive(Clone, Debug)]
pub struct Control {
    pub(crate) sender: Sender<Message>,
}

impl Control {
    /// Asks the frontend to end.
    pub fn stop(&self) {
        // A full channel is being drained by a live reactor; one that has ended needs no stop.
        while let Err(reactor::Full(_)) = self.sender.send(Message::Stop) {
            std::thread::yield_now();
        }
    }
}

/// What a queue has done; written by its reactor alone, read by the desk for the SMART log.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct QueueCounters {
    pub(crate) bytes_read: AtomicU64,
    pub(crate) bytes_written: AtomicU64,
    pub(crate) read_commands: AtomicU64,
    pub(crate) write_commands: AtomicU64,
    pub(crate) media_errors: AtomicU64,
}

/// Adds to a counter that only this thread writes: a plain store, no locked instruction.
pub(crate) fn count(counter: &AtomicU64, more: u64) {
    counter.store(
        counter.load(Ordering::Relaxed).wrapping_add(more),
        Ordering::Relaxed,
    );
}
