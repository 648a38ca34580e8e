//! What a controller tells its host of reservations: Notifications, their event and their mask.

use super::*;
use nvme_spec::reservation::NotificationType;

/// DW0: type I/O command set specific (6), information 00h, log page 80h.
const AVAILABLE: u32 = 0x0080_0006;
const AER: u8 = 0x0C;

fn request(host: &mut Host) -> Slot {
    let aer = command(AER, 0, 0, 0);
    assert_eq!(host.run(&aer, &[], &mut []), Outcome::Pending);
    Slot(host.next_slot - 1)
}

/// Type, pages that wait besides it, NSID.
fn read(host: &mut Host, retain: bool) -> (u64, u8, u8, u32) {
    let sqe = command(0x02, 0, 0x80 | u32::from(retain) << 15 | 15 << 16, 0);
    let page = host.fetch(&sqe, 64).unwrap();
    (u64_at(&page, 0), page[8], page[9], u32_at(&page, 12))
}

fn set_mask(host: &mut Host, nsid: u32, mask: u32) -> Result<u32, Status> {
    host.plain(&command(0x09, nsid, 0x82, mask))
}

fn mask(host: &mut Host, nsid: u32, select: u32) -> Result<u32, Status> {
    host.plain(&command(0x0A, nsid, 0x82 | select << 8, 0))
}

/// Base, "Reservation Notification log page".
#[test]
fn notifications_are_told_once_until_read_and_again_while_more_wait() {
    let mut host = Host::io();
    assert_eq!(read(&mut host, false), (0, 0, 0, 0));
    let first = request(&mut host);
    let tell = |host: &mut Host, nsid, what| host.controller().notify_reservation(Nsid(nsid), what);
    tell(&mut host, 3, NotificationType::RESERVATION_RELEASED);
    tell(&mut host, 1, NotificationType::REGISTRATION_PREEMPTED);
    tell(&mut host, 3, NotificationType::RESERVATION_PREEMPTED);
    let event = Completion::result(AVAILABLE);
    assert_eq!(host.controller().next_async_event(), Some((first, event)));
    let second = request(&mut host);
    assert_eq!(host.controller().next_async_event(), None, "masked");
    assert_eq!(read(&mut host, true), (1, 2, 2, 3));
    assert_eq!(host.controller().next_async_event(), None, "RAE");
    assert_eq!(read(&mut host, false), (2, 1, 1, 1));
    assert_eq!(host.controller().next_async_event(), Some((second, event)));
    assert_eq!(read(&mut host, false), (3, 3, 0, 3));
    request(&mut host);
    assert_eq!(host.controller().next_async_event(), None, "all are read");
    assert_eq!(read(&mut host, false), (0, 0, 0, 0));
}

/// Base, "Reservation Notification Mask": a bit for each type, for one namespace or for all.
#[test]
fn masked_notifications_are_not_made() {
    let mut host = Host::io();
    assert_eq!(set_mask(&mut host, 3, 1 << 2), Ok(0));
    assert_eq!(mask(&mut host, 3, 0), Ok(1 << 2));
    assert_eq!(mask(&mut host, 1, 0), Ok(0));
    assert_eq!(mask(&mut host, 3, 1), Ok(0), "the default");
    assert_eq!(
        mask(&mut host, 3, 3),
        Ok(0b110),
        "per namespace, changeable"
    );
    let released = NotificationType::RESERVATION_RELEASED;
    host.controller().notify_reservation(Nsid(3), released);
    assert_eq!(read(&mut host, false), (0, 0, 0, 0));
    host.controller().notify_reservation(Nsid(1), released);
    assert_eq!(read(&mut host, false), (1, 2, 0, 1));
    assert_eq!(set_mask(&mut host, 0xFFFF_FFFF, 0b1110), Ok(0));
    for what in 1..=3 {
        host.controller()
            .notify_reservation(Nsid(1), NotificationType(what));
    }
    assert_eq!(read(&mut host, false), (0, 0, 0, 0));
    for (nsid, value, status) in [
        (3, 1, Status::INVALID_FIELD),
        (3, 0x10, Status::INVALID_FIELD),
        (2, 2, Status::INVALID_FIELD),
        (0, 2, Status::INVALID_NAMESPACE),
    ] {
        assert_eq!(set_mask(&mut host, nsid, value), Err(status.dnr()));
    }
    assert_eq!(
        mask(&mut host, 0xFFFF_FFFF, 0),
        Err(Status::INVALID_NAMESPACE.dnr())
    );
}

/// A controller reset forgets masks, notifications and events.
#[test]
fn a_reset_forgets_them() {
    let mut host = Host::io();
    assert_eq!(set_mask(&mut host, 3, 1 << 1), Ok(0));
    let released = NotificationType::RESERVATION_RELEASED;
    host.controller().notify_reservation(Nsid(3), released);
    host.set_cc(0x0046_0000);
    let _ = host.controller().reset_complete();
    host.set_cc(0x0046_0001);
    assert_eq!(mask(&mut host, 3, 0), Ok(0));
    assert_eq!(read(&mut host, false), (0, 0, 0, 0));
}

/// What was set for a namespace goes with it: another one that is given its NSID begins anew.
#[test]
fn a_mask_goes_with_its_namespace() {
    let mut host = Host::io();
    let nqn = Nqn::parse(SUBSYSTEM).unwrap();
    let error_recovery = |host: &mut Host, nsid| host.plain(&command(0x0A, nsid, 0x05, 0));
    for nsid in [1, 3] {
        assert_eq!(set_mask(&mut host, nsid, 1 << 2), Ok(0));
        assert_eq!(host.plain(&command(0x09, nsid, 0x05, 7)), Ok(0));
    }
    let without = namespaces()
        .iter()
        .filter(|it| it.nsid != Nsid(3))
        .cloned()
        .collect::<Vec<_>>();
    let without = NamespaceSet::new(8, without).unwrap();
    assert!(host.registry.set_namespaces(&nqn, &Arc::new(without)));
    assert!(host.registry.set_namespaces(&nqn, &Arc::new(namespaces())));
    assert_eq!(
        (mask(&mut host, 3, 0), error_recovery(&mut host, 3)),
        (Ok(0), Ok(0))
    );
    assert_eq!(
        (mask(&mut host, 1, 0), error_recovery(&mut host, 1)),
        (Ok(1 << 2), Ok(7))
    );
}
