//! A frontend on a thread of its own.

use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use namespace::{Engine, EngineConfig, Identity, Namespace, NamespaceSet};
use nvme::controller::ControllerLimits;
use reactor::buf::PoolConfig;
use reactor::{Ring, RingConfig, RingStats};
use store::{OpenOptions, SharedStore, StoreSpec};
use telemetry::{Event, EventKind, HostSnapshot, ReactorSnapshot, Telemetry, TelemetryConfig};

use super::{Carrier, On, Place, Wire};
use crate::link::Bound;
use crate::{Admin, Control, Frontend, FrontendConfig, Service};

/// What has not come by then never will.
const PATIENCE: Duration = Duration::from_secs(10);

/// The subsystem of the suite's targets.
pub const NQN: &str = "nqn.2026-11.io.example:disk";

/// A memory store of 1 MiB.
#[must_use]
pub fn memory() -> SharedStore {
    let spec = StoreSpec::Mem { bytes: 1 << 20 };
    SharedStore::open(&spec, OpenOptions::read_write()).unwrap()
}

/// Reactors that serve one namespace, NSID 1, in blocks of 4 KiB. Ends when dropped.
pub struct Target {
    /// Where hosts come in.
    pub place: Place,
    /// The same, as text.
    pub address: String,
    /// What the reactors count.
    pub telemetry: Arc<Telemetry>,
    controls: Vec<Control>,
    reactors: Vec<JoinHandle<RingStats>>,
}

/// A namespace over a store, in blocks of 4 KiB.
#[must_use]
pub fn disk(store: SharedStore) -> Namespace {
    Namespace::of_store(1, store, Identity::of_raw("test", b"disk"), 4096)
}

/// Of a target that listens where a test says, and whose hosts are not the suite's.
#[derive(Debug)]
struct HostsOfTheTest;

impl Carrier for HostsOfTheTest {
    fn bind(&self) -> Box<dyn Bound> {
        panic!("the test listens itself");
    }

    fn connect(&self, _to: SocketAddr, _qid: u16, _entries: u16) -> Box<dyn Wire> {
        panic!("the test has hosts of its own");
    }
}

impl Target {
    /// One reactor.
    #[must_use]
    pub fn start(on: &On, store: SharedStore) -> Target {
        Target::start_with(on, store, RingConfig::default(), PoolConfig::default())
    }

    #[must_use]
    /// The same, on such a ring and with such a pool.
    pub fn start_with(on: &On, store: SharedStore, ring: RingConfig, pool: PoolConfig) -> Target {
        Target::serve(on, vec![disk(store)], 1, &ring, &pool)
    }

    /// Serves these instead.
    #[must_use]
    pub fn start_all(
        on: &On,
        namespaces: Vec<Namespace>,
        ring: RingConfig,
        pool: PoolConfig,
    ) -> Target {
        Target::serve(on, namespaces, 1, &ring, &pool)
    }

    /// Several reactors: of those with the fewest I/O queues the first gets the next.
    #[must_use]
    pub fn start_many(on: &On, namespace: Namespace, reactors: u16) -> Target {
        let (ring, pool) = (RingConfig::default(), PoolConfig::default());
        Target::serve(on, vec![namespace], reactors, &ring, &pool)
    }

    /// The same, which gives a keeper no longer than this.
    #[must_use]
    pub fn start_impatient(
        on: &On,
        namespace: Namespace,
        reactors: u16,
        patience: Duration,
    ) -> Target {
        let (ring, pool) = (RingConfig::default(), PoolConfig::default());
        let change = |service: Service| service.with_keep_patience(patience);
        Target::serve_as(on, vec![namespace], reactors, &ring, &pool, change)
    }

    /// The same, of reactors that take so many I/O queues each.
    #[must_use]
    pub fn start_narrow(on: &On, namespace: Namespace, reactors: u16, queues: usize) -> Target {
        let (ring, pool) = (crate::ring_config(), PoolConfig::default());
        let change = |service: Service| service.with_io_queues_per_reactor(queues);
        Target::serve_as(on, vec![namespace], reactors, &ring, &pool, change)
    }

    /// Hosts come by this listening end, and are the test's own.
    #[must_use]
    pub fn start_on(listener: Box<dyn Bound>, namespaces: Vec<Namespace>, reactors: u16) -> Target {
        let (ring, pool) = (RingConfig::default(), PoolConfig::default());
        let on: On = Arc::new(HostsOfTheTest);
        Target::serve_on(
            &on,
            listener,
            namespaces,
            reactors,
            &ring,
            &pool,
            |service| service,
        )
    }

    fn serve(
        on: &On,
        namespaces: Vec<Namespace>,
        count: u16,
        ring: &RingConfig,
        pool: &PoolConfig,
    ) -> Target {
        Target::serve_as(on, namespaces, count, ring, pool, |service| service)
    }

    fn serve_as(
        on: &On,
        namespaces: Vec<Namespace>,
        count: u16,
        ring: &RingConfig,
        pool: &PoolConfig,
        change: impl FnOnce(Service) -> Service,
    ) -> Target {
        Target::serve_on(on, on.bind(), namespaces, count, ring, pool, change)
    }

    fn serve_on(
        on: &On,
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
            place: Place {
                on: on.clone(),
                address,
                subsystem: NQN.to_owned(),
            },
            address: address.to_string(),
            telemetry,
            controls,
            reactors: started.into_iter().map(|(thread, _, _)| thread).collect(),
        }
    }

    /// Changes what it serves.
    #[must_use]
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

impl Target {
    /// What telemetry has of a host and a namespace.
    #[must_use]
    pub fn row(&self, host: &str, nsid: u32) -> Option<HostSnapshot> {
        let mut rows = self.telemetry.snapshot().hosts.into_iter();
        rows.find(|row| (&row.subsystem[..], &row.host[..], row.nsid) == (NQN, host, nsid))
    }

    /// What the flight recorder has.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        let events = self.telemetry.events();
        events.iter().map(|recorded| recorded.event).collect()
    }

    /// The first reactor, once it has sent so much.
    #[must_use]
    pub fn reactor_that_has_sent(&self, bytes: u64) -> ReactorSnapshot {
        let start = Instant::now();
        loop {
            let reactor = self.telemetry.snapshot().reactors.remove(0);
            if reactor.wire_sent_bytes >= bytes {
                return reactor;
            }
            assert!(start.elapsed() < PATIENCE, "{reactor:?}");
            std::thread::yield_now();
        }
    }

    /// The events, once one of this kind is there.
    pub fn events_with(&self, kind: EventKind) -> Vec<Event> {
        let start = Instant::now();
        loop {
            let events = self.events();
            if events.iter().any(|event| event.kind == kind) {
                return events;
            }
            assert!(start.elapsed() < PATIENCE, "{kind:?} is not in {events:?}");
            std::thread::yield_now();
        }
    }
}
