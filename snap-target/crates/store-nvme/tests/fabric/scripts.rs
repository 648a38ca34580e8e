//! One thing after another, as a script says: what a store does about its queues, its times and what is cancelled.

use std::time::Duration;

use nvme::simulation::conduct::IoFault;
use nvme::simulation::model::Span;
use nvme_spec::Status;
use store::{Op, StoreError};

use crate::ghosts::{COMMAND_TIMEOUT, KEEP_ALIVE, SPAN, cut, first_byte, plan, world, write};
use crate::network::Fault;
use crate::plan::{Plan, UNIT_BYTES};
use crate::wire::{Direction, Way};
use crate::world::World;

const READ: Op = Op::Read { offset: 0 };
const ONE: Span = Span { lba: 0, count: 1 };

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// One port, which answers at once.
fn one_port() -> Plan {
    let mut plan = plan(1);
    plan.ports.truncate(1);
    plan
}

fn strike(world: &World, port: usize, fault: Fault) {
    world.network.strike(port, fault, world.clock.now());
}

/// No path was lost, and there is nothing to complain of.
fn assert_well(world: &World) {
    assert_eq!(world.problems(), [""; 0]);
    assert_eq!(world.network.counts().expired, 0);
}

/// Terms: an operation that has less time than the store's own ends when its time is over.
#[test]
fn an_operation_ends_when_whoever_asked_gives_up() {
    let mut world = World::new(one_port());
    world.for_a(ms(500));
    for direction in [Direction::Up, Direction::Down] {
        strike(&world, 0, Fault::Way(direction, Way::Lost));
    }
    world.for_a(KEEP_ALIVE * 2);
    let begun = world.clock.now();
    let token = world.submit_by(0, READ, ONE, ms(1500));
    world.until(ms(1700), |world| world.result(token).is_some());
    let Some(Err(StoreError::Unreachable { .. })) = world.result(token) else {
        panic!("{:?}", world.result(token));
    };
    assert!(world.clock.now().since(begun) >= ms(1500));
    world.finish();
}

/// What waits for an answer is said as soon as another path would be asked, and no longer than that; and then that no path is left.
#[test]
fn who_does_not_answer_is_told_before_the_path_is_lost() {
    let plan = one_port();
    let after = plan.options.failover_after;
    let mut world = World::new(plan);
    world.for_a(ms(500));
    let no_answer = [
        "path 192.0.2.1:4420 is up, and 1 reactors have no answer there: what they sent waits, and reads go to another path where one stands",
    ];
    for op in [READ, write()] {
        let span = if op == READ { ONE } else { SPAN };
        strike(&world, 0, Fault::Way(Direction::Down, Way::Held));
        let token = world.submit_op(0, op, span);
        world.for_a(after - ms(100));
        assert_eq!(world.problems(), [""; 0]);
        world.for_a(ms(250));
        assert_eq!(world.problems(), no_answer);
        world.network.heal(world.clock.now());
        world.until(ms(500), |world| world.result(token).is_some());
        assert_eq!(world.result(token), Some(Ok(())));
        assert_well(&world);
    }
    strike(&world, 0, Fault::Kill { says: true });
    let token = world.submit_op(0, READ, ONE);
    world.for_a(ms(300));
    let [stranded, down] = &world.problems()[..] else {
        panic!("{:?}", world.problems());
    };
    assert!(
        stranded.starts_with("no path can be used: reads and writes wait"),
        "{stranded}"
    );
    assert!(
        down.starts_with("path 192.0.2.1:4420 is down (lost 1 times)"),
        "{down}"
    );
    strike(&world, 0, Fault::Start);
    world.until(KEEP_ALIVE * 4, |world| world.result(token).is_some());
    assert_eq!(world.result(token), Some(Ok(())));
    assert_well(&world);
    world.finish();
}

