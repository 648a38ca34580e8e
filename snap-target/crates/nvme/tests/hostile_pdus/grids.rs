//! Lengths, offsets and fields in all combinations, and negotiation at the wrong time: what a host can send before anybody knows who it is.

use nvme::Time;
use nvme::initiator::command;
use nvme_spec::register::Cc;
use zerocopy::IntoBytes;

use crate::against_target::{Attack, TRANSFER_BYTES_MAX, association};
use crate::wire::*;
use nvme::simulation::target::{SUBNQN, TargetQueue};

const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";
const FABRICS: u8 = 0x7F;
const PROPERTY_SET: u8 = 0x00;
const PROPERTY_GET: u8 = 0x04;
const AUTH_SEND: u8 = 0x05;
const AUTH_RECEIVE: u8 = 0x06;
const GET_LOG_PAGE: u8 = 0x02;
const IDENTIFY: u8 = 0x06;

/// Most data that an admin command may bring.
const ADMIN_DATA_BYTES_MAX: u32 = 4096;

/// SCT and SC.
const INVALID_OPCODE: u16 = 0x001;
const INVALID_FIELD: u16 = 0x002;
const SEQUENCE_ERROR: u16 = 0x00C;
const DATA_SGL_LENGTH_INVALID: u16 = 0x00F;
const INVALID_LOG_PAGE: u16 = 0x109;
const CONNECT_INVALID_PARAMETERS: u16 = 0x182;
/// The refusals of a descriptor (Base, "Generic Command Status": 0Dh to 11h).
const SGL_STATUSES: std::ops::RangeInclusive<u16> = 0x00D..=0x011;

/// SGL descriptor types that fabrics knows, and one that it does not.
const REMOTE: u8 = 0x5A;
const IN_CAPSULE: u8 = 0x01;
const DATA_BLOCK: u8 = 0x00;

/// An entry whose dwords from CDW10 on are these.
fn entry(opcode: u8, sgl: (u8, u32), dwords: [u32; 6]) -> [u8; 64] {
    let mut entry = [0; 64];
    entry[0] = opcode;
    entry[1] = 0x40;
    entry[2] = 9;
    entry[32..36].copy_from_slice(&sgl.1.to_le_bytes());
    entry[39] = sgl.0;
    for (at, dword) in dwords.iter().enumerate() {
        entry[40 + at * 4..44 + at * 4].copy_from_slice(&dword.to_le_bytes());
    }
    entry
}

fn fabrics(fctype: u8, sgl: (u8, u32), dwords: [u32; 6]) -> [u8; 64] {
    let mut entry = entry(FABRICS, sgl, dwords);
    entry[4] = fctype;
    entry
}

/// SECP E9h, SPSP 1, and TL (or AL) of an authentication command.
fn authentication(fctype: u8, sgl: (u8, u32), length: u32) -> [u8; 64] {
    fabrics(fctype, sgl, [0xE9_01_01_00, length, 0, 0, 0, 0])
}

fn property_get_version() -> Vec<u8> {
    capsule(fabrics(PROPERTY_GET, (REMOTE, 0), [0, 0x08, 0, 0, 0, 0]))
}

fn enable() -> Vec<u8> {
    let cc = Cc::enable_nvm().0;
    capsule(fabrics(PROPERTY_SET, (REMOTE, 0), [0, 0x14, cc, 0, 0, 0]))
}

/// Connect as an honest host sends it, to be changed.
struct Connect {
    sqe: [u8; 64],
    data: Vec<u8>,
}

impl Connect {
    fn to(subnqn: &str) -> Connect {
        let association = nvme::initiator::Association {
            subnqn: subnqn.into(),
            ..association()
        };
        let mut sqe = command::connect(0, 31, 0).sqe;
        sqe.flags = 0x40;
        sqe.cid = 9.into();
        Connect {
            sqe: sqe.as_bytes().try_into().unwrap(),
            data: command::connect_data(&association, None).to_vec(),
        }
    }

    fn bytes(&self) -> Vec<u8> {
        capsule_with_data(self.sqe, &self.data)
    }
}

/// The one answer to a command: its status, result and data.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    status: u16,
    dw0: u32,
    data: Vec<u8>,
}

