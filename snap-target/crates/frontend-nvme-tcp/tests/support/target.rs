//! A frontend on a thread of its own.

use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use frontend_nvme::link::Bound;
use frontend_nvme::{Admin, Control, Frontend, FrontendConfig, Service};
use frontend_nvme_tcp::{SuccessFlag, bind};
use namespace::{Engine, EngineConfig, Identity, Namespace, NamespaceSet};
use nvme::controller::ControllerLimits;
use reactor::buf::PoolConfig;
use reactor::{Ring, RingConfig, RingStats};
use store::{OpenOptions, SharedStore, StoreSpec};
use telemetry::{Telemetry, TelemetryConfig};

pub const NQN: &str = "nqn.2026-11.io.example:disk";

/// A memory store of 1 MiB.
pub fn memory() -> SharedStore {
    let spec = StoreSpec::Mem { bytes: 1 << 20 };
    SharedStore::open(&spec, OpenOptions::read_write()).unwrap()
}

/// Reactors that serve one namespace, NSID 1, in blocks of 4 KiB. Ends when dropped.
pub struct Target {
    pub address: String,
    /// What the reactors count.
    pub telemetry: Arc<Telemetry>,
    controls: Vec<Control>,
    reactors: Vec<JoinHandle<RingStats>>,
}

/// A namespace over a store, in blocks of 4 KiB.
pub fn disk(store: SharedStore) -> Namespace {
    Namespace::of_store(1, store, Identity::of_raw("test", b"disk"), 4096)
}

impl Target {
    /// One reactor.
    pub fn start(store: SharedStore) -> Target {
        Target::start_with(store, RingConfig::default(), PoolConfig::default())
    }

    pub fn start_with(store: SharedStore, ring: RingConfig, pool: PoolConfig) -> Target {
        Target::serve(vec![disk(store)], 1, &ring, &pool)
    }

    pub fn start_all(namespaces: Vec<Namespace>, ring: RingConfig, pool: PoolConfig) -> Target {
        Target::serve(namespaces, 1, &ring, &pool)
    }

    /// Several reactors: of those with the fewest I/O queues the first gets the next.
    pub fn start_many(namespace: Namespace, reactors: u16) -> Target {
        let (ring, pool) = (RingConfig::default(), PoolConfig::default());
        Target::serve(vec![namespace], reactors, &ring, &pool)
    }

    /// The same, which gives a keeper no longer than this.
    pub fn start_impatient(namespace: Namespace, reactors: u16, patience: Duration) -> Target {
        let (ring, pool) = (RingConfig::default(), PoolConfig::default());
        let change = |service: Service| service.with_keep_patience(patience);
        Target::serve_as(vec![namespace], reactors, &ring, &pool, change)
    }

    /// The same, of reactors that take so many I/O queues each.
    pub fn start_narrow(namespace: Namespace, reactors: u16, queues: usize) -> Target {
        let (ring, pool) = (frontend_nvme::ring_config(), PoolConfig::default());
        let change = |service: Service| service.with_io_queues_per_reactor(queues);
        Target::serve_as(vec![namespace], reactors, &ring, &pool, change)
    }

    /// Hosts come by this listening end.
    pub fn start_on(listener: Box<dyn Bound>, namespaces: Vec<Namespace>, reactors: u16) -> Target {
        let (ring, pool) = (RingConfig::default(), PoolConfig::default());
        Target::serve_on(listener, namespaces, reactors, &ring, &pool, |service| {
            service
        })
    }

    fn serve(
        namespaces: Vec<Namespace>,
        count: u16,
        ring: &RingConfig,
        pool: &PoolConfig,
    ) -> Target {
        Target::serve_as(namespaces, count, ring, pool, |service| service)
    }

    fn serve_as(
        namespaces: Vec<Namespace>,
        count: u16,
        ring: &RingConfig,
        pool: &PoolConfig,
        change: impl FnOnce(Service) -> Service,
    ) -> Target {
        let listener = bind("127.0.0.1:0".parse().unwrap(), SuccessFlag::Always).unwrap();
        Target::serve_on(Box::new(listener), namespaces, count, ring, pool, change)
    }

    fn serve_on(
        listener: Box<dyn Bound>,
        namespaces: Vec<Namespace>,
        count: u16,
        ring: &RingConfig,
        pool: &PoolConfig,
        change: impl FnOnce(Service) -> Service,
    ) -> Target {
        let address = listener.address();
        let set = NamespaceSet::new(namespaces.into_iter().map(Arc::new).collect());
        let service = Service::of_one(NQN, &set, &ControllerLimits::default()).unwrap();
        let service = Arc::new(change(service));
        let telemetry = Telemetry::new(&TelemetryConfig {
            reactors: count,
            ..TelemetryConfig::default()
        });
        let mut listener = Some(listener);
        let mut started = Vec::new();
        for reactor in 0..count {
            let (ready, control) = mpsc::channel();
            let (meet, peers) = mpsc::channel::<Vec<_>>();
            let (set, service, listener) = (set.clone(), service.clone(), listener.take());
            let (ring, pool) = (ring.clone(), pool.clone());
            let of_reactor = telemetry.reactor(reactor);
            let thread = std::thread::spawn(move || {
                let ring = Ring::new(&ring).unwrap();
                let engine_config = EngineConfig {
                    pool,
                    telemetry: of_reactor,
                    ..EngineConfig::default()
                };
                let engine = Engine::new(&ring, &set, &engine_config).unwrap();
                let config = FrontendConfig { reactor, service };
                let peer = engine.peer();
                let mut frontend = Frontend::new(ring.clone(), engine, config, listener).unwrap();
                ready.send((frontend.control(), peer)).unwrap();
                let (controls, peers): (Vec<_>, Vec<_>) = peers.recv().unwrap().into_iter().unzip();
                frontend.share_frames(&peers);
                frontend.run(&controls).unwrap();
                ring.stats()
            });
            started.push((thread, control.recv().unwrap(), meet));
        }
        let known: Vec<_> = started.iter().map(|(_, it, _)| it.clone()).collect();
        for (_, _, meet) in &started {
            meet.send(known.clone()).unwrap();
        }
        let controls = known.into_iter().map(|(control, _)| control).collect();
        Target {
            address: address.to_string(),
            telemetry,
            controls,
            reactors: started.into_iter().map(|(thread, _, _)| thread).collect(),
        }
    }

    /// Changes what it serves.
    pub fn admin(&self) -> Admin {
        Admin::new(self.controls[0].clone())
    }

    /// Ends it; what its first ring did.
    pub fn stop(mut self) -> RingStats {
        self.controls.iter().for_each(Control::stop);
        let mut stats = self.reactors.drain(..).map(|it| it.join().unwrap());
        let first = stats.next().unwrap();
        stats.for_each(drop);
        first
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.controls.iter().for_each(Control::stop);
        // A reactor that a failed test has found hanging would hang the test as well.
        if !std::thread::panicking() {
            for reactor in self.reactors.drain(..) {
                let _ended = reactor.join();
            }
        }
    }
}
