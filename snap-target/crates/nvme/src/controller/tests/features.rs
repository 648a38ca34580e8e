//! Get and Set Features.

use super::*;

const GET: u8 = 0x0A;
const SET: u8 = 0x09;
const SAVE: u32 = 1 << 31;
const DEFAULT: u32 = 1 << 8;
const SAVED: u32 = 2 << 8;
const CAPABILITIES: u32 = 3 << 8;

/// FID, NSID, a value to set that is not the default, the default, the capabilities (SEL = 3).
const BY_VALUE: [(u32, u32, u32, u32, u32); 7] = [
    (0x01, 0, 0x0102_0304, 0, 0b100),
    (0x02, 0, 0, 0, 0b100),
    (0x05, 3, 0x1234, 0, 0b110),
    (0x07, 0, 0x0001_0001, 0x0003_0003, 0b100),
    (0x0A, 0, 1, 0, 0b100),
    (0x0B, 0, 0x101, 0, 0b100),
    (0x0F, 0, 7000, 0, 0b100),
];

#[test]
fn features_are_set_read_back_and_described() {
    for (fid, nsid, value, default, capabilities) in BY_VALUE {
        let mut host = Host::io();
        // KATO came with Connect.
        let first = if fid == 0x0F { 5000 } else { default };
        assert_eq!(
            host.plain(&command(GET, nsid, fid, 0)),
            Ok(first),
            "FID {fid:#x}"
        );
        assert!(host.plain(&command(SET, nsid, fid, value)).is_ok());
        assert_eq!(
            host.plain(&command(GET, nsid, fid, 0)),
            Ok(value),
            "FID {fid:#x}"
        );
        let default = if fid == 0x0F { value } else { default };
        assert_eq!(
            host.plain(&command(GET, nsid, fid | DEFAULT, 0)),
            Ok(default)
        );
        assert_eq!(host.plain(&command(GET, nsid, fid | SAVED, 0)), Ok(default));
        assert_eq!(
            host.plain(&command(GET, nsid, fid | CAPABILITIES, 0)),
            Ok(capabilities)
        );
        assert_eq!(
            host.plain(&command(SET, nsid, fid | SAVE, value)),
            Err(Status::FEATURE_NOT_SAVEABLE.dnr())
        );
        for select in 4..8 {
            assert_eq!(
                host.plain(&command(GET, nsid, fid | select << 8, 0)),
                Err(INVALID_FIELD)
            );
        }
    }
}

#[test]
fn unknown_features_are_refused() {
    let known = [
        0x01, 0x02, 0x04, 0x05, 0x06, 0x07, 0x0A, 0x0B, 0x0E, 0x0F, 0x16, 0x81, 0x82, 0x83, 0x84,
    ];
    let mut host = Host::io();
    for fid in (0..=255).filter(|fid| !known.contains(fid)) {
        assert_eq!(
            host.plain(&command(GET, 0, fid, 0)),
            Err(INVALID_FIELD),
            "FID {fid:#x}"
        );
        assert_eq!(
            host.plain(&command(SET, 0, fid, 0)),
            Err(INVALID_FIELD),
            "FID {fid:#x}"
        );
    }
    let mut host = Host::enabled(DISCOVERY);
    for fid in (0..=255).filter(|fid| ![0x0B, 0x0F].contains(fid)) {
        assert_eq!(
            host.plain(&command(GET, 0, fid, 0)),
            Err(INVALID_FIELD),
            "FID {fid:#x}"
        );
    }
    assert_eq!(host.plain(&command(GET, 0, 0x0F, 0)), Ok(5000));
    assert_eq!(host.plain(&command(SET, 0, 0x0B, 1 << 31)), Ok(0));
}

/// Base, "Set Features": a namespace where the feature has none.
#[test]
fn controller_features_take_no_namespace() {
    let mut host = Host::io();
    for fid in [0x01, 0x02, 0x04, 0x07, 0x0A, 0x0B, 0x0F] {
        let expected = Err(Status::FEATURE_NOT_NAMESPACE_SPECIFIC.dnr());
        assert_eq!(host.plain(&command(SET, 1, fid, 0)), expected);
        assert!(host.plain(&command(SET, 0xFFFF_FFFF, fid, 0)).is_ok());
    }
}

