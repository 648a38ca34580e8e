//! What is particular to files: how they are opened, their ends, their blocks.

use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use reactor::buf::IoBuf;
use reactor::{Ring, RingConfig, Wait};
use store::conformance::{Subject, run};
use store::{
    BlockingStore, Completion, ErrorKind, Op, OpenOptions, SharedStore, Store, StoreError,
    StoreSpec, Terms, Token,
};

use crate::scratch::Scratch;

fn open(text: &str, options: OpenOptions) -> Result<SharedStore, StoreError> {
    SharedStore::open(&StoreSpec::parse(text).unwrap(), options)
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len)
        .map(|i| (i * 7 + (i >> 9)).to_le_bytes()[0])
        .collect()
}

/// One turn; a store that leaves us waiting has lost an operation.
fn turn(ring: &Ring) {
    let deadline = Instant::now() + Duration::from_secs(20);
    ring.turn(Wait::Block {
        until: Some(deadline),
    })
    .unwrap();
    assert!(Instant::now() < deadline, "no completion came");
}

#[test]
fn says_what_cannot_be_a_store_and_what_to_do() {
    let scratch = Scratch::on_disk();
    let empty = scratch.spec();
    let folder = std::env::temp_dir();
    for (text, options, parts) in [
        (
            "file:/no/such/file".to_owned(),
            OpenOptions::read_only(),
            ["/no/such/file", "check the path"],
        ),
        (
            format!("file:{}", folder.display()),
            OpenOptions::read_only(),
            ["regular file", "block device"],
        ),
        (
            format!("file:{}", folder.display()),
            OpenOptions::read_write(),
            ["EISDIR", "name a file in it"],
        ),
        (
            "file:/dev/null".to_owned(),
            OpenOptions::read_only(),
            ["/dev/null", "neither a regular file"],
        ),
        (empty, OpenOptions::read_only(), ["no bytes", "truncate -s"]),
    ] {
        let error = open(&text, options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Open);
        let text = error.to_string();
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    }
}

/// Another file at the same path is another, whatever is in it; a file is the same by all its names and at all its sizes.
#[test]
fn a_file_is_told_from_the_one_that_takes_its_path() {
    let scratch = Scratch::on_disk();
    let path = scratch.path().with_extension("first");
    let instance = |path: &std::path::Path| {
        let text = format!("file:{}", path.display());
        open(&text, OpenOptions::read_write()).unwrap().instance()
    };
    std::fs::write(&path, bytes(8192)).unwrap();
    let first = instance(&path);
    assert_ne!(first, 0);
    std::fs::File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(16384)
        .unwrap();
    let other = scratch.path().with_extension("other");
    std::fs::rename(&path, &other).unwrap();
    assert_eq!(instance(&other), first);
    std::fs::copy(&other, &path).unwrap();
    assert_ne!(instance(&path), first);
    let memory = open("mem:1MiB", OpenOptions::read_write()).unwrap();
    assert_eq!(memory.instance(), 0);
    for file in [path, other] {
        std::fs::remove_file(file).unwrap();
    }
}

#[test]
fn an_end_inside_a_block_is_read_directly() {
    let scratch = Scratch::on_disk();
    let content = bytes(100_000 + 77);
    scratch.file().write_all_at(&content, 0).unwrap();
    for options in [
        OpenOptions::read_only(),
        OpenOptions::read_only().page_cache(),
    ] {
        let shared = open(&scratch.spec(), options).unwrap();
        println!("{}", shared.describe());
        assert_eq!(shared.bytes(), content.len() as u64);
        let mut store = BlockingStore::new(&shared).unwrap();
        for start in [0, 1, 511, 512, 99_999, 100_000, 100_076] {
            let mut back = vec![0; content.len() - start];
            store.read(start as u64, &mut back).unwrap();
            assert!(back == content[start..], "from {start} to the end");
        }
    }
}

#[test]
fn a_file_cut_short_behind_our_back_is_reported_where_it_ends() {
    let scratch = Scratch::on_disk();
    for options in [
        OpenOptions::read_only(),
        OpenOptions::read_only().page_cache(),
    ] {
        let shared = scratch.filled(1 << 20, options);
        let mut store = BlockingStore::new(&shared).unwrap();
        scratch.resize(512 << 10);
        let mut back = vec![0; 200 << 10];
        store.read(0, &mut back).unwrap();
        let error = store.read((512 << 10) - 4096, &mut back).unwrap_err();
        assert_eq!(
            error,
            StoreError::Truncated {
                store: shared.name().to_owned(),
                offset: 512 << 10,
                bytes: 1 << 20
            }
        );
        assert!(error.to_string().contains("restore it"), "{error}");
        assert_eq!(error.kind(), ErrorKind::Io);
        let error = store.read((768 << 10) + 3, &mut back[..5]).unwrap_err();
        assert!(matches!(error, StoreError::Truncated { .. }), "{error}");
    }
}

