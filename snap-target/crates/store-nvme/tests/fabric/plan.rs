//! What a seed chooses: ports, the network's shape, the store's times, the work, and what goes wrong when.

use std::time::Duration;

use nvme::Time;
use nvme::controller::ControllerLimits;
use nvme::initiator::AnaState;
use nvme::nqn::Nqn;
use nvme::simulation::conduct::IoFault;
use nvme::simulation::link::LinkShape;
use nvme::simulation::random::Random;
use nvme::tcp::target::TargetLimits;
use nvme_spec::Status;
use store_nvme::{Policy, RemoteOptions};

use crate::network::{Fault, NetworkConfig, PortConfig, PortIndex};
use crate::wire::{Direction, Garble, Way};

/// What the model of the disk takes for a block: where the namespace's are longer, some operations are parts of blocks.
pub const UNIT_BYTES: u32 = 512;

/// One run of the simulation.
#[derive(Clone, Debug)]
pub struct Plan {
    pub network: NetworkConfig,
    pub ports: Vec<PortConfig>,
    pub options: RemoteOptions,
    pub handles: usize,
    /// Operations, all handles together.
    pub operations: u32,
    /// In flight on one handle.
    pub depth: usize,
    /// Between two operations of a handle, at the most.
    pub pause_max: Duration,
    /// One operation in so many may have bytes that others work on.
    pub overlaps_once_in: u64,
    /// One turn in so many with operations in flight, one is cancelled.
    pub cancels_once_in: Option<u64>,
    /// One turn in so many a reactor does something else for a while.
    pub stalls_once_in: Option<u64>,
    /// That takes so long at the most.
    pub stall_max: Duration,
    /// One operation in so many has less time than the store's own.
    pub hurried_once_in: Option<u64>,
    pub faults: Vec<(Time, PortIndex, Fault)>,
}

impl Plan {
    /// The plan of a seed.
    pub fn of(seed: u64) -> Plan {
        let mut random = Random::new(seed);
        let lba_bytes = random.of(&[512, 512, 4096]);
        let quiesce = Duration::from_millis(random.of(&[0, 500, 1500]));
        let held_max = Duration::from_millis(random.of(&[50, 700, 1200]));
        let digests = random.once_in(2);
        let mut ports: Vec<PortConfig> = (0..random.of(&[1, 2, 2, 2, 3]))
            .map(|index| port(index, quiesce, &mut random))
            .collect();
        let reports_ana = random.once_in(2);
        for port in &mut ports {
            port.ana =
                reports_ana.then(|| random.of(&[AnaState::Optimized, AnaState::NonOptimized]));
        }
        if random.once_in(4) {
            // Fewer than there are handles, and perhaps no further controllers.
            let per_host = random.of(&[1, 16]);
            for port in &mut ports {
                port.controllers.io_queues_max = random.of(&[1, 2]);
                port.controllers.controllers_per_host_max = per_host;
            }
        }
        let options = options(&mut random, digests, quiesce, held_max);
        let pause_max = Duration::from_millis(random.of(&[2, 20, 300]));
        let operations = 150;
        let handles = random.of(&[1, 2, 2, 3]);
        // As long as the work takes, and once more, since faults make it longer.
        let span = pause_max * operations / handles as u32;
        let mut faults = Vec::new();
        for _ in 0..random.within(0..7) {
            faults.extend(fault(&mut random, ports.len(), span, digests));
        }
        if random.once_in(3) {
            for port in 0..ports.len() {
                faults.extend(flapping(&mut random, port, span));
            }
        }
        Plan {
            network: NetworkConfig {
                seed,
                shape: LinkShape {
                    piece_bytes_max: random.of(&[100, 1000, 100_000]),
                    delay_max: Duration::from_micros(random.of(&[1, 100, 10_000])),
                },
                held_max,
                disk_blocks: 96 * UNIT_BYTES as usize / lba_bytes as usize,
                lba_bytes,
            },
            ports,
            options,
            handles,
            operations,
            depth: random.of(&[1, 4, 16]),
            pause_max,
            overlaps_once_in: random.of(&[1, 2, 10]),
            cancels_once_in: random.of(&[None, None, Some(30)]),
            stalls_once_in: random.of(&[None, None, Some(100), Some(1000)]),
            stall_max: Duration::from_millis(random.of(&[50, 200, 2000])),
            hurried_once_in: random.of(&[None, Some(3)]),
            faults,
        }
    }
}

/// A port of a healthy subsystem.
pub fn port(index: usize, quiesce: Duration, random: &mut Random) -> PortConfig {
    PortConfig {
        address: ([192, 0, 2, index as u8 + 1], 4420).into(),
        controllers: ControllerLimits {
            transfer_bytes_max: 8192,
            ..ControllerLimits::default()
        },
        limits: TargetLimits {
            transfer_bytes_max: 8192,
            capsule_data_bytes: random.of(&[0, 4096, 8192]),
            ..TargetLimits::default()
        },
        quiesce: Some(quiesce),
        ana: None,
        latency_max: Duration::from_micros(random.of(&[0, 200, 20_000])),
        admits_at_once: random.once_in(2),
    }
}

