//! Bounded messages from any thread to a reactor: a lock-free queue and a wake-up.

use std::sync::Arc;

use crossbeam_queue::ArrayQueue;

use crate::ring::Ring;
use crate::wake::Waker;

/// The message that found the channel full.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the channel is full; retry after the receiving reactor took some messages")]
pub struct Full<T>(pub T);

/// A channel of at most `capacity` messages to the reactor of `ring`. After a turn with `notified` set, drain the receiver.
#[must_use]
pub fn channel<T: Send>(ring: &Ring, capacity: usize) -> (Sender<T>, Receiver<T>) {
    let queue = Arc::new(ArrayQueue::new(capacity.max(1)));
    (
        Sender {
            queue: queue.clone(),
            waker: ring.waker(),
        },
        Receiver { queue },
    )
}

/// The sending end; any thread.
#[derive(Debug)]
pub struct Sender<T> {
    queue: Arc<ArrayQueue<T>>,
    waker: Waker,
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self {
            queue: self.queue.clone(),
            waker: self.waker.clone(),
        }
    }
}

impl<T: Send> Sender<T> {
    /// Queues a message and wakes the receiver through its eventfd if it sleeps. Never blocks.
    pub fn send(&self, message: T) -> Result<(), Full<T>> {
        self.queue.push(message).map_err(Full)?;
        self.waker.wake();
        Ok(())
    }

    /// As [`Sender::send`], from the thread of ring `via`: a sleeping receiver is woken through `via`'s next submission (MSG_RING), or
    /// its eventfd where the kernel lacks that.
    pub fn send_via(&self, via: &Ring, message: T) -> Result<(), Full<T>> {
        self.queue.push(message).map_err(Full)?;
        via.wake_other(&self.waker);
        Ok(())
    }
}

/// The receiving end; used by the reactor's thread.
#[derive(Debug)]
pub struct Receiver<T> {
    queue: Arc<ArrayQueue<T>>,
}

impl<T: Send> Receiver<T> {
    /// The oldest message, if any.
    pub fn try_recv(&self) -> Option<T> {
        // Two loads, where taking from an empty queue is a fence: reactors that poll look here all the time.
        if self.queue.is_empty() {
            return None;
        }
        self.queue.pop()
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}
