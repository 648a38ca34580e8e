//! The daemon as a host meets it: the process, its sockets, and the project's own initiator.

#![allow(
    clippy::unwrap_used,
    reason = "a failure of a test is a panic with its line"
)]

mod admin;
mod arrays;
mod config;
mod contract;
mod damaged;
mod endpoints;
mod functions;
mod ghost;
mod hops;
mod immutable;
mod kept;
mod killed;
mod lives;
mod log;
mod many;
mod mixed;
#[path = "../../crates/namespace/tests/support/packing.rs"]
mod packing;
mod placement;
mod prefetch;
mod proxy;
#[allow(dead_code, reason = "each test program uses a part")]
#[path = "../../crates/frontend-nvme-tcp/tests/support/raw.rs"]
mod raw;
mod remote;
mod target;
mod tls;
mod unit;

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::process::Command;

use initiator::{Initiator, Options, discover};
use nvme_spec::Status;
use target::{Folder, NQN, Random, Target, pack, status_of, tokens};

const CHAINS: [&str; 8] = [
    "none",
    "u16",
    "bitpack:17",
    "u16+lz4",
    "u16+lz4hc",
    "u16+zstd:3",
    "bitpack:16+zstd:1",
    "shuffle+zstd:3",
];

/// Reads everything, then at random odd places, and compares each byte with the source.
fn check_reads(host: &mut Initiator, nsid: u32, source: &[u8], seed: u64) {
    let blocks_bytes = source.len().next_multiple_of(4096);
    let mut whole = vec![0xA5; blocks_bytes];
    host.read(nsid, 0, &mut whole).unwrap();
    assert!(
        whole[..source.len()] == *source,
        "namespace {nsid} differs from its source"
    );
    assert!(
        whole[source.len()..].iter().all(|&byte| byte == 0),
        "zeros after the exact end"
    );
    let mut random = Random::new(seed);
    for _ in 0..100 {
        let offset = random.below(source.len() as u64 - 1);
        let len = 1 + random.below((source.len() as u64 - offset).min(70_000));
        let (start, end) = (
            usize::try_from(offset).unwrap(),
            usize::try_from(offset + len).unwrap(),
        );
        let mut part = vec![0xA5; end - start];
        host.read(nsid, offset, &mut part).unwrap();
        assert!(
            part == source[start..end],
            "namespace {nsid}, bytes {start}..{end}, seed {seed}"
        );
    }
}

fn digests() -> Options {
    Options {
        header_digest: true,
        data_digest: true,
        ..Options::default()
    }
}

/// Every stored chain, plain and with digests, on one reactor and on two with several queues.
#[test]
fn every_chain_reads_back_byte_for_byte() {
    let folder = Folder::new("every-chain");
    let source = tokens();
    let paths: Vec<String> = CHAINS
        .iter()
        .map(|chain| {
            let path = folder.path(&format!("{}.xvol", chain.replace([':', '+'], "-")));
            pack(&path, chain, &source);
            path.to_str().unwrap().to_owned()
        })
        .collect();
    // Decoded by the reactors themselves, by workers, and by whoever has to wait for the other's.
    for (reactors, workers) in [("1", "0"), ("1", "2"), ("2", "0"), ("2", "1")] {
        let mut arguments: Vec<&str> = paths.iter().map(String::as_str).collect();
        arguments.extend(["--reactors", reactors, "--workers", workers]);
        let target = Target::start(&arguments);
        for options in [
            Options {
                queues: 3,
                ..Options::default()
            },
            digests(),
        ] {
            let mut host = target.host(&options);
            assert_eq!(host.namespaces().len(), CHAINS.len());
            for nsid in 1..=u32::try_from(CHAINS.len()).unwrap() {
                check_reads(&mut host, nsid, &source, u64::from(nsid));
            }
            host.shutdown().unwrap();
        }
        assert_eq!(target.terminate(), Some(0), "SIGTERM is an orderly end");
    }
}

