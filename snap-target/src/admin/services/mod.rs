//! The services of the contract. Each checks what it was asked, has the manager do it, and says what is there now.

mod controller;
mod event;
mod host;
mod listener;
mod namespace;
mod stats;
mod subsystem;
mod target;

use tokio::sync::OwnedSemaphorePermit;
use tonic::{Request, Response, Status};

use super::Context;
use crate::limits::ADMIN_STREAMS_MAX;
use crate::manage::{ManageError, Manager};

type Answer<T> = Result<Response<T>, Status>;

impl Context {
    /// Has the manager do something, and answers with what that returns.
    async fn ask<T: Send + 'static>(
        &self,
        request: impl FnOnce(&mut Manager) -> Result<T, ManageError> + Send + 'static,
    ) -> Answer<T> {
        Ok(Response::new(self.manage.call(request).await?))
    }

    /// A place for one more stream.
    fn stream_place(&self) -> Result<OwnedSemaphorePermit, Status> {
        self.streams.clone().try_acquire_owned().map_err(|_| {
            Status::resource_exhausted(format!(
                "{ADMIN_STREAMS_MAX} streams are open, and no more are possible; end one first"
            ))
        })
    }
}

/// What must be there, since it was just made or looked up.
fn there<T>(found: Option<T>) -> Result<T, ManageError> {
    found.ok_or_else(|| {
        ManageError::Internal("it went while it was looked at; ask again".to_owned())
    })
}

/// What the client sent.
fn of<T>(request: Request<T>) -> T {
    request.into_inner()
}
