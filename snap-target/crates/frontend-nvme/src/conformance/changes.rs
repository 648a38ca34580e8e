//! What is served changes while hosts use it: each change is in force when its call returns, and hosts are told.

use std::sync::mpsc;
use std::time::Duration;

use nvme_spec::{Nsid, Status};

use super::served::{Target, disk, nqn};
use super::{Gate, On, Queue, memory};

const HOST: &str = "nqn.2026-11.io.example:host";
/// Namespace Attribute Notices.
const NAMESPACES: u32 = 1 << 8;
/// DW0 of their event: notice, which one, log page.
const NAMESPACES_CHANGED: u32 = 0x0004_0002;
const INVALID_FIELD: u16 = Status::INVALID_FIELD.dnr().to_wire() >> 1;

/// Takes the event that a queue waits for, and the namespaces that changed.
fn changed(admin: &mut Queue, request: u16) -> Vec<u32> {
    let event = admin.response();
    assert_eq!(
        (event.cid, event.dw0, event.status),
        (request, NAMESPACES_CHANGED, 0)
    );
    let page = admin.log_page(0x04, 4096);
    let entries = page.chunks_exact(4);
    entries
        .map(|entry| u32::from_le_bytes(entry.try_into().unwrap()))
        .take_while(|&nsid| nsid != 0)
        .collect()
}

/// It comes, is used, and goes; its hosts are told each time, and nothing of it is served afterwards.
pub(super) fn a_namespace_comes_and_goes_under_its_hosts(on: &On) {
    let (target, place) = Target::serving(on);
    let (mut admin, cntlid) = Queue::admin(&place, HOST, Duration::ZERO);
    let mut io = Queue::io(&place, HOST, cntlid, 2);
    admin.notify(NAMESPACES);
    for round in 1..=3 {
        let request = admin.send_event_request();
        target.attach(&disk(1, memory())).unwrap();
        assert_eq!(changed(&mut admin, request), [1]);
        let cid = io.write(3, round);
        assert_eq!(
            (io.response_to(cid).status, io.read(3)),
            (0, vec![round; 4096])
        );
        let request = admin.send_event_request();
        target.admin.detach(&nqn(), Nsid(1)).unwrap();
        assert_eq!(io.read_of(3, 1), Err(INVALID_FIELD));
        assert_eq!(changed(&mut admin, request), [1]);
    }
}

/// A namespace goes while the store has a write of it: the call returns when the write has ended, what comes meanwhile is refused, and the write is answered
/// with what came of it.
pub(super) fn a_namespace_goes_when_what_was_begun_has_ended(on: &On) {
    let (target, place) = Target::serving(on);
    let (gate, store) = Gate::over(memory(), 1);
    target.attach(&disk(1, store.clone())).unwrap();
    target.attach(&disk(2, memory())).unwrap();
    let (_admin, cntlid) = Queue::admin(&place, HOST, Duration::ZERO);
    let mut io = Queue::io(&place, HOST, cntlid, 2);
    let held = io.write(7, 0xAA);
    gate.wait_held(1);
    let admin = target.admin.clone();
    let detaching = std::thread::spawn(move || admin.detach(&nqn(), Nsid(1)));
    // Not in force at once, and from some time on for good; another namespace notices nothing.
    loop {
        let cid = io.send_plain(0x00, 1, [0, 0, 0]);
        if io.response_to(cid).status == INVALID_FIELD {
            break;
        }
    }
    assert_eq!(io.flush_of(2).status, 0);
    assert!(!detaching.is_finished(), "the store has a write of it");
    gate.open();
    detaching.join().unwrap().unwrap();
    assert_eq!(io.response_to(held).status, 0);
    assert_eq!(io.read_of(7, 1), Err(INVALID_FIELD));
    target.attach(&disk(1, store)).unwrap();
    assert_eq!(io.read(7), [0xAA; 4096]);
}

/// Where reads are under way at every moment, each ends well or says that the namespace is not there. Every other time it stays away until a read has said so,
/// the times between it is back at once.
pub(super) fn a_namespace_goes_and_comes_under_reads(on: &On) {
    let (target, place) = Target::serving(on);
    let store = memory();
    target.attach(&disk(1, store.clone())).unwrap();
    let (_admin, cntlid) = Queue::admin(&place, HOST, Duration::ZERO);
    let mut io = Queue::io(&place, HOST, cntlid, 2);
    let cid = io.write(0, 0x5A);
    assert_eq!(io.response_to(cid).status, 0);
    let admin = target.admin.clone();
    let (was_gone, missed) = mpsc::channel();
    let changing = std::thread::spawn(move || {
        for round in 0..10 {
            admin.detach(&nqn(), Nsid(1)).unwrap();
            if round % 2 == 0 {
                missed.recv().unwrap();
            }
            let disk = disk(1, store.clone());
            admin
                .attach(&nqn(), disk, nvme::controller::Visibility::All)
                .unwrap();
            // What was missed until now says nothing of the next time.
            missed.try_iter().for_each(drop);
        }
    });
    while !changing.is_finished() {
        io.send_reads(16, 0, 1);
        for _ in 0..16 {
            let answer = io.answer();
            match answer.response.status {
                0 => assert!(answer.data == [0x5A; 4096]),
                status => {
                    assert_eq!(status, INVALID_FIELD);
                    // Nobody takes it once the last round is over.
                    let _ = was_gone.send(());
                }
            }
        }
    }
    changing.join().unwrap();
    assert_eq!(io.read(0), [0x5A; 4096]);
}
