//! The initiator over real sockets against a target in this process: every byte against an independent model, every error by
//! its kind.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test that panics has failed"
)]

mod server;

use std::io::Write;
use std::net::TcpListener;
use std::time::Duration;

use initiator::load::{Access, Load, Pattern, Verify};
use initiator::{Error, Initiator, Options, Url, discover};
use nvme::initiator::InitiatorError;
use nvme::simulation::random::Random;
use nvme::simulation::target::{Disk, SUBNQN};
use nvme::tcp::host::HostError;
use nvme::tcp::target::{SuccessFlag, TargetLimits};
use nvme_spec::{DISCOVERY_NQN, Status};

use server::Server;

const DISK_BYTES: usize = 3 << 20;

fn disk(lba_bytes: u32) -> Disk {
    Disk {
        lba_bytes,
        write_protected: false,
        bytes: (0..DISK_BYTES).map(|at| ((at * 31) >> 5) as u8).collect(),
    }
}

fn options() -> Options {
    Options {
        command_timeout: Duration::from_secs(10),
        ..Options::default()
    }
}

/// Small pieces in both directions, so that every path is taken.
fn small_limits() -> TargetLimits {
    TargetLimits {
        queue_entries_max: 32,
        capsule_data_bytes: 8192,
        transfer_bytes_max: 64 << 10,
        h2c_data_bytes_max: 4096,
        r2t_bytes_max: 20 << 10,
        c2h_data_bytes_max: 24 << 10,
        alignment_z: 3,
        ..TargetLimits::default()
    }
}

/// What a disk of the target holds.
fn bytes_of(server: &Server, nsid: u32) -> Vec<u8> {
    let target = server.target.lock().unwrap();
    let disks = target.disks.lock().unwrap();
    disks[&nsid].bytes.clone()
}

/// Reads and writes at random places and lengths against a copy of the disk.
fn agree(server: &Server, options: &Options, seed: u64) {
    let address = server.address.to_string();
    let mut disk = Initiator::connect(&address, SUBNQN, options).unwrap();
    let mut random = Random::new(seed);
    let nsids: Vec<u32> = disk.namespaces().iter().map(|found| found.nsid.0).collect();
    let mut copies: Vec<Vec<u8>> = nsids.iter().map(|nsid| bytes_of(server, *nsid)).collect();
    for _ in 0..60 {
        let which = random.within(0..nsids.len() as u64) as usize;
        let (nsid, copy) = (nsids[which], &mut copies[which]);
        let most = random.of(&[1, 700, 5_000, 200_000, 1 << 20]);
        let len = random.within(0..most + 1) as usize;
        let start = random.within(0..(DISK_BYTES - len) as u64 + 1) as usize;
        if random.once_in(2) {
            let data: Vec<u8> = (0..len).map(|_| random.number() as u8).collect();
            disk.write(nsid, start as u64, &data).unwrap();
            copy[start..start + len].copy_from_slice(&data);
        } else {
            let mut data = vec![0xEE; len];
            disk.read(nsid, start as u64, &mut data).unwrap();
            assert!(
                data == copy[start..start + len],
                "nsid {nsid}, {len} bytes at {start}"
            );
        }
    }
    disk.flush(nsids[0]).unwrap();
    disk.shutdown().unwrap();
    for (nsid, copy) in nsids.iter().zip(&copies) {
        assert!(bytes_of(server, *nsid) == *copy, "nsid {nsid}");
    }
}

#[test]
fn any_range_reads_and_writes_exactly_its_bytes() {
    let server = Server::start(vec![disk(512), disk(4096)], small_limits());
    for (seed, queues, depth) in [(1, 1, 1), (2, 3, 7), (3, 2, 31)] {
        let options = Options {
            queues,
            depth,
            ..options()
        };
        agree(&server, &options, seed);
    }
}

#[test]
fn digests_in_any_combination_change_nothing() {
    for (seed, header_digest, data_digest) in [(4, true, false), (5, false, true), (6, true, true)]
    {
        let server = Server::start(vec![disk(512)], small_limits());
        let options = Options {
            header_digest,
            data_digest,
            ..options()
        };
        agree(&server, &options, seed);
    }
}

/// A read of one block: a command capsule (8 + 64 bytes), and one C2HData PDU with the block, which stands for its completion.
#[test]
fn bytes_on_the_wire_are_counted() {
    let limits = TargetLimits {
        success_flag: SuccessFlag::Always,
        ..TargetLimits::default()
    };
    let server = Server::start(vec![disk(4096)], limits);
    let mut disk = Initiator::connect(&server.address.to_string(), SUBNQN, &options()).unwrap();
    let before = disk.io_wire_bytes();
    disk.read(1, 4096, &mut [0; 4096]).unwrap();
    let after = disk.io_wire_bytes();
    assert_eq!(after.sent - before.sent, 72);
    assert_eq!(after.received - before.received, 24 + 4096);
    disk.shutdown().unwrap();
}

