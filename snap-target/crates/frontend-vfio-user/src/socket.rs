//! Messages and descriptors over a Unix socket, without waiting.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use vfio_user::limits::MESSAGE_FDS_MAX;

/// What a receive brought.
#[derive(Debug)]
pub(crate) enum Received {
    /// Bytes, and the descriptors that came with them.
    Bytes(usize, Vec<OwnedFd>),
    /// There is nothing now.
    Nothing,
    /// The client is gone.
    Closed,
}

/// Receives at most as many bytes as `into` has room for. More descriptors than a message may have are an error: the system has dropped some.
pub(crate) fn receive(socket: impl AsFd, into: &mut [u8]) -> Result<Received, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MESSAGE_FDS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(socket, &mut [IoSliceMut::new(into)], &mut ancillary, flags);
    let received = match received {
        Ok(received) => received,
        Err(Errno::AGAIN | Errno::INTR) => return Ok(Received::Nothing),
        Err(errno) => return Err(errno),
    };
    let rights = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    let fds: Vec<OwnedFd> = rights.flatten().collect();
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(Errno::TOOMANYREFS);
    }
    match received.bytes {
        0 => Ok(Received::Closed),
        bytes => Ok(Received::Bytes(bytes, fds)),
    }
}

/// Sends what the client takes now, with a descriptor where one goes with the first byte; 0 where that is nothing.
pub(crate) fn send(
    socket: impl AsFd,
    bytes: &[u8],
    fd: Option<BorrowedFd<'_>>,
) -> Result<usize, Errno> {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fds = fd.as_slice();
    if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        // It has room for one.
        return Err(Errno::NOBUFS);
    }
    match sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, flags) {
        Err(Errno::AGAIN | Errno::INTR) => Ok(0),
        sent => sent,
    }
}