/// A change that has hardly any time left is not sent: at its deadline its path would be given up for it, which is well.
#[test]
fn a_write_without_time_is_not_sent_and_takes_no_path_down() {
    let mut world = World::new(one_port());
    world.for_a(ms(500));
    let before = first_byte(&world);
    let connections = world.network.counts().connections;
    let token = world.submit_by(0, write(), SPAN, COMMAND_TIMEOUT / 5);
    world.until(COMMAND_TIMEOUT, |world| world.result(token).is_some());
    let Some(Err(StoreError::Unreachable { .. })) = world.result(token) else {
        panic!("{:?}", world.result(token));
    };
    assert_eq!(first_byte(&world), before);
    // A read may still be in time.
    let read = world.submit_by(0, READ, ONE, ms(1));
    world.until(ms(300), |world| world.result(read).is_some());
    world.for_a(COMMAND_TIMEOUT * 2);
    assert_well(&world);
    assert_eq!(world.network.counts().connections, connections);
    world.finish();
}

/// A flush, a deallocation and a zeroing may take longer than other commands: they have their operation's time.
#[test]
fn what_takes_its_time_takes_no_path_down() {
    let mut slowest = Duration::ZERO;
    for seed in 0..20 {
        let mut plan = one_port();
        plan.network.seed = seed;
        let mut world = World::new(plan);
        world.for_a(ms(500));
        let connections = world.network.counts().connections;
        strike(&world, 0, Fault::Latency(COMMAND_TIMEOUT * 6));
        let (offset, len) = (0, u64::from(UNIT_BYTES) * 8);
        let durable = false;
        for op in [
            Op::Flush,
            Op::Discard { offset, len },
            Op::Zero {
                offset,
                len,
                durable,
            },
        ] {
            let begun = world.clock.now();
            let span = Span { lba: 0, count: 8 };
            assert_eq!(world.done(op, span), Ok(()));
            slowest = slowest.max(world.clock.now().since(begun));
        }
        assert_eq!(world.network.counts().connections, connections);
        assert_well(&world);
        world.finish();
    }
    assert!(slowest > COMMAND_TIMEOUT * 2, "they were fast: {slowest:?}");
}

/// One that is never answered is not waited for longer than its operation has time.
#[test]
fn a_flush_that_is_never_answered_ends_its_path_at_its_deadline() {
    let plan = one_port();
    let deadline = plan.options.deadline;
    let mut world = World::new(plan);
    world.for_a(ms(500));
    strike(&world, 0, Fault::Io(IoFault::Silent));
    let connections = world.network.counts().connections;
    let flush = world.submit_op(0, Op::Flush, ONE);
    world.until(deadline + ms(400), |world| world.result(flush).is_some());
    assert!(world.result(flush).unwrap().is_err());
    world.for_a(ms(500));
    assert!(world.network.counts().connections > connections);
    world.finish();
}

/// Nor is a part of a zeroing that was cancelled, and that its controller neither answers nor aborts.
#[test]
fn a_cancelled_zeroing_is_not_waited_for_longer_than_it_has_time() {
    let mut plan = one_port();
    // One command at a time, so that something is left to be begun when it is cancelled.
    plan.options.depth = 1;
    let deadline = plan.options.deadline;
    let mut world = World::new(plan);
    world.for_a(ms(500));
    strike(&world, 0, Fault::Io(IoFault::Silent));
    let (offset, durable) = (0, false);
    let span = Span { lba: 0, count: 40 };
    let len = u64::from(UNIT_BYTES) * u64::from(span.count);
    let zero = Op::Zero {
        offset,
        len,
        durable,
    };
    let token = world.submit_op(0, zero, span);
    world.until(ms(100), |world| world.network.io_faults_are_over(0));
    world.cancel(0, token);
    world.until(deadline + ms(400), |world| world.result(token).is_some());
    let Some(Err(StoreError::Cancelled { .. })) = world.result(token) else {
        panic!("{:?}", world.result(token));
    };
    world.finish();
}

/// A write that was cancelled, and whose path is lost: whoever cancelled it does not want it done later.
#[test]
fn a_cancelled_write_is_not_sent_again() {
    let mut world = world(3);
    let before = first_byte(&world);
    for port in [0, 1] {
        cut(&world, port, Way::Lost);
    }
    let token = world.submit_op(0, write(), SPAN);
    world.for_a(COMMAND_TIMEOUT / 4);
    world.cancel(0, token);
    world.until(COMMAND_TIMEOUT * 2, |world| world.result(token).is_some());
    let Some(Err(StoreError::Cancelled { .. })) = world.result(token) else {
        panic!("{:?}", world.result(token));
    };
    for port in [0, 1] {
        cut(&world, port, Way::Open);
    }
    // Nothing of it is anywhere: the range is free once its controller is dead.
    world.for_a(Duration::from_secs(20));
    assert_eq!(first_byte(&world), before);
    world.finish();
}

