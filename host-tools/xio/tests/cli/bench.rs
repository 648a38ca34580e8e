//! `xio bench` on files and on a namespace of a target in this process.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use namespace::{Identity, Namespace, NamespaceSet};
use serde_json::Value;
use store::{OpenOptions, SharedStore, StoreSpec};

use super::served::{NQN, Target};
use super::support::Folder;

/// A writable disk of the file's bytes.
fn served(path: &Path) -> Target {
    let spec = StoreSpec::File {
        path: path.to_path_buf(),
    };
    let store = SharedStore::open(&spec, OpenOptions::read_write()).unwrap();
    let identity = Identity::of_raw("test", b"bench");
    let namespace = Namespace::of_store(1, store, identity, 4096);
    Target::serve(NQN, NamespaceSet::new(vec![Arc::new(namespace)]))
}

fn json(folder: &Folder, arguments: &[&str]) -> Value {
    let output = ["bench", "--output-format", "json"];
    let text = folder.done(output.iter().chain(arguments));
    serde_json::from_str(&text).unwrap()
}

fn flip(path: &Path, at: u64) -> u8 {
    let file = fs::File::options()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[!byte[0]], at).unwrap();
    byte[0]
}

#[test]
fn what_was_written_is_verified_and_a_flipped_byte_has_its_place() {
    let folder = Folder::new();
    let write = [
        "file",
        "--size",
        "1m",
        "--rw",
        "randwrite",
        "--iodepth",
        "8",
        "--verify",
        "crc32c",
    ];
    let written = json(&folder, &write);
    let job = &written["jobs"][0];
    assert_eq!(
        (&job["write"]["total_ios"], &job["read"]["total_ios"]),
        (&256.into(), &256.into())
    );
    assert_eq!(fs::metadata(folder.path("file")).unwrap().len(), 1 << 20);
    let check = [
        "bench",
        "file",
        "--rw",
        "randread",
        "--iodepth",
        "4",
        "--verify",
        "crc32c",
    ];
    folder.done(check);
    let byte = flip(&folder.path("file"), 77_777);
    let ran = folder.xio(check);
    let error = format!(
        "error: verify: block at offset 73728 (4096 bytes): byte at offset 77777 is {:#04x}, not {byte:#04x}; 1 bytes of the block are wrong\n",
        !byte
    );
    assert_eq!((ran.status, ran.stderr), (1, error));
    assert!(ran.stdout.contains("1 blocks are WRONG"), "{}", ran.stdout);
    // Another seed is no damage, and said to be what it is.
    flip(&folder.path("file"), 77_777);
    let ran = folder.xio(check.iter().chain(&["--seed", "5"]));
    assert_eq!(ran.status, 1);
    assert!(
        ran.stderr.contains("written with seed 1, not 5"),
        "{}",
        ran.stderr
    );
}

#[test]
fn every_kind_of_command_passes_through_the_ring() {
    let folder = Folder::new();
    for options in [
        &[][..],
        &["--fixedbufs"],
        &["--registerfiles=0"],
        &["--sqpoll"],
        &["--iodepth-batch", "4"],
    ] {
        let mixed = [
            "file",
            "--size",
            "256k",
            "--rw",
            "randrw",
            "--bssplit",
            "4k/50:16k/50",
            "--iodepth",
            "4",
            "--fsync",
            "8",
            "--end-fsync",
        ];
        let arguments: Vec<&str> = mixed.iter().chain(options).copied().collect();
        let report = json(&folder, &arguments);
        let job = &report["jobs"][0];
        let count = |name: &str, field: &str| job[name][field].as_u64().unwrap();
        assert_eq!(
            count("read", "io_bytes") + count("write", "io_bytes"),
            256 << 10,
            "{options:?}"
        );
        assert_eq!(
            count("sync", "total_ios"),
            count("write", "total_ios") / 8 + 1,
            "{options:?}"
        );
        let counted = job["read"]["clat_ns"]["N"].as_u64().unwrap();
        assert_eq!(counted, count("read", "total_ios"), "{options:?}");
    }
    let trimmed = json(
        &folder,
        &["file", "--rw", "trim", "--bs", "64k", "--size", "128k"],
    );
    assert_eq!(trimmed["jobs"][0]["trim"]["total_ios"], 2);
    let bytes = folder.read("file");
    assert!(
        bytes[..128 << 10].iter().all(|byte| *byte == 0)
            && bytes[128 << 10..].iter().any(|byte| *byte != 0)
    );
}

