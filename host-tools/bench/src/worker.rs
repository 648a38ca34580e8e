//! One job's loop: as many commands outstanding as its depth, each completion counted, checked and replaced.

mod plan;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::engine::{Completion, Engine, Operation, Request};
use crate::error::Error;
use crate::limits;
use crate::offsets::Region;
use crate::random::Random;
use crate::spec::{Direction, JobSpec, Verify};
use crate::stats::{self, Live, SAMPLE_INTERVAL_NS, SAMPLES_ROOM, Stats};
use crate::system::Usage;
use crate::verify::{self, Identity, Written};
use plan::{Plan, Planned, Step};

/// What a job works with.
pub struct Task<'a> {
    /// Its options.
    pub spec: &'a JobSpec,
    /// Its part of the target.
    pub region: Region,
    /// Its own seed, for places and sizes; headers carry the option's.
    pub seed: u64,
    /// What it tells while it runs.
    pub live: &'a Live,
    /// Set when the user wants an end.
    pub stop: &'a AtomicBool,
}

/// What a slot is doing.
#[derive(Clone, Copy)]
struct Flight {
    request: Request,
    planned: Planned,
    started_ns: u64,
    issued_ns: u64,
}

/// The longest wait before the user's wish to end is looked at.
const NAP_MAX: Duration = Duration::from_millis(100);

struct Worker<'a> {
    task: Task<'a>,
    engine: Box<dyn Engine + 'a>,
    clock: Instant,
    flights: Vec<Option<Flight>>,
    free: Vec<usize>,
    /// Pushed, but not committed yet.
    queued: Vec<usize>,
    completions: Vec<Completion>,
    stats: Stats,
    /// Warm-up is over since then.
    measured_from_ns: Option<u64>,
    next_sample_ns: u64,
    /// When the last completion came.
    heard_ns: u64,
    /// When nothing more was to be started.
    ended_ns: Option<u64>,
    written: Option<Written>,
    error: Option<Error>,
}

/// Runs a job to its end.
///
/// # Errors
/// What ended it before its time, or what its verification found, beside what was measured until then.
pub fn run(task: Task<'_>, engine: Box<dyn Engine + '_>) -> (Stats, Option<Error>) {
    match Worker::new(task, engine) {
        Ok(worker) => worker.run(),
        Err(error) => (Stats::default(), Some(error)),
    }
}

