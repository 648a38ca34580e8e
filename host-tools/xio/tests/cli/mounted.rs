//! `xio mount`: what the kernel shows of a disk is what the folder holds. Where this machine cannot mount, these tests say that they are skipped.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::disk::{dataset, of_folder};
use super::relay::Relay;
use super::served::{NQN, Target};
use super::support::{Folder, Random, xio};

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

fn can_mount() -> bool {
    let device = File::options().read(true).write(true).open("/dev/fuse");
    let can =
        device.is_ok() && (is_root() || Command::new("fusermount3").arg("-V").output().is_ok());
    if !can {
        println!(
            "skipped: this machine cannot mount: no /dev/fuse, or neither root nor fusermount3"
        );
    }
    can
}

/// A mount that is there until it is dropped.
struct Mount {
    child: Child,
    folder: PathBuf,
    errors: PathBuf,
    said: String,
}

impl Mount {
    /// Mounts `source` on the new folder `name`.
    fn start(folder: &Folder, source: &str, name: &str, more: &[&str]) -> Mount {
        let at = folder.path(name);
        fs::create_dir(&at).unwrap();
        let errors = folder.path(&format!("{name}.err"));
        let mut child = xio()
            .current_dir(folder.path(""))
            .args(["mount", source, name])
            .args(more)
            .stdout(Stdio::piped())
            .stderr(File::create(&errors).unwrap())
            .spawn()
            .unwrap();
        let mut said = String::new();
        let stdout = child.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut said).unwrap();
        let complaints = fs::read_to_string(&errors).unwrap();
        assert!(
            said.starts_with(&format!("{name}: mounted, ")),
            "{said}{complaints}"
        );
        Mount {
            child,
            folder: at,
            errors,
            said,
        }
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let told = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(told.unwrap().success());
    }

    /// Waits for the program's end; its exit status, and all that it complained of.
    fn ended(&mut self) -> (i32, String) {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                let complaints = fs::read_to_string(&self.errors).unwrap();
                return (status.code().unwrap(), complaints);
            }
            assert!(began.elapsed() < PATIENCE, "it does not end");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Unmounts by SIGTERM; nothing may have been complained of.
    fn end(mut self) {
        self.signal("TERM");
        assert_eq!(self.ended(), (0, String::new()));
        assert!(!is_mounted(&self.folder));
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Where a test failed: what reads in it gets an error, and the folder can be removed.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if is_mounted(&self.folder) {
            let _ = Command::new("umount").arg("-l").arg(&self.folder).status();
        }
    }
}

fn is_mounted(folder: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let needle = format!(" {} fuse", folder.display());
    mounts.lines().any(|line| line.contains(&needle))
}

/// Python reads both through its own mmap, at 3,000 places of each file that has 1 MiB or more.
const MMAP: &str = "
import mmap, os, random, sys
source, mounted = map(os.fsencode, sys.argv[1:])
random.seed(5)
count = 0
for root, _, names in os.walk(source):
    for name in names:
        path = os.path.join(root, name)
        other = os.path.join(mounted, os.path.relpath(path, source))
        if os.path.islink(path) or os.path.getsize(path) < 1 << 20:
            continue
        with open(path, 'rb') as a, open(other, 'rb') as b:
            a, b = (mmap.mmap(it.fileno(), 0, prot=mmap.PROT_READ) for it in (a, b))
            assert len(a) == len(b)
            for _ in range(3000):
                at = random.randrange(len(a))
                length = random.choice((1, 4, 5000, 200000))
                assert a[at:at + length] == b[at:at + length], (path, at, length)
            count += 1
print(count)
";

fn compare_mmaps(source: &Path, mounted: &Path) -> String {
    let mut python = Command::new("python3");
    let python = python.args(["-c", MMAP]).arg(source).arg(mounted);
    let python = python.output().unwrap();
    let said = String::from_utf8_lossy(&python.stderr).into_owned();
    assert!(python.status.success(), "{said}");
    String::from_utf8(python.stdout).unwrap()
}

