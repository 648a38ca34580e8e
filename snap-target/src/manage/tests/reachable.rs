//! A target that no host can reach says so.

use super::{HealthCode, Reason, Rig};
use crate::config::Fabric;

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

/// Where this machine has no RDMA, a listener over it says what is missing, and nothing of it is there; a file that names one is served without it.
#[test]
fn a_listener_over_rdma_says_what_is_missing() {
    if crate::ports::verbs().is_ok() {
        // What is missing elsewhere is there.
        return;
    }
    let mut rig = Rig::new();
    let mut manager = rig.manager().unwrap();
    let place = "rdma://127.0.0.1:4420".parse().unwrap();
    let refused = manager.add_listener(place, None).unwrap_err();
    assert_eq!(refused.reason, Reason::TransportUnavailable);
    let text = refused.to_string();
    assert!(
        text.starts_with("cannot listen on rdma://127.0.0.1:4420: "),
        "{text}"
    );
    assert!(
        text.contains("install rdma-core") || text.contains("no RDMA device"),
        "{text}"
    );
    assert_eq!(manager.desired().listeners.len(), 1);
    assert_eq!(problems(&rig), []);
    drop(manager);
    rig.file += "[[listener]]\ntransport = \"rdma\"\naddress = \"127.0.0.1:4420\"\n";
    let manager = rig.manager().unwrap();
    assert_eq!(problems(&rig), [HealthCode::Listener]);
    assert_eq!(
        manager.live_listener(1).map(|it| it.fabric),
        Some(Fabric::Tcp)
    );
    assert_eq!(manager.live_listener(2), None);
}