#[test]
fn transfers_longer_than_one_system_operation_are_continued() {
    let scratch = Scratch::on_disk();
    for options in [
        OpenOptions::read_write(),
        OpenOptions::read_write().page_cache(),
    ] {
        let shared = scratch.filled(1 << 20, options);
        let ring = Ring::new(&RingConfig::default()).unwrap();
        let mut store = shared.open_handle(&ring).unwrap();
        // 300 segments of one block: the ring takes 64 at a time.
        let content = bytes(300 * 512);
        let mut buf = IoBuf::empty();
        content
            .chunks(512)
            .for_each(|block| buf.append(IoBuf::from_bytes(block).unwrap()));
        let done = run_one(
            &ring,
            &mut *store,
            Op::Write {
                offset: 4096,
                durable: true,
            },
            Some(buf),
        );
        assert_eq!(done.result, Ok(300 * 512));
        let mut back = vec![0; content.len()];
        scratch.file().read_exact_at(&mut back, 4096).unwrap();
        assert!(back == content, "seen by another reader of the file");
        let done = run_one(&ring, &mut *store, Op::Read { offset: 4096 }, done.buf);
        assert!(done.buf.unwrap().to_vec() == content);
    }
}

fn run_one(ring: &Ring, store: &mut dyn Store, op: Op, buf: Option<IoBuf>) -> Completion {
    store.submit(op, buf, Token(1), Terms::default()).unwrap();
    let mut done = Vec::new();
    loop {
        store.poll(&mut done);
        if let Some(done) = done.pop() {
            return done;
        }
        turn(ring);
    }
}

#[test]
fn errors_of_the_medium_carry_place_cause_and_advice() {
    // A file size limit is an error that a test can have: in a child, since it binds the whole process.
    if std::env::var_os("STORE_TEST_FSIZE").is_none() {
        let program = std::env::current_exe().unwrap();
        // Through pipes: the limit would hold for a file that this program writes to, too.
        let child = Command::new(program)
            .args([
                "--exact",
                "file::errors_of_the_medium_carry_place_cause_and_advice",
                "--nocapture",
            ])
            .env("STORE_TEST_FSIZE", "1")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&child.stderr);
        assert!(child.status.success(), "{text}");
        return;
    }
    let scratch = Scratch::on_disk();
    let shared = scratch.filled(1 << 20, OpenOptions::read_write().page_cache());
    let limit = nix::libc::rlimit {
        rlim_cur: 8192,
        rlim_max: 8192,
    };
    // SAFETY: a live structure of the right type; ignoring SIGXFSZ turns it into EFBIG.
    unsafe {
        nix::libc::signal(nix::libc::SIGXFSZ, nix::libc::SIG_IGN);
        assert_eq!(
            nix::libc::setrlimit(nix::libc::RLIMIT_FSIZE, &raw const limit),
            0
        );
    }
    let mut store = BlockingStore::new(&shared).unwrap();
    store.write(0, &[1; 8192]).unwrap();
    // The first 4096 bytes still go: a short write, continued, and then the error at the place where it is.
    let error = store.write(4096, &[1; 8192]).unwrap_err();
    let expected = StoreError::Io {
        store: shared.name().to_owned(),
        what: "writing",
        offset: 8192,
        source: Errno::EFBIG,
        advice: "; the file size limit is reached (ulimit -f)",
    };
    assert_eq!(error, expected);
    assert!(
        error
            .to_string()
            .contains("writing at byte 8192 failed: EFBIG"),
        "{error}"
    );
}

/// Writers that share blocks, each on its own thread with its own handle. Each owns every n-th cell of 100 bytes; a lost update shows as
/// an old number in somebody's cell.
fn writers_sharing_blocks(options: OpenOptions) {
    const WRITERS: usize = 3;
    const CELL: usize = 100;
    const CELLS: usize = 60;
    const ROUNDS: u8 = 40;
    let scratch = Scratch::on_disk();
    let shared = scratch.filled(1 << 20, options);
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let shared = shared.clone();
            scope.spawn(move || {
                let ring = Ring::new(&RingConfig::default()).unwrap();
                let mut store = shared.open_handle(&ring).unwrap();
                let mut done = Vec::new();
                for round in 1..=ROUNDS {
                    let cells = (writer..CELLS).step_by(WRITERS);
                    let count = cells.clone().count();
                    for cell in cells {
                        let buf = IoBuf::from_bytes(&[round; CELL]).unwrap();
                        let op = Op::Write {
                            offset: (cell * CELL) as u64,
                            durable: false,
                        };
                        store
                            .submit(op, Some(buf), Token(cell as u64), Terms::default())
                            .unwrap();
                    }
                    while done.len() < count {
                        store.poll(&mut done);
                        if done.len() < count {
                            turn(&ring);
                        }
                    }
                    done.drain(..)
                        .for_each(|done| assert_eq!(done.result, Ok(100)));
                }
            });
        }
    });
    let mut all = vec![0; CELL * CELLS];
    BlockingStore::new(&shared)
        .unwrap()
        .read(0, &mut all)
        .unwrap();
    let stale: Vec<usize> = all
        .iter()
        .enumerate()
        .filter(|&(_, &byte)| byte != ROUNDS)
        .map(|(at, _)| at / CELL)
        .collect();
    assert!(stale.is_empty(), "cells {stale:?} lost their last write");
}

