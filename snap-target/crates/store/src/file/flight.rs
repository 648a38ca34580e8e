//! One transfer: where it stands, and what the ring's answers mean for it. No I/O.

use nix::errno::Errno;
use nix::libc;
use reactor::buf::IoBuf;
use reactor::{OpId, WriteMode};

use super::FileState;
use super::bounce::BOUNCE_BYTES;
use super::reports::Since;
use crate::contract::{Op, Token};
use crate::error::StoreError;
use crate::gate::Permit;

pub(super) struct Flight {
    pub(super) token: Token,
    pub(super) op: Op,
    pub(super) buf: Option<IoBuf>,
    pub(super) offset: u64,
    pub(super) total: u64,
    pub(super) done: u64,
    /// A flush is still to come: for a flush itself, and behind a durable zeroing.
    pub(super) sync_owed: bool,
    pub(super) stage: Stage,
    /// What is in flight at the ring.
    pub(super) ring_op: Option<OpId>,
    pub(super) bounce: Option<IoBuf>,
    pub(super) permit: Permit,
    /// For what may take the kernel's report of lost bytes away.
    pub(super) report: Permit,
    /// When its sync was first to begin.
    pub(super) since: Option<Since>,
    pub(super) cancelled: bool,
}

/// Ways to zero a range, best first; after them, zeros are written.
pub(super) const ZERO_MODES: [i32; 2] = [
    libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE,
    libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
];

/// What the operation in flight at the ring is for, or, if none is, what comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
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

impl Flight {
    pub(super) fn position(&self) -> u64 {
        self.offset + self.done
    }

    /// Whether nothing is left to do.
    pub(super) fn is_finished(&self) -> bool {
        self.stage == Stage::Plan && self.done == self.total && !self.sync_owed
    }

    /// Where the bytes of the transfer are, and at which offset the next ones stand.
    pub(super) fn source<'a>(&'a self, zeros: &'a IoBuf) -> (&'a IoBuf, usize) {
        match &self.buf {
            Some(buf) => (buf, usize::try_from(self.done).unwrap_or(usize::MAX)),
            None => (zeros, 0),
        }
    }

    pub(super) fn write_mode(&self) -> WriteMode {
        if matches!(self.op, Op::Write { durable: true, .. }) {
            WriteMode::Durable
        } else {
            WriteMode::Cached
        }
    }

    /// Takes in the ring's answer to what was in flight. Gives a bounce buffer back that is done with.
    pub(super) fn take_in(
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
            Stage::Sync => {
                state.reports.ended_well();
                self.sync_owed = false;
                self.stage = Stage::Plan;
            }
            Stage::Discard => self.stage = Stage::Plan,
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
        // A cancel reaches what is already under way in the kernel as a signal.
        if errno == Errno::ECANCELED || (errno == Errno::EINTR && self.cancelled) {
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
            // Who was told that the range reads as zeros may rely on it.
            Stage::Discard if no_such_way && !state.limits.discard_zeroes => {
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
                state.reports.note_failure(errno);
                Err(StoreError::FlushFailed {
                    store: state.name.clone(),
                    source: errno,
                })
            }
            _ => {
                // A durable write that fails may have eaten the kernel's one report about earlier writes.
                if errno == Errno::EIO && self.write_mode() == WriteMode::Durable {
                    state.reports.note_failure(errno);
                }
                Err(self.io_error(errno, state))
            }
        }
    }

    fn io_error(&self, source: Errno, state: &FileState) -> StoreError {
        let what = self.op.what();
        if let Errno::ENOSPC | Errno::EDQUOT = source {
            return StoreError::NoSpace {
                store: state.name.clone(),
                what,
                offset: self.position(),
                source,
            };
        }
        let advice = match source {
            Errno::EIO => {
                "; the medium is failing, or the server that it is mounted from does not answer: see the kernel log"
            }
            Errno::ETIMEDOUT => "; the server that it is mounted from does not answer",
            // NFS: it was removed or replaced there, or is not known to be open after a restart.
            Errno::ESTALE | Errno::EBADF => {
                "; the server that it is mounted from does not have the file any more that was opened: put it back and attach it again"
            }
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
pub(super) fn span(start: u64, end: u64) -> usize {
    usize::try_from(end - start).unwrap_or(BOUNCE_BYTES)
}
