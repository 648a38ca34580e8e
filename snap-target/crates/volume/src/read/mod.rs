//! Reading presented bytes without doing I/O.
//!
//! ```text
//! op.start(&volume, range)?;
//! loop {
//!     let progress = op.step(&volume, cache, scratch, &out)?;
//!     while let Some(fetch) = op.next_fetch() { the driver begins to read it }
//!     if progress == Progress::Done { break }
//!     one fetch or more completes: op.fetched(id, &[bytes], &volume, cache, scratch, &out)?;
//! }
//! ```
//! An operation goes in windows of up to 128 *units* (the part of one extent in one frame, or in one run of granules): first the tables
//! that say where the units are and what their checksums are, then their stored bytes, neighbours in one fetch. What a window needs of
//! tables it copies out of the cache when it sees it, so that however small the cache is, every fetch brings the operation forward.

mod deliver;
mod elements;
mod issue;
mod out;
mod plan;
mod resolve;
mod survey;
mod window;

use std::ops::Range;

use transforms::Scratch;

pub(crate) use deliver::{check_block, keep_block};
pub use elements::ElementTime;
pub(crate) use issue::rounded_out;
pub use out::OutBuf;
pub(crate) use plan::Linear;
pub use survey::Reach;

use crate::VolumeError;
use crate::cache::Cache;
use crate::density::Density;
use crate::fetch::{Fetch, FetchId, FrameWantId, TableBlock, Want};
use crate::limits::READ_BYTES_MAX;
use crate::volume::Volume;
use elements::ElementTimes;
use plan::Descent;
use window::Window;

/// Whether a read is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// It waits for fetches: take them with [`ReadOp::next_fetch`], hand them over with [`ReadOp::fetched`].
    Fetching,
    /// Every byte is in its place.
    Done,
}

/// What a read cost, since [`ReadOp::start`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadCounters {
    /// Stored payload bytes fetched, rounding out included.
    pub stored_bytes: u64,
    /// Table bytes fetched.
    pub table_bytes: u64,
    /// Fetches of either.
    pub fetches: u64,
    /// Presented bytes produced, the zeros after the exact end included.
    pub delivered_bytes: u64,
    /// Bytes copied beyond the one write that a decode is: out of the frame cache, out of staging, or to make a run contiguous.
    pub copied_bytes: u64,
    /// Units whose frame was in the cache.
    pub frame_hits: u64,
    /// Frames decoded.
    pub frames_decoded: u64,
}

/// One read of presented bytes. Recycled: after warm-up it allocates nothing.
#[derive(Debug)]
pub struct ReadOp {
    state: State,
    /// Presented bytes asked for.
    range: Range<u64>,
    /// Where what the view presents of them ends.
    end: u64,
    /// Presented bytes before this one are in units, or delivered.
    planned: u64,
    descent: Option<Descent>,
    window: Window,
    density: Density,
    counters: ReadCounters,
    elements: ElementTimes,
    /// It only says what it would want: see [`ReadOp::start_survey`].
    survey: Option<Reach>,
    /// Blocks of tables that a survey names and does not wait for.
    tables: Vec<TableBlock>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    /// Started; the zeros after the end are not written yet.
    Started,
    /// Gathering the tables for a window of units.
    Tables,
    /// Gathering the payload of the window.
    Payload,
    Failed,
}

/// What an operation works with, lent by the driver for one call.
struct Context<'a> {
    volume: &'a Volume,
    cache: &'a mut Cache,
    scratch: &'a mut Scratch,
    out: &'a OutBuf<'a>,
}

impl ReadOp {
    /// An operation that does nothing yet.
    #[must_use]
    pub fn new() -> ReadOp {
        ReadOp {
            state: State::Idle,
            range: 0..0,
            end: 0,
            planned: 0,
            descent: None,
            window: Window::new(),
            density: Density::new(),
            counters: ReadCounters::default(),
            elements: ElementTimes::default(),
            survey: None,
            tables: Vec::new(),
        }
    }

