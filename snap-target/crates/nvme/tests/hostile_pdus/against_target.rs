//! A hostile host against a whole target: connection, controllers and a disk.

use std::time::Duration;

use nvme::Time;
use nvme::controller::ControllerLimits;
use nvme::initiator::{Association, AttachAdmin, AttachIo, Sequence, Step, command};
use nvme::tcp::host::{Event, HostOptions};
use nvme::tcp::target::TargetLimits;
use zerocopy::IntoBytes;

use crate::support::host::HostQueue;
use crate::wire::*;
use nvme::simulation::target::{Disk, MemoryTarget, SUBNQN, TargetQueue};

const LBA_BYTES: usize = 512;
const DISK_BYTES: usize = 256 << 10;
pub const TRANSFER_BYTES_MAX: u32 = 64 << 10;
const R2T_BYTES: u32 = 16 << 10;
const QUEUE_ENTRIES: u16 = 8;

pub fn limits() -> TargetLimits {
    TargetLimits {
        queue_entries_max: 32,
        transfer_bytes_max: TRANSFER_BYTES_MAX,
        h2c_data_bytes_max: 8 << 10,
        r2t_bytes_max: R2T_BYTES,
        capsule_data_bytes: 4096,
        ..TargetLimits::default()
    }
}

pub fn target() -> MemoryTarget {
    let controllers = ControllerLimits {
        queue_entries_max: 32,
        transfer_bytes_max: TRANSFER_BYTES_MAX,
        capsule_data_bytes: 4096,
        ..ControllerLimits::default()
    };
    let disk = Disk {
        lba_bytes: LBA_BYTES as u32,
        write_protected: false,
        bytes: vec![0x11; DISK_BYTES],
    };
    MemoryTarget::new([disk], controllers, limits(), ([127, 0, 0, 1], 4420).into())
}

/// A target and one connection to it, under the hands of an attacker.
pub struct Attack {
    pub target: MemoryTarget,
    pub queue: TargetQueue,
    /// The association of an honest host: the I/O queue under attack belongs to it.
    admin: Option<TargetQueue>,
}

impl Attack {
    /// A connection on which nothing was said yet.
    pub fn fresh() -> Attack {
        let target = target();
        let queue = TargetQueue::new(&target, Time::ZERO);
        Attack {
            target,
            queue,
            admin: None,
        }
    }

    /// After ICReq and ICResp, with these digests.
    pub fn greeted(dgst: u8) -> Attack {
        let mut attack = Attack::fresh();
        let answers = attack.say(&ic(IC_REQ, 0, dgst, 0));
        assert_eq!(answers[0].pdu_type(), IC_RESP);
        attack
    }

    /// An I/O queue of an honest host, connected.
    pub fn on_io_queue() -> Attack {
        let mut target = target();
        let mut admin = TargetQueue::new(&target, Time::ZERO);
        let mut host = HostQueue::new(HostOptions::default(), Time::ZERO);
        let attach = AttachAdmin::new(association(), 31, Duration::ZERO, 1, Time::ZERO);
        let mut attach = attach.unwrap();
        drive(&mut host, &mut admin, &mut target, &mut attach);
        let attached = attach.finish().unwrap();
        let mut queue = TargetQueue::new(&target, Time::ZERO);
        let mut host = HostQueue::new(HostOptions::default(), Time::ZERO);
        let mut attach = AttachIo::new(association(), attached.cntlid, 1, QUEUE_ENTRIES - 1);
        drive(&mut host, &mut queue, &mut target, &mut attach);
        Attack {
            target,
            queue,
            admin: Some(admin),
        }
    }

