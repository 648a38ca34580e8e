//! Functions come and go, are kept, and are tried again.

use super::{HealthCode, Manager, Reason, Rig, nqn};
use crate::config::{FunctionConfig, FunctionDevice, FunctionName};
use crate::manage::FunctionLive;

fn name(text: &str) -> FunctionName {
    text.parse().unwrap()
}

fn function(rig: &Rig, text: &str, socket: &str) -> FunctionConfig {
    FunctionConfig {
        name: name(text),
        socket: rig.folder.path().join(socket),
        subsystem: nqn("nqn.a"),
        device: FunctionDevice::Nvme { poll: false },
    }
}

fn disk(rig: &Rig, text: &str, socket: &str, nsid: u32) -> FunctionConfig {
    FunctionConfig {
        device: FunctionDevice::VirtioBlk { nsid },
        ..function(rig, text, socket)
    }
}

fn names(manager: &Manager) -> Vec<String> {
    let all = manager.desired().functions.keys();
    all.map(FunctionName::to_string).collect()
}

fn problems(rig: &Rig) -> Vec<HealthCode> {
    let problems = rig.health.report().problems.into_iter();
    problems.map(|it| it.code()).collect()
}

#[test]
fn a_function_is_made_kept_and_deleted() {
    let rig = Rig::new();
    let mut manager = rig.manager().unwrap();
    rig.fake.take();
    manager
        .create_function(function(&rig, "pf10", "a"))
        .unwrap();
    let polled = FunctionConfig {
        device: FunctionDevice::Nvme { poll: true },
        ..function(&rig, "pf2", "b")
    };
    manager.create_function(polled.clone()).unwrap();
    assert_eq!(rig.fake.take(), ["listen 65535", "listen 65534"]);
    assert_eq!(names(&manager), ["pf2", "pf10"]);
    drop(manager);
    let mut manager = rig.manager().unwrap();
    assert_eq!(names(&manager), ["pf2", "pf10"]);
    assert_eq!(manager.require_function(name("pf2")).unwrap(), &polled);
    let calls = rig.fake.take();
    assert_eq!(calls[calls.len() - 2..], ["listen 65535", "listen 65534"]);
    // The number of one that is gone is free again.
    manager.delete_function(name("pf2")).unwrap();
    manager.create_function(function(&rig, "pf3", "b")).unwrap();
    assert_eq!(rig.fake.take(), ["silence function 65535", "listen 65535"]);
    drop(manager);
    assert_eq!(names(&rig.manager().unwrap()), ["pf3", "pf10"]);
}

#[test]
fn what_cannot_be_made_is_refused_and_changes_nothing() {
    let rig = Rig::new();
    let mut manager = rig.manager().unwrap();
    manager.create_function(function(&rig, "pf0", "a")).unwrap();
    rig.fake.take();
    let mut elsewhere = function(&rig, "pf1", "b");
    elsewhere.subsystem = nqn("nqn.none");
    let _other = std::os::unix::net::UnixListener::bind(rig.folder.path().join("taken")).unwrap();
    for (config, reason) in [
        (function(&rig, "pf0", "b"), Reason::FunctionExists),
        (function(&rig, "pf1", "a"), Reason::AddressTaken),
        (function(&rig, "pf1", "taken"), Reason::AddressRefused),
        (function(&rig, "pf1", "nowhere/b"), Reason::AddressRefused),
        (elsewhere, Reason::NoSubsystem),
    ] {
        let refused = manager.create_function(config.clone()).unwrap_err();
        assert_eq!(refused.reason, reason, "{config:?}: {refused}");
    }
    let refused = manager.delete_function(name("pf1")).unwrap_err();
    assert_eq!(refused.reason, Reason::NoFunction);
    let place = "127.0.0.1:0".parse().unwrap();
    let refused = manager.add_listener(place, Some(65_535)).unwrap_err();
    assert_eq!(refused.reason, Reason::PortIdTaken);
    // What cannot be saved is not there, and its path is free.
    rig.break_folder(true);
    assert!(manager.create_function(function(&rig, "pf1", "b")).is_err());
    assert!(!rig.folder.path().join("b").exists());
    rig.break_folder(false);
    assert_eq!(rig.fake.take(), [""; 0]);
    assert_eq!(names(&manager), ["pf0"]);
}

