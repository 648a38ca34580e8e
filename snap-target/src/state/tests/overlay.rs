//! Which word holds: the file's, or the admin plane's.

use nvme::controller::HostPolicy;

use super::super::json;
use super::super::overlay::Overlay;
use super::{DISKS, MORE, desired};
use crate::desired::Desired;
use crate::limits::HOSTS_MAX;

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
    let over_rdma = "[[listener]]\ntransport = \"rdma\"\naddress = \"[2001:db8::7]:4420\"\n";
    let function = "[[function]]\nname = \"pf0vf1\"\nsubsystem = \"nqn.a\"\nsocket = \"/run/f\"\n";
    let polled = format!("{function}poll = true\n");
    let disk = format!("{function}protocol = \"vhost-user-blk\"\nnsid = 3\n");
    for (base, made) in [
        ("", function),
        (function, ""),
        (function, &polled),
        (&polled, &disk),
        (&disk, function),
        ("", over_rdma),
        (over_rdma, ""),
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
        [
            "subsystem nqn.disks: its section of the file was changed since, and holds; what was changed while serving is forgotten"
        ]
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
        [
            "namespace 2 of nqn.disks: its section of the file was changed since, and holds; what was changed while serving is forgotten"
        ]
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
        [
            "namespace 3 of nqn.disks was added while serving and is forgotten: the file no longer has its subsystem"
        ]
    );
    assert!(!found.subsystems.contains_key(&nqn("nqn.disks")));
}

/// `made` came of `base`, and nqn.host was denied; then the file says `later`. In order: what holds without the denials, and what is said.
fn restored_denied(base: &str, made: &str, later: &str) -> (Desired, Vec<String>) {
    let mut made = desired(made);
    made.deny(&nqn("nqn.disks"), &[nqn("nqn.host")], None);
    let overlay = Overlay::between(&desired(base), &made);
    let kept = json::read(&json::write(&overlay).unwrap()).unwrap();
    assert_eq!(kept, overlay, "through JSON and back");
    let (mut found, said) = kept.onto(&desired(later));
    assert_eq!(std::mem::take(&mut found.denied), made.denied);
    (found, said)
}

const STAYS: &str = "subsystem nqn.disks: nqn.host was denied while serving, and stays denied; `snapctl host allow` lets it in";
const NOT_ANY: &str = "subsystem nqn.disks: the file allows any host, but nqn.host was denied while serving: only hosts that were allowed before may connect; `snapctl host allow nqn.disks --any-host` lets all in";

/// The file was edited for another reason, or came to name the host again: whoever was denied while serving stays out.
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
    let (found, said) = restored_denied(&open, &denied, &renamed(&open));
    assert_eq!(found, desired(&renamed(&denied)));
    assert_eq!(said, Vec::<String>::new());
    // The list itself was edited: the new host is in, the denied one is not.
    let longer = open.replace("nqn.other\"", "nqn.other\", \"nqn.third\"");
    let (found, said) = restored_denied(&open, &denied, &longer);
    assert_eq!(found, desired(&longer.replace("\"nqn.host\", ", "")));
    assert_eq!(said.len(), 2, "{said:?}");
    assert_eq!(said[1], STAYS);
    // It was on no list when it was denied.
    let (found, said) = restored_denied(&denied, &denied, &open);
    assert_eq!((found, said), (desired(&denied), vec![STAYS.to_owned()]));
    let any = open.replace(
        "hosts = [\"nqn.host\", \"nqn.other\"]",
        "allow-any-host = true",
    );
    assert_ne!(any, open);
    let (found, said) = restored_denied(&open, &denied, &any);
    assert_eq!((found, said), (desired(&denied), vec![NOT_ANY.to_owned()]));
    let (found, said) = restored_denied(&any, &denied, &any);
    assert_eq!((found, said), (desired(&denied), Vec::new()));
}

/// A folder of a daemon that kept no denials: whoever the file named and was not allowed had been denied.
#[test]
fn denials_are_read_out_of_what_was_kept_before_they_were() {
    let open = DISKS.replace("[\"nqn.host\"]", "[\"nqn.host\", \"nqn.other\"]");
    let denied = open.replace("\"nqn.host\", ", "");
    let overlay = Overlay::between(&desired(&open), &desired(&denied));
    let mut document: serde_json::Value =
        serde_json::from_slice(&json::write(&overlay).unwrap()).unwrap();
    assert!(document.as_object_mut().unwrap().remove("denied").is_some());
    let kept = json::read(&serde_json::to_vec(&document).unwrap()).unwrap();
    assert_eq!(kept.denied[&nqn("nqn.disks")], [nqn("nqn.host")]);
}

/// Of too many denials the oldest goes that the file does not name.
#[test]
fn so_many_denials_are_kept_and_those_that_matter() {
    let mut desired = Desired::default();
    let named = HostPolicy::Only(vec![nqn("nqn.0")]);
    let all: Vec<_> = (0..=HOSTS_MAX)
        .map(|it| nqn(&format!("nqn.{it}")))
        .collect();
    for host in &all {
        desired.deny(&nqn("nqn.disks"), std::slice::from_ref(host), Some(&named));
    }
    let kept = &desired.denied[&nqn("nqn.disks")];
    assert_eq!(kept.len(), HOSTS_MAX);
    assert_eq!(kept[..2], [nqn("nqn.0"), nqn("nqn.2")]);
}
