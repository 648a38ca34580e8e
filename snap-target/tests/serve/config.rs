//! The daemon started from a configuration file.

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use crate::raw::place;
use crate::target::{Folder, NQN, Target, pack, status_of, tokens};
use frontend_nvme::conformance::Queue;
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
        [subsystem.limits]
        transfer = "64KiB"
        queue-entries = 8
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
    let mut disk = vec![0; 1 << 20];
    host.read(1, 0, &mut disk).unwrap();
    assert!(disk.iter().all(|&byte| byte == 7), "16 commands of 64 KiB");
    assert_eq!(
        status_of(host.write(1, 0, &[1; 4096])),
        Status::NAMESPACE_WRITE_PROTECTED.dnr()
    );
    host.write(9, 512, &[1; 512]).unwrap();
    assert_eq!(target.terminate(), Some(0));
}

/// A subsystem may take less in one command than others of its target.
#[test]
fn a_subsystem_has_a_transfer_size_of_its_own() {
    let folder = Folder::new("transfer");
    let file = folder.path("t.toml");
    let text = format!(
        r#"
        [[listener]]
        address = "127.0.0.1:0"
        [[subsystem]]
        nqn = "{NQN}"
        allow-any-host = true
        [subsystem.limits]
        transfer = "64KiB"
        [[subsystem.namespace]]
        store = "mem:1MiB"
        "#
    );
    std::fs::write(&file, text).unwrap();
    let target = Target::start_configured(&file);
    let host = target.host(&Options::default());
    assert_eq!(host.controller().transfer_bytes_max, 64 << 10);
    drop(host);
    let name = "nqn.2026-11.io.example:a";
    let (_admin, cntlid) = Queue::admin(&place(&target.address, NQN), name, Duration::ZERO);
    let mut io = Queue::io(&place(&target.address, NQN), name, cntlid, 1);
    let read = |io: &mut Queue, blocks: u32| {
        let bytes = blocks * 4096;
        io.fetch(0x02, 1, [0, 0, blocks - 1], bytes)
    };
    assert_eq!(read(&mut io, 16).unwrap().len(), 64 << 10);
    let refused = read(&mut io, 17).unwrap_err();
    assert_eq!(refused, 0x4002, "Invalid Field in Command, DNR");
}

/// A shell's limit on open files is not the daemon's: connections are files.
#[test]
fn a_low_limit_on_open_files_is_raised() {
    let target = Target::start_under("ulimit -S -n 64", &["mem:1MiB"]);
    let queues = Options {
        queues: 64,
        ..Options::default()
    };
    let mut host = Initiator::connect(&target.address, NQN, &queues).unwrap();
    assert_eq!(host.io_queues(), 64);
    host.read(1, 0, &mut [0; 4096]).unwrap();
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

/// docs/snap-target.toml, with all its files beside it and free ports.
#[test]
fn the_documented_example_starts() {
    let folder = Folder::new("example");
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/snap-target.toml");
    let mut text = std::fs::read_to_string(example).unwrap();
    for port in ["4420", "9464"] {
        let (taken, free) = (format!("127.0.0.1:{port}"), "127.0.0.1:0");
        assert_eq!(text.matches(&taken).count(), 1);
        text = text.replace(&taken, free);
    }
    for (place, here) in [
        ("/run/xio/snap-target.sock", "snap-target.sock"),
        ("/run/xio/pf0vf1", "pf0vf1"),
        ("/var/lib/xio", "state"),
    ] {
        assert_eq!(text.matches(place).count(), 1);
        text = text.replace(place, here);
    }
    let file = folder.path("t.toml");
    std::fs::write(&file, text).unwrap();
    pack(&folder.path("tokens.xio"), "u16", &tokens()[..80_000]);
    std::fs::write(folder.path("disk.raw"), vec![0; 1 << 20]).unwrap();
    let target = Target::start_configured(&file);
    let as_host = |name: &str| Options {
        hostnqn: name.to_owned(),
        ..Options::default()
    };
    let nsids = |subsystem: &str, host: &str| -> Vec<u32> {
        let host = Initiator::connect(&target.address, subsystem, &as_host(host)).unwrap();
        host.namespaces().iter().map(|it| it.nsid.0).collect()
    };
    assert_eq!(nsids("nqn.2026-11.io.xio:datasets", "nqn.any"), [1]);
    let disks = "nqn.2026-11.io.xio:disks";
    let (first, second) = (
        "nqn.2014-08.org.nvmexpress:uuid:00112233-4455-6677-8899-aabbccddeeff",
        "nqn.2014-08.org.nvmexpress:uuid:ffeeddcc-bbaa-9988-7766-554433221100",
    );
    assert_eq!(
        (nsids(disks, first), nsids(disks, second)),
        (vec![1, 2, 3], vec![2, 3])
    );
    assert!(Initiator::connect(&target.address, disks, &as_host("nqn.any")).is_err());
    assert!(folder.path("snap-target.sock").exists() && folder.path("state").is_dir());
    assert_eq!(target.terminate(), Some(0));
}
