//! Reads of stored bytes that are filled from plain frames, in place of a store's operation; what no frame has comes from the store after all. Whoever
//! asked is told by a completion, as of a store.

use std::ops::Range;
use std::time::Instant;

use reactor::buf::IoBuf;
use smallvec::SmallVec;
use store::{Completion, Op, Rejected, StoreError, Terms, Token};
use volume::PLAIN_FRAME_BYTES;

use super::Purpose;
use crate::NamespaceError;
use crate::attached::Attached;
use crate::attachments::Attachments;
use crate::frames::{Answer, WantId, Wanted};
use crate::limits::GROUP_FRAMES;
use crate::parts::Parts;

/// Where a read of stored bytes went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    /// To the store.
    Asked,
    /// To plain frames: what comes from the store is counted where it is asked.
    Kept,
}

/// Hands a read to plain frames where some of its bytes are, else to the store.
#[expect(
    clippy::result_large_err,
    reason = "it gives the buffer back, as the store's contract says"
)]
pub(crate) fn read_stored(
    attached: &mut Attached,
    parts: &mut Parts,
    (source, offset): (usize, u64),
    buf: IoBuf,
    token: Token,
    terms: Terms,
) -> Result<Stored, Rejected> {
    let len = buf.len() as u64;
    let ahead = attached.ahead.as_ref();
    let Some(ahead) = ahead.filter(|ahead| ahead.has_some(source, offset, len)) else {
        return ask_store(attached, (source, offset), buf, token, terms);
    };
    let slot = parts.fills.take_slot();
    let mut missing = 0;
    for frame in ahead.plain_frames(source, offset, len) {
        missing += 1;
        parts.wanted.push(Wanted {
            key: attached.shared.key,
            slot,
            id: WantId::Fill { at: frame.offset },
            frame,
            deadline: terms.deadline,
            is_ahead: false,
            purpose: Purpose::default(),
        });
    }
    parts.fills.all[slot as usize] = Fill {
        place: attached.place,
        source,
        offset,
        buf: Some(buf),
        token,
        terms,
        missing,
        left: None,
        is_overdue: false,
        part_bytes: None,
    };
    Ok(Stored::Kept)
}

/// Hands a read to the store, whatever plain frames have.
#[expect(
    clippy::result_large_err,
    reason = "it gives the buffer back, as the store's contract says"
)]
pub(crate) fn ask_store(
    attached: &mut Attached,
    (source, offset): (usize, u64),
    buf: IoBuf,
    token: Token,
    terms: Terms,
) -> Result<Stored, Rejected> {
    let op = Op::Read { offset };
    let asked = attached.submit(source, op, Some(buf), token, terms);
    asked.map(|()| Stored::Asked)
}

/// A read that waits for plain frames, or for its store.
#[derive(Debug)]
struct Fill {
    /// Of its namespace.
    place: usize,
    source: usize,
    offset: u64,
    /// None when it was cancelled.
    buf: Option<IoBuf>,
    token: Token,
    terms: Terms,
    /// Frames that have not come.
    missing: u32,
    /// From the first to the last of its bytes that no frame has.
    left: Option<Range<usize>>,
    /// A frame did not come in time.
    is_overdue: bool,
    /// Bytes that its store has been asked for.
    part_bytes: Option<u32>,
}

/// The reads of one engine that are filled.
#[derive(Debug, Default)]
pub(crate) struct Fills {
    all: Vec<Fill>,
    free: Vec<u32>,
    /// Those for which the store is to be asked.
    unasked: SmallVec<[u32; 4]>,
    /// How many stores have.
    asked: usize,
    /// Completions that nobody has taken, by the place of their namespaces.
    ended: Vec<(usize, Completion)>,
}

impl Fill {
    fn is(&self, place: usize, token: Token) -> bool {
        self.buf.is_some() && self.place == place && self.token == token
    }

    /// Some of its bytes are nowhere but with the store: those of the plain frame at `at`.
    fn leave(&mut self, at: u64, len: usize) {
        let clip = |place: u64| {
            let behind = place.saturating_sub(self.offset);
            usize::try_from(behind).unwrap_or(len).min(len)
        };
        let part = clip(at)..clip(at + u64::from(PLAIN_FRAME_BYTES));
        self.left = Some(match self.left.take() {
            Some(left) => left.start.min(part.start)..left.end.max(part.end),
            None => part,
        });
    }

    fn not_in_time(&self) -> StoreError {
        StoreError::Unreachable {
            store: "plain frames, or the store behind them".to_owned(),
            what: "reading",
            offset: self.offset,
            retry_after_ms: None,
        }
    }
}