    /// An I/O queue with a write of 64 KiB in command 7, its first R2T (16 KiB) out; and that R2T's tag.
    pub fn in_a_write() -> (Attack, u16) {
        let mut attack = Attack::on_io_queue();
        let blocks = (TRANSFER_BYTES_MAX as usize / LBA_BYTES) as u16;
        let answers = attack.say(&capsule(sqe(WRITE, 7, 0, blocks, TRANSFER_BYTES_MAX)));
        assert_eq!(answers.len(), 1);
        let asked = &answers[0];
        assert_eq!((asked.pdu_type(), asked.half(8)), (R2T, 7));
        assert_eq!((asked.word(12), asked.word(16)), (0, R2T_BYTES));
        let ttag = asked.half(10);
        (attack, ttag)
    }

    /// Sends bytes, and returns what comes back.
    pub fn say(&mut self, bytes: &[u8]) -> Vec<Sent> {
        self.queue.receive(bytes, &mut self.target, Time::ZERO);
        self.queue.run(&mut self.target, Time::ZERO);
        let mut out = Vec::new();
        self.queue.transmit(&mut out);
        Sent::all(&out)
    }

    /// These bytes end the connection with exactly this fault; then nothing more is interpreted, and nothing stays behind.
    pub fn must_end_with(mut self, bytes: &[u8], fault: (u16, u32)) {
        let answers = self.say(bytes);
        let last = answers.last().expect("no answer at all");
        assert_eq!(last.fault(), fault, "{bytes:02x?}");
        self.must_be_deaf();
    }

    /// The connection is over: no byte is taken any more, nothing is answered, the disk is untouched, and the association goes with
    /// its connections.
    pub fn must_be_deaf(mut self) {
        for more in [
            capsule_with_data(sqe(WRITE, 99, 0, 1, 512), &[0x66; 512]),
            capsule(sqe(READ, 98, 0, 1, 512)),
            ic(IC_REQ, 0, 0, 0),
            vec![0xFF; 1000],
        ] {
            let used = self.queue.receive(&more, &mut self.target, Time::ZERO);
            assert_eq!(used, 0, "bytes are taken after a fatal error");
            assert_eq!(self.say(&more), [], "an answer after a fatal error");
        }
        assert!(self.queue.ended.is_some());
        self.disk_must_be_untouched();
        self.queue.close(&mut self.target, Time::ZERO);
        if let Some(mut admin) = self.admin.take() {
            admin.close(&mut self.target, Time::ZERO);
        }
        assert_eq!(self.target.registry.controllers().count(), 0);
    }

    pub fn disk_must_be_untouched(&self) {
        assert!(
            self.target.disks.lock().unwrap()[&1]
                .bytes
                .iter()
                .all(|&byte| byte == 0x11)
        );
    }
}

pub fn association() -> Association {
    Association {
        host_id: [1; 16],
        hostnqn: "nqn.2026-11.test:hostile".into(),
        subnqn: SUBNQN.into(),
    }
}

/// Runs an honest host's sequence to its end.
fn drive(
    host: &mut HostQueue,
    queue: &mut TargetQueue,
    target: &mut MemoryTarget,
    sequence: &mut impl Sequence,
) {
    for _ in 0..1000 {
        while let Some(event) = host.next_event() {
            if let Event::Completed { slot, cqe, .. } = event {
                sequence
                    .answered(Time::ZERO, &cqe, host.buffer(slot))
                    .unwrap();
            }
        }
        let idle = host.connection.room() > 0 && host.connection.outstanding() == 0;
        match sequence.step(Time::ZERO).unwrap() {
            Step::Done => return,
            Step::Issue { command, data_out } if idle => {
                host.submit(&command, data_out, Time::ZERO).unwrap();
            }
            _ => {}
        }
        let mut bytes = Vec::new();
        host.transmit(&mut bytes);
        assert_eq!(queue.receive(&bytes, target, Time::ZERO), bytes.len());
        bytes.clear();
        queue.transmit(&mut bytes);
        assert_eq!(host.receive(&bytes), bytes.len());
    }
    panic!("the sequence does not end");
}

