//! From stored bytes to packed ones: here, within what a turn may take, or by a worker.

use std::collections::VecDeque;
use std::time::Instant;

use transforms::BlockTimes;
use volume::{ErrorKind, FrameBuf, StoredFrame, Volume, VolumeError};

use super::Frames;
use super::job::{Job, Work, nanos_since};
use super::run::Run;
use crate::attached::Attached;
use crate::attachments::Attachments;
use crate::limits::AHEAD_JOBS_PER_WORKER;
use crate::memory::with_filled;
use crate::parts::Parts;
use crate::shared::Backing;
use crate::{NamespaceError, NamespaceKey};

/// What became of a run's next frame.
enum Next {
    /// It is decoded, has failed, or is with a worker.
    Moved,
    /// Its turn comes later: there is no time left in this one, or no place with the workers.
    Later,
    /// The cache has no room.
    NoRoom,
}

impl Frames {
    /// Decodes the frames whose stored bytes are here; true when anything moved.
    pub(super) fn decode(
        &mut self,
        attached: &mut Attachments,
        parts: &mut Parts,
        turn: u64,
    ) -> bool {
        if self.turn != turn {
            self.turn = turn;
            self.turn_ns = 0;
        }
        self.is_behind = false;
        let mut moved = self.decode_all(attached, parts, false);
        if !moved && self.answers.is_empty() {
            moved = self.decode_all(attached, parts, true);
        }
        moved
    }

    /// The runs that somebody waits for, or those that nobody waits for.
    fn decode_all(&mut self, attached: &mut Attachments, parts: &mut Parts, ahead: bool) -> bool {
        let mut moved = false;
        // Runs in a row that could not go on.
        let mut waiting = 0;
        while waiting < self.line(ahead).len() {
            let Some(index) = self.line(ahead).pop_front() else {
                break;
            };
            match self.decode_next(attached, parts, index) {
                Next::Moved => {
                    self.take_turns(index);
                    moved = true;
                    waiting = 0;
                    if !self.answers.is_empty() {
                        // A read writes the frame where it belongs while it is in this core's cache, and is answered before the next.
                        break;
                    }
                }
                Next::Later => {
                    waiting += 1;
                    self.line(ahead).push_back(index);
                }
                Next::NoRoom => {
                    self.line(ahead).push_front(index);
                    break;
                }
            }
        }
        moved
    }

    fn line(&mut self, ahead: bool) -> &mut VecDeque<usize> {
        match ahead {
            true => &mut self.decoding_ahead,
            false => &mut self.decoding,
        }
    }

    /// Lets a run go on that has used up less than its slice, and the others before it if not.
    fn take_turns(&mut self, index: usize) {
        let run = &mut self.runs[index];
        let is_ahead = run.is_ahead;
        if run.next == run.frames.len() {
            self.release(index);
        } else if run.slice_ns < self.config.slice_ns_max {
            self.line(is_ahead).push_front(index);
        } else {
            run.slice_ns = 0;
            self.line(is_ahead).push_back(index);
        }
    }

    fn decode_next(&mut self, attached: &mut Attachments, parts: &mut Parts, index: usize) -> Next {
        let run = &self.runs[index];
        let (stored, is_ahead) = (run.frames[run.next], run.is_ahead);
        let volume = volume_of(&attached[run.attached]);
        let ns = volume.map_or(0, |volume| stored.decode_ns(volume));
        let is_long = ns > self.config.decode_inline_ns_max || is_ahead;
        let by_worker =
            volume.is_some() && is_long && !stored.id.is_plain() && self.config.workers.is_some();
        if by_worker && self.jobs.len() <= self.kept_jobs(is_ahead) {
            // A job that comes back brings the engine here again.
            return Next::Later;
        }
        if !by_worker && self.turn_ns >= self.config.turn_decode_ns_max {
            self.is_behind = true;
            return Next::Later;
        }
        let Some(packed) = self.reserve(parts, stored.packed_bytes as usize) else {
            return Next::NoRoom;
        };
        self.runs[index].slice_ns += ns;
        if by_worker {
            return self.hand_over(attached, parts, index, packed);
        }
        self.turn_ns += ns;
        self.decode_here(attached, parts, index, packed)
    }

    /// Jobs that are kept back from what nobody waits for: somebody may want a frame while the workers have others.
    fn kept_jobs(&self, is_ahead: bool) -> usize {
        let workers = self.config.workers.as_ref().filter(|_| is_ahead);
        let Some(workers) = workers else { return 0 };
        let ahead_max = workers.workers() * AHEAD_JOBS_PER_WORKER;
        let jobs_max = self.config.jobs_max.max(1);
        jobs_max - ahead_max.clamp(1, jobs_max.div_ceil(2))
    }

    /// A buffer of the cache. Where frames that others hold leave no room, they are asked to say when they let go.
    fn reserve(&mut self, parts: &mut Parts, bytes: usize) -> Option<FrameBuf> {
        if let Some(packed) = parts.cache.reserve_frame(bytes) {
            self.link.starve(false);
            return Some(packed);
        }
        self.link.starve(true);
        parts.cache.reserve_frame(bytes)
    }

