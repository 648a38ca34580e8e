//! `xio verify nvme+tcp://...` against a target in this process.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

use frontend_nvme::link::Bound;
use frontend_nvme::{Admin, Control, Frontend, FrontendConfig, Service};
use frontend_nvme_tcp::{SuccessFlag, bind};
use namespace::{Engine, EngineConfig, Namespace, NamespaceSet};
use nvme::controller::{ControllerLimits, HostPolicy, Visibility};
use nvme::nqn::Nqn;
use nvme_spec::Nsid;
use reactor::{Ring, RingConfig};
use store::{OpenOptions, SharedStore, StoreSpec};
use volume::blocking::Reader;
use volume::{Locator, SourceId, Volume};

use super::support::{Folder, fixture};

pub const NQN: &str = "nqn.2026-11.io.xio:test";

/// The volume's own file, and those it maps.
fn files_of(volume: &Volume, path: &Path) -> impl Iterator<Item = PathBuf> {
    let folder = path.parent().unwrap();
    (0..)
        .zip(volume.sources())
        .map(move |(source, _)| match volume.locator(SourceId(source)) {
            None => path.to_owned(),
            Some(Locator::Path(inside)) => folder.join(inside),
            Some(url) => panic!("{url}"),
        })
}

/// A volume as a namespace.
fn namespace_of(nsid: u32, path: &Path) -> Arc<Namespace> {
    let volume = Reader::open_file(path, 0).unwrap().volume().clone();
    let stores = files_of(&volume, path).map(|path| {
        SharedStore::open(&StoreSpec::File { path }, OpenOptions::read_only()).unwrap()
    });
    let stores = stores.collect();
    Arc::new(Namespace::of_view(nsid, volume, stores))
}

/// A target with one reactor; stopped when it is dropped.
pub struct Target {
    pub address: SocketAddr,
    nqn: String,
    control: Control,
    reactor: Option<JoinHandle<()>>,
}

impl Target {
    /// Serves volume files as NSID 1, 2, ...
    pub fn start(nqn: &str, volumes: &[&Path]) -> Target {
        let namespaces = (1..).zip(volumes);
        let namespaces = namespaces.map(|(nsid, path)| namespace_of(nsid, path));
        Target::serve(nqn, NamespaceSet::new(namespaces.collect()))
    }

    /// Has the volume at `path` take the place of what is NSID 1: detach and attach, as snapctl does it.
    pub fn swap(&self, path: &Path) {
        let (admin, nqn) = (
            Admin::new(self.control.clone()),
            Nqn::parse(&self.nqn).unwrap(),
        );
        admin.detach(&nqn, Nsid(1)).unwrap();
        let attached = admin.attach(&nqn, namespace_of(1, path), Visibility::All);
        attached.unwrap();
    }

    /// Lets one host in, and no other, as snapctl does it.
    pub fn allow_only(&self, host: &str) {
        let nqn = |text| Nqn::parse(text).unwrap();
        let hosts = HostPolicy::Only(vec![nqn(host)]);
        let admin = Admin::new(self.control.clone());
        admin.set_hosts(&nqn(&self.nqn), hosts).unwrap();
    }

    /// Serves namespaces.
    pub fn serve(nqn: &str, set: NamespaceSet) -> Target {
        let listener = bind("127.0.0.1:0".parse().unwrap(), SuccessFlag::Always).unwrap();
        let address = listener.address();
        let service = Arc::new(Service::of_one(nqn, &set, &ControllerLimits::default()).unwrap());
        let (ready, control) = mpsc::channel();
        let reactor = thread::spawn(move || {
            let ring = Ring::new(&RingConfig::default()).unwrap();
            let engine = Engine::new(&ring, &set, &EngineConfig::default()).unwrap();
            let config = FrontendConfig {
                reactor: 0,
                service,
            };
            let mut frontend =
                Frontend::new(ring, engine, config, Some(Box::new(listener))).unwrap();
            ready.send(frontend.control()).unwrap();
            frontend.run(&[frontend.control()]).unwrap();
        });
        Target {
            address,
            nqn: nqn.to_owned(),
            control: control.recv().unwrap(),
            reactor: Some(reactor),
        }
    }

