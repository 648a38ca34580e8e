//! One reactor's handle: transfers in flight, each driven step by step until all its bytes are moved.

use std::collections::VecDeque;
use std::sync::Arc;

use nix::libc;
use reactor::buf::IoBuf;
use reactor::{Event, Fd, OpId, Ring};

use super::bounce::{BOUNCE_BYTES, BouncePool};
use super::flight::{Flight, Stage, ZERO_MODES, span};
use super::medium::{Medium, RingFile};
use super::plan::{Step, next_step};
use super::{FileState, QUEUE_DEPTH_MAX};
use crate::contract::{Completion, Limits, Op, Rejected, Store, Terms, Token, check};
use crate::error::StoreError;
use crate::gate::{Pass, Permit};

/// Zeros written at a time where the file system cannot zero a range itself.
const ZEROS_BYTES: usize = 256 << 10;
/// How a range is given back to the file system.
pub(super) const DISCARD_MODE: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;

pub(super) struct FileStore<M = RingFile> {
    /// First: its drop waits for the kernel, before flights give up buffers and permits.
    medium: M,
    flights: Vec<Option<Flight>>,
    free: Vec<u32>,
    /// Flights that wait for a permit, a bounce buffer or room in the ring; retried at each poll.
    parked: VecDeque<u32>,
    done: VecDeque<Completion>,
    bounce: BouncePool,
    zeros: IoBuf,
    state: Arc<FileState>,
    closed: bool,
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
        let owner = ring
            .register_yielding()
            .map_err(|error| resources(error.to_string()))?;
        let mut file = Fd::from(file);
        if state.may_block {
            file = file.apart();
        }
        Self::over(RingFile::new(owner, file), state)
    }
}

impl<M: Medium> FileStore<M> {
    /// A handle of `state` whose bytes go by this way.
    pub(super) fn over(medium: M, state: Arc<FileState>) -> Result<Self, StoreError> {
        let zeros = IoBuf::heap(ZEROS_BYTES).map_err(|error| StoreError::Resources {
            store: state.name.clone(),
            why: error.to_string(),
        })?;
        Ok(Self {
            medium,
            flights: (0..QUEUE_DEPTH_MAX).map(|_| None).collect(),
            free: (0..QUEUE_DEPTH_MAX).rev().collect(),
            parked: VecDeque::with_capacity(QUEUE_DEPTH_MAX as usize),
            done: VecDeque::with_capacity(QUEUE_DEPTH_MAX as usize),
            bounce: BouncePool::new(state.direct, &state.name)?,
            zeros,
            state,
            closed: false,
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
        if !flight.permit.try_enter(|| self.medium.waker()) {
            return Pushed::Parked;
        }
        let tag = u64::from(index);
        let syncs = flight.sync_owed && flight.done == flight.total;
        if syncs || flight.report.is_needed() {
            match self.may_report(flight, syncs) {
                Some(Ok(())) => {}
                Some(Err(ended)) => return Pushed::Ended(ended),
                None => return Pushed::Parked,
            }
        }
        let started = match flight.op {
            _ if syncs => {
                flight.stage = Stage::Sync;
                self.state.reports.begin();
                self.medium.sync(tag)
            }
            Op::Discard { offset, len } => {
                flight.stage = Stage::Discard;
                self.medium.allocate(DISCARD_MODE, offset, len, tag)
            }
            Op::Zero { offset, len, .. } if matches!(flight.stage, Stage::ZeroRange(way) if way < ZERO_MODES.len()) =>
            {
                let Stage::ZeroRange(way) = flight.stage else {
                    return Pushed::Parked;
                };
                self.medium.allocate(ZERO_MODES[way], offset, len, tag)
            }
            Op::Read { .. } | Op::Write { .. } | Op::Zero { .. } | Op::Flush => {
                return self.next_piece(flight, tag);
            }
        };
        started.map_or(Pushed::Parked, Pushed::InFlight)
    }

    /// Whether a flight may begin what the kernel could tell of lost bytes; or how it ends without that. `None`: not yet.
    fn may_report(
        &self,
        flight: &mut Flight,
        syncs: bool,
    ) -> Option<Result<(), Result<u32, StoreError>>> {
        let reports = &self.state.reports;
        if syncs && flight.since.is_none() {
            flight.since = Some(reports.now());
            flight.report = reports.permit();
        }
        if !flight.report.try_enter(|| self.medium.waker()) {
            return None;
        }
        // One that was before it may have been told.
        if let Some(why) = self.state.flush_error() {
            return Some(Err(Err(why)));
        }
        if flight.since.is_some_and(|since| reports.covers(since)) {
            return Some(Err(Ok(0)));
        }
        Some(Ok(()))
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
                    Op::Read { .. } => self.medium.read(position, view, tag),
                    _ => self.medium.write(position, view, flight.write_mode(), tag),
                };
                started.map_or_else(|| park(flight), Pushed::InFlight)
            }
            Step::Bounce { start, end, wanted } => {
                if flight.bounce.is_none() {
                    flight.bounce = self.bounce.take();
                }
                if flight.bounce.is_none() {
                    return park(flight);
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
                        return park(flight);
                    };
                    let view = bounce.slice(0..span(start, end));
                    let started = self.medium.read(start, view, tag);
                    return started.map_or_else(|| park(flight), Pushed::InFlight);
                }
                self.next_of_window(flight, tag)
            }
        }
    }

    /// Starts the next half of an unaligned write: reading what is around it, or writing the patched window.
    fn next_of_window(&mut self, flight: &mut Flight, tag: u64) -> Pushed {
        let Some(mut bounce) = flight.bounce.take() else {
            return park(flight);
        };
        let started = match flight.stage {
            Stage::Fill {
                start, end, have, ..
            } => {
                let view = bounce.slice(have..span(start, end));
                self.medium.read(start + have as u64, view, tag)
            }
            Stage::WriteBack { start, end, wanted } => {
                let from = span(start, flight.position());
                let (source, at) = flight.source(&self.zeros);
                if let Some(window) = bounce.exclusive() {
                    source.copy_to(at, &mut window[from..from + wanted]);
                }
                let view = bounce.slice(0..span(start, end));
                self.medium.write(start, view, flight.write_mode(), tag)
            }
            _ => return park(flight),
        };
        flight.bounce = Some(bounce);
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
                let finished = flight.is_finished();
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
        let align = u64::from(self.state.limits.alignment_bytes);
        let whole_blocks = offset.is_multiple_of(align) && len.is_multiple_of(align);
        Permit::new(
            self.state.gate.clone(),
            if whole_blocks {
                Pass::Shared
            } else {
                Pass::Exclusive
            },
        )
    }
}

