//! A host's connection with buffers of its own.

use nvme::Time;
use nvme::digest::crc32c;
use nvme::simulation::gather;
use nvme::tcp::batch::{Slot, TxBatch};
use nvme::tcp::host::{Command, Connection, Event, HostOptions, SubmitError, Transfer, Want};

/// One queue of a host, driven by bytes.
pub struct HostQueue {
    pub connection: Connection,
    buffers: Vec<Vec<u8>>,
    /// FUSE of the command in a slot.
    fuses: Vec<u8>,
    batch: TxBatch,
}

impl HostQueue {
    pub fn new(options: HostOptions, now: Time) -> HostQueue {
        HostQueue {
            connection: Connection::new(options, now),
            buffers: vec![Vec::new(); usize::from(options.depth)],
            fuses: vec![0; usize::from(options.depth)],
            batch: TxBatch::with_capacity(7),
        }
    }

    /// Submits a command; `data_out` are its data where it sends any.
    pub fn submit(
        &mut self,
        command: &Command,
        data_out: Vec<u8>,
        now: Time,
    ) -> Result<Slot, SubmitError> {
        let slot = self.connection.submit(command, now)?;
        self.fuses[slot.index()] = command.sqe.fuse();
        self.buffers[slot.index()] = match command.transfer {
            Transfer::None => Vec::new(),
            // Not zeros: a byte that never arrives must not look like one that was read.
            Transfer::In(bytes) => vec![0xEE; bytes as usize],
            Transfer::Out(bytes) => {
                assert_eq!(data_out.len(), bytes as usize, "data of another length");
                data_out
            }
        };
        Ok(slot)
    }

    /// The buffer of a command that is complete.
    pub fn buffer(&self, slot: Slot) -> &[u8] {
        &self.buffers[slot.index()]
    }

    /// Whether the slot's command is, or was, the second half of a fused operation.
    pub fn is_second_half(&self, slot: Slot) -> bool {
        self.fuses[slot.index()] == 2
    }

    /// Takes in bytes; all of them, unless the connection is over. Says how many.
    pub fn receive(&mut self, bytes: &[u8]) -> usize {
        let mut used = 0;
        while used < bytes.len() {
            let rest = &bytes[used..];
            match self.connection.want() {
                Want::Closed => break,
                Want::Header(_) => used += self.connection.headers(rest),
                Want::Discard(len) => {
                    let count = u32::try_from(rest.len()).unwrap().min(len);
                    self.connection.payload(count, 0);
                    used += count as usize;
                }
                Want::Payload {
                    slot,
                    offset,
                    len,
                    digest_from,
                } => {
                    let count = rest.len().min(len as usize);
                    let start = offset as usize;
                    let buffer = &mut self.buffers[slot.index()];
                    buffer[start..start + count].copy_from_slice(&rest[..count]);
                    let is_last = count == len as usize;
                    let digest_from = digest_from.filter(|_| is_last);
                    let crc =
                        digest_from.map_or(0, |from| crc32c(&buffer[from as usize..start + count]));
                    self.connection.payload(u32::try_from(count).unwrap(), crc);
                    used += count;
                }
            }
        }
        used
    }

    /// Appends what is to be sent.
    pub fn transmit(&mut self, out: &mut Vec<u8>) {
        loop {
            self.connection.transmit(&mut self.batch);
            if self.batch.is_empty() {
                return;
            }
            for slot in gather(&mut self.batch, &self.buffers, out) {
                self.connection.transmitted(slot);
            }
        }
    }

    /// The next event.
    pub fn next_event(&mut self) -> Option<Event> {
        self.connection.next_event()
    }
}
