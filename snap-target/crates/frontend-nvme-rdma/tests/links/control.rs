//! What takes a device long is done on the control thread, and the desk's reactor and its links go on.

use std::time::{Duration, Instant};

use frontend_nvme::link::LinkError;

use crate::host::{ASK, Ask, FLUSH, Host, KEYED, READ, WRITE, at, sqe};
use crate::target::{Target, run};
use crate::{answers, connected, simple, world};

/// Calls of the target's device since then, by this thread or by others.
fn calls(target: &Target, since: usize, by_this: bool) -> Vec<&'static str> {
    let here = std::thread::current().id();
    let calls = target.node.control_calls().split_off(since);
    let of = calls.iter().filter(|(_, by)| (*by == here) == by_this);
    of.map(|(call, _)| *call).collect()
}

#[test]
fn queues_are_made_pools_registered_and_links_taken_apart_elsewhere() {
    let (mut target, _node, mut host) = simple(1);
    let block = host.block(0, 1 << 20, KEYED);
    host.send(&at(sqe(READ, 1, block), 0));
    answers(&mut target, &mut host, 1);
    // Not before its last completion is known here is nothing under way.
    run(&mut target, &mut [&mut host], |target, _| {
        target.pool.usage().used_bytes == 0
    });
    let made = calls(&target, 0, false);
    assert_eq!(
        made,
        [
            "ibv_create_cq",
            "ibv_create_qp",
            "ibv_reg_mr",
            "ibv_reg_mr",
            "ibv_reg_mr"
        ],
        "capsules, staging, and the pool"
    );
    let since = target.node.control_calls().len();
    target.links[0].link.end();
    target.turn();
    target.control.wait();
    assert!(target.links.is_empty());
    let mut gone = calls(&target, since, false);
    gone.sort_unstable();
    assert_eq!(
        gone,
        [
            "ibv_dereg_mr",
            "ibv_dereg_mr",
            "ibv_destroy_cq",
            "ibv_destroy_qp"
        ]
    );
    assert_eq!(calls(&target, 0, true), [""; 0]);
}

/// Its buffers go back to the pool at once, so the device must be kept from them at once.
#[test]
fn the_queue_pair_of_a_link_with_data_under_way_is_destroyed_first() {
    let (mut target, _node, mut host) = simple(2);
    let block = host.block(0, 1 << 20, KEYED);
    host.send(&at(sqe(WRITE, 1, block), 0));
    while target.links[0].link.awaited_bytes() == 0 {
        target.fabric.step();
        target.turn();
    }
    target.links[0].link.end();
    target.turn();
    assert!(target.links.is_empty());
    assert_eq!(target.pool.usage().used_bytes, 0);
    assert_eq!(calls(&target, 0, true), ["ibv_destroy_qp"]);
}

/// Messages of a 1 MiB read: one RDMA WRITE and its response where the pool is registered, pieces of the staging before that.
fn messages_of_a_read(target: &mut Target, host: &mut Host, cid: u16) -> u64 {
    let before = target.fabric.counts().sent;
    let block = host.block(0, 1 << 20, KEYED);
    host.send(&at(sqe(READ, cid, block), 0));
    answers(target, host, 1);
    host.responses.clear();
    assert!(host.get(0, 1 << 20) == target.disk[..1 << 20]);
    while target.fabric.step() {}
    target.fabric.counts().sent - before
}

#[test]
fn a_pool_that_could_not_be_registered_is_tried_again_by_the_next_connection() {
    let (mut target, node) = world(3);
    target.node.lock_at_most(2 << 20);
    let mut first = connected(&mut target, &node, ASK);
    let staged = messages_of_a_read(&mut target, &mut first, 1);
    assert!(staged >= 16, "{staged} messages");
    target.node.lock_at_most(u64::MAX);
    assert_eq!(messages_of_a_read(&mut target, &mut first, 2), staged);
    let mut second = connected(&mut target, &node, ASK);
    messages_of_a_read(&mut target, &mut second, 1);
    for host in [&mut first, &mut second] {
        let direct = messages_of_a_read(&mut target, host, 3);
        assert!(direct < staged - 10, "{direct} messages, staged {staged}");
    }
}

#[test]
fn bad_requests_are_refused_a_few_a_turn_and_cost_no_device_anything() {
    let (mut target, node) = world(4);
    let bad = Ask { recfmt: 1, ..ASK };
    let connect = |ask| {
        let fabric = target.fabric.clone();
        Host::connect(&mut || fabric.step(), &node, target.at, ask)
    };
    let mut hosts: Vec<Host> = (0..40).map(|_| connect(bad)).collect();
    let mut good = connect(ASK);
    target.fabric.advance(Duration::from_millis(1));
    target.turn();
    assert_eq!(target.refused.len(), 32, "a turn's share");
    target.turn();
    assert_eq!(target.refused.len(), 40);
    let stands = |_: &Target, hosts: &[&mut Host]| hosts[0].established.is_some();
    assert!(run(&mut target, &mut [&mut good], stands));
    for host in &mut hosts {
        host.turn();
        assert_eq!(host.rejected.take().unwrap().1[..4], [0, 0, 2, 0]);
    }
    let made = calls(&target, 0, false);
    assert_eq!(
        made.iter().filter(|call| **call == "ibv_create_qp").count(),
        1
    );
}

