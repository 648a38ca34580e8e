//! Frames that workers decode. A job owns everything that it works on, so that it ends well whatever becomes of the engine it came from.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use reactor::{Sender, WorkerQueue, Workers};
use telemetry::NamespaceRow;
use transforms::{BlockTimes, Scratch};
use volume::{FrameBuf, StoredFrame, Volume, VolumeError};

use crate::NamespaceKey;
use crate::chain_rows::ChainRows;
use crate::limits::{JOBS_MAX, WORKERS_MAX};

/// Threads that decode frames for the engines of a target. Dropped: they finish what they have, and are joined.
#[derive(Debug)]
pub struct FrameWorkers {
    workers: Workers<Box<Job>>,
}

/// Hands frames to the workers.
#[derive(Clone, Debug)]
pub struct FrameQueue(WorkerQueue<Box<Job>>);

impl FrameWorkers {
    /// `count` threads (at most [`WORKERS_MAX`]) for `reactors` engines: every job that these may have under way finds a place.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(count: usize, reactors: usize) -> std::io::Result<Self> {
        let capacity = reactors * JOBS_MAX;
        Self::with_capacity(count, capacity)
    }

    /// As [`FrameWorkers::start`], with a queue of `capacity` jobs.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn with_capacity(count: usize, capacity: usize) -> std::io::Result<Self> {
        let count = count.clamp(1, WORKERS_MAX);
        let workers = Workers::start(count, capacity, "worker", || {
            let mut scratch = Scratch::new();
            let mut assembly = Vec::new();
            move |mut job: Box<Job>| {
                job.run(&mut scratch, &mut assembly);
                job.answer();
            }
        })?;
        Ok(Self { workers })
    }

    /// Where engines hand over frames.
    #[must_use]
    pub fn queue(&self) -> FrameQueue {
        FrameQueue(self.workers.queue())
    }
}

impl FrameQueue {
    /// Threads that decode.
    pub(crate) fn workers(&self) -> usize {
        self.0.workers()
    }

    /// Hands a frame over; gives it back where the queue is full.
    pub(crate) fn push(&self, job: Box<Job>) -> Result<(), Box<Job>> {
        self.0.push(job).map_err(|full| full.0)
    }
}

/// One frame on its way through a worker; recycled.
#[derive(Debug)]
pub(crate) struct Job {
    answers: Sender<Box<Job>>,
    pub(crate) work: Option<Work>,
    /// The stored bytes, a copy of the engine's.
    pub(crate) stored: Vec<u8>,
}

/// What a job is about.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) key: NamespaceKey,
    pub(crate) nsid: u32,
    /// Where it is counted, by the engine when it has the job back.
    pub(crate) row: Arc<NamespaceRow>,
    pub(crate) chain: Option<Arc<ChainRows>>,
    pub(crate) volume: Volume,
    pub(crate) frame: StoredFrame,
    pub(crate) packed: FrameBuf,
    /// How long it took.
    pub(crate) busy_ns: u64,
    /// How much of it its block steps took.
    pub(crate) times: BlockTimes,
    pub(crate) result: Result<(), VolumeError>,
}

impl Job {
    /// A job that answers through `answers`, which has room for every job of its engine.
    pub(crate) fn new(answers: Sender<Box<Job>>) -> Box<Self> {
        Box::new(Self {
            answers,
            work: None,
            stored: Vec::new(),
        })
    }

    fn run(&mut self, scratch: &mut Scratch, assembly: &mut Vec<u8>) {
        let Some(work) = &mut self.work else {
            return;
        };
        let stored = [&self.stored[..]];
        let begun = Instant::now();
        // A request waits for the answer: even a decoder that panics, against its contract, must not keep it waiting for ever.
        let decoded = catch_unwind(AssertUnwindSafe(|| {
            work.frame.decode(
                &work.volume,
                &stored,
                work.frame.offset,
                scratch,
                assembly,
                work.packed.bytes(),
            )
        }));
        work.busy_ns = nanos_since(begun);
        work.times = scratch.times();
        work.result = match decoded {
            Ok(result) => result.map(|_| ()),
            Err(_) => Err(VolumeError::Usage("a decoder panicked")),
        };
    }

    fn answer(self: Box<Self>) {
        let answers = self.answers.clone();
        let mut job = self;
        // The channel holds as many jobs as the engine has, so the first try goes through.
        while let Err(reactor::Full(back)) = answers.send(job) {
            job = back;
            std::thread::yield_now();
        }
    }
}

/// Nanoseconds since a moment.
pub(super) fn nanos_since(begun: Instant) -> u64 {
    u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