/// A cache too small for anything, and io_uring features taken away one by one, change no byte.
#[test]
fn small_caches_and_old_kernels_change_no_byte() {
    let folder = Folder::new("masked");
    let source = &tokens()[..400_000];
    let path = folder.path("tokens.xvol");
    pack(&path, "u16+lz4", source);
    for without in [
        "defer_taskrun",
        "buffer_rings",
        "multishot_accept",
        "multishot_recv",
        "msg_ring",
        "coop_taskrun",
        "all",
    ] {
        let volume = path.to_str().unwrap();
        let target = Target::start(&[
            volume,
            "mem:8MiB",
            "--without",
            without,
            "--reactors",
            "2",
            "--cache",
            "1MiB",
        ]);
        let mut host = target.host(&Options {
            queues: 2,
            ..digests()
        });
        check_reads(&mut host, 1, source, 7);
        check_writes(&mut host, 2, 8 << 20);
        host.shutdown().unwrap();
        assert_eq!(target.terminate(), Some(0), "without {without}");
    }
}

/// Writes of many sizes, in capsules and by R2T, over each other; a model says what must be read.
fn check_writes(host: &mut Initiator, nsid: u32, bytes: usize) {
    let mut model = vec![0; bytes];
    let mut random = Random::new(42);
    for round in 0..60_u64 {
        let blocks = 1 + random.below(if round % 3 == 0 { 600 } else { 3 });
        let len = usize::try_from(blocks).unwrap() * 4096;
        let offset = usize::try_from(random.below((bytes - len) as u64 / 4096)).unwrap() * 4096;
        let data: Vec<u8> = (0..len)
            .map(|_| u8::try_from(random.below(256)).unwrap())
            .collect();
        host.write(nsid, offset as u64, &data).unwrap();
        model[offset..offset + len].copy_from_slice(&data);
        if round % 8 == 0 {
            host.flush(nsid).unwrap();
        }
    }
    let mut found = vec![0; bytes];
    host.read(nsid, 0, &mut found).unwrap();
    assert!(found == model, "what was written is what is read");
}

/// mem: and file: take writes; a file keeps them over kill -9 and restart, under the same UUID.
#[test]
fn writes_are_read_back_and_a_file_keeps_them() {
    let folder = Folder::new("writes");
    let disk = folder.path("disk.raw");
    std::fs::File::create(&disk)
        .unwrap()
        .set_len(16 << 20)
        .unwrap();
    let spec = format!("file:{}", disk.to_str().unwrap());
    for options in [Options::default(), digests()] {
        let target = Target::start(&[&spec, "mem:16MiB"]);
        let mut host = target.host(&options);
        check_writes(&mut host, 2, 16 << 20);
        let uuid = host.namespace(1).unwrap().ids;
        host.write(1, 0, &vec![0; 16 << 20]).unwrap();
        check_writes(&mut host, 1, 16 << 20);
        host.flush(1).unwrap();
        let mut before = vec![0; 16 << 20];
        host.read(1, 0, &mut before).unwrap();
        target.kill();
        let target = Target::start(&[&spec]);
        let mut host = target.host(&options);
        let mut after = vec![0; 16 << 20];
        host.read(1, 0, &mut after).unwrap();
        assert!(
            before == after,
            "acknowledged and flushed bytes survive the process"
        );
        assert_eq!(
            host.namespace(1).unwrap().ids,
            uuid,
            "the same file, the same namespace"
        );
    }
}

/// kill -9 and restart: the same volume is the same namespace, with the same bytes.
#[test]
fn a_volume_keeps_its_identity_over_a_restart() {
    let folder = Folder::new("restart");
    let source = tokens();
    let path = folder.path("tokens.xvol");
    pack(&path, "u16+zstd:3", &source);
    let target = Target::start(&[path.to_str().unwrap()]);
    let mut host = target.host(&Options::default());
    let (uuid, address) = (host.namespace(1).unwrap().ids, target.address.clone());
    check_reads(&mut host, 1, &source, 1);
    target.kill();
    let mut buffer = [0; 4096];
    assert!(host.read(1, 0, &mut buffer).unwrap_err().ends_connection());
    let target = Target::start_at(&address, &[path.to_str().unwrap()]);
    let mut host = target.host(&Options::default());
    assert_eq!(host.namespace(1).unwrap().ids, uuid);
    check_reads(&mut host, 1, &source, 2);
}

