//! A connection at the front desk: not yet past Connect, or an admin queue.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use nix::sys::socket::{getsockopt, setsockopt, sockopt};
use nvme::controller::{Admitted, Controller, ControllerId};
use nvme::queue::Slot;
use nvme::tcp::target::{Connection as Machine, TargetLimits};
use reactor::{Fd, Ring};

use crate::config::FrontendError;
use crate::limits::{PEER_IDLE, PEER_PROBE_INTERVAL, PEER_PROBES};
use crate::link::{Link, Receiving};
use crate::message::{Adoption, QueueCounters};
use crate::meter::QueueNames;
use frontend_nvme::Clock;

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
        notice_silence(&socket);
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
            connected_at: None,
            waiting_reads: VecDeque::new(),
            broke_protocol: false,
        })
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
        let mut link = self.link;
        let wire = std::mem::take(&mut link.wire);
        Some(Adoption {
            socket: self.socket,
            machine: link.into_machine()?,
            wire,
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

/// Has the system find out when the peer is gone without a word; the connection fails then.
fn notice_silence(socket: &TcpStream) {
    let seconds = |time: Duration| u32::try_from(time.as_secs()).unwrap_or(u32::MAX);
    let set = setsockopt(socket, sockopt::KeepAlive, &true)
        .and_then(|()| setsockopt(socket, sockopt::TcpKeepIdle, &seconds(PEER_IDLE)))
        .and_then(|()| {
            let interval = seconds(PEER_PROBE_INTERVAL);
            setsockopt(socket, sockopt::TcpKeepInterval, &interval)
        })
        .and_then(|()| setsockopt(socket, sockopt::TcpKeepCount, &PEER_PROBES));
    if let Err(error) = set {
        tracing::warn!(%error, "a peer that is gone without a word is not noticed");
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A host with KATO 0 that loses its power sends nothing more, not even an end.
    #[test]
    fn a_peer_that_is_gone_is_noticed_within_half_a_minute() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let _peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, _) = listener.accept().unwrap();
        assert!(!getsockopt(&socket, sockopt::KeepAlive).unwrap());
        notice_silence(&socket);
        assert!(getsockopt(&socket, sockopt::KeepAlive).unwrap());
        let idle = getsockopt(&socket, sockopt::TcpKeepIdle).unwrap();
        let interval = getsockopt(&socket, sockopt::TcpKeepInterval).unwrap();
        let probes = getsockopt(&socket, sockopt::TcpKeepCount).unwrap();
        assert_eq!((idle, interval, probes), (15, 5, 3));
    }
}