/// Connect of an admin queue, as an honest host sends it.
pub fn connect_capsule() -> Vec<u8> {
    let mut sqe = command::connect(0, 31, 0).sqe;
    sqe.flags = 0x40;
    sqe.cid = 1.into();
    let entry: [u8; 64] = sqe.as_bytes().try_into().unwrap();
    capsule_with_data(entry, &command::connect_data(&association(), None))
}

/// CVE-2023-5178: use after free where a connection failed between ICReq and Connect and more bytes came.
#[test]
fn cve_2023_5178_a_failure_at_each_step_to_connect_and_then_more_bytes() {
    let bad: Vec<(Vec<u8>, (u16, u32))> = vec![
        (pdu(0x0F, 0, 24, 0, &[0; 16]), (HEADER_FIELD, 0)),
        (pdu(CAPSULE_CMD, 0, 71, 0, &[0; 64]), (HEADER_FIELD, HLEN)),
        (pdu(CAPSULE_CMD, 1, 72, 0, &[0; 64]), (HEADER_FIELD, FLAGS)),
    ];
    for (bytes, fault) in bad {
        Attack::fresh().must_end_with(&bytes, fault);
        Attack::greeted(0).must_end_with(&bytes, fault);
        let mut connected = Attack::greeted(0);
        assert_eq!(connected.say(&connect_capsule())[0].status(), 0);
        connected.must_end_with(&bytes, fault);
    }
    Attack::fresh().must_end_with(&connect_capsule(), (SEQUENCE, 0));
}

/// The same CVE: the connection is lost after each byte of the handshake.
#[test]
fn cve_2023_5178_the_connection_is_lost_after_each_byte_to_connect() {
    let stream = [ic(IC_REQ, 0, 0, 0), connect_capsule()].concat();
    for cut in 0..=stream.len() {
        let mut attack = Attack::fresh();
        let answers = attack.say(&stream[..cut]);
        let complete = usize::from(cut >= 128) + usize::from(cut == stream.len());
        assert_eq!(answers.len(), complete, "after {cut} bytes");
        attack.queue.close(&mut attack.target, Time::ZERO);
        assert_eq!(
            attack.target.registry.controllers().count(),
            0,
            "after {cut} bytes"
        );
    }
}

/// CVE-2023-6356, CVE-2023-6535, CVE-2023-6536: NULL and out-of-bounds accesses on H2CData that do not fit their command.
#[test]
fn cve_2023_6356_h2cdata_offset_or_length_beyond_the_command_or_the_r2t_window() {
    let one = [0x66; 4096];
    let cases: Vec<(&str, Vec<u8>, (u16, u32))> = vec![
        (
            "beyond the command",
            h2c_data(0, 7, 0, 64 << 10, &one),
            (OUT_OF_RANGE, 0),
        ),
        (
            "offset that wraps",
            h2c_data(0, 7, 0, u32::MAX - 3, &one),
            (OUT_OF_RANGE, 0),
        ),
        ("a gap", h2c_data(0, 7, 0, 4096, &one), (OUT_OF_RANGE, 0)),
        (
            "beyond the window",
            h2c_data(0, 7, 0, R2T_BYTES, &one),
            (OUT_OF_RANGE, 0),
        ),
        (
            "more than MAXH2CDATA",
            h2c_data(0, 7, 0, 0, &[0; 8196]),
            (LIMIT, 0),
        ),
        (
            "no data",
            data_pdu(H2C_DATA, 0, 7, 0, 0, 0, &[]),
            (HEADER_FIELD, 4),
        ),
        (
            "DATAL above the data",
            data_pdu(H2C_DATA, 0, 7, 0, 0, 8192, &one),
            (HEADER_FIELD, DATAL),
        ),
        (
            "DATAL below the data",
            data_pdu(H2C_DATA, 0, 7, 0, 0, 4, &one),
            (HEADER_FIELD, DATAL),
        ),
        (
            "DATAL of 4 GiB",
            data_pdu(H2C_DATA, 0, 7, 0, 0, u32::MAX, &one),
            (HEADER_FIELD, DATAL),
        ),
        (
            "LAST too early",
            h2c_data(LAST_PDU, 7, 0, 0, &one),
            (HEADER_FIELD, FLAGS),
        ),
    ];
    for (name, mut bytes, fault) in cases {
        let (attack, ttag) = Attack::in_a_write();
        bytes[10..12].copy_from_slice(&ttag.to_le_bytes());
        println!("{name}");
        attack.must_end_with(&bytes, fault);
    }
}

