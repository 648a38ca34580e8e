//! Neighbouring frames that are fetched in one piece, until each of them is decoded.

use std::ops::Range;
use std::time::Instant;

use reactor::buf::IoBuf;
use smallvec::SmallVec;
use store::{Completion, Op, Rejected, StoreError, Terms, Token};
use volume::limits::FETCH_BYTES_MAX;
use volume::{SourceId, StoredFrame};

use crate::NamespaceError;
use crate::attached::{Attached, whole};
use crate::limits::{FETCHES_MAX, GROUP_FRAMES};
use crate::parts::Parts;

/// Marks the store tokens of runs; requests have the others.
const RUN_TOKEN: u64 = 1 << 63;

/// A run: its place among those of its engine, and how many have had the place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RunId {
    pub(crate) index: usize,
    pub(crate) generation: u64,
}

/// Frames of one namespace whose stored bytes are fetched together. Recycled.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) generation: u64,
    pub(crate) attached: usize,
    source: SourceId,
    /// Bytes of the source.
    pub(crate) blocks: Range<u64>,
    pub(crate) frames: SmallVec<[StoredFrame; GROUP_FRAMES]>,
    /// Frames before this one are decoded, or with a worker.
    pub(crate) next: usize,
    /// Estimated nanoseconds of decoding since others had their turn.
    pub(crate) slice_ns: u64,
    /// Bytes of the source before this one have been asked for.
    asked: u64,
    /// When the last of the requests that wanted its frames gives up.
    pub(crate) deadline: Option<Instant>,
    /// Nobody waits for its frames.
    pub(crate) is_ahead: bool,
    /// No other frame is to be fetched with its first.
    pub(crate) is_alone: bool,
    /// Whether it stands in the line of runs that are to be asked for.
    pub(crate) is_queued: bool,
    /// Parts that the store has.
    open: usize,
    /// The stored bytes, where one part holds them all.
    pub(crate) buf: Option<IoBuf>,
    /// The stored bytes of a frame that is longer than a fetch.
    pub(crate) long: Vec<u8>,
    /// The first error; reported when the store has no part any more.
    pub(crate) failed: Option<NamespaceError>,
}

/// How far a run's fetch came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fetched {
    /// No memory, or the store is full.
    NoRoom,
    /// The store has the parts that are not here.
    UnderWay,
    /// Every byte is here, or the run has failed.
    Done,
}

impl Run {
    pub(crate) fn new() -> Self {
        Self {
            generation: 0,
            attached: 0,
            source: SourceId::OWN,
            blocks: 0..0,
            frames: SmallVec::new(),
            next: 0,
            slice_ns: 0,
            asked: 0,
            deadline: None,
            is_ahead: false,
            is_alone: false,
            is_queued: false,
            open: 0,
            buf: None,
            long: Vec::new(),
            failed: None,
        }
    }

    /// Begins a run with its first frame; the memory of an earlier one is kept.
    pub(crate) fn begin(&mut self, attached: usize, frame: StoredFrame, deadline: Option<Instant>) {
        self.generation += 1;
        self.attached = attached;
        self.source = frame.source;
        self.blocks = frame.blocks();
        self.frames.clear();
        self.frames.push(frame);
        self.next = 0;
        self.slice_ns = 0;
        self.asked = self.blocks.start;
        self.deadline = deadline;
        self.is_alone = false;
        self.is_queued = true;
        self.open = 0;
        self.buf = None;
        self.failed = None;
    }

    /// Takes another frame in, if one fetch can serve both.
    pub(crate) fn grow(
        &mut self,
        attached: usize,
        frame: StoredFrame,
        deadline: Option<Instant>,
    ) -> bool {
        let blocks = frame.blocks();
        let near = !self.is_alone
            && self.attached == attached
            && self.source == frame.source
            && self.is_plain() == frame.id.is_plain()
            && self.asked == self.blocks.start
            && (self.blocks.start..=self.blocks.end).contains(&blocks.start);
        let end = self.blocks.end.max(blocks.end);
        if !near || end - self.blocks.start > u64::from(FETCH_BYTES_MAX) {
            return false;
        }
        self.blocks.end = end;
        self.deadline = later(self.deadline, deadline);
        self.frames.push(frame);
        true
    }

    /// Somebody waits for one of its frames; whether its store was asked before, on terms of others.
    pub(crate) fn is_waited_for(&mut self, deadline: Option<Instant>) -> bool {
        self.deadline = match self.is_ahead {
            true => deadline,
            false => later(self.deadline, deadline),
        };
        self.asked > self.blocks.start
    }

    fn is_plain(&self) -> bool {
        self.frames.first().is_some_and(|frame| frame.id.is_plain())
    }

    fn is_long(&self) -> bool {
        self.blocks.end - self.blocks.start > u64::from(FETCH_BYTES_MAX)
    }

    /// Asks the store for the parts that have not been asked for.
    pub(crate) fn fetch(
        &mut self,
        index: usize,
        attached: &mut Attached,
        parts: &mut Parts,
    ) -> Fetched {
        while self.failed.is_none() && self.asked < self.blocks.end {
            if let Some(no_room) = self.fetch_part(index, attached, parts) {
                return no_room;
            }
        }
        self.state()
    }

