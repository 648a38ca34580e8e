//! What is on its way out: the machine's PDUs, gathered into one send at a time.

use nvme::queue::Slot;
use nvme::tcp::batch::{ITEM_BYTES_MAX, TxBatch};
use nvme::tcp::host::Connection;
use reactor::buf::IoBuf;
use reactor::{Event, Fd, OpId, Owner, Payload, SendBatch};
use store_nvme::commands::Commands;

use crate::digest;
use crate::limits::{BATCH_HEADER_BYTES, BATCH_PDUS_MAX, BATCH_SEGMENTS_MAX};

/// A command's buffer is shorter than the data that it said it has.
#[derive(Debug)]
pub(crate) struct ShortBuffer;

/// What became of the next PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Put {
    Whole,
    /// The batch has no room for the rest.
    Full,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Outflow {
    pdus: TxBatch,
    /// Of these, so many are in a batch.
    put: usize,
    /// Of the next one: its header and so many bytes of its payload are.
    put_of_next: Option<u32>,
    /// None while it is with the kernel.
    batch: Option<SendBatch>,
    /// Commands whose last byte, as far as it is handed out, is in the batch.
    ends: Vec<Slot>,
    op: Option<OpId>,
    /// A send ended early: the stream ends in the middle of a PDU.
    broken: bool,
}

impl Outflow {
    pub(crate) fn new() -> Self {
        Self {
            pdus: TxBatch::with_capacity(BATCH_PDUS_MAX),
            put: 0,
            put_of_next: None,
            batch: Some(SendBatch::new(BATCH_HEADER_BYTES, BATCH_SEGMENTS_MAX)),
            ends: Vec::with_capacity(BATCH_SEGMENTS_MAX),
            op: None,
            broken: false,
        }
    }

    /// The send that is under way.
    pub(crate) fn op(&self) -> Option<OpId> {
        self.op
    }

    /// Whether nothing is on its way, or waits to be.
    pub(crate) fn is_empty(&self) -> bool {
        self.is_between_pdus() && self.put == self.pdus.items().len()
    }

    /// Whether every PDU that was begun has left whole.
    pub(crate) fn is_between_pdus(&self) -> bool {
        let has_left = self.batch.as_ref().is_some_and(SendBatch::is_empty);
        has_left && self.put_of_next.is_none() && !self.broken
    }

    /// Starts one send of what the machine has, unless one is under way or broke. False where the ring has no room for it now.
    pub(crate) fn send(
        &mut self,
        machine: &mut Connection,
        commands: &Commands,
        (owner, socket, tag): (&Owner, &Fd, u64),
    ) -> Result<bool, ShortBuffer> {
        let Some(mut batch) = self.batch.take_if(|_| !self.broken) else {
            return Ok(true);
        };
        let filled = self.fill(&mut batch, machine, commands);
        if filled.is_err() || batch.is_empty() {
            self.batch = Some(batch);
            return filled.map(|()| true);
        }
        match owner.send(socket, batch, tag) {
            Ok(op) => {
                self.op = Some(op);
                Ok(true)
            }
            Err(refused) => {
                self.batch = Some(refused.resources);
                Ok(false)
            }
        }
    }

    /// The send ended: its payload is not read any more. True where every byte left.
    pub(crate) fn sent(&mut self, event: Event, machine: &mut Connection) -> bool {
        self.op = None;
        let Payload::Sent(mut batch) = event.payload else {
            return false;
        };
        let all = event.result.is_ok_and(|sent| sent as usize == batch.len());
        self.broken = !all;
        batch.clear();
        self.batch = Some(batch);
        for slot in self.ends.drain(..) {
            machine.transmitted(slot);
        }
        all
    }

    /// A batch that the ring had no room for is sent as it is, and more with the next.
    fn fill(
        &mut self,
        batch: &mut SendBatch,
        machine: &mut Connection,
        commands: &Commands,
    ) -> Result<(), ShortBuffer> {
        if !batch.is_empty() {
            return Ok(());
        }
        loop {
            if self.put == self.pdus.items().len() {
                self.pdus.clear();
                self.put = 0;
                machine.transmit(&mut self.pdus);
                if self.pdus.is_empty() {
                    return Ok(());
                }
            }
            if self.put_next(batch, commands)? == Put::Full {
                return Ok(());
            }
        }
    }

    /// Puts the next PDU into the batch, or as much of it as there is room for.
    fn put_next(&mut self, batch: &mut SendBatch, commands: &Commands) -> Result<Put, ShortBuffer> {
        let Some(item) = self.pdus.items().get(self.put).cloned() else {
            return Ok(Put::Full);
        };
        if self.put_of_next.is_none() {
            if !batch.has_room(ITEM_BYTES_MAX, 1) || !batch.push_bytes(self.pdus.header(&item)) {
                return Ok(Put::Full);
            }
            self.put_of_next = Some(0);
        }
        if let Some(payload) = item.payload {
            let buf = commands.buf(payload.slot).ok_or(ShortBuffer)?;
            let (start, end) = (
                payload.offset as usize,
                (payload.offset + payload.len) as usize,
            );
            if buf.len() < end {
                return Err(ShortBuffer);
            }
            let done = self.put_of_next.unwrap_or(0);
            if done == 0 && item.data_digest() {
                let crc = digest::of_buf(buf, start..end);
                self.pdus.set_data_digest(self.put, crc);
            }
            let count = put_payload(batch, buf, start + done as usize, end);
            self.put_of_next = Some(done + count);
            if done + count < payload.len {
                return Ok(Put::Full);
            }
        }
        if !batch.push_bytes(self.pdus.digest(&item)) {
            return Ok(Put::Full);
        }
        self.put_of_next = None;
        self.put += 1;
        self.ends.extend(item.ends);
        Ok(Put::Whole)
    }
}

/// Puts as many of the bytes from `start` to `end` into the batch as their segments have room there.
fn put_payload(batch: &mut SendBatch, buf: &IoBuf, start: usize, end: usize) -> u32 {
    let segments = buf.raw_segments(start, end - start);
    let count: usize = segments
        .take(batch.segments_left())
        .map(|(_, len)| len)
        .sum();
    if !batch.push_payload(buf, start..start + count) {
        return 0;
    }
    u32::try_from(count).unwrap_or(0)
}
