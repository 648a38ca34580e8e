//! One connection driven over one socket: the machine of [`nvme::tcp::host`], its bytes, and its payload in the callers' buffers.

mod receive;
mod send;

use std::time::{Duration, Instant};

use nix::poll::PollFd;
use nvme::Time;
use nvme::tcp::batch::Slot;
use nvme::tcp::host::{Command, Connection, Event, HostError, HostOptions, SubmitError};
use nvme_spec::Cqe;

use crate::socket::{self, Socket, WireBytes};
use crate::{Error, Options};
use receive::Staging;
use send::Outgoing;

/// The longest sleep before the timeouts are looked at again.
const TICK_INTERVAL: Duration = Duration::from_millis(500);
/// Looking for bytes goes on for this time before the thread sleeps: a wake-up costs about as much.
const SPIN: Duration = Duration::from_micros(100);

/// The shortest sleep that poll(2) knows.
const POLL_UNIT: Duration = Duration::from_millis(1);
/// Below it, the time between two looks.
const NAP: Duration = Duration::from_micros(50);

/// Where the payload of commands lies, by slot. What a slot has not is empty.
pub(crate) trait Buffers {
    /// The whole buffer of a reading command.
    fn incoming(&mut self, slot: Slot) -> &mut [u8];
    /// The whole buffer of a writing command.
    fn outgoing(&self, slot: Slot) -> &[u8];
}

/// A command that is complete.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Completed {
    pub slot: Slot,
    pub cqe: Cqe,
}

/// The clock that the machines are given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub fn start() -> Clock {
        Clock(Instant::now())
    }

    pub fn now(self) -> Time {
        Time::ZERO + self.0.elapsed()
    }
}

#[derive(Debug)]
pub(crate) struct Queue {
    socket: Socket,
    machine: Connection,
    clock: Clock,
    ticked_at: Time,
    staging: Staging,
    outgoing: Outgoing,
    /// Why the connection is over; reported to whoever calls next.
    over: Option<HostError>,
}

impl Queue {
    /// Connects and negotiates.
    pub fn connect(address: &str, host: HostOptions, options: &Options) -> Result<Queue, Error> {
        let socket = Socket::connect(address, options)?;
        let clock = Clock::start();
        let mut queue = Queue {
            socket,
            machine: Connection::new(host, clock.now()),
            clock,
            ticked_at: clock.now(),
            staging: Staging::new(),
            outgoing: Outgoing::new(),
            over: None,
        };
        loop {
            queue.turn(&mut NoBuffers)?;
            match queue.machine.next_event() {
                Some(Event::Ready(_)) => return Ok(queue),
                Some(Event::Fatal(error)) => return Err(queue.ended(error)),
                Some(Event::Completed { .. }) => {}
                None => queue.wait()?,
            }
        }
    }

    pub fn address(&self) -> &str {
        self.socket.address()
    }

    pub fn wire_bytes(&self) -> WireBytes {
        self.socket.wire_bytes()
    }

    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Commands that can be submitted now.
    pub fn room(&self) -> usize {
        self.machine.room()
    }

    /// Commands whose completion was not taken yet.
    pub fn outstanding(&self) -> usize {
        self.machine.outstanding()
    }

    /// Takes a command, to be sent on the next turn. There must be [`Queue::room`].
    pub fn submit(&mut self, command: &Command, now: Time) -> Result<Slot, Error> {
        self.machine
            .submit(command, now)
            .map_err(|error| match (error, self.over) {
                (_, Some(over)) => self.ended(over),
                (SubmitError::Full | SubmitError::NotReady, _) => Error::Load(error.to_string()),
                (SubmitError::Closed, _) => Error::Closed {
                    address: self.address().to_owned(),
                },
            })
    }

    /// Sends and receives what can be without waiting. True where anything moved.
    pub fn turn(&mut self, buffers: &mut impl Buffers) -> Result<bool, Error> {
        let sent = self.send(buffers)?;
        let received = self.receive(buffers)?;
        Ok(sent || received)
    }

    /// The next completion, in the order in which they came.
    pub fn next_completed(&mut self) -> Result<Option<Completed>, Error> {
        loop {
            match self.machine.next_event() {
                Some(Event::Completed { slot, cqe, .. }) => {
                    return Ok(Some(Completed { slot, cqe }));
                }
                Some(Event::Fatal(error)) => {
                    self.over = Some(error);
                    // The controller is told why, if it still listens.
                    let _ = self.send(&NoBuffers);
                    return Err(self.ended(error));
                }
                Some(Event::Ready(_)) => {}
                None => return Ok(None),
            }
        }
    }

    /// Waits until there is something to do on this queue.
    pub fn wait(&mut self) -> Result<(), Error> {
        wait_any(std::slice::from_mut(self))
    }

    /// As [`Queue::wait`], but not beyond a time.
    pub fn wait_until(&mut self, until: Instant) -> Result<(), Error> {
        wait_within(
            std::slice::from_mut(self),
            until.saturating_duration_since(Instant::now()),
        )
    }

    fn poll_entry(&self) -> PollFd<'_> {
        self.socket.poll_entry(self.outgoing.is_blocked())
    }

    fn tick(&mut self) {
        let now = self.clock.now();
        if now.since(self.ticked_at) >= TICK_INTERVAL {
            self.ticked_at = now;
            self.machine.tick(now);
        }
    }

    fn ended(&self, source: HostError) -> Error {
        Error::Connection {
            address: self.address().to_owned(),
            source,
        }
    }
}

/// Waits until there is something to do on one of the queues: first looking, then asleep, half a second at most.
pub(crate) fn wait_any(queues: &mut [Queue]) -> Result<(), Error> {
    wait_within(queues, TICK_INTERVAL)
}

/// As [`wait_any`], but no longer than `most`.
fn wait_within(queues: &mut [Queue], most: Duration) -> Result<(), Error> {
    let most = most.min(TICK_INTERVAL);
    let waited = match queues {
        [only] => wait_for(&mut [only.poll_entry()], most),
        _ => {
            let mut entries: Vec<_> = queues.iter().map(Queue::poll_entry).collect();
            wait_for(&mut entries, most)
        }
    };
    if let (Err(source), Some(queue)) = (waited, queues.first()) {
        return Err(Error::Socket {
            address: queue.address().to_owned(),
            source,
        });
    }
    for queue in queues {
        queue.tick();
    }
    Ok(())
}

fn wait_for(entries: &mut [PollFd<'_>], most: Duration) -> std::io::Result<()> {
    let started = Instant::now();
    while started.elapsed() < SPIN.min(most) {
        if socket::wait(entries, Duration::ZERO)? {
            return Ok(());
        }
    }
    let left = most.saturating_sub(started.elapsed());
    if left < POLL_UNIT {
        std::thread::sleep(left.min(NAP));
        return Ok(());
    }
    socket::wait(entries, left).map(|_| ())
}

/// For turns in which no command moves data.
pub(crate) struct NoBuffers;

impl Buffers for NoBuffers {
    fn incoming(&mut self, _slot: Slot) -> &mut [u8] {
        &mut []
    }

    fn outgoing(&self, _slot: Slot) -> &[u8] {
        &[]
    }
}
