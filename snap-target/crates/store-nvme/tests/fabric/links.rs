//! The fabric itself, with a host's path and no store above it.

use std::net::SocketAddr;
use std::time::Duration;

use nvme::controller::ControllerLimits;
use nvme::initiator::AnaState;
use nvme::initiator::path::PathEvent;
use nvme::simulation::conduct::IoFault;
use nvme::simulation::link::LinkShape;
use nvme::tcp::target::TargetLimits;
use nvme_spec::Status;
use reactor::{Ring, RingConfig};
use store_nvme::Clock;
use store_nvme::queue::Outcome;

use crate::host::{Host, answer};
use crate::network::{Fault, Network, NetworkConfig, PortConfig};
use crate::transport::SimTransport;
use crate::wire::{Direction, Garble, Way};

const KEEP_ALIVE: Duration = Duration::from_secs(2);
const QUIESCE: Duration = Duration::from_millis(1500);
const HELD_MAX: Duration = Duration::from_millis(700);
/// What a path has to reckon with beyond KATO and CQT.
const MARGIN: Duration = HELD_MAX;
/// The longest step of the clock.
const STEP_MAX: Duration = Duration::from_millis(10);

struct Bench {
    clock: Clock,
    network: Network,
    ring: Ring,
    hosts: Vec<Host>,
}

fn address(port: usize) -> SocketAddr {
    ([192, 0, 2, port as u8 + 1], 4420).into()
}

fn port(index: usize) -> PortConfig {
    PortConfig {
        address: address(index),
        controllers: ControllerLimits::default(),
        limits: TargetLimits::default(),
        quiesce: Some(QUIESCE),
        ana: None,
        latency_max: Duration::ZERO,
        admits_at_once: true,
    }
}

impl Bench {
    /// One host for each port.
    fn new(seed: u64, ports: &[PortConfig], digests: bool) -> Bench {
        Bench::with_keep_alive(seed, ports, digests, KEEP_ALIVE)
    }

    fn with_keep_alive(
        seed: u64,
        ports: &[PortConfig],
        digests: bool,
        keep_alive: Duration,
    ) -> Bench {
        let config = NetworkConfig {
            seed,
            shape: LinkShape {
                piece_bytes_max: 1000,
                delay_max: Duration::from_millis(2),
            },
            held_max: HELD_MAX,
            disk_blocks: 64,
            lba_bytes: 512,
        };
        let clock = Clock::stepped();
        let network = Network::new(config, ports);
        let hosts = ports.iter().map(|port| {
            let transport = SimTransport::new(&network);
            Host::new(transport, port.address, digests, keep_alive, MARGIN, &clock)
        });
        Bench {
            hosts: hosts.collect(),
            ring: Ring::new(&RingConfig::default()).unwrap(),
            clock,
            network,
        }
    }

    fn turn(&mut self) {
        let now = self.clock.now();
        self.network.run(now);
        for host in &mut self.hosts {
            host.turn(&self.ring);
        }
        let due = self
            .network
            .next_due(now)
            .map_or(STEP_MAX, |due| due.since(now));
        let step = due.clamp(Duration::from_micros(1), STEP_MAX);
        self.clock.step(step);
    }

    fn until(&mut self, within: Duration, mut is_so: impl FnMut(&mut Bench) -> bool) {
        let by = self.clock.now() + within;
        while !is_so(self) {
            assert!(self.clock.now() < by, "not within {within:?}");
            self.turn();
        }
    }

    fn for_a(&mut self, while_: Duration) {
        let by = self.clock.now() + while_;
        while self.clock.now() < by {
            self.turn();
        }
    }

    fn up(seed: u64, ports: &[PortConfig], digests: bool) -> Bench {
        Bench::new(seed, ports, digests).running()
    }

    fn running(mut self) -> Bench {
        let bench = &mut self;
        bench.until(Duration::from_secs(1), |bench| {
            bench.hosts.iter().all(Host::is_running)
        });
        self
    }

    fn strike(&self, port: usize, fault: Fault) {
        self.network.strike(port, fault, self.clock.now());
    }

    fn cut(&self, port: usize, way: Way) {
        self.strike(port, Fault::Way(Direction::Up, way));
        self.strike(port, Fault::Way(Direction::Down, way));
    }

