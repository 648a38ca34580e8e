//! Every I/O command besides Read, Write and Flush against a reservation of another host (Base, "Command Behavior in the Presence of a Reservation";
//! NVM, the same).

use namespace::{Identity, Namespace};
use reactor::RingConfig;
use reactor::buf::PoolConfig;

use super::*;

const COMPARE: u8 = 0x05;
const WRITE_UNCORRECTABLE: u8 = 0x04;
const WRITE_ZEROES: u8 = 0x08;
const DATASET_MANAGEMENT: u8 = 0x09;
const VERIFY: u8 = 0x0C;
const COPY: u8 = 0x19;
const DEALLOCATE: u32 = 1 << 2;

/// One range of Dataset Management: a block.
fn range(lba: u64) -> Vec<u8> {
    let mut range = vec![0; 16];
    range[4] = 1;
    range[8..].copy_from_slice(&lba.to_le_bytes());
    range
}

/// One source of Copy, a block; `nsid` is for format 2h.
fn source(nsid: u32, lba: u64) -> Vec<u8> {
    let mut source = vec![0; 32];
    source[..4].copy_from_slice(&nsid.to_le_bytes());
    source[8..16].copy_from_slice(&lba.to_le_bytes());
    source
}

impl Host {
    /// How commands of the read group end, each by its name.
    fn read_group(&mut self) -> [(&'static str, u16); 2] {
        let queue = &mut self.first;
        [
            (
                "Compare",
                queue.bring(COMPARE, 1, [3, 0, 0], &[0; 4096]).status,
            ),
            ("Verify", queue.plain(VERIFY, 1, [3, 0, 0]).status),
        ]
    }

    /// How commands of the write group end.
    fn write_group(&mut self) -> [(&'static str, u16); 5] {
        let queue = &mut self.second;
        let mut dataset = |attributes| {
            let cdw = [0, attributes, 0];
            queue.bring(DATASET_MANAGEMENT, 1, cdw, &range(4)).status
        };
        let (deallocate, hint) = (dataset(DEALLOCATE), dataset(0));
        [
            ("Dataset Management", deallocate),
            ("Dataset Management, a hint", hint),
            (
                "Write Zeroes",
                queue.plain(WRITE_ZEROES, 1, [3, 0, 0]).status,
            ),
            (
                "Write Uncorrectable",
                queue.plain(WRITE_UNCORRECTABLE, 1, [200, 0, 0]).status,
            ),
            (
                "Copy",
                queue.bring(COPY, 1, [100, 0, 0], &source(0, 3)).status,
            ),
        ]
    }
}

pub(in crate::conformance) fn every_command_keeps_to_every_type(on: &On) {
    let (_target, mut a, mut b) = two_hosts(on);
    assert_eq!((a.register(0), b.register(0)), (SUCCESS, SUCCESS));
    // Type, and for a registrant and for another host: the read group, the write group.
    for (rtype, registrant, other) in [
        (1, (SUCCESS, CONFLICT), (SUCCESS, CONFLICT)),
        (2, (CONFLICT, CONFLICT), (CONFLICT, CONFLICT)),
        (3, (SUCCESS, SUCCESS), (SUCCESS, CONFLICT)),
        (4, (SUCCESS, SUCCESS), (CONFLICT, CONFLICT)),
        (5, (SUCCESS, SUCCESS), (SUCCESS, CONFLICT)),
        (6, (SUCCESS, SUCCESS), (CONFLICT, CONFLICT)),
    ] {
        assert_eq!(a.acquire(rtype), SUCCESS);
        for (is_registered, (read, write)) in [(true, registrant), (false, other)] {
            if !is_registered {
                assert_eq!(b.unregister(), SUCCESS);
            }
            for (command, status) in b.read_group() {
                assert_eq!(
                    status, read,
                    "{command}, type {rtype}, registered: {is_registered}"
                );
            }
            for (command, status) in b.write_group() {
                assert_eq!(
                    status, write,
                    "{command}, type {rtype}, registered: {is_registered}"
                );
            }
        }
        for (command, status) in a.read_group().into_iter().chain(a.write_group()) {
            assert_eq!(status, SUCCESS, "{command} of the holder, type {rtype}");
        }
        assert_eq!((a.release(rtype), b.register(0)), (SUCCESS, SUCCESS));
    }
}

/// A Copy needs the rights to write of its destination, and those to read of each namespace that it reads from.
pub(in crate::conformance) fn a_copy_asks_the_namespaces_of_its_sources(on: &On) {
    let other = Namespace::of_store(2, memory(), Identity::of_raw("test", b"other"), 4096);
    let disks = vec![disk(memory()), other];
    let target = Target::start_all(on, disks, RingConfig::default(), PoolConfig::default());
    let (mut a, mut b) = connect_both(&target);
    // Host Behavior Support, CDFE: descriptors of format 2h.
    let mut behavior = [0; 512];
    behavior[4] = 1 << 2;
    assert_eq!(
        b.admin.bring(0x09, 0, [0x16, 0, 0], &behavior).status,
        SUCCESS
    );
    let mut copy = |to, sources: &[Vec<u8>]| {
        let cdw12 = u32::try_from(sources.len() - 1).unwrap() | 2 << 8;
        b.first
            .bring(COPY, to, [50, 0, cdw12], &sources.concat())
            .status
    };
    let here = source(1, 0);
    let there = source(2, 0);
    assert_eq!(copy(1, &[here.clone(), there.clone()]), SUCCESS);
    let registered = a.first.bring(REGISTER, 2, [0, 0, 0], &keys(0, KEY_A));
    assert_eq!(registered.status, SUCCESS);
    // Type: from namespace 2, and to it.
    for (rtype, from, to) in [
        (1, SUCCESS, CONFLICT),
        (2, CONFLICT, CONFLICT),
        (3, SUCCESS, CONFLICT),
        (4, CONFLICT, CONFLICT),
        (5, SUCCESS, CONFLICT),
        (6, CONFLICT, CONFLICT),
    ] {
        let cdw10 = rtype << 8;
        let acquired = a.first.bring(ACQUIRE, 2, [cdw10, 0, 0], &keys(KEY_A, 0));
        assert_eq!(acquired.status, SUCCESS);
        assert_eq!(
            copy(1, &[here.clone(), there.clone()]),
            from,
            "type {rtype}"
        );
        assert_eq!(
            copy(1, std::slice::from_ref(&here)),
            SUCCESS,
            "type {rtype}"
        );
        assert_eq!(copy(2, std::slice::from_ref(&here)), to, "type {rtype}");
        let released = a
            .first
            .bring(RELEASE, 2, [cdw10, 0, 0], &KEY_A.to_le_bytes());
        assert_eq!(released.status, SUCCESS);
    }
}

/// Base, "Reservations": hosts without an identifier could not be told apart, so none of them registers; a reservation holds against them as
/// against every host that is not registered.
pub(in crate::conformance) fn a_host_without_an_identifier_takes_no_part(on: &On) {
    const NOT_INITIALIZED: u16 = 0x4027;
    let target = Target::start_many(on, disk(memory()), 2);
    let mut nobody = Host::connect(&target, "nqn.2026-11.io.example:anonymous", KEY_B);
    assert_eq!(nobody.id(), [0; 16]);
    let report = |host: &mut Host| host.first.fetch(REPORT, 1, [1023, 1, 0], 4096);
    assert_eq!(report(&mut nobody), Err(NOT_INITIALIZED));
    assert_eq!(nobody.register(0), NOT_INITIALIZED);
    assert_eq!(nobody.acquire(1), NOT_INITIALIZED);
    assert_eq!(nobody.clear(), NOT_INITIALIZED);
    assert_eq!(nobody.write(3), [SUCCESS; 2]);
    let mut a = Host::connect(&target, A, KEY_A);
    assert_eq!((a.register(0), a.acquire(1)), (SUCCESS, SUCCESS));
    assert_eq!(nobody.write(3), [CONFLICT; 2]);
    assert_eq!(nobody.read(), [SUCCESS; 2]);
    assert_eq!(a.report().2, [(a.id(), KEY_A, true)]);
}
