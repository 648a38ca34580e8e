//! A write of a connection that is gone is never applied behind a newer one's back: its host is let in again only when the store is done
//! with it (design: "Failure"; TP4129's concern).

#![allow(
    clippy::unwrap_used,
    reason = "a failure of a test is a panic with its line"
)]

use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use frontend_nvme_tcp::{Control, Frontend, FrontendConfig, Service, SuccessFlag, bind};
use initiator::{Initiator, Options};
use namespace::{Engine, EngineConfig, Identity, Namespace, NamespaceSet};
use reactor::{Ring, RingConfig};
use store::decorate::Delay;
use store::{OpenOptions, SharedStore, StoreSpec};

const NQN: &str = "nqn.2026-11.io.example:late";

/// A frontend on a thread of its own, over a memory store whose writes take `change`.
struct Target {
    address: String,
    control: Control,
    reactor: Option<JoinHandle<()>>,
}

impl Target {
    fn start(change: Duration) -> Target {
        let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let (ready, control) = mpsc::channel();
        let reactor = std::thread::spawn(move || {
            let memory = SharedStore::open(
                &StoreSpec::Mem { bytes: 1 << 20 },
                OpenOptions::read_write(),
            )
            .unwrap();
            let store = Delay {
                change,
                ..Delay::default()
            }
            .over(memory)
            .unwrap();
            let namespace = Namespace::of_store(1, store, Identity::of_raw("test", b"late"), 4096);
            let set = NamespaceSet::new(vec![Arc::new(namespace)]);
            let ring = Ring::new(&RingConfig::default()).unwrap();
            let engine = Engine::new(&ring, &set, &EngineConfig::default()).unwrap();
            let service = Service::new(NQN, address, &set, SuccessFlag::Always).unwrap();
            let config = FrontendConfig {
                reactor: 0,
                service: Arc::new(service),
            };
            let mut frontend = Frontend::new(ring, engine, config, Some(listener)).unwrap();
            let control = frontend.control();
            ready.send(control.clone()).unwrap();
            frontend.run(&[control]).unwrap();
        });
        Target {
            address: address.to_string(),
            control: control.recv().unwrap(),
            reactor: Some(reactor),
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.control.stop();
        if let Some(reactor) = self.reactor.take() {
            let _ended = reactor.join();
        }
    }
}

#[test]
fn a_host_comes_back_only_when_its_last_write_has_ended() {
    let write_takes = Duration::from_millis(1500);
    let target = Target::start(write_takes);
    let impatient = Options {
        command_timeout: Duration::from_millis(200),
        ..Options::default()
    };
    let mut host = Initiator::connect(&target.address, NQN, &impatient).unwrap();
    let submitted = Instant::now();
    let error = host.write(1, 0, &[0xAA; 4096]).unwrap_err();
    assert!(error.ends_connection(), "the host gave up: {error}");
    drop(host);

    // Another host is not held up by it.
    let mut other = Initiator::connect(&target.address, NQN, &Options::default()).unwrap();
    let mut block = [0; 4096];
    other.read(1, 4096, &mut block).unwrap();

    let patient = Options {
        command_timeout: Duration::from_secs(30),
        ..impatient
    };
    let mut again = Initiator::connect(&target.address, NQN, &patient).unwrap();
    assert!(
        submitted.elapsed() >= write_takes,
        "it was let in while its old write was still under way"
    );
    again.write(1, 0, &[0xBB; 4096]).unwrap();
    again.read(1, 0, &mut block).unwrap();
    assert_eq!(block, [0xBB; 4096]);
}
