//! A read of a view of a volume: the volume plans, the stores fetch, the volume checks and decodes.

use std::time::Instant;

use reactor::buf::IoBuf;
use smallvec::SmallVec;
use store::{Completion, Rejected, StoreError, Terms};
use volume::{
    ErrorKind, Fetch, Frame, FrameWant, FrameWantId, Placement, Progress, ReadOp, Volume,
    VolumeError, Want,
};

use crate::ahead::{Purpose, Stored, ask_store, read_stored};
use crate::attached::{Attached, WaitsFor, whole};
use crate::engine::{Step, token_of};
use crate::frames::{WantId, Wanted};
use crate::limits::{FETCHES_MAX, READS_AGAIN_MAX};
use crate::memory::{with_destination, with_filled};
use crate::parts::Parts;
use crate::{Namespace, NamespaceError, NamespaceKey};

/// Fetches that most reads need at a time.
const FETCHES_INLINE: usize = 8;

/// One read in flight. Its [`ReadOp`] is kept apart, because it is recycled.
pub(crate) struct ViewRead {
    volume: Volume,
    key: NamespaceKey,
    nsid: u32,
    start: u64,
    len: usize,
    deadline: Option<Instant>,
    /// Stored bytes that plain frames gave it: their homes count what they fetch.
    kept_bytes: u64,
    started: bool,
    is_part: bool,
    /// Where the presented bytes go.
    out: Option<IoBuf>,
    /// Fetches under way, by the number in their store token.
    fetches: SmallVec<[Option<(Fetch, Stored)>; FETCHES_INLINE]>,
    /// Fetches and wanted frames that have not come.
    under_way: usize,
    /// A fetch that found no memory or a full store.
    unsent: Option<Fetch>,
    /// The first error; reported when nothing is under way any more.
    failed: Option<NamespaceError>,
    /// A fetch whose bytes were not what was written: then all of it is read again.
    wrong: Option<(Fetch, Stored)>,
    /// Times that all was read again, and how often for the last place, source and byte, that was wrong.
    reads_again: u32,
    wrong_place: Option<(usize, u64)>,
    wrong_there: u32,
}

impl ViewRead {
    /// A read of whole blocks of a view. The namespace is one: its caller looked.
    pub(crate) fn new(
        namespace: &Namespace,
        volume: &Volume,
        lba: u64,
        blocks: u32,
        into: Option<IoBuf>,
        deadline: Option<Instant>,
    ) -> Self {
        Self {
            volume: volume.clone(),
            key: namespace.key,
            nsid: namespace.nsid,
            start: lba * u64::from(namespace.lba_bytes),
            len: blocks as usize * namespace.lba_bytes as usize,
            deadline,
            kept_bytes: 0,
            started: false,
            is_part: false,
            out: into,
            fetches: SmallVec::new(),
            under_way: 0,
            unsent: None,
            failed: None,
            wrong: None,
            reads_again: 0,
            wrong_place: None,
            wrong_there: 0,
        }
    }

    /// Its bytes go to nobody but the request that it is a part of.
    pub(crate) fn for_part(mut self) -> Self {
        self.is_part = true;
        self
    }

    /// Goes on as far as memory, the cache and the stores allow.
    pub(crate) fn advance(
        &mut self,
        op: &mut ReadOp,
        attached: &mut Attached,
        parts: &mut Parts,
        slot: usize,
    ) -> Step {
        loop {
            let step = self.go_on(op, attached, parts, slot);
            if !(matches!(step, Step::Done(Err(_))) && self.begins_again(attached, parts)) {
                return step;
            }
        }
    }

    fn go_on(
        &mut self,
        op: &mut ReadOp,
        attached: &mut Attached,
        parts: &mut Parts,
        slot: usize,
    ) -> Step {
        if self.out.is_none() && self.failed.is_none() {
            self.out = parts.alloc_answer(attached, self.len);
            if self.out.is_none() {
                return Step::Parked(WaitsFor::Memory);
            }
        }
        match self.proceed(op, attached, parts, slot) {
            Ok(done) => self.outcome(op, attached, done),
            Err(error) => {
                self.failed.get_or_insert(error);
                self.outcome(op, attached, false)
            }
        }
    }

