//! Listening sockets, and the connections that come in there.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;

use frontend_nvme::link::{Bound, Link, LinkError, LinkLimits, Listener};
use frontend_nvme::{Acceptor, Clock};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrStorage, bind as bind_socket, listen,
    setsockopt, socket, sockopt,
};
use nvme::controller::Transport;
use nvme::tcp::target::SuccessFlag;
use reactor::{Fd, OwnerId, Ring};

use crate::limits::BACKLOG;
use crate::link::TcpLink;

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
        let place = self.address.to_string();
        Ok(Box::new(Listening {
            acceptor: Acceptor::new(ring, Fd::from(self.socket), place)?,
            limits: *limits,
            success_flag: self.success_flag,
            clock,
        }))
    }
}

/// A listening socket on the desk's ring.
#[derive(Debug)]
struct Listening {
    acceptor: Acceptor,
    limits: LinkLimits,
    success_flag: SuccessFlag,
    clock: Clock,
}

impl Listener for Listening {
    fn owner_id(&self) -> OwnerId {
        self.acceptor.owner_id()
    }

    fn next_connection(&mut self, has_room: bool) -> Option<Result<Box<dyn Link>, LinkError>> {
        let socket = self.acceptor.next_socket()?;
        Some(if has_room {
            self.welcome(socket.into())
        } else {
            Err(LinkError::NoRoom)
        })
    }
}

impl Listening {
    fn welcome(&self, stream: TcpStream) -> Result<Box<dyn Link>, LinkError> {
        let ring = self.acceptor.ring();
        let link = TcpLink::accepted(ring, stream, &self.limits, self.success_flag, self.clock)?;
        Ok(Box::new(link))
    }
}
