//! Bytes of hosts as the network may cut them: every byte goes to its place once, and to no other.

#![allow(
    clippy::unwrap_used,
    reason = "a failure of a test is a panic with its line"
)]

mod support;

use frontend_nvme::conformance::{Queue, Target, memory};
use std::time::Duration;
use support::on;
use support::raw::TcpQueue;

use reactor::RingConfig;
use reactor::buf::PoolConfig;
use store::decorate::Delay;
use store::{OpenOptions, SharedStore, StoreSpec};

const HOST: &str = "nqn.2026-11.io.example:host";
const OTHER_HOST: &str = "nqn.2026-11.io.example:other";
const BLOCK: usize = 4096;
/// What a frontend's receive in place takes beyond the payload.
const LANDING: usize = 2048;

/// Bytes that tell where they belong, different in each round.
fn pattern(round: usize, len: usize) -> Vec<u8> {
    (0..len)
        .map(|i| ((i + round).wrapping_mul(0x9E37_79B9) >> 11).to_le_bytes()[0])
        .collect()
}

/// A host's I/O queue, and another queue: an answer on it says that the reactor has seen all that was sent before.
struct Hosts {
    _admin: Queue,
    io: Queue,
    witness: Queue,
}

impl Hosts {
    fn new(target: &Target, data_digest: bool) -> Hosts {
        let (admin, cntlid) = Queue::admin(&target.place, HOST, Duration::ZERO);
        let io = if data_digest {
            Queue::io_with_digests(&target.place, HOST, cntlid, 1)
        } else {
            Queue::io(&target.place, HOST, cntlid, 1)
        };
        Hosts {
            witness: Queue::io(&target.place, HOST, cntlid, 2),
            _admin: admin,
            io,
        }
    }

    fn send_cut(&mut self, bytes: &[u8], cuts: &[usize]) {
        let mut start = 0;
        for &cut in cuts {
            self.io.send_bytes(&bytes[start..cut]);
            assert_eq!(self.witness.flush().status, 0);
            start = cut;
        }
        self.io.send_bytes(&bytes[start..]);
    }

    fn check(&mut self, lba: u64, expected: &[u8]) {
        for (lba, block) in (lba..).zip(expected.chunks(BLOCK)) {
            assert!(self.witness.read(lba) == block, "block {lba}");
        }
    }
}

/// In-capsule data and the capsule behind them, cut at every byte: they come through the shared buffers.
#[test]
fn in_capsule_data_cut_at_every_byte() {
    for data_digest in [false, true] {
        let target = Target::start(&on(), memory());
        let mut hosts = Hosts::new(&target, data_digest);
        let whole = hosts.io.write_capsule(0, 1, &pattern(0, BLOCK)).1.len();
        for cut in 1..whole + 72 {
            let data = pattern(cut, BLOCK);
            let (first, mut bytes) = hosts.io.write_capsule(3, 1, &data);
            let (second, behind) = hosts.io.write_capsule(5, 1, &pattern(cut + 7, BLOCK));
            bytes.extend(behind);
            hosts.send_cut(&bytes, &[cut]);
            for cid in [first, second] {
                let response = hosts.io.response();
                assert_eq!((response.cid, response.status), (cid, 0), "cut at {cut}");
            }
            hosts.check(3, &data);
            hosts.check(5, &pattern(cut + 7, BLOCK));
        }
    }
}

/// Data that an R2T asked for, a capsule right behind them, cut at every byte: they go straight to their place.
#[test]
fn requested_data_cut_at_every_byte() {
    for data_digest in [false, true] {
        let target = Target::start(&on(), memory());
        let mut hosts = Hosts::new(&target, data_digest);
        for cut in 1..24 + BLOCK + 4 + 72 {
            let data = pattern(cut, BLOCK);
            let first = hosts.io.send_write(9);
            let r2t = hosts.io.r2t();
            assert_eq!((r2t.cid, r2t.offset, r2t.len as usize), (first, 0, BLOCK));
            let mut bytes = hosts.io.data_pdu(r2t, 0, &data);
            let (second, behind) = hosts.io.write_capsule(11, 1, &pattern(cut + 7, BLOCK));
            bytes.extend(behind);
            hosts.send_cut(&bytes, &[cut]);
            for cid in [first, second] {
                let response = hosts.io.response();
                assert_eq!((response.cid, response.status), (cid, 0), "cut at {cut}");
            }
            hosts.check(9, &data);
            hosts.check(11, &pattern(cut + 7, BLOCK));
        }
    }
}

