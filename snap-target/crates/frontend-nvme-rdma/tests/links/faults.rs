//! Hosts that keep us waiting, and links that are cut.

use crate::host::{ASK, FLUSH, Host, KEYED, READ, WRITE, at, sqe};
use crate::target::{Target, limits, run};
use crate::{answers, connected, simple};
use frontend_nvme::link::{LinkFailure, LinkLimits};
use nvme_spec::Status;
use std::time::{Duration, Instant};
use verbs::memory::{Fabric, Link};

/// A target that waits a shorter time than any of the connection's own.
fn impatient() -> (Target, verbs::memory::Node) {
    let fabric = Fabric::new(1);
    let node = fabric.node(&["10.0.0.1".parse().unwrap()]).unwrap();
    let limits = LinkLimits {
        connect_timeout: Duration::from_millis(50),
        data_timeout: Duration::from_millis(50),
        ..limits()
    };
    (Target::new(&fabric, &limits), node)
}

fn wait_for_the_end(target: &mut Target) -> Vec<LinkFailure> {
    let began = Instant::now();
    while target.over.is_empty() {
        assert!(began.elapsed() < Duration::from_secs(10), "it goes on");
        target.turn();
    }
    assert_eq!(target.pool.usage().used_bytes, 0);
    target.over.remove(0)
}

#[test]
fn a_host_that_connects_and_says_nothing_has_its_time() {
    let (mut target, node) = impatient();
    let mut host = Host::connect(&mut || target.fabric.step(), &node, target.at, ASK);
    assert!(run(&mut target, &mut [&mut host], |_, hosts| hosts[0]
        .established
        .is_some()));
    assert_eq!(wait_for_the_end(&mut target), [LinkFailure::TimedOut]);
}

/// The clock of the fabric stands: neither a READ nor an answer ends.
#[test]
fn data_that_do_not_come_or_leave_in_time_end_the_connection() {
    for opcode in [READ, WRITE] {
        let (mut target, node) = impatient();
        let mut host = connected(&mut target, &node, ASK);
        let block = host.block(0, 100_000, KEYED);
        host.send(&at(sqe(opcode, 1, block), 0));
        while target.pool.usage().used_bytes == 0 {
            target.fabric.step();
            target.turn();
        }
        assert_eq!(wait_for_the_end(&mut target), [LinkFailure::TimedOut]);
    }
}

#[test]
fn a_cut_link_ends_the_connection_when_something_is_under_way() {
    let (mut target, _node, mut host) = simple(2);
    target.holds = true;
    let block = host.block(0, 512, KEYED);
    host.send(&at(sqe(READ, 1, block), 0));
    run(&mut target, &mut [&mut host], |target, _| {
        !target.links[0].held.is_empty()
    });
    target.fabric.set_links(Link {
        cut: true,
        ..Link::default()
    });
    let mut served = target.links.remove(0);
    let slot = served.held.remove(0);
    target.read(&mut served, slot, 512);
    target.links.push(served);
    assert!(run(&mut target, &mut [&mut host], |target, _| !target
        .over
        .is_empty()));
    assert!(
        matches!(&target.over[0][..], [LinkFailure::Host(_)]),
        "{:?}",
        target.over
    );
    assert_eq!(target.pool.usage().used_bytes, 0);
}

#[test]
fn a_host_that_never_posts_receives_is_given_up() {
    let (mut target, node) = impatient();
    let ask = crate::Ask { receives: 1, ..ASK };
    let mut host = connected(&mut target, &node, ask);
    for cid in 0..8 {
        host.send(&at(sqe(READ, cid, host.block(0, 512, KEYED)), 0));
    }
    // The host takes one response and looks no more: the others meet no receive, again and again.
    assert_eq!(stalled(&mut target), [LinkFailure::TimedOut]);
}

/// The connection lives and the host looks no more, until the target's time is over.
fn stalled(target: &mut Target) -> Vec<LinkFailure> {
    let began = Instant::now();
    while target.over.is_empty() {
        assert!(began.elapsed() < Duration::from_secs(10), "it goes on");
        target.turn();
        target.fabric.advance(Duration::from_micros(10));
    }
    assert_eq!(target.pool.usage().used_bytes, 0);
    target.over.remove(0)
}

/// No buffer waits for these responses, and the host asked for no keep alive.
#[test]
fn a_host_that_takes_no_responses_without_data_is_given_up() {
    let (mut target, node) = impatient();
    let ask = crate::Ask { receives: 1, ..ASK };
    let mut host = connected(&mut target, &node, ask);
    for cid in 0..8 {
        host.send(&sqe(FLUSH, cid, [0; 16]));
    }
    assert_eq!(stalled(&mut target), [LinkFailure::TimedOut]);
}

/// Data through the staging fill it before their response is posted: the host's device takes neither.
#[test]
fn staged_data_that_do_not_leave_end_the_connection() {
    let (mut target, node) = impatient();
    let mut host = connected(&mut target, &node, ASK);
    target.memory = crate::target::Memory::Heap;
    host.send(&at(sqe(READ, 1, host.block(0, 1 << 20, KEYED)), 0));
    while target.links[0].link.owed_bytes() == 0 {
        target.fabric.step();
        target.turn();
    }
    assert_eq!(wait_for_the_end(&mut target), [LinkFailure::TimedOut]);
}

