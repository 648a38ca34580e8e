//! The machine's work becomes requests of the queue pair: as many at once as one call of the device takes.

use std::ops::Range;

use frontend_nvme::link::LinkFailure;
use nvme::queue::Slot;
use nvme::rdma::target::{Operation as Do, Remote as HostMemory, Work};
use nvme_spec::Cqe;
use reactor::buf::IoBuf;
use smallvec::SmallVec;
use verbs::{Gather, Operation, RKey, Remote, ScatterEntry, SendRequest, VerbsError, WrId};
use zerocopy::IntoBytes;

use crate::limits::{BATCH_MAX, SCATTER_MAX};
use crate::queue::Queue;

/// Requests that are about to be posted.
#[derive(Debug)]
pub(crate) struct Batch {
    requests: Vec<Planned>,
    entries: Vec<ScatterEntry>,
}

#[derive(Clone, Debug)]
struct Planned {
    id: WrId,
    signaled: bool,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    Read(Range<usize>, Remote),
    Write(Range<usize>, Remote),
    Respond(Cqe, Option<RKey>),
}

/// What posting has led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Posted {
    /// The response of a command without data, or of one whose data have gone.
    Response {
        slot: Slot,
        with_data: bool,
    },
    Data,
}

impl Default for Batch {
    fn default() -> Self {
        Self {
            requests: Vec::with_capacity(BATCH_MAX),
            entries: Vec::with_capacity(BATCH_MAX * SCATTER_MAX as usize),
        }
    }
}

impl Batch {
    /// Plans one request; none where it waits for staging.
    fn plan(
        &mut self,
        queue: &mut Queue,
        work: &Work,
        buffers: &[Option<IoBuf>],
    ) -> Result<Option<(u32, Posted)>, VerbsError> {
        let id = WrId(work.id.0);
        let mut signaled = work.signaled;
        let (what, bytes, posted) = match work.operation {
            Do::Respond {
                cqe,
                invalidate,
                with_data,
            } => {
                let slot = work.slot;
                let posted = Posted::Response { slot, with_data };
                (What::Respond(cqe, invalidate.map(RKey)), 0, posted)
            }
            Do::Read {
                offset,
                bytes_max,
                remote,
            } => {
                let part = Part { offset, bytes_max };
                let sges = queue.read_sges;
                let Some(run) = self.gather(queue, work, part, buffers, sges)? else {
                    return Ok(None);
                };
                (
                    What::Read(run.entries, to_remote(remote)),
                    run.bytes,
                    Posted::Data,
                )
            }
            Do::Write {
                offset,
                bytes_max,
                remote,
            } => {
                let part = Part { offset, bytes_max };
                let sges = queue.write_sges;
                let Some(run) = self.gather(queue, work, part, buffers, sges)? else {
                    return Ok(None);
                };
                signaled |= run.is_staged;
                (
                    What::Write(run.entries, to_remote(remote)),
                    run.bytes,
                    Posted::Data,
                )
            }
        };
        self.requests.push(Planned { id, signaled, what });
        Ok(Some((bytes, posted)))
    }

    /// Finds the device a run of the slot's buffer: where it lies, as far as that is registered, or a piece of the staging.
    fn gather(
        &mut self,
        queue: &mut Queue,
        work: &Work,
        part: Part,
        buffers: &[Option<IoBuf>],
        sges: usize,
    ) -> Result<Option<Run>, VerbsError> {
        let Some(buf) = buffers.get(work.slot.index()).and_then(Option::as_ref) else {
            return Err(misuse("a command's buffer is missing"));
        };
        let start = self.entries.len();
        let segments = || buf.segments_in(part.offset as usize, part.bytes_max as usize);
        let mut bytes = 0;
        for segment in segments().take(sges) {
            let Some(entry) = queue.pools.entry(&segment) else {
                break;
            };
            bytes += entry.len();
            self.entries.push(entry);
        }
        if bytes > 0 {
            return Ok(Some(Run {
                entries: start..self.entries.len(),
                bytes,
                is_staged: false,
            }));
        }
        // The first was found foreign above, and stays so: its pool may be registered by now.
        let mut rest = segments();
        let first = rest.next().map_or(0, |segment| segment.len());
        let more = rest.take_while(|segment| queue.pools.entry(segment).is_none());
        let foreign = first + more.map(|segment| segment.len()).sum::<usize>();
        self.stage(queue, work, part, buf, foreign)
    }

