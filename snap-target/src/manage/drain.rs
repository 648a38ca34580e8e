//! The orderly end.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use admin_proto::v1::{self, event::Kind};
use frontend_nvme::ControllerReport;
use telemetry::limits::OTHERS;
use telemetry::{HostSnapshot, Telemetry};

use super::Manager;
use crate::limits::{DRAIN_LOOK, FLUSH_TIME_MAX, FLUSHERS_MAX};

impl Manager {
    /// Stops listening, lets what is in flight end until `by` says, which may come to say sooner, ends the controllers, and flushes. Nothing of it is saved: the next start serves the same. What was counted is.
    pub fn drain(&mut self, telemetry: &Telemetry, by: &dyn Fn() -> Instant) {
        let ports = self.live.listeners.keys();
        let open = ports.filter(|port_id| self.live_listener(**port_id).is_some());
        let functions = self.live.functions.keys();
        let numbers = functions.filter_map(|name| self.live.function_number(*name));
        for port_id in open.copied().chain(numbers) {
            // The clients of functions stay until they have no command in flight, as hosts do.
            if let Err(error) = self.frontend.remove_listener(port_id) {
                tracing::warn!(port_id, %error, "a listener stays open until the end");
            }
        }
        self.end_hosts(telemetry, by);
        let _told = self.flush(FLUSH_TIME_MAX);
        self.end_lives();
    }

    /// Ends the controllers of each host as soon as it has no command in flight: one whose commands hang holds up no other. Those that have some at the end of
    /// the time are cut off.
    fn end_hosts(&self, telemetry: &Telemetry, by: &dyn Fn() -> Instant) {
        let mut busy = Busy::of(telemetry);
        let first = busy.commands();
        loop {
            let is_over = Instant::now() >= by();
            match self.frontend.controllers() {
                Ok(controllers) => {
                    for it in controllers {
                        if is_over || !busy.has(&it) {
                            // Its host may have left meanwhile.
                            let _gone = self.frontend.end_controller(it.id);
                        }
                    }
                }
                Err(error) => tracing::warn!(%error, "controllers end with their connections"),
            }
            if is_over || busy.commands() == 0 {
                break;
            }
            std::thread::sleep(DRAIN_LOOK.min(by().saturating_duration_since(Instant::now())));
            busy = Busy::of(telemetry);
        }
        let left = busy.commands();
        if left > 0 {
            tracing::warn!(
                in_flight = left,
                "commands are cut off: their hosts send them again to the next daemon"
            );
        }
        let progress = v1::ProgressEvent {
            operation: 1,
            what: "drain".to_owned(),
            done: first.saturating_sub(left),
            total: first,
            unit: "commands".to_owned(),
            ended: true,
        };
        let text = format!("drain: {left} of {first} commands were cut off");
        self.events.publish(Kind::Progress(progress), text);
    }

    /// Puts what files have in the page cache on their media, so that what hosts were told is written is there even if the power goes next. Threads do it: a
    /// server that hangs keeps neither the other files nor the end waiting.
    /// Returns how many files were not flushed in this time.
    pub(super) fn flush(&self, time_max: Duration) -> usize {
        let paths = self.written_files();
        let (mut left, by) = (paths.len(), Instant::now() + time_max);
        let (tell, told) = channel();
        let flushers = left.min(FLUSHERS_MAX);
        let queue = Arc::new(Mutex::new(paths.into_iter()));
        for _ in 0..flushers {
            let (queue, tell) = (queue.clone(), tell.clone());
            let thread = std::thread::Builder::new().name("flush".to_owned());
            let started = thread.spawn(move || {
                while let Some(path) = next_of(&queue) {
                    flush_file(&path);
                    // The manager may have gone on.
                    let _heard = tell.send(());
                }
            });
            if let Err(error) = started {
                tracing::error!(%error, "no thread to flush with");
            }
        }
        drop(tell);
        while left > 0 {
            let wait = by.saturating_duration_since(Instant::now());
            if told.recv_timeout(wait).is_err() {
                tracing::error!(
                    files = left,
                    "not flushed: their file systems have not answered"
                );
                break;
            }
            left -= 1;
        }
        left
    }

    /// The files that hosts may have written.
    fn written_files(&self) -> Vec<PathBuf> {
        let mut paths = Vec::new();
        for ((nqn, nsid), live) in &self.live.namespaces {
            let super::NamespaceLive::Served(namespace) = live else {
                continue;
            };
            let Some(config) = self.desired.namespace(nqn, *nsid) else {
                continue;
            };
            for (source, part) in config.source.parts().iter().zip(namespace.parts()) {
                if !part.write_protected {
                    paths.extend(source.path().map(Path::to_owned));
                }
            }
        }
        paths
    }
}

/// Commands in flight, by host.
struct Busy {
    hosts: Vec<HostSnapshot>,
}

impl Busy {
    fn of(telemetry: &Telemetry) -> Self {
        let hosts = telemetry.snapshot().hosts;
        Self { hosts }
    }

    fn commands(&self) -> u64 {
        self.hosts.iter().map(|row| row.in_flight).sum()
    }

    /// Whether a controller's host has commands in flight. Hosts beyond the number of rows share one.
    fn has(&self, controller: &ControllerReport) -> bool {
        let Some(subsystem) = &controller.subsystem else {
            return false;
        };
        let is_busy = |row: &HostSnapshot| {
            let is_its =
                row.subsystem == subsystem.as_str() && row.host == controller.host.as_str();
            row.in_flight > 0 && (is_its || row.host == OTHERS)
        };
        self.hosts.iter().any(is_busy)
    }
}

fn next_of(queue: &Mutex<impl Iterator<Item = PathBuf>>) -> Option<PathBuf> {
    queue.lock().unwrap_or_else(PoisonError::into_inner).next()
}

fn flush_file(path: &Path) {
    let begun = Instant::now();
    let file = OpenOptions::new().write(true).open(path);
    match file.and_then(|file| file.sync_data()) {
        Ok(()) if begun.elapsed() > Duration::from_secs(1) => {
            tracing::info!(path = %path.display(), took_ms = begun.elapsed().as_millis(), "flushed");
        }
        Ok(()) => {}
        Err(error) => tracing::error!(path = %path.display(), %error, "not flushed"),
    }
}
