//! The telemetry of a whole target.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use crate::limits::{EVENTS, SLOW_COMMAND};
use crate::reactor::{Epoch, ReactorTelemetry};
use crate::recorder::{DumpFormat, Event, FlightRecorder, Recorded};
use crate::snapshot::{self, Snapshot};

/// How much is kept.
#[derive(Clone, Debug)]
pub struct TelemetryConfig {
    /// Reactors of the target.
    pub reactors: u16,
    /// Events that each reactor's flight recorder keeps; rounded up to a power of two. 64 B each.
    pub events: usize,
    /// A command that takes at least this long is an event.
    pub slow_command: Duration,
}

impl Default for TelemetryConfig {
    fn default() -> Self {
        Self {
            reactors: 1,
            events: EVENTS,
            slow_command: SLOW_COMMAND,
        }
    }
}

/// See the crate.
#[derive(Debug)]
pub struct Telemetry {
    epoch: Arc<Epoch>,
    reactors: Box<[Arc<ReactorTelemetry>]>,
    /// What control threads record; they take turns.
    control: FlightRecorder,
    control_writer: Mutex<()>,
}

impl Telemetry {
    /// For a target that starts now.
    #[must_use]
    pub fn new(config: &TelemetryConfig) -> Arc<Self> {
        let epoch = Arc::new(Epoch::new(config.slow_command));
        let reactor =
            |number| Arc::new(ReactorTelemetry::new(number, epoch.clone(), config.events));
        Arc::new(Self {
            reactors: (0..config.reactors).map(reactor).collect(),
            control: FlightRecorder::new(config.events),
            control_writer: Mutex::new(()),
            epoch,
        })
    }

    /// What a reactor writes to; for its own thread.
    #[must_use]
    pub fn reactor(&self, number: u16) -> Option<Arc<ReactorTelemetry>> {
        self.reactors.get(usize::from(number)).cloned()
    }

    /// Commands that take at least this long are events from now on.
    pub fn set_slow_command(&self, slow: Duration) {
        self.epoch.set_slow(slow);
    }

    /// Keeps an event that no reactor brings: what an operator changed, a start, an end.
    pub fn record(&self, event: &Event) {
        let _writer = self
            .control_writer
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        self.control.record(self.epoch.now_ns(), event);
    }

    /// Every number as it is now.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        snapshot::of(self.epoch.now_ns(), self.epoch.started_utc, &self.reactors)
    }

    /// The last events of all reactors and of the control threads, by their times. It takes no lock and serves a panic hook.
    #[must_use]
    pub fn events(&self) -> Vec<Recorded> {
        let mut events = self.control.events(None);
        for reactor in &self.reactors {
            events.append(&mut reactor.recorder().events(Some(reactor.number())));
        }
        events.sort_by_key(|recorded| recorded.at_ns);
        events
    }

    /// When an event happened.
    #[must_use]
    pub fn utc(&self, recorded: &Recorded) -> SystemTime {
        self.epoch.started_utc + Duration::from_nanos(recorded.at_ns)
    }

    /// Writes the last events, one a line.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn dump(&self, format: DumpFormat, out: &mut dyn io::Write) -> io::Result<()> {
        for recorded in self.events() {
            writeln!(out, "{}", recorded.line(format, self.utc(&recorded)))?;
        }
        Ok(())
    }
}
