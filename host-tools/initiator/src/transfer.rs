//! Moving one byte range: its pieces over all I/O queues, each queue kept full.

use nvme::Time;
use nvme::initiator::{Blocks, NamespaceInfo, Piece, Split, command};
use nvme::tcp::batch::Slot;
use nvme::tcp::host::Command;
use nvme_spec::Nsid;

use crate::Error;
use crate::queue::{Buffers, Queue, wait_any};

/// Which way the bytes go, and what a command of it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Read,
    Write,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Way::Read => "Read",
            Way::Write => "Write",
        }
    }
}

/// A command on its way: its blocks and its buffer.
struct Job<'a> {
    blocks: Blocks,
    buffer: Buffer<'a>,
}

enum Buffer<'a> {
    /// Whole blocks of the caller's, to be filled.
    Fill(&'a mut [u8]),
    /// One block of ours, of which the caller gets a part.
    FillPart {
        block: Vec<u8>,
        skip: usize,
        part: &'a mut [u8],
    },
    /// Whole blocks of the caller's, to be sent.
    Send(&'a [u8]),
    /// One block of ours, to be sent.
    SendBlock(Vec<u8>),
}

/// The jobs of one queue, by slot.
struct Jobs<'a>(Vec<Option<Job<'a>>>);

impl<'a> Jobs<'a> {
    fn put(&mut self, slot: Slot, job: Job<'a>) {
        if self.0.len() <= slot.index() {
            self.0.resize_with(slot.index() + 1, || None);
        }
        if let Some(place) = self.0.get_mut(slot.index()) {
            *place = Some(job);
        }
    }

    fn take(&mut self, slot: Slot) -> Option<Job<'a>> {
        self.0.get_mut(slot.index())?.take()
    }
}

impl Buffers for Jobs<'_> {
    fn incoming(&mut self, slot: Slot) -> &mut [u8] {
        match self.0.get_mut(slot.index()) {
            Some(Some(job)) => match &mut job.buffer {
                Buffer::Fill(bytes) => bytes,
                Buffer::FillPart { block, .. } => block,
                Buffer::Send(_) | Buffer::SendBlock(_) => &mut [],
            },
            _ => &mut [],
        }
    }

    fn outgoing(&self, slot: Slot) -> &[u8] {
        match self.0.get(slot.index()) {
            Some(Some(job)) => match &job.buffer {
                Buffer::Send(bytes) => bytes,
                Buffer::SendBlock(block) => block,
                Buffer::Fill(_) | Buffer::FillPart { .. } => &[],
            },
            _ => &[],
        }
    }
}

/// Reads `into.len()` bytes from byte `offset` of a namespace.
pub(crate) fn read(
    queues: &mut [Queue],
    namespace: &NamespaceInfo,
    transfer_bytes_max: u32,
    offset: u64,
    into: &mut [u8],
) -> Result<(), Error> {
    let pieces = split(namespace, transfer_bytes_max, offset, into.len())?;
    let mut rest = into;
    let jobs = pieces.map(|piece| {
        let (part, after) = std::mem::take(&mut rest).split_at_mut(piece.take_bytes as usize);
        rest = after;
        let buffer = if piece.is_whole(namespace.lba_bytes) {
            Buffer::Fill(part)
        } else {
            Buffer::FillPart {
                block: vec![0; namespace.lba_bytes as usize],
                skip: piece.skip_bytes as usize,
                part,
            }
        };
        Ok(Job {
            blocks: blocks(namespace, &piece),
            buffer,
        })
    });
    move_all(queues, namespace.nsid, Way::Read, jobs)
}

