//! Queues, and the whole store, against the project's own target over verbs in memory.

#![allow(clippy::unwrap_used, reason = "a failure of a test is a panic")]

#[allow(dead_code, reason = "each test program uses a part")]
#[path = "../../store-nvme-tcp/tests/support/host.rs"]
mod host;
#[path = "../../store-nvme-tcp/tests/support/model.rs"]
mod model;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use frontend_nvme::conformance::{NQN, Target};
use frontend_nvme_rdma::Rdma;
use nvme::nqn::Nqn;
use nvme::queue::QueueId;
use store::BlockingStore;
use store_nvme::queue::QueueOptions;
use store_nvme::{Remote, RemoteOptions, discover};
use store_nvme_rdma::RdmaTransport;
use verbs::ControlThread;
use verbs::memory::{Fabric, Link, Node};

/// One host; a target with an address, or two, each a node of its own.
struct Net {
    fabric: Fabric,
    host: Node,
    targets: Vec<Node>,
    addresses: Vec<SocketAddr>,
}

impl Net {
    fn new(targets: &[&str]) -> Net {
        let fabric = Fabric::real_time(7).unwrap();
        let node = |address: &str| fabric.node(&[address.parse().unwrap()]).unwrap();
        let addresses = targets
            .iter()
            .map(|ip| format!("{ip}:4420").parse().unwrap());
        Net {
            host: node("10.0.0.1"),
            targets: targets.iter().map(|address| node(address)).collect(),
            addresses: addresses.collect(),
            fabric,
        }
    }

    fn transport(&self) -> RdmaTransport {
        RdmaTransport::new(self.host.verbs())
    }

    /// The project's target on the first node, which the others are ports of.
    fn serve(&self, lba_bytes: u32) -> Target {
        let mut ports = self.targets.iter().zip(&self.addresses).map(|(node, at)| {
            let port = Rdma::new(node.verbs(), ControlThread::default())
                .bind(*at)
                .unwrap();
            Box::new(port)
        });
        let first = ports.next().unwrap();
        let target = Target::start_on(first, vec![model::disk(lba_bytes)], 2);
        for (port, port_id) in ports.zip(2..) {
            target.admin().add_listener(port_id, port).unwrap();
        }
        target
    }

    fn open(&self, lba_bytes: u32) -> (Target, store::SharedStore) {
        let target = self.serve(lba_bytes);
        let remote = Remote {
            name: "nvme+rdma://test".to_owned(),
            subnqn: NQN.to_owned(),
            addresses: self.addresses.clone(),
            transport: Arc::new(self.transport()),
            options: remote_options(),
            is_writable: true,
        };
        (target, store_nvme::open(remote).unwrap().store)
    }
}

fn remote_options() -> RemoteOptions {
    let hostnqn = Nqn::parse("nqn.2026-11.io.example:host").unwrap();
    RemoteOptions {
        header_digest: false,
        data_digest: false,
        ..RemoteOptions::new(hostnqn, [3; 16])
    }
}

fn options(depth: u16) -> QueueOptions {
    QueueOptions {
        qid: QueueId(1),
        cntlid: 1,
        depth,
        in_capsule_bytes_max: 8 << 10,
        header_digest: false,
        data_digest: false,
        connect_timeout: Duration::from_secs(10),
        command_timeout: Duration::from_secs(30),
    }
}

fn agrees_with_a_model(lba_bytes: u32, depth: u16, with_windows: bool) {
    let net = Net::new(&["10.0.0.2"]);
    let target = net.serve(lba_bytes);
    let transport = match net.transport() {
        transport if with_windows => transport,
        transport => transport.without_windows(),
    };
    model::agrees(&transport, &target, lba_bytes, &options(depth));
    target.stop();
}

