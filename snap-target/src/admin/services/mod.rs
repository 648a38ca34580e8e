//! The services of the contract. Each checks what it was asked, has the manager do it, and says what is there now.

mod controller;
mod event;
mod host;
mod listener;
mod namespace;
mod stats;
mod subsystem;
mod target;

use admin_proto::v1::Reason;
use tokio::sync::OwnedSemaphorePermit;
use tonic::{Request, Response, Status};

use super::Context;
use super::connections::Peer;
use crate::limits::ADMIN_STREAMS_MAX;
use crate::manage::{ManageError, Manager};

type Answer<T> = Result<Response<T>, Status>;

impl Context {
    /// Has the manager look, and answers with what that returns.
    async fn ask<T: Send + 'static>(
        &self,
        request: impl FnOnce(&mut Manager) -> Result<T, ManageError> + Send + 'static,
    ) -> Answer<T> {
        self.change(Caller::default(), request).await
    }

    /// Has the manager change something for somebody, and answers with what that returns.
    async fn change<T: Send + 'static>(
        &self,
        by: Caller,
        request: impl FnOnce(&mut Manager) -> Result<T, ManageError> + Send + 'static,
    ) -> Answer<T> {
        let answer = self.manage.call(move |manager| {
            manager.begin(by.0);
            let answer = request(manager);
            manager.end();
            answer
        });
        Ok(Response::new(answer.await?))
    }

    /// A place for one more stream.
    fn stream_place(&self) -> Result<OwnedSemaphorePermit, Status> {
        self.streams.clone().try_acquire_owned().map_err(|_| {
            let text = format!(
                "{ADMIN_STREAMS_MAX} streams are open, and no more are possible; end one first"
            );
            ManageError::new(Reason::Limit, text).into()
        })
    }
}

/// What must be there, since it was just made or looked up.
fn there<T>(found: Option<T>) -> Result<T, ManageError> {
    found
        .ok_or_else(|| ManageError::new(Reason::Fault, "it went while it was looked at; ask again"))
}

/// Who asks for a change, in an event's words.
#[derive(Debug, Default)]
struct Caller(String);

/// Who asks for this change, where it may.
fn caller<T>(request: &Request<T>) -> Caller {
    let peer = request.extensions().get::<Peer>();
    Caller(peer.map(Peer::actor).unwrap_or_default())
}

/// What the client sent.
fn of<T>(request: Request<T>) -> T {
    request.into_inner()
}