#[test]
fn unaligned_writes_of_neighbours_do_not_undo_each_other() {
    writers_sharing_blocks(OpenOptions::read_write());
    writers_sharing_blocks(OpenOptions::read_write().page_cache());
}

#[test]
fn an_unaligned_write_does_not_undo_a_whole_block() {
    let scratch = Scratch::on_disk();
    let shared = scratch.filled(1 << 20, OpenOptions::read_write());
    let align = usize::try_from(shared.limits().alignment_bytes)
        .unwrap()
        .max(512);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        // One thread writes the middle of the block, on and on.
        scope.spawn(|| {
            let mut store = BlockingStore::new(&shared).unwrap();
            while !stop.load(Ordering::Relaxed) {
                store.write(100, &[0xff; 200]).unwrap();
            }
        });
        // The other writes whole blocks and checks the bytes that only it writes.
        let ring = Ring::new(&RingConfig::default()).unwrap();
        let mut store = shared.open_handle(&ring).unwrap();
        let mut lost = 0;
        for round in 0..300u32 {
            let value = round.to_le_bytes()[0] & 0x7f;
            let buf = IoBuf::from_bytes(&vec![value; align]).unwrap();
            assert!(
                run_one(
                    &ring,
                    &mut *store,
                    Op::Write {
                        offset: 0,
                        durable: false
                    },
                    Some(buf)
                )
                .result
                .is_ok()
            );
            let back = run_one(
                &ring,
                &mut *store,
                Op::Read { offset: 0 },
                Some(IoBuf::heap(align).unwrap()),
            );
            let back = back.buf.unwrap().to_vec();
            lost += usize::from(
                back[..100]
                    .iter()
                    .chain(&back[300..])
                    .any(|&byte| byte != value),
            );
        }
        stop.store(true, Ordering::Relaxed);
        assert_eq!(lost, 0, "of 300 whole-block writes were undone");
    });
}

/// A loop device over a file, where this user may make one.
struct LoopDevice {
    device: PathBuf,
    _scratch: Scratch,
}

impl LoopDevice {
    fn new(size: u64) -> Option<Self> {
        let scratch = Scratch::on_disk();
        scratch.resize(size);
        let path = scratch.spec().trim_start_matches("file:").to_owned();
        let output = Command::new("losetup")
            .args(["--find", "--show", &path])
            .output()
            .ok()?;
        let device = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
        (output.status.success() && device.starts_with("/dev")).then_some(Self {
            device,
            _scratch: scratch,
        })
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup")
            .arg("--detach")
            .arg(&self.device)
            .status();
    }
}

#[test]
fn block_devices_pass_the_suite() {
    const BYTES: u64 = 3 << 20;
    let Some(device) = LoopDevice::new(BYTES) else {
        println!("skipped: this user cannot make loop devices");
        return;
    };
    let fresh = |options: OpenOptions| {
        std::fs::File::options()
            .write(true)
            .open(&device.device)
            .unwrap()
            .write_all(&vec![0; 3 << 20])
            .unwrap();
        let shared = open(&device.device.display().to_string(), options).unwrap();
        assert_eq!(shared.bytes(), BYTES);
        shared
    };
    println!("{}", fresh(OpenOptions::read_write()).describe());
    run(&Subject::new(|| fresh(OpenOptions::read_write()))
        .read_only(|| fresh(OpenOptions::read_only())));
    run(&Subject::new(|| {
        fresh(OpenOptions::read_write().page_cache())
    }));
    // As a file system that is mounted has it.
    let mut mounted = std::fs::File::options();
    mounted.read(true).write(true);
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut mounted, nix::libc::O_EXCL);
    let _mounted = mounted.open(&device.device).unwrap();
    let spec = StoreSpec::parse(&device.device.display().to_string()).unwrap();
    let error = SharedStore::open(&spec, OpenOptions::read_write()).unwrap_err();
    assert!(
        error.to_string().contains("it is in use: mounted"),
        "{error}"
    );
    SharedStore::open(&spec, OpenOptions::read_only()).unwrap();
}

#[test]
fn a_blocking_store_cuts_long_ranges_and_zeroes_nothing_of_one_that_is_too_long() {
    let spec = StoreSpec::Mem { bytes: 5 << 20 };
    let shared = SharedStore::open(&spec, OpenOptions::read_write()).unwrap();
    let mut store = BlockingStore::new(&shared).unwrap();
    let mut model = vec![7; 5 << 20];
    store.write(0, &model).unwrap();
    let zero = |offset, len| Op::Zero {
        offset,
        len,
        durable: false,
    };
    let error = store.run(zero(100, 5 << 20)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfRange);
    store.run(zero(100, (3 << 20) + 5)).unwrap();
    model[100..(3 << 20) + 105].fill(0);
    let mut back = vec![1; 5 << 20];
    store.read(0, &mut back).unwrap();
    assert!(back == model);
}
