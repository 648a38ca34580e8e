//! Sending: one gathered write for all PDUs that are ready, payload straight from the commands' buffers.

use std::io::IoSlice;

use nvme::digest::crc32c;
use nvme::tcp::batch::{TxBatch, TxItem};

use super::{Buffers, Queue};
use crate::Error;

/// PDUs of one batch.
const ITEMS_MAX: usize = 64;
/// Pieces of one write: header, payload and digest of a batch's items, if they fit; the rest goes with the next.
const SLICES_MAX: usize = 96;

/// What is on its way out.
#[derive(Debug)]
pub(super) struct Outgoing {
    batch: TxBatch,
    /// Items that have left whole.
    items_done: usize,
    /// Bytes of the next item that have left.
    bytes_done: usize,
    blocked: bool,
}

impl Outgoing {
    pub fn new() -> Outgoing {
        Outgoing {
            batch: TxBatch::with_capacity(ITEMS_MAX),
            items_done: 0,
            bytes_done: 0,
            blocked: false,
        }
    }

    /// The socket had no room for the rest.
    pub fn is_blocked(&self) -> bool {
        self.blocked
    }

    fn waiting(&self) -> &[TxItem] {
        self.batch.items().get(self.items_done..).unwrap_or(&[])
    }

    /// Counts bytes as gone; `done` is called for each item that has left whole.
    fn advance(&mut self, count: usize, mut done: impl FnMut(&TxItem)) {
        self.bytes_done += count;
        while let Some(item) = self.batch.items().get(self.items_done) {
            let bytes = item_bytes(&self.batch, item);
            if self.bytes_done < bytes {
                return;
            }
            self.bytes_done -= bytes;
            self.items_done += 1;
            done(item);
        }
        self.items_done = 0;
        self.batch.clear();
    }
}

impl Queue {
    /// Sends what is ready, as far as the socket has room. True where anything left.
    pub(crate) fn send(&mut self, buffers: &impl Buffers) -> Result<bool, Error> {
        let mut progress = false;
        self.outgoing.blocked = false;
        loop {
            if self.outgoing.batch.is_empty() {
                self.machine.transmit(&mut self.outgoing.batch);
                put_digests(&mut self.outgoing.batch, buffers)?;
            }
            if self.outgoing.batch.is_empty() {
                return Ok(progress);
            }
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let used = gather(&self.outgoing, buffers, &mut slices)?;
            let Some(count) = self.socket.write(slices.get(..used).unwrap_or(&slices))? else {
                self.outgoing.blocked = true;
                return Ok(progress);
            };
            progress = true;
            let machine = &mut self.machine;
            self.outgoing.advance(count, |item| {
                if let Some(slot) = item.ends {
                    machine.transmitted(slot);
                }
            });
        }
    }
}

fn item_bytes(batch: &TxBatch, item: &TxItem) -> usize {
    let payload = item.payload.map_or(0, |payload| payload.len as usize);
    batch.header(item).len() + payload + batch.digest(item).len()
}

fn payload_of<'a>(buffers: &'a impl Buffers, item: &TxItem) -> Result<&'a [u8], Error> {
    let Some(payload) = item.payload else {
        return Ok(&[]);
    };
    let buffer = buffers.outgoing(payload.slot);
    let (start, len) = (payload.offset as usize, payload.len as usize);
    buffer.get(start..start + len).ok_or_else(|| {
        Error::Load(format!(
            "a command's buffer has {} bytes, but {} are to be sent",
            buffer.len(),
            start + len
        ))
    })
}

fn put_digests(batch: &mut TxBatch, buffers: &impl Buffers) -> Result<(), Error> {
    for index in 0..batch.items().len() {
        let Some(item) = batch.items().get(index).filter(|item| item.data_digest()) else {
            continue;
        };
        let crc = crc32c(payload_of(buffers, item)?);
        batch.set_data_digest(index, crc);
    }
    Ok(())
}

/// Fills in the pieces that are still to be sent; says how many.
fn gather<'a>(
    outgoing: &'a Outgoing,
    buffers: &'a impl Buffers,
    slices: &mut [IoSlice<'a>; SLICES_MAX],
) -> Result<usize, Error> {
    let mut skip = outgoing.bytes_done;
    let mut used = 0;
    for item in outgoing.waiting() {
        let batch = &outgoing.batch;
        for part in [
            batch.header(item),
            payload_of(buffers, item)?,
            batch.digest(item),
        ] {
            let skipped = skip.min(part.len());
            skip -= skipped;
            let rest = part.get(skipped..).unwrap_or(&[]);
            if rest.is_empty() {
                continue;
            }
            let Some(slice) = slices.get_mut(used) else {
                return Ok(used);
            };
            *slice = IoSlice::new(rest);
            used += 1;
        }
    }
    Ok(used)
}