impl<'a> Worker<'a> {
    fn new(task: Task<'a>, engine: Box<dyn Engine + 'a>) -> Result<Worker<'a>, Error> {
        let spec = task.spec;
        let depth = spec.iodepth as usize;
        let mut written = None;
        if spec.verify != Verify::None && spec.rw.does(Direction::Write) {
            let unit = spec.bs_unit();
            let units = task.region.bytes / u64::from(unit.max(1));
            written = Some(
                Written::new(task.region.offset, unit, units).ok_or_else(|| {
                    Error::job(
                        &spec.name,
                        "too many blocks to verify; give a smaller size or a larger bs",
                    )
                })?,
            );
        }
        let mut stats = Stats::default();
        stats.samples.reserve(SAMPLES_ROOM);
        Ok(Worker {
            task,
            engine,
            clock: Instant::now(),
            flights: vec![None; depth],
            free: (0..depth).rev().collect(),
            queued: Vec::with_capacity(depth),
            completions: Vec::with_capacity(depth),
            stats,
            measured_from_ns: None,
            next_sample_ns: 0,
            heard_ns: 0,
            ended_ns: None,
            written,
            error: None,
        })
    }

    fn run(mut self) -> (Stats, Option<Error>) {
        let before = Usage::of_thread();
        let mut usage_from = before;
        let mut outcome = self.work(&mut usage_from);
        if outcome.is_ok() {
            outcome = self.end();
        }
        let end_ns = self.measured_until_ns();
        let from_ns = self.measured_from_ns.unwrap_or(0);
        self.stats.elapsed_ns = end_ns.saturating_sub(from_ns);
        self.stats.sample(self.stats.elapsed_ns);
        self.stats.usage = Usage::of_thread().since(usage_from);
        let closed = match outcome {
            Err(Error::Unanswered { .. }) => {
                self.engine.give_up();
                Ok(())
            }
            _ => self.engine.close(),
        };
        (self.stats, outcome.and(closed).err().or(self.error))
    }

    fn work(&mut self, usage_from: &mut Usage) -> Result<(), Error> {
        let spec = self.task.spec;
        self.fill_buffers();
        let mut plan = Plan::new(&self.task)?;
        self.clock = Instant::now();
        if spec.ramp_time.is_zero() {
            self.measure_from(0);
        }
        let outcome = self.carry_out(&mut plan, usage_from);
        // Also of a job that fails: what it did before took this time.
        let from_ns = self.measured_from_ns.unwrap_or(0);
        let ran_ns = self.measured_until_ns().saturating_sub(from_ns);
        for direction in Direction::ALL {
            if spec.rw.does(direction) {
                self.stats.direction_mut(direction).runtime_ns = ran_ns;
            }
        }
        outcome
    }

    fn carry_out(&mut self, plan: &mut Plan<'_>, usage_from: &mut Usage) -> Result<(), Error> {
        let spec = self.task.spec;
        loop {
            if self.measured_from_ns.is_none() {
                let now_ns = self.now_ns();
                if u128::from(now_ns) >= spec.ramp_time.as_nanos() {
                    self.measure_from(now_ns);
                    *usage_from = Usage::of_thread();
                }
            }
            if self.is_stopped() || plan.is_over(self.now_ns()) {
                plan.finish();
                return self.drain();
            }
            match self.issue(plan)? {
                Step::Finished => return self.drain(),
                Step::Drain => self.reap(self.outstanding(), usize::MAX, self.nap(plan))?,
                Step::Wait(due_ns) => self.wait(due_ns)?,
                Step::Full | Step::Issue(_) => self.reap(
                    spec.iodepth_batch_complete_min as usize,
                    spec.complete_max() as usize,
                    self.nap(plan),
                )?,
            }
        }
    }

    /// Waits for what is outstanding, since nothing more is to be started. A target that says nothing is not waited for.
    fn drain(&mut self) -> Result<(), Error> {
        let ended_ns = self.now_ns();
        self.ended_ns = Some(ended_ns);
        while !self.is_idle() {
            let interrupted = self.is_stopped();
            let silence_max = self.engine.silence_max(interrupted);
            let silence = silence_max.unwrap_or(limits::SILENCE_MAX);
            let until = Instant::now() + silence.min(NAP_MAX);
            self.reap(self.outstanding(), usize::MAX, until)?;
            let silent_ns = self.now_ns().saturating_sub(ended_ns.max(self.heard_ns));
            let is_silent = u128::from(silent_ns) >= silence.as_nanos() && !self.is_idle();
            if is_silent && silence_max.is_some() {
                return Err(Error::Unanswered {
                    count: self.outstanding(),
                    silence,
                    interrupted,
                });
            }
            let waited_for = if is_silent { self.outstanding() } else { 0 };
            self.task.live.waits_for(waited_for as u64);
        }
        self.ended_ns = None;
        Ok(())
    }

    /// As long as a wait for completions may take before the job's end and the user's wish are looked at again.
    fn nap(&self, plan: &Plan<'_>) -> Instant {
        let left = plan.left(self.now_ns());
        Instant::now() + left.map_or(NAP_MAX, |left| left.min(NAP_MAX))
    }

    fn is_stopped(&self) -> bool {
        self.task.stop.load(Ordering::Relaxed)
    }

    /// Now; but the time in which a silent target was waited for in vain is not measured.
    fn measured_until_ns(&self) -> u64 {
        let in_vain = self.ended_ns.filter(|_| !self.is_idle());
        in_vain.map_or_else(|| self.now_ns(), |ended_ns| ended_ns.max(self.heard_ns))
    }

    /// After the last command: what makes it durable, and the reading back.
    fn end(&mut self) -> Result<(), Error> {
        let spec = self.task.spec;
        if spec.end_fsync && spec.rw.changes() {
            let now_ns = self.now_ns();
            self.start(Planned::sync(Operation::Sync), now_ns)?;
            self.commit()?;
            self.settle()?;
        }
        if self.written.is_some() && spec.do_verify && !self.is_stopped() {
            // What is read must come from the medium, and not from where the system keeps a copy of what was written.
            self.engine.forget_copies()?;
            let from_ns = self.now_ns();
            let outcome = self.read_back();
            let ran_ns = self.now_ns().saturating_sub(from_ns);
            self.stats.direction_mut(Direction::Read).runtime_ns += ran_ns;
            outcome?;
        }
        Ok(())
    }

    /// Reads every block that was written and is still whole, in order of place.
    fn read_back(&mut self) -> Result<(), Error> {
        let mut at = self.task.region.offset;
        loop {
            if self.is_stopped() {
                return self.drain();
            }
            while !self.free.is_empty() {
                let next = self
                    .written
                    .as_ref()
                    .and_then(|written| written.next_from(at));
                let Some((offset, len, generation)) = next else {
                    break;
                };
                at = offset + u64::from(len);
                let now_ns = self.now_ns();
                self.start(Planned::read_back(offset, len, generation), now_ns)?;
            }
            if self.is_idle() {
                return Ok(());
            }
            self.commit()?;
            self.reap(1, usize::MAX, Instant::now() + NAP_MAX)?;
        }
    }

    /// Waits for what is outstanding as long as it takes, or until the user wants an end.
    fn settle(&mut self) -> Result<(), Error> {
        while !self.is_idle() {
            if self.is_stopped() {
                return self.drain();
            }
            self.reap(self.outstanding(), usize::MAX, Instant::now() + NAP_MAX)?;
        }
        Ok(())
    }

    /// Starts commands until all slots are taken, or the plan says otherwise. Its last word is returned.
    fn issue(&mut self, plan: &mut Plan<'_>) -> Result<Step, Error> {
        let batch = self.task.spec.iodepth_batch as usize;
        while !self.free.is_empty() {
            let now_ns = self.now_ns();
            let step = plan.next(now_ns, self.outstanding());
            let Step::Issue(planned) = step else {
                self.commit()?;
                return Ok(step);
            };
            if planned.drops_copies {
                self.engine.drop_copies(self.task.region);
            }
            self.start(planned, now_ns)?;
            if self.queued.len() >= batch {
                self.commit()?;
            }
        }
        self.commit()?;
        Ok(Step::Full)
    }

    fn start(&mut self, planned: Planned, now_ns: u64) -> Result<(), Error> {
        let Some(slot) = self.free.pop() else {
            return Ok(());
        };
        let request = Request {
            operation: planned.operation,
            slot,
            offset: planned.offset,
            len: planned.len,
            skip: 0,
        };
        if planned.operation == Operation::Write {
            self.prepare(&planned, slot);
        }
        self.engine.push(&request)?;
        if let Some(flight) = self.flights.get_mut(slot) {
            *flight = Some(Flight {
                request,
                planned,
                started_ns: now_ns,
                issued_ns: now_ns,
            });
        }
        self.queued.push(slot);
        let class = stats::depth_class(self.outstanding());
        if let Some(count) = self.stats.depths.get_mut(class) {
            *count += 1;
        }
        Ok(())
    }

    fn prepare(&mut self, planned: &Planned, slot: usize) {
        let spec = self.task.spec;
        let Some(block) = self.engine.buffer(slot).get_mut(..planned.len as usize) else {
            return;
        };
        if spec.verify == Verify::Crc32c {
            let identity = Identity {
                offset: planned.offset,
                seed: spec.seed,
                generation: planned.generation,
            };
            identity.fill(block);
        } else if spec.rw.does(Direction::Read) {
            // What the slot has read last may be anything.
            verify::mark(block);
        }
    }

    fn commit(&mut self) -> Result<(), Error> {
        if self.queued.is_empty() {
            return Ok(());
        }
        self.engine.commit()?;
        let now_ns = self.now_ns();
        if let Some(count) = self
            .stats
            .submits
            .get_mut(stats::batch_class(self.queued.len()))
        {
            *count += 1;
        }
        for slot in self.queued.drain(..) {
            if let Some(Some(flight)) = self.flights.get_mut(slot) {
                flight.issued_ns = now_ns;
            }
        }
        Ok(())
    }

    /// Waits for a time, or for completions until then.
    fn wait(&mut self, due_ns: u64) -> Result<(), Error> {
        let left = Duration::from_nanos(due_ns.saturating_sub(self.now_ns())).min(NAP_MAX);
        if self.is_idle() {
            std::thread::sleep(left);
            return Ok(());
        }
        self.reap(1, usize::MAX, Instant::now() + left)
    }

    fn reap(&mut self, min: usize, max: usize, until: Instant) -> Result<(), Error> {
        let min = min.min(self.outstanding());
        if self.is_idle() {
            return Ok(());
        }
        let mut completions = std::mem::take(&mut self.completions);
        completions.clear();
        let reaped = self
            .engine
            .reap(min, max.max(1), Some(until), &mut completions);
        let now_ns = self.now_ns();
        if !completions.is_empty() {
            self.heard_ns = now_ns;
        }
        if let Some(count) = self
            .stats
            .completes
            .get_mut(stats::batch_class(completions.len()))
        {
            *count += 1;
        }
        let mut outcome = reaped;
        for completion in completions.drain(..) {
            let completed = self.complete(completion, now_ns);
            outcome = outcome.and(completed);
        }
        self.completions = completions;
        self.commit()?;
        outcome
    }

    fn complete(&mut self, completion: Completion, now_ns: u64) -> Result<(), Error> {
        let slot = completion.slot;
        let Some(mut flight) = self.flights.get_mut(slot).and_then(Option::take) else {
            return Ok(());
        };
        let request = flight.request;
        let planned = flight.planned;
        let moved = match completion.result {
            Ok(bytes) => bytes,
            Err(source) => {
                self.free.push(slot);
                return Err(failed(&planned, source));
            }
        };
        let Some(direction) = planned.direction() else {
            self.stats
                .sync
                .add(now_ns.saturating_sub(flight.started_ns));
            self.free.push(slot);
            return Ok(());
        };
        if moved < request.len && direction != Direction::Trim {
            if moved == 0 {
                self.free.push(slot);
                return Err(failed(&planned, io::ErrorKind::UnexpectedEof.into()));
            }
            self.stats.direction_mut(direction).short += 1;
            flight.request.offset += u64::from(moved);
            flight.request.skip += moved;
            flight.request.len -= moved;
            self.engine.push(&flight.request)?;
            self.queued.push(slot);
            if let Some(place) = self.flights.get_mut(slot) {
                *place = Some(flight);
            }
            return Ok(());
        }
        self.count(direction, &flight, now_ns);
        self.check(&planned, slot);
        self.free.push(slot);
        Ok(())
    }

    fn count(&mut self, direction: Direction, flight: &Flight, now_ns: u64) {
        let bytes = u64::from(flight.planned.len);
        let stats = self.stats.direction_mut(direction);
        stats.ios += 1;
        stats.bytes += bytes;
        stats
            .slat
            .add(flight.issued_ns.saturating_sub(flight.started_ns));
        stats.clat.add(now_ns.saturating_sub(flight.issued_ns));
        stats.lat.add(now_ns.saturating_sub(flight.started_ns));
        self.task.live.count(direction, bytes);
        if now_ns >= self.next_sample_ns
            && let Some(from_ns) = self.measured_from_ns
        {
            self.stats.sample(now_ns.saturating_sub(from_ns));
            self.next_sample_ns += SAMPLE_INTERVAL_NS;
        }
    }

    /// Notes what was written; checks what was read. A wrong block is counted, and the first one remembered.
    fn check(&mut self, planned: &Planned, slot: usize) {
        if let (Some(written), Operation::Write) = (&mut self.written, planned.operation) {
            written.note(planned.offset, planned.len, planned.generation);
        }
        let Some(generation) = planned.expected else {
            return;
        };
        let block = self.engine.buffer(slot);
        let block = block.get(..planned.len as usize).unwrap_or(&[]);
        if let Err(mismatch) = verify::check(planned.offset, self.task.spec.seed, generation, block)
        {
            self.stats.mismatches += 1;
            self.error.get_or_insert(mismatch.into());
        }
    }

    fn fill_buffers(&mut self) {
        let mut random = Random::new(self.task.seed);
        for slot in 0..self.flights.len() {
            fill(self.engine.buffer(slot), &mut random);
        }
    }

    fn measure_from(&mut self, now_ns: u64) {
        if now_ns > 0 {
            self.stats.restart();
        }
        self.measured_from_ns = Some(now_ns);
        self.next_sample_ns = now_ns + SAMPLE_INTERVAL_NS;
    }

    fn outstanding(&self) -> usize {
        self.flights.len() - self.free.len()
    }

    fn is_idle(&self) -> bool {
        self.outstanding() == 0
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.clock.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Bytes that do not compress, marked as this program's.
pub fn fill(block: &mut [u8], random: &mut Random) {
    for word in block.chunks_mut(8) {
        let drawn = random.draw().to_le_bytes();
        word.copy_from_slice(drawn.get(..word.len()).unwrap_or(&[]));
    }
    verify::mark(block);
}

fn failed(planned: &Planned, source: io::Error) -> Error {
    Error::Command {
        what: planned.operation.name(),
        offset: planned.offset,
        len: planned.len,
        source,
    }
}