#[test]
fn values_out_of_range_are_refused() {
    let mut host = Host::io();
    for (nsid, fid, value) in [
        (0, 0x02, 1),
        (0, 0x04, 1 << 16),
        (0, 0x04, 2 << 20),
        (0, 0x0B, 1 << 9),
        (0, 0x0B, 1 << 31),
        (3, 0x05, 1 << 16),
    ] {
        assert_eq!(
            host.plain(&command(SET, nsid, fid, value)),
            Err(INVALID_FIELD),
            "FID {fid:#x} = {value:#x}"
        );
    }
}

/// Temperature Threshold: over and under of the composite sensor; others are not there.
#[test]
fn temperature_thresholds_are_kept() {
    let mut host = Host::io();
    assert_eq!(host.plain(&command(GET, 0, 0x04, 0)), Ok(0x157), "WCTEMP");
    assert_eq!(host.plain(&command(GET, 0, 0x04, 1 << 20)), Ok(0));
    assert_eq!(host.plain(&command(SET, 0, 0x04, 350)), Ok(0));
    assert_eq!(
        host.plain(&command(SET, 0, 0x04, 270 | 0xF << 16 | 1 << 20)),
        Ok(0)
    );
    assert_eq!(host.plain(&command(GET, 0, 0x04, 0)), Ok(350));
    assert_eq!(host.plain(&command(GET, 0, 0x04, 1 << 20)), Ok(270));
    assert_eq!(
        host.plain(&command(GET, 0, 0x04, 1 << 16)),
        Err(INVALID_FIELD)
    );
}

/// Error Recovery is per namespace; NSID FFFFFFFFh sets all.
#[test]
fn error_recovery_is_per_namespace() {
    let mut host = Host::io();
    assert_eq!(host.plain(&command(SET, 1, 0x05, 10)), Ok(0));
    assert_eq!(host.plain(&command(GET, 3, 0x05, 0)), Ok(0));
    assert_eq!(host.plain(&command(SET, 0xFFFF_FFFF, 0x05, 20)), Ok(0));
    for nsid in [1, 3] {
        assert_eq!(host.plain(&command(GET, nsid, 0x05, 0)), Ok(20));
    }
    for (nsid, status) in [
        (0, INVALID_NAMESPACE),
        (2, INVALID_FIELD),
        (1025, INVALID_NAMESPACE),
    ] {
        assert_eq!(host.plain(&command(GET, nsid, 0x05, 0)), Err(status));
        assert_eq!(host.plain(&command(SET, nsid, 0x05, 1)), Err(status));
    }
}

#[test]
fn the_volatile_cache_is_there_to_stay() {
    let mut host = Host::io();
    assert_eq!(host.plain(&command(GET, 0, 0x06, 0)), Ok(1));
    assert_eq!(host.plain(&command(SET, 0, 0x06, 1)), Ok(0));
    assert_eq!(
        host.plain(&command(SET, 0, 0x06, 0)),
        Err(Status::FEATURE_NOT_CHANGEABLE.dnr())
    );
}

/// Host Behavior Support: 512 bytes both ways; flags are 0 or 1.
#[test]
fn host_behavior_is_taken_and_given_back() {
    let mut host = Host::io();
    assert_eq!(
        host.fetch(&command(GET, 0, 0x16, 0), 512).unwrap(),
        vec![0; 512]
    );
    let mut behavior = vec![0; 512];
    behavior[0] = 1;
    behavior[2] = 1;
    assert!(!host.controller().host_honours_retry_delay());
    assert_eq!(host.with_data(&command(SET, 0, 0x16, 0), &behavior), Ok(0));
    assert!(host.controller().host_honours_retry_delay());
    assert_eq!(
        host.fetch(&command(GET, 0, 0x16, 0), 512).unwrap(),
        behavior
    );
    assert_eq!(
        host.fetch(&command(GET, 0, 0x16 | DEFAULT, 0), 512)
            .unwrap(),
        vec![0; 512]
    );
    let short = Status::DATA_SGL_LENGTH_INVALID.dnr();
    assert_eq!(host.fetch(&command(GET, 0, 0x16, 0), 508), Err(short));
    assert_eq!(
        host.with_data(&command(SET, 0, 0x16, 0), &behavior[..508]),
        Err(short)
    );
    assert_eq!(host.with_data(&command(SET, 0, 0x16, 0), &[]), Err(short));
    for flag in 0..4 {
        let mut wrong = vec![0; 512];
        wrong[flag] = 2;
        assert_eq!(
            host.with_data(&command(SET, 0, 0x16, 0), &wrong),
            Err(INVALID_FIELD)
        );
    }
}

