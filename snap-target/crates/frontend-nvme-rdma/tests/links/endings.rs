//! Connections end, in every state, and nothing of them is left.

use crate::host::{ASK, FLUSH, Host, KEYED, READ, WRITE, at, keyed, sqe};
use crate::target::{Target, limits, run};
use crate::{answers, connected, simple, world};
use frontend_nvme::link::LinkFailure;
use frontend_nvme::link::LinkLimits;
use std::time::Duration;
use verbs::memory::Fabric;

/// Until the target's only link is over.
fn ends(target: &mut Target, host: &mut Host) -> Vec<LinkFailure> {
    assert!(
        run(target, &mut [host], |target, _| !target.over.is_empty()),
        "the connection goes on"
    );
    assert_eq!(target.pool.usage().used_bytes, 0, "buffers are lost");
    assert!(target.links.is_empty());
    target.over.remove(0)
}

fn protocol(failures: &[LinkFailure], words: &str) {
    match failures {
        [LinkFailure::Protocol(why)] => assert!(why.contains(words), "{why}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_short_message_ends_the_connection() {
    let (mut target, _node, mut host) = simple(1);
    host.send(&[0; 63]);
    protocol(&ends(&mut target, &mut host), "63 bytes");
    assert!(run(&mut target, &mut [&mut host], |_, hosts| hosts[0]
        .is_disconnected));
}

#[test]
fn a_message_longer_than_a_capsule_ends_the_connection() {
    let (mut target, _node, mut host) = simple(2);
    host.send(&[0; 64 + 8192 + 1]);
    protocol(&ends(&mut target, &mut host), "longer than a capsule");
}

#[test]
fn more_commands_than_the_queue_has_entries_end_the_connection() {
    let (mut target, node) = world(3);
    let ask = crate::Ask {
        hsqsize_z: 3,
        ..ASK
    };
    let mut host = connected(&mut target, &node, ask);
    target.holds = true;
    for cid in 0..5 {
        host.send(&sqe(FLUSH, cid, [0; 16]));
    }
    protocol(
        &ends(&mut target, &mut host),
        "more commands are outstanding",
    );
}

#[test]
fn memory_that_the_host_does_not_have_ends_its_connection_and_no_other() {
    let (mut target, node, mut good) = simple(4);
    for opcode in [READ, WRITE] {
        let mut host = connected(&mut target, &node, ASK);
        let nowhere = keyed(0x10, 4096, 0xBAD, KEYED);
        host.send(&at(sqe(opcode, 1, nowhere), 0));
        let over = |target: &Target, _: &[&mut Host]| !target.over.is_empty();
        assert!(run(&mut target, &mut [&mut host], over));
        protocol(&target.over.remove(0), "refuses to have its memory");
        assert_eq!(target.pool.usage().used_bytes, 0);
    }
    let block = good.block(0, 512, KEYED);
    good.send(&at(sqe(READ, 1, block), 0));
    answers(&mut target, &mut good, 1);
}

#[test]
fn a_host_that_disconnects_is_gone_without_a_word_of_blame() {
    let (mut target, _node, mut host) = simple(5);
    target.holds = true;
    host.send(&at(sqe(READ, 1, host.block(0, 512, KEYED)), 0));
    run(&mut target, &mut [&mut host], |target, _| {
        !target.links[0].held.is_empty()
    });
    host.id.disconnect().unwrap();
    assert_eq!(ends(&mut target, &mut host), []);
}

#[test]
fn a_device_that_goes_takes_its_connections_with_it() {
    let (mut target, _node, mut host) = simple(6);
    target.node.remove_device();
    ends(&mut target, &mut host);
}

/// The host's node dies after each number of steps of a life that has everything in it.
#[test]
fn a_host_that_dies_at_any_step_leaves_nothing_behind() {
    let mut was_noticed = 0;
    for steps in (0..140).step_by(2) {
        let fabric = Fabric::new(steps);
        let node = fabric.node(&["10.0.0.1".parse().unwrap()]).unwrap();
        let impatient = LinkLimits {
            connect_timeout: Duration::from_millis(20),
            ..limits()
        };
        let mut target = Target::new(&fabric, &impatient);
        let mut host = Host::connect(&mut || target.fabric.step(), &node, target.at, ASK);
        let (mut sent_connect, mut sent_work) = (false, false);
        for _ in 0..steps {
            host.turn();
            target.turn();
            if host.established.is_some() && !std::mem::replace(&mut sent_connect, true) {
                host.send_connect(0xFFFF);
            }
            if host.responses.contains_key(&0xFFFF) && !std::mem::replace(&mut sent_work, true) {
                for cid in 0..8 {
                    let block = host.block(usize::from(cid) << 17, 100_000, KEYED);
                    let opcode = [READ, WRITE][usize::from(cid % 2)];
                    host.send(&at(sqe(opcode, cid, block), u32::from(cid) << 17));
                }
            }
            target.fabric.step();
        }
        node.kill();
        let began = std::time::Instant::now();
        // Retries end; a handshake has its time.
        while !target.links.is_empty() && began.elapsed() < Duration::from_millis(60) {
            target.turn();
            target.fabric.step();
        }
        was_noticed += usize::from(!target.over.is_empty());
        // One that has nothing outstanding is not noticed here: its keep-alive timer is what ends it.
        while !target.links.is_empty() {
            for served in &mut target.links {
                let outstanding = served.link.owed_bytes() + served.link.awaited_bytes();
                assert_eq!(outstanding, 0, "after {steps} steps");
                served.link.end();
            }
            target.turn();
        }
        assert_eq!(target.pool.usage().used_bytes, 0, "after {steps} steps");
    }
    assert!(was_noticed > 25, "{was_noticed}");
}

#[test]
fn the_end_of_a_link_ends_it_for_its_host() {
    let (mut target, _node, mut host) = simple(8);
    target.links[0].link.end();
    assert_eq!(ends(&mut target, &mut host), []);
    assert!(run(&mut target, &mut [&mut host], |_, hosts| hosts[0]
        .is_disconnected));
    let other = connected(&mut target, &_node, ASK);
    drop(other);
}

/// Nothing of the host's is read or written after the link is gone.
#[test]
fn cve_2021_46983_nothing_is_touched_after_the_end() {
    for steps in 0..40 {
        let (mut target, _node, mut host) = simple(100 + steps);
        for cid in 0..8 {
            let block = host.block(usize::from(cid) << 17, 100_000, KEYED);
            let opcode = [READ, WRITE][usize::from(cid % 2)];
            host.send(&at(sqe(opcode, cid, block), u32::from(cid) << 17));
        }
        for _ in 0..steps {
            host.turn();
            target.turn();
            target.fabric.step();
        }
        target.links[0].link.end();
        target.turn();
        assert!(target.links.is_empty());
        assert_eq!(target.pool.usage().used_bytes, 0);
        // All of the pool is somebody else's now.
        let mut taken = Vec::new();
        while let Some(mut buf) = target.pool.alloc(1 << 20) {
            buf.fill(0, 1 << 20, 0x5A);
            taken.push(buf);
        }
        assert!(!taken.is_empty());
        while target.fabric.step() {
            host.turn();
        }
        for buf in &taken {
            assert!(
                buf.to_vec().iter().all(|byte| *byte == 0x5A),
                "after {steps} steps"
            );
        }
    }
}
