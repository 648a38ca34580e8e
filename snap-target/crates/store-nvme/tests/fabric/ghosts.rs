//! Ghost writes: a write that its path lost, and that is carried out when a newer one has been acknowledged. Scripted, so that each way to one is
//! there for certain.

use std::time::Duration;

use nvme::initiator::AnaState;
use nvme::simulation::conduct::IoFault;
use nvme::simulation::model::Span;
use nvme::simulation::random::Random;
use store::{Op, StoreError};

use crate::network::Fault;
use crate::plan::{Plan, UNIT_BYTES, port};
use crate::wire::{Direction, Way};
use crate::world::World;

const SEEDS: u64 = 40;
const QUIESCE: Duration = Duration::from_millis(1500);
pub const HELD_MAX: Duration = Duration::from_millis(1200);
pub const KEEP_ALIVE: Duration = Duration::from_secs(2);
pub const COMMAND_TIMEOUT: Duration = Duration::from_secs(1);
/// From the moment in which a connection is closed.
pub const DEAD_AFTER: Duration = Duration::from_millis(2000 + 1500 + 1200);
pub const SPAN: Span = Span { lba: 5, count: 3 };

/// One reactor, two ports; the first one is better.
pub fn plan(seed: u64) -> Plan {
    let mut random = Random::new(seed);
    let mut plan = Plan::of(3);
    plan.network.seed = seed;
    plan.network.held_max = HELD_MAX;
    plan.network.lba_bytes = UNIT_BYTES;
    plan.network.disk_blocks = 96;
    plan.network.shape.delay_max = Duration::from_micros(100);
    plan.ports = (0..2)
        .map(|index| port(index, QUIESCE, &mut random))
        .collect();
    for (port, state) in (plan.ports.iter_mut()).zip([AnaState::Optimized, AnaState::NonOptimized])
    {
        port.ana = Some(state);
        port.latency_max = Duration::ZERO;
        port.admits_at_once = true;
    }
    plan.handles = 1;
    plan.operations = 0;
    plan.cancels_once_in = None;
    plan.stalls_once_in = None;
    plan.hurried_once_in = None;
    plan.faults = Vec::new();
    let options = &mut plan.options;
    (options.header_digest, options.data_digest) = (false, false);
    options.depth = 32;
    options.keep_alive = KEEP_ALIVE;
    options.quiesce_margin = HELD_MAX;
    options.command_timeout = COMMAND_TIMEOUT;
    options.deadline = COMMAND_TIMEOUT + DEAD_AFTER + Duration::from_secs(2);
    options.reconnect_delay_min = Duration::from_millis(10);
    options.reconnect_delay_max = Duration::from_millis(500);
    plan
}

pub fn write() -> Op {
    Op::Write {
        offset: SPAN.lba * u64::from(UNIT_BYTES),
        durable: false,
    }
}

pub fn cut(world: &World, port: usize, way: Way) {
    for direction in [Direction::Up, Direction::Down] {
        let now = world.clock.now();
        world.network.strike(port, Fault::Way(direction, way), now);
    }
}

/// Both paths stand, and the range holds a write of its own.
pub fn world(seed: u64) -> World {
    let mut world = World::new(plan(seed));
    world.for_a(Duration::from_millis(500));
    assert_eq!(world.done(write(), SPAN), Ok(()));
    world
}

/// What the disk holds where the writes go.
pub fn first_byte(world: &World) -> [u8; 8] {
    let start = (SPAN.lba * u64::from(UNIT_BYTES)) as usize;
    world.network.disk()[start..start + 8].try_into().unwrap()
}

/// A write is lost with its path, and a newer one is acknowledged over the other path; then the first path heals. The store waits with sending the lost one
/// again until its first copy cannot come any more.
#[test]
fn a_write_that_was_sent_again_is_not_followed_by_its_ghost() {
    let mut late = 0;
    for seed in 0..SEEDS {
        let mut world = world(seed);
        let before = first_byte(&world);
        let in_network = seed % 2 == 0;
        if in_network {
            cut(&world, 0, Way::Held);
        } else {
            let now = world.clock.now();
            world.network.strike(0, Fault::Io(IoFault::Silent), now);
        }
        let old = world.submit_op(0, write(), SPAN);
        world.for_a(COMMAND_TIMEOUT / 2);
        if !in_network {
            cut(&world, 0, Way::Lost);
        }
        // The path is given up now. A store in a hurry has sent it again, and takes a newer one before the ghost comes.
        world.for_a(COMMAND_TIMEOUT / 2 + HELD_MAX / 2);
        if world.result(old).is_some() {
            assert_eq!(world.done(write(), SPAN), Ok(()));
        }
        if in_network {
            cut(&world, 0, Way::Open);
        }
        world.until(DEAD_AFTER + Duration::from_secs(1), |world| {
            late += u32::from(first_byte(world) != before && world.result(old).is_none());
            world.result(old).is_some()
        });
        assert_eq!(world.result(old), Some(Ok(())));
        assert_eq!(world.done(write(), SPAN), Ok(()));
        world.finish();
    }
    assert!(late > 0, "no ghost came");
}