/// Host Identifier: as Connect gave it, 128 bits alone, not to be set.
#[test]
fn the_host_identifier_is_that_of_connect() {
    let mut host = Host::io();
    assert_eq!(host.fetch(&command(GET, 0, 0x81, 1), 16).unwrap(), HOST_ID);
    assert_eq!(host.fetch(&command(GET, 0, 0x81, 0), 8), Err(INVALID_FIELD));
    assert_eq!(
        host.with_data(&command(SET, 0, 0x81, 1), &[0; 16]),
        Err(Status::COMMAND_SEQUENCE_ERROR.dnr())
    );
}

/// Namespace Write Protection: what presents a read-only view stays protected; what hosts may set is the namespace's to carry out.
#[test]
fn write_protection_is_handed_on_where_it_may_change() {
    let mut host = Host::io();
    let set =
        |host: &mut Host, nsid, state| host.run(&command(SET, nsid, 0x84, state), &[], &mut []);
    let answered = |status: Status| Outcome::Done {
        completion: Completion::of(status),
        data_bytes: 0,
        effect: Effect::None,
    };
    let not_changeable = answered(Status::FEATURE_NOT_CHANGEABLE.dnr());
    let success = answered(Status::SUCCESS);
    let handed_on =
        |protection| Outcome::OfNamespace(NamespaceAsk::SetProtection(Nsid(3), protection));
    // Namespace 1 presents a view.
    assert_eq!(host.plain(&command(GET, 1, 0x84, 0)), Ok(1));
    for (state, expected) in [
        (1, success),
        (0, not_changeable),
        (2, not_changeable),
        (3, not_changeable),
    ] {
        assert_eq!(set(&mut host, 1, state), expected);
    }
    assert_eq!(host.plain(&command(GET, 3, 0x84, 0)), Ok(0));
    for (state, expected) in [
        (0, success),
        (1, handed_on(Protection::WriteProtect)),
        (2, handed_on(Protection::UntilPowerCycle)),
        (3, handed_on(Protection::Permanent)),
        (4, answered(INVALID_FIELD)),
        (7, answered(INVALID_FIELD)),
    ] {
        assert_eq!(set(&mut host, 3, state), expected);
    }
    for (nsid, status) in [(0xFFFF_FFFF, INVALID_NAMESPACE), (2, INVALID_FIELD)] {
        assert_eq!(host.plain(&command(GET, nsid, 0x84, 0)), Err(status));
        assert_eq!(set(&mut host, nsid, 1), answered(status));
    }
    assert_eq!(
        set(&mut host, 3, 1 | 0x10),
        handed_on(Protection::WriteProtect)
    );
    assert_eq!(
        host.plain(&command(SET, 3, 0x84 | SAVE, 1)),
        Err(Status::FEATURE_NOT_SAVEABLE.dnr())
    );
    assert_eq!(
        host.plain(&command(GET, 1, 0x84 | CAPABILITIES, 0)),
        Ok(0b110)
    );
}

/// Once a host set it: every state is told, seen in NSATTR, refuses writes, and lets go as the specification says.
#[test]
fn write_protection_that_a_host_set_is_in_force() {
    for (protection, state, lifted) in [
        (Protection::WriteProtect, 1, true),
        (Protection::UntilPowerCycle, 2, false),
        (Protection::Permanent, 3, false),
    ] {
        let mut host = Host::io();
        let mut infos: Vec<NamespaceInfo> = namespaces().iter().cloned().collect();
        infos
            .iter_mut()
            .for_each(|info| info.protection = protection);
        let set = Arc::new(NamespaceSet::new(8, infos).unwrap());
        let nqn = Nqn::parse(SUBSYSTEM).unwrap();
        assert!(host.registry.set_namespaces(&nqn, &set));
        assert_eq!(host.plain(&command(GET, 3, 0x84, 0)), Ok(state));
        let id = host.fetch(&command(0x06, 3, 0x00, 0), 4096).unwrap();
        assert_eq!(id[99] & 1, 1, "NSATTR");
        let write = Sqe::read_from_bytes(&command(0x01, 3, 0, 0)).unwrap();
        let written = parse_io(&write, Transfer::Remote { bytes: 512 }, &set, 4096);
        assert_eq!(written, Err(Status::NAMESPACE_WRITE_PROTECTED.dnr()));
        let lift = host.run(&command(SET, 3, 0x84, 0), &[], &mut []);
        let ask = NamespaceAsk::SetProtection(Nsid(3), Protection::None);
        assert_eq!(lift == Outcome::OfNamespace(ask), lifted, "state {state}");
        assert_eq!(host.plain(&command(SET, 3, 0x84, state)), Ok(0), "as it is");
    }
}

