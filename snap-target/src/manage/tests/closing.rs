//! What is taken away while a store still has operations of it.

use admin_proto::v1::{HealthCode, NamespaceChange, Reason, event::Kind};
use frontend_nvme::Closing;
use nvme::controller::Visibility;

use super::{Rig, new, nqn};
use crate::events::Entry;

/// What happened to namespaces, by their UUIDs.
fn changes(rig: &Rig) -> Vec<(NamespaceChange, u32)> {
    let all = rig.events.read(1, usize::MAX).items;
    all.iter()
        .filter_map(|entry| match &**entry {
            Entry::Event(event) => match event.kind.as_ref()? {
                Kind::Namespace(it) => Some((it.change(), it.nsid)),
                _ => None,
            },
            Entry::NotNoted => None,
        })
        .collect()
}

#[test]
fn a_detached_disk_is_closing_until_its_store_has_answered() {
    let rig = Rig::new();
    let disk = rig.folder.path().join("disk.raw");
    std::fs::write(&disk, vec![0; 8192]).unwrap();
    let link = rig.folder.path().join("link.raw");
    std::os::unix::fs::symlink(&disk, &link).unwrap();
    let source = format!("file:{}", disk.display());
    let mut manager = rig.manager().unwrap();
    assert_eq!(manager.attach(new(&source)), Ok(2));
    let left = Closing::default();
    *rig.fake.leaves.lock().unwrap() = Some(left.clone());
    let why = manager.detach(&nqn("nqn.a"), 2).unwrap().unwrap();
    assert!(why.contains("its store has not answered them"), "{why}");
    *rig.fake.leaves.lock().unwrap() = None;
    let [closing] = manager.closing() else {
        panic!("one is closing")
    };
    assert_eq!((closing.config.nsid, closing.why()), (2, why));
    let problems = rig.health.report().problems;
    assert_eq!(problems[0].code(), HealthCode::Closing);
    assert!(problems[0].id.starts_with("nqn.a nsid 2 closing "));

    // Under its name, and under another one; another disk may have its number.
    for source in [source.clone(), format!("file:{}", link.display())] {
        let error = manager.attach(new(&source)).unwrap_err();
        assert_eq!(error.reason, Reason::SourceClosing, "{error}");
        assert_eq!(error.detail().object_key, "nqn.a 2");
    }
    assert_eq!(manager.attach(new("mem:1MiB")), Ok(2));
    manager.look_around();
    assert_eq!(manager.closing().len(), 1);

    left.end();
    manager.look_around();
    assert_eq!(manager.closing().len(), 0);
    assert_eq!(rig.health.report().problems, []);
    assert_eq!(manager.attach(new(&source)), Ok(3));
    assert_eq!(
        changes(&rig),
        [
            (NamespaceChange::Attached, 2),
            (NamespaceChange::Detached, 2),
            (NamespaceChange::Attached, 2),
            (NamespaceChange::Closed, 2),
            (NamespaceChange::Attached, 3),
        ]
    );
}

#[test]
fn a_deleted_subsystem_leaves_its_disks_closing() {
    let rig = Rig::new();
    let mut manager = rig.manager().unwrap();
    let left = Closing::default();
    *rig.fake.leaves.lock().unwrap() = Some(left.clone());
    let (namespaces, _, why) = manager.delete_subsystem(&nqn("nqn.a"), true).unwrap();
    assert_eq!((namespaces, why.is_some()), (1, true));
    assert_eq!(manager.closing().len(), 1);
    left.end();
    manager.look_around();
    assert_eq!(manager.closing().len(), 0);
}

/// Two hosts lose it one after the other, and each has something under way.
#[test]
fn a_hidden_disk_is_told_as_closing_until_its_store_has_answered() {
    let rig = Rig::new();
    let mut manager = rig.manager().unwrap();
    let of = nqn("nqn.a");
    let lefts = [Closing::default(), Closing::default()];
    for (left, shown) in lefts.iter().zip([vec![nqn("nqn.h")], vec![]]) {
        *rig.fake.leaves.lock().unwrap() = Some(left.clone());
        let hidden = manager.set_visibility(&of, 1, Visibility::Hosts(shown));
        let why = hidden.unwrap().unwrap();
        assert!(why.contains("see null:1MiB no longer"), "{why}");
    }
    *rig.fake.leaves.lock().unwrap() = None;
    let open = || {
        let problems = rig.health.report().problems.into_iter();
        let open = problems.map(|it| (it.code(), it.id));
        open.collect::<Vec<_>>()
    };
    let closing = [(HealthCode::Closing, "nqn.a nsid 1 hidden".to_owned())];
    assert_eq!(open(), closing);
    assert!(manager.waits_for_others());
    assert_eq!(manager.closing().len(), 0, "it is attached");
    lefts[0].end();
    manager.look_around();
    assert_eq!(open(), closing);
    lefts[1].end();
    manager.look_around();
    assert_eq!(open(), []);
    assert!(!manager.waits_for_others());
    let shown = manager.set_visibility(&of, 1, Visibility::All);
    assert_eq!(shown, Ok(None));
    let hidden = (NamespaceChange::Hidden, 1);
    let seen = (NamespaceChange::Visibility, 1);
    assert_eq!(changes(&rig), [seen, seen, hidden, hidden, seen]);
}

#[test]
fn ended_controllers_may_leave_commands() {
    let rig = Rig::new();
    let mut manager = rig.manager().unwrap();
    *rig.fake.leaves.lock().unwrap() = Some(Closing::default());
    let denied = manager.deny_hosts(&nqn("nqn.a"), &[nqn("nqn.h"), nqn("nqn.other")]);
    let (set, not_listed) = denied.unwrap();
    assert!(set.closing.unwrap().contains("ended controllers"));
    assert_eq!(not_listed, [nqn("nqn.other")]);
    assert!(manager.end_controller(1).unwrap().is_some());
    *rig.fake.leaves.lock().unwrap() = None;
    assert_eq!(manager.end_controller(1), Ok(None));
}