/// RLIMIT_MEMLOCK has room for the capsules and the staging of a few connections, and none for the reactor's buffers.
#[test]
fn where_little_memory_may_be_locked_data_are_copied_and_hosts_too_many_are_refused() {
    let (mut target, node) = crate::world(5);
    target.node.lock_at_most(2 << 20);
    let mut hosts: Vec<Host> = (0..3).map(|_| connected(&mut target, &node, ASK)).collect();
    let host = &mut hosts[0];
    let block = host.block(0, 1 << 20, KEYED);
    host.send(&at(sqe(READ, 1, block), 77));
    answers(&mut target, host, 1);
    assert!(host.get(0, 1 << 20) == target.disk[77..77 + (1 << 20)]);
    host.send(&at(sqe(WRITE, 2, block), 0));
    answers(&mut target, host, 2);
    assert!(host.get(0, 1 << 20) == target.disk[..1 << 20]);
    // What a connection had is there for the next when it is gone.
    for round in 0..20 {
        let before = hosts.len();
        let refused = loop {
            let mut late = Host::connect(&mut || target.fabric.step(), &node, target.at, ASK);
            let done = |_: &Target, hosts: &[&mut Host]| {
                hosts[0].rejected.is_some() || hosts[0].established.is_some()
            };
            assert!(run(&mut target, &mut [&mut late], done));
            if late.rejected.is_some() {
                break late;
            }
            late.send_connect(0xFFFF);
            answers(&mut target, &mut late, 1);
            late.responses.clear();
            hosts.push(late);
        };
        assert!(
            round == 0 || hosts.len() == before + 1,
            "{} fit in its place",
            hosts.len() - before
        );
        assert_eq!(
            refused.rejected.unwrap().1[..4],
            [0, 0, 6, 0],
            "no resources"
        );
        let why = target.refused.pop().unwrap().to_string();
        assert!(why.contains("RLIMIT_MEMLOCK"), "{why}");
        // Each that was taken has what it needs, though nothing is left for another.
        let last = hosts.last_mut().unwrap();
        let block = last.block(0, 300_000, KEYED);
        last.send(&at(sqe(READ, 9, block), 99));
        answers(&mut target, last, 1);
        assert!(last.get(0, 300_000) == target.disk[99..99 + 300_000]);
        let before = target.over.len();
        let gone = hosts.pop().unwrap();
        gone.id.disconnect().unwrap();
        let over = |target: &Target, _: &[&mut Host]| target.over.len() > before;
        assert!(run(&mut target, &mut [], over));
    }
}

/// The staging is full of an RDMA READ's data, and another READ waits for it.
#[test]
fn answers_go_past_a_write_that_waits_for_staging() {
    let (mut target, node) = crate::world(6);
    // More READs than the staging has room for.
    let mut host = connected(&mut target, &node, crate::Ask { reads: 16, ..ASK });
    target.memory = crate::target::Memory::Heap;
    let delay = Duration::from_millis(1);
    host.send(&at(sqe(WRITE, 1, host.block(0, 4 << 20, KEYED)), 0));
    while target.links[0].link.awaited_bytes() == 0 {
        target.fabric.step();
        target.turn();
    }
    target.fabric.set_links(Link {
        delay,
        ..Link::default()
    });
    host.send(&sqe(FLUSH, 2, [0; 16]));
    let before = target.fabric.now();
    let answered = |_: &Target, hosts: &[&mut Host]| hosts[0].responses.contains_key(&2);
    assert!(run(&mut target, &mut [&mut host], answered));
    let took = target.fabric.now() - before;
    assert!(took < 3 * delay, "there and back, and {took:?} went by");
    answers(&mut target, &mut host, 2);
    assert!(host.get(0, 4 << 20) == target.disk[..4 << 20]);
}

#[test]
fn an_abort_while_data_are_read_lets_the_reads_end_first() {
    let (mut target, _node, mut host) = simple(4);
    let block = host.block(0, 1 << 20, KEYED);
    host.send(&at(sqe(WRITE, 7, block), 0));
    while target.links[0].link.awaited_bytes() == 0 {
        target.fabric.step();
        target.turn();
    }
    let link = &mut target.links[0].link;
    let slot = link.outstanding()[0];
    link.respond(slot, Status::ABORT_REQUESTED.into(), 0);
    // A device writes it still: it is held, and counts.
    assert_eq!(link.awaited_bytes(), 1 << 20);
    assert!(target.pool.usage().used_bytes > 0);
    target.turn();
    assert_eq!(target.links[0].link.awaited_bytes(), 1 << 20);
    assert!(target.pool.usage().used_bytes > 0);
    answers(&mut target, &mut host, 1);
    assert_eq!(host.responses[&7].status, 7);
    assert_eq!(target.pool.usage().used_bytes, 0);
    assert_eq!(target.links[0].link.awaited_bytes(), 0);
    host.send(&sqe(FLUSH, 8, [0; 16]));
    answers(&mut target, &mut host, 2);
}
