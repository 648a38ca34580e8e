//! What a reactor keeps of its queues, looked at from inside: the test's thread is the reactor.

#![allow(
    clippy::unwrap_used,
    reason = "a failure of a test is a panic with its line"
)]

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};

use frontend_nvme::link::Bound;
use frontend_nvme::{Admin, Closed, Frontend, FrontendConfig, Service};
use frontend_nvme_tcp::{SuccessFlag, bind};
use namespace::{Engine, EngineConfig, Identity, Namespace, NamespaceSet};
use nvme::controller::{ControllerId, ControllerLimits};
use reactor::buf::PoolConfig;
use reactor::{Ring, RingConfig};
use store::{OpenOptions, SharedStore, StoreSpec};

const NQN: &str = "nqn.2026-11.io.example:inside";
/// Blocks of the longest write: 1 MiB.
const BLOCKS: u16 = 256;
/// A turn that has nothing to do ends by then.
const TURN: Duration = Duration::from_millis(10);
const PATIENCE: Duration = Duration::from_secs(10);

fn frontend() -> (Frontend, SocketAddr) {
    frontend_of(&ControllerLimits::default(), |service| service)
}

/// A frontend whose hosts have no time to send or take data.
fn impatient_frontend() -> (Frontend, SocketAddr) {
    let impatient = |service: Service| service.with_data_timeout(TURN);
    frontend_of(&ControllerLimits::default(), impatient)
}

fn frontend_of(
    limits: &ControllerLimits,
    change: impl FnOnce(Service) -> Service,
) -> (Frontend, SocketAddr) {
    let listener = bind("127.0.0.1:0".parse().unwrap(), SuccessFlag::Always).unwrap();
    let address = listener.address();
    let spec = StoreSpec::Mem { bytes: 1 << 20 };
    let store = SharedStore::open(&spec, OpenOptions::read_write()).unwrap();
    let namespace = Namespace::of_store(1, store, Identity::of_raw("test", b"inside"), 4096);
    let set = NamespaceSet::new(vec![Arc::new(namespace)]);
    let ring = Ring::new(&RingConfig::default()).unwrap();
    let engine_config = EngineConfig {
        pool: PoolConfig {
            slots_1m: 1,
            ..PoolConfig::default()
        },
        ..EngineConfig::default()
    };
    let engine = Engine::new(&ring, &set, &engine_config).unwrap();
    let service = Service::of_one(NQN, &set, limits).unwrap();
    let config = FrontendConfig {
        reactor: 0,
        service: Arc::new(change(service)),
    };
    let mut frontend = Frontend::new(ring, engine, config, Some(Box::new(listener))).unwrap();
    frontend.be_alone();
    (frontend, address)
}

/// Turns of a frontend.
trait Turns {
    /// Runs turns until something holds.
    fn run_until(&mut self, holds: impl FnMut(&mut Frontend) -> bool);

    /// Runs turns until so many bytes have come to a host.
    fn answer(&mut self, host: &mut TcpStream, count: usize) -> Vec<u8>;
}

impl Turns for Frontend {
    fn run_until(&mut self, mut holds: impl FnMut(&mut Frontend) -> bool) {
        let start = Instant::now();
        while !holds(self) {
            assert!(start.elapsed() < PATIENCE, "nothing more happens");
            self.turn_until(Instant::now() + TURN).unwrap();
        }
    }

    fn answer(&mut self, host: &mut TcpStream, count: usize) -> Vec<u8> {
        host.set_nonblocking(true).unwrap();
        let mut bytes = vec![0; count];
        let mut filled = 0;
        self.run_until(|_| {
            filled += host.read(&mut bytes[filled..]).unwrap_or(0);
            filled == count
        });
        bytes
    }
}

/// A connection past ICReq.
fn open(frontend: &mut Frontend, address: SocketAddr) -> TcpStream {
    let mut host = TcpStream::connect(address).unwrap();
    let mut hello = [0; 128];
    (hello[2], hello[4]) = (128, 128);
    host.write_all(&hello).unwrap();
    assert_eq!(frontend.answer(&mut host, 128)[0], 1);
    host
}

