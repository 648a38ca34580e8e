//! The socket: made, connected, and let go.

use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, SockaddrStorage, connect, getsockopt, send,
    setsockopt, socket, sockopt,
};
use reactor::{Errno, Fd};

use crate::limits::LINGER;

/// A socket that is on its way to `to`. It does not block until [`connected`].
pub(crate) fn open(to: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if to.is_ipv4() {
        AddressFamily::Inet
    } else {
        AddressFamily::Inet6
    };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket = socket(family, SockType::Stream, flags, None)?;
    setsockopt(&socket, sockopt::TcpNoDelay, &true)?;
    match connect(socket.as_raw_fd(), &SockaddrStorage::from(to)) {
        Ok(()) | Err(Errno::EINPROGRESS) => Ok(socket),
        Err(error) => Err(error),
    }
}

/// How the connecting ended, once the socket can be written. From then on it is a blocking one, as those that a frontend accepts are.
pub(crate) fn connected(socket: &Fd) -> Result<(), Errno> {
    let socket = socket.owned().ok_or(Errno::EBADF)?;
    match getsockopt(&socket, sockopt::SocketError)? {
        0 => {}
        error => return Err(Errno::from_raw(error)),
    }
    let flags = OFlag::from_bits_retain(fcntl(socket, FcntlArg::F_GETFL)?);
    fcntl(socket, FcntlArg::F_SETFL(flags - OFlag::O_NONBLOCK))?;
    Ok(())
}

/// How a connection leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Farewell {
    /// Nothing is outstanding: what was sent arrives.
    Orderly,
    /// With a TermReq, which the peer has a little time to take.
    Told,
    /// At once: what the kernel has not sent yet, commands whose host has given them up, never leaves.
    Abrupt,
}

/// Says to the kernel how the connection is to end when the socket is closed.
pub(crate) fn prepare_close(socket: &Fd, farewell: Farewell) {
    let Some(socket) = socket.owned() else {
        return;
    };
    let set = match farewell {
        Farewell::Orderly => Ok(()),
        Farewell::Told => {
            let millis = u32::try_from(LINGER.as_millis()).unwrap_or(u32::MAX);
            setsockopt(&socket, sockopt::TcpUserTimeout, &millis)
        }
        Farewell::Abrupt => {
            let reset = nix::libc::linger {
                l_onoff: 1,
                l_linger: 0,
            };
            setsockopt(&socket, sockopt::Linger, &reset)
        }
    };
    if let Err(error) = set {
        tracing::debug!(%error, "the system decides how long it holds what the controller has not taken");
    }
}

/// Sends a last PDU where the socket has room for it; a peer that takes nothing would not read it.
pub(crate) fn send_last(socket: &Fd, bytes: &[u8]) -> bool {
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    let Some(socket) = socket.owned() else {
        return false;
    };
    send(socket.as_fd().as_raw_fd(), bytes, flags) == Ok(bytes.len())
}
