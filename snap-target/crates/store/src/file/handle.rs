//! One reactor's handle: transfers in flight, each driven step by step until all its bytes are moved.

use std::collections::VecDeque;
use std::sync::Arc;

use nix::errno::Errno;
use nix::libc;
use reactor::buf::IoBuf;
use reactor::{Event, Fd, Fsync, OpId, Owner, Ring, WriteMode};

use super::bounce::{BOUNCE_BYTES, BouncePool};
use super::gate::{Pass, Permit};
use super::plan::{Step, next_step};
use super::{FileState, QUEUE_DEPTH_MAX};
use crate::contract::{Completion, Limits, Op, Rejected, Store, Token, check};
use crate::error::StoreError;

/// Zeros written at a time where the file system cannot zero a range itself.
const ZEROS_BYTES: usize = 256 << 10;
/// Ways to zero a range, best first.
const ZERO_MODES: [i32; 2] = [
    libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE,
    libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
];
const DISCARD_MODE: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;

pub(super) struct FileStore {
    /// First: its drop waits for the kernel, before flights give up buffers and permits.
    owner: Owner,
    file: Fd,
    flights: Vec<Option<Flight>>,
    free: Vec<u32>,
    /// Flights that wait for a permit, a bounce buffer or room in the ring; retried at each poll.
    parked: VecDeque<u32>,
    done: VecDeque<Completion>,
    bounce: BouncePool,
    zeros: IoBuf,
    state: Arc<FileState>,
}

struct Flight {
    token: Token,
    op: Op,
    buf: Option<IoBuf>,
    offset: u64,
    total: u64,
    done: u64,
    stage: Stage,
    /// What is in flight at the ring.
    ring_op: Option<OpId>,
    bounce: Option<IoBuf>,
    permit: Permit,
    cancelled: bool,
}

/// What the operation in flight at the ring is for, or, if none is, what comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The next step is to be planned.
    Plan,
    /// Moving bytes between medium and buffer.
    Direct,
    /// Reading the window of an unaligned read.
    Window { start: u64, wanted: usize },
    /// Reading the old content around an unaligned write; `have` bytes of the window are there.
    Fill {
        start: u64,
        end: u64,
        wanted: usize,
        have: usize,
    },
    /// Writing the window back.
    WriteBack { start: u64, end: u64, wanted: usize },
    /// fdatasync.
    Sync,
    /// Punching a hole.
    Discard,
    /// Zeroing in the n-th way.
    ZeroRange(usize),
}

/// What became of a flight that was pushed on.
enum Pushed {
    InFlight(OpId),
    Parked,
    Ended(Result<u32, StoreError>),
}

impl FileStore {
    pub(super) fn new(state: Arc<FileState>, ring: &Ring) -> Result<Self, StoreError> {
        let resources = |why: String| StoreError::Resources {
            store: state.name.clone(),
            why,
        };
        let file = state
            .fd
            .try_clone()
            .map_err(|error| resources(format!("duplicating its descriptor failed: {error}")))?;
        Ok(Self {
            owner: ring
                .register()
                .map_err(|error| resources(error.to_string()))?,
            file: Fd::from(file),
            flights: (0..QUEUE_DEPTH_MAX).map(|_| None).collect(),
            free: (0..QUEUE_DEPTH_MAX).rev().collect(),
            parked: VecDeque::with_capacity(QUEUE_DEPTH_MAX as usize),
            done: VecDeque::with_capacity(QUEUE_DEPTH_MAX as usize),
            bounce: BouncePool::new(state.direct, &state.name)?,
            zeros: IoBuf::heap(ZEROS_BYTES).map_err(|error| resources(error.to_string()))?,
            state,
        })
    }

