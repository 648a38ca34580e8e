//! A store at the end of a line: so many bytes a second for all who use it, and a time that each operation takes besides.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use reactor::Ring;

use super::held::{Pace, limits_held, open_held};
use crate::contract::{Limits, Op, Store};
use crate::error::StoreError;
use crate::shared::{Backend, SharedStore};
use crate::spec::parse_size;

/// Slower lines are mistakes: 1 MiB, which every store takes at once, would not come before a host gives up.
const BYTES_PER_SECOND_MIN: u64 = 1 << 20;
/// Longer latencies are mistakes: a host gives up after 30 s.
const LATENCY_MAX: Duration = Duration::from_secs(10);
/// More tokens are no limit any more.
const BURST_BYTES_MAX: u64 = 1 << 30;

/// A line to a store: its reads and writes pass one behind the other at `bytes_per_second` (a token bucket: `burst_bytes` pass at once after a
/// pause), and each operation takes `latency` besides. Operations overlap in their latencies, not on the line.
///
/// As text: `200MB/s`, `200MB/s,latency=2ms`, `200MB/s,burst=1MiB,latency=500us`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// What the line carries.
    pub bytes_per_second: u64,
    /// Bytes that pass at once after a pause.
    pub burst_bytes: u64,
    /// What an operation takes although the line is free.
    pub latency: Duration,
}

impl Limit {
    /// Wraps stores: all of them, and all of their handles, share one line.
    #[must_use]
    pub fn over(self, stores: Vec<SharedStore>) -> Vec<SharedStore> {
        let line = Arc::new(Line {
            limit: self,
            begun: Instant::now(),
            taken_until_ns: AtomicU64::new(0),
        });
        let wrap = |inner: SharedStore| {
            SharedStore::new(LimitBackend {
                name: inner.name().to_owned(),
                line: line.clone(),
                inner,
            })
        };
        stores.into_iter().map(wrap).collect()
    }

    /// How long the line is taken by so many bytes.
    fn time_of(self, bytes: u64) -> u64 {
        let ns = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_second.max(1));
        u64::try_from(ns).unwrap_or(u64::MAX)
    }
}

impl FromStr for Limit {
    type Err = StoreError;

    fn from_str(text: &str) -> Result<Self, StoreError> {
        let wrong = |why: &'static str| StoreError::Limit {
            text: text.to_owned(),
            why,
        };
        let mut parts = text.split(',');
        let rate = parts.next().and_then(|rate| rate.strip_suffix("/s"));
        let rate = rate.ok_or_else(|| wrong("it begins with a rate, such as 200MB/s"))?;
        let mut limit = Self {
            bytes_per_second: parse_size(rate).map_err(wrong)?,
            burst_bytes: 0,
            latency: Duration::ZERO,
        };
        for part in parts {
            match part.split_once('=') {
                Some(("burst", size)) => limit.burst_bytes = parse_size(size).map_err(wrong)?,
                Some(("latency", time)) => limit.latency = parse_time(time).map_err(wrong)?,
                _ => return Err(wrong("behind the rate stand burst=SIZE and latency=TIME")),
            }
        }
        if limit.bytes_per_second < BYTES_PER_SECOND_MIN {
            return Err(wrong("the rate is below 1MiB/s"));
        }
        if limit.burst_bytes > BURST_BYTES_MAX {
            return Err(wrong("the burst is over 1GiB"));
        }
        if limit.latency > LATENCY_MAX {
            return Err(wrong("the latency is over 10s"));
        }
        Ok(limit)
    }
}

/// As [`Limit::from_str`] takes it.
impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/s", ExactSize(self.bytes_per_second))?;
        if self.burst_bytes > 0 {
            write!(f, ",burst={}", ExactSize(self.burst_bytes))?;
        }
        if !self.latency.is_zero() {
            write!(f, ",latency={}", ExactTime(self.latency))?;
        }
        Ok(())
    }
}

/// Bytes in the unit of which they are the fewest, a whole number of it: lines have powers of 10 as a rule, memory those of 2.
struct ExactSize(u64);

impl fmt::Display for ExactSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [
            (1 << 30, "GiB"),
            (1_000_000_000, "GB"),
            (1 << 20, "MiB"),
            (1_000_000, "MB"),
            (1 << 10, "KiB"),
            (1_000, "kB"),
        ];
        let is_whole = |(bytes, _): &&(u64, &str)| self.0 > 0 && self.0.is_multiple_of(*bytes);
        match units.iter().find(is_whole) {
            Some((bytes, unit)) => write!(f, "{}{unit}", self.0 / bytes),
            None => write!(f, "{}", self.0),
        }
    }
}

/// A time in the largest unit of which it is a whole number.
struct ExactTime(Duration);

impl fmt::Display for ExactTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_micros() {
            us if us % 1_000_000 == 0 => write!(f, "{}s", us / 1_000_000),
            us if us % 1_000 == 0 => write!(f, "{}ms", us / 1_000),
            us => write!(f, "{us}us"),
        }
    }
}

