//! Known failures of others over real sockets, each by its name (docs/hostile.md): the machines refuse these PDUs in their own tests; here whole
//! connections, controllers and memory must go as well, and others must not notice.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a failure of a test is a panic with its line"
)]

mod support;
#[allow(dead_code, reason = "each test program uses a part")]
#[path = "../../nvme/tests/hostile_pdus/wire.rs"]
mod wire;

use frontend_nvme::conformance::{ENABLED, NQN, Queue, Target, memory};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;
use support::on;

use wire::*;

const HOST: &str = "nqn.2026-11.io.example:hostile";
const HONEST: &str = "nqn.2026-11.io.example:honest";
const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";
const NO_KEEP_ALIVE: Duration = Duration::ZERO;
/// An answer that has not come by then never will.
const PATIENCE: Duration = Duration::from_secs(10);
/// More than the controllers that one host, or all hosts, may have.
const ROUNDS: usize = 300;

/// A connection on which a test says whatever it likes.
struct Attack(TcpStream);

impl Attack {
    fn new(target: &Target) -> Attack {
        let socket = TcpStream::connect(&target.address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_nodelay(true).unwrap();
        Attack(socket)
    }

    fn say(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    /// Says the last that it says; returns when the target has let go as well.
    fn say_and_go(mut self, bytes: &[u8]) {
        self.say(bytes);
        self.0.shutdown(Shutdown::Write).unwrap();
        let mut answers = Vec::new();
        let _end = self.0.read_to_end(&mut answers);
    }

    fn answer(&mut self) -> Sent {
        let mut pdu = vec![0; 8];
        self.0.read_exact(&mut pdu).unwrap();
        pdu.resize(
            u32::from_le_bytes(pdu[4..8].try_into().unwrap()) as usize,
            0,
        );
        self.0.read_exact(&mut pdu[8..]).unwrap();
        Sent(pdu)
    }

    fn greet(&mut self) {
        self.say(&ic(IC_REQ, 0, 0, 0));
        assert_eq!(self.answer().pdu_type(), IC_RESP);
    }

    /// An admin queue; its CNTLID.
    fn connect_admin(&mut self, subnqn: &str) -> u16 {
        self.greet();
        self.say(&connect(subnqn, 0, 0xFFFF));
        let answer = self.answer();
        assert_eq!(answer.status(), 0);
        self.say(&capsule(fabrics(0x00, [0, 0x14, ENABLED])));
        assert_eq!(self.answer().status(), 0);
        answer.half(8)
    }

    /// An I/O queue of a controller.
    fn connect_io(&mut self, cntlid: u16, qid: u16) {
        self.greet();
        self.say(&connect(NQN, qid, cntlid));
        assert_eq!(self.answer().status(), 0);
    }

    /// These bytes are answered with this C2HTermReq, and nothing behind them is: the connection ends.
    fn must_end_with(&mut self, bytes: &[u8], fault: (u16, u32)) {
        // A target that has ended the connection may reset it while we still send.
        let _sent = self.0.write_all(bytes);
        assert_eq!(self.answer().fault(), fault);
        let mut rest = Vec::new();
        // Bytes that nobody took make a reset of the end.
        let _end = self.0.read_to_end(&mut rest);
        assert_eq!(rest, [], "after the C2HTermReq");
    }
}

fn fabrics(fctype: u8, dwords: [u32; 3]) -> [u8; 64] {
    let mut entry = admin(0x7F, 0, [dwords[0], dwords[1], dwords[2], 0]);
    entry[4] = fctype;
    entry
}

/// An entry of an admin command: its dwords from CDW10 on.
fn admin(opcode: u8, sgl_bytes: u32, dwords: [u32; 4]) -> [u8; 64] {
    let mut entry = sqe(opcode, 9, 0, 1, sgl_bytes);
    entry[4] = 0;
    for (at, dword) in dwords.iter().enumerate() {
        entry[40 + at * 4..44 + at * 4].copy_from_slice(&dword.to_le_bytes());
    }
    entry
}

fn connect(subnqn: &str, qid: u16, cntlid: u16) -> Vec<u8> {
    let mut data = [0; 1024];
    data[0] = 3;
    data[16..18].copy_from_slice(&cntlid.to_le_bytes());
    data[256..256 + subnqn.len()].copy_from_slice(subnqn.as_bytes());
    data[512..512 + HOST.len()].copy_from_slice(HOST.as_bytes());
    // RECFMT and QID; SQSIZE.
    let entry = fabrics(0x01, [u32::from(qid) << 16, 31, 0]);
    capsule_with_data(entry, &data)
}

/// A write of a block that must never be seen.
fn write_of_a_block() -> Vec<u8> {
    capsule_with_data(sqe(WRITE, 77, 3, 1, 0), &[0x66; 4096])
}

/// Another host gets on, finds the disk as it was, and writes to it.
fn others_must_not_notice(target: &Target) {
    let (_admin, cntlid) = Queue::admin(&target.place, HONEST, NO_KEEP_ALIVE);
    let mut io = Queue::io(&target.place, HONEST, cntlid, 1);
    assert_eq!(io.read(3), vec![0; 4096]);
    io.write(5, 0xAB);
    assert_eq!(io.response().status, 0);
    assert_eq!(io.read(5), vec![0xAB; 4096]);
}

/// A failure at each step from the first byte to the first I/O, and then more bytes in the same segment; as often as there may be controllers and
/// more, so that one that stayed behind would be missed.
#[test]
fn cve_2023_5178_failures_at_each_step_and_more_bytes() {
    let target = Target::start(&on(), memory());
    let bad: [(Vec<u8>, (u16, u32)); 3] = [
        (pdu(0x0F, 0, 24, 0, &[0; 16]), (HEADER_FIELD, 0)),
        (pdu(CAPSULE_CMD, 0, 71, 0, &[0; 64]), (HEADER_FIELD, HLEN)),
        (pdu(CAPSULE_CMD, 1, 72, 0, &[0; 64]), (HEADER_FIELD, FLAGS)),
    ];
    for round in 0..ROUNDS {
        let (bytes, fault) = &bad[round % bad.len()];
        let more = [
            bytes.as_slice(),
            &connect(NQN, 0, 0xFFFF),
            &write_of_a_block(),
        ]
        .concat();
        let mut attack = Attack::new(&target);
        match round % 4 {
            0 => {}
            1 => attack.greet(),
            2 => drop(attack.connect_admin(NQN)),
            _ => {
                let cntlid = attack.connect_admin(NQN);
                let mut io = Attack::new(&target);
                io.connect_io(cntlid, 1);
                io.must_end_with(&more, *fault);
            }
        }
        attack.must_end_with(&more, *fault);
    }
    others_must_not_notice(&target);
}

/// The connection is lost after each byte to Connect.
#[test]
fn cve_2023_5178_connections_lost_at_each_byte() {
    let target = Target::start(&on(), memory());
    let stream = [ic(IC_REQ, 0, 0, 0), connect(NQN, 0, 0xFFFF)].concat();
    for cut in (0..stream.len()).step_by(7).chain([stream.len()]) {
        Attack::new(&target).say_and_go(&stream[..cut]);
    }
    others_must_not_notice(&target);
}

/// H2CData before Connect, for a slot without a command, and for one whose data nobody asked for.
#[test]
fn cve_2026_22998_h2cdata_that_nobody_asked_for() {
    let target = Target::start(&on(), memory());
    let data = h2c_data(LAST_PDU, 7, 0, 0, &[0x66; 4096]);
    Attack::new(&target).must_end_with(&data, (SEQUENCE, 0));
    let mut greeted = Attack::new(&target);
    greeted.greet();
    greeted.must_end_with(&data, (SEQUENCE, 0));
    let mut admin = Attack::new(&target);
    let cntlid = admin.connect_admin(NQN);
    for before in [Vec::new(), capsule(sqe(READ, 7, 3, 1, 4096))] {
        let mut io = Attack::new(&target);
        io.connect_io(cntlid, 1);
        if !before.is_empty() {
            io.say(&before);
            assert_eq!(io.answer().pdu_type(), C2H_DATA);
        }
        io.must_end_with(&data, (HEADER_FIELD, TTAG));
    }
    others_must_not_notice(&target);
}

/// H2CData that fits neither its command nor its R2T.
#[test]
fn cve_2023_6356_6535_6536_h2cdata_outside_of_its_r2t() {
    let target = Target::start(&on(), memory());
    let mut admin = Attack::new(&target);
    let cntlid = admin.connect_admin(NQN);
    let half = [0x66; 4096];
    type Case = (fn(u16, &[u8]) -> Vec<u8>, (u16, u32));
    let cases: [Case; 6] = [
        (
            |tag, data| h2c_data(0, 7, tag, 8192, data),
            (OUT_OF_RANGE, 0),
        ),
        (
            |tag, data| h2c_data(0, 7, tag, u32::MAX - 3, data),
            (OUT_OF_RANGE, 0),
        ),
        (
            |tag, data| h2c_data(0, 7, tag, 4096, data),
            (OUT_OF_RANGE, 0),
        ),
        (
            |tag, data| h2c_data(0, 8, tag, 0, data),
            (HEADER_FIELD, CCCID),
        ),
        (
            |tag, data| h2c_data(0, 7, tag ^ 0x40, 0, data),
            (HEADER_FIELD, TTAG),
        ),
        (
            |tag, data| data_pdu(H2C_DATA, 0, 7, tag, 0, u32::MAX, data),
            (HEADER_FIELD, DATAL),
        ),
    ];
    for (case, fault) in cases {
        let mut io = Attack::new(&target);
        io.connect_io(cntlid, 1);
        io.say(&capsule(sqe(WRITE, 7, 3, 2, 8192)));
        let asked = io.answer();
        assert_eq!((asked.pdu_type(), asked.word(16)), (R2T, 8192));
        io.must_end_with(&case(asked.half(10), &half), fault);
    }
    others_must_not_notice(&target);
}

/// A fatal error, and in the same segment a write that would have been right.
#[test]
fn cve_2026_52989_no_byte_is_interpreted_after_a_fatal_error() {
    let target = Target::start(&on(), memory());
    let mut admin = Attack::new(&target);
    let cntlid = admin.connect_admin(NQN);
    for bad in [pdu(0x0A, 0, 24, 0, &[0; 16]), ic(IC_REQ, 0, 0, 0)] {
        let fault = if bad[0] == IC_REQ {
            (SEQUENCE, 0)
        } else {
            (HEADER_FIELD, 0)
        };
        let mut io = Attack::new(&target);
        io.connect_io(cntlid, 1);
        io.must_end_with(
            &[bad, write_of_a_block(), write_of_a_block()].concat(),
            fault,
        );
    }
    others_must_not_notice(&target);
}

/// A second ICReq, and wrong header lengths, one connection each.
#[test]
fn cve_2026_89969_and_cve_2025_21927_greetings_again_and_header_lengths() {
    let target = Target::start(&on(), memory());
    let mut again = Attack::new(&target);
    again.greet();
    again.must_end_with(&ic(IC_REQ, 0, 0, 0), (SEQUENCE, 0));
    for hlen in [0, 1, 7, 8, 23, 24, 71, 73, 127, 129, 254, 255] {
        let mut fresh = Attack::new(&target);
        fresh.must_end_with(&pdu(IC_REQ, 0, hlen, 0, &[0; 300]), (HEADER_FIELD, HLEN));
        let mut greeted = Attack::new(&target);
        greeted.greet();
        greeted.must_end_with(
            &pdu(CAPSULE_CMD, 0, hlen, 0, &[0; 300]),
            (HEADER_FIELD, HLEN),
        );
    }
    others_must_not_notice(&target);
}

/// Bytes of memory of this process, the target's with it.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = text.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// Descriptors far over MDTS: each is answered at once, and costs no memory.
#[test]
fn cve_2026_80789_sgl_lengths_far_over_mdts() {
    let target = Target::start(&on(), memory());
    let mut admin = Attack::new(&target);
    let cntlid = admin.connect_admin(NQN);
    let mut io = Attack::new(&target);
    io.connect_io(cntlid, 1);
    let before = resident_bytes();
    for _ in 0..64 {
        for sgl_bytes in [(1 << 20) + 4096, 1 << 31, u32::MAX] {
            for opcode in [READ, WRITE] {
                io.say(&capsule(sqe(opcode, 5, 0, 1, sgl_bytes)));
                assert_eq!(io.answer().status(), 0x0F, "Data SGL Length Invalid");
            }
            // Identify.
            admin.say(&capsule(admin_identify(sgl_bytes)));
            assert_eq!(admin.answer().status(), 0x02, "Invalid Field");
        }
    }
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 16 << 20, "{grown} bytes");
    others_must_not_notice(&target);
}

fn admin_identify(sgl_bytes: u32) -> [u8; 64] {
    admin(0x06, sgl_bytes, [1, 0, 0, 0])
}

/// Lengths and offsets of the discovery log, before anybody has logged in; each answer is exactly as long as it was asked to be.
#[test]
fn cve_2026_64319_72130_80791_90230_64320_discovery_log_lengths_and_offsets() {
    let target = Target::start(&on(), memory());
    let mut attack = Attack::new(&target);
    attack.connect_admin(DISCOVERY_NQN);
    let mut ask = |bytes: u32, offset: u64, sgl_bytes: u32| {
        let dwords = bytes / 4 - 1;
        let (cdw10, cdw11) = (0x70 | 1 << 15 | (dwords & 0xFFFF) << 16, dwords >> 16);
        let (low, high) = (offset as u32, (offset >> 32) as u32);
        attack.say(&capsule(admin(0x02, sgl_bytes, [cdw10, cdw11, low, high])));
        let mut data = Vec::new();
        loop {
            let pdu = attack.answer();
            if pdu.pdu_type() != C2H_DATA {
                return (pdu.status(), data);
            }
            data.extend_from_slice(&pdu.0[24..]);
            if pdu.0[1] & SUCCESS != 0 {
                return (0, data);
            }
        }
    };
    // A header, the record of the subsystem and the service's own.
    let page = 3072;
    let (_, whole) = ask(8192, 0, 8192);
    assert_eq!(whole.len(), 8192);
    assert!(whole[page..].iter().all(|&byte| byte == 0));
    for bytes in [4, 1020, 1024, 1028, 4096, 8192] {
        for offset in [
            0,
            1,
            4,
            1020,
            1024,
            1028,
            2044,
            2048,
            2052,
            1 << 20,
            1 << 32,
            u64::MAX - 3,
        ] {
            for sgl_bytes in [bytes, bytes - 4, bytes + 4, u32::MAX] {
                let (status, data) = ask(bytes, offset, sgl_bytes);
                let what = format!("{bytes} at {offset} into {sgl_bytes}");
                let right = offset.is_multiple_of(4) && offset <= page as u64;
                let fits = sgl_bytes >= bytes && sgl_bytes <= 8196;
                assert_eq!(status == 0, right && fits, "{what}: {status:x}");
                if status == 0 {
                    let mut expected = whole[offset as usize..].to_vec();
                    expected.resize(bytes as usize, 0);
                    assert!(data == expected, "{what}");
                } else {
                    assert!(data.is_empty(), "{what}");
                }
            }
        }
    }
    others_must_not_notice(&target);
}
