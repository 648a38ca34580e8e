//! The services of the contract. Each checks what it was asked, has the manager do it, and says what is there now.

mod controller;
mod event;
mod function;
mod host;
mod listener;
mod namespace;
mod prefetch;
mod stats;
mod subsystem;
mod target;

use admin_proto::v1::Reason;
use tokio::sync::oneshot;
use tonic::{Request, Response, Status};

use super::Context;
use super::caller::{Caller, Role};
use super::streams::Place;
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
            manager.begin(by.actor);
            let answer = request(manager);
            manager.end();
            answer
        });
        Ok(Response::new(answer.await?))
    }

    /// The same of a change that goes on while other requests are carried out: it hands its answer to what it is given.
    async fn change_later<T: Send + 'static>(
        &self,
        by: Caller,
        request: impl FnOnce(&mut Manager, Answerer<T>) + Send + 'static,
    ) -> Answer<T> {
        let (tell, told) = oneshot::channel();
        self.change(by, move |manager| {
            request(manager, Answerer(tell));
            Ok(())
        })
        .await?;
        let ended = || ManageError::new(Reason::Ending, "the daemon is ending");
        Ok(Response::new(told.await.unwrap_or_else(|_| Err(ended()))?))
    }

    /// A place for one more stream of whoever asks for it.
    fn stream_place<T>(&self, request: &Request<T>) -> Result<Place, Status> {
        Ok(self.streams.place(&caller(request, Role::Read)?)?)
    }
}

/// Takes the answer to a change.
struct Answerer<T>(oneshot::Sender<Result<T, ManageError>>);

impl<T> Answerer<T> {
    /// Whoever asked may be gone.
    fn answer(self, answer: Result<T, ManageError>) {
        let _heard = self.0.send(answer);
    }
}

/// What must be there, since it was just made or looked up.
fn there<T>(found: Option<T>) -> Result<T, ManageError> {
    found
        .ok_or_else(|| ManageError::new(Reason::Fault, "it went while it was looked at; ask again"))
}

/// Who asks for this, where its role is enough.
fn caller<T>(request: &Request<T>, needed: Role) -> Result<Caller, Status> {
    let caller = request.extensions().get::<Caller>();
    let caller = caller.cloned().unwrap_or_default();
    caller.may(needed)?;
    Ok(caller)
}

/// Who asks for this change, where it may.
fn changer<T>(request: &Request<T>) -> Result<Caller, Status> {
    caller(request, Role::Change)
}

/// What the client sent.
fn of<T>(request: Request<T>) -> T {
    request.into_inner()
}