impl Answer {
    fn of(sent: &[Sent]) -> Answer {
        let mut answer = Answer {
            status: 0,
            dw0: 0,
            data: Vec::new(),
        };
        for (at, pdu) in sent.iter().enumerate() {
            let is_last = at + 1 == sent.len();
            if pdu.pdu_type() == C2H_DATA {
                assert_eq!((pdu.half(8), pdu.word(12)), (9, answer.data.len() as u32));
                answer.data.extend_from_slice(&pdu.0[24..]);
                // Where it stands for the response, it is the last.
                assert_eq!(pdu.0[1] & SUCCESS != 0, is_last);
            } else {
                assert!(is_last, "{sent:?}");
                assert_eq!(pdu.half(8 + 12), 9, "the identifier of {pdu:?}");
                (answer.status, answer.dw0) = (pdu.status(), pdu.word(8));
            }
        }
        assert!(!sent.is_empty(), "no answer");
        answer
    }
}

impl Attack {
    /// Sends a command, and its data where they are asked for.
    fn ask(&mut self, bytes: &[u8]) -> Answer {
        let mut sent = self.say(bytes);
        while let [asked] = sent.as_slice()
            && asked.pdu_type() == R2T
        {
            let (offset, len) = (asked.word(12), asked.word(16));
            assert!(len <= ADMIN_DATA_BYTES_MAX, "{len} bytes are asked for");
            let data = vec![0xAA; len as usize];
            sent = self.say(&h2c_data(LAST_PDU, 9, asked.half(10), offset, &data));
        }
        Answer::of(&sent)
    }

    /// The stream is where it should be, and the target listens: VS is 2.0.
    fn must_be_sound(&mut self) {
        let answer = self.ask(&property_get_version());
        assert_eq!((answer.status, answer.dw0), (0, 0x0002_0000));
    }

    /// An admin queue of an enabled controller.
    fn on_admin_queue(subnqn: &str) -> Attack {
        let mut attack = Attack::greeted(0);
        assert_eq!(attack.ask(&Connect::to(subnqn).bytes()).status, 0);
        assert_eq!(attack.ask(&enable()).status, 0);
        attack
    }

    fn memory_must_be_bounded(&self) {
        let all_slots = 32 * TRANSFER_BYTES_MAX as usize;
        assert!(self.queue.buffer_bytes() <= all_slots);
    }
}

/// What a page is long by the specification; the discovery log has two records here: the subsystem and the service. `None`: not looked at beyond its start.
fn page_bytes(lid: u8) -> Option<u64> {
    Some(match lid {
        0x00 | 0x12 => 1024,
        0x01 => 64 * 64,
        0x02 | 0x03 => 512,
        0x04 | 0x05 => 4096,
        0x70 => 1024 + 2 * 1024,
        _ => return None,
    })
}

fn get_log(lid: u8, bytes: u64, offset: u64, sgl_bytes: u32) -> Vec<u8> {
    let dwords = (bytes / 4 - 1) as u32;
    // RAE: reading it changes nothing.
    let cdw10 = u32::from(lid) | 1 << 15 | (dwords & 0xFFFF) << 16;
    let cdw11 = dwords >> 16;
    let (low, high) = (offset as u32, (offset >> 32) as u32);
    capsule(entry(
        GET_LOG_PAGE,
        (REMOTE, sgl_bytes),
        [cdw10, cdw11, low, high, 0, 0],
    ))
}

