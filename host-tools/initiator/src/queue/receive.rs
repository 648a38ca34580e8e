//! Receiving: headers through a shared buffer, payload straight into the command's own wherever that saves a copy.

use std::io::IoSliceMut;

use nvme::digest::crc32c;
use nvme::tcp::host::Want;

use super::{Buffers, Queue};
use crate::Error;

/// Bytes of the shared buffer: many small PDUs in one read, and it stays in the second-level cache.
const STAGING_BYTES: usize = 128 << 10;
/// Behind payload of this size or more the next read takes headers only, so that the payload after them goes straight to
/// its place too.
const DIRECT_BYTES_MIN: u32 = 16 << 10;
/// What a read takes where large payload is expected: a few headers.
const HEADERS_ONLY_BYTES: usize = 256;
const _: () = assert!(HEADERS_ONLY_BYTES < STAGING_BYTES);

/// What one turn takes in before what it completes is replaced and sent: an end that only drinks leaves the other one idle.
const RECEIVE_BYTES_MAX: usize = 128 << 10;

/// What one read brought.
struct Read {
    bytes: usize,
    /// As many as were asked for: there may be more.
    full: bool,
}

/// Bytes that came with others and were not looked at yet.
#[derive(Debug)]
pub(super) struct Staging {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
    /// How much to read beyond what is wanted.
    read_bytes: usize,
}

impl Staging {
    pub fn new() -> Staging {
        Staging {
            bytes: vec![0; STAGING_BYTES].into(),
            start: 0,
            end: 0,
            read_bytes: STAGING_BYTES,
        }
    }

    fn staged(&self) -> &[u8] {
        self.bytes.get(self.start..self.end).unwrap_or(&[])
    }

    fn is_empty(&self) -> bool {
        self.start == self.end
    }

    fn room(&mut self) -> &mut [u8] {
        self.start = 0;
        self.end = 0;
        self.bytes.get_mut(..self.read_bytes).unwrap_or(&mut [])
    }

    /// After payload of `len` bytes: more of that size is expected.
    fn expect(&mut self, len: u32) {
        self.read_bytes = if len >= DIRECT_BYTES_MIN {
            HEADERS_ONLY_BYTES
        } else {
            STAGING_BYTES
        };
    }
}

impl Queue {
    /// Takes in what has arrived, up to [`RECEIVE_BYTES_MAX`]. True where anything did.
    pub(crate) fn receive(&mut self, buffers: &mut impl Buffers) -> Result<bool, Error> {
        let mut received = 0;
        while received < RECEIVE_BYTES_MAX {
            let Some(read) = self.read(buffers)? else {
                break;
            };
            received += read.bytes;
            self.digest_staged(buffers)?;
            if !read.full {
                break;
            }
        }
        Ok(received > 0)
    }

    /// What was staged, to its end.
    fn digest_staged(&mut self, buffers: &mut impl Buffers) -> Result<(), Error> {
        while !self.staging.is_empty() {
            match self.machine.want() {
                Want::Header(_) => {
                    self.staging.start += self.machine.headers(self.staging.staged())
                }
                Want::Payload { .. } => self.copy_payload(buffers)?,
                Want::Discard(len) => {
                    let count = self.staging.staged().len().min(len as usize);
                    self.staging.start += count;
                    self.machine.payload(u32::try_from(count).unwrap_or(len), 0);
                }
                Want::Closed => return Ok(()),
            }
        }
        Ok(())
    }

    /// One read from the socket: into the place of the payload that is wanted first, then into the shared buffer. `None` where there
    /// is nothing to read.
    fn read(&mut self, buffers: &mut impl Buffers) -> Result<Option<Read>, Error> {
        let want = self.machine.want();
        let payload = match want {
            Want::Closed => return Ok(None),
            Want::Header(_) | Want::Discard(_) => &mut [],
            Want::Payload {
                slot, offset, len, ..
            } => {
                self.staging.expect(len);
                place(buffers.incoming(slot), offset, len)?
            }
        };
        let wanted = payload.len();
        let room = self.staging.room();
        let asked = wanted + room.len();
        let mut places = [IoSliceMut::new(payload), IoSliceMut::new(room)];
        let Some(bytes) = self.socket.read(&mut places)? else {
            return Ok(None);
        };
        self.staging.end = bytes.saturating_sub(wanted);
        self.payload_arrived(want, bytes.min(wanted), buffers)?;
        Ok(Some(Read {
            bytes,
            full: bytes == asked,
        }))
    }

    /// Payload that came with other bytes: the one copy that small PDUs cost.
    fn copy_payload(&mut self, buffers: &mut impl Buffers) -> Result<(), Error> {
        let want = self.machine.want();
        let Want::Payload {
            slot, offset, len, ..
        } = want
        else {
            return Ok(());
        };
        self.staging.expect(len);
        let to = place(buffers.incoming(slot), offset, len)?;
        let from = self.staging.staged();
        let count = to.len().min(from.len());
        if let (Some(to), Some(from)) = (to.get_mut(..count), from.get(..count)) {
            to.copy_from_slice(from);
        }
        self.staging.start += count;
        self.payload_arrived(want, count, buffers)
    }

    fn payload_arrived(
        &mut self,
        want: Want,
        count: usize,
        buffers: &mut impl Buffers,
    ) -> Result<(), Error> {
        let Want::Payload {
            slot,
            offset,
            len,
            digest_from,
        } = want
        else {
            return Ok(());
        };
        let count = u32::try_from(count).unwrap_or(len).min(len);
        let crc = match digest_from {
            Some(start) if count == len => {
                crc32c(place(buffers.incoming(slot), start, offset + len - start)?)
            }
            _ => 0,
        };
        self.machine.payload(count, crc);
        Ok(())
    }
}

/// Part of a command's buffer. The machine asks for nothing beyond the length that the command was submitted with.
fn place(buffer: &mut [u8], offset: u32, len: u32) -> Result<&mut [u8], Error> {
    let have = buffer.len();
    let (offset, len) = (offset as usize, len as usize);
    buffer.get_mut(offset..offset + len).ok_or_else(|| {
        Error::Load(format!(
            "a command's buffer has {have} bytes, but {} were asked for",
            offset + len
        ))
    })
}
