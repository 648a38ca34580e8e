//! One io_uring for one job. Not the reactor's: a benchmark wants the bare ring, SQPOLL, and completions one by one.

mod buffers;
mod ring;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::time::{Duration, Instant};

use nix::errno::Errno;

use super::{Completion, Engine, Operation, Request};
use crate::error::Error;
use crate::limits;
use crate::offsets::Region;
use crate::spec::JobSpec;
use crate::system;
use ring::Ring;

/// A job's ring, file and buffers.
pub struct Uring {
    // Before the file: it waits for what is outstanding.
    ring: Ring,
    file: File,
    is_device: bool,
    /// Of commands that are carried out without the ring: discards of a device.
    done: Vec<Completion>,
}

impl Uring {
    /// Sets the ring up as `spec` says.
    ///
    /// # Errors
    /// The system has no io_uring, forbids it, or cannot pin the buffers.
    pub fn new(file: File, spec: &JobSpec) -> Result<Uring, Error> {
        let metadata = file
            .metadata()
            .map_err(|source| failed("looking at the file", source))?;
        Ok(Uring {
            ring: Ring::new(&file, spec)?,
            file,
            is_device: metadata.file_type().is_block_device(),
            done: Vec::with_capacity(spec.iodepth as usize),
        })
    }

    fn discard(&mut self, request: &Request) {
        let result = system::discard(&self.file, request.offset, u64::from(request.len));
        self.done.push(Completion {
            slot: request.slot,
            result: result.map(|()| request.len),
        });
    }
}

impl Engine for Uring {
    fn buffer(&mut self, slot: usize) -> &mut [u8] {
        self.ring.buffer(slot)
    }

    fn push(&mut self, request: &Request) -> Result<(), Error> {
        if request.operation == Operation::Trim && self.is_device {
            self.discard(request);
            return Ok(());
        }
        self.ring.push(request)
    }

    fn commit(&mut self) -> Result<(), Error> {
        self.ring.commit()
    }

    fn reap(
        &mut self,
        min: usize,
        max: usize,
        until: Option<Instant>,
        completions: &mut Vec<Completion>,
    ) -> Result<(), Error> {
        if !self.done.is_empty() {
            completions.append(&mut self.done);
            return Ok(());
        }
        self.ring.reap(min, max, until, completions)
    }

    fn drop_copies(&mut self, part: Region) {
        system::drop_copies(&self.file, part);
    }

    fn forget_copies(&mut self) -> Result<(), Error> {
        system::forget_copies(&self.file)
            .map_err(|source| failed("making durable what was written", source))
    }

    fn silence_max(&self, interrupted: bool) -> Option<Duration> {
        // The kernel has timeouts of its own, and a disk that is busy writing may be slow: only the user knows better.
        interrupted.then_some(limits::SILENCE_MAX)
    }

    fn give_up(self: Box<Self>) {
        // The ring's end would wait. Until the process ends the kernel may use the buffers, which therefore stay.
        std::mem::forget(self);
    }

    fn close(self: Box<Self>) -> Result<(), Error> {
        Ok(())
    }
}

/// An error of the ring, with what mends it where that is known.
fn failed(action: &'static str, source: io::Error) -> Error {
    let hint = match source.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ENOSYS) => "; this kernel has no io_uring",
        Some(Errno::EPERM) => {
            "; io_uring is forbidden here (kernel.io_uring_disabled, or a container's seccomp profile)"
        }
        Some(Errno::ENOMEM) => {
            "; the memory that may be locked does not suffice: `ulimit -l unlimited`, less --iodepth or --bs, or no --fixedbufs"
        }
        _ => "",
    };
    Error::Ring {
        action,
        source,
        hint,
    }
}