    /// Pushes flight `index` on until it waits for something or ends.
    fn push_on(&mut self, index: u32) {
        let Some(mut flight) = self.flights.get_mut(index as usize).and_then(Option::take) else {
            return;
        };
        match self.next(&mut flight, index) {
            Pushed::InFlight(op) => {
                flight.ring_op = Some(op);
                self.flights[index as usize] = Some(flight);
            }
            Pushed::Parked => {
                self.flights[index as usize] = Some(flight);
                self.parked.push_back(index);
            }
            Pushed::Ended(result) => self.end(index, flight, result),
        }
    }

    fn end(&mut self, index: u32, mut flight: Flight, result: Result<u32, StoreError>) {
        if let Some(bounce) = flight.bounce.take() {
            self.bounce.give_back(bounce);
        }
        self.free.push(index);
        self.done.push_back(Completion {
            token: flight.token,
            buf: flight.buf,
            result,
        });
    }

    /// Starts the next operation of a flight that has none in flight.
    fn next(&mut self, flight: &mut Flight, index: u32) -> Pushed {
        if flight.cancelled {
            return Pushed::Ended(Err(StoreError::Cancelled {
                store: self.state.name.clone(),
                offset: flight.offset,
            }));
        }
        if !flight.permit.try_enter(|| self.owner.ring().waker()) {
            return Pushed::Parked;
        }
        let tag = u64::from(index);
        let started = match flight.op {
            Op::Flush => {
                flight.stage = Stage::Sync;
                self.owner.fsync(&self.file, Fsync::Data, tag)
            }
            Op::Discard { offset, len } => {
                flight.stage = Stage::Discard;
                self.owner
                    .fallocate(&self.file, DISCARD_MODE, offset, len, tag)
            }
            Op::Zero { offset, len } if matches!(flight.stage, Stage::ZeroRange(way) if way < ZERO_MODES.len()) =>
            {
                let Stage::ZeroRange(way) = flight.stage else {
                    return Pushed::Parked;
                };
                self.owner
                    .fallocate(&self.file, ZERO_MODES[way], offset, len, tag)
            }
            Op::Read { .. } | Op::Write { .. } | Op::Zero { .. } => {
                return self.next_piece(flight, tag);
            }
        };
        started.map_or(Pushed::Parked, Pushed::InFlight)
    }

    /// Starts the next piece of a transfer.
    fn next_piece(&mut self, flight: &mut Flight, tag: u64) -> Pushed {
        if let Stage::Fill { .. } | Stage::WriteBack { .. } = flight.stage {
            return self.next_of_window(flight, tag);
        }
        let left = flight.total - flight.done;
        if left == 0 {
            return Pushed::Ended(Ok(flight
                .buf
                .as_ref()
                .map_or(0, |_| u32::try_from(flight.total).unwrap_or(u32::MAX))));
        }
        let (source, at) = flight.source(&self.zeros);
        let left = usize::try_from(left)
            .unwrap_or(usize::MAX)
            .min(source.len() - at);
        let position = flight.position();
        match next_step(
            position,
            source,
            at,
            left,
            self.state.limits.alignment_bytes,
            BOUNCE_BYTES,
        ) {
            Step::Direct { len } => {
                let view = source.slice(at..at + len);
                flight.stage = Stage::Direct;
                let started = match flight.op {
                    Op::Read { .. } => self.owner.read_at(&self.file, position, view, tag),
                    _ => self
                        .owner
                        .write_at(&self.file, position, view, flight.write_mode(), tag),
                };
                started.map_or_else(|_| flight.park(Stage::Plan), Pushed::InFlight)
            }
            Step::Bounce { start, end, wanted } => {
                if flight.bounce.is_none() {
                    flight.bounce = self.bounce.take();
                }
                if flight.bounce.is_none() {
                    return flight.park(Stage::Plan);
                }
                flight.stage = match flight.op {
                    Op::Read { .. } => Stage::Window { start, wanted },
                    _ if start == position && end == position + wanted as u64 => {
                        Stage::WriteBack { start, end, wanted }
                    }
                    _ => Stage::Fill {
                        start,
                        end,
                        wanted,
                        have: 0,
                    },
                };
                if let Stage::Window { .. } = flight.stage {
                    let Some(bounce) = &flight.bounce else {
                        return flight.park(Stage::Plan);
                    };
                    let view = bounce.slice(0..span(start, end));
                    let started = self.owner.read_at(&self.file, start, view, tag);
                    return started.map_or_else(|_| flight.park(Stage::Plan), Pushed::InFlight);
                }
                self.next_of_window(flight, tag)
            }
        }
    }

