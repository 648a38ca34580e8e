//! Where io_uring is forbidden or locked memory is scarce. A program of its own, because it changes limits of its process.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::io::Write;
use std::thread;

use nix::libc;
use reactor::buf::{IoBuf, Pool, PoolConfig};
use reactor::{Errno, Fd, Payload, ReactorError, Ring, RingConfig, SmallRing, Wait};

/// Makes io_uring_setup answer `errno` for this thread, as a container's seccomp profile does.
fn forbid_io_uring(errno: Errno) {
    forbid_rings_above(0, errno);
}

/// The same for rings of more submissions than these.
fn forbid_rings_above(submissions: u32, errno: Errno) {
    let load_number = libc::sock_filter {
        code: 0x20,
        jt: 0,
        jf: 0,
        k: 0,
    };
    let is_setup = libc::sock_filter {
        code: 0x15,
        jt: 0,
        jf: 3,
        k: u32::try_from(libc::SYS_io_uring_setup).unwrap(),
    };
    // The low half of the first argument, the entries; little-endian.
    let load_entries = libc::sock_filter {
        code: 0x20,
        jt: 0,
        jf: 0,
        k: 16,
    };
    let is_above = libc::sock_filter {
        code: 0x25,
        jt: 0,
        jf: 1,
        k: submissions,
    };
    let answer = |k| libc::sock_filter {
        code: 0x06,
        jt: 0,
        jf: 0,
        k,
    };
    let mut filter = [
        load_number,
        is_setup,
        load_entries,
        is_above,
        answer(libc::SECCOMP_RET_ERRNO | (errno as i32).cast_unsigned()),
        answer(libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: 6,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the filter outlives the calls, which copy it; both settings bind this thread only.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(
            libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &raw const program
            ),
            0
        );
    }
}

#[test]
fn a_container_that_forbids_io_uring_is_told_what_to_do() {
    for (errno, advice) in [
        (Errno::EPERM, "kernel.io_uring_disabled"),
        (Errno::ENOSYS, "Linux 5.15"),
    ] {
        let error = thread::spawn(move || {
            forbid_io_uring(errno);
            Ring::new(&RingConfig::default()).err().unwrap()
        });
        let error = error.join().unwrap();
        assert!(
            matches!(error, ReactorError::Refused { source, .. } if source == errno),
            "{error:?}"
        );
        let text = error.to_string();
        assert!(
            text.contains("io_uring is refused")
                && text.contains(advice)
                && text.contains("seccomp"),
            "{text}"
        );
    }
}

/// Rings of more than 16 submissions find no memory: the ring is smaller, and 1,000 reads at a time, more than it has completions for, are all answered.
#[test]
fn where_a_ring_finds_no_memory_a_smaller_one_does_the_work() {
    const READS: u64 = 1000;
    let work = || {
        forbid_rings_above(16, Errno::ENOMEM);
        let ring = Ring::new(&RingConfig::default()).unwrap();
        let small = SmallRing {
            completions: 256,
            wanted: 4096,
        };
        assert_eq!(ring.small(), Some(small));
        assert!(
            small
                .to_string()
                .contains("rings of 256 completions instead of 4096"),
            "{small}"
        );
        let path = std::env::temp_dir().join(format!("reactor-small-{}", std::process::id()));
        let mut options = std::fs::File::options();
        let mut file = options
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .unwrap();
        std::fs::remove_file(path).unwrap();
        for number in 0..READS {
            file.write_all(&number.to_le_bytes()).unwrap();
        }
        let (owner, file) = (ring.register().unwrap(), Fd::from(file));
        for number in 0..READS {
            let buf = IoBuf::heap(8).unwrap();
            owner.read_at(&file, number * 8, buf, number).unwrap();
        }
        let mut read: Vec<u64> = Vec::new();
        while read.len() < usize::try_from(READS).unwrap() {
            ring.turn(Wait::Block { until: None }).unwrap();
            while let Some(event) = owner.next_event() {
                assert_eq!(event.result, Ok(8));
                let Payload::Buf(buf) = event.payload else {
                    panic!("a read brings its buffer")
                };
                let bytes = buf.to_vec().try_into().unwrap();
                assert_eq!(u64::from_le_bytes(bytes), event.tag);
                read.push(event.tag);
            }
        }
        read.sort_unstable();
        assert!(read.into_iter().eq(0..READS));
    };
    thread::spawn(work).join().unwrap();
}

