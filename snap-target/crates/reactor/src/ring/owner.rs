//! An owner and the operations it starts.

use std::time::Instant;

use super::op::Kind;
use super::{COMMAND_BYTES, Event, Fd, Fsync, OpId, OwnerId, Refused, Ring, SendBatch, WriteMode};
use crate::buf::IoBuf;
use crate::error::ReactorError;
use crate::features::Features;
use crate::timer::TimerId;

/// Someone who does I/O on a ring: an inbox, and the operations in flight for it.
///
/// Dropping it drops its events, cancels its operations and timers, and waits until the kernel let go of them.
#[derive(Debug)]
pub struct Owner {
    ring: Ring,
    id: OwnerId,
}

impl Owner {
    pub(super) fn new(ring: Ring, id: OwnerId) -> Self {
        Self { ring, id }
    }

    /// Its name in [`Ring::next_ready`].
    #[must_use]
    pub fn id(&self) -> OwnerId {
        self.id
    }

    /// The ring.
    #[must_use]
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// The oldest event of the inbox.
    #[must_use]
    pub fn next_event(&self) -> Option<Event> {
        self.ring.inner.core.borrow_mut().inboxes.take(self.id)
    }

    /// Operations whose last event was not yet reaped from the kernel; commands are not counted.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.ring.inner.core.borrow().inboxes.in_flight(self.id)
    }

    /// Accepts connections: several events ([`super::Payload::Socket`]) where the kernel can, else one.
    pub fn accept(&self, listener: &Fd, tag: u64) -> Result<OpId, Refused<()>> {
        let multishot = self.ring.features().contains(Features::MULTISHOT_ACCEPT);
        self.start(tag, Some(listener), Kind::Accept { multishot })
            .map_err(|refused| refused.map(|_| ()))
    }

    /// Receives into the ring's buffers ([`super::Payload::Chunk`]), again and again where the kernel can, else once. `Ok(0)` = end of stream.
    /// `Err(ENOBUFS)`: all buffers were in use; start again when some chunks were dropped ([`Ring::recv_buffers_returned`]).
    pub fn recv(&self, socket: &Fd, tag: u64) -> Result<OpId, Refused<()>> {
        self.start_recv(socket, tag, true)
    }

    /// As [`Owner::recv`], but once: what follows stays in the socket, so that it can be received into a buffer of its own.
    pub fn recv_once(&self, socket: &Fd, tag: u64) -> Result<OpId, Refused<()>> {
        self.start_recv(socket, tag, false)
    }

    fn start_recv(&self, socket: &Fd, tag: u64, repeat: bool) -> Result<OpId, Refused<()>> {
        let (features, recv) = {
            let core = self.ring.inner.core.borrow();
            (core.features, core.recv.clone())
        };
        let kind = if recv.is_shared() {
            let multishot = repeat && features.contains(Features::MULTISHOT_RECV);
            Kind::Recv { multishot }
        } else {
            recv.take_if_plenty()
                .map_or(Kind::RecvReady, |id| Kind::RecvOwned { id })
        };
        self.start(tag, Some(socket), kind).map_err(|refused| {
            refused.map(|kind| {
                if let Kind::RecvOwned { id } = kind {
                    recv.give_back(id);
                }
            })
        })
    }

    /// Receives until `buf` is full ([`super::Payload::Buf`]). Fewer bytes than that = the stream ended. Nothing
    /// else may receive on the socket meanwhile.
    pub fn recv_into(&self, socket: &Fd, buf: IoBuf, tag: u64) -> Result<OpId, Refused<IoBuf>> {
        self.start_with_buf(socket, tag, Kind::RecvInto { buf, done: 0 })
    }

    /// Receives once what is there, at least a byte, into `buf` ([`super::Payload::Buf`]). `Ok(0)` = end of stream. Nothing else may receive on
    /// the socket meanwhile.
    pub fn recv_some(&self, socket: &Fd, buf: IoBuf, tag: u64) -> Result<OpId, Refused<IoBuf>> {
        self.start_with_buf(socket, tag, Kind::RecvSome { buf })
    }

    /// Sends a batch completely ([`super::Payload::Sent`]). One at a time for a socket: two would interleave.
    pub fn send(
        &self,
        socket: &Fd,
        batch: SendBatch,
        tag: u64,
    ) -> Result<OpId, Refused<SendBatch>> {
        self.start_send(socket, batch, tag, false)
    }

    /// As [`Owner::send`], without a copy in the kernel where kernel and socket can (the event comes when the network has let go of the
    /// memory); as [`Owner::send`] where not. Pays for large payloads on a real network card; on loopback the kernel copies after all.
    pub fn send_zero_copy(
        &self,
        socket: &Fd,
        batch: SendBatch,
        tag: u64,
    ) -> Result<OpId, Refused<SendBatch>> {
        let able = self.ring.features().contains(Features::SEND_ZC);
        self.start_send(socket, batch, tag, able)
    }

    fn start_send(
        &self,
        socket: &Fd,
        batch: SendBatch,
        tag: u64,
        zero_copy: bool,
    ) -> Result<OpId, Refused<SendBatch>> {
        self.start(
            tag,
            Some(socket),
            Kind::Send {
                batch,
                zero_copy,
                notices: 0,
                outcome: None,
            },
        )
        .map_err(|refused| {
            refused.map(|kind| match kind {
                Kind::Send { batch, .. } => batch,
                _ => SendBatch::new(0, 0),
            })
        })
    }

    /// One read at `offset` into `buf` ([`super::Payload::Buf`]). It may be short: at the end of the file, on a signal, or past the first 64
    /// segments.
    pub fn read_at(
        &self,
        file: &Fd,
        offset: u64,
        buf: IoBuf,
        tag: u64,
    ) -> Result<OpId, Refused<IoBuf>> {
        self.start_with_buf(file, tag, Kind::Read { buf, offset })
    }

    /// One write of `buf` at `offset` ([`super::Payload::Buf`]); it may be short, as a read may.
    pub fn write_at(
        &self,
        file: &Fd,
        offset: u64,
        buf: IoBuf,
        mode: WriteMode,
        tag: u64,
    ) -> Result<OpId, Refused<IoBuf>> {
        self.start_with_buf(
            file,
            tag,
            Kind::Write {
                buf,
                offset,
                durable: mode == WriteMode::Durable,
            },
        )
    }

    /// Flushes a file. Covers writes that completed before this started, not those still in flight.
    pub fn fsync(&self, file: &Fd, what: Fsync, tag: u64) -> Result<OpId, Refused<()>> {
        self.start(
            tag,
            Some(file),
            Kind::Fsync {
                data_only: what == Fsync::Data,
            },
        )
        .map_err(|refused| refused.map(|_| ()))
    }

    /// fallocate(2) with `mode`: punching holes, zeroing ranges.
    pub fn fallocate(
        &self,
        file: &Fd,
        mode: i32,
        offset: u64,
        len: u64,
        tag: u64,
    ) -> Result<OpId, Refused<()>> {
        self.start(tag, Some(file), Kind::Allocate { mode, offset, len })
            .map_err(|refused| refused.map(|_| ()))
    }

    /// Waits once for readiness; `events` as in poll(2).
    pub fn poll(&self, fd: &Fd, events: i16, tag: u64) -> Result<OpId, Refused<()>> {
        let kind = Kind::Poll {
            events: u32::from(events.cast_unsigned()),
            multishot: false,
        };
        self.start(tag, Some(fd), kind)
            .map_err(|refused| refused.map(|_| ()))
    }

    /// A command that the file's driver defines (IORING_OP_URING_CMD): its number, and what it is told in the entry itself. It may wait for ever, and no
    /// cancel reaches it: whoever closes its owner does not wait for it, and it ends with the ring at the latest.
    pub fn command(
        &self,
        file: &Fd,
        code: u32,
        bytes: [u8; COMMAND_BYTES],
        tag: u64,
    ) -> Result<OpId, Refused<()>> {
        self.start(tag, Some(file), Kind::Command { code, bytes })
            .map_err(|refused| refused.map(|_| ()))
    }

    /// Arms a timer: an event with [`super::Payload::Timer`] at `at` or soon after.
    ///
    /// # Errors
    /// [`ReactorError::Full`] when `timers_max` are armed.
    pub fn timer(&self, at: Instant, tag: u64) -> Result<TimerId, ReactorError> {
        let mut core = self.ring.inner.core.borrow_mut();
        core.timers.arm(at, self.id, tag).ok_or(ReactorError::Full {
            what: "timers",
            limit: core.timers.limit(),
        })
    }

    fn start(&self, tag: u64, fd: Option<&Fd>, kind: Kind) -> Result<OpId, Refused<Kind>> {
        let mut core = self.ring.inner.core.borrow_mut();
        let limit = core.ops_max();
        core.start(self.id, tag, fd.cloned(), kind)
            .map_err(|resources| Refused {
                resources,
                what: "operations (ops_max)",
                limit,
            })
    }

    fn start_with_buf(&self, fd: &Fd, tag: u64, kind: Kind) -> Result<OpId, Refused<IoBuf>> {
        self.start(tag, Some(fd), kind).map_err(|refused| {
            refused.map(|kind| match kind {
                Kind::RecvInto { buf, .. }
                | Kind::RecvSome { buf }
                | Kind::Read { buf, .. }
                | Kind::Write { buf, .. } => buf,
                _ => IoBuf::empty(),
            })
        })
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.ring.inner.core.borrow_mut().close_owner(self.id);
    }
}