#[test]
fn jobs_of_a_file_run_in_their_groups() {
    let folder = Folder::new();
    let jobs = "[global]\nfilename=data\nsize=512k\nverify=crc32c\n[fill]\nrw=write\nbs=64k\nnumjobs=2\nsize=256k\noffset_increment=256k\ndo_verify=0\ngroup_reporting\n[check]\nstonewall\nrw=read\nbs=64k\n";
    folder.write("jobs.fio", jobs.as_bytes());
    let report = json(&folder, &["--job-file", "jobs.fio"]);
    let jobs = report["jobs"].as_array().unwrap();
    assert_eq!(jobs.len(), 2);
    assert_eq!(
        (&jobs[0]["jobname"], &jobs[0]["write"]["total_ios"]),
        (&"fill".into(), &8.into())
    );
    assert_eq!(
        (&jobs[1]["groupid"], &jobs[1]["read"]["total_ios"]),
        (&1.into(), &8.into())
    );
    folder.write("wrong.fio", b"[a]\nfilename=data\niodepht=4\n");
    folder.fails(
        2,
        "wrong.fio:3: option 'iodepht' is not known; is iodepth meant?",
        &["bench", "--job-file", "wrong.fio"],
    );
}

#[test]
fn foreign_data_are_refused_with_the_way_out() {
    let folder = Folder::new();
    folder.write("letter", b"dear reader");
    let refusal = "letter: it holds data that this program did not write; give --allow-overwrite if they may be lost";
    folder.fails(
        2,
        refusal,
        &["bench", "letter", "--rw", "randwrite", "--size", "1m"],
    );
    assert_eq!(folder.read("letter"), b"dear reader");
    folder.fails(
        2,
        "bench: it would write, and --readonly is given",
        &["bench", "letter", "--rw", "write", "--readonly"],
    );
}

/// Nothing is made, made longer or written: not by a reader that would have to, either.
#[test]
fn readonly_leaves_files_as_they_are() {
    let folder = Folder::new();
    folder.write("short", &vec![0; 64 << 10]);
    folder.write("empty", b"");
    let rest = "with --readonly no file is made or made longer: leave it out";
    for (target, size, why, or) in [
        ("none", "64k", "it is not there", ""),
        ("empty", "64k", "it is empty", ""),
        (
            "short",
            "68k",
            "it has 65536 bytes, and 69632 are asked for",
            ", or give a smaller --size",
        ),
    ] {
        let options = ["--rw", "read", "--size", size, "--readonly"];
        let arguments = [&["bench", target], &options[..]].concat();
        folder.fails(2, &format!("{target}: {why}; {rest}{or}"), &arguments);
    }
    assert_eq!(folder.names(), ["empty", "short"]);
    assert_eq!(folder.read("empty"), b"");
    let read = folder.done(["bench", "short", "--rw", "read", "--readonly"]);
    assert!(read.contains("short"), "{read}");
    assert_eq!(folder.read("short"), vec![0; 64 << 10]);
}

