//! Which word holds: the file's, or the admin plane's.

use super::super::json;
use super::super::overlay::Overlay;
use super::{DISKS, MORE, desired};
use crate::desired::Desired;

fn nqn(text: &str) -> nvme::nqn::Nqn {
    nvme::nqn::Nqn::parse(text).unwrap()
}

/// `made` came of `base` by the admin plane; then the file says `later`.
fn restored(base: &str, made: &str, later: &str) -> (Desired, Vec<String>) {
    let overlay = Overlay::between(&desired(base), &desired(made));
    let kept = json::read(&json::write(&overlay).unwrap()).unwrap();
    assert_eq!(kept, overlay, "through JSON and back");
    kept.onto(&desired(later))
}

#[test]
fn what_the_admin_plane_made_is_restored_on_the_same_file() {
    let both = format!("{DISKS}{MORE}");
    for (base, made) in [
        (DISKS, MORE),
        (MORE, DISKS),
        (DISKS, &both),
        (&both, MORE),
        ("", DISKS),
        (DISKS, ""),
    ] {
        assert_eq!(restored(base, made, base), (desired(made), Vec::new()));
    }
}

#[test]
fn other_sections_of_the_file_may_change() {
    let both = format!("{DISKS}{MORE}");
    // MORE was made by the admin plane; the file has another namespace by now.
    let edited = DISKS.replace("mem:1MiB", "mem:2MiB");
    let (found, dropped) = restored(DISKS, &both, &edited);
    assert_eq!(found, desired(&format!("{edited}{MORE}")));
    assert_eq!(dropped, Vec::<String>::new());
}

#[test]
fn a_section_that_was_edited_since_holds() {
    // The admin plane let another host in; then the file's list was edited.
    let made = DISKS.replace("nqn.host", "nqn.other");
    let edited = DISKS.replace("nqn.host", "nqn.third");
    let (found, dropped) = restored(DISKS, &made, &edited);
    assert_eq!(found, desired(&edited));
    assert_eq!(
        dropped,
        ["subsystem nqn.disks: its section of the file was changed since, and holds"]
    );
    // The file came to say what the admin plane had made: nothing was lost, nothing is said.
    assert_eq!(restored(DISKS, &made, &made), (desired(&made), Vec::new()));
}

#[test]
fn a_deletion_is_remembered_until_the_section_changes() {
    let without = DISKS.replace(
        "[[subsystem.namespace]]\nnsid = 2\nstore = \"mem:1MiB\"\n",
        "",
    );
    assert_ne!(without, DISKS);
    assert_eq!(
        restored(DISKS, &without, DISKS),
        (desired(&without), Vec::new())
    );
    let edited = DISKS.replace("mem:1MiB", "mem:2MiB");
    let (found, dropped) = restored(DISKS, &without, &edited);
    assert_eq!(found, desired(&edited));
    assert_eq!(
        dropped,
        ["namespace 2 of nqn.disks: its section of the file was changed since, and holds"]
    );
    // The section went, too: the deletion is done with.
    assert_eq!(
        restored(DISKS, &without, &without),
        (desired(&without), Vec::new())
    );
}

#[test]
fn a_deleted_subsystem_comes_back_with_its_namespaces() {
    let edited = DISKS.replace("nqn.host", "nqn.third");
    let (found, dropped) = restored(DISKS, "", &edited);
    assert_eq!(found, desired(&edited));
    assert_eq!(dropped.len(), 1, "{dropped:?}");
}

#[test]
fn a_namespace_whose_subsystem_left_the_file_is_told() {
    let grown = format!("{DISKS}[[subsystem.namespace]]\nstore = \"null:1GiB\"\n");
    let (found, dropped) = restored(DISKS, &grown, MORE);
    assert_eq!(found, desired(MORE));
    assert_eq!(
        dropped,
        ["namespace 3 of nqn.disks: the file no longer has its subsystem"]
    );
    assert!(!found.subsystems.contains_key(&nqn("nqn.disks")));
}

/// The file was edited for another reason: whoever was denied while serving stays out.
#[test]
fn a_host_that_was_denied_stays_denied_when_the_file_changes() {
    let open = DISKS.replace("[\"nqn.host\"]", "[\"nqn.host\", \"nqn.other\"]");
    assert_ne!(open, DISKS);
    let denied = open.replace("\"nqn.host\", ", "");
    let renamed = |text: &str| {
        text.replace(
            "nqn = \"nqn.disks\"",
            "nqn = \"nqn.disks\"\nserial = \"S2\"",
        )
    };
    let (found, dropped) = restored(&open, &denied, &renamed(&open));
    assert_eq!(found, desired(&renamed(&denied)));
    assert_eq!(dropped, Vec::<String>::new());
    // The list itself was edited: the new host is in, the denied one is not.
    let longer = open.replace("nqn.other\"", "nqn.other\", \"nqn.third\"");
    let (found, dropped) = restored(&open, &denied, &longer);
    assert_eq!(found, desired(&longer.replace("\"nqn.host\", ", "")));
    assert_eq!(dropped.len(), 2, "{dropped:?}");
    assert!(
        dropped[0].contains("nqn.host was denied while serving"),
        "{dropped:?}"
    );
}
