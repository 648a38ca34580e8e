//! PDUs in any order, with fields that are almost right: the pattern behind most of the named failures. Nothing panics, memory
//! stays bounded, how the stream is cut changes nothing, and after a fatal error nothing is interpreted.

use nvme::Time;
use nvme::digest::crc32c;
use nvme::tcp::host::{Event as HostEvent, Want as HostWant};
use nvme::tcp::target::Event as TargetEvent;
use proptest::prelude::*;

use crate::against_host::Victim;
use crate::against_target::{Attack, connect_capsule, limits};
use crate::wire::*;

/// One PDU of a random peer.
#[derive(Clone, Debug)]
enum Move {
    Ic {
        pdu_type: u8,
        alignment: u8,
        dgst: u8,
    },
    Connect,
    Command {
        opcode: u8,
        cid: u16,
        lba: u32,
        blocks: u16,
        sgl_bytes: u32,
    },
    CommandWithData {
        opcode: u8,
        cid: u16,
        data: usize,
    },
    Data {
        pdu_type: u8,
        flags: u8,
        cid: u16,
        tag: u16,
        offset: u32,
        data: usize,
    },
    R2t {
        cid: u16,
        offset: u32,
        len: u32,
    },
    Response {
        cid: u16,
        status: u16,
    },
    Bytes(Vec<u8>),
}

impl Move {
    fn bytes(&self) -> Vec<u8> {
        match *self {
            Move::Ic {
                pdu_type,
                alignment,
                dgst,
            } => ic(pdu_type, alignment, dgst, 4096),
            Move::Connect => connect_capsule(),
            Move::Command {
                opcode,
                cid,
                lba,
                blocks,
                sgl_bytes,
            } => capsule(sqe(opcode, cid, lba, blocks, sgl_bytes)),
            Move::CommandWithData { opcode, cid, data } => {
                let blocks = (data / 512) as u16;
                capsule_with_data(sqe(opcode, cid, 0, blocks, 0), &vec![0x66; data])
            }
            Move::Data {
                pdu_type,
                flags,
                cid,
                tag,
                offset,
                data,
            } => data_pdu(
                pdu_type,
                flags,
                cid,
                tag,
                offset,
                data as u32,
                &vec![0x66; data],
            ),
            Move::R2t { cid, offset, len } => r2t(cid, 3, offset, len),
            Move::Response { cid, status } => response(cid, status),
            Move::Bytes(ref bytes) => bytes.clone(),
        }
    }
}

/// Identifiers of slots in their first use, as the host gives them, and others.
fn cids() -> impl Strategy<Value = u16> {
    prop_oneof![4 => 0x400..0x404u16, 1 => 0..8u16, 1 => any::<u16>()]
}

fn lengths() -> impl Strategy<Value = u32> {
    prop_oneof![8 => Just(512), 4 => Just(4096), 2 => Just(65536), 1 => any::<u32>()]
}

fn moves() -> impl Strategy<Value = Move> {
    let data_sizes = prop_oneof![Just(512usize), Just(4096), Just(8192), 0..600usize];
    let offsets = prop_oneof![4 => Just(0u32), 2 => Just(512), 2 => Just(4096), 1 => any::<u32>()];
    let flags = prop_oneof![
        Just(0u8),
        Just(LAST_PDU),
        Just(LAST_PDU | SUCCESS),
        any::<u8>()
    ];
    let opcodes = prop_oneof![Just(READ), Just(WRITE), Just(FLUSH), any::<u8>()];
    prop_oneof![
        1 => (any::<bool>(), 0..40u8, 0..4u8).prop_map(|(request, alignment, dgst)| Move::Ic {
            pdu_type: if request { IC_REQ } else { IC_RESP },
            alignment,
            dgst,
        }),
        1 => Just(Move::Connect),
        8 => (opcodes.clone(), cids(), 0..600u32, 1..20u16, lengths()).prop_map(
            |(opcode, cid, lba, blocks, sgl_bytes)| Move::Command { opcode, cid, lba, blocks, sgl_bytes }
        ),
        // Reads and writes whose descriptor fits their blocks.
        8 => (any::<bool>(), cids(), 0..512u32, 1..100u16).prop_map(|(read, cid, lba, blocks)| Move::Command {
            opcode: if read { READ } else { WRITE },
            cid,
            lba,
            blocks,
            sgl_bytes: u32::from(blocks) * 512,
        }),
        4 => (opcodes, cids(), data_sizes.clone())
            .prop_map(|(opcode, cid, data)| Move::CommandWithData { opcode, cid, data }),
        8 => (any::<bool>(), flags, cids(), 0..9u16, offsets.clone(), data_sizes).prop_map(
            |(h2c, flags, cid, tag, offset, data)| Move::Data {
                pdu_type: if h2c { H2C_DATA } else { C2H_DATA },
                flags,
                cid,
                tag,
                offset,
                data,
            }
        ),
        4 => (cids(), offsets, lengths()).prop_map(|(cid, offset, len)| Move::R2t { cid, offset, len }),
        4 => (cids(), prop_oneof![Just(0u16), any::<u16>()])
            .prop_map(|(cid, status)| Move::Response { cid, status }),
        1 => proptest::collection::vec(any::<u8>(), 0..200).prop_map(Move::Bytes),
    ]
}

