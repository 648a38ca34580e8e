//! What keepers tell, on whatever thread: the desk is woken, and takes it in its turn.

use std::sync::{Arc, Mutex, PoisonError};

use namespace::KeepError;

use crate::message::{Control, Message};

/// Which save, and how it ended.
type End = (u64, Result<(), KeepError>);

/// Ends of saves that the desk has not taken.
#[derive(Clone, Debug, Default)]
pub(in crate::desk) struct KeptInbox {
    ends: Arc<Mutex<Vec<End>>>,
}

impl KeptInbox {
    /// A save has ended. It must not block: a keeper may tell on the desk's own thread.
    pub(super) fn put(&self, number: u64, result: Result<(), KeepError>, desk: Option<&Control>) {
        self.lock(|ends| ends.push((number, result)));
        // A full channel wakes the desk as well.
        if let Some(desk) = desk {
            let _full = desk.sender.send(Message::Kept);
        }
    }

    pub(super) fn take(&self) -> Vec<End> {
        self.lock(std::mem::take)
    }

    fn lock<T>(&self, work: impl FnOnce(&mut Vec<End>) -> T) -> T {
        let ends = self.ends.lock();
        work(&mut ends.unwrap_or_else(PoisonError::into_inner))
    }
}
