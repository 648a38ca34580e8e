//! The suite that every implementation passes.

use std::net::IpAddr;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use verbs::conformance::{Subject, run};
use verbs::memory::{Fabric, Link};

use crate::address;

fn two_nodes<'a>(fabric: &'a Fabric, addresses: [&str; 2]) -> Subject<'a> {
    let addresses: [IpAddr; 2] = addresses.map(address);
    let nodes = addresses.map(|address| fabric.node(&[address]).unwrap());
    Subject::new(nodes.map(|node| node.verbs()), addresses, |_| {
        fabric.step();
    })
}

#[test]
fn between_two_nodes() {
    run(&two_nodes(&Fabric::new(1), ["10.0.0.1", "10.0.0.2"]));
}

#[test]
fn over_ipv6() {
    run(&two_nodes(&Fabric::new(2), ["fd00::1", "fd00::2"]));
}

#[test]
fn within_one_node() {
    let fabric = Fabric::new(3);
    let address = address("10.0.0.1");
    let verbs = fabric.node(&[address]).unwrap().verbs();
    run(&Subject::new([verbs.clone(), verbs], [address; 2], |_| {
        fabric.step();
    }));
}

#[test]
fn over_links_that_lose_delay_reorder_and_duplicate() {
    for seed in 10..14 {
        let fabric = Fabric::new(seed);
        fabric.set_links(Link {
            delay: Duration::from_micros(50),
            jitter: Duration::from_micros(500),
            lost_ppm: 20_000,
            duplicated_ppm: 20_000,
            cut: false,
        });
        run(&two_nodes(&fabric, ["10.0.0.1", "10.0.0.2"]).loses());
        let counts = fabric.counts();
        assert!(counts.lost > 100, "{counts:?}");
        assert!(counts.duplicated > 100, "{counts:?}");
        assert!(counts.resent > 100, "{counts:?}");
    }
}

#[test]
fn in_real_time_beside_descriptors() {
    let fabric = Fabric::real_time(4).unwrap();
    let addresses = ["10.0.0.1", "10.0.0.2"].map(address);
    let nodes = addresses.map(|address| fabric.node(&[address]).unwrap());
    run(&Subject::new(
        nodes.map(|node| node.verbs()),
        addresses,
        |fds| {
            let mut fds: Vec<PollFd<'_>> = fds
                .iter()
                .map(|fd| PollFd::new(*fd, PollFlags::POLLIN))
                .collect();
            poll(&mut fds, PollTimeout::from(20_u8)).unwrap();
        },
    ));
}