    /// The same through the staging.
    fn stage(
        &mut self,
        queue: &mut Queue,
        work: &Work,
        part: Part,
        buf: &IoBuf,
        bytes_max: usize,
    ) -> Result<Option<Run>, VerbsError> {
        let bytes_max = u32::try_from(bytes_max).unwrap_or(u32::MAX);
        if bytes_max == 0 {
            return Err(misuse("a command's buffer is shorter than its data"));
        }
        let Some(chunk) = queue.staging.take(work.id, bytes_max) else {
            return Ok(None);
        };
        let entry = chunk.entry;
        if let Do::Read { .. } = work.operation {
            chunk.for_read(work.slot, part.offset);
        } else if !chunk.for_write(buf, part.offset) {
            return Err(misuse("a command's buffer is shorter than its data"));
        } else {
            queue.wire.copied += u64::from(entry.len());
        }
        let start = self.entries.len();
        self.entries.push(entry);
        Ok(Some(Run {
            entries: start..start + 1,
            bytes: entry.len(),
            is_staged: true,
        }))
    }

    fn post(&self, queue: &Queue) -> Result<(), VerbsError> {
        let requests: SmallVec<[SendRequest<'_>; BATCH_MAX]> = self
            .requests
            .iter()
            .map(|planned| SendRequest {
                id: planned.id,
                operation: self.operation(&planned.what),
                signaled: planned.signaled,
                fence: false,
            })
            .collect();
        let posted = queue.qp()?.post_send(&requests);
        posted.map_err(|refused| refused.error)
    }

    fn operation<'a>(&'a self, what: &'a What) -> Operation<'a> {
        match what {
            What::Read(entries, remote) => Operation::Read {
                entries: &self.entries[entries.clone()],
                remote: *remote,
            },
            What::Write(entries, remote) => Operation::Write {
                gather: Gather::Entries(&self.entries[entries.clone()]),
                remote: *remote,
            },
            What::Respond(cqe, invalidate) => Operation::Send {
                gather: Gather::Inline(cqe.as_bytes()),
                invalidate: *invalidate,
                solicited: false,
            },
        }
    }
}

/// Of a command's data.
#[derive(Clone, Copy)]
struct Part {
    offset: u32,
    bytes_max: u32,
}

/// Memory for one request.
struct Run {
    entries: Range<usize>,
    bytes: u32,
    is_staged: bool,
}

impl Queue {
    /// Posts the machine's work, as far as there is room; `done` hears what was posted.
    pub(crate) fn post_work(
        &mut self,
        batch: &mut Batch,
        buffers: &mut [Option<IoBuf>],
        mut done: impl FnMut(&mut [Option<IoBuf>], Posted),
    ) {
        if self.is_over || self.machine.next_work().is_none() {
            return;
        }
        let now = self.clock.now();
        let mut read_waits = false;
        loop {
            batch.requests.clear();
            batch.entries.clear();
            while batch.requests.len() < BATCH_MAX
                && let Some(work) = self.next_work(read_waits)
            {
                match batch.plan(self, &work, buffers) {
                    Ok(Some((bytes, posted))) => {
                        self.wire.sent += sent(&work, bytes);
                        self.machine.posted(&work, bytes, now);
                        done(buffers, posted);
                    }
                    Ok(None) if matches!(work.operation, Do::Read { .. }) => read_waits = true,
                    Ok(None) => break,
                    Err(error) => return self.fail(LinkFailure::Protocol(error.to_string())),
                }
            }
            if batch.requests.is_empty() {
                return;
            }
            if let Err(error) = batch.post(self) {
                return self.fail(LinkFailure::Protocol(error.to_string()));
            }
        }
    }
}

impl Queue {
    /// What to post next: past an RDMA READ, where that waits for staging.
    fn next_work(&self, read_waits: bool) -> Option<Work> {
        match read_waits {
            true => self.machine.next_answer(),
            false => self.machine.next_work(),
        }
    }
}

/// Bytes that a request brings to the host.
fn sent(work: &Work, bytes: u32) -> u64 {
    match work.operation {
        Do::Read { .. } => 0,
        Do::Write { .. } => bytes.into(),
        Do::Respond { .. } => size_of::<Cqe>() as u64,
    }
}

fn to_remote(remote: HostMemory) -> Remote {
    Remote {
        address: remote.address,
        rkey: RKey(remote.key),
    }
}

fn misuse(what: &'static str) -> VerbsError {
    VerbsError::Misuse { call: "post", what }
}
