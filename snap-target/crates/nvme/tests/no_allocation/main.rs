//! Once a connection is made, no command allocates: shown by an allocator that counts, over reads, writes by R2T, writes in
//! the capsule and flushes, at full depth and with slots recycled many times.

mod rdma;

use nvme::Time;
use nvme::digest::crc32c;
use nvme::queue::Completion;
use nvme::tcp::batch::{Slot, TxBatch};
use nvme::tcp::pdu::Framing;
use nvme::tcp::target::{Connection, Event, TargetLimits, Want};
use nvme_spec::fabrics::{ConnectData, FabricsType};
use nvme_spec::tcp::{
    CAPSULE_CMD_BYTES, CapsuleCmd, DATA_HEADER_BYTES, DGST_DATA, DGST_HEADER, DIGEST_BYTES,
    FLAG_LAST_PDU, H2cData, IC_BYTES, IcReq, PduType,
};
use nvme_spec::{AdminOpcode, Cid, IoOpcode, SglDescriptor, Sqe, U16, U32};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use zerocopy::{FromZeros, IntoBytes};

// Of this thread: the harness's own allocates as well.
thread_local!(static ALLOCATIONS: Cell<u64> = const { Cell::new(0) });

struct Counting;

// SAFETY: every call goes to the system's allocator with the arguments it came with; counting touches no memory but the counter.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promises about `layout` are those that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: `memory` came from `alloc` above, and so from the system's allocator, with this layout.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const DEPTH: u16 = 32;
const BYTES: u32 = 4096;
const DIGESTS: Framing = Framing {
    header_digest: true,
    data_digest: true,
    alignment_z: 0,
};

#[test]
fn no_command_allocates() {
    rdma::no_command_allocates();
    rdma::no_command_of_a_host_allocates();
    let mut connection = connected();
    let mut batch = TxBatch::with_capacity(64);
    let kinds: [fn(u16) -> Vec<u8>; 4] = [read, write, write_in_capsule, flush];
    let wires: Vec<Vec<u8>> = kinds
        .iter()
        .map(|kind| (0..DEPTH).flat_map(kind).collect())
        .collect();
    let payload = [0x5A; BYTES as usize];
    let payload_digest = crc32c(&payload).to_le_bytes();
    let mut commands = 0;
    let before = ALLOCATIONS.get();
    for _ in 0..10 {
        for (kind, wire) in wires.iter().enumerate() {
            feed(
                &mut connection,
                wire,
                &mut |connection, event| match event {
                    Event::Command { slot } if kind == 1 => connection
                        .request_data(slot, Time::ZERO)
                        .expect("a write of 4 KiB"),
                    Event::Command { .. } if kind == 2 => {}
                    Event::Command { slot } => {
                        commands += 1;
                        connection.respond(
                            slot,
                            Completion::SUCCESS,
                            if kind == 0 { BYTES } else { 0 },
                        );
                    }
                    Event::DataReady { slot } => {
                        commands += 1;
                        connection.respond(slot, Completion::SUCCESS, 0);
                    }
                    event => panic!("{event:?}"),
                },
            );
            send(&mut connection, &mut batch);
            if kind == 1 {
                for cid in 0..DEPTH {
                    let slot = connection
                        .find(Cid(cid))
                        .expect("a write that waits for its data");
                    let header = h2c_data(cid, slot.0);
                    for part in [&header[..], &payload, &payload_digest] {
                        feed(&mut connection, part, &mut |connection, event| {
                            let Event::DataReady { slot } = event else {
                                panic!("{event:?}")
                            };
                            commands += 1;
                            connection.respond(slot, Completion::SUCCESS, 0);
                        });
                    }
                }
                send(&mut connection, &mut batch);
            }
        }
    }
    let allocations = ALLOCATIONS.get() - before;
    assert_eq!(commands, 10 * 4 * u32::from(DEPTH));
    assert_eq!(connection.occupied().count(), 0);
    assert_eq!(allocations, 0);
}

fn feed(
    connection: &mut Connection,
    mut bytes: &[u8],
    handle: &mut dyn FnMut(&mut Connection, Event),
) {
    loop {
        match connection.want() {
            Want::Event => {
                if let Some(event) = connection.next_event() {
                    handle(connection, event);
                }
            }
            Want::Header(_) | Want::Payload { .. } if bytes.is_empty() => return,
            Want::Header(_) => {
                let used = connection.headers(bytes);
                bytes = &bytes[used..];
            }
            Want::Payload { len, .. } => {
                let (payload, rest) = bytes.split_at(len as usize);
                connection.payload(len, crc32c(payload));
                bytes = rest;
            }
            other => panic!("{other:?}"),
        }
    }
}

