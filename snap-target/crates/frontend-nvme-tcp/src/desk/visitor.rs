//! A connection at the front desk: not yet past Connect, or an admin queue.

use std::ffi::OsString;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use nix::sys::socket::{getsockopt, setsockopt, sockopt};
use nvme::controller::{Admitted, Controller, ControllerId};
use nvme::queue::Slot;
use nvme::tcp::target::{Connection as Machine, TargetLimits};
use reactor::{Fd, Ring};

use crate::clock::Clock;
use crate::config::FrontendError;
use crate::link::{Link, Receiving};
use crate::message::{Adoption, QueueCounters};
use crate::meter::QueueNames;

/// Room for what a gathered send holds: with the system's default a large read leaves in many small pieces.
const SEND_BUFFER_BYTES: usize = 512 << 10;

/// See the module.
#[derive(Debug)]
pub(crate) struct Visitor {
    pub(crate) link: Link,
    /// The same socket, in a form that may go to another thread.
    socket: TcpStream,
    /// The address at which the host came in.
    pub(crate) local: SocketAddr,
    /// From where.
    pub(crate) peer: SocketAddr,
    pub(crate) state: State,
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

impl Visitor {
    /// A connection that was just accepted.
    ///
    /// # Errors
    /// The socket is gone already, or the ring is full.
    pub(crate) fn new(
        ring: &Ring,
        socket: TcpStream,
        limits: &TargetLimits,
        clock: Clock,
    ) -> Result<Self, FrontendError> {
        socket.set_nodelay(true)?;
        // The kernel clamps it to what it allows; whatever comes of it works.
        if let Err(error) = setsockopt(&socket, sockopt::SndBuf, &SEND_BUFFER_BYTES) {
            tracing::debug!(%error, "the send buffer keeps its size");
        }
        avoid_pacing(&socket);
        let (local, peer) = (socket.local_addr()?, socket.peer_addr()?);
        let machine = Machine::new(limits, clock.now());
        let mut link = Link::new(
            ring,
            Fd::from(socket.try_clone()?),
            machine,
            Receiving::Exactly,
        )?;
        link.watch(clock);
        Ok(Self {
            link,
            socket,
            local,
            peer,
            state: State::Handshake,
        })
    }

    /// Whether Connect has not succeeded yet, or the connection is on its way to its reactor.
    pub(crate) fn is_passing(&self) -> bool {
        !matches!(self.state, State::Admin(_))
    }

    /// Takes the connection apart for its reactor; `None` if something was under way.
    pub(crate) fn into_adoption(
        self,
        admitted: Admitted,
        connect: Slot,
        counters: Arc<QueueCounters>,
        names: QueueNames,
        controller: &Controller,
    ) -> Option<Adoption> {
        let machine = self.link.into_machine()?;
        Some(Adoption {
            socket: self.socket,
            machine,
            admitted,
            connect,
            counters,
            names,
            namespaces: Arc::clone(controller.namespaces()),
            copy_formats: controller.copy_formats(),
            host: controller.reservation_host(),
            limits: *controller.limits(),
        })
    }
}

/// Where the system's congestion control paces its packets (BBR), the connection uses Reno, which every Linux allows anyone: pacing delays the
/// answers of a local storage network by more than it could ever save (docs/benchmarks.md).
fn avoid_pacing(socket: &TcpStream) {
    let paces = getsockopt(socket, sockopt::TcpCongestion)
        .is_ok_and(|name| name.to_string_lossy().starts_with("bbr"));
    if paces && let Err(error) = setsockopt(socket, sockopt::TcpCongestion, &OsString::from("reno"))
    {
        tracing::debug!(%error, "the congestion control stays as it is");
    }
}
