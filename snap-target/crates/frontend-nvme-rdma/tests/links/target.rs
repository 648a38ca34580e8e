//! A driver of links: a disk in memory behind whatever hosts connect.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use frontend_nvme::Clock;
use frontend_nvme::link::{
    Bound, Health, Link, LinkError, LinkEvent, LinkFailure, LinkLimits, Listener, Trouble,
};
use frontend_nvme_rdma::Rdma;
use nvme::controller::{Admitted, ControllerId};
use nvme::queue::{Completion, QueueId, Slot, Transfer};
use reactor::buf::{IoBuf, Pool, PoolConfig};
use reactor::{Ring, RingConfig, Wait};
use verbs::ControlThread;
use verbs::memory::{Fabric, Node};

use crate::host::{FLUSH, Host, READ, WRITE};

pub const DISK_BYTES: usize = 8 << 20;

/// Where a command's buffer lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    Pool,
    /// Memory that no device knows.
    Heap,
    /// Small pieces of either kind, in turn.
    Mixed,
}

pub fn limits() -> LinkLimits {
    LinkLimits {
        queue_entries_max: 32,
        capsule_data_bytes: 8192,
        transfer_bytes_max: 4 << 20,
        connect_timeout: Duration::from_secs(10),
        data_timeout: Duration::from_secs(20),
    }
}

pub struct Served {
    pub link: Box<dyn Link>,
    pub failures: Vec<LinkFailure>,
    /// Reads and flushes that are answered later.
    pub held: Vec<Slot>,
}

pub struct Target {
    pub fabric: Fabric,
    pub node: Node,
    pub ring: Ring,
    pub pool: Pool,
    /// What it has to do is done before each turn, so that every run of a test is the same.
    pub control: ControlThread,
    listener: Option<Box<dyn Listener>>,
    pub at: SocketAddr,
    pub links: Vec<Served>,
    pub disk: Vec<u8>,
    pub memory: Memory,
    /// Commands are not answered, but held.
    pub holds: bool,
    /// Links are parted and join again when their Connect came.
    pub moves: bool,
    pub has_room: bool,
    pub refused: Vec<LinkError>,
    /// What the listener says of itself.
    pub trouble: Trouble,
    /// Failures of links that are over.
    pub over: Vec<Vec<LinkFailure>>,
}

impl Target {
    pub fn new(fabric: &Fabric, limits: &LinkLimits) -> Target {
        let node = fabric.node(&["10.0.0.2".parse().unwrap()]).unwrap();
        let ring = Ring::new(&RingConfig::default()).unwrap();
        let pool = Pool::new(&ring, &PoolConfig::default()).unwrap();
        let control = ControlThread::default();
        let port = Rdma::new(node.verbs(), control.clone())
            .bind("10.0.0.2:4420".parse().unwrap())
            .unwrap();
        let at = port.address();
        let trouble = port.trouble().unwrap();
        let clock = Clock::since(Instant::now());
        let listener = Box::new(port).listen(&ring, limits, clock).unwrap();
        Target {
            fabric: fabric.clone(),
            node,
            ring,
            pool,
            control,
            listener: Some(listener),
            at,
            links: Vec::new(),
            disk: (0..DISK_BYTES).map(pattern).collect(),
            memory: Memory::Pool,
            holds: false,
            moves: false,
            has_room: true,
            refused: Vec::new(),
            trouble,
            over: Vec::new(),
        }
    }

    /// One turn of its reactor.
    pub fn turn(&mut self) {
        self.control.wait();
        self.ring.turn(Wait::Poll).unwrap();
        while self.ring.next_ready().is_some() {}
        if let Some(listener) = &mut self.listener {
            while let Some(came) = listener.next_connection(self.has_room) {
                match came {
                    Ok(link) => self.links.push(Served {
                        link,
                        failures: Vec::new(),
                        held: Vec::new(),
                    }),
                    Err(error) => self.refused.push(error),
                }
            }
        }
        let links = std::mem::take(&mut self.links);
        for served in links {
            if let Some(served) = self.serve(served) {
                self.links.push(served);
            }
        }
    }

    fn serve(&mut self, mut served: Served) -> Option<Served> {
        while let Some(event) = served.link.next_event() {
            match event {
                LinkEvent::Command { slot } => self.command(&mut served, slot),
                LinkEvent::DataReady { slot } => {
                    if served.link.command(slot).opcode == 0x7F {
                        served = self.connected(served, slot)?;
                    } else {
                        self.written(&mut served, slot);
                    }
                }
                LinkEvent::Failed(failure) => served.failures.push(failure),
                LinkEvent::DataCorrupt { .. }
                | LinkEvent::DataFailed { .. }
                | LinkEvent::Configured(_)
                | LinkEvent::SubsystemReset => panic!("{event:?}"),
            }
        }
        if served.link.settle() == Health::Over {
            assert!(served.link.let_go().is_none());
            self.over.push(served.failures);
            return None;
        }
        Some(served)
    }