#[test]
fn cve_2023_6535_h2cdata_that_overlaps_or_runs_past_its_r2t() {
    let (mut attack, ttag) = Attack::in_a_write();
    assert_eq!(attack.say(&h2c_data(0, 7, ttag, 0, &[0x66; 8192])), []);
    attack.must_end_with(
        &h2c_data(0, 7, ttag, 4096, &[0x66; 4096]),
        (OUT_OF_RANGE, 0),
    );

    let (mut attack, ttag) = Attack::in_a_write();
    assert_eq!(attack.say(&h2c_data(0, 7, ttag, 0, &[0x66; 8192])), []);
    assert_eq!(attack.say(&h2c_data(0, 7, ttag, 8192, &[0x66; 4096])), []);
    attack.must_end_with(
        &h2c_data(LAST_PDU, 7, ttag, 12_288, &[0x66; 8192]),
        (OUT_OF_RANGE, 0),
    );
}

#[test]
fn cve_2023_6536_h2cdata_with_a_wrong_tag_or_identifier() {
    let data = [0x66; 4096];
    let (attack, ttag) = Attack::in_a_write();
    attack.must_end_with(&h2c_data(0, 8, ttag, 0, &data), (HEADER_FIELD, CCCID));
    for wrong in [1, QUEUE_ENTRIES, 127, 1000, u16::MAX] {
        let (attack, ttag) = Attack::in_a_write();
        let wrong = ttag.wrapping_add(wrong);
        attack.must_end_with(&h2c_data(0, 7, wrong, 0, &data), (HEADER_FIELD, TTAG));
    }
}

#[test]
fn cve_2026_22998_h2cdata_before_connect_for_a_read_and_for_an_unused_slot() {
    let data = h2c_data(LAST_PDU, 0, 0, 0, &[0x66; 512]);
    Attack::fresh().must_end_with(&data, (SEQUENCE, 0));
    Attack::greeted(0).must_end_with(&data, (SEQUENCE, 0));
    Attack::on_io_queue().must_end_with(&data, (HEADER_FIELD, TTAG));
    // A read that the store still holds.
    let mut reading = Attack::on_io_queue();
    reading.target.latency_max = Duration::from_secs(1);
    assert_eq!(reading.say(&capsule(sqe(READ, 7, 0, 1, 512))), []);
    reading.must_end_with(
        &h2c_data(LAST_PDU, 7, 0, 0, &[0x66; 512]),
        (HEADER_FIELD, TTAG),
    );
}

#[test]
fn cve_2026_52989_no_byte_is_interpreted_after_a_fatal_error() {
    let write = capsule_with_data(sqe(WRITE, 3, 0, 1, 512), &[0x66; 512]);
    let bad = pdu(0x0A, 0, 24, 0, &[0; 16]);
    // In one read with what follows it.
    let mut attack = Attack::on_io_queue();
    let answers = attack.say(&[bad.as_slice(), &write, &write].concat());
    assert_eq!(answers.len(), 1);
    assert_eq!(answers[0].fault(), (HEADER_FIELD, 0));
    attack.must_be_deaf();
    // The start of the PDU at fault comes back with the TermReq.
    let mut attack = Attack::on_io_queue();
    let answers = attack.say(&bad);
    assert_eq!(answers[0].0[24..], bad[..]);
    attack.must_be_deaf();
    // A write whose data were on their way is not applied.
    let (attack, ttag) = Attack::in_a_write();
    let stream = [
        h2c_data(0, 7, ttag, 0, &[0x66; 8192]),
        bad,
        h2c_data(LAST_PDU, 7, ttag, 8192, &[0x66; 8192]),
    ];
    attack.must_end_with(&stream.concat(), (HEADER_FIELD, 0));
}