fn ids(seed: u64, count: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..count)
        .flat_map(|_| (random.next() % 50_000).to_le_bytes())
        .collect()
}

/// A large file, 10,000 small ones in one folder, every kind of name; from the volume's file and from a target, both at once.
#[test]
fn a_mount_shows_what_the_folder_holds() {
    if !can_mount() {
        return;
    }
    let folder = Folder::new();
    dataset(&folder);
    let source = folder.path("dataset");
    fs::write(source.join("large.bin"), ids(7, 2_000_000)).unwrap();
    fs::create_dir(source.join("many")).unwrap();
    for number in 0..10_000u32 {
        let name = format!("many/shard {number:05} of 10000");
        fs::write(
            source.join(name),
            number.to_le_bytes().repeat(number as usize % 700),
        )
        .unwrap();
    }
    let readonly = source.join("deep/deeper");
    fs::set_permissions(&readonly, fs::Permissions::from_mode(0o555)).unwrap();
    folder.done([
        "pack",
        "dataset",
        "--as",
        "*.bin=u32",
        "--store",
        "*.bin=u16+lz4",
        "--store-as",
        "zstd:3",
        "--no-manifest",
        "-o",
        "v.xio",
    ]);
    let wanted = of_folder(&source);
    assert_eq!(wanted.len(), 10_012);
    let target = Target::start(NQN, &[&folder.path("v.xio")]);
    let here = Mount::start(&folder, "v.xio", "here", &[]);
    let there = Mount::start(
        &folder,
        &target.url("?nsid=1"),
        "there",
        &["--threads", "8"],
    );
    assert_eq!(
        here.said,
        "here: mounted, 10,013 files, folders and links\n"
    );
    for mount in [&here, &there] {
        assert!(of_folder(&mount.folder) == wanted);
        assert_eq!(compare_mmaps(&source, &mount.folder), "1\n");
        let names = fs::read_dir(mount.folder.join("many")).unwrap();
        assert_eq!(names.count(), 10_000);
        for absent in [
            "many/shard",
            "many/shard 10000 of 10000",
            "zzz",
            "large.bin.idx",
        ] {
            let error = fs::metadata(mount.folder.join(absent)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotFound);
        }
        let refused = fs::write(mount.folder.join("new"), b"x").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);
        let refused = fs::remove_file(mount.folder.join("README")).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);
    }
    here.end();
    there.end();
    // Both are gone, and what was beneath is there.
    for name in ["here", "there"] {
        assert_eq!(fs::read_dir(folder.path(name)).unwrap().count(), 0);
    }
}

#[test]
fn what_has_no_filesystem_is_one_file() {
    if !can_mount() {
        return;
    }
    let folder = Folder::new();
    let bytes = ids(3, 300_001);
    folder.write("tokens.bin", &bytes);
    folder.done([
        "pack",
        "tokens.bin",
        "--dtype",
        "u32",
        "--store-as",
        "u16+lz4",
        "--name",
        "train ids",
        "-o",
        "t.xio",
    ]);
    let target = Target::start(NQN, &[&folder.path("t.xio")]);
    let here = Mount::start(&folder, "t.xio", "here", &[]);
    let there = Mount::start(&folder, &target.url(""), "there", &[]);
    assert_eq!(
        here.said,
        "here: mounted, no filesystem, one file: train ids\n"
    );
    let names = |mount: &Mount| {
        let names = fs::read_dir(&mount.folder).unwrap();
        names
            .map(|it| it.unwrap().file_name().into_string().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&here), ["train ids"]);
    assert_eq!(names(&there), ["namespace-1"]);
    assert!(fs::read(here.folder.join("train ids")).unwrap() == bytes);
    // A namespace has whole blocks.
    let mut padded = bytes;
    padded.resize(padded.len().next_multiple_of(4096), 0);
    assert!(fs::read(there.folder.join("namespace-1")).unwrap() == padded);
    let about = fs::metadata(here.folder.join("train ids")).unwrap();
    assert_eq!((about.mode(), about.nlink()), (0o100_444, 1));
    let modified = |about: &fs::Metadata| (about.mtime(), about.mtime_nsec());
    let of_volume = fs::metadata(folder.path("t.xio")).unwrap();
    assert_eq!(modified(&about), modified(&of_volume));
    here.end();
    there.end();
}