#[test]
fn large_commands_without_the_success_flag_and_with_it() {
    for success_flag in [SuccessFlag::Never, SuccessFlag::Always] {
        let limits = TargetLimits {
            success_flag,
            ..TargetLimits::default()
        };
        agree(&Server::start(vec![disk(4096)], limits), &options(), 7);
    }
}

#[test]
fn a_url_without_a_namespace_means_the_only_one() {
    let found = |disks, nsid| {
        let server = Server::start(disks, small_limits());
        let address = server.address.to_string();
        let disk = Initiator::connect(&address, SUBNQN, &options()).unwrap();
        let url = Url {
            host: "127.0.0.1".to_owned(),
            port: server.address.port(),
            subnqn: SUBNQN.to_owned(),
            nsid,
        };
        disk.namespace_of(&url).map(|namespace| namespace.nsid.0)
    };
    assert_eq!(found(vec![disk(512)], None).unwrap(), 1);
    assert_eq!(found(vec![disk(512), disk(4096)], Some(2)).unwrap(), 2);
    let error = found(vec![disk(512), disk(4096)], None).unwrap_err();
    assert!(
        matches!(&error, Error::WhichNamespace { present } if present == &[1, 2]),
        "{error}"
    );
    let error = found(vec![disk(512)], Some(2)).unwrap_err();
    assert!(matches!(error, Error::NoNamespace { .. }), "{error}");
}

#[test]
fn the_namespaces_are_described_as_they_are() {
    let protected = Disk {
        write_protected: true,
        ..disk(4096)
    };
    let server = Server::start(vec![disk(512), protected], small_limits());
    let address = server.address.to_string();
    let mut disk = Initiator::connect(&address, SUBNQN, &options()).unwrap();
    assert_eq!(disk.controller().model, "memory");
    assert_eq!(disk.controller().transfer_bytes_max, 64 << 10);
    let described: Vec<_> = disk
        .namespaces()
        .iter()
        .map(|found| {
            (
                found.nsid.0,
                found.lba_bytes,
                found.bytes(),
                found.write_protected,
            )
        })
        .collect();
    let bytes = DISK_BYTES as u64;
    assert_eq!(described, [(1, 512, bytes, false), (2, 4096, bytes, true)]);
    assert_eq!(
        disk.namespaces()[1].ids.uuid.unwrap().to_string(),
        "02020202-0202-0202-0202-020202020202"
    );

    let error = disk.write(2, 0, &[0; 4096]).unwrap_err();
    let Error::Command {
        command,
        lba,
        status,
        ..
    } = error
    else {
        panic!("{error}");
    };
    assert_eq!(
        (command, lba, status.code()),
        ("Write", 0, Status::NAMESPACE_WRITE_PROTECTED)
    );
    // A refused command leaves the connection as it was.
    disk.read(2, 5, &mut [0; 9]).unwrap();
}

#[test]
fn what_is_outside_of_a_namespace_is_refused_before_it_is_sent() {
    let server = Server::start(vec![disk(512)], small_limits());
    let address = server.address.to_string();
    let mut disk = Initiator::connect(&address, SUBNQN, &options()).unwrap();
    let end = DISK_BYTES as u64;
    disk.read(1, end - 1, &mut [0]).unwrap();
    disk.read(1, end, &mut []).unwrap();
    for (offset, len) in [(end, 1), (end - 1, 2), (u64::MAX, 1)] {
        let error = disk.read(1, offset, &mut vec![0; len]).unwrap_err();
        assert!(matches!(error, Error::Range { nsid: 1, .. }), "{error}");
    }
    let error = disk.read(2, 0, &mut [0]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "namespace 2 is not there; the subsystem has [1]"
    );
}

#[test]
fn the_discovery_service_lists_the_subsystem() {
    let server = Server::start(vec![disk(512)], small_limits());
    let records = discover(&server.address.to_string(), &options()).unwrap();
    let names: Vec<&str> = records.iter().map(|it| it.subnqn.as_str()).collect();
    assert_eq!(names, [SUBNQN, DISCOVERY_NQN], "and the service itself");
    assert_eq!(records[0].address, "127.0.0.1");
    assert_eq!(records[0].service, server.address.port().to_string());
    assert!(!records[0].requires_tls);

    let error = Initiator::connect(&server.address.to_string(), DISCOVERY_NQN, &options());
    assert!(matches!(error, Err(Error::NoIoQueue { .. })));
}

#[test]
fn an_unknown_subsystem_is_refused_by_name() {
    let server = Server::start(vec![disk(512)], small_limits());
    let address = server.address.to_string();
    let error = Initiator::connect(&address, "nqn.2026-11.test:other", &options()).unwrap_err();
    let Error::Controller {
        source: InitiatorError::ConnectRefused {
            subnqn, parameter, ..
        },
        ..
    } = error
    else {
        panic!("{error}");
    };
    assert_eq!(subnqn, "nqn.2026-11.test:other");
    assert_eq!(
        parameter.unwrap().to_string(),
        "byte 256 of the Connect data, the subsystem's NQN: name one that the target has, as its discovery service lists them"
    );
}

