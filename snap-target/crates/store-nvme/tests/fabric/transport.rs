//! Queues over the simulated network: the host's NVMe/TCP machine without sockets.

use std::net::SocketAddr;
use std::time::Duration;

use nvme::Time;
use nvme::digest::crc32c;
use nvme::initiator::Command;
use nvme::queue::Slot;
use nvme::tcp::batch::TxBatch;
use nvme::tcp::host::{Connection, Event, HostError, HostOptions, Transfer, Want};
use nvme_spec::Cid;
use reactor::buf::IoBuf;
use reactor::{Errno, Ring};
use store::WireBytes;
use store_nvme::Clock;
use store_nvme::queue::{Outcome, Parted, Queue, QueueError, QueueEvent, QueueOptions, Transport};

use crate::network::{Network, WireId};
use crate::wire::HostSees;

/// Items of one batch.
const BATCH_ITEMS: usize = 7;

/// What connects hosts to the ports of a simulated network.
#[derive(Debug)]
pub struct SimTransport {
    network: Network,
}

impl SimTransport {
    pub fn new(network: &Network) -> SimTransport {
        SimTransport {
            network: network.clone(),
        }
    }
}

impl Transport for SimTransport {
    fn name(&self) -> &'static str {
        "simulated"
    }

    fn connect(
        &self,
        _ring: &Ring,
        to: SocketAddr,
        options: &QueueOptions,
        clock: Clock,
    ) -> Result<Box<dyn Queue>, QueueError> {
        let now = clock.now();
        let wire = self.network.connect(to, now);
        let wire = wire.ok_or(QueueError::Connect {
            to,
            source: Errno::EHOSTUNREACH,
        })?;
        let link = Link {
            network: self.network.clone(),
            wire,
            to,
            options: options.clone(),
            clock,
            carried: WireBytes::default(),
            connection: None,
        };
        Ok(Box::new(SimQueue {
            stands_by: Some(now + options.connect_timeout),
            ..SimQueue::over(link)
        }))
    }
}

/// What a queue takes along from one ring to another.
#[derive(Debug)]
struct Link {
    network: Network,
    wire: WireId,
    to: SocketAddr,
    options: QueueOptions,
    clock: Clock,
    carried: WireBytes,
    /// None until the network has connected.
    connection: Option<Connection>,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.network.close(self.wire, self.clock.now());
    }
}

/// A command that was taken.
#[derive(Debug)]
struct Taken {
    buf: Option<IoBuf>,
    transfer: Transfer,
    issued_at: Time,
    /// A byte of it has left.
    is_sent: bool,
    /// It has ended; the controller has not answered.
    has_ended: bool,
    has_no_timeout: bool,
}

/// See the module.
#[derive(Debug)]
struct SimQueue {
    /// None: it has gone to another ring.
    link: Option<Link>,
    taken: Vec<Option<Taken>>,
    /// Until it stands: when it must.
    stands_by: Option<Time>,
    is_over: bool,
    /// For the next poll.
    pending: Vec<QueueEvent>,
    /// It was asked to part, and not ready for it: the next time it is.
    asked_to_part: bool,
}

impl SimQueue {
    fn over(link: Link) -> SimQueue {
        let depth = usize::from(link.options.depth);
        SimQueue {
            link: Some(link),
            taken: (0..depth).map(|_| None).collect(),
            stands_by: None,
            is_over: false,
            pending: Vec::new(),
            asked_to_part: false,
        }
    }

    fn link(&mut self) -> &mut Link {
        self.link.as_mut().unwrap()
    }

    fn end(&mut self, error: QueueError) {
        if self.is_over {
            return;
        }
        self.is_over = true;
        let link = self.link();
        link.network.close(link.wire, link.clock.now());
        self.pending.push(QueueEvent::Over(error));
        for (slot, taken) in (0..).map(Slot).zip(&mut self.taken) {
            let Some(taken) = taken.take().filter(|taken| !taken.has_ended) else {
                continue;
            };
            let was_sent = taken.is_sent;
            self.pending.push(QueueEvent::Ended {
                slot,
                outcome: Outcome::Lost { was_sent },
                buf: taken.buf,
            });
        }
    }

