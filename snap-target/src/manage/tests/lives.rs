//! When the manager has the lives of subsystems saved, and when they end.

use std::time::Instant;

use nvme::controller::Lifetime;
use telemetry::{Telemetry, TelemetryConfig};

use super::{Rig, nqn};
use crate::manage::Manager;

impl Rig {
    /// The subsystem has come to this many reads.
    fn count(&self, name: &str, reads: u128) {
        let mut all = self.fake.lifetimes.lock().unwrap();
        all.get_mut(&nqn(name)).unwrap().counters.read_commands = reads;
    }

    /// What a subsystem was made with: power cycles, unsafe shutdowns, reads.
    fn made_with(&self, name: &str) -> (u64, u64, u128) {
        let life: Lifetime = self.fake.lifetimes.lock().unwrap()[&nqn(name)];
        (
            life.power_cycles,
            life.unsafe_shutdowns,
            life.counters.read_commands,
        )
    }
}

fn create(manager: &mut Manager, name: &str) {
    let body = manager.desired().subsystems[&nqn("nqn.a")].body.clone();
    manager.create_subsystem(nqn(name), body).unwrap();
}

#[test]
fn lives_are_saved_now_and_then_and_when_the_daemon_drains() {
    let rig = Rig::new();
    let mut manager = rig.manager().unwrap();
    manager.begin_lives();
    create(&mut manager, "nqn.b");
    assert_eq!(rig.made_with("nqn.a"), (1, 0, 0));
    rig.count("nqn.a", 10);
    rig.count("nqn.b", 20);
    manager.save_lives();
    // Behind the round; then it is killed, and what was counted last is lost.
    manager.begin_lives();
    rig.count("nqn.a", 11);
    drop(manager);

    let mut manager = rig.manager().unwrap();
    manager.begin_lives();
    assert_eq!(rig.made_with("nqn.a"), (2, 1, 10));
    assert_eq!(rig.made_with("nqn.b"), (2, 1, 20));
    rig.count("nqn.a", 12);
    let telemetry = Telemetry::new(&TelemetryConfig::default());
    manager.drain(&telemetry, &Instant::now);
    drop(manager);

    let manager = rig.manager().unwrap();
    manager.begin_lives();
    assert_eq!(rig.made_with("nqn.a"), (3, 1, 12));
    assert_eq!(rig.made_with("nqn.b"), (3, 1, 20));
}

#[test]
fn a_subsystem_that_is_made_again_begins_again() {
    let rig = Rig::new();
    let mut manager = rig.manager().unwrap();
    manager.begin_lives();
    create(&mut manager, "nqn.b");
    rig.count("nqn.b", 20);
    manager.save_lives();
    manager.begin_lives();
    manager.delete_subsystem(&nqn("nqn.b"), false).unwrap();
    create(&mut manager, "nqn.b");
    assert_eq!(rig.made_with("nqn.b"), (1, 0, 0));
    drop(manager);
    let mut manager = rig.manager().unwrap();
    manager.begin_lives();
    assert_eq!(rig.made_with("nqn.b"), (2, 1, 0));

    // One that could not be made leaves nothing.
    rig.fake.fail(Some("create nqn.c"));
    let body = manager.desired().subsystems[&nqn("nqn.a")].body.clone();
    let refused = manager.create_subsystem(nqn("nqn.c"), body);
    assert!(refused.is_err());
    manager.begin_lives();
    let lives = std::fs::read_dir(rig.folder.path()).unwrap();
    let lives = lives.filter(|it| {
        let name = it.as_ref().unwrap().file_name();
        name.to_str().unwrap().ends_with(".life")
    });
    assert_eq!(lives.count(), 2);
}
