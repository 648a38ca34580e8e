//! `xio mount`: what the kernel shows of a disk is what the folder holds.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;

use super::disk::{dataset, of_folder};
use super::mounting::{Mount, can_mount, ids, is_mounted, is_root, unmount};
use super::served::{NQN, Target};
use super::support::{Folder, fixture, xio};

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

#[test]
fn partitions_are_files_and_a_filesystem_in_one_is_mounted() {
    if !can_mount() {
        return;
    }
    let folder = Folder::new();
    fs::create_dir_all(folder.path("d/sub")).unwrap();
    // Several pieces that are read ahead, and whole blocks.
    let large = ids(1, 1_048_576);
    folder.write("d/large.bin", &large);
    folder.write("d/sub/small", &large[..8192]);
    let wanted = of_folder(&folder.path("d"));
    folder.done(["pack", "d", "--gpt", "-o", "files.xio"]);
    let one = [
        "pack",
        "d",
        "--partitioned",
        "--no-manifest",
        "-o",
        "one.xio",
    ];
    folder.done(one);
    let target = Target::start(NQN, &[&folder.path("files.xio"), &folder.path("one.xio")]);
    let mounts = [
        ("files.xio", "no filesystem, 2 partitions as files"),
        ("one.xio", "4 files, folders and links"),
        (
            &target.url("?nsid=1"),
            "no filesystem, 2 partitions as files",
        ),
        (&target.url("?nsid=2"), "4 files, folders and links"),
    ];
    for (number, (source, what)) in mounts.into_iter().enumerate() {
        let name = format!("m{number}");
        let mount = Mount::start(&folder, source, &name, &[]);
        assert_eq!(mount.said, format!("{name}: mounted, {what}\n"));
        let found = of_folder(&mount.folder);
        assert!(found.keys().eq(wanted.keys()), "{source}");
        for (path, it) in &found {
            assert!(it.content == wanted[path].content, "{source}");
        }
        assert_eq!(compare_mmaps(&folder.path("d"), &mount.folder), "1\n");
        let below = fs::metadata(mount.folder.join("sub")).unwrap();
        assert!(below.is_dir() && below.nlink() == 2);
        let error = fs::metadata(mount.folder.join("sub/large.bin")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        mount.end();
    }
}

/// Every precision is there, each in its folder, and what each presents is its own.
#[test]
fn every_precision_is_mounted() {
    if !can_mount() {
        return;
    }
    let folder = Folder::new();
    fs::create_dir(folder.path("d")).unwrap();
    let source = fixture("../formats/safetensors/mixed.safetensors");
    fs::copy(&source, folder.path("d/model.safetensors")).unwrap();
    let types = ["--present-as", "source,bf16,f16"];
    let ran = folder.xio([&["pack", "d"], &types[..], &["-o", "v.xio"]].concat());
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    let ran = folder.xio(
        [
            &["pack", "d", "--gpt", "--pad"],
            &types[..],
            &["-o", "p.xio"],
        ]
        .concat(),
    );
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    folder.done(["cp", "v.xio", "copy"]);
    let target = Target::start(NQN, &[&folder.path("v.xio")]);
    let mount = Mount::start(&folder, &target.url(""), "m", &[]);
    let partitions = Mount::start(&folder, "p.xio", "p", &[]);
    let mut seen = Vec::new();
    for view in ["source", "bf16", "f16"] {
        let name = format!("{view}/model.safetensors");
        let bytes = fs::read(mount.folder.join(&name)).unwrap();
        assert!(bytes == folder.read(&format!("copy/{name}")), "{view}");
        let mut in_partition = fs::read(partitions.folder.join(&name)).unwrap();
        assert!(in_partition.len() - bytes.len() < 4096);
        in_partition.truncate(bytes.len());
        assert!(in_partition == bytes, "{view}");
        assert!(!seen.contains(&bytes), "{view}");
        seen.push(bytes);
    }
    assert!(seen[0] == fs::read(&source).unwrap());
    let mut names: Vec<_> = fs::read_dir(&mount.folder)
        .unwrap()
        .map(|it| it.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, [".xio", "bf16", "f16", "source"]);
    folder.done(["diff", "v.xio", &target.url("")]);
    mount.end();
    partitions.end();
}

/// No command makes such a volume, but there are some: what is not shown is said.
#[test]
fn a_volume_of_several_views_says_that_it_is_the_first() {
    let folder = Folder::new();
    let views = fixture("../golden-volumes/views.vol");
    fs::copy(views, folder.path("views.vol")).unwrap();
    folder.done(["unpack", "views.vol", "-o", "first.bin"]);
    let note = "note: views.vol has 4 views, and this is the first, \"u16\"; 'xio format views.vol -o DISK' makes a disk with all of them\n";
    let ran = folder.xio(["diff", "views.vol", "views.vol"]);
    assert_eq!((ran.status, ran.stderr), (0, note.repeat(2)));
    folder.done(["format", "views.vol", "-o", "all.xio"]);
    folder.done(["cp", "all.xio", "all"]);
    // The views, and the manifest.
    let names = fs::read_dir(folder.path("all")).unwrap();
    assert_eq!(names.count(), 5);
    assert!(folder.read("all/u16") == folder.read("first.bin"));
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
    let target = Target::start(NQN, &[&folder.path("v.xio")]);
    for (name, from, why) in [
        ("here", "v.xio", "checksum mismatch"),
        ("there", &target.url(""), "Unrecovered Read Error"),
    ] {
        let mount = Mount::start(&folder, from, name, &[]);
        assert!(fs::read(mount.folder.join("good.bin")).unwrap() == good);
        expect_one_complaint(mount, &bad, why);
    }
}

/// A place in the middle of `sub/bad.bin` cannot be read; there is one line for it, however often and in whatever pieces the kernel asks.
fn expect_one_complaint(mut mount: Mount, bad: &[u8], why: &str) {
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
    let name = mount.folder.file_name().unwrap().to_str().unwrap();
    let file = format!("error: {name}: sub/bad.bin, ");
    let bytes = complaints.strip_prefix(&file).unwrap();
    // A request of the kernel's may end between the two blocks: then the first that fails is named.
    let is_at = |(at, _): &(usize, Option<i32>)| {
        let said = |bytes: usize| format!("{bytes} bytes at {at}: ");
        bytes.starts_with(&said(4096)) || bytes.starts_with(&said(8192))
    };
    assert!(found.iter().any(is_at), "{complaints}");
    assert!(complaints.contains(why), "{complaints}");
    assert_eq!(complaints.lines().count(), 1, "{complaints}");
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
            let (bytes, begun) = (bytes.clone(), begun.clone());
            // Before any of them has read: then the mount is taken away.
            let mut file = File::open(&path).unwrap();
            thread::spawn(move || {
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

/// One that was taken away while a file was open ends when the file is closed, by itself or by a signal; by then there is another on its folder.
#[test]
fn a_mount_that_ends_leaves_the_next_one_alone() {
    if !can_mount() {
        return;
    }
    let folder = Folder::new();
    for (name, bytes) in [("old", b"1"), ("new", b"2")] {
        fs::create_dir(folder.path(name)).unwrap();
        fs::write(folder.path(name).join("file"), bytes).unwrap();
        let volume = format!("{name}.xio");
        folder.done(["pack", name, "--no-manifest", "-o", &volume]);
    }
    fs::create_dir(folder.path("m")).unwrap();
    for signal in [None, Some("TERM")] {
        let mut old = Mount::again(&folder, "old.xio", "m", &[]);
        let mut open = File::open(folder.path("m/file")).unwrap();
        unmount(&old.folder);
        let new = Mount::again(&folder, "new.xio", "m", &[]);
        if let Some(signal) = signal {
            old.signal(signal);
        } else {
            let mut bytes = Vec::new();
            open.read_to_end(&mut bytes).unwrap();
            assert_eq!(bytes, b"1");
            drop(open);
        }
        let (status, said) = old.ended();
        let in_use = "note: m was in use; what is open in it fails from now on\n";
        let expected = signal.map_or("", |_| in_use);
        assert_eq!((status, said.as_str()), (0, expected));
        assert!(is_mounted(&new.folder));
        assert_eq!(folder.read("m/file"), b"2");
        new.end();
    }
}

/// The same where nothing is open: the end of the one and the beginning of the other are at the same time.
#[test]
fn a_folder_can_be_mounted_on_again_at_once() {
    if !can_mount() {
        return;
    }
    let folder = Folder::new();
    folder.write("a.bin", &ids(1, 100));
    folder.done(["pack", "a.bin", "--dtype", "u32", "-o", "v.xio"]);
    fs::create_dir(folder.path("m")).unwrap();
    for _ in 0..20 {
        let mut old = Mount::again(&folder, "v.xio", "m", &[]);
        unmount(&old.folder);
        let new = Mount::again(&folder, "v.xio", "m", &[]);
        assert_eq!(old.ended(), (0, String::new()));
        assert!(is_mounted(&new.folder));
        new.end();
    }
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
    unmount(&folder.path("m"));
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
