//! A target that is changed while it is served.

use std::sync::Arc;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use namespace::{Engine, EngineConfig, Identity, Namespace, NamespaceSet};
use nvme::controller::{ControllerLimits, HostPolicy, Visibility};
use nvme::nqn::Nqn;
use reactor::{Ring, RingConfig};
use store::{OpenOptions, SharedStore, StoreSpec};
use telemetry::{Telemetry, TelemetryConfig};

use super::target::NQN;
use super::{On, Place};
use crate::{
    Admin, AdminError, Control, EventSink, Frontend, FrontendConfig, Life, Service, TargetEvent,
    subsystem,
};

/// Two reactors that serve nothing until they are told to.
pub struct Target {
    /// What carries its hosts.
    pub on: On,
    /// Changes what it serves.
    pub admin: Admin,
    /// What the reactors count.
    pub telemetry: Arc<Telemetry>,
    /// What happens there.
    pub events: mpsc::Receiver<TargetEvent>,
    controls: Vec<Control>,
    reactors: Vec<JoinHandle<()>>,
}

impl Target {
    /// Nothing yet.
    #[must_use]
    pub fn start(on: &On) -> Target {
        let (sender, events) = mpsc::sync_channel(1024);
        let limits = ControllerLimits::default();
        let service = Service::empty(&limits, EventSink::new(sender));
        let service = Arc::new(service.unwrap());
        let telemetry = Telemetry::new(&TelemetryConfig {
            reactors: 2,
            ..TelemetryConfig::default()
        });
        let mut known = Vec::new();
        let mut reactors = Vec::new();
        let mut introductions = Vec::new();
        for reactor in 0..2 {
            let (ready, made) = mpsc::channel();
            let (introduce, introduced) = mpsc::channel::<Vec<_>>();
            let config = FrontendConfig {
                reactor,
                service: service.clone(),
            };
            let engine_config = EngineConfig {
                telemetry: telemetry.reactor(reactor),
                ..EngineConfig::default()
            };
            reactors.push(thread::spawn(move || {
                let ring = Ring::new(&RingConfig::default()).unwrap();
                let none = NamespaceSet::default();
                let engine = Engine::new(&ring, &none, &engine_config).unwrap();
                let peer = engine.peer();
                let mut frontend = Frontend::new(ring, engine, config, None).unwrap();
                ready.send((frontend.control(), peer)).unwrap();
                let (controls, peers): (Vec<_>, Vec<_>) =
                    introduced.recv().unwrap().into_iter().unzip();
                frontend.share_frames(&peers);
                frontend.run(&controls).unwrap();
            }));
            known.push(made.recv().unwrap());
            introductions.push(introduce);
        }
        for introduce in introductions {
            introduce.send(known.clone()).unwrap();
        }
        let controls: Vec<_> = known.into_iter().map(|(control, _)| control).collect();
        Target {
            on: on.clone(),
            admin: Admin::new(controls[0].clone()),
            telemetry,
            events,
            controls,
            reactors,
        }
    }

    /// A target that serves one subsystem to any host, and its address.
    #[must_use]
    pub fn serving(on: &On) -> (Target, Place) {
        let target = Target::start(on);
        target.create(NQN, HostPolicy::Any);
        let place = target.listen(1);
        (target, place)
    }

    /// Makes a subsystem.
    pub fn create(&self, nqn: &str, hosts: HostPolicy) {
        let limits = ControllerLimits::default();
        self.create_limited(nqn, hosts, limits);
    }

    /// The same, with such limits.
    pub fn create_limited(&self, nqn: &str, hosts: HostPolicy, limits: ControllerLimits) {
        let subsystem = subsystem(Nqn::parse(nqn).unwrap(), hosts, limits);
        let made = self.admin.create_subsystem(subsystem, Life::default());
        made.unwrap();
    }

    /// Listens at one more place.
    #[must_use]
    pub fn listen(&self, port_id: u16) -> Place {
        let listener = self.on.bind();
        let address = listener.address();
        self.admin.add_listener(port_id, listener).unwrap();
        Place {
            on: self.on.clone(),
            address,
            subsystem: NQN.to_owned(),
        }
    }

    /// Shows a namespace of the subsystem to all.
    ///
    /// # Errors
    /// What the target says.
    pub fn attach(&self, namespace: &Arc<Namespace>) -> Result<(), AdminError> {
        self.admin
            .attach(&nqn(), namespace.clone(), Visibility::All)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        for control in &self.controls {
            control.stop();
        }
        for reactor in self.reactors.drain(..) {
            if !thread::panicking() {
                reactor.join().unwrap();
            }
        }
    }
}

/// [`NQN`].
#[must_use]
pub fn nqn() -> Nqn {
    Nqn::parse(NQN).unwrap()
}

/// A disk of that number, whose identity is its own.
#[must_use]
pub fn disk(nsid: u32, store: SharedStore) -> Arc<Namespace> {
    let identity = Identity::of_raw("test", &nsid.to_le_bytes());
    Arc::new(Namespace::of_store(nsid, store, identity, 4096))
}

/// A memory store of so many bytes.
#[must_use]
pub fn memory_of(bytes: u64) -> SharedStore {
    let spec = StoreSpec::Mem { bytes };
    SharedStore::open(&spec, OpenOptions::read_write()).unwrap()
}
