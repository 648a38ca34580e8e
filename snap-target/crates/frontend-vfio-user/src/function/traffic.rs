//! The client's socket: messages in, replies out.

use std::os::fd::AsFd;
use std::time::Instant;

use frontend_nvme::link::{LinkEvent, LinkFailure};
use reactor::Payload;

use super::device::BAR0;
use super::{
    FunctionLink, RECEIVES_A_TURN, Sending, TAG_APART, TAG_BELL, TAG_RESET, TAG_SEND, TAG_SOCKET,
};
use crate::io_link::READABLE;
use crate::limits::{SEND_AGAIN, SEND_PATIENCE};
use crate::socket::{self, Received};

impl FunctionLink {
    /// Takes in what the ring has for the function.
    pub(super) fn take_ring_events(&mut self) {
        while let Some(event) = self.owner.next_event() {
            match (event.tag, event.payload) {
                (TAG_SOCKET, _) => {
                    self.receiving.is_waiting_for_socket = false;
                    self.receiving.is_readable = true;
                }
                (TAG_BELL, _) => {
                    self.receiving.is_waiting_for_bell = false;
                    self.common.bell.hear();
                    self.look_for_loss();
                }
                (TAG_RESET, Payload::Timer) => self.give_up_reset(),
                (TAG_APART, Payload::Timer) => self.give_up_messages(),
                // The settling that follows tries again.
                (TAG_SEND, Payload::Timer) => self.is_send_timed = false,
                _ => {}
            }
        }
    }

    /// A client without its memory is let go: what its queues have done since is told to nobody.
    fn look_for_loss(&mut self) {
        if self.view.windows.loss().has_happened() && !self.is_over {
            self.fail("a page of the guest's memory could not be had: its file is shorter than what was mapped, or there is no room for the page".to_owned());
        }
    }

    /// Receives a part of a message; false where there is nothing to receive, or none may be now.
    pub(super) fn receive(&mut self) -> bool {
        let wanted = self.server.want().min(self.receiving.buffer.len());
        if !self.receiving.is_readable || self.receiving.left == 0 || wanted == 0 || self.is_over {
            return false;
        }
        self.receiving.left -= 1;
        let (Some(socket), Some(room)) =
            (self.socket.owned(), self.receiving.buffer.get_mut(..wanted))
        else {
            return false;
        };
        match socket::receive(socket.as_fd(), room) {
            Ok(Received::Bytes(bytes, fds)) => {
                let received = room.get(..bytes).unwrap_or_default();
                if let Err(error) = self.server.receive(received, fds) {
                    self.fail(error.to_string());
                }
                true
            }
            Ok(Received::Nothing) => {
                self.receiving.is_readable = false;
                false
            }
            Ok(Received::Closed) => {
                self.is_over = true;
                false
            }
            Err(errno) => {
                self.fail(format!("the client's socket: {errno}"));
                false
            }
        }
    }

    /// The connection ends; what is to be sent still is, where the client takes it.
    fn fail(&mut self, why: String) {
        self.events
            .push_back(LinkEvent::Failed(LinkFailure::Protocol(why)));
        self.send();
        self.is_over = true;
    }

    /// Has the ring wait for what may come. A turn's worth of messages begins.
    pub(super) fn wait(&mut self) {
        let receiving = &mut self.receiving;
        receiving.left = RECEIVES_A_TURN;
        if !receiving.is_waiting_for_socket && self.is_attached && self.server.want() > 0 {
            let waits = self.owner.poll(&self.socket, READABLE, TAG_SOCKET).is_ok();
            receiving.is_waiting_for_socket = waits;
            self.is_over |= !waits;
        }
        if !receiving.is_waiting_for_bell {
            let waits = self.owner.poll(&self.bell, READABLE, TAG_BELL).is_ok();
            receiving.is_waiting_for_bell = waits;
            self.is_over |= !waits;
        }
    }

    /// Sends what the client takes.
    pub(super) fn send(&mut self) {
        while !self.is_over {
            let next = || {
                self.server.outgoing().map(|message| Sending {
                    message,
                    sent: 0,
                    stuck_since: None,
                })
            };
            let Some(mut sending) = self.sending.take().or_else(next) else {
                return;
            };
            let rest = sending
                .message
                .bytes
                .get(sending.sent..)
                .unwrap_or_default();
            let Some(socket) = self.socket.owned() else {
                return;
            };
            // BAR0's, of which doorbells can be mapped: no other region has one.
            let wants_fd = sending.sent == 0 && sending.message.region_fd == Some(BAR0);
            let page = self.common.page.as_deref().filter(|_| wants_fd);
            match socket::send(socket.as_fd(), rest, page.map(AsFd::as_fd)) {
                Ok(0) => return self.send_later(sending),
                Ok(sent) if sent < rest.len() => {
                    sending.sent += sent;
                    sending.stuck_since = None;
                    self.sending = Some(sending);
                }
                Ok(_) => {}
                Err(errno) => {
                    tracing::debug!(%errno, "a reply cannot be sent");
                    self.is_over = true;
                }
            }
        }
    }

    /// The client takes nothing now.
    fn send_later(&mut self, mut sending: Sending) {
        let now = Instant::now();
        let since = *sending.stuck_since.get_or_insert(now);
        self.sending = Some(sending);
        if now.duration_since(since) > SEND_PATIENCE {
            tracing::warn!(
                host = self.names.host.as_str(),
                subsystem = self.names.subsystem.as_str(),
                "the client of a PCIe function takes no replies; it is let go"
            );
            self.is_over = true;
        } else if !self.is_send_timed {
            self.is_send_timed = self.owner.timer(now + SEND_AGAIN, TAG_SEND).is_ok();
            self.is_over |= !self.is_send_timed;
        }
    }
}
