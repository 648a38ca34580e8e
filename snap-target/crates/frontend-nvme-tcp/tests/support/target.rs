//! A frontend on a thread of its own.

use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use frontend_nvme_tcp::{Control, Frontend, FrontendConfig, Service, SuccessFlag, bind};
use namespace::{Engine, EngineConfig, Identity, Namespace, NamespaceSet};
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

/// One reactor that serves one store as namespace 1, in blocks of 4 KiB. Ends when dropped.
pub struct Target {
    pub address: String,
    pub telemetry: Arc<Telemetry>,
    control: Control,
    reactor: Option<JoinHandle<RingStats>>,
}

impl Target {
    pub fn start(store: SharedStore) -> Target {
        Target::start_with(store, RingConfig::default(), PoolConfig::default())
    }

    pub fn start_with(store: SharedStore, ring: RingConfig, pool: PoolConfig) -> Target {
        let namespace = Namespace::of_store(1, store, Identity::of_raw("test", b"disk"), 4096);
        Target::start_all(vec![namespace], ring, pool)
    }

    pub fn start_all(namespaces: Vec<Namespace>, ring: RingConfig, pool: PoolConfig) -> Target {
        let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let (ready, control) = mpsc::channel();
        let telemetry = Telemetry::new(&TelemetryConfig::default());
        let of_reactor = telemetry.reactor(0);
        let reactor = std::thread::spawn(move || {
            let set = NamespaceSet::new(namespaces.into_iter().map(Arc::new).collect());
            let ring = Ring::new(&ring).unwrap();
            let engine_config = EngineConfig {
                pool,
                telemetry: of_reactor,
                ..EngineConfig::default()
            };
            let engine = Engine::new(&ring, &set, &engine_config).unwrap();
            let service = Service::new(NQN, address, &set, SuccessFlag::Always).unwrap();
            let config = FrontendConfig {
                reactor: 0,
                service: Arc::new(service),
            };
            let mut frontend = Frontend::new(ring.clone(), engine, config, Some(listener)).unwrap();
            let control = frontend.control();
            ready.send(control.clone()).unwrap();
            frontend.run(&[control]).unwrap();
            ring.stats()
        });
        Target {
            address: address.to_string(),
            telemetry,
            control: control.recv().unwrap(),
            reactor: Some(reactor),
        }
    }
}

impl Target {
    /// Ends it; what its ring did.
    pub fn stop(mut self) -> RingStats {
        self.control.stop();
        self.reactor.take().unwrap().join().unwrap()
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.control.stop();
        // A reactor that a failed test has found hanging would hang the test as well.
        if let Some(reactor) = self.reactor.take().filter(|_| !std::thread::panicking()) {
            let _ended = reactor.join();
        }
    }
}
