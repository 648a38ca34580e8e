//! Who was denied stays out, whatever the file comes to say.

use admin_proto::v1::Reason;
use nvme::controller::HostPolicy;
use nvme::nqn::Nqn;

use super::{Rig, nqn};
use crate::manage::Manager;

const LIST: &str = "hosts = [\"nqn.h\"]";

/// A file that lets in three hosts, of which t1 is denied while serving.
fn denied() -> Rig {
    let rig = with(&Rig::new(), "hosts = [\"nqn.t1\", \"nqn.t2\", \"nqn.t3\"]");
    let mut manager = rig.manager().unwrap();
    manager.deny_hosts(&nqn("nqn.a"), &[nqn("nqn.t1")]).unwrap();
    assert_eq!(allowed(&manager), "Only([nqn.t2, nqn.t3])");
    rig
}

/// The same state under a file that says this of who may connect.
fn with(rig: &Rig, hosts: &str) -> Rig {
    let file = super::BASE.replace(LIST, hosts);
    assert_ne!(file, super::BASE);
    Rig {
        file,
        fake: rig.fake.clone(),
        health: rig.health.clone(),
        events: rig.events.clone(),
        folder: rig.folder.clone(),
        open_time_max: rig.open_time_max,
    }
}

/// Who may connect, as the target was told.
fn allowed(manager: &Manager) -> String {
    format!(
        "{:?}",
        manager.desired().subsystems[&nqn("nqn.a")].body.hosts
    )
}

/// A start with this file: who may connect.
fn starts_with(rig: &Rig, hosts: &str) -> String {
    let rig = with(rig, hosts);
    let told = allowed(&rig.manager().unwrap());
    let create = format!("create nqn.a {told}");
    assert!(rig.fake.take().contains(&create), "{create}");
    told
}

fn change_something(rig: &Rig, hosts: &str) {
    let made = nqn("nqn.b");
    let rig = with(rig, hosts);
    let mut manager = rig.manager().unwrap();
    if manager.delete_subsystem(&made, true).is_err() {
        let body = manager.desired().subsystems[&nqn("nqn.a")].body.clone();
        manager.create_subsystem(made, body).unwrap();
    }
}

const THREE: &str = "hosts = [\"nqn.t1\", \"nqn.t2\", \"nqn.t3\"]";
const ANY: &str = "allow-any-host = true";

#[test]
fn any_host_does_not_let_in_who_was_denied() {
    let rig = denied();
    // The list that was in force holds, at this start and the next.
    for _ in 0..2 {
        assert_eq!(starts_with(&rig, ANY), "Only([nqn.t2, nqn.t3])");
    }
    // And back to the old list, with a change saved in between.
    change_something(&rig, ANY);
    assert_eq!(starts_with(&rig, THREE), "Only([nqn.t2, nqn.t3])");
}

#[test]
fn a_list_that_left_the_host_out_and_has_it_again_does_not_let_it_in() {
    let rig = denied();
    let without = "hosts = [\"nqn.t2\", \"nqn.t4\"]";
    assert_eq!(starts_with(&rig, without), "Only([nqn.t2, nqn.t4])");
    change_something(&rig, without);
    assert_eq!(starts_with(&rig, THREE), "Only([nqn.t2, nqn.t3])");
    // Nor does any host after a list that says what holds.
    change_something(&rig, without);
    assert_eq!(starts_with(&rig, ANY), "Only([nqn.t2, nqn.t4])");
}

#[test]
fn a_subsystem_that_was_deleted_and_comes_back_keeps_its_denials() {
    let rig = denied();
    let mut manager = with(&rig, THREE).manager().unwrap();
    let three = HostPolicy::Only(vec![nqn("nqn.t3")]);
    manager.set_hosts(&nqn("nqn.a"), three).unwrap();
    manager.delete_subsystem(&nqn("nqn.a"), true).unwrap();
    drop(manager);
    let edited = format!("serial = \"S\"\n{THREE}");
    assert_eq!(starts_with(&rig, &edited), "Only([nqn.t3])");
    // There is no list to fall back on.
    let mut manager = with(&rig, &edited).manager().unwrap();
    manager.delete_subsystem(&nqn("nqn.a"), true).unwrap();
    drop(manager);
    assert_eq!(starts_with(&rig, ANY), "Only([])");
}

/// No list keeps a function's host out, so that none takes its name: whoever denied it would think that it is out.
#[test]
fn the_host_of_a_function_is_on_no_list() {
    let rig = denied();
    let mut manager = with(&rig, THREE).manager().unwrap();
    let (of, function) = (nqn("nqn.a"), Nqn::function_host("pf0vf1"));
    let named = [nqn("nqn.t9"), function];
    let before = allowed(&manager);
    let refused = [
        manager.deny_hosts(&of, &named).map(drop),
        manager.allow_hosts(&of, &named).map(drop),
        manager
            .set_hosts(&of, HostPolicy::Only(named.to_vec()))
            .map(drop),
    ];
    for refused in refused {
        assert_eq!(refused.unwrap_err().reason, Reason::HostList);
    }
    assert_eq!(allowed(&manager), before);
    let mut body = manager.desired().subsystems[&of].body.clone();
    body.hosts = HostPolicy::Only(named.to_vec());
    let refused = manager.create_subsystem(nqn("nqn.more"), body);
    assert_eq!(refused.unwrap_err().reason, Reason::HostList);
}

#[test]
fn to_allow_a_host_is_what_lets_it_in_again() {
    let rig = denied();
    // Not on the list, and denied all the same: the file may come to name it.
    let mut manager = with(&rig, THREE).manager().unwrap();
    let (_, not_listed) = manager.deny_hosts(&nqn("nqn.a"), &[nqn("nqn.t5")]).unwrap();
    assert_eq!(not_listed, [nqn("nqn.t5")]);
    manager
        .allow_hosts(&nqn("nqn.a"), &[nqn("nqn.t1")])
        .unwrap();
    drop(manager);
    let five = "hosts = [\"nqn.t1\", \"nqn.t5\"]";
    assert_eq!(starts_with(&rig, five), "Only([nqn.t1])");
    let mut manager = with(&rig, five).manager().unwrap();
    manager.set_hosts(&nqn("nqn.a"), HostPolicy::Any).unwrap();
    drop(manager);
    assert_eq!(starts_with(&rig, THREE), "Only([nqn.t1, nqn.t2, nqn.t3])");
}

/// Removed from the file by mistake, and put back: with any host in its section now, or with the old list.
#[test]
fn a_subsystem_that_left_the_file_and_comes_back_has_the_list_that_was_in_force() {
    let rig = denied();
    let without = Rig {
        file: super::BASE.replace("nqn.a", "nqn.z"),
        ..with(&rig, THREE)
    };
    for _ in 0..2 {
        let manager = without.manager().unwrap();
        assert!(!manager.desired().subsystems.contains_key(&nqn("nqn.a")));
        rig.fake.take();
    }
    for _ in 0..2 {
        assert_eq!(starts_with(&rig, ANY), "Only([nqn.t2, nqn.t3])");
    }
    assert_eq!(starts_with(&rig, THREE), "Only([nqn.t2, nqn.t3])");
}
