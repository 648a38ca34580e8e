//! Memory that the client did not share by descriptor: its bytes go by messages (DMA_READ, DMA_WRITE) over the function's socket. Queues ask for that on their
//! reactors, the function sends, and what the client says comes back to the queue.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use guest_memory::Way;
use nvme::queue::Slot;

use crate::queue::Submissions;

/// What is to go by a message.
#[derive(Debug)]
pub(crate) enum Load {
    /// So many bytes out of guest memory.
    Read(u32),
    /// These into it.
    Write(Vec<u8>),
}

impl Load {
    pub(crate) fn way(&self) -> Way {
        match self {
            Self::Read(_) => Way::FromGuest,
            Self::Write(_) => Way::ToGuest,
        }
    }

    pub(crate) fn bytes(&self) -> u32 {
        match self {
            Self::Read(bytes) => *bytes,
            // No message has more than 32 bits count.
            Self::Write(data) => u32::try_from(data.len()).unwrap_or(u32::MAX),
        }
    }
}

/// One message that a queue wants sent. It is for a command, and of those of its queue the only one with this number.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) from: Arc<Submissions>,
    pub(crate) slot: Slot,
    pub(crate) number: u64,
    pub(crate) address: u64,
    pub(crate) load: Load,
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) slot: Slot,
    pub(crate) number: u64,
    /// The bytes of a read, and how many were read or written. None where it failed, or nobody answered in time.
    pub(crate) data: Option<(Vec<u8>, u32)>,
}

/// What all queues of a function ask for. Each queue has a few at a time ([`crate::limits::ASKS_OF_QUEUE_MAX`]).
#[derive(Debug, Default)]
pub(crate) struct Asks(Mutex<VecDeque<Ask>>);

impl Asks {
    pub(crate) fn push(&self, ask: Ask) {
        self.all().push_back(ask);
    }

    pub(crate) fn pop(&self) -> Option<Ask> {
        self.all().pop_front()
    }

    /// Forgets those of queues that are not there any more.
    pub(crate) fn retain(&self, is_there: impl FnMut(&Ask) -> bool) {
        self.all().retain(is_there);
    }

    fn all(&self) -> std::sync::MutexGuard<'_, VecDeque<Ask>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where a queue finds its answers.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    are_there: AtomicBool,
    list: Mutex<Vec<Answer>>,
}

impl Answers {
    pub(crate) fn push(&self, answer: Answer) {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        list.push(answer);
        self.are_there.store(true, Ordering::Release);
    }

    /// All that are there: no lock where there are none.
    pub(crate) fn take(&self) -> Vec<Answer> {
        if !self.are_there.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        self.are_there.store(false, Ordering::Release);
        std::mem::take(&mut list)
    }
}
