//! A whole target on two reactors: listeners of both transports on one desk, real threads, a fabric whose clock runs.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use frontend_nvme::link::Bound;
use frontend_nvme::{Admin, Control, Frontend, FrontendConfig, Service};
use frontend_nvme_rdma::Rdma;
use frontend_nvme_tcp::SuccessFlag;
use initiator::{Initiator, Options};
use namespace::{Engine, EngineConfig, Identity, Namespace, NamespaceSet};
use nvme::controller::{ControllerLimits, Transport};
use reactor::{Ring, RingConfig};
use store::{OpenOptions, SharedStore, StoreSpec};
use telemetry::{Telemetry, TelemetryConfig};
use verbs::ControlThread;
use verbs::memory::{Fabric, Node};

use crate::host::{
    ASK, Ask, Host, KEYED, KEYED_INVALIDATE, READ, Response, WRITE, at, inside, sqe,
};
use crate::target::pattern;

const NQN: &str = "nqn.2026-11.io.example:disk";
const HOST_NQN: &str = "nqn.2026-11.io.example:host";
const DISCOVERY: &str = "nqn.2014-08.org.nvmexpress.discovery";
const BLOCK: u32 = 4096;
/// What has not come by then never will.
const PATIENCE: Duration = Duration::from_secs(20);

struct Whole {
    // First: the reactors end while the fabric is there.
    controls: Vec<Control>,
    reactors: Vec<JoinHandle<()>>,
    admin: Admin,
    tcp: SocketAddr,
    rdma: SocketAddr,
    fabric: Fabric,
    host: Node,
}

impl Whole {
    fn start() -> Whole {
        let fabric = Fabric::real_time(7).unwrap();
        let [host, node] = ["10.0.0.1", "10.0.0.2"]
            .map(|address| fabric.node(&[address.parse().unwrap()]).unwrap());
        let tcp = frontend_nvme_tcp::bind("127.0.0.1:0".parse().unwrap(), SuccessFlag::Always);
        let tcp = tcp.unwrap();
        let rdma = Rdma::new(node.verbs(), ControlThread::default())
            .bind("10.0.0.2:4420".parse().unwrap())
            .unwrap();
        let (tcp_at, rdma_at) = (tcp.address(), rdma.address());
        let spec = StoreSpec::Mem { bytes: 8 << 20 };
        let store = SharedStore::open(&spec, OpenOptions::read_write()).unwrap();
        let disk = Namespace::of_store(1, store, Identity::of_raw("test", b"disk"), BLOCK);
        let set = NamespaceSet::new(vec![Arc::new(disk)]);
        let service = Service::of_one(NQN, &set, &ControllerLimits::default()).unwrap();
        let (controls, reactors) = reactors(&set, &Arc::new(service), Box::new(tcp));
        let admin = Admin::new(controls[0].clone());
        admin.add_listener(2, Box::new(rdma)).unwrap();
        Whole {
            controls,
            reactors,
            admin,
            tcp: tcp_at,
            rdma: rdma_at,
            fabric,
            host,
        }
    }

    /// A queue whose Connect is answered.
    fn queue(&self, node: &Node, qid: u16, to: Connect) -> (Queue, Response) {
        let ask = Ask { qid, ..ASK };
        let mut wait = || {
            std::thread::yield_now();
            true
        };
        let mut host = Host::connect(&mut wait, node, self.rdma, ask);
        wait_until(|| {
            host.turn();
            host.established.is_some()
        });
        let mut data = [0; 1024];
        data[..16].fill(7);
        data[16..18].copy_from_slice(&to.cntlid.to_le_bytes());
        data[256..256 + to.subsystem.len()].copy_from_slice(to.subsystem.as_bytes());
        data[512..512 + HOST_NQN.len()].copy_from_slice(HOST_NQN.as_bytes());
        host.put(0, &data);
        host.send_connect_with(0xFFFF, to.kato_ms);
        let mut queue = Queue { host, next_cid: 0 };
        let connected = queue.answer(0xFFFF);
        (queue, connected)
    }

    /// The admin queue of an enabled controller, and its CNTLID.
    fn admin_queue(&self, node: &Node, kato_ms: u32) -> (Queue, u16) {
        let to = Connect {
            kato_ms,
            ..Connect::default()
        };
        let (mut queue, connected) = self.queue(node, 0, to);
        assert_eq!(connected.status, 0);
        let mut enable = sqe(0x7F, 0, [0; 16]);
        (enable[4], enable[44]) = (0x00, 0x14);
        enable[48..52].copy_from_slice(&0x0046_0001_u32.to_le_bytes());
        assert_eq!(queue.call(enable).status, 0);
        (queue, connected.dw0 as u16)
    }