    /// It ends as that, as soon as nothing of it is under way.
    pub(crate) fn fail(&mut self, error: NamespaceError) {
        self.failed.get_or_insert(error);
        self.wrong = None;
    }

    /// It has failed: reads all of it again, where stored bytes were not what was written and may be so from elsewhere. What was fetched ahead of them
    /// is not used, and not kept.
    fn begins_again(&mut self, attached: &mut Attached, parts: &mut Parts) -> bool {
        let Some((fetch, from)) = self.wrong.take() else {
            return false;
        };
        let (source, offset) = (fetch.source.0 as usize, fetch.offset);
        let len = u64::from(fetch.len);
        if self.reads_again == READS_AGAIN_MAX {
            return false;
        }
        match from {
            // Who served it, and to which reactor, nobody knows any more: the store is asked, and nobody accused.
            Stored::Kept => attached.row.reads_again.add(1),
            Stored::Asked => {
                // Each place has its own copies, which may be wrong elsewhere.
                if self.wrong_place.replace((source, offset)) != Some((source, offset)) {
                    self.wrong_there = 0;
                }
                if !attached.reads_again(source, offset, len, self.wrong_there) {
                    return false;
                }
                self.wrong_there += 1;
            }
        }
        let kept = attached.ahead.iter();
        for frame in kept.flat_map(|ahead| ahead.kept_frames(source, offset, len)) {
            parts.wanted.push(Wanted {
                key: self.key,
                slot: 0,
                id: WantId::Wrong,
                frame,
                deadline: None,
                is_ahead: false,
                purpose: Purpose::default(),
            });
        }
        self.reads_again += 1;
        self.started = false;
        self.kept_bytes = 0;
        self.unsent = None;
        // Memory of a store is not written to.
        self.out = self.out.take().filter(|out| !out.is_lease());
        true
    }

    /// Asks the stores to end what is under way; the request ends when they have let go.
    pub(crate) fn cancel(&mut self, attached: &mut Attached, parts: &mut Parts, slot: usize) {
        let nsid = self.nsid;
        self.fail(NamespaceError::Cancelled { nsid });
        for (number, fetch) in self.fetches.iter().enumerate() {
            if let Some((fetch, _)) = fetch {
                let token = token_of(slot, number);
                attached.cancel(fetch.source.0 as usize, token);
                parts.fills.cancel(attached.place, token);
            }
        }
    }

