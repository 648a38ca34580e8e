//! What a job measured.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::histogram::Histogram;
use crate::spec::Direction;
use crate::system::Usage;

/// Between two samples of the totals, for bandwidth over time.
pub const SAMPLE_INTERVAL_NS: u64 = 100_000_000;
/// Samples that are made room for before the job starts: an hour of them. A longer job grows the list.
pub const SAMPLES_ROOM: usize = 36_000;

/// One direction.
#[derive(Clone, Debug, Default)]
pub struct DirectionStats {
    /// Commands completed.
    pub ios: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Transfers that came in parts.
    pub short: u64,
    /// Time in which commands of this direction ran.
    pub runtime_ns: u64,
    /// From the start of a command to its being handed to the system.
    pub slat: Histogram,
    /// From there to its completion being seen.
    pub clat: Histogram,
    /// Both together.
    pub lat: Histogram,
}

/// The totals at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Since the measurement began.
    pub at_ns: u64,
    /// Bytes, by direction.
    pub bytes: [u64; 3],
    /// Commands, by direction.
    pub ios: [u64; 3],
}

/// One job.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// By direction.
    pub directions: [DirectionStats; 3],
    /// Flushes.
    pub sync: Histogram,
    /// How many were outstanding when a command was started: 1, 2, 4, 8, 16, 32, 64 and above.
    pub depths: [u64; 7],
    /// How many were handed over at once: 0, to 4, to 8, to 16, to 32, to 64, above.
    pub submits: [u64; 7],
    /// How many completions were taken at once, likewise.
    pub completes: [u64; 7],
    /// Totals over time.
    pub samples: Vec<Sample>,
    /// What the thread used.
    pub usage: Usage,
    /// From start to end, warm-up not counted.
    pub elapsed_ns: u64,
    /// Blocks that were not what was written.
    pub mismatches: u64,
}

impl Stats {
    /// One direction's figures.
    pub fn direction(&self, direction: Direction) -> &DirectionStats {
        let [read, write, trim] = &self.directions;
        match direction {
            Direction::Read => read,
            Direction::Write => write,
            Direction::Trim => trim,
        }
    }

    /// One direction's figures, to be changed.
    pub fn direction_mut(&mut self, direction: Direction) -> &mut DirectionStats {
        let [read, write, trim] = &mut self.directions;
        match direction {
            Direction::Read => read,
            Direction::Write => write,
            Direction::Trim => trim,
        }
    }

    /// Begins anew; the lists keep their memory.
    pub fn restart(&mut self) {
        let mut samples = std::mem::take(&mut self.samples);
        samples.clear();
        *self = Stats {
            samples,
            ..Stats::default()
        };
    }

    /// Notes the totals of now.
    pub fn sample(&mut self, at_ns: u64) {
        let sample = Sample {
            at_ns,
            bytes: self.directions.each_ref().map(|direction| direction.bytes),
            ios: self.directions.each_ref().map(|direction| direction.ios),
        };
        self.samples.push(sample);
    }

    /// Adds another job's figures: those of jobs that ran at the same time.
    pub fn merge(&mut self, other: &Stats) {
        for (mine, theirs) in self.directions.iter_mut().zip(&other.directions) {
            mine.ios += theirs.ios;
            mine.bytes += theirs.bytes;
            mine.short += theirs.short;
            mine.runtime_ns = mine.runtime_ns.max(theirs.runtime_ns);
            mine.slat.merge(&theirs.slat);
            mine.clat.merge(&theirs.clat);
            mine.lat.merge(&theirs.lat);
        }
        self.sync.merge(&other.sync);
        for (mine, theirs) in [
            (&mut self.depths, &other.depths),
            (&mut self.submits, &other.submits),
            (&mut self.completes, &other.completes),
        ] {
            for (mine, theirs) in mine.iter_mut().zip(theirs) {
                *mine += theirs;
            }
        }
        self.samples = added(&self.samples, &other.samples);
        self.usage = self.usage.plus(other.usage);
        self.elapsed_ns = self.elapsed_ns.max(other.elapsed_ns);
        self.mismatches += other.mismatches;
    }
}