/// What a target made of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    /// Its answers.
    Lives(Vec<u8>),
    /// FES and FEI. What was answered before depends on how the stream was cut.
    Ended(Option<(u16, u32)>),
}

/// The verdict, and the disk's CRC-32C. Answers leave only where the target takes no more before, and at the end, so that slots are
/// used alike however the stream is cut.
fn against_target(mut attack: Attack, stream: &[u8], cut: usize) -> (Verdict, u32) {
    let limits = limits();
    let bytes_max = usize::from(limits.queue_entries_max) * limits.transfer_bytes_max as usize;
    let mut out = Vec::new();
    for mut rest in stream.chunks(cut) {
        while !rest.is_empty() && attack.queue.ended.is_none() {
            let used = attack.queue.receive(rest, &mut attack.target, Time::ZERO);
            rest = &rest[used..];
            if !rest.is_empty() {
                let before = out.len();
                attack.queue.transmit(&mut out);
                let stuck = used == 0 && out.len() == before && attack.queue.ended.is_none();
                assert!(!stuck, "no byte is taken and none sent");
            }
        }
        assert!(attack.queue.buffer_bytes() <= bytes_max);
    }
    attack.queue.transmit(&mut out);
    let disk = crc32c(&attack.target.disks.lock().unwrap()[&1].bytes);
    let Some(end) = attack.queue.ended else {
        return (Verdict::Lives(out), disk);
    };
    let before = out.len();
    let more = capsule_with_data(sqe(WRITE, 99, 0, 1, 512), &[0x99; 512]);
    let used = attack.queue.receive(&more, &mut attack.target, Time::ZERO);
    attack.queue.transmit(&mut out);
    assert_eq!((used, out.len()), (0, before));
    assert_eq!(crc32c(&attack.target.disks.lock().unwrap()[&1].bytes), disk);
    let fault = match end {
        TargetEvent::Fatal(error) => Some((error.status.0, error.information)),
        _ => None,
    };
    (Verdict::Ended(fault), disk)
}

/// The host's events and what it sent.
fn against_host(mut victim: Victim, stream: &[u8], cut: usize) -> (Vec<HostEvent>, Vec<u8>) {
    victim.read(2);
    victim.write(16);
    victim.flush();
    let mut events = Vec::new();
    let mut out = Vec::new();
    for piece in stream.chunks(cut) {
        let used = victim.host.receive(piece);
        while let Some(event) = victim.host.next_event() {
            if let HostEvent::Completed { slot, received, .. } = event {
                assert!(received as usize <= victim.host.buffer(slot).len());
            }
            events.push(event);
        }
        if used < piece.len() {
            assert_eq!(victim.host.connection.want(), HostWant::Closed);
        }
        victim.host.transmit(&mut out);
    }
    if victim.host.connection.want() == HostWant::Closed {
        assert!(matches!(events.last(), Some(HostEvent::Fatal(_))));
        victim.must_be_deaf();
    }
    (events, out)
}

proptest! {
    // 256 cases each; PROPTEST_CASES says otherwise.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_pdus_in_any_order_leave_the_target_sound(
        moves in proptest::collection::vec(moves(), 0..40),
        connected in any::<bool>(),
        cut in 1..5000usize,
    ) {
        let stream: Vec<u8> = moves.iter().flat_map(Move::bytes).collect();
        let attack = || if connected { Attack::on_io_queue() } else { Attack::fresh() };
        let cut_up = against_target(attack(), &stream, cut);
        let whole = against_target(attack(), &stream, usize::MAX);
        prop_assert_eq!(cut_up, whole);
    }

    #[test]
    fn any_pdus_in_any_order_leave_the_host_sound(
        moves in proptest::collection::vec(moves(), 0..40),
        cut in 1..5000usize,
    ) {
        let stream: Vec<u8> = moves.iter().flat_map(Move::bytes).collect();
        let (events, _) = against_host(Victim::greeted(0), &stream, cut);
        let (whole, _) = against_host(Victim::greeted(0), &stream, usize::MAX);
        prop_assert_eq!(events, whole);
    }

    #[test]
    fn any_bytes_are_survived(
        bytes in proptest::collection::vec(any::<u8>(), 0..600),
        dgst in 0..4u8,
        cut in 1..300usize,
    ) {
        against_target(Attack::greeted(dgst), &bytes, cut);
        let mut victim = Victim::greeted(dgst);
        for piece in bytes.chunks(cut) {
            victim.host.receive(piece);
        }
        while victim.host.next_event().is_some() {}
    }
}
