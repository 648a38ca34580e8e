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
    // A daemon that is killed says no farewell: the kernel would go on sending for it, and a write land behind newer ones of the next daemon.
    set_reset_on_close(&socket, true)?;
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
        Farewell::Orderly => set_reset_on_close(&socket, false),
        Farewell::Told => {
            let millis = u32::try_from(LINGER.as_millis()).unwrap_or(u32::MAX);
            set_reset_on_close(&socket, false)
                .and_then(|()| setsockopt(&socket, sockopt::TcpUserTimeout, &millis))
        }
        // As it is from the beginning.
        Farewell::Abrupt => Ok(()),
    };
    if let Err(error) = set {
        tracing::debug!(%error, "the system decides how long it holds what the controller has not taken");
    }
}

/// Whether the kernel drops what it has not sent, and resets the connection, when the socket is closed.
fn set_reset_on_close(socket: &impl AsFd, resets: bool) -> Result<(), Errno> {
    let linger = nix::libc::linger {
        l_onoff: resets.into(),
        l_linger: 0,
    };
    setsockopt(socket, sockopt::Linger, &linger)
}

/// Sends a last PDU where the socket has room for it; a peer that takes nothing would not read it.
pub(crate) fn send_last(socket: &Fd, bytes: &[u8]) -> bool {
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    let Some(socket) = socket.owned() else {
        return false;
    };
    send(socket.as_fd().as_raw_fd(), bytes, flags) == Ok(bytes.len())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failure of a test is a panic")]
mod tests {
    use std::io::{ErrorKind, Read};
    use std::net::TcpListener;

    use super::*;

    /// As if the process had been killed: what the peer had not taken by then never comes.
    #[test]
    fn what_is_closed_without_a_farewell_sends_nothing_more() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ours = open(listener.local_addr().unwrap()).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        let mut sent = 0;
        // Until the peer's window and our buffer are full.
        while let Ok(bytes) = send(ours.as_raw_fd(), &[7; 1 << 16], MsgFlags::MSG_DONTWAIT) {
            sent += bytes;
        }
        drop(ours);
        let mut came = 0;
        let mut part = vec![0; 1 << 16];
        let end = loop {
            match peer.read(&mut part) {
                Ok(0) => break None,
                Ok(bytes) => came += bytes,
                Err(error) => break Some(error.kind()),
            }
        };
        assert_eq!(end, Some(ErrorKind::ConnectionReset));
        assert!(came < sent, "{came} of {sent} bytes came");
    }
}