/// Two long writes whose data travel in PDUs of odd lengths, one behind the other, cut where a receive in place begins or ends.
#[test]
fn long_writes_in_odd_pieces() {
    for data_digest in [false, true] {
        let target = Target::start(&on(), memory());
        let mut hosts = Hosts::new(&target, data_digest);
        let blocks = 32;
        let len = usize::from(blocks) * BLOCK;
        for (round, piece) in [len, len / 2, 65_537, 9_001, 4_095, 2_049, 1_024, 333]
            .into_iter()
            .enumerate()
        {
            let writes: Vec<_> = [0, 100]
                .into_iter()
                .map(|lba| (lba, pattern(round + lba, len)))
                .collect();
            let cids: Vec<u16> = writes
                .iter()
                .map(|(lba, _)| hosts.io.send_long_write(*lba as u64, blocks))
                .collect();
            let mut bytes = Vec::new();
            let mut cuts = Vec::new();
            for (_, data) in &writes {
                let r2t = hosts.io.r2t();
                for start in (0..len).step_by(piece) {
                    let part = &data[start..len.min(start + piece)];
                    cuts.extend([
                        bytes.len() + 23,
                        bytes.len() + 24,
                        bytes.len() + 24 + LANDING,
                    ]);
                    bytes.extend(hosts.io.data_pdu(r2t, start, part));
                }
            }
            // So many cuts that each place is met, so few that the test ends soon.
            let every = cuts.len().div_ceil(60);
            cuts.retain(|&cut| cut < bytes.len());
            cuts.sort_unstable();
            let cuts: Vec<usize> = cuts.into_iter().step_by(every).collect();
            hosts.send_cut(&bytes, &cuts);
            for cid in cids {
                let response = hosts.io.response();
                assert_eq!(
                    (response.cid, response.status),
                    (cid, 0),
                    "pieces of {piece}"
                );
            }
            for (lba, data) in writes {
                hosts.check(lba as u64, &data);
            }
        }
    }
}

/// A digest that does not match, with data in place and with data in the capsule: Transient Transport Error, nothing is written, and the
/// connection goes on.
#[test]
fn a_wrong_digest_writes_nothing() {
    let target = Target::start(&on(), memory());
    let mut hosts = Hosts::new(&target, true);
    let before = pattern(1, 16 * BLOCK);
    for (in_capsule, blocks) in [(true, 1), (false, 1), (false, 16)] {
        let len = usize::from(blocks) * BLOCK;
        for corrupt in [true, false] {
            let data = if corrupt {
                pattern(9, len)
            } else {
                before[..len].to_vec()
            };
            let (cid, mut bytes) = if in_capsule {
                hosts.io.write_capsule(0, blocks, &data)
            } else {
                let cid = hosts.io.send_long_write(0, blocks);
                let r2t = hosts.io.r2t();
                (cid, hosts.io.data_pdu(r2t, 0, &data))
            };
            let untouched = hosts.witness.read(0);
            if corrupt {
                let at = bytes.len() - 4 - len / 2;
                bytes[at] ^= 1;
            }
            hosts.io.send_bytes(&bytes);
            let response = hosts.io.response();
            assert_eq!(
                (response.cid, response.status),
                (cid, if corrupt { 0x22 } else { 0 })
            );
            hosts.check(0, if corrupt { &untouched } else { &data });
        }
    }
}

/// A connection ends while its data are being received in place. What its host still sends goes into no buffer that others use.
#[test]
fn an_ended_connection_writes_into_no_buffer_of_others() {
    // Two buffers of the size, so that those given back are the next that are taken.
    let pool = PoolConfig {
        slots_128k: 2,
        slots_1m: 0,
        ..PoolConfig::default()
    };
    let target = Target::start_with(&on(), memory(), RingConfig::default(), pool);
    let (_admin, cntlid) = Queue::admin(&target.place, OTHER_HOST, Duration::ZERO);
    let mut other = Queue::io(&target.place, OTHER_HOST, cntlid, 1);
    let (blocks, len) = (32, 32 * BLOCK);
    for round in 0..20 {
        let (admin, cntlid) = Queue::admin(&target.place, HOST, Duration::ZERO);
        let mut dying = Queue::io(&target.place, HOST, cntlid, 1);
        dying.send_long_write(0, blocks);
        let r2t = dying.r2t();
        let bytes = dying.data_pdu(r2t, 0, &vec![0xDD; len]);
        let half = 24 + LANDING + round * 5_000;
        dying.send_bytes(&bytes[..half]);
        assert_eq!(other.flush().status, 0);

        let data = pattern(round, len);
        let first = other.send_long_write(64, blocks);
        let first_r2t = other.r2t();
        // The controller goes with its admin queue, while the I/O queue's host goes on sending.
        drop(admin);
        dying.send_bytes(&bytes[half..half + 1_000]);
        dying.wait_closed();
        let second = other.send_long_write(128, blocks);
        let second_r2t = other.r2t();
        let mut bytes = other.data_pdu(first_r2t, 0, &data);
        bytes.extend(other.data_pdu(second_r2t, 0, &data));
        other.send_bytes(&bytes);
        for cid in [first, second] {
            let response = other.response();
            assert_eq!((response.cid, response.status), (cid, 0));
        }
        for lba in 0..usize::from(blocks) {
            let expected = &data[lba * BLOCK..][..BLOCK];
            assert!(other.read(64 + lba as u64) == expected, "round {round}");
            assert!(other.read(128 + lba as u64) == expected, "round {round}");
            assert_eq!(
                other.read(lba as u64),
                [0; BLOCK],
                "the write that never was"
            );
        }
    }
}

