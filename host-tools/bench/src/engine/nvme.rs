//! One NVMe/TCP connection for one job.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use initiator::{Initiator, Nqn, Options, Pipeline, Url, Work};

use super::{Completion, Engine, Operation, Request};
use crate::error::Error;
use crate::offsets::Region;
use crate::spec::JobSpec;

/// How often the user's wish to end is looked at while a connection is made.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// A job's controller and queue.
pub struct NvmeTcp {
    pipeline: Pipeline,
}

/// Runs `work`, which may wait for a target that is silent, on a thread of its own, so that the user's wish to end is heeded. The thread is then left to its
/// timeouts, and to the end of the process.
///
/// # Errors
/// Those of `work`, or that `stop` was set.
pub fn unless_stopped<T: Send + 'static>(
    url: &Url,
    stop: &AtomicBool,
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let (done, outcome) = mpsc::sync_channel(1);
    let thread = thread::spawn(move || {
        // Where nobody waits any more, the outcome does not matter.
        let _ = done.send(work());
    });
    loop {
        match outcome.recv_timeout(LOOK_INTERVAL) {
            Ok(outcome) => return outcome,
            Err(RecvTimeoutError::Timeout) if stop.load(Ordering::Relaxed) => {
                return Err(Error::Interrupted {
                    target: url.to_string(),
                });
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    match thread.join() {
        Err(panic) => std::panic::resume_unwind(panic),
        Ok(()) => Err(initiator::Error::Closed {
            address: url.address(),
        }
        .into()),
    }
}

/// Connects with one I/O queue of the depth that is asked for.
pub fn connect(url: &Url, depth: u32, hostnqn: Option<&Nqn>) -> Result<Initiator, Error> {
    let options = Options {
        depth: u16::try_from(depth).unwrap_or(u16::MAX),
        ..Options::of_host(hostnqn)
    };
    Ok(Initiator::connect(&url.address(), &url.subnqn, &options)?)
}

impl NvmeTcp {
    /// Connects, and checks what `spec` wants against what the controller takes.
    ///
    /// # Errors
    /// No connection, no such namespace, or blocks that it does not take; or `stop` was set meanwhile.
    pub fn new(url: &Url, spec: &JobSpec, stop: &AtomicBool) -> Result<NvmeTcp, Error> {
        let (to, depth, hostnqn) = (url.clone(), spec.iodepth, spec.hostnqn.clone());
        let initiator = unless_stopped(url, stop, move || connect(&to, depth, hostnqn.as_ref()))?;
        let nsid = initiator.namespace_of(url)?.nsid.0;
        let depth_max = initiator.controller().io_queue_depth_max;
        if spec.iodepth > u32::from(depth_max) {
            let why = format!(
                "iodepth {} is above what the controller's queue takes, {depth_max}; give --iodepth {depth_max} or less, and more jobs with --numjobs",
                spec.iodepth
            );
            return Err(Error::job(&spec.name, why));
        }
        let depth = spec.iodepth as usize;
        let pipeline = Pipeline::new(initiator, nsid, depth, spec.bs_max() as usize)?;
        let lba_bytes = pipeline.namespace().lba_bytes;
        if !spec.bs_unit().is_multiple_of(lba_bytes) {
            let why = format!(
                "bs {} is no multiple of the namespace's block, {lba_bytes} bytes",
                spec.bs_unit()
            );
            return Err(Error::job(&spec.name, why));
        }
        let limit = pipeline.transfer_bytes_max();
        if spec.bs_max() > limit {
            let why = format!(
                "bs {} is above the controller's largest transfer, {limit} bytes",
                spec.bs_max()
            );
            return Err(Error::job(&spec.name, why));
        }
        Ok(NvmeTcp { pipeline })
    }
}

impl Engine for NvmeTcp {
    fn buffer(&mut self, slot: usize) -> &mut [u8] {
        self.pipeline.buffer(slot)
    }

    fn push(&mut self, request: &Request) -> Result<(), Error> {
        let (offset, len) = (request.offset, request.len);
        let work = match request.operation {
            Operation::Read => Work::Read { offset, len },
            Operation::Write => Work::Write { offset, len },
            Operation::Trim => Work::Deallocate { offset, len },
            Operation::Sync | Operation::DataSync => Work::Flush,
        };
        Ok(self.pipeline.submit(request.slot, work)?)
    }

    fn commit(&mut self) -> Result<(), Error> {
        Ok(self.pipeline.send()?)
    }

    fn reap(
        &mut self,
        min: usize,
        max: usize,
        until: Option<Instant>,
        completions: &mut Vec<Completion>,
    ) -> Result<(), Error> {
        for at in 0..max {
            // What is there beyond the minimum is taken, but not waited for.
            let until = if at < min {
                until
            } else {
                Some(Instant::now())
            };
            let Some(done) = self.pipeline.next(until)? else {
                break;
            };
            let result = if done.status.is_success() {
                Ok(u32::MAX)
            } else {
                Err(io::Error::other(done.status.to_string()))
            };
            completions.push(Completion {
                slot: done.token,
                result,
            });
        }
        Ok(())
    }

    fn drop_copies(&mut self, _part: Region) {
        // Nothing is kept on this side.
    }

    fn forget_copies(&mut self) -> Result<(), Error> {
        // Nothing is kept on this side.
        Ok(())
    }

    fn give_up(self: Box<Self>) {
        // Dropped, the connections are merely closed.
    }

    fn close(self: Box<Self>) -> Result<(), Error> {
        Ok(self.pipeline.shutdown()?)
    }
}
