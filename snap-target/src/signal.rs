//! Signals, and the way the admin service ends the daemon.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;

/// The signals that the daemon acts on; the others do what they always do.
const HELD: [Signal; 4] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGUSR1,
];

/// Keeps them for whoever waits for them; to be called before any thread is made, since threads inherit that.
pub fn hold() -> Result<SigSet> {
    let mut signals = SigSet::empty();
    for signal in HELD {
        signals.add(signal);
    }
    let mut blocked = signals;
    // Nobody takes it: a write beyond the limit on file sizes (ulimit -f) is to fail, not to end the daemon.
    blocked.add(Signal::SIGXFSZ);
    blocked.thread_block().context("blocking signals")?;
    Ok(signals)
}

/// By when the daemon is to have ended. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Ending(Arc<Mutex<Option<Instant>>>);

impl Ending {
    /// Begins to drain, as SIGTERM does, or has it end sooner. Returns the time that is left.
    pub fn drain(&self, patience: Duration) -> Duration {
        let asked = Instant::now() + patience;
        let (by, first) = {
            let mut by = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let first = by.is_none();
            let sooner = by.map_or(asked, |earlier| earlier.min(asked));
            *by = Some(sooner);
            (sooner, first)
        };
        if first && let Err(error) = kill(Pid::this(), Signal::SIGTERM) {
            tracing::error!(%error, "the daemon cannot tell itself to end");
        }
        by.saturating_duration_since(Instant::now())
    }

    /// By when it is to have ended: as it was asked, or this long from now.
    pub fn by(&self, otherwise: Duration) -> Instant {
        let mut by = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *by.get_or_insert_with(|| Instant::now() + otherwise)
    }
}