/// A view is write-protected as a whole: Namespace is Write Protected, do not retry.
#[test]
fn a_view_refuses_writes() {
    let folder = Folder::new("protected");
    let path = folder.path("tokens.xvol");
    pack(&path, "none", &tokens()[..8192]);
    let target = Target::start(&[path.to_str().unwrap()]);
    let mut host = target.host(&Options::default());
    assert_eq!(
        status_of(host.write(1, 0, &[1; 4096])),
        Status::NAMESPACE_WRITE_PROTECTED.dnr()
    );
    assert_eq!(
        status_of(host.write(1, 0, &[1; 8192])),
        Status::NAMESPACE_WRITE_PROTECTED.dnr(),
        "by R2T as well"
    );
    check_reads(&mut host, 1, &tokens()[..8192], 3);
}

/// One flipped bit in stored bytes: Unrecovered Read Error where they are presented, and every other byte as it was.
#[test]
fn a_flipped_bit_is_an_unrecovered_read_error_and_nothing_else() {
    let folder = Folder::new("flipped");
    let source = tokens();
    for chain in ["none", "u16", "u16+lz4"] {
        let path = folder.path("tokens.xvol");
        pack(&path, chain, &source);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .unwrap();
        // The payload begins at 32,768 (docs/format.md); this byte is in its first granule or frame.
        let mut byte = [0];
        file.read_exact_at(&mut byte, 32_768 + 1000).unwrap();
        file.write_all_at(&[byte[0] ^ 0x10], 32_768 + 1000).unwrap();
        let target = Target::start(&[path.to_str().unwrap()]);
        let mut host = target.host(&Options::default());
        let mut block = vec![0; 4096];
        assert_eq!(
            status_of(host.read(1, 0, &mut block)),
            Status::UNRECOVERED_READ_ERROR.dnr(),
            "{chain}"
        );
        let last = source.len() / 4096 * 4096 - 4096;
        host.read(1, last as u64, &mut block).unwrap();
        assert!(
            block == source[last..last + 4096],
            "{chain}: what is whole is presented"
        );
    }
}

/// The discovery service lists the subsystem at the address that was asked.
#[test]
fn discovery_lists_the_subsystem() {
    let target = Target::start(&["null:1GiB", "--nqn", "nqn.2026-11.io.example:other"]);
    let records = discover(&target.address, &Options::default()).unwrap();
    let [record, itself] = records.as_slice() else {
        panic!("the subsystem and the service itself, not {records:?}")
    };
    assert_eq!(itself.subnqn, nvme_spec::DISCOVERY_NQN);
    assert_eq!(itself.subsystem_type, 3);
    assert_eq!(record.subnqn, "nqn.2026-11.io.example:other");
    assert_eq!(
        format!("{}:{}", record.address, record.service),
        target.address
    );
}

/// A connection that says nothing, or nonsense, or ends at any point of its handshake, harms nobody.
#[test]
fn broken_handshakes_harm_nobody() {
    use std::io::Write;
    let target = Target::start(&["mem:1MiB"]);
    let silent: Vec<_> = (0..20)
        .map(|_| std::net::TcpStream::connect(&target.address).unwrap())
        .collect();
    for len in [1, 7, 8, 9, 127, 128, 129, 1000] {
        let mut nonsense = std::net::TcpStream::connect(&target.address).unwrap();
        // The daemon may have closed it before the last byte is written.
        let _written = nonsense.write_all(&vec![0x5A; len]);
    }
    let mut host = target.host(&Options::default());
    host.write(1, 0, &[9; 4096]).unwrap();
    drop(silent);
    let mut block = [0; 4096];
    host.read(1, 0, &mut block).unwrap();
    assert_eq!(block, [9; 4096]);
}

/// Hosts that come and go while others read: no queue leaks, so the last connects as the first did.
#[test]
fn hosts_come_and_go_while_another_reads() {
    let target = Target::start(&["mem:4MiB", "--reactors", "2"]);
    let mut steady = target.host(&Options::default());
    steady.write(1, 0, &vec![3; 4 << 20]).unwrap();
    for round in 0..300 {
        let mut guest = target.host(&Options {
            queues: 2,
            ..Options::default()
        });
        let mut block = [0; 4096];
        guest.read(1, (round % 1024) * 4096, &mut block).unwrap();
        assert_eq!(block, [3; 4096]);
        // Every second one leaves without a word.
        if round % 2 == 0 {
            guest.shutdown().unwrap();
        }
    }
    let mut all = vec![0; 4 << 20];
    steady.read(1, 0, &mut all).unwrap();
    assert!(all.iter().all(|&byte| byte == 3));
}

