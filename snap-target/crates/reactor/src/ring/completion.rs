//! Completions: which operation ended, what it brings, and whether it goes on.

use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd};
use std::rc::Rc;

use io_uring::cqueue;
use nix::errno::Errno;
use nix::libc;

use super::core::{CANCEL_TOKEN, Core, WAKE_TOKEN, Waiting};
use super::op::{Kind, Op};
use super::recv::RecvPool;
use super::{Event, Fd, OpId, Outcome, OwnerId, Payload};
use crate::config::REAP_BATCH;

impl Core {
    /// Takes completions while inboxes have room; returns how many events were delivered.
    pub(super) fn reap(&mut self) -> u32 {
        let mut delivered = 0;
        let mut batch: [MaybeUninit<cqueue::Entry>; REAP_BATCH] =
            [const { MaybeUninit::uninit() }; REAP_BATCH];
        loop {
            let room = self.inboxes.room().min(REAP_BATCH);
            let entries = self.uring.completion().fill(&mut batch[..room]);
            if entries.is_empty() {
                return delivered;
            }
            self.stats.completions += entries.len() as u64;
            for entry in entries {
                delivered += u32::from(self.complete(entry));
            }
        }
    }

    /// Routes one completion; true if an event was delivered.
    fn complete(&mut self, entry: &cqueue::Entry) -> bool {
        match entry.user_data() {
            CANCEL_TOKEN | WAKE_TOKEN => return false,
            _ => {}
        }
        let id = OpId::from_user_data(entry.user_data());
        let Some(op) = self.ops.get_mut(id) else {
            return false;
        };
        let result = match entry.result() {
            code if code < 0 => Err(Errno::from_raw(-code)),
            count => Ok(count.cast_unsigned()),
        };
        if let Kind::Send {
            zero_copy: true, ..
        } = op.kind
        {
            return self.complete_zero_copy(id, entry, result);
        }
        let more = cqueue::more(entry.flags());
        if !more && continues(op, result) {
            self.stats.continued += 1;
            self.enqueue(Waiting::Op(id));
            return false;
        }
        if let (Kind::RecvReady, Ok(_), false) = (&op.kind, result, op.cancelled)
            && let Some(buffer) = self.recv.take()
        {
            op.kind = Kind::RecvOwned { id: buffer };
            self.enqueue(Waiting::Op(id));
            return false;
        }
        let (owner, tag, is_awaited) = (op.owner, op.tag, op.kind.is_awaited());
        let payload = if more {
            self.partial_payload(id, entry, result)
        } else {
            self.final_payload(id, entry, result)
        };
        let Some((result, payload)) = payload else {
            return false;
        };
        if !more && is_awaited {
            self.inboxes.op_ended(owner);
        }
        self.inboxes.deliver(
            owner,
            Event {
                tag,
                op: id,
                result,
                more,
                payload,
            },
        )
    }

    /// A zero-copy send completes with a result, and, if the kernel still holds the memory then,
    /// with a notice later. It has ended when its last piece has a result and no notice is owed.
    fn complete_zero_copy(&mut self, id: OpId, entry: &cqueue::Entry, result: Outcome) -> bool {
        let Some(op) = self.ops.get_mut(id) else {
            return false;
        };
        let is_notice = cqueue::notif(entry.flags());
        let again = !is_notice && continues(op, result);
        let (owner, tag, cancelled) = (op.owner, op.tag, op.cancelled);
        let Kind::Send {
            zero_copy,
            notices,
            outcome,
            ..
        } = &mut op.kind
        else {
            return false;
        };
        if is_notice {
            *notices = notices.saturating_sub(1);
        } else {
            *notices += u32::from(cqueue::more(entry.flags()));
            if !again {
                *outcome = Some(result);
            }
        }
        if again {
            self.stats.continued += 1;
            self.enqueue(Waiting::Op(id));
            return false;
        }
        let (0, Some(result)) = (*notices, *outcome) else {
            return false;
        };
        // The socket, or the accounting of its buffers, cannot: the same by copy.
        if !cancelled
            && matches!(
                result,
                Err(Errno::EOPNOTSUPP | Errno::ENOMEM | Errno::ENOBUFS)
            )
        {
            *zero_copy = false;
            self.enqueue(Waiting::Op(id));
            return false;
        }
        let Some((result, payload)) = self.final_payload(id, entry, result) else {
            return false;
        };
        self.inboxes.op_ended(owner);
        let event = Event {
            tag,
            op: id,
            result,
            more: false,
            payload,
        };
        self.inboxes.deliver(owner, event)
    }