/// One host holds the ring's only receive buffer, because it does not read its answers. Another waits for it without work for the
/// reactor, and goes on when it is free.
#[test]
fn a_host_without_a_receive_buffer_waits_asleep() {
    let ring = RingConfig {
        recv_buffers: 1,
        ..RingConfig::default()
    };
    let target = Target::start_with(&on(), memory(), ring, PoolConfig::default());
    let (mut admin, cntlid) = Queue::admin(&target.place, HOST, Duration::ZERO);
    let mut deaf = Queue::io(&target.place, HOST, cntlid, 1);
    let mut waiting = Queue::io(&target.place, HOST, cntlid, 2);
    // Far more answers than sockets hold, and more commands than the queue has entries.
    let reads = deaf.send_reads(40, 0, 128);
    admin.csts();
    let (cid, capsule) = waiting.write_capsule(200, 1, &pattern(0, BLOCK));
    waiting.send_bytes(&capsule);
    let round_trips = 1000;
    for _ in 0..round_trips {
        admin.csts();
    }
    for cid in reads {
        deaf.take_read(cid, 128);
    }
    let response = waiting.response();
    assert_eq!((response.cid, response.status), (cid, 0));
    assert_eq!(waiting.read(200), pattern(0, BLOCK));
    drop((admin, deaf, waiting));
    let stats = target.stop();
    // A round trip on the admin queue is a receive and a send.
    assert!(stats.submitted < 3 * round_trips, "{stats:?}");
}

/// Twenty hosts write at once where memory is for eight writes, and one that was asked for data sends none: all others end, byte for byte.
#[test]
fn twenty_hosts_write_while_one_is_silent() {
    const HOSTS: u64 = 20;
    let pool = PoolConfig {
        slots_128k: 24,
        slots_1m: 0,
        ..PoolConfig::default()
    };
    let spec = StoreSpec::Mem { bytes: 32 << 20 };
    let store = SharedStore::open(&spec, OpenOptions::read_write()).unwrap();
    let target = Target::start_with(&on(), store, RingConfig::default(), pool);
    let (_silent_admin, cntlid) = Queue::admin(&target.place, OTHER_HOST, Duration::ZERO);
    let mut silent = Queue::io(&target.place, OTHER_HOST, cntlid, 1);
    for _ in 0..30 {
        silent.send_long_write(0, 32);
    }
    let _asked = silent.r2t();

    let place = &target.place;
    std::thread::scope(|scope| {
        for host in 0..HOSTS {
            scope.spawn(move || {
                let name = format!("{HOST}-{host}");
                let (_admin, cntlid) = Queue::admin(place, &name, Duration::ZERO);
                let mut io = Queue::io(place, &name, cntlid, 1);
                let first_lba = 256 * (1 + host);
                for round in 0..4 {
                    let seed = usize::try_from(host).unwrap() * 100 + round;
                    let lbas = (0..8).map(|write| first_lba + 32 * write);
                    let cids: Vec<u16> = lbas
                        .clone()
                        .map(|lba| io.send_long_write(lba, 32))
                        .collect();
                    io.finish_writes(&cids, |write| pattern(seed + write, 32 * BLOCK));
                    for (write, lba) in lbas.enumerate() {
                        let expected = pattern(seed + write, 32 * BLOCK);
                        assert!(io.read(lba + 31) == expected[31 * BLOCK..], "host {host}");
                    }
                }
            });
        }
    });
}

/// Hosts that ask for thirty megabytes each and take nothing of them: another host's reads are answered all the same.
#[test]
fn hosts_that_read_nothing_leave_memory_to_the_others() {
    // A store that lends no memory: every answer takes some of the reactor's.
    let delay = Delay {
        read: Duration::from_micros(100),
        ..Delay::default()
    };
    let target = Target::start(&on(), delay.over(memory()).unwrap());
    let mut deaf = Vec::new();
    for host in 0..4 {
        let name = format!("{OTHER_HOST}-{host}");
        let (admin, cntlid) = Queue::admin(&target.place, &name, Duration::ZERO);
        let mut io = Queue::io(&target.place, &name, cntlid, 1);
        io.send_reads(30, 0, 256);
        deaf.push((admin, io));
    }
    let (_admin, cntlid) = Queue::admin(&target.place, HOST, Duration::ZERO);
    let mut io = Queue::io(&target.place, HOST, cntlid, 1);
    for blocks in [1, 33, 256] {
        let cids = io.send_reads(1, 0, blocks);
        io.take_read(cids[0], blocks);
    }
}
