//! Commands out and completions in, one by one, on a queue of the caller's: for programs that decide themselves what is outstanding.

use std::time::Instant;

use nvme::initiator::{Blocks, command, nvm};
use nvme::tcp::batch::Slot;
use nvme::tcp::host::Command;
use nvme_spec::{Lba, Status};

use crate::queue::Buffers;
use crate::{Error, Initiator, NamespaceInfo};

/// What a command of a [`Pipeline`] does. Offsets and lengths are bytes, whole blocks each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Into the buffer.
    Read {
        /// Where.
        offset: u64,
        /// How much.
        len: u32,
    },
    /// Out of the buffer.
    Write {
        /// Where.
        offset: u64,
        /// How much.
        len: u32,
    },
    /// Dataset Management with the attribute Deallocate, one range.
    Deallocate {
        /// Where.
        offset: u64,
        /// How much.
        len: u32,
    },
    /// Makes what was written durable.
    Flush,
}

/// What became of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// The number that the caller gave it.
    pub token: usize,
    /// The controller's word.
    pub status: Status,
}

/// The first I/O queue of an [`Initiator`], on one namespace, with a buffer for each token.
#[derive(Debug)]
pub struct Pipeline {
    initiator: Initiator,
    namespace: NamespaceInfo,
    buffers: TokenBuffers,
    depth: usize,
    outstanding: usize,
}

#[derive(Debug)]
struct TokenBuffers {
    by_token: Vec<Box<[u8]>>,
    /// What a Deallocate sends, by token.
    ranges: Vec<Vec<u8>>,
    /// By the connection's slot: token, its bytes, and whether its data are the range and not the buffer.
    by_slot: Vec<Flight>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Flight {
    token: usize,
    len: usize,
    is_range: bool,
}

impl Buffers for TokenBuffers {
    fn incoming(&mut self, slot: Slot) -> &mut [u8] {
        let flight = self.by_slot.get(slot.index()).copied().unwrap_or_default();
        let buffer = self.by_token.get_mut(flight.token);
        buffer
            .and_then(|buffer| buffer.get_mut(..flight.len))
            .unwrap_or(&mut [])
    }

    fn outgoing(&self, slot: Slot) -> &[u8] {
        let flight = self.by_slot.get(slot.index()).copied().unwrap_or_default();
        if flight.is_range {
            return self.ranges.get(flight.token).map_or(&[], |range| range);
        }
        let buffer = self.by_token.get(flight.token);
        buffer
            .and_then(|buffer| buffer.get(..flight.len))
            .unwrap_or(&[])
    }
}

impl Pipeline {
    /// Takes an initiator over, with `depth` tokens (0 to `depth - 1`) that have `buffer_bytes` each.
    ///
    /// # Errors
    /// There is no such namespace, or the queue is not that deep.
    pub fn new(
        mut initiator: Initiator,
        nsid: u32,
        depth: usize,
        buffer_bytes: usize,
    ) -> Result<Pipeline, Error> {
        let namespace = initiator.namespace(nsid)?.clone();
        let room = initiator.on_queue(|queue| Ok(queue.room()))?;
        if depth == 0 || depth > room {
            return Err(Error::Load(format!(
                "a depth of {depth} does not fit a queue of {room}"
            )));
        }
        Ok(Pipeline {
            initiator,
            namespace,
            buffers: TokenBuffers {
                by_token: vec![vec![0; buffer_bytes].into(); depth],
                ranges: vec![Vec::new(); depth],
                by_slot: vec![Flight::default(); depth],
            },
            depth,
            outstanding: 0,
        })
    }

    /// The namespace.
    pub fn namespace(&self) -> &NamespaceInfo {
        &self.namespace
    }

    /// Bytes of the largest read or write.
    pub fn transfer_bytes_max(&self) -> u32 {
        self.initiator.controller().transfer_bytes_max
    }

    /// A token's buffer. While its command is outstanding, what is in it is not settled.
    pub fn buffer(&mut self, token: usize) -> &mut [u8] {
        self.buffers
            .by_token
            .get_mut(token)
            .map_or(&mut [], |buffer| buffer)
    }

