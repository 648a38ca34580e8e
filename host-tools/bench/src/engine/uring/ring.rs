//! The ring itself: entries made, submitted and reaped. What is unsafe about it: the kernel reads and writes the buffers while a command
//! is outstanding. So a slot's buffer is handed out only without one, and the ring ends before the memory does.

use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use io_uring::{IoUring, opcode, squeue, types};
use nix::errno::Errno;
use nix::libc;

use super::buffers::Buffers;
use super::failed;
use crate::engine::{Completion, Operation, Request};
use crate::error::Error;
use crate::spec::JobSpec;

/// How long the kernel's polling thread goes on without work before it sleeps.
const SQPOLL_IDLE_MS: u32 = 1000;
const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;

pub struct Ring {
    /// Both are dropped in `drop`, the ring first, once no command is outstanding.
    uring: ManuallyDrop<IoUring>,
    buffers: ManuallyDrop<Buffers>,
    file: types::Fd,
    flags: squeue::Flags,
    fixed: bool,
    polled: bool,
    /// By slot, whether the kernel has a command with its buffer.
    busy: Vec<bool>,
}

impl Ring {
    /// For `file`, which must be kept open as long as the ring.
    pub fn new(file: &File, spec: &JobSpec) -> Result<Ring, Error> {
        let slots = spec.iodepth as usize;
        let uring = set_up(spec).map_err(|source| failed("setting a ring up", source))?;
        let mut ring = Ring {
            uring: ManuallyDrop::new(uring),
            buffers: ManuallyDrop::new(Buffers::new(slots, spec.bs_max() as usize)),
            file: types::Fd(file.as_raw_fd()),
            flags: squeue::Flags::empty(),
            fixed: spec.fixedbufs,
            polled: spec.sqpoll,
            busy: vec![false; slots],
        };
        if spec.registerfiles {
            let registered = ring.uring.submitter().register_files(&[ring.file.0]);
            registered.map_err(|source| failed("registering the file", source))?;
            // From here on the number is an index into what was registered.
            ring.file = types::Fd(0);
            ring.flags = squeue::Flags::FIXED_FILE;
        }
        if spec.fixedbufs {
            let vectors = ring.buffers.vectors();
            // SAFETY: the vectors name memory of `buffers`, which outlives the ring (see `drop`).
            unsafe { ring.uring.submitter().register_buffers(&vectors) }
                .map_err(|source| failed("registering the buffers", source))?;
        }
        Ok(ring)
    }

    /// The buffer of a slot without a command; nothing for a slot that has one.
    pub fn buffer(&mut self, slot: usize) -> &mut [u8] {
        if self.busy.get(slot) != Some(&false) {
            return &mut [];
        }
        // SAFETY: no command is outstanding on this slot.
        unsafe { self.buffers.bytes(slot) }
    }

    pub fn push(&mut self, request: &Request) -> Result<(), Error> {
        let end = u64::from(request.skip) + u64::from(request.len);
        let fits = end <= self.buffers.slot_bytes() as u64;
        if !fits || self.busy.get(request.slot) != Some(&false) {
            return Err(failed(
                "taking a command",
                io::ErrorKind::InvalidInput.into(),
            ));
        }
        let entry = entry(&self.buffers, self.file, self.fixed, request)
            .flags(self.flags)
            .user_data(request.slot as u64);
        // SAFETY: the entry names the file, which the owner keeps open, and the slot's own buffer within its bounds. That stays in place
        // and nobody else's until the command is complete: `busy` says so to `buffer`, and `drop` waits.
        while unsafe { self.uring.submission().push(&entry) }.is_err() {
            self.wait_for_entry()?;
        }
        if let Some(busy) = self.busy.get_mut(request.slot) {
            *busy = true;
        }
        Ok(())
    }

    /// Returns when an entry of the submission queue may be free. There are as many as slots, but the kernel's thread, which takes several at a time,
    /// may have ended a command before it says that it has taken its entry.
    fn wait_for_entry(&mut self) -> Result<(), Error> {
        let doing = "queueing a command";
        if !self.polled {
            return Err(failed(doing, io::ErrorKind::WouldBlock.into()));
        }
        // A thread that sleeps takes nothing.
        self.commit()?;
        match self.uring.submitter().squeue_wait() {
            Err(error) if !is_passing(&error) => Err(failed(doing, error)),
            _ => Ok(()),
        }
    }

