//! A hostile target against the host's machine.

use std::time::Duration;

use nvme::Time;
use nvme::digest::crc32c;
use nvme::initiator::{Blocks, command};
use nvme::tcp::batch::{Slot, TxBatch};
use nvme::tcp::host::{Event, HostError, HostOptions, SubmitError, Want};
use nvme_spec::tcp::FatalErrorStatus;
use nvme_spec::{Cid, Lba, Nsid};

use crate::support::host::HostQueue;
use crate::wire::*;

/// Byte offset of the identifier in a CapsuleResp.
const RESPONSE_CID: u32 = 20;
const MAXH2CDATA: u32 = 4096;

/// A host whose connection is under the hands of a target.
pub struct Victim {
    pub host: HostQueue,
}

impl Victim {
    /// A host that waits for its ICResp.
    pub fn waiting(options: HostOptions) -> Victim {
        let mut victim = Victim {
            host: HostQueue::new(options, Time::ZERO),
        };
        assert_eq!(victim.sent()[0].pdu_type(), IC_REQ);
        victim
    }

    /// A host that has its ICResp, with these digests.
    pub fn greeted(dgst: u8) -> Victim {
        let mut victim = Victim::waiting(HostOptions {
            depth: 4,
            header_digest: dgst & 1 != 0,
            data_digest: dgst & 2 != 0,
            in_capsule_bytes_max: 512,
            ..HostOptions::default()
        });
        victim.host.receive(&ic(IC_RESP, 0, dgst, MAXH2CDATA));
        assert!(matches!(victim.host.next_event(), Some(Event::Ready(_))));
        victim
    }

    fn submit(&mut self, command: &nvme::initiator::Command, data: Vec<u8>) -> u16 {
        self.host.submit(command, data, Time::ZERO).unwrap();
        let sent = self.sent();
        assert_eq!(sent.len(), 1);
        sent[0].half(8 + 2)
    }

    /// Sends a Read of so many blocks; its identifier.
    pub fn read(&mut self, count: u32) -> u16 {
        self.submit(&command::read(Nsid(1), blocks(count)), Vec::new())
    }

    /// Sends a Write of so many blocks; its identifier.
    pub fn write(&mut self, count: u32) -> u16 {
        let data = vec![0x77; count as usize * 512];
        self.submit(&command::write(Nsid(1), blocks(count)), data)
    }

    pub fn flush(&mut self) -> u16 {
        self.submit(&command::flush(Nsid(1)), Vec::new())
    }

    /// What the host sends now. PDUs are cut at PLEN, so digests stay inside.
    pub fn sent(&mut self) -> Vec<Sent> {
        let mut out = Vec::new();
        self.host.transmit(&mut out);
        Sent::all(&out)
    }

    /// The next event, which is a completion: slot, status, bytes received.
    fn completed(&mut self) -> (Slot, u16, u32) {
        match self.host.next_event() {
            Some(Event::Completed {
                slot,
                cqe,
                received,
            }) => (slot, cqe.status().to_wire() >> 1 & 0x7FF, received),
            other => panic!("{other:?}"),
        }
    }

    /// These bytes end the connection with exactly this fault, and the target is told.
    pub fn must_end_with(mut self, bytes: &[u8], fault: (u16, u32)) {
        self.host.receive(bytes);
        let Some(Event::Fatal(HostError::Protocol(error))) = self.host.next_event() else {
            panic!("the host did not refuse {bytes:02x?}");
        };
        assert_eq!((error.status.0, error.information), fault, "{error}");
        let told = self.sent();
        assert_eq!(told.len(), 1);
        assert_eq!(told[0].fault(), fault);
        self.must_be_deaf();
    }

    /// The connection is over: no byte is taken, nothing happens, nothing is sent.
    pub fn must_be_deaf(&mut self) {
        assert_eq!(self.host.connection.want(), Want::Closed);
        let honest = [
            response(0x400, 0),
            c2h_data(LAST_PDU, 0x400, 0, &[0; 512]),
            vec![0xFF; 99],
        ];
        for more in honest {
            assert_eq!(self.host.receive(&more), 0);
            assert_eq!(self.host.connection.headers(&more), 0);
            self.host.connection.payload(1, 0);
            assert_eq!(self.host.next_event(), None);
            assert_eq!(self.sent(), []);
        }
        let flush = command::flush(Nsid(1));
        let refused = self.host.submit(&flush, Vec::new(), Time::ZERO);
        assert_eq!(refused, Err(SubmitError::Closed));
    }
}

