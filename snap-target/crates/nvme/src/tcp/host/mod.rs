//! The host's end of one NVMe/TCP connection: one queue of commands to one controller.
//!
//! Contract, the mirror of [`super::target`]: the driver feeds header bytes to [`Connection::headers`], puts payload where
//! [`Connection::want`] says, into the command's own buffer, sends what [`Connection::transmit`] hands out, and takes results from
//! [`Connection::next_event`]. Buffers stay the driver's: a buffer belongs to its command from [`Connection::submit`] until
//! [`Event::Completed`], and nothing of it is on its way out any more when that event comes. The clock is passed in.
//!
//! A data digest that does not match fails its command alone, with [`Status::TRANSIENT_TRANSPORT_ERROR`](nvme_spec::Status): the header before it
//! was right, so that the stream goes on. A command can be given up ([`Connection::abandon`]).
//!
//! A controller is not trusted. Data are taken only in order and only within the bytes of a command that reads; success is
//! believed only of a command whose data moved completely; an identifier answers for one command only, and names another
//! after it. The first violation ends the connection: the error is reported once, a TermReq goes out where the
//! specification has one, and no further byte is interpreted. Memory is what [`Connection::new`] reserved.
//!
//! What it does not do: the order of commands at bring-up ([`crate::initiator`]), retries, Abort, more than one R2T at a
//! time for one command (MAXR2T = 1, which the ICReq says).

mod error;
mod negotiation;
mod receive;
mod slots;
mod transmit;

use std::collections::VecDeque;
use std::time::Duration;

use nvme_spec::tcp::ADMIN_CAPSULE_DATA_BYTES;
use nvme_spec::{AdminOpcode, Cid, Cqe};

use super::batch::{Slot, TxBatch};
use super::pdu::HeaderBuffer;
use crate::time::Time;

pub use crate::outstanding::{Command, DEPTH_MAX, Transfer};
pub use error::HostError;
pub use negotiation::Negotiated;

use receive::Rx;
use slots::{Slots, Way};
use transmit::Term;

/// Time from the first byte out to the ICResp.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// What a host wants of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostOptions {
    /// The most commands outstanding: 1 to [`DEPTH_MAX`].
    pub depth: u16,
    /// Use header digests; a controller that does not is refused.
    pub header_digest: bool,
    /// Use data digests; a controller that does not is refused.
    pub data_digest: bool,
    /// Writes up to so many bytes go into the capsule (I/O queues: from IOCCSZ). Fabrics and admin commands may always use 8 KiB.
    pub in_capsule_bytes_max: u32,
    /// A command that is not answered within this time ends the connection.
    pub command_timeout: Duration,
}

impl Default for HostOptions {
    /// 32 commands, no digests, 8 KiB in the capsule, 30 s: what an admin queue uses.
    fn default() -> Self {
        HostOptions {
            depth: 32,
            header_digest: false,
            data_digest: false,
            in_capsule_bytes_max: ADMIN_CAPSULE_DATA_BYTES,
            command_timeout: Duration::from_secs(30),
        }
    }
}

/// What the machine can take next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// At least so many header bytes are missing; more may be given, they are taken as far as they go.
    Header(usize),
    /// The next bytes of the stream belong at `offset` of the slot's buffer, `len` of them or fewer at a time; then call [`Connection::payload`].
    Payload {
        /// Whose buffer.
        slot: Slot,
        /// Where the next byte goes.
        offset: u32,
        /// Bytes left of this PDU's data; not zero.
        len: u32,
        /// With data digests: where this PDU's data begin. Once the last byte is there, [`Connection::payload`] takes the CRC-32C from here on.
        digest_from: Option<u32>,
    },
    /// The next bytes of the stream belong to a command that was given up: drop so many, or fewer at a time, then call [`Connection::payload`].
    Discard(u32),
    /// Nothing: the connection is over. Close the socket once [`Connection::transmit`] has nothing more.
    Closed,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// ICResp came; commands may be submitted.
    Ready(Negotiated),
    /// The command in `slot` is complete: its buffer is the driver's again, and the slot may be given to another command.
    Completed {
        /// The command.
        slot: Slot,
        /// Its completion entry.
        cqe: Cqe,
        /// Bytes of a reading command that arrived: all of them where the status is success, none of a command that was given up.
        received: u32,
    },
    /// The connection is over and each outstanding command with it; their outcome is unknown. [`Connection::occupied`] says which.
    Fatal(HostError),
}

