//! The suite of targets, on RDMA: real reactors, a fabric in memory whose clock runs.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use frontend_nvme::conformance::{Answer, Capsule, Carrier, Data, On, Response, Wire};
use frontend_nvme::link::Bound;
use frontend_nvme_rdma::Rdma;
use verbs::ControlThread;
use verbs::memory::{Fabric, Node};

use crate::host::{ASK, Ask, DATA_BYTES, Host, KEYED, inside, keyed};

frontend_nvme::frontend_checks!(on());

/// What has not come by then never will.
const PATIENCE: Duration = Duration::from_secs(20);
const TARGET: &str = "10.0.0.2";

fn on() -> On {
    let fabric = Fabric::real_time(7).unwrap();
    let [hosts, target] =
        ["10.0.0.1", TARGET].map(|address| fabric.node(&[address.parse().unwrap()]).unwrap());
    Arc::new(Memory {
        hosts,
        rdma: Rdma::new(target.verbs(), ControlThread::default()),
        next_port: AtomicU16::new(4420),
        _fabric: fabric,
    })
}

/// A node of the target's, and one of all hosts'.
#[derive(Debug)]
struct Memory {
    hosts: Node,
    rdma: Rdma,
    next_port: AtomicU16,
    _fabric: Fabric,
}

impl Carrier for Memory {
    fn bind(&self) -> Box<dyn Bound> {
        let port = self.next_port.fetch_add(1, Ordering::Relaxed);
        let at = SocketAddr::new(TARGET.parse().unwrap(), port);
        Box::new(self.rdma.bind(at).unwrap())
    }

    fn connect(&self, to: SocketAddr, qid: u16, entries: u16) -> Box<dyn Wire> {
        let ask = Ask {
            qid,
            hrqsize: entries,
            hsqsize_z: entries - 1,
            receives: entries,
            ..ASK
        };
        let mut host = Host::connect(&mut wait, &self.hosts, to, ask);
        let began = Instant::now();
        while host.established.is_none() {
            assert!(host.rejected.is_none(), "{:?}", host.rejected);
            assert!(began.elapsed() < PATIENCE, "no connection");
            host.turn();
            wait();
        }
        Box::new(RdmaWire {
            host,
            next_place: 0,
            into: HashMap::new(),
        })
    }
}

fn wait() -> bool {
    std::thread::yield_now();
    true
}

struct RdmaWire {
    host: Host,
    /// Where in the host's memory the next command's data lie.
    next_place: usize,
    /// By CID: where data come to, and how many.
    into: HashMap<u16, (usize, usize)>,
}

impl RdmaWire {
    /// Room for a command's data.
    fn place(&mut self, bytes: usize) -> usize {
        let bytes = bytes.next_multiple_of(4096);
        if self.next_place + bytes > DATA_BYTES {
            self.next_place = 0;
        }
        let at = self.next_place;
        self.next_place += bytes;
        at
    }

    fn keyed(&self, at: usize, bytes: usize) -> [u8; 16] {
        self.host.block(at, u32::try_from(bytes).unwrap(), KEYED)
    }

    fn send_one(&mut self, capsule: Capsule) {
        let mut message = capsule.sqe.to_vec();
        message[1] |= 0x40;
        let descriptor = match &capsule.data {
            // As Linux sends it: where an opcode's direction bits promise data, the descriptor is looked at.
            Data::None => keyed(0, 0, 0, KEYED),
            Data::Into(bytes) => {
                let bytes = *bytes as usize;
                let at = self.place(bytes);
                let cid = u16::from_le_bytes([message[2], message[3]]);
                self.into.insert(cid, (at, bytes));
                self.keyed(at, bytes)
            }
            Data::From(data) => {
                let at = self.place(data.len());
                self.host.put(at, data);
                self.keyed(at, data.len())
            }
            Data::InCapsule(data) => inside(0, u32::try_from(data.len()).unwrap()),
        };
        message[24..40].copy_from_slice(&descriptor);
        if let Data::InCapsule(data) = &capsule.data {
            message.extend_from_slice(data);
        }
        self.host.send(&message);
    }
}

impl Wire for RdmaWire {
    fn send(&mut self, capsules: Vec<Capsule>) {
        for capsule in capsules {
            self.send_one(capsule);
        }
    }

    fn answer(&mut self) -> Answer {
        let began = Instant::now();
        let cid = loop {
            if let Some(cid) = self.host.answered.pop_front() {
                break cid;
            }
            assert!(
                began.elapsed() < PATIENCE && !self.host.is_disconnected,
                "no answer; {:?}",
                self.host.failures
            );
            self.host.turn();
            wait();
        };
        let answer = self.host.responses.remove(&cid).unwrap();
        let response = Response {
            cid,
            dw0: answer.dw0,
            status: answer.status,
        };
        let into = self.into.remove(&cid);
        let data = match into {
            Some((at, bytes)) if answer.status == 0 => self.host.get(at, bytes),
            _ => Vec::new(),
        };
        Answer { response, data }
    }

    fn wait_closed(&mut self) {
        let began = Instant::now();
        while !self.host.is_disconnected {
            assert!(began.elapsed() < PATIENCE, "the connection goes on");
            self.host.turn();
            wait();
        }
    }
}

impl Drop for RdmaWire {
    fn drop(&mut self) {
        // The target may have been first.
        let _gone = self.host.id.disconnect();
    }
}
