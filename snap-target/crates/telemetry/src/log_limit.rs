//! A bound on the log lines that a host can provoke.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::callsite::Identifier;
use tracing::{Event, Metadata};
use tracing_subscriber::layer::{Context, Filter};

use crate::limits::{LOG_BURST, LOG_INTERVAL};

/// A filter that lets each call site write [`LOG_BURST`] lines at once and then one each [`LOG_INTERVAL`], and counts the others. It concerns lines of
/// the crates that serve hosts, and of clients that TLS does not let in; lines of a start or an operator come through. Cheap to clone; clones share their counts.
///
/// To be combined with the level filter: `layer.with_filter(levels.and(limit.clone()))`. Somebody has to call [`LogLimit::report`] from time to time.
#[derive(Clone, Debug)]
pub struct LogLimit {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// Beginnings of the targets that are bounded: names of crates.
    targets: &'static [&'static str],
    burst: u32,
    interval: Duration,
    sites: Mutex<HashMap<Identifier, Site>>,
}

/// One call site. Their number is the program's.
#[derive(Debug)]
struct Site {
    metadata: &'static Metadata<'static>,
    /// Lines that may come at once.
    left: u32,
    /// Up to when lines were granted.
    since: Instant,
    /// Lines left out since the last report.
    left_out: u64,
}

impl Default for LogLimit {
    fn default() -> Self {
        Self::new(
            &[
                "frontend_nvme",
                "frontend_nvme_rdma",
                "frontend_nvme_tcp",
                "namespace",
                "nvme",
                "reactor",
                "snap_target::admin::handshake",
                "store",
                "volume",
            ],
            LOG_BURST,
            LOG_INTERVAL,
        )
    }
}

impl LogLimit {
    /// For lines of these crates: `burst` at once, then one each `interval`, for each call site.
    #[must_use]
    pub fn new(targets: &'static [&'static str], burst: u32, interval: Duration) -> Self {
        Self {
            inner: Arc::new(Inner {
                targets,
                burst,
                interval,
                sites: Mutex::default(),
            }),
        }
    }

    /// Logs, for each call site that left lines out since the last report, how many.
    pub fn report(&self) {
        for (metadata, left_out) in self.take_left_out() {
            tracing::warn!(
                target: "log",
                from = metadata.target(),
                file = metadata.file().unwrap_or(""),
                line = metadata.line().unwrap_or(0),
                "{left_out} more lines like those from here were left out"
            );
        }
    }

    /// Takes the counts; no lock is held while they are logged.
    fn take_left_out(&self) -> Vec<(&'static Metadata<'static>, u64)> {
        let mut sites = self
            .inner
            .sites
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        sites
            .values_mut()
            .filter(|site| site.left_out > 0)
            .map(|site| (site.metadata, std::mem::take(&mut site.left_out)))
            .collect()
    }

    fn admits(&self, metadata: &'static Metadata<'static>, now: Instant) -> bool {
        let of_crate = |name: &&str| {
            metadata
                .target()
                .strip_prefix(name)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
        };
        if !self.inner.targets.iter().any(of_crate) {
            return true;
        }
        let mut sites = self
            .inner
            .sites
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let site = sites.entry(metadata.callsite()).or_insert_with(|| Site {
            metadata,
            left: self.inner.burst,
            since: now,
            left_out: 0,
        });
        site.admits(now, self.inner.burst, self.inner.interval)
    }
}

impl Site {
    fn admits(&mut self, now: Instant, burst: u32, interval: Duration) -> bool {
        while self.left < burst && now.saturating_duration_since(self.since) >= interval {
            self.left += 1;
            self.since += interval;
        }
        if self.left == burst {
            self.since = now;
        }
        let Some(left) = self.left.checked_sub(1) else {
            self.left_out += 1;
            return false;
        };
        self.left = left;
        true
    }
}

impl<S> Filter<S> for LogLimit {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        self.admits(event.metadata(), Instant::now())
    }
}

#[cfg(test)]
mod tests;