#[test]
fn a_subsystem_goes_with_its_functions_by_force_alone() {
    let rig = Rig::new();
    let mut manager = rig.manager().unwrap();
    manager.detach(&nqn("nqn.a"), 1).unwrap();
    manager.create_function(function(&rig, "pf0", "a")).unwrap();
    rig.fake.take();
    let refused = manager.delete_subsystem(&nqn("nqn.a"), false).unwrap_err();
    assert_eq!(refused.reason, Reason::SubsystemInUse);
    assert!(refused.to_string().contains("functions 1"), "{refused}");
    manager.delete_subsystem(&nqn("nqn.a"), true).unwrap();
    assert_eq!(rig.fake.take(), ["delete nqn.a", "silence function 65535"]);
    assert_eq!(names(&manager), [""; 0]);
    drop(manager);
    assert_eq!(names(&rig.manager().unwrap()), [""; 0]);
}

/// One of the file whose path somebody else has: the rest is served, health tells, and it is there when the path is free.
#[test]
fn a_function_that_cannot_be_had_is_tried_again() {
    let mut rig = Rig::new();
    let path = rig.folder.path().join("pf0");
    let in_the_way = std::os::unix::net::UnixListener::bind(&path).unwrap();
    rig.file +=
        &format!("[[function]]\nname = \"pf0\"\nsubsystem = \"nqn.a\"\nsocket = {path:?}\n");
    let mut manager = rig.manager().unwrap();
    assert_eq!(problems(&rig), [HealthCode::Function]);
    let failed = manager.live_function(name("pf0"));
    assert!(
        matches!(failed, Some(FunctionLive::Failed(_))),
        "{failed:?}"
    );
    drop(in_the_way);
    std::fs::remove_file(&path).unwrap();
    manager.retry_failed();
    assert_eq!(problems(&rig), []);
    let live = manager.live_function(name("pf0"));
    assert!(matches!(live, Some(FunctionLive::Open(65_535))), "{live:?}");
    // One that was made at a path which the file names by now is forgotten.
    drop(manager);
    let file = std::mem::replace(&mut rig.file, super::BASE.to_owned());
    let mut manager = rig.manager().unwrap();
    manager
        .create_function(function(&rig, "pf7", "pf0"))
        .unwrap();
    drop(manager);
    rig.file = file;
    let manager = rig.manager().unwrap();
    assert_eq!(names(&manager), ["pf0"]);
}

/// A virtio disk, and a block device of this machine.
#[test]
fn a_disk_is_made_kept_and_deleted() {
    let local = FunctionDevice::Ublk { number: 7, nsid: 1 };
    for device in [FunctionDevice::VirtioBlk { nsid: 1 }, local] {
        made_kept_and_deleted(device);
    }
}

fn made_kept_and_deleted(device: FunctionDevice) {
    let rig = Rig::new();
    let mut manager = rig.manager().unwrap();
    rig.fake.take();
    let made = FunctionConfig {
        device,
        ..disk(&rig, "pf3", "a", 1)
    };
    manager.create_function(made.clone()).unwrap();
    assert_eq!(rig.fake.take(), ["disk pf3 nsid 1"]);
    // One that is no namespace's, one at its socket, and one of its name.
    let refused =
        |manager: &mut Manager, config| manager.create_function(config).unwrap_err().reason;
    assert_eq!(
        refused(&mut manager, disk(&rig, "pf4", "b", 9)),
        Reason::NoNamespace
    );
    assert_eq!(
        refused(&mut manager, disk(&rig, "pf4", "a", 1)),
        Reason::AddressTaken
    );
    assert_eq!(
        refused(&mut manager, function(&rig, "pf3", "b")),
        Reason::FunctionExists
    );
    drop(manager);
    // The next start has it, behind its namespace.
    let mut manager = rig.manager().unwrap();
    assert!(rig.fake.take().contains(&"disk pf3 nsid 1".to_owned()));
    assert_eq!(manager.desired().functions.get(&name("pf3")), Some(&made));
    manager.delete_function(name("pf3")).unwrap();
    assert_eq!(rig.fake.take(), ["no disk pf3"]);
    assert!(names(&manager).is_empty());
}