/// Reservation Persistence is the namespace's: asked of it, and promised only where it can be kept.
#[test]
fn reservation_persistence_is_handed_on() {
    let mut host = Host::io();
    let run = |host: &mut Host, sqe| host.run(&sqe, &[], &mut []);
    let of = |ask| Outcome::OfNamespace(ask);
    assert_eq!(
        run(&mut host, command(GET, 3, 0x83, 0)),
        of(NamespaceAsk::GetPersistence(Nsid(3)))
    );
    assert_eq!(host.plain(&command(GET, 3, 0x83 | DEFAULT, 0)), Ok(0));
    assert_eq!(
        host.plain(&command(GET, 3, 0x83 | CAPABILITIES, 0)),
        Ok(0b110)
    );
    for (nsid, value) in [(3, 1), (3, 0), (1, 0), (0xFFFF_FFFF, 1), (0xFFFF_FFFF, 0)] {
        let ask = NamespaceAsk::SetPersistence(Nsid(nsid), value == 1);
        assert_eq!(run(&mut host, command(SET, nsid, 0x83, value)), of(ask));
    }
    for (nsid, value, status) in [
        (1, 1, INVALID_FIELD),
        (3, 2, INVALID_FIELD),
        (2, 1, INVALID_FIELD),
        (0, 1, INVALID_NAMESPACE),
    ] {
        let refused = host.plain(&command(SET, nsid, 0x83, value));
        assert_eq!(refused, Err(status), "{value} for {nsid}");
    }
    assert_eq!(
        host.plain(&command(GET, 0xFFFF_FFFF, 0x83, 0)),
        Err(INVALID_NAMESPACE)
    );
}

/// Timestamp: 48 bits of milliseconds that go on, and where they came from.
#[test]
fn the_timestamp_goes_on_from_what_was_set_and_a_reset_begins_it_anew() {
    let mut host = Host::io();
    let get = |host: &mut Host| host.fetch(&command(GET, 0, 0x0E, 0), 8).unwrap();
    assert_eq!(get(&mut host), [0; 8], "0, by a reset");
    host.now = host.now + Duration::from_millis(7);
    assert_eq!(get(&mut host), [7, 0, 0, 0, 0, 0, 0, 0]);
    // The attributes are not the host's to set: FFh in them changes nothing.
    let mut set = 0xFFFF_FFFF_FFFE_u64.to_le_bytes();
    set[6] = 0xFF;
    assert_eq!(host.with_data(&command(SET, 0, 0x0E, 0), &set), Ok(0));
    assert_eq!(
        get(&mut host),
        [0xFE, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0b010, 0]
    );
    host.now = host.now + Duration::from_millis(5);
    assert_eq!(get(&mut host), [3, 0, 0, 0, 0, 0, 0b010, 0], "modulo 2^48");
    assert_eq!(
        host.fetch(&command(GET, 0, 0x0E | DEFAULT, 0), 8).unwrap(),
        [0; 8]
    );
    assert_eq!(
        host.plain(&command(GET, 0, 0x0E | CAPABILITIES, 0)),
        Ok(0b100)
    );
    assert_eq!(
        host.with_data(&command(SET, 0, 0x0E | SAVE, 0), &set),
        Err(Status::FEATURE_NOT_SAVEABLE.dnr())
    );
    assert_eq!(
        host.with_data(&command(SET, 0, 0x0E, 0), &set[..4]),
        Err(Status::DATA_SGL_LENGTH_INVALID.dnr())
    );
    assert_eq!(
        host.with_data(&command(SET, 1, 0x0E, 0), &set),
        Err(Status::FEATURE_NOT_NAMESPACE_SPECIFIC.dnr())
    );
    host.set_cc(0x0046_0000);
    let _ = host.controller().reset_complete();
    host.set_cc(0x0046_0001);
    assert_eq!(get(&mut host), [0; 8]);
}

/// CRD names the shortest delay that is long enough.
#[test]
fn retry_delays_are_chosen_by_their_length() {
    let limits = ControllerLimits {
        retry_delays_100ms: [10, 1, 50],
        ..ControllerLimits::default()
    };
    for (wait_ms, crd) in [
        (0, 2),
        (100, 2),
        (101, 1),
        (1000, 1),
        (1001, 3),
        (5000, 3),
        (60_000, 3),
    ] {
        let wait = Duration::from_millis(wait_ms);
        assert_eq!(limits.retry_delay(wait), crd, "{wait_ms} ms");
    }
}