    fn written(&mut self, host: usize, lba: u64, data: &[u8]) {
        self.hosts[host].write(lba, data);
        self.until(Duration::from_secs(1), |bench| {
            !bench.hosts[host].ended.is_empty()
        });
        assert_eq!(answer(&mut self.hosts[host]).unwrap().0, Status::SUCCESS);
    }

    fn read(&mut self, host: usize, lba: u64, bytes: usize) -> Option<(Status, Vec<u8>)> {
        self.hosts[host].read(lba, bytes);
        self.until(Duration::from_secs(30), |bench| {
            !bench.hosts[host].ended.is_empty()
        });
        answer(&mut self.hosts[host])
    }
}

#[test]
fn what_one_port_wrote_the_other_reads() {
    for digests in [false, true] {
        let mut bench = Bench::up(1, &[port(0), port(1)], digests);
        assert_eq!(bench.hosts[0].seen, [PathEvent::Up]);
        let long: Vec<u8> = (0..20_480u32).map(|at| (at % 251) as u8).collect();
        for (lba, data) in [(3, &long[..512]), (10, &long[..8192]), (20, &long[..])] {
            bench.written(0, lba, data);
            let read = bench.read(1, lba, data.len());
            assert_eq!(read, Some((Status::SUCCESS, data.to_vec())));
            let start = lba as usize * 512;
            assert_eq!(bench.network.disk()[start..start + data.len()], *data);
        }
        assert_eq!(bench.network.counts().connections, 4);
    }
}

#[test]
fn a_cut_way_is_noticed_at_both_ends_and_comes_up_again() {
    let mut bench = Bench::up(2, &[port(0)], false);
    bench.cut(0, Way::Lost);
    bench.until(KEEP_ALIVE * 2, |bench| !bench.hosts[0].failures.is_empty());
    assert_eq!(
        bench.hosts[0].failures,
        ["the controller did not answer a Keep Alive within 2s"]
    );
    bench.until(KEEP_ALIVE, |bench| bench.network.counts().expired == 1);
    assert_eq!(bench.network.controllers(0), 0);
    bench.cut(0, Way::Open);
    bench.until(Duration::from_secs(4), |bench| bench.hosts[0].is_running());
    assert_eq!(bench.network.controllers(0), 1);
}

#[test]
fn a_reset_and_a_killed_target_are_noticed_at_once() {
    let mut bench = Bench::up(3, &[port(0)], false);
    for fault in [Fault::Reset, Fault::Kill { says: true }] {
        bench.hosts[0].failures.clear();
        bench.strike(0, fault);
        bench.until(Duration::from_millis(10), |bench| {
            !bench.hosts[0].failures.is_empty()
        });
        let to = address(0);
        let ended = format!("{to} ended the connection: closed by the peer");
        assert_eq!(bench.hosts[0].failures[0], ended);
        if fault == Fault::Reset {
            bench.until(Duration::from_secs(1), |bench| bench.hosts[0].is_running());
        }
    }
    bench.for_a(Duration::from_millis(300));
    let refused = format!(
        "connecting to {} failed: {}",
        address(0),
        reactor::Errno::ECONNREFUSED
    );
    assert_eq!(*bench.hosts[0].failures.last().unwrap(), refused);
    bench.strike(0, Fault::Start);
    bench.until(Duration::from_secs(2), |bench| bench.hosts[0].is_running());
}

#[test]
fn one_direction_cut_is_as_bad_as_both() {
    for direction in [Direction::Up, Direction::Down] {
        let mut bench = Bench::up(4, &[port(0)], false);
        bench.strike(0, Fault::Way(direction, Way::Lost));
        bench.until(KEEP_ALIVE * 2, |bench| !bench.hosts[0].failures.is_empty());
        bench.until(KEEP_ALIVE * 2, |bench| bench.network.controllers(0) == 0);
    }
}

#[test]
fn an_ana_change_is_told_and_commands_are_refused_meanwhile() {
    let ports = [PortConfig {
        ana: Some(AnaState::NonOptimized),
        ..port(0)
    }];
    let mut bench = Bench::up(5, &ports, false);
    assert_eq!(bench.hosts[0].path.ana(), AnaState::NonOptimized);
    for (state, status) in [
        (AnaState::Inaccessible, Status::ANA_INACCESSIBLE),
        (AnaState::Change, Status::ANA_TRANSITION),
        (AnaState::PersistentLoss, Status::ANA_PERSISTENT_LOSS),
        (AnaState::Optimized, Status::SUCCESS),
    ] {
        bench.hosts[0].seen.clear();
        bench.strike(0, Fault::Ana(state));
        bench.until(Duration::from_millis(100), |bench| {
            bench.hosts[0].seen == [PathEvent::Changed]
        });
        assert_eq!(bench.hosts[0].path.ana(), state);
        assert_eq!(bench.read(0, 0, 512).unwrap().0, status);
    }
}