fn blocks(count: u32) -> Blocks {
    Blocks {
        lba: Lba(0),
        count,
        lba_bytes: 512,
    }
}

/// A PDU without digests, with them.
pub fn digested(plain: &[u8]) -> Vec<u8> {
    let hlen = usize::from(plain[2]);
    let (header, data) = plain.split_at(hlen);
    let mut bytes = header.to_vec();
    let trailer = if data.is_empty() { 0 } else { 4 };
    bytes[1] |= if data.is_empty() { 1 } else { 3 };
    if !data.is_empty() {
        bytes[3] += 4;
    }
    bytes[4..8].copy_from_slice(&(plain.len() as u32 + 4 + trailer).to_le_bytes());
    let crc = crc32c(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes.extend_from_slice(data);
    if !data.is_empty() {
        bytes.extend_from_slice(&crc32c(data).to_le_bytes());
    }
    bytes
}

/// What an honest target does completes: without this the refusals below would prove nothing.
#[test]
fn an_honest_target_is_believed() {
    let mut victim = Victim::greeted(0);
    let read = victim.read(2);
    victim.host.receive(&c2h_data(0, read, 0, &[1; 512]));
    victim
        .host
        .receive(&c2h_data(LAST_PDU | SUCCESS, read, 512, &[2; 512]));
    let (slot, status, received) = victim.completed();
    assert_eq!((status, received), (0, 1024));
    assert_eq!(victim.host.buffer(slot), [[1; 512], [2; 512]].concat());

    let write = victim.write(16);
    victim.host.receive(&r2t(write, 9, 0, 8192));
    let sent = victim.sent();
    let shape: Vec<_> = sent
        .iter()
        .map(|pdu| (pdu.pdu_type(), pdu.0[1], pdu.half(10), pdu.word(12)))
        .collect();
    assert_eq!(shape, [(H2C_DATA, 0, 9, 0), (H2C_DATA, LAST_PDU, 9, 4096)]);
    victim.host.receive(&response(write, 0));
    assert_eq!(victim.completed().1, 0);

    // An error needs no data.
    let read = victim.read(2);
    victim.host.receive(&response(read, 0x281));
    assert_eq!(victim.completed(), (Slot(0), 0x281, 0));
}

#[test]
fn cve_2026_89482_c2hdata_for_a_command_without_data() {
    let mut victim = Victim::greeted(0);
    let flush = victim.flush();
    victim.must_end_with(
        &c2h_data(LAST_PDU | SUCCESS, flush, 0, &[0; 512]),
        (HEADER_FIELD, CCCID),
    );
    let mut victim = Victim::greeted(0);
    let write = victim.write(16);
    victim.must_end_with(
        &c2h_data(LAST_PDU | SUCCESS, write, 0, &[0; 512]),
        (HEADER_FIELD, CCCID),
    );
}

#[test]
fn c2hdata_beyond_the_commands_length_or_out_of_order() {
    type Case = (Vec<u8>, (u16, u32));
    let cases: [fn(u16) -> Case; 9] = [
        |cid| (c2h_data(0, cid, 0, &[0; 1028]), (OUT_OF_RANGE, 0)),
        |cid| (c2h_data(0, cid, 1024, &[0; 4]), (OUT_OF_RANGE, 0)),
        |cid| (c2h_data(0, cid, u32::MAX - 3, &[0; 8]), (OUT_OF_RANGE, 0)),
        |cid| (c2h_data(0, cid, 512, &[0; 512]), (OUT_OF_RANGE, 0)),
        |cid| (data_pdu(C2H_DATA, 0, cid, 0, 0, 0, &[]), (HEADER_FIELD, 4)),
        |cid| {
            (
                data_pdu(C2H_DATA, 0, cid, 0, 0, 1024, &[0; 512]),
                (HEADER_FIELD, DATAL),
            )
        },
        |cid| {
            (
                data_pdu(C2H_DATA, 0, cid, 0, 0, u32::MAX, &[0; 512]),
                (HEADER_FIELD, DATAL),
            )
        },
        |cid| (c2h_data(SUCCESS, cid, 0, &[0; 1024]), (HEADER_FIELD, FLAGS)),
        |cid| {
            (
                c2h_data(SUCCESS | LAST_PDU, cid, 0, &[0; 512]),
                (OUT_OF_RANGE, 0),
            )
        },
    ];
    for case in cases {
        let mut victim = Victim::greeted(0);
        let (bytes, fault) = case(victim.read(2));
        victim.must_end_with(&bytes, fault);
    }
    // Overlapping what has come, and coming after the last.
    let mut victim = Victim::greeted(0);
    let read = victim.read(2);
    let twice = [
        c2h_data(0, read, 0, &[0; 512]),
        c2h_data(0, read, 0, &[0; 512]),
    ]
    .concat();
    victim.must_end_with(&twice, (OUT_OF_RANGE, 0));
    let mut victim = Victim::greeted(0);
    let read = victim.read(2);
    let more = [
        c2h_data(LAST_PDU, read, 0, &[0; 512]),
        c2h_data(0, read, 512, &[0; 512]),
    ]
    .concat();
    victim.must_end_with(&more, (SEQUENCE, 0));
}

#[test]
fn answers_for_identifiers_that_are_not_outstanding() {
    // Never sent; and, of the slot in use, an earlier and a later use.
    for wrong in [1, 3, 0x3FF, 0x400, 0xFC00] {
        let mut victim = Victim::greeted(0);
        let cid = victim.read(1) ^ wrong;
        victim.must_end_with(&response(cid, 0), (HEADER_FIELD, RESPONSE_CID));
        let mut victim = Victim::greeted(0);
        let cid = victim.read(1) ^ wrong;
        victim.must_end_with(
            &c2h_data(LAST_PDU, cid, 0, &[0; 512]),
            (HEADER_FIELD, CCCID),
        );
        let mut victim = Victim::greeted(0);
        let cid = victim.write(16) ^ wrong;
        victim.must_end_with(&r2t(cid, 0, 0, 512), (HEADER_FIELD, CCCID));
    }
    // A second answer, while the slot is free and while the next command has it.
    let mut victim = Victim::greeted(0);
    let first = victim.flush();
    victim.host.receive(&response(first, 0));
    assert_eq!(victim.completed().1, 0);
    let second = victim.flush();
    assert_ne!(first, second, "an identifier answers for one command only");
    victim.must_end_with(&response(first, 0), (HEADER_FIELD, RESPONSE_CID));
    // A command that was submitted and not yet sent.
    let mut victim = Victim::greeted(0);
    let sent = victim.flush();
    victim
        .host
        .submit(&command::flush(Nsid(1)), Vec::new(), Time::ZERO)
        .unwrap();
    victim.must_end_with(&response(sent + 1, 0), (HEADER_FIELD, RESPONSE_CID));
}

#[test]
fn success_without_all_of_the_data_is_not_believed() {
    let mut victim = Victim::greeted(0);
    let read = victim.read(2);
    let short = [c2h_data(LAST_PDU, read, 0, &[0; 512]), response(read, 0)].concat();
    victim.must_end_with(&short, (SEQUENCE, 0));
    let mut victim = Victim::greeted(0);
    let write = victim.write(16);
    victim.must_end_with(&response(write, 0), (SEQUENCE, 0));
}

#[test]
fn r2t_out_of_range_twice_or_for_a_command_that_writes_nothing() {
    type Case = (Vec<u8>, (u16, u32));
    let cases: [fn(u16) -> Case; 6] = [
        |cid| (r2t(cid, 0, 0, 8193), (OUT_OF_RANGE, 0)),
        |cid| (r2t(cid, 0, 8192, 1), (OUT_OF_RANGE, 0)),
        |cid| (r2t(cid, 0, u32::MAX, 2), (OUT_OF_RANGE, 0)),
        |cid| (r2t(cid, 0, 4096, 4096), (OUT_OF_RANGE, 0)),
        |cid| (r2t(cid, 0, 0, 0), (HEADER_FIELD, DATAL)),
        |cid| {
            (
                [r2t(cid, 0, 0, 4096), r2t(cid, 1, 4096, 4096)].concat(),
                (LIMIT, 0),
            )
        },
    ];
    for case in cases {
        let mut victim = Victim::greeted(0);
        let (bytes, fault) = case(victim.write(16));
        victim.must_end_with(&bytes, fault);
    }
    let mut victim = Victim::greeted(0);
    let read = victim.read(2);
    victim.must_end_with(&r2t(read, 0, 0, 512), (HEADER_FIELD, CCCID));
    // In the capsule already.
    let mut victim = Victim::greeted(0);
    let write = victim.write(1);
    victim.must_end_with(&r2t(write, 0, 0, 512), (OUT_OF_RANGE, 0));
    // The same data again, after they were sent.
    let mut victim = Victim::greeted(0);
    let write = victim.write(16);
    victim.host.receive(&r2t(write, 0, 0, 4096));
    assert_eq!(victim.sent().len(), 1);
    victim.must_end_with(&r2t(write, 0, 0, 4096), (OUT_OF_RANGE, 0));
}

#[test]
fn cve_2022_48686_a_header_digest_error_ends_the_connection_at_once() {
    // Told with the digest that came.
    for bit in 0..28 * 8 {
        let mut victim = Victim::greeted(3);
        let flush = victim.flush();
        let honest = digested(&response(flush, 0));
        let mut bytes = honest.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        victim.host.receive(&[bytes.as_slice(), &honest].concat());
        let Some(Event::Fatal(HostError::Protocol(error))) = victim.host.next_event() else {
            panic!("bit {bit} was not noticed");
        };
        let received = u32::from_le_bytes(bytes[24..28].try_into().unwrap());
        match error.status {
            FatalErrorStatus::HEADER_DIGEST_ERROR => assert_eq!(error.information, received),
            // Type, flags, HLEN and PLEN are wrong before the digest is reached; PDO is not looked at.
            status => assert!(status.0 == HEADER_FIELD && bit < 64, "bit {bit}: {error}"),
        }
        victim.sent();
        victim.must_be_deaf();
    }
}

/// The data's fails its command alone, whose header was right: whatever the response says, and with its neighbours unharmed.
#[test]
fn cve_2022_48686_a_data_digest_error_fails_its_command() {
    for flags in [LAST_PDU | SUCCESS, LAST_PDU] {
        let mut victim = Victim::greeted(3);
        let (hurt, sound) = (victim.read(1), victim.read(1));
        let mut stream = digested(&c2h_data(flags, hurt, 0, &[5; 512]));
        stream[100] ^= 1;
        if flags == LAST_PDU {
            stream.extend(digested(&response(hurt, 0)));
        }
        let honest = digested(&c2h_data(LAST_PDU | SUCCESS, sound, 0, &[6; 512]));
        victim.host.receive(&[stream, honest].concat());
        let (slot, status, received) = victim.completed();
        assert_eq!((slot, status, received), (Slot(0), 0x22, 0));
        assert_eq!(victim.host.connection.data_digest_errors(), 1);
        let (slot, status, received) = victim.completed();
        assert_eq!((slot, status, received), (Slot(1), 0, 512));
        assert_eq!(victim.host.buffer(slot), [6; 512]);
    }
}

/// CVE-2022-48789: error recovery while commands are outstanding; each is left to the driver, none completes any more.
#[test]
fn cve_2022_48789_teardown_with_commands_in_flight() {
    let mut victim = Victim::greeted(0);
    let reads = [victim.read(1), victim.read(1)];
    let write = victim.write(16);
    victim.host.receive(&r2t(write, 0, 0, 8192));
    // One completion before the error stands; nothing after it.
    let stream = [
        c2h_data(LAST_PDU | SUCCESS, reads[0], 0, &[0; 512]),
        pdu(0x0F, 0, 24, 0, &[0; 16]),
        c2h_data(LAST_PDU | SUCCESS, reads[1], 0, &[0; 512]),
    ];
    victim.host.receive(&stream.concat());
    assert_eq!(victim.completed().1, 0);
    assert!(matches!(victim.host.next_event(), Some(Event::Fatal(_))));
    assert_eq!(victim.host.next_event(), None);
    // The granted data are not sent any more; only the TermReq is.
    let sent = victim.sent();
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].pdu_type(), H2C_TERM);
    assert_eq!(victim.host.connection.outstanding(), 2);
    victim.must_be_deaf();
}

