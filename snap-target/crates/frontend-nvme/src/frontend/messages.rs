//! What reactors and the desk tell each other.

use super::Frontend;
use crate::desk::To;
use crate::message::Message;

impl Frontend {
    pub(super) fn take_messages(&mut self) {
        while let Some(message) = self.inbox.try_recv() {
            self.message(message);
        }
    }

    pub(super) fn message(&mut self, message: Message) {
        match message {
            Message::Adopt(adoption) => self.adopt(*adoption),
            Message::Order(order) => self.order(order),
            Message::Abort(abort) => self.abort(abort),
            Message::Reserved(reserved) => self.reserved(&reserved),
            Message::Stop => self.stopping = true,
            message @ (Message::QueueClosed(..)
            | Message::Failed(..)
            | Message::Request(_)
            | Message::Carried(..)
            | Message::Aborted(..)
            | Message::Reserve(_)
            | Message::Fenced(_)
            | Message::Preempted(_)
            | Message::Settled(_)
            | Message::Kept) => {
                if let Some(desk) = &mut self.desk {
                    desk.message(message);
                }
            }
        }
    }

    pub(super) fn tell_desk(&mut self, message: Message) {
        self.quiet.end();
        match &mut self.desk {
            Some(desk) => desk.message(message),
            None => self.tell(0, message),
        }
    }

    /// Sends a message to a reactor, this one included.
    pub(super) fn tell(&mut self, reactor: usize, message: Message) {
        self.quiet.end();
        if reactor == usize::from(self.reactor) {
            return self.message(message);
        }
        let Some(peer) = self.peers.get(reactor) else {
            return;
        };
        // Behind those that wait already: a queue must not be closed before it was adopted.
        if !self.outbox.is_empty() {
            self.outbox.push_back((reactor, message));
        } else if let Err(reactor::Full(message)) = peer.sender.send_via(&self.ring, message) {
            self.outbox.push_back((reactor, message));
        }
    }

    /// Messages that found their reactor's channel full go again, in their order.
    pub(super) fn send_outbox(&mut self) {
        let waiting = std::mem::take(&mut self.outbox);
        for (reactor, message) in waiting {
            self.tell(reactor, message);
        }
    }

    /// Lets the desk act, and carries out what it asks.
    pub(super) fn serve_desk(&mut self) {
        let Some(mut desk) = self.desk.take() else {
            return;
        };
        desk.act(&mut self.engine);
        let requests = desk.take_requests();
        for farewell in desk.take_ended() {
            self.farewells.begin(farewell);
        }
        self.desk = Some(desk);
        for (to, message) in requests {
            match (to, message) {
                (To::Reactor(reactor), message) => self.tell(reactor, message),
                (To::All, Message::Order(order)) => {
                    for reactor in 0..self.peers.len() {
                        self.tell(reactor, Message::Order(order.clone()));
                    }
                }
                (To::All, _) => {}
            }
        }
    }
}