    fn buffer(&self, bytes: usize) -> IoBuf {
        let pool = |bytes| self.pool.alloc(bytes).expect("a pool with room");
        let heap = |bytes| IoBuf::heap(bytes).unwrap();
        match self.memory {
            Memory::Pool => pool(bytes),
            Memory::Heap => heap(bytes),
            Memory::Mixed => {
                let mut buf = IoBuf::empty();
                let mut nth = 0;
                while buf.len() < bytes {
                    let len = (bytes - buf.len()).min(4096 * (1 + nth % 3));
                    buf.append(if nth % 4 < 2 { pool(len) } else { heap(len) });
                    nth += 1;
                }
                buf
            }
        }
    }

    fn command(&mut self, served: &mut Served, slot: Slot) {
        let transfer = served.link.transfer(slot);
        let opcode = served.link.command(slot).opcode;
        match transfer {
            Transfer::Refused(status) => served.link.respond(slot, status.into(), 0),
            Transfer::Remote { bytes } if opcode == WRITE || opcode == 0x7F => {
                served.link.set_buffer(slot, self.buffer(bytes as usize));
                if let Err(status) = served.link.request_data(slot) {
                    served.link.respond(slot, status.into(), 0);
                }
            }
            Transfer::InCapsule { bytes } => {
                served.link.set_buffer(slot, self.buffer(bytes as usize));
            }
            _ if self.holds => served.held.push(slot),
            Transfer::Remote { bytes } if opcode == READ => self.read(served, slot, bytes),
            _ => {
                assert_eq!(opcode, FLUSH);
                served.link.respond(slot, Completion::SUCCESS, 0);
            }
        }
    }

    pub fn read(&self, served: &mut Served, slot: Slot, bytes: u32) {
        let from = served.link.command(slot).cdw10.get() as usize;
        let mut buf = self.buffer(bytes as usize);
        assert_eq!(
            buf.copy_from(0, &self.disk[from..from + bytes as usize]),
            buf.len()
        );
        served.link.owe(slot, bytes);
        served.link.set_buffer(slot, buf);
        served.link.respond(slot, Completion::SUCCESS, bytes);
    }

    fn written(&mut self, served: &mut Served, slot: Slot) {
        let to = served.link.command(slot).cdw10.get() as usize;
        let bytes = served.link.transfer(slot).bytes() as usize;
        let data = served
            .link
            .take_buffer(slot)
            .expect("the data of a write")
            .to_vec();
        self.disk[to..to + bytes].copy_from_slice(&data[..bytes]);
        if self.holds {
            return served.held.push(slot);
        }
        served.link.respond(slot, Completion::SUCCESS, 0);
    }

    /// The data of Connect have come.
    fn connected(&mut self, mut served: Served, slot: Slot) -> Option<Served> {
        assert_eq!(
            served.link.take_buffer(slot).map(|data| data.len()),
            Some(1024)
        );
        let connect = served.link.command(slot);
        let queue = QueueId(u16::from_le_bytes([
            connect.cdw10.to_bytes()[2],
            connect.cdw10.to_bytes()[3],
        ]));
        let admitted = Admitted {
            controller: ControllerId(1),
            queue,
            entries: connect.cdw11.to_bytes()[0] as u16 + 1,
            flow_control: true,
            completion: Completion::SUCCESS,
        };
        if self.moves {
            served.link.pause();
            assert!(served.link.is_idle());
            let parted = served.link.part().expect("an idle link");
            served.link = parted.join(&self.ring).unwrap();
        }
        served.link.established(&admitted);
        served.link.respond(slot, admitted.completion, 0);
        Some(served)
    }

    pub fn close_listener(&mut self) {
        self.listener = None;
    }
}

/// The world until `is_done`, or until nothing is left to happen for so many turns.
pub fn run(
    target: &mut Target,
    hosts: &mut [&mut Host],
    mut is_done: impl FnMut(&Target, &[&mut Host]) -> bool,
) -> bool {
    let mut quiet = 0;
    while quiet < 200 {
        for host in hosts.iter_mut() {
            host.turn();
        }
        target.turn();
        if is_done(target, hosts) {
            return true;
        }
        quiet = if target.fabric.step() { 0 } else { quiet + 1 };
    }
    false
}

/// A byte of the disk as it is at first.
pub fn pattern(at: usize) -> u8 {
    let at = at as u64;
    (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8 ^ (at >> 9) as u8
}