    /// What a completion of a multishot operation brings while the operation goes on.
    fn partial_payload(
        &mut self,
        id: OpId,
        entry: &cqueue::Entry,
        result: Outcome,
    ) -> Option<(Outcome, Payload)> {
        let op = self.ops.get_mut(id)?;
        match &op.kind {
            Kind::Poll { .. } if op.owner == OwnerId::RING => {
                self.wake.drain();
                None
            }
            Kind::Accept { .. } => Some((result, accepted(result))),
            Kind::Recv { .. } => Some((result, received(&self.recv, entry, result))),
            _ => Some((result, Payload::None)),
        }
    }

    /// What the last completion of an operation brings: its resources come back.
    fn final_payload(
        &mut self,
        id: OpId,
        entry: &cqueue::Entry,
        result: Outcome,
    ) -> Option<(Outcome, Payload)> {
        let op = self.ops.remove(id)?;
        Some(match op.kind {
            Kind::Poll { .. } | Kind::Message { .. } if op.owner == OwnerId::RING => {
                self.inboxes.op_ended(OwnerId::RING);
                self.ring_op_ended(op.kind, result);
                return None;
            }
            Kind::Accept { .. } => (result, accepted(result)),
            Kind::Recv { .. } => (result, received(&self.recv, entry, result)),
            // Ready, but every buffer is taken; or cancelled before.
            Kind::RecvReady if op.cancelled => (Err(Errno::ECANCELED), Payload::None),
            Kind::RecvReady => (result.and(Err(Errno::ENOBUFS)), Payload::None),
            Kind::RecvOwned { id } => match result {
                Ok(len) if len > 0 => (result, Payload::Chunk(self.recv.chunk(id, len))),
                _ => {
                    self.recv.give_back(id);
                    (result, Payload::None)
                }
            },
            Kind::RecvInto { buf, done } => {
                let total = sum(done, result, op.cancelled.then_some(buf.len()));
                (total, Payload::Buf(buf))
            }
            Kind::Send { batch, .. } => {
                let sent = batch.len() - batch.remaining();
                let total = sum(sent, result, op.cancelled.then_some(batch.len()));
                (total, Payload::Sent(batch))
            }
            Kind::RecvSome { buf } | Kind::Read { buf, .. } | Kind::Write { buf, .. } => {
                (result, Payload::Buf(buf))
            }
            Kind::Fsync { .. }
            | Kind::Allocate { .. }
            | Kind::Poll { .. }
            | Kind::Command { .. }
            | Kind::Message { .. } => (result, Payload::None),
        })
    }

    /// The ring's own operations: the watch on the eventfd, and messages to other rings.
    fn ring_op_ended(&mut self, kind: Kind, result: Outcome) {
        match kind {
            Kind::Poll { .. } if result != Err(Errno::ECANCELED) => {
                self.wake.drain();
                self.watch_wake();
            }
            // The other ring did not take the message: it may be closing, or lack the feature. Its eventfd always works.
            Kind::Message { to } if result.is_err() => to.signal(),
            _ => {}
        }
    }

    /// Keeps a poll on the eventfd in flight.
    pub(super) fn watch_wake(&mut self) {
        let fd = Fd::borrowed(self.wake.event_fd());
        let kind = Kind::Poll {
            events: libc::POLLIN.cast_unsigned().into(),
            multishot: true,
        };
        if self.start(OwnerId::RING, 0, Some(fd), kind).is_err() {
            tracing::error!("no operation slot for the wake-up watch");
        }
    }
}

/// Whether a short transfer goes on; updates what is left.
fn continues(op: &mut Op, result: Outcome) -> bool {
    let Ok(count @ 1..) = result else {
        return false;
    };
    let count = count as usize;
    if op.cancelled {
        return false;
    }
    match &mut op.kind {
        Kind::RecvInto { buf, done } if *done + count < buf.len() => {
            *done += count;
            true
        }
        Kind::Send { batch, .. } if count < batch.remaining() => {
            batch.advance(count);
            true
        }
        _ => false,
    }
}

