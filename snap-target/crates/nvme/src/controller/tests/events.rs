//! Asynchronous events and Abort.

use super::*;
use nvme_spec::Cid;

const AER: [u8; 64] = {
    let mut sqe = [0; 64];
    sqe[0] = 0x0C;
    sqe[1] = 0x40;
    sqe
};

/// DW0: type notice (2), information 00h, log page 04h.
const NAMESPACE_CHANGED: u32 = 0x0004_0002;
/// DW0: type notice (2), information F0h, log page 70h.
const DISCOVERY_CHANGED: u32 = 0x0070_F002;

fn request(host: &mut Host) -> Slot {
    assert_eq!(host.run(&AER, &[], &mut []), Outcome::Pending);
    Slot(host.next_slot - 1)
}

fn set_namespaces(host: &mut Host, epoch: u64, change: impl Fn(&mut NamespaceInfo)) {
    let mut infos: Vec<NamespaceInfo> = namespaces().iter().cloned().collect();
    infos.iter_mut().for_each(change);
    let nqn = Nqn::parse(SUBSYSTEM).unwrap();
    assert!(
        host.registry
            .set_namespaces(&nqn, &Arc::new(NamespaceSet::new(epoch, infos).unwrap()))
    );
}

fn changed_list(host: &mut Host, retain: bool) -> Vec<u32> {
    let sqe = command(
        0x02,
        0xFFFF_FFFF,
        0x04 | u32::from(retain) << 15 | 1023 << 16,
        0,
    );
    let list = host.fetch(&sqe, 4096).unwrap();
    (0..1024)
        .map(|entry| u32_at(&list, entry * 4))
        .take_while(|&nsid| nsid != 0)
        .collect()
}

/// Base, "Asynchronous Event Request": AERL.
#[test]
fn requests_are_limited() {
    let mut host = Host::io();
    for _ in 0..4 {
        request(&mut host);
    }
    assert_eq!(
        host.plain(&AER),
        Err(Status::ASYNC_EVENT_LIMIT_EXCEEDED.dnr())
    );
    assert_eq!(host.controller().next_async_event(), None);
}

/// One event until the log page is read, and none that the host did not enable.
#[test]
fn namespace_changes_are_told_once_until_read() {
    let mut host = Host::io();
    let first = request(&mut host);
    set_namespaces(&mut host, 8, |info| info.block_count += 1);
    assert_eq!(host.controller().next_async_event(), None, "not enabled");
    assert_eq!(host.plain(&command(0x09, 0, 0x0B, 0x100)), Ok(0));
    set_namespaces(&mut host, 9, |info| {
        info.block_count += u64::from(info.nsid == Nsid(3)) + 1
    });
    let event = Completion::result(NAMESPACE_CHANGED);
    assert_eq!(host.controller().next_async_event(), Some((first, event)));
    let second = request(&mut host);
    set_namespaces(&mut host, 10, |info| info.block_count += 5);
    assert_eq!(
        host.controller().next_async_event(),
        None,
        "masked until the page is read"
    );
    assert_eq!(changed_list(&mut host, true), [1, 3]);
    assert_eq!(
        host.controller().next_async_event(),
        None,
        "RAE keeps the mask"
    );
    assert_eq!(changed_list(&mut host, false), [1, 3]);
    assert_eq!(
        host.controller().next_async_event(),
        None,
        "what came meanwhile was in the page"
    );
    // The same set again is no change.
    set_namespaces(&mut host, 11, |info| info.block_count += 5);
    assert_eq!(host.controller().next_async_event(), None);
    set_namespaces(&mut host, 12, |_| ());
    assert_eq!(host.controller().next_async_event(), Some((second, event)));
    assert_eq!(changed_list(&mut host, false), [1, 3]);
}

/// An event that came before its request waits for it.
#[test]
fn events_wait_for_a_request() {
    let mut host = Host::io();
    host.plain(&command(0x09, 0, 0x0B, 0x100)).unwrap();
    set_namespaces(&mut host, 8, |info| info.block_count += 1);
    assert_eq!(host.controller().next_async_event(), None);
    let slot = request(&mut host);
    assert_eq!(
        host.controller().next_async_event(),
        Some((slot, Completion::result(NAMESPACE_CHANGED)))
    );
}