#[test]
fn a_changed_namespace_is_looked_at_whether_the_target_knows_ana_or_not() {
    for ana in [None, Some(AnaState::Optimized)] {
        let mut bench = Bench::up(5, &[PortConfig { ana, ..port(0) }], false);
        bench.hosts[0].seen.clear();
        bench.strike(0, Fault::ChangeNamespaces);
        bench.until(Duration::from_millis(100), |bench| {
            bench.hosts[0].seen == [PathEvent::Changed]
        });
    }
}

#[test]
fn a_command_fails_as_it_was_told_to() {
    let mut bench = Bench::up(6, &[port(0)], false);
    let later = Status::NAMESPACE_NOT_READY.with_retry_delay(1);
    for (fault, byte) in [
        (IoFault::Refuse(later), 0),
        (IoFault::Fail(Status::INTERNAL_ERROR), 0),
        (IoFault::FailDone(Status::INTERNAL_ERROR), 0xAA),
    ] {
        let (IoFault::Refuse(status) | IoFault::Fail(status) | IoFault::FailDone(status)) = fault
        else {
            unreachable!();
        };
        bench.strike(0, Fault::Io(fault));
        bench.hosts[0].write(7, &[0xAA; 512]);
        bench.until(Duration::from_secs(1), |bench| {
            !bench.hosts[0].ended.is_empty()
        });
        assert_eq!(answer(&mut bench.hosts[0]).unwrap().0, status);
        assert_eq!(bench.network.disk()[7 * 512], byte, "{fault:?}");
    }
}

#[test]
fn a_read_that_is_given_up_leaves_its_slot_taken() {
    let mut bench = Bench::up(7, &[port(0)], false);
    let room = bench.hosts[0].room();
    bench.strike(0, Fault::Io(IoFault::Silent));
    let slot = bench.hosts[0].read(0, 4096);
    bench.for_a(Duration::from_secs(1));
    assert!(bench.hosts[0].ended.is_empty());
    bench.hosts[0].abandon(slot);
    bench.for_a(Duration::from_secs(30));
    let (ended, outcome, data) = bench.hosts[0].ended.pop().unwrap();
    assert_eq!((ended, outcome), (slot, Outcome::Lost { was_sent: true }));
    assert_eq!(data.unwrap(), [0xEE; 4096]);
    assert_eq!(bench.hosts[0].room(), room - 1);
    assert!(bench.hosts[0].failures.is_empty());
}

#[test]
fn a_connect_that_is_refused_is_tried_again() {
    let mut bench = Bench::new(8, &[port(0)], false);
    let busy = Status::CONNECT_CONTROLLER_BUSY;
    bench.strike(0, Fault::RefuseConnect(busy));
    bench.until(Duration::from_secs(1), |bench| bench.hosts[0].is_running());
    assert_eq!(bench.hosts[0].failures.len(), 1);
    assert!(bench.hosts[0].failures[0].contains("refused to connect"));
}

/// With digests on, no garbled stream is ever believed: data are right, or there are none.
#[test]
fn garbled_bytes_end_a_command_or_the_connection() {
    let data: Vec<u8> = (0..12_288u32).map(|at| (at % 249) as u8).collect();
    let (mut answers, mut failures) = (0, 0);
    for seed in 0..150 {
        let mut bench = Bench::up(seed, &[port(0)], true);
        bench.written(0, 4, &data);
        let direction = [Direction::Up, Direction::Down][seed as usize % 2];
        let how = [Garble::Flip, Garble::Cut, Garble::Twice][seed as usize / 2 % 3];
        bench.hosts[0].read(4, data.len());
        // Before its capsule leaves, or before its data do.
        if direction == Direction::Down {
            bench.strike(0, Fault::Garble(direction, how));
        }
        bench.until(Duration::from_secs(40), |bench| {
            !bench.hosts[0].ended.is_empty()
        });
        match answer(&mut bench.hosts[0]) {
            Some((Status::SUCCESS, read)) => assert_eq!(read, data),
            Some((status, _)) => assert_eq!(status, Status::TRANSIENT_TRANSPORT_ERROR),
            None => {}
        }
        bench.until(Duration::from_secs(5), |bench| bench.hosts[0].is_running());
        if direction == Direction::Up {
            bench.strike(0, Fault::Garble(direction, how));
            bench.hosts[0].write(4, &data);
            bench.until(Duration::from_secs(40), |bench| {
                !bench.hosts[0].ended.is_empty()
            });
            answer(&mut bench.hosts[0]);
        }
        bench.until(Duration::from_secs(5), |bench| bench.hosts[0].is_running());
        answers += 1;
        failures += bench.hosts[0].failures.len();
        assert_eq!(bench.network.disk()[4 * 512..][..data.len()], data);
    }
    assert!(failures > answers / 2, "{failures} of {answers}");
}