/// A capsule with its data inside, or whose data are to be asked for.
fn capsule(mut sqe: [u8; 64], data: &[u8], remote: u32) -> Vec<u8> {
    let (bytes, kind) = match data {
        [] => (remote, 0x5A),
        data => (u32::try_from(data.len()).unwrap(), 0x01),
    };
    (sqe[1], sqe[39]) = (0x40, kind);
    sqe[32..36].copy_from_slice(&bytes.to_le_bytes());
    let plen = 72 + u32::try_from(data.len()).unwrap();
    let mut pdu = vec![4, 0, 72, if data.is_empty() { 0 } else { 72 }];
    pdu.extend(plen.to_le_bytes());
    pdu.extend(sqe);
    pdu.extend(data);
    pdu
}

fn connect(qid: u16, cntlid: u16) -> Vec<u8> {
    let mut sqe = [0; 64];
    (sqe[0], sqe[4]) = (0x7F, 0x01);
    sqe[42..44].copy_from_slice(&qid.to_le_bytes());
    sqe[44..46].copy_from_slice(&63_u16.to_le_bytes());
    let host = b"nqn.2026-11.io.example:host";
    let mut data = [0; 1024];
    data[16..18].copy_from_slice(&cntlid.to_le_bytes());
    data[256..256 + NQN.len()].copy_from_slice(NQN.as_bytes());
    data[512..512 + host.len()].copy_from_slice(host);
    capsule(sqe, &data, 0)
}

fn enable() -> Vec<u8> {
    let mut sqe = [0; 64];
    (sqe[0], sqe[44]) = (0x7F, 0x14);
    sqe[48..52].copy_from_slice(&0x0046_0001_u32.to_le_bytes());
    capsule(sqe, &[], 0)
}

fn long_write(cid: u16) -> Vec<u8> {
    long(0x01, cid)
}

/// A read or write of 1 MiB.
fn long(opcode: u8, cid: u16) -> Vec<u8> {
    transfer(opcode, cid, BLOCKS)
}

/// A read or write of so many blocks.
fn transfer(opcode: u8, cid: u16, blocks: u16) -> Vec<u8> {
    let mut sqe = [0; 64];
    (sqe[0], sqe[4]) = (opcode, 1);
    sqe[2..4].copy_from_slice(&cid.to_le_bytes());
    sqe[48..50].copy_from_slice(&(blocks - 1).to_le_bytes());
    capsule(sqe, &[], u32::from(blocks) * 4096)
}

/// A host with an I/O queue of 64 entries: its admin connection and its I/O connection.
fn attached(frontend: &mut Frontend, address: SocketAddr) -> (TcpStream, TcpStream) {
    attached_as(frontend, address, 1)
}

/// The same of one that is not the first.
fn attached_as(
    frontend: &mut Frontend,
    address: SocketAddr,
    cntlid: u16,
) -> (TcpStream, TcpStream) {
    let mut admin = open(frontend, address);
    for command in [connect(0, 0xFFFF), enable()] {
        admin.write_all(&command).unwrap();
        assert_eq!(frontend.answer(&mut admin, 24)[22..], [0, 0]);
    }
    let mut io = open(frontend, address);
    io.write_all(&connect(1, cntlid)).unwrap();
    assert_eq!(frontend.answer(&mut io, 24)[22..], [0, 0]);
    io.set_nonblocking(false).unwrap();
    (admin, io)
}

/// A queue whose writes wait for memory costs one look a turn, however long it waits.
#[test]
fn a_starved_queue_is_listed_once() {
    let (mut frontend, address) = frontend();
    let (_admin, mut io) = attached(&mut frontend, address);
    // More than the pool has.
    let writes: Vec<u8> = (0..63).flat_map(long_write).collect();
    io.write_all(&writes).unwrap();
    frontend.run_until(|frontend| frontend.inside().starved > 0);
    for _ in 0..100 {
        frontend.act_on_nothing();
        assert_eq!(frontend.inside().starved, 1);
    }
}

