//! Controllers as a host meets them. Entries and results are read and written by the specification's byte offsets.

#![expect(
    clippy::cast_possible_truncation,
    reason = "numbers of test data, all small"
)]

mod connect;
mod events;
mod features;
mod fused;
mod identify;
mod io;
mod io_ranges;
mod log_pages;
mod places;
mod properties;
mod reservations;

use super::*;
use crate::Time;
use crate::nqn::Nqn;
use crate::queue::{Completion, QueueId, Slot, Transfer};
use nvme_spec::{Nsid, Sqe, Status};
use std::sync::Arc;
use std::time::Duration;
use zerocopy::FromBytes;

pub const SUBSYSTEM: &str = "nqn.2026-01.io.example:data";
pub const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555";
pub const DISCOVERY: &str = "nqn.2014-08.org.nvmexpress.discovery";
pub const HOST_ID: [u8; 16] = [0xAB; 16];

pub fn subsystem() -> Subsystem {
    Subsystem {
        nqn: Nqn::parse(SUBSYSTEM).unwrap(),
        serial: "SN0001".into(),
        model: "snap-target".into(),
        firmware: "1.2.3".into(),
        hosts: HostPolicy::Any,
        limits: ControllerLimits {
            io_queues_max: 4,
            queue_entries_max: 64,
            ..ControllerLimits::default()
        },
    }
}

/// NSID 1: 4096-byte blocks, protected. NSID 3: 512-byte blocks, writable.
pub fn namespaces() -> NamespaceSet {
    let protected = NamespaceInfo {
        nsid: Nsid(1),
        handle: 0,
        visibility: Visibility::All,
        block_count: 1000,
        lba_bytes: 4096,
        uuid: [0x11; 16],
        nguid: [0x22; 16],
        eui64: None,
        write_protected: true,
        protection: Protection::None,
        keeps_reservations: false,
        optimal_boundary_blocks: 16,
        optimal_blocks: 16,
        deallocated_reads_zeros: false,
        atomic_blocks: 0,
    };
    let writable = NamespaceInfo {
        nsid: Nsid(3),
        handle: 0,
        visibility: Visibility::All,
        block_count: 1 << 40,
        lba_bytes: 512,
        uuid: [0x33; 16],
        nguid: [0; 16],
        eui64: Some([0x44; 8]),
        write_protected: false,
        protection: Protection::None,
        keeps_reservations: true,
        optimal_boundary_blocks: 0,
        optimal_blocks: 0,
        deallocated_reads_zeros: true,
        atomic_blocks: 8,
    };
    NamespaceSet::new(7, [protected, writable]).unwrap()
}

pub fn listener(address: &str, port_id: u16) -> Listener {
    Listener {
        transport: Transport::Tcp,
        address: address.parse().unwrap(),
        port_id,
    }
}

pub fn local() -> ConnectContext {
    ConnectContext::tcp("192.0.2.9:4420".parse().unwrap())
}

/// A target with one host's association.
pub struct Host {
    pub registry: Registry,
    pub id: ControllerId,
    pub now: Time,
    pub next_slot: u16,
}

impl Host {
    /// Connected to `subnqn`, not yet enabled.
    pub fn connected(subnqn: &str) -> Host {
        let listeners = [
            listener("0.0.0.0:4420", 1),
            listener("[2001:db8::1]:4421", 2),
        ];
        let target = Target::new([subsystem()], listeners).unwrap();
        let mut registry = Registry::new(target);
        assert!(registry.set_namespaces(&Nqn::parse(SUBSYSTEM).unwrap(), &Arc::new(namespaces())));
        let now = Time::ZERO + Duration::from_secs(100);
        let (sqe, data) = connect_command(0, 31, 0xFFFF, subnqn);
        let id = registry
            .connect(&sqe, &data, &local(), now)
            .unwrap()
            .controller;
        Host {
            registry,
            id,
            now,
            next_slot: 0,
        }
    }

    /// Connected and enabled.
    pub fn enabled(subnqn: &str) -> Host {
        let mut host = Host::connected(subnqn);
        assert_eq!(
            host.set_cc(0x0046_0001),
            Outcome::Done {
                completion: Completion::SUCCESS,
                data_bytes: 0,
                effect: Effect::None
            }
        );
        host
    }

    pub fn io() -> Host {
        Host::enabled(SUBSYSTEM)
    }