/// No memory for the least ring either: that is said.
#[test]
fn where_no_ring_finds_memory_the_limit_is_named() {
    let error = thread::spawn(|| {
        forbid_io_uring(Errno::ENOMEM);
        Ring::new(&RingConfig::default()).err().unwrap()
    });
    let text = error.join().unwrap().to_string();
    assert!(text.contains("RLIMIT_MEMLOCK"), "{text}");
}

/// The rings of four reactors, as the daemon makes them, under the limit that systemd and shells had for long. What this kernel does not count against it
/// is as large as was asked for.
#[test]
fn under_a_mebibyte_of_locked_memory_four_reactors_have_rings() {
    let work = || {
        limit_locked_memory(1 << 20);
        let config = RingConfig {
            ops_max: 8576,
            events_max: 2 * 8576,
            ..RingConfig::default()
        };
        let rings: Vec<Ring> = (0..4).map(|_| Ring::new(&config).unwrap()).collect();
        let has_counted = rings.iter().any(|ring| ring.small().is_some());
        assert_eq!(has_counted, kernel() >= (6, 14), "{:?}", kernel());
    };
    thread::spawn(work).join().unwrap();
}

fn kernel() -> (u32, u32) {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut next = || numbers.next().unwrap().parse().unwrap();
    (next(), next())
}

/// Limits what this thread may lock; the process's limit is the same for all its threads.
fn limit_locked_memory(bytes: u64) {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: a live structure of the right type, each time.
    unsafe {
        let limit = &raw mut limit;
        assert_eq!(libc::getrlimit(libc::RLIMIT_MEMLOCK, limit), 0);
        // The hard limit stays: another test may want more again.
        (*limit).rlim_cur = bytes;
        assert_eq!(libc::setrlimit(libc::RLIMIT_MEMLOCK, limit), 0);
    }
    drop_ipc_lock();
}

/// Gives up the right to lock any amount of memory, for this thread.
fn drop_ipc_lock() {
    const VERSION_3: u32 = 0x2008_0522;
    const CAP_IPC_LOCK: u32 = 14;
    #[repr(C)]
    struct Header {
        version: u32,
        pid: i32,
    }
    let mut header = Header {
        version: VERSION_3,
        pid: 0,
    };
    // Effective, permitted, inheritable; twice.
    let mut sets = [0u32; 6];
    // SAFETY: capget and capset of version 3 take this header and two sets of three words; both bind this thread only.
    unsafe {
        assert_eq!(
            libc::syscall(libc::SYS_capget, &raw mut header, sets.as_mut_ptr()),
            0
        );
        sets[0] &= !(1 << CAP_IPC_LOCK);
        assert_eq!(
            libc::syscall(libc::SYS_capset, &raw mut header, sets.as_ptr()),
            0
        );
    }
}

#[test]
fn over_the_memlock_limit_buffers_work_unregistered() {
    thread::spawn(|| {
        limit_locked_memory(256 << 10);
        let ring = Ring::new(&RingConfig::default()).unwrap();
        let pool = Pool::new(&ring, &PoolConfig::default()).unwrap();
        assert!(!pool.registered());

        let path = std::env::temp_dir().join(format!("reactor-memlock-{}", std::process::id()));
        let mut file = std::fs::File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .unwrap();
        std::fs::remove_file(path).unwrap();
        file.write_all(b"content").unwrap();
        let owner = ring.register().unwrap();
        owner
            .read_at(&Fd::from(file), 0, pool.alloc(7).unwrap(), 1)
            .unwrap();
        let event = loop {
            match owner.next_event() {
                Some(event) => break event,
                None => drop(ring.turn(Wait::Block { until: None }).unwrap()),
            }
        };
        assert_eq!(event.result, Ok(7));
        assert!(matches!(event.payload, Payload::Buf(buf) if buf.to_vec() == b"content"));
    })
    .join()
    .unwrap();
}
