//! Queues against the project's own target.

#![allow(clippy::unwrap_used, reason = "a failure of a test is a panic")]

#[allow(dead_code, reason = "each test program uses a part")]
#[path = "support/host.rs"]
mod host;
#[path = "support/model.rs"]
mod model;
#[path = "../../frontend-nvme-tcp/tests/support/mod.rs"]
mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use frontend_nvme::conformance::{NQN, Target, memory};
use host::Host;
use model::DISK;
use nvme::initiator::{Blocks, command};
use nvme::nqn::Nqn;
use nvme::queue::QueueId;
use nvme_spec::{Lba, Nsid, Status};
use reactor::RingConfig;
use reactor::buf::{IoBuf, PoolConfig};
use store::BlockingStore;
use store_nvme::queue::QueueOptions;
use store_nvme::{PATHS_MAX, Remote, RemoteOptions};
use store_nvme_tcp::TcpTransport;
use support::on;

fn options(depth: u16, has_digests: bool) -> QueueOptions {
    QueueOptions {
        qid: QueueId(1),
        cntlid: 1,
        depth,
        in_capsule_bytes_max: 8 << 10,
        header_digest: has_digests,
        data_digest: has_digests,
        connect_timeout: Duration::from_secs(10),
        command_timeout: Duration::from_secs(30),
    }
}

fn agrees_with_a_model(lba_bytes: u32, depth: u16, has_digests: bool) {
    let disks = vec![model::disk(lba_bytes)];
    let target = Target::start_all(&on(), disks, RingConfig::default(), PoolConfig::default());
    model::agrees(
        &TcpTransport,
        &target,
        lba_bytes,
        &options(depth, has_digests),
    );
    target.stop();
}

macro_rules! grid {
    ($($name:ident: $lba_bytes:literal, $depth:literal, $has_digests:literal;)*) => {
        $(#[test]
        fn $name() {
            agrees_with_a_model($lba_bytes, $depth, $has_digests);
        })*
    };
}

grid! {
    blocks_of_512_one_at_a_time: 512, 1, false;
    blocks_of_512_one_at_a_time_with_digests: 512, 1, true;
    blocks_of_512_32_at_a_time: 512, 32, false;
    blocks_of_512_128_at_a_time_with_digests: 512, 128, true;
    blocks_of_4096_one_at_a_time: 4096, 1, false;
    blocks_of_4096_32_at_a_time_with_digests: 4096, 32, true;
    blocks_of_4096_128_at_a_time: 4096, 128, false;
    blocks_of_4096_128_at_a_time_with_digests: 4096, 128, true;
}

/// What the target refuses is told as it says, and the queue goes on.
#[test]
fn a_refused_command_is_told_with_its_status() {
    let target = Target::start(&on(), memory());
    let to = target.address.parse().unwrap();
    let mut host = Host::attach(&TcpTransport, to, NQN, &options(8, false));
    let beyond = Blocks {
        lba: Lba(256),
        count: 1,
        lba_bytes: 4096,
    };
    let read = command::read(Nsid(1), beyond);
    let (cqe, buf) = host.io.one(&read, Some(IoBuf::heap(4096).unwrap()));
    assert_eq!(cqe.status().code(), Status::LBA_OUT_OF_RANGE);
    let first = Blocks {
        lba: Lba(0),
        ..beyond
    };
    let (cqe, buf) = host.io.one(&command::read(Nsid(1), first), buf);
    assert_eq!(cqe.status(), Status::SUCCESS);
    assert!(buf.unwrap().to_vec().iter().all(|byte| *byte == 0));
    drop(host);
    target.stop();
}

/// The ring of a tool has room for a queue on each of as many paths as a store may have.
#[test]
fn a_tool_reads_and_writes_over_every_path() {
    let disk = model::disk(4096);
    let target = Target::start_all(
        &on(),
        vec![disk],
        RingConfig::default(),
        PoolConfig::default(),
    );
    let to = target.address.parse().unwrap();
    let hostnqn = Nqn::parse("nqn.2026-11.test:host").unwrap();
    let remote = Remote {
        name: "eight".to_owned(),
        subnqn: NQN.to_owned(),
        addresses: vec![to; PATHS_MAX],
        transport: Arc::new(TcpTransport),
        options: RemoteOptions::new(hostnqn, [3; 16]),
        is_writable: true,
    };
    let opened = store_nvme::open(remote).unwrap();
    let mut tool = BlockingStore::new(&opened.store).unwrap();
    let until = Instant::now() + Duration::from_secs(30);
    let mut round = 0u64;
    // Until each path has its queue, and once more: commands take the paths in turn.
    let mut last = false;
    while !last {
        last = opened.store.problems().is_empty() && opened.store.describe().starts_with("8 of 8");
        assert!(Instant::now() < until, "{:?}", opened.store.problems());
        for _ in 0..4 * PATHS_MAX {
            round += 1;
            let data: Vec<u8> = (0..5000).map(|at| (at * round % 251) as u8).collect();
            let offset = round * 777 % (DISK as u64 - 5000);
            tool.write(offset, &data).unwrap();
            let mut back = vec![0; data.len()];
            tool.read(offset, &mut back).unwrap();
            assert!(back == data, "round {round}");
        }
    }
    assert_eq!(opened.store.problems(), [""; 0]);
    drop(tool);
    drop(opened);
    target.stop();
}