    fn stand(&mut self, now: Time) {
        let stands_by = self.stands_by;
        let link = self.link();
        let to = link.to;
        match link.network.seen_by_host(link.wire) {
            HostSees::Refused => {
                let source = Errno::ECONNREFUSED;
                return self.end(QueueError::Connect { to, source });
            }
            HostSees::Open if link.connection.is_none() => {
                let options = &link.options;
                let options = HostOptions {
                    depth: options.depth,
                    header_digest: options.header_digest,
                    data_digest: options.data_digest,
                    in_capsule_bytes_max: options.in_capsule_bytes_max,
                    command_timeout: options.command_timeout,
                };
                link.connection = Some(Connection::new(options, now));
            }
            HostSees::Connecting | HostSees::Open | HostSees::Ended => {}
        }
        if stands_by.is_some_and(|by| by <= now) {
            let after = link.options.connect_timeout;
            self.end(QueueError::NotInTime {
                to,
                transport: "simulated",
                after,
            });
        }
    }

    fn receive(&mut self, now: Time) {
        let SimQueue {
            link: Some(link),
            taken,
            ..
        } = self
        else {
            return;
        };
        if let Some(connection) = &mut link.connection {
            let take = |bytes: &[u8]| {
                link.carried.received += bytes.len() as u64;
                feed(connection, taken, bytes)
            };
            link.network.receive(link.wire, now, take);
        }
    }

    fn machine_events(&mut self, now: Time) {
        let link = self.link.as_mut().unwrap();
        let (to, Some(connection)) = (link.to, &mut link.connection) else {
            return;
        };
        connection.tick(now);
        while let Some(event) = connection.next_event() {
            match event {
                Event::Ready(_) => {
                    self.stands_by = None;
                    self.pending.push(QueueEvent::Ready);
                }
                Event::Completed { slot, cqe, .. } => {
                    let taken = self.taken[slot.index()].take().unwrap();
                    if !taken.has_ended {
                        self.pending.push(QueueEvent::Ended {
                            slot,
                            outcome: Outcome::Answered(cqe),
                            buf: taken.buf,
                        });
                    }
                }
                Event::Fatal(error) => {
                    // The TermReq.
                    self.settle();
                    let why = error.to_string();
                    return self.end(match error {
                        HostError::Terminated { .. } => QueueError::Ended { to, why },
                        _ => QueueError::GivenUp { to, why },
                    });
                }
            }
        }
    }
}

impl Queue for SimQueue {
    fn poll(&mut self, now: Time, events: &mut Vec<QueueEvent>) {
        if !self.is_over && self.stands_by.is_some() {
            self.stand(now);
        }
        if !self.is_over {
            self.receive(now);
            self.machine_events(now);
        }
        if !self.is_over {
            let link = self.link();
            let to = link.to;
            if link.network.seen_by_host(link.wire) == HostSees::Ended {
                let why = "closed by the peer".to_owned();
                self.end(QueueError::Ended { to, why });
            }
        }
        events.append(&mut self.pending);
    }

    fn room(&self) -> usize {
        let link = self.link.as_ref().filter(|_| !self.is_over);
        let connection = link.and_then(|link| link.connection.as_ref());
        connection.map_or(0, Connection::room)
    }

    fn submit(
        &mut self,
        command: &Command,
        buf: Option<IoBuf>,
        now: Time,
    ) -> Result<Slot, Option<IoBuf>> {
        let bytes = buf.as_ref().map_or(0, IoBuf::len);
        assert_eq!(bytes, command.transfer.bytes() as usize, "{command:?}");
        if self.room() == 0 {
            return Err(buf);
        }
        let connection = self.link().connection.as_mut().unwrap();
        let slot = connection.submit(command, now).unwrap();
        let before = self.taken[slot.index()].replace(Taken {
            buf,
            transfer: command.transfer,
            issued_at: now,
            is_sent: false,
            has_ended: false,
            has_no_timeout: false,
        });
        assert!(before.is_none(), "the slot of a command that has not ended");
        self.asked_to_part = false;
        Ok(slot)
    }

    fn abandon(&mut self, slot: Slot) {
        if self.is_over {
            return;
        }
        let Some(Some(taken)) = self.taken.get_mut(slot.index()) else {
            return;
        };
        if taken.has_no_timeout {
            return;
        }
        taken.has_no_timeout = true;
        if let Transfer::In(_) = taken.transfer {
            taken.has_ended = true;
            let was_sent = taken.is_sent;
            self.pending.push(QueueEvent::Ended {
                slot,
                outcome: Outcome::Lost { was_sent },
                buf: taken.buf.take(),
            });
        }
        self.link().connection.as_mut().unwrap().abandon(slot);
    }

    fn settle(&mut self) {
        let SimQueue {
            link: Some(link),
            taken,
            is_over: false,
            ..
        } = self
        else {
            return;
        };
        let Some(connection) = &mut link.connection else {
            return;
        };
        let mut bytes = Vec::new();
        transmit(connection, taken, &mut bytes);
        link.carried.sent += bytes.len() as u64;
        link.network.send(link.wire, &bytes, link.clock.now());
        for taken in taken.iter_mut().flatten() {
            taken.is_sent = true;
        }
    }