/// A queue that the controller refuses is one handle's trouble: the association, with everybody's commands, goes on.
#[test]
fn a_refused_queue_leaves_the_association_alone() {
    let mut plan = one_port();
    plan.handles = 2;
    plan.options.reconnect_delay_max = ms(500);
    let mut world = World::new(plan);
    // The admin queue stands.
    assert_eq!(world.network.counts().connections, 1);
    for _ in 0..1000 {
        strike(
            &world,
            0,
            Fault::RefuseConnect(Status::CONNECT_CONTROLLER_BUSY),
        );
    }
    world.for_a(KEEP_ALIVE * 2);
    let [problem] = &world.problems()[..] else {
        panic!("{:?}", world.problems());
    };
    assert!(
        problem.contains("is up, and 2 reactors have no queue there: ")
            && problem.contains("Controller Busy"),
        "{problem}"
    );
    let tries = world.network.counts().connections;
    assert!(
        (10..60).contains(&tries),
        "{tries}: the waits double up to 0.5 s"
    );
    assert_eq!(world.network.controllers(0), 1, "and it is the first one");
    world.network.heal(world.clock.now());
    world.for_a(ms(600));
    assert_eq!(world.network.counts().connections, tries + 2);
    assert_well(&world);
    for reactor in [0, 1] {
        let token = world.submit_op(reactor, READ, ONE);
        world.until(ms(100), |world| world.result(token).is_some());
        assert_eq!(world.result(token), Some(Ok(())));
    }
    world.finish();
}

/// A controller that has missed the end of a queue answers that it is connected, for as long as the association stands: a new one is begun, and once is enough.
#[test]
fn a_queue_that_its_controller_believes_connected_ends_the_association_once() {
    // Each association is a connection, each refusal another, and the queue that comes up the last.
    for (refusals, connections) in [(3, 1 + 3 + 1), (4, 1 + 4 + 1 + 1), (12, 1 + 4 + 1 + 8 + 1)] {
        let mut plan = one_port();
        plan.options.reconnect_delay_max = ms(200);
        let mut world = World::new(plan);
        for _ in 0..refusals {
            let taken = Status::COMMAND_SEQUENCE_ERROR.dnr();
            strike(&world, 0, Fault::RefuseQueue(taken));
        }
        world.for_a(KEEP_ALIVE * 4);
        let found = world.network.counts().connections;
        assert_eq!(found, connections, "{refusals} refusals");
        let token = world.submit_op(0, READ, ONE);
        world.until(ms(100), |world| world.result(token).is_some());
        assert_eq!(world.result(token), Some(Ok(())));
        world.finish();
    }
}

/// A controller that grants fewer queues than there are reactors: the path is connected to further controllers.
#[test]
fn every_reactor_has_a_queue_though_a_controller_grants_few() {
    let mut plan = one_port();
    plan.handles = 3;
    plan.ports[0].controllers.io_queues_max = 1;
    let mut world = World::new(plan);
    world.for_a(ms(500));
    assert_eq!(world.network.controllers(0), 3);
    assert_well(&world);
    for reactor in 0..3 {
        let token = world.submit_op(reactor, READ, ONE);
        world.until(ms(100), |world| world.result(token).is_some());
        assert_eq!(world.result(token), Some(Ok(())));
    }
    // Each is lost and comes up again by itself.
    strike(&world, 0, Fault::Reset);
    world.for_a(Duration::from_secs(2));
    assert_eq!(world.network.controllers(0), 3);
    assert_well(&world);
    world.finish();
}

