//! The same for NVMe/RDMA.

use super::{ALLOCATIONS, BYTES, DEPTH};
use nvme::Time;
use nvme::initiator::{Command, Transfer};
use nvme::queue::{Completion, QueueId, Slot};
use nvme::rdma::host;
use nvme::rdma::target::{Connection, Event, Operation, ReceiveId, Request, TargetLimits, WorkId};
use nvme_spec::fabrics::{ConnectSqe, FabricsType};
use nvme_spec::rdma::KeyedDataBlock;
use nvme_spec::{AdminOpcode, IoOpcode, SglDescriptor, Sqe, U16};
use zerocopy::{FromZeros, IntoBytes};

pub fn no_command_allocates() {
    let mut connection = connected();
    let keyed = KeyedDataBlock::new(0x1000, BYTES, 7, true).expect("4 KiB");
    let kinds = [
        (IoOpcode::READ, zerocopy::transmute!(keyed)),
        (IoOpcode::WRITE, zerocopy::transmute!(keyed)),
        (IoOpcode::WRITE, SglDescriptor::in_capsule(0, BYTES)),
        (IoOpcode::FLUSH, SglDescriptor::EMPTY),
    ];
    let mut ended = 0;
    let before = ALLOCATIONS.get();
    for _ in 0..10 {
        for (opcode, dptr) in kinds {
            for cid in 0..DEPTH {
                let sqe = Sqe {
                    opcode: opcode.0,
                    flags: 0b01 << 6,
                    cid: U16::new(cid),
                    dptr,
                    ..Sqe::ZERO
                };
                connection.capsule(ReceiveId(cid), sqe.as_bytes(), 64 + BYTES);
                serve(&mut connection);
            }
            ended += work(&mut connection);
        }
    }
    let allocated = ALLOCATIONS.get() - before;
    assert_eq!(ended, 4 * 10 * u32::from(DEPTH));
    assert_eq!(allocated, 0, "allocations in {ended} commands over RDMA");
}

/// Answers what there is.
fn serve(connection: &mut Connection) {
    while let Some(event) = connection.next_event() {
        match event {
            Event::Command { slot } => {
                let sqe = connection.command(slot);
                let remote = sqe.dptr.id().0 & 0x40 != 0;
                match IoOpcode(sqe.opcode) {
                    IoOpcode::READ => connection.respond(slot, Completion::SUCCESS, BYTES),
                    IoOpcode::WRITE if remote => connection
                        .request_data(slot, Time::ZERO)
                        .expect("a write of 4 KiB"),
                    IoOpcode::WRITE => {}
                    _ => connection.respond(slot, Completion::SUCCESS, 0),
                }
            }
            Event::CapsuleData { slot, .. } | Event::DataReady { slot } => {
                connection.respond(slot, Completion::SUCCESS, 0);
            }
            Event::DataLeft { .. } => {}
            event => panic!("{event:?}"),
        }
    }
}

/// Posts and completes until nothing is left; how many commands were answered.
fn work(connection: &mut Connection) -> u32 {
    let mut answered = 0;
    let mut told: Option<WorkId> = None;
    loop {
        while connection.next_receive().is_some() {}
        while let Some(work) = connection.next_work() {
            connection.posted(&work, BYTES, Time::ZERO);
            answered += u32::from(matches!(work.operation, Operation::Respond { .. }));
            told = work.signaled.then_some(work.id).or(told);
        }
        let Some(id) = told.take() else {
            return answered;
        };
        connection.completed(id);
        serve(connection);
    }
}

fn connected() -> Connection {
    let request = Request {
        queue: QueueId(1),
        entries: DEPTH,
        host_receives: DEPTH,
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
    assert!(matches!(
        connection.next_event(),
        Some(Event::CapsuleData { .. })
    ));
    connection.established(DEPTH, true);
    connection.authenticated();
    connection.respond(slot, Completion::SUCCESS, 0);
    assert_eq!(work(&mut connection), 1);
    connection
}

/// The host's end: submitted, sent with a window each, answered with and without their keys, which are invalidated here where the response did not.
pub fn no_command_of_a_host_allocates() {
    let mut connection = host::Connection::new(host::HostOptions {
        qid: QueueId(1),
        cntlid: 1,
        depth: DEPTH,
        in_capsule_bytes_max: BYTES,
        command_timeout: std::time::Duration::from_secs(10),
    });
    let mut accept = [0; 32];
    accept[2..4].copy_from_slice(&DEPTH.to_le_bytes());
    connection.accepted(&accept).expect("an acceptance");
    let kinds = [
        (IoOpcode::READ, Transfer::In(BYTES)),
        (IoOpcode::WRITE, Transfer::Out(BYTES)),
        (IoOpcode::WRITE, Transfer::Out(2 * BYTES)),
        (IoOpcode::FLUSH, Transfer::None),
    ];
    let mut ended = 0;
    let before = ALLOCATIONS.get();
    for round in 0..10 {
        for (opcode, transfer) in kinds {
            let sqe = Sqe {
                opcode: opcode.0,
                ..Sqe::ZERO
            };
            let command = Command { sqe, transfer };
            for _ in 0..DEPTH {
                connection.submit(&command, Time::ZERO).expect("room");
            }
            while let Some(capsule) = connection.next_capsule() {
                answer(&mut connection, capsule.slot, round % 2 == 0);
            }
            while let Some((slot, _)) = connection.next_invalidation() {
                connection.invalidated(slot);
            }
            while let Some(event) = connection.next_event() {
                assert!(matches!(event, host::Event::Completed { .. }), "{event:?}");
                ended += 1;
            }
        }
    }
    let allocated = ALLOCATIONS.get() - before;
    assert_eq!(ended, 4 * 10 * u32::from(DEPTH));
    assert_eq!(allocated, 0, "allocations in {ended} commands of a host");
}

/// Sends a command, and lets its Send end and its response come.
fn answer(connection: &mut host::Connection, slot: Slot, invalidates: bool) {
    let key = 0x100 + u32::from(slot.0);
    let grant = host::Grant {
        address: 0x1000,
        key,
        lasts: host::Lasts::AsTheCommand,
    };
    let sqe = connection.send(slot, Some(grant)).expect("the next one");
    connection.sent(slot);
    let mut cqe = [0; host::RESPONSE_BYTES];
    cqe[12..14].copy_from_slice(&sqe.cid.get().to_le_bytes());
    let has_key = sqe.dptr.id().0 == 0x4F;
    connection.response(&cqe, (invalidates && has_key).then_some(key));
}
