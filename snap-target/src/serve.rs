//! The reactor threads: made, told of each other, and stopped.

use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use anyhow::{Context, Result, anyhow};
use frontend_nvme::{
    Admin, Control, EventSink, Frontend, FrontendConfig, Service as NvmeService, ring_config,
};
use namespace::{Engine, EngineConfig, FrameConfig, FrameWorkers, NamespaceSet, Peer};
use nix::sys::signal::Signal;
use nvme::controller::ControllerLimits;
use reactor::{Ring, RingConfig};
use telemetry::Telemetry;

use crate::config::TargetConfig;
use crate::lodging::{Doors, Lodging};

/// The threads that serve. They serve nothing until an [`Admin`] adds it.
pub struct Reactors {
    threads: Vec<JoinHandle<Result<()>>>,
    controls: Vec<Control>,
    /// Where queues of devices go.
    doors: Vec<Doors>,
    /// io_uring features in use.
    features: String,
    /// Ends after the reactors.
    _workers: Option<FrameWorkers>,
}

/// Starts the reactors, with room for so many block devices of this machine.
///
/// # Errors
/// Why one of them could not be started.
pub fn start(
    target: &TargetConfig,
    locals: usize,
    events: EventSink,
    telemetry: &Telemetry,
) -> Result<Reactors> {
    let service = Arc::new(NvmeService::empty(&ControllerLimits::default(), events)?);
    let reactor_count = target.reactors;
    let workers = match target.workers {
        0 => None,
        count => Some(
            FrameWorkers::start(count, usize::from(reactor_count))
                .context("starting the decoding threads")?,
        ),
    };
    let mut reactors = Reactors {
        threads: Vec::new(),
        controls: Vec::new(),
        doors: Vec::new(),
        features: String::new(),
        _workers: None,
    };
    let mut acquaintances: Vec<Acquaintance> = Vec::new();
    let mut introductions = Vec::new();
    for index in 0..reactor_count {
        let (control_tx, control_rx) = mpsc::channel();
        let (peers_tx, peers_rx) = mpsc::channel();
        let seed = Seed {
            config: FrontendConfig {
                reactor: index,
                service: service.clone(),
            },
            ring: with_room(ring_config().mask(target.without), locals),
            engine: EngineConfig {
                cache_bytes: target.cache_bytes,
                prefetch_bytes: target.prefetch_bytes,
                telemetry: telemetry.reactor(index),
                frames: FrameConfig {
                    workers: workers.as_ref().map(FrameWorkers::queue),
                    ..FrameConfig::default()
                },
                ..EngineConfig::default()
            },
        };
        let thread = std::thread::Builder::new().name(format!("reactor-{index}"));
        reactors.threads.push(thread.spawn(move || {
            let result = run_reactor(seed, &control_tx, &peers_rx);
            if let Err(error) = &result {
                // The daemon cannot serve with a reactor less: the main thread waits for signals, so it is told by one.
                tracing::error!(%error, "a reactor ended");
                let _told = nix::sys::signal::kill(nix::unistd::Pid::this(), Signal::SIGTERM);
            }
            result
        })?);
        match control_rx.recv() {
            Ok(acquaintance) => {
                reactors.controls.push(acquaintance.control.clone());
                reactors.doors.push(acquaintance.doors.clone());
                acquaintances.push(acquaintance);
            }
            // It ended before it was ready: its result says why.
            Err(_) => return Err(why_it_ended(reactors.threads.pop())),
        }
        introductions.push(peers_tx);
    }
    for introduction in introductions {
        introduction
            .send(acquaintances.clone())
            .map_err(|_| anyhow!("a reactor ended while the others started"))?;
    }
    if let Some(first) = acquaintances.first() {
        reactors.features.clone_from(&first.features);
    }
    reactors._workers = workers;
    Ok(reactors)
}

/// The requests of block devices of this machine are waited for on the rings of reactors, each by itself.
fn with_room(ring: RingConfig, locals: usize) -> RingConfig {
    let more = frontend_ublk::ring_operations(locals);
    // Each has a queue there, which is an owner with a timer.
    let queues = u32::try_from(locals).unwrap_or(0);
    RingConfig {
        owners_max: ring.owners_max + queues,
        timers_max: ring.timers_max + queues,
        ops_max: ring.ops_max + more,
        ops_reserved: ring.ops_reserved + more,
        events_max: ring.events_max + 2 * more,
        ..ring
    }
}

/// What reactors know of each other.
#[derive(Clone)]
struct Acquaintance {
    control: Control,
    frames: Peer,
    doors: Doors,
    features: String,
}

/// What a reactor thread starts from.
struct Seed {
    config: FrontendConfig,
    ring: RingConfig,
    engine: EngineConfig,
}

fn run_reactor(
    seed: Seed,
    ready: &mpsc::Sender<Acquaintance>,
    peers: &mpsc::Receiver<Vec<Acquaintance>>,
) -> Result<()> {
    let ring = Ring::new(&seed.ring)?;
    let features = ring.features().to_string();
    tracing::debug!(features, "io_uring");
    let engine = Engine::new(&ring, &NamespaceSet::default(), &seed.engine)?;
    let frames = engine.peer();
    let (lodging, doors) = Lodging::new(&ring);
    let mut frontend = Frontend::new(ring, engine, seed.config, None)?;
    frontend.lodge(Box::new(lodging));
    let control = frontend.control();
    ready
        .send(Acquaintance {
            control,
            frames,
            doors,
            features,
        })
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

impl Reactors {
    /// Changes what they serve.
    pub fn admin(&self) -> Result<Admin> {
        let first = self.controls.first().context("there is no reactor")?;
        Ok(Admin::new(first.clone()))
    }

    /// Where queues of devices go: one for each reactor.
    pub fn doors(&self) -> &[Doors] {
        &self.doors
    }

    /// io_uring features in use, by their names on the command line.
    pub fn features(&self) -> &str {
        &self.features
    }

    /// Stops every reactor and waits for it.
    ///
    /// # Errors
    /// Why one ended before.
    pub fn stop(mut self) -> Result<()> {
        self.tell_all_to_stop();
        for thread in std::mem::take(&mut self.threads) {
            thread.join().map_err(|_| anyhow!("a reactor panicked"))??;
        }
        Ok(())
    }

    fn tell_all_to_stop(&self) {
        for control in &self.controls {
            control.stop();
        }
    }
}

impl Drop for Reactors {
    fn drop(&mut self) {
        self.tell_all_to_stop();
        for thread in self.threads.drain(..) {
            // Whoever drops them has an error to tell already.
            let _ended = thread.join();
        }
    }
}
