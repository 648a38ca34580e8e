//! Any order of a driver's and a device's steps: every chain comes once as it was made, comes back once, and nobody sleeps through it.

use proptest::prelude::*;
use virtio_ring::{Descriptor, Format, Head, Options, Position, Ring};

use super::driver::{Driver, RECORD, Request, TABLES};
use super::ram::{Part, Ram};

#[derive(Clone, Debug)]
pub enum Step {
    Add(Request),
    /// The device takes so many.
    Take(u8),
    /// The device gives back the one in flight at this place.
    GiveBack(u8, Option<u32>),
    /// The device publishes what it gave back.
    Publish,
    /// The driver takes what came back.
    Reap,
}

pub fn parts() -> impl Strategy<Value = Vec<Descriptor>> {
    let part = (0x4000_u64..0x7000, 1_u32..5000);
    (prop::collection::vec(part, 1..7), 0_usize..7).prop_map(|(parts, readable)| {
        let with = |(number, (address, bytes)): (usize, (u64, u32))| Descriptor {
            address,
            bytes,
            writable: number >= readable,
        };
        parts.into_iter().enumerate().map(with).collect()
    })
}

pub fn request() -> impl Strategy<Value = Request> {
    (parts(), any::<bool>()).prop_map(|(parts, indirect)| Request { parts, indirect })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => request().prop_map(Step::Add),
        3 => (1_u8..5).prop_map(Step::Take),
        4 => (any::<u8>(), proptest::option::of(0_u32..10_000)).prop_map(|(at, written)| Step::GiveBack(at, written)),
        2 => Just(Step::Publish),
        2 => Just(Step::Reap),
    ]
}

pub fn format() -> impl Strategy<Value = Format> {
    prop_oneof![Just(Format::Split), Just(Format::Packed)]
}

struct World {
    driver: Driver,
    ring: Ring<Part>,
    memory: Ram,
    chain: Vec<Descriptor>,
    in_flight: Vec<(Head, u32)>,
    /// What the device has given back and not published.
    held: Vec<(u16, Option<u32>)>,
    /// What it has published and the driver has not seen.
    expected: std::collections::VecDeque<(u16, Option<u32>)>,
    device_sleeps: bool,
    is_kicked: bool,
    driver_sleeps: bool,
    is_called: bool,
}

impl World {
    fn new(format: Format, size: u16, event_index: bool, with_record: bool) -> Self {
        let driver = Driver::new(format, size, event_index);
        let memory = driver.ram.clone();
        let options = Options {
            indirect: true,
            event_index,
        };
        let record = with_record.then(|| driver.record());
        let ring = Ring::new(
            &memory,
            &driver.layout,
            options,
            Position(driver.base()),
            record,
        )
        .unwrap();
        Self {
            driver,
            ring,
            memory,
            chain: Vec::new(),
            in_flight: Vec::new(),
            held: Vec::new(),
            expected: std::collections::VecDeque::new(),
            device_sleeps: false,
            is_kicked: false,
            driver_sleeps: false,
            is_called: false,
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Add(request) => {
                if self.driver.add(&request).is_some() {
                    self.is_kicked |= self.driver.kicks();
                }
            }
            Step::Take(count) => {
                self.device_sleeps = false;
                self.is_kicked = false;
                self.ring.without_kicks();
                for _ in 0..count {
                    if !self.take() {
                        self.device_sleeps = !self.ring.with_kicks();
                        assert!(self.device_sleeps, "nobody added anything meanwhile");
                        return;
                    }
                }
                self.device_sleeps = !self.ring.with_kicks();
            }
            Step::GiveBack(at, written) => {
                if self.in_flight.is_empty() {
                    return;
                }
                let (head, writable) = self
                    .in_flight
                    .remove(usize::from(at) % self.in_flight.len());
                let written = written.map(|written| written.min(writable));
                self.ring.give_back(head, written).unwrap();
                // Only a packed ring says that nothing was written.
                let written = match self.driver.layout.format {
                    Format::Split => Some(written.unwrap_or(0)),
                    Format::Packed => written,
                };
                let ended = (head.id(), written);
                match self.driver.layout.format {
                    Format::Split => self.held.push(ended),
                    // Each is the driver's at once.
                    Format::Packed => {
                        self.expected.push_back(ended);
                        self.is_called |= self.ring.wants_call();
                    }
                }
                assert_eq!(self.ring.held(), self.held.len());
            }
            Step::Publish => {
                self.ring.publish();
                assert_eq!(self.ring.held(), 0);
                self.expected.extend(self.held.drain(..));
                self.is_called |= self.ring.wants_call();
            }
            Step::Reap => {
                self.driver.wake();
                self.is_called = false;
                while let Some(came) = self.driver.reap() {
                    assert_eq!(Some(came), self.expected.pop_front());
                }
                assert!(self.expected.is_empty(), "all that was told is there");
                self.driver_sleeps = !self.driver.sleep();
            }
        }
        if self.device_sleeps && !self.is_kicked {
            let outstanding = self.driver.outstanding.len();
            assert_eq!(
                outstanding,
                self.in_flight.len() + self.held.len() + self.expected.len(),
                "the device sleeps, and chains wait"
            );
        }
        if self.driver_sleeps && !self.is_called {
            assert!(
                !self.driver.has_used(),
                "the driver sleeps, and chains have come back"
            );
        }
    }

    fn take(&mut self) -> bool {
        self.memory.take_loads();
        let Some(taken) = self.ring.take(&self.memory, &mut self.chain).unwrap() else {
            return false;
        };
        assert_eq!(taken.chain, Ok(()));
        let (request, _) = &self.driver.outstanding[&taken.head.id()];
        assert_eq!(self.chain, request.parts);
        let loads = self.memory.take_loads();
        // The record is nobody's but the device's.
        let is_guests = |at: &usize| !(RECORD..TABLES).contains(at);
        let twice = loads
            .iter()
            .find(|(at, count)| **count > 1 && is_guests(at));
        assert_eq!(twice, None, "each field is read once");
        let writable = self.chain.iter().filter(|part| part.writable);
        let writable = writable.map(|part| part.bytes).sum();
        self.in_flight.push((taken.head, writable));
        true
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn every_chain_once(
        format in format(),
        size in prop_oneof![Just(1_u16), Just(2), Just(8), Just(64)],
        event_index in any::<bool>(),
        with_record in any::<bool>(),
        steps in prop::collection::vec(step(), 1..400),
    ) {
        let mut world = World::new(format, size, event_index, with_record);
        for step in steps {
            world.step(step);
        }
    }
}

#[test]
fn indices_go_round() {
    for format in [Format::Split, Format::Packed] {
        let mut world = World::new(format, 4, true, true);
        let request = Request::of_writable(3);
        // Beyond 65,536 chains, and so many rounds.
        for _ in 0..70_000 {
            world.step(Step::Add(request.clone()));
            world.step(Step::Take(1));
            world.step(Step::GiveBack(0, Some(100)));
            world.step(Step::Publish);
            world.step(Step::Reap);
        }
        assert!(world.driver.outstanding.is_empty());
    }
}