    fn decode_here(
        &mut self,
        attached: &mut Attachments,
        parts: &mut Parts,
        index: usize,
        mut packed: FrameBuf,
    ) -> Next {
        let run = &self.runs[index];
        let stored = run.frames[run.next];
        let of = &attached[run.attached];
        let Parts {
            scratch, assembly, ..
        } = parts;
        let begun = Instant::now();
        let decoded = with_stored(run, |pieces| {
            let offset = run.blocks.start;
            match volume_of(of).filter(|_| !stored.id.is_plain()) {
                Some(volume) => {
                    stored.decode(volume, pieces, offset, scratch, assembly, packed.bytes())
                }
                None => {
                    stored.copy_plain(pieces, offset, packed.bytes())?;
                    Ok(u64::from(stored.stored_bytes))
                }
            }
        });
        match decoded {
            Ok(copied) => {
                of.row.copied_bytes.add(copied);
                let chain = stored.id.stream().and_then(|stream| of.chain(stream));
                if let Some(chain) = chain {
                    let ns = nanos_since(begun);
                    chain.decoded(stored.packed_bytes, ns, parts.scratch.times());
                }
                self.finish(parts, &of.row, stored.id, packed);
            }
            Err(cause) => {
                let of = (of.shared.key, of.shared.nsid);
                parts.cache.give_back(packed);
                self.refused(attached, of, stored, cause);
            }
        }
        self.moved(index)
    }

    /// The stored bytes of a frame are not what was written: they are read again, or those who wait are told.
    fn refused(
        &mut self,
        attached: &mut Attachments,
        (key, nsid): (NamespaceKey, u32),
        stored: StoredFrame,
        cause: VolumeError,
    ) {
        let of = attached.find(key).and_then(|of| attached.get_mut(of));
        let is_damage = cause.kind() == ErrorKind::Corrupt;
        if let Some(of) = of.filter(|_| is_damage)
            && self.read_again(of, stored)
        {
            return;
        }
        self.fail(stored.id, &NamespaceError::Volume { nsid, cause });
    }

    fn moved(&mut self, index: usize) -> Next {
        self.runs[index].next += 1;
        Next::Moved
    }

    /// Gives a frame to the workers, with a copy of its stored bytes: staging is free for the next fetch, and nothing that a worker
    /// touches depends on this engine.
    fn hand_over(
        &mut self,
        attached: &mut Attachments,
        parts: &mut Parts,
        index: usize,
        packed: FrameBuf,
    ) -> Next {
        let run = &self.runs[index];
        let of = &attached[run.attached];
        let (Some(mut job), Some(workers), Some(volume)) =
            (self.jobs.pop(), &self.config.workers, volume_of(of))
        else {
            parts.cache.give_back(packed);
            return Next::Later;
        };
        let frame = run.frames[run.next];
        let copied = with_stored(run, |pieces| {
            frame.copy_stored(pieces, run.blocks.start, &mut job.stored)
        });
        if let Err(cause) = copied {
            let of = (of.shared.key, of.shared.nsid);
            self.jobs.push(job);
            parts.cache.give_back(packed);
            self.refused(attached, of, frame, cause);
            return self.moved(index);
        }
        job.work = Some(Work {
            key: of.shared.key,
            nsid: of.shared.nsid,
            row: of.row.clone(),
            chain: frame
                .id
                .stream()
                .and_then(|stream| of.chain(stream))
                .cloned(),
            volume: volume.clone(),
            frame,
            packed,
            busy_ns: 0,
            times: BlockTimes::default(),
            result: Ok(()),
        });
        match workers.push(job) {
            Ok(()) => {
                of.row.copied_bytes.add(u64::from(frame.stored_bytes));
                self.moved(index)
            }
            Err(mut job) => {
                // Engines that share the workers have more jobs than their queue has places: no event tells when there is one.
                self.is_behind = true;
                if let Some(work) = job.work.take() {
                    parts.cache.give_back(work.packed);
                }
                self.jobs.push(job);
                Next::Later
            }
        }
    }

    /// Takes a job back from a worker.
    pub(super) fn job_done(
        &mut self,
        attached: &mut Attachments,
        parts: &mut Parts,
        mut job: Box<Job>,
    ) {
        let work = job.work.take();
        self.jobs.push(job);
        let Some(work) = work else {
            return;
        };
        work.row.frames_decoded_by_workers.add(1);
        match work.result {
            Ok(()) => {
                if let Some(chain) = &work.chain {
                    chain.decoded(work.frame.packed_bytes, work.busy_ns, work.times);
                }
                self.finish(parts, &work.row, work.frame.id, work.packed);
            }
            Err(cause) => {
                parts.cache.give_back(work.packed);
                self.refused(attached, (work.key, work.nsid), work.frame, cause);
            }
        }
    }
}

fn volume_of(of: &Attached) -> Option<&Volume> {
    match &of.shared.backing {
        Backing::View { volume, .. } => Some(volume),
        Backing::Raw(_) | Backing::Mixed(_) => None,
    }
}

/// Runs `use_bytes` with the stored bytes of a run.
fn with_stored<R>(run: &Run, use_bytes: impl FnOnce(&[&[u8]]) -> R) -> R {
    match &run.buf {
        Some(buf) => with_filled(buf, buf.len(), use_bytes),
        None => use_bytes(&[&run.long]),
    }
}