/// An answer that comes while the command's data are still on their way out: the buffer is the driver's only once they have left.
#[test]
fn a_completion_waits_for_the_data_that_are_on_their_way() {
    let mut victim = Victim::greeted(0);
    let cid = {
        let command = command::write(Nsid(1), blocks(1));
        victim
            .host
            .submit(&command, vec![7; 512], Time::ZERO)
            .unwrap();
        let mut batch = TxBatch::with_capacity(4);
        victim.host.connection.transmit(&mut batch);
        let header = batch.header(&batch.items()[0]);
        u16::from_le_bytes([header[10], header[11]])
    };
    victim.host.receive(&response(cid, 0));
    assert_eq!(victim.host.next_event(), None);
    victim.host.connection.transmitted(Slot(0));
    assert_eq!(victim.completed(), (Slot(0), 0, 0));
    // The same with data that an R2T asked for and that were not handed out yet.
    let write = victim.write(16);
    victim
        .host
        .receive(&[r2t(write, 0, 0, 8192), response(write, 0x281)].concat());
    assert_eq!(victim.host.next_event(), None);
    assert_eq!(victim.sent().len(), 2);
    assert_eq!(victim.completed().1, 0x281);
}

#[test]
fn a_targets_term_request_ends_the_connection_without_an_answer() {
    let mut victim = Victim::greeted(0);
    victim.flush();
    let mut rest = vec![0; 16];
    rest[0] = 4;
    rest[2] = 9;
    victim.host.receive(&pdu(C2H_TERM, 0, 24, 0, &rest));
    let expected = HostError::Terminated {
        status: FatalErrorStatus::DATA_TRANSFER_OUT_OF_RANGE,
        information: 9,
    };
    assert_eq!(victim.host.next_event(), Some(Event::Fatal(expected)));
    victim.must_be_deaf();
}

