//! Random commands of four hosts, against the specification's sentences.

use super::sentences::{Effects, HOSTS, Model};
use super::*;
use proptest::prelude::*;

fn requests() -> impl Strategy<Value = (u8, Request)> {
    let key = || (1_u64..4).prop_map(Key);
    let current = || prop_oneof![1 => Just(None), 3 => (1_u64..4).prop_map(|key| Some(Key(key)))];
    let persistence = || {
        prop_oneof![
            Just(Persistence::Keep),
            Just(Persistence::Clear),
            Just(Persistence::Set)
        ]
    };
    let rtype = || (1_u8..=6).prop_map(ReservationType);
    let request = prop_oneof![
        4 => (key(), persistence()).prop_map(|(new, persistence)| Request::Register { new, persistence }),
        1 => (current(), persistence())
            .prop_map(|(current, persistence)| Request::Unregister { current, persistence }),
        1 => (current(), key(), persistence())
            .prop_map(|(current, new, persistence)| Request::Replace { current, new, persistence }),
        4 => (key(), rtype()).prop_map(|(current, rtype)| Request::Acquire { current, rtype }),
        4 => (key(), 0_u64..4, rtype(), any::<bool>()).prop_map(|(current, preempt, rtype, abort)| {
            Request::Preempt { current, preempt: Key(preempt), rtype, abort }
        }),
        2 => (key(), rtype()).prop_map(|(current, rtype)| Request::Release { current, rtype }),
        1 => key().prop_map(|current| Request::Clear { current }),
    ];
    (0..HOSTS, request)
}

fn told(change: &Change, what: NotificationType) -> Vec<usize> {
    let mut hosts: Vec<usize> = change
        .notices
        .iter()
        .filter(|notice| notice.what == what)
        .map(|notice| usize::from(notice.host.0[0]))
        .collect();
    hosts.sort_unstable();
    hosts
}

fn numbers(hosts: &[HostId]) -> Vec<usize> {
    let mut numbers: Vec<usize> = hosts.iter().map(|host| usize::from(host.0[0])).collect();
    numbers.sort_unstable();
    numbers
}

/// The report, read by hand.
fn check_report(table: &Table, model: &Model) {
    let report = table.report(64 + usize::from(HOSTS) * 64);
    assert_eq!(report[..4], model.generation.to_le_bytes());
    assert_eq!(report[4], model.reservation.map_or(0, |(rtype, _)| rtype));
    assert_eq!(usize::from(report[5]), model.registrants().len());
    assert_eq!(report[9], u8::from(model.ptpl));
    let mut reported = Vec::new();
    for entry in report[64..].chunks_exact(64).take(report[5].into()) {
        let key = u64::from_le_bytes(entry[8..16].try_into().unwrap());
        reported.push((usize::from(entry[16]), key, entry[2] == 1));
    }
    reported.sort_unstable();
    let expected: Vec<_> = model
        .registrants()
        .into_iter()
        .map(|host| (host, model.keys[host].unwrap(), model.holds(host)))
        .collect();
    assert_eq!(reported, expected);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn every_sequence_of_commands_does_what_the_specification_says(
        commands in proptest::collection::vec(requests(), 1..60)
    ) {
        let (mut table, mut model) = (Table::default(), Model::default());
        for (who, request) in commands {
            let before = table.clone();
            let done = table.carry_out(host(who), &request);
            let expected = model.apply(who.into(), &request);
            match (done, expected) {
                (Ok(change), Ok(effects)) => {
                    let seen = Effects {
                        registration_preempted: told(&change, NotificationType::REGISTRATION_PREEMPTED),
                        reservation_released: told(&change, NotificationType::RESERVATION_RELEASED),
                        reservation_preempted: told(&change, NotificationType::RESERVATION_PREEMPTED),
                        aborted: numbers(&change.aborted),
                    };
                    prop_assert_eq!(seen, effects, "{:?}", request);
                    table = change.table;
                }
                (Err(status), Err(code)) => {
                    prop_assert_eq!(status, Status::new(0, u8::try_from(code).unwrap()).dnr());
                }
                (done, expected) => prop_assert!(false, "{request:?}: {done:?}, {expected:?}"),
            }
            // What was refused has changed nothing.
            if table == before {
                check_report(&before, &model);
            }
            check_report(&table, &model);
            // And what is kept is the whole of it.
            let kept = Table::from_record(&table.to_record()).unwrap();
            prop_assert_eq!(kept, if table.is_persistent() { table.clone() } else { Table::default() });
        }
    }
}
