//! Hosts hear of what others do to their reservations.

use super::*;

/// The answer of an Asynchronous Event Request that tells of a Reservation Notification.
const AVAILABLE: u32 = 0x0080_0006;

fn ask_for_events(host: &mut Host) -> u16 {
    host.admin.send_plain(0x0C, 0, [0, 0, 0])
}

/// Log page 80h: type, pages that wait besides it, NSID.
fn read_log(host: &mut Host) -> (u8, u8, u32) {
    let page = host
        .admin
        .fetch(0x02, 0, [0x80 | 15 << 16, 0, 0], 64)
        .unwrap();
    (page[8], page[9], u32::from(page[12]))
}

pub(in crate::conformance) fn a_preempted_host_hears_of_it_and_a_remaining_one_of_the_release(
    on: &On,
) {
    let (_target, mut a, mut b) = two_hosts(on);
    assert_eq!((a.register(0), b.register(0)), (SUCCESS, SUCCESS));
    assert_eq!(b.acquire(3), SUCCESS);
    let (of_a, of_b) = (ask_for_events(&mut a), ask_for_events(&mut b));
    assert_eq!(a.preempt(PREEMPT, 3, KEY_B), SUCCESS);
    let event = b.admin.response();
    assert_eq!(
        (event.cid, event.status, event.dw0),
        (of_b, SUCCESS, AVAILABLE)
    );
    assert_eq!(read_log(&mut b), (1, 0, 1), "registration preempted");
    assert_eq!(read_log(&mut b), (0, 0, 0));
    assert_eq!(b.write(1), [CONFLICT; 2]);
    assert_eq!(read_log(&mut a), (0, 0, 0), "who preempts is not told");

    assert_eq!(b.register(0), SUCCESS);
    let of_b = ask_for_events(&mut b);
    assert_eq!(a.release(3), SUCCESS);
    let event = b.admin.response();
    assert_eq!((event.cid, event.dw0), (of_b, AVAILABLE));
    assert_eq!(read_log(&mut b), (2, 0, 1), "reservation released");

    assert_eq!(b.clear(), SUCCESS);
    let event = a.admin.response();
    assert_eq!((event.cid, event.dw0), (of_a, AVAILABLE));
    assert_eq!(read_log(&mut a), (3, 0, 1), "reservation preempted");
}

/// Feature 82h keeps notifications from being made, for this controller alone.
pub(in crate::conformance) fn masked_notifications_are_not_made(on: &On) {
    let (_target, mut a, mut b) = two_hosts(on);
    assert_eq!((a.register(0), b.register(0)), (SUCCESS, SUCCESS));
    assert_eq!(b.admin.plain(0x09, 1, [0x82, 0b100, 0]).status, SUCCESS);
    assert_eq!((a.acquire(3), a.release(3)), (SUCCESS, SUCCESS));
    assert_eq!(read_log(&mut b), (0, 0, 0));
    assert_eq!(a.clear(), SUCCESS);
    assert_eq!(read_log(&mut b), (3, 0, 1));
}
