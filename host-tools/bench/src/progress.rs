//! One line on a terminal while jobs run: rates since the last look, and the time that is left.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use crate::spec::{Direction, JobSpec};
use crate::stats::Live;
use crate::units;

/// The line.
#[derive(Debug)]
pub struct Progress {
    shown: bool,
    until: Option<Duration>,
    bytes: Option<u64>,
    last_at: Instant,
    last: ([u64; 3], [u64; 3]),
    has_warned: bool,
}

impl Progress {
    /// Silent where standard error is no terminal.
    pub fn new() -> Progress {
        Progress {
            shown: std::io::stderr().is_terminal(),
            until: None,
            bytes: None,
            last_at: Instant::now(),
            last: ([0; 3], [0; 3]),
            has_warned: false,
        }
    }

    /// Jobs begin: `regions` are the bytes of each one's part.
    pub fn begin(&mut self, specs: &[&JobSpec], regions: impl Iterator<Item = u64>) {
        let time = |spec: &&JobSpec| Some(spec.runtime? + spec.ramp_time);
        self.until = specs
            .iter()
            .map(time)
            .collect::<Option<Vec<_>>>()
            .and_then(|times| times.into_iter().max());
        let bytes = specs.iter().zip(regions);
        let bytes =
            bytes.map(|(spec, region)| spec.bytes_in_all(spec.ordered_bytes().unwrap_or(region)));
        self.bytes = bytes.sum();
        self.last_at = Instant::now();
        self.last = ([0; 3], [0; 3]);
        self.has_warned = false;
    }

    /// Says once, on a terminal or not, that the end is delayed by a target that says nothing.
    pub fn warn_of_silence(&mut self, lives: &[Live]) {
        let unanswered: u64 = lives.iter().map(Live::unanswered).sum();
        if unanswered == 0 || self.has_warned {
            return;
        }
        self.end();
        self.has_warned = true;
        // What cannot be said is no reason to end.
        let _ = writeln!(
            std::io::stderr(),
            "warning: {unanswered} commands are still without an answer after the end; Ctrl-C ends without them"
        );
    }

    /// Shows how far they are.
    pub fn show(&mut self, elapsed: Duration, running: usize, lives: &[Live]) {
        if !self.shown {
            return;
        }
        let mut now = ([0; 3], [0; 3]);
        for live in lives {
            let (bytes, ios) = live.totals();
            now.0
                .iter_mut()
                .zip(bytes)
                .for_each(|(sum, more)| *sum += more);
            now.1
                .iter_mut()
                .zip(ios)
                .for_each(|(sum, more)| *sum += more);
        }
        let seconds = self.last_at.elapsed().as_secs_f64().max(1e-3);
        let mut line = format!("\r\x1b[K{running} running");
        for direction in Direction::ALL {
            let at = direction as usize;
            let since = |now: [u64; 3], last: [u64; 3]| {
                let (now, last) = (now.get(at).copied(), last.get(at).copied());
                now.unwrap_or(0).saturating_sub(last.unwrap_or(0)) as f64 / seconds
            };
            let (bytes, ios) = (since(now.0, self.last.0), since(now.1, self.last.1));
            if ios > 0.0 {
                line += &format!(
                    "  {} {}/s {} IOPS",
                    direction.name(),
                    units::bytes(bytes),
                    units::count(ios)
                );
            }
        }
        if let Some(left) = self.left(elapsed, now.0.iter().sum()) {
            line += &format!("  {} left", units::seconds(left));
        }
        self.last_at = Instant::now();
        self.last = now;
        // A line of progress that cannot be shown is no reason to end.
        let _ = write!(std::io::stderr(), "{line}");
    }

    fn left(&self, elapsed: Duration, done: u64) -> Option<Duration> {
        let by_time = self.until.map(|until| until.saturating_sub(elapsed));
        let by_bytes = self.bytes.filter(|_| done > 0).map(|bytes| {
            elapsed.mul_f64((bytes.saturating_sub(done) as f64 / done as f64).min(1e6))
        });
        match (by_time, by_bytes) {
            (Some(time), Some(bytes)) => Some(time.min(bytes)),
            (time, bytes) => time.or(bytes),
        }
    }

    /// Takes the line away.
    pub fn end(&mut self) {
        if self.shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

impl Default for Progress {
    fn default() -> Self {
        Progress::new()
    }
}
