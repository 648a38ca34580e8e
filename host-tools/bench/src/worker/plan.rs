//! What a job does next, and when: order, mix, rates, flushes, and its end. No I/O and no clock of its own.

use std::time::Duration;

use super::Task;
use crate::engine::Operation;
use crate::error::Error;
use crate::offsets::{Block, Offsets};
use crate::pacer::Pacer;
use crate::random::Random;
use crate::spec::{Direction, JobSpec, Mix, Verify};

/// One command that is to be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned {
    pub operation: Operation,
    pub offset: u64,
    pub len: u32,
    /// Of a verified write.
    pub generation: u32,
    /// A pass begins with it that must not find what the one before has left in the page cache.
    pub drops_copies: bool,
    /// For a read that is checked: the generation that must be there, if that is known.
    pub expected: Option<Option<u32>>,
}

impl Planned {
    pub fn sync(operation: Operation) -> Planned {
        Planned {
            operation,
            offset: 0,
            len: 0,
            generation: 0,
            drops_copies: false,
            expected: None,
        }
    }

    pub fn read_back(offset: u64, len: u32, generation: u32) -> Planned {
        Planned {
            operation: Operation::Read,
            offset,
            len,
            generation: 0,
            drops_copies: false,
            expected: Some(Some(generation)),
        }
    }

    /// `None` for flushes.
    pub fn direction(&self) -> Option<Direction> {
        match self.operation {
            Operation::Read => Some(Direction::Read),
            Operation::Write => Some(Direction::Write),
            Operation::Trim => Some(Direction::Trim),
            Operation::Sync | Operation::DataSync => None,
        }
    }
}

/// What is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// This command.
    Issue(Planned),
    /// Nothing before this time of the job's clock.
    Wait(u64),
    /// Nothing before a slot is free.
    Full,
    /// Nothing before all that is outstanding has completed.
    Drain,
    /// Nothing any more.
    Finished,
}

pub struct Plan<'a> {
    spec: &'a JobSpec,
    offsets: Offsets,
    random: Random,
    /// The mix's choice, where neither direction was due.
    drawn: Option<Direction>,
    /// Due, but what is outstanding has to complete before.
    held: Option<(Direction, Block)>,
    /// By direction: limits in bytes and in commands.
    pacers: [[Option<Pacer>; 2]; 3],
    /// Bytes until the end; `None` where only time ends the job.
    left_bytes: Option<u64>,
    end_ns: Option<u64>,
    pass: u32,
    writes_since_sync: u32,
    finished: bool,
}