    /// Begins to read the presented bytes `range` of the volume's view. The end may lie in the last logical block beyond the exact
    /// length: zeros are written there. An earlier read is forgotten; fetches of it that arrive late are refused.
    ///
    /// # Errors
    /// [`VolumeError::OutOfRange`] beyond the last logical block; [`VolumeError::Usage`] for more than [`READ_BYTES_MAX`].
    pub fn start(&mut self, volume: &Volume, range: Range<u64>) -> Result<(), VolumeError> {
        self.state = State::Idle;
        self.survey = None;
        self.tables.clear();
        self.descent = None;
        self.counters = ReadCounters::default();
        self.elements = ElementTimes::default();
        self.window.reset();
        self.density = Density::new();
        let presented_bytes = volume.presented_bytes();
        let last = volume.block_count() * u64::from(volume.lba_bytes());
        if range.start > range.end || range.end > last {
            return Err(VolumeError::OutOfRange {
                range,
                presented_bytes,
            });
        }
        if range.end - range.start > READ_BYTES_MAX {
            return Err(VolumeError::Usage("a read of more than READ_BYTES_MAX"));
        }
        self.end = range.end.min(presented_bytes).max(range.start);
        self.planned = range.start;
        self.range = range;
        self.state = State::Started;
        Ok(())
    }

    /// Advances as far as the cache allows, and writes what is finished into `out`, which is as long as the range.
    ///
    /// # Errors
    /// Why the range cannot be had, with the first presented byte concerned; the operation is over then.
    pub fn step(
        &mut self,
        volume: &Volume,
        cache: &mut Cache,
        scratch: &mut Scratch,
        out: &OutBuf<'_>,
    ) -> Result<Progress, VolumeError> {
        let mut context = Context {
            volume,
            cache,
            scratch,
            out,
        };
        let outcome = self.advance(&mut context);
        self.settle(outcome, volume)?;
        Ok(self.progress())
    }

    /// The next bytes to fetch, if any are wanted. Drain it after each [`step`](Self::step) and [`fetched`](Self::fetched).
    pub fn next_fetch(&mut self) -> Option<Fetch> {
        let fetch = match self.state {
            State::Tables | State::Payload => self.window.next_fetch()?,
            State::Idle | State::Started | State::Failed => return None,
        };
        self.count_fetch(&fetch);
        Some(fetch)
    }

    /// As [`next_fetch`](Self::next_fetch), for a driver that has a place of its own for frames: instead of their stored bytes, frames are
    /// asked for one by one, neighbours one after the other, and handed over with [`framed`](Self::framed). Frames that are in the
    /// cache are not asked for. A driver uses the one or the other for a read.
    pub fn next_want(&mut self) -> Option<Want> {
        if let Some(block) = self.tables.pop() {
            return Some(Want::Table(block));
        }
        let want = match self.state {
            State::Tables | State::Payload => self.window.next_want()?,
            State::Idle | State::Started | State::Failed => return None,
        };
        if self.survey.is_some() && self.state == State::Payload {
            return self.surveyed(want);
        }
        if let Want::Fetch(fetch) = &want {
            self.count_fetch(fetch);
        }
        Some(want)
    }

    fn count_fetch(&mut self, fetch: &Fetch) {
        if self.state == State::Payload {
            self.counters.stored_bytes += u64::from(fetch.len);
        }
    }

    /// Hands over the bytes of a fetch, in one or more pieces. For a direct fetch these are the bytes in place: they are checked and not
    /// copied. Checks come before decoding; what can be delivered is, and what comes next is planned.
    ///
    /// # Errors
    /// As [`step`](Self::step). [`VolumeError::UnknownFetch`] and [`VolumeError::ShortFetch`] for the driver's own; the first leaves the
    /// operation as it was.
    pub fn fetched(
        &mut self,
        id: FetchId,
        bytes: &[&[u8]],
        volume: &Volume,
        cache: &mut Cache,
        scratch: &mut Scratch,
        out: &OutBuf<'_>,
    ) -> Result<(), VolumeError> {
        let mut context = Context {
            volume,
            cache,
            scratch,
            out,
        };
        if self.state == State::Failed {
            return Err(VolumeError::Usage("the read has failed"));
        }
        let index = self.window.taken(id)?;
        let outcome = self
            .accept(index, bytes, &mut context)
            .and_then(|()| self.advance(&mut context));
        self.settle(outcome, volume)
    }