impl<M: Medium> Store for FileStore<M> {
    fn limits(&self) -> &Limits {
        &self.state.limits
    }

    fn submit(
        &mut self,
        op: Op,
        buf: Option<IoBuf>,
        token: Token,
        _terms: Terms,
    ) -> Result<(), Rejected> {
        if self.closed {
            let store = self.state.name.clone();
            let why = StoreError::Closed { store };
            return Err(Rejected { op, buf, why });
        }
        if let Err(why) = check(&op, buf.as_ref(), &self.state.limits, &self.state.name) {
            return Err(Rejected { op, buf, why });
        }
        if op.is_durable()
            && let Some(why) = self.state.flush_error()
        {
            return Err(Rejected { op, buf, why });
        }
        // Completions that wait for a poll count as well, or they could pile up.
        let index = if self.done.len() < self.free.len() {
            self.free.pop()
        } else {
            None
        };
        let Some(index) = index else {
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
            Op::Zero { offset, len, .. } => (offset, len, Stage::ZeroRange(0)),
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
        // Direct ones are told of their own bytes.
        let report = if matches!(op, Op::Write { durable: true, .. }) && !self.state.direct {
            self.state.reports.permit()
        } else {
            Permit::not_needed()
        };
        let nothing_to_do = matches!(op, Op::Flush if !self.state.limits.writable)
            || matches!(op, Op::Discard { len: 0, .. } | Op::Zero { len: 0, .. });
        let flight = Flight {
            token,
            op,
            buf,
            offset,
            total,
            done: 0,
            sync_owed: matches!(op, Op::Flush | Op::Zero { durable: true, .. }),
            stage,
            ring_op: None,
            bounce: None,
            permit,
            report,
            since: None,
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
        while let Some(event) = self.medium.next_event() {
            self.answered(event);
        }
        for _ in 0..self.parked.len() {
            if let Some(index) = self.parked.pop_front() {
                self.push_on(index);
            }
        }
        completions.extend(self.done.drain(..));
    }

    fn close(&mut self) {
        self.closed = true;
        for flight in self.flights.iter_mut().flatten() {
            stop(flight, &self.medium);
        }
    }

    fn is_closed(&self) -> bool {
        self.closed && self.free.len() == self.flights.len() && self.done.is_empty()
    }

    fn cancel(&mut self, token: Token) {
        let named = |flight: &&mut Flight| flight.token == token;
        if let Some(flight) = self.flights.iter_mut().flatten().find(named) {
            stop(flight, &self.medium);
        }
    }

    fn lease(&mut self, _offset: u64, _len: u32) -> Option<IoBuf> {
        None
    }
}

/// Marks a flight as cancelled, and asks the kernel for what it has of it.
fn stop(flight: &mut Flight, medium: &impl Medium) {
    flight.cancelled = true;
    if let Some(op) = flight.ring_op {
        medium.cancel(op);
    }
}

/// Sends a flight back to planning, to be tried again at the next poll.
fn park(flight: &mut Flight) -> Pushed {
    flight.stage = Stage::Plan;
    Pushed::Parked
}
