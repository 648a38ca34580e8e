//! Connections that come in at a socket: for transports whose connections are sockets themselves.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use reactor::{Event, Fd, Owner, OwnerId, Payload, Ring};

use crate::link::LinkError;

/// How long accepting rests after the kernel refused (no descriptors, no memory).
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// A listening socket on a ring. It goes on accepting until it is dropped.
#[derive(Debug)]
pub struct Acceptor {
    owner: Owner,
    socket: Fd,
    /// Of the log.
    place: String,
}

impl Acceptor {
    /// Accepts at a socket that listens; `place` is its address, for the log.
    ///
    /// # Errors
    /// The ring has no room for another owner.
    pub fn new(ring: &Ring, socket: Fd, place: String) -> Result<Self, LinkError> {
        let acceptor = Self {
            owner: ring.register()?,
            socket,
            place,
        };
        acceptor.accept();
        Ok(acceptor)
    }

    /// The owner of its events.
    #[must_use]
    pub fn owner_id(&self) -> OwnerId {
        self.owner.id()
    }

    /// The ring that it is on.
    #[must_use]
    pub fn ring(&self) -> &Ring {
        self.owner.ring()
    }

    /// The next connection; none until the ring has an event for its owner.
    pub fn next_socket(&mut self) -> Option<OwnedFd> {
        loop {
            let event = self.owner.next_event()?;
            if let Some(socket) = self.taken(event) {
                return Some(socket);
            }
        }
    }

    fn accept(&self) {
        if self.owner.accept(&self.socket, 0).is_err() {
            self.rest();
        }
    }

    fn rest(&self) {
        if self.owner.timer(Instant::now() + ACCEPT_REST, 0).is_err() {
            tracing::error!(address = %self.place, "no timer left: the listener stops accepting");
        }
    }

    /// The connection that an event brought; goes on accepting.
    fn taken(&self, event: Event) -> Option<OwnedFd> {
        let socket = match (event.result, event.payload) {
            (_, Payload::Timer) => {
                self.accept();
                return None;
            }
            (Ok(_), Payload::Socket(socket)) => Some(socket),
            (Err(error), _) => {
                tracing::warn!(%error, address = %self.place, "cannot accept a connection; trying again in {ACCEPT_REST:?}");
                if !event.more {
                    self.rest();
                }
                return None;
            }
            _ => None,
        };
        if !event.more {
            self.accept();
        }
        socket
    }
}