fn send(connection: &mut Connection, batch: &mut TxBatch) {
    while connection.has_outgoing() {
        connection.transmit(batch);
        for index in 0..batch.items().len() {
            batch.set_data_digest(index, 0);
        }
        for item in batch.items() {
            if let Some(slot) = item.ends {
                connection.transmitted(slot);
            }
        }
        batch.clear();
    }
}

fn connected() -> Connection {
    let mut connection = Connection::new(&TargetLimits::default(), Time::ZERO);
    let mut request = IcReq::new_zeroed();
    request.common = Framing::default().common(PduType::IC_REQ, 0, IC_BYTES);
    request.dgst = DGST_HEADER | DGST_DATA;
    assert_eq!(connection.headers(request.as_bytes()), IC_BYTES);
    let mut sqe = Sqe {
        opcode: AdminOpcode::FABRICS.0,
        ..in_capsule(0, 1024)
    };
    sqe.nsid = U32::new(u32::from(FabricsType::CONNECT.0));
    feed(
        &mut connection,
        &capsule(sqe, ConnectData::new_zeroed().as_bytes()),
        &mut |connection, event| {
            if event == (Event::DataReady { slot: Slot(0) }) {
                connection.established(DEPTH, true);
                connection.authenticated();
                connection.respond(Slot(0), Completion::SUCCESS, 0);
            }
        },
    );
    send(&mut connection, &mut TxBatch::with_capacity(4));
    connection
}

fn read(cid: u16) -> Vec<u8> {
    capsule(transport(IoOpcode::READ, cid), &[])
}

fn write(cid: u16) -> Vec<u8> {
    capsule(transport(IoOpcode::WRITE, cid), &[])
}

fn write_in_capsule(cid: u16) -> Vec<u8> {
    capsule(
        Sqe {
            opcode: IoOpcode::WRITE.0,
            ..in_capsule(cid, BYTES)
        },
        &[0x5A; BYTES as usize],
    )
}

fn flush(cid: u16) -> Vec<u8> {
    capsule(
        Sqe {
            opcode: IoOpcode::FLUSH.0,
            ..in_capsule(cid, 0)
        },
        &[],
    )
}

fn transport(opcode: IoOpcode, cid: u16) -> Sqe {
    Sqe {
        opcode: opcode.0,
        dptr: SglDescriptor::transport(BYTES),
        ..in_capsule(cid, 0)
    }
}

fn in_capsule(cid: u16, bytes: u32) -> Sqe {
    Sqe {
        flags: 0b01 << 6,
        cid: U16::new(cid),
        dptr: SglDescriptor::in_capsule(0, bytes),
        ..Sqe::ZERO
    }
}

fn capsule(sqe: Sqe, data: &[u8]) -> Vec<u8> {
    let common = match u32::try_from(data.len()).expect("short") {
        0 => DIGESTS.common(PduType::CAPSULE_CMD, 0, CAPSULE_CMD_BYTES),
        bytes => DIGESTS.common_with_data(PduType::CAPSULE_CMD, 0, CAPSULE_CMD_BYTES, bytes),
    };
    pdu(CapsuleCmd { common, sqe }.as_bytes(), data)
}

/// The header with its digest; payload and its digest follow.
fn h2c_data(cid: u16, ttag: u16) -> [u8; DATA_HEADER_BYTES + DIGEST_BYTES] {
    let header = H2cData {
        common: DIGESTS.common_with_data(
            PduType::H2C_DATA,
            FLAG_LAST_PDU,
            DATA_HEADER_BYTES,
            BYTES,
        ),
        cccid: U16::new(cid),
        ttag: U16::new(ttag),
        datao: U32::ZERO,
        datal: U32::new(BYTES),
        reserved_20: [0; 4],
    };
    let mut bytes = [0; DATA_HEADER_BYTES + DIGEST_BYTES];
    bytes[..DATA_HEADER_BYTES].copy_from_slice(header.as_bytes());
    bytes[DATA_HEADER_BYTES..].copy_from_slice(&crc32c(header.as_bytes()).to_le_bytes());
    bytes
}

fn pdu(header: &[u8], data: &[u8]) -> Vec<u8> {
    let mut bytes = header.to_vec();
    bytes.extend_from_slice(&crc32c(header).to_le_bytes());
    if !data.is_empty() {
        bytes.extend_from_slice(data);
        bytes.extend_from_slice(&crc32c(data).to_le_bytes());
    }
    bytes
}
