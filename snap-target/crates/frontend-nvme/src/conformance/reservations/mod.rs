//! Reservations through the frontend: two hosts, two reactors, one namespace.

pub(super) mod commands;
pub(super) mod fused;
pub(super) mod notifications;
pub(super) mod persistence;
pub(super) mod preempt_and_abort;
pub(super) mod protection;
pub(super) mod rights;

use std::time::Duration;

use super::{On, Queue, Response, Target, disk, host_id, memory};

/// A host.
pub const A: &str = "nqn.2026-11.io.example:a";
/// Another.
pub const B: &str = "nqn.2026-11.io.example:b";
/// Its key.
pub const KEY_A: u64 = 0xA1A2_A3A4_A5A6_A7A8;
/// Its key.
pub const KEY_B: u64 = 0xB1B2_B3B4_B5B6_B7B8;

/// Statuses as a response has them.
pub const SUCCESS: u16 = 0;
const INVALID_FIELD: u16 = 0x4002;
/// Command ID Conflict, Do Not Retry.
pub const COMMAND_ID_CONFLICT: u16 = 0x4003;
const INTERNAL_ERROR: u16 = 0x06;
/// Command Aborted due to Preempt and Abort, Do Not Retry.
pub const PREEMPTED: u16 = 0x401B;
/// Reservation Conflict, Do Not Retry.
pub const CONFLICT: u16 = 0x4083;
/// Namespace is Write Protected, Do Not Retry.
pub const WRITE_PROTECTED: u16 = 0x4020;
const FEATURE_NOT_CHANGEABLE: u16 = 0x410E;

const REGISTER: u8 = 0x0D;
const REPORT: u8 = 0x0E;
const ACQUIRE: u8 = 0x11;
const RELEASE: u8 = 0x15;
const ACQUIRE_ONLY: u32 = 0;
const PREEMPT: u32 = 1;
/// RACQA of Acquire.
pub const PREEMPT_AND_ABORT: u32 = 2;

/// HOSTID, key, whether it holds the reservation.
pub type Registered = ([u8; 16], u64, bool);

/// A host: an admin queue, and I/O queues 1 and 2, each at another reactor.
pub struct Host {
    /// NQN.
    pub name: &'static str,
    /// Its key.
    pub key: u64,
    /// Its admin queue.
    pub admin: Queue,
    /// CNTLID.
    pub cntlid: u16,
    /// I/O queue 1.
    pub first: Queue,
    /// I/O queue 2.
    pub second: Queue,
}

impl Host {
    /// Connects it.
    #[must_use]
    pub fn connect(target: &Target, name: &'static str, key: u64) -> Host {
        let (admin, cntlid) = Queue::admin(&target.place, name, Duration::ZERO);
        Host {
            name,
            key,
            admin,
            cntlid,
            first: Queue::io(&target.place, name, cntlid, 1),
            second: Queue::io(&target.place, name, cntlid, 2),
        }
    }

    /// RREGA 0, with CPTPL.
    pub fn register(&mut self, cptpl: u32) -> u16 {
        let data = keys(0, self.key);
        self.first
            .bring(REGISTER, 1, [cptpl << 30, 0, 0], &data)
            .status
    }

    /// Gives its registration up.
    pub fn unregister(&mut self) -> u16 {
        let data = keys(self.key, 0);
        self.first.bring(REGISTER, 1, [1, 0, 0], &data).status
    }

    /// Takes a reservation.
    pub fn acquire(&mut self, rtype: u32) -> u16 {
        let data = keys(self.key, 0);
        let cdw10 = rtype << 8 | ACQUIRE_ONLY;
        self.second.bring(ACQUIRE, 1, [cdw10, 0, 0], &data).status
    }

    /// Preempts a key.
    pub fn preempt(&mut self, action: u32, rtype: u32, key: u64) -> u16 {
        let cid = self.send_preempt(action, rtype, key);
        let answer = self.second.response();
        assert_eq!(answer.cid, cid);
        answer.status
    }

    /// The same, not waited for.
    pub fn send_preempt(&mut self, action: u32, rtype: u32, key: u64) -> u16 {
        let data = keys(self.key, key);
        let cdw10 = rtype << 8 | action;
        self.second.send_bring(ACQUIRE, 1, [cdw10, 0, 0], &data)
    }

    /// Gives its reservation up.
    pub fn release(&mut self, rtype: u32) -> u16 {
        let data = self.key.to_le_bytes();
        self.first
            .bring(RELEASE, 1, [rtype << 8, 0, 0], &data)
            .status
    }

    /// Clears everybody's.
    pub fn clear(&mut self) -> u16 {
        let data = self.key.to_le_bytes();
        self.first.bring(RELEASE, 1, [1, 0, 0], &data).status
    }

    /// RTYPE, PTPLS, and each registrant.
    pub fn report(&mut self) -> (u8, u8, Vec<Registered>) {
        let report = self
            .second
            .fetch(REPORT, 1, [4096 / 4 - 1, 1, 0], 4096)
            .unwrap();
        let registrants = report[64..].chunks_exact(64).take(report[5].into());
        let registrants = registrants.map(|entry| {
            let key = u64::from_le_bytes(entry[8..16].try_into().unwrap());
            assert_eq!(entry[..2], [0xFF, 0xFF], "dynamic controllers");
            (entry[16..32].try_into().unwrap(), key, entry[2] == 1)
        });
        (report[4], report[9], registrants.collect())
    }

    /// The end of a write of one block on each queue.
    pub fn write(&mut self, lba: u64) -> [u16; 2] {
        [&mut self.first, &mut self.second].map(|queue| write_in_capsule(queue, lba).status)
    }

    /// The end of a read of one block on each queue.
    pub fn read(&mut self) -> [u16; 2] {
        let cdw = [0, 0, 0];
        [&mut self.first, &mut self.second].map(|queue| match queue.fetch(0x02, 1, cdw, 4096) {
            Ok(block) => {
                assert_eq!(block.len(), 4096);
                SUCCESS
            }
            Err(status) => status,
        })
    }

    /// HOSTID.
    #[must_use]
    pub fn id(&self) -> [u8; 16] {
        host_id(self.name)
    }
}

/// The data of Register and Acquire.
#[must_use]
pub fn keys(first: u64, second: u64) -> Vec<u8> {
    [first.to_le_bytes(), second.to_le_bytes()].concat()
}

/// A write of one block, its data in the capsule.
pub fn write_in_capsule(queue: &mut Queue, lba: u64) -> Response {
    let cdw = [u32::try_from(lba).unwrap(), 0, 0];
    queue.bring(0x01, 1, cdw, &[0x55; 4096])
}

/// A target of two reactors, and two hosts.
#[must_use]
pub fn two_hosts(on: &On) -> (Target, Host, Host) {
    let target = Target::start_many(on, disk(memory()), 2);
    let (a, b) = connect_both(&target);
    (target, a, b)
}

/// Two hosts of a target.
#[must_use]
pub fn connect_both(target: &Target) -> (Host, Host) {
    let a = Host::connect(target, A, KEY_A);
    let b = Host::connect(target, B, KEY_B);
    (a, b)
}