#[test]
fn cve_2026_89969_a_second_icreq() {
    let again = ic(IC_REQ, 0, 0, 0);
    Attack::greeted(0).must_end_with(&again, (SEQUENCE, 0));
    Attack::on_io_queue().must_end_with(&again, (SEQUENCE, 0));
    // Both in one read.
    Attack::fresh().must_end_with(&[again.clone(), again].concat(), (SEQUENCE, 0));
}

#[test]
fn cve_2026_89969_and_cve_2025_21927_every_hlen_with_and_without_digests() {
    for (pdu_type, right) in [
        (IC_REQ, 128),
        (H2C_TERM, 24),
        (CAPSULE_CMD, 72),
        (H2C_DATA, 24),
    ] {
        for hlen in (0..=255).filter(|&hlen| hlen != right) {
            for dgst in 0..4 {
                let flags = if pdu_type == CAPSULE_CMD || pdu_type == H2C_DATA {
                    dgst
                } else {
                    0
                };
                let bytes = pdu(pdu_type, flags, hlen, 0, &[0; 300]);
                Attack::greeted(dgst).must_end_with(&bytes, (HEADER_FIELD, HLEN));
            }
        }
    }
}

#[test]
fn cve_2026_80789_an_sgl_length_far_over_mdts_reserves_nothing() {
    let mut attack = Attack::on_io_queue();
    let held = attack.queue.buffer_bytes();
    for opcode in [READ, WRITE] {
        for sgl_bytes in [TRANSFER_BYTES_MAX + 1, 1 << 20, 1 << 31, u32::MAX] {
            let answers = attack.say(&capsule(sqe(opcode, 5, 0, 1, sgl_bytes)));
            assert_eq!(answers.len(), 1);
            // Data SGL Length Invalid: the descriptor is not the length of the blocks.
            assert_eq!(answers[0].status(), 0x0F, "{sgl_bytes}");
        }
        // The blocks themselves are beyond MDTS (and the disk).
        let answers = attack.say(&capsule(sqe(opcode, 5, 0, 0, 65_536 * 512)));
        assert!(
            matches!(answers[0].status(), 0x02 | 0x80),
            "{:x}",
            answers[0].status()
        );
    }
    assert_eq!(attack.queue.buffer_bytes(), held);
    attack.disk_must_be_untouched();
    // The same for an admin command: Identify into a buffer of 4 GiB.
    let mut admin = Attack::greeted(0);
    assert_eq!(admin.say(&connect_capsule())[0].status(), 0);
    let held = admin.queue.buffer_bytes();
    let answers = admin.say(&capsule(sqe(0x06, 6, 1, 1, u32::MAX)));
    assert_eq!(answers.len(), 1);
    assert_ne!(answers[0].status(), 0);
    assert_eq!(admin.queue.buffer_bytes(), held);
}

/// A host that has more commands outstanding than its queue has entries.
#[test]
fn more_commands_than_the_queue_has_entries() {
    let mut attack = Attack::on_io_queue();
    attack.target.latency_max = Duration::from_secs(1);
    for cid in 0..QUEUE_ENTRIES {
        assert_eq!(attack.say(&capsule(sqe(READ, cid, 0, 1, 512))), []);
    }
    assert_eq!(
        attack.queue.buffer_bytes(),
        usize::from(QUEUE_ENTRIES) * 512
    );
    attack.must_end_with(&capsule(sqe(READ, 50, 0, 1, 512)), (SEQUENCE, 0));
}
