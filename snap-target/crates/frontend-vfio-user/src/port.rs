//! The socket at which a function waits for its client.

use std::net::SocketAddr;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::rc::Rc;

use frontend_nvme::link::{Bound, Link, LinkError, LinkLimits, Listener};
use frontend_nvme::{Acceptor, Clock};
use nvme::controller::Transport;
use nvme::nqn::Nqn;
use reactor::{Fd, OwnerId, Ring, UnixPlace, UnixPort, UnixPortError};

use crate::function::FunctionLink;
use crate::io_link::NOWHERE;
use crate::seat::{self, Seat};

/// A function that takes no client yet. The socket's path goes with it.
#[derive(Debug)]
pub struct VfioUserPort {
    socket: UnixListener,
    path: UnixPlace,
    names: Names,
    doorbells: Doorbells,
}

/// Whose controller a function's client gets, and for whom.
#[derive(Clone, Debug)]
pub struct Names {
    /// The subsystem.
    pub subsystem: Nqn,
    /// What the function's host goes by: [`Nqn::function_host`].
    pub host: Nqn,
}

/// How a function learns of its doorbells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Doorbells {
    /// By messages, or where the guest keeps them in its own memory for a while: it sleeps when nobody uses it.
    #[default]
    Rung,
    /// The client may map them, and they are looked at all the time while the controller is enabled: its queues' reactors do not sleep.
    Polled,
}

/// A function, at a path. A socket that was left there by somebody who is gone is replaced.
///
/// # Errors
/// Somebody listens there; or what the system says of the path.
pub fn bind(
    path: &Path,
    names: Names,
    doorbells: Doorbells,
) -> Result<VfioUserPort, UnixPortError> {
    let (socket, path) = UnixPort::bind(path)?.into_parts();
    Ok(VfioUserPort {
        socket,
        path,
        names,
        doorbells,
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
        let place = self.path.path().display().to_string();
        Ok(Box::new(Listening {
            acceptor: Acceptor::new(ring, Fd::from(self.socket), place)?,
            path: self.path,
            names: self.names,
            doorbells: self.doorbells,
            limits: *limits,
            seat: Rc::default(),
            next: None,
        }))
    }
}

/// A socket on the desk's ring.
#[derive(Debug)]
struct Listening {
    acceptor: Acceptor,
    path: UnixPlace,
    names: Names,
    doorbells: Doorbells,
    limits: LinkLimits,
    /// Its client's place.
    seat: Rc<Seat>,
    /// The client after the one that has gone, whose end the function has not taken in yet.
    next: Option<UnixStream>,
}

impl Listener for Listening {
    fn owner_id(&self) -> OwnerId {
        self.acceptor.owner_id()
    }

    fn next_connection(&mut self, has_room: bool) -> Option<Result<Box<dyn Link>, LinkError>> {
        loop {
            let waited = self.next.take_if(|_| !self.seat.is_taken());
            let stream = match waited {
                Some(stream) => stream,
                None => self.acceptor.next_socket()?.into(),
            };
            if !has_room {
                return Some(Err(LinkError::NoRoom));
            }
            if !self.seat.is_taken() {
                return Some(self.welcome(stream));
            }
            // A client that comes back at once may be here before the end of its last connection is known.
            let has_place = self.seat.is_left() && self.next.as_ref().is_none_or(seat::has_left);
            if !has_place {
                let path = self.path.path().display();
                let why = format!("the function at {path} has a client: one more is let go");
                return Some(Err(LinkError::Resources(why)));
            }
            self.next = Some(stream);
        }
    }
}

impl Listening {
    fn welcome(&self, stream: UnixStream) -> Result<Box<dyn Link>, LinkError> {
        let link = FunctionLink::new(
            self.acceptor.ring(),
            stream,
            (self.names.clone(), self.doorbells),
            &self.limits,
            self.seat.clone(),
        )?;
        Ok(Box::new(link))
    }
}