/// CVE-2026-64319, CVE-2026-72130, CVE-2026-80791, CVE-2026-90230, CVE-2026-64320: lengths and offsets of Get Log Page that are not held against
/// the page, the descriptor and each other.
#[test]
fn cve_2026_64319_72130_80791_90230_64320_get_log_page_lengths_and_offsets() {
    let max = u64::from(TRANSFER_BYTES_MAX);
    let lengths = [
        4,
        8,
        64,
        512,
        1020,
        1024,
        1028,
        4096,
        max,
        max + 4,
        1 << 31,
        1 << 34,
    ];
    let offsets = [
        0,
        1,
        2,
        3,
        4,
        8,
        64,
        508,
        512,
        516,
        1020,
        1024,
        1028,
        2044,
        2048,
        2052,
        4092,
        4096,
        4100,
        32_768,
        65_532,
        65_536,
        1 << 31,
        (1 << 32) - 4,
        1 << 32,
        1 << 63,
        u64::MAX - 3,
        u64::MAX,
    ];
    let mut found = Vec::new();
    for subnqn in [DISCOVERY_NQN, SUBNQN] {
        let mut attack = Attack::on_admin_queue(subnqn);
        for lid in 0..=u8::MAX {
            match attack.ask(&get_log(lid, 4096, 0, 4096)).status {
                0 => found.push((subnqn, lid)),
                status => assert_eq!(status, INVALID_LOG_PAGE, "page {lid:02x}"),
            }
        }
        attack.must_be_sound();
    }
    assert!(found.contains(&(DISCOVERY_NQN, 0x70)) && found.contains(&(SUBNQN, 0x02)));
    for (subnqn, lid) in found {
        let mut attack = Attack::on_admin_queue(subnqn);
        for (bytes, offset) in lengths
            .iter()
            .flat_map(|&bytes| offsets.iter().map(move |&offset| (bytes, offset)))
        {
            let whole = attack.ask(&get_log(lid, 32_768, 0, 32_768)).data;
            assert_eq!(whole.len(), 32_768);
            let right = u32::try_from(bytes).unwrap_or(u32::MAX);
            for sgl_bytes in [right, right.saturating_sub(4), 0, u32::MAX] {
                let answer = attack.ask(&get_log(lid, bytes, offset, sgl_bytes));
                let what = format!("page {lid:02x}, {bytes} at {offset} into {sgl_bytes}");
                let inside = page_bytes(lid).map_or(offset == 0, |page| offset <= page);
                let possible =
                    bytes <= max && offset.is_multiple_of(4) && u64::from(sgl_bytes) >= bytes;
                if possible && inside && u64::from(sgl_bytes) <= max {
                    assert_eq!(answer.status, 0, "{what}");
                }
                if answer.status != 0 {
                    assert!(answer.data.is_empty(), "{what}");
                    assert!(
                        [INVALID_FIELD, DATA_SGL_LENGTH_INVALID].contains(&answer.status),
                        "{what}: {:x}",
                        answer.status
                    );
                    continue;
                }
                assert!(possible, "{what} is answered");
                if let Some(page) = page_bytes(lid) {
                    assert!(offset <= page, "{what} is beyond the page");
                }
                let start = usize::try_from(offset).unwrap();
                let mut expected = whole[start..].to_vec();
                expected.resize(usize::try_from(bytes).unwrap(), 0);
                assert!(answer.data == expected, "{what}");
            }
        }
        attack.memory_must_be_bounded();
        attack.must_be_sound();
    }
}