    pub fn url(&self, query: &str) -> String {
        format!("nvme+tcp://{}/{}{query}", self.address, self.nqn)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.control.stop();
        if let Some(reactor) = self.reactor.take() {
            reactor.join().unwrap();
        }
    }
}

#[test]
fn a_wrong_nqn_is_answered_with_those_that_are_there() {
    let folder = Folder::new();
    folder.write("a.bin", &[1; 4096]);
    folder.done(["pack", "a.bin", "--dtype", "u8", "-o", "1.xio"]);
    let target = Target::start(NQN, &[&folder.path("1.xio")]);
    let address = target.address;
    let wrong = format!("nvme+tcp://{address}/nqn.2026-11.io.xio:other?nsid=1");
    let said = format!(
        "{address}: the target refused to connect to nqn.2026-11.io.xio:other: 1h/82h Connect Invalid Parameters, do not retry (byte 256 of the Connect data, the subsystem's NQN: name one that the target has, as its discovery service lists them); {address} offers {NQN}"
    );
    folder.fails(3, &said, &["cp", &wrong, "copy"]);
    folder.fails(3, &said, &["verify", &wrong, "--against", "a.bin"]);
    // What is offered is let in.
    folder.done(["verify", &target.url("?nsid=1"), "--against", "a.bin"]);
}

#[test]
fn a_namespace_is_compared_with_the_files_it_was_packed_from() {
    let folder = Folder::new();
    let r50k = std::fs::read(fixture("r50k-u32.bin")).unwrap();
    folder.write("a.bin", &r50k);
    folder.write("b.bin", &r50k[..4_000]);
    folder.done([
        "pack",
        "a.bin",
        "--dtype",
        "u32",
        "--store-as",
        "u16+lz4",
        "-o",
        "1.xio",
    ]);
    let more = ["--lba", "512", "-o", "2.xio"];
    folder.done(
        [
            &[
                "pack",
                "a.bin",
                "b.bin",
                "--dtype",
                "u32",
                "--store-as",
                "bitpack:17",
            ],
            &more[..],
        ]
        .concat(),
    );
    let target = Target::start(NQN, &[&folder.path("1.xio"), &folder.path("2.xio")]);
    let (one, two) = (target.url("?nsid=1"), target.url("?nsid=2"));

    // Whole blocks: 482 of 4096 bytes, 3863 of 512.
    let same = folder.done(["verify", &one, "--against", "a.bin"]);
    let length =
        "; a namespace is whole blocks, and does not say how many of the zeros at its end are data";
    assert_eq!(
        same,
        format!("{one}: 1,974,272 bytes are the same{length}\n")
    );
    let same = folder.done(["verify", &two, "--against", "a.bin", "--against", "b.bin"]);
    assert_eq!(
        same,
        format!("{two}: 1,977,856 bytes are the same{length}\n")
    );
    let json = folder.done(["verify", &one, "--against", "a.bin", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["compared_bytes"], 1_974_272);

    let mut other = r50k.clone();
    other[1_234_567] ^= 1;
    folder.write("c.bin", &other);
    let (presented, expected) = (r50k[1_234_567], other[1_234_567]);
    let error = format!(
        "{one}: presented byte 1234567 is {presented:#04x}; byte 1234567 of c.bin is {expected:#04x}"
    );
    folder.fails(1, &error, &["verify", &one, "--against", "c.bin"]);
    folder.fails(
        1,
        &format!("{two} presents 1,977,856 bytes, a.bin has 1,973,752"),
        &["verify", &two, "--against", "a.bin"],
    );
    let three = target.url("?nsid=3");
    folder.fails(
        3,
        "namespace 3 is not there; the subsystem has [1, 2]",
        &["verify", &three, "--against", "a.bin"],
    );
    let any = target.url("");
    folder.fails(
        2,
        "the subsystem has namespaces 1, 2; choose one with ?nsid=N behind the NQN",
        &["verify", &any, "--against", "a.bin"],
    );
}

#[test]
fn nobody_listening_is_an_error_that_says_so() {
    let folder = Folder::new();
    folder.write("a.bin", &[0; 8]);
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let url = format!("nvme+tcp://{free}/{NQN}?nsid=1");
    let error = format!(
        "cannot connect to {free}: Connection refused (os error 111); is a target listening there?"
    );
    folder.fails(3, &error, &["verify", &url, "--against", "a.bin"]);
}
