//! Measures a queue: random reads in a closed loop on one ring, as the initiator's `bench` example does over its own sockets.
//!
//! ```text
//! queue_load ADDRESS NQN BYTES DEPTH SECONDS [digests]
//! ```

#![allow(clippy::unwrap_used, reason = "a tool for measuring")]

#[allow(dead_code, reason = "a part of it")]
#[path = "../tests/support/host.rs"]
mod host;

use std::time::{Duration, Instant};

use host::Host;
use nvme::initiator::{Blocks, Command, command};
use nvme::queue::QueueId;
use nvme_spec::{Lba, Nsid};
use reactor::buf::IoBuf;
use store_nvme::queue::QueueOptions;
use store_nvme_tcp::TcpTransport;

/// The first so many bytes of the namespace are read.
const REGION_BYTES: u64 = 256 << 20;

struct Load {
    host: Host,
    lba_bytes: u32,
    bytes: u32,
    random: u64,
    /// By slot.
    began: Vec<Instant>,
}

impl Load {
    fn next(&mut self) -> Command {
        self.random = self
            .random
            .wrapping_mul(0x5851_F42D_4C95_7F2D)
            .wrapping_add(1);
        let places = REGION_BYTES / u64::from(self.bytes);
        let place = (self.random >> 20) % places;
        let blocks = Blocks {
            lba: Lba(place * u64::from(self.bytes / self.lba_bytes)),
            count: self.bytes / self.lba_bytes,
            lba_bytes: self.lba_bytes,
        };
        command::read(Nsid(1), blocks)
    }

    fn submit(&mut self, buf: Option<IoBuf>, at: Instant) {
        let command = self.next();
        let slot = self.host.io.submit(&command, buf);
        self.began[slot.index()] = at;
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, nqn, bytes, depth, seconds, digests @ ..] = arguments.as_slice() else {
        panic!("ADDRESS NQN BYTES DEPTH SECONDS [digests]");
    };
    let depth: u16 = depth.parse().unwrap();
    let options = QueueOptions {
        qid: QueueId(1),
        cntlid: 1,
        depth,
        in_capsule_bytes_max: 8 << 10,
        header_digest: !digests.is_empty(),
        data_digest: !digests.is_empty(),
        connect_timeout: Duration::from_secs(10),
        command_timeout: Duration::from_secs(30),
    };
    let host = Host::attach(&TcpTransport, address.parse().unwrap(), nqn, &options);
    let lba_bytes = host.attached.namespaces[0].lba_bytes;
    let mut load = Load {
        host,
        lba_bytes,
        bytes: bytes.parse().unwrap(),
        random: 1,
        began: vec![Instant::now(); usize::from(depth)],
    };
    let start = Instant::now();
    for _ in 0..depth {
        let buf = IoBuf::heap(load.bytes as usize).unwrap();
        load.submit(Some(buf), start);
    }
    let duration = Duration::from_secs_f64(seconds.parse().unwrap());
    let mut latencies_ns: Vec<u64> = Vec::new();
    let mut ended = Vec::new();
    while start.elapsed() < duration {
        load.host.io.turn();
        ended.extend(load.host.io.ended());
        let now = Instant::now();
        for (slot, cqe, buf) in ended.drain(..) {
            assert!(cqe.status().is_success(), "{}", cqe.status());
            let taken = now - load.began[slot.index()];
            latencies_ns.push(u64::try_from(taken.as_nanos()).unwrap());
            load.submit(buf, now);
        }
    }
    let took = start.elapsed().as_secs_f64();
    latencies_ns.sort_unstable();
    let count = latencies_ns.len();
    let quantile = |percent: usize| {
        let at = count * percent / 100;
        Duration::from_nanos(latencies_ns.get(at).copied().unwrap_or(0))
    };
    let stats = load.host.io.ring.stats();
    println!(
        "{:>9.0} IOPS  {:>7.3} GB/s  p50 {:>8.1?}  p99 {:>8.1?}  {count} commands, {:.2} enters each",
        count as f64 / took,
        count as f64 * f64::from(load.bytes) / took / 1e9,
        quantile(50),
        quantile(99),
        stats.enters as f64 / count as f64,
    );
}