/// As many queues are made at a time as there is room for; the others wait, and none is lost.
#[test]
fn a_hundred_hosts_at_once_are_all_taken() {
    let (mut target, node) = world(5);
    let fabric = target.fabric.clone();
    let mut hosts: Vec<Host> = (0..100)
        .map(|_| Host::connect(&mut || fabric.step(), &node, target.at, ASK))
        .collect();
    let mut all: Vec<&mut Host> = hosts.iter_mut().collect();
    let stand =
        |_: &Target, hosts: &[&mut Host]| hosts.iter().all(|host| host.established.is_some());
    assert!(run(&mut target, &mut all, stand));
    assert_eq!(target.links.len(), 100);
    assert_eq!(calls(&target, 0, true), [""; 0]);
}

#[test]
fn a_queue_that_finds_no_room_when_it_is_made_is_closed() {
    let (mut target, node) = world(6);
    let fabric = target.fabric.clone();
    // One that is being made when the room goes: the control thread may be so quick that it has been taken by then.
    let mut host = loop {
        let taken = target.links.len();
        let host = Host::connect(&mut || fabric.step(), &node, target.at, ASK);
        fabric.advance(Duration::from_millis(1));
        target.turn();
        if target.links.len() == taken {
            break host;
        }
        drop(host);
        let is_empty = |target: &Target, _: &[&mut Host]| target.links.is_empty();
        assert!(run(&mut target, &mut [], is_empty));
    };
    target.has_room = false;
    let over = |_: &Target, hosts: &[&mut Host]| hosts[0].is_disconnected;
    assert!(run(&mut target, &mut [&mut host], over));
    assert!(matches!(target.refused[..], [LinkError::NoRoom]));
    assert!(target.links.is_empty());
}

/// Without a descriptor for its channel a connection is refused in words that its host knows; the next one is taken.
#[test]
fn a_host_hears_that_there_are_no_descriptors() {
    let (mut target, node) = world(8);
    target.node.run_out_of_descriptors(true);
    let fabric = target.fabric.clone();
    let mut host = Host::connect(&mut || fabric.step(), &node, target.at, ASK);
    let rejected = |_: &Target, hosts: &[&mut Host]| hosts[0].rejected.is_some();
    assert!(run(&mut target, &mut [&mut host], rejected));
    // RECFMT 0, STS 6: Insufficient Resources.
    let (_, data) = host.rejected.take().unwrap();
    assert_eq!(data[..4], [0, 0, 6, 0]);
    let [LinkError::Resources(why)] = &target.refused[..] else {
        panic!("{:?}", target.refused);
    };
    assert!(
        why.starts_with("10.0.0.1:") && why.contains("EMFILE"),
        "{why}"
    );
    target.node.run_out_of_descriptors(false);
    let mut host = connected(&mut target, &node, ASK);
    host.send(&sqe(FLUSH, 1, [0; 16]));
    answers(&mut target, &mut host, 1);
}

#[test]
fn a_listener_whose_device_was_removed_listens_again_when_there_is_one() {
    let (mut target, node, host) = simple(7);
    drop(host);
    assert_eq!(target.trouble.now(), None);
    target.node.remove_device();
    target.turn();
    let trouble = target.trouble.now();
    assert!(
        trouble
            .as_ref()
            .is_some_and(|why| why.contains("rdma://10.0.0.2:4420")
                && why.contains("its RDMA device was removed")),
        "{trouble:?}"
    );
    let refused = |target: &mut Target| {
        let mut late = Host::connect(&mut || target.fabric.step(), &node, target.at, ASK);
        let answered = |_: &Target, hosts: &[&mut Host]| {
            hosts[0].rejected.is_some() || hosts[0].established.is_some()
        };
        run(target, &mut [&mut late], answered) && late.rejected.is_some()
    };
    target.node.bring_device();
    assert!(refused(&mut target), "nobody listens yet");
    let began = Instant::now();
    while refused(&mut target) {
        assert!(began.elapsed() < Duration::from_secs(20), "it stays closed");
        target.turn();
    }
    assert_eq!(target.trouble.now(), None, "it is well again");
    let mut host = connected(&mut target, &node, ASK);
    host.send(&sqe(FLUSH, 1, [0; 16]));
    answers(&mut target, &mut host, 1);
}