    fn io_queue(&self, node: &Node, cntlid: u16, qid: u16) -> Queue {
        let to = Connect {
            cntlid,
            ..Connect::default()
        };
        let (queue, connected) = self.queue(node, qid, to);
        assert_eq!(connected.status, 0);
        queue
    }
}

impl Drop for Whole {
    fn drop(&mut self) {
        self.controls.iter().for_each(Control::stop);
        if !std::thread::panicking() {
            for reactor in self.reactors.drain(..) {
                reactor.join().unwrap();
            }
        }
    }
}

fn reactors(
    set: &NamespaceSet,
    service: &Arc<Service>,
    listener: Box<dyn Bound>,
) -> (Vec<Control>, Vec<JoinHandle<()>>) {
    let telemetry = Telemetry::new(&TelemetryConfig {
        reactors: 2,
        ..TelemetryConfig::default()
    });
    let mut listener = Some(listener);
    let mut started = Vec::new();
    for reactor in 0..2 {
        let (ready, made) = mpsc::channel();
        let (meet, peers) = mpsc::channel::<Vec<_>>();
        let (set, service, listener) = (set.clone(), service.clone(), listener.take());
        let telemetry = telemetry.reactor(reactor);
        let thread = std::thread::spawn(move || {
            let ring = Ring::new(&RingConfig::default()).unwrap();
            let config = EngineConfig {
                telemetry,
                ..EngineConfig::default()
            };
            let engine = Engine::new(&ring, &set, &config).unwrap();
            let peer = engine.peer();
            let config = FrontendConfig { reactor, service };
            let mut frontend = Frontend::new(ring, engine, config, listener).unwrap();
            ready.send((frontend.control(), peer)).unwrap();
            let (controls, peers): (Vec<_>, Vec<_>) = peers.recv().unwrap().into_iter().unzip();
            frontend.share_frames(&peers);
            frontend.run(&controls).unwrap();
        });
        started.push((thread, made.recv().unwrap(), meet));
    }
    let known: Vec<_> = started.iter().map(|(_, it, _)| it.clone()).collect();
    for (_, _, meet) in &started {
        meet.send(known.clone()).unwrap();
    }
    let controls = known.into_iter().map(|(control, _)| control).collect();
    (
        controls,
        started.into_iter().map(|(thread, ..)| thread).collect(),
    )
}

/// To whom, and how.
#[derive(Clone, Copy)]
struct Connect {
    subsystem: &'static str,
    cntlid: u16,
    kato_ms: u32,
}

impl Default for Connect {
    fn default() -> Self {
        Connect {
            subsystem: NQN,
            cntlid: 0xFFFF,
            kato_ms: 0,
        }
    }
}

struct Queue {
    host: Host,
    next_cid: u16,
}

impl Queue {
    /// Sends a command under the next identifier.
    fn send(&mut self, mut message: Vec<u8>) -> u16 {
        self.next_cid += 1;
        message[2..4].copy_from_slice(&self.next_cid.to_le_bytes());
        self.host.send(&message);
        self.next_cid
    }

    fn answer(&mut self, cid: u16) -> Response {
        wait_until(|| {
            self.host.turn();
            self.host.responses.contains_key(&cid)
        });
        self.host.responses.remove(&cid).unwrap()
    }

    fn call(&mut self, message: Vec<u8>) -> Response {
        let cid = self.send(message);
        self.answer(cid)
    }

    /// A read or write of blocks, its data at `offset` of the host's.
    fn range(&self, opcode: u8, lba: u32, blocks: u16, offset: usize, id: u8) -> Vec<u8> {
        let block = self.host.block(offset, u32::from(blocks) * BLOCK, id);
        let mut command = at(sqe(opcode, 0, block), lba);
        command[48..50].copy_from_slice(&(blocks - 1).to_le_bytes());
        command
    }

    fn log_page(&mut self, page: u8, bytes: u32) -> Vec<u8> {
        let mut command = sqe(0x02, 0, self.host.block(0, bytes, KEYED));
        command[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        command[40] = page;
        let dwords_z = (bytes / 4 - 1) as u16;
        command[42..44].copy_from_slice(&dwords_z.to_le_bytes());
        assert_eq!(self.call(command).status, 0);
        self.host.get(0, bytes as usize)
    }

    fn is_disconnected(&mut self) -> bool {
        self.host.turn();
        self.host.is_disconnected
    }
}

fn wait_until(mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "it does not happen");
        std::thread::yield_now();
    }
}