/// One stored byte is wrong: its file says so, and no other.
#[test]
fn a_damaged_byte_is_an_error_with_its_place() {
    if !can_mount() {
        return;
    }
    let folder = Folder::new();
    let source = folder.path("d");
    fs::create_dir(&source).unwrap();
    let (good, bad) = (ids(1, 400_000), ids(2, 400_000));
    fs::write(source.join("good.bin"), &good).unwrap();
    fs::create_dir(source.join("sub")).unwrap();
    fs::write(source.join("sub/bad.bin"), &bad).unwrap();
    let arguments = [
        "pack",
        "d",
        "--store-as",
        "none",
        "--no-manifest",
        "-o",
        "v.xio",
    ];
    folder.done(arguments);
    let mut volume = folder.read("v.xio");
    let place = bad[800_000..800_064].to_vec();
    let at = volume
        .windows(64)
        .position(|window| window == place)
        .unwrap();
    volume[at] ^= 1;
    folder.write("v.xio", &volume);
    let mut mount = Mount::start(&folder, "v.xio", "m", &[]);
    assert!(fs::read(mount.folder.join("good.bin")).unwrap() == good);
    let file = File::open(mount.folder.join("sub/bad.bin")).unwrap();
    let mut found = Vec::new();
    let mut piece = [0; 4096];
    for at in (0..bad.len()).step_by(4096) {
        match file.read_at(&mut piece, at as u64) {
            Ok(read) => assert!(piece[..read] == bad[at..at + read], "{at}"),
            Err(error) => found.push((at, error.raw_os_error())),
        }
    }
    // A granule of the stream, which may lie in two blocks of the file; nothing around it.
    let block = 800_000 / 4096 * 4096;
    assert!(found.contains(&(block, Some(5))), "{found:?}");
    let near = |&(at, error): &(usize, Option<i32>)| at.abs_diff(block) <= 4096 && error == Some(5);
    assert!(found.len() <= 2 && found.iter().all(near), "{found:?}");
    drop(file);
    mount.signal("INT");
    let (status, complaints) = mount.ended();
    assert_eq!(status, 0);
    let first = complaints.lines().next().unwrap();
    assert!(first.starts_with("error: m: sub/bad.bin, "), "{complaints}");
    assert!(first.contains("checksum mismatch"), "{complaints}");
}

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

/// The mount is taken away while a program reads: the reader gets an error or the end, the program ends, the folder is free.
#[test]
fn unmounted_under_readers() {
    if !can_mount() {
        return;
    }
    let folder = Folder::new();
    fs::create_dir(folder.path("d")).unwrap();
    let bytes = ids(1, 3_000_000);
    folder.write("d/a.bin", &bytes);
    folder.done([
        "pack",
        "d",
        "--as",
        "*=u32",
        "--store-as",
        "u16+lz4",
        "-o",
        "v.xio",
    ]);
    let mut mount = Mount::start(&folder, "v.xio", "m", &[]);
    let path = mount.folder.join("a.bin");
    let (begun, begins) = mpsc::channel();
    let readers: Vec<_> = (0..4)
        .map(|_| {
            let (path, bytes, begun) = (path.clone(), bytes.clone(), begun.clone());
            thread::spawn(move || {
                let mut file = File::open(path).unwrap();
                let mut piece = vec![0; 10_000];
                let mut at = 0;
                loop {
                    match file.read(&mut piece) {
                        Ok(0) => return None,
                        Ok(read) => {
                            assert!(piece[..read] == bytes[at..at + read]);
                            at += read;
                            let _ = begun.send(());
                        }
                        Err(error) => return error.raw_os_error(),
                    }
                }
            })
        })
        .collect();
    begins.recv().unwrap();
    mount.signal("TERM");
    let (status, complaints) = mount.ended();
    assert_eq!(status, 0, "{complaints}");
    let note = "note: m was in use; what is open in it fails from now on\n";
    assert!(complaints.is_empty() || complaints == note, "{complaints}");
    for reader in readers {
        // The end, or: the mount is gone (ENOTCONN, ECONNABORTED), or was when the page was asked for (EIO).
        let end = reader.join().unwrap();
        assert!(matches!(end, None | Some(5 | 103 | 107)), "{end:?}");
    }
    assert!(!is_mounted(&mount.folder));
    assert_eq!(fs::read_dir(&mount.folder).unwrap().count(), 0);
}

