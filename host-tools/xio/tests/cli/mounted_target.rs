//! `xio mount` of what a target serves, when the target is lost, or serves something else.

use std::fs::{self, File};
use std::io::Read;
use std::time::Instant;

use super::mounting::{Mount, PATIENCE, can_mount, ids};
use super::relay::Relay;
use super::served::{NQN, Target};
use super::support::Folder;

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
            match file.read(&mut piece).unwrap() {
                0 => break,
                read => found.extend_from_slice(&piece[..read]),
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
    // What was read is still there: it cannot have changed.
    assert!(read(3).unwrap() == content[3]);
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