    /// Takes a command under a token that has none outstanding; [`Pipeline::send`] sends it.
    ///
    /// # Errors
    /// It is not of whole blocks, larger than a buffer or a transfer, or the connection is over.
    pub fn submit(&mut self, token: usize, work: Work) -> Result<(), Error> {
        let (command, flight) = self.command(token, work)?;
        let slot = self
            .initiator
            .on_queue(|queue| queue.submit(&command, queue.clock().now()))?;
        let by_slot = &mut self.buffers.by_slot;
        if by_slot.len() <= slot.index() {
            by_slot.resize(slot.index() + 1, Flight::default());
        }
        if let Some(place) = by_slot.get_mut(slot.index()) {
            *place = flight;
        }
        self.outstanding += 1;
        Ok(())
    }

    fn command(&mut self, token: usize, work: Work) -> Result<(Command, Flight), Error> {
        let nsid = self.namespace.nsid;
        let flight = |len, is_range| Flight {
            token,
            len,
            is_range,
        };
        let is_token = token < self.depth;
        Ok(match work {
            Work::Read { offset, len } if is_token => {
                let blocks = self.blocks(offset, len)?;
                (
                    command::read(nsid, blocks),
                    flight(self.within(token, len)?, false),
                )
            }
            Work::Write { offset, len } if is_token => {
                let blocks = self.blocks(offset, len)?;
                (
                    command::write(nsid, blocks),
                    flight(self.within(token, len)?, false),
                )
            }
            Work::Deallocate { offset, len } if is_token => {
                let blocks = self.blocks(offset, len)?;
                let (command, data) = nvm::deallocate(nsid, &[(blocks.lba, blocks.count)]);
                let flight = flight(data.len(), true);
                if let Some(range) = self.buffers.ranges.get_mut(token) {
                    *range = data;
                }
                (command, flight)
            }
            Work::Flush if is_token => (command::flush(nsid), flight(0, false)),
            _ => return Err(Error::Load(format!("there is no token {token}"))),
        })
    }

    fn blocks(&self, offset: u64, len: u32) -> Result<Blocks, Error> {
        let lba_bytes = self.namespace.lba_bytes;
        let whole = offset.is_multiple_of(u64::from(lba_bytes)) && len.is_multiple_of(lba_bytes);
        if len == 0 || !whole {
            return Err(Error::Load(format!(
                "{len} bytes at {offset} are not whole blocks of {lba_bytes} bytes"
            )));
        }
        Ok(Blocks {
            lba: Lba(offset / u64::from(lba_bytes)),
            count: len / lba_bytes,
            lba_bytes,
        })
    }

    fn within(&self, token: usize, len: u32) -> Result<usize, Error> {
        let limit = self.transfer_bytes_max();
        let buffer = self
            .buffers
            .by_token
            .get(token)
            .map_or(0, |buffer| buffer.len());
        if len > limit || len as usize > buffer {
            return Err(Error::Load(format!(
                "a command of {len} bytes is above the controller's limit ({limit} bytes) or the buffer's ({buffer} bytes)"
            )));
        }
        Ok(len as usize)
    }

    /// Sends what can be sent without waiting.
    ///
    /// # Errors
    /// The connection is over.
    pub fn send(&mut self) -> Result<(), Error> {
        let buffers = &self.buffers;
        self.initiator.on_queue(|queue| queue.send(buffers))?;
        Ok(())
    }

    /// The next completion that is there; waits for one where nothing is, until `until` at the latest (without it, until one comes).
    /// `None` where none came, or none is outstanding.
    ///
    /// # Errors
    /// The connection is over, for one because a command was not answered in time.
    pub fn next(&mut self, until: Option<Instant>) -> Result<Option<Done>, Error> {
        let buffers = &mut self.buffers;
        let outstanding = self.outstanding;
        let done = self.initiator.on_queue(|queue| {
            loop {
                if let Some(completed) = queue.next_completed()? {
                    return Ok(Some(completed));
                }
                if outstanding == 0 {
                    return Ok(None);
                }
                if queue.turn(buffers)? {
                    continue;
                }
                match until {
                    None => queue.wait()?,
                    Some(until) if Instant::now() >= until => return Ok(None),
                    Some(until) => queue.wait_until(until)?,
                }
            }
        })?;
        Ok(done.map(|completed| {
            self.outstanding = self.outstanding.saturating_sub(1);
            let flight = self.buffers.by_slot.get(completed.slot.index());
            Done {
                token: flight.map_or(usize::MAX, |flight| flight.token),
                status: completed.cqe.status(),
            }
        }))
    }

    /// Ends the connection in order.
    ///
    /// # Errors
    /// The controller does not answer, or commands were outstanding.
    pub fn shutdown(self) -> Result<(), Error> {
        self.initiator.shutdown()
    }
}
