//! The ends over RDMA, each alone, with what comes from the other made beforehand: what a driver does but for the device's own calls.

use crate::target::{BLOCK_BYTES, TRANSFER_BYTES_MAX, namespaces, read};
use crate::{DEPTH, READS};
use nvme::Time;
use nvme::controller::{IoCommand, NamespaceSet, parse_io};
use nvme::initiator::{Command, Transfer};
use nvme::queue::{Completion, QueueId};
use nvme::rdma::host;
use nvme::rdma::target::{Connection, Event, ReceiveId, Request, TargetLimits, Want};
use nvme_spec::fabrics::{ConnectSqe, FabricsType};
use nvme_spec::rdma::KeyedDataBlock;
use nvme_spec::{AdminOpcode, SglDescriptor, Sqe, U16};
use std::hint::black_box;
use zerocopy::{FromZeros, IntoBytes};

/// Serves [`READS`] reads, [`DEPTH`] at a time.
pub fn reads() -> impl FnMut() {
    let mut connection = connected();
    let namespaces = namespaces();
    let capsules: Vec<Sqe> = (0..DEPTH).map(capsule).collect();
    move || {
        for _ in 0..READS / u32::from(DEPTH) {
            take(&mut connection, &capsules, &namespaces);
            assert_eq!(post(&mut connection), DEPTH);
        }
    }
}

/// Takes messages and answers each read.
#[inline(never)]
fn take(connection: &mut Connection, capsules: &[Sqe], namespaces: &NamespaceSet) {
    for (receive, sqe) in (0..).map(ReceiveId).zip(capsules) {
        assert_eq!(connection.want(), Want::Capsule);
        connection.capsule(receive, black_box(sqe.as_bytes()), 64);
        let Some(Event::Command { slot }) = connection.next_event() else {
            panic!("no command")
        };
        let transfer = connection.transfer(slot);
        let sqe = connection.command(slot);
        let parsed = parse_io(sqe, transfer, namespaces, TRANSFER_BYTES_MAX);
        let Ok(IoCommand::Read(range)) = parsed else {
            panic!("{parsed:?}")
        };
        connection.respond(slot, Completion::SUCCESS, black_box(range.bytes));
    }
}

/// Posts everything and lets it complete; says how many commands ended.
#[inline(never)]
fn post(connection: &mut Connection) -> u16 {
    while let Some(receive) = connection.next_receive() {
        black_box(receive);
    }
    let mut told = None;
    while let Some(work) = connection.next_work() {
        connection.posted(black_box(&work), BLOCK_BYTES, Time::ZERO);
        if work.signaled {
            connection.completed(work.id);
            told = Some(work.id);
        }
    }
    black_box(told);
    let mut left = 0;
    while let Some(event) = connection.next_event() {
        assert!(matches!(event, Event::DataLeft { .. }));
        left += 1;
    }
    left
}

fn capsule(cid: u16) -> Sqe {
    let block = KeyedDataBlock::new(u64::from(cid) << 12, BLOCK_BYTES, 7, true);
    Sqe {
        cid: U16::new(cid),
        dptr: zerocopy::transmute!(block.expect("4 KiB")),
        ..read(u64::from(cid) * 7)
    }
}

fn connected() -> Connection {
    let request = Request {
        queue: QueueId(1),
        entries: DEPTH,
        host_receives: 2 * DEPTH,
        reads_max: 4,
    };
    let mut connection = Connection::new(&TargetLimits::default(), &request, Time::ZERO);
    let mut connect = ConnectSqe::new_zeroed();
    connect.opcode = AdminOpcode::FABRICS.0;
    connect.flags = 0b01 << 6;
    connect.fctype = FabricsType::CONNECT.0;
    connect.qid = U16::new(1);
    connect.sqsize_z = U16::new(DEPTH - 1);
    connect.sgl = SglDescriptor::in_capsule(0, 1024);
    connection.capsule(ReceiveId(0), connect.as_bytes(), 64 + 1024);
    let Some(Event::Connect { slot }) = connection.next_event() else {
        panic!("no Connect")
    };
    assert!(connection.next_event().is_some(), "its data");
    connection.established(DEPTH, true);
    connection.authenticated();
    connection.respond(slot, Completion::SUCCESS, 0);
    let work = connection.next_work().expect("its response");
    connection.posted(&work, 0, Time::ZERO);
    connection.completed(work.id);
    assert_eq!(connection.next_event(), None);
    connection
}

/// Reads [`READS`] blocks as a host, [`DEPTH`] at a time.
pub fn host_reads() -> impl FnMut() {
    let mut connection = host::Connection::new(host::HostOptions {
        qid: QueueId(1),
        cntlid: 1,
        depth: DEPTH,
        in_capsule_bytes_max: 0,
        command_timeout: std::time::Duration::from_secs(10),
    });
    let mut accept = [0; 32];
    accept[2..4].copy_from_slice(&DEPTH.to_le_bytes());
    connection.accepted(&accept).expect("an acceptance");
    move || {
        for round in 0..READS / u32::from(DEPTH) {
            submit(&mut connection, u64::from(round));
            assert_eq!(answer(&mut connection), DEPTH);
        }
    }
}

#[inline(never)]
fn submit(connection: &mut host::Connection, round: u64) {
    for nth in 0..u64::from(DEPTH) {
        let command = Command {
            sqe: read(round + nth * 7),
            transfer: Transfer::In(BLOCK_BYTES),
        };
        connection.submit(&command, Time::ZERO).expect("room");
    }
}

/// Sends everything and has it answered; says how many commands ended.
#[inline(never)]
fn answer(connection: &mut host::Connection) -> u16 {
    while let Some(capsule) = connection.next_capsule() {
        let key = 0x100 + u32::from(capsule.slot.0);
        let grant = host::Grant {
            address: u64::from(capsule.slot.0) << 12,
            key,
            lasts: host::Lasts::AsTheCommand,
        };
        let sqe = connection.send(capsule.slot, Some(grant));
        let sqe = black_box(sqe.expect("the next one"));
        connection.sent(capsule.slot);
        let mut cqe = [0; host::RESPONSE_BYTES];
        cqe[12..14].copy_from_slice(&sqe.cid.get().to_le_bytes());
        connection.response(black_box(&cqe), Some(key));
    }
    let mut ended = 0;
    while let Some(event) = connection.next_event() {
        assert!(matches!(event, host::Event::Completed { .. }));
        ended += 1;
    }
    ended
}