#[test]
fn in_the_background_it_is_ready_when_the_command_returns() {
    if !can_mount() {
        return;
    }
    let folder = Folder::new();
    dataset(&folder);
    folder.done(["pack", "dataset", "--no-manifest", "-o", "v.xio"]);
    fs::create_dir(folder.path("m")).unwrap();
    let ran = xio()
        .current_dir(folder.path(""))
        .args(["mount", "--background", "v.xio", "m"])
        // The mount keeps it.
        .stderr(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(ran.status.code(), Some(0));
    assert_eq!(ran.stdout, b"m: mounted, 11 files, folders and links\n");
    assert!(of_folder(&folder.path("m")) == of_folder(&folder.path("dataset")));
    let helper = if is_root() {
        &["umount"][..]
    } else {
        &["fusermount3", "-u"]
    };
    let unmounted = Command::new(helper[0])
        .args(&helper[1..])
        .arg(folder.path("m"))
        .status();
    assert!(unmounted.unwrap().success());
    assert!(!is_mounted(&folder.path("m")));
    // What cannot be mounted is said by the command itself.
    let ran = folder.xio(["mount", "v.xio", "nowhere", "--background"]);
    assert_eq!(ran.status, 2);
    assert_eq!(
        ran.stderr,
        "error: nowhere: No such file or directory (os error 2)\n"
    );
}

#[test]
fn what_cannot_be_mounted_says_what_to_do() {
    let folder = Folder::new();
    dataset(&folder);
    folder.done(["pack", "dataset", "-o", "v.xio"]);
    folder.fails(
        2,
        "dataset is not empty, and a mount would hide what is in it",
        &["mount", "v.xio", "dataset"],
    );
    folder.fails(
        2,
        "v.xio: Not a directory (os error 20)",
        &["mount", "v.xio", "v.xio"],
    );
    folder.spoil_disk(|disk| disk[1024 + 44] ^= 1);
    fs::create_dir(folder.path("m")).unwrap();
    let wrong = folder.xio(["mount", "wrong.xio", "m"]);
    assert_eq!(wrong.status, 1);
    let why = "error: wrong.xio: superblock: its checksum is ";
    assert!(wrong.stderr.starts_with(why), "{}", wrong.stderr);

    // Without root and without the helper.
    let mut command = xio();
    command
        .current_dir(folder.path(""))
        .args(["mount", "v.xio", "m"])
        .env("FUSERMOUNT_PATH", "/nonexistent/fusermount3");
    if is_root() {
        fs::set_permissions(folder.path(""), fs::Permissions::from_mode(0o755)).unwrap();
        command.uid(65_534).gid(65_534);
    }
    let ran = match command.output() {
        Ok(ran) => ran,
        Err(error) => {
            println!("skipped: others may not run the program: {error}");
            return;
        }
    };
    assert_eq!(ran.status.code(), Some(3));
    let stderr = String::from_utf8(ran.stderr).unwrap();
    let missing = "or copy the files without a mount: xio cp 'v.xio' FOLDER\n";
    assert!(stderr.ends_with(missing), "{stderr}");
    let causes = [
        "fusermount3 (package fuse3) or root",
        "there is no /dev/fuse here",
    ];
    assert!(
        causes.iter().any(|cause| stderr.contains(cause)),
        "{stderr}"
    );
}