/// A daemon that cannot start says what is wrong and what to do.
#[test]
fn what_cannot_be_served_is_said() {
    let folder = Folder::new("refused");
    let plain = folder.path("plain.bin");
    std::fs::write(&plain, vec![7; 100_000]).unwrap();
    let taken = Target::start(&["null:1MiB"]);
    let packed = folder.path("packed.xvol");
    pack(&packed, "u16", &tokens()[..8000]);
    let packed = packed.to_str().unwrap();
    let volume_of_512 = format!("mixed:{packed}+mem:1MiB");
    let no_whole_blocks = format!("mixed:mem:1MiB+file:{}", plain.display());
    let cases: [(&[&str], &str); 13] = [
        (
            &[packed, packed, "--listen", "127.0.0.1:0"],
            "serve it once",
        ),
        (&[plain.to_str().unwrap()], "write file:"),
        (&["no-such-file.xvol"], "No such file"),
        (&["mem:12XiB"], "the unit must be one of"),
        (
            &["mem:1MiB", "--listen", &taken.address],
            "cannot listen on",
        ),
        (
            &["mem:1MiB", "--nqn", "not-a-name", "--listen", "127.0.0.1:0"],
            "snap-target: the subsystem's NQN: an NQN begins with \"nqn.\", for example nqn.2014-08.org.nvmexpress:uuid:...\n",
        ),
        (
            &["file:no-such-file"],
            "/no-such-file failed: ENOENT: No such file or directory; check the path\n",
        ),
        (
            &["src"],
            "/src: it is a folder, and a volume is served: make one with 'xio pack ",
        ),
        (
            &["null:1MiB", "null:100"],
            "snap-target: null:100: it presents no block of 4096 bytes, so there is nothing to serve; leave this STORE out\n",
        ),
        (
            &[&volume_of_512, "--lba", "512"],
            "is a volume of blocks of 4096 bytes, and the mixed namespace has blocks of 512: all parts have the same; give it a block size of 4096 (--lba, lba = in the configuration)\n",
        ),
        (
            &[&no_whole_blocks],
            "plain.bin has 100000 bytes, which is no whole number of blocks of 4096, and a part of a mixed namespace must be: make it 98304 or 102400 bytes long (truncate --size)\n",
        ),
        (
            &["mixed:mem:1MiB"],
            "a mixed namespace has 2 to 16 parts: mixed:PART+PART; a + in a path is written ++",
        ),
        (&["mixed:mem:1MiB+no-such-file.xvol"], "No such file"),
    ];
    for (arguments, expected) in cases {
        let output = Command::new(env!("CARGO_BIN_EXE_snap-target"))
            .args(arguments)
            .output()
            .unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {text}");
        assert!(text.contains(expected), "{arguments:?}: {text}");
        assert_eq!(text.lines().count(), 1, "{arguments:?}: {text}");
        assert_eq!(output.stdout, b"", "{arguments:?}");
    }
    assert!(
        Initiator::connect(
            &taken.address,
            "nqn.2026-11.io.xio:none",
            &Options::default()
        )
        .is_err(),
        "not {NQN}"
    );
}

/// A file's last part of a block is not presented, and the daemon says so before it is ready.
#[test]
fn a_part_of_a_block_at_the_end_is_said_and_not_presented() {
    let folder = Folder::new("part");
    let plain = folder.path("plain.bin");
    std::fs::write(&plain, vec![7; 2 * 4096 + 100]).unwrap();
    let spec = format!("file:{}", plain.display());
    let log = folder.path("log");
    let target = Target::start_logged(&[&spec, "null:8192"], &log);
    let host = target.host(&Options::default());
    assert_eq!(host.namespace(1).unwrap().bytes(), 8192);
    let text = std::fs::read_to_string(&log).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(
        text.contains("its last bytes are not presented")
            && text.contains(&spec)
            && text.contains("left_bytes=100"),
        "{text}"
    );
}
