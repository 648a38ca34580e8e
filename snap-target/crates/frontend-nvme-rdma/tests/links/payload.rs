//! Bytes both ways, from and into memory of every kind.

use crate::host::{FLUSH, Host, KEYED, KEYED_INVALIDATE, READ, WRITE, at, inside, sqe};
use crate::target::{Memory, Target, pattern, run};
use crate::{answers, simple};
use std::time::Duration;
use verbs::memory::Link;

/// What comes in the capsule of Connect.
const CONNECT_DATA_BYTES: u64 = 1024;
const SIZES: [u32; 7] = [1, 512, 4096, 65_537, 300_000, 1 << 20, 4 << 20];

/// How many bytes were copied.
fn check_both_ways(memory: Memory) -> u64 {
    let (mut target, _node, mut host) = simple(1);
    target.memory = memory;
    let mut cid = 0;
    for bytes in SIZES {
        let len = bytes as usize;
        let block = host.block(0, bytes, KEYED);
        host.send(&at(sqe(READ, cid, block), 1_000));
        answers(&mut target, &mut host, 1);
        assert_eq!(host.responses.remove(&cid).unwrap().status, 0);
        let expected: Vec<u8> = (1_000..1_000 + len).map(pattern).collect();
        assert!(
            host.get(0, len) == expected,
            "a read of {bytes} bytes from {memory:?}"
        );
        let written: Vec<u8> = (0..len).map(|at| pattern(at + 77) ^ 0xFF).collect();
        host.put(0, &written);
        host.send(&at(sqe(WRITE, cid + 1, block), 2_000));
        answers(&mut target, &mut host, 1);
        assert_eq!(host.responses.remove(&(cid + 1)).unwrap().status, 0);
        assert!(
            target.disk[2_000..2_000 + len] == written,
            "a write of {bytes} bytes"
        );
        target.disk = (0..target.disk.len()).map(pattern).collect();
        cid += 2;
    }
    // The completion of the last answer is the target's alone.
    run(&mut target, &mut [&mut host], |target, _| {
        target.pool.usage().used_bytes == 0
    });
    assert_eq!(target.pool.usage().used_bytes, 0);
    assert_eq!(target.links[0].link.owed_bytes(), 0);
    assert_eq!(target.links[0].link.awaited_bytes(), 0);
    target.links[0].link.take_wire().copied
}

#[test]
fn memory_of_a_pool_is_read_and_written_where_it_lies() {
    assert_eq!(check_both_ways(Memory::Pool), CONNECT_DATA_BYTES);
}

#[test]
fn memory_that_is_not_registered_goes_through_the_staging() {
    let both_ways: u64 = SIZES.into_iter().map(|bytes| 2 * u64::from(bytes)).sum();
    assert_eq!(
        check_both_ways(Memory::Heap),
        CONNECT_DATA_BYTES + both_ways
    );
}

#[test]
fn buffers_of_many_pieces_of_either_kind_are_whole() {
    check_both_ways(Memory::Mixed);
}

#[test]
fn a_key_is_invalidated_where_the_host_asks() {
    let (mut target, _node, mut host) = simple(2);
    let rkey = host.memory.rkey().0;
    for (cid, id) in [(1, KEYED), (2, KEYED_INVALIDATE)] {
        let block = host.block(0, 512, id);
        host.send(&at(sqe(READ, cid, block), 0));
        // The fabric refuses to invalidate a whole registration: the second one is the connection's last.
        run(&mut target, &mut [&mut host], |target, hosts| {
            hosts[0].responses.contains_key(&cid)
                || !hosts[0].failures.is_empty()
                || !target.over.is_empty()
        });
    }
    let invalidated = host
        .responses
        .get(&2)
        .and_then(|response| response.invalidated);
    let was_tried =
        invalidated == Some(rkey) || !host.failures.is_empty() || !target.over.is_empty();
    assert_eq!(host.responses[&1].invalidated, None);
    assert!(was_tried);
}