/// Bytes of a transfer of several pieces. One that was cancelled before all bytes of `cancelled` had
/// moved ended because of that, not at the end of a stream.
fn sum(before: usize, last: Outcome, cancelled: Option<usize>) -> Outcome {
    let total = before + last? as usize;
    match cancelled {
        Some(all) if total < all => Err(Errno::ECANCELED),
        _ => Ok(u32::try_from(total).unwrap_or(u32::MAX)),
    }
}

fn accepted(result: Outcome) -> Payload {
    match result {
        // SAFETY: a successful accept returns a fresh descriptor that nobody else owns.
        Ok(fd) => Payload::Socket(unsafe { OwnedFd::from_raw_fd(fd.cast_signed()) }),
        Err(_) => Payload::None,
    }
}

fn received(pool: &Rc<RecvPool>, entry: &cqueue::Entry, result: Outcome) -> Payload {
    match (cqueue::buffer_select(entry.flags()), result) {
        (Some(id), Ok(len)) if len > 0 => Payload::Chunk(pool.chunk(id, len)),
        (Some(id), _) => {
            pool.give_back(id);
            Payload::None
        }
        (None, _) => Payload::None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::SendBatch;
    use crate::buf::IoBuf;

    fn op(kind: Kind) -> Op {
        Op {
            owner: OwnerId::RING,
            tag: 0,
            fd: None,
            kind,
            cancelled: false,
        }
    }

    /// What the kernel would send next.
    fn left(op: &mut Op) -> Vec<u8> {
        let Kind::Send { batch, .. } = &mut op.kind else {
            return Vec::new();
        };
        let (iov, count) = batch.pieces();
        // SAFETY: the pieces of a batch are live memory, and nobody writes them here.
        let pieces = (0..count).map(|at| unsafe {
            let piece = &*iov.add(at);
            std::slice::from_raw_parts(piece.iov_base.cast_const().cast::<u8>(), piece.iov_len)
        });
        pieces.flatten().copied().collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Kernels before 5.19 send short where the socket is full: each rest is exactly what has not left.
        #[test]
        fn a_short_send_goes_on_where_it_stopped(
            pieces in proptest::collection::vec((any::<bool>(), 1usize..50), 1..20),
            shorts in proptest::collection::vec(1usize..60, 1..40),
        ) {
            let mut batch = SendBatch::new(2000, 40);
            let mut bytes = Vec::new();
            for (index, (header, len)) in pieces.into_iter().enumerate() {
                let piece: Vec<u8> = (0..len).map(|at| (index * 50 + at).to_le_bytes()[0]).collect();
                if header {
                    prop_assert!(batch.push_bytes(&piece));
                } else {
                    prop_assert!(batch.push_payload(&IoBuf::from_bytes(&piece).unwrap(), 0..len));
                }
                bytes.extend(piece);
            }
            let mut op = op(Kind::Send { batch, zero_copy: false, notices: 0, outcome: None });
            let mut sent = 0;
            for short in shorts {
                prop_assert!(left(&mut op) == bytes[sent..]);
                let count = short.min(bytes.len() - sent);
                let goes_on = continues(&mut op, Ok(u32::try_from(count).unwrap()));
                prop_assert_eq!(goes_on, sent + count < bytes.len());
                if !goes_on {
                    break;
                }
                sent += count;
            }
        }
    }

    #[test]
    fn a_transfer_cut_off_by_a_cancel_is_no_end_of_stream() {
        assert_eq!(sum(100, Ok(20), None), Ok(120));
        assert_eq!(sum(100, Ok(20), Some(121)), Err(Errno::ECANCELED));
        assert_eq!(sum(100, Ok(20), Some(120)), Ok(120), "it was complete");
        assert_eq!(sum(100, Err(Errno::EPIPE), Some(120)), Err(Errno::EPIPE));
    }

    #[test]
    fn a_cancelled_or_failed_transfer_does_not_go_on() {
        let mut reading = op(Kind::RecvInto {
            buf: IoBuf::heap(10).unwrap(),
            done: 0,
        });
        assert!(continues(&mut reading, Ok(4)));
        assert!(!continues(&mut reading, Ok(6)), "full");
        assert!(!continues(&mut reading, Ok(0)), "the end of the stream");
        assert!(!continues(&mut reading, Err(Errno::EPIPE)));
        reading.cancelled = true;
        assert!(!continues(&mut reading, Ok(1)));
    }
}
