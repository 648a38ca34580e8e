//! A daemon whose store is another daemon's namespace, over sockets that the test cuts.

use std::net::TcpListener;
use std::process::Command;
use std::time::{Duration, Instant};

use admin_proto::v1;
use initiator::Options;
use nvme_spec::Status;

use crate::admin::{Client, start, with_admin};
use crate::damaged::health;
use crate::proxy::Proxy;
use crate::target::{Folder, NQN, Target, pack, status_of, tokens};
use crate::{check_reads, check_writes};

pub fn url(address: &str, nsid: u32) -> String {
    format!("nvme+tcp://{address}/{NQN}?nsid={nsid}")
}

/// Patience beyond the project's own deadline of 25 s.
pub fn patient() -> Options {
    Options {
        command_timeout: Duration::from_secs(60),
        ..Options::default()
    }
}

#[test]
fn a_remote_namespace_is_the_same_bytes_in_both_directions() {
    let far = Target::start(&["mem:16MiB", "mem:1MiB"]);
    for reactors in ["1", "2"] {
        let near = Target::start(&[&url(&far.address, 1), "--reactors", reactors]);
        let mut host = near.host(&Options {
            queues: 2,
            ..Options::default()
        });
        host.write(1, 0, &vec![0; 16 << 20]).unwrap();
        check_writes(&mut host, 1, 16 << 20);
        let mut through = vec![0; 16 << 20];
        host.read(1, 0, &mut through).unwrap();
        let mut there = vec![1; 16 << 20];
        far.host(&Options::default())
            .read(1, 0, &mut there)
            .unwrap();
        assert!(through == there);
        host.shutdown().unwrap();
        assert_eq!(near.terminate(), Some(0));
    }
}

/// Blocks of 512 bytes before a namespace of 4 KiB blocks: edges are read, changed and written back there.
#[test]
fn smaller_blocks_than_the_remote_ones_are_patched_in() {
    let far = Target::start(&["mem:1MiB"]);
    let near = Target::start(&[&url(&far.address, 1), "--lba", "512"]);
    let mut host = near.host(&Options::default());
    let mut model = vec![0_u8; 1 << 20];
    for (round, (at, blocks)) in [(1, 1), (7, 9), (15, 2), (2040, 8), (3, 700)]
        .iter()
        .enumerate()
    {
        let data = vec![u8::try_from(round).unwrap() + 1; blocks * 512];
        host.write(1, *at as u64 * 512, &data).unwrap();
        model[at * 512..][..data.len()].copy_from_slice(&data);
    }
    assert_eq!(host.write_zeroes(1, 5, 6, false).unwrap(), Status::SUCCESS);
    model[5 * 512..11 * 512].fill(0);
    let mut there = vec![1; 1 << 20];
    far.host(&Options::default())
        .read(1, 0, &mut there)
        .unwrap();
    assert!(there == model);
}

#[test]
fn a_volume_in_a_remote_namespace_is_decoded_here() {
    let folder = Folder::new("remote-volume");
    let source = tokens();
    let path = folder.path("tokens.xvol");
    pack(&path, "u16+zstd:3", &source);
    let raw = format!("file:{}", path.display());
    let far = Target::start(&[&raw, path.to_str().unwrap()]);
    let volume = format!("volume:{}", url(&far.address, 1));
    let near = Target::start(&[&volume]);
    let mut host = near.host(&Options::default());
    check_reads(&mut host, 1, &source, 5);
    assert_eq!(
        status_of(host.write(1, 0, &[1; 4096])),
        Status::NAMESPACE_WRITE_PROTECTED.dnr()
    );
    // The same volume is the same disk wherever it is decoded.
    let there = far.host(&Options::default()).namespace(2).unwrap().ids;
    assert_eq!(host.namespace(1).unwrap().ids, there);
}

/// The daemon's port is a discovery service, too: it says where the subsystem is.
#[test]
fn the_paths_are_asked_of_a_discovery_service() {
    let far = Target::start(&["mem:1MiB"]);
    let discovered = format!("{}&paths=discovered", url(&far.address, 1));
    let near = Target::start(&[&discovered]);
    let mut host = near.host(&Options::default());
    host.write(1, 4096, &[3; 4096]).unwrap();
    let mut there = [0; 4096];
    far.host(&Options::default())
        .read(1, 4096, &mut there)
        .unwrap();
    assert_eq!(there, [3; 4096]);
}

/// kill -9 of the remote daemon: what is read meanwhile waits, and is right when it is there again.
#[test]
fn reads_wait_for_a_store_that_comes_back() {
    let folder = Folder::new("remote-restart");
    let source = tokens();
    let path = folder.path("plain.bin");
    std::fs::write(&path, &source[..1 << 20]).unwrap();
    let raw = format!("file:{}", path.display());
    let far = Target::start(&[&raw]);
    let near = Target::start(&[&url(&far.address, 1)]);
    let mut host = near.host(&patient());
    check_reads(&mut host, 1, &source[..1 << 20], 1);
    let address = far.address.clone();
    far.kill();
    std::thread::scope(|scope| {
        let reads = scope.spawn(|| check_reads(&mut host, 1, &source[..1 << 20], 2));
        let far = Target::start_at(&address, &[&raw]);
        reads.join().unwrap();
        drop(far);
    });
}