#[test]
fn a_device_whose_windows_run_out_registers_for_each_command() {
    let net = Net::new(&["10.0.0.2"]);
    net.host.have_windows_at_most(31);
    let target = net.serve(4096);
    model::agrees(&net.transport(), &target, 4096, &options(32));
    target.stop();
    let calls = net.host.control_calls();
    let count = |call| calls.iter().filter(|(known, _)| *known == call).count();
    assert_eq!(
        count("ibv_alloc_mw"),
        32 * count("ibv_create_qp"),
        "all were asked for"
    );
    assert_eq!(
        count("ibv_dealloc_mw"),
        31 * count("ibv_create_qp"),
        "and those that were there came back"
    );
    assert_eq!(count("ibv_reg_mr"), count("ibv_dereg_mr"));
}

macro_rules! grid {
    ($($name:ident: $lba_bytes:literal, $depth:literal, $with_windows:literal;)*) => {
        $(#[test]
        fn $name() {
            agrees_with_a_model($lba_bytes, $depth, $with_windows);
        })*
    };
}

grid! {
    blocks_of_512_one_at_a_time: 512, 1, true;
    blocks_of_512_32_at_a_time_without_windows: 512, 32, false;
    blocks_of_4096_32_at_a_time: 4096, 32, true;
    blocks_of_4096_one_at_a_time_without_windows: 4096, 1, false;
    blocks_of_4096_127_at_a_time: 4096, 127, true;
}

/// Bytes that tell their place and their round.
fn content(round: u8, at: u64, len: usize) -> Vec<u8> {
    let first = u8::try_from(at / 4096 % 251).unwrap();
    (0..len)
        .map(|index| first.wrapping_mul(7) ^ round ^ index.to_le_bytes()[0])
        .collect()
}

/// Writes and reads back, all over the disk.
fn work(store: &mut BlockingStore, round: u8) {
    for (step, len) in (0u64..).zip([4096usize, 512, 1 << 20, 12288, 300 << 10]) {
        let at = step * (600 << 10);
        let written = content(round, at, len);
        store.write(at, &written).unwrap();
        let mut back = vec![0; len];
        store.read(at, &mut back).unwrap();
        assert!(back == written, "round {round}, {len} bytes at {at}");
    }
    store.run(store::Op::Flush).unwrap();
}

#[test]
fn the_store_reads_what_it_wrote() {
    let net = Net::new(&["10.0.0.2"]);
    let (target, shared) = net.open(512);
    let mut store = BlockingStore::new(&shared).unwrap();
    (0..4).for_each(|round| work(&mut store, round));
    drop(store);
    drop(shared);
    target.stop();
}

/// The way to one port is cut: reads and writes go on over the other one, and every byte is right.
#[test]
fn a_path_that_is_cut_is_gone_round() {
    let net = Net::new(&["10.0.0.2", "10.0.1.2"]);
    let (target, shared) = net.open(4096);
    let mut store = BlockingStore::new(&shared).unwrap();
    work(&mut store, 1);
    let cut = Link {
        cut: true,
        ..Link::default()
    };
    for (node, round) in net.targets.iter().zip(2..) {
        net.fabric.set_link(&net.host, node, cut);
        net.fabric.set_link(node, &net.host, cut);
        let started = Instant::now();
        let mut back = vec![0; 4096];
        store.read(0, &mut back).unwrap();
        assert!(back == content(round - 1, 0, 4096));
        assert!(
            started.elapsed() < Duration::from_secs(8),
            "reads fail over"
        );
        net.fabric.set_links(Link::default());
        work(&mut store, round);
    }
    drop(store);
    drop(shared);
    target.stop();
}

/// The service is the target itself; it lists both of its ports.
#[test]
fn a_discovery_service_is_asked_over_rdma() {
    let net = Net::new(&["10.0.0.2", "10.0.1.2"]);
    let target = net.serve(4096);
    let transport: Arc<dyn store_nvme::Transport> = Arc::new(net.transport());
    let subnqn = Nqn::parse(NQN).unwrap();
    let found = discover(&transport, net.addresses[0], &subnqn, &remote_options()).unwrap();
    assert_eq!(found, net.addresses);
    target.stop();
}
