//! The telemetry of a whole target.

use std::io;
use std::panic;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use crate::limits::{EVENTS, SLOW_COMMAND};
use crate::reactor::{ReactorTelemetry, Shared};
use crate::recorder::{DumpFormat, Event, FlightRecorder, Recorded};
use crate::snapshot::{self, Snapshot};

/// How much is kept.
#[derive(Clone, Debug)]
pub struct TelemetryConfig {
    /// Reactors of the target.
    pub reactors: u16,
    /// Events that each reactor's flight recorder keeps; rounded up to a power of two. 320 B each, most of them for a host's name.
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
    shared: Arc<Shared>,
    reactors: Box<[Arc<ReactorTelemetry>]>,
    /// What control threads record; they take turns.
    control: FlightRecorder,
    control_writer: Mutex<()>,
}

impl Telemetry {
    /// For a target that starts now.
    #[must_use]
    pub fn new(config: &TelemetryConfig) -> Arc<Self> {
        let shared = Arc::new(Shared::new(config.slow_command));
        let reactor =
            |number| Arc::new(ReactorTelemetry::new(number, shared.clone(), config.events));
        Arc::new(Self {
            reactors: (0..config.reactors).map(reactor).collect(),
            control: FlightRecorder::new(config.events),
            control_writer: Mutex::new(()),
            shared,
        })
    }

    /// What a reactor writes to; for its own thread.
    #[must_use]
    pub fn reactor(&self, number: u16) -> Option<Arc<ReactorTelemetry>> {
        self.reactors.get(usize::from(number)).cloned()
    }

    /// Commands that take at least this long are events from now on.
    pub fn set_slow_command(&self, slow: Duration) {
        self.shared.set_slow(slow);
    }

    /// Keeps an event that no reactor brings: what an operator changed, a start, an end.
    pub fn record(&self, event: &Event) {
        let _writer = self
            .control_writer
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        self.control.record(self.shared.now_ns(), event);
    }

    /// Every number as it is now.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        snapshot::of(&self.shared, &self.reactors)
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
        self.shared.started_utc + Duration::from_nanos(recorded.at_ns)
    }

    /// From now on has the last events written to what `open` opens whenever a thread panics, as text, after what the hook before did.
    pub fn dump_on_panic<W: io::Write>(
        self: &Arc<Self>,
        open: impl Fn() -> io::Result<W> + Send + Sync + 'static,
    ) {
        let telemetry = self.clone();
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            before(info);
            // There is nobody left to tell of an error.
            let _written = open().and_then(|mut out| telemetry.dump(DumpFormat::Text, &mut out));
        }));
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

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::{Telemetry, TelemetryConfig};
    use crate::recorder::{DumpFormat, Event, EventKind, HostName};

    /// What was written.
    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_dump_has_the_events_of_all_in_the_order_of_their_times() {
        let telemetry = Telemetry::new(&TelemetryConfig {
            reactors: 2,
            ..TelemetryConfig::default()
        });
        let reactor = |number| telemetry.reactor(number).unwrap();
        let of_queue = |kind, sqid| Event::of_queue(kind, 7, sqid, HostName::NONE);
        reactor(1).record(30, &of_queue(EventKind::QueueOpened, 1));
        reactor(0).record(20, &of_queue(EventKind::HostConnected, 0));
        reactor(0).record(40, &of_queue(EventKind::Reset, 0));
        let mut out = Vec::new();
        telemetry.dump(DumpFormat::JsonLines, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let events: Vec<serde_json::Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let told = events.iter().map(|event| {
            let number = |name: &str| event[name].as_u64().unwrap();
            let kind = event["event"].as_str().unwrap();
            (number("since_start_ns"), number("reactor"), kind)
        });
        assert_eq!(
            told.collect::<Vec<_>>(),
            [
                (20, 0, "host connected"),
                (30, 1, "queue opened"),
                (40, 0, "reset")
            ]
        );
    }

    #[test]
    fn a_panic_leaves_the_last_events_behind() {
        let telemetry = Telemetry::new(&TelemetryConfig::default());
        let sink = Sink::default();
        let of_hook = sink.clone();
        telemetry.dump_on_panic(move || Ok(of_hook.clone()));
        telemetry.record(&Event::new(EventKind::Started));
        assert_eq!(sink.0.lock().unwrap().len(), 0);
        let ended = std::thread::spawn(|| panic!("on purpose")).join();
        assert!(ended.is_err());
        let text = String::from_utf8(sink.0.lock().unwrap().clone()).unwrap();
        assert!(text.trim_end().ends_with("control started"), "{text}");
    }
}
