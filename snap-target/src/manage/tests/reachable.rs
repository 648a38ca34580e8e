//! A target that no host can reach says so.

use super::{HealthCode, Reason, Rig};

fn problems(rig: &Rig) -> Vec<HealthCode> {
    let problems = rig.health.report().problems.into_iter();
    problems.map(|it| it.code()).collect()
}

#[test]
fn the_only_listener_goes_by_force_alone_and_health_tells() {
    let rig = Rig::new();
    let mut manager = rig.manager().unwrap();
    let refused = manager.remove_listener(1, false).unwrap_err();
    assert_eq!(refused.reason, Reason::LastListener);
    assert_eq!(manager.desired().listeners.len(), 1);
    assert_eq!(problems(&rig), []);
    let second = manager
        .add_listener("127.0.0.1:0".parse().unwrap(), None)
        .unwrap();
    manager.remove_listener(second, false).unwrap();
    manager.remove_listener(1, true).unwrap();
    assert_eq!(problems(&rig), [HealthCode::NoListener]);
    // Also after the next start, until there is one again.
    drop(manager);
    rig.health.well("listeners");
    let mut manager = rig.manager().unwrap();
    assert_eq!(problems(&rig), [HealthCode::NoListener]);
    manager
        .add_listener("127.0.0.1:0".parse().unwrap(), None)
        .unwrap();
    assert_eq!(problems(&rig), []);
}
