//! More reactors than a controller grants queues, and no further controllers: whoever has none goes through the queues of others.

use std::time::Duration;

use nvme::simulation::model::Span;
use store::{Op, StoreError};

use crate::ghosts::{COMMAND_TIMEOUT, KEEP_ALIVE, SPAN, cut, first_byte, plan, write};
use crate::network::Fault;
use crate::plan::{Plan, UNIT_BYTES};
use crate::wire::{Direction, Way};
use crate::world::World;

const READ: Op = Op::Read { offset: 0 };
const SEEDS: u64 = 100;
const ONE: Span = Span { lba: 0, count: 1 };

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// So many reactors, one port, one controller, one I/O queue.
fn one_queue(handles: usize) -> Plan {
    let mut plan = plan(1);
    plan.ports.truncate(1);
    plan.ports[0].controllers.io_queues_max = 1;
    plan.ports[0].controllers.controllers_per_host_max = 1;
    plan.handles = handles;
    // What cannot be had is not asked for again and again.
    plan.options.reconnect_delay_min = Duration::from_secs(60);
    plan.options.reconnect_delay_max = Duration::from_secs(60);
    plan
}

fn assert_done(world: &mut World, reactor: usize, op: Op, span: Span) {
    let token = world.submit_op(reactor, op, span);
    world.until(ms(200), |world| world.result(token).is_some());
    assert_eq!(world.result(token), Some(Ok(())), "{op:?}");
}

fn strike(world: &World, fault: Fault) {
    world.network.strike(0, fault, world.clock.now());
}

/// Every kind of operation, and pieces of blocks; the model compares what is read, and the disk in the end.
#[test]
fn a_reactor_without_a_queue_goes_through_another_ones() {
    for lba_bytes in [UNIT_BYTES, 4096] {
        let mut plan = one_queue(3);
        plan.network.lba_bytes = lba_bytes;
        plan.network.disk_blocks = 96 * (UNIT_BYTES / 512) as usize * 512 / lba_bytes as usize;
        let mut world = World::new(plan);
        world.for_a(ms(500));
        assert_eq!(world.network.io_queues(0), 1);
        let (len, durable) = (u64::from(UNIT_BYTES) * 8, true);
        let all = Span { lba: 0, count: 8 };
        for reactor in [2, 1, 0] {
            assert_done(&mut world, reactor, write(), SPAN);
            assert_done(&mut world, reactor, READ, ONE);
            for op in [
                Op::Zero {
                    offset: 0,
                    len,
                    durable,
                },
                Op::Discard { offset: 0, len },
                Op::Flush,
            ] {
                assert_done(&mut world, reactor, op, all);
            }
        }
        let problems = world.problems();
        assert_eq!(
            problems,
            [
                "path 192.0.2.1:4420 is up, and 2 reactors have no queue there: its controller grants 1 queues, and there is no further one: the target refused to connect to nqn.2026-11.test:memory: 1h/81h Connect Controller Busy",
                "2 reactors have no queue on any path that can be used and go through the queues of others, with copies",
            ]
        );
        world.finish();
    }
}

/// Several reactors and one queue a port, with all that goes wrong in the simulation.
#[test]
fn whatever_borrowers_are_told_agrees_with_the_disk() {
    for seed in 0..SEEDS {
        let mut plan = Plan::of(seed);
        for port in &mut plan.ports {
            port.controllers.io_queues_max = 1;
            port.controllers.controllers_per_host_max = 1;
        }
        plan.handles = 3;
        println!("seed {seed}");
        let operations = plan.operations;
        assert_eq!(World::new(plan).run().completed, operations);
    }
}

/// More than a reactor may have with others at a time, all at once.
#[test]
fn what_finds_no_loan_waits_for_one() {
    let mut world = World::new(one_queue(2));
    world.for_a(ms(500));
    let reads: Vec<u64> = (0..64)
        .map(|lba| {
            let offset = lba * u64::from(UNIT_BYTES);
            world.submit_op(1, Op::Read { offset }, Span { lba, count: 1 })
        })
        .collect();
    for token in reads {
        world.until(ms(500), |world| world.result(token).is_some());
        assert_eq!(world.result(token), Some(Ok(())));
    }
    world.finish();
}

/// The lender is closed with a borrower's read at the controller: the borrower gets the queue that came free, and what it asked.
#[test]
fn a_queue_that_comes_free_goes_to_who_has_none() {
    let mut world = World::new(one_queue(2));
    world.for_a(ms(500));
    strike(&world, Fault::Latency(ms(300)));
    let token = world.submit_op(1, READ, ONE);
    world.for_a(ms(20));
    world.close(0);
    world.until(Duration::from_secs(3), |world| {
        world.result(token).is_some()
    });
    assert_eq!(world.result(token), Some(Ok(())));
    world.for_a(ms(500));
    assert_eq!(world.network.io_queues(0), 1);
    assert_done(&mut world, 0, READ, ONE);
    world.finish();
}

