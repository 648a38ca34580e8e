//! A connection that this end has ended, until its host knows.
//!
//! A socket that is closed while its host still sends answers with a reset. Linux's host sends in the context of whoever submits, who then gets SIGPIPE
//! for a disk that is about to come back. So the sending side is shut, and what still comes is thrown away, until the host closes as well or
//! its time ([`LINGER`]) is over. No machine sees any of it.

use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use frontend_nvme::link::{Farewell, LINGER};
use nix::sys::socket::{Shutdown, shutdown};
use reactor::buf::IoBuf;
use reactor::{Fd, Owner, OwnerId, Payload, Ring};

use crate::limits::FAREWELL_BYTES;

/// See the module.
#[derive(Debug)]
pub(crate) struct TcpFarewell {
    ring: Ring,
    socket: Fd,
    linger: Duration,
    begun: Option<Begun>,
}

#[derive(Debug)]
struct Begun {
    owner: Owner,
    /// Where all of it goes, and nobody looks.
    scratch: IoBuf,
}

impl TcpFarewell {
    pub(crate) fn new(ring: &Ring, socket: Fd) -> Self {
        Self {
            ring: ring.clone(),
            socket,
            linger: LINGER,
            begun: None,
        }
    }

    fn receive(&self) -> bool {
        self.begun.as_ref().is_some_and(|begun| {
            let scratch = begun.scratch.clone();
            begun.owner.recv_some(&self.socket, scratch, 0).is_ok()
        })
    }
}

impl Farewell for TcpFarewell {
    fn begin(&mut self) -> Option<OwnerId> {
        // A host that is gone needs none.
        shutdown(self.socket.as_raw_fd(), Shutdown::Write).ok()?;
        let owner = self.ring.register().ok()?;
        let id = owner.id();
        owner.timer(Instant::now() + self.linger, 0).ok()?;
        self.begun = Some(Begun {
            owner,
            scratch: IoBuf::heap(FAREWELL_BYTES).ok()?,
        });
        self.receive().then_some(id)
    }

    fn goes_on(&mut self) -> bool {
        while let Some(event) = self.begun.as_ref().and_then(|it| it.owner.next_event()) {
            let goes_on = match (event.result, event.payload) {
                (_, Payload::Timer) => false,
                (Ok(count), _) => count > 0 && self.receive(),
                // The host has reset it.
                (Err(_), _) => false,
            };
            if !goes_on {
                return false;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use frontend_nvme::Farewells as Farewelling;
    use reactor::{RingConfig, Wait};

    use super::*;

    /// Longer than any test.
    const FOR_EVER: Duration = Duration::from_secs(3600);
    const PATIENCE: Duration = Duration::from_secs(10);

    /// A ring, the farewells that are under way on it, and how long each takes at most.
    struct Farewells {
        ring: Ring,
        under_way: Farewelling,
        linger: Duration,
    }

    fn farewells(limit: usize, linger: Duration) -> Farewells {
        let ring = Ring::new(&RingConfig::default()).unwrap();
        Farewells {
            under_way: Farewelling::new(&ring, limit),
            ring,
            linger,
        }
    }

    impl Farewells {
        /// A connection that ends here: its host.
        fn end_one(&mut self) -> TcpStream {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let host = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let socket = Fd::from(listener.accept().unwrap().0);
            self.under_way.begin(Box::new(TcpFarewell {
                linger: self.linger,
                ..TcpFarewell::new(&self.ring, socket)
            }));
            host
        }

        fn len(&self) -> usize {
            self.under_way.len()
        }

        fn turn_until(&mut self, mut holds: impl FnMut(&Farewells) -> bool) {
            let start = Instant::now();
            while !holds(self) {
                assert!(start.elapsed() < PATIENCE, "nothing more happens");
                self.ring.turn(Wait::Poll).unwrap();
                while let Some(owner) = self.ring.next_ready() {
                    assert!(self.under_way.ready(owner));
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
        farewells.under_way.finish().unwrap();
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
