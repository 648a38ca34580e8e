//! The daemon's life: started, ready, drained, ended.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result};
use frontend_nvme::EventSink;
use nix::sys::signal::{SigSet, Signal};
use telemetry::{DumpFormat, Event, EventKind, Telemetry, TelemetryConfig};

use crate::admin::{self, AdminService, Certificates, ClientRefusals, Context, Info, Roles};
use crate::catalogue::Catalogue;
use crate::config::{Config, Place, StartPolicy};
use crate::desired::Desired;
use crate::events::Hub;
use crate::guests::{Guests, WithDevices};
use crate::health::{Health, Phase};
use crate::limits::{DRAIN_MARGIN, OPEN_TIME_MAX, TARGET_EVENTS_MAX, THREADS_END_MAX};
use crate::locals::{self, Locals};
use crate::manage::{self, Foundation, Manage, Manager};
use crate::metrics::{self, Measured, MetricsService};
use crate::notify;
use crate::ports::Ports;
use crate::refusals::Refusals;
use crate::report;
use crate::serve::{self, Reactors};
use crate::signal::Ending;
use crate::state::StateFolder;
use crate::text::hex;
use crate::watch;

/// A daemon that serves.
pub struct Daemon {
    // In the order in which they end.
    metrics: Option<MetricsService>,
    manage: Manage,
    admin: Option<AdminService>,
    manager: JoinHandle<()>,
    guests: Guests,
    locals: Locals,
    reactors: Reactors,
    telemetry: Arc<Telemetry>,
    health: Health,
    ending: Ending,
    drain: Duration,
}

/// Opens, listens, and says that it is ready. `file` is where the configuration came from.
pub fn start(config: &Config, file: Option<&Path>) -> Result<Daemon> {
    let (events, ending) = (Hub::new(instance()?), Ending::default());
    let health = Health::new(events.clone());
    let state = match &config.target.state {
        Some(folder) => Some(StateFolder::open(folder)?),
        None => None,
    };
    let telemetry = Telemetry::new(&TelemetryConfig {
        reactors: config.target.reactors,
        ..TelemetryConfig::default()
    });
    // A fault tells what came before it.
    telemetry.dump_on_panic(|| Ok(std::io::stderr()));
    let (sink, happened) = sync_channel(TARGET_EVENTS_MAX);
    let sink = EventSink::new(sink);
    let refusals = Refusals::default();
    watch::start(happened, sink.losses(), refusals.clone(), events.clone())?;
    let room = locals::room_for(config.locals.len());
    let reactors = serve::start(&config.target, room, sink, &telemetry)?;
    let doors = reactors.doors();
    let of_guests = doors.iter().map(|doors| doors.guests.clone());
    let guests = Guests::new(of_guests.collect());
    let of_locals = doors.iter().map(|doors| doors.locals.clone());
    let of_locals = of_locals.collect();
    let locals = Locals::new(&config.locals, room, of_locals, health.clone());
    let catalogue = Catalogue::default();
    let manager = Manager::restore(Foundation {
        frontend: Box::new(WithDevices {
            admin: reactors.admin()?,
            guests: guests.clone(),
            locals: locals.clone(),
        }),
        ports: Ports::new(config.target.success_flag),
        policy: config.target.source_policy(),
        base: Desired::of(config),
        start: config.target.start,
        state,
        events: events.clone(),
        health: health.clone(),
        open_time_max: OPEN_TIME_MAX,
        catalogue: catalogue.clone(),
    })?;
    if config.target.start == StartPolicy::All {
        locals.check()?;
    }
    let of_tcp = config.admin.as_ref().and_then(|admin| admin.tcp.as_ref());
    let certificates = of_tcp.map(Certificates::read).transpose();
    let certificates = certificates.context("the admin service's TLS")?;
    let client_refusals = ClientRefusals::default();
    let metrics = match &config.metrics {
        Some(it) => {
            let measured = Measured {
                telemetry: telemetry.clone(),
                catalogue,
                health: health.clone(),
                refusals,
                certificates: certificates.clone(),
                client_refusals: client_refusals.clone(),
            };
            Some(metrics::start(it, measured)?)
        }
        None => None,
    };
    let address = first_place(&manager);
    let mut said = report::of(&manager, address);
    if let Some(metrics) = &metrics {
        said += &format!("metrics http://{}/metrics\n", metrics.address);
    }
    said += &locals.report();
    let (manage, manager) = manage::start(manager)?;
    let admin = match &config.admin {
        None => None,
        Some(admin) => Some(admin::start(
            admin,
            certificates,
            Context {
                manage: manage.clone(),
                events,
                health: health.clone(),
                telemetry: telemetry.clone(),
                info: Arc::new(info(config, file, reactors.features())?),
                ending: ending.clone(),
                streams: admin::Streams::default(),
                roles: Arc::new(Roles::of(admin.tcp.as_ref())),
                refusals: client_refusals,
            },
        )?),
    };
    // What cannot start has not lived.
    let by = Instant::now() + OPEN_TIME_MAX;
    let begun = manage.call_until(by, |manager| {
        manager.begin_lives();
        Ok(())
    });
    if let Err(error) = begun {
        tracing::error!(%error, "whether the daemon ends in order is not known to the next start");
    }
    health.enter(Phase::Serving);
    telemetry.record(&Event::new(EventKind::Started));
    if let Some(address) = admin.as_ref().and_then(|it| it.tcp) {
        said += &format!("admin https://{address}\n");
    }
    println!("{said}{}", report::ready(address));
    notify::tell(notify::READY);
    Ok(Daemon {
        metrics,
        manage,
        admin,
        manager,
        guests,
        locals,
        reactors,
        telemetry,
        health,
        ending,
        drain: config.target.drain,
    })
}

