//! What is in flight: a fixed table of operations, each owning what the kernel may touch.

use std::os::fd::AsRawFd;
use std::sync::Arc;

use io_uring::{opcode, squeue, types};
use nix::libc;

use super::recv::{GROUP, RecvPool};
use super::{COMMAND_BYTES, Fd, OpId, Outcome, OwnerId, SendBatch};
use crate::buf::{IoBuf, Mapping};
use crate::config::OP_SEGMENTS_MAX;
use crate::error::ReactorError;
use crate::wake::WakeState;

/// What an operation does, and what it holds meanwhile.
#[derive(Debug)]
pub(super) enum Kind {
    Accept {
        multishot: bool,
    },
    /// The kernel picks the buffer.
    Recv {
        multishot: bool,
    },
    /// Waits for data, to take a buffer then.
    RecvReady,
    /// The operation holds buffer `id`.
    RecvOwned {
        id: u16,
    },
    /// Fills `buf` completely.
    RecvInto {
        buf: IoBuf,
        done: usize,
    },
    /// Takes what is there into `buf`.
    RecvSome {
        buf: IoBuf,
    },
    Send {
        batch: SendBatch,
        zero_copy: bool,
        /// Zero copy: notices that the kernel still owes us; until then it may read the memory.
        notices: u32,
        /// Zero copy: how it ended, while notices are owed.
        outcome: Option<Outcome>,
    },
    Read {
        buf: IoBuf,
        offset: u64,
    },
    Write {
        buf: IoBuf,
        offset: u64,
        durable: bool,
    },
    Fsync {
        data_only: bool,
    },
    Allocate {
        mode: i32,
        offset: u64,
        len: u64,
    },
    Poll {
        events: u32,
        multishot: bool,
    },
    /// The kernel copies the bytes when it takes the entry: it touches no memory of ours afterwards.
    Command {
        code: u32,
        bytes: [u8; COMMAND_BYTES],
    },
    Message {
        to: Arc<WakeState>,
    },
}

/// Headers and segment lists as the kernel reads them. They live in a mapping of their own, reached by raw pointers only.
#[repr(C)]
struct KernelArgs {
    msg: libc::msghdr,
    iov: [libc::iovec; OP_SEGMENTS_MAX],
}

#[derive(Debug)]
pub(super) struct Op {
    pub(super) owner: OwnerId,
    pub(super) tag: u64,
    pub(super) fd: Option<Fd>,
    pub(super) kind: Kind,
    pub(super) cancelled: bool,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    op: Option<Op>,
}

#[derive(Debug)]
pub(super) struct Ops {
    slots: Box<[Slot]>,
    free: Vec<u32>,
    args: Mapping,
}

impl Kind {
    /// Whether whoever closes its owner waits for it: not for what touches no memory, and may never end.
    pub(super) fn is_awaited(&self) -> bool {
        !matches!(self, Self::Command { .. })
    }
}

impl Ops {
    pub(super) fn new(limit: u32) -> Result<Self, ReactorError> {
        Ok(Self {
            slots: (0..limit)
                .map(|_| Slot {
                    generation: 0,
                    op: None,
                })
                .collect(),
            free: (0..limit).rev().collect(),
            args: Mapping::new(limit as usize * size_of::<KernelArgs>())?,
        })
    }

    /// Puts an operation in; gives it back if the table is full.
    pub(super) fn insert(&mut self, op: Op) -> Result<OpId, Op> {
        let Some(index) = self.free.pop() else {
            return Err(op);
        };
        let slot = &mut self.slots[index as usize];
        slot.op = Some(op);
        Ok(OpId {
            index,
            generation: slot.generation,
        })
    }

    pub(super) fn get_mut(&mut self, id: OpId) -> Option<&mut Op> {
        self.slots
            .get_mut(id.index as usize)
            .filter(|slot| slot.generation == id.generation)?
            .op
            .as_mut()
    }

    pub(super) fn remove(&mut self, id: OpId) -> Option<Op> {
        let slot = self
            .slots
            .get_mut(id.index as usize)
            .filter(|slot| slot.generation == id.generation)?;
        let op = slot.op.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(id.index);
        Some(op)
    }

    /// The operation in slot `index`, if it is `owner`'s.
    pub(super) fn of_owner(&self, owner: OwnerId, index: u32) -> Option<OpId> {
        let slot = self.slots.get(index as usize)?;
        slot.op
            .as_ref()
            .filter(|op| op.owner == owner)
            .map(|_| OpId {
                index,
                generation: slot.generation,
            })
    }