/// A write fails at its deadline before anybody knows what became of it: its range is held until the ghost cannot come any more.
#[test]
fn a_write_that_failed_does_not_come_behind_a_newer_one() {
    let mut late = 0;
    for seed in 0..SEEDS {
        let mut world = world(seed);
        let deadline = plan(seed).options.deadline;
        // There is no path until shortly before the deadline.
        for port in [0, 1] {
            cut(&world, port, Way::Lost);
        }
        world.for_a(KEEP_ALIVE * 3);
        let begun = world.clock.now();
        let old = world.submit_op(0, write(), SPAN);
        world.for_a(deadline - Duration::from_millis(1500));
        cut(&world, 0, Way::Open);
        let now = world.clock.now();
        let in_network = seed % 2 == 0;
        if !in_network {
            world.network.strike(0, Fault::Io(IoFault::Silent), now);
        }
        world.until(Duration::from_millis(1200), |world| match in_network {
            true => world.network.io_queue_stands(0),
            false => world.network.io_faults_are_over(0),
        });
        if in_network {
            let (fault, now) = (Fault::Way(Direction::Up, Way::Held), world.clock.now());
            world.network.strike(0, fault, now);
        } else {
            cut(&world, 0, Way::Lost);
        }
        world.until(Duration::from_secs(4), |world| world.result(old).is_some());
        assert!(world.clock.now().since(begun) >= deadline);
        let Some(Err(error)) = world.result(old) else {
            // It came through before the way was cut.
            continue;
        };
        let was_sent = matches!(error, StoreError::Unsettled { .. });
        let before = first_byte(&world);
        cut(&world, 1, Way::Open);
        world.for_a(HELD_MAX / 3);
        cut(&world, 0, if in_network { Way::Open } else { Way::Lost });
        let new = world.submit_op(0, write(), SPAN);
        world.until(DEAD_AFTER + Duration::from_secs(3), |world| {
            let is_ghost = first_byte(world) != before && world.result(new).is_none();
            late += u32::from(was_sent && is_ghost);
            world.result(new).is_some()
        });
        assert_eq!(world.result(new), Some(Ok(())));
        world.finish();
    }
    assert!(late > 0, "no ghost came");
}

/// A reactor sleeps while its path is lost: its queue is closed late, and what it had sent may come as much later.
#[test]
fn a_queue_that_is_closed_late_makes_its_controller_die_late() {
    const ASLEEP: Duration = Duration::from_millis(1500);
    const KEEP_ALIVE: Duration = Duration::from_secs(4);
    let elsewhere = Span { lba: 40, count: 1 };
    let mut late = 0;
    for seed in 0..SEEDS {
        let mut plan = plan(seed);
        plan.handles = 2;
        plan.options.keep_alive = KEEP_ALIVE;
        plan.options.deadline = Duration::from_secs(20);
        let mut world = World::new(plan);
        world.for_a(Duration::from_millis(500));
        // Its controller has just heard of its host, and lives until the bytes come.
        assert_eq!(world.done(write(), SPAN), Ok(()));
        let before = first_byte(&world);
        cut(&world, 0, Way::Held);
        let now = world.clock.now();
        world.network.strike(0, Fault::Io(IoFault::Silent), now);
        let old = world.submit_op(1, write(), SPAN);
        let noticed = Op::Write {
            offset: elsewhere.lba * u64::from(UNIT_BYTES),
            durable: false,
        };
        world.submit_op(0, noticed, elsewhere);
        world.for_a(Duration::from_millis(5));
        world.sleep(1, COMMAND_TIMEOUT + ASLEEP);
        world.for_a(COMMAND_TIMEOUT + ASLEEP + HELD_MAX * 9 / 10);
        cut(&world, 0, Way::Open);
        world.until(Duration::from_secs(15), |world| {
            late += u32::from(first_byte(world) != before && world.result(old).is_none());
            world.result(old).is_some()
        });
        assert_eq!(world.result(old), Some(Ok(())));
        assert_eq!(world.done(write(), SPAN), Ok(()));
        world.finish();
    }
    assert!(late > 0, "no ghost came");
}

