//! A start over disks and addresses that are not there, or are there twice.

use std::net::TcpListener;

use super::{Rig, new, nqn};
use crate::health::Phase;
use crate::manage::{Manager, NamespaceLive, NewNamespace};

fn problems(rig: &Rig) -> Vec<String> {
    let all = rig.health.report().problems;
    all.into_iter().map(|it| it.id).collect()
}

fn is_served(manager: &Manager, nsid: u32) -> bool {
    matches!(
        manager.live_namespace(&nqn("nqn.a"), nsid),
        Some(NamespaceLive::Served(_))
    )
}

/// The rest is served; what comes back is served without a restart, and told once.
#[test]
fn what_the_file_names_and_is_not_there_is_a_problem_until_it_is() {
    let mut rig = Rig::new();
    let disk = rig.folder.path().join("disk.raw");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    rig.file += &format!(
        "[[subsystem.namespace]]\nstore = \"file:{}\"\n[[listener]]\naddress = \"{address}\"\n",
        disk.display()
    );
    let strict = format!("[target]\nstart = \"all\"\n{}", rig.file);
    rig.health.enter(Phase::Serving);
    let mut manager = rig.manager().unwrap();
    assert_eq!(
        rig.fake.take(),
        [
            "referrals 0",
            "create nqn.a Only([nqn.h])",
            "attach nqn.a 1 1048576 All",
            "listen 1"
        ]
    );
    assert_eq!(problems(&rig), ["listener 2", "nqn.a nsid 2"]);
    assert!(matches!(
        manager.live_namespace(&nqn("nqn.a"), 2),
        Some(NamespaceLive::Failed(why)) if why.contains("check the path")
    ));
    let told = rig.events.range();
    manager.retry_failed();
    manager.wait_for_openings();
    assert_eq!(rig.events.range(), told, "still the same: nothing is told");
    std::fs::write(&disk, vec![0; 8192]).unwrap();
    manager.retry_failed();
    manager.wait_for_openings();
    assert_eq!(rig.fake.take(), ["attach nqn.a 2 8192 All"]);
    assert_eq!(problems(&rig), ["listener 2"]);
    drop(taken);
    // Any change is a reason to look again.
    manager.detach(&nqn("nqn.a"), 1).unwrap();
    assert_eq!(rig.fake.take(), ["detach nqn.a 1", "listen 2"]);
    assert_eq!(problems(&rig), [""; 0]);
    assert_eq!(manager.live_listener(2), Some(address.into()));
    drop(manager);

    rig.file = strict;
    rig.manager().unwrap();
    std::fs::remove_file(&disk).unwrap();
    let error = rig.manager().err().unwrap().to_string();
    assert!(error.contains("check the path"), "{error}");
}

/// The file came to name a disk and an address that were added while serving: its word holds, under its number.
#[test]
fn what_was_made_and_is_now_in_the_file_under_another_number_is_forgotten() {
    let mut rig = Rig::new();
    let disk = rig.folder.path().join("disk.raw");
    std::fs::write(&disk, vec![0; 8192]).unwrap();
    let source = format!("file:{}", disk.display());
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let mut manager = rig.manager().unwrap();
    for (nsid, source) in [(2, source.as_str()), (3, "null:1MiB")] {
        let nsid = Some(nsid);
        manager
            .attach(NewNamespace {
                nsid,
                ..new(source)
            })
            .unwrap();
    }
    manager.add_listener(address.into(), Some(2)).unwrap();
    drop(manager);
    rig.file += &format!(
        "[[subsystem.namespace]]\nnsid = 9\nstore = \"{source}\"\n[[listener]]\naddress = \"{address}\"\nport-id = 7\n"
    );
    for start in 0..2 {
        let manager = rig.manager().unwrap();
        let there = &manager.desired().subsystems[&nqn("nqn.a")].namespaces;
        let there: Vec<u32> = there.keys().copied().collect();
        assert_eq!(there, [1, 3, 9], "start {start}");
        assert!(there.iter().all(|nsid| is_served(&manager, *nsid)));
        let ports: Vec<u16> = manager.desired().listeners.keys().copied().collect();
        assert_eq!(ports, [1, 7]);
        assert_eq!(manager.live_listener(7), Some(address.into()));
        assert_eq!(problems(&rig), [""; 0]);
    }
}
