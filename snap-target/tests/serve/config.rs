//! The daemon started from a configuration file.

use std::process::{Command, Output};

use crate::target::{Folder, Target, status_of};
use initiator::{Initiator, Options};
use nvme_spec::Status;

fn snap_target(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_snap-target"))
        .args(arguments)
        .output()
        .unwrap()
}

/// Relative paths, NSIDs and read-only, as a host sees them.
#[test]
fn a_configured_daemon_serves_what_its_file_says() {
    let folder = Folder::new("configured");
    let disk = folder.path("disk.raw");
    std::fs::write(&disk, vec![7; 1 << 20]).unwrap();
    let file = folder.path("t.toml");
    std::fs::write(
        &file,
        r#"
        [target]
        workers = 0
        [[listener]]
        address = "127.0.0.1:0"
        [[subsystem]]
        nqn = "nqn.2026-11.io.example:configured"
        allow-any-host = true
        [[subsystem.namespace]]
        nsid = 9
        store = "mem:1MiB"
        lba = 512
        [[subsystem.namespace]]
        store = "file:disk.raw"
        read-only = true
        "#,
    )
    .unwrap();
    let checked = snap_target(&["--check-config", file.to_str().unwrap()]);
    assert_eq!(checked.status.code(), Some(0));
    let target = Target::start_configured(&file);
    let mut host = Initiator::connect(
        &target.address,
        "nqn.2026-11.io.example:configured",
        &Options::default(),
    )
    .unwrap();
    let seen: Vec<_> = host
        .namespaces()
        .iter()
        .map(|namespace| (namespace.nsid.0, namespace.bytes(), namespace.lba_bytes))
        .collect();
    assert_eq!(seen, [(1, 1 << 20, 4096), (9, 1 << 20, 512)]);
    let mut block = [0; 4096];
    host.read(1, 0, &mut block).unwrap();
    assert_eq!(block, [7; 4096]);
    assert_eq!(
        status_of(host.write(1, 0, &[1; 4096])),
        Status::NAMESPACE_WRITE_PROTECTED.dnr()
    );
    host.write(9, 512, &[1; 512]).unwrap();
    assert_eq!(target.terminate(), Some(0));
}

/// One line with the place; status 1 for a file that cannot be used, 2 for options that contradict each other.
#[test]
fn a_mistake_in_the_file_ends_the_start() {
    let folder = Folder::new("mistaken");
    let file = folder.path("t.toml");
    std::fs::write(&file, "[[listener]]\naddres = \"127.0.0.1:0\"\n").unwrap();
    let path = file.to_str().unwrap();
    let expected = format!(
        "snap-target: {path}:2:1: [[listener]] addres: there is no such key; did you mean address?\n"
    );
    for option in ["--check-config", "--config"] {
        let output = snap_target(&[option, path]);
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(String::from_utf8(output.stderr).unwrap(), expected);
        assert_eq!(output.stdout, b"");
    }
    for with in [
        ["--listen", "127.0.0.1:0"],
        ["--nqn", "nqn.a"],
        ["mem:1MiB", "mem:1MiB"],
    ] {
        let mut arguments = vec!["--config", path];
        arguments.extend(with);
        assert_eq!(snap_target(&arguments).status.code(), Some(2), "{with:?}");
    }
}
