//! `xio mount` of what a target serves, when the target is lost, or serves something else.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;

use super::mounting::{Mount, PATIENCE, can_mount, ids};
use super::relay::Relay;
use super::served::{NQN, Target};
use super::support::{Folder, Random};

/// Connections are cut while files are read: every byte still comes, and is right. Then nobody answers: an error, in time. Then another disk answers: never its bytes.
#[test]
fn a_lost_target_is_found_again_or_given_up() {
    if !can_mount() {
        return;
    }
    let folder = Folder::new();
    let source = folder.path("d");
    fs::create_dir(&source).unwrap();
    let content: Vec<_> = (0..6).map(|seed| ids(seed, 2_000_000)).collect();
    for (number, bytes) in content.iter().enumerate() {
        fs::write(source.join(number.to_string()), bytes).unwrap();
    }
    folder.done(["pack", "d", "--no-manifest", "-o", "v.xio"]);
    fs::write(source.join("5"), ids(77, 2_000_000)).unwrap();
    folder.done(["pack", "d", "--no-manifest", "-o", "other.xio"]);
    let target = Target::start(NQN, &[&folder.path("v.xio")]);
    let other = Target::start(NQN, &[&folder.path("other.xio")]);
    let relay = Relay::start();
    relay.lead(Some(target.address));
    let url = format!("nvme+tcp://{}/{NQN}?nsid=1", relay.address);
    let mut mount = Mount::start(&folder, &url, "m", &["--reconnect", "20"]);

    let mut cut = 0;
    for (number, wanted) in content.iter().enumerate().take(3) {
        let mut file = File::open(mount.folder.join(number.to_string())).unwrap();
        let mut found = Vec::new();
        let mut piece = vec![0; 700_000];
        loop {
            cut += relay.lead(Some(target.address));
            match file.read(&mut piece) {
                Ok(0) => break,
                Ok(read) => found.extend_from_slice(&piece[..read]),
                Err(error) => panic!("{number}: {error}\n{}", mount.complaints()),
            }
        }
        assert!(found == *wanted, "{number}");
    }
    assert!(cut > 3, "{cut} connections were cut");
    mount.signal("TERM");
    assert_eq!(mount.ended(), (0, String::new()));

    let mut mount = Mount::start(&folder, &url, "n", &["--reconnect", "1"]);
    let read = |number: usize| fs::read(mount.folder.join(number.to_string()));
    assert!(read(3).unwrap() == content[3]);
    relay.lead(None);
    let began = Instant::now();
    assert_eq!(read(4).unwrap_err().raw_os_error(), Some(5));
    assert!(began.elapsed() < PATIENCE);
    relay.lead(Some(other.address));
    assert_eq!(read(5).unwrap_err().raw_os_error(), Some(5));
    // What was read cannot have changed, and is there as long as the kernel has memory for it.
    match read(3) {
        Ok(bytes) => assert!(bytes == content[3]),
        Err(error) => assert_eq!(error.raw_os_error(), Some(5)),
    }
    relay.lead(Some(target.address));
    assert!(read(4).unwrap() == content[4]);
    mount.signal("TERM");
    let (status, complaints) = mount.ended();
    assert_eq!(status, 0);
    assert!(complaints.contains("error: n: 4, "), "{complaints}");
    assert!(complaints.contains("given up after 1s"), "{complaints}");
    assert!(
        complaints.contains("namespace 1 is another one now ("),
        "{complaints}"
    );
}

/// All reads of an outage have one deadline: a file of many of them takes no longer than one. From then on they fail at once, until the target is back.
#[test]
fn an_outage_has_one_deadline() {
    if !can_mount() {
        return;
    }
    let folder = Folder::new();
    fs::create_dir(folder.path("d")).unwrap();
    folder.write("d/ids", &ids(1, 2_000_000));
    folder.done(["pack", "d", "--no-manifest", "-o", "v.xio"]);
    let target = Target::start(NQN, &[&folder.path("v.xio")]);
    let relay = Relay::start();
    relay.lead(Some(target.address));
    let url = format!("nvme+tcp://{}/{NQN}?nsid=1", relay.address);
    let mut mount = Mount::start(&folder, &url, "m", &["--reconnect", "3"]);
    let file = File::open(mount.folder.join("ids")).unwrap();
    relay.lead(None);
    // Far from each other, so that none is read ahead: eight pages, each of which the kernel asks for again.
    let fails = || {
        let began = Instant::now();
        for page in 0..8 {
            let read = file.read_at(&mut [0; 10], page * 900_000);
            assert_eq!(read.unwrap_err().raw_os_error(), Some(5));
        }
        began.elapsed()
    };
    let took = fails();
    let patience = Duration::from_secs(3);
    assert!(took > patience * 9 / 10, "{took:?}");
    assert!(took < patience * 2, "{took:?}");
    let took = fails();
    assert!(took < patience, "{took:?}");
    relay.lead(Some(target.address));
    assert!(fs::read(mount.folder.join("ids")).unwrap() == ids(1, 2_000_000));
    mount.signal("TERM");
    assert_eq!(mount.ended().0, 0);
}

