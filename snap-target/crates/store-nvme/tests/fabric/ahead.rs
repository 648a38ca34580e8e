//! Reads ahead: behind those that are waited for, until somebody waits for them too.

use std::time::Duration;

use reactor::buf::IoBuf;
use store::{Completion, Op, Store, StoreError, Terms, Token};

use crate::ghosts::plan;
use crate::plan::UNIT_BYTES;
use crate::world::World;

/// Reads ahead that a handle takes.
const AHEAD_MAX: u64 = 128;

/// A handle that the test polls itself, over one path that carries one command at a time: what it completes is in the order in which it was sent.
struct Bench {
    world: World,
    handle: Box<dyn Store>,
    served: Vec<u64>,
}

impl Bench {
    fn new() -> Self {
        let mut plan = plan(1);
        plan.ports.truncate(1);
        plan.options.depth = 1;
        let mut world = World::new(plan);
        let handle = world.handle();
        // Its queue comes up.
        world.for_a(Duration::from_millis(500));
        Self {
            world,
            handle,
            served: Vec::new(),
        }
    }

    fn submit(&mut self, token: u64, is_ahead: bool) -> Result<(), StoreError> {
        let offset = token % 64 * u64::from(UNIT_BYTES);
        let buf = IoBuf::heap(UNIT_BYTES as usize).unwrap();
        let terms = Terms {
            deadline: None,
            is_ahead,
        };
        let op = Op::Read { offset };
        let taken = self.handle.submit(op, Some(buf), Token(token), terms);
        taken.map_err(|rejected| rejected.why)
    }

    fn submit_all(&mut self, tokens: &[u64], is_ahead: bool) {
        for token in tokens {
            self.submit(*token, is_ahead).unwrap();
        }
    }

    fn poll(&mut self) {
        let mut completions = Vec::new();
        self.handle.poll(&mut completions);
        for Completion { token, result, .. } in completions {
            assert_eq!(result, Ok(UNIT_BYTES));
            self.served.push(token.0);
        }
    }

    fn finish(mut self, count: usize) -> Vec<u64> {
        let by = self.world.clock.now() + Duration::from_secs(10);
        while self.served.len() < count {
            assert!(self.world.clock.now() < by, "{:?}", self.served);
            self.world.turn();
            self.poll();
        }
        self.handle.close();
        while !self.handle.is_closed() {
            self.world.turn();
            self.poll();
        }
        drop(self.handle);
        self.world.finish();
        self.served
    }
}

/// What was not sent when somebody came to wait for it: behind those that are waited for, before the others.
#[test]
fn a_hurried_read_is_sent_with_those_that_are_waited_for() {
    let mut bench = Bench::new();
    bench.submit_all(&[0, 1, 2, 3], true);
    // The first one is sent, the others wait for room.
    bench.poll();
    bench.submit_all(&[10], false);
    bench.poll();
    bench.handle.hurry(Token(2));
    bench.handle.hurry(Token(2));
    bench.handle.hurry(Token(99));
    bench.submit_all(&[11], false);
    // Before its parts were cut.
    bench.submit_all(&[4], true);
    bench.handle.hurry(Token(4));
    assert_eq!(bench.finish(7), [0, 10, 2, 11, 4, 1, 3]);
}

#[test]
fn a_hurried_read_is_none_of_those_ahead_any_more() {
    let mut bench = Bench::new();
    let all: Vec<u64> = (0..AHEAD_MAX).collect();
    bench.submit_all(&all, true);
    assert_eq!(bench.submit(1000, true), Err(StoreError::Busy));
    bench.handle.hurry(Token(AHEAD_MAX - 1));
    assert_eq!(bench.submit(1000, true), Ok(()));
    assert_eq!(bench.submit(1001, true), Err(StoreError::Busy));
    let served = bench.finish(all.len() + 1);
    assert_eq!(served[0], AHEAD_MAX - 1);
    assert!(served[1..].is_sorted());
}