#[test]
fn data_in_the_capsule_are_written_and_a_full_queue_of_them_too() {
    let (mut target, _node, mut host) = simple(3);
    for cid in 0..32_u16 {
        let data: Vec<u8> = (0..8192)
            .map(|at| pattern(at + usize::from(cid) * 31))
            .collect();
        let mut message = at(sqe(WRITE, cid, inside(100, 8000)), u32::from(cid) * 8000);
        message.extend_from_slice(&data);
        host.send(&message);
    }
    answers(&mut target, &mut host, 32);
    for cid in 0..32_usize {
        let expected: Vec<u8> = (100..8100).map(|at| pattern(at + cid * 31)).collect();
        assert!(
            target.disk[cid * 8000..(cid + 1) * 8000] == expected,
            "command {cid}"
        );
        assert_eq!(host.responses[&(cid as u16)].status, 0);
    }
}

/// Full queues of reads and writes for a while, over links that lose, double and reorder what goes below the connection.
fn stress(seed: u64, link: Link) {
    let (mut target, _node, mut host) = simple(seed);
    target.fabric.set_links(link);
    target.memory = [Memory::Pool, Memory::Heap, Memory::Mixed][(seed % 3) as usize];
    for round in 0..6_u32 {
        for cid in 0..32_u16 {
            let place = usize::from(cid) * 40_000;
            let block = host.block(place, 40_000, KEYED);
            let offset = u32::from(cid) * 40_000;
            match (u32::from(cid) + round) % 3 {
                0 => host.send(&at(sqe(READ, cid, block), offset)),
                1 => {
                    let data: Vec<u8> =
                        (0..40_000).map(|at| pattern(at + round as usize)).collect();
                    host.put(place, &data);
                    host.send(&at(sqe(WRITE, cid, block), offset));
                }
                _ => host.send(&sqe(FLUSH, cid, [0; 16])),
            }
        }
        answers(&mut target, &mut host, 32);
        for cid in 0..32_u16 {
            let place = usize::from(cid) * 40_000;
            if (u32::from(cid) + round) % 3 < 2 {
                assert!(
                    host.get(place, 40_000) == target.disk[place..place + 40_000],
                    "seed {seed} round {round} command {cid}"
                );
            }
        }
        host.responses.clear();
    }
}

#[test]
fn bytes_are_right_over_bad_links() {
    for seed in 0..12 {
        stress(
            seed,
            Link {
                jitter: Duration::from_micros(50),
                lost_ppm: 20_000,
                duplicated_ppm: 20_000,
                ..Link::default()
            },
        );
    }
}

#[test]
fn responses_wait_for_a_host_that_posts_few_receives() {
    let (mut target, node) = crate::world(9);
    let ask = crate::Ask {
        hrqsize: 2,
        receives: 2,
        ..crate::ASK
    };
    let mut host = crate::connected(&mut target, &node, ask);
    for cid in 0..32 {
        host.send(&sqe(FLUSH, cid, [0; 16]));
    }
    let before = target.fabric.counts().resent;
    answers(&mut target, &mut host, 32);
    // A response that meets no receive is sent again; the target knows how many there are, and the host posts them a turn late.
    let resent = target.fabric.counts().resent - before;
    assert!(resent < 32, "{resent} sent again");
}

#[test]
fn an_idle_connection_is_armed_and_its_reactor_sleeps() {
    let (mut target, _node, mut host) = simple(10);
    let block = host.block(0, 512, KEYED);
    host.send(&at(sqe(READ, 1, block), 0));
    answers(&mut target, &mut host, 1);
    let polled = |target: &Target| target.links[0].link.wants_turn();
    assert!(polled(&target), "right after work it is polled");
    run(&mut target, &mut [&mut host], |target, _| !polled(target));
    assert!(!polled(&target));
    // Now a completion alone brings it back: the ring's own turn names the link.
    let host_turns = |host: &mut Host| host.send(&at(sqe(READ, 2, host.block(0, 512, KEYED)), 0));
    host_turns(&mut host);
    while target.fabric.step() {}
    let until = std::time::Instant::now() + Duration::from_secs(5);
    target
        .ring
        .turn(reactor::Wait::Block { until: Some(until) })
        .unwrap();
    assert_eq!(
        target.ring.next_ready(),
        Some(target.links[0].link.owner_id())
    );
}
