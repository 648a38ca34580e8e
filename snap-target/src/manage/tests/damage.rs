//! Damage that reads met, as health and events tell it.

use admin_proto::v1::{HealthCode, event::Kind};
use namespace::{Damage, NamespaceError};
use volume::VolumeError;

use super::{Rig, new, nqn};
use crate::events::Entry;
use crate::manage::{Manager, NamespaceLive};

fn damage_of(manager: &Manager, nsid: u32) -> Damage {
    match manager.live_namespace(&nqn("nqn.a"), nsid) {
        Some(NamespaceLive::Served(it)) => it.damage.clone(),
        other => panic!("{other:?}"),
    }
}

/// Reads that meet damage at this byte.
fn met(damage: &Damage, presented_byte: u64, reads: u32) {
    let error = Box::new(VolumeError::Malformed {
        place: volume::Place {
            item: volume::Item::Frame {
                stream: 1,
                frame: 7,
            },
            source: volume::SourceId::OWN,
            offset: 32_768,
        },
        field: "length",
        found: "3".to_owned(),
        expected: "4".to_owned(),
    });
    let cause = VolumeError::Read {
        presented_byte,
        error,
        mapped: None,
    };
    let error = NamespaceError::Volume { nsid: 2, cause };
    for _ in 0..reads {
        damage.note(&error, 4096);
    }
}

/// What health and its events say of damage: each told problem's count, and whether it ended.
fn told(rig: &Rig) -> Vec<(u64, bool)> {
    let all = rig.events.read(1, usize::MAX).items;
    let of = |entry: &Entry| match entry {
        Entry::Event(event) => match event.kind.as_ref()? {
            Kind::Health(health) => {
                let problem = health.problem.as_ref()?;
                let is_damage = problem.code() == HealthCode::Damaged;
                is_damage.then_some((problem.count, health.ended))
            }
            _ => None,
        },
        Entry::NotNoted => None,
    };
    all.iter().filter_map(|entry| of(entry)).collect()
}

#[test]
fn damage_is_a_problem_until_the_namespace_is_attached_anew() {
    let rig = Rig::new();
    let mut manager = rig.manager().unwrap();
    assert_eq!(manager.attach(new("mem:1MiB")), Ok(2));
    let damage = damage_of(&manager, 2);
    manager.look_around();
    assert_eq!(rig.health.report().problems, []);

    met(&damage, 8192, 1);
    manager.look_around();
    let [problem] = &rig.health.report().problems[..] else {
        panic!("one problem")
    };
    assert_eq!(problem.id, "nqn.a nsid 2 damaged");
    assert_eq!((problem.code(), problem.count), (HealthCode::Damaged, 1));
    let first = damage.first().unwrap();
    assert_eq!((first.lba, problem.since), (Some(2), Some(first.at.into())));
    assert!(
        problem
            .text
            .contains("presented byte 8192: stream 1, frame 7"),
        "{}",
        problem.text
    );

    // Counted each time; told when it has a digit more.
    for more in [8, 1, 89] {
        met(&damage, 0, more);
        manager.look_around();
        manager.look_around();
    }
    let problems = rig.health.report().problems;
    assert_eq!((problems[0].count, problems[0].since), (99, problem.since));
    assert_eq!(problems[0].text, problem.text, "the first stays");
    assert_eq!(told(&rig), [(1, false), (10, false)]);

    manager.detach(&nqn("nqn.a"), 2).unwrap();
    manager.look_around();
    assert_eq!(rig.health.report().problems, []);
    assert_eq!(manager.attach(new("mem:1MiB")), Ok(2));
    manager.look_around();
    assert_eq!(rig.health.report().problems, []);
    assert_eq!(damage_of(&manager, 2).reads(), 0);
    assert_eq!(told(&rig), [(1, false), (10, false), (99, true)]);
}