/// What is to be refused is refused before any file of the run is made or made longer.
#[test]
fn a_refused_run_leaves_its_files_as_they_were() {
    let folder = Folder::new();
    folder.write("disk", &vec![0; 64 << 10]);
    folder.write("letter", b"dear reader");
    folder.write(
        "both.fio",
        b"[global]\nrw=write\nsize=128k\n[one]\nfilename=disk\n[two]\nfilename=letter\n[three]\nfilename=new\n",
    );
    let cases: [(&str, &[&str]); 6] = [
        (
            "bench: nothing is at offset 69632: disk has 65536 bytes",
            &["disk", "--offset", "68k", "--rw", "read"],
        ),
        (
            "bench: nothing is at offset 69632: disk has 65536 bytes",
            &["disk", "--offset", "68k", "--rw", "write"],
        ),
        (
            "bench: no 65536 bytes are at offset 49152: disk has 65536 bytes, and would get 98304",
            &["disk", "--offset", "50%", "--size", "64k", "--rw", "read"],
        ),
        (
            "bench: a part of 1024 bytes does not hold a block of 4096: new has 0 bytes, and would get 1024",
            &["new", "--size", "1k", "--rw", "write"],
        ),
        (
            "bench: several jobs write the same bytes, so that nothing can be verified; give --offset-increment and --size, or a stonewall",
            &[
                "disk",
                "--rw",
                "write",
                "--size",
                "128k",
                "--numjobs",
                "2",
                "--verify",
                "crc32c",
            ],
        ),
        (
            "letter: it holds data that this program did not write; give --allow-overwrite if they may be lost",
            &["--job-file", "both.fio"],
        ),
    ];
    for (error, arguments) in cases {
        let arguments = [&["bench"], arguments].concat();
        folder.fails(2, error, &arguments);
        assert_eq!(folder.names(), ["both.fio", "disk", "letter"]);
        assert_eq!(folder.read("disk"), vec![0; 64 << 10], "{arguments:?}");
        assert_eq!(folder.read("letter"), b"dear reader", "{arguments:?}");
    }
}

#[test]
fn a_picture_has_a_line_for_each_direction() {
    let folder = Folder::new();
    folder.done([
        "bench",
        "file",
        "--size",
        "1m",
        "--rw",
        "rw",
        "--plot",
        "picture.svg",
    ]);
    let picture = String::from_utf8(folder.read("picture.svg")).unwrap();
    assert_eq!(picture.matches("<polyline").count(), 4);
}

#[test]
fn a_namespace_is_written_and_verified_over_nvme_tcp() {
    let folder = Folder::new();
    let disk = folder.write("disk", &vec![0; 1 << 20]);
    {
        let target = served(&disk);
        let url = target.url("?nsid=1");
        let write = [
            url.as_str(),
            "--rw",
            "randwrite",
            "--bs",
            "16k",
            "--iodepth",
            "8",
            "--numjobs",
            "2",
            "--size",
            "512k",
            "--offset-increment",
            "512k",
            "--verify",
            "crc32c",
            "--end-fsync",
        ];
        let report = json(&folder, &write);
        for job in report["jobs"].as_array().unwrap() {
            assert_eq!(
                (&job["write"]["total_ios"], &job["read"]["total_ios"]),
                (&32.into(), &32.into())
            );
            assert_eq!(job["sync"]["total_ios"], 1);
        }
        let check = [
            url.as_str(),
            "--rw",
            "randread",
            "--bs",
            "16k",
            "--iodepth",
            "16",
            "--verify",
            "crc32c",
            "--loops",
            "2",
        ];
        assert_eq!(json(&folder, &check)["jobs"][0]["read"]["total_ios"], 128);
        let ran = folder.xio([
            "bench",
            &url,
            "--rw",
            "read",
            "--bs",
            "512",
            "--iodepth",
            "1",
        ]);
        assert_eq!(
            (ran.status, ran.stderr.as_str()),
            (
                2,
                "error: bench: bs 512 is no multiple of the namespace's block, 4096 bytes\n"
            )
        );
    }
    // What the target had promised is in the file; and a byte that is wrong there is found over the wire.
    let bytes = folder.read("disk");
    assert!(
        bytes
            .chunks(16 << 10)
            .all(|block| block.starts_with(b"xio:blk\x01"))
    );
    flip(&disk, 600_000);
    let target = served(&disk);
    let url = target.url("?nsid=1");
    let ran = folder.xio([
        "bench", &url, "--rw", "read", "--bs", "16k", "--verify", "crc32c",
    ]);
    assert_eq!(ran.status, 1);
    assert!(
        ran.stderr.contains("byte at offset 600000 is"),
        "{}",
        ran.stderr
    );
    drop(target);
    // A disk that somebody else has written is not touched.
    folder.write("disk", &vec![7; 1 << 20]);
    let target = served(&disk);
    let ran = folder.xio(["bench", &target.url(""), "--rw", "write"]);
    assert_eq!(ran.status, 2);
    assert!(ran.stderr.contains("--allow-overwrite"), "{}", ran.stderr);
    assert_eq!(folder.read("disk"), vec![7; 1 << 20]);
}