#[test]
fn cve_2025_21927_every_hlen_of_every_pdu_with_and_without_digests() {
    for (pdu_type, right) in [
        (IC_RESP, 128),
        (C2H_TERM, 24),
        (CAPSULE_RESP, 24),
        (C2H_DATA, 24),
        (R2T, 24),
    ] {
        for hlen in (0..=255).filter(|&hlen| hlen != right) {
            for dgst in 0..4 {
                let mut victim = Victim::greeted(dgst);
                victim
                    .host
                    .submit(&command::flush(Nsid(1)), Vec::new(), Time::ZERO)
                    .unwrap();
                victim.sent();
                let bytes = pdu(pdu_type, dgst, hlen, 0, &[0; 300]);
                victim.must_end_with(&bytes, (HEADER_FIELD, HLEN));
            }
        }
    }
}

#[test]
fn an_icresp_that_cannot_be_kept() {
    let options = HostOptions::default();
    let mut wrong_version = ic(IC_RESP, 0, 0, 4096);
    wrong_version[8] = 1;
    Victim::waiting(options).must_end_with(&wrong_version, (6, 8));
    Victim::waiting(options).must_end_with(&ic(IC_RESP, 32, 0, 4096), (HEADER_FIELD, 10));
    Victim::waiting(options).must_end_with(&ic(IC_RESP, 0, 1, 4096), (HEADER_FIELD, 11));
    for maxh2cdata in [0, 4092, 4097, u32::MAX] {
        let bytes = ic(IC_RESP, 0, 0, maxh2cdata);
        Victim::waiting(options).must_end_with(&bytes, (HEADER_FIELD, 12));
    }
    Victim::waiting(options).must_end_with(&response(0, 0), (SEQUENCE, 0));
    Victim::greeted(0).must_end_with(&ic(IC_RESP, 0, 0, 4096), (SEQUENCE, 0));
    // Before the ICReq was even sent.
    let mut early = HostQueue::new(options, Time::ZERO);
    early.receive(&ic(IC_RESP, 0, 0, 4096));
    assert!(matches!(
        early.next_event(),
        Some(Event::Fatal(HostError::Protocol(_)))
    ));
}

#[test]
fn silence_ends_the_handshake_and_a_command() {
    let mut waiting = Victim::waiting(HostOptions::default()).host;
    waiting
        .connection
        .tick(Time::ZERO + Duration::from_millis(9_999));
    assert_eq!(waiting.next_event(), None);
    waiting
        .connection
        .tick(Time::ZERO + Duration::from_secs(10));
    assert_eq!(
        waiting.next_event(),
        Some(Event::Fatal(HostError::HandshakeTimeout))
    );

    let mut victim = Victim::greeted(0);
    let cid = Cid(victim.flush());
    victim
        .host
        .connection
        .tick(Time::ZERO + Duration::from_millis(29_999));
    assert_eq!(victim.host.next_event(), None);
    victim
        .host
        .connection
        .tick(Time::ZERO + Duration::from_secs(30));
    let after = Duration::from_secs(30);
    let expected = HostError::CommandTimeout { cid, after };
    assert_eq!(victim.host.next_event(), Some(Event::Fatal(expected)));
    victim.must_be_deaf();
}