/// A borrowed write is held on its way, on both paths, and its lender is gone.
fn lender_gone() -> (World, u64) {
    let mut plan = plan(3);
    for port in &mut plan.ports {
        port.controllers.io_queues_max = 1;
        port.controllers.controllers_per_host_max = 1;
    }
    plan.handles = 2;
    let mut world = World::new(plan);
    world.for_a(ms(500));
    for port in [0, 1] {
        cut(&world, port, Way::Held);
    }
    let token = world.submit_op(1, write(), SPAN);
    // It has left the lender.
    world.for_a(ms(100));
    world.leave(0);
    (world, token)
}

/// The lender is gone with a borrowed write on its way: the write is not sent again while the old one may still arrive.
#[test]
fn what_a_lender_left_is_fenced() {
    let (mut world, token) = lender_gone();
    for port in [0, 1] {
        cut(&world, port, Way::Open);
    }
    world.for_a(ms(500));
    assert_eq!(
        world.network.io_queues(0) + world.network.io_queues(1),
        2,
        "the borrower has queues of its own"
    );
    assert_eq!(world.result(token), None, "and waits");
    let within = Duration::from_secs(20);
    world.until(within, |world| world.result(token).is_some());
    assert_eq!(world.result(token), Some(Ok(())));
    world.finish();
}

/// The same, and no path comes back: what the lender had sent may have been done, so that its borrower is not told that nothing was.
#[test]
fn what_a_lender_left_and_nobody_hears_of_again_is_unsettled() {
    let deadline = plan(3).options.deadline;
    let (mut world, token) = lender_gone();
    world.until(deadline + ms(400), |world| world.result(token).is_some());
    let Some(Err(StoreError::Unsettled { .. })) = world.result(token) else {
        panic!("{:?}", world.result(token));
    };
    for port in [0, 1] {
        cut(&world, port, Way::Open);
    }
    world.finish();
}

/// The path is cut under a borrowed write and comes back: it is sent again once the old controller is dead, and is there once.
#[test]
fn a_borrowed_write_outlives_its_path() {
    let mut plan = one_queue(2);
    plan.options.reconnect_delay_min = ms(100);
    plan.options.reconnect_delay_max = ms(500);
    let mut world = World::new(plan);
    world.for_a(ms(500));
    let before = first_byte(&world);
    strike(&world, Fault::Way(Direction::Up, Way::Lost));
    strike(&world, Fault::Way(Direction::Down, Way::Lost));
    let token = world.submit_op(1, write(), SPAN);
    world.for_a(KEEP_ALIVE * 2);
    assert_eq!(world.result(token), None);
    strike(&world, Fault::Way(Direction::Up, Way::Open));
    strike(&world, Fault::Way(Direction::Down, Way::Open));
    world.until(Duration::from_secs(20), |world| {
        world.result(token).is_some()
    });
    assert_eq!(world.result(token), Some(Ok(())));
    assert_ne!(first_byte(&world), before);
    world.finish();
}

/// A borrowed write whose controller is never heard again: its error is what the lender knows of it, at the deadline.
#[test]
fn a_borrowed_write_that_is_not_answered_is_unsettled() {
    let plan = one_queue(2);
    let deadline = plan.options.deadline;
    let mut world = World::new(plan);
    world.for_a(ms(500));
    strike(&world, Fault::Way(Direction::Down, Way::Lost));
    let token = world.submit_op(1, write(), SPAN);
    world.until(deadline + ms(400), |world| world.result(token).is_some());
    let Some(Err(StoreError::Unsettled { .. })) = world.result(token) else {
        panic!("{:?}", world.result(token));
    };
    world.finish();
}

/// A borrowed read that is cancelled ends at once, whatever its lender does; a late answer meets nobody.
#[test]
fn a_borrowed_read_is_cancelled_at_once() {
    let mut world = World::new(one_queue(2));
    world.for_a(ms(500));
    strike(&world, Fault::Latency(COMMAND_TIMEOUT / 2));
    let token = world.submit_op(1, READ, ONE);
    world.for_a(ms(20));
    world.cancel(1, token);
    world.until(ms(20), |world| world.result(token).is_some());
    let Some(Err(StoreError::Cancelled { .. })) = world.result(token) else {
        panic!("{:?}", world.result(token));
    };
    world.for_a(COMMAND_TIMEOUT);
    strike(&world, Fault::Latency(Duration::ZERO));
    assert_done(&mut world, 1, READ, ONE);
    world.finish();
}

/// Two ports, one queue each and one controller each: where the port of one reactor is gone, it goes through the other's.
#[test]
fn a_reactor_whose_path_is_lost_goes_through_one_that_stands() {
    let mut plan = plan(2);
    for port in &mut plan.ports {
        port.ana = None;
        port.controllers.controllers_per_host_max = 1;
    }
    // Both have a queue of the first port, and one has a queue of the second.
    plan.ports[1].controllers.io_queues_max = 1;
    plan.handles = 2;
    let mut world = World::new(plan);
    world.for_a(ms(500));
    assert_eq!(
        (world.network.io_queues(0), world.network.io_queues(1)),
        (2, 1)
    );
    strike(&world, Fault::Kill { says: true });
    world.for_a(ms(200));
    for reactor in [0, 1] {
        assert_done(&mut world, reactor, write(), SPAN);
        assert_done(&mut world, reactor, READ, ONE);
    }
    strike(&world, Fault::Start);
    world.finish();
}
