//! What happens at a target, for whoever watches it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;

use nvme::controller::ControllerId;
use nvme::nqn::Nqn;
use nvme::queue::QueueId;
use nvme_spec::Status;
use nvme_spec::reservation::NotificationType;

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TargetEvent {
    /// A controller was made for a host.
    HostConnected {
        /// CNTLID.
        controller: ControllerId,
        /// Its subsystem; none for a discovery controller.
        subsystem: Option<Nqn>,
        /// HOSTNQN.
        host: Nqn,
        /// HOSTID.
        host_id: [u8; 16],
        /// From where.
        peer: SocketAddr,
    },
    /// A controller is gone, its last queue with it.
    HostGone {
        /// CNTLID.
        controller: ControllerId,
        /// Its subsystem; none for a discovery controller.
        subsystem: Option<Nqn>,
        /// HOSTNQN.
        host: Nqn,
        /// Why it had to end.
        why: Gone,
    },
    /// An I/O queue was let in.
    QueueConnected {
        /// CNTLID.
        controller: ControllerId,
        /// QID.
        queue: QueueId,
    },
    /// An I/O queue has ended, after its last request.
    QueueClosed {
        /// CNTLID.
        controller: ControllerId,
        /// QID.
        queue: QueueId,
    },
    /// A Connect was refused.
    HostRefused(ConnectRefused),
    /// A host was told that the reservations of a namespace changed.
    ReservationChanged {
        /// Its subsystem.
        subsystem: Nqn,
        /// NSID.
        nsid: u32,
        /// HOSTID of the host that was told.
        host_id: [u8; 16],
        /// What.
        what: NotificationType,
    },
}

/// A Connect that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectRefused {
    /// SUBNQN; none where it is no name.
    pub subsystem: Option<Nqn>,
    /// HOSTNQN; none where it is no name.
    pub host: Option<Nqn>,
    /// From where.
    pub peer: SocketAddr,
    /// Why.
    pub status: Status,
    /// The subsystem is there.
    pub is_known: bool,
}

/// Why a controller ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// Its host closed the admin queue after it had shut the controller down.
    HostLeft,
    /// Its host closed the admin queue, or the network did.
    Disconnected,
    /// Its host broke the protocol on the admin queue, or did not send what it had announced.
    ProtocolError,
    /// It was not heard of for its keep alive time.
    KeepAliveExpired,
    /// Its host may no longer connect, its subsystem is gone or was reset, or an operator ended it.
    Ended,
}

/// Takes events without ever waiting: what finds the channel full is counted and lost.
#[derive(Clone, Debug, Default)]
pub struct EventSink {
    sender: Option<SyncSender<TargetEvent>>,
    lost: Arc<AtomicU64>,
}

impl EventSink {
    /// Into a bounded channel.
    #[must_use]
    pub fn new(sender: SyncSender<TargetEvent>) -> Self {
        Self {
            sender: Some(sender),
            lost: Arc::default(),
        }
    }

    /// Events that found the channel full, so far.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Counts on without keeping the channel open.
    #[must_use]
    pub fn losses(&self) -> Losses {
        Losses(self.lost.clone())
    }

    pub(crate) fn send(&self, event: TargetEvent) {
        if let Some(sender) = &self.sender
            && sender.try_send(event).is_err()
        {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// How many events a sink has lost.
#[derive(Clone, Debug, Default)]
pub struct Losses(Arc<AtomicU64>);

impl Losses {
    /// So far.
    #[must_use]
    pub fn so_far(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
