//! The manager's thread, and how others reach it.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Instant;

use admin_proto::v1::Reason;
use tokio::sync::oneshot;

use super::{ManageError, Manager};
use crate::limits::{
    CLOSING_LOOK, DRAIN_LOOK, LIFE_INTERVAL, REQUESTS_MAX, RETRY_INTERVAL, STORES_LOOK,
};

/// Work for the manager.
type Request = Box<dyn FnOnce(&mut Manager) + Send>;

/// Reaches the manager from any thread. The thread ends with the last of them.
#[derive(Clone)]
pub struct Manage {
    requests: SyncSender<Request>,
}

/// Gives the manager a thread of its own.
///
/// # Errors
/// No thread can be had.
pub fn start(mut manager: Manager) -> std::io::Result<(Manage, JoinHandle<()>)> {
    let (requests, queue): (_, Receiver<Request>) = sync_channel(REQUESTS_MAX);
    let thread = std::thread::Builder::new()
        .name("manager".to_owned())
        .spawn(move || {
            let mut retry_at = Instant::now() + RETRY_INTERVAL;
            let mut save_at = Instant::now() + LIFE_INTERVAL;
            loop {
                let next = retry_at.min(save_at);
                let mut left = next.saturating_duration_since(Instant::now());
                if manager.waits_for_others() {
                    left = left.min(CLOSING_LOOK);
                }
                if manager.has_stores() {
                    left = left.min(STORES_LOOK);
                }
                match queue.recv_timeout(left) {
                    Ok(request) => request(&mut manager),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return,
                }
                manager.look_around();
                if Instant::now() >= retry_at {
                    manager.retry_failed();
                    retry_at = Instant::now() + RETRY_INTERVAL;
                }
                if Instant::now() >= save_at {
                    manager.save_lives();
                    save_at = Instant::now() + LIFE_INTERVAL;
                }
            }
        })?;
    Ok((Manage { requests }, thread))
}

impl Manage {
    /// Has something done by the manager, behind what others asked for. It is done also where the caller no longer waits for it.
    ///
    /// # Errors
    /// What the request returns; [`Reason::Rate`] where too many wait already.
    pub async fn call<T: Send + 'static>(
        &self,
        request: impl FnOnce(&mut Manager) -> Result<T, ManageError> + Send + 'static,
    ) -> Result<T, ManageError> {
        let (answer, answered) = oneshot::channel();
        let request = Box::new(move |manager: &mut Manager| {
            // Whoever asked may be gone.
            let _heard = answer.send(request(manager));
        });
        self.requests
            .try_send(request)
            .map_err(|error| match error {
                TrySendError::Full(_) => ManageError::new(
                    Reason::Rate,
                    format!("{REQUESTS_MAX} requests wait for the daemon already; try again"),
                ),
                TrySendError::Disconnected(_) => ended(),
            })?;
        answered.await.unwrap_or_else(|_| Err(ended()))
    }
}

impl Manage {
    /// The same for a thread that may wait, and does so until `by`.
    ///
    /// # Errors
    /// What the request returns; [`Reason::Ending`] where it has not ended by then.
    pub fn call_until<T: Send + 'static>(
        &self,
        by: Instant,
        request: impl FnOnce(&mut Manager) -> Result<T, ManageError> + Send + 'static,
    ) -> Result<T, ManageError> {
        let (answer, answered) = sync_channel(1);
        let mut request: Request = Box::new(move |manager| {
            let _heard = answer.send(request(manager));
        });
        while let Err(refused) = self.requests.try_send(request) {
            match refused {
                TrySendError::Full(back) if Instant::now() < by => request = back,
                _ => return Err(ended()),
            }
            std::thread::sleep(DRAIN_LOOK);
        }
        let left = by.saturating_duration_since(Instant::now());
        answered.recv_timeout(left).unwrap_or_else(|_| Err(ended()))
    }
}

fn ended() -> ManageError {
    ManageError::new(Reason::Ending, "the daemon is ending".to_owned())
}
