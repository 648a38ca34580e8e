//! A nonblocking TCP connection, and waiting for it.

use std::ffi::OsString;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::TcpCongestion;

use crate::{Error, Options};

/// Bytes that crossed connections, PDU headers included, TCP's and IP's not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireBytes {
    /// From this host to the target.
    pub sent: u64,
    /// From the target to this host.
    pub received: u64,
}

impl std::ops::AddAssign for WireBytes {
    fn add_assign(&mut self, other: WireBytes) {
        self.sent += other.sent;
        self.received += other.received;
    }
}

#[derive(Debug)]
pub(crate) struct Socket {
    stream: TcpStream,
    address: String,
    wire_bytes: WireBytes,
}

impl Socket {
    pub fn connect(address: &str, options: &Options) -> Result<Socket, Error> {
        let resolved = address.to_socket_addrs().map_err(|source| Error::Resolve {
            address: address.to_owned(),
            source,
        })?;
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for candidate in resolved {
            match TcpStream::connect_timeout(&candidate, options.connect_timeout) {
                Ok(stream) => return Socket::new(stream, address, options),
                Err(error) => last = error,
            }
        }
        Err(Error::Connect {
            address: address.to_owned(),
            source: last,
        })
    }

    fn new(stream: TcpStream, address: &str, options: &Options) -> Result<Socket, Error> {
        if let Some(name) = &options.congestion {
            setsockopt(&stream, TcpCongestion, &OsString::from(name)).map_err(|errno| {
                Error::Congestion {
                    name: name.clone(),
                    source: errno.into(),
                }
            })?;
        }
        let prepare = || {
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)
        };
        prepare().map_err(|source| Error::Connect {
            address: address.to_owned(),
            source,
        })?;
        Ok(Socket {
            stream,
            address: address.to_owned(),
            wire_bytes: WireBytes::default(),
        })
    }

    /// What it carried so far.
    pub fn wire_bytes(&self) -> WireBytes {
        self.wire_bytes
    }

    /// The target, as the caller named it.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Bytes read; `None` where there are none now.
    pub fn read(&mut self, into: &mut [IoSliceMut<'_>]) -> Result<Option<usize>, Error> {
        match retry(|| self.stream.read_vectored(into)) {
            Ok(Some(0)) => Err(Error::Closed {
                address: self.address.clone(),
            }),
            Ok(read) => {
                self.wire_bytes.received += read.unwrap_or(0) as u64;
                Ok(read)
            }
            error => self.named(error),
        }
    }

    /// Bytes written; `None` where there is no room now.
    pub fn write(&mut self, from: &[IoSlice<'_>]) -> Result<Option<usize>, Error> {
        let written = retry(|| self.stream.write_vectored(from));
        let written = self.named(written)?;
        self.wire_bytes.sent += written.unwrap_or(0) as u64;
        Ok(written)
    }

    /// What [`wait`] waits for: bytes to read, and room to write where bytes are left to be sent.
    pub fn poll_entry(&self, wants_room: bool) -> PollFd<'_> {
        let mut flags = PollFlags::POLLIN;
        flags.set(PollFlags::POLLOUT, wants_room);
        PollFd::new(self.stream.as_fd(), flags)
    }

    fn named(&self, result: io::Result<Option<usize>>) -> Result<Option<usize>, Error> {
        result.map_err(|source| match source.kind() {
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Error::Closed {
                address: self.address.clone(),
            },
            _ => Error::Socket {
                address: self.address.clone(),
                source,
            },
        })
    }
}

fn retry(mut operation: impl FnMut() -> io::Result<usize>) -> io::Result<Option<usize>> {
    loop {
        match operation() {
            Ok(count) => return Ok(Some(count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Waits until one of the sockets is ready, or the time is over; true where one is. A timeout of zero only looks.
pub(crate) fn wait(entries: &mut [PollFd<'_>], timeout: Duration) -> std::io::Result<bool> {
    let timeout = PollTimeout::try_from(timeout).unwrap_or(PollTimeout::MAX);
    match poll(entries, timeout) {
        Ok(ready) => Ok(ready > 0),
        Err(nix::errno::Errno::EINTR) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}
