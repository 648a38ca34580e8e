//! The daemon's life: started, ready, drained, ended.

use std::net::SocketAddr;
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;

use anyhow::{Context, Result};
use frontend_nvme_tcp::EventSink;
use nix::sys::signal::{SigSet, Signal};

use crate::config::Config;
use crate::desired::Desired;
use crate::events::Hub;
use crate::health::{Health, Phase};
use crate::limits::TARGET_EVENTS_MAX;
use crate::manage::{self, Foundation, Manage, Manager};
use crate::report;
use crate::serve::{self, Reactors};
use crate::state::StateFolder;
use crate::watch;

/// A daemon that serves.
pub struct Daemon {
    reactors: Reactors,
    manage: Manage,
    manager: JoinHandle<()>,
    health: Health,
}

/// Keeps the signals that the daemon acts on for [`Daemon::run_until`]; to be called before any thread is made.
pub fn hold_signals() -> Result<SigSet> {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        signals.add(signal);
    }
    signals.thread_block().context("blocking signals")?;
    Ok(signals)
}

/// Opens, listens, and says that it is ready.
pub fn start(config: &Config) -> Result<Daemon> {
    let events = Hub::default();
    let health = Health::new(events.clone());
    let state = match &config.target.state {
        Some(folder) => Some(StateFolder::open(folder)?),
        None => None,
    };
    let (sink, happened) = sync_channel(TARGET_EVENTS_MAX);
    let reactors = serve::start(&config.target, EventSink::new(sink))?;
    watch::start(happened, events.clone())?;
    let manager = Manager::restore(Foundation {
        frontend: Box::new(reactors.admin()?),
        policy: config.target.source_policy(),
        base: Desired::of(config),
        state,
        events,
        health: health.clone(),
    })?;
    let address = first_address(&manager);
    report::print(&manager, address);
    let (manage, manager) = manage::start(manager)?;
    health.enter(Phase::Serving);
    Ok(Daemon {
        reactors,
        manage,
        manager,
        health,
    })
}

/// Where it listens: with the port that was free, where 0 was asked for.
fn first_address(manager: &Manager) -> Option<SocketAddr> {
    let ports = manager.desired().listeners.keys();
    ports
        .into_iter()
        .find_map(|port_id| manager.live_listener(*port_id))
}

impl Daemon {
    /// Serves until one of the held signals comes, then ends.
    pub fn run_until(self, signals: &SigSet) -> Result<()> {
        let signal = signals.wait().context("waiting for a signal")?;
        tracing::info!(%signal, "stopping");
        self.health.enter(Phase::Draining);
        drop(self.manage);
        // It ends with the last who could ask it for something.
        let _ended = self.manager.join();
        self.reactors.stop()
    }
}