#[test]
fn a_disk_is_read_and_written_over_queues_of_both_reactors() {
    let whole = Whole::start();
    let (_admin, cntlid) = whole.admin_queue(&whole.host, 0);
    let mut queues = [1, 2].map(|qid| whole.io_queue(&whole.host, cntlid, qid));
    let bytes: Vec<u8> = (0..256 * BLOCK as usize).map(pattern).collect();
    queues[0].host.put(0, &bytes);
    let write = queues[0].range(WRITE, 10, 256, 0, KEYED);
    assert_eq!(queues[0].call(write).status, 0);
    let mut inside = at(sqe(WRITE, 0, inside(0, 2 * BLOCK)), 300);
    inside[48] = 1;
    inside.extend_from_slice(&bytes[..2 * BLOCK as usize]);
    assert_eq!(queues[1].call(inside).status, 0);
    for (lba, blocks) in [(10, 256), (300, 2)] {
        let read = queues[1].range(READ, lba, blocks, 1 << 20, KEYED);
        assert_eq!(queues[1].call(read).status, 0);
        let len = usize::from(blocks) * BLOCK as usize;
        assert!(
            queues[1].host.get(1 << 20, len) == bytes[..len],
            "{blocks} blocks at {lba}"
        );
    }
    // Beyond the end; and a descriptor shorter than the command's data.
    let beyond = queues[0].range(READ, 2047, 2, 0, KEYED);
    assert_eq!(queues[0].call(beyond).status, 0x4080);
    let mut short = queues[0].range(READ, 0, 2, 0, KEYED);
    short[32..35].copy_from_slice(&BLOCK.to_le_bytes()[..3]);
    assert_ne!(queues[0].call(short).status, 0);
}

/// What Linux's host looks at before it uses a controller over RDMA.
#[test]
fn a_controller_says_what_hosts_over_rdma_need_to_hear() {
    let whole = Whole::start();
    let (mut admin, _) = whole.admin_queue(&whole.host, 0);
    let mut identify = sqe(0x06, 0, admin.host.block(0, 4096, KEYED));
    identify[4] = 0;
    identify[40] = 1;
    assert_eq!(admin.call(identify).status, 0);
    let data = admin.host.get(0, 4096);
    let word = |at: usize| u32::from_le_bytes([data[at], data[at + 1], data[at + 2], data[at + 3]]);
    assert_eq!(word(1792), (64 + 8192) / 16, "IOCCSZ");
    assert_eq!(data[1800..1802], [0, 0], "ICDOFF");
    assert_eq!(data[1803], 1, "MSDBD");
    let sgls = word(536);
    assert_ne!(sgls & 0b11, 0, "SGLs");
    assert_ne!(sgls & (1 << 2), 0, "keyed data blocks");
    assert_ne!(sgls & (1 << 20), 0, "offsets into the capsule");
}

#[test]
fn listeners_of_both_transports_are_in_the_discovery_log() {
    let whole = Whole::start();
    let to = Connect {
        subsystem: DISCOVERY,
        ..Connect::default()
    };
    let (mut discovery, connected) = whole.queue(&whole.host, 0, to);
    assert_eq!(connected.status, 0);
    let mut enable = sqe(0x7F, 0, [0; 16]);
    (enable[4], enable[44]) = (0x00, 0x14);
    enable[48..52].copy_from_slice(&0x0046_0001_u32.to_le_bytes());
    assert_eq!(discovery.call(enable).status, 0);
    let log = discovery.log_page(0x70, 8192);
    let records: Vec<&[u8]> = log[1024..].chunks(1024).collect();
    let text = |field: &[u8]| String::from_utf8_lossy(field).trim_end().to_owned();
    let of_disk = records
        .iter()
        .filter(|record| record[256..].starts_with(NQN.as_bytes()));
    let mut found: Vec<_> = of_disk
        .map(|record| {
            (
                record[0],
                text(&record[512..768]),
                text(&record[32..64]),
                record[768..771].to_vec(),
            )
        })
        .collect();
    found.sort();
    let tcp_port = whole.tcp.port().to_string();
    let expected = [
        (1, "10.0.0.2".to_owned(), "4420".to_owned(), vec![1, 1, 1]),
        (3, "127.0.0.1".to_owned(), tcp_port, vec![0, 0, 0]),
    ];
    assert_eq!(found, expected);
}