/// More cancels at a time than an admin queue has entries: the Keep Alive still finds room there.
#[test]
fn aborts_do_not_fill_the_admin_queue() {
    let mut plan = one_port();
    plan.options.depth = 60;
    plan.options.command_timeout = Duration::from_secs(3);
    plan.options.deadline = Duration::from_secs(15);
    let mut world = World::new(plan);
    world.for_a(ms(500));
    let connections = world.network.counts().connections;
    for _ in 0..50 {
        strike(&world, 0, Fault::Io(IoFault::Silent));
    }
    let spans = (0..50).map(|lba| Span { lba, count: 1 });
    let submit = |world: &mut World, span: Span| {
        let offset = span.lba * u64::from(UNIT_BYTES);
        let durable = false;
        world.submit_op(0, Op::Write { offset, durable }, span)
    };
    let tokens: Vec<u64> = spans.map(|span| submit(&mut world, span)).collect();
    world.until(ms(500), |world| world.network.io_faults_are_over(0));
    // Answers come later.
    strike(&world, 0, Fault::Way(Direction::Down, Way::Held));
    for token in tokens {
        world.cancel(0, token);
    }
    // A Keep Alive is due meanwhile.
    world.for_a(KEEP_ALIVE * 3 / 4);
    assert_eq!(world.network.counts().connections, connections);
    strike(&world, 0, Fault::Way(Direction::Down, Way::Open));
    world.finish();
}

/// Each attempt of a read has twice the time of the one before.
#[test]
fn the_patience_of_reads_doubles() {
    let mut plan = plan(4);
    plan.options.failover_after = ms(800);
    plan.options.command_timeout = Duration::from_secs(15);
    plan.options.deadline = Duration::from_secs(24);
    for port in &mut plan.ports {
        port.ana = None;
    }
    let mut world = World::new(plan);
    world.for_a(ms(500));
    for port in [0, 1] {
        strike(&world, port, Fault::Io(IoFault::Silent));
    }
    let begun = world.clock.now();
    let token = world.submit_op(0, READ, ONE);
    let mut attempts = Vec::new();
    while attempts.len() < 4 {
        let met = |world: &World, port| world.network.io_faults_are_over(port);
        world.until(Duration::from_secs(4), |world| {
            met(world, 0) || met(world, 1)
        });
        attempts.push(world.clock.now().since(begun));
        for port in [0, 1] {
            if met(&world, port) && attempts.len() < 4 {
                strike(&world, port, Fault::Io(IoFault::Silent));
            }
        }
    }
    for (attempt, at) in attempts.iter().zip([0, 800, 2400, 5600]) {
        let late = attempt.saturating_sub(ms(at));
        assert!(*attempt >= ms(at) && late < ms(500), "{attempts:?}");
    }
    world.network.heal(world.clock.now());
    world.until(Duration::from_secs(7), |world| {
        world.result(token).is_some()
    });
    assert_eq!(world.result(token), Some(Ok(())));
    world.finish();
}

/// Where each path says that another one is to be asked, the paths are asked ten times a second, not as fast as they answer.
#[test]
fn paths_that_send_each_other_on_are_asked_a_few_times_a_second() {
    let mut plan = plan(4);
    for port in &mut plan.ports {
        port.ana = None;
    }
    let mut world = World::new(plan);
    world.for_a(ms(500));
    let refuse = Fault::Io(IoFault::Refuse(Status::ANA_TRANSITION));
    for port in [0, 1] {
        strike(&world, port, refuse);
    }
    let begun = world.clock.now();
    let token = world.submit_op(0, READ, ONE);
    let mut asked = 0;
    while world.clock.now().since(begun) < ms(1000) {
        world.for_a(ms(1));
        for port in [0, 1] {
            if world.network.io_faults_are_over(port) {
                asked += 1;
                strike(&world, port, refuse);
            }
        }
    }
    assert_eq!(world.result(token), None);
    assert!((10..=24).contains(&asked), "{asked}");
    world.network.heal(world.clock.now());
    world.until(ms(500), |world| world.result(token).is_some());
    world.finish();
}

/// A handle that is closed while its queue is on its way: nobody else would close the queue.
#[test]
fn a_queue_that_comes_up_while_its_handle_leaves_is_closed() {
    let mut world = World::new(one_port());
    world.for_a(ms(500));
    let mut handle = world.handle();
    // Its queue comes up, and it has not looked.
    world.for_a(ms(500));
    handle.close();
    let mut completions = Vec::new();
    handle.poll(&mut completions);
    assert!(handle.is_closed());
    drop(handle);
    world.for_a(KEEP_ALIVE);
    assert_eq!(
        world.network.io_queues(0),
        1,
        "that of the world's own handle"
    );
    world.finish();
}