impl Fills {
    fn take_slot(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.all.push(Fill {
                place: 0,
                source: 0,
                offset: 0,
                buf: None,
                token: Token(0),
                terms: Terms::default(),
                missing: 0,
                left: None,
                is_overdue: false,
                part_bytes: None,
            });
            // Fewer than 2^16 requests, each with few fetches.
            u32::try_from(self.all.len() - 1).unwrap_or(u32::MAX)
        })
    }

    /// Takes a plain frame, or that there is none; `at`: where it lies in its source.
    pub(crate) fn answered(&mut self, answer: &Answer, at: u64) {
        let Some(fill) = self.all.get_mut(answer.slot as usize) else {
            return;
        };
        fill.missing -= 1;
        let len = fill.buf.as_ref().map_or(0, IoBuf::len);
        match (&answer.result, &mut fill.buf) {
            (Ok(frame), Some(buf)) => copy_part(frame, at, fill.offset, buf),
            (Err(error), Some(_)) => {
                fill.leave(at, len);
                fill.is_overdue |= matches!(error, NamespaceError::NotInTime { .. });
            }
            (_, None) => {}
        }
        if fill.missing > 0 {
            return;
        }
        if fill.buf.is_none() {
            self.free.push(answer.slot);
        } else if fill.is_overdue {
            let why = fill.not_in_time();
            self.end(answer.slot, Err(why));
        } else if fill.left.is_some() {
            self.unasked.push(answer.slot);
        } else {
            self.end(answer.slot, Ok(u32::try_from(len).unwrap_or(u32::MAX)));
        }
    }

    /// Tells whoever asked, and lets the place go, where nobody waits there for frames or for a store.
    fn end(&mut self, slot: u32, result: Result<u32, StoreError>) {
        let fill = &mut self.all[slot as usize];
        let completion = Completion {
            token: fill.token,
            buf: fill.buf.take(),
            result,
        };
        self.ended.push((fill.place, completion));
        if fill.missing == 0 {
            self.free.push(slot);
        }
    }

    /// Ends a read early that its store has not been asked for; an unknown token is ignored.
    pub(crate) fn cancel(&mut self, place: usize, token: Token) {
        let mut all = (0..).zip(&self.all);
        let found = all.find(|(_, fill)| fill.is(place, token) && fill.part_bytes.is_none());
        let Some((slot, fill)) = found else { return };
        let store = "plain frames".to_owned();
        let offset = fill.offset;
        self.unasked.retain(|unasked| *unasked != slot);
        self.end(slot, Err(StoreError::Cancelled { store, offset }));
    }

    /// Ends those that wait for room in their store's queue, and whose time is over.
    pub(crate) fn end_overdue(&mut self, now: Instant) {
        for _ in 0..self.unasked.len() {
            let slot = self.unasked.remove(0);
            let fill = &self.all[slot as usize];
            match fill.terms.deadline {
                Some(at) if at <= now => {
                    let why = fill.not_in_time();
                    self.end(slot, Err(why));
                }
                _ => self.unasked.push(slot),
            }
        }
    }

    /// A completion, and the place of its namespace.
    pub(crate) fn next_ended(&mut self) -> Option<(usize, Completion)> {
        self.ended.pop()
    }

    /// Has the stores read what no frame had; those that find no room there stay.
    pub(crate) fn ask_stores(&mut self, attachments: &mut Attachments) -> bool {
        let mut moved = false;
        for _ in 0..self.unasked.len() {
            let slot = self.unasked.remove(0);
            let fill = &mut self.all[slot as usize];
            let (Some(buf), Some(left)) = (&fill.buf, fill.left.clone()) else {
                continue;
            };
            let op = Op::Read {
                offset: fill.offset + left.start as u64,
            };
            let part_bytes = u32::try_from(left.len()).unwrap_or(u32::MAX);
            let part = Some(buf.slice(left));
            let attached = &mut attachments[fill.place];
            match attached.submit(fill.source, op, part, fill.token, fill.terms) {
                Ok(()) => {
                    moved = true;
                    fill.part_bytes = Some(part_bytes);
                    self.asked += 1;
                    attached.row.stored_bytes.add(u64::from(part_bytes));
                }
                Err(Rejected {
                    why: StoreError::Busy,
                    ..
                }) => self.unasked.push(slot),
                Err(Rejected { why, .. }) => {
                    moved = true;
                    self.end(slot, Err(why));
                }
            }
        }
        moved
    }

    /// Takes the end of a store's operation. Where it read a part of what was asked for, the end is that of the whole.
    pub(crate) fn completed(&mut self, place: usize, completion: Completion) -> Completion {
        if self.asked == 0 {
            return completion;
        }
        let mut all = (0..).zip(&mut self.all);
        let found =
            all.find(|(_, fill)| fill.is(place, completion.token) && fill.part_bytes.is_some());
        let Some((slot, fill)) = found else {
            return completion;
        };
        self.asked -= 1;
        self.free.push(slot);
        let buf = fill.buf.take();
        let whole_bytes = buf.as_ref().map_or(0, IoBuf::len);
        let result = completion.result.map(|bytes| match fill.part_bytes {
            Some(part_bytes) if part_bytes == bytes => {
                u32::try_from(whole_bytes).unwrap_or(u32::MAX)
            }
            // Short, against the contract: so is the whole.
            _ => bytes.min(fill.part_bytes.unwrap_or(0)),
        });
        Completion {
            token: completion.token,
            buf,
            result,
        }
    }
}

/// Copies what a plain frame at `at` has of the bytes from `offset` on that `buf` takes.
fn copy_part(frame: &[u8], at: u64, offset: u64, buf: &mut IoBuf) {
    let (from, into) = match at.checked_sub(offset) {
        Some(behind) => (0, behind),
        None => (offset - at, 0),
    };
    let place = usize::try_from(from).ok().zip(usize::try_from(into).ok());
    let Some((from, into)) = place else { return };
    if let Some(bytes) = frame.get(from..) {
        let len = bytes.len().min(buf.len().saturating_sub(into));
        buf.copy_from(into, &bytes[..len]);
    }
}

const _: () = assert!(
    GROUP_FRAMES as u64 * PLAIN_FRAME_BYTES as u64 == store::TRANSFER_BYTES_MIN as u64,
    "neighbours with one home are one operation"
);