#[test]
fn a_digest_that_the_target_does_not_use_is_insisted_on() {
    let limits = TargetLimits {
        data_digest: false,
        ..small_limits()
    };
    let server = Server::start(vec![disk(512)], limits);
    let options = Options {
        data_digest: true,
        ..options()
    };
    let error = Initiator::connect(&server.address.to_string(), SUBNQN, &options).unwrap_err();
    let Error::Connection { source, .. } = error else {
        panic!("{error}");
    };
    assert_eq!(source, HostError::DigestRefused("data"));
}

#[test]
fn nobody_listening_and_something_else_listening_are_told_apart() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let other = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream
            .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            .unwrap();
        stream
    });
    let error = Initiator::connect(&address, SUBNQN, &options()).unwrap_err();
    assert!(
        matches!(
            error,
            Error::Connection {
                source: HostError::Protocol(_),
                ..
            }
        ),
        "{error}"
    );
    drop(other.join().unwrap());
    let error = Initiator::connect(&address, SUBNQN, &options()).unwrap_err();
    assert!(matches!(error, Error::Connect { .. }), "{error}");
}

#[test]
fn congestion_control_is_the_one_asked_for_or_an_error_that_names_it() {
    let server = Server::start(vec![disk(512)], small_limits());
    let address = server.address.to_string();
    let with = |name: &str| Options {
        congestion: Some(name.into()),
        ..options()
    };
    // Every Linux has reno, and allows it.
    Initiator::connect(&address, SUBNQN, &with("reno")).unwrap();
    let error = Initiator::connect(&address, SUBNQN, &with("pigeon")).unwrap_err();
    assert!(
        matches!(&error, Error::Congestion { name, .. } if name == "pigeon"),
        "{error}"
    );
}

#[test]
fn keep_alive_is_sent_with_the_work_and_when_asked() {
    let server = Server::start(vec![disk(512)], small_limits());
    let options = Options {
        keep_alive: Duration::from_millis(1),
        ..options()
    };
    let mut disk = Initiator::connect(&server.address.to_string(), SUBNQN, &options).unwrap();
    for _ in 0..20 {
        disk.read(1, 0, &mut [0; 10]).unwrap();
        disk.keep_alive().unwrap();
    }
    disk.shutdown().unwrap();
}

fn load(access: Access, verify: Verify) -> Load {
    Load {
        nsid: 1,
        access,
        block_bytes: 4096,
        depth: 16,
        duration: Duration::from_millis(200),
        region_bytes: 1 << 20,
        verify,
        seed: 3,
    }
}

#[test]
fn a_load_verifies_what_it_reads_and_finds_the_byte_that_is_wrong() {
    let server = Server::start(vec![disk(512)], TargetLimits::default());
    let mut disk = Initiator::connect(&server.address.to_string(), SUBNQN, &options()).unwrap();
    let pattern = Pattern { seed: 5 };
    let reads = load(Access::RandomRead, Verify::Pattern(pattern));
    reads.fill(&mut disk, pattern).unwrap();
    let report = reads.run(&mut disk).unwrap();
    assert!(report.commands > 0 && report.latency.total() == report.commands);
    assert_eq!(report.bytes, report.commands * 4096);
    load(Access::RandomRead, Verify::Crc)
        .run(&mut disk)
        .unwrap();
    load(Access::SequentialWrite, Verify::Pattern(pattern))
        .run(&mut disk)
        .unwrap();

    // One bit in the whole region.
    let flipped = {
        let target = server.target.lock().unwrap();
        let mut disks = target.disks.lock().unwrap();
        let byte = &mut disks.get_mut(&1).unwrap().bytes[777_777];
        *byte ^= 4;
        *byte
    };
    let reads = load(Access::SequentialRead, Verify::Pattern(pattern));
    let Err(Error::Mismatch {
        offset,
        found,
        expected,
        ..
    }) = reads.run(&mut disk).map(|_| ())
    else {
        panic!("the flipped bit was not seen");
    };
    assert_eq!((offset, found, expected), (777_777, flipped, flipped ^ 4));
    // Commands were still outstanding: the connection went with them.
    let error = disk.read(1, 0, &mut [0]).unwrap_err();
    assert!(matches!(error, Error::Over { .. }), "{error}");
}

#[test]
fn a_target_that_goes_away_is_an_error_and_not_a_hang() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let gone = std::thread::spawn(move || drop(listener.accept().unwrap()));
    let error = Initiator::connect(&address, SUBNQN, &options()).unwrap_err();
    assert!(matches!(error, Error::Closed { .. }), "{error}");
    gone.join().unwrap();
}
