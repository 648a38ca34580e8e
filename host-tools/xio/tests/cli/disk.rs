//! A folder as a disk: what is presented is a filesystem with the folder's bytes, whatever the chains.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

use erofs::{Image, Kind, Walk};

use super::relay::Relay;
use super::served::{NQN, Target};
use super::support::{Folder, Random, xio};

const BLOCK: u64 = 4096;

/// Token ids below 50,000 in `.bin` files, and other things.
pub fn dataset(folder: &Folder) {
    let at = folder.path("dataset");
    fs::create_dir_all(at.join("deep/deeper")).unwrap();
    fs::create_dir(at.join("empty")).unwrap();
    let mut random = Random::new(1);
    for (name, ids) in [
        ("train.bin", 100_000),
        ("deep/val.bin", 1),
        ("deep/deeper/none.bin", 0),
        ("test.bin", 1024),
    ] {
        let bytes: Vec<u8> = (0..ids)
            .flat_map(|_| (random.next() % 50_000).to_le_bytes())
            .collect();
        fs::write(at.join(name), bytes).unwrap();
    }
    fs::write(at.join("README"), b"words").unwrap();
    fs::write(
        at.join(std::ffi::OsString::from_vec(b"\xff\n".to_vec())),
        [9; 5000],
    )
    .unwrap();
    symlink("deep/val.bin", at.join("link")).unwrap();
    fs::set_permissions(at.join("README"), fs::Permissions::from_mode(0o4640)).unwrap();
}

#[derive(Debug, PartialEq, Eq)]
pub struct Seen {
    mode: u32,
    owner: (u32, u32),
    modified: (i64, i64),
    pub content: Vec<u8>,
}

/// What is in a folder, by path.
pub fn of_folder(root: &Path) -> BTreeMap<Vec<u8>, Seen> {
    let mut seen = BTreeMap::new();
    let mut left = vec![root.to_owned()];
    while let Some(folder) = left.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let about = fs::symlink_metadata(&path).unwrap();
            let content = if about.is_dir() {
                left.push(path.clone());
                Vec::new()
            } else if about.is_symlink() {
                fs::read_link(&path).unwrap().into_os_string().into_vec()
            } else {
                fs::read(&path).unwrap()
            };
            let below = path
                .strip_prefix(root)
                .unwrap()
                .as_os_str()
                .as_bytes()
                .to_vec();
            let it = Seen {
                mode: about.mode(),
                owner: (about.uid(), about.gid()),
                modified: (about.mtime(), about.mtime_nsec()),
                content,
            };
            seen.insert(below, it);
        }
    }
    seen
}

/// What a disk holds, by path.
pub fn of_disk(disk: &[u8]) -> BTreeMap<Vec<u8>, Seen> {
    let mut image = Image::open(disk, disk.len() as u64 / BLOCK).unwrap();
    let mut seen = BTreeMap::new();
    let mut walk = Walk::new();
    while let Some(visit) = walk.next(&mut image).unwrap() {
        let inode = visit.inode;
        let (file_type, content) = match inode.kind {
            Kind::Directory => (0o040_000, Vec::new()),
            Kind::Symlink => (0o120_000, image.target(&inode).unwrap()),
            Kind::File => {
                let mut content = vec![0; usize::try_from(inode.bytes).unwrap()];
                image.read(&inode, 0, &mut content).unwrap();
                (0o100_000, content)
            }
        };
        let attributes = inode.attributes;
        let it = Seen {
            mode: file_type | u32::from(attributes.permissions),
            owner: (attributes.uid, attributes.gid),
            modified: (
                attributes.modified.seconds,
                attributes.modified.nanoseconds.into(),
            ),
            content,
        };
        seen.insert(visit.path, it);
    }
    seen
}

#[test]
fn a_folder_becomes_a_disk_with_its_bytes() {
    let folder = Folder::new();
    dataset(&folder);
    let wanted = of_folder(&folder.path("dataset"));
    assert_eq!(wanted.len(), 10);
    for rules in [
        &[][..],
        &[
            "--as",
            "*.bin=u32",
            "--store-as",
            "u16+lz4",
            "--frame",
            "4KiB",
        ],
        &[
            "--as",
            "*.bin=u32",
            "--store",
            "deep/*.bin=bitpack:16",
            "--store",
            "*.bin=u16+zstd:3",
            "--store-as",
            "lz4",
            "--lba",
            "512",
        ],
    ] {
        let format = [
            &["pack", "dataset", "--no-manifest", "--force", "-o", "v.xio"],
            rules,
        ]
        .concat();
        folder.done(&format);
        folder.done(["verify", "v.xio"]);
        folder.done(["unpack", "v.xio", "--force", "-o", "disk.img"]);
        let disk = folder.read("disk.img");
        assert!(of_disk(&disk) == wanted, "{rules:?}");
        // The same again, with another number of threads.
        let first = folder.read("v.xio");
        folder.done([&format[..], &["--threads", "3"]].concat());
        assert!(folder.read("v.xio") == first, "{rules:?}");
    }
}

