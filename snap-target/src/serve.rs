//! The reactor threads: made, told of each other, and stopped.

use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use anyhow::{Context, Result, anyhow, bail};
use frontend_nvme_tcp::{Control, Frontend, FrontendConfig, Service as NvmeService, bind};
use namespace::{Engine, EngineConfig, FrameConfig, FrameWorkers, NamespaceSet, Peer};
use nix::sys::signal::{SigSet, Signal};
use reactor::{Ring, RingConfig};

use crate::config::{Config, ListenerConfig, SubsystemConfig};
use crate::open;

/// A running daemon.
pub struct Service {
    address: SocketAddr,
    set: NamespaceSet,
    reactors: Vec<JoinHandle<Result<()>>>,
    controls: Vec<Control>,
    /// Ends after the reactors.
    _workers: Option<FrameWorkers>,
}

/// Keeps SIGINT and SIGTERM for [`Service::run_until`]; to be called before any thread is made.
pub fn hold_signals() -> Result<SigSet> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGINT);
    signals.add(Signal::SIGTERM);
    signals
        .thread_block()
        .context("blocking SIGINT and SIGTERM")?;
    Ok(signals)
}

/// What of a configuration can be served today.
fn servable(config: &Config) -> Result<(&ListenerConfig, &SubsystemConfig)> {
    match (config.listeners.as_slice(), config.subsystems.as_slice()) {
        ([listener], [subsystem]) => Ok((listener, subsystem)),
        _ => bail!("one listener and one subsystem can be served"),
    }
}

/// Opens the stores, listens, and starts the reactors.
pub fn start(config: &Config) -> Result<Service> {
    let (listener, subsystem) = servable(config)?;
    let policy = config.target.source_policy();
    let mut all = Vec::new();
    for namespace in &subsystem.namespaces {
        let namespace = open::namespace(namespace, &policy)?;
        open::refuse_twin(&all, &namespace)?;
        all.push(Arc::new(namespace));
    }
    let set = &NamespaceSet::new(all);
    let (target, reactor_count) = (&config.target, config.target.reactors);
    let listener =
        bind(listener.address).with_context(|| format!("cannot listen on {}", listener.address))?;
    let address = listener.local_addr()?;
    let service = Arc::new(NvmeService::new(
        subsystem.nqn.as_str(),
        address,
        set,
        target.success_flag,
    )?);
    let workers = match target.workers {
        0 => None,
        count => Some(
            FrameWorkers::start(count, usize::from(reactor_count))
                .context("starting the decoding threads")?,
        ),
    };
    let mut listener = Some(listener);
    let mut reactors = Vec::new();
    let mut acquaintances = Vec::new();
    let mut introductions = Vec::new();
    for index in 0..reactor_count {
        let (control_tx, control_rx) = mpsc::channel();
        let (peers_tx, peers_rx) = mpsc::channel();
        let seed = Seed {
            config: FrontendConfig {
                reactor: index,
                service: service.clone(),
            },
            listener: listener.take(),
            set: set.clone(),
            ring: RingConfig::default().mask(target.without),
            engine: EngineConfig {
                cache_bytes: target.cache_bytes,
                frames: FrameConfig {
                    workers: workers.as_ref().map(FrameWorkers::queue),
                    ..FrameConfig::default()
                },
                ..EngineConfig::default()
            },
        };
        let thread = std::thread::Builder::new().name(format!("reactor-{index}"));
        reactors.push(thread.spawn(move || {
            let result = run_reactor(seed, &control_tx, &peers_rx);
            if let Err(error) = &result {
                // The daemon cannot serve with a reactor less: the main thread waits for signals, so it is told by one.
                tracing::error!(%error, "a reactor ended");
                let _told = nix::sys::signal::kill(nix::unistd::Pid::this(), Signal::SIGTERM);
            }
            result
        })?);
        match control_rx.recv() {
            Ok(acquaintance) => acquaintances.push(acquaintance),
            // It ended before it was ready: its result says why.
            Err(_) => return Err(why_it_ended(reactors.pop())),
        }
        introductions.push(peers_tx);
    }
    for introduction in introductions {
        introduction
            .send(acquaintances.clone())
            .map_err(|_| anyhow!("a reactor ended while the others started"))?;
    }
    Ok(Service {
        address,
        set: set.clone(),
        reactors,
        controls: acquaintances
            .into_iter()
            .map(|known| known.control)
            .collect(),
        _workers: workers,
    })
}

/// What reactors know of each other.
#[derive(Clone)]
struct Acquaintance {
    control: Control,
    frames: Peer,
}

/// What a reactor thread starts from.
struct Seed {
    config: FrontendConfig,
    listener: Option<TcpListener>,
    set: NamespaceSet,
    ring: RingConfig,
    engine: EngineConfig,
}

fn run_reactor(
    seed: Seed,
    ready: &mpsc::Sender<Acquaintance>,
    peers: &mpsc::Receiver<Vec<Acquaintance>>,
) -> Result<()> {
    let ring = Ring::new(&seed.ring)?;
    tracing::debug!(features = %ring.features(), "io_uring");
    let engine = Engine::new(&ring, &seed.set, &seed.engine)?;
    let frames = engine.peer();
    let mut frontend = Frontend::new(ring, engine, seed.config, seed.listener)?;
    let control = frontend.control();
    ready
        .send(Acquaintance { control, frames })
        .context("the daemon ended while its reactors started")?;
    let peers = peers
        .recv()
        .context("another reactor could not be started")?;
    let (controls, frames): (Vec<_>, Vec<_>) = peers
        .into_iter()
        .map(|known| (known.control, known.frames))
        .unzip();
    frontend.share_frames(&frames);
    frontend.run(&controls)?;
    Ok(())
}

fn why_it_ended(reactor: Option<JoinHandle<Result<()>>>) -> anyhow::Error {
    match reactor.map(JoinHandle::join) {
        Some(Ok(Err(error))) => error,
        _ => anyhow!("a reactor ended before it was ready"),
    }
}

impl Service {
    /// Where it listens: with the port that was free, where 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it serves.
    pub fn namespaces(&self) -> &NamespaceSet {
        &self.set
    }

    /// Serves until one of the held signals comes, then stops every reactor and waits for it.
    pub fn run_until(self, signals: &SigSet) -> Result<()> {
        let signal = signals.wait().context("waiting for a signal")?;
        tracing::info!(%signal, "stopping");
        for control in &self.controls {
            control.stop();
        }
        for reactor in self.reactors {
            reactor
                .join()
                .map_err(|_| anyhow!("a reactor panicked"))??;
        }
        Ok(())
    }
}