    /// Builds the submission entry of an operation for what is left of it.
    pub(super) fn entry(
        &mut self,
        id: OpId,
        recv: &RecvPool,
        ring_id: u64,
    ) -> Option<squeue::Entry> {
        let args = self
            .args
            .base()
            .as_ptr()
            .cast::<KernelArgs>()
            .wrapping_add(id.index as usize);
        let op = self.get_mut(id)?;
        // No registered buffer has this ring's number.
        let is_plain = op.fd.as_ref().is_some_and(Fd::is_plain);
        let ring_id = if is_plain { NO_RING } else { ring_id };
        let fd = types::Fd(op.fd.as_ref().map_or(-1, |fd| fd.as_raw_fd()));
        let entry = match &mut op.kind {
            Kind::Accept { multishot: true } => opcode::AcceptMulti::new(fd)
                .flags(libc::SOCK_CLOEXEC)
                .build(),
            Kind::Accept { multishot: false } => {
                opcode::Accept::new(fd, std::ptr::null_mut(), std::ptr::null_mut())
                    .flags(libc::SOCK_CLOEXEC)
                    .build()
            }
            Kind::Recv { multishot: true } => opcode::RecvMulti::new(fd, GROUP).build(),
            Kind::Recv { multishot: false } => {
                opcode::Recv::new(fd, std::ptr::null_mut(), recv.buffer_bytes())
                    .buf_group(GROUP)
                    .build()
                    .flags(squeue::Flags::BUFFER_SELECT)
            }
            Kind::RecvReady => opcode::PollAdd::new(fd, READABLE).build(),
            Kind::RecvOwned { id } => {
                opcode::Recv::new(fd, recv.pointer(*id), recv.buffer_bytes()).build()
            }
            Kind::RecvInto { buf, done } => {
                let count = gather(args, buf, *done);
                opcode::RecvMsg::new(fd, message(args, None, count))
                    .flags(FILL)
                    .build()
            }
            Kind::RecvSome { buf } => {
                let count = gather(args, buf, 0);
                opcode::RecvMsg::new(fd, message(args, None, count)).build()
            }
            Kind::Send {
                batch, zero_copy, ..
            } => {
                let (iov, count) = batch.pieces();
                let msg = message(args, Some(iov), count);
                let flags = NO_SIGNAL | FILL;
                if *zero_copy {
                    opcode::SendMsgZc::new(fd, msg).flags(flags).build()
                } else {
                    opcode::SendMsg::new(fd, msg).flags(flags).build()
                }
            }
            Kind::Read { buf, offset } => read_entry(fd, args, buf, *offset, ring_id),
            Kind::Write {
                buf,
                offset,
                durable,
            } => write_entry(fd, args, buf, *offset, *durable, ring_id),
            Kind::Fsync { data_only } => {
                let flags = if *data_only {
                    types::FsyncFlags::DATASYNC
                } else {
                    types::FsyncFlags::empty()
                };
                opcode::Fsync::new(fd).flags(flags).build()
            }
            Kind::Allocate { mode, offset, len } => opcode::Fallocate::new(fd, *len)
                .offset(*offset)
                .mode(*mode)
                .build(),
            Kind::Poll { events, multishot } => {
                opcode::PollAdd::new(fd, *events).multi(*multishot).build()
            }
            Kind::Command { code, bytes } => opcode::UringCmd16::new(fd, *code).cmd(*bytes).build(),
            Kind::Message { to } => {
                opcode::MsgRingData::new(types::Fd(to.ring_fd()), 0, super::core::WAKE_TOKEN, None)
                    .build()
            }
        };
        let entry = match op.kind {
            Kind::Read { .. } | Kind::Write { .. } if op.fd.as_ref().is_some_and(Fd::is_apart) => {
                entry.flags(squeue::Flags::ASYNC)
            }
            _ => entry,
        };
        Some(entry.user_data(id.to_user_data()))
    }
}

/// Rings are numbered from 1.
const NO_RING: u64 = 0;
/// Receive: wait for the whole buffer. Send: the kernel continues short sends itself where it can.
const FILL: u32 = libc::MSG_WAITALL.cast_unsigned();
/// What a receive waits for.
const READABLE: u32 = libc::POLLIN.cast_unsigned() as u32;
/// A peer that is gone is an error of the operation, not a signal to the process.
const NO_SIGNAL: u32 = libc::MSG_NOSIGNAL.cast_unsigned();

/// Writes the segment list of `buf` from `skip` on; returns its length (at most [`OP_SEGMENTS_MAX`], the rest is continued).
fn gather(args: *mut KernelArgs, buf: &IoBuf, skip: usize) -> usize {
    let mut count = 0;
    for (ptr, len) in buf.raw_segments(skip, usize::MAX).take(OP_SEGMENTS_MAX) {
        // SAFETY: `args` points at this operation's slot in the args mapping, which no reference covers and the kernel does not read
        // before submission; count < OP_SEGMENTS_MAX.
        unsafe {
            (&raw mut (*args).iov[count]).write(libc::iovec {
                iov_base: ptr.cast(),
                iov_len: len,
            })
        };
        count += 1;
    }
    count
}