/// A reading of the page that fails must not clear it.
#[test]
fn a_failed_reading_loses_no_change() {
    let mut host = Host::io();
    set_namespaces(&mut host, 8, |info| info.block_count += 1);
    let sqe = command(0x02, 0xFFFF_FFFF, 0x04 | 1023 << 16, 0);
    assert_eq!(
        host.fetch(&sqe, 512),
        Err(Status::DATA_SGL_LENGTH_INVALID.dnr())
    );
    // Beyond the page's end.
    let mut beyond = command(0x02, 0xFFFF_FFFF, 0x04 | 1023 << 16, 0);
    beyond[48..52].copy_from_slice(&4100u32.to_le_bytes());
    let invalid = Err(Status::INVALID_FIELD.dnr());
    assert_eq!(host.fetch(&beyond, 4096), invalid);
    assert_eq!(changed_list(&mut host, false), [1, 3]);
    let what = nvme_spec::reservation::NotificationType::RESERVATION_RELEASED;
    host.controller().notify_reservation(Nsid(3), what);
    let mut beyond = command(0x02, 0, 0x80 | 15 << 16, 0);
    beyond[48..52].copy_from_slice(&68u32.to_le_bytes());
    assert_eq!(host.fetch(&beyond, 64), invalid);
    let page = host.fetch(&command(0x02, 0, 0x80 | 15 << 16, 0), 64);
    assert_eq!(u64_at(&page.unwrap(), 0), 1, "it is still there");
}

/// All 1024 namespaces fit the list; the list never holds one twice.
#[test]
fn the_changed_list_holds_every_namespace_once() {
    let mut host = Host::io();
    let nqn = Nqn::parse(SUBSYSTEM).unwrap();
    let template = namespaces().get(Nsid(1)).unwrap().clone();
    for round in 0..3 {
        let infos = (1..=1024).map(|nsid| NamespaceInfo {
            nsid: Nsid(nsid),
            handle: 0,
            visibility: Visibility::All,
            block_count: 10 + round,
            ..template.clone()
        });
        assert!(
            host.registry
                .set_namespaces(&nqn, &Arc::new(NamespaceSet::new(round, infos).unwrap()))
        );
    }
    let list = changed_list(&mut host, false);
    assert_eq!(list, (1..=1024).collect::<Vec<u32>>());
}

/// Discovery: new listeners are told, and stand in the log with a new generation.
#[test]
fn new_listeners_are_told() {
    let mut host = Host::enabled(DISCOVERY);
    host.plain(&command(0x09, 0, 0x0B, 1 << 31)).unwrap();
    let slot = request(&mut host);
    host.registry
        .set_listeners([listener("198.51.100.1:4420", 9)]);
    assert_eq!(
        host.controller().next_async_event(),
        Some((slot, Completion::result(DISCOVERY_CHANGED)))
    );
    request(&mut host);
    host.registry.set_listeners([]);
    assert_eq!(
        host.controller().next_async_event(),
        None,
        "masked until the page is read"
    );
    let log = host
        .fetch(&command(0x02, 0, 0x70 | 255 << 16, 0), 1024)
        .unwrap();
    assert_eq!((u64_at(&log, 0), u64_at(&log, 8)), (3, 0));
    assert!(host.controller().next_async_event().is_some());
}

/// Base, "Abort command": SQID and CID to the frontend, its answer in DW0 bit 0, ACL.
#[test]
fn aborts_are_handed_on_and_limited() {
    let mut host = Host::io();
    let abort = command(0x08, 0, 0xBEEF_0003, 0);
    for _ in 0..4 {
        assert_eq!(
            host.run(&abort, &[], &mut []),
            Outcome::Abort {
                queue: queue(3),
                cid: Cid(0xBEEF)
            }
        );
    }
    assert_eq!(host.plain(&abort), Err(Status::ABORT_LIMIT_EXCEEDED.dnr()));
    assert_eq!(
        host.controller().abort_finished(true),
        Completion::result(0)
    );
    assert_eq!(
        host.controller().abort_finished(false),
        Completion::result(1)
    );
    assert_eq!(
        host.run(&abort, &[], &mut []),
        Outcome::Abort {
            queue: queue(3),
            cid: Cid(0xBEEF)
        }
    );
}

#[test]
fn requests_for_events_can_be_aborted() {
    let mut host = Host::io();
    let slot = request(&mut host);
    assert!(!host.controller().abort_async_event(Slot(slot.0 + 1)));
    assert!(host.controller().abort_async_event(slot));
    assert!(!host.controller().abort_async_event(slot));
    let aborted = Completion::of(Status::ABORT_REQUESTED);
    assert_eq!(host.controller().next_async_event(), Some((slot, aborted)));
    for _ in 0..4 {
        request(&mut host);
    }
}