/// A state that a connection is in when authentication commands come, and the status that a well-formed one gets there.
type State = (&'static str, fn() -> Attack, u16);

fn states() -> [State; 5] {
    [
        ("before Connect", || Attack::greeted(0), SEQUENCE_ERROR),
        (
            "connected, not enabled",
            || {
                let mut attack = Attack::greeted(0);
                assert_eq!(attack.ask(&Connect::to(SUBNQN).bytes()).status, 0);
                attack
            },
            INVALID_OPCODE,
        ),
        ("enabled", || Attack::on_admin_queue(SUBNQN), INVALID_OPCODE),
        (
            "discovery",
            || Attack::on_admin_queue(DISCOVERY_NQN),
            INVALID_OPCODE,
        ),
        ("I/O queue", Attack::on_io_queue, INVALID_OPCODE),
    ]
}

/// The same CVEs: transfer lengths of AUTH_SEND and AUTH_RECEIVE. Nobody is asked to authenticate here (yet), so each is refused, in every state,
/// whatever its lengths say; nothing is reserved for it, and the stream goes on behind it.
#[test]
fn cve_2026_64319_72130_80791_90230_64320_auth_send_and_receive_lengths() {
    let lengths = [
        0,
        1,
        3,
        4,
        8,
        16,
        64,
        255,
        1024,
        4096,
        8192,
        65_536,
        1 << 20,
        1 << 31,
        u32::MAX,
    ];
    for (name, state, status) in states() {
        let mut attack = state();
        let held = attack.queue.buffer_bytes();
        for fctype in [AUTH_SEND, AUTH_RECEIVE] {
            for (length, sgl_bytes) in lengths.iter().flat_map(|&a| lengths.map(|b| (a, b))) {
                for kind in [REMOTE, IN_CAPSULE, DATA_BLOCK] {
                    let sqe = authentication(fctype, (kind, sgl_bytes), length);
                    let answer = attack.ask(&capsule(sqe));
                    let what =
                        format!("{name}: type {fctype}, {length} by {kind:02x} of {sgl_bytes}");
                    assert!(answer.data.is_empty(), "{what}");
                    let most = if fctype == AUTH_SEND {
                        ADMIN_DATA_BYTES_MAX
                    } else {
                        TRANSFER_BYTES_MAX
                    };
                    let fits = kind == REMOTE && sgl_bytes <= most;
                    assert!(
                        answer.status == status
                            || !fits
                                && (SGL_STATUSES.contains(&answer.status)
                                    || answer.status == INVALID_FIELD),
                        "{what}: {:x}",
                        answer.status
                    );
                }
                // With the data in the capsule, as a host sends them.
                let len = sgl_bytes as usize;
                if len <= 4096 && fctype == AUTH_SEND {
                    let sqe = authentication(fctype, (IN_CAPSULE, sgl_bytes), length);
                    let answer = attack.ask(&capsule_with_data(sqe, &vec![0xAA; len]));
                    assert!(answer.status == status, "{name}: {:x}", answer.status);
                }
            }
        }
        // One command at a time: one buffer.
        let most = held + TRANSFER_BYTES_MAX as usize;
        assert!(attack.queue.buffer_bytes() <= most, "{name}");
        if name == "before Connect" {
            assert_eq!(attack.ask(&Connect::to(SUBNQN).bytes()).status, 0);
        }
        if name != "I/O queue" {
            attack.must_be_sound();
        }
    }
}

/// CVE-2024-50215: a key freed twice where a host negotiated again. Every kind of negotiation again at every step of a life: each has its exact
/// answer, and the steps that follow go on as if nothing had been said.
#[test]
fn cve_2024_50215_renegotiation_at_each_step() {
    let identify = || capsule(entry(IDENTIFY, (REMOTE, 4096), [1, 0, 0, 0, 0, 0]));
    let steps: [fn() -> Vec<u8>; 4] = [
        || Connect::to(SUBNQN).bytes(),
        enable,
        identify,
        property_get_version,
    ];
    for at in 0..=steps.len() {
        let until = |at: usize| {
            let mut attack = Attack::greeted(0);
            for step in &steps[..at] {
                assert_eq!(attack.ask(&step()).status, 0);
            }
            attack
        };
        // ICReq again.
        until(at).must_end_with(&ic(IC_REQ, 0, 0, 0), (SEQUENCE, 0));
        until(at).must_end_with(&ic(IC_REQ, 0, 3, 0), (SEQUENCE, 0));
        // Connect again, the same and to another subsystem, and authentication, each three times.
        let mut attack = until(at);
        for _ in 0..3 {
            for fctype in [AUTH_SEND, AUTH_RECEIVE] {
                let expected = if at == 0 {
                    SEQUENCE_ERROR
                } else {
                    INVALID_OPCODE
                };
                let sqe = authentication(fctype, (REMOTE, 64), 64);
                assert_eq!(attack.ask(&capsule(sqe)).status, expected, "step {at}");
            }
            if at > 0 {
                for subnqn in [SUBNQN, DISCOVERY_NQN] {
                    let answer = attack.ask(&Connect::to(subnqn).bytes());
                    assert_eq!(answer.status, SEQUENCE_ERROR, "step {at}");
                }
            }
            assert!(attack.target.registry.controllers().count() <= 1);
        }
        for step in &steps[at..] {
            assert_eq!(attack.ask(&step()).status, 0, "step {at}");
        }
        assert_eq!(attack.ask(&identify()).data.len(), 4096);
        attack.queue.close(&mut attack.target, Time::ZERO);
        assert_eq!(attack.target.registry.controllers().count(), 0);
    }
    // On an I/O queue.
    let mut attack = Attack::on_io_queue();
    for _ in 0..3 {
        assert_eq!(
            attack.ask(&Connect::to(SUBNQN).bytes()).status,
            SEQUENCE_ERROR
        );
    }
    assert_eq!(
        attack.ask(&capsule(sqe(READ, 9, 0, 1, 512))).data,
        [0x11; 512]
    );
    attack.must_end_with(&ic(IC_REQ, 0, 0, 0), (SEQUENCE, 0));
}

/// Connect's data are 1024 bytes, neither more nor less, however they come.
#[test]
fn connect_data_of_every_length() {
    let mut attack = Attack::greeted(0);
    let honest = Connect::to(SUBNQN);
    let padded = [honest.data.as_slice(), &[0; 3072]].concat();
    for len in (0..=4096).filter(|&len| len != 1024) {
        let answer = attack.ask(&capsule_with_data(honest.sqe, &padded[..len]));
        assert_eq!(
            answer.status, DATA_SGL_LENGTH_INVALID,
            "{len} bytes in the capsule"
        );
    }
    for len in [
        0,
        1,
        1020,
        1023,
        1025,
        1028,
        2048,
        65_536,
        1 << 31,
        u32::MAX,
    ] {
        let mut sqe = honest.sqe;
        sqe[32..36].copy_from_slice(&len.to_le_bytes());
        sqe[39] = REMOTE;
        let answer = attack.ask(&capsule(sqe));
        assert_eq!(
            answer.status, DATA_SGL_LENGTH_INVALID,
            "{len} bytes elsewhere"
        );
    }
    assert_eq!(attack.target.registry.controllers().count(), 0);
    assert_eq!(attack.ask(&honest.bytes()).status, 0);
    attack.must_end_with(&ic(IC_REQ, 0, 0, 0), (SEQUENCE, 0));
}

/// The names: every length, no end, every byte that is none of UTF-8's.
#[test]
fn connect_names_of_every_length_and_byte() {
    let (subnqn, hostnqn) = (256, 512);
    let mut attack = Attack::greeted(0);
    let mut refused = |change: &dyn Fn(&mut [u8]), field: usize, what: &str| {
        let mut connect = Connect::to(SUBNQN);
        change(&mut connect.data[field..field + 256]);
        let answer = attack.ask(&connect.bytes());
        let expected = (CONNECT_INVALID_PARAMETERS, field as u32 | 1 << 16);
        assert_eq!((answer.status, answer.dw0), expected, "{what}");
    };
    for len in 0..=256 {
        // A name of that length that nobody serves.
        let longer = |field: &mut [u8]| {
            field.fill(0);
            field[..len].fill(b'x');
        };
        refused(
            &longer,
            subnqn,
            &format!("a subsystem's name of {len} bytes"),
        );
        if len > 223 {
            refused(&longer, hostnqn, &format!("a host's name of {len} bytes"));
        }
    }
    for value in 0x80..=0xFF {
        for field in [subnqn, hostnqn] {
            refused(
                &|name| name[3] = value,
                field,
                "a byte that is no character",
            );
        }
    }
    assert_eq!(attack.target.registry.controllers().count(), 0);
}

/// CNTLID, QID, SQSIZE and RECFMT over all that 16 bits hold: what is let in is exactly what the specification and the limits allow.
#[test]
fn connect_fields_over_their_whole_range() {
    let mut attack = Attack::greeted(0);
    let offsets = (40, 42, 44);
    let put = |connect: &mut Connect, at: usize, value: u16| {
        connect.sqe[at..at + 2].copy_from_slice(&value.to_le_bytes());
    };
    // Every one takes a minute where the tests run under emulation.
    let values = (0..300)
        .chain((300..0xFFE0).step_by(97))
        .chain(0xFFE0..=u16::MAX);
    for value in values {
        let mut connect = Connect::to(SUBNQN);
        if value != 0xFFFF {
            connect.data[16..18].copy_from_slice(&value.to_le_bytes());
            let answer = attack.ask(&connect.bytes());
            let expected = (CONNECT_INVALID_PARAMETERS, 16 | 1 << 16);
            assert_eq!((answer.status, answer.dw0), expected, "CNTLID {value}");
        }
        let mut connect = Connect::to(SUBNQN);
        if value != 0 {
            put(&mut connect, offsets.0, value);
            // Incompatible Format.
            assert_eq!(attack.ask(&connect.bytes()).status, 0x180, "RECFMT {value}");
        }
        let mut connect = Connect::to(SUBNQN);
        if value != 0 {
            // No controller is there for an I/O queue to join.
            put(&mut connect, offsets.1, value);
            let answer = attack.ask(&connect.bytes());
            assert_eq!(answer.status, CONNECT_INVALID_PARAMETERS, "QID {value}");
        }
        let mut connect = Connect::to(SUBNQN);
        put(&mut connect, offsets.2, value);
        let answer = attack.ask(&connect.bytes());
        // The limits say 32 entries.
        if (1..32).contains(&value) {
            assert_eq!(answer.status, 0, "SQSIZE {value}");
            attack.queue.close(&mut attack.target, Time::ZERO);
            attack.queue = TargetQueue::new(&attack.target, Time::ZERO);
            assert_eq!(attack.say(&ic(IC_REQ, 0, 0, 0))[0].pdu_type(), IC_RESP);
        } else {
            let expected = (CONNECT_INVALID_PARAMETERS, offsets.2 as u32);
            assert_eq!((answer.status, answer.dw0), expected, "SQSIZE {value}");
        }
    }
    assert_eq!(attack.target.registry.controllers().count(), 0);
}
