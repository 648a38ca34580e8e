//! Both ends, each reading what the other's machine wrote. Payload is stepped over, as a driver that receives into place would.

use crate::target::{TargetEnd, read};
use crate::{DEPTH, READS};
use nvme::Time;
use nvme::queue::Completion;
use nvme::tcp::batch::TxBatch;
use nvme::tcp::host::{Command, Connection, Event, HostOptions, Transfer, Want};
use nvme::tcp::target::{Event as TargetEvent, SuccessFlag, Want as TargetWant};
use nvme_spec::AdminOpcode;
use nvme_spec::fabrics::{ConnectData, ConnectSqe, FabricsType};
use std::hint::black_box;
use zerocopy::FromZeros;

const BLOCK_BYTES: u32 = 4096;

/// Reads [`READS`] blocks, [`DEPTH`] at a time.
pub fn reads(digest: bool) -> impl FnMut() {
    let mut ends = BothEnds::connected(digest);
    move || {
        for round in 0..READS / u32::from(DEPTH) {
            ends.round(u64::from(round));
        }
    }
}

struct BothEnds {
    host: Connection,
    host_batch: TxBatch,
    target: TargetEnd,
    /// Header bytes on their way, either way.
    wire: Vec<u8>,
    /// Lengths of the PDUs in it that the host reads: header, payload.
    pdus: Vec<(usize, u32)>,
}

impl BothEnds {
    fn connected(digest: bool) -> BothEnds {
        let options = HostOptions {
            depth: DEPTH,
            header_digest: digest,
            ..HostOptions::default()
        };
        let mut ends = BothEnds {
            host: Connection::new(options, Time::ZERO),
            host_batch: TxBatch::with_capacity(2 * usize::from(DEPTH)),
            target: TargetEnd::new(SuccessFlag::WithoutFlowControl),
            wire: Vec::with_capacity(64 * 1024),
            pdus: Vec::with_capacity(2 * usize::from(DEPTH)),
        };
        ends.host_sends();
        assert_eq!(ends.target.connection.headers(&ends.wire), ends.wire.len());
        ends.target_sends();
        assert!(matches!(ends.host.next_event(), Some(Event::Ready(_))));
        ends.connect();
        ends
    }

    fn connect(&mut self) {
        let mut connect = ConnectSqe::new_zeroed();
        connect.opcode = AdminOpcode::FABRICS.0;
        connect.fctype = FabricsType::CONNECT.0;
        let data_bytes = u32::try_from(size_of::<ConnectData>()).expect("1024");
        let command = Command {
            sqe: *connect.as_sqe(),
            transfer: Transfer::Out(data_bytes),
        };
        self.host.submit(&command, Time::ZERO).expect("a free slot");
        self.host_sends();
        let connection = &mut self.target.connection;
        connection.headers(&self.wire);
        let Some(TargetEvent::Connect { slot }) = connection.next_event() else {
            panic!("no Connect")
        };
        let TargetWant::Payload { len, .. } = connection.want() else {
            panic!("Connect without data")
        };
        connection.payload(len, 0);
        assert_eq!(
            connection.next_event(),
            Some(TargetEvent::DataReady { slot })
        );
        connection.established(DEPTH, false);
        connection.authenticated();
        connection.respond(slot, Completion::SUCCESS, 0);
        self.target_sends();
        assert!(matches!(
            self.host.next_event(),
            Some(Event::Completed { .. })
        ));
    }

    fn round(&mut self, round: u64) {
        for index in 0..u64::from(DEPTH) {
            let command = Command {
                sqe: read(round + index * 7),
                transfer: Transfer::In(BLOCK_BYTES),
            };
            self.host.submit(&command, Time::ZERO).expect("a free slot");
        }
        self.host_sends();
        self.target.take(&self.wire);
        self.target_sends();
        for _ in 0..DEPTH {
            let Some(Event::Completed { received, .. }) = self.host.next_event() else {
                panic!("a read is missing")
            };
            assert_eq!(black_box(received), BLOCK_BYTES);
        }
    }

    /// The host's PDUs go on the wire.
    fn host_sends(&mut self) {
        self.wire.clear();
        self.host.transmit(&mut self.host_batch);
        for item in self.host_batch.items() {
            self.wire.extend_from_slice(self.host_batch.header(item));
            if let Some(slot) = item.ends {
                self.host.transmitted(slot);
            }
        }
        self.host_batch.clear();
    }

    /// The target's PDUs go to the host.
    fn target_sends(&mut self) {
        let BothEnds {
            host,
            target,
            wire,
            pdus,
            ..
        } = self;
        wire.clear();
        pdus.clear();
        target.send(|header, payload| {
            wire.extend_from_slice(header);
            pdus.push((header.len(), payload));
        });
        let mut at = 0;
        for &(header, payload) in &*pdus {
            host.headers(&wire[at..at + header]);
            at += header;
            if payload > 0 {
                assert!(matches!(host.want(), Want::Payload { .. }));
                host.payload(payload, 0);
            }
        }
    }
}