    fn deadline(&self) -> Option<Time> {
        if !self.pending.is_empty() {
            return Some(Time::ZERO);
        }
        let timeout = self.link.as_ref()?.options.command_timeout;
        let taken = self.taken.iter().flatten();
        let timed = taken.filter(|taken| !taken.has_no_timeout);
        let overdue = timed.map(|taken| taken.issued_at + timeout);
        overdue
            .chain(self.stands_by.filter(|_| !self.is_over))
            .min()
    }

    fn close(&mut self) {
        let to = self.link().to;
        self.end(QueueError::Closed { to });
    }

    fn cid(&self, slot: Slot) -> Option<Cid> {
        let taken = self.taken.get(slot.index())?.as_ref();
        taken.filter(|taken| !taken.has_ended)?;
        self.link.as_ref()?.connection.as_ref()?.cid(slot)
    }

    fn wire(&self) -> WireBytes {
        self.link
            .as_ref()
            .map_or(WireBytes::default(), |link| link.carried)
    }

    fn is_closed(&self) -> bool {
        self.is_over && self.pending.is_empty()
    }

    fn part(mut self: Box<Self>) -> Result<Box<dyn Parted>, Box<dyn Queue>> {
        let is_idle = !self.is_over
            && self.stands_by.is_none()
            && self.pending.is_empty()
            && self.taken.iter().all(Option::is_none);
        // As a queue over sockets, it ends its receive first.
        if !is_idle || !std::mem::replace(&mut self.asked_to_part, true) {
            return Err(self);
        }
        self.settle();
        let link = self.link.take().unwrap();
        Ok(Box::new(SimParted { link }))
    }
}

#[derive(Debug)]
struct SimParted {
    link: Link,
}

impl Parted for SimParted {
    fn join(self: Box<Self>, _ring: &Ring) -> Result<Box<dyn Queue>, QueueError> {
        Ok(Box::new(SimQueue::over(self.link)))
    }
}

/// Takes in bytes as they came; all of them, unless the connection is over.
fn feed(connection: &mut Connection, taken: &mut [Option<Taken>], bytes: &[u8]) -> usize {
    let mut used = 0;
    while used < bytes.len() {
        let rest = &bytes[used..];
        match connection.want() {
            Want::Closed => return bytes.len(),
            Want::Header(_) => used += connection.headers(rest),
            Want::Discard(len) => {
                let count = u32::try_from(rest.len()).unwrap().min(len);
                connection.payload(count, 0);
                used += count as usize;
            }
            Want::Payload {
                slot,
                offset,
                len,
                digest_from,
            } => {
                let count = rest.len().min(len as usize);
                let buf = taken[slot.index()].as_mut().unwrap().buf.as_mut().unwrap();
                let end = offset as usize + count;
                assert_eq!(buf.copy_from(offset as usize, &rest[..count]), count);
                let digest_from = digest_from.filter(|_| count == len as usize);
                let crc = digest_from.map_or(0, |from| crc32c(&piece(buf, from as usize, end)));
                connection.payload(u32::try_from(count).unwrap(), crc);
                used += count;
            }
        }
    }
    used
}

fn transmit(connection: &mut Connection, taken: &[Option<Taken>], out: &mut Vec<u8>) {
    let mut batch = TxBatch::with_capacity(BATCH_ITEMS);
    loop {
        connection.transmit(&mut batch);
        if batch.is_empty() {
            return;
        }
        for index in 0..batch.items().len() {
            let item = batch.items()[index].clone();
            let payload = item.payload.map_or_else(Vec::new, |payload| {
                let taken = taken[payload.slot.index()].as_ref().unwrap();
                let start = payload.offset as usize;
                piece(
                    taken.buf.as_ref().unwrap(),
                    start,
                    start + payload.len as usize,
                )
            });
            if item.data_digest() {
                batch.set_data_digest(index, crc32c(&payload));
            }
            out.extend_from_slice(batch.header(&item));
            out.extend_from_slice(&payload);
            out.extend_from_slice(batch.digest(&item));
            if let Some(slot) = item.ends {
                connection.transmitted(slot);
            }
        }
        batch.clear();
    }
}

fn piece(buf: &IoBuf, start: usize, end: usize) -> Vec<u8> {
    let mut bytes = vec![0; end - start];
    assert_eq!(buf.copy_to(start, &mut bytes), bytes.len());
    bytes
}

/// Commands on a queue that nobody watches take as long as they take.
pub const NO_TIMEOUT: Duration = Duration::from_secs(1 << 32);