    fn fetch_part(
        &mut self,
        index: usize,
        attached: &mut Attached,
        parts: &mut Parts,
    ) -> Option<Fetched> {
        let source = self.source.0 as usize;
        let len = (self.blocks.end - self.asked).min(u64::from(FETCH_BYTES_MAX));
        // At most FETCH_BYTES_MAX.
        let len = u32::try_from(len).unwrap_or(FETCH_BYTES_MAX);
        if !self.is_long()
            && let Some(lease) = attached.lease(source, self.asked, len)
        {
            self.buf = Some(lease);
            self.took(len, attached);
            return None;
        }
        // Requests hold staging while they wait for plain frames, which therefore are always of the other pool.
        let pool = match self.is_ahead || self.is_plain() {
            true => &parts.ahead_staging,
            false => &parts.staging,
        };
        let Some(buf) = pool.alloc(len as usize) else {
            if !self.is_ahead && self.is_plain() {
                // What others fetch ahead holds nobody up: whoever waits has memory, and asks the store.
                let (nsid, cause) = (attached.shared.nsid, StoreError::Busy);
                self.failed = Some(NamespaceError::Store { nsid, cause });
                return None;
            }
            return Some(Fetched::NoRoom);
        };
        let part = (self.asked - self.blocks.start) / u64::from(FETCH_BYTES_MAX);
        let token = Token(RUN_TOKEN | (index * FETCHES_MAX) as u64 | part);
        let op = Op::Read { offset: self.asked };
        let terms = Terms {
            deadline: self.deadline,
            is_ahead: self.is_ahead,
        };
        match attached.submit(source, op, Some(buf), token, terms) {
            Ok(()) => {
                self.open += 1;
                self.took(len, attached);
            }
            Err(Rejected {
                why: StoreError::Busy,
                ..
            }) => return Some(Fetched::NoRoom),
            Err(Rejected { why, .. }) => {
                let nsid = attached.shared.nsid;
                self.failed = Some(NamespaceError::Store { nsid, cause: why });
            }
        }
        None
    }

    fn took(&mut self, len: u32, attached: &Attached) {
        self.asked += u64::from(len);
        attached.row.stored_bytes.add(u64::from(len));
        attached.row.frame_fetches.add(1);
    }

    /// Takes what the store says of a part.
    pub(crate) fn completed(&mut self, nsid: u32, completion: Completion) -> Fetched {
        self.open -= 1;
        let part = completion.token.0 % FETCHES_MAX as u64;
        match whole(nsid, completion) {
            Ok(Some(buf)) if self.is_long() => self.keep_part(part, &buf),
            Ok(buf) => self.buf = buf,
            Err(error) => {
                self.failed.get_or_insert(error);
            }
        }
        self.state()
    }

    /// Nothing more of it is asked for.
    pub(crate) fn fail(&mut self, error: NamespaceError) -> Fetched {
        self.failed.get_or_insert(error);
        self.state()
    }

    /// Asks the store to end what it has of it.
    pub(crate) fn cancel(&self, index: usize, attached: &mut Attached) {
        for token in self.asked_tokens(index) {
            attached.cancel(self.source.0 as usize, token);
        }
    }

    /// Somebody waits for it from now on: tells the store, of what it has of it.
    pub(crate) fn hurry(&self, index: usize, attached: &mut Attached) {
        for token in self.asked_tokens(index) {
            attached.hurry(self.source.0 as usize, token);
        }
    }

    /// The parts that the store was asked for; those that have ended are unknown to it.
    fn asked_tokens(&self, index: usize) -> impl Iterator<Item = Token> + use<> {
        let parts = (self.asked - self.blocks.start).div_ceil(u64::from(FETCH_BYTES_MAX));
        let asked = if self.open == 0 { 0 } else { parts };
        (0..asked).map(move |part| Token(RUN_TOKEN | (index * FETCHES_MAX) as u64 | part))
    }

    fn keep_part(&mut self, part: u64, buf: &IoBuf) {
        // A frame has at most 4 MiB.
        let len = usize::try_from(self.blocks.end - self.blocks.start).unwrap_or(0);
        self.long.resize(len, 0);
        let at = usize::try_from(part * u64::from(FETCH_BYTES_MAX)).unwrap_or(len);
        if let Some(place) = self.long.get_mut(at..at + buf.len()) {
            buf.copy_to(0, place);
        }
    }

    fn state(&self) -> Fetched {
        match (self.open, self.failed.is_some()) {
            (0, true) => Fetched::Done,
            (0, false) if self.asked == self.blocks.end => Fetched::Done,
            _ => Fetched::UnderWay,
        }
    }
}

/// The later of two deadlines; none is later than any.
pub(crate) fn later(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    Some(one?.max(other?))
}

/// The run that a store token is about.
pub(crate) fn run_of(token: Token) -> Option<usize> {
    let is_run = token.0 & RUN_TOKEN != 0;
    let index = (token.0 & !RUN_TOKEN) / FETCHES_MAX as u64;
    usize::try_from(index).ok().filter(|_| is_run)
}
