//! Addresses that the target listens at, and the connections that come in there.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use nvme::controller::{Listener, Transport};
use reactor::{Event, Fd, Owner, OwnerId, Payload};

use super::Desk;
use super::visitor::Visitor;
use crate::admin::AdminError;
use crate::config::FrontendError;
use crate::limits::{HANDSHAKES_MAX, LISTENERS_MAX};

/// How long accepting rests after the kernel refused (no descriptors, no memory).
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// A listening socket.
#[derive(Debug)]
pub(super) struct Listening {
    owner: Owner,
    socket: Fd,
    pub(super) place: Listener,
}

impl Listening {
    /// What the discovery log says of a socket.
    pub(super) fn place(socket: &TcpListener, port_id: u16) -> Result<Listener, std::io::Error> {
        Ok(Listener {
            transport: Transport::Tcp,
            address: socket.local_addr()?,
            port_id,
        })
    }

    fn accept(&self) {
        if self.owner.accept(&self.socket, 0).is_err() {
            self.rest();
        }
    }

    fn rest(&self) {
        if self.owner.timer(Instant::now() + ACCEPT_REST, 0).is_err() {
            tracing::error!(address = %self.place.address, "no timer left: the listener stops accepting");
        }
    }
}

impl Desk {
    /// The listener that an event is about.
    pub(super) fn listener_of(&self, owner: OwnerId) -> Option<usize> {
        let mut owners = self.listeners.iter();
        owners.position(|listening| listening.owner.id() == owner)
    }

    /// Takes connections at one more address.
    pub(super) fn listen(
        &mut self,
        socket: TcpListener,
        place: Listener,
    ) -> Result<(), FrontendError> {
        let listening = Listening {
            owner: self.ring.register()?,
            socket: Fd::from(socket),
            place,
        };
        listening.accept();
        self.listeners.push(listening);
        self.tell_of_listeners();
        Ok(())
    }

    pub(super) fn add_listener(
        &mut self,
        port_id: u16,
        socket: TcpListener,
    ) -> Result<(), AdminError> {
        if self.listeners.iter().any(|it| it.place.port_id == port_id) {
            return Err(AdminError::ListenerTaken { port_id });
        }
        let refused = |why: String| AdminError::Listener { why };
        if self.listeners.len() >= LISTENERS_MAX {
            let why = format!("a target listens at {LISTENERS_MAX} addresses at most");
            return Err(refused(why));
        }
        let place =
            Listening::place(&socket, port_id).map_err(|error| refused(error.to_string()))?;
        self.listen(socket, place)
            .map_err(|error| refused(error.to_string()))
    }

    pub(super) fn remove_listener(&mut self, port_id: u16) -> Result<(), AdminError> {
        let before = self.listeners.len();
        self.listeners.retain(|it| it.place.port_id != port_id);
        if self.listeners.len() == before {
            return Err(AdminError::NoListener { port_id });
        }
        self.tell_of_listeners();
        Ok(())
    }

    fn tell_of_listeners(&mut self) {
        let places: Vec<Listener> = self.listeners.iter().map(|it| it.place).collect();
        self.registry.set_listeners(places);
        self.answer_all_async_events();
    }

    /// Takes what came in at a listener.
    pub(super) fn accepted(&mut self, at: usize) {
        while let Some(listening) = self.listeners.get(at)
            && let Some(event) = listening.owner.next_event()
        {
            if let Some(socket) = taken(listening, event) {
                self.welcome(socket);
            }
        }
    }

    fn welcome(&mut self, socket: std::net::TcpStream) {
        if self.passing.len() >= HANDSHAKES_MAX {
            tracing::warn!(
                limit = HANDSHAKES_MAX,
                "too many connections that have not finished Connect: one more is closed"
            );
            return;
        }
        match Visitor::new(&self.ring, socket, &self.service.limits, self.clock) {
            Ok(visitor) => {
                let owner = visitor.link.owner_id();
                if let Ok(key) = self.visitors.insert(visitor) {
                    self.owners.insert(owner, key);
                    self.passing.insert(key);
                    self.touched.push(key);
                }
            }
            Err(error) => tracing::warn!(%error, "a connection is closed at once"),
        }
    }
}

/// The connection that an event brought; goes on accepting.
fn taken(listening: &Listening, event: Event) -> Option<std::net::TcpStream> {
    let socket = match (event.result, event.payload) {
        (_, Payload::Timer) => {
            listening.accept();
            return None;
        }
        (Ok(_), Payload::Socket(socket)) => Some(socket.into()),
        (Err(error), _) => {
            tracing::warn!(%error, address = %listening.place.address, "cannot accept a connection; trying again in {ACCEPT_REST:?}");
            if !event.more {
                listening.rest();
            }
            return None;
        }
        _ => None,
    };
    if !event.more {
        listening.accept();
    }
    socket
}
