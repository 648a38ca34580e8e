//! Connections that this end has ended, until their hosts know.
//!
//! A socket that is closed while its host still sends answers with a reset. Linux's host sends in the context of whoever submits, who then gets SIGPIPE
//! for a disk that is about to come back. So the sending side is shut, and what still comes is thrown away, until the host closes as well or
//! its time ([`LINGER`](crate::limits::LINGER)) is over. No machine sees any of it, and nobody waits for it: the connection's queue and controller have ended before.

use std::collections::HashMap;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use nix::sys::socket::{Shutdown, shutdown};
use reactor::buf::IoBuf;
use reactor::{Fd, Owner, OwnerId, Payload, ReactorError, Ring, Wait};

use crate::limits::FAREWELL_BYTES;

/// See the module. Of one reactor.
pub(crate) struct Farewells {
    ring: Ring,
    /// By its owner's name.
    under_way: HashMap<OwnerId, (Owner, Fd)>,
    limit: usize,
    linger: Duration,
    /// Where all of it goes, and nobody looks.
    scratch: IoBuf,
}

impl Farewells {
    /// None yet; so many at a time, each for so long.
    ///
    /// # Errors
    /// No memory.
    pub(crate) fn new(ring: &Ring, limit: usize, linger: Duration) -> Result<Self, ReactorError> {
        Ok(Self {
            ring: ring.clone(),
            under_way: HashMap::new(),
            limit,
            linger,
            scratch: IoBuf::heap(FAREWELL_BYTES)?,
        })
    }

    /// Takes a socket whose connection has ended here. Where there is no room for one more, it is closed at once.
    pub(crate) fn begin(&mut self, socket: Fd) {
        if self.under_way.len() >= self.limit {
            return tracing::debug!(limit = self.limit, "a connection is closed at once");
        }
        // A host that is gone needs none.
        if shutdown(socket.as_raw_fd(), Shutdown::Write).is_err() {
            return;
        }
        let Ok(owner) = self.ring.register() else {
            return;
        };
        if owner.timer(Instant::now() + self.linger, 0).is_ok() && self.receive(&owner, &socket) {
            self.under_way.insert(owner.id(), (owner, socket));
        }
    }

    fn receive(&self, owner: &Owner, socket: &Fd) -> bool {
        owner.recv_some(socket, self.scratch.clone(), 0).is_ok()
    }

    /// Takes the events of an owner; false where it is none of these.
    pub(crate) fn ready(&mut self, id: OwnerId) -> bool {
        let Some((owner, socket)) = self.under_way.get(&id) else {
            return false;
        };
        while let Some(event) = owner.next_event() {
            let goes_on = match (event.result, event.payload) {
                (_, Payload::Timer) => false,
                (Ok(count), _) => count > 0 && self.receive(owner, socket),
                // The host has reset it.
                (Err(_), _) => false,
            };
            if !goes_on {
                self.under_way.remove(&id);
                break;
            }
        }
        true
    }

    /// Waits for the last of them, where the reactor does nothing else any more: for the time that the last has at most.
    ///
    /// # Errors
    /// The ring broke.
    pub(crate) fn finish(&mut self) -> Result<(), ReactorError> {
        while !self.under_way.is_empty() {
            self.ring.turn(Wait::Block { until: None })?;
            while let Some(owner) = self.ring.next_ready() {
                self.ready(owner);
            }
        }
        Ok(())
    }

    /// How many there are.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.under_way.len()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use reactor::RingConfig;

    use super::*;

    /// Longer than any test.
    const FOR_EVER: Duration = Duration::from_secs(3600);
    const PATIENCE: Duration = Duration::from_secs(10);

    fn farewells(limit: usize, linger: Duration) -> Farewells {
        let ring = Ring::new(&RingConfig::default()).unwrap();
        Farewells::new(&ring, limit, linger).unwrap()
    }

    impl Farewells {
        /// A connection that ends here: its host.
        fn end_one(&mut self) -> TcpStream {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let host = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            self.begin(Fd::from(listener.accept().unwrap().0));
            host
        }

        fn turn_until(&mut self, mut holds: impl FnMut(&Farewells) -> bool) {
            let start = Instant::now();
            while !holds(self) {
                assert!(start.elapsed() < PATIENCE, "nothing more happens");
                self.ring.turn(Wait::Poll).unwrap();
                while let Some(owner) = self.ring.next_ready() {
                    assert!(self.ready(owner));
                }
            }
        }
    }

    /// Sends until the other end says that nobody is there.
    fn is_reset(host: &mut TcpStream) -> bool {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if host.write_all(&[0; 4096]).is_err() {
                return true;
            }
        }
        false
    }

    /// The host sees the end, and may send on as much as it likes; none of it stays in the socket.
    #[test]
    fn a_host_that_goes_on_sending_is_not_reset() {
        let mut farewells = farewells(8, FOR_EVER);
        let mut host = farewells.end_one();
        assert_eq!(host.read(&mut [0; 16]).unwrap(), 0, "the end");
        host.set_nonblocking(true).unwrap();
        let (mut sent, whole) = (0, 64 << 20);
        farewells.turn_until(|_| {
            match host.write(&[0xAA; 64 << 10]) {
                Ok(count) => sent += count,
                Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
            }
            sent >= whole
        });
        assert_eq!(farewells.len(), 1);
        drop(host);
        farewells.turn_until(|it| it.len() == 0);
    }

    #[test]
    fn a_host_that_never_closes_is_gone_in_time() {
        let mut farewells = farewells(8, Duration::from_millis(1));
        let mut hosts = [farewells.end_one(), farewells.end_one()];
        assert_eq!(farewells.len(), 2);
        farewells.finish().unwrap();
        assert_eq!(farewells.len(), 0);
        assert!(hosts.iter_mut().all(is_reset));
    }

    #[test]
    fn the_number_is_bounded() {
        let mut farewells = farewells(2, FOR_EVER);
        let first = [farewells.end_one(), farewells.end_one()];
        let mut third = farewells.end_one();
        assert_eq!(farewells.len(), 2);
        assert!(is_reset(&mut third));
        drop(first);
        farewells.turn_until(|it| it.len() == 0);
        let _fourth = farewells.end_one();
        assert_eq!(farewells.len(), 1);
    }

    /// One that has reset the connection meanwhile.
    #[test]
    fn a_host_that_is_gone_needs_none() {
        let mut farewells = farewells(8, FOR_EVER);
        let host = farewells.end_one();
        let at_once = nix::libc::linger {
            l_onoff: 1,
            l_linger: 0,
        };
        nix::sys::socket::setsockopt(&host, nix::sys::socket::sockopt::Linger, &at_once).unwrap();
        drop(host);
        farewells.turn_until(|it| it.len() == 0);
    }
}