/// What is in a folder, as a copy has it.
fn of_copy(root: &Path) -> BTreeMap<Vec<u8>, Seen> {
    let mut seen = of_folder(root);
    for it in seen.values_mut() {
        it.mode &= 0o170_777;
        // A symbolic link is made when it is copied.
        if it.mode & 0o170_000 == 0o120_000 {
            it.modified = (0, 0);
        }
    }
    seen
}

#[test]
fn a_disk_is_copied_from_its_volume_and_from_a_target() {
    let folder = Folder::new();
    dataset(&folder);
    let readonly = folder.path("dataset/deep/deeper");
    fs::set_permissions(&readonly, fs::Permissions::from_mode(0o555)).unwrap();
    let wanted = of_copy(&folder.path("dataset"));
    folder.done([
        "pack",
        "dataset",
        "--as",
        "*.bin=u32",
        "--store",
        "*.bin=u16+lz4",
        "--no-manifest",
        "-o",
        "v.xio",
    ]);
    let said = folder.done(["cp", "v.xio", "copied"]);
    assert_eq!(
        said,
        "copied: 6 files of 409,105 bytes, 3 folders, 1 symbolic link\n"
    );
    assert!(of_copy(&folder.path("copied")) == wanted);
    let target = Target::start(NQN, &[&folder.path("v.xio")]);
    folder.done(["cp", &target.url(""), "served"]);
    assert!(of_copy(&folder.path("served")) == wanted);

    let exists = "copied exists already; choose another name";
    folder.fails(2, exists, &["cp", "v.xio", "copied"]);
    folder.write("plain", &[7; 8192]);
    folder.done(["pack", "plain", "--dtype", "u8", "-o", "plain.xio"]);
    folder.fails(
        1,
        "plain.xio has neither a filesystem nor a partition table: there are no files to copy; 'xio unpack' writes the bytes of a volume into a file",
        &["cp", "plain.xio", "no"],
    );
    let before = folder.names();
    assert!(!before.contains(&"no".to_owned()), "{before:?}");
    assert!(
        !before.iter().any(|name| name.starts_with('.')),
        "{before:?}"
    );
}

/// A disk whose directory has been tampered with, but whose volume is whole: nothing is left of the copy.
#[test]
fn a_disk_that_is_wrong_is_not_copied() {
    let folder = Folder::new();
    dataset(&folder);
    folder.done(["pack", "dataset", "-o", "v.xio"]);
    folder.spoil_disk(|disk| {
        let names = disk[4096..].windows(6).position(|bytes| bytes == b"README");
        disk[4096 + names.unwrap()] = b'/';
    });
    folder.fails(
        1,
        "wrong.xio: directory 128, its block 0: the name \"/EADME\" has a '/' or NUL in it",
        &["cp", "wrong.xio", "no"],
    );
    assert_eq!(
        folder.names(),
        ["dataset", "disk.img", "v.xio", "wrong.xio"]
    );
}

/// Token ids in files that are stored as they are.
fn plain_files(folder: &Folder) {
    fs::create_dir(folder.path("d")).unwrap();
    let mut random = Random::new(7);
    for name in ["d/a.bin", "d/b.bin"] {
        let bytes: Vec<u8> = (0..1_000_000)
            .flat_map(|_| random.next().to_le_bytes())
            .collect();
        folder.write(name, &bytes);
    }
    let pack = [
        "pack",
        "d",
        "--store-as",
        "none",
        "--no-manifest",
        "-o",
        "v.xio",
    ];
    folder.done(pack);
}

/// The stored bytes are wrong: the copy ends, with the same status from the volume and from a target.
#[test]
fn damaged_bytes_are_not_copied() {
    let folder = Folder::new();
    plain_files(&folder);
    let mut volume = folder.read("v.xio");
    let place = folder.read("d/b.bin")[800_000..800_064].to_vec();
    let at = volume.windows(64).position(|window| window == place);
    volume[at.unwrap()] ^= 1;
    folder.write("v.xio", &volume);
    let target = Target::start(NQN, &[&folder.path("v.xio")]);
    for (source, why) in [
        ("v.xio", "checksum mismatch"),
        (&target.url(""), "Unrecovered Read Error"),
    ] {
        let ran = folder.xio(["cp", source, "no"]);
        assert_eq!((ran.status, ran.stdout.as_str()), (1, ""), "{}", ran.stderr);
        assert!(
            ran.stderr.starts_with(&format!("error: {source}: b.bin: ")),
            "{}",
            ran.stderr
        );
        assert!(ran.stderr.contains(why), "{}", ran.stderr);
        let ran = folder.xio(["diff", "d", source]);
        assert_eq!((ran.status, ran.stdout.as_str()), (3, ""), "{}", ran.stderr);
        assert!(
            ran.stderr.starts_with(&format!("error: {source}: b.bin: ")),
            "{}",
            ran.stderr
        );
        assert_eq!(folder.names(), ["d", "v.xio"]);
    }
}

