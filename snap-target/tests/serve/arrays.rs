//! Several stores as one behind a daemon: stripes that are written and found again, replicas of which one goes.

use std::process::Command;
use std::time::{Duration, Instant};

use admin_proto::v1;
use initiator::Options;
use nvme_spec::Status;

use crate::admin::{Client, source, start, with_admin};
use crate::damaged::health;
use crate::target::{Folder, NQN, Target, pack, status_of, tokens};
use crate::{check_reads, check_writes};

const MEMBER_BYTES: u64 = (4 << 20) + 4096;

/// Blank files.
fn files(folder: &Folder, names: &[&str]) -> Vec<String> {
    let make = |name: &&str| {
        let path = folder.path(name);
        let file = std::fs::File::create(&path).unwrap();
        file.set_len(MEMBER_BYTES).unwrap();
        format!("file:{}", path.display())
    };
    names.iter().map(make).collect()
}

/// Made of blank members, written, and the same disk after a restart; its members in another order, or one of them alone, are nothing.
#[test]
fn a_stripe_is_written_and_found_again() {
    let folder = Folder::new("stripe");
    let members = files(&folder, &["a", "b", "c"]).join("+");
    let target = Target::start(&[&format!("stripe:new:64KiB:{members}")]);
    let mut host = target.host(&Options::default());
    check_writes(&mut host, 1, 12 << 20);
    let uuid = host.namespace(1).unwrap().ids;
    let mut written = vec![0; 12 << 20];
    host.read(1, 0, &mut written).unwrap();
    host.shutdown().unwrap();
    assert_eq!(target.terminate(), Some(0));
    // Unit 4 is the second of the second member.
    let second = std::fs::read(folder.path("b")).unwrap();
    assert!(second[64 << 10..128 << 10] == written[4 * (64 << 10)..][..64 << 10]);
    for text in [
        format!("stripe:64KiB:{members}"),
        format!("stripe:new:64KiB:{members}"),
    ] {
        let target = Target::start(&[&text]);
        let mut host = target.host(&Options::default());
        let mut found = vec![0; 12 << 20];
        host.read(1, 0, &mut found).unwrap();
        assert!(found == written);
        assert_eq!(host.namespace(1).unwrap().ids, uuid);
    }
    let mut turned: Vec<&str> = members.split('+').collect();
    turned.rotate_left(1);
    for (text, part) in [
        (
            format!("stripe:64KiB:{}", turned.join("+")),
            "it is member 2 of its stripe, and stands as number 1",
        ),
        (
            format!("stripe:128KiB:{members}"),
            "units of 65536 bytes, and 131072 are asked for",
        ),
        (
            format!("stripe:64KiB:{}+{}", turned[2], turned[0]),
            "its stripe has 3 members, and 2 are named",
        ),
        (
            format!("stripe:64KiB:{}", turned[0]),
            "it has 2 to 16 members",
        ),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_snap-target"))
            .args([&text, "--listen", "127.0.0.1:0", "--log", "error"])
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{text}: {said}");
        assert!(said.contains(part), "{text}: {said}");
    }
}

/// A volume written through a served stripe, decoded out of it.
#[test]
fn a_volume_lies_in_a_stripe() {
    let folder = Folder::new("striped-volume");
    let tokens = tokens();
    let path = folder.path("tokens.xvol");
    pack(&path, "u16+zstd:3", &tokens);
    let members = files(&folder, &["a", "b"]).join("+");
    let volume = std::fs::read(&path).unwrap();
    let target = Target::start(&[&format!("stripe:new:64KiB:{members}")]);
    let mut host = target.host(&Options::default());
    let whole = volume.len().next_multiple_of(4096);
    let mut blocks = volume.clone();
    blocks.resize(whole, 0);
    host.write(1, 0, &blocks).unwrap();
    host.flush(1).unwrap();
    host.shutdown().unwrap();
    assert_eq!(target.terminate(), Some(0));
    let target = Target::start(&[&format!("volume:stripe:64KiB:{members}")]);
    let mut host = target.host(&Options::default());
    check_reads(&mut host, 1, &tokens, 3);
    assert_eq!(
        status_of(host.write(1, 0, &[1; 4096])),
        Status::NAMESPACE_WRITE_PROTECTED.dnr()
    );
}