/// A host that is asked for data and sends none holds memory: its connection ends when its time is over, and the memory is there again.
#[test]
fn a_host_that_sends_no_data_is_gone() {
    let (mut frontend, address) = impatient_frontend();
    let (_admin, mut io) = attached(&mut frontend, address);
    assert_eq!(frontend.inside().io_queues, 1);
    io.write_all(&long_write(7)).unwrap();
    assert_eq!(frontend.answer(&mut io, 24)[0], 9, "R2T");
    frontend.run_until(|frontend| frontend.inside().io_queues == 0);
    assert_eq!(io.read(&mut [0]).unwrap(), 0);
}

/// The same for one that takes none of what it asked for.
#[test]
fn a_host_that_takes_nothing_is_gone() {
    let (mut frontend, address) = impatient_frontend();
    let (_admin, mut io) = attached(&mut frontend, address);
    // More than the sockets hold.
    let reads: Vec<u8> = (0..63).flat_map(|cid| long(0x02, cid)).collect();
    io.write_all(&reads).unwrap();
    assert!(is_held(address, &io));
    frontend.run_until(|frontend| frontend.inside().io_queues == 0);
    // A reset, and nothing left to be taken.
    frontend.run_until(|_| {
        let error = io.take_error().unwrap();
        error.is_some_and(|error| error.kind() == ErrorKind::ConnectionReset)
    });
    assert!(!is_held(address, &io));
}

/// What the kernel has of a closed connection goes as well, though its host lives and takes nothing: all of it fits the socket, so that the connection
/// ends as one that has sent everything.
#[test]
fn the_kernel_holds_nothing_of_a_connection_that_is_closed() {
    let (mut frontend, address) = frontend();
    let (_admin, mut io) = attached(&mut frontend, address);
    setsockopt(&io, sockopt::RcvBuf, &4096).unwrap();
    // More than that, and less than our end of the connection holds besides.
    io.write_all(&transfer(0x02, 1, 64)).unwrap();
    // The answer has left for the kernel.
    frontend.run_until(|frontend| frontend.inside().wire_sent_bytes > 64 * 4096);
    io.write_all(&[0xFF; 8]).unwrap();
    frontend.run_until(|frontend| frontend.inside().io_queues == 0);
    frontend.run_until(|_| !is_held(address, &io));
}

/// A controller that the operator ends is gone at once. Its host, which goes on sending meanwhile, sees the end of its connections, and no reset.
#[test]
fn a_host_whose_controller_is_ended_sees_the_end_and_no_reset() {
    let (mut frontend, address) = frontend();
    let (mut admin, mut io) = attached(&mut frontend, address);
    for host in [&mut admin, &mut io] {
        host.set_nonblocking(true).unwrap();
    }
    let operator = Admin::new(frontend.control());
    let ended = std::thread::spawn(move || operator.end_controller(ControllerId(1)));
    let (mut sent, flush) = (0, capsule([0; 64], &[], 0));
    let mut go_on = |io: &mut TcpStream| match io.write(&flush) {
        Ok(count) => sent += count,
        Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
    };
    frontend.run_until(|frontend| {
        go_on(&mut io);
        frontend.inside().farewells == 2
    });
    assert!(matches!(ended.join().unwrap(), Ok(Closed::Done)));
    assert_eq!(frontend.inside().io_queues, 0);
    assert_eq!(frontend.inside().connections, 0);
    // Another one of the same host is let in beside them.
    let again = attached_as(&mut frontend, address, 2);
    assert_eq!(frontend.inside().farewells, 2);
    assert_eq!(frontend.inside().connections, 1);
    for host in [&mut admin, &mut io] {
        let mut chunk = vec![0; 64 << 10];
        frontend.run_until(|_| {
            go_on(host);
            match host.read(&mut chunk) {
                Ok(count) => count == 0,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    false
                }
            }
        });
    }
    drop((admin, io));
    frontend.run_until(|frontend| frontend.inside().farewells == 0);
    assert_eq!(frontend.inside().io_queues, 1);
    drop(again);
}

/// Whether the kernel has our end of a host's connection.
fn is_held(address: SocketAddr, host: &TcpStream) -> bool {
    let ends = format!(
        ":{:04X} 0100007F:{:04X} ",
        address.port(),
        host.local_addr().unwrap().port()
    );
    let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap();
    // A socket in TIME-WAIT (06h) holds nothing.
    sockets.lines().any(|line| {
        line.split_once(&ends)
            .is_some_and(|(_, state)| !state.starts_with("06"))
    })
}

