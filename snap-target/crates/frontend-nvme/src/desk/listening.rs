//! Addresses that the target listens at, and the connections that come in there.

use nvme::controller::Listener as Place;
use reactor::OwnerId;

use super::Desk;
use super::visitor::Visitor;
use crate::admin::AdminError;
use crate::limits::{HANDSHAKES_MAX, LISTENERS_MAX};
use crate::link::{Bound, Link, LinkError, Listener};

/// A listener, and what the discovery log says of it.
#[derive(Debug)]
pub(super) struct Listening {
    listener: Box<dyn Listener>,
    place: Place,
}

impl Desk {
    /// The listener that an event is about.
    pub(super) fn listener_of(&self, owner: OwnerId) -> Option<usize> {
        let mut all = self.listeners.iter();
        all.position(|listening| listening.listener.owner_id() == owner)
    }

    /// Takes connections at one more address.
    pub(super) fn listen(&mut self, port_id: u16, bound: Box<dyn Bound>) -> Result<(), LinkError> {
        let place = Place {
            transport: bound.transport(),
            address: bound.address(),
            port_id,
        };
        let listener = bound.listen(&self.ring, &self.service.limits, self.clock)?;
        self.listeners.push(Listening { listener, place });
        self.tell_of_listeners();
        Ok(())
    }

    pub(super) fn add_listener(
        &mut self,
        port_id: u16,
        bound: Box<dyn Bound>,
    ) -> Result<(), AdminError> {
        if self.listeners.iter().any(|it| it.place.port_id == port_id) {
            return Err(AdminError::ListenerTaken { port_id });
        }
        let refused = |why: String| AdminError::Listener { why };
        if self.listeners.len() >= LISTENERS_MAX {
            let why = format!("a target takes connections at {LISTENERS_MAX} places at most");
            return Err(refused(why));
        }
        self.listen(port_id, bound)
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
        let places: Vec<Place> = self.listeners.iter().map(|it| it.place).collect();
        self.registry.set_listeners(places);
        self.answer_all_async_events();
    }

    /// Takes what came in at a listener.
    pub(super) fn accepted(&mut self, at: usize) {
        loop {
            let Some(listening) = self.listeners.get_mut(at) else {
                return;
            };
            // A function's client, of which there is one at a time, has a place that no host takes.
            let is_fabric = listening.place.transport.is_fabric();
            let has_room = !is_fabric || self.passing.len() < HANDSHAKES_MAX;
            match listening.listener.next_connection(has_room) {
                Some(Ok(link)) => {
                    let port_id = listening.place.port_id;
                    self.welcome(link, port_id);
                }
                Some(Err(error)) => {
                    let address = listening.place.address;
                    tracing::warn!(%error, %address, "a connection is closed at once");
                }
                None => return,
            }
        }
    }

    /// A function has lost its client: another one may have waited for that.
    pub(super) fn let_next_in(&mut self, port_id: u16) {
        let mut all = self.listeners.iter();
        if let Some(at) = all.position(|it| it.place.port_id == port_id) {
            self.accepted(at);
        }
    }

    fn welcome(&mut self, mut link: Box<dyn Link>, port_id: u16) {
        let owner = link.owner_id();
        let is_function = link.function().is_some();
        if let Ok(key) = self.visitors.insert(Visitor::new(link, port_id)) {
            self.owners.insert(owner, key);
            self.passing.insert(key);
            self.touched.push(key);
            if is_function {
                self.attach_function(key);
            }
        }
    }
}
