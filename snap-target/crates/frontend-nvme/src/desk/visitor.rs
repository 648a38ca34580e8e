//! A connection at the front desk: not yet past Connect, or an admin queue.

use std::collections::VecDeque;
use std::time::SystemTime;

use nvme::controller::{Admitted, ControllerId};
use nvme::queue::{QueueId, Slot};

use crate::link::Link;

/// See the module.
#[derive(Debug)]
pub(crate) struct Visitor {
    pub(crate) link: Box<dyn Link>,
    /// The listener that it came in at.
    pub(crate) port_id: u16,
    pub(crate) state: State,
    /// When it became an admin queue.
    pub(crate) connected_at: Option<SystemTime>,
    /// Admin commands that are not begun: the host has not taken enough of the answers before them.
    pub(crate) waiting_reads: VecDeque<Slot>,
    /// It ends since its host broke the protocol, or did not send what it had announced.
    pub(crate) broke_protocol: bool,
}

/// What a connection at the desk is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum State {
    /// Before Connect has succeeded.
    Handshake,
    /// An I/O queue that goes to its reactor as soon as nothing is under way.
    Moving { admitted: Admitted, connect: Slot },
    /// An admin queue.
    Admin(ControllerId),
}

impl State {
    /// CNTLID and QID, for log lines; none before Connect has succeeded.
    pub(crate) fn name(self) -> Option<(u16, u16)> {
        match self {
            State::Handshake => None,
            State::Moving { admitted, .. } => Some((admitted.controller.0, admitted.queue.0)),
            State::Admin(id) => Some((id.0, QueueId::ADMIN.0)),
        }
    }
}

impl Visitor {
    /// A connection that just came in.
    pub(crate) fn new(link: Box<dyn Link>, port_id: u16) -> Self {
        Self {
            link,
            port_id,
            state: State::Handshake,
            connected_at: None,
            waiting_reads: VecDeque::new(),
            broke_protocol: false,
        }
    }
}