/// What came of a read.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// The bytes of the first volume.
    Right,
    /// EIO.
    Failed,
    /// Other bytes from this place on, or another error.
    Wrong(usize, Option<String>),
}

/// The NSID is given another volume while connections to it stay, under readers that never stop: an error or the bytes of the first volume, never one of the
/// other. Given back, it is read on.
#[test]
fn an_nsid_with_other_content_is_noticed_on_a_connection_that_stays() {
    if !can_mount() {
        return;
    }
    let folder = Folder::new();
    let source = folder.path("d");
    fs::create_dir(&source).unwrap();
    // The same size, name and place: only the bytes differ. 48 MB, which is more than is held of what was read ahead: who reads on and on meets what is not.
    let content = |seed: u64| ids(seed, 12_000_000);
    for (volume, seed) in [("v.xio", 1), ("other.xio", 2)] {
        fs::write(source.join("ids"), content(seed)).unwrap();
        let as_it_is = ["--no-manifest", "--store-as", "none"];
        folder.done([&["pack", "d", "-o", volume], &as_it_is[..]].concat());
    }
    let wanted = Arc::new(content(1));
    let (first, second) = (folder.path("v.xio"), folder.path("other.xio"));
    let target = Target::start(NQN, &[&first]);
    let mut mount = Mount::start(&folder, &target.url("?nsid=1"), "m", &["--reconnect", "20"]);
    // Each reader goes past the page cache, so that every read asks the target.
    let (told, tells) = mpsc::channel();
    let readers: Vec<_> = (0..3)
        .map(|number| {
            let (path, wanted, told) =
                (mount.folder.join("ids"), Arc::clone(&wanted), told.clone());
            thread::spawn(move || {
                let file = File::options()
                    .read(true)
                    .custom_flags(OFlag::O_DIRECT.bits())
                    .open(path)
                    .unwrap();
                let mut piece = vec![0; 64 << 10];
                let mut random = Random::new(number as u64);
                loop {
                    let at = random.next() as usize % (wanted.len() - piece.len()) / 4096 * 4096;
                    let outcome = match file.read_at(&mut piece, at as u64) {
                        Ok(read) if piece[..read] == wanted[at..at + read] => Outcome::Right,
                        Err(error) if error.raw_os_error() == Some(5) => Outcome::Failed,
                        other => Outcome::Wrong(at, other.err().map(|error| error.to_string())),
                    };
                    if told.send((number, outcome)).is_err() {
                        return;
                    }
                }
            })
        })
        .collect();
    let wait_for = |wanted: &Outcome| {
        let mut left = vec![0, 1, 2];
        while !left.is_empty() {
            let (number, outcome) = tells.recv_timeout(PATIENCE).unwrap();
            let is_wrong = matches!(outcome, Outcome::Wrong(..));
            assert!(!is_wrong, "file {number}: {outcome:?}");
            left.retain(|&it| it != number || outcome != *wanted);
        }
    };
    for _ in 0..5 {
        wait_for(&Outcome::Right);
        target.swap(&second);
        wait_for(&Outcome::Failed);
        target.swap(&first);
    }
    wait_for(&Outcome::Right);
    drop(tells);
    for reader in readers {
        reader.join().unwrap();
    }
    mount.signal("TERM");
    let (status, complaints) = mount.ended();
    assert_eq!(status, 0);
    let view = |volume: &str| {
        let said = folder.done(["inspect", volume, "--json"]);
        let mut said: serde_json::Value = serde_json::from_str(&said).unwrap();
        let view = said["views"][0].take();
        let uuid = view["namespace_uuid"].as_str().unwrap();
        format!("{uuid}, {} bytes", view["presented_bytes"])
    };
    let (is, was) = (view("other.xio"), view("v.xio"));
    let why = format!(": namespace 1 is another one now ({is}) than it was ({was})\n");
    assert!(complaints.contains(&why), "{why}\n{complaints}");
}