/// A reactor sleeps for longer than a controller takes to die. Its queue stays open meanwhile, and what comes of it lets the controller live: with what it has
/// of another reactor.
#[test]
fn a_queue_that_is_not_closed_lets_its_controller_live() {
    let elsewhere = Span { lba: 40, count: 1 };
    for seed in 0..SEEDS {
        let mut plan = plan(seed);
        plan.handles = 2;
        plan.options.keep_alive = Duration::from_secs(4);
        plan.options.deadline = Duration::from_secs(24);
        let mut world = World::new(plan);
        world.for_a(Duration::from_millis(500));
        assert_eq!(world.done(write(), SPAN), Ok(()));
        let now = world.clock.now();
        world.network.strike(0, Fault::Io(IoFault::Silent), now);
        let old = world.submit_op(0, write(), SPAN);
        world.for_a(Duration::from_millis(5));
        cut(&world, 0, Way::Held);
        let other = Op::Write {
            offset: elsewhere.lba * u64::from(UNIT_BYTES),
            durable: false,
        };
        world.submit_op(1, other, elsewhere);
        world.for_a(Duration::from_millis(5));
        world.sleep(1, Duration::from_secs(9));
        world.for_a(COMMAND_TIMEOUT + Duration::from_millis(2800));
        cut(&world, 0, Way::Open);
        world.until(Duration::from_secs(24), |world| world.result(old).is_some());
        assert_eq!(world.result(old), Some(Ok(())));
        assert_eq!(world.done(write(), SPAN), Ok(()));
        world.finish();
    }
}

/// What was done in part is not said to be not done: whoever hears that may count on what was there before.
#[test]
fn a_write_that_was_done_in_part_is_unsettled_at_its_deadline() {
    let mut plan = plan(1);
    plan.ports.truncate(1);
    plan.options.depth = 1;
    (plan.network.lba_bytes, plan.network.disk_blocks) = (4096, 12);
    let mut world = World::new(plan);
    world.for_a(Duration::from_millis(500));
    // A whole block, and then a part of one, which is read first: that read is not answered.
    let op = Op::Write {
        offset: 0,
        durable: false,
    };
    let span = Span { lba: 0, count: 9 };
    let token = world.submit_op(0, op, span);
    world.until(Duration::from_secs(1), |world| world.network.disk()[0] != 0);
    let now = world.clock.now();
    world.network.strike(0, Fault::Io(IoFault::Silent), now);
    world.until(Duration::from_secs(1), |world| {
        world.network.io_faults_are_over(0)
    });
    cut(&world, 0, Way::Lost);
    world.until(Duration::from_secs(20), |world| {
        world.result(token).is_some()
    });
    let Some(Err(StoreError::Unsettled { .. })) = world.result(token) else {
        panic!("{:?}", world.result(token));
    };
    world.finish();
}

/// Reads that a controller leaves unanswered do not use its queue up: the path is given up and connected again.
#[test]
fn reads_that_are_never_answered_do_not_take_all_room() {
    let mut plan = plan(1);
    plan.ports.truncate(1);
    plan.options.depth = 2;
    let deadline = plan.options.deadline;
    let mut world = World::new(plan);
    world.for_a(Duration::from_millis(500));
    let read = Op::Read { offset: 0 };
    for _ in 0..2 {
        let now = world.clock.now();
        world.network.strike(0, Fault::Io(IoFault::Silent), now);
    }
    let span = Span { lba: 0, count: 1 };
    let tokens = [0, 0].map(|reactor| world.submit_op(reactor, read, span));
    world.for_a(Duration::from_millis(100));
    for token in tokens {
        world.cancel(0, token);
    }
    world.for_a(Duration::from_millis(200));
    for token in tokens {
        let Some(Err(StoreError::Cancelled { .. })) = world.result(token) else {
            panic!("{:?}", world.result(token));
        };
    }
    let begun = world.clock.now();
    assert_eq!(world.done(read, span), Ok(()));
    assert!(world.clock.now().since(begun) < deadline / 2);
    world.finish();
}
