//! The socket at which a function waits for its client.

use std::cell::Cell;
use std::net::SocketAddr;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use frontend_nvme::Clock;
use frontend_nvme::link::{Bound, Link, LinkError, LinkLimits, Listener};
use nvme::controller::Transport;
use nvme::nqn::Nqn;
use reactor::{Event, Fd, Owner, OwnerId, Payload, Ring};

use crate::function::FunctionLink;
use crate::io_link::NOWHERE;

/// How long accepting rests after the kernel refused.
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// A function that takes no client yet. The socket's path goes with it.
#[derive(Debug)]
pub struct VfioUserPort {
    socket: UnixListener,
    path: SocketPath,
    subsystem: Nqn,
}

/// Unlinked when nobody listens there any more.
#[derive(Debug)]
struct SocketPath(PathBuf);

impl Drop for SocketPath {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0) {
            tracing::debug!(path = %self.0.display(), %error, "a socket is left behind");
        }
    }
}

/// A function of a subsystem, at a path. A socket that was left there by somebody who is gone is replaced.
///
/// # Errors
/// Somebody listens there; or what the system says of the path.
pub fn bind(path: &Path, subsystem: Nqn) -> Result<VfioUserPort, std::io::Error> {
    let bound = UnixListener::bind(path).or_else(|error| {
        let is_left = error.kind() == std::io::ErrorKind::AddrInUse
            && UnixStream::connect(path)
                .is_err_and(|why| why.kind() == std::io::ErrorKind::ConnectionRefused);
        if !is_left {
            return Err(error);
        }
        std::fs::remove_file(path)?;
        UnixListener::bind(path)
    })?;
    Ok(VfioUserPort {
        socket: bound,
        path: SocketPath(path.to_owned()),
        subsystem,
    })
}

impl Bound for VfioUserPort {
    fn transport(&self) -> Transport {
        Transport::Pcie
    }

    /// It has none.
    fn address(&self) -> SocketAddr {
        NOWHERE
    }

    fn listen(
        self: Box<Self>,
        ring: &Ring,
        limits: &LinkLimits,
        _clock: Clock,
    ) -> Result<Box<dyn Listener>, LinkError> {
        let listening = Listening {
            owner: ring.register()?,
            socket: Fd::from(self.socket),
            path: self.path,
            subsystem: self.subsystem,
            limits: *limits,
            is_used: Rc::default(),
        };
        listening.accept();
        Ok(Box::new(listening))
    }
}

/// A socket on the desk's ring.
#[derive(Debug)]
struct Listening {
    owner: Owner,
    socket: Fd,
    path: SocketPath,
    subsystem: Nqn,
    limits: LinkLimits,
    /// A client has the function.
    is_used: Rc<Cell<bool>>,
}

impl Listener for Listening {
    fn owner_id(&self) -> OwnerId {
        self.owner.id()
    }

    fn next_connection(&mut self, has_room: bool) -> Option<Result<Box<dyn Link>, LinkError>> {
        loop {
            let event = self.owner.next_event()?;
            if let Some(stream) = self.taken(event) {
                return Some(match has_room {
                    true => self.welcome(stream),
                    false => Err(LinkError::NoRoom),
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
            tracing::error!(path = %self.path.0.display(), "no timer left: the function takes no more clients");
        }
    }

    fn welcome(&self, stream: UnixStream) -> Result<Box<dyn Link>, LinkError> {
        if self.is_used.get() {
            let path = self.path.0.display();
            let why = format!("the function at {path} has a client: one more is let go");
            return Err(LinkError::Resources(why));
        }
        let link = FunctionLink::new(
            self.owner.ring(),
            stream,
            self.subsystem.clone(),
            &self.limits,
            self.is_used.clone(),
        )?;
        Ok(Box::new(link))
    }

    /// The connection that an event brought; goes on accepting.
    fn taken(&self, event: Event) -> Option<UnixStream> {
        let socket = match (event.result, event.payload) {
            (_, Payload::Timer) => {
                self.accept();
                return None;
            }
            (Ok(_), Payload::Socket(socket)) => Some(UnixStream::from(socket)),
            (Err(error), _) => {
                tracing::warn!(%error, path = %self.path.0.display(), "cannot accept a client; trying again in {ACCEPT_REST:?}");
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