/// A slot whose buffer is not the driver's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occupied {
    /// Which.
    pub slot: Slot,
    /// An item of a batch that was handed out still reads the buffer, until [`Connection::transmitted`].
    pub is_lent: bool,
}

/// Why a command was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// As many commands as the depth allows are outstanding, or their completion was not taken yet.
    #[error("the queue is full")]
    Full,
    /// No ICResp yet.
    #[error("the connection is not ready")]
    NotReady,
    /// The connection is over.
    #[error("the connection is closed")]
    Closed,
}

/// One connection of a host.
#[derive(Debug)]
pub struct Connection {
    options: HostOptions,
    phase: Phase,
    negotiated: Negotiated,
    rx: Rx,
    header: HeaderBuffer,
    slots: Slots,
    /// Slots with something to send: a capsule, or granted data.
    to_send: VecDeque<Slot>,
    events: VecDeque<Event>,
    data_digest_errors: u64,
}

#[derive(Debug)]
enum Phase {
    /// ICReq goes out first; ICResp must come by then.
    Greeting {
        sent: bool,
        by: Time,
    },
    Ready,
    /// Over. The TermReq is still to be sent where there is one.
    Failed {
        term: Option<Box<Term>>,
    },
}

impl Connection {
    /// A connection whose socket is open: its first [`Connection::transmit`] hands out the ICReq.
    pub fn new(options: HostOptions, now: Time) -> Connection {
        let depth = options.depth.clamp(1, DEPTH_MAX);
        Connection {
            options,
            phase: Phase::Greeting {
                sent: false,
                by: now + HANDSHAKE_TIMEOUT,
            },
            negotiated: Negotiated::default(),
            rx: Rx::Header,
            header: HeaderBuffer::new(),
            slots: Slots::new(depth, Way::NONE),
            to_send: VecDeque::with_capacity(usize::from(depth) + 1),
            events: VecDeque::with_capacity(usize::from(depth) + 2),
            data_digest_errors: 0,
        }
    }

    /// What ICResp settled; the defaults before that.
    pub fn negotiated(&self) -> Negotiated {
        self.negotiated
    }

    /// Commands that can be submitted now.
    pub fn room(&self) -> usize {
        if matches!(self.phase, Phase::Ready) {
            self.slots.free()
        } else {
            0
        }
    }

    /// Commands outstanding, those whose completion event was not taken included.
    pub fn outstanding(&self) -> usize {
        self.slots.used()
    }