/// Serves `v.xio` behind something that can cut its connections.
fn through_relay(folder: &Folder) -> (Target, Relay, String) {
    let target = Target::start(NQN, &[&folder.path("v.xio")]);
    let relay = Relay::start();
    relay.lead(Some(target.address));
    let url = format!("nvme+tcp://{}/{NQN}", relay.address);
    (target, relay, url)
}

/// `xio cp URL copied`, when it has begun to copy.
fn start_copy(folder: &Folder, url: &str) -> Child {
    let mut copy = xio()
        .current_dir(folder.path(""))
        .args(["cp", url, "copied"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let is_partial = |name: &String| name.starts_with(".xio-cp-");
    while !folder.names().iter().any(is_partial) && copy.try_wait().unwrap().is_none() {
        thread::yield_now();
    }
    copy
}

/// It is told to end while it waits for the target.
#[test]
fn a_copy_that_is_ended_leaves_nothing() {
    let folder = Folder::new();
    plain_files(&folder);
    let target = Target::start(NQN, &[&folder.path("v.xio")]);
    let relay = Relay::start();
    for (signal, number) in [("TERM", 15), ("INT", 2), ("HUP", 1)] {
        relay.lead(Some(target.address));
        let url = format!("nvme+tcp://{}/{NQN}", relay.address);
        let copy = start_copy(&folder, &url);
        assert!(relay.lead(None) > 0);
        let pid = copy.id().to_string();
        let told = Command::new("kill").args(["-s", signal, &pid]).status();
        assert!(told.unwrap().success());
        relay.lead(Some(target.address));
        let ended = copy.wait_with_output().unwrap();
        let why = "error: ended by a signal; what was not complete is removed\n";
        assert_eq!(String::from_utf8(ended.stderr).unwrap(), why);
        assert_eq!(ended.status.signal(), Some(number));
        assert_eq!(folder.names(), ["d", "v.xio"]);
    }
}

/// `kill -9` leaves a part of a copy, which the next one removes; that of a copy that is going on stays.
#[test]
fn a_copy_that_was_killed_is_removed_by_the_next() {
    let folder = Folder::new();
    plain_files(&folder);
    let (_target, relay, url) = through_relay(&folder);
    let mut copy = start_copy(&folder, &url);
    assert!(relay.lead(None) > 0);
    let partial = folder.names().swap_remove(0);
    assert!(partial.starts_with(".xio-cp-"), "{partial}");
    // What is in it is made when it is locked.
    while !folder.path(&partial).join("root").exists() {
        assert!(copy.try_wait().unwrap().is_none());
        thread::yield_now();
    }
    folder.done(["cp", "v.xio", "second"]);
    assert!(folder.path(&partial).join("root").exists());
    copy.kill().unwrap();
    copy.wait().unwrap();
    assert_eq!(folder.names(), [&partial, "d", "second", "v.xio"]);
    folder.done(["cp", "v.xio", "third"]);
    assert_eq!(folder.names(), ["d", "second", "third", "v.xio"]);
}

/// Connections are cut while files are copied: every byte still comes.
#[test]
fn a_copy_outlives_lost_connections() {
    let folder = Folder::new();
    plain_files(&folder);
    let (target, relay, url) = through_relay(&folder);
    let is_running = |copy: &mut Child| copy.try_wait().unwrap().is_none();
    let mut copy = start_copy(&folder, &url);
    let mut cut = 0;
    while cut < 3 && is_running(&mut copy) {
        cut += relay.lead(Some(target.address));
        thread::yield_now();
    }
    assert!(copy.wait().unwrap().success());
    assert!(cut > 0);
    assert!(of_copy(&folder.path("copied")) == of_copy(&folder.path("d")));
}

#[test]
fn the_filesystems_identity_is_that_of_its_content() {
    let folder = Folder::new();
    dataset(&folder);
    let uuid = |more: &[&str]| {
        let format = [
            &["pack", "dataset", "--force", "--json", "-o", "v.xio"],
            more,
        ]
        .concat();
        let printed: serde_json::Value = serde_json::from_str(&folder.done(format)).unwrap();
        folder.done(["unpack", "v.xio", "--force", "-o", "disk.img"]);
        let disk = folder.read("disk.img");
        assert_eq!(printed["disk_bytes"], disk.len());
        assert_eq!(printed["files"], 6);
        let on_disk: String = disk[1072..1088]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let uuid = printed["disk_uuid"].as_str().unwrap().to_owned();
        assert_eq!(uuid.replace('-', ""), on_disk);
        uuid
    };
    let first = uuid(&[]);
    assert_eq!(uuid(&[]), first);
    assert_eq!(uuid(&["--name", "other"]), first);
    assert_ne!(uuid(&["--label", "other"]), first);
    let mut seen = vec![first];
    let mut another = |why: &str| {
        let uuid = uuid(&[]);
        assert!(!seen.contains(&uuid), "{why}");
        seen.push(uuid);
    };
    fs::write(folder.path("dataset/README"), b"wordz").unwrap();
    another("other bytes");
    let readable = fs::Permissions::from_mode(0o604);
    fs::set_permissions(folder.path("dataset/README"), readable).unwrap();
    another("another mode");
    // Of the same age, so that only where it leads is new.
    for target in ["README", "train.bin"] {
        let (links, times) = (folder.path("dataset/link"), "2001-02-03 04:05:06Z");
        let _ = fs::remove_file(&links);
        symlink(target, &links).unwrap();
        for path in [links, folder.path("dataset")] {
            let mut touch = Command::new("touch");
            let touched = touch.args(["-h", "-d", times]).arg(path).status();
            assert!(touched.unwrap().success());
        }
        another(target);
    }
}

#[test]
fn what_cannot_be_a_disk_is_refused() {
    let folder = Folder::new();
    dataset(&folder);
    let fails = |status, error: &str, more: &[&str]| {
        folder.fails(
            status,
            error,
            &[&["pack", "dataset", "-o", "v.xio"], more].concat(),
        );
        assert_eq!(folder.names(), ["dataset"]);
    };
    fails(
        1,
        "dataset/train.bin: element 0 (byte 0) is 19548, which does not fit u8 (0..=255): it needs 15 bits, and later elements may need more; choose a wider stored chain",
        &["--as", "train.bin=u32", "--store", "train.bin=u8"],
    );
    fails(
        1,
        "dataset/README: the file: 5 bytes are no whole number of u32 elements",
        &["--as", "*=u32"],
    );
    fails(
        2,
        "the filesystem's label sixteen bytes it; a label has up to 15 bytes, without NUL; choose a shorter one (--label)",
        &["--label", "sixteen bytes it"],
    );
    fails(
        2,
        "--lba 4294967296: 512 and 4096 are possible",
        &["--lba", "4GiB"],
    );
    let _listener = UnixListener::bind(folder.path("dataset/socket")).unwrap();
    fails(
        2,
        "1 name cannot be on a disk (it holds files, folders and links); leave them out with --exclude PATTERN, such as --exclude 'socket':\n  dataset/socket: a socket",
        &[],
    );
    let wrong = folder.xio(["pack", "dataset", "--store", "*.bin", "-o", "v.xio"]);
    assert_eq!(wrong.status, 2);
    assert!(
        wrong
            .stderr
            .contains("it is PATTERN=CHAIN, such as '*.bin=u16+lz4'"),
        "{}",
        wrong.stderr
    );
}

/// The second of two files in a stream: the place is one in that file.
#[test]
fn a_value_that_does_not_fit_is_found_in_its_file() {
    let folder = Folder::new();
    fs::create_dir(folder.path("d")).unwrap();
    folder.write("d/a", &[0; 400]);
    let mut second = [0; 400];
    second[40..44].copy_from_slice(&70_000u32.to_le_bytes());
    folder.write("d/b", &second);
    folder.fails(
        1,
        "d/b: element 10 (byte 40) is 70000, which does not fit u16 (0..=65535): it needs 17 bits, and later elements may need more; choose a wider stored chain",
        &["pack", "d", "--as", "*=u32", "--store-as", "u16", "-o", "v.xio"],
    );
}

/// New content is a new disk: the manifest is a part of it, and says how the bytes are stored.
#[test]
fn the_uuid_is_of_all_that_is_presented() {
    let folder = Folder::new();
    fs::create_dir(folder.path("d")).unwrap();
    folder.write("d/a", &[7; 5000]);
    let uuid = |arguments: &[&str]| {
        let fixed = ["pack", "d", "--force", "--json", "-o", "v.xio"];
        let said = folder.done([&fixed[..], arguments].concat());
        let said: serde_json::Value = serde_json::from_str(&said).unwrap();
        said["disk_uuid"].as_str().unwrap().to_owned()
    };
    let plain = uuid(&["--store-as", "none"]);
    assert_eq!(uuid(&["--store-as", "none"]), plain);
    let bare = uuid(&["--store-as", "none", "--no-manifest"]);
    let lz4 = uuid(&["--store-as", "lz4"]);
    assert!(plain != bare && plain != lz4 && bare != lz4);
    // Without a manifest the disk is the same however it is stored.
    assert_eq!(uuid(&["--store-as", "lz4", "--no-manifest"]), bare);
}
