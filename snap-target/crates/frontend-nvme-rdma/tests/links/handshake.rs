//! From the connect request to the answer of Connect.

use crate::host::{ASK, Ask, Host, KEYED, READ, at, sqe};
use crate::target::{Target, pattern, run};
use crate::{answers, connected, world};

#[test]
fn an_accepted_host_hears_how_many_receives_there_are() {
    let (mut target, node) = world(1);
    let mut host = Host::connect(
        &mut || target.fabric.step(),
        &node,
        target.at,
        Ask {
            hsqsize_z: 7,
            ..ASK
        },
    );
    assert!(run(&mut target, &mut [&mut host], |_, hosts| hosts[0]
        .established
        .is_some()));
    // RECFMT 0, CRQSIZE 8.
    assert_eq!(host.established.unwrap()[..4], [0, 0, 8, 0]);
}

#[test]
fn each_fault_of_the_private_data_is_rejected_with_its_status() {
    let asks = [
        (Ask { recfmt: 1, ..ASK }, 2),
        (Ask { qid: 0xFFFF, ..ASK }, 3),
        (
            Ask {
                hsqsize_z: 0,
                ..ASK
            },
            4,
        ),
        (
            Ask {
                hsqsize_z: 32,
                ..ASK
            },
            4,
        ),
        (Ask { hrqsize: 0, ..ASK }, 5),
        (Ask { reads: 0, ..ASK }, 7),
    ];
    let (mut target, node) = world(2);
    for (nth, (ask, status)) in asks.into_iter().enumerate() {
        let mut host = Host::connect(&mut || target.fabric.step(), &node, target.at, ask);
        assert!(run(&mut target, &mut [&mut host], |_, hosts| hosts[0]
            .rejected
            .is_some()));
        let (_, data) = host.rejected.unwrap();
        assert_eq!(data[..4], [0, 0, status, 0], "{ask:?}");
        assert_eq!(target.refused.len(), nth + 1);
    }
    assert!(target.links.is_empty());
    connected(&mut target, &node, ASK);
}

#[test]
fn private_data_of_every_length_are_an_answer_not_a_crash() {
    let (mut target, node) = world(3);
    for len in 0..=56 {
        let mut data = ASK.private_data();
        data.resize(len, 0xFF);
        let mut host =
            Host::connect_with(&mut || target.fabric.step(), &node, target.at, ASK, data);
        let done = |_: &Target, hosts: &[&mut Host]| {
            hosts[0].rejected.is_some() || hosts[0].established.is_some()
        };
        assert!(run(&mut target, &mut [&mut host], done), "{len} bytes");
        assert_eq!(
            host.established.is_some(),
            len >= 7,
            "{len} bytes: zeros follow"
        );
    }
}

#[test]
fn without_room_a_host_hears_no_resources() {
    let (mut target, node) = world(4);
    target.has_room = false;
    let mut host = Host::connect(&mut || target.fabric.step(), &node, target.at, ASK);
    assert!(run(&mut target, &mut [&mut host], |_, hosts| hosts[0]
        .rejected
        .is_some()));
    assert_eq!(host.rejected.unwrap().1[..4], [0, 0, 6, 0]);
}

#[test]
fn a_closed_listener_takes_nobody_and_leaves_its_connections() {
    let (mut target, node) = world(5);
    let mut host = connected(&mut target, &node, ASK);
    target.close_listener();
    let mut late = Host::connect(&mut || target.fabric.step(), &node, target.at, ASK);
    assert!(run(&mut target, &mut [&mut late], |_, hosts| hosts[0]
        .rejected
        .is_some()));
    let block = host.block(0, 512, KEYED);
    host.send(&at(sqe(READ, 1, block), 0));
    answers(&mut target, &mut host, 1);
}

#[test]
fn a_queue_moves_to_another_ring_with_its_connect_unanswered() {
    let (mut target, node) = world(6);
    target.moves = true;
    let mut host = connected(&mut target, &node, ASK);
    let block = host.block(0, 4096, KEYED);
    host.send(&at(sqe(READ, 1, block), 12_345));
    answers(&mut target, &mut host, 1);
    let expected: Vec<u8> = (12_345..12_345 + 4096).map(pattern).collect();
    assert_eq!(host.get(0, 4096), expected);
}