/// A write that may have been sent is sent again when the old controller is dead, and not before: 10 s after its loss.
#[test]
fn a_write_of_unknown_outcome_is_settled_and_read_back() {
    let far = Target::start(&["mem:1MiB"]);
    let (one, two) = (Proxy::before(&far.address), Proxy::before(&far.address));
    let near = Target::start(&[&paths(&[&one, &two])]);
    let mut host = near.host(&patient());
    host.write(1, 0, &[1; 4096]).unwrap();
    // What goes out stays in the network on both ways, so that it is sent and never answered.
    one.hold();
    two.hold();
    let began = Instant::now();
    std::thread::scope(|scope| {
        let write = scope.spawn(|| {
            host.write(1, 0, &[2; 4096]).unwrap();
            began.elapsed()
        });
        wait_until(|| [&one, &two].iter().any(|way| way.holds(&[2; 4096])));
        one.cut();
        two.cut();
        one.release();
        two.release();
        let took = write.join().unwrap();
        assert!(took >= Duration::from_secs(10), "{took:?}");
        assert!(took < Duration::from_secs(25), "{took:?}");
    });
    let mut block = [0; 4096];
    host.read(1, 0, &mut block).unwrap();
    assert_eq!(block, [2; 4096]);
}

/// One of two ways stops without a word: reads go over the other one, and none fails.
#[test]
fn reads_fail_over_from_a_path_that_is_silent() {
    let far = Target::start(&["mem:4MiB"]);
    far.host(&Options::default())
        .write(1, 0, &vec![5; 4 << 20])
        .unwrap();
    let (one, two) = (Proxy::before(&far.address), Proxy::before(&far.address));
    let near = Target::start(&[&paths(&[&one, &two])]);
    let mut host = near.host(&patient());
    let mut all = vec![0; 4 << 20];
    host.read(1, 0, &mut all).unwrap();
    assert!(all.iter().all(|byte| *byte == 5));
    one.swallow();
    all.fill(0);
    host.read(1, 0, &mut all).unwrap();
    assert!(all.iter().all(|byte| *byte == 5));
}

/// One of two ways is gone: health names it while it is down, and the namespace is served over the other one.
#[test]
fn health_tells_of_a_path_that_is_down() {
    let folder = Folder::new("remote-health");
    let far = Target::start(&["mem:1MiB"]);
    let (one, two) = (Proxy::before(&far.address), Proxy::before(&far.address));
    let (socket, arguments) = with_admin(&folder);
    let near = start(&arguments, &[&paths(&[&one, &two])]);
    let client = Client::connect(&socket);
    wait_until(|| health(&client).problems.is_empty());
    // New connections are accepted, and nobody answers.
    one.swallow();
    one.cut();
    wait_until(|| !health(&client).problems.is_empty());
    let told = health(&client);
    assert_eq!(told.state(), v1::HealthState::Degraded);
    let [problem] = told.problems.as_slice() else {
        panic!("one problem, not {told:?}");
    };
    assert_eq!(problem.code(), v1::HealthCode::StorePath);
    let expected = format!("path {} is down (lost 1 times): ", one.address);
    assert!(problem.text.starts_with(&expected), "{}", problem.text);
    let mut block = [1; 4096];
    near.host(&patient()).read(1, 0, &mut block).unwrap();
    assert_eq!(block, [0; 4096]);
    one.heal();
    one.cut();
    wait_until(|| health(&client).problems.is_empty());
}

/// Asks until it is so; a test that waits for ever is ended by its runner.
fn wait_until(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        std::thread::yield_now();
    }
}

/// What cannot be connected ends the start with one line: what, where, why.
#[test]
fn a_store_that_cannot_be_had_says_why() {
    let far = Target::start(&["mem:1MiB", "mem:1MiB"]);
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = nobody.local_addr().unwrap().to_string();
    drop(nobody);
    let one = url(&far.address, 1);
    let cases = [
        (url(&closed, 1), "failed: ECONNREFUSED: Connection refused"),
        (url(&far.address, 9), "the subsystem has no namespace 9"),
        (
            one.replace("?nsid=1", ""),
            "the controller lists 2 namespaces, and none of them was named: say which (nsid=N); this host takes up to 1",
        ),
        (
            one.replace(NQN, "nqn.2026-11.io.xio:other") + "&paths=discovered",
            "lists no way to nqn.2026-11.io.xio:other over tcp for this host; it lists 2 records",
        ),
        (
            one.replace(NQN, "nqn.2026-11.io.xio:other"),
            "the target refused to connect to nqn.2026-11.io.xio:other",
        ),
        (
            format!("volume:{one}"),
            "cannot serve the volume in nvme+tcp://",
        ),
        (
            one.replace("nsid=1", "nsid=none"),
            "nsid 'none' is not a number from 1 to 4294967294",
        ),
        (
            one.replace("tcp", "rdma"),
            // Why not depends on what RDMA libraries and devices the machine has.
            "cannot open nvme+rdma://127.0.0.1",
        ),
    ];
    for (store, expected) in cases {
        let output = Command::new(env!("CARGO_BIN_EXE_snap-target"))
            .args([&store, "--listen", "127.0.0.1:0", "--log", "error"])
            .output()
            .unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{store}: {text}");
        assert!(text.contains(expected), "{store}: {text}");
        assert_eq!(text.lines().count(), 1, "{store}: {text}");
    }
}

fn paths(proxies: &[&Proxy]) -> String {
    let addresses: Vec<&str> = proxies.iter().map(|it| it.address.as_str()).collect();
    url(&addresses.join(","), 1)
}