impl<'a> Plan<'a> {
    pub fn new(task: &Task<'a>) -> Result<Plan<'a>, Error> {
        let spec = task.spec;
        let offsets = Offsets::new(spec, task.region, task.seed)
            .map_err(|why| Error::job(&spec.name, why))?;
        let end = spec.runtime.map(|runtime| runtime + spec.ramp_time);
        Ok(Plan {
            spec,
            random: Random::new(task.seed ^ 0x6D69_7865_6472_7721),
            drawn: None,
            held: None,
            pacers: Direction::ALL.map(|direction| {
                let of = |rates: &[Option<u64>; 3]| {
                    rates
                        .get(direction as usize)
                        .copied()
                        .flatten()
                        .map(Pacer::new)
                };
                [of(&spec.rate), of(&spec.rate_iops)]
            }),
            left_bytes: spec.bytes_in_all(offsets.pass_bytes()),
            end_ns: end.map(|end| u64::try_from(end.as_nanos()).unwrap_or(u64::MAX)),
            offsets,
            pass: 1,
            writes_since_sync: 0,
            finished: false,
        })
    }

    /// Whether its time is up.
    pub fn is_over(&self, now_ns: u64) -> bool {
        self.end_ns.is_some_and(|end| now_ns >= end)
    }

    /// Until its time is up, where time ends it.
    pub fn left(&self, now_ns: u64) -> Option<Duration> {
        let left = self.end_ns.map(|end| end.saturating_sub(now_ns));
        left.map(Duration::from_nanos)
    }

    /// Starts nothing any more.
    pub fn finish(&mut self) {
        self.finished = true;
    }

    pub fn next(&mut self, now_ns: u64, outstanding: usize) -> Step {
        if self.finished || self.left_bytes == Some(0) || self.is_over(now_ns) {
            self.finished = true;
            return Step::Finished;
        }
        if let Some(operation) = self.sync_due() {
            return Step::Issue(Planned::sync(operation));
        }
        let (direction, block) = match self.held.take() {
            Some(held) => held,
            None => {
                let drawn = self.drawn.take().unwrap_or_else(|| self.draw());
                let (direction, due_ns) = self.first_due(drawn, now_ns);
                if due_ns > now_ns {
                    self.drawn = Some(drawn);
                    return Step::Wait(due_ns.min(self.end_ns.unwrap_or(u64::MAX)));
                }
                (direction, self.offsets.next(direction))
            }
        };
        // Where blocks vouch for themselves, none is written while its last write is on its way.
        let overlaps = block.pass != self.pass && self.spec.verify != Verify::None;
        // And what is on its way into the page cache cannot be dropped from it.
        let waits = overlaps || self.drops_copies(&block);
        if waits && outstanding > 0 {
            self.held = Some((direction, block));
            return Step::Drain;
        }
        self.pass = block.pass;
        Step::Issue(self.planned(direction, block))
    }

    fn planned(&mut self, direction: Direction, block: Block) -> Planned {
        let mut len = block.len;
        if let Some(left) = &mut self.left_bytes {
            // The last block of an io_size is cut to what is left, in whole units.
            let unit = u64::from(self.spec.bs_unit());
            let most = left.next_multiple_of(unit);
            len = u32::try_from(most).map_or(len, |most| len.min(most));
            *left = left.saturating_sub(u64::from(len));
        }
        if let Some([bytes, commands]) = self.pacers.get_mut(direction as usize) {
            if let Some(pacer) = bytes {
                pacer.issue(u64::from(len));
            }
            if let Some(pacer) = commands {
                pacer.issue(1);
            }
        }
        let operation = match direction {
            Direction::Read => Operation::Read,
            Direction::Write => Operation::Write,
            Direction::Trim => Operation::Trim,
        };
        self.writes_since_sync += u32::from(operation == Operation::Write);
        let checked = self.spec.verify != Verify::None && !self.spec.rw.changes();
        Planned {
            operation,
            offset: block.offset,
            len,
            generation: block.pass,
            drops_copies: self.drops_copies(&block),
            expected: checked.then_some(None),
        }
    }

    /// As fio does it, before each pass: else a second one would measure memory.
    fn drops_copies(&self, block: &Block) -> bool {
        block.starts_over && self.spec.invalidate && !self.spec.direct
    }

    fn draw(&mut self) -> Direction {
        match self.spec.rw.mix {
            Mix::Only(direction) => direction,
            Mix::ReadWrite if self.random.below(100) < u64::from(self.spec.rwmixread) => {
                Direction::Read
            }
            Mix::ReadWrite => Direction::Write,
        }
    }

    /// The drawn direction where it is due; else the other one of a mix where that is: as in fio, a rate of one direction holds only that one up, and
    /// the mix is what the rates make of it. Where neither is due, the one that is due first, and when.
    fn first_due(&self, drawn: Direction, now_ns: u64) -> (Direction, u64) {
        let due_ns = self.due_ns(drawn);
        let Some(other) = self.other(drawn).filter(|_| due_ns > now_ns) else {
            return (drawn, due_ns);
        };
        let other_due_ns = self.due_ns(other);
        if other_due_ns < due_ns {
            (other, other_due_ns)
        } else {
            (drawn, due_ns)
        }
    }

    /// A mix's other direction, if it has any share.
    fn other(&self, direction: Direction) -> Option<Direction> {
        let (other, percent) = match (self.spec.rw.mix, direction) {
            (Mix::ReadWrite, Direction::Write) => (Direction::Read, self.spec.rwmixread),
            (Mix::ReadWrite, _) => (Direction::Write, 100 - self.spec.rwmixread.min(100)),
            (Mix::Only(_), _) => return None,
        };
        (percent > 0).then_some(other)
    }

    fn due_ns(&self, direction: Direction) -> u64 {
        let pacers = self.pacers.get(direction as usize);
        pacers.map_or(0, |pacers| {
            let due = pacers.iter().flatten().map(Pacer::due_ns);
            due.max().unwrap_or(0)
        })
    }

    fn sync_due(&mut self) -> Option<Operation> {
        let (every, operation) = match (self.spec.fsync, self.spec.fdatasync) {
            (0, 0) => return None,
            (0, every) => (every, Operation::DataSync),
            (every, _) => (every, Operation::Sync),
        };
        if self.writes_since_sync < every {
            return None;
        }
        self.writes_since_sync = 0;
        Some(operation)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::offsets::Region;
    use crate::stats::Live;

    fn spec(settings: &[(&str, &str)]) -> JobSpec {
        let spec = JobSpec::of(settings);
        spec.check().unwrap();
        spec
    }

    fn with_plan<T>(spec: &JobSpec, bytes: u64, work: impl FnOnce(&mut Plan<'_>) -> T) -> T {
        let task = Task {
            spec,
            region: Region { offset: 0, bytes },
            seed: 1,
            live: &Live::default(),
            stop: &AtomicBool::new(false),
        };
        work(&mut Plan::new(&task).unwrap())
    }

    /// Steps a plan on a clock that jumps to each time that it waits for; what it issued, with the time.
    fn all(plan: &mut Plan<'_>) -> (Vec<(u64, Planned)>, u64) {
        let (mut now_ns, mut issued) = (0, Vec::new());
        loop {
            match plan.next(now_ns, 0) {
                Step::Issue(planned) => issued.push((now_ns, planned)),
                Step::Wait(due_ns) => {
                    assert!(due_ns > now_ns);
                    now_ns = due_ns;
                }
                Step::Drain | Step::Full => panic!("nothing is outstanding"),
                Step::Finished => return (issued, now_ns),
            }
        }
    }

    #[test]
    fn a_rate_is_kept_to_the_block_over_counted_time() {
        let spec = spec(&[("rate", "1m"), ("runtime", "10"), ("time_based", "1")]);
        let (issued, end_ns) = with_plan(&spec, 1 << 20, all);
        assert_eq!(end_ns, 10_000_000_000);
        assert_eq!(issued.len() as u64 * 4096, 10 << 20);
        for (at, (now_ns, _)) in issued.iter().enumerate() {
            assert_eq!(
                *now_ns,
                (at as u64 * 4096 * 1_000_000_000).div_ceil(1 << 20)
            );
        }
    }

    /// Reads and writes of a plan, and when the last command went.
    fn counted(settings: &[(&str, &str)]) -> (u64, u64, u64) {
        let spec = spec(settings);
        let (issued, _) = with_plan(&spec, 1 << 30, all);
        let reads = issued
            .iter()
            .filter(|(_, planned)| planned.operation == Operation::Read)
            .count() as u64;
        let last_ns = issued.last().map_or(0, |(at_ns, _)| *at_ns);
        (reads, issued.len() as u64 - reads, last_ns)
    }

    /// As fio 3.33 does it: neither waits for the other, whatever the mix says.
    #[test]
    fn each_direction_of_a_mix_goes_at_its_own_rate() {
        const FOR_2_S: [(&str, &str); 2] = [("runtime", "2"), ("time_based", "1")];
        for (settings, reads, writes) in [
            (&[("rw", "rw"), ("rate_iops", "400,200")][..], 800, 400),
            (&[("rw", "randrw"), ("rate_iops", "300,100")], 600, 200),
            (
                &[("rw", "randrw"), ("rwmixread", "90"), ("rate", "2m,2m")],
                1024,
                1024,
            ),
            // What has no share in the mix is not done, however long the other one waits.
            (
                &[("rw", "rw"), ("rwmixread", "100"), ("rate_iops", "50,60")],
                100,
                0,
            ),
        ] {
            let (read, written, _) = counted(&[settings, &FOR_2_S].concat());
            assert_eq!((read, written), (reads, writes), "{settings:?}");
        }
    }

    #[test]
    fn a_direction_without_a_rate_does_not_wait_for_the_one_that_has_one() {
        let (read, written, last_ns) = counted(&[("rw", "rw"), ("rate", ",1m"), ("io_size", "4m")]);
        // On this clock commands take no time: the one write that is due at once, and else reads.
        assert_eq!((read + written, written, last_ns), (1024, 1, 0));
        let (read, written, last_ns) =
            counted(&[("rw", "rw"), ("rate", "2m,1m"), ("io_size", "6m")]);
        assert_eq!((read, written), (1024, 512));
        assert!(
            (1_990_000_000..2_000_000_000).contains(&last_ns),
            "{last_ns}"
        );
    }

    #[test]
    fn a_job_ends_with_its_bytes() {
        for (settings, commands, bytes) in [
            (&[("bs", "4k")][..], 256, 1 << 20),
            (&[("bs", "4k"), ("loops", "3")], 768, 3 << 20),
            (&[("bs", "64k"), ("io_size", "100k")], 2, 128 << 10),
            (
                &[("bs", "4k"), ("rw", "randread"), ("io_size", "2m")],
                512,
                2 << 20,
            ),
            (
                &[("bs", "4k"), ("io_size", "512k"), ("loops", "3")],
                384,
                3 << 19,
            ),
        ] {
            let spec = spec(settings);
            let (issued, _) = with_plan(&spec, 1 << 20, all);
            assert_eq!(issued.len(), commands, "{settings:?}");
            assert_eq!(
                issued
                    .iter()
                    .map(|(_, planned)| u64::from(planned.len))
                    .sum::<u64>(),
                bytes
            );
        }
    }

    #[test]
    fn flushes_come_after_so_many_writes() {
        let spec = spec(&[("rw", "write"), ("fdatasync", "3"), ("io_size", "28k")]);
        let (issued, _) = with_plan(&spec, 1 << 20, all);
        let syncs: Vec<bool> = issued
            .iter()
            .map(|(_, planned)| planned.operation == Operation::DataSync)
            .collect();
        assert_eq!(
            syncs,
            [false, false, false, true, false, false, false, true, false]
        );
    }

    #[test]
    fn a_verified_pass_waits_for_the_one_before() {
        let spec = spec(&[
            ("rw", "randwrite"),
            ("verify", "crc32c"),
            ("loops", "2"),
            ("iodepth", "4"),
        ]);
        with_plan(&spec, 8192, |plan| {
            assert!(matches!(plan.next(0, 0), Step::Issue(planned) if planned.generation == 1));
            assert!(matches!(plan.next(0, 1), Step::Issue(planned) if planned.generation == 1));
            assert_eq!(plan.next(0, 2), Step::Drain);
            assert_eq!(plan.next(0, 1), Step::Drain);
            assert!(matches!(plan.next(0, 0), Step::Issue(planned) if planned.generation == 2));
            assert!(matches!(plan.next(0, 1), Step::Issue(planned) if planned.generation == 2));
            assert_eq!(plan.next(0, 2), Step::Finished);
        });
    }
}