    /// Hands over the packed bytes of a frame that was wanted. They are written where they belong, and what comes next is planned.
    ///
    /// # Errors
    /// As [`step`](Self::step). [`VolumeError::UnknownFetch`] for a frame that was not asked for, or came already: the operation is as it was.
    pub fn framed(
        &mut self,
        id: FrameWantId,
        packed: &[u8],
        volume: &Volume,
        cache: &mut Cache,
        scratch: &mut Scratch,
        out: &OutBuf<'_>,
    ) -> Result<(), VolumeError> {
        let mut context = Context {
            volume,
            cache,
            scratch,
            out,
        };
        if self.state == State::Failed {
            return Err(VolumeError::Usage("the read has failed"));
        }
        self.window.taken_frame(id)?;
        let outcome = self
            .accept_frame(id, packed, &mut context)
            .and_then(|()| self.advance(&mut context));
        self.settle(outcome, volume)
    }

    /// Ends the read because a frame that was wanted cannot be had. Returns the error with the presented byte that it is about.
    pub fn frame_failed(
        &mut self,
        id: FrameWantId,
        error: VolumeError,
        volume: &Volume,
    ) -> VolumeError {
        let unit = self.window.units.get(id.unit as usize);
        let at = unit.map_or(self.planned, |unit| unit.at);
        self.state = State::Failed;
        error.at_presented(at).with_mapped(volume)
    }

    /// Whether every byte is in its place.
    #[must_use]
    pub fn progress(&self) -> Progress {
        let complete =
            self.state == State::Tables && self.planned == self.end && self.window.is_empty();
        match complete {
            true => Progress::Done,
            false => Progress::Fetching,
        }
    }

    /// What the read cost so far.
    #[must_use]
    pub fn counters(&self) -> ReadCounters {
        self.counters
    }

    /// What element steps and views took since [`ReadOp::start`], by stream.
    pub fn element_times(&self) -> impl Iterator<Item = ElementTime> + '_ {
        self.elements.all()
    }

    fn advance(&mut self, context: &mut Context<'_>) -> Result<(), VolumeError> {
        loop {
            match self.state {
                State::Idle => return Err(VolumeError::Usage("no read was started")),
                State::Failed => return Err(VolumeError::Usage("the read has failed")),
                State::Started => {
                    self.check_destination(context)?;
                    self.state = State::Tables;
                }
                State::Tables => {
                    self.plan(context)?;
                    self.resolve(context)?;
                    if self.window.is_waiting() || self.window.is_empty() {
                        return Ok(());
                    }
                    self.state = State::Payload;
                }
                State::Payload => {
                    if self.window.is_waiting() {
                        return Ok(());
                    }
                    if self.window.is_delivered() {
                        self.window.reset();
                        self.density = Density::new();
                        self.state = State::Tables;
                    } else {
                        self.issue(context.volume)?;
                    }
                }
            }
        }
    }

    /// The destination must be as long as the range; what lies after the exact end is zeros.
    fn check_destination(&mut self, context: &mut Context<'_>) -> Result<(), VolumeError> {
        if self.survey.is_some() {
            return Ok(());
        }
        let wanted = self.range.end - self.range.start;
        if context.out.len() as u64 != wanted {
            return Err(VolumeError::Usage(
                "the destination is not as long as the range",
            ));
        }
        let zeros = self.range.end - self.end;
        let mut out = self.destination(context.out, self.end, zeros)?;
        out.write_zeros(out.remaining());
        self.counters.delivered_bytes += zeros;
        Ok(())
    }

    /// The destination of `len` presented bytes from `presented` on.
    fn destination<'o>(
        &self,
        out: &'o OutBuf<'_>,
        presented: u64,
        len: u64,
    ) -> Result<transforms::OutSegments<'o>, VolumeError> {
        let offset = usize::try_from(presented - self.range.start).ok();
        let place = offset.zip(usize::try_from(len).ok());
        place
            .and_then(|(offset, len)| out.at(offset, len))
            .ok_or(VolumeError::Usage("the destination is shorter than before"))
    }

    /// After an error the operation is over.
    fn settle(
        &mut self,
        outcome: Result<(), VolumeError>,
        volume: &Volume,
    ) -> Result<(), VolumeError> {
        if outcome.is_err() {
            self.state = State::Failed;
        }
        outcome.map_err(|error| error.at_presented(self.planned).with_mapped(volume))
    }
}

impl Default for ReadOp {
    fn default() -> Self {
        ReadOp::new()
    }
}
