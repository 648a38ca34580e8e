//! One TCP connection between the host and a target.

use nvme::Time;
use nvme::simulation::link::{Link, LinkShape};
use nvme::simulation::random::Random;
use nvme::simulation::target::TargetQueue;

use crate::network::PortIndex;

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the target.
    Up,
    /// To the host.
    Down,
}

/// One direction of the way to a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Open,
    /// The network keeps what it gets, and delivers it once the way is open again.
    Held,
    /// It loses what it gets. Senders send again as long as they are there.
    Lost,
}

/// What becomes of bytes on their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Garble {
    /// One bit is another.
    Flip,
    /// Some bytes are missing.
    Cut,
    /// Some bytes come twice.
    Twice,
}

/// What the host's machine knows of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostSees {
    Connecting,
    Open,
    Refused,
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Connecting { due: Time },
    Connected,
    Refused,
}

/// See the module.
pub struct Wire {
    pub port: PortIndex,
    pub up: Link,
    pub down: Link,
    pub target: Option<TargetQueue>,
    pub host_closed_at: Option<Time>,
    stage: Stage,
    /// The host's end, behind its bytes.
    end_arrives: Option<Time>,
    /// What the host sent before it closed does not arrive after that.
    held_until: Option<Time>,
    /// The target's end is behind its bytes.
    target_ended: bool,
    /// A reset reached the host.
    host_was_reset: bool,
}

impl Wire {
    pub fn new(port: PortIndex, due: Time) -> Wire {
        Wire {
            port,
            up: Link::default(),
            down: Link::default(),
            target: None,
            host_closed_at: None,
            stage: Stage::Connecting { due },
            end_arrives: None,
            held_until: None,
            target_ended: false,
            host_was_reset: false,
        }
    }

    /// Whether it is time to see if the connection can be made.
    pub fn connecting(&self, now: Time) -> bool {
        matches!(self.stage, Stage::Connecting { due } if due <= now && self.host_closed_at.is_none())
    }

    pub fn connected(&mut self, queue: TargetQueue) {
        self.stage = Stage::Connected;
        self.target = Some(queue);
    }

    pub fn refused(&mut self) {
        self.stage = Stage::Refused;
    }

    pub fn connects_again(&mut self, due: Time) {
        self.stage = Stage::Connecting { due };
    }

    /// `down`: the way on which the target's end comes.
    pub fn host_sees(&self, down: Way) -> HostSees {
        let end_arrives = self.target_ended && self.down.is_empty() && down == Way::Open;
        match self.stage {
            Stage::Connecting { .. } => HostSees::Connecting,
            Stage::Refused => HostSees::Refused,
            Stage::Connected if self.host_was_reset => HostSees::Ended,
            Stage::Connected if end_arrives => HostSees::Ended,
            Stage::Connected => HostSees::Open,
        }
    }

    pub fn send(
        &mut self,
        direction: Direction,
        bytes: &[u8],
        garble: Option<Garble>,
        shape: LinkShape,
        random: &mut Random,
        now: Time,
    ) {
        if bytes.is_empty() || direction == Direction::Down && self.host_closed_at.is_some() {
            return;
        }
        let bytes = garble.map_or_else(|| bytes.to_vec(), |how| garbled(bytes, how, random));
        let link = match direction {
            Direction::Up => &mut self.up,
            Direction::Down => &mut self.down,
        };
        link.send(&bytes, shape, random, now);
    }

    /// The host's machine forgets the connection: what it had not sent is gone, what the network has may still arrive. The end may get lost.
    pub fn host_closes(
        &mut self,
        way: Way,
        now: Time,
        end_arrives: Option<Time>,
        held_until: Time,
    ) {
        if self.host_closed_at.is_some() {
            return;
        }
        self.host_closed_at = Some(now);
        self.down.lose();
        match way {
            Way::Open | Way::Held => {
                self.end_arrives = end_arrives;
                self.held_until = Some(held_until);
            }
            Way::Lost => self.up.lose(),
        }
    }

    pub fn lose_what_is_too_old(&mut self, now: Time) {
        if self.held_until.is_some_and(|until| until < now) {
            self.up.lose();
            (self.held_until, self.end_arrives) = (None, None);
        }
    }

    /// Whether the target learns that the host closed.
    pub fn end_has_arrived(&self, now: Time) -> bool {
        !self.up.stalled
            && self.up.is_empty()
            && self.end_arrives.is_some_and(|arrives| arrives <= now)
    }

    /// The target has closed its end; the host gets to know behind the last byte.
    pub fn target_closed(&mut self) {
        self.target_ended = true;
        self.up.lose();
        (self.held_until, self.end_arrives) = (None, None);
    }

    /// Bytes came for a connection that the target's machine does not know.
    pub fn is_addressed_in_vain(&mut self, now: Time) -> bool {
        let mut is_addressed = false;
        if self.stage == Stage::Connected {
            self.up.deliver(now, |bytes| {
                is_addressed = true;
                bytes.len()
            });
        }
        is_addressed
    }

    /// A reset for the host, which overtakes what is on its way; it is lost where the way is not open.
    pub fn reset_host(&mut self, down: Way) {
        if down == Way::Open && self.stage == Stage::Connected {
            self.host_was_reset = true;
            self.down.lose();
        }
    }

    /// Neither end knows it any more.
    pub fn is_over(&self) -> bool {
        self.host_closed_at.is_some() && self.target.is_none()
    }

    pub fn next_due(&self, [up, down]: [Way; 2]) -> Option<Time> {
        let connects = match self.stage {
            Stage::Connecting { due } => Some(due),
            Stage::Connected | Stage::Refused => None,
        };
        let arrives = self.up.next_due().or(self.end_arrives);
        let arrives = arrives.filter(|_| up == Way::Open);
        let received = self.down.next_due().filter(|_| down == Way::Open);
        [connects, arrives, received, self.held_until]
            .into_iter()
            .flatten()
            .min()
    }
}

fn garbled(bytes: &[u8], how: Garble, random: &mut Random) -> Vec<u8> {
    let at =
        |random: &mut Random, end: usize| usize::try_from(random.within(0..end as u64)).unwrap();
    let mut bytes = bytes.to_vec();
    let start = at(random, bytes.len());
    let end = start + 1 + at(random, bytes.len() - start);
    match how {
        Garble::Flip => bytes[start] ^= 1 << random.within(0..8),
        Garble::Cut => drop(bytes.drain(start..end)),
        Garble::Twice => {
            let again = bytes[start..end].to_vec();
            bytes.splice(end..end, again);
        }
    }
    bytes
}