    /// The slots of these commands. After [`Event::Fatal`] a buffer is the driver's again as soon as it is not lent.
    pub fn occupied(&self) -> impl Iterator<Item = Occupied> + '_ {
        slots::occupied(&self.slots)
    }

    /// The identifier of the command in a slot, to name it in an Abort; none where there is no such slot.
    pub fn cid(&self, slot: Slot) -> Option<Cid> {
        self.slots.get(slot).map(|entry| Cid(entry.cid))
    }

    /// Data digests that did not match, each of which failed its command: the network or a machine on the way corrupts data.
    pub fn data_digest_errors(&self) -> u64 {
        self.data_digest_errors
    }

    /// Gives one command up, its outcome unknown; false where the slot has none outstanding. The connection goes on: the command has no timeout
    /// any more, and data that still come for it are discarded ([`Want::Discard`]; a receive into its buffer that is under way ends as it
    /// began). Data that the controller asks for are still sent. The buffer stays the command's until [`Event::Completed`], which comes with
    /// the controller's response, or the connection's end.
    pub fn abandon(&mut self, slot: Slot) -> bool {
        self.slots.abandon(slot)
    }

    /// Takes a command back that was not handed out yet; false where it was. No byte of it ever leaves, and it completes at once, with
    /// [`Status::HOST_ABORTED`].
    pub fn withdraw(&mut self, slot: Slot) -> bool {
        if !matches!(self.phase, Phase::Ready) || !self.slots.withdraw(slot) {
            return false;
        }
        self.to_send.retain(|queued| *queued != slot);
        self.complete_if_done(slot);
        true
    }

    /// Whether the slot's command was handed out for sending ([`Connection::transmit`]), now or earlier.
    pub fn was_sent(&self, slot: Slot) -> bool {
        self.slots.get(slot).is_some_and(|entry| entry.sent)
    }

    /// Takes a command. Its buffer, `transfer` bytes of it, is the slot's until [`Event::Completed`].
    pub fn submit(&mut self, command: &Command, now: Time) -> Result<Slot, SubmitError> {
        match self.phase {
            Phase::Ready => {}
            Phase::Greeting { .. } => return Err(SubmitError::NotReady),
            Phase::Failed { .. } => return Err(SubmitError::Closed),
        }
        let in_capsule = self.fits_capsule(command);
        let slot = self
            .slots
            .take(command, Way::of(command.transfer, in_capsule), now)
            .ok_or(SubmitError::Full)?;
        self.to_send.push_back(slot);
        Ok(slot)
    }

    fn fits_capsule(&self, command: &Command) -> bool {
        let Transfer::Out(bytes) = command.transfer else {
            return false;
        };
        let fabrics = command.sqe.opcode == AdminOpcode::FABRICS.0;
        bytes <= self.options.in_capsule_bytes_max || fabrics && bytes <= ADMIN_CAPSULE_DATA_BYTES
    }

    /// The next event, oldest first.
    pub fn next_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front()?;
        if let Event::Completed { slot, .. } = event {
            self.slots.release(slot);
        }
        Some(event)
    }

    /// Hands out what is to be sent, as far as the batch has room.
    pub fn transmit(&mut self, batch: &mut TxBatch) {
        self.fill(batch);
    }

    /// An item that named this slot in [`super::batch::TxItem::ends`] has left: its payload is not read any more.
    pub fn transmitted(&mut self, slot: Slot) {
        if let Some(entry) = self.slots.get_mut(slot) {
            entry.way.lent_items = entry.way.lent_items.saturating_sub(1);
        }
        self.complete_if_done(slot);
    }

    /// When the command that was submitted first, of those that have a timeout, has had its time.
    pub fn deadline(&self) -> Option<Time> {
        let oldest = self
            .slots
            .oldest()
            .filter(|_| matches!(self.phase, Phase::Ready))?;
        Some(oldest + self.options.command_timeout)
    }

    /// Checks the timeouts; call it now and then (once a second does).
    pub fn tick(&mut self, now: Time) {
        match self.phase {
            Phase::Greeting { by, .. } if now >= by => self.fail(HostError::HandshakeTimeout, &[]),
            Phase::Ready => {
                let timeout = self.options.command_timeout;
                if let Some(cid) = self.slots.overdue(now, timeout) {
                    self.fail(
                        HostError::CommandTimeout {
                            cid,
                            after: timeout,
                        },
                        &[],
                    );
                }
            }
            _ => {}
        }
    }

    /// A response came and nothing of the buffer is on its way out: the driver gets the completion.
    fn complete_if_done(&mut self, slot: Slot) {
        if let Some((cqe, received)) = slots::take_completion(&mut self.slots, slot) {
            self.events.push_back(Event::Completed {
                slot,
                cqe,
                received,
            });
        }
    }

    /// Ends the connection. `fault` is the start of the PDU at fault, where one is.
    fn fail(&mut self, error: HostError, fault: &[u8]) {
        if matches!(self.phase, Phase::Failed { .. }) {
            return;
        }
        let term = match error {
            HostError::Protocol(fatal) => Some(Box::new(Term::new(fatal, fault))),
            _ => None,
        };
        self.phase = Phase::Failed { term };
        self.rx = Rx::Closed;
        self.events.push_back(Event::Fatal(error));
    }
}