    /// Tells the kernel of what was pushed.
    pub fn commit(&mut self) -> Result<(), Error> {
        loop {
            match self.uring.submit() {
                Ok(_) => return Ok(()),
                Err(error) if is_passing(&error) => {}
                Err(source) => return Err(failed("submitting", source)),
            }
        }
    }

    pub fn reap(
        &mut self,
        min: usize,
        max: usize,
        until: Option<Instant>,
        completions: &mut Vec<Completion>,
    ) -> Result<(), Error> {
        let before = completions.len();
        loop {
            self.take(max - (completions.len() - before), completions);
            let missing = min.saturating_sub(completions.len() - before);
            if missing == 0 {
                return Ok(());
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Ok(());
            }
            if self.polled {
                // The kernel's thread fills the ring without being asked.
                std::hint::spin_loop();
                continue;
            }
            match self.wait(missing, left) {
                Err(error) if error.raw_os_error() == Some(Errno::ETIME as i32) => {}
                Err(error) if !is_passing(&error) => return Err(failed("waiting", error)),
                _ => {}
            }
        }
    }

    fn wait(&self, count: usize, left: Option<Duration>) -> io::Result<usize> {
        let Some(left) = left else {
            return self.uring.submit_and_wait(count);
        };
        let timeout = types::Timespec::from(left);
        let arguments = types::SubmitArgs::new().timespec(&timeout);
        self.uring.submitter().submit_with_args(count, &arguments)
    }

    fn take(&mut self, max: usize, completions: &mut Vec<Completion>) {
        for entry in self.uring.completion().take(max) {
            let slot = usize::try_from(entry.user_data()).unwrap_or(usize::MAX);
            if let Some(busy) = self.busy.get_mut(slot) {
                *busy = false;
            }
            let result = u32::try_from(entry.result())
                .map_err(|_| io::Error::from_raw_os_error(entry.result().saturating_neg()));
            completions.push(Completion { slot, result });
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let mut completions = Vec::new();
        while self.busy.contains(&true) {
            completions.clear();
            if self.reap(1, usize::MAX, None, &mut completions).is_err() {
                // The kernel may still use the memory: neither it nor the ring can go.
                return;
            }
        }
        // SAFETY: neither is used again, and no command is outstanding. The ring goes first, since it may have the buffers registered.
        unsafe {
            ManuallyDrop::drop(&mut self.uring);
            ManuallyDrop::drop(&mut self.buffers);
        }
    }
}

/// With what newer kernels offer to a ring of one thread, as fio does; without, where they refuse.
fn set_up(spec: &JobSpec) -> io::Result<IoUring> {
    if spec.sqpoll {
        return IoUring::builder()
            .setup_sqpoll(SQPOLL_IDLE_MS)
            .build(spec.iodepth);
    }
    // Completions are worked off when they are waited for (6.1), or with the next system call (5.19), or they interrupt.
    IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .build(spec.iodepth)
        .or_else(|_| IoUring::builder().setup_coop_taskrun().build(spec.iodepth))
        .or_else(|_| IoUring::builder().build(spec.iodepth))
}

fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error().map(Errno::from_raw),
        Some(Errno::EINTR | Errno::EAGAIN | Errno::EBUSY)
    )
}

fn entry(buffers: &Buffers, file: types::Fd, fixed: bool, request: &Request) -> squeue::Entry {
    let (len, offset) = (request.len, request.offset);
    let index = u16::try_from(request.slot).unwrap_or(0);
    let buffer = buffers
        .address(request.slot)
        .wrapping_add(request.skip as usize);
    match (request.operation, fixed) {
        (Operation::Read, false) => opcode::Read::new(file, buffer, len).offset(offset).build(),
        (Operation::Read, true) => opcode::ReadFixed::new(file, buffer, len, index)
            .offset(offset)
            .build(),
        (Operation::Write, false) => opcode::Write::new(file, buffer, len).offset(offset).build(),
        (Operation::Write, true) => opcode::WriteFixed::new(file, buffer, len, index)
            .offset(offset)
            .build(),
        (Operation::Trim, _) => opcode::Fallocate::new(file, u64::from(len))
            .offset(offset)
            .mode(PUNCH)
            .build(),
        (Operation::Sync, _) => opcode::Fsync::new(file).build(),
        (Operation::DataSync, _) => opcode::Fsync::new(file)
            .flags(types::FsyncFlags::DATASYNC)
            .build(),
    }
}