/// As with xio cp and xio mount: the only namespace needs no name, and of several none is taken for another.
#[test]
fn a_url_without_a_namespace_means_the_only_one() {
    let folder = Folder::new();
    let disk = folder.write("disk", &vec![0; 64 << 10]);
    let namespace = |nsid| {
        let spec = StoreSpec::File { path: disk.clone() };
        let store = SharedStore::open(&spec, OpenOptions::read_write()).unwrap();
        let identity = Identity::of_raw("test", &[u8::try_from(nsid).unwrap()]);
        Arc::new(Namespace::of_store(nsid, store, identity, 4096))
    };
    let target = Target::serve(NQN, NamespaceSet::new(vec![namespace(5)]));
    let ran = folder.xio(["bench", &target.url(""), "--rw", "read"]);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    assert!(
        ran.stdout.contains(&target.url("?nsid=5")),
        "{}",
        ran.stdout
    );
    drop(target);
    let both = NamespaceSet::new(vec![namespace(5), namespace(7)]);
    let target = Target::serve(NQN, both);
    folder.fails(
        2,
        "the subsystem has namespaces 5, 7; choose one with ?nsid=N behind the NQN",
        &["bench", &target.url(""), "--rw", "write"],
    );
    assert_eq!(folder.read("disk"), vec![0; 64 << 10]);
}

#[test]
fn a_namespace_is_trimmed_over_nvme_tcp() {
    let folder = Folder::new();
    let disk = folder.write("disk", &vec![0; 256 << 10]);
    let target = served(&disk);
    let url = target.url("?nsid=1");
    json(&folder, &[&url, "--rw", "write"]);
    let trim = [
        &url,
        "--rw",
        "trim",
        "--bs",
        "64k",
        "--size",
        "128k",
        "--end-fsync",
    ];
    assert_eq!(json(&folder, &trim)["jobs"][0]["trim"]["total_ios"], 2);
    let bytes = folder.read("disk");
    assert!(bytes[..128 << 10].iter().all(|byte| *byte == 0));
    assert!(
        bytes[128 << 10..]
            .chunks(4096)
            .all(|block| block.starts_with(b"xio:blk\x01"))
    );
}

#[test]
fn a_file_of_its_own_stays_its_own_whatever_is_done_with_it() {
    let folder = Folder::new();
    for (size, rw, bs) in [
        ("256k", "randrw", "4k"),
        ("256k", "randrw", "16k"),
        ("64k", "trim", "512"),
        ("256k", "rw", "64k"),
        ("5k", "trim", "1k"),
        ("256k", "write", "64k"),
        ("5k", "trim", "1k"),
        ("256k", "randwrite", "4k"),
    ] {
        let rest = ["--size", size, "--rw", rw, "--bs", bs, "--iodepth", "3"];
        folder.done(["bench", "file"].iter().chain(&rest));
    }
}

#[test]
fn what_cannot_be_done_is_said_before_the_jobs_run() {
    let folder = Folder::new();
    folder.fails(
        3,
        "opening nowhere/picture.svg: No such file or directory (os error 2)",
        &[
            "bench",
            "file",
            "--size",
            "64k",
            "--plot",
            "nowhere/picture.svg",
        ],
    );
    folder.fails(
        2,
        "bench: a name without a letter is no target",
        &["bench", "", "--size", "64k"],
    );
    assert_eq!(folder.names(), Vec::<String>::new());
    let target = served(&folder.write("disk", &vec![0; 64 << 10]));
    folder.fails(
        2,
        "bench: iodepth 128 is above what the controller's queue takes, 127; give --iodepth 127 or less, and more jobs with --numjobs",
        &["bench", &target.url(""), "--iodepth", "128"],
    );
}