#[test]
fn one_desk_serves_both_transports() {
    let whole = Whole::start();
    let mut tcp = Initiator::connect(&whole.tcp.to_string(), NQN, &Options::default()).unwrap();
    let bytes: Vec<u8> = (0..4 * BLOCK as usize).map(pattern).collect();
    tcp.write(1, 0, &bytes).unwrap();
    let (mut admin, cntlid) = whole.admin_queue(&whole.host, 0);
    let mut io = whole.io_queue(&whole.host, cntlid, 1);
    let read = io.range(READ, 0, 4, 0, KEYED);
    assert_eq!(io.call(read).status, 0);
    assert!(io.host.get(0, bytes.len()) == bytes);
    let mut reports = whole.admin.controllers().unwrap();
    reports.sort_by_key(|report| report.id);
    let transports: Vec<_> = reports
        .iter()
        .filter_map(|report| report.transport)
        .collect();
    assert_eq!(transports.len(), 2);
    assert!(transports.contains(&Transport::Tcp) && transports.contains(&Transport::Rdma));
    assert_ne!(reports[0].id, reports[1].id);
    // An operator ends the one over RDMA: its host hears of it, the other goes on.
    let of_rdma = reports
        .iter()
        .find(|report| report.transport == Some(Transport::Rdma));
    let of_rdma = of_rdma.unwrap();
    assert_eq!(
        (of_rdma.id.0, of_rdma.io_queues.as_slice()),
        (cntlid, &[1][..])
    );
    whole.admin.end_controller(of_rdma.id).unwrap();
    wait_until(|| admin.is_disconnected() && io.is_disconnected());
    tcp.read(1, 0, &mut vec![0; bytes.len()]).unwrap();
}

#[test]
fn an_association_without_traffic_ends_after_its_keep_alive_time() {
    let whole = Whole::start();
    let (mut admin, cntlid) = whole.admin_queue(&whole.host, 1000);
    let mut io = whole.io_queue(&whole.host, cntlid, 1);
    let began = Instant::now();
    wait_until(|| admin.is_disconnected() && io.is_disconnected());
    assert!(
        began.elapsed() >= Duration::from_millis(900),
        "{:?}",
        began.elapsed()
    );
    assert!(whole.admin.controllers().unwrap().is_empty());
}

/// A host dies without a word while it reads and writes; its keep-alive time is what is left of it. Another host does not notice.
#[test]
fn a_host_that_dies_under_load_leaves_nothing_and_disturbs_nobody() {
    let whole = Whole::start();
    let other = whole.fabric.node(&["10.0.0.3".parse().unwrap()]).unwrap();
    let (_admin, cntlid) = whole.admin_queue(&other, 0);
    let mut good = whole.io_queue(&other, cntlid, 1);
    let (_doomed_admin, doomed) = whole.admin_queue(&whole.host, 1000);
    let mut queue = whole.io_queue(&whole.host, doomed, 1);
    for nth in 0..24_u32 {
        let opcode = [READ, WRITE][nth as usize % 2];
        let command = queue.range(opcode, 256 + 32 * nth, 32, (nth as usize) << 17, KEYED);
        queue.send(command);
    }
    whole.host.kill();
    for nth in 0..50_u32 {
        let bytes: Vec<u8> = (0..BLOCK as usize)
            .map(|at| pattern(at + nth as usize))
            .collect();
        good.host.put(0, &bytes);
        let write = good.range(WRITE, nth, 1, 0, KEYED);
        assert_eq!(good.call(write).status, 0);
        let read = good.range(READ, nth, 1, 8192, KEYED);
        assert_eq!(good.call(read).status, 0);
        assert!(good.host.get(8192, bytes.len()) == bytes);
    }
    wait_until(|| whole.admin.controllers().unwrap().len() == 1);
    let left = whole.admin.controllers().unwrap();
    assert_eq!(left[0].id.0, cntlid);
}

#[test]
fn connect_of_another_queue_than_the_connection_was_made_for_is_refused() {
    let whole = Whole::start();
    let (_admin, cntlid) = whole.admin_queue(&whole.host, 0);
    let mut io = whole.io_queue(&whole.host, cntlid, 1);
    // A second Connect on a queue that has one.
    let block = io.host.block(0, 1024, KEYED_INVALIDATE);
    let mut connect = sqe(0x7F, 0, block);
    connect[4] = 1;
    connect[42] = 1;
    connect[44] = 31;
    connect[39] = KEYED;
    assert_eq!(io.call(connect).status, 0x400C);
    let read = io.range(READ, 0, 1, 0, KEYED);
    assert_eq!(io.call(read).status, 0);
}
