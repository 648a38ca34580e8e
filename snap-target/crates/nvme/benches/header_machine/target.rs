//! The target's end alone, fed with capsules made beforehand.

use crate::{DEPTH, READS};
use nvme::Time;
use nvme::controller::{IoCommand, NamespaceInfo, NamespaceSet, Protection, Visibility, parse_io};
use nvme::queue::Completion;
use nvme::tcp::batch::TxBatch;
use nvme::tcp::pdu::Framing;
use nvme::tcp::target::{Connection, Event, SuccessFlag, TargetLimits, Want};
use nvme_spec::fabrics::{ConnectData, ConnectSqe, FabricsType};
use nvme_spec::tcp::{CAPSULE_CMD_BYTES, CapsuleCmd, DGST_HEADER, IC_BYTES, IcReq, PduType};
use nvme_spec::{AdminOpcode, IoOpcode, Lba, Nsid, SglDescriptor, Sqe, U16, U32};
use std::hint::black_box;
use zerocopy::{FromZeros, IntoBytes};

pub const BLOCK_BYTES: u32 = 4096;
pub const TRANSFER_BYTES_MAX: u32 = 1 << 20;

#[derive(Clone, Copy)]
pub struct Options {
    pub digest: bool,
    pub flow_control: bool,
}

/// Serves [`READS`] reads, [`DEPTH`] at a time.
pub fn reads(options: Options) -> impl FnMut() {
    let mut end = TargetEnd::connected(options);
    let wire = capsules(options.digest);
    move || {
        for _ in 0..READS / u32::from(DEPTH) {
            end.take(&wire);
            let sent = end.send(|_, _| ());
            assert_eq!(sent, DEPTH);
        }
    }
}

/// The machine with what a driver has around it.
pub struct TargetEnd {
    pub connection: Connection,
    namespaces: NamespaceSet,
    pub batch: TxBatch,
}

impl TargetEnd {
    pub fn new(success_flag: SuccessFlag) -> TargetEnd {
        let limits = TargetLimits {
            success_flag,
            ..TargetLimits::default()
        };
        TargetEnd {
            connection: Connection::new(&limits, Time::ZERO),
            namespaces: namespaces(),
            batch: TxBatch::with_capacity(2 * usize::from(DEPTH)),
        }
    }

    fn connected(options: Options) -> TargetEnd {
        let mut end = TargetEnd::new(SuccessFlag::WithoutFlowControl);
        let hello = ic_req(options.digest);
        assert_eq!(end.connection.headers(&hello), hello.len());
        let capsule = connect_capsule(options.digest);
        assert_eq!(end.connection.headers(&capsule), capsule.len());
        let Some(Event::Connect { slot }) = end.connection.next_event() else {
            panic!("no Connect")
        };
        let Want::Payload { len, .. } = end.connection.want() else {
            panic!("Connect without data")
        };
        end.connection.payload(len, 0);
        assert_eq!(end.connection.next_event(), Some(Event::DataReady { slot }));
        end.connection.established(DEPTH, options.flow_control);
        end.connection.authenticated();
        end.connection.respond(slot, Completion::SUCCESS, 0);
        assert_eq!(end.send(|_, _| ()), 1);
        end
    }

    /// Takes header bytes and answers each read.
    #[inline(never)]
    pub fn take(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let used = self.connection.headers(bytes);
            bytes = &bytes[used..];
            while let Some(event) = self.connection.next_event() {
                let Event::Command { slot } = event else {
                    panic!("{event:?}")
                };
                let transfer = self.connection.transfer(slot);
                let parsed = parse_io(
                    self.connection.command(slot),
                    transfer,
                    &self.namespaces,
                    TRANSFER_BYTES_MAX,
                );
                let Ok(IoCommand::Read(range)) = parsed else {
                    panic!("{parsed:?}")
                };
                self.connection
                    .respond(slot, Completion::SUCCESS, black_box(range.bytes));
            }
        }
    }

    /// Hands out everything and lets it leave; says how many commands ended.
    #[inline(never)]
    pub fn send(&mut self, mut pdu: impl FnMut(&[u8], u32)) -> u16 {
        let mut ended = 0;
        while self.connection.has_outgoing() {
            self.connection.transmit(&mut self.batch);
            for item in self.batch.items() {
                pdu(
                    black_box(self.batch.header(item)),
                    item.payload.map_or(0, |payload| payload.len),
                );
                if let Some(slot) = item.ends {
                    self.connection.transmitted(slot);
                    ended += 1;
                }
            }
            self.batch.clear();
        }
        ended
    }
}

pub fn namespaces() -> NamespaceSet {
    let info = NamespaceInfo {
        nsid: Nsid(1),
        handle: 0,
        visibility: Visibility::All,
        block_count: 1 << 20,
        lba_bytes: BLOCK_BYTES,
        uuid: [1; 16],
        nguid: [2; 16],
        eui64: None,
        write_protected: true,
        protection: Protection::None,
        keeps_reservations: false,
        optimal_boundary_blocks: 0,
        optimal_blocks: 0,
        deallocated_reads_zeros: false,
        atomic_blocks: 0,
    };
    NamespaceSet::new(1, [info]).expect("one namespace of 4 KiB blocks")
}

/// A read of one block.
pub fn read(lba: u64) -> Sqe {
    let mut sqe = Sqe {
        opcode: IoOpcode::READ.0,
        flags: 0b01 << 6,
        nsid: U32::new(1),
        ..Sqe::ZERO
    };
    sqe.dptr = SglDescriptor::transport(BLOCK_BYTES);
    sqe.set_slba(Lba(lba));
    sqe
}

fn capsules(digest: bool) -> Vec<u8> {
    (0..DEPTH)
        .flat_map(|cid| {
            let sqe = Sqe {
                cid: U16::new(cid),
                ..read(u64::from(cid) * 7)
            };
            capsule(&sqe, digest)
        })
        .collect()
}

fn capsule(sqe: &Sqe, digest: bool) -> Vec<u8> {
    let framing = Framing {
        header_digest: digest,
        ..Framing::default()
    };
    let capsule = CapsuleCmd {
        common: framing.common(PduType::CAPSULE_CMD, 0, CAPSULE_CMD_BYTES),
        sqe: *sqe,
    };
    with_digest(capsule.as_bytes(), digest)
}

fn with_digest(header: &[u8], digest: bool) -> Vec<u8> {
    let mut bytes = header.to_vec();
    if digest {
        bytes.extend_from_slice(&nvme::digest::crc32c(header).to_le_bytes());
    }
    bytes
}

fn ic_req(digest: bool) -> Vec<u8> {
    let mut request = IcReq::new_zeroed();
    request.common = Framing::default().common(PduType::IC_REQ, 0, IC_BYTES);
    request.dgst = if digest { DGST_HEADER } else { 0 };
    request.as_bytes().to_vec()
}

fn connect_capsule(digest: bool) -> Vec<u8> {
    let data_bytes = u32::try_from(size_of::<ConnectData>()).expect("1024");
    let mut connect = ConnectSqe::new_zeroed();
    connect.opcode = AdminOpcode::FABRICS.0;
    connect.flags = 0b01 << 6;
    connect.fctype = FabricsType::CONNECT.0;
    connect.sgl = SglDescriptor::in_capsule(0, data_bytes);
    let framing = Framing {
        header_digest: digest,
        ..Framing::default()
    };
    let capsule = CapsuleCmd {
        common: framing.common_with_data(PduType::CAPSULE_CMD, 0, CAPSULE_CMD_BYTES, data_bytes),
        sqe: *connect.as_sqe(),
    };
    with_digest(capsule.as_bytes(), digest)
}