/// A ghost: a write that its host lost, applied later. None after the moment that the path names, and some before, or there were nothing to fear.
#[test]
fn a_lost_write_is_applied_late_but_never_after_its_controller_is_known_dead() {
    const SEEDS: u64 = 180;
    let (mut late, mut latest) = (0, Duration::ZERO);
    for seed in 0..SEEDS {
        // The controller counts whole seconds: two are two, and one and a half are two.
        let keep_alive = [KEEP_ALIVE, KEEP_ALIVE * 3 / 4][seed as usize / 3 % 2];
        let ports = [port(0), port(1)];
        let mut bench = Bench::with_keep_alive(seed, &ports, false, keep_alive).running();
        // Held in the network, lying with the target, or first this and then that.
        let in_network = seed % 3 != 0;
        if in_network {
            bench.cut(0, Way::Held);
        }
        if seed % 3 != 1 {
            bench.strike(0, Fault::Io(IoFault::Silent));
        }
        bench.hosts[0].write(9, &[0x01; 512]);
        bench.for_a(Duration::from_millis(5));
        if !in_network {
            bench.cut(0, Way::Lost);
        }
        let now = bench.clock.now();
        bench.hosts[0].lose(now, "the host had enough".into());
        let dead_at = bench.hosts[0].dead_at.unwrap();
        assert_eq!(
            bench.hosts[0].ended.pop().map(|(_, outcome, _)| outcome),
            Some(Outcome::Lost { was_sent: true })
        );
        bench.written(1, 9, &[0x02; 512]);
        if in_network {
            bench.for_a(HELD_MAX * 9 / 10);
            bench.cut(0, Way::Open);
        }
        let is_ghost = |bench: &mut Bench| bench.network.disk()[9 * 512] == 0x01;
        while bench.clock.now() < dead_at {
            if is_ghost(&mut bench) {
                late += 1;
                latest = latest.max(bench.clock.now().since(now));
                break;
            }
            bench.turn();
        }
        while bench.clock.now() < dead_at {
            bench.turn();
        }
        bench.written(1, 9, &[0x03; 512]);
        bench.for_a(KEEP_ALIVE + QUIESCE + MARGIN);
        assert_eq!(bench.network.disk()[9 * 512], 0x03, "seed {seed}");
        assert_eq!(bench.network.late_writes(), 0);
    }
    assert!(late > SEEDS / 4 && late < SEEDS, "{late} of {SEEDS}");
    assert!(
        latest > KEEP_ALIVE + QUIESCE + HELD_MAX / 2,
        "{latest:?} at the latest"
    );
}

/// What is not sent, or held back too long, is never applied.
#[test]
fn what_the_network_lost_stays_lost() {
    for (way, heals_after) in [(Way::Lost, HELD_MAX / 4), (Way::Held, HELD_MAX * 2)] {
        let mut bench = Bench::up(11, &[port(0)], false);
        bench.cut(0, way);
        bench.hosts[0].write(9, &[0x01; 512]);
        bench.for_a(Duration::from_millis(5));
        let now = bench.clock.now();
        bench.hosts[0].lose(now, "the host had enough".into());
        bench.for_a(heals_after);
        bench.cut(0, Way::Open);
        bench.for_a(KEEP_ALIVE + QUIESCE + MARGIN);
        assert_eq!(bench.network.disk()[9 * 512], 0);
        assert_eq!(bench.network.counts().late_bytes, 0);
    }
}
