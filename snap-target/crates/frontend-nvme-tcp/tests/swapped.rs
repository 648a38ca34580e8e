//! A number is another disk's by the time a command could begin: it is refused, and the other disk stays as it is.

#![allow(
    clippy::unwrap_used,
    reason = "a failure of a test is a panic with its line"
)]

mod support;

use frontend_nvme::conformance::served::{Target, disk, memory_of, nqn};
use frontend_nvme::conformance::{Queue, memory};
use std::sync::Arc;
use std::time::Duration;
use support::on;
use support::raw::{R2t, TcpQueue};

use namespace::{Identity, Namespace};
use nvme::controller::Visibility;
use nvme_spec::{Nsid, Status};

const HOST: &str = "nqn.2026-11.io.example:host";
const SUCCESS: u16 = 0;
const REFUSED: u16 = Status::INVALID_NAMESPACE.dnr().to_wire() >> 1;
const COMPARE: u8 = 0x05;
const REGISTER: u8 = 0x0D;

/// A target with one disk, and a host's admin and I/O queue.
fn connected() -> (Target, Queue, Queue) {
    let (target, place) = Target::serving(&on());
    target.attach(&disk(1, memory())).unwrap();
    let (admin, cntlid) = Queue::admin(&place, HOST, Duration::ZERO);
    let queue = Queue::io(&place, HOST, cntlid, 1);
    (target, admin, queue)
}

/// Another disk as number 1.
fn swap(target: &Target) {
    target.admin.detach(&nqn(), Nsid(1)).unwrap();
    let other = Identity::of_raw("test", b"another disk");
    let other = Namespace::of_store(1, memory(), other, 4096);
    target
        .admin
        .attach(&nqn(), Arc::new(other), Visibility::All)
        .unwrap();
}

#[test]
fn a_write_whose_data_come_late_is_not_for_the_disk_that_has_the_number_by_then() {
    let (target, _admin, mut queue) = connected();
    let write = queue.send_write(0);
    let r2t = queue.r2t();
    swap(&target);
    queue.send_data(r2t, 7);
    let answer = queue.response();
    assert_eq!((answer.cid, answer.status), (write, REFUSED));
    assert_eq!(queue.read(0), [0; 4096]);
}

#[test]
fn nor_are_the_halves_of_a_fused_operation() {
    let (target, _admin, mut queue) = connected();
    let compare = queue.send_remote_half(1, COMPARE, 0, 1);
    let write = queue.send_remote_half(2, 0x01, 0, 1);
    let asked = [queue.r2t(), queue.r2t()];
    swap(&target);
    // What the new disk has: the comparison would hold.
    for r2t in asked {
        queue.send_data(r2t, if r2t.cid == compare { 0 } else { 7 });
    }
    let mut answers = [queue.response(), queue.response()].map(|it| (it.cid, it.status));
    answers.sort_unstable();
    let failed = Status::FUSED_FAILED.to_wire() >> 1;
    assert_eq!(answers, [(compare, failed), (write, REFUSED)]);
    assert_eq!(queue.read(0), [0; 4096]);
}

#[test]
fn nor_is_a_registration() {
    let (target, _admin, mut queue) = connected();
    let (cid, r2t) = register_later(&mut queue);
    swap(&target);
    let keys: Vec<u8> = [0_u64, 0xA]
        .into_iter()
        .flat_map(u64::to_le_bytes)
        .collect();
    let pdu = queue.data_pdu(r2t, 0, &keys);
    queue.send_bytes(&pdu);
    let answer = queue.response();
    assert_eq!((answer.cid, answer.status), (cid, REFUSED));
    let report = queue.fetch(0x0E, 1, [15, 1, 0], 64).unwrap();
    assert_eq!(report[5..7], [0, 0], "nobody is registered");
}

/// A Register whose keys are asked for.
fn register_later(queue: &mut Queue) -> (u16, R2t) {
    let cid = queue.send_remote(REGISTER, 1, [0, 0, 0], 16);
    (cid, queue.r2t())
}

/// The disk was given another size meanwhile: it is the same one.
#[test]
fn a_disk_that_grows_takes_what_was_under_way() {
    let (target, place) = Target::serving(&on());
    let small = disk(1, memory());
    target.attach(&small).unwrap();
    let (_admin, cntlid) = Queue::admin(&place, HOST, Duration::ZERO);
    let mut queue = Queue::io(&place, HOST, cntlid, 1);
    let write = queue.send_write(3);
    let r2t = queue.r2t();
    let larger = Namespace::of_store(1, memory_of(2 << 20), Identity::of_raw("test", b""), 4096);
    target
        .admin
        .replace(&nqn(), Arc::new(larger.succeeding(&small)))
        .unwrap();
    queue.send_data(r2t, 7);
    let answer = queue.response();
    assert_eq!((answer.cid, answer.status), (write, SUCCESS));
    assert_eq!(queue.read(3), [7; 4096]);
}