/// Writes the message header over `count` pieces at `iov` (the slot's own list if `None`).
fn message(
    args: *mut KernelArgs,
    iov: Option<*mut libc::iovec>,
    count: usize,
) -> *mut libc::msghdr {
    // SAFETY: as in gather; all-zero is a valid msghdr (no name, no control data).
    unsafe {
        let msg = &raw mut (*args).msg;
        msg.write(std::mem::zeroed());
        (*msg).msg_iov = iov.unwrap_or((&raw mut (*args).iov).cast());
        (*msg).msg_iovlen = count;
        msg
    }
}

fn read_entry(
    fd: types::Fd,
    args: *mut KernelArgs,
    buf: &IoBuf,
    offset: u64,
    ring_id: u64,
) -> squeue::Entry {
    match buf.single() {
        Some(one) => {
            let (ptr, len) = (one.ptr().as_ptr(), segment_bytes(one.len()));
            match one.fixed_index(ring_id) {
                Some(index) => opcode::ReadFixed::new(fd, ptr, len, index)
                    .offset(offset)
                    .build(),
                None => opcode::Read::new(fd, ptr, len).offset(offset).build(),
            }
        }
        None => {
            let count = gather(args, buf, 0);
            opcode::Readv::new(fd, list(args), segment_count(count))
                .offset(offset)
                .build()
        }
    }
}

fn write_entry(
    fd: types::Fd,
    args: *mut KernelArgs,
    buf: &IoBuf,
    offset: u64,
    durable: bool,
    ring_id: u64,
) -> squeue::Entry {
    let flags = if durable { libc::RWF_DSYNC } else { 0 };
    match buf.single() {
        Some(one) => {
            let (ptr, len) = (one.ptr().as_ptr().cast_const(), segment_bytes(one.len()));
            match one.fixed_index(ring_id) {
                Some(index) => opcode::WriteFixed::new(fd, ptr, len, index)
                    .offset(offset)
                    .rw_flags(flags)
                    .build(),
                None => opcode::Write::new(fd, ptr, len)
                    .offset(offset)
                    .rw_flags(flags)
                    .build(),
            }
        }
        None => {
            let count = gather(args, buf, 0);
            opcode::Writev::new(fd, list(args), segment_count(count))
                .offset(offset)
                .rw_flags(flags)
                .build()
        }
    }
}

fn list(args: *mut KernelArgs) -> *const libc::iovec {
    // SAFETY: only the address is taken.
    unsafe { (&raw const (*args).iov).cast() }
}

/// A segment's length is a u32 by construction.
fn segment_bytes(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// At most [`OP_SEGMENTS_MAX`].
fn segment_count(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Opcode, and the 32 bits at byte 28 (linux/io_uring.h, struct io_uring_sqe: rw_flags, fsync_flags).
    fn opcode_and_flags(entry: &squeue::Entry) -> (u8, u32) {
        const { assert!(size_of::<squeue::Entry>() == 64) };
        let at = std::ptr::from_ref(entry).cast::<u8>();
        // SAFETY: an entry is the kernel's 64 bytes, aligned to 8.
        unsafe { (at.read(), at.add(28).cast::<u32>().read()) }
    }

    /// What the kernel is asked for is a durable write (RWF_DSYNC), and fdatasync, in each form that a write takes.
    #[test]
    fn durable_writes_and_flushes_say_so_to_the_kernel() {
        let (write, writev, fsync) = (23, 2, 3);
        let mut ops = Ops::new(1).unwrap();
        let uring = io_uring::IoUring::new(2).unwrap();
        let recv = RecvPool::new(&crate::RingConfig::default(), &uring, false).unwrap();
        let mut entry = |kind| {
            let op = Op {
                owner: OwnerId {
                    index: 0,
                    generation: 0,
                },
                tag: 0,
                fd: None,
                kind,
                cancelled: false,
            };
            let id = ops.insert(op).unwrap();
            let entry = ops.entry(id, &recv, 0).unwrap();
            ops.remove(id);
            opcode_and_flags(&entry)
        };
        let one = IoBuf::heap(512).unwrap();
        let mut two = IoBuf::heap(512).unwrap();
        two.append(IoBuf::heap(512).unwrap());
        for (buf, opcode) in [(one, write), (two, writev)] {
            for (durable, flags) in [(true, 0x2), (false, 0)] {
                let kind = Kind::Write {
                    buf: buf.clone(),
                    offset: 0,
                    durable,
                };
                assert_eq!(entry(kind), (opcode, flags));
            }
        }
        // IORING_OP_URING_CMD.
        let command = Kind::Command {
            code: 7,
            bytes: [0; COMMAND_BYTES],
        };
        assert_eq!(entry(command).0, 46);
        // IORING_FSYNC_DATASYNC.
        assert_eq!(entry(Kind::Fsync { data_only: true }), (fsync, 1));
        assert_eq!(entry(Kind::Fsync { data_only: false }), (fsync, 0));
    }
}