    pub fn controller(&mut self) -> &mut Controller {
        self.registry.controller_mut(self.id).unwrap()
    }

    pub fn set_cc(&mut self, cc: u32) -> Outcome {
        let mut sqe = fabrics(0x00, 0x14);
        sqe[48..52].copy_from_slice(&cc.to_le_bytes());
        self.run(&sqe, &[], &mut [])
    }

    pub fn csts(&mut self) -> u32 {
        match self.run(&fabrics(0x04, 0x1C), &[], &mut []) {
            Outcome::Done { completion, .. } => completion.dw0,
            other => panic!("{other:?}"),
        }
    }

    /// Runs a command in a slot of its own.
    pub fn run(&mut self, sqe: &[u8; 64], data: &[u8], out: &mut [u8]) -> Outcome {
        let sqe = Sqe::read_from_bytes(sqe).unwrap();
        let slot = Slot(self.next_slot);
        self.next_slot += 1;
        let bytes = u32::try_from(data.len().max(out.len())).unwrap();
        let transfer = if bytes == 0 {
            Transfer::None
        } else {
            Transfer::Remote { bytes }
        };
        let now = self.now;
        let command = AdminCommand {
            sqe: &sqe,
            slot,
            transfer,
            data,
        };
        self.registry.execute(self.id, &command, out, now).unwrap()
    }

    /// Runs a command without data: DW0, or the status.
    pub fn plain(&mut self, sqe: &[u8; 64]) -> Result<u32, Status> {
        self.with_data(sqe, &[])
    }

    /// Runs a command with data to the controller: DW0, or the status.
    pub fn with_data(&mut self, sqe: &[u8; 64], data: &[u8]) -> Result<u32, Status> {
        match self.run(sqe, data, &mut []) {
            Outcome::Done {
                completion,
                data_bytes: 0,
                effect: Effect::None,
            } => result(completion),
            // The frontend's to answer.
            Outcome::OfNamespace(_) => Ok(0),
            other => panic!("{other:?}"),
        }
    }

    /// Runs a command with `bytes` of data to the host: what came, or the status. The buffer was dirty before.
    pub fn fetch(&mut self, sqe: &[u8; 64], bytes: usize) -> Result<Vec<u8>, Status> {
        let mut out = vec![0xEE; bytes];
        match self.run(sqe, &[], &mut out) {
            Outcome::Done {
                completion,
                data_bytes,
                effect: Effect::None,
            } => {
                result(completion)?;
                out.truncate(data_bytes as usize);
                Ok(out)
            }
            Outcome::OfNamespace(_) => Ok(Vec::new()),
            other => panic!("{other:?}"),
        }
    }
}

fn result(completion: Completion) -> Result<u32, Status> {
    if completion.status == Status::SUCCESS {
        Ok(completion.dw0)
    } else {
        Err(completion.status)
    }
}

/// A command: opcode, NSID, CDW10 and CDW11.
pub fn command(opcode: u8, nsid: u32, cdw10: u32, cdw11: u32) -> [u8; 64] {
    let mut sqe = [0; 64];
    sqe[0] = opcode;
    sqe[1] = 0x40;
    sqe[4..8].copy_from_slice(&nsid.to_le_bytes());
    sqe[40..44].copy_from_slice(&cdw10.to_le_bytes());
    sqe[44..48].copy_from_slice(&cdw11.to_le_bytes());
    sqe
}

/// A property command: FCTYPE and offset; 4 bytes, but 8 for CAP.
pub fn fabrics(fctype: u8, offset: u32) -> [u8; 64] {
    let mut sqe = [0; 64];
    sqe[0] = 0x7F;
    sqe[1] = 0x40;
    sqe[4] = fctype;
    sqe[40] = u8::from(offset == 0);
    sqe[44..48].copy_from_slice(&offset.to_le_bytes());
    sqe
}