/// Get Log Page, Commands Supported and Effects, of so many bytes.
fn log_page(cid: u8, bytes: u32) -> Vec<u8> {
    let mut sqe = [0; 64];
    (sqe[0], sqe[2], sqe[40]) = (0x02, cid, 0x05);
    let dwords_z = (bytes / 4 - 1).to_le_bytes();
    sqe[42..46].copy_from_slice(&dwords_z);
    capsule(sqe, &[], bytes)
}

/// Admin commands bring as much as MDTS says. An admin queue owes no more than its limit at a time, whatever its host asks for at once, and answers all.
#[test]
fn an_admin_queue_owes_no_more_than_its_limit() {
    const LONGEST: u32 = 1 << 20;
    const COUNT: u8 = 20;
    let (mut frontend, address) = frontend();
    let (mut admin, _io) = attached(&mut frontend, address);
    admin.write_all(&log_page(0, LONGEST + 4)).unwrap();
    let refused = frontend.answer(&mut admin, 24);
    // Invalid Field in Command, DNR.
    assert_eq!(refused[22..], (0x4002_u16 << 1).to_le_bytes());

    let pages: Vec<u8> = (0..COUNT).flat_map(|cid| log_page(cid, LONGEST)).collect();
    admin.write_all(&pages).unwrap();
    admin.set_nonblocking(true).unwrap();
    let (mut most, mut taken) = (0, 0);
    let mut chunk = vec![0; 256 << 10];
    let all = usize::from(COUNT) * LONGEST as usize;
    frontend.run_until(|frontend| {
        most = frontend.inside().owed_by_admin_queues.max(most);
        taken += admin.read(&mut chunk).unwrap_or(0);
        taken >= all
    });
    assert_eq!(most, 2 << 20);
    // They are sent, and owed no more.
    frontend.run_until(|frontend| {
        let _taken = admin.read(&mut chunk);
        frontend.inside().owed_by_admin_queues == 0
    });
}

/// Queues of one host begin no more reads at a time than its share has memory for, and one each all the same; all are answered.
#[test]
fn a_host_holds_no_more_than_its_share() {
    const SHARE: u64 = 1 << 20;
    const READ: u64 = 64 << 10;
    const READS: u64 = 60;
    let limits = ControllerLimits {
        memory_per_host_bytes: SHARE,
        ..ControllerLimits::default()
    };
    let (mut frontend, address) = frontend_of(&limits, |service| service);
    let (_admin, first) = attached(&mut frontend, address);
    let mut queues = vec![first];
    for qid in 2..=5 {
        let mut io = open(&mut frontend, address);
        io.write_all(&connect(qid, 1)).unwrap();
        assert_eq!(frontend.answer(&mut io, 24)[22..], [0, 0]);
        queues.push(io);
    }
    let read = |cid: u64| {
        let mut sqe = [0; 64];
        (sqe[0], sqe[4], sqe[48]) = (0x02, 1, u8::try_from(READ / 4096 - 1).unwrap());
        sqe[2..4].copy_from_slice(&u16::try_from(cid).unwrap().to_le_bytes());
        capsule(sqe, &[], u32::try_from(READ).unwrap())
    };
    let reads: Vec<u8> = (0..READS).flat_map(read).collect();
    for io in &mut queues {
        io.write_all(&reads).unwrap();
        io.set_nonblocking(true).unwrap();
    }
    let at_most = SHARE + queues.len() as u64 * READ;
    let mut most = 0;
    let mut left: Vec<_> = queues.into_iter().map(|io| (io, 0)).collect();
    let mut chunk = vec![0; 1 << 20];
    frontend.run_until(|frontend| {
        most = frontend.inside().owed_by_io_queues.max(most);
        for (io, taken) in &mut left {
            *taken += io.read(&mut chunk).unwrap_or(0) as u64;
        }
        left.iter().all(|(_, taken)| *taken >= READS * READ)
    });
    assert!(
        (SHARE / 2..=at_most).contains(&most),
        "{most} bytes, share {SHARE}"
    );
}
