//! What is set of a connection's socket.

use std::ffi::OsString;
use std::net::TcpStream;
use std::time::Duration;

use frontend_nvme::link::LINGER;
use nix::sys::socket::{getsockopt, setsockopt, sockopt};
use reactor::Fd;

use crate::limits::{PEER_IDLE, PEER_PROBE_INTERVAL, PEER_PROBES, SEND_BUFFER_BYTES};

/// Of a connection that was just accepted.
///
/// # Errors
/// The socket is gone already.
pub(crate) fn prepare(stream: &TcpStream) -> Result<(), std::io::Error> {
    stream.set_nodelay(true)?;
    // The kernel clamps it to what it allows; whatever comes of it works.
    if let Err(error) = setsockopt(stream, sockopt::SndBuf, &SEND_BUFFER_BYTES) {
        tracing::debug!(%error, "the send buffer keeps its size");
    }
    avoid_pacing(stream);
    notice_silence(stream);
    Ok(())
}

/// What the host has not taken is dropped when the socket is closed.
pub(crate) fn reset_when_closed(socket: &Fd) -> nix::Result<()> {
    let reset = nix::libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    set(socket, sockopt::Linger, &reset)
}

/// What the host has not taken is dropped some time after the socket was closed.
pub(crate) fn hold_no_longer_than_linger(socket: &Fd) -> nix::Result<()> {
    let millis = u32::try_from(LINGER.as_millis()).unwrap_or(u32::MAX);
    set(socket, sockopt::TcpUserTimeout, &millis)
}

fn set<O: nix::sys::socket::SetSockOpt>(socket: &Fd, option: O, value: &O::Val) -> nix::Result<()> {
    // A connection's socket is its own, not the ring's.
    let socket = socket.owned().ok_or(nix::errno::Errno::EBADF)?;
    setsockopt(&socket, option, value)
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