    /// Starts the next half of an unaligned write: reading what is around it, or writing the patched window.
    fn next_of_window(&mut self, flight: &mut Flight, tag: u64) -> Pushed {
        let (source, at) = flight.source(&self.zeros);
        let source = source.clone();
        let position = flight.position();
        let mode = flight.write_mode();
        let Some(bounce) = &mut flight.bounce else {
            return flight.park(Stage::Plan);
        };
        let started = match flight.stage {
            Stage::Fill {
                start, end, have, ..
            } => {
                let view = bounce.slice(have..span(start, end));
                self.owner
                    .read_at(&self.file, start + have as u64, view, tag)
            }
            Stage::WriteBack { start, end, wanted } => {
                let from = span(start, position);
                if let Some(window) = bounce.exclusive() {
                    source.copy_to(at, &mut window[from..from + wanted]);
                }
                self.owner.write_at(
                    &self.file,
                    start,
                    bounce.slice(0..span(start, end)),
                    mode,
                    tag,
                )
            }
            _ => return Pushed::Parked,
        };
        started.map_or(Pushed::Parked, Pushed::InFlight)
    }

    /// Takes the ring's answer in and pushes the flight on.
    fn answered(&mut self, event: Event) {
        let Ok(index) = u32::try_from(event.tag) else {
            return;
        };
        // The ring's view of the buffer goes first, so that bounce buffers are exclusive again.
        drop(event.payload);
        let Some(Some(flight)) = self.flights.get_mut(index as usize) else {
            return;
        };
        flight.ring_op = None;
        match flight.take_in(event.result, &self.state) {
            Ok(bounce) => {
                if let Some(bounce) = bounce {
                    self.bounce.give_back(bounce);
                }
                let finished = flight.stage == Stage::Plan
                    && flight.done == flight.total
                    && !matches!(flight.op, Op::Zero { .. });
                // What is complete is complete, cancelled or not.
                flight.cancelled &= !finished;
                if finished && !flight.op.takes_buffer() {
                    self.finish(index, Ok(0));
                } else {
                    self.push_on(index);
                }
            }
            Err(error) => self.finish(index, Err(error)),
        }
    }

    fn finish(&mut self, index: u32, result: Result<u32, StoreError>) {
        if let Some(flight) = self.flights.get_mut(index as usize).and_then(Option::take) {
            self.end(index, flight, result);
        }
    }

    fn permit(&self, op: &Op, len: u64) -> Permit {
        let (Op::Write { offset, .. } | Op::Discard { offset, .. } | Op::Zero { offset, .. }) = *op
        else {
            return Permit::not_needed();
        };
        if !self.state.direct {
            return Permit::not_needed();
        }
        let align = u64::from(self.state.limits.alignment_bytes);
        let whole_blocks = offset.is_multiple_of(align) && len.is_multiple_of(align);
        Permit::new(
            self.state.clone(),
            if whole_blocks {
                Pass::Shared
            } else {
                Pass::Exclusive
            },
        )
    }
}

impl Store for FileStore {
    fn limits(&self) -> &Limits {
        &self.state.limits
    }

