//! The one place that a function has for a client.

use std::cell::RefCell;
use std::os::fd::AsFd;

use guest_memory::Quota;
use reactor::Fd;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::limits::CLIENT_MAPPINGS_MAX;

/// See the module.
#[derive(Debug)]
pub(crate) struct Seat {
    socket: RefCell<Option<Fd>>,
    /// Of the memory of whoever has it, and had it and is waited for.
    pub(crate) quota: Quota,
}

impl Default for Seat {
    fn default() -> Self {
        Self {
            socket: RefCell::default(),
            quota: Quota::new(CLIENT_MAPPINGS_MAX),
        }
    }
}

impl Seat {
    /// A client has it, at this socket.
    pub(crate) fn take(&self, socket: &Fd) {
        self.socket.replace(Some(socket.clone()));
    }

    /// It is free again.
    pub(crate) fn leave(&self) {
        self.socket.replace(None);
    }

    pub(crate) fn is_taken(&self) -> bool {
        self.socket.borrow().is_some()
    }

    /// Whether its client has ended the connection, which its function may not have taken in yet.
    pub(crate) fn is_left(&self) -> bool {
        let taken = self.socket.borrow();
        let socket = taken.as_ref().and_then(Fd::owned);
        socket.as_ref().is_some_and(has_left)
    }
}

/// Whether the other side of a socket has ended the connection.
pub(crate) fn has_left(socket: &impl AsFd) -> bool {
    let mut asked = [PollFd::new(socket, PollFlags::RDHUP)];
    let at_once = Timespec::default();
    let ended = PollFlags::HUP | PollFlags::RDHUP | PollFlags::ERR;
    poll(&mut asked, Some(&at_once)).is_ok() && asked[0].revents().intersects(ended)
}