fn options(
    random: &mut Random,
    digests: bool,
    quiesce: Duration,
    held_max: Duration,
) -> RemoteOptions {
    let hostnqn = Nqn::parse("nqn.2026-11.test:host").unwrap();
    let keep_alive = Duration::from_millis(random.of(&[1000, 1500, 3000]));
    let command_timeout = Duration::from_millis(random.of(&[1000, 4000]));
    // Controllers count it in whole seconds.
    let counted = Duration::from_secs(keep_alive.as_millis().div_ceil(1000) as u64);
    let settled = command_timeout + counted + quiesce + held_max;
    RemoteOptions {
        depth: random.of(&[1, 3, 32]),
        header_digest: digests,
        data_digest: digests,
        keep_alive,
        quiesce_margin: held_max,
        connect_timeout: Duration::from_millis(random.of(&[300, 2000])),
        command_timeout,
        failover_after: Duration::from_millis(random.of(&[100, 800])),
        deadline: settled + Duration::from_millis(random.of(&[100, 100, 2000, 8000])),
        reconnect_delay_min: Duration::from_millis(random.of(&[10, 100])),
        reconnect_delay_max: Duration::from_millis(random.of(&[500, 3000])),
        policy: random.of(&[Policy::RoundRobin, Policy::QueueDepth]),
        ..RemoteOptions::new(hostnqn, [7; 16])
    }
}

/// Something that goes wrong, and mostly the moment in which it is right again.
fn fault(
    random: &mut Random,
    ports: usize,
    span: Duration,
    digests: bool,
) -> Vec<(Time, PortIndex, Fault)> {
    let port = random.within(0..ports as u64) as usize;
    let begins = Time::ZERO + Duration::from_millis(20) + random.below(span);
    let lasts = random.of(&[20, 500, 3000, 12_000]);
    let ends = begins + random.below(Duration::from_millis(lasts));
    let at = |when, fault| (when, port, fault);
    let way = random.of(&[Way::Held, Way::Lost]);
    let directions = random.of(&[
        [Direction::Up, Direction::Down],
        [Direction::Up, Direction::Down],
        [Direction::Up, Direction::Up],
        [Direction::Down, Direction::Down],
    ]);
    match random.within(0..10) {
        0..3 => {
            let cut = directions.map(|it| at(begins, Fault::Way(it, way)));
            let healed = directions.map(|it| at(ends, Fault::Way(it, Way::Open)));
            [cut, healed].concat()
        }
        3 => vec![at(begins, Fault::Reset)],
        4 => {
            let says = random.once_in(2);
            vec![at(begins, Fault::Kill { says }), at(ends, Fault::Start)]
        }
        5 if digests => {
            let how = random.of(&[Garble::Flip, Garble::Cut, Garble::Twice]);
            vec![at(begins, Fault::Garble(directions[0], how))]
        }
        5 | 6 => {
            let count = random.of(&[1, 1, 5, 30]);
            let fault = io_fault(random);
            (0..count).map(|_| at(begins, Fault::Io(fault))).collect()
        }
        7 => {
            let state = random.of(&[
                AnaState::Inaccessible,
                AnaState::Change,
                AnaState::PersistentLoss,
                AnaState::NonOptimized,
            ]);
            vec![
                at(begins, Fault::Ana(state)),
                at(ends, Fault::Ana(AnaState::Optimized)),
            ]
        }
        8 => {
            let status = random.of(&[
                Status::CONNECT_CONTROLLER_BUSY,
                Status::CONNECT_INVALID_HOST.dnr(),
            ]);
            let mut faults = vec![at(begins, Fault::Reset)];
            for _ in 0..random.of(&[1, 3, 10]) {
                faults.push(at(begins, Fault::RefuseConnect(status)));
            }
            faults
        }
        _ if random.once_in(3) => vec![at(begins, Fault::ChangeNamespaces)],
        _ => {
            let slow = Duration::from_millis(random.of(&[300, 2000, 20_000]));
            vec![
                at(begins, Fault::Latency(slow)),
                at(ends, Fault::Latency(Duration::from_micros(100))),
            ]
        }
    }
}

/// A way that comes and goes, so that commands wait for it for long and are sent late.
fn flapping(random: &mut Random, port: PortIndex, span: Duration) -> Vec<(Time, PortIndex, Fault)> {
    let mut faults = Vec::new();
    let mut at = Time::ZERO + Duration::from_millis(20) + random.below(span);
    for _ in 0..random.within(2..12) {
        let way = random.of(&[Way::Held, Way::Lost]);
        for (way, lasts) in [(way, random.of(&[500, 4000, 9000])), (Way::Open, 1500)] {
            for direction in [Direction::Up, Direction::Down] {
                faults.push((at, port, Fault::Way(direction, way)));
            }
            at = at + random.below(Duration::from_millis(lasts));
        }
    }
    faults
}

fn io_fault(random: &mut Random) -> IoFault {
    /// Path Related: Internal Path Error.
    const INTERNAL_PATH_ERROR: Status = Status::new(3, 0x00);
    let status = random.of(&[
        INTERNAL_PATH_ERROR,
        Status::ANA_TRANSITION,
        Status::ANA_INACCESSIBLE.dnr(),
        Status::NAMESPACE_NOT_READY.with_retry_delay(1),
        Status::COMMAND_INTERRUPTED,
        Status::TRANSIENT_TRANSPORT_ERROR,
        Status::INTERNAL_ERROR,
        Status::CAPACITY_EXCEEDED.dnr(),
    ]);
    // Says that nothing was done.
    let is_refusal = [
        Status::NAMESPACE_NOT_READY,
        Status::ANA_TRANSITION,
        Status::ANA_INACCESSIBLE,
    ]
    .contains(&status.code());
    match random.within(0..4) {
        0 => IoFault::Refuse(status),
        1 => IoFault::Fail(status),
        2 if is_refusal => IoFault::Refuse(status),
        2 => IoFault::FailDone(status),
        _ => IoFault::Silent,
    }
}