/// The sum of two jobs' totals at each time of the longer one; a job that has ended stays at its last total.
fn added(one: &[Sample], other: &[Sample]) -> Vec<Sample> {
    let (longer, shorter) = if one.len() >= other.len() {
        (one, other)
    } else {
        (other, one)
    };
    let mut last = None;
    let mut behind = shorter.iter();
    longer
        .iter()
        .map(|sample| {
            last = behind.next().or(last);
            let mut sum = *sample;
            if let Some(last) = last {
                for (sum, more) in sum.bytes.iter_mut().zip(last.bytes) {
                    *sum += more;
                }
                for (sum, more) in sum.ios.iter_mut().zip(last.ios) {
                    *sum += more;
                }
            }
            sum
        })
        .collect()
}

/// fio's names of the seven depths.
pub const DEPTH_NAMES: [&str; 7] = ["1", "2", "4", "8", "16", "32", ">=64"];

/// Which of fio's seven depths a number falls to: 1, 2-3, 4-7, 8-15, 16-31, 32-63, 64 and above.
pub fn depth_class(outstanding: usize) -> usize {
    usize::try_from(outstanding.max(1).ilog2()).map_or(6, |class| class.min(6))
}

/// Which of fio's seven batch sizes a number falls to: 0, 1-4, 5-8, 9-16, 17-32, 33-64, above.
pub fn batch_class(count: usize) -> usize {
    match count {
        0 => 0,
        1..=4 => 1,
        5..=8 => 2,
        9..=16 => 3,
        17..=32 => 4,
        33..=64 => 5,
        _ => 6,
    }
}

/// What a job tells while it runs. One thread writes, another looks.
#[derive(Debug, Default)]
pub struct Live {
    bytes: [AtomicU64; 3],
    ios: [AtomicU64; 3],
    /// Bytes that are done of all that are to be done.
    progress_bytes: AtomicU64,
    /// Commands that a silent target is waited for, after the end.
    unanswered: AtomicU64,
}

impl Live {
    /// Counts one command.
    pub fn count(&self, direction: Direction, bytes: u64) {
        let at = direction as usize;
        // The only writer: a load and a store are enough, and cheaper than an exchange.
        let add = |counter: Option<&AtomicU64>, more: u64| {
            if let Some(counter) = counter {
                counter.store(counter.load(Ordering::Relaxed) + more, Ordering::Relaxed);
            }
        };
        add(self.bytes.get(at), bytes);
        add(self.ios.get(at), 1);
        add(Some(&self.progress_bytes), bytes);
    }

    /// Tells that so many commands are waited for after the end, though the target is silent.
    pub fn waits_for(&self, commands: u64) {
        self.unanswered.store(commands, Ordering::Relaxed);
    }

    /// Commands that a silent target is waited for.
    pub fn unanswered(&self) -> u64 {
        self.unanswered.load(Ordering::Relaxed)
    }

    /// Bytes and commands so far, by direction.
    pub fn totals(&self) -> ([u64; 3], [u64; 3]) {
        let read = |counters: &[AtomicU64; 3]| {
            counters
                .each_ref()
                .map(|counter| counter.load(Ordering::Relaxed))
        };
        (read(&self.bytes), read(&self.ios))
    }

    /// Bytes of all directions.
    pub fn progress_bytes(&self) -> u64 {
        self.progress_bytes.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_of_jobs_that_ran_together_are_added_at_each_time() {
        let sample = |at_ns, bytes| Sample {
            at_ns,
            bytes: [bytes, 0, 0],
            ios: [1, 2, 3],
        };
        let sum = added(
            &[sample(1, 10), sample(2, 20), sample(3, 30)],
            &[sample(1, 5), sample(2, 7)],
        );
        let bytes: Vec<u64> = sum.iter().map(|sample| sample.bytes[0]).collect();
        assert_eq!(bytes, [15, 27, 37]);
        assert_eq!(sum[2].ios, [2, 4, 6]);
    }

    #[test]
    fn classes_are_those_of_fio() {
        let depths: Vec<_> = [1, 2, 3, 4, 7, 8, 31, 32, 63, 64, 4096]
            .map(depth_class)
            .into();
        assert_eq!(depths, [0, 1, 1, 2, 2, 3, 4, 5, 5, 6, 6]);
        let batches: Vec<_> = [0, 1, 4, 5, 8, 9, 32, 33, 64, 65].map(batch_class).into();
        assert_eq!(batches, [0, 1, 1, 2, 2, 3, 4, 5, 5, 6]);
    }
}