/// `2ms`, `500us`, `1s`.
fn parse_time(text: &str) -> Result<Duration, &'static str> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let number: u32 = number
        .parse()
        .map_err(|_| "a time is a whole number with its unit: 2ms")?;
    let unit = match unit {
        "us" => Duration::from_micros(1),
        "ms" => Duration::from_millis(1),
        "s" => Duration::from_secs(1),
        _ => return Err("the unit of a time must be one of us, ms, s"),
    };
    Ok(unit * number)
}

/// What all handles share.
#[derive(Debug)]
struct Line {
    limit: Limit,
    begun: Instant,
    /// Until when, counted from the beginning, the operations that were taken have the line.
    taken_until_ns: AtomicU64,
}

impl Line {
    /// Takes the line for so many bytes behind all that have it; returns when they have passed.
    fn take(&self, bytes: u64, now: Instant) -> Instant {
        let now_ns = u64::try_from(now.saturating_duration_since(self.begun).as_nanos());
        let now_ns = now_ns.unwrap_or(u64::MAX);
        let (time_ns, burst_ns) = (
            self.limit.time_of(bytes),
            self.limit.time_of(self.limit.burst_bytes),
        );
        let until = |taken: u64| taken.max(now_ns).saturating_add(time_ns);
        let before =
            self.taken_until_ns
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
                    Some(until(taken))
                });
        let (Ok(before) | Err(before)) = before;
        let due_ns = until(before).saturating_sub(burst_ns).max(now_ns);
        self.begun + Duration::from_nanos(due_ns)
    }
}

impl Pace for Arc<Line> {
    fn due(&self, op: &Op, bytes: u64, now: Instant) -> Instant {
        let passed = if op.takes_buffer() {
            self.take(bytes, now)
        } else {
            now
        };
        passed + self.limit.latency
    }
}

#[derive(Debug)]
struct LimitBackend {
    name: String,
    line: Arc<Line>,
    inner: SharedStore,
}

impl Backend for LimitBackend {
    fn name(&self) -> &str {
        &self.name
    }

    fn describe(&self) -> String {
        format!("{}; limited to {}", self.inner.describe(), self.line.limit)
    }

    fn instance(&self) -> u64 {
        self.inner.instance()
    }

    fn limits(&self) -> Limits {
        limits_held(self.inner.limits())
    }

    fn problems(&self) -> Vec<crate::Problem> {
        self.inner.problems()
    }

    fn open_handle(&self, ring: &Ring) -> Result<Box<dyn Store>, StoreError> {
        open_held(&self.name, "limit", &self.inner, self.line.clone(), ring)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_read_as_it_is_written() {
        let full = "200MB/s,burst=1MiB,latency=2ms".parse::<Limit>();
        let limit = Limit {
            bytes_per_second: 200_000_000,
            burst_bytes: 1 << 20,
            latency: Duration::from_millis(2),
        };
        assert_eq!(full, Ok(limit));
        assert_eq!(limit.to_string().parse(), Ok(limit));
        for (rate, said) in [
            ("200000kB/s", "200MB/s"),
            ("2048KiB/s", "2MiB/s"),
            ("1234567/s", "1234567/s"),
            ("3000000000/s,burst=3072", "3GB/s,burst=3KiB"),
        ] {
            let told = rate.parse::<Limit>().map(|limit| limit.to_string());
            assert_eq!(told, Ok(said.to_owned()));
        }
        for (latency, said) in [("1500us", "1500us"), ("2000us", "2ms"), ("3000ms", "3s")] {
            let limit = format!("1MiB/s,latency={latency}").parse::<Limit>();
            let told = limit.map(|limit| limit.to_string());
            assert_eq!(told, Ok(format!("1MiB/s,latency={said}")));
        }
        for (text, part) in [
            ("", "begins with a rate"),
            ("200MB", "begins with a rate"),
            ("1000/s", "below 1MiB/s"),
            ("200MB/s,latency=2", "unit of a time"),
            ("200MB/s,latency=11s", "over 10s"),
            ("200MB/s,burst=2GiB", "over 1GiB"),
            ("200MB/s,depth=3", "burst=SIZE and latency=TIME"),
        ] {
            let error = text.parse::<Limit>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn bytes_pass_one_behind_the_other_and_a_burst_at_once() {
        let line = |burst_bytes| Line {
            limit: Limit {
                bytes_per_second: 1 << 20,
                burst_bytes,
                latency: Duration::ZERO,
            },
            begun: Instant::now(),
            taken_until_ns: AtomicU64::new(0),
        };
        let second = Duration::from_secs(1);
        let plain = line(0);
        let due = [0, 0, 0].map(|_| plain.take(1 << 20, plain.begun) - plain.begun);
        assert_eq!(due, [second, second * 2, second * 3]);
        // After a pause the line is free, and what it did not carry meanwhile is lost.
        let later = plain.begun + second * 10;
        assert_eq!(plain.take(1 << 19, later) - later, second / 2);

        let bursty = line(1 << 20);
        let due = [0, 0, 0].map(|_| bursty.take(1 << 20, bursty.begun) - bursty.begun);
        assert_eq!(due, [Duration::ZERO, second, second * 2]);
    }
}
