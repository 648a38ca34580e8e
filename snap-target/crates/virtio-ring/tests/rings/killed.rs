//! A device that is killed between any two stores, and another that goes on with the record.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use proptest::prelude::*;
use virtio_ring::{Format, Head, Options, Position, Ring};

use super::driver::{Driver, Request};
use super::model::{format, request};
use super::ram::{KILLED, Part, Ram};

const OPTIONS: Options = Options {
    indirect: true,
    event_index: true,
};

/// One life of a device: it takes and gives back as `plan` says, until it is killed or the plan ends.
struct Life {
    ring: Ring<Part>,
    in_flight: Vec<Head>,
    /// The ids in the order in which they were taken.
    taken: Vec<u16>,
}

impl Life {
    fn begin(driver: &Driver) -> Self {
        // What a monitor knows of a device that was killed: the base with which it was started.
        let base = Position(driver.base());
        let ring = Ring::new(
            &driver.ram,
            &driver.layout,
            OPTIONS,
            base,
            Some(driver.record()),
        );
        Self {
            ring: ring.unwrap(),
            in_flight: Vec::new(),
            taken: Vec::new(),
        }
    }

    fn take(&mut self, memory: &Ram, asked: &BTreeMap<u16, Request>) -> bool {
        let mut chain = Vec::new();
        let Some(taken) = self.ring.take(memory, &mut chain).unwrap() else {
            return false;
        };
        assert_eq!(taken.chain, Ok(()));
        let id = taken.head.id();
        assert_eq!(
            Some(&chain),
            asked.get(&id).map(|request| &request.parts),
            "chain {id}"
        );
        self.taken.push(id);
        self.in_flight.push(taken.head);
        true
    }
}

fn asked(driver: &Driver) -> BTreeMap<u16, Request> {
    let all = driver.outstanding.iter();
    all.map(|(id, (request, _))| (*id, request.clone()))
        .collect()
}

/// What is done with a ring; `true` takes, `false` gives back the one at a place.
type Plan = Vec<(bool, u8)>;

/// Runs a plan in a life that is killed at store `kill`; then another life finishes everything. Returns whether the first was killed.
fn killed_at(format: Format, requests: &[Request], plan: &Plan, kill: u64) -> bool {
    let mut driver = Driver::new(format, 8, true);
    let memory = driver.ram.clone();
    let mut first = Life::begin(&driver);
    let mut next = requests.iter().cycle();
    memory.kill_after(Some(kill));
    let mut came_back = 0;
    let mut added = 0;
    let ended = catch_unwind(AssertUnwindSafe(|| {
        for (takes, at) in plan {
            if *takes {
                while driver.add(next.next().unwrap()).is_some() {
                    added += 1;
                }
                let asked = asked(&driver);
                first.take(&memory, &asked);
            } else if !first.in_flight.is_empty() {
                let place = usize::from(*at) % first.in_flight.len();
                let head = first.in_flight[place];
                first.ring.give_back(head, Some(1)).unwrap();
                first.in_flight.remove(place);
                if at % 3 == 0 {
                    first.ring.publish();
                }
                if at % 2 == 0 {
                    while driver.reap().is_some() {
                        came_back += 1;
                    }
                }
            }
        }
        first.ring.publish();
    }));
    let was_killed = match ended {
        Ok(()) => false,
        Err(panic) => {
            let said = panic.downcast_ref::<String>().map_or("", String::as_str);
            let said = panic.downcast_ref::<&str>().copied().unwrap_or(said);
            assert_eq!(said, KILLED);
            true
        }
    };
    memory.kill_after(None);
    // The driver goes on meanwhile: what has come back is used anew.
    while driver.reap().is_some() {
        came_back += 1;
    }
    while driver.add(next.next().unwrap()).is_some() {
        added += 1;
    }
    let mut second = Life::begin(&driver);
    let asked = asked(&driver);
    let outstanding = asked.len();
    if !was_killed {
        let has_left = !first.in_flight.is_empty();
        assert_eq!(second.ring.has_left(), has_left);
    }
    while second.take(&memory, &asked) {}
    assert!(!second.ring.has_left());
    assert_eq!(
        second.in_flight.len(),
        outstanding,
        "each that is outstanding is taken, once"
    );
    // Those that the first had, in its order, before all others; the one that it was giving back or taking may be either.
    let position = |id: &u16| second.taken.iter().position(|taken| taken == id);
    let known: Vec<usize> = first
        .in_flight
        .iter()
        .filter_map(|head| position(&head.id()))
        .collect();
    if !was_killed {
        assert!(
            known.is_sorted(),
            "in the order in which they came: {known:?}"
        );
        assert_eq!(known, (0..first.in_flight.len()).collect::<Vec<_>>());
    }
    for head in std::mem::take(&mut second.in_flight) {
        second.ring.give_back(head, Some(1)).unwrap();
    }
    second.ring.publish();
    while driver.reap().is_some() {
        came_back += 1;
    }
    assert!(driver.outstanding.is_empty());
    assert_eq!(came_back, added, "each comes back once");
    was_killed
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn at_each_store(
        format in format(),
        requests in prop::collection::vec(request(), 1..12),
        plan in prop::collection::vec((any::<bool>(), any::<u8>()), 1..40),
    ) {
        std::panic::set_hook(Box::new(|_| {}));
        let mut kill = 0;
        while killed_at(format, &requests, &plan, kill) {
            kill += 1;
        }
        let _ours = std::panic::take_hook();
    }
}

/// Killed again while it takes the record up.
#[test]
fn at_each_store_of_the_recovery() {
    std::panic::set_hook(Box::new(|_| {}));
    for format in [Format::Split, Format::Packed] {
        for kill in 0..200 {
            for again in 0..40 {
                let mut driver = Driver::new(format, 8, true);
                let memory = driver.ram.clone();
                let request = Request::of_writable(2);
                let mut first = Life::begin(&driver);
                memory.kill_after(Some(kill));
                let mut came_back = 0;
                let mut added = 0;
                let ended = catch_unwind(AssertUnwindSafe(|| {
                    for _ in 0..3 {
                        while driver.add(&request).is_some() {
                            added += 1;
                        }
                        let asked = asked(&driver);
                        while first.take(&memory, &asked) {}
                        // The last first.
                        while let Some(head) = first.in_flight.pop() {
                            first.ring.give_back(head, Some(1)).unwrap();
                        }
                        first.ring.publish();
                        while driver.reap().is_some() {
                            came_back += 1;
                        }
                    }
                }));
                memory.kill_after(Some(again));
                let recovery = catch_unwind(AssertUnwindSafe(|| Life::begin(&driver)));
                memory.kill_after(None);
                drop(recovery);
                while driver.reap().is_some() {
                    came_back += 1;
                }
                let mut last = Life::begin(&driver);
                let asked = asked(&driver);
                while last.take(&memory, &asked) {}
                assert_eq!(
                    last.in_flight.len(),
                    asked.len(),
                    "{format:?} killed at {kill}, then at {again}"
                );
                for head in std::mem::take(&mut last.in_flight) {
                    last.ring.give_back(head, Some(1)).unwrap();
                }
                last.ring.publish();
                while driver.reap().is_some() {
                    came_back += 1;
                }
                assert_eq!(
                    came_back, added,
                    "{format:?} killed at {kill}, then at {again}"
                );
                if ended.is_ok() {
                    break;
                }
            }
        }
    }
    let _ours = std::panic::take_hook();
}