/// Writes `from` to byte `offset` of a namespace. A block that is only written in part is read before.
pub(crate) fn write(
    queues: &mut [Queue],
    namespace: &NamespaceInfo,
    transfer_bytes_max: u32,
    offset: u64,
    from: &[u8],
) -> Result<(), Error> {
    let pieces = split(namespace, transfer_bytes_max, offset, from.len())?;
    // At most the first and the last block; read before anything is written.
    let mut merged: Vec<(u64, Vec<u8>)> = Vec::new();
    for piece in pieces
        .clone()
        .filter(|piece| !piece.is_whole(namespace.lba_bytes))
    {
        let mut block = vec![0; namespace.lba_bytes as usize];
        let at = piece.lba.0 * u64::from(namespace.lba_bytes);
        read(queues, namespace, transfer_bytes_max, at, &mut block)?;
        let skip = piece.skip_bytes as usize;
        let part = caller_part(from, &piece);
        if let Some(to) = block.get_mut(skip..skip + part.len()) {
            to.copy_from_slice(part);
        }
        merged.push((piece.lba.0, block));
    }
    let jobs = pieces.map(|piece| {
        let block = merged
            .iter_mut()
            .find(|(lba, _)| *lba == piece.lba.0 && !piece.is_whole(namespace.lba_bytes));
        Ok(Job {
            blocks: blocks(namespace, &piece),
            buffer: match block {
                Some((_, block)) => Buffer::SendBlock(std::mem::take(block)),
                None => Buffer::Send(caller_part(from, &piece)),
            },
        })
    });
    move_all(queues, namespace.nsid, Way::Write, jobs)
}

fn caller_part<'a>(from: &'a [u8], piece: &Piece) -> &'a [u8] {
    let start = usize::try_from(piece.buffer_offset).unwrap_or(usize::MAX);
    from.get(start..start.saturating_add(piece.take_bytes as usize))
        .unwrap_or(&[])
}

fn split(
    namespace: &NamespaceInfo,
    transfer_bytes_max: u32,
    offset: u64,
    len: usize,
) -> Result<Split, Error> {
    offset
        .checked_add(len as u64)
        .and_then(|end| Split::new(&namespace.geometry(transfer_bytes_max), offset..end))
        .ok_or(Error::Range {
            nsid: namespace.nsid.0,
            offset,
            len,
            namespace_bytes: namespace.bytes(),
        })
}

fn blocks(namespace: &NamespaceInfo, piece: &Piece) -> Blocks {
    Blocks {
        lba: piece.lba,
        count: piece.blocks,
        lba_bytes: namespace.lba_bytes,
    }
}

/// Runs all jobs. At the first error no more are begun, but those begun are waited for: their buffers are the caller's.
fn move_all<'a>(
    queues: &mut [Queue],
    nsid: Nsid,
    way: Way,
    mut jobs: impl Iterator<Item = Result<Job<'a>, Error>>,
) -> Result<(), Error> {
    let mut running: Vec<Jobs<'a>> = queues.iter().map(|_| Jobs(Vec::new())).collect();
    let mut failure = None;
    let mut exhausted = false;
    loop {
        let mut moved = false;
        for (queue, running) in queues.iter_mut().zip(&mut running) {
            let now = queue.clock().now();
            while !exhausted && failure.is_none() && queue.room() > 0 {
                match jobs.next().transpose()? {
                    Some(job) => start(queue, running, nsid, way, job, now)?,
                    None => exhausted = true,
                }
            }
            moved |= queue.turn(running)?;
            while let Some(completed) = queue.next_completed()? {
                moved = true;
                if let Some(job) = running.take(completed.slot) {
                    let result = finish(job, nsid, way, completed.cqe.status());
                    failure = failure.or(result.err());
                }
            }
        }
        if (exhausted || failure.is_some()) && queues.iter().all(|queue| queue.outstanding() == 0) {
            return failure.map_or(Ok(()), Err);
        }
        if !moved {
            wait_any(queues)?;
        }
    }
}

fn start<'a>(
    queue: &mut Queue,
    running: &mut Jobs<'a>,
    nsid: Nsid,
    way: Way,
    job: Job<'a>,
    now: Time,
) -> Result<(), Error> {
    let command: Command = match way {
        Way::Read => command::read(nsid, job.blocks),
        Way::Write => command::write(nsid, job.blocks),
    };
    let slot = queue.submit(&command, now)?;
    running.put(slot, job);
    Ok(())
}

fn finish(job: Job<'_>, nsid: Nsid, way: Way, status: nvme_spec::Status) -> Result<(), Error> {
    if !status.is_success() {
        return Err(Error::Command {
            command: way.name(),
            nsid: nsid.0,
            lba: job.blocks.lba.0,
            blocks: job.blocks.count,
            status,
        });
    }
    if let Buffer::FillPart { block, skip, part } = job.buffer
        && let Some(from) = block.get(skip..skip + part.len())
    {
        part.copy_from_slice(from);
    }
    Ok(())
}
