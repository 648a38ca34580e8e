//! Links over a fabric in memory: a host of raw verbs on one node, a driver of links on the other.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on has failed; panicking is its report"
)]
#![expect(clippy::cast_possible_truncation, reason = "small numbers of tests")]

mod control;
mod endings;
mod faults;
mod handshake;
mod host;
mod payload;
mod suite;
mod target;
mod whole;

use host::{ASK, Ask, Host};
use target::{Target, limits, run};
use verbs::memory::{Fabric, Node};

/// A target, and the node of a host.
pub fn world(seed: u64) -> (Target, Node) {
    let fabric = Fabric::new(seed);
    let node = fabric.node(&["10.0.0.1".parse().unwrap()]).unwrap();
    (Target::new(&fabric, &limits()), node)
}

/// A host whose queue is past Connect.
pub fn connected(target: &mut Target, node: &Node, ask: Ask) -> Host {
    let mut host = Host::connect(&mut || target.fabric.step(), node, target.at, ask);
    let stands = |_: &Target, hosts: &[&mut Host]| hosts[0].established.is_some();
    assert!(run(target, &mut [&mut host], stands), "no connection");
    host.send_connect(0xFFFF);
    let answered = |_: &Target, hosts: &[&mut Host]| hosts[0].responses.contains_key(&0xFFFF);
    assert!(
        run(target, &mut [&mut host], answered),
        "Connect is not answered"
    );
    assert_eq!(host.responses.remove(&0xFFFF).unwrap().status, 0);
    host
}

/// Until so many commands are answered.
pub fn answers(target: &mut Target, host: &mut Host, count: usize) {
    let done = |_: &Target, hosts: &[&mut Host]| hosts[0].responses.len() >= count;
    assert!(
        run(target, &mut [host], done),
        "{} of {count} answers; failures here {:?}, there {:?}",
        host.responses.len(),
        host.failures,
        target.over
    );
}

pub(crate) fn simple(seed: u64) -> (Target, Node, Host) {
    let (mut target, node) = world(seed);
    let host = connected(&mut target, &node, ASK);
    (target, node, host)
}