/// A name for this start of the daemon.
fn instance() -> Result<String> {
    let mut instance = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut instance)?;
    Ok(hex(&instance))
}

fn info(config: &Config, file: Option<&Path>, features: &str) -> Result<Info> {
    let text = |path: Option<&Path>| -> Result<String> {
        let path = path.map(std::path::absolute).transpose()?;
        Ok(path.map(|it| it.display().to_string()).unwrap_or_default())
    };
    Ok(Info {
        started_at: SystemTime::now(),
        reactors: config.target.reactors,
        workers: config.target.workers,
        cache_bytes: config.target.cache_bytes,
        prefetch_bytes: config.target.prefetch_bytes,
        config_file: text(file)?,
        state_folder: text(config.target.state.as_deref())?,
        ring_features: features.split_whitespace().map(str::to_owned).collect(),
        drain: config.target.drain,
    })
}

/// Where it listens: with the port that was free, where 0 was asked for.
fn first_place(manager: &Manager) -> Option<Place> {
    let mut ports = manager.desired().listeners.keys();
    ports.find_map(|port_id| manager.live_listener(*port_id))
}

/// The flight recorder, on standard error.
fn dump(telemetry: &Telemetry) {
    let mut text = Vec::new();
    // Into memory it cannot fail; and nobody can be told that standard error is closed.
    let _dumped = telemetry.dump(DumpFormat::Text, &mut text);
    eprintln!(
        "flight recorder, oldest first:\n{}flight recorder ends",
        String::from_utf8_lossy(&text)
    );
}

impl Daemon {
    /// Serves until it is told to end, and ends: what is in flight is let end first.
    pub fn run_until(self, signals: &SigSet) -> Result<()> {
        let signal = loop {
            match signals.wait().context("waiting for a signal")? {
                Signal::SIGHUP => self.hang_up(),
                Signal::SIGUSR1 => dump(&self.telemetry),
                signal => break signal,
            }
        };
        self.ending.by(self.drain);
        tracing::info!(%signal, "stopping");
        self.health.enter(Phase::Draining);
        self.telemetry.record(&Event::new(EventKind::Stopping));
        notify::tell(notify::STOPPING);
        end_at_the_next(*signals)?;
        self.let_devices_end()?;
        self.let_end();
        end_within(THREADS_END_MAX)?;
        drop(self.metrics);
        drop(self.admin);
        drop(self.manage);
        // A manager that waits for a reactor that is broken is let go by the end of the reactors.
        let ended = self.reactors.stop();
        let _ended = self.manager.join();
        ended
    }

    /// What can be read again is: the certificates.
    fn hang_up(&self) {
        let renews = self.admin.as_ref().is_some_and(AdminService::renew);
        tracing::warn!(
            "SIGHUP: the configuration is read at the start only; restart the daemon, or change what is served with snapctl{}",
            if renews {
                ". The certificates of the admin service are read again"
            } else {
                ""
            }
        );
    }

    /// What devices have in flight is let end, as long as draining may take; the rest is done again by the next start.
    fn let_devices_end(&self) -> Result<()> {
        let (guests, locals) = (self.guests.clone(), self.locals.clone());
        let (tell, ended) = sync_channel(2);
        let of_locals = tell.clone();
        let ends: [(_, Box<dyn FnOnce() + Send>); 2] = [
            (
                "guests-end",
                Box::new(move || {
                    guests.end();
                    // Nobody may wait any more.
                    let _told = tell.send(());
                }),
            ),
            (
                "locals-end",
                Box::new(move || {
                    locals.end();
                    let _told = of_locals.send(());
                }),
            ),
        ];
        for (name, end) in ends {
            std::thread::Builder::new()
                .name(name.to_owned())
                .spawn(end)?;
        }
        let by = self.ending.by(self.drain);
        for _ in 0..2 {
            let left = by.saturating_duration_since(Instant::now());
            if ended.recv_timeout(left).is_err() {
                tracing::warn!("requests of devices are cut off: the next start does them again");
                break;
            }
        }
        Ok(())
    }

    /// Has the manager drain. Where that takes longer than it may, the end comes without it.
    fn let_end(&self) {
        let (telemetry, ending) = (self.telemetry.clone(), self.ending.clone());
        let by = self.ending.by(self.drain) + DRAIN_MARGIN;
        let drained = self.manage.call_until(by, move |manager| {
            manager.drain(&telemetry, &|| ending.by(Duration::ZERO));
            Ok(())
        });
        if let Err(error) = drained {
            tracing::error!(%error, "not drained");
        }
    }
}

/// A thread that hangs in a store does not keep the daemon: the end comes without it.
fn end_within(time: Duration) -> Result<()> {
    let thread = std::thread::Builder::new().name("end".to_owned());
    thread.spawn(move || {
        std::thread::sleep(time);
        eprintln!("snap-target: a store has not let go of its thread; ended without it");
        std::process::exit(1);
    })?;
    Ok(())
}

/// Whoever says it twice does not want to wait.
fn end_at_the_next(signals: SigSet) -> Result<()> {
    let thread = std::thread::Builder::new().name("signals".to_owned());
    thread.spawn(move || {
        while let Ok(signal) = signals.wait() {
            if matches!(signal, Signal::SIGTERM | Signal::SIGINT) {
                eprintln!("snap-target: {signal} again: ended at once");
                std::process::exit(1);
            }
        }
    })?;
    Ok(())
}
