//! Listening sockets, and the connections that come in there.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use frontend_nvme::Clock;
use frontend_nvme::link::{Bound, Link, LinkError, LinkLimits, Listener};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrStorage, bind as bind_socket, listen,
    setsockopt, socket, sockopt,
};
use nvme::controller::Transport;
use nvme::tcp::target::SuccessFlag;
use reactor::{Event, Fd, Owner, OwnerId, Payload, Ring};

use crate::limits::BACKLOG;
use crate::link::TcpLink;

/// How long accepting rests after the kernel refused (no descriptors, no memory).
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// A listening socket that takes no connections yet.
#[derive(Debug)]
pub struct TcpPort {
    socket: TcpListener,
    address: SocketAddr,
    success_flag: SuccessFlag,
}

/// Listens at `address`. `success_flag` says when the data of a read stand for its response.
///
/// # Errors
/// What the kernel says: in use, not ours, not allowed.
pub fn bind(address: SocketAddr, success_flag: SuccessFlag) -> Result<TcpPort, std::io::Error> {
    let family = if address.is_ipv4() {
        AddressFamily::Inet
    } else {
        AddressFamily::Inet6
    };
    let listener = socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    setsockopt(&listener, sockopt::ReuseAddr, &true)?;
    bind_socket(listener.as_raw_fd(), &SockaddrStorage::from(address))?;
    listen(&listener, Backlog::new(BACKLOG)?)?;
    let socket = TcpListener::from(listener);
    Ok(TcpPort {
        address: socket.local_addr()?,
        socket,
        success_flag,
    })
}

impl Bound for TcpPort {
    fn transport(&self) -> Transport {
        Transport::Tcp
    }

    fn address(&self) -> SocketAddr {
        self.address
    }

    fn listen(
        self: Box<Self>,
        ring: &Ring,
        limits: &LinkLimits,
        clock: Clock,
    ) -> Result<Box<dyn Listener>, LinkError> {
        let listening = Listening {
            owner: ring.register()?,
            socket: Fd::from(self.socket),
            address: self.address,
            limits: *limits,
            success_flag: self.success_flag,
            clock,
        };
        listening.accept();
        Ok(Box::new(listening))
    }
}

/// A listening socket on the desk's ring.
#[derive(Debug)]
struct Listening {
    owner: Owner,
    socket: Fd,
    address: SocketAddr,
    limits: LinkLimits,
    success_flag: SuccessFlag,
    clock: Clock,
}

impl Listener for Listening {
    fn owner_id(&self) -> OwnerId {
        self.owner.id()
    }

    fn next_connection(&mut self, has_room: bool) -> Option<Result<Box<dyn Link>, LinkError>> {
        loop {
            let event = self.owner.next_event()?;
            if let Some(stream) = self.taken(event) {
                return Some(if has_room {
                    self.welcome(stream)
                } else {
                    Err(LinkError::NoRoom)
                });
            }
        }
    }
}

impl Listening {
    fn accept(&self) {
        if self.owner.accept(&self.socket, 0).is_err() {
            self.rest();
        }
    }

    fn rest(&self) {
        if self.owner.timer(Instant::now() + ACCEPT_REST, 0).is_err() {
            tracing::error!(address = %self.address, "no timer left: the listener stops accepting");
        }
    }

    fn welcome(&self, stream: TcpStream) -> Result<Box<dyn Link>, LinkError> {
        let ring = self.owner.ring();
        let link = TcpLink::accepted(ring, stream, &self.limits, self.success_flag, self.clock)?;
        Ok(Box::new(link))
    }

    /// The connection that an event brought; goes on accepting.
    fn taken(&self, event: Event) -> Option<TcpStream> {
        let socket = match (event.result, event.payload) {
            (_, Payload::Timer) => {
                self.accept();
                return None;
            }
            (Ok(_), Payload::Socket(socket)) => Some(socket.into()),
            (Err(error), _) => {
                tracing::warn!(%error, address = %self.address, "cannot accept a connection; trying again in {ACCEPT_REST:?}");
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
