//! Orders to a reactor from threads that may wait: for room, and for an answer.

use std::sync::mpsc::{self, SyncSender};
use std::time::{Duration, Instant};

use crate::channel::{Full, Receiver, Sender, channel};
use crate::ring::Ring;

/// A reactor has no room for an order, or does not answer it, for so long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a reactor did not answer within {seconds} s")]
pub struct Silent {
    /// How long it was waited for.
    pub seconds: u64,
}

/// Reaches whoever takes orders on a reactor, from any thread but a reactor's.
#[derive(Debug)]
pub struct Door<O> {
    sender: Sender<O>,
    patience: Duration,
}

impl<O> Clone for Door<O> {
    fn clone(&self) -> Self {
        Self {
            sender: self.sender.clone(),
            patience: self.patience,
        }
    }
}

impl<O: Send> Door<O> {
    /// To the reactor of `ring`, which has room for `capacity` orders. Whoever waits does so for `patience` at most.
    #[must_use]
    pub fn new(ring: &Ring, capacity: usize, patience: Duration) -> (Self, Receiver<O>) {
        let (sender, orders) = channel(ring, capacity);
        (Self { sender, patience }, orders)
    }

    /// Sends an order; waits for room.
    ///
    /// # Errors
    /// There was none.
    pub fn send(&self, order: O) -> Result<(), Silent> {
        let until = Instant::now() + self.patience;
        let mut order = order;
        while let Err(Full(back)) = self.sender.send(order) {
            if Instant::now() > until {
                return Err(self.silent());
            }
            order = back;
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Sends an order, whose answer is waited for later.
    ///
    /// # Errors
    /// There was no room.
    pub fn begin<T>(&self, order: impl FnOnce(SyncSender<T>) -> O) -> Result<Asked<T>, Silent> {
        let until = Instant::now() + self.patience;
        let (answer, answered) = mpsc::sync_channel(1);
        self.send(order(answer))?;
        Ok(Asked {
            answered,
            until,
            silent: self.silent(),
        })
    }

    /// Sends an order, and waits for its answer.
    ///
    /// # Errors
    /// There was no room, or none came.
    pub fn ask<T>(&self, order: impl FnOnce(SyncSender<T>) -> O) -> Result<T, Silent> {
        self.begin(order)?.wait()
    }

    fn silent(&self) -> Silent {
        let seconds = self.patience.as_secs();
        Silent { seconds }
    }
}

/// An order whose answer is to come.
#[derive(Debug)]
pub struct Asked<T> {
    answered: mpsc::Receiver<T>,
    until: Instant,
    silent: Silent,
}

impl<T> Asked<T> {
    /// Waits for it.
    ///
    /// # Errors
    /// None came in time, or whoever was asked has gone.
    pub fn wait(self) -> Result<T, Silent> {
        let left = self.until.saturating_duration_since(Instant::now());
        self.answered.recv_timeout(left).map_err(|_| self.silent)
    }
}