    fn submit(&mut self, op: Op, buf: Option<IoBuf>, token: Token) -> Result<(), Rejected> {
        if let Err(why) = check(&op, buf.as_ref(), &self.state.limits, &self.state.name) {
            return Err(Rejected { op, buf, why });
        }
        if matches!(op, Op::Flush | Op::Write { durable: true, .. })
            && let Some(why) = self.state.flush_error()
        {
            return Err(Rejected { op, buf, why });
        }
        let Some(index) = self.free.pop() else {
            return Err(Rejected {
                op,
                buf,
                why: StoreError::Busy,
            });
        };
        let (offset, total, stage) = match op {
            Op::Read { offset } | Op::Write { offset, .. } => (
                offset,
                buf.as_ref().map_or(0, IoBuf::len) as u64,
                Stage::Plan,
            ),
            Op::Zero { offset, len } => (offset, len, Stage::ZeroRange(0)),
            Op::Discard { offset, .. } => (offset, 0, Stage::Plan),
            Op::Flush => (0, 0, Stage::Plan),
        };
        let permit = self.permit(
            &op,
            if let Op::Discard { len, .. } = op {
                len
            } else {
                total
            },
        );
        let nothing_to_do = matches!(op, Op::Flush if !self.state.limits.writable)
            || matches!(op, Op::Discard { len: 0, .. } | Op::Zero { len: 0, .. });
        let flight = Flight {
            token,
            op,
            buf,
            offset,
            total,
            done: 0,
            stage,
            ring_op: None,
            bounce: None,
            permit,
            cancelled: false,
        };
        if nothing_to_do {
            self.end(index, flight, Ok(0));
        } else {
            self.flights[index as usize] = Some(flight);
            self.push_on(index);
        }
        Ok(())
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        while let Some(event) = self.owner.next_event() {
            self.answered(event);
        }
        for _ in 0..self.parked.len() {
            if let Some(index) = self.parked.pop_front() {
                self.push_on(index);
            }
        }
        completions.extend(self.done.drain(..));
    }

    fn cancel(&mut self, token: Token) {
        let Some(flight) = self
            .flights
            .iter_mut()
            .flatten()
            .find(|flight| flight.token == token)
        else {
            return;
        };
        flight.cancelled = true;
        if let Some(op) = flight.ring_op {
            self.owner.ring().cancel(op);
        }
    }

    fn lease(&mut self, _offset: u64, _len: u32) -> Option<IoBuf> {
        None
    }
}

impl Flight {
    fn position(&self) -> u64 {
        self.offset + self.done
    }