/// Connect: the entry and its 1024 bytes.
pub fn connect_command(qid: u16, sqsize_z: u16, cntlid: u16, subnqn: &str) -> (Sqe, Vec<u8>) {
    let mut sqe = [0; 64];
    sqe[0] = 0x7F;
    sqe[1] = 0x40;
    sqe[4] = 0x01;
    sqe[42..44].copy_from_slice(&qid.to_le_bytes());
    sqe[44..46].copy_from_slice(&sqsize_z.to_le_bytes());
    sqe[48..52].copy_from_slice(&5000u32.to_le_bytes());
    let mut data = vec![0; 1024];
    data[..16].copy_from_slice(&HOST_ID);
    data[16..18].copy_from_slice(&cntlid.to_le_bytes());
    data[256..256 + subnqn.len()].copy_from_slice(subnqn.as_bytes());
    data[512..512 + HOST.len()].copy_from_slice(HOST.as_bytes());
    (Sqe::read_from_bytes(&sqe).unwrap(), data)
}

pub fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap())
}

pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

pub const INVALID_FIELD: Status = Status::INVALID_FIELD.dnr();
pub const INVALID_NAMESPACE: Status = Status::INVALID_NAMESPACE.dnr();

/// Base, "Admin Command Set": opcodes that are not there, on both kinds of controller.
#[test]
fn unknown_opcodes_are_refused() {
    for (subnqn, known) in [
        (
            SUBSYSTEM,
            &[0x02, 0x06, 0x08, 0x09, 0x0A, 0x0C, 0x18, 0x7F][..],
        ),
        (DISCOVERY, &[0x02, 0x06, 0x09, 0x0A, 0x0C, 0x18, 0x7F]),
    ] {
        let mut host = Host::enabled(subnqn);
        for opcode in (0..=255).filter(|opcode| !known.contains(opcode)) {
            assert_eq!(
                host.plain(&command(opcode, 0, 0, 0)),
                Err(Status::INVALID_OPCODE.dnr()),
                "{opcode:#x}"
            );
        }
        // Fabrics commands by FCTYPE; Connect is over.
        for fctype in (0..=255).filter(|fctype| ![0x00, 0x01, 0x04].contains(fctype)) {
            assert_eq!(
                host.plain(&fabrics(fctype, 0)),
                Err(Status::INVALID_OPCODE.dnr())
            );
        }
        assert_eq!(
            host.plain(&fabrics(0x01, 0)),
            Err(Status::COMMAND_SEQUENCE_ERROR.dnr())
        );
        // FUSE: nothing can be fused.
        for fuse in 1..=3 {
            let mut fused = command(0x18, 0, 0, 0);
            fused[1] |= fuse;
            assert_eq!(host.plain(&fused), Err(INVALID_FIELD));
        }
        assert_eq!(host.plain(&command(0x18, 0, 0, 0)), Ok(0));
    }
}

/// Base, "Controller Initialization": nothing but fabrics commands before CSTS.RDY.
#[test]
fn commands_before_enable_are_a_sequence_error() {
    let mut host = Host::connected(SUBSYSTEM);
    for opcode in [0x02, 0x06, 0x08, 0x09, 0x0A, 0x0C, 0x18] {
        assert_eq!(
            host.plain(&command(opcode, 0, 0, 0)),
            Err(Status::COMMAND_SEQUENCE_ERROR.dnr())
        );
    }
    host.set_cc(0x0046_0001);
    assert_eq!(host.plain(&command(0x18, 0, 0, 0)), Ok(0));
}

/// The buffer of a command is bounded before it is taken.
#[test]
fn buffers_are_bounded_whatever_the_descriptor_says() {
    let sqe = |opcode| Sqe::read_from_bytes(&command(opcode, 0, 0, 0)).unwrap();
    let remote = |bytes| Transfer::Remote { bytes };
    let limit = 1 << 17;
    assert_eq!(buffer_bytes(&sqe(0x02), remote(limit), limit), Ok(limit));
    assert_eq!(
        buffer_bytes(&sqe(0x02), remote(limit + 1), limit),
        Err(INVALID_FIELD)
    );
    assert_eq!(buffer_bytes(&sqe(0x09), remote(4096), limit), Ok(4096));
    assert_eq!(
        buffer_bytes(&sqe(0x09), remote(u32::MAX), limit),
        Err(INVALID_FIELD)
    );
    assert_eq!(
        buffer_bytes(&sqe(0x09), Transfer::InCapsule { bytes: 512 }, limit),
        Ok(512)
    );
    assert_eq!(buffer_bytes(&sqe(0x0C), Transfer::None, limit), Ok(0));
    let refused = Status::SGL_TYPE_INVALID.dnr();
    assert_eq!(
        buffer_bytes(&sqe(0x06), Transfer::Refused(refused), limit),
        Err(refused)
    );
}

