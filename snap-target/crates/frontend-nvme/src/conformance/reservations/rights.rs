//! What a reservation lets through, on every reactor, from its answer on.

use super::*;

/// Each type, from its answer on, on both reactors: the holder writes; the other host as a registrant, and as none.
pub(in crate::conformance) fn every_type_is_in_force_on_every_reactor_when_it_is_answered(on: &On) {
    let (_target, mut a, mut b) = two_hosts(on);
    assert_eq!((a.register(0), b.register(0)), (SUCCESS, SUCCESS));
    // Type, and for a registrant and for another host: read, write.
    for (rtype, [registrant, other]) in [
        (1, [(SUCCESS, CONFLICT), (SUCCESS, CONFLICT)]),
        (2, [(CONFLICT, CONFLICT), (CONFLICT, CONFLICT)]),
        (3, [(SUCCESS, SUCCESS), (SUCCESS, CONFLICT)]),
        (4, [(SUCCESS, SUCCESS), (CONFLICT, CONFLICT)]),
        (5, [(SUCCESS, SUCCESS), (SUCCESS, CONFLICT)]),
        (6, [(SUCCESS, SUCCESS), (CONFLICT, CONFLICT)]),
    ] {
        assert_eq!(a.acquire(rtype), SUCCESS);
        assert_eq!(b.write(1), [registrant.1; 2], "type {rtype}");
        assert_eq!(b.read(), [registrant.0; 2], "type {rtype}");
        assert_eq!((a.write(1), a.read()), ([SUCCESS; 2], [SUCCESS; 2]));
        assert_eq!(b.unregister(), SUCCESS);
        assert_eq!(b.write(1), [other.1; 2], "type {rtype}");
        assert_eq!(b.read(), [other.0; 2], "type {rtype}");
        // Flush is of the write group.
        assert_eq!(b.second.flush().status, other.1, "type {rtype}");
        let holders = (a.id(), KEY_A, true);
        assert_eq!(a.report(), (u8::try_from(rtype).unwrap(), 0, vec![holders]));
        assert_eq!(b.acquire(rtype), CONFLICT, "not registered");
        assert_eq!(a.release(rtype), SUCCESS);
        assert_eq!((b.write(1), b.read()), ([SUCCESS; 2], [SUCCESS; 2]));
        assert_eq!(b.register(0), SUCCESS);
    }
}

/// What the host identifies itself by is its HOSTID: over another controller it is the same host.
pub(in crate::conformance) fn a_host_is_the_same_over_every_controller(on: &On) {
    let (target, mut a, mut b) = two_hosts(on);
    assert_eq!((a.register(0), a.acquire(2)), (SUCCESS, SUCCESS));
    let mut again = Host::connect(&target, A, KEY_A);
    assert_eq!((again.write(1), again.read()), ([SUCCESS; 2], [SUCCESS; 2]));
    assert_eq!(b.read(), [CONFLICT; 2]);
    // It stays when the host's controllers go.
    drop((a, again));
    assert_eq!(b.read(), [CONFLICT; 2]);
}

/// Register and Acquire with keys that the target asks for, and what is wrong with commands.
pub(in crate::conformance) fn commands_are_checked_as_they_are_over_any_transfer(on: &On) {
    let (_target, mut a, _b) = two_hosts(on);
    let registered = a
        .first
        .bring_when_asked(REGISTER, [0, 0, 0], &keys(0, KEY_A));
    assert_eq!(registered.status, SUCCESS);
    let mut acquire = |cdw10| {
        a.first
            .bring(ACQUIRE, 1, [cdw10, 0, 0], &keys(KEY_A, 0))
            .status
    };
    assert_eq!(acquire(0), INVALID_FIELD, "RTYPE 0");
    assert_eq!(acquire(7 << 8), INVALID_FIELD, "RTYPE 7");
    assert_eq!(acquire(1 << 8 | 3), INVALID_FIELD, "RACQA 3");
    assert_eq!(acquire(1 << 8 | 1 << 3), INVALID_FIELD, "IEKEY");
    // EDS = 0: Host Identifier Inconsistent Format.
    let short = a.first.fetch(REPORT, 1, [63, 0, 0], 256);
    assert_eq!(short, Err(0x4018));
    let no_namespace = a.first.bring(REGISTER, 9, [0, 0, 0], &keys(0, 1)).status;
    assert_eq!(no_namespace, INVALID_FIELD);
    assert_eq!(a.report().2, vec![(host_id(A), KEY_A, false)]);
    assert_eq!(a.clear(), SUCCESS);
    assert_eq!(a.report().2, vec![]);
}
