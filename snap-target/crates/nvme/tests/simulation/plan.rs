//! What a seed chooses: sizes, digests, limits of both ends, the network's shape, and faults.

use std::time::Duration;

use nvme::tcp::target::{SuccessFlag, TargetLimits};

use nvme::simulation::link::LinkShape;
use nvme::simulation::random::Random;

/// Hosts; clients are theirs in turn.
pub const HOSTS: usize = 2;

/// One run of the simulation.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Associations with one namespace: of the first host, of the second, of the first again.
    pub clients: usize,
    /// I/O commands to complete, all clients together.
    pub commands: u32,
    /// One command in so many may have blocks that others work on.
    pub overlaps_once_in: u64,
    /// Hosts reserve the namespace.
    pub reserves: bool,
    /// One turn in so many with commands under way, a host aborts one.
    pub aborts_once_in: Option<u64>,
    /// Asynchronous Event Requests of each client.
    pub events: usize,
    /// A turn in so many has a client read what events told of.
    pub reads_once_in: u64,
    /// Of so many I/O commands one is followed by a change of the namespace.
    pub changes_once_in: Option<u64>,
    pub disk_blocks: usize,
    pub lba_bytes: u32,
    pub transfer_bytes_max: u32,
    pub queues: u16,
    pub depth: u16,
    pub keep_alive: Duration,
    /// The host does nothing for so long after it has attached.
    pub idle: Duration,
    pub header_digest: bool,
    pub data_digest: bool,
    pub limits: TargetLimits,
    pub shape: LinkShape,
    pub store_latency_max: Duration,
    /// Writes outlive their connection by up to so much: longer than the host takes to come back, and than its keep alive.
    pub late_max: Duration,
    /// What befalls each client; the last one strikes first.
    pub faults: Vec<Vec<Fault>>,
}

/// Something that goes wrong once.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    pub kind: FaultKind,
    pub when: When,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug)]
pub enum FaultKind {
    /// All connections are reset, what was on its way is lost.
    Reset,
    /// The network swallows everything, and neither end is told.
    Blackout,
    /// The host resets the controller (CC.EN=0), with commands under way, and goes on with new I/O queues.
    ControllerReset,
}

/// When a fault strikes.
#[derive(Clone, Copy, Debug)]
pub enum When {
    /// After so many I/O commands were submitted since the fault before.
    Commands(u32),
    /// So long after the association was begun: in the middle of attaching, most often.
    Begun(Duration),
}

impl Plan {
    /// The plan of a seed.
    pub fn of(seed: u64) -> Plan {
        let mut random = Random::new(seed);
        let shape = LinkShape {
            piece_bytes_max: random.of(&[1, 3, 30, 1000, 10_000, 100_000]),
            delay_max: Duration::from_micros(random.of(&[1, 100, 10_000])),
        };
        // Many small pieces cost time; fewer and smaller commands have as many seams.
        let coarse = shape.piece_bytes_max > 100;
        let clients = if coarse {
            random.of(&[1, 2, 2, 3, 4])
        } else {
            random.of(&[1, 1, 2])
        };
        Plan {
            clients,
            commands: if coarse { 120 } else { 40 },
            overlaps_once_in: random.of(&[2, 6, 20]),
            reserves: random.once_in(2),
            aborts_once_in: random.of(&[None, Some(5), Some(40)]),
            events: random.of(&[0, 1, 2]),
            reads_once_in: random.of(&[1, 8, 300]),
            changes_once_in: random.of(&[None, Some(20)]),
            disk_blocks: 96,
            lba_bytes: if coarse { random.of(&[512, 4096]) } else { 512 },
            transfer_bytes_max: if coarse {
                random.of(&[8192, 16 << 10, 64 << 10])
            } else {
                8192
            },
            queues: u16::try_from(random.within(1..4)).unwrap(),
            depth: random.of(&[1, 2, 7, 31]),
            keep_alive: Duration::from_secs(2),
            idle: Duration::ZERO,
            header_digest: random.once_in(2),
            data_digest: random.once_in(2),
            limits: limits(&mut random),
            shape,
            store_latency_max: Duration::from_micros(random.of(&[0, 50, 5_000])),
            faults: (0..clients).map(|_| faults(&mut random, clients)).collect(),
            late_max: Duration::from_millis(random.of(&[0, 50, 300, 5_000])),
        }
    }
}

fn limits(random: &mut Random) -> TargetLimits {
    let dwords = |random: &mut Random, most: u64| {
        u32::try_from(random.within(1024..most / 4 + 1)).unwrap() * 4
    };
    TargetLimits {
        queue_entries_max: 32,
        capsule_data_bytes: random.of(&[0, 4096, 8192, 16 << 10]),
        h2c_data_bytes_max: dwords(random, 32 << 10),
        r2t_bytes_max: dwords(random, 64 << 10),
        c2h_data_bytes_max: dwords(random, 64 << 10),
        alignment_z: random.of(&[0, 1, 7, 31]),
        success_flag: random.of(&[
            SuccessFlag::Never,
            SuccessFlag::WithoutFlowControl,
            SuccessFlag::Always,
        ]),
        ..TargetLimits::default()
    }
}

/// As many for all clients together as for one alone.
fn faults(random: &mut Random, clients: usize) -> Vec<Fault> {
    (0..random.within(0..5) / clients as u64)
        .map(|_| Fault {
            kind: random.of(&[
                FaultKind::Reset,
                FaultKind::Reset,
                FaultKind::ControllerReset,
                FaultKind::ControllerReset,
                FaultKind::Blackout,
            ]),
            when: if random.once_in(2) {
                When::Begun(random.below(Duration::from_millis(50)))
            } else {
                When::Commands(u32::try_from(random.within(0..60)).unwrap())
            },
        })
        .collect()
}