/// A descriptor that the transport refused fails the command, whatever it is.
#[test]
fn refused_descriptors_fail_the_command() {
    let mut host = Host::io();
    let refused = Status::SGL_TYPE_INVALID.dnr();
    let sqe = Sqe::read_from_bytes(&command(0x06, 0, 1, 0)).unwrap();
    let now = host.now;
    let command = AdminCommand {
        sqe: &sqe,
        slot: Slot(0),
        transfer: Transfer::Refused(refused),
        data: &[],
    };
    let outcome = host.controller().execute(&command, &mut [], now);
    let completion = Completion::of(refused);
    assert_eq!(
        outcome,
        Outcome::Done {
            completion,
            data_bytes: 0,
            effect: Effect::None
        }
    );
}

/// Configurations that cannot be served are refused by name.
#[test]
fn impossible_configurations_are_refused() {
    let with = |change: fn(&mut Subsystem)| {
        let mut subsystem = subsystem();
        change(&mut subsystem);
        Target::new([subsystem], []).unwrap_err()
    };
    assert!(matches!(
        with(|s| s.serial = "x".repeat(21)),
        ConfigError::Text {
            field: "serial",
            bytes_max: 20,
            ..
        }
    ));
    assert!(matches!(
        with(|s| s.model = "a\tb".into()),
        ConfigError::Text { field: "model", .. }
    ));
    assert!(matches!(
        with(|s| s.firmware = String::new()),
        ConfigError::Text {
            field: "firmware",
            ..
        }
    ));
    assert_eq!(
        with(|s| s.nqn = Nqn::discovery()),
        ConfigError::DiscoveryName
    );
    let nqn = Nqn::parse(SUBSYSTEM).unwrap();
    assert_eq!(
        Target::new([subsystem(), subsystem()], []),
        Err(ConfigError::DuplicateSubsystem { nqn })
    );
    let changes: [fn(&mut ControllerLimits); 13] = [
        |l| l.controllers_max = 0,
        |l| l.controllers_max = 0xFFF0,
        |l| l.controllers_per_host_max = 0,
        |l| l.io_queues_max = 0,
        |l| l.io_queues_max = 0xFFFF,
        |l| l.queue_entries_max = 1,
        |l| l.transfer_bytes_max = 4096,
        |l| l.transfer_bytes_max = 12288,
        |l| l.capsule_data_bytes = 8200,
        |l| l.async_events_max = 0,
        |l| l.async_events_max = 64,
        |l| l.aborts_max = 0,
        |l| l.error_log_entries = 0,
    ];
    for change in changes {
        let mut subsystem = subsystem();
        change(&mut subsystem.limits);
        assert!(matches!(
            Target::new([subsystem], []),
            Err(ConfigError::Limits(_))
        ));
    }
    let info = namespaces().get(Nsid(1)).unwrap().clone();
    let set = |change: fn(&mut NamespaceInfo)| {
        let mut info = info.clone();
        change(&mut info);
        NamespaceSet::new(1, [info]).unwrap_err()
    };
    assert_eq!(
        set(|n| n.nsid = Nsid(0)),
        ConfigError::NsidOutOfRange { nsid: Nsid(0) }
    );
    assert_eq!(
        set(|n| n.nsid = Nsid(1025)),
        ConfigError::NsidOutOfRange { nsid: Nsid(1025) }
    );
    assert_eq!(
        set(|n| n.lba_bytes = 256),
        ConfigError::LbaBytes {
            nsid: Nsid(1),
            lba_bytes: 256
        }
    );
    assert_eq!(
        set(|n| n.lba_bytes = 520),
        ConfigError::LbaBytes {
            nsid: Nsid(1),
            lba_bytes: 520
        }
    );
    assert_eq!(
        set(|n| n.block_count = 0),
        ConfigError::BlockCount {
            nsid: Nsid(1),
            block_count: 0
        }
    );
    assert!(matches!(
        set(|n| n.block_count = 1 << 52),
        ConfigError::BlockCount { .. }
    ));
    assert_eq!(
        NamespaceSet::new(1, [info.clone(), info]),
        Err(ConfigError::DuplicateNsid { nsid: Nsid(1) })
    );
}

/// Queue identifiers that tests name.
pub fn queue(id: u16) -> QueueId {
    QueueId(id)
}
