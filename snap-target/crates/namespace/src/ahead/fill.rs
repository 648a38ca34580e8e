//! Reads of stored bytes that are filled from plain frames, in place of a store's operation. Whoever asked is told by a completion, as of a store.

use reactor::buf::IoBuf;
use smallvec::SmallVec;
use store::{Completion, Op, Rejected, StoreError, Terms, Token};
use volume::PLAIN_FRAME_BYTES;

use super::Purpose;
use crate::attached::Attached;
use crate::frames::{Answer, WantId, Wanted};
use crate::limits::GROUP_FRAMES;
use crate::parts::Parts;

/// Where a read of stored bytes went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    /// To the store.
    Asked,
    /// To plain frames: the store is asked by their homes, if at all.
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
        let op = Op::Read { offset };
        return attached
            .submit(source, op, Some(buf), token, terms)
            .map(|()| Stored::Asked);
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
        has_failed: false,
    };
    Ok(Stored::Kept)
}

/// A read that waits for plain frames.
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
    has_failed: bool,
}

/// The reads of one engine that are filled.
#[derive(Debug, Default)]
pub(crate) struct Fills {
    all: Vec<Fill>,
    free: Vec<u32>,
    /// Those whose frames cannot be had: they go to their store.
    failed: SmallVec<[Failed; 4]>,
    /// Completions that nobody has taken, by the place of their namespaces.
    ended: Vec<(usize, Completion)>,
}

/// A read that goes to its store after all.
#[derive(Debug)]
struct Failed {
    place: usize,
    source: usize,
    offset: u64,
    buf: IoBuf,
    token: Token,
    terms: Terms,
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
                has_failed: false,
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
        match (&answer.result, &mut fill.buf) {
            (Ok(frame), Some(buf)) => copy_part(frame, at, fill.offset, buf),
            (Ok(_), None) => {}
            (Err(_), _) => fill.has_failed = true,
        }
        if fill.missing > 0 {
            return;
        }
        self.free.push(answer.slot);
        let Some(buf) = fill.buf.take() else { return };
        if fill.has_failed {
            self.failed.push(Failed {
                place: fill.place,
                source: fill.source,
                offset: fill.offset,
                buf,
                token: fill.token,
                terms: fill.terms,
            });
            return;
        }
        let result = Ok(u32::try_from(buf.len()).unwrap_or(u32::MAX));
        self.end(answer.slot as usize, buf, result);
    }

    fn end(&mut self, slot: usize, buf: IoBuf, result: Result<u32, StoreError>) {
        let Fill { place, token, .. } = self.all[slot];
        let buf = Some(buf);
        self.ended.push((place, Completion { token, buf, result }));
    }

    /// Ends a read early; an unknown token is ignored.
    pub(crate) fn cancel(&mut self, place: usize, token: Token) {
        let mut all = self.all.iter_mut();
        let found =
            all.position(|fill| fill.place == place && fill.token == token && fill.buf.is_some());
        let Some(slot) = found else { return };
        if let Some(buf) = self.all[slot].buf.take() {
            let store = "plain frames".to_owned();
            let offset = self.all[slot].offset;
            self.end(slot, buf, Err(StoreError::Cancelled { store, offset }));
        }
    }

    /// A completion, and the place of its namespace.
    pub(crate) fn next_ended(&mut self) -> Option<(usize, Completion)> {
        self.ended.pop()
    }

    /// Sends those to their stores that found no frames; those that find no room there stay.
    pub(crate) fn ask_stores(&mut self, attachments: &mut crate::attachments::Attachments) -> bool {
        let mut moved = false;
        for _ in 0..self.failed.len() {
            let one = self.failed.remove(0);
            let op = Op::Read { offset: one.offset };
            let attached = &mut attachments[one.place];
            let asked = attached.submit(one.source, op, Some(one.buf), one.token, one.terms);
            match asked {
                Ok(()) => moved = true,
                Err(Rejected {
                    buf: Some(buf),
                    why: StoreError::Busy,
                    ..
                }) => self.failed.push(Failed { buf, ..one }),
                Err(Rejected { buf, why, .. }) => {
                    moved = true;
                    let (token, result) = (one.token, Err(why));
                    self.ended
                        .push((one.place, Completion { token, buf, result }));
                }
            }
        }
        moved
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