    /// Takes the end of a fetch and goes on.
    pub(crate) fn completed(
        &mut self,
        op: &mut ReadOp,
        attached: &mut Attached,
        parts: &mut Parts,
        slot: usize,
        number: usize,
        completion: Completion,
    ) -> Step {
        self.under_way -= 1;
        let fetch = self.fetches.get_mut(number).and_then(Option::take);
        let handed = match whole(self.nsid, completion) {
            Ok(Some(buf)) if self.failed.is_none() => {
                fetch.map_or(Ok(()), |fetch| self.hand_over(op, parts, fetch, &buf))
            }
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = handed {
            self.failed.get_or_insert(error);
        }
        self.advance(op, attached, parts, slot)
    }

    /// Takes a wanted frame, or why it cannot be had, and goes on.
    pub(crate) fn framed(
        &mut self,
        op: &mut ReadOp,
        attached: &mut Attached,
        parts: &mut Parts,
        slot: usize,
        id: FrameWantId,
        result: Result<Frame, NamespaceError>,
    ) -> Step {
        self.under_way -= 1;
        let handed = match result {
            Ok(_) if self.failed.is_some() => Ok(()),
            Ok(frame) => {
                let out = self.out.as_ref().map_or_else(IoBuf::empty, IoBuf::clone);
                let (cache, scratch) = (&mut parts.cache, &mut parts.scratch);
                with_destination(&out, |out| {
                    op.framed(id, &frame, &self.volume, cache, scratch, out)
                })
                .map_err(|cause| self.volume_error(cause))
            }
            // The frame is the same for all who wait, the first presented byte of it is not.
            Err(NamespaceError::Volume { cause, .. }) => {
                let cause = op.frame_failed(id, cause, &self.volume);
                Err(self.volume_error(cause))
            }
            Err(error) => Err(error.of(self.nsid)),
        };
        if let Err(error) = handed {
            self.failed.get_or_insert(error);
        }
        self.advance(op, attached, parts, slot)
    }

    fn outcome(&mut self, op: &ReadOp, attached: &Attached, done: bool) -> Step {
        if self.under_way > 0 {
            return Step::Waiting;
        }
        if self.failed.is_none() && !done {
            return Step::Parked(WaitsFor::Others);
        }
        let (counted, row) = (op.counters(), &attached.row);
        // What was fetched was fetched, whatever came of it.
        row.stored_bytes
            .add(counted.stored_bytes.saturating_sub(self.kept_bytes));
        row.table_bytes.add(counted.table_bytes);
        if let Some(error) = self.failed.take() {
            return Step::Done(Err(error));
        }
        for it in op.element_times() {
            if let Some(chain) = attached.chain(it.stream) {
                chain.expanded(it.bytes, it.ns);
            }
        }
        if !self.is_part {
            row.delivered_bytes.add(self.len as u64);
        }
        row.copied_bytes.add(counted.copied_bytes);
        Step::Done(Ok(self.out.take()))
    }

    /// Steps the plan and submits what it asks for; true when every byte is in place.
    fn proceed(
        &mut self,
        op: &mut ReadOp,
        attached: &mut Attached,
        parts: &mut Parts,
        slot: usize,
    ) -> Result<bool, NamespaceError> {
        if self.failed.is_some() {
            return Ok(false);
        }
        if !self.started {
            self.started = true;
            op.start(&self.volume, self.start..self.start + self.len as u64)
                .map_err(|cause| self.volume_error(cause))?;
        }
        loop {
            let progress = self.step(op, parts)?;
            let mut handed = false;
            while let Some(want) = self
                .unsent
                .take()
                .map(Want::Fetch)
                .or_else(|| op.next_want())
            {
                let fetch = match want {
                    // Surveys alone name stored bytes, and tables beside.
                    Want::Fetch(fetch) | Want::Stored(fetch) => fetch,
                    Want::Table(_) => continue,
                    Want::Frame(want) => {
                        self.want_frame(parts, slot, want);
                        continue;
                    }
                };
                match self.submit(op, attached, parts, slot, fetch)? {
                    Submitted::Stored => {}
                    Submitted::InPlace => handed = true,
                    Submitted::NoRoom => {
                        self.unsent = Some(fetch);
                        return Ok(false);
                    }
                }
            }
            match progress {
                Progress::Done => return Ok(true),
                // What was handed over at once may have finished the plan, or brought the next fetches.
                Progress::Fetching if handed => {}
                Progress::Fetching => return Ok(false),
            }
        }
    }

    fn want_frame(&mut self, parts: &mut Parts, slot: usize, want: FrameWant) {
        self.under_way += 1;
        parts.wanted.push(Wanted {
            key: self.key,
            // Fewer than 2^16 requests.
            slot: u32::try_from(slot).unwrap_or(u32::MAX),
            id: WantId::Frame(want.id),
            frame: want.frame,
            deadline: self.deadline,
            is_ahead: false,
            purpose: Purpose::default(),
        });
    }

    fn step(&mut self, op: &mut ReadOp, parts: &mut Parts) -> Result<Progress, NamespaceError> {
        let out = self.out.as_ref().map_or_else(IoBuf::empty, IoBuf::clone);
        with_destination(&out, |out| {
            op.step(&self.volume, &mut parts.cache, &mut parts.scratch, out)
        })
        .map_err(|cause| self.volume_error(cause))
    }

    fn hand_over(
        &mut self,
        op: &mut ReadOp,
        parts: &mut Parts,
        (fetch, from): (Fetch, Stored),
        buf: &IoBuf,
    ) -> Result<(), NamespaceError> {
        let out = self.out.as_ref().map_or_else(IoBuf::empty, IoBuf::clone);
        let handed = with_filled(buf, fetch.len as usize, |bytes| {
            with_destination(&out, |out| {
                op.fetched(
                    fetch.id,
                    bytes,
                    &self.volume,
                    &mut parts.cache,
                    &mut parts.scratch,
                    out,
                )
            })
        });
        handed.map_err(|cause| {
            if cause.kind() == ErrorKind::Corrupt {
                self.wrong = Some((fetch, from));
            }
            self.volume_error(cause)
        })
    }

    fn submit(
        &mut self,
        op: &mut ReadOp,
        attached: &mut Attached,
        parts: &mut Parts,
        slot: usize,
        fetch: Fetch,
    ) -> Result<Submitted, NamespaceError> {
        let source = fetch.source.0 as usize;
        if let Some(lease) = attached.lease(source, fetch.offset, fetch.len)
            && self.take_lease(fetch, &lease)
        {
            self.hand_over(op, parts, (fetch, Stored::Asked), &lease)?;
            return Ok(Submitted::InPlace);
        }
        let Some(buf) = self.buffer_for(parts, fetch) else {
            return Ok(Submitted::NoRoom);
        };
        let Some(number) = self.free_number() else {
            return Ok(Submitted::NoRoom);
        };
        let place = (source, fetch.offset);
        let (token, terms) = (token_of(slot, number), Terms::by(self.deadline));
        let asked = match self.reads_again {
            0 => read_stored(attached, parts, place, buf, token, terms),
            _ => ask_store(attached, place, buf, token, terms),
        };
        match asked {
            Ok(stored) => {
                if stored == Stored::Kept {
                    self.kept_bytes += u64::from(fetch.len);
                }
                self.fetches[number] = Some((fetch, stored));
                self.under_way += 1;
                Ok(Submitted::Stored)
            }
            Err(Rejected {
                why: StoreError::Busy,
                ..
            }) => Ok(Submitted::NoRoom),
            Err(Rejected { why, .. }) => Err(NamespaceError::Store {
                nsid: self.nsid,
                cause: why,
            }),
        }
    }

    /// Whether leased bytes serve a fetch where they lie. Bytes that are the whole answer become the answer; bytes to be decoded are read from
    /// the store's memory; a part of the answer has to be copied, by an ordinary read.
    fn take_lease(&mut self, fetch: Fetch, lease: &IoBuf) -> bool {
        match fetch.placement {
            Placement::Staging => true,
            Placement::Direct { out_offset: 0 } if lease.len() == self.len => {
                self.out = Some(lease.clone());
                true
            }
            Placement::Direct { .. } => false,
        }
    }

    fn buffer_for(&self, parts: &Parts, fetch: Fetch) -> Option<IoBuf> {
        match fetch.placement {
            Placement::Staging => parts.staging.alloc(fetch.len as usize),
            Placement::Direct { out_offset } => {
                let start = out_offset as usize;
                self.out
                    .as_ref()
                    .map(|out| out.slice(start..start + fetch.len as usize))
            }
        }
    }

    fn free_number(&mut self) -> Option<usize> {
        if let Some(number) = self.fetches.iter().position(Option::is_none) {
            return Some(number);
        }
        (self.fetches.len() < FETCHES_MAX).then(|| {
            self.fetches.push(None);
            self.fetches.len() - 1
        })
    }

    fn volume_error(&self, cause: VolumeError) -> NamespaceError {
        NamespaceError::Volume {
            nsid: self.nsid,
            cause,
        }
    }
}

/// What became of a fetch.
enum Submitted {
    /// The store has it.
    Stored,
    /// Its bytes were in memory and have been handed over.
    InPlace,
    /// No memory, or the store is full.
    NoRoom,
}