/// A volume in two remote namespaces, one of which goes for good: reads go on without an error, none takes long, and health names the one that is gone. It is
/// attached over the admin service, and is there again after a restart from the state folder.
#[test]
fn reads_of_replicas_go_on_when_one_goes() {
    let folder = Folder::new("replicas");
    let source_bytes = tokens();
    let path = folder.path("tokens.xvol");
    pack(&path, "u16", &source_bytes);
    let copy = folder.path("copy.xvol");
    std::fs::copy(&path, &copy).unwrap();
    let far = [&path, &copy].map(|path| Target::start(&[&format!("file:{}", path.display())]));
    let url = |far: &Target| format!("nvme++tcp://{}/{NQN}?nsid=1", far.address);
    let replicas = format!("volume:replicas:{}+{}", url(&far[0]), url(&far[1]));
    let (socket, mut arguments) = with_admin(&folder);
    arguments.extend(["--cache", "1MiB"].map(str::to_owned));
    let near = start(&arguments, &["null:1MiB"]);
    let client = Client::connect(&socket);
    let attached = client.attach(source(NQN, &replicas)).unwrap();
    assert_eq!(attached.source_text, replicas);
    let nsid = attached.nsid;
    let mut host = near.host(&Options::default());
    check_reads(&mut host, nsid, &source_bytes, 1);
    let uuid = host.namespace(nsid).unwrap().ids;
    assert_eq!(health(&client).problems, []);
    let [gone, stays] = far;
    let address = gone.address.clone();
    gone.kill();
    let mut slowest = Duration::ZERO;
    for _ in 0..4 {
        for at in (0..source_bytes.len() - 4096).step_by(64 << 10) {
            let mut read = [0; 4096];
            let begun = Instant::now();
            host.read(nsid, at as u64, &mut read).unwrap();
            slowest = slowest.max(begun.elapsed());
            assert!(read == source_bytes[at..at + 4096]);
        }
    }
    assert!(slowest < Duration::from_secs(2), "{slowest:?}");
    let told = loop {
        let told = health(&client);
        if !told.problems.is_empty() {
            break told;
        }
        std::thread::yield_now();
    };
    let [problem] = &told.problems[..] else {
        panic!("{told:?}")
    };
    assert_eq!(problem.code(), v1::HealthCode::StorePath);
    assert!(
        problem
            .text
            .contains(&format!("replica nvme+tcp://{address}")),
        "{problem:?}"
    );
    drop((host, client));
    assert_eq!(near.terminate(), Some(0));
    // Without it, the namespace is there all the same, and is the same disk.
    let near = start(&arguments, &["null:1MiB"]);
    let mut host = near.host(&Options::default());
    check_reads(&mut host, nsid, &source_bytes, 2);
    assert_eq!(host.namespace(nsid).unwrap().ids, uuid);
    let told = health(&Client::connect(&socket));
    assert!(
        told.problems
            .iter()
            .any(|it| it.text.contains("is not used until")),
        "{told:?}"
    );
    drop(stays);
}

/// Another volume of the same size is no replica.
#[test]
fn another_file_is_no_replica() {
    let folder = Folder::new("no-replica");
    let (one, two) = (folder.path("one.xvol"), folder.path("two.xvol"));
    pack(&one, "u16", &tokens()[..400_000]);
    pack(&two, "u16", &tokens()[400_000..800_000]);
    let text = format!(
        "volume:replicas:file:{}+file:{}",
        one.display(),
        two.display()
    );
    let output = Command::new(env!("CARGO_BIN_EXE_snap-target"))
        .args([&text, "--listen", "127.0.0.1:0", "--log", "error"])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("is no replica of"), "{said}");
}

/// As a configuration names them: a stripe as `store`, made once and found again, and replicas of a volume as `volume`, with paths beside the file.
#[test]
fn a_configuration_names_arrays() {
    let folder = Folder::new("configured-arrays");
    files(&folder, &["a", "b"]);
    let tokens = tokens();
    pack(&folder.path("one.xvol"), "u16", &tokens);
    std::fs::copy(folder.path("one.xvol"), folder.path("two.xvol")).unwrap();
    let file = folder.path("t.toml");
    let text = format!(
        r#"
        [[listener]]
        address = "127.0.0.1:0"
        [[subsystem]]
        nqn = "{NQN}"
        allow-any-host = true
        [[subsystem.namespace]]
        nsid = 1
        store = "stripe:new:64KiB:file:a+file:b"
        [[subsystem.namespace]]
        nsid = 2
        volume = "replicas:one.xvol+two.xvol"
        "#
    );
    std::fs::write(&file, text).unwrap();
    let mut written = Vec::new();
    for start in 0..2 {
        let target = Target::start_configured(&file);
        let mut host = target.host(&Options::default());
        if start == 0 {
            check_writes(&mut host, 1, 8 << 20);
            written.resize(8 << 20, 0);
            host.read(1, 0, &mut written).unwrap();
        }
        let mut found = vec![0; 8 << 20];
        host.read(1, 0, &mut found).unwrap();
        assert!(found == written);
        check_reads(&mut host, 2, &tokens, 3);
        host.shutdown().unwrap();
        assert_eq!(target.terminate(), Some(0));
    }
    // Unit 3 is the second of the second member.
    let second = std::fs::read(folder.path("b")).unwrap();
    assert!(second[64 << 10..128 << 10] == written[3 * (64 << 10)..][..64 << 10]);
}

/// Both as parts of one disk: their pluses are doubled there.
#[test]
fn a_mixed_disk_has_arrays_as_parts() {
    let folder = Folder::new("mixed-arrays");
    let members = files(&folder, &["a", "b"]).join("++");
    let tokens = tokens();
    let (one, two) = (folder.path("one.xvol"), folder.path("two.xvol"));
    pack(&one, "u16+lz4", &tokens);
    std::fs::copy(&one, &two).unwrap();
    let copies = format!("file:{}++file:{}", one.display(), two.display());
    let text = format!("mixed:volume:replicas:{copies}+stripe:new:64KiB:{members}");
    let target = Target::start(&[&text]);
    let mut host = target.host(&Options::default());
    let view = tokens.len().next_multiple_of(4096);
    let bytes = host.namespace(1).unwrap().bytes();
    assert_eq!(bytes, view as u64 + (8 << 20));
    let mut found = vec![0; view];
    host.read(1, 0, &mut found).unwrap();
    assert!(found[..tokens.len()] == tokens);
    let room: Vec<u8> = (0..1_u32 << 18).flat_map(u32::to_le_bytes).collect();
    let first = view as u64;
    host.write(1, first, &room).unwrap();
    let mut found = vec![0; room.len()];
    host.read(1, first, &mut found).unwrap();
    assert!(found == room);
    host.flush(1).unwrap();
    let second = std::fs::read(folder.path("b")).unwrap();
    assert!(second[..64 << 10] == room[64 << 10..128 << 10]);
    assert_eq!(
        status_of(host.write(1, 0, &[1; 4096])),
        Status::WRITE_TO_READ_ONLY_RANGE.dnr()
    );
}
