//! Mixed namespaces over the wire: the data of a write that is refused are never asked for.

#![allow(
    clippy::unwrap_used,
    reason = "a failure of a test is a panic with its line"
)]

mod support;

use frontend_nvme::conformance::{Queue, Target, memory};
use std::time::Duration;
use support::on;
use support::raw::TcpQueue;

use namespace::{Identity, Namespace};
use nvme_spec::Status;
use reactor::RingConfig;
use reactor::buf::PoolConfig;

const HOST: &str = "nqn.2026-11.io.example:host";
const SUCCESS: u16 = 0;
const READ_ONLY: u16 = Status::WRITE_TO_READ_ONLY_RANGE.dnr().to_wire() >> 1;
const FUSED_FAILED: u16 = Status::FUSED_FAILED.to_wire() >> 1;
const COMPARE: u8 = 0x05;
const WRITE: u8 = 0x01;
/// The first block of the part that may be written: the part before it has 256, as has the one behind.
const ROOM: u64 = 256;

/// 1 MiB that nobody may write, and 1 MiB of room.
fn mixed() -> Namespace {
    let part = |name: &[u8]| Namespace::of_store(1, memory(), Identity::of_raw("test", name), 4096);
    let mut fixed = part(b"fixed");
    fixed.write_protected = true;
    Namespace::mixed(1, "mixed".to_owned(), vec![fixed, part(b"room")]).unwrap()
}

fn connected() -> (Target, Queue, Queue) {
    let target = Target::start_all(
        &on(),
        vec![mixed()],
        RingConfig::default(),
        PoolConfig::default(),
    );
    let (admin, cntlid) = Queue::admin(&target.place, HOST, Duration::ZERO);
    let queue = Queue::io(&target.place, HOST, cntlid, 1);
    (target, admin, queue)
}

/// What comes next is the answer: `response` takes nothing else, an R2T the least.
#[test]
fn a_write_to_what_nobody_may_write_is_refused_before_its_data_are_asked_for() {
    let (_target, _admin, mut queue) = connected();
    for (lba, blocks) in [(0, 1), (ROOM - 1, 1), (ROOM - 1, 2), (0, 200)] {
        let cid = queue.send_long_write(lba, blocks);
        let answer = queue.response();
        assert_eq!(
            (answer.cid, answer.status),
            (cid, READ_ONLY),
            "{lba}+{blocks}"
        );
    }
    // Data that came with the capsule are refused as well, and the room is still there.
    let answer = queue.bring(WRITE, 1, [0, 0, 0], &[7; 4096]);
    assert_eq!(answer.status, READ_ONLY);
    let cid = queue.write(ROOM, 7);
    let answer = queue.response();
    assert_eq!((answer.cid, answer.status), (cid, SUCCESS));
    assert_eq!(queue.read(ROOM), [7; 4096]);
    assert_eq!(queue.read(ROOM - 1), [0; 4096]);
}

#[test]
fn nor_are_those_of_a_fused_operations_halves() {
    let (_target, _admin, mut queue) = connected();
    let compare = queue.send_remote_half(1, COMPARE, ROOM - 1, 2);
    let write = queue.send_remote_half(2, WRITE, ROOM - 1, 2);
    let answers = [queue.response(), queue.response()];
    let answers = answers.map(|answer| (answer.cid, answer.status));
    assert_eq!(answers, [(write, READ_ONLY), (compare, FUSED_FAILED)]);
    // Their slots are free again, and a pair that stays in the room is carried out.
    let compare = queue.send_remote_half(1, COMPARE, ROOM, 1);
    let write = queue.send_remote_half(2, WRITE, ROOM, 1);
    queue.finish_writes(&[compare, write], |half| match half {
        0 => vec![0; 4096],
        _ => vec![9; 4096],
    });
    assert_eq!(queue.read(ROOM), [9; 4096]);
}