    /// Where the bytes of the transfer are, and at which offset the next ones stand.
    fn source<'a>(&'a self, zeros: &'a IoBuf) -> (&'a IoBuf, usize) {
        match &self.buf {
            Some(buf) => (buf, usize::try_from(self.done).unwrap_or(usize::MAX)),
            None => (zeros, 0),
        }
    }

    fn write_mode(&self) -> WriteMode {
        if matches!(self.op, Op::Write { durable: true, .. }) {
            WriteMode::Durable
        } else {
            WriteMode::Cached
        }
    }

    fn park(&mut self, stage: Stage) -> Pushed {
        self.stage = stage;
        Pushed::Parked
    }

    /// Takes in the ring's answer to what was in flight. Gives a bounce buffer back that is done with.
    fn take_in(
        &mut self,
        result: Result<u32, Errno>,
        state: &FileState,
    ) -> Result<Option<IoBuf>, StoreError> {
        let count = match result {
            Ok(count) => count as usize,
            // Interrupted before anything moved: the same again.
            Err(Errno::EINTR) if !self.cancelled => return Ok(None),
            Err(errno) => return self.failed(errno, state).map(|()| None),
        };
        match self.stage {
            Stage::Sync | Stage::Discard => self.stage = Stage::Plan,
            Stage::ZeroRange(_) => {
                self.done = self.total;
                self.stage = Stage::Plan;
            }
            Stage::Direct | Stage::Plan => {
                self.moved(count, state)?;
            }
            Stage::Window { start, wanted } => {
                let from = span(start, self.position());
                let useful = count.saturating_sub(from).min(wanted);
                let at = usize::try_from(self.done).unwrap_or(usize::MAX);
                if let (Some(buf), Some(bounce)) = (&mut self.buf, &mut self.bounce)
                    && let Some(window) = bounce.exclusive()
                {
                    buf.copy_from(at, &window[from..from + useful]);
                }
                self.moved(useful, state)?;
                return Ok(self.bounce.take());
            }
            Stage::Fill {
                start,
                end,
                wanted,
                have,
            } => {
                let align = state.limits.alignment_bytes as usize;
                // What was read short is read again from the last whole block on.
                let now = have + count - (have + count) % align;
                if now <= have {
                    return Err(self.truncated(start + have as u64, state));
                }
                self.stage = if now < span(start, end) {
                    Stage::Fill {
                        start,
                        end,
                        wanted,
                        have: now,
                    }
                } else {
                    Stage::WriteBack { start, end, wanted }
                };
            }
            Stage::WriteBack { start, wanted, .. } => {
                let from = span(start, self.position());
                self.moved(count.saturating_sub(from).min(wanted), state)?;
                return Ok(self.bounce.take());
            }
        }
        Ok(None)
    }

    fn moved(&mut self, count: usize, state: &FileState) -> Result<(), StoreError> {
        if count == 0 {
            return Err(match self.op {
                Op::Read { .. } => self.truncated(self.position(), state),
                _ => self.io_error(Errno::EIO, state),
            });
        }
        self.done += count as u64;
        self.stage = Stage::Plan;
        Ok(())
    }

    /// What an error means at this stage: some only say that a way is closed.
    fn failed(&mut self, errno: Errno, state: &FileState) -> Result<(), StoreError> {
        if errno == Errno::ECANCELED {
            return Err(StoreError::Cancelled {
                store: state.name.clone(),
                offset: self.offset,
            });
        }
        let no_such_way = matches!(
            errno,
            Errno::EOPNOTSUPP | Errno::EINVAL | Errno::ENODEV | Errno::ENOSYS
        );
        match self.stage {
            Stage::Discard if no_such_way => {
                self.stage = Stage::Plan;
                Ok(())
            }
            Stage::ZeroRange(way) if no_such_way => {
                self.stage = if way + 1 < ZERO_MODES.len() {
                    Stage::ZeroRange(way + 1)
                } else {
                    Stage::Plan
                };
                Ok(())
            }
            Stage::Sync => {
                state.note_flush_failure(errno);
                Err(StoreError::FlushFailed {
                    store: state.name.clone(),
                    source: errno,
                })
            }
            _ => {
                // A durable write that fails may have eaten the kernel's one report about earlier writes.
                if errno == Errno::EIO && self.write_mode() == WriteMode::Durable {
                    state.note_flush_failure(errno);
                }
                Err(self.io_error(errno, state))
            }
        }
    }

    fn io_error(&self, source: Errno, state: &FileState) -> StoreError {
        let what = match self.op {
            Op::Read { .. } => "reading",
            Op::Write { .. } => "writing",
            Op::Flush => "flushing",
            Op::Discard { .. } => "discarding",
            Op::Zero { .. } => "zeroing",
        };
        let advice = match source {
            Errno::EIO => "; the medium is failing: see the kernel log",
            Errno::ENOSPC | Errno::EDQUOT => "; the file system is full: free space",
            Errno::EFBIG => "; the file size limit is reached (ulimit -f)",
            Errno::ENXIO | Errno::ENODEV => "; the device is gone",
            _ => "",
        };
        StoreError::Io {
            store: state.name.clone(),
            what,
            offset: self.position(),
            source,
            advice,
        }
    }

    fn truncated(&self, offset: u64, state: &FileState) -> StoreError {
        StoreError::Truncated {
            store: state.name.clone(),
            offset,
            bytes: state.limits.bytes,
        }
    }
}

/// Bytes from `start` to `end`, both within a bounce window.
fn span(start: u64, end: u64) -> usize {
    usize::try_from(end - start).unwrap_or(BOUNCE_BYTES)
}
